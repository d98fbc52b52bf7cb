// The job in one row, against sums made by hand.
#include "tools/job/totals.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/job/fake_run.h"

namespace mfu {
namespace {

using testing_run::kPeak;
using testing_run::region;

Rank rank_with(RegionSummary total, RankState state = RankState::kLive, std::optional<double> peak = kPeak,
               int devices = 1) {
  Rank rank;
  rank.state = state;
  RunInfo run;
  run.host = "node0";
  run.world_size = 4;
  for (int d = 0; d < devices; ++d) {
    DeviceInfo device;
    device.device = static_cast<std::uint32_t>(d);
    device.peak_flop_per_s = peak;
    device.peak_bytes_per_s = 3e12;
    run.devices.push_back(device);
  }
  rank.run = run;
  WindowSummary window;
  total.region = "total";
  total.window = {0, 10 * kNsPerSecond};
  window.window = total.window;
  window.regions = {std::move(total)};
  rank.last = window;
  return rank;
}

JobTotals totals_of(const std::vector<Rank>& ranks) {
  std::vector<const Rank*> pointers;
  for (const Rank& rank : ranks) pointers.push_back(&rank);
  return job_totals(pointers);
}

TEST(JobTotalsTest, MfuIsFlopOverWhatTheRanksCouldHaveDone) {
  // 2e15 of 1e16 and 6e15 of 2e16: 8/30, not the mean of 20 % and 30 %.
  const JobTotals t = totals_of({rank_with(region("total", 2e15), RankState::kLive, 1e15),
                                 rank_with(region("total", 6e15), RankState::kLive, 2e15)});
  EXPECT_EQ(t.live, 2u);
  EXPECT_EQ(t.with_mfu, 2u);
  EXPECT_DOUBLE_EQ(*t.mfu, 8.0 / 30.0);
  EXPECT_DOUBLE_EQ(t.flop_per_s, 8e14);
  ASSERT_TRUE(t.lost);
  EXPECT_NEAR(*t.mfu + std::accumulate(t.lost->begin(), t.lost->end(), 0.0), 1, 1e-12);
}

TEST(JobTotalsTest, ARankThatNobodyCanCountIsLeftOutOfBothSides) {
  RegionSummary unknown = region("total", 0);
  unknown.flop = unknown.hfu_flop = unknown.mfu = unknown.hfu = std::nullopt;
  const JobTotals t = totals_of({rank_with(region("total", 4e15)), rank_with(unknown)});
  EXPECT_EQ(t.counted, 2u);
  EXPECT_EQ(t.with_mfu, 1u);
  EXPECT_DOUBLE_EQ(*t.mfu, 0.4);
  EXPECT_DOUBLE_EQ(*t.busy, 1.0);  // of both
}

TEST(JobTotalsTest, ABoundOfSomeRanksIsABoundOfTheJob) {
  RegionSummary unknown = region("total", 0);
  unknown.flop = unknown.hfu_flop = unknown.mfu = unknown.hfu = std::nullopt;
  RegionSummary bounded = unknown;
  bounded.mfu_lower = 0.3;
  // 30 % of 1e15, at least, and who knows how much of 2e15: a tenth of both together.
  const Rank of_1 = rank_with(bounded, RankState::kLive, 1e15), of_2 = rank_with(unknown, RankState::kLive, 2e15);
  EXPECT_NEAR(totals_of({of_1, of_2}).mfu_lower.value(), 0.1, 1e-12);
  EXPECT_FALSE(totals_of({of_2}).mfu_lower);
  const JobTotals known = totals_of({of_1, of_2, rank_with(region("total", 4e15))});
  EXPECT_DOUBLE_EQ(*known.mfu, 0.4);
  EXPECT_FALSE(known.mfu_lower) << "a figure of some is better than a bound of all";
}

TEST(JobTotalsTest, NothingKnownStaysUnknown) {
  const JobTotals none = totals_of({});
  EXPECT_FALSE(none.mfu || none.hfu || none.mbu || none.busy || none.lost || none.classes_known);
  const JobTotals no_peak = totals_of({rank_with(region("total", 4e15), RankState::kLive, std::nullopt)});
  EXPECT_FALSE(no_peak.mfu || no_peak.lost);
  EXPECT_TRUE(no_peak.classes_known);
  EXPECT_NEAR(no_peak.time_share[0], 1, 1e-12);
  RegionSummary blind = region("total", 4e15);
  blind.classes_known = false;
  const JobTotals unseen = totals_of({rank_with(blind)});
  EXPECT_FALSE(unseen.busy || unseen.lost);
  EXPECT_FALSE(unseen.classes_known);
  EXPECT_DOUBLE_EQ(*unseen.mfu, 0.4);  // FLOP and elapsed time need no device activity
}

TEST(JobTotalsTest, OnlyTheLiveCountWhileAnyLives) {
  Rank ended = rank_with(region("total", 9e15), RankState::kEnded);
  ended.end = ended.last;
  const JobTotals mixed =
      totals_of({rank_with(region("total", 1e15)), ended, rank_with(region("total", 5e15), RankState::kStale)});
  EXPECT_FALSE(mixed.whole_run);
  EXPECT_EQ(mixed.counted, 1u);
  EXPECT_DOUBLE_EQ(*mixed.mfu, 0.1);
  EXPECT_EQ(mixed.stale, 1u);
  EXPECT_EQ(mixed.ended, 1u);
  const JobTotals over = totals_of({ended});
  EXPECT_TRUE(over.whole_run);
  EXPECT_DOUBLE_EQ(*over.mfu, 0.9);
}

TEST(JobTotalsTest, AProcessOfSeveralDevicesIsDividedByTheirMean) {
  Rank rank = rank_with(region("total", 4e15), RankState::kLive, kPeak, 2);
  rank.run->devices[1].peak_flop_per_s = 3 * kPeak;
  RegionSummary row = rank.last->regions[0];
  row.device.reset();
  EXPECT_DOUBLE_EQ(*peak_of(rank, row).flop_per_s, 2 * kPeak);
  row.device = 1;
  EXPECT_DOUBLE_EQ(*peak_of(rank, row).flop_per_s, 3 * kPeak);
  rank.run->devices[0].peak_flop_per_s.reset();
  row.device.reset();
  EXPECT_FALSE(peak_of(rank, row).flop_per_s);
}

}  // namespace
}  // namespace mfu
