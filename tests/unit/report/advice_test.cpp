// What a report says without being asked: ranks that stand out, and what is worth doing.
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/report/fake_job.h"
#include "tools/report/opportunities.h"
#include "tools/report/rank_notes.h"

namespace mfu {
namespace {

using testing_job::history;
using testing_job::job_of;

TEST(RankNotes, NameTheSlowestThoseThatDifferAndThoseWithoutMfu) {
  std::vector<RunHistory> ranks;
  for (int r = 0; r < 12; ++r) ranks.push_back(history(r, {60, 20, 0, 0, 20}, r == 7 ? 0.25 : r == 3 ? 0.55 : 0.50));
  for (WindowSummary* window :
       {&ranks[5].windows[0], &ranks[5].windows[1], &ranks[5].windows[2], &ranks[5].windows[3], &*ranks[5].end})
    for (RegionSummary& r : window->regions) r.flop = r.mfu = r.hfu = std::nullopt;
  const std::vector<std::string> notes = rank_notes(job_of(ranks));
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_EQ(notes[0], "slowest: rank 7 gpu0 (node) with 25.0 % in step; the median is 50.0 %");
  EXPECT_EQ(notes[1], "differ from the others: rank 7 gpu0 (node) 25.0 %, rank 3 gpu0 (node) 55.0 %");
  EXPECT_EQ(notes[2], "1 of 12 ranks have no MFU");
  EXPECT_TRUE(rank_notes(job_of({history(0, {60, 20, 0, 0, 20}, 0.5)})).empty()) << "one rank has no others";
  EXPECT_TRUE(rank_notes(job_of({ranks[0], ranks[1], ranks[2]})).empty()) << "all alike";
  EXPECT_TRUE(rank_notes(Job{}).empty());
}

TEST(Opportunities, SayWhatARegionWouldGainWithoutAClass) {
  // 60 % matmul of which 50 points are MFU, 20 % other, 20 % idle: 10 points of matmul loss.
  const Job job = job_of({history(0, {60, 20, 0, 0, 20}, 0.5)});
  const std::vector<Opportunity> found = opportunities(job);
  ASSERT_EQ(found.size(), 3u);
  std::map<TimeClass, const Opportunity*> by_class;
  for (const Opportunity& o : found) by_class[o.time_class] = &o;
  EXPECT_NEAR(*by_class.at(TimeClass::kIdle)->gain, 1 / 0.8, 1e-9);
  EXPECT_NEAR(*by_class.at(TimeClass::kMatmul)->gain, 1 / 0.9, 1e-9);
  EXPECT_EQ(found.back().time_class, TimeClass::kMatmul) << "least time last";
  // 900 launches of 40 instances in 4 s, 0.8 s of it idle.
  EXPECT_EQ(by_class.at(TimeClass::kIdle)->what, "idle 20.0 %: 22 launches per instance, 889 µs of idle time each");
  EXPECT_EQ(by_class.at(TimeClass::kOther)->what, "other kernels 20.0 %; softmax alone is 20.0 %");
  EXPECT_EQ(opportunity_text(*by_class.at(TimeClass::kMatmul)),
            "step: matmuls below the peak 10.0 %; the longest is gemm, up to 1.11x");
  EXPECT_TRUE(opportunities(job_of({history(0, {99, 0, 1, 0, 0}, 0.985)})).empty()) << "nothing of 2 %";
  EXPECT_TRUE(opportunities(Job{}).empty());
}

TEST(Opportunities, KernelNamesLoseTheirArguments) {
  EXPECT_EQ(short_kernel_name("void at::native::vectorized_elementwise_kernel<4, at::F<float>, X>(int, float*)", 60),
            "at::native::vectorized_elementwise_kernel");
  EXPECT_EQ(short_kernel_name("gemm"), "gemm");
  EXPECT_EQ(short_kernel_name("<unnamed>"), "<unnamed>");
  EXPECT_EQ(short_kernel_name("abcdefghij", 8), "abcde...");
}

}  // namespace
}  // namespace mfu
