// Collectives end together: whoever comes last waits least. Held against jobs whose arrivals are known.
#include "tools/job/straggler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/unit/job/fake_run.h"

namespace mfu {
namespace {

using testing_run::kBegin;

constexpr DurationNs kWindow = 10 * kNsPerSecond;

/// Ranks that meet in `collectives` per window; in each, every rank arrives at its own time and all leave together.
struct Meeting {
  std::size_t ranks = 16;
  std::size_t windows = 6;
  std::uint64_t collectives = 400;
  double transfer_s = 0.001;
  double jitter_s = 0;                               ///< of a rank's arrival, in each collective
  std::vector<std::pair<std::size_t, double>> late;  ///< rank, by how much [s]
  std::int64_t stages = 1;
  std::function<double(std::size_t)> structure;     ///< comm time that a rank has by its place, per collective [s]
  std::function<std::uint64_t(std::size_t)> count;  ///< kernels of a rank
  std::vector<double> ahead_s;                      ///< of each rank's clock
};

std::vector<Rank> play(const Meeting& m, std::mt19937_64& random) {
  std::vector<Rank> ranks(m.ranks);
  std::normal_distribution<double> normal(0, 1);
  for (std::size_t r = 0; r < m.ranks; ++r) {
    Rank& rank = ranks[r];
    rank.run.emplace();
    rank.run->rank = static_cast<std::int64_t>(r);
    rank.run->host = "node" + std::to_string(r);
    rank.run->world_size = static_cast<std::int64_t>(m.ranks);
    rank.state = RankState::kLive;
    rank.interval_ns = kWindow;
    rank.pipeline_stages = m.stages;
  }
  for (std::size_t w = 0; w < m.windows; ++w) {
    std::vector<double> comm(m.ranks, 0);
    for (std::uint64_t c = 0; c < m.collectives; ++c) {
      std::vector<double> arrives(m.ranks);
      for (double& a : arrives) a = m.jitter_s * normal(random);
      for (const auto& [r, by] : m.late) arrives[r] += by;
      const double last = *std::max_element(arrives.begin(), arrives.end());
      for (std::size_t r = 0; r < m.ranks; ++r) comm[r] += last - arrives[r] + m.transfer_s;
    }
    for (std::size_t r = 0; r < m.ranks; ++r) {
      const double ahead = r < m.ahead_s.size() ? m.ahead_s[r] : 0;
      const std::uint64_t kernels = m.count ? m.count(r) : m.collectives;
      double sum = comm[r] * static_cast<double>(kernels) / static_cast<double>(m.collectives);
      if (m.structure) sum += m.structure(r) * static_cast<double>(kernels);
      const TimeNs t0 = kBegin + static_cast<DurationNs>(w) * kWindow + static_cast<DurationNs>(ahead * 1e9);
      CommSample s{"step",
                   0,
                   {t0, t0 + kWindow},
                   kWindow,
                   static_cast<DurationNs>(sum * 1e9),
                   kernels,
                   static_cast<DurationNs>(sum * 1e9)};
      ranks[r].recent.push_back({s});
    }
  }
  return ranks;
}

std::vector<Straggler> found_in(const std::vector<Rank>& ranks, std::optional<double> mfu = 0.4,
                                const Clocks& clocks = {}) {
  std::vector<const Rank*> all;
  for (const Rank& r : ranks) all.push_back(&r);
  return find_stragglers(all, clocks, mfu);
}

TEST(StragglerTest, TheRankThatArrivesLastIsNamedNotTheOneThatWaits) {
  std::mt19937_64 random(1);
  Meeting m;
  m.late = {{5, 0.002}};
  const auto ranks = play(m, random);
  const auto found = found_in(ranks);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank->run->rank, 5);
  EXPECT_EQ(found[0].region, "step");
  EXPECT_EQ(found[0].windows, 6u);
  EXPECT_NEAR(found[0].lead_s, 0.002, 1e-9);
  // 400 collectives of 2 ms in 10 s: 8 %. Without them the FLOP take 9.2 s: 0.4 x 10 / 9.2 - 0.4.
  EXPECT_NEAR(found[0].lost_share, 0.08, 1e-9);
  EXPECT_NEAR(found[0].cost_mfu.value(), 0.4 * 10 / 9.2 - 0.4, 1e-9);
}

TEST(StragglerTest, NoiseNamesNobody) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int named = 0, runs = 0;
  for (const std::size_t ranks : {2u, 3u, 4u, 8u, 16u, 64u}) {
    for (int i = 0; i < 10; ++i) {
      Meeting m;
      m.ranks = ranks;
      m.collectives = 40;
      m.jitter_s = 0.01;  // mean waits of 10 ms and more: a tenth of the time, and no rank's doing
      named += static_cast<int>(found_in(play(m, random)).size());
      ++runs;
    }
  }
  EXPECT_LE(named, runs / 20) << "of " << runs;
}

TEST(StragglerTest, AStragglerIsFoundUnderJitterAndItsCostIsWithinReach) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const std::size_t ranks : {2u, 8u, 64u}) {
    Meeting m;
    m.ranks = ranks;
    m.jitter_s = 0.0002;
    m.late = {{1, 0.002}};
    const std::vector<Rank> played = play(m, random);
    const auto found = found_in(played);
    ASSERT_EQ(found.size(), 1u) << ranks;
    EXPECT_EQ(found[0].rank->run->rank, 1);
    EXPECT_NEAR(found[0].lead_s, 0.002, 0.0002) << ranks;
  }
}

TEST(StragglerTest, RanksWithOtherCollectivesAreNotCompared) {
  std::mt19937_64 random(1);
  Meeting m;
  // A second group with other kernels of another length: less time in each is its nature.
  m.count = [](std::size_t r) { return r < 8 ? std::uint64_t{400} : std::uint64_t{600}; };
  m.structure = [](std::size_t r) { return r < 8 ? 0.004 : 0.0; };
  EXPECT_TRUE(found_in(play(m, random)).empty());
  m.late = {{3, 0.002}};
  const std::vector<Rank> played = play(m, random);
  const auto found = found_in(played);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank->run->rank, 3);
}

TEST(StragglerTest, StagesOfAPipelineAreComparedWithinThemselves) {
  std::mt19937_64 random(1);
  Meeting m;
  m.stages = 4;
  // Ranks 0-3 are stage 0 and so on; later stages wait less in the fill of the pipeline.
  m.structure = [](std::size_t r) { return 0.003 * static_cast<double>(3 - r / 4); };
  EXPECT_TRUE(found_in(play(m, random)).empty());
  m.late = {{6, 0.002}};
  const std::vector<Rank> played = play(m, random);
  const auto found = found_in(played);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank->run->rank, 6);
}

TEST(StragglerTest, HalfOfAGroupIsNoStraggler) {
  std::mt19937_64 random(1);
  Meeting m;
  for (std::size_t r = 0; r < 8; ++r) m.late.emplace_back(r, 0.002);
  EXPECT_TRUE(found_in(play(m, random)).empty());
}

TEST(StragglerTest, TwoRanksNeedWindowsToTellNoiseFromAHabit) {
  std::mt19937_64 random(1);
  Meeting m;
  m.ranks = 2;
  m.late = {{1, 0.002}};
  m.windows = 2;
  EXPECT_TRUE(found_in(play(m, random)).empty());
  m.windows = 3;
  EXPECT_EQ(found_in(play(m, random)).size(), 1u);
}

TEST(StragglerTest, WaitsThatComputeHidesCostNothing) {
  std::mt19937_64 random(1);
  Meeting m;
  m.late = {{5, 0.002}};
  auto ranks = play(m, random);
  for (Rank& r : ranks)
    for (auto& window : r.recent)
      for (CommSample& s : window) s.exposed_ns = 10'000'000;  // 10 ms of 10 s show: 0.1 %
  EXPECT_TRUE(found_in(ranks).empty());
}

TEST(StragglerTest, WindowsMeetAcrossClocksThatDiffer) {
  std::mt19937_64 random(1);
  Meeting m;
  m.ranks = 4;
  m.late = {{2, 0.002}};
  m.ahead_s = {0, 3600, 0, 0};
  const auto ranks = play(m, random);
  const auto found = found_in(ranks, 0.4, {{"node1", 3600 * kNsPerSecond}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank->run->rank, 2);
}

TEST(StragglerTest, WithoutMfuTheWaitIsSaidAlone) {
  std::mt19937_64 random(1);
  Meeting m;
  m.late = {{5, 0.002}};
  const auto ranks = play(m, random);
  const auto found = found_in(ranks, std::nullopt);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].cost_mfu.has_value());
}

}  // namespace
}  // namespace mfu
