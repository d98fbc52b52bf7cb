#include "core/account/latency_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace mfu {
namespace {

SlowInstance instance(DurationNs elapsed_ns, TimeNs t0 = 0) {
  SlowInstance s;
  s.t0_ns = t0;
  s.elapsed_ns = elapsed_ns;
  s.time_ns[static_cast<std::size_t>(TimeClass::kMatmul)] = elapsed_ns;
  return s;
}

RegionSummary described(const LatencyStats& stats, const Peak& peak = {}) {
  RegionSummary row;
  stats.describe(row, peak);
  return row;
}

TEST(BatchRange, EveryBatchIsInTheRangeThatItsIndexNames) {
  EXPECT_FALSE(BatchRange::index_of(0));
  EXPECT_FALSE(BatchRange::index_of(-1));
  EXPECT_FALSE(BatchRange::index_of((std::int64_t{1} << 23) + 1));
  std::int64_t expected_min = 1;
  for (std::uint32_t i = 0; i < BatchRange::kCount; ++i) {
    const BatchRange range = BatchRange::of_index(i);
    EXPECT_EQ(range.min, expected_min);  // no gap, no overlap
    EXPECT_EQ(BatchRange::index_of(range.min), i);
    EXPECT_EQ(BatchRange::index_of(range.max), i);
    expected_min = range.max + 1;
  }
}

TEST(SlowestInstances, AreTheThreeLongestInAnyOrderOfArrival) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<SlowInstance> all;
    for (TimeNs t = 0; t < 40; ++t) all.push_back(instance(static_cast<DurationNs>(random() % 20), t));
    std::vector<SlowInstance> arrival = all;
    std::shuffle(arrival.begin(), arrival.end(), random);
    SlowestInstances one, left, right;
    for (std::size_t i = 0; i < arrival.size(); ++i) {
      one.add(arrival[i]);
      (i % 2 == 0 ? left : right).add(arrival[i]);
    }
    left.merge(right);
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.elapsed_ns > b.elapsed_ns; });
    for (const SlowestInstances* found : {&one, &left}) {
      ASSERT_EQ(found->all().size(), SlowestInstances::kMost);
      for (std::size_t i = 0; i < SlowestInstances::kMost; ++i) {
        EXPECT_EQ(found->all()[i].elapsed_ns, all[i].elapsed_ns);
        EXPECT_EQ(found->all()[i].t0_ns, all[i].t0_ns);
      }
    }
  }
}

TEST(WaitingPrefills, AreDecodedOnceByTheFirstInstanceThatBeginsAfterThem) {
  WaitingPrefills prefills;
  prefills.add(100);
  prefills.add(300);
  std::vector<TimeNs> decoded;
  const auto note = [&](TimeNs end) { decoded.push_back(end); };
  prefills.decoded(50, note);
  EXPECT_TRUE(decoded.empty());
  prefills.decoded(200, note);
  EXPECT_EQ(decoded, (std::vector<TimeNs>{100}));
  prefills.decoded(300, note);
  EXPECT_EQ(decoded, (std::vector<TimeNs>{100, 300}));
  EXPECT_TRUE(prefills.empty());
  for (std::size_t i = 0; i < 3 * WaitingPrefills::kMost; ++i) prefills.add(static_cast<TimeNs>(i));
  decoded.clear();
  prefills.decoded(1'000'000, note);
  EXPECT_EQ(decoded.size(), WaitingPrefills::kMost);
  EXPECT_EQ(decoded.front(), static_cast<TimeNs>(2 * WaitingPrefills::kMost));  // the oldest were forgotten
}

TEST(LatencyStats, BatchesAddUpAndAMergeIsTheSameAsOne) {
  std::mt19937 random(11);
  LatencyStats one, left, right;
  std::map<std::pair<BatchUnit, std::uint32_t>, std::pair<std::uint64_t, DurationNs>> expected;
  std::map<std::pair<BatchUnit, std::uint32_t>, double> flop;
  for (int i = 0; i < 500; ++i) {
    EndedInstance ended;
    ended.time = instance(static_cast<DurationNs>(1000 + random() % 100'000), i);
    const bool decodes = random() % 2 == 0;
    ended.unit = decodes ? BatchUnit::kSequences : BatchUnit::kTokens;
    if (decodes) ended.decode.passes = 1 + static_cast<std::int64_t>(random() % 4);
    ended.batch = static_cast<std::int64_t>(random() % 300);
    ended.tokens = 7;
    ended.flop = static_cast<double>(random() % 1000);
    one.add(ended);
    (random() % 2 == 0 ? left : right).add(ended);
    if (const auto index = BatchRange::index_of(ended.batch)) {
      auto& [count, elapsed] = expected[{ended.unit, *index}];
      ++count;
      elapsed += ended.time.elapsed_ns;
      flop[{ended.unit, *index}] += *ended.flop;
    }
  }
  left.merge(right);
  Peak peak;
  peak.flop_per_s = 1e12;
  for (const LatencyStats* stats : {&one, &left}) {
    const RegionSummary row = described(*stats, peak);
    EXPECT_EQ(row.latency.count, 500u);
    ASSERT_EQ(row.by_batch.size(), expected.size());
    auto want = expected.begin();
    auto want_flop = flop.begin();
    for (const BatchLatency& b : row.by_batch) {
      EXPECT_EQ(b.unit, want->first.first);
      EXPECT_EQ(b.batch_max, BatchRange::of_index(want->first.second).max);
      EXPECT_EQ(b.instances, want->second.first);
      EXPECT_EQ(b.elapsed_ns, want->second.second);
      ASSERT_TRUE(b.flop.has_value());
      EXPECT_DOUBLE_EQ(*b.flop, want_flop->second);
      EXPECT_NEAR(*b.mfu, *b.flop / (1e12 * seconds(b.elapsed_ns)), 1e-12);
      ++want;
      ++want_flop;
    }
  }
}

TEST(LatencyStats, OneUnknownFlopLeavesTheBatchUnknown) {
  LatencyStats stats;
  EndedInstance ended;
  ended.time = instance(1000);
  ended.unit = BatchUnit::kTokens;
  ended.batch = 4;
  ended.flop = 10;
  stats.add(ended);
  ended.flop.reset();
  stats.add(ended);
  const RegionSummary row = described(stats);
  ASSERT_EQ(row.by_batch.size(), 1u);
  EXPECT_FALSE(row.by_batch[0].flop);
  EXPECT_FALSE(row.by_batch[0].mfu);
}

TEST(LatencyStats, TheSlowestSaysWhereItsTimeWent) {
  LatencyStats stats;
  for (TimeNs t = 0; t < 20; ++t) {
    EndedInstance ended;
    ended.time = instance(1000, t);
    stats.add(ended);
  }
  EndedInstance slow;
  slow.time = instance(1000, 99);
  slow.time.time_ns[static_cast<std::size_t>(TimeClass::kIdle)] = 5000;
  slow.time.elapsed_ns = 6000;
  stats.add(slow);
  const RegionSummary row = described(stats);
  ASSERT_EQ(row.slowest.size(), 1u);
  EXPECT_EQ(row.slowest[0].t0_ns, 99);
  EXPECT_EQ(row.slowest[0].lost_to, TimeClass::kIdle);
  EXPECT_EQ(row.slowest[0].excess_ns, 5000);
}

TEST(LatencyStats, AnInstanceOfSequencesThatDecodedNothingHasNoTimePerPass) {
  LatencyStats stats;
  EndedInstance ended;
  ended.time = instance(1000);
  ended.unit = BatchUnit::kSequences;
  ended.batch = 8;
  stats.add(ended);
  const RegionSummary row = described(stats);
  EXPECT_EQ(row.inter_token.count, 0u);
  EXPECT_EQ(row.latency.count, 1u);
}

}  // namespace
}  // namespace mfu
