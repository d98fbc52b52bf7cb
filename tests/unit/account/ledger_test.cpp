// The ledger against a brute-force account of the same random run: every definition is worked out nanosecond by
// nanosecond from the list of all intervals, with nothing shared with the sweep.
#include "core/account/ledger.h"
#include "core/config/config.h"
#include "tests/sanitized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

struct TestActivity {
  TimeNs launch, begin, end;
  int owner;  ///< index of the innermost instance, -1: none
  std::uint32_t device;
  TimeClass time_class;
};

struct TestInstance {
  TimeNs open, close;
  std::uint32_t thread;
  int parent = -1;
  std::uint16_t region;
  Shape shape;
  std::int64_t tokens = 0;  ///< that the shape comes to
};

/// Regions of the test, by their index in the rules.
struct TestRegions {
  std::uint16_t step, prefill, decode, mixed, outer;
};

struct RandomRun {
  std::vector<TestInstance> instances;
  std::vector<TestActivity> activities;
  TimeNs end = 0;
  std::uint32_t devices = 1;
};

/// Regions of the test: `step`, `prefill`, `decode` and `mixed` (have FLOP), `outer` (no work of its own).
Config test_config() {
  const auto config = load_config_file(R"({"model": {"params": 1000000}, "peak": {"tflops": 1, "gbps": 1},
    "regions": [{"region": "outer", "match": "outer"}]})",
                                       [](const char*) -> const char* { return nullptr; });
  EXPECT_TRUE(config.ok());
  return config ? *config : Config{};
}

RandomRun random_run(std::mt19937& rng, const TestRegions& regions) {
  const auto pick = [&rng](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  const auto shape_it = [&](TestInstance& instance) {
    Shape& shape = instance.shape;
    if (instance.region == regions.decode && pick(0, 4) != 0) {
      shape.batch = pick(1, 20);
      if (pick(0, 1) == 0) shape.new_tokens = pick(1, 5);
      instance.tokens = *shape.batch * shape.new_tokens.value_or(1);
    } else if (instance.region == regions.mixed) {
      shape.tokens = pick(1, 50);
      shape.gen_batch = pick(0, 5);
      instance.tokens = *shape.tokens + *shape.gen_batch;
    } else {
      instance.tokens = pick(1, 50);
      shape.tokens = instance.tokens;
    }
  };
  RandomRun run;
  run.devices = static_cast<std::uint32_t>(pick(1, 2));
  const auto threads = static_cast<std::uint32_t>(pick(1, 3));
  const auto work = [&](int owner, TimeNs from, TimeNs to) {
    for (std::int64_t n = pick(0, 4); n > 0; --n) {
      TestActivity a;
      a.launch = pick(from, to);
      a.begin = a.launch + pick(0, 400);
      a.end = a.begin + pick(0, 500);
      a.owner = owner;
      a.device = static_cast<std::uint32_t>(pick(0, run.devices - 1));
      a.time_class = static_cast<TimeClass>(pick(0, 3));
      run.activities.push_back(a);
    }
  };
  for (std::uint32_t t = 1; t <= threads; ++t) {
    TimeNs at = kOrigin + pick(0, 300);
    for (std::int64_t n = pick(1, 16); n > 0; --n) {
      TestInstance top;
      top.open = at;
      top.close = at + pick(1, 900);
      top.thread = t;
      const std::uint16_t kinds[] = {regions.outer,  regions.step,   regions.prefill, regions.prefill,
                                     regions.decode, regions.decode, regions.decode,  regions.mixed};
      top.region = kinds[pick(0, 7)];
      shape_it(top);
      const int index = static_cast<int>(run.instances.size());
      run.instances.push_back(top);
      work(index, top.open, top.close);
      // Nested instances of another region, one behind another.
      TimeNs from = top.open + 1;
      for (std::int64_t count = pick(0, 2) == 0 ? pick(1, 3) : 0; count > 0 && top.close - from > 20; --count) {
        TestInstance nested;
        nested.open = pick(from, top.close - 10);
        from = nested.close = pick(nested.open, top.close - 1);
        nested.thread = t;
        nested.parent = index;
        nested.region = top.region == regions.prefill ? regions.step : regions.prefill;
        shape_it(nested);
        run.instances.push_back(nested);
        work(static_cast<int>(run.instances.size()) - 1, nested.open, nested.close);
      }
      at = top.close + pick(0, 300);
    }
    run.end = std::max(run.end, at);
  }
  work(-1, kOrigin, run.end);
  for (const TestActivity& a : run.activities) run.end = std::max(run.end, a.end);
  run.end += 1;
  return run;
}

/// What one instance must come to on one device.
struct Expected {
  bool active = false;
  TimeNs begin = 0, end = 0;
  ClassTimes time{};
  DurationNs busy = 0, sum = 0;
  DurationNs before = 0, after = 0;  ///< of its idle time: before its first activity; behind the device's last one
  std::uint64_t kernels = 0;
};

/// Both splits of a row's idle time come to it, to the nanosecond. On this short axis no gap reaches 20 µs.
void expect_whole_gaps(const RegionSummary& r) {
  ASSERT_EQ(r.idle_gaps.has_value(), r.classes_known);
  if (!r.idle_gaps) return;
  const DurationNs idle = r.time_ns[static_cast<std::size_t>(TimeClass::kIdle)];
  EXPECT_EQ(r.idle_gaps->under_20us, idle);
  EXPECT_EQ(r.idle_gaps->under_1ms + r.idle_gaps->longer, 0);
  EXPECT_EQ(r.idle_gaps->before + r.idle_gaps->inside + r.idle_gaps->after, idle);
  EXPECT_TRUE(r.idle_gaps->before >= 0 && r.idle_gaps->inside >= 0 && r.idle_gaps->after >= 0);
}

class BruteForce {
 public:
  explicit BruteForce(const RandomRun& run) : run_(run) {
    expected_.resize(run.instances.size(), std::vector<Expected>(run.devices));
    for (std::uint32_t d = 0; d < run.devices; ++d) {
      std::map<std::uint32_t, TimeNs> previous_end;
      std::map<int, TimeNs> inside_end;  // of the last instance inside each
      for (int i = 0; i < static_cast<int>(run.instances.size()); ++i) {
        const TestInstance& instance = run.instances[static_cast<std::size_t>(i)];
        Expected& e = expected_[static_cast<std::size_t>(i)][d];
        TimeNs last = std::numeric_limits<TimeNs>::min();
        std::vector<TestActivity> own;
        for (const TestActivity& a : run.activities) {
          if (a.device != d || !belongs(a.owner, i)) continue;
          e.active = true;
          last = std::max(last, a.end);
          if (a.time_class != TimeClass::kMemcpy) own.push_back(a);
        }
        // Instances are listed thread by thread in the order they open, nested ones right behind their own.
        TimeNs& before = instance.parent < 0 ? previous_end[instance.thread] : inside_end[instance.parent];
        if (instance.parent >= 0) before = std::max(before, of(instance.parent)[d].begin);
        e.begin = std::max(instance.open, before);
        e.end = std::max({e.begin, instance.close, last});
        before = e.end;
        TimeNs first = e.end, device_last = e.begin;
        for (const TestActivity& a : run.activities) {
          if (a.device != d) continue;
          if (belongs(a.owner, i)) first = std::min(first, a.begin);
          if (a.begin <= e.end) device_last = std::max(device_last, a.end);
        }
        for (TimeNs t = e.begin; t < e.end; ++t) {
          const TimeClass c = class_at(d, t);
          ++e.time[static_cast<std::size_t>(c)];
          if (c == TimeClass::kIdle && t < first) ++e.before;
        }
        const TimeNs edge = kOrigin + (e.end - kOrigin) / kWindow * kWindow;
        if (e.active) e.after = std::max<DurationNs>(0, e.end - std::max(device_last, edge));
        std::set<TimeNs> covered;
        for (const TestActivity& a : own) {
          e.sum += a.end - a.begin;
          ++e.kernels;
          for (TimeNs t = a.begin; t < a.end; ++t) covered.insert(t);
        }
        e.busy = static_cast<DurationNs>(covered.size());
      }
    }
  }

  [[nodiscard]] TimeClass class_at(std::uint32_t d, TimeNs t) const {
    std::size_t best = static_cast<std::size_t>(TimeClass::kIdle);
    for (const TestActivity& a : run_.activities)
      if (a.device == d && a.begin <= t && t < a.end) best = std::min(best, static_cast<std::size_t>(a.time_class));
    return static_cast<TimeClass>(best);
  }
  [[nodiscard]] const std::vector<Expected>& of(int i) const { return expected_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] bool belongs(int owner, int i) const {
    for (; owner >= 0; owner = run_.instances[static_cast<std::size_t>(owner)].parent)
      if (owner == i) return true;
    return false;
  }

 private:
  const RandomRun& run_;
  std::vector<std::vector<Expected>> expected_;
};

class LedgerProperty : public ::testing::Test {
 protected:
  void check_latency(const RandomRun& run, const BruteForce& truth, const TestRegions& regions,
                     const RegionRules& rules, const std::vector<WindowSummary>& windows, const WindowSummary& whole,
                     const Peak& peak);
  std::size_t compared_ = 0;  ///< rows of single instances

  void check(unsigned seed) {
    std::mt19937 rng(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<std::string> warnings;
    const Config config = test_config();
    const RegionRules rules(config.regions, {}, warnings);
    ASSERT_TRUE(warnings.empty());
    const auto region = [&rules](const std::string& name) {
      for (std::size_t i = 0; i < rules.regions().size(); ++i)
        if (rules.regions()[i].name == name) return static_cast<std::uint16_t>(i);
      return std::uint16_t{0xFFFF};
    };
    const TestRegions regions{region("step"), region("prefill"), region("decode"), region("mixed"), region("outer")};
    const RandomRun run = random_run(rng, regions);
    Counters counters;
    KernelNames names(counters);
    std::vector<WindowSummary> windows;
    LedgerOptions options;
    options.origin_ns = kOrigin;
    options.window_ns = kWindow;
    Ledger ledger(rules, config.flops_model(), config.workload, names, counters, options,
                  [&](WindowSummary&& w) { windows.push_back(std::move(w)); });
    Peak peak;
    peak.flop_per_s = 1e12;
    peak.bytes_per_s = 1e9;

    // Told as the drain tells it: events in order of time, every launch before the watermark with its activity.
    struct Event {
      TimeNs at;
      int kind;  // 0 close nested, 1 close, 2 open, 3 open nested
      int index;
    };
    std::vector<Event> events;
    for (int i = 0; i < static_cast<int>(run.instances.size()); ++i) {
      const TestInstance& instance = run.instances[static_cast<std::size_t>(i)];
      events.push_back({instance.open, instance.parent < 0 ? 2 : 3, i});
      events.push_back({instance.close, instance.parent < 0 ? 1 : 0, i});
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.at != b.at ? a.at < b.at : a.index < b.index; });
    std::vector<TestActivity> activities = run.activities;
    std::shuffle(activities.begin(), activities.end(), rng);
    std::vector<bool> told(activities.size(), false);
    std::size_t next = 0;
    const auto tell_until = [&](TimeNs until) {
      for (; next < events.size() && events[next].at <= until; ++next) {
        InstanceSlot slot;
        const TestInstance& instance = run.instances[static_cast<std::size_t>(events[next].index)];
        slot.id = static_cast<InstanceId>(events[next].index + 1);
        slot.parent = static_cast<InstanceId>(instance.parent + 1);
        slot.opener = static_cast<ThreadSerial>(instance.thread);
        slot.region = static_cast<RegionId>(instance.region);
        slot.rule = static_cast<RuleId>(0);
        for (std::size_t key = 0; key < ShapeWords::kCount; ++key)
          if (const auto& given = instance.shape.*kShapeKeys[key].value) slot.shape.set(key, *given);
        if (events[next].kind >= 2)
          ledger.open(slot, events[next].at);
        else
          ledger.close(slot, events[next].at, 0);
      }
      for (std::size_t k = 0; k < activities.size(); ++k) {
        if (told[k] || activities[k].launch > until) continue;
        told[k] = true;
        const TestActivity& a = activities[k];
        ActivityRecord record;
        record.begin_ns = a.begin;
        record.end_ns = a.end;
        record.device = static_cast<DeviceId>(a.device);
        record.kind = a.time_class == TimeClass::kMemcpy ? ActivityKind::kMemcpy : ActivityKind::kKernel;
        record.name = a.time_class == TimeClass::kMemcpy ? KernelNameId::kOther : names.intern(kernel_of(a.time_class));
        ledger.add(record, static_cast<InstanceId>(a.owner + 1), true);
      }
    };
    for (std::uint32_t d = 0; d < run.devices; ++d) ledger.set_peak(d, peak);
    for (TimeNs w = kOrigin; w < run.end; w += std::uniform_int_distribution<TimeNs>(1, 700)(rng)) {
      tell_until(w);
      ledger.advance(w);
    }
    tell_until(run.end);
    ledger.finish(run.end);

    ASSERT_FALSE(windows.empty());
    const WindowSummary whole = windows.back();
    windows.pop_back();
    ASSERT_TRUE(whole.final_run);
    EXPECT_EQ(counters.get(Counter::kRecordsLate), 0u);

    const BruteForce truth(run);
    std::map<std::pair<std::string, std::uint32_t>, Expected> sums;
    std::map<std::pair<std::string, std::uint32_t>, std::uint64_t> instances;
    for (int i = 0; i < static_cast<int>(run.instances.size()); ++i) {
      bool any = false;
      for (const Expected& e : truth.of(i)) any = any || e.active;
      for (std::uint32_t d = 0; d < run.devices; ++d) {
        const Expected& e = truth.of(i)[d];
        if (any ? !e.active : d != 0) continue;  // without activity it counts where its thread was: device 0
        const auto key = std::pair(rules.regions()[run.instances[static_cast<std::size_t>(i)].region].name, d);
        Expected& sum = sums[key];
        for (std::size_t c = 0; c < kTimeClasses; ++c) sum.time[c] += e.time[c];
        sum.busy += e.busy;
        sum.before += e.before;
        sum.after += e.after;
        sum.sum += e.sum;
        sum.kernels += e.kernels;
        ++instances[key];
      }
    }
    std::map<std::pair<std::string, std::uint32_t>, RegionSummary> got;
    for (const RegionSummary& r : whole.regions)
      if (r.region != "total") got[{r.region, *r.device}] = r;
    ASSERT_EQ(got.size(), sums.size());
    for (const auto& [key, e] : sums) {
      SCOPED_TRACE(key.first + " on device " + std::to_string(key.second));
      ASSERT_TRUE(got.count(key));
      const RegionSummary& r = got[key];
      EXPECT_EQ(r.time_ns, e.time);
      EXPECT_EQ(r.idle_gaps->before, e.before);
      EXPECT_EQ(r.idle_gaps->after, e.after);
      EXPECT_EQ(r.busy_ns, e.busy);
      EXPECT_EQ(r.kernel_sum_ns, e.sum);
      EXPECT_EQ(r.kernels, e.kernels);
      EXPECT_EQ(r.instances, instances[key]);
    }
    check_latency(run, truth, regions, rules, windows, whole, peak);

    for (const RegionSummary& r : whole.regions) expect_whole_gaps(r);
    for (const WindowSummary& w : windows)
      for (const RegionSummary& r : w.regions) expect_whole_gaps(r);

    // The process: every nanosecond of every device, and what the model asked for.
    const RegionSummary& total = whole.regions.back();
    ASSERT_EQ(total.region, "total");
    ClassTimes all{};
    for (std::uint32_t d = 0; d < run.devices; ++d)
      for (TimeNs t = kOrigin; t < run.end; ++t) ++all[static_cast<std::size_t>(truth.class_at(d, t))];
    EXPECT_EQ(total.time_ns, all);
    double flop = 0;
    std::int64_t tokens = 0;
    for (const TestInstance& instance : run.instances) {
      const std::string& name = rules.regions()[instance.region].name;
      if (name == "outer") continue;
      if (instance.parent >= 0 &&
          rules.regions()[run.instances[static_cast<std::size_t>(instance.parent)].region].name != "outer")
        continue;
      flop += static_cast<double>(instance.tokens) * 1e6 * (name == "step" ? 6 : 2);  // 6N to train, 2N forward
      tokens += instance.tokens;
    }
    EXPECT_NEAR(total.flop.value_or(0), flop, flop * 1e-9);
    EXPECT_EQ(total.tokens, tokens);

    // Windows: cut at the edges, and together the whole.
    std::map<std::pair<std::string, std::uint32_t>, ClassTimes> window_sum;
    std::map<std::pair<std::string, std::uint32_t>, DurationNs> busy_sum;
    TimeNs edge = kOrigin;
    for (const WindowSummary& w : windows) {
      EXPECT_EQ(w.window.begin_ns, edge);
      edge = w.window.end_ns;
      for (const RegionSummary& r : w.regions) {
        DurationNs elapsed = 0;
        for (const DurationNs t : r.time_ns) elapsed += t;
        EXPECT_EQ(elapsed, r.elapsed_ns);
        EXPECT_LE(r.busy_ns, r.kernel_sum_ns);
        if (r.lost && r.mfu) {
          double one = *r.mfu;
          for (const double l : *r.lost) one += l;
          EXPECT_NEAR(one, 1, 1e-9);
        }
        const auto key = std::pair(r.region, r.device.value_or(0));
        for (std::size_t c = 0; c < kTimeClasses; ++c) window_sum[key][c] += r.time_ns[c];
        busy_sum[key] += r.busy_ns;
        if (r.region == "total") {
          EXPECT_EQ(r.elapsed_ns, w.window.length_ns() * run.devices);
        }
      }
    }
    EXPECT_EQ(edge, run.end);
    for (const auto& [key, r] : got) {
      EXPECT_EQ(window_sum[key], r.time_ns) << key.first;
      EXPECT_EQ(busy_sum[key], r.busy_ns) << key.first;
    }

    // Overlap: two threads' top-level instances at once on one device, both at work there.
    std::set<std::pair<std::string, std::uint32_t>> overlapped;
    for (int i = 0; i < static_cast<int>(run.instances.size()); ++i) {
      for (int k = 0; k < static_cast<int>(run.instances.size()); ++k) {
        const TestInstance &a = run.instances[static_cast<std::size_t>(i)],
                           &b = run.instances[static_cast<std::size_t>(k)];
        if (a.parent >= 0 || b.parent >= 0 || a.thread == b.thread) continue;
        for (std::uint32_t d = 0; d < run.devices; ++d) {
          const Expected &x = truth.of(i)[d], &y = truth.of(k)[d];
          if (x.active && y.active && x.begin < y.end && y.begin < x.end)
            overlapped.insert({rules.regions()[a.region].name, d});
        }
      }
    }
    for (const auto& [key, r] : got)
      EXPECT_EQ(r.overlapped, overlapped.count(key) != 0) << key.first << " " << key.second;
  }
};

/// What stands under one region and device, instance by instance from the list of all.
class BruteLatency {
 public:
  struct Batch {
    std::uint64_t instances = 0;
    std::int64_t tokens = 0;
    DurationNs elapsed = 0;
    double flop = 0;
    std::vector<DurationNs> latencies;
  };
  struct Slow {
    std::uint64_t nth;
    TimeNs begin;
    DurationNs elapsed;
    ClassTimes time;
  };

  std::vector<Slow> all;
  std::vector<DurationNs> inter_token, gaps;
  std::uint64_t after_prefill = 0;
  std::map<std::int64_t, Batch> by_batch;  ///< by the largest of the range

  /// `in_order`: nth is that of the list. On several devices instances without work are numbered when all are done.
  void expect(const RegionSummary& r, const Peak& peak, bool in_order) {
    quantiles(r.latency, elapsed());
    quantiles(r.inter_token, inter_token);
    quantiles(r.prefill_to_decode, gaps);
    EXPECT_EQ(r.after_prefill, inter_token.empty() ? std::nullopt : std::optional(after_prefill));
    ASSERT_EQ(r.by_batch.size(), by_batch.size());
    auto batch = by_batch.begin();
    for (const BatchLatency& b : r.by_batch) {
      const auto& [max, want] = *batch++;
      EXPECT_EQ(b.batch_max, max);
      EXPECT_EQ(b.batch_min, max == 1 ? 1 : max / 2 + 1);
      EXPECT_EQ(b.instances, want.instances);
      EXPECT_EQ(b.tokens, want.tokens);
      EXPECT_EQ(b.elapsed_ns, want.elapsed);
      quantiles(b.latency, want.latencies);
      ASSERT_TRUE(b.flop);
      EXPECT_NEAR(*b.flop, want.flop, 1e-9 * want.flop);
      if (want.elapsed > 0) {
        EXPECT_NEAR(b.mfu.value_or(-1) * *peak.flop_per_s * seconds(want.elapsed), want.flop, 1e-9 * want.flop);
      }
      ASSERT_EQ(b.bytes.has_value(), b.mbu.has_value() || want.elapsed == 0);
      if (b.mbu) {
        EXPECT_NEAR(*b.mbu * *peak.bytes_per_s * seconds(want.elapsed), *b.bytes, 1e-9 * *b.bytes);
      }
    }
    expect_slowest(r, in_order);
  }

 private:
  [[nodiscard]] std::vector<DurationNs> elapsed() const {
    std::vector<DurationNs> values;
    for (const Slow& s : all) values.push_back(s.elapsed);
    return values;
  }

  static DurationNs rank(std::vector<DurationNs> values, double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1];
  }

  static void quantiles(const LatencySummary& got, const std::vector<DurationNs>& values) {
    ASSERT_EQ(got.count, values.size());
    if (values.empty()) return;
    EXPECT_EQ(got.max_ns, *std::max_element(values.begin(), values.end()));
    for (const auto& [value, share] :
         {std::pair(got.p50_ns, 0.5), std::pair(got.p90_ns, 0.9), std::pair(got.p99_ns, 0.99)}) {
      const DurationNs truth = rank(values, share);
      EXPECT_GE(value, truth);
      EXPECT_LE(static_cast<double>(value), 1.008 * static_cast<double>(truth) + 1);
    }
  }

  void expect_slowest(const RegionSummary& r, bool in_order) {
    std::sort(all.begin(), all.end(), [](const Slow& a, const Slow& b) {
      return a.elapsed != b.elapsed ? a.elapsed > b.elapsed : a.begin < b.begin;
    });
    std::size_t wanted = 0;
    while (all.size() >= 5 && wanted < 3 &&
           static_cast<double>(all[wanted].elapsed) > 1.1 * static_cast<double>(r.latency.p50_ns))
      ++wanted;
    ASSERT_EQ(r.slowest.size(), wanted);
    for (std::size_t i = 0; i < wanted; ++i) {
      const SlowInstance& got = r.slowest[i];
      EXPECT_EQ(got.elapsed_ns, all[i].elapsed);
      // Two that began together and took as long: either may be named.
      const auto same = std::find_if(all.begin(), all.end(), [&](const Slow& s) {
        return (s.nth == got.nth || !in_order) && s.begin == got.t0_ns && s.elapsed == got.elapsed_ns &&
               s.time == got.time_ns;
      });
      ASSERT_NE(same, all.end()) << "#" << got.nth;
      DurationNs most = std::numeric_limits<DurationNs>::min();
      for (std::size_t c = 0; c < kTimeClasses; ++c) {
        DurationNs sum = 0;
        for (std::size_t k = 3; k < all.size(); ++k) sum += all[k].time[c];
        const DurationNs excess = got.time_ns[c] - sum / static_cast<DurationNs>(all.size() - 3);
        most = std::max(most, excess);
        if (c == static_cast<std::size_t>(got.lost_to)) {
          EXPECT_EQ(got.excess_ns, excess);
        }
      }
      EXPECT_EQ(got.excess_ns, most);
    }
  }
};

void LedgerProperty::check_latency(const RandomRun& run, const BruteForce& truth, const TestRegions& regions,
                                   const RegionRules& rules, const std::vector<WindowSummary>& windows,
                                   const WindowSummary& whole, const Peak& peak) {
  using Key = std::tuple<std::int64_t, std::string, std::uint32_t>;  // window (-1: the run), region, device
  constexpr std::int64_t kRun = -1;
  std::map<Key, BruteLatency> wanted;
  for (std::uint32_t d = 0; d < run.devices; ++d) {
    // In the order in which they ended here.
    std::vector<int> order;
    for (int i = 0; i < static_cast<int>(run.instances.size()); ++i) order.push_back(i);
    const auto end_of = [&](int i) { return truth.of(i)[d].end; };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      if (end_of(a) != end_of(b)) return end_of(a) < end_of(b);
      const int pa = run.instances[static_cast<std::size_t>(a)].parent,
                pb = run.instances[static_cast<std::size_t>(b)].parent;
      return pa == b ? true : pb == a ? false : a < b;  // what is inside first, else as one thread opened them
    });
    bool tie = false;  // of two threads at once: in either order
    for (std::size_t k = 1; k < order.size(); ++k)
      tie = tie || (end_of(order[k]) == end_of(order[k - 1]) &&
                    run.instances[static_cast<std::size_t>(order[k])].thread !=
                        run.instances[static_cast<std::size_t>(order[k - 1])].thread);
    if (tie) return;
    std::map<std::uint16_t, std::uint64_t> ended;
    std::vector<TimeNs> waiting;
    for (const int i : order) {
      const TestInstance& instance = run.instances[static_cast<std::size_t>(i)];
      const Expected& e = truth.of(i)[d];
      std::vector<double> matmul(run.devices), kernels(run.devices);
      TimeNs first = std::numeric_limits<TimeNs>::max(), last = 0;
      for (const TestActivity& a : run.activities) {
        if (!truth.belongs(a.owner, i)) continue;
        const auto length = static_cast<double>(a.end - a.begin);
        matmul[a.device] += a.time_class == TimeClass::kMatmul ? length : 0;
        kernels[a.device] += a.time_class != TimeClass::kMemcpy ? length : 0;
        if (a.device != d) continue;
        first = std::min(first, a.begin);
        last = std::max(last, a.end);
      }
      std::vector<std::uint32_t> at;
      for (std::uint32_t k = 0; k < run.devices; ++k)
        if (truth.of(i)[k].active) at.push_back(k);
      if (at.empty()) at.push_back(0);  // without activity it counts where its thread was
      if (std::count(at.begin(), at.end(), d) == 0) continue;
      const auto any = [](const std::vector<double>& of) { return *std::max_element(of.begin(), of.end()) > 0; };
      const auto part_of = [&](std::uint32_t device) {
        if (at.size() == 1) return 1.0;
        if (!any(kernels)) return 0.5;
        const std::vector<double>& of = any(matmul) ? matmul : kernels;
        return of[device] / std::accumulate(of.begin(), of.end(), 0.0);
      };
      const double part = part_of(d);
      std::int64_t tokens = std::llround(static_cast<double>(instance.tokens) * part_of(at.front()));
      if (d != at.front()) tokens = instance.tokens - tokens;
      const std::uint64_t nth = ended[instance.region]++;
      const bool prefills = instance.region == regions.prefill || instance.region == regions.mixed;
      std::int64_t passes = 0;
      if (instance.region == regions.decode)
        passes = instance.shape.new_tokens.value_or(instance.shape.batch ? 1 : instance.tokens);
      if (instance.region == regions.mixed) passes = *instance.shape.gen_batch > 0 ? 1 : 0;
      std::vector<DurationNs> gaps;
      if (passes > 0 && e.active)
        std::erase_if(waiting, [&](TimeNs end) {
          if (end <= e.begin) gaps.push_back(std::max<DurationNs>(0, first - end));
          return end <= e.begin;
        });
      if (prefills && e.active) waiting.push_back(last);
      const DurationNs elapsed = e.end - e.begin;
      for (const std::int64_t window : {kRun, (e.end - kOrigin) / kWindow}) {
        BruteLatency& want = wanted[{window, rules.regions()[instance.region].name, d}];
        want.all.push_back({nth, e.begin, elapsed, e.time});
        want.inter_token.insert(want.inter_token.end(), static_cast<std::size_t>(passes),
                                passes > 0 ? elapsed / passes : 0);
        want.gaps.insert(want.gaps.end(), gaps.begin(), gaps.end());
        want.after_prefill += gaps.empty() ? 0 : 1;
        const std::int64_t size = prefills                            ? instance.tokens
                                  : instance.region == regions.decode ? instance.shape.batch.value_or(0)
                                                                      : 0;
        if (size == 0) continue;
        std::int64_t max = 1;
        while (max < size) max *= 2;
        BruteLatency::Batch& batch = want.by_batch[max];
        ++batch.instances;
        batch.tokens += tokens;
        batch.elapsed += elapsed;
        batch.flop += 2e6 * static_cast<double>(instance.tokens) * part;
        batch.latencies.insert(batch.latencies.end(), prefills ? 1u : static_cast<std::size_t>(passes),
                               elapsed / (prefills ? 1 : passes));
      }
    }
  }
  const auto compare = [&](const RegionSummary& r, std::int64_t window) {
    const auto want = wanted.find({window, r.region, *r.device});
    if (want == wanted.end()) {
      EXPECT_EQ(r.latency.count + r.by_batch.size() + r.prefill_to_decode.count + r.slowest.size(), 0u);
      return;
    }
    SCOPED_TRACE(r.region + " on device " + std::to_string(*r.device) + " in window " + std::to_string(window));
    want->second.expect(r, peak, run.devices == 1);
    ++compared_;
  };
  for (const RegionSummary& r : whole.regions)
    if (r.region != "total") compare(r, kRun);
  if (run.devices > 1) return;  // accounted when the last device is done with it, maybe in a later window
  for (const WindowSummary& w : windows)
    for (const RegionSummary& r : w.regions)
      if (r.region != "total") compare(r, (w.window.begin_ns - kOrigin) / kWindow);
}

TEST_F(LedgerProperty, AgreesWithBruteForceOnRandomRuns) {
  const unsigned first = std::random_device{}();
  std::printf("first seed %u\n", first);
  const auto seeds = static_cast<unsigned>(tests::sanitized_share(150));
  for (unsigned i = 0; i < seeds && !HasFailure(); ++i) check(first + i);
}

TEST_F(LedgerProperty, AgreesWithBruteForceOnKnownSeeds) {
  const auto seeds = static_cast<unsigned>(tests::sanitized_share(100));
  for (unsigned seed = 1; seed <= seeds && !HasFailure(); ++seed) check(seed);
  EXPECT_GT(compared_, 5 * seeds);
}

}  // namespace
}  // namespace mfu
