// Quantiles against a sorted list.
#include "core/rows/duration_histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace mfu {
namespace {

TEST(DurationHistogram, QuantilesAreAtMostOneBucketAboveTheTruth) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    DurationHistogram whole, parts[2];
    std::vector<DurationNs> all;
    const auto count = 1 + random() % 500;
    std::lognormal_distribution<double> spread(15, 4);
    for (std::size_t i = 0; i < count; ++i) {
      const auto ns = static_cast<DurationNs>(std::min(spread(random), 1e15));
      all.push_back(ns);
      whole.add(ns);
      parts[i % 2].add(ns);
    }
    std::sort(all.begin(), all.end());
    parts[0].merge(parts[1]);
    for (const DurationHistogram* h : {&whole, &parts[0]}) {
      ASSERT_EQ(h->count(), count);
      for (const double share : {0.001, 0.1, 0.5, 0.9, 0.99, 1.0}) {
        const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(count)));
        const DurationNs truth = all[std::max<std::size_t>(1, rank) - 1];
        EXPECT_GE(h->quantile(share), truth);
        EXPECT_LE(static_cast<double>(h->quantile(share)), static_cast<double>(truth) * (1 + 1.0 / 128) + 1);
      }
      const LatencySummary s = h->summary();
      EXPECT_EQ(s.max_ns, all.back());
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < s.histogram.size(); ++i) {
        sum += s.histogram[i].second;
        const auto at_most = std::upper_bound(all.begin(), all.end(), s.histogram[i].first) - all.begin();
        EXPECT_EQ(sum, static_cast<std::uint64_t>(at_most)) << "edges divide the durations as they say";
      }
      EXPECT_EQ(sum, count);
    }
  }
}

TEST(DurationHistogram, EmptyAndNegative) {
  DurationHistogram h;
  EXPECT_EQ(h.summary().count, 0U);
  EXPECT_EQ(h.quantile(0.5), 0);
  h.add(-5);
  EXPECT_EQ(h.quantile(0.5), 0);
}

}  // namespace
}  // namespace mfu
