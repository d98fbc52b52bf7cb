// Memory of the whole path under load: 64 threads that launch inside regions, or without any while steps are looked
// for; CUPTI's buffers with a record for each launch, the drain behind them. `rss_mb` is what the process grew by since
// before the library's objects were made, `half_mb` the same at half of the launches: flat means that the two agree.
// MFU_BENCH_LAUNCHES: how many launches (default 2,000,000; the figure that counts is 100,000,000).
#include <benchmark/benchmark.h>
#include <cupti.h>
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/account/ledger.h"
#include "core/attribution/attribution.h"
#include "core/attribution/record_queue.h"
#include "core/config/config.h"
#include "core/drain/detected_regions.h"
#include "core/drain/drain.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/region_rules.h"
#include "core/ranges/rule_cache.h"
#include "cuda/activity_buffers.h"
#include "cuda/activity_decode.h"

namespace mfu {
namespace {

constexpr TimeNs kOrigin = 1'000'000'000'000;
constexpr int kThreads = 64;
constexpr std::uint32_t kEachPerRound = 1024;  ///< launches of one thread between two ticks of the drain
constexpr DurationNs kRound = kNsPerSecond / 10;

double resident_mb() {
  std::ifstream in("/proc/self/statm");
  double total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

CUptiResult next_record(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  std::uint8_t* at =
      *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + sizeof(CUpti_ActivityKernel9);
  if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}

/// Everything the library keeps.
struct Library {
  Config config;
  std::vector<std::string> warnings;
  RegionRules rules{{}, {}, warnings};
  Counters counters;
  RuleCache range_names{rules};
  Attribution attribution{counters};
  KernelNames names{counters};
  ContextDevices contexts;
  RecordQueue queue;
  TickClock clock{true};
  std::uint64_t windows = 0;
  Ledger ledger{rules,
                config.flops_model(),
                config.workload,
                names,
                counters,
                {kOrigin, 10 * kNsPerSecond, false},
                [this](WindowSummary&&) { ++windows; }};
  DetectedRegions detected{ledger, rules, names, {}};
  Drain drain{attribution, ledger, clock, contexts, counters, &detected};
  ActivityBuffers buffers{counters, true};
};

void run(benchmark::State& state, bool ranges) {
  const char* wanted = std::getenv("MFU_BENCH_LAUNCHES");
  const std::uint64_t launches = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 2'000'000;
  const std::uint64_t rounds = std::max<std::uint64_t>(2, launches / (kThreads * kEachPerRound));
  std::vector<std::string> kernel_names;
  for (int i = 0; i < 300; ++i)
    kernel_names.push_back("void some_kernel_of_a_model<" + std::to_string(i) + ", float, 128>(Params)");
  for (auto _ : state) {
    const double before = resident_mb();
    const auto library = std::make_unique<Library>();
    Library& l = *library;
    CuptiApi api;
    api.get_next_record = next_record;
    ActivityDecoder decoder(api, l.names, l.contexts, l.queue, l.counters);
    const RegionOpening step = l.rules.open(l.rules.match("", "step"), "step", nullptr);
    const RegionOpening decode = l.rules.open(l.rules.match("", "decode"), "decode", nullptr);
    std::atomic<std::uint32_t> ids{0};
    TimeNs now = kOrigin;
    std::barrier round(kThreads + 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        ThreadState* thread = l.attribution.acquire_thread();
        const bool of_region = ranges && t % 2 == 0;
        for (std::uint64_t r = 0; r < rounds; ++r) {
          round.arrive_and_wait();
          for (std::uint32_t i = 0; i < kEachPerRound; ++i) {
            if (of_region && i % 256 == 0) l.attribution.push_region(*thread, DomainId::kDefault, step, now + i);
            if (of_region && i % 32 == 0) l.attribution.push_region(*thread, DomainId::kDefault, decode, now + i);
            const auto id = static_cast<CorrelationId>(ids.fetch_add(1));
            l.attribution.launch(*thread, id, 1);
            l.attribution.launch_done(*thread, id, false);
            if (of_region && i % 32 == 31) l.attribution.pop(*thread, DomainId::kDefault, [&] { return now + i; });
            if (of_region && i % 256 == 255) l.attribution.pop(*thread, DomainId::kDefault, [&] { return now + i; });
          }
          round.arrive_and_wait();
        }
        l.attribution.release_thread(*thread, now);
      });
    }
    double half = 0;
    std::uint32_t recorded = 0;
    for (std::uint64_t r = 0; r < rounds; ++r) {
      round.arrive_and_wait();
      round.arrive_and_wait();
      // As CUPTI: fills all its buffers, then completes them.
      std::vector<std::pair<std::uint8_t*, std::size_t>> full;
      for (const std::uint32_t end = ids.load(); recorded != end;) {
        std::size_t size = 0, records = 0;
        std::uint8_t* buffer = l.buffers.request(0, size, records);
        if (buffer == nullptr) break;
        std::size_t used = 0;
        for (std::size_t in_buffer = 0;
             recorded != end && used + sizeof(CUpti_ActivityKernel9) <= size && (records == 0 || in_buffer < records);
             ++recorded, ++in_buffer) {
          CUpti_ActivityKernel9 record{};
          record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
          record.start = static_cast<std::uint64_t>(now + 2000 + recorded % (kThreads * kEachPerRound) * 1000);
          record.end = record.start + 900;
          record.contextId = 1;
          record.streamId = 7 + recorded % 4;
          record.correlationId = recorded;
          record.name = kernel_names[recorded % kernel_names.size()].c_str();
          std::memcpy(buffer + used, &record, sizeof record);
          used += sizeof record;
        }
        full.emplace_back(buffer, used);
      }
      now += kRound;
      l.drain.begin_tick(now);
      for (const auto& [buffer, used] : full) {
        decoder.decode(buffer, used, false);
        l.buffers.give_back(buffer, used, now);
      }
      while (RecordBatch* batch = l.queue.receive()) {
        l.drain.follow_instances();
        l.drain.record(*batch);
        l.queue.give_back(batch);
      }
      l.drain.end_tick(false);
      if (r + 1 == rounds / 2) half = resident_mb() - before;
    }
    for (std::thread& t : threads) t.join();
    state.counters["rss_mb"] = resident_mb() - before;
    state.counters["half_mb"] = half;
    state.counters["launches"] = static_cast<double>(ids.load());
    l.drain.finish(now + kNsPerSecond);
    const LaunchAccount a = l.drain.account();
    if (a.seen != ids.load() || a.dropped != 0) state.SkipWithError("launches were lost");
    if (l.counters.get(Counter::kInstancesFull) != 0) state.SkipWithError("instances were lost");
  }
}
void BM_Memory(benchmark::State& state) { run(state, true); }
void BM_MemoryWithoutRanges(benchmark::State& state) { run(state, false); }
BENCHMARK(BM_Memory)->Iterations(1)->UseRealTime()->Unit(benchmark::kSecond);
BENCHMARK(BM_MemoryWithoutRanges)->Iterations(1)->UseRealTime()->Unit(benchmark::kSecond);

}  // namespace
}  // namespace mfu
