// What the screen of `mfu top` says, at every size, without a terminal.
#include "tools/top/screen.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/base/printable.h"
#include "tests/unit/job/fake_run.h"
#include "tests/unit/rows/impossible.h"

#include "tests/unit/top/line_text.h"

namespace mfu {
namespace {

using testing_run::Directory;
using testing_run::FakeRank;
using testing_run::kBegin;
using testing_run::kPeak;
using testing_run::region;

std::string text_of(const std::vector<ScreenLine>& lines) {
  std::string text;
  for (const ScreenLine& line : lines) text += text_of(line) + "\n";
  return text;
}

class ScreenTest : public testing::Test {
 protected:
  /// 40 ranks on 4 hosts; rank r has (r + 10) % MFU; rank 7 comes last by 2 ms in 400 collectives per window.
  void SetUp() override {
    for (int r = 0; r < 40; ++r) {
      FakeRank rank(directory_, r, "node" + std::to_string(r / 10), 0, 40);
      rank.start(0);
      for (int w = 0; w < 4; ++w) {
        const double comm = r == 7 ? 0.4 : 1.2, flop = (10 + r) * 0.01 * kPeak * 10;
        rank.window(10 * w, {region("step", flop, comm, 400, comm), region("total", flop, comm, 400, comm)});
      }
    }
    read();
  }
  void read() {
    job_.emplace(std::vector<std::string>{directory_.path()}, RunFile::From::kTail);
    ASSERT_TRUE(job_->refresh(kNsPerSecond, kBegin + 41 * kNsPerSecond));
    snapshot_ = take_snapshot(*job_);
  }
  std::vector<ScreenLine> screen(int width, int height) { return render(snapshot_, view_, width, height); }

  Directory directory_;
  std::optional<LiveJob> job_;
  TopSnapshot snapshot_;
  TopView view_;
};

TEST_F(ScreenTest, FitsEverySizeExactly) {
  for (const auto mode : {TopView::Mode::kTable, TopView::Mode::kDetail, TopView::Mode::kHelp}) {
    view_.mode = mode;
    for (const auto& [width, height] : {std::pair{80, 24}, {200, 50}, {40, 10}, {20, 3}, {400, 100}, {81, 25}}) {
      const auto lines = screen(width, height);
      EXPECT_EQ(lines.size(), static_cast<std::size_t>(height)) << width << "x" << height;
      for (const ScreenLine& line : lines)
        EXPECT_LE(columns(text_of(line)), static_cast<std::size_t>(width)) << text_of(line);
    }
  }
}

TEST_F(ScreenTest, SaysTheJobItsStragglerAndEveryRank) {
  const std::string all = text_of(screen(80, 60));
  // Mean of 10 % .. 49 %: all have the same peak.
  EXPECT_NE(all.find("MFU 29.5 %"), std::string::npos) << all;
  EXPECT_NE(all.find("40 live of 40 ranks on 4 hosts"), std::string::npos) << all;
  // Others are in 400 collectives for 1.2 s, it for 0.4 s: 2 ms each, 0.8 s of 10, 29.5 x 0.08 / 0.92 = 2.57 points.
  EXPECT_NE(all.find("straggler: rank 7 (node0 gpu 0) costs 2.6 points of MFU: last in step by 2 ms"),
            std::string::npos)
      << all;
  for (int r = 0; r < 40; ++r) {
    const std::string number = std::to_string(r);
    EXPECT_NE(all.find(std::string(5 - number.size(), ' ') + number + "   0 step"), std::string::npos) << r << all;
  }
  EXPECT_NE(all.find("!    7 "), std::string::npos) << all;
}

TEST_F(ScreenTest, BarsAddUpToTheWindow) {
  view_.sort = "rank";
  const std::string wide = text_of(screen(200, 60));
  EXPECT_NE(wide.find(" node3 "), std::string::npos) << "hosts where there is room";
  const auto lines = screen(80, 30);
  for (const ScreenLine& line : lines) {
    const std::string text = text_of(line);
    if (text.front() != '[') continue;
    EXPECT_EQ(text.size(), 80u);
    // 29.5 % of 78 columns; 1.18 s of 10 s in communication; the rest is matmul beyond the ideal.
    EXPECT_EQ(std::count(text.begin(), text.end(), '#'), 23);
    EXPECT_EQ(std::count(text.begin(), text.end(), 'c'), 9);
    EXPECT_EQ(std::count(text.begin(), text.end(), '='), 46);
  }
}

TEST_F(ScreenTest, SortsWorstFirstAndFilters) {
  const auto ranks = [&](std::string_view sort, std::string_view filter) {
    std::vector<std::int64_t> numbers;
    for (const TopRow& row : select_rows(snapshot_.rows, sort, filter)) numbers.push_back(row.rank->run->rank);
    return numbers;
  };
  EXPECT_EQ(ranks("mfu", "").front(), 0);
  EXPECT_EQ(ranks("late", "").front(), 7);
  EXPECT_EQ(ranks("rank", "NODE2").size(), 10u);
  EXPECT_EQ(ranks("rank", "host=node2 mfu>35"), (std::vector<std::int64_t>{26, 27, 28, 29}));
  EXPECT_EQ(ranks("rank", "rank=12"), (std::vector<std::int64_t>{12}));
  EXPECT_EQ(ranks("rank", "rank>=38"), (std::vector<std::int64_t>{38, 39}));
  EXPECT_EQ(ranks("rank", "rank<=1"), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(ranks("rank", "host!=node0 mfu<=20%"), (std::vector<std::int64_t>{10}));
  EXPECT_EQ(ranks("rank", "rank!=5").size(), 39u);
  EXPECT_EQ(ranks("rank", "step>1us").size(), ranks("rank", "step>0").size());
  EXPECT_EQ(ranks("rank", "late>1"), (std::vector<std::int64_t>{7}));
  EXPECT_TRUE(ranks("rank", "mfu<abc").empty());
  EXPECT_TRUE(ranks("rank", "nowhere").empty());
  EXPECT_EQ(ranks("rank", "  ").size(), 40u);
  view_.filter = "nowhere";
  view_.mode = TopView::Mode::kDetail;
  EXPECT_EQ(screen(80, 24).size(), 24u) << "no row to show";
}

TEST_F(ScreenTest, AFilterThatCannotBeMeantIsNamed) {
  EXPECT_EQ(filter_problem("node03 mfu<35 host=node01"), "");
  EXPECT_EQ(filter_problem("mfu<=35% step>20ms host!=node01 rank!=3 late>=1 step<0.02s"), "");
  EXPECT_NE(filter_problem("mfuu<35").find("no key 'mfuu', did you mean mfu? there are rank, mfu"), std::string::npos);
  EXPECT_NE(filter_problem("speed<35").find("no key 'speed'; there are rank, mfu"), std::string::npos);
  EXPECT_EQ(filter_problem("mfu<<35"), "filter: mfu: expected a percentage such as 35, got '<35'");
  EXPECT_EQ(filter_problem("step<20%"), "filter: step: expected a time such as 20ms, got '20%'");
  EXPECT_EQ(filter_problem("rank=3%"), "filter: rank: expected a number, got '3%'");
  EXPECT_EQ(filter_problem("host<3"), "filter: host takes = and != only");
  view_.filter = "mfuu<35";
  const std::string all = text_of(render(snapshot_, view_, 100, 30));
  EXPECT_NE(all.find("no key 'mfuu'"), std::string::npos) << all;
}

TEST_F(ScreenTest, TheSelectedRowStaysInSight) {
  view_.selected = 39;
  const std::string bottom = text_of(screen(80, 24));
  EXPECT_NE(bottom.find("   39 "), std::string::npos) << bottom;
  EXPECT_NE(bottom.find("40/40"), std::string::npos) << bottom;
  view_.selected = 1000;
  screen(80, 24);
  EXPECT_EQ(view_.selected, 39u);
  view_.selected = 3;
  EXPECT_NE(text_of(screen(80, 24)).find("    3 "), std::string::npos);
}

TEST_F(ScreenTest, DetailHasRegionsPeaksAndKernels) {
  view_.mode = TopView::Mode::kDetail;
  view_.selected = 7;
  const std::string all = text_of(screen(120, 40));
  EXPECT_NE(all.find("rank 7 of 40  host node0"), std::string::npos) << all;
  EXPECT_NE(all.find("1 PFLOP/s"), std::string::npos) << all;
  EXPECT_NE(all.find(" step "), std::string::npos) << all;
  EXPECT_NE(all.find(" total "), std::string::npos) << all;
  EXPECT_NE(all.find("1 ms"), std::string::npos) << "time per collective: 0.4 s / 400";
}

TEST_F(ScreenTest, WhatIsWorstMayComeLast) {
  const auto first = [&](std::string_view sort) {
    return select_rows(snapshot_.rows, sort, "", /*reversed=*/true).front().rank->run->rank;
  };
  EXPECT_EQ(first("rank"), 39);
  EXPECT_EQ(first("mfu"), 39);
  view_.reversed = true;
  view_.sort = "mfu";
  EXPECT_NE(text_of(screen(120, 30)).find("sort: mfu reversed"), std::string::npos);
}

TEST_F(ScreenTest, TheSelectedRankStaysSelectedWhenTheOrderChanges) {
  view_.sort = "mfu";
  view_.selected = 7;  // rank 7, the eighth of the worst
  EXPECT_NE(text_of(screen(120, 30)).find("8/40"), std::string::npos);
  view_.mode = TopView::Mode::kDetail;
  EXPECT_EQ(text_of(screen(120, 30)).find("rank 7 of 40"), 0u);
  FakeRank worse(directory_, 41, "node4", 0, 42);
  worse.start(0);
  worse.window(30, {region("step", 0.01 * kPeak * 10), region("total", 0.01 * kPeak * 10)});
  read();
  EXPECT_EQ(text_of(screen(120, 30)).find("rank 7 of 40"), 0u) << text_of(screen(120, 30));
  EXPECT_EQ(view_.selected, 8u);
  view_.mode = TopView::Mode::kTable;
  view_.to_first();
  screen(120, 30);
  EXPECT_EQ(view_.followed->path.find("node4"), view_.followed->path.rfind('/') + 1)
      << "the first place is the worst rank";
}

TEST_F(ScreenTest, ADetailLongerThanTheScreenIsScrolled) {
  view_.mode = TopView::Mode::kDetail;
  view_.selected = 7;
  const std::string whole = text_of(screen(80, 60));
  EXPECT_EQ(whole.find("page:"), std::string::npos) << "nothing to scroll";
  const std::string last = "library: ";
  ASSERT_NE(whole.find(last), std::string::npos) << whole;
  std::string part = text_of(screen(80, 12));
  EXPECT_EQ(part.find(last), std::string::npos) << part;
  EXPECT_NE(part.find("page: down ("), std::string::npos) << part;
  view_.detail_scroll = 1000;
  part = text_of(screen(80, 12));
  EXPECT_NE(part.find(last), std::string::npos) << part;
  EXPECT_EQ(part.find("rank 7 of 40"), 0u) << "whose it is stays: " << part;
  EXPECT_NE(part.find("page: up ("), std::string::npos) << part;
  EXPECT_LT(view_.detail_scroll, 60u);
}

TEST_F(ScreenTest, TheHistorySaysHowFarBackItGoes) {
  // Four windows of 10 s.
  EXPECT_NE(text_of(screen(120, 40)).find("last 40 s"), std::string::npos) << text_of(screen(120, 40));
}

TEST_F(ScreenTest, DetailHasTheMatmulsAndWhatTheyLose) {
  RegionSummary step = region("step", 0.3 * kPeak * 10);
  Component down;
  down.name = "down";
  down.pass = "wgrad";
  down.calls = 96;
  down.time_ns = 2 * kNsPerSecond;
  down.flop = 0.25 * kPeak * 2;
  down.flop_per_s = 0.25 * kPeak;
  down.of_peak = 0.25;
  down.bound = Bound::kMemory;
  Component unseen;
  unseen.name = "not seen";
  unseen.time_ns = kNsPerSecond;
  step.components = {down, unseen};
  step.idle_gaps.emplace();
  step.time_ns[static_cast<std::size_t>(TimeClass::kIdle)] = 4 * kNsPerSecond;
  step.idle_gaps->under_20us = kNsPerSecond;
  step.idle_gaps->longer = 3 * kNsPerSecond;
  step.idle_gaps->before = 2 * kNsPerSecond;
  step.idle_gaps->inside = step.idle_gaps->after = kNsPerSecond;
  step.findings = {{"peak_dtype", "95.0 % of the matmul time ran in fp32"}};
  FakeRank rank(directory_, 40, "node4", 0, 41);
  rank.start(0);
  rank.window(0, {step, region("total", 0.3 * kPeak * 10)});
  read();
  view_.mode = TopView::Mode::kDetail;
  view_.filter = "rank=40";
  const std::string all = text_of(screen(120, 40));
  EXPECT_NE(all.find("MATMUL of step"), std::string::npos) << all;
  EXPECT_NE(all.find("IDLE of step: 4 s"), std::string::npos) << all;
  EXPECT_NE(all.find("gaps < 20 µs 25 %, < 1 ms 0 %, longer 75 %"), std::string::npos) << all;
  EXPECT_NE(all.find("before the first kernel 50 %, inside 25 %, behind the last 25 %"), std::string::npos) << all;
  // 2 s of 10, three quarters of which the peak would save.
  EXPECT_NE(all.find("    20.0    15.0    250 TFLOP/s    25.0 memory        96 down wgrad"), std::string::npos) << all;
  EXPECT_NE(all.find("    10.0       -              -       - -              0 not seen"), std::string::npos) << all;
  EXPECT_NE(all.find("95.0 % of the matmul time ran in fp32"), std::string::npos) << all;
}

TEST_F(ScreenTest, JsonHasTheSameFigures) {
  const auto j = nlohmann::json::parse(snapshot_json(snapshot_, view_.sort, view_.filter));
  EXPECT_NEAR(j["job"]["mfu"].get<double>(), 0.295, 1e-9);
  EXPECT_EQ(j["ranks"].size(), 40u);
  EXPECT_EQ(j["stragglers"].at(0)["rank"], 7);
  EXPECT_NEAR(j["stragglers"].at(0)["cost_mfu"].get<double>(), 0.295 * 0.08 / 0.92, 1e-6);
}

TEST_F(ScreenTest, NamesReachNoTerminalUnfiltered) {
  FakeRank evil(directory_, 41, "node9", 0, 42);
  evil.start(0);
  evil.window(0, {region("\x1b[2Jstep\x07\xff", 1e15), region("total", 1e15)});
  read();
  for (const auto mode : {TopView::Mode::kTable, TopView::Mode::kDetail}) {
    view_.mode = mode;
    view_.selected = 40;
    for (const ScreenLine& line : screen(100, 60))
      for (const char c : text_of(line)) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << text_of(line);
  }
  for (const char c : render_plain(snapshot_, view_, 120))
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

TEST_F(ScreenTest, AnEmptyDirectorySaysWhatIsMissing) {
  const Directory nothing;
  LiveJob job({nothing.path()}, RunFile::From::kTail);
  ASSERT_TRUE(job.refresh(1, kBegin));
  const TopSnapshot empty = take_snapshot(job);
  EXPECT_NE(render_plain(empty, view_, 120).find("no run here yet"), std::string::npos);
  EXPECT_EQ(render(empty, view_, 80, 24).size(), 24u);
}

TEST_F(ScreenTest, AJobThatIsGoneIsSaidToBeGone) {
  ASSERT_TRUE(job_->refresh(100 * kNsPerSecond, kBegin + 140 * kNsPerSecond));
  const TopSnapshot gone = take_snapshot(*job_);
  const std::string text = render_plain(gone, view_, 120);
  EXPECT_NE(text.find("0 live, 40 stale"), std::string::npos) << text;
  EXPECT_NE(text.find("no rank is live"), std::string::npos) << text;
  EXPECT_NE(text.find("stale 99 s"), std::string::npos) << text;
}

/// Random rows, also such as no run can have: `suspect` takes the place of their figures.
TEST(ScreenFigures, NoneIsMoreThanAHundredPercentOrNegative) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Directory directory;
    for (int r = 0; r < 3; ++r) {
      FakeRank rank(directory, r);
      rank.start(0);
      for (int w = 0; w < 3; ++w) {
        std::vector<RegionSummary> rows{region("step", 0.4 * kPeak * 10), region("total", 0.4 * kPeak * 10)};
        for (RegionSummary& row : rows) testing_impossible::make_random(row, random);
        rank.window(10 * w, rows);
      }
    }
    LiveJob job({directory.path()}, RunFile::From::kTail);
    ASSERT_TRUE(job.refresh(kNsPerSecond, kBegin + 31 * kNsPerSecond));
    const TopSnapshot snapshot = take_snapshot(job);
    TopView view;
    std::string text = render_plain(snapshot, view, 160);
    for (const auto mode : {TopView::Mode::kTable, TopView::Mode::kDetail, TopView::Mode::kHosts}) {
      view.mode = mode;
      text += text_of(render(snapshot, view, 160, 60));
    }
    EXPECT_EQ(testing_impossible::in_text(text), std::vector<std::string>{}) << text;
    EXPECT_EQ(text.find(" -0.0"), std::string::npos) << text;
    EXPECT_EQ(text.find("matmuls 9"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace mfu
