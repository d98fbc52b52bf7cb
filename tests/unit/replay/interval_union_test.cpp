// Unions of intervals, against adding up single nanoseconds.
#include "tools/replay/interval_union.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace mfu {
namespace {

std::vector<Interval> random_intervals(std::mt19937& random, int count) {
  std::uniform_int_distribution<TimeNs> begin(-50, 150);
  std::uniform_int_distribution<DurationNs> length(0, 30);
  std::vector<Interval> out;
  for (int i = 0; i < count; ++i) {
    const TimeNs from = begin(random);
    out.push_back({from, from + length(random)});
  }
  return out;
}

TEST(IntervalUnion, CountsCoveredTimeOnce) {
  const IntervalUnion u({{10, 20}, {0, 5}, {15, 25}, {25, 30}, {40, 40}});
  EXPECT_EQ(u.length_ns(), 25);       // 5 + 20: [0,5) and [10,30)
  EXPECT_EQ(u.pieces().size(), 2u);   // touching pieces join
  EXPECT_EQ(u.length_before(12), 7);  // 5 + 2
  EXPECT_EQ(u.length_before(-1), 0);
  EXPECT_EQ(u.length_before(100), 25);
  EXPECT_TRUE(u.contains(10));
  EXPECT_FALSE(u.contains(30));  // half-open
  EXPECT_FALSE(IntervalUnion().contains(0));
  EXPECT_EQ(IntervalUnion().length_before(7), 0);
}

TEST(RunUnions, EveryRunOfARandomSequence) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    const int size = 1 + round % 25;
    const std::vector<Interval> intervals = random_intervals(random, size);
    std::vector<std::size_t> line(intervals.size());
    for (auto& l : line) l = std::uniform_int_distribution<std::size_t>(0, 1)(random);
    RunUnions unions(intervals.size(), 2);
    for (std::size_t last = 0; last < intervals.size(); ++last) {
      unions.paint(line[last], intervals[last], last);
      const std::size_t oldest = last / 2;  // what lies before is forgotten, and must not matter
      unions.forget_before(oldest);
      for (std::size_t first = oldest; first <= last; ++first) {
        std::set<std::pair<std::size_t, TimeNs>> covered;
        for (std::size_t i = first; i <= last; ++i) {
          for (TimeNs t = intervals[i].begin_ns; t < intervals[i].end_ns; ++t) covered.insert({line[i], t});
        }
        ASSERT_EQ(unions.painted_since(first), static_cast<DurationNs>(covered.size())) << first << ".." << last;
      }
    }
  }
}

}  // namespace
}  // namespace mfu
