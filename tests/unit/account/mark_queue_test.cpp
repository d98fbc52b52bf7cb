#include "core/account/mark_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace mfu {
namespace {

/// Marks that come in any order leave in order of time and, at one moment, of `order`: against a search for the least.
TEST(MarkQueue, TakesTheEarliest) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    MarkQueue queue;
    std::vector<Mark> all;
    std::uint64_t order = 0;
    TimeNs now = 0;
    const std::uint32_t jitter = seed % 4 == 0 ? 1 : 1u << (seed % 12);
    for (int step = 0; step < 2000; ++step) {
      if (all.empty() || random() % 5 < 3) {
        now += random() % 3;
        const bool is_end = random() % 2 == 0;
        const Mark mark{now + static_cast<TimeNs>(random() % jitter), (is_end ? 1ull << 63 : 0) | order++, nullptr,
                        is_end};
        queue.push(mark);
        all.push_back(mark);
        continue;
      }
      const auto first = std::min_element(all.begin(), all.end(), [](const Mark& a, const Mark& b) { return b > a; });
      ASSERT_FALSE(queue.empty());
      ASSERT_EQ(queue.top().at, first->at) << "seed " << seed;
      ASSERT_EQ(queue.top().order, first->order) << "seed " << seed;
      ASSERT_EQ(queue.top().is_end, first->is_end);
      queue.pop();
      all.erase(first);
    }
    for (; !all.empty(); queue.pop()) {
      const auto first = std::min_element(all.begin(), all.end(), [](const Mark& a, const Mark& b) { return b > a; });
      ASSERT_EQ(queue.top().order, first->order) << "seed " << seed;
      all.erase(first);
    }
    EXPECT_TRUE(queue.empty());
  }
}

}  // namespace
}  // namespace mfu
