// A rank from its lines: when a window is complete, what is kept, what is summed.
#include "tools/job/rank.h"

#include <gtest/gtest.h>

#include "tests/unit/job/fake_run.h"

namespace mfu {
namespace {

using testing_run::kPeak;
using testing_run::region;

RunLine start(std::string config = "{}") {
  RunInfo run;
  run.t_ns = 100;
  run.world_size = 8;
  run.config_json = std::move(config);
  DeviceInfo device;
  device.peak_flop_per_s = kPeak;
  run.devices.push_back(device);
  RunLine line;
  line.t_ns = 100;
  line.what = run;
  return line;
}

RunLine window(RegionSummary row, TimeNs begin, std::uint64_t dropped = 0) {
  row.window = {begin, begin + 10 * kNsPerSecond};
  RunLine line;
  line.t_ns = row.window.end_ns;
  WindowLine of{std::move(row), {}, std::nullopt};
  if (of.region.region == "total") of.counters = {{"records_dropped", dropped}};
  line.what = std::move(of);
  return line;
}

TEST(RankTest, AWindowIsCompleteWithItsTotal) {
  Rank rank;
  rank.take(start());
  rank.take(window(region("step", 1e15), 0));
  EXPECT_FALSE(rank.last);
  EXPECT_EQ(rank.windows, 0u);
  rank.take(window(region("total", 1e15), 0, 3));
  ASSERT_TRUE(rank.last);
  EXPECT_EQ(rank.last->regions.size(), 2u);
  EXPECT_EQ(rank.windows, 1u);
  EXPECT_EQ(rank.dropped_records(), 3u);
  EXPECT_EQ(rank.interval_ns, 10 * kNsPerSecond);
  ASSERT_NE(rank.total(), nullptr);
  EXPECT_EQ(rank.total()->region, "total");
}

TEST(RankTest, ARowOfAWindowThatNeverGotItsTotalIsNoPartOfTheNext) {
  Rank rank;
  rank.take(start());
  rank.take(window(region("step", 1e15), 0));
  rank.take(window(region("total", 1e15), 10 * kNsPerSecond));
  ASSERT_TRUE(rank.last);
  EXPECT_EQ(rank.last->regions.size(), 1u);
}

/// A file that is read from its end lacks the event that began it.
TEST(RankTest, AStallIsKnownFromItsEventAndFromEveryWindowSince) {
  const Stall stall{1, "gemm_k", false, 0, ""};
  const auto at = [&](TimeNs begin, bool stalled) {
    RunLine line = window(region("total", 1e15), begin);
    if (stalled) std::get<WindowLine>(line.what).stall = stall;
    return line;
  };
  const auto event = [](const char* kind, std::optional<Stall> of) {
    RunLine line;
    line.what = RunEvent{0, kind, "", std::move(of)};
    return line;
  };
  Rank rank;
  rank.take(start());
  rank.take(event("stalled", stall));
  EXPECT_TRUE(rank.stall);
  rank.take(event("flush", std::nullopt));
  EXPECT_TRUE(rank.stall) << "another event";
  rank.take(event("resumed", std::nullopt));
  EXPECT_FALSE(rank.stall);
  rank.take(at(10 * kNsPerSecond, true));
  ASSERT_TRUE(rank.stall);
  EXPECT_EQ(rank.stall->kernel, "gemm_k");
  rank.take(at(0, false));
  EXPECT_TRUE(rank.stall) << "an older window";
  rank.take(at(20 * kNsPerSecond, false));
  EXPECT_FALSE(rank.stall);
}

TEST(RankTest, SumsAreThoseOfEveryWindow) {
  Rank rank;
  rank.take(start());
  for (int w = 0; w < 5; ++w) {
    RegionSummary step = region("step", 2e15, 1, 100, 2);
    step.tokens = 1000;
    rank.take(window(step, w * 10 * kNsPerSecond));
    rank.take(window(region("total", 2e15), w * 10 * kNsPerSecond));
  }
  const RegionTotals& totals = rank.sums.at({"step", 0u});
  const RegionSummary sum = totals.everything();
  EXPECT_DOUBLE_EQ(*sum.flop, 5 * 2e15);
  EXPECT_EQ(sum.tokens, 5000);
  EXPECT_EQ(sum.instances, 50u);
  EXPECT_EQ(sum.elapsed_ns, 50 * kNsPerSecond);
  EXPECT_DOUBLE_EQ(totals.flop_at_peak(), kPeak * 50);
  // Comm samples of the last windows only.
  EXPECT_EQ(rank.recent.size(), 5u);
  EXPECT_EQ(rank.recent.back().front().comm_kernels, 100u);
}

TEST(RankTest, WhatIsShownIsTheWholeRunOnceItEnded) {
  Rank rank;
  rank.take(start());
  EXPECT_EQ(rank.shown(), nullptr);
  rank.take(window(region("total", 1e15), 0));
  EXPECT_EQ(rank.shown(), &*rank.last);
  RunLine line;
  EndLine end;
  end.whole.regions = {region("total", 7e15)};
  line.what = end;
  rank.take(std::move(line));
  rank.state = RankState::kEnded;
  EXPECT_EQ(rank.shown(), &*rank.end);
  EXPECT_DOUBLE_EQ(*rank.total()->flop, 7e15);
}

TEST(RankTest, AStartLineAgainKeepsWhenTheRunBegan) {
  Rank rank;
  rank.take(start(R"({"parallel":{"pp":4}})"));
  EXPECT_EQ(rank.pipeline_stages, 4);
  RunLine again = start(R"({"parallel":{"pp":"four"}})");
  std::get<RunInfo>(again.what).t_ns = 900;
  rank.take(std::move(again));
  EXPECT_EQ(rank.run->t_ns, 100);
  EXPECT_EQ(rank.pipeline_stages, 1);
}

TEST(RankTest, EventsAreTheLastOnes) {
  Rank rank;
  for (int i = 0; i < 20; ++i) {
    RunLine line;
    line.what = RunEvent{0, "kind", std::to_string(i)};
    rank.take(std::move(line));
  }
  EXPECT_EQ(rank.events.size(), Rank::kEventsKept);
  EXPECT_EQ(rank.events.back().message, "19");
}

}  // namespace
}  // namespace mfu
