// Random runs of which some records carry no times, are lost, or are of whole graphs: no row has a negative part, what
// is marked has nothing that follows from times, and what is not marked lacks nothing.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "core/account/ledger.h"
#include "core/config/config.h"
#include "core/rows/region_totals.h"
#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

enum class Fate { kTimed, kUntimed, kLost };

struct GivenActivity {
  TimeNs begin, end;
  int owner;  ///< -1: none
  std::uint32_t device;
  TimeClass time_class;
  bool graph;
  Fate fate;
};

struct GivenInstance {
  TimeNs open, close;
  std::uint32_t thread;
  bool decode;
};

struct GivenRun {
  std::vector<GivenInstance> instances;
  std::vector<GivenActivity> activities;
  std::uint32_t devices = 1;
  TimeNs end = 0;
};

class Untimed : public testing::TestWithParam<unsigned> {
 protected:
  using Key = std::tuple<TimeNs, std::string, std::optional<std::uint32_t>>;

  Untimed() {
    auto config = load_config_file(R"({"model": {"params": 1000000}, "peak": {"tflops": 1, "gbps": 1}})",
                                   [](const char*) -> const char* { return nullptr; });
    EXPECT_TRUE(config);
    config_ = *config;
    std::vector<std::string> warnings;
    rules_ = std::make_unique<RegionRules>(config_.regions, std::vector<std::string>{}, warnings);
  }

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng_);
  }

  /// \param outlives work may end after its range.
  GivenRun random_run(bool outlives) {
    GivenRun run;
    run.devices = static_cast<std::uint32_t>(pick(1, 2));
    const auto work = [&](int owner, TimeNs from, TimeNs to) {
      for (std::int64_t n = pick(0, 4); n > 0; --n) {
        GivenActivity a{};
        a.begin = pick(from, to);
        a.end = outlives ? a.begin + pick(0, 500) : pick(a.begin, to);
        a.owner = owner;
        a.device = static_cast<std::uint32_t>(pick(0, run.devices - 1));
        a.time_class = static_cast<TimeClass>(pick(0, 3));
        a.graph = pick(0, 9) == 0;
        a.fate = pick(0, 7) == 0 ? Fate::kUntimed : pick(0, 15) == 0 ? Fate::kLost : Fate::kTimed;
        run.activities.push_back(a);
        run.end = std::max(run.end, a.end);
      }
    };
    const std::int64_t threads = pick(1, 2);
    for (std::int64_t t = 1; t <= threads; ++t) {
      TimeNs at = kOrigin + pick(0, 300);
      for (std::int64_t n = pick(1, 12); n > 0; --n) {
        run.instances.push_back({at, at + pick(1, 900), static_cast<std::uint32_t>(t), pick(0, 1) == 0});
        work(static_cast<int>(run.instances.size()) - 1, at, run.instances.back().close);
        at = run.instances.back().close + pick(0, 300);
      }
      run.end = std::max(run.end, at);
    }
    work(-1, kOrigin, run.end);
    run.end += 1;
    return run;
  }

  /// \param all_timed every record comes with its times.
  std::vector<WindowSummary> account(const GivenRun& run, bool all_timed) {
    Counters counters;
    KernelNames names(counters);
    std::vector<WindowSummary> windows;
    LedgerOptions options;
    options.origin_ns = kOrigin;
    options.window_ns = kWindow;
    Ledger ledger(*rules_, config_.flops_model(), config_.workload, names, counters, options,
                  [&](WindowSummary&& w) { windows.push_back(std::move(w)); });
    Peak peak;
    peak.flop_per_s = 1e15;
    peak.bytes_per_s = 1e12;
    for (std::uint32_t d = 0; d < run.devices; ++d) ledger.set_peak(d, peak);
    const auto slot_of = [&](int i, InstanceSlot& slot) {
      const GivenInstance& instance = run.instances[static_cast<std::size_t>(i)];
      const std::string text = instance.decode ? "decode batch=2" : "step tokens=8";
      const RegionOpening opening = rules_->open(rules_->match("", text), text, nullptr);
      slot.id = static_cast<InstanceId>(i + 1);
      slot.opener = static_cast<ThreadSerial>(instance.thread);
      slot.region = opening.region;
      slot.rule = opening.rule;
      slot.shape = opening.shape;
    };
    std::multimap<TimeNs, std::pair<bool, int>> events;
    for (int i = 0; i < static_cast<int>(run.instances.size()); ++i) {
      events.insert({run.instances[static_cast<std::size_t>(i)].open, {true, i}});
      events.insert({run.instances[static_cast<std::size_t>(i)].close, {false, i}});
    }
    auto next = events.begin();
    std::set<const GivenActivity*> added;
    TimeNs watermark = kOrigin;
    // As the drain: time goes on only to where everything has its record.
    for (TimeNs now = kOrigin + 1; watermark < run.end; now = std::min(run.end, now + 1 + pick_step_)) {
      for (; next != events.end() && next->first <= now; ++next) {
        InstanceSlot slot;
        slot_of(next->second.second, slot);
        next->second.first ? ledger.open(slot, next->first) : ledger.close(slot, next->first, 0);
      }
      for (const GivenActivity& a : run.activities) {
        if (a.begin > now || !added.insert(&a).second) continue;
        const auto owner = static_cast<InstanceId>(a.owner + 1);
        if (!all_timed && a.fate == Fate::kLost) continue;
        if (!all_timed && a.fate == Fate::kUntimed) {
          ledger.add_untimed(owner, static_cast<DeviceId>(a.device), {ledger.now(), std::max(now, a.end)}, true);
          continue;
        }
        ActivityRecord record;
        record.begin_ns = a.begin;
        record.end_ns = a.end;
        record.device = static_cast<DeviceId>(a.device);
        record.kind = a.graph                              ? ActivityKind::kGraph
                      : a.time_class == TimeClass::kMemcpy ? ActivityKind::kMemcpy
                                                           : ActivityKind::kKernel;
        if (record.kind == ActivityKind::kKernel) record.name = names.intern(kernel_of(a.time_class));
        ledger.add(record, owner, true);
      }
      watermark = now;
      if (watermark < run.end) ledger.advance(watermark);
    }
    ledger.finish(run.end);
    return windows;
  }

  static void expect_no_negative_part(const RegionSummary& r) {
    for (const DurationNs t : r.time_ns) EXPECT_GE(t, 0) << r.region;
    EXPECT_GE(r.busy_ns, 0);
    for (const auto& ratio : {r.mfu, r.mfu_busy, r.hfu, r.mbu, r.mfu_lower, r.mbu_lower})
      EXPECT_GE(ratio.value_or(0), -1e-9) << r.region;
    if (!r.lost) return;
    for (const double part : *r.lost) EXPECT_GE(part, 0) << r.region;
    EXPECT_NEAR(std::accumulate(r.lost->begin(), r.lost->end(), r.mfu.value()), 1, 1e-6) << r.region;
  }

  static void expect_nothing_of_times(const RegionSummary& r) {
    EXPECT_FALSE(r.classes_known || r.lost || r.mfu_busy || r.hfu || r.executed) << r.region;
    EXPECT_TRUE(r.components.empty() && r.top_kernels.empty() && r.slowest.empty() && r.suspect.empty()) << r.region;
  }

  static std::map<Key, RegionSummary> by_key(const std::vector<WindowSummary>& windows) {
    std::map<Key, RegionSummary> rows;
    for (const WindowSummary& w : windows)
      if (!w.final_run)
        for (const RegionSummary& r : w.regions) rows[{w.window.begin_ns, r.region, r.device}] = r;
    return rows;
  }

  std::mt19937 rng_{GetParam()};
  Config config_;
  std::unique_ptr<RegionRules> rules_;
  TimeNs pick_step_ = pick(0, 700);
};

TEST_P(Untimed, NoRowHasANegativePartAndWhatIsMarkedHasNothingOfTimes) {
  const GivenRun run = random_run(true);
  const std::vector<WindowSummary> windows = account(run, false);
  std::map<std::uint32_t, RegionTotals> sums;
  for (const WindowSummary& w : windows)
    for (const RegionSummary& r : w.regions) {
      expect_no_negative_part(r);
      if (!w.final_run && r.region == "step") sums[r.device.value()].add(r, {1e15, 1e12});
      if (r.untimed == 0) continue;
      expect_nothing_of_times(r);
      EXPECT_LE(r.mfu.value_or(0), 1);
    }
  for (const auto& [device, sum] : sums) {
    const RegionSummary all = sum.summed().sum;
    expect_no_negative_part(all);
    if (all.untimed != 0) expect_nothing_of_times(all);
  }
}

TEST_P(Untimed, TheRunCountsEachLaunchOnceAndKeepsWhatIsTrue) {
  const GivenRun run = random_run(true);
  const std::vector<WindowSummary> windows = account(run, false), truth = account(run, true);
  std::map<std::string, std::uint64_t> untimed;
  for (const GivenActivity& a : run.activities) {
    if (a.fate != Fate::kUntimed) continue;
    ++untimed["total"];
    if (a.owner >= 0) ++untimed[run.instances[static_cast<std::size_t>(a.owner)].decode ? "decode" : "step"];
  }
  struct Figures {
    std::uint64_t instances = 0, untimed = 0;
    std::int64_t tokens = 0;
    bool overlapped = false;
  };
  const auto figures_of = [](const WindowSummary& whole) {
    std::map<std::string, Figures> by_region;
    for (const RegionSummary& r : whole.regions) {
      Figures& of = by_region[r.region];
      of.instances += r.instances;
      of.tokens += r.tokens;
      of.untimed += r.untimed;
      of.overlapped = of.overlapped || r.overlapped;
    }
    return by_region;
  };
  auto got = figures_of(windows.back());
  for (const auto& [region, want] : figures_of(truth.back())) {
    EXPECT_EQ(got[region].tokens, want.tokens) << region;
    // Of regions that overlap, what runs beside one belongs to its times as well.
    if (got[region].overlapped) {
      EXPECT_GE(got[region].untimed, untimed[region]) << region;
    } else {
      EXPECT_EQ(got[region].untimed, untimed[region]) << region;
    }
    // Without its lost records an instance on two devices may lie on one.
    if (run.devices == 1) {
      EXPECT_EQ(got[region].instances, want.instances) << region;
    }
  }
}

TEST_P(Untimed, WhatIsNotMarkedLacksNothing) {
  GivenRun run = random_run(false);
  for (GivenActivity& a : run.activities)
    if (a.fate == Fate::kLost) a.fate = Fate::kTimed;
  const auto windows = by_key(account(run, false));
  for (const auto& [key, want] : by_key(account(run, true))) {
    const auto found = windows.find(key);
    ASSERT_NE(found, windows.end()) << std::get<1>(key);
    const RegionSummary& got = found->second;
    if (got.untimed != 0) continue;
    EXPECT_EQ(got.busy_ns, want.busy_ns) << got.region;
    EXPECT_EQ(got.kernel_sum_ns, want.kernel_sum_ns) << got.region;
    if (got.region == "total") {
      EXPECT_EQ(got.time_ns, want.time_ns);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Untimed, testing::Range(1u, 201u));

}  // namespace
}  // namespace mfu
