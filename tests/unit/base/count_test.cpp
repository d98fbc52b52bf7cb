// Counts that never wrap: whatever overflows stays overflowed.
#include "core/base/count.h"

#include <gtest/gtest.h>

#include <random>

namespace mfu {
namespace {

constexpr std::int64_t kMax = INT64_MAX;

TEST(Count, SmallNumbersAreExact) {
  EXPECT_EQ((Count(6) * Count(7) + Count(8) - Count(20)).u64(), 30u);
  EXPECT_EQ(Count(7).divided_by(2).u64(), 3u);
  EXPECT_TRUE(Count().is_zero());
  EXPECT_TRUE(Count(3) < Count(4));
  EXPECT_TRUE(Count(3) == Count(3));
}

TEST(Count, NegativeNumbersAreNoCounts) {
  EXPECT_TRUE(Count(-1).overflowed());
  EXPECT_FALSE(Count(-1).fits());
  EXPECT_FALSE(Count(-1).is_zero());
  EXPECT_TRUE((Count(3) - Count(4)).overflowed());
}

TEST(Count, Between64And128BitsIsExactButDoesNotFit) {
  const Count big = Count(kMax) * Count(kMax);  // 2^126 - 2^64 + 1
  EXPECT_FALSE(big.overflowed());
  EXPECT_FALSE(big.fits());
  EXPECT_EQ(big.divided_by(kMax).u64(), static_cast<std::uint64_t>(kMax));
  EXPECT_DOUBLE_EQ(big.to_double(), static_cast<double>(kMax) * static_cast<double>(kMax));
  EXPECT_TRUE((Count(kMax) + Count(kMax) + Count(1)).fits());   // 2^64 - 1
  EXPECT_FALSE((Count(kMax) + Count(kMax) + Count(2)).fits());  // 2^64
}

TEST(Count, AnOverflowStaysThroughSumsProductsAndQuotients) {
  const Count over = Count(kMax) * Count(kMax) * Count(5);
  ASSERT_TRUE(over.overflowed());
  for (const Count c : {over + Count(1), Count(1) + over, over * Count(0), Count(0) * over, over - Count(1),
                        over.divided_by(kMax), over * over}) {
    EXPECT_TRUE(c.overflowed());
    EXPECT_FALSE(c.fits());
    EXPECT_FALSE(c.is_zero());
  }
  Count sum(1);
  sum += over;
  EXPECT_TRUE(sum.overflowed());
  EXPECT_FALSE(over == Count(0));
}

TEST(Count, AgreesWithLongDivisionOnRandomNumbers) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    const auto a = static_cast<std::int64_t>(random() >> 1);
    const auto b = static_cast<std::int64_t>(random() >> (1 + i % 62));
    const Count product = Count(a) * Count(b);
    ASSERT_FALSE(product.overflowed());
    // Schoolbook multiplication in halves of 32 bits, apart from the compiler's 128-bit integers.
    const std::uint64_t al = static_cast<std::uint32_t>(a), ah = static_cast<std::uint64_t>(a) >> 32;
    const std::uint64_t bl = static_cast<std::uint32_t>(b), bh = static_cast<std::uint64_t>(b) >> 32;
    const std::uint64_t mid =
        (al * bl >> 32) + static_cast<std::uint32_t>(al * bh) + static_cast<std::uint32_t>(ah * bl);
    const std::uint64_t high = ah * bh + (al * bh >> 32) + (ah * bl >> 32) + (mid >> 32);
    EXPECT_EQ(product.fits(), high == 0);
    if (!product.fits()) continue;
    EXPECT_EQ(product.u64(), static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
}

}  // namespace
}  // namespace mfu
