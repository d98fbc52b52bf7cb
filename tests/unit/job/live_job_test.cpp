// Ranks as their files show them, and what the job comes to: held against sums by hand.
#include "tools/job/live_job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "tests/unit/job/fake_run.h"
#include "tools/job/totals.h"

namespace mfu {
namespace {

using testing_run::Directory;
using testing_run::FakeRank;
using testing_run::kBegin;
using testing_run::kPeak;
using testing_run::region;

constexpr DurationNs kS = kNsPerSecond;

/// A job read once, `at_s` after its begin by a clock that agrees with everybody's.
LiveJob read_at(const Directory& directory, double at_s) {
  LiveJob job({directory.path()}, RunFile::From::kTail);
  EXPECT_TRUE(job.refresh(kS, kBegin + static_cast<DurationNs>(at_s * 1e9)));
  return job;
}

void live_for(FakeRank& rank, int windows, double start_s = 0) {
  rank.start(start_s);
  for (int i = 0; i < windows; ++i) rank.window(start_s + 10 * i, {region("step", 1e15), region("total", 1e15)});
}

TEST(LiveJobTest, WindowsAreWholeWithTheirTotal) {
  const Directory directory;
  FakeRank rank(directory, 0);
  rank.start(0);
  rank.window(0, {region("step", 2e15), region("total", 2e15)});
  rank.window(10, {region("step", 3e15)});  // its total is still to come
  LiveJob job = read_at(directory, 21);
  ASSERT_EQ(job.ranks().size(), 1u);
  const Rank& r = *job.ranks()[0];
  EXPECT_EQ(r.state, RankState::kLive);
  EXPECT_EQ(r.windows, 1u);
  ASSERT_NE(r.total(), nullptr);
  EXPECT_EQ(r.total()->flop, 2e15);
  rank.window(10, {region("total", 3e15)});
  EXPECT_TRUE(job.refresh(2 * kS, kBegin + 22 * kS).value());
  EXPECT_EQ(r.total()->flop, 3e15);
  EXPECT_EQ(r.shown()->regions.size(), 2u);
  EXPECT_FALSE(job.refresh(3 * kS, kBegin + 23 * kS).value()) << "nothing came";
}

TEST(LiveJobTest, TotalsAreSumsWeightedByWhatEachRankCouldDo) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0.05, 0.6);
  const Directory directory;
  double flop_sum = 0, possible = 0, known_elapsed = 0, known_comm = 0, elapsed_sum = 0, comm_sum = 0;
  for (int i = 0; i < 50; ++i) {
    FakeRank rank(directory, i, "node" + std::to_string(i % 7));
    rank.peak = i % 3 == 0 ? kPeak : kPeak / 4;
    rank.start(0);
    const double elapsed = 5 + share(random) * 10, flop = share(random) * rank.peak * elapsed, comm = share(random);
    auto total = region("total", flop, comm, 0, 0, elapsed);
    const bool known = i % 5 != 0;
    if (!known) total.flop = total.hfu_flop = total.mfu = total.hfu = std::nullopt;
    rank.window(0, {region("step", 1), total});
    elapsed_sum += elapsed;
    comm_sum += comm;
    if (!known) continue;
    flop_sum += flop;
    possible += rank.peak * elapsed;
    known_elapsed += elapsed;
    known_comm += comm;
  }
  const LiveJob job = read_at(directory, 11);
  const JobTotals t = job_totals(job.ranks());
  EXPECT_EQ(t.live, 50u);
  EXPECT_EQ(t.hosts, 7u);
  EXPECT_EQ(t.counted, 50u);
  EXPECT_EQ(t.with_mfu, 40u);
  EXPECT_NEAR(t.mfu.value(), flop_sum / possible, 1e-9);
  ASSERT_TRUE(t.lost.has_value());
  double whole = *t.mfu;
  for (const double part : *t.lost) whole += part;
  EXPECT_NEAR(whole, 1, 1e-9);
  // A share of the elapsed time of the ranks that MFU covers, as in every row and report.
  EXPECT_NEAR((*t.lost)[static_cast<std::size_t>(TimeClass::kComm)], known_comm / known_elapsed, 1e-6);
  EXPECT_NEAR(t.time_share[static_cast<std::size_t>(TimeClass::kComm)], comm_sum / elapsed_sum, 1e-6);
}

TEST(LiveJobTest, SeveralDevicesDivideByTheirMeanPeak) {
  const Directory directory;
  FakeRank rank(directory, 0);
  rank.start(0, /*devices=*/2);
  auto total = region("total", 4e15, 0, 0, 0, /*elapsed: device-seconds*/ 20);
  total.device = std::nullopt;
  rank.window(0, {total});
  EXPECT_NEAR(job_totals(read_at(directory, 11).ranks()).mfu.value(), 4e15 / (kPeak * 20), 1e-12);
}

TEST(LiveJobTest, RanksThatStopAreStaleWhateverTheClocksOfTheirHostsSay) {
  const Directory directory;
  FakeRank alive(directory, 0, "a"), behind(directory, 1, "b", -3600), ahead(directory, 2, "c", 7200),
      stopped(directory, 3, "a"), stopped_ahead(directory, 4, "c", 7200), late_start(directory, 5, "a"),
      fourth(directory, 6, "a"), fifth(directory, 7, "d"), sixth(directory, 8, "d");
  for (FakeRank* rank : {&alive, &behind, &ahead, &fourth, &fifth, &sixth}) live_for(*rank, 20);
  for (FakeRank* rank : {&stopped, &stopped_ahead}) live_for(*rank, 5);
  live_for(late_start, 2, 180);
  const LiveJob job = read_at(directory, 201);
  std::vector<RankState> states;
  for (const Rank* rank : job.ranks()) states.push_back(rank->state);
  using enum RankState;
  EXPECT_EQ(states[0], kLive);
  EXPECT_EQ(states[1], kLive);
  EXPECT_EQ(states[2], kLive);
  EXPECT_EQ(states[3], kStale);
  EXPECT_EQ(states[4], kStale);
  EXPECT_EQ(states[5], kLive) << "a rank that came late";
  EXPECT_EQ(job.clocks(), (Clocks{{"b", -3600 * kS}, {"c", 7200 * kS}}));
  EXPECT_NE(job.problems().front().find("host b: its clock is 3600 s behind"), std::string::npos);
  EXPECT_GT(job.ranks()[3]->quiet_s, 100);
}

TEST(LiveJobTest, WhileItWatchesGrowthDecides) {
  const Directory directory;
  FakeRank grows(directory, 0), stops(directory, 1);
  live_for(grows, 2);
  live_for(stops, 2);
  LiveJob job = read_at(directory, 21);
  for (int i = 2; i < 8; ++i) {
    grows.window(10 * i, {region("total", 1e15)});
    ASSERT_TRUE(job.refresh((1 + 10 * (i - 1)) * kS, kBegin + (11 + 10 * i) * kS));
  }
  EXPECT_EQ(job.ranks()[0]->state, RankState::kLive);
  EXPECT_EQ(job.ranks()[1]->state, RankState::kStale);
  EXPECT_EQ(job_totals(job.ranks()).counted, 1u) << "stale figures are not the job's";
  stops.window(90, {region("total", 1e15)});
  EXPECT_TRUE(job.refresh(80 * kS, kBegin + 101 * kS).value());
  EXPECT_EQ(job.ranks()[1]->state, RankState::kLive) << "it came back";
}

TEST(LiveJobTest, ARestartReplacesItsRankAndAnEndIsNoFailure) {
  const Directory directory;
  FakeRank before(directory, 0, "a", 0, 2, 10), after(directory, 0, "b", 0, 2, 11), other(directory, 1, "a", 0, 2, 12);
  live_for(before, 3);
  live_for(after, 3, 60);
  live_for(other, 9);
  other.end(90);
  const LiveJob job = read_at(directory, 92);
  ASSERT_EQ(job.ranks().size(), 3u);
  EXPECT_EQ(job.ranks()[0]->state, RankState::kReplaced);
  EXPECT_EQ(job.ranks()[1]->state, RankState::kLive);
  EXPECT_EQ(job.ranks()[2]->state, RankState::kEnded);
}

TEST(LiveJobTest, FilesThatVanishBreakOrAreForeign) {
  const Directory directory;
  FakeRank good(directory, 0), foreign(directory, 1, "x"), empty(directory, 2, "y");
  live_for(good, 2);
  good.text("{\"v\":1,\"type\":\"window\",\"region\":5}\n{\"v\":9,\"type\":\"hologram\"}\n{\"v\":1,\"ty");
  foreign.text("{\"msg\":\"hello\"}\nplain\n");
  empty.text("");
  LiveJob job = read_at(directory, 21);
  const JobTotals t = job_totals(job.ranks());
  EXPECT_EQ(t.live, 1u);
  EXPECT_EQ(t.unreadable, 2u);
  const auto problems = job.problems();
  const auto said = [&](std::string_view words) {
    return std::any_of(problems.begin(), problems.end(),
                       [&](const std::string& p) { return p.find(words) != std::string::npos; });
  };
  EXPECT_TRUE(said("'region': 5 is not a string"));
  EXPECT_TRUE(said("newer version"));
  EXPECT_TRUE(said("x-1-0.jsonl:1: neither 'v' nor 'type'"));
  EXPECT_TRUE(said("y-2-0.jsonl: no line yet"));
  std::filesystem::remove(good.path());
  EXPECT_TRUE(job.refresh(10 * kS, kBegin + 30 * kS).value());
  EXPECT_EQ(job.ranks().size(), 2u);
  std::filesystem::remove_all(directory.path());
  const auto gone = job.refresh(20 * kS, kBegin + 40 * kS);
  ASSERT_FALSE(gone);
  EXPECT_NE(gone.error().message.find("no such file or directory"), std::string::npos);
}

TEST(LiveJobTest, AFileMadeAnewStartsAnew) {
  const Directory directory;
  FakeRank first(directory, 0);
  live_for(first, 5);
  LiveJob job({directory.path()}, RunFile::From::kBeginning);
  ASSERT_TRUE(job.refresh(kS, kBegin + 51 * kS));
  EXPECT_NEAR(job.ranks()[0]->sums.at({"total", 0}).summed().weights.flop, 5e15, 1);
  std::filesystem::remove(first.path());
  FakeRank again(directory, 0);
  live_for(again, 2, 100);
  ASSERT_TRUE(job.refresh(10 * kS, kBegin + 121 * kS));
  EXPECT_NEAR(job.ranks()[0]->sums.at({"total", 0}).summed().weights.flop, 2e15, 1);
  EXPECT_EQ(job.ranks()[0]->windows, 2u);
}

TEST(LiveJobTest, ARunThatEndedIsShownWhole) {
  const Directory directory;
  FakeRank rank(directory, 0);
  live_for(rank, 3);
  rank.end(31);
  const LiveJob job = read_at(directory, 5000);
  EXPECT_TRUE(job_totals(job.ranks()).whole_run);
  EXPECT_EQ(job.ranks()[0]->state, RankState::kEnded);
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line + "\n";
}

TEST(LiveJobTest, CopiesAndPiecesOfAFileAreOneRank) {
  const Directory directory;
  FakeRank rank(directory, 0);
  live_for(rank, 4);
  std::filesystem::copy_file(rank.path(), directory.path() + "/copy.jsonl");
  LiveJob job({directory.path()}, RunFile::From::kBeginning);
  ASSERT_TRUE(job.refresh(kS, kBegin + 41 * kS));
  ASSERT_EQ(job.ranks().size(), 1u);
  EXPECT_EQ(job.ranks()[0]->windows, 4u);
  EXPECT_NE(job.problems().front().find("copy.jsonl has as well: left out"), std::string::npos);
  // Renamed while it runs: the library goes on in a new file, with the start line first.
  std::filesystem::remove(directory.path() + "/copy.jsonl");
  const std::string start = first_line(rank.path());
  std::filesystem::rename(rank.path(), directory.path() + "/old.jsonl");
  rank.text(start);
  rank.window(40, {region("total", 1e15)});
  ASSERT_TRUE(job.refresh(10 * kS, kBegin + 51 * kS));
  ASSERT_EQ(job.ranks().size(), 1u);
  EXPECT_EQ(job.ranks()[0]->windows, 5u);
  EXPECT_NEAR(job.ranks()[0]->sums.at({"total", 0}).summed().weights.flop, 5e15, 1);
  EXPECT_EQ(job.ranks()[0]->path, rank.path());
  EXPECT_EQ(job.ranks()[0]->state, RankState::kLive);
}

TEST(LiveJobTest, AnotherProcessUnderTheSameNameAndInodeIsSeen) {
  const Directory directory;
  FakeRank first(directory, 0, "a", 0, 1, 7);
  live_for(first, 2);
  LiveJob job({directory.path()}, RunFile::From::kBeginning);
  ASSERT_TRUE(job.refresh(kS, kBegin + 21 * kS));
  FakeRank other(directory, 3, "b", 0, 1, 8);
  live_for(other, 5, 100);
  std::stringstream longer;
  longer << std::ifstream(other.path()).rdbuf();
  std::filesystem::remove(other.path());
  std::ofstream(first.path(), std::ios::trunc) << longer.str();
  ASSERT_TRUE(job.refresh(10 * kS, kBegin + 151 * kS));
  ASSERT_EQ(job.ranks().size(), 1u);
  EXPECT_EQ(job.ranks()[0]->run->host, "b");
  EXPECT_EQ(job.ranks()[0]->windows, 5u);
}

TEST(LiveJobTest, LinesThatComeAgainCountOnceAndThoseOfAnotherProcessAreLeftOut) {
  const Directory directory;
  FakeRank rank(directory, 0), other(directory, 1);
  live_for(rank, 3);
  live_for(other, 2);
  std::stringstream text, foreign;
  text << std::ifstream(rank.path()).rdbuf();
  foreign << std::ifstream(other.path()).rdbuf();
  std::filesystem::remove(other.path());
  rank.text(text.str());
  rank.text(foreign.str());
  LiveJob job({directory.path()}, RunFile::From::kBeginning);
  ASSERT_TRUE(job.refresh(kS, kBegin + 31 * kS));
  ASSERT_EQ(job.ranks().size(), 1u);
  EXPECT_EQ(job.ranks()[0]->windows, 3u);
  const std::string said = job.problems().at(0) + job.problems().at(1);
  EXPECT_NE(said.find("5 lines of another process"), std::string::npos) << said;
  EXPECT_NE(said.find("6 lines came twice"), std::string::npos) << said;
}

}  // namespace
}  // namespace mfu
