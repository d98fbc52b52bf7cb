// The launch account under loss, doubles and delays, and how far the drain says that time is settled.
#include "core/drain/drain.h"

#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <memory>
#include <random>

#include "core/config/config.h"
#include "tests/unit/drain/made_windows.h"

namespace mfu {
namespace {

constexpr DurationNs kTick = kNsPerSecond / 10;

class DrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    thread_ = attribution_.acquire_thread();
    ledger_ = std::make_unique<Ledger>(rules_, config_.flops_model(), config_.workload, names_, counters_,
                                       LedgerOptions{kOrigin, kNsPerSecond, false},
                                       [this](WindowSummary&& w) { windows_.push_back(std::move(w)); });
    drain_ = std::make_unique<Drain>(attribution_, *ledger_, clock_, contexts_, counters_);
  }

  CorrelationId launch() {
    const auto id = static_cast<CorrelationId>(++correlation_);
    EXPECT_TRUE(attribution_.launch(*thread_, id, 1));
    attribution_.launch_done(*thread_, id, false);
    ++launches_;
    return id;
  }
  static ActivityRecord record(CorrelationId id, TimeNs begin, DurationNs length = 1000) {
    ActivityRecord r;
    r.correlation = id;
    r.begin_ns = begin;
    if (__builtin_add_overflow(begin, length, &r.end_ns)) r.end_ns = std::numeric_limits<TimeNs>::max();
    r.kind = ActivityKind::kKernel;
    return r;
  }
  void open(const char* name) {
    attribution_.push_region(*thread_, DomainId::kDefault, rules_.open(rules_.match("", name), name, nullptr), now_);
  }
  void close() {
    attribution_.pop(*thread_, DomainId::kDefault, [this] { return now_; });
  }
  /// One tick of 100 ms in which `records` arrive.
  void tick(const std::vector<ActivityRecord>& records, bool lossy = false) {
    now_ += kTick;
    drain_->begin_tick(now_);
    drain_->follow_instances();
    for (const ActivityRecord& r : records) drain_->record(r);
    drain_->end_tick(lossy);
    const LaunchAccount a = drain_->account();
    EXPECT_EQ(a.seen, a.attributed + a.outside + a.unattributed + a.dropped);
  }

  Config config_;
  std::vector<std::string> warnings_;
  RegionRules rules_{{}, {}, warnings_};
  Counters counters_;
  Attribution attribution_{counters_};
  KernelNames names_{counters_};
  ContextDevices contexts_;
  TickClock clock_{true};
  std::vector<WindowSummary> windows_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<Drain> drain_;
  ThreadState* thread_ = nullptr;
  TimeNs now_ = kOrigin;
  std::uint32_t correlation_ = 0xFFFF'FFF0u;  // wraps soon
  std::uint64_t launches_ = 0;
};

TEST_F(DrainTest, EachLaunchEndsAsOneOfFour) {
  tick({});
  const CorrelationId outside = launch();
  open("step");
  const CorrelationId attributed = launch(), lost = launch(), graph = launch();
  close();
  ThreadState *a = attribution_.acquire_thread(), *b = attribution_.acquire_thread();
  const RegionOpening step = rules_.open(rules_.match("", "step"), "step", nullptr);
  attribution_.push_region(*a, DomainId::kDefault, step, now_);
  attribution_.push_region(*b, DomainId::kDefault, step, now_);
  const CorrelationId ambiguous = launch();
  (void)lost;
  tick({record(outside, now_), record(attributed, now_), record(graph, now_), record(graph, now_ + 10),
        record(graph, now_ + 20), record(ambiguous, now_)});
  LaunchAccount account = drain_->account();
  EXPECT_EQ(account.seen, 5u);
  EXPECT_EQ(account.attributed, 2u);
  EXPECT_EQ(account.outside, 1u);
  EXPECT_EQ(account.unattributed, 1u);
  EXPECT_EQ(account.dropped, 1u);
  // Work of a launch that no callback saw: a launch all the same, with its records counted once.
  const auto stranger = static_cast<CorrelationId>(correlation_ + 1000);
  tick({record(stranger, now_), record(stranger, now_ + 5)});
  account = drain_->account();
  EXPECT_EQ(account.seen, 6u);
  EXPECT_EQ(account.unattributed, 2u);
  EXPECT_EQ(counters_.get(Counter::kRecordsUnmatched), 2u);
}

TEST_F(DrainTest, RecordsWithoutUsableTimesCountTheirLaunchButNoTime) {
  tick({});
  open("step");
  std::vector<ActivityRecord> records;
  const auto with = [&](TimeNs begin, TimeNs end) {
    ActivityRecord r = record(launch(), begin);
    r.end_ns = end;
    records.push_back(r);
  };
  constexpr TimeNs kMin = std::numeric_limits<TimeNs>::min(), kMax = std::numeric_limits<TimeNs>::max();
  with(0, 0);
  with(now_, 0);
  with(0, now_);
  with(now_ + 10, now_);  // ends before it begins
  with(now_, now_ + 7200 * kNsPerSecond);
  with(kMin, kMax);
  with(-1, kMax);
  with(kMax - 1, kMax);
  with(5, 10);  // long before the run
  close();
  tick(records);
  EXPECT_EQ(counters_.get(Counter::kRecordsNoTime), 3u);
  EXPECT_EQ(counters_.get(Counter::kRecordsBadTime), 6u);
  EXPECT_EQ(drain_->account().attributed, 9u);
  EXPECT_EQ(drain_->account().dropped, 0u);
  now_ += kNsPerSecond;
  drain_->finish(now_);
  for (const RegionSummary& r : windows_.back().regions) {
    EXPECT_EQ(r.busy_ns, 0) << r.region;
    EXPECT_FALSE(r.classes_known) << r.region;
    EXPECT_EQ(r.untimed, 9u) << r.region;
  }
  EXPECT_EQ(drain_->account().not_timed, 9u);
}

TEST_F(DrainTest, ALaunchWhoseRecordsComeFarApartLosesItsTimesOnce) {
  tick({});
  open("step");
  std::vector<ActivityRecord> parts;
  constexpr std::size_t kLaunches = 300;
  for (std::size_t i = 0; i < kLaunches; ++i) {
    ActivityRecord part = record(launch(), now_);
    part.end_ns = i % 3 == 0 ? now_ + 1000 : 0;
    parts.push_back(part);
  }
  close();
  tick(parts);
  for (ActivityRecord& part : parts) part.end_ns = 0;
  tick(parts);
  for (ActivityRecord& part : parts) part.end_ns = now_ + 1000;
  tick(parts);
  for (ActivityRecord& part : parts) part.end_ns = 0;
  tick(parts);
  now_ += kNsPerSecond;
  drain_->finish(now_);
  EXPECT_EQ(drain_->account().not_timed, kLaunches);
  for (const RegionSummary& r : windows_.back().regions) EXPECT_EQ(r.untimed, kLaunches) << r.region;
}

TEST_F(DrainTest, WorkThatIsNotOverAtTheEndLeavesTheRestOfTheAccountAsItIs) {
  tick({});
  open("step");
  ActivityRecord over = record(launch(), now_);
  over.end_ns = now_ + 1000;
  close();
  tick({over});
  const CorrelationId runs = launch();
  tick({});
  ActivityRecord unfinished = record(runs, 0);
  unfinished.end_ns = 0;
  drain_->take_unfinished();
  tick({unfinished});
  now_ += kNsPerSecond;
  drain_->finish(now_);
  EXPECT_TRUE(drain_->unfinished());
  EXPECT_EQ(drain_->account().not_timed, 1u);
  const WindowSummary& whole = windows_.back();
  ASSERT_EQ(whole.regions.size(), 2u);
  for (const RegionSummary& r : whole.regions) {
    EXPECT_EQ(r.untimed, 0u) << r.region;
    EXPECT_TRUE(r.classes_known) << r.region;
    EXPECT_EQ(r.busy_ns, 1000) << r.region;
  }
  EXPECT_LT(whole.window.end_ns, now_ - kNsPerSecond / 2);
}

TEST_F(DrainTest, ALaunchWithoutARecordHoldsTimeBackUntilItIsGivenUp) {
  tick({});
  const CorrelationId waiting = launch();
  const TimeNs launched = now_;
  for (int i = 0; i < 95; ++i) {
    tick({record(launch(), now_)});
    ASSERT_LE(ledger_->now(), launched) << i;  // its work may begin any time after
  }
  EXPECT_EQ(counters_.get(Counter::kLaunchesExpired), 0u);
  for (int i = 0; i < 20; ++i) tick({record(launch(), now_)});
  EXPECT_EQ(counters_.get(Counter::kLaunchesExpired), 1u);
  EXPECT_GT(ledger_->now(), launched + kNsPerSecond);
  EXPECT_EQ(drain_->account().dropped, 1u);
  tick({record(waiting, now_)});  // it was only very late
  EXPECT_EQ(drain_->account().dropped, 0u);
}

TEST_F(DrainTest, GivesUpSoonerWhereRecordsWereDropped) {
  tick({});
  (void)launch();
  for (int i = 0; i < 25; ++i) tick({record(launch(), now_)}, true);
  EXPECT_EQ(counters_.get(Counter::kLaunchesExpired), 1u);
}

TEST_F(DrainTest, ALongKernelThatNothingOvertakesIsWaitedForAsLongAsItTakes) {
  tick({});
  const CorrelationId kernel = launch();
  const TimeNs launched = now_;
  for (int i = 0; i < 300; ++i) tick({});
  EXPECT_EQ(counters_.get(Counter::kLaunchesExpired), 0u);
  EXPECT_LE(ledger_->now(), launched);
  tick({record(kernel, launched + 10, 29 * kNsPerSecond)});
  for (int i = 0; i < 5; ++i) tick({});
  EXPECT_GT(ledger_->now(), launched + 29 * kNsPerSecond);
  EXPECT_EQ(counters_.get(Counter::kRecordsLate), 0u);
}

TEST_F(DrainTest, TheAccountAddsUpAndNothingIsLateWhateverIsLostDoubledOrDelayed) {
  struct Flying {
    int arrives;
    TimeNs launched;
    ActivityRecord record;
  };
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    const std::uint64_t lost_per_mille = seed % 3 == 0 ? 0 : 20 * (seed % 3);
    const std::uint64_t launches_before = launches_;
    std::uint64_t lost = 0;
    const LaunchAccount before = drain_->account();
    const std::uint64_t late_before = counters_.get(Counter::kRecordsLate),
                        expired_before = counters_.get(Counter::kLaunchesExpired);
    std::deque<Flying> flying;
    for (int t = 0; t < 60 || !flying.empty(); ++t) {
      if (t < 60) {
        if (rng() % 2 == 0) open("step");
        for (std::uint64_t n = rng() % 20; n > 0; --n) {
          const CorrelationId id = launch();
          if (rng() % 3 == 0) ++correlation_;  // some other API call
          if (rng() % 1000 < lost_per_mille) {
            ++lost;
            continue;
          }
          const int arrives = t + static_cast<int>(rng() % 4 == 0 ? rng() % 15 : rng() % 2);
          const TimeNs begin = now_ + static_cast<TimeNs>(rng() % 1000);
          for (std::uint64_t k = rng() % 8 == 0 ? 5 : 1; k > 0; --k)  // a graph's, in one flush
            flying.push_back({arrives, now_, record(id, begin + static_cast<TimeNs>(k * 10))});
        }
        if (rng() % 2 == 0) close();
      }
      std::vector<ActivityRecord> arrived;
      TimeNs oldest = std::numeric_limits<TimeNs>::max();
      std::erase_if(flying, [&](const Flying& f) {
        if (f.arrives > t) {
          oldest = std::min(oldest, f.launched);
          return false;
        }
        arrived.push_back(f.record);
        return true;
      });
      std::shuffle(arrived.begin(), arrived.end(), rng);
      tick(arrived);
      if (counters_.get(Counter::kLaunchesExpired) == expired_before) {
        ASSERT_LE(ledger_->now(), oldest) << "tick " << t;
      }
    }
    while (thread_->stack.depth() != 0) close();
    for (int i = 0; i < 130; ++i) tick({record(launch(), now_)});  // until the lost ones are given up on
    const LaunchAccount after = drain_->account();
    EXPECT_EQ(after.seen - before.seen, launches_ - launches_before);
    EXPECT_EQ(after.dropped - before.dropped, lost);
    EXPECT_EQ(counters_.get(Counter::kRecordsLate), late_before);
    EXPECT_EQ(counters_.get(Counter::kLaunchesExpired) - expired_before, lost);
    if (HasFailure()) break;
  }
}

TEST_F(DrainTest, AFloodOfRecordsIsSettledWhileItComes) {
  tick({});
  open("step");
  now_ += kTick;
  drain_->begin_tick(now_);
  drain_->follow_instances();
  std::size_t most = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    drain_->record(record(launch(), now_ + i, 1));
    most = std::max(most, ledger_->pending());
  }
  EXPECT_LE(most, (1u << 18) + (1u << 16));
  EXPECT_EQ(counters_.get(Counter::kRecordsLate), 0u);  // they came in order
  EXPECT_EQ(drain_->account().attributed, 1'000'000u);
}

TEST_F(DrainTest, WhatClosesAtOneMomentClosesFromTheInside) {
  open("decode tokens=1");  // without the word it would be worth its parts
  close();
  now_ += 10;
  std::vector<RegionRule> none;
  open("decode");
  for (int i = 0; i < 3; ++i) {
    now_ += 5;
    open("decode tokens=7");  // a part
    now_ += 5;
    close();
  }
  now_ += 5;
  open("decode tokens=7");
  now_ += 5;
  close();
  close();  // at the very same moment
  const CorrelationId id = launch();
  tick({record(id, now_)});
  for (int i = 0; i < 4; ++i) tick({});
  drain_->finish(now_ + kNsPerSecond);
  for (const RegionSummary& r : windows_.back().regions) {
    if (r.region == "decode") {
      EXPECT_EQ(r.tokens, 1 + 4 * 7);
    }
  }
}

/// Keeps what the ledger is given.
struct Kept : AccountObserver {
  void on_record(const ActivityRecord& r, InstanceId, bool) override { records.push_back(r); }
  void on_open(const InstanceSlot&, TimeNs) override {}
  void on_close(const InstanceSlot&, TimeNs) override {}
  void on_finished(const Instance&, std::uint32_t, double) override {}
  std::vector<ActivityRecord> records;
};

TEST_F(DrainTest, KernelsGetTheProductTheyWereLaunchedFor) {
  Kept kept;
  ledger_->observe(&kept);
  const auto words = [](std::uint64_t m) {
    Product p;
    p.m = m, p.n = 10, p.k = 100;
    return ProductWords(p);
  };
  const auto product = [&](std::uint64_t m, int kernels) {
    std::vector<CorrelationId> ids;
    EXPECT_TRUE(attribution_.begin_product(*thread_, words(m)));
    for (int i = 0; i < kernels; ++i) {
      ids.push_back(static_cast<CorrelationId>(++correlation_));
      EXPECT_TRUE(attribution_.launch(*thread_, ids.back(), 1, {}, true));
      attribution_.launch_done(*thread_, ids.back(), false);
    }
    attribution_.end_product(*thread_, false);
    return ids;
  };
  tick({});
  const CorrelationId other = launch();
  const auto two = product(3, 2), one = product(4, 1);
  // Not in the order of launches, and one with times that cannot be used.
  tick({record(one[0], now_ + 30), record(two[1], now_ + 20), record(other, now_), record(two[0], 0)});
  ASSERT_EQ(kept.records.size(), 3u);
  EXPECT_EQ(kept.records[0].product, attribution_.products().number_of(words(4)));
  EXPECT_TRUE(kept.records[0].first_of_product);
  EXPECT_EQ(kept.records[1].product, attribution_.products().number_of(words(3)));
  EXPECT_FALSE(kept.records[1].first_of_product);
  EXPECT_EQ(kept.records[2].product, ProductId::kNone);
  EXPECT_FALSE(kept.records[2].first_of_product);
}

}  // namespace
}  // namespace mfu
