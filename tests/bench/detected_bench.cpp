// What it costs the drain to find steps where no range names any: the same records straight to the Ledger, and through
// the detector and back into its instances. ns of CPU time per record, on one core.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/account/ledger.h"
#include "core/config/config.h"
#include "core/drain/detected_regions.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/region_rules.h"
#include "tests/bench/cpu_time.h"

namespace mfu {
namespace {

constexpr TimeNs kOrigin = 1'000'000'000'000;
constexpr DurationNs kKernel = 10'000;

/// A training step of 1,200 launches: a copy, 24 layers forward and back, an optimizer. `graph`: as graphs of
/// 100 nodes each.
std::vector<ActivityRecord> step_of(KernelNames& names, bool graph) {
  std::vector<ActivityRecord> step;
  const auto add = [&](const std::string& name) {
    ActivityRecord record;
    record.name = names.intern(name.c_str());
    step.push_back(record);
  };
  ActivityRecord copy;
  copy.kind = ActivityKind::kMemcpy;
  copy.direction = CopyDirection::kToDevice;
  step.push_back(copy);
  for (int layer = 0; layer < 24; ++layer)
    for (int i = 0; i < 16; ++i)
      add(i % 4 == 0 ? "ampere_bf16_gemm_" + std::to_string(i) : "elementwise_" + std::to_string(i));
  for (int layer = 0; layer < 24; ++layer)
    for (int i = 0; i < 32; ++i)
      add(i % 8 == 0 ? "flash_bwd_kernel_" + std::to_string(i) : "gemm_grad_" + std::to_string(i));
  while (step.size() < 1200) add("multi_tensor_apply_kernel_adam");
  if (graph)
    for (std::size_t i = 1; i < step.size(); ++i) step[i].graph = static_cast<GraphId>(1 + i / 100);
  return step;
}

void run(benchmark::State& state, bool detect, bool graph) {
  std::vector<std::string> warnings;
  Config config;
  RegionRules rules({}, {}, warnings);
  Counters counters;
  KernelNames names(counters);
  Ledger ledger(rules, config.flops_model(), config.workload, names, counters, {kOrigin, 10 * kNsPerSecond, false},
                [](WindowSummary&&) {});
  DetectedRegions detected(ledger, rules, names, {});
  const std::vector<ActivityRecord> step = step_of(names, graph);
  constexpr int kSteps = 20;  // a tick's
  TimeNs at = kOrigin;
  std::uint32_t correlation = 0;
  std::uint64_t records = 0;
  std::vector<ActivityRecord> tick;
  for (auto _ : state) {
    tick.clear();
    for (int s = 0; s < kSteps; ++s) {
      for (std::size_t i = 0; i < step.size(); ++i) {
        ActivityRecord record = step[i];
        if (record.graph == GraphId::kNone || i % 100 == 0 || i == 1) ++correlation;
        record.correlation = static_cast<CorrelationId>(correlation);
        record.begin_ns = at;
        record.end_ns = at += kKernel;
        tick.push_back(record);
      }
    }
    const double before = thread_cpu_ns();
    CorrelationId last{};
    for (const ActivityRecord& record : tick) {
      const bool first = record.correlation != last;
      last = record.correlation;
      if (detect)
        detected.add(record, first, 1);
      else
        ledger.add(record, InstanceId::kNone, first);
    }
    ledger.advance(detect ? detected.settle(last, at) : at);
    state.SetIterationTime((thread_cpu_ns() - before) * 1e-9);
    records += tick.size();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(records));
  state.counters["ns/record"] = benchmark::Counter(static_cast<double>(records) * 1e-9,
                                                   benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  if (detect && detected.attributed() == 0 && state.iterations() > 20) state.SkipWithError("no step was found");
}

void BM_RecordsToLedger(benchmark::State& state) { run(state, false, false); }
void BM_RecordsThroughDetector(benchmark::State& state) { run(state, true, false); }
void BM_GraphRecordsToLedger(benchmark::State& state) { run(state, false, true); }
void BM_GraphRecordsThroughDetector(benchmark::State& state) { run(state, true, true); }
BENCHMARK(BM_RecordsToLedger)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RecordsThroughDetector)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_GraphRecordsToLedger)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_GraphRecordsThroughDetector)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mfu
