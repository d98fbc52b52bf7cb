// Prices of a job from GPU-seconds.
#include "tools/job/cost.h"

#include <gtest/gtest.h>

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
  const std::vector<std::string> lines = cost_lines(job, 2.5);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "cost of decode: 10, 0.01 each, 0.25 per million tokens");
  EXPECT_EQ(lines[1], "cost at 2.5 per GPU-hour: 20 in all, 0.25 per million tokens, idle 5 an hour");
}

}  // namespace
}  // namespace mfu
