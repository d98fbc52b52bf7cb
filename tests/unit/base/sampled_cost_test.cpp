#include "core/base/sampled_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace mfu {
namespace {

TEST(SampledCost, IsTheMeanWhereNothingWasHeldUp) {
  SampledCost cost;
  EXPECT_EQ(cost.mean(), 0);
  std::mt19937_64 random(7);
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto took = static_cast<Ticks>(20 + random() % 60);
    sum += static_cast<double>(took);
    cost.add(took);
  }
  EXPECT_DOUBLE_EQ(cost.mean(), sum / 1000);
}

TEST(SampledCost, APreemptedThreadIsNoCost) {
  for (const int samples : {3, 10, 1000}) {
    SampledCost cost;
    for (int i = 0; i < samples; ++i) cost.add(40);
    cost.add(25'000'000);  // 10 ms
    EXPECT_DOUBLE_EQ(cost.mean(), 40) << samples;
  }
}

TEST(SampledCost, WhatIsSlowNowAndThenCounts) {
  SampledCost cost;
  for (int i = 0; i < 90; ++i) cost.add(40);
  for (int i = 0; i < 10; ++i) cost.add(400);  // a cache miss
  EXPECT_DOUBLE_EQ(cost.mean(), 76);
}

TEST(SampledCost, ErrorHoldsTheTruthInNineteenOfTwenty) {
  std::mt19937_64 random(5);
  int held = 0;
  for (int run = 0; run < 1000; ++run) {
    SampledCost cost;
    for (int i = 0; i < 400; ++i) cost.add(random() % 10 == 0 ? 400 : 40);
    held += std::abs(cost.estimate().mean - 76) <= cost.estimate().error ? 1 : 0;
  }
  EXPECT_NEAR(held, 950, 25);
}

TEST(SampledCost, TakesAnyValue) {
  SampledCost cost;
  for (const Ticks took : {Ticks{0}, Ticks{-5}, std::numeric_limits<Ticks>::min()}) cost.add(took);
  EXPECT_EQ(cost.mean(), 0);
  for (int i = 0; i < 10; ++i) cost.add(std::numeric_limits<Ticks>::max());
  EXPECT_GT(cost.mean(), 0);
}

}  // namespace
}  // namespace mfu
