// Files with regions without end.
#include "tools/run_dir/region_limit.h"

#include <gtest/gtest.h>

namespace mfu {
namespace {

RegionSummary row(const std::string& name, std::optional<std::uint32_t> device, double flop) {
  RegionSummary r;
  r.region = name;
  r.device = device;
  r.instances = 1;
  r.flop = flop;
  r.mfu = 0.5;
  r.window = {0, 10};
  return r;
}

TEST(RegionLimitTest, WhatIsBeyondIsOtherAndNothingIsLost) {
  RegionLimit limit;
  for (int window = 0; window < 2; ++window) {
    std::vector<RegionSummary> rows;
    limit.next_window();
    for (int i = 0; i < 2000; ++i) limit.put(rows, row("r" + std::to_string(i), 0, 1));
    limit.put(rows, row("total", std::nullopt, 2000));
    ASSERT_EQ(rows.size(), RegionLimit::kNames + 2);
    EXPECT_TRUE(limit.reached());
    double flop = 0;
    std::uint64_t instances = 0;
    for (const RegionSummary& r : rows) {
      if (r.region == "total") continue;
      flop += *r.flop;
      instances += r.instances;
      if (r.region != "other") continue;
      EXPECT_FALSE(r.device);
      EXPECT_FALSE(r.mfu) << "a quotient does not add up";
    }
    EXPECT_EQ(flop, 2000);
    EXPECT_EQ(instances, 2000u);
    EXPECT_EQ(rows.back().region, "total");
  }
}

TEST(RegionLimitTest, RowsOfAnOrdinaryProcessAreLeftAlone) {
  RegionLimit limit;
  std::vector<RegionSummary> rows;
  for (int i = 0; i < 300; ++i)
    for (std::uint32_t d = 0; d < 16; ++d) limit.put(rows, row("r" + std::to_string(i), d, 1));
  EXPECT_EQ(rows.size(), 300u * 16u);
  EXPECT_FALSE(limit.reached());
}

TEST(RegionLimitTest, TheSecondRowOfARegionInAWindowTakesThePlaceOfTheFirst) {
  RegionLimit limit;
  std::vector<RegionSummary> rows;
  limit.put(rows, row("step", 0, 1));
  limit.put(rows, row("step", 1, 2));
  limit.put(rows, row("step", 0, 3));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(*rows[0].flop, 3);
  EXPECT_EQ(*rows[1].flop, 2);
}

}  // namespace
}  // namespace mfu
