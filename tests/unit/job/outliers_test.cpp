// Which values are not like the rest.
#include "tools/job/outliers.h"

#include <gtest/gtest.h>

#include <random>

namespace mfu {
namespace {

using Values = std::vector<std::optional<double>>;

TEST(OutliersTest, NamesTheFurthestFirstAndLeavesOutTheUnknown) {
  Values values;
  for (int i = 0; i < 62; ++i) values.emplace_back(0.40 + 0.0005 * (i % 3));
  values[7] = 0.25;
  values[30] = std::nullopt;
  values[55] = 0.50;
  EXPECT_EQ(outliers(values), (std::vector<std::size_t>{7, 55}));
  EXPECT_DOUBLE_EQ(*median_of_known(values), 0.4005);
}

TEST(OutliersTest, NoiseHasNone) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0.4, 0.004);
  std::size_t found = 0;
  for (int i = 0; i < 200; ++i) {
    Values values;
    for (int k = 0; k < 64; ++k) values.emplace_back(noise(random));
    found += outliers(values).size();
  }
  // Five deviations of a normal distribution: 6e-7 of 12,800 values; the deviation is itself an estimate of 64.
  EXPECT_LE(found, 3u);
}

TEST(OutliersTest, TwoPercentAreNoDifferenceAndTwoRanksNoCrowd) {
  EXPECT_TRUE(outliers(Values{0.40, 0.40, 0.40, 0.407}).empty());
  EXPECT_EQ(outliers(Values{0.40, 0.40, 0.40, 0.409}), std::vector<std::size_t>{3});
  EXPECT_TRUE(outliers(Values{0.40, 0.10}).empty());
  EXPECT_TRUE(outliers(Values{0.40, std::nullopt, 0.10}).empty());
  EXPECT_TRUE(outliers(Values{}).empty());
  EXPECT_FALSE(median_of_known(Values{std::nullopt}).has_value());
}

}  // namespace
}  // namespace mfu
