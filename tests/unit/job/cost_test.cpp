// Prices of a job from GPU-seconds.
#include "tools/job/cost.h"

#include <gtest/gtest.h>

#include "tools/job/region_figures.h"

namespace mfu {
namespace {

JobRegion made_region(const char* name, double elapsed_s, double idle_s, std::uint64_t instances, std::int64_t tokens) {
  JobRegion r;
  r.name = name;
  r.devices = 8;
  RegionSummary& row = r.totals.sum;
  row.elapsed_ns = static_cast<DurationNs>(elapsed_s * 1e9);
  row.time_ns[static_cast<std::size_t>(TimeClass::kIdle)] = static_cast<DurationNs>(idle_s * 1e9);
  row.instances = instances;
  row.tokens = tokens;
  return r;
}

TEST(Cost, OfRegionsAndTokens) {
  Job job;
  // 8 GPUs for an hour: half an hour of it decode, a quarter idle.
  job.regions.push_back(made_region("decode", 8 * 1800.0, 0, 1000, 40'000'000));
  job.regions.push_back(made_region("step", 0, 0, 0, 0));
  job.regions.push_back(made_region("total", 8 * 3600.0, 8 * 900.0, 1000, 80'000'000));
  EXPECT_FALSE(find_figure("cost_each")->of(job.regions[0]).has_value()) << "no price is known";
  price_job(job, 2.5);
  ASSERT_EQ(job.costs.size(), 2u);
  EXPECT_EQ(job.costs[0], "cost of decode: 10, 0.01 each, 0.25 per million tokens");
  EXPECT_EQ(
      job.costs[1],
      "cost at 2.5 per GPU-hour: 20 in all, 0.25 per million tokens, 0.5 per million output tokens, idle 5 an hour");
  EXPECT_DOUBLE_EQ(find_figure("cost_each")->of(job.regions[0]).value(), 0.01);
  EXPECT_DOUBLE_EQ(find_figure("cost_per_million_output_tokens")->of(job.regions[0]).value(), 0.25);
  EXPECT_FALSE(find_figure("cost_each")->of(job.regions[2]).has_value()) << "the total has no instances of its own";
}

TEST(Cost, OfAJobThatRuns) {
  JobTotals totals;
  totals.devices = 8;
  totals.tokens_per_s = 100'000;
  totals.time_share[static_cast<std::size_t>(TimeClass::kIdle)] = 0.25;
  const LiveCost cost = live_cost(totals, 2.5);
  EXPECT_DOUBLE_EQ(cost.per_hour, 20);
  EXPECT_DOUBLE_EQ(cost.idle_per_hour, 5);
  EXPECT_NEAR(cost.per_million_tokens.value(), 20.0 / 360, 1e-12);  // 360 million tokens an hour
  totals.tokens_per_s = 0;
  EXPECT_FALSE(live_cost(totals, 2.5).per_million_tokens.has_value());
}

}  // namespace
}  // namespace mfu
