// The figures of random traces against the definitions applied one nanosecond at a time.
#include "tools/replay/trace_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace mfu {
namespace {

using Moments = std::set<std::pair<std::uint32_t, TimeNs>>;  // (device, ns)

struct Model {
  const Trace& trace;

  [[nodiscard]] std::uint32_t device(const TraceActivity& a) const { return trace.streams[a.stream].device; }
  template <typename Predicate>
  [[nodiscard]] Moments covered(const std::vector<const TraceActivity*>& set, Predicate holds) const {
    Moments out;
    for (const TraceActivity* a : set) {
      if (!holds(*a)) continue;
      for (TimeNs t = a->begin_ns; t < a->end_ns; ++t) out.insert({device(*a), t});
    }
    return out;
  }
  [[nodiscard]] std::vector<const TraceActivity*> all() const {
    std::vector<const TraceActivity*> out;
    for (const TraceActivity& a : trace.activities) out.push_back(&a);
    return out;
  }
  static std::int64_t beyond(const Moments& a, const Moments& b) {
    return std::count_if(a.begin(), a.end(), [&](const auto& moment) { return !b.contains(moment); });
  }

  [[nodiscard]] SetFigures figures(const std::vector<const TraceActivity*>& set) const {
    SetFigures f;
    if (set.empty()) return f;
    const auto kernel = [](const TraceActivity& a) { return a.kind == ActivityKind::kKernel; };
    const auto nccl = [](const TraceActivity& a) { return a.nccl != 0; };
    const auto compute = [&](const TraceActivity& a) { return kernel(a) && !nccl(a); };
    const auto count = [&](Figure n, Figure sum, auto holds) {
      for (const TraceActivity* a : set) {
        if (!holds(*a)) continue;
        ++f[n];
        f[sum] += a->end_ns - a->begin_ns;
      }
    };
    count(Figure::kKernels, Figure::kKernelSum, kernel);
    count(Figure::kComputeKernels, Figure::kComputeSum, compute);
    count(Figure::kNcclKernels, Figure::kNcclSum, nccl);
    count(Figure::kMemcpyOps, Figure::kMemcpySum, [](const auto& a) { return a.kind == ActivityKind::kMemcpy; });
    count(Figure::kMemsetOps, Figure::kMemsetSum, [](const auto& a) { return a.kind == ActivityKind::kMemset; });
    f[Figure::kGpuOps] = static_cast<std::int64_t>(set.size());
    const auto any = [](const auto&) { return true; };
    f[Figure::kGpuBusy] = static_cast<std::int64_t>(covered(set, any).size());
    f[Figure::kKernelBusy] = static_cast<std::int64_t>(covered(set, kernel).size());
    f[Figure::kComputeBusy] = static_cast<std::int64_t>(covered(set, compute).size());
    const Moments comm = covered(set, nccl);
    f[Figure::kNcclBusy] = static_cast<std::int64_t>(comm.size());
    f[Figure::kNcclExposed] = beyond(comm, covered(set, compute));
    f[Figure::kNcclExposedDevice] = beyond(comm, covered(all(), compute));
    TimeNs first = set[0]->begin_ns;
    TimeNs last = set[0]->end_ns;
    for (const TraceActivity* a : set) {
      first = std::min(first, a->begin_ns);
      last = std::max(last, a->end_ns);
    }
    f[Figure::kSpan] = last - first;
    f[Figure::kIdle] = f[Figure::kSpan] - f[Figure::kGpuBusy];
    return f;
  }
};

/// One process, two devices, three threads, everything overlapping everything.
Trace random_trace(std::mt19937& random) {
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Trace trace;
  trace.processes.push_back({"0", {}});
  for (int i = 0; i < 3; ++i) trace.threads.push_back({0, std::to_string(i), i});
  const auto devices = static_cast<std::uint32_t>(pick(1, 2));
  for (std::uint32_t i = 0; i < devices; ++i) {
    TraceDevice device;
    device.label = std::to_string(i);
    trace.devices.push_back(device);
  }
  for (std::uint32_t i = 0; i < 4; ++i) trace.streams.push_back({i % devices, std::to_string(i), StreamId{i}});
  const std::int64_t launches = pick(0, 12);
  for (std::int64_t i = 0; i < launches; ++i) {
    TraceLaunch launch;
    launch.begin_ns = pick(0, 60);
    launch.end_ns = launch.begin_ns + 1;
    launch.correlation = static_cast<std::uint64_t>(i);
    launch.thread = static_cast<std::uint32_t>(pick(0, 2)) & 0xFFFFFFu;
    trace.launches.push_back(launch);
  }
  for (std::int64_t i = pick(0, 20); i > 0; --i) {
    TraceActivity a;
    a.begin_ns = pick(0, 90);
    a.end_ns = a.begin_ns + pick(0, 25);
    a.correlation = static_cast<std::uint64_t>(pick(0, 14));  // some have no launch
    a.has_correlation = 1;
    a.stream = static_cast<std::uint32_t>(pick(0, 3));
    a.kind = static_cast<ActivityKind>(std::max<std::int64_t>(0, pick(-3, 2)));
    a.nccl = a.kind == ActivityKind::kKernel && pick(0, 2) == 0;
    trace.activities.push_back(a);
  }
  for (std::int64_t i = pick(0, 8); i > 0; --i) {
    TraceRange range;
    range.begin_ns = pick(0, 60);
    range.end_ns = range.begin_ns + pick(0, 60);
    range.thread = static_cast<std::uint32_t>(pick(0, 2));
    range.name = range.key = trace.strings.intern(pick(0, 1) == 0 ? "a" : "ProfilerStep#1");
    trace.ranges.push_back(range);
  }
  link_launches(trace);
  return trace;
}

TEST(ProcessFigures, RandomTracesByDefinition) {
  std::mt19937 random(99);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const Trace trace = random_trace(random);
    const Model model{trace};
    const ProcessFigures got = process_figures(trace).at(0);
    ASSERT_EQ(got.totals.values, model.figures(model.all()).values);

    std::set<std::uint32_t> used;
    for (const TraceActivity& a : trace.activities) used.insert(model.device(a));
    ASSERT_EQ(got.devices, static_cast<std::int64_t>(used.size()));
    const Moments busy = model.covered(model.all(), [](const auto&) { return true; });
    UnattributedFigures none;
    for (const TraceActivity& a : trace.activities) {
      const auto holds = [&](const TraceRange& r, bool own_thread) {
        if (a.launch == kNoLaunch) return false;
        const TraceLaunch& l = trace.launches[a.launch];
        return r.begin_ns <= l.begin_ns && l.begin_ns < r.end_ns && (!own_thread || r.thread == l.thread);
      };
      const auto in_any = [&](bool own) {
        return std::any_of(trace.ranges.begin(), trace.ranges.end(), [&](const auto& r) { return holds(r, own); });
      };
      none.by_thread_gpu_ops += in_any(true) ? 0 : 1;
      none.by_process_gpu_ops += in_any(false) ? 0 : 1;
      none.by_process_sum_ns += in_any(false) ? 0 : a.end_ns - a.begin_ns;
    }
    ASSERT_EQ(got.unattributed.by_thread_gpu_ops, none.by_thread_gpu_ops);
    ASSERT_EQ(got.unattributed.by_process_gpu_ops, none.by_process_gpu_ops);
    ASSERT_EQ(got.unattributed.by_process_sum_ns, none.by_process_sum_ns);

    std::int64_t instances = 0;
    for (const RangeFigures& range : got.ranges) {
      SetFigures by_thread, by_process;
      DurationNs window_busy = 0;
      DurationNs wall = 0;
      std::int64_t count = 0;
      for (const TraceRange& r : trace.ranges) {
        if (trace.strings.at(r.key) != range.name) continue;
        ++count;
        wall += r.end_ns - r.begin_ns;
        window_busy += std::count_if(busy.begin(), busy.end(), [&](const auto& moment) {
          return moment.second >= r.begin_ns && moment.second < r.end_ns;
        });
        std::vector<const TraceActivity*> thread_set, process_set;
        for (const TraceActivity& a : trace.activities) {
          if (a.launch == kNoLaunch) continue;
          const TraceLaunch& l = trace.launches[a.launch];
          if (l.begin_ns < r.begin_ns || l.begin_ns >= r.end_ns) continue;
          process_set.push_back(&a);
          if (l.thread == r.thread) thread_set.push_back(&a);
        }
        by_thread += model.figures(thread_set);
        by_process += model.figures(process_set);
      }
      instances += count;
      ASSERT_EQ(range.instances, count);
      ASSERT_EQ(range.wall_ns, wall);
      ASSERT_EQ(range.window_busy_ns, window_busy);
      ASSERT_EQ(range.window_idle_ns, wall * std::max<std::int64_t>(1, got.devices) - window_busy);
      ASSERT_EQ(range.by_thread.values, by_thread.values) << range.name;
      ASSERT_EQ(range.by_process.values, by_process.values) << range.name;
    }
    ASSERT_EQ(instances, static_cast<std::int64_t>(trace.ranges.size()));
  }
}

// Thousands of names around tens of thousands of operations, every range holding all of them: the product would be
// 4e8 visits, far more than this may take.
TEST(ProcessFigures, ManyRangesAroundManyOperations) {
  constexpr int kRanges = 10'000;
  constexpr int kOps = 40'000;
  Trace trace;
  trace.processes.push_back({"0", {}});
  trace.threads.push_back({0, "0", 0});
  trace.devices.emplace_back();
  trace.streams.push_back({0, "7", StreamId{7}});
  for (int i = 0; i < kOps; ++i) {
    TraceLaunch launch;
    launch.begin_ns = 1000 + i;
    launch.end_ns = launch.begin_ns + 1;
    launch.correlation = static_cast<std::uint64_t>(i);
    trace.launches.push_back(launch);
    TraceActivity a;
    a.begin_ns = 100'000 + 10 * i;
    a.end_ns = a.begin_ns + 7;
    a.correlation = static_cast<std::uint64_t>(i);
    a.has_correlation = 1;
    trace.activities.push_back(a);
  }
  for (int i = 0; i < kRanges; ++i) {
    TraceRange range;
    range.begin_ns = 0;
    range.end_ns = 1'000'000 + i;
    range.name = range.key = trace.strings.intern("range " + std::to_string(i));
    trace.ranges.push_back(range);
  }
  link_launches(trace);
  const auto started = std::chrono::steady_clock::now();
  const ProcessFigures got = process_figures(trace).at(0);
  ASSERT_EQ(got.ranges.size(), static_cast<std::size_t>(kRanges));
  for (const RangeFigures& range : got.ranges) {
    ASSERT_EQ(range.by_thread[Figure::kKernels], kOps);
    ASSERT_EQ(range.by_process[Figure::kKernelBusy], 7 * kOps);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
}

}  // namespace
}  // namespace mfu
