// Closed forms of query-key pairs and cache reads against the mask, row by row.
#include "core/model/attention_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace mfu {
namespace {

/// First key that row `q` sees.
std::int64_t first_key(std::int64_t q, const Mask& mask) {
  std::int64_t first = 0;
  if (mask.window > 0) first = std::max<std::int64_t>(0, q - mask.window + 1);
  if (mask.chunk > 0) first = std::max(first, q / mask.chunk * mask.chunk);
  return first;
}

std::uint64_t slow_pairs(const PassSeries& s, const Mask& mask, AttentionMode mode) {
  std::uint64_t sum = 0;
  for (std::int64_t pass = 0; pass < s.passes; ++pass) {
    const std::int64_t past = s.past + (s.grows ? pass * s.fed : 0);
    const std::int64_t end = past + s.fed;
    for (std::int64_t q = past; q < end; ++q) {
      if (!mask.causal || mode == AttentionMode::kFull) {
        sum += static_cast<std::uint64_t>(end);
      } else if (mode == AttentionMode::kFullWindowed) {
        std::int64_t keys = end;
        if (mask.window > 0) keys = std::min(keys, mask.window);
        if (mask.chunk > 0) keys = std::min(keys, mask.chunk);
        sum += static_cast<std::uint64_t>(keys);
      } else {
        sum += static_cast<std::uint64_t>(q - first_key(q, mask) + 1);
      }
    }
  }
  return sum;
}

std::uint64_t slow_seen(const PassSeries& s, const Mask& mask) {
  std::uint64_t sum = 0;
  for (std::int64_t pass = 0; pass < s.passes; ++pass) {
    const std::int64_t past = s.past + (s.grows ? pass * s.fed : 0);
    if (s.fed > 0) sum += static_cast<std::uint64_t>(past + s.fed - first_key(past, mask));
  }
  return sum;
}

TEST(AttentionPairs, EqualTheMaskRowByRow) {
  for (std::int64_t past : {0, 1, 5, 7, 8, 23}) {
    for (std::int64_t fed : {0, 1, 2, 5, 8, 19}) {
      for (std::int64_t passes : {1, 2, 9}) {
        for (bool grows : {true, false}) {
          for (std::int64_t limit : {0, 1, 4, 7, 8, 100}) {
            for (bool chunked : {false, true}) {
              Mask mask;
              (chunked ? mask.chunk : mask.window) = limit;
              const PassSeries s{past, fed, passes, grows};
              for (AttentionMode mode : {AttentionMode::kCausal, AttentionMode::kFull, AttentionMode::kFullWindowed}) {
                EXPECT_EQ(attention_pairs(s, mask, mode).u64(), slow_pairs(s, mask, mode))
                    << past << " " << fed << " " << passes << " " << grows << " " << limit << " " << chunked;
              }
              EXPECT_EQ(entries_seen(s, mask).u64(), slow_seen(s, mask))
                  << past << " " << fed << " " << passes << " " << grows << " " << limit << " " << chunked;
            }
          }
        }
      }
    }
  }
}

TEST(AttentionPairs, BidirectionalIsTheSquare) {
  Mask mask;
  mask.causal = false;
  EXPECT_EQ(attention_pairs({0, 512, 1, true}, mask, AttentionMode::kCausal).u64(), 512u * 512u);
}

/// Encoders with windows: keys to each side.
TEST(AttentionPairs, BidirectionalWindowsReachToBothSides) {
  for (std::int64_t n : {1, 2, 5, 64, 65, 66, 200}) {
    for (std::int64_t reach : {1, 4, 64, 199, 1000}) {
      Mask mask;
      mask.causal = false;
      mask.window = reach;
      std::uint64_t slow = 0;
      for (std::int64_t q = 0; q < n; ++q) {
        for (std::int64_t k = 0; k < n; ++k) slow += std::abs(q - k) <= reach ? 1 : 0;
      }
      EXPECT_EQ(attention_pairs({0, n, 1, true}, mask, AttentionMode::kCausal).u64(), slow) << n << " " << reach;
      EXPECT_EQ(attention_pairs({0, n, 3, false}, mask, AttentionMode::kCausal).u64(), 3 * slow) << n << " " << reach;
      EXPECT_EQ(attention_pairs({0, n, 1, true}, mask, AttentionMode::kFull).u64(), static_cast<std::uint64_t>(n * n));
    }
  }
}

/// BigBird's blocks, one by one: 64 tokens each, 3 random ones.
TEST(AttentionPairs, BlockSparseSeesEightBlocks) {
  Mask mask;
  mask.causal = false;
  mask.block = 64;
  mask.random = 3;
  EXPECT_EQ(attention_pairs({0, 704, 1, true}, mask, AttentionMode::kCausal).u64(), 704u * 704u);
  const std::uint64_t blocks = 64;
  std::uint64_t slow = 0;
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const bool end = b == 0 || b == blocks - 1, next_to_end = b == 1 || b == blocks - 2;
    slow += (end ? blocks : next_to_end ? 7 : 8) * 64 * 64;
  }
  EXPECT_EQ(attention_pairs({0, 4096, 1, true}, mask, AttentionMode::kCausal).u64(), slow);
  EXPECT_EQ(attention_pairs({0, 4096, 1, true}, mask, AttentionMode::kFull).u64(), 4096u * 4096u);
}

TEST(AttentionPairs, ChunksAndSingleTokensAddUp) {
  for (std::int64_t window : {0, 100, 4096}) {
    Mask mask;
    mask.window = window;
    const Count whole = attention_pairs({0, 1000, 1, true}, mask, AttentionMode::kCausal);
    const Count tokens = attention_pairs({0, 1, 1000, true}, mask, AttentionMode::kCausal);
    Count chunks;
    for (std::int64_t past = 0; past < 1000; past += 250)
      chunks += attention_pairs({past, 250, 1, true}, mask, AttentionMode::kCausal);
    EXPECT_EQ(whole.u64(), tokens.u64());
    EXPECT_EQ(whole.u64(), chunks.u64());
  }
}

TEST(AttentionPairs, HugeSeriesTakeNoTimeAndNeverWrap) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  for (std::int64_t limit : {std::int64_t{0}, std::int64_t{128}, kHuge}) {
    for (bool chunked : {false, true}) {
      Mask mask;
      (chunked ? mask.chunk : mask.window) = limit;
      const Count pairs = attention_pairs({kHuge, kHuge, kHuge, true}, mask, AttentionMode::kCausal);
      EXPECT_FALSE(pairs.fits());
      (void)entries_seen({kHuge, kHuge, kHuge, true}, mask);
    }
  }
  EXPECT_EQ(entries_seen({1024, 1, 1'000'000'000, true}, {true, 128, 0}).u64(), 128'000'000'000u);
}

TEST(Count, RemembersAnOverflow) {
  const Count big = Count(INT64_MAX) * INT64_MAX * 4;
  EXPECT_FALSE(big.overflowed());
  EXPECT_FALSE(big.fits());
  const Count beyond = big * INT64_MAX;
  EXPECT_TRUE(beyond.overflowed());
  EXPECT_TRUE((beyond + 1).overflowed());
  EXPECT_TRUE((beyond * 0).overflowed());
  EXPECT_TRUE(Count(-1).overflowed());
  EXPECT_TRUE((Count(1) - Count(2)).overflowed());
}

}  // namespace
}  // namespace mfu
