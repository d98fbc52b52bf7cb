// Work that is recorded after its time was swept: the totals of the run are the same as if it had come in time. Held
// against an account that is worked out nanosecond by nanosecond.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/account/ledger.h"
#include "core/config/config.h"
#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

struct Work {
  TimeNs begin, end;
  TimeClass time_class;
  int owner;     ///< index of an instance, -1: none
  TimeNs known;  ///< when its record comes
};

struct Range {
  TimeNs open, close;
};

struct Truth {
  ClassTimes time{};
  DurationNs busy = 0, sum = 0;
  std::uint64_t kernels = 0;
};

class LateWork : public testing::Test {
 protected:
  LateWork() {
    auto config = load_config_file(R"({"model": {"params": 1000000}, "peak": {"tflops": 1, "gbps": 1}})",
                                   [](const char*) -> const char* { return nullptr; });
    EXPECT_TRUE(config);
    config_ = *config;
    std::vector<std::string> warnings;
    rules_ = std::make_unique<RegionRules>(config_.regions, std::vector<std::string>{}, warnings);
    LedgerOptions options;
    options.origin_ns = kOrigin;
    options.window_ns = kWindow;
    ledger_ = std::make_unique<Ledger>(*rules_, config_.flops_model(), config_.workload, names_, counters_, options,
                                       [this](WindowSummary&& w) { windows_.push_back(std::move(w)); });
  }

  void fill(InstanceSlot& slot, int index) const {
    slot.id = static_cast<InstanceId>(index + 1);
    slot.opener = static_cast<ThreadSerial>(1);
    const RegionOpening opening = rules_->open(rules_->match("", "step tokens=8"), "step tokens=8", nullptr);
    slot.region = opening.region;
    slot.rule = opening.rule;
    slot.shape = opening.shape;
  }
  void open(int index, TimeNs at) {
    InstanceSlot slot;
    fill(slot, index);
    ledger_->open(slot, at);
  }
  void close(int index, TimeNs at) {
    InstanceSlot slot;
    fill(slot, index);
    ledger_->close(slot, at, 0);
  }
  void add(const Work& work) {
    ActivityRecord record;
    record.begin_ns = work.begin;
    record.end_ns = work.end;
    record.kind = work.time_class == TimeClass::kMemcpy ? ActivityKind::kMemcpy : ActivityKind::kKernel;
    record.name =
        work.time_class == TimeClass::kMemcpy ? KernelNameId::kOther : names_.intern(kernel_of(work.time_class));
    ledger_->add(record, static_cast<InstanceId>(work.owner + 1), true);
  }

  /// Opens and closes what opens and closes until then, each once.
  void follow(const std::vector<Range>& ranges, TimeNs until) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].open > followed_until_ && ranges[i].open <= until) open(static_cast<int>(i), ranges[i].open);
      if (ranges[i].close > followed_until_ && ranges[i].close <= until) close(static_cast<int>(i), ranges[i].close);
    }
    followed_until_ = until;
  }

  /// Of all work, or that of one instance, within an interval.
  static Truth truth_of(const std::vector<Work>& all, Interval in, int owner) {
    Truth truth;
    for (TimeNs t = in.begin_ns; t < in.end_ns; ++t) {
      auto runs = TimeClass::kIdle;
      bool busy = false;
      for (const Work& w : all) {
        if (t < w.begin || t >= w.end) continue;
        runs = std::min(runs, w.time_class);
        busy = busy || (w.time_class != TimeClass::kMemcpy && (owner < 0 || w.owner == owner));
      }
      ++truth.time[static_cast<std::size_t>(runs)];
      truth.busy += busy ? 1 : 0;
    }
    for (const Work& w : all) {
      if (w.time_class == TimeClass::kMemcpy || (owner >= 0 && w.owner != owner)) continue;
      truth.sum += w.end - w.begin;
      ++truth.kernels;
    }
    return truth;
  }

  static void expect(const RegionSummary& got, const Truth& want) {
    EXPECT_EQ(got.time_ns, want.time);
    EXPECT_EQ(got.busy_ns, want.busy);
    EXPECT_EQ(got.kernel_sum_ns, want.sum);
    EXPECT_EQ(got.kernels, want.kernels);
  }

  [[nodiscard]] RegionSummary of_run(const std::string& region) const {
    for (const RegionSummary& r : windows_.back().regions)
      if (r.region == region) return r;
    return {};
  }

  /// Work inside of its range, as where each step ends by a synchronisation; whoever comes late, the range's time is
  /// its time.
  void check(unsigned seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    const auto pick = [&rng](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
    };
    std::vector<Range> ranges;
    std::vector<Work> all;
    TimeNs at = kOrigin + pick(0, 300);
    const std::int64_t latest = pick(1, 3) == 1 ? 100 : 5000;
    for (std::int64_t n = pick(1, 14); n > 0; --n) {
      const TimeNs close = at + pick(20, 1500);
      const int index = static_cast<int>(ranges.size());
      ranges.push_back({at, close});
      for (std::int64_t k = pick(0, 8); k > 0; --k) {
        Work w{};
        w.begin = pick(at, close - 1);
        w.end = pick(w.begin, close);
        w.time_class = static_cast<TimeClass>(pick(0, 3));
        w.owner = index;
        w.known = w.end + (pick(0, 1) == 0 ? 0 : pick(0, latest));
        all.push_back(w);
      }
      at = close + pick(0, 300);
    }
    const TimeNs end = at + latest + 1;
    std::vector<bool> told(all.size(), false);
    const auto tell = [&](TimeNs until) {
      follow(ranges, until);
      for (std::size_t k = 0; k < all.size(); ++k) {
        if (told[k] || all[k].known > until) continue;
        told[k] = true;
        add(all[k]);
      }
    };
    ledger_->expect_device(0);
    ledger_->keep_from(kOrigin);
    for (TimeNs now = kOrigin; now < end; now += pick(1, 700)) {
      tell(now);
      ledger_->advance(now);
    }
    tell(end);
    ledger_->finish(end);

    ASSERT_TRUE(windows_.back().final_run);
    expect(of_run("total"), truth_of(all, {kOrigin, end}, -1));
    Truth steps;
    std::uint64_t instances = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const Truth one = truth_of(all, {ranges[i].open, ranges[i].close}, static_cast<int>(i));
      for (std::size_t c = 0; c < kTimeClasses; ++c) steps.time[c] += one.time[c];
      steps.busy += one.busy;
      steps.sum += one.sum;
      steps.kernels += one.kernels;
      ++instances;
    }
    const RegionSummary step = of_run("step");
    EXPECT_EQ(step.instances, instances);
    EXPECT_EQ(step.launches, all.size());
    expect(step, steps);
  }

  /// The host runs ahead of one stream, whose records come in buffers, and time goes on meanwhile: each step begins
  /// where the one before it ends, and ends with the last of its own work.
  void check_run_ahead(unsigned seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    const auto pick = [&rng](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
    };
    std::vector<Range> ranges, lived;
    std::vector<Work> all;
    std::vector<TimeNs> launched;
    TimeNs host = kOrigin + pick(0, 300), gpu = host;
    const std::int64_t pace = pick(1, 200), longest = pick(1, 400);
    for (std::int64_t n = pick(1, 30); n > 0; --n) {
      const int index = static_cast<int>(ranges.size());
      const TimeNs opened = host;
      for (std::int64_t k = pick(0, 6); k > 0; --k) {
        host += pick(0, pace);
        Work w{};
        w.begin = std::max(host, gpu) + pick(0, 20);
        w.end = gpu = w.begin + pick(0, longest);
        w.time_class = static_cast<TimeClass>(pick(0, 2));
        w.owner = index;
        launched.push_back(host);
        all.push_back(w);
      }
      host += pick(0, pace);
      ranges.push_back({opened, host});
      lived.push_back({std::max(opened, lived.empty() ? opened : lived.back().close), 0});
      lived.back().close = std::max({lived.back().open, host, !all.empty() && all.back().owner == index ? gpu : 0});
      host += pick(0, pace);
    }
    const TimeNs end = std::max(host, gpu) + pick(1, 9000);
    for (std::size_t first = 0; first < all.size();) {
      const std::size_t next = std::min(all.size(), first + static_cast<std::size_t>(pick(1, 20)));
      const TimeNs known = all[next - 1].end + (pick(0, 2) == 0 ? end : pick(0, 3000));
      for (; first < next; ++first) all[first].known = known;
    }
    const std::size_t of_steps = all.size();
    for (std::int64_t n = pick(0, 20); n > 0; --n) {  // copies on another stream
      const TimeNs begin = pick(kOrigin, end - 1);
      const TimeNs over = std::min(end, begin + pick(0, 900));
      all.push_back({begin, over, TimeClass::kMemcpy, -1, over + pick(0, 900)});
    }
    std::vector<bool> told(all.size(), false);
    const auto tell = [&](TimeNs until) {
      follow(ranges, until);
      std::vector<InstanceId> awaited;
      for (std::size_t k = 0; k < all.size(); ++k) {
        if (!told[k] && all[k].known <= until) {
          told[k] = true;
          add(all[k]);
        }
        if (!told[k] && k < of_steps && launched[k] <= until)
          awaited.push_back(static_cast<InstanceId>(all[k].owner + 1));
      }
      ledger_->await_launches_of(awaited);
    };
    ledger_->expect_device(0);
    ledger_->keep_from(kOrigin);
    for (TimeNs now = kOrigin; now < end; now += pick(1, 700)) {
      tell(now);
      ledger_->advance(now);
    }
    tell(std::numeric_limits<TimeNs>::max());
    ledger_->finish(end);

    ASSERT_TRUE(windows_.back().final_run);
    expect(of_run("total"), truth_of(all, {kOrigin, end}, -1));
    Truth steps;
    DurationNs longest_step = 0;
    for (std::size_t i = 0; i < lived.size(); ++i) {
      const Truth one = truth_of(all, {lived[i].open, lived[i].close}, static_cast<int>(i));
      for (std::size_t c = 0; c < kTimeClasses; ++c) steps.time[c] += one.time[c];
      steps.busy += one.busy;
      steps.sum += one.sum;
      steps.kernels += one.kernels;
      longest_step = std::max(longest_step, lived[i].close - lived[i].open);
    }
    const RegionSummary step = of_run("step");
    EXPECT_EQ(step.instances, lived.size());
    expect(step, steps);
    EXPECT_EQ(step.latency.max_ns, longest_step);
  }

  TimeNs followed_until_ = kOrigin - 1;
  std::vector<WindowSummary> windows_;
  Counters counters_;
  KernelNames names_{counters_};
  Config config_;
  std::unique_ptr<RegionRules> rules_;
  std::unique_ptr<Ledger> ledger_;
};

class LateWorkProperty : public LateWork, public testing::WithParamInterface<unsigned> {};

TEST_P(LateWorkProperty, ChangesNoTotalOfTheRun) { check(GetParam()); }

TEST_P(LateWorkProperty, EndsItsStepWhereItEnded) { check_run_ahead(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Seeds, LateWorkProperty, testing::Range(1u, 301u));

/// Random work of any owner or none, anywhere: the process's totals, and those windows that are not out.
TEST_F(LateWork, OfNobodyCountsInTheProcess) {
  std::mt19937 rng(7);
  const auto pick = [&rng](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  std::vector<Work> all;
  for (int n = 0; n < 400; ++n) {
    Work w{};
    w.begin = kOrigin + pick(0, 20'000);
    w.end = w.begin + pick(0, n % 40 == 0 ? 8000 : 60);
    w.time_class = static_cast<TimeClass>(pick(0, 3));
    w.owner = -1;
    w.known = w.end + pick(0, 3000);
    all.push_back(w);
  }
  ledger_->expect_device(0);
  ledger_->keep_from(kOrigin);
  const TimeNs end = kOrigin + 40'000;
  std::vector<bool> told(all.size(), false);
  for (TimeNs now = kOrigin; now < end; now += 130) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (told[k] || all[k].known > now) continue;
      told[k] = true;
      add(all[k]);
    }
    ledger_->advance(now);
  }
  ledger_->finish(end);
  EXPECT_GT(counters_.get(Counter::kRecordsLate), 300u);
  expect(of_run("total"), truth_of(all, {kOrigin, end}, -1));
}

TEST_F(LateWork, OfAStepThatIsOverIsTheStepsAsFarAsItRanInIt) {
  ledger_->expect_device(0);
  ledger_->keep_from(kOrigin);
  open(0, 1100);
  close(0, 3100);
  add({1200, 1300, TimeClass::kOther, 0, 0});
  ledger_->advance(9000);
  const std::size_t out = windows_.size();
  EXPECT_GE(out, 6u);  // all of its windows
  add({1250, 8250, TimeClass::kComm, 0, 0});
  ledger_->finish(9500);
  const RegionSummary step = of_run("step");
  EXPECT_EQ(step.instances, 1u);
  EXPECT_EQ(step.elapsed_ns, 2000);
  EXPECT_EQ(step.time_ns, (ClassTimes{0, 100, 1800, 0, 100}));
  EXPECT_EQ(step.busy_ns, 1900);
  EXPECT_EQ(step.kernel_sum_ns, 7100);
  EXPECT_EQ(step.launches, 2u);
  const RegionSummary total = of_run("total");
  EXPECT_EQ(total.time_ns, (ClassTimes{0, 100, 6950, 0, 8500 - 7050}));
  EXPECT_EQ(total.busy_ns, 7050);
}

TEST_F(LateWork, OfAStepThatIsOverMayRunOn) {
  ledger_->expect_device(0);
  ledger_->keep_from(kOrigin);
  open(0, 1100);
  close(0, 1500);
  ledger_->advance(3500);
  add({1200, 5000, TimeClass::kComm, 0, 0});
  ledger_->finish(7000);
  const RegionSummary step = of_run("step");
  EXPECT_EQ(step.kernel_sum_ns, 3800);
  EXPECT_EQ(step.busy_ns, 300);
  EXPECT_EQ(step.time_ns, (ClassTimes{0, 0, 300, 0, 100}));
  const RegionSummary total = of_run("total");
  EXPECT_EQ(total.kernel_sum_ns, 3800);
  EXPECT_EQ(total.busy_ns, 3800);
}

TEST_F(LateWork, ThatRunsOnRunsOn) {
  ledger_->expect_device(0);
  ledger_->keep_from(kOrigin);
  ledger_->advance(3500);
  add({2000, 5000, TimeClass::kMatmul, -1, 0});
  ledger_->advance(4200);
  add({1500, 6000, TimeClass::kComm, -1, 0});
  ledger_->finish(7000);
  EXPECT_EQ(of_run("total").time_ns, (ClassTimes{3000, 0, 1500, 0, 1500}));
}

TEST_F(LateWork, InAWindowThatWasNotMeasuredIsLeftOut) {
  ledger_->expect_device(0);
  ledger_->keep_from(kOrigin);
  ledger_->not_measured_from(2000);
  ledger_->measured_again(4000);
  ledger_->advance(3500);
  add({2500, 2600, TimeClass::kMatmul, -1, 0});
  add({1100, 1200, TimeClass::kMatmul, -1, 0});
  ledger_->finish(6000);
  EXPECT_EQ(of_run("total").busy_ns, 100);
}

TEST_F(LateWork, FurtherBackThanIsKeptTakesNoTime) {
  ledger_->expect_device(0);
  for (TimeNs t = kOrigin; t < kOrigin + 100'000; t += 10) add({t, t + 5, TimeClass::kOther, -1, 0});
  ledger_->advance(kOrigin + 100'000);
  add({kOrigin, kOrigin + 100'000, TimeClass::kMatmul, -1, 0});  // 10,000 activities ago
  ledger_->finish(kOrigin + 100'000);
  const RegionSummary total = of_run("total");
  const DurationNs matmul = total.time_ns[0];
  EXPECT_GT(matmul, 20'000);  // what is kept
  EXPECT_LT(matmul, 80'000);  // and no more
  EXPECT_NEAR(static_cast<double>(total.time_ns[1]), static_cast<double>(100'000 - matmul) / 2, 5);
  EXPECT_EQ(total.launches, 10'001u);
}

TEST_F(LateWork, OnlyAsFarBackAsIsExpectedIsKept) {
  ledger_->expect_device(0);
  ledger_->keep_from(kOrigin);
  for (TimeNs t = kOrigin; t < kOrigin + 500'000; t += 10) {
    add({t, t + 5, TimeClass::kOther, -1, 0});
    if (t % 10'000 == 0) ledger_->advance(t);
  }
  ledger_->advance(kOrigin + 500'000);
  add({kOrigin, kOrigin + 500'000, TimeClass::kMatmul, -1, 0});  // 50,000 activities ago
  ledger_->finish(kOrigin + 500'000);
  EXPECT_EQ(of_run("total").time_ns, (ClassTimes{500'000, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace mfu
