// Decode + attribute + account: activity records per second on one core, from CUPTI's buffer to the window. The mix is
// that of a training loop: four streams that overlap, two launching threads (the second inherits the region), regions
// three deep, copies among the kernels, and names as long as real ones.
#include <benchmark/benchmark.h>
#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/account/ledger.h"
#include "core/attribution/attribution.h"
#include "core/attribution/record_queue.h"
#include "core/config/config.h"
#include "core/drain/drain.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/region_rules.h"
#include "cuda/activity_decode.h"
#include "tests/bench/cpu_time.h"

namespace mfu {
namespace {

constexpr std::size_t kBufferRecords = 4854;  ///< kernel records of CUPTI 13.0 in the 1 MiB that it is given
constexpr TimeNs kOrigin = 1'000'000'000'000;

/// As cuptiActivityGetNextRecord: steps by the size of each kind's newest record.
CUptiResult next_record(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  std::uint8_t* at = buffer;
  if (*record != nullptr) {
    const auto kind = (*record)->kind;
    at = reinterpret_cast<std::uint8_t*>(*record) +
         (kind == CUPTI_ACTIVITY_KIND_MEMCPY ? sizeof(CUpti_ActivityMemcpy5) : sizeof(CUpti_ActivityKernel9));
  }
  if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (int i = 0; i < 24; ++i) {
    const std::string n = std::to_string(i);
    names.push_back("nvjet_tst_" + std::to_string(64 + 8 * i) + "x192_64x4_2x1_v_bz_coopB_bias_TNN");
    names.push_back("_ZN2at6native29vectorized_elementwise_kernelILi" + n +
                    "ENS0_15CUDAFunctor_addIN3c108BFloat16EEESt5arrayIPcLm3EEEEviT0_T1_");
    names.push_back(
        "_ZN5flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi64ELi" + n +
        "ELi4ELb0ELb0EN7cutlass10bfloat16_tE19Flash_kernel_traitsILi128ELi128ELi64ELi4ES3_EELb0ELb1ELb0ELb0ELb1E"
        "Lb1ELb0EEEvNS_16Flash_fwd_paramsE");
    names.push_back("ncclDevKernel_AllReduce_Sum_bf16_RING_LL" + n);
  }
  return names;
}

/// One process: a training loop whose device activity is generated tick by tick.
class TrainingRun {
 public:
  TrainingRun()
      : config_(*load_config_file(R"({"model": {"params": 1000000}, "peak": {"tflops": 100, "gbps": 1000},
          "workload": {"batch": 1, "seq_len": 1}, "regions": [{"region": "forward", "match": "forward"},
          {"region": "layer", "match": "layer.*"}]})",
                                  [](const char*) -> const char* { return nullptr; })),
        rules_(config_.regions, {}, warnings_),
        attribution_(counters_),
        names_(counters_),
        clock_(true),
        ledger_(rules_, config_.flops_model(), config_.workload, names_, counters_, {kOrigin, 10 * kNsPerSecond, false},
                [this](WindowSummary&& w) { windows_ += !w.regions.empty(); }),
        drain_(attribution_, ledger_, clock_, contexts_, counters_),
        names_text_(kernel_names()) {
    api_.get_next_record = next_record;
    for (ThreadState*& t : threads_) t = attribution_.acquire_thread();
    step_ = opening("step");
    forward_ = opening("forward");
    layer_ = opening("layer 7");
  }

  /// Launches `records` more activities, and puts their records into buffers in the order in which they complete.
  [[gnu::noinline]] void launch(std::size_t records) {
    struct Done {
      TimeNs begin, end;
      std::uint32_t correlation, stream;
    };
    std::vector<Done> done;
    done.reserve(records);
    while (done.size() < records) {
      const std::uint32_t in_step = step_launches_++ % kStep;
      if (in_step == 0) {
        attribution_.push_region(*threads_[0], DomainId::kDefault, step_, cpu_ns_);
        attribution_.push_region(*threads_[0], DomainId::kDefault, forward_, cpu_ns_);
      }
      const bool forward = in_step < kStep / 3;
      if (forward && in_step % kLayer == 0) attribution_.push_region(*threads_[0], DomainId::kDefault, layer_, cpu_ns_);
      ThreadState& thread = *threads_[forward ? 0 : 1];
      correlation_ += 1 + static_cast<std::uint32_t>(rng_() % 3);
      attribution_.launch(thread, static_cast<CorrelationId>(correlation_), 1);
      attribution_.launch_done(thread, static_cast<CorrelationId>(correlation_), false);
      const std::uint32_t stream = rng_() % 8 < 5 ? 0 : static_cast<std::uint32_t>(rng_() % kStreams);
      const TimeNs begin = std::max(stream_free_[stream], cpu_ns_ + 3000);
      const TimeNs end = begin + 500 + static_cast<TimeNs>(rng_() % 3000);
      stream_free_[stream] = end + 100;
      done.push_back({begin, end, correlation_, stream});
      cpu_ns_ += 1500;
      if (forward && in_step % kLayer == kLayer - 1) pop();
      if (in_step == kStep / 3 - 1) pop();
      if (in_step == kStep - 1) pop();
    }
    std::stable_sort(done.begin(), done.end(), [](const Done& a, const Done& b) { return a.end < b.end; });
    buffers_.clear();
    for (std::size_t i = 0; i < done.size(); ++i) {
      if (i % kBufferRecords == 0) buffers_.emplace_back().reserve(kBufferRecords * sizeof(CUpti_ActivityKernel9));
      const auto append = [this](const auto& record) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&record);
        buffers_.back().insert(buffers_.back().end(), bytes, bytes + sizeof record);
      };
      const auto common = [&done, i](auto& record) {
        record.start = static_cast<std::uint64_t>(done[i].begin);
        record.end = static_cast<std::uint64_t>(done[i].end);
        record.deviceId = 0;
        record.contextId = 1;
        record.streamId = done[i].stream + 7;
        record.correlationId = done[i].correlation;
      };
      if (done[i].correlation % 16 == 0) {
        CUpti_ActivityMemcpy5 record{};
        record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
        common(record);
        record.bytes = 1 << 20;
        append(record);
      } else {
        CUpti_ActivityKernel9 record{};
        record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        common(record);
        record.name = names_text_[done[i].correlation % names_text_.size()].c_str();
        append(record);
      }
    }
  }

  /// One tick of the drain over what launch() made. What a run spends per record is all in here.
  [[gnu::noinline]] void account() {
    drain_.begin_tick(cpu_ns_);
    ActivityDecoder decoder(api_, names_, contexts_, queue_, counters_);
    for (std::vector<std::uint8_t>& buffer : buffers_) {
      decoder.decode(buffer.data(), buffer.size(), false);
      while (RecordBatch* batch = queue_.receive()) {
        drain_.follow_instances();
        drain_.record(*batch);
        queue_.give_back(batch);
      }
    }
    drain_.end_tick(false);
  }

  /// False when something was lost on the way, and the figure so worth nothing.
  [[nodiscard]] bool intact(std::uint64_t launches) {
    drain_.finish(cpu_ns_ + kNsPerSecond);
    const LaunchAccount a = drain_.account();
    return a.seen == launches && a.attributed == launches && counters_.get(Counter::kRecordsLate) == 0 &&
           counters_.get(Counter::kInstancesFull) == 0 && counters_.get(Counter::kRecordsNoBatch) == 0 && windows_ != 0;
  }

 private:
  static constexpr std::uint32_t kStep = 900, kLayer = 20;
  static constexpr std::size_t kStreams = 4;

  RegionOpening opening(const char* name) { return rules_.open(rules_.match("", name), name, nullptr); }
  void pop() {
    attribution_.pop(*threads_[0], DomainId::kDefault, [this] { return cpu_ns_; });
  }

  std::vector<std::string> warnings_;
  Config config_;
  RegionRules rules_;
  Counters counters_;
  Attribution attribution_;
  KernelNames names_;
  ContextDevices contexts_;
  RecordQueue queue_;
  TickClock clock_;
  std::uint64_t windows_ = 0;
  Ledger ledger_;
  Drain drain_;
  CuptiApi api_;
  std::vector<std::string> names_text_;
  ThreadState* threads_[2] = {};
  RegionOpening step_, forward_, layer_;
  std::mt19937 rng_{1};
  TimeNs cpu_ns_ = kOrigin + 1000;
  TimeNs stream_free_[kStreams] = {};
  std::uint32_t correlation_ = 0xFFF0'0000u;  // wraps on the way
  std::uint32_t step_launches_ = 0;
  std::vector<std::vector<std::uint8_t>> buffers_;
};

/// CPU time of this thread, so that a busy machine changes the figure little. items_per_second: records/s on one core.
void BM_DecodeAttributeAccount(benchmark::State& state) {
  const auto per_tick = static_cast<std::size_t>(state.range(0));
  TrainingRun run;
  std::uint64_t launches = 0;
  for (auto _ : state) {
    run.launch(per_tick);
    launches += per_tick;
    const double before = thread_cpu_ns();
    run.account();
    state.SetIterationTime((thread_cpu_ns() - before) * 1e-9);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(launches));
  if (!run.intact(launches)) state.SkipWithError("records were lost");
}
BENCHMARK(BM_DecodeAttributeAccount)->Arg(10'000)->Arg(100'000)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mfu
