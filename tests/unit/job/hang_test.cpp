#include "tools/job/hang.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace mfu {
namespace {

constexpr TimeNs kBegan = 1000 * kNsPerSecond, kNow = kBegan + 90 * kNsPerSecond;

RegionSummary total(double idle, std::string cause = "", std::string where = "") {
  RegionSummary row;
  row.region = "total";
  row.elapsed_ns = 10 * kNsPerSecond;
  row.time_ns[static_cast<std::size_t>(TimeClass::kIdle)] = static_cast<DurationNs>(idle * 10e9);
  if (!cause.empty()) row.idle_by = {{"launching", "", "", 1}, {cause, where, "main", 9 * kNsPerSecond}};
  return row;
}

HangProcess process(std::int64_t rank, std::optional<Stall> stall, const RegionSummary& row) {
  RunInfo run;
  run.rank = rank;
  run.host = "node" + std::to_string(rank / 2);
  HangProcess p(run, std::move(stall), &row);
  p.last_ns = kNow;
  return p;
}

Stall in_collective(std::uint64_t number) {
  return {kBegan, "ncclDevKernel_AllReduce", true, number, "cuCtxSynchronize"};
}

/// Seven ranks in the collective 41, and one that is `other`; in any order.
std::optional<Hang> hang_of(const HangProcess& other, unsigned seed = 1) {
  std::vector<HangProcess> processes;
  for (int rank = 0; rank < 8; ++rank)
    processes.push_back(rank == other.rank ? other : process(rank, in_collective(41), total(0)));
  std::shuffle(processes.begin(), processes.end(), std::mt19937(seed));
  return find_hang(processes, kNow);
}

TEST(Hang, NamesTheRankThatDidNotArrive) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    HangProcess stopped = process(3, std::nullopt, total(0.2)), over = stopped;
    stopped.quiet = true;
    stopped.last_ns = kNow - 40 * kNsPerSecond;
    over.ended = true;
    const struct {
      HangProcess p;
      const char* why;
      bool saves;
      std::size_t waiting;
    } cases[] = {
        {stopped, "has written nothing for 40 s", false, 7},
        {over, "has ended", false, 7},
        {process(3, std::nullopt, total(0.99, "DataLoader.__next__", "data.py:88")),
         "is in DataLoader.__next__, data.py:88", false, 7},
        {process(3, std::nullopt, total(0.99, "torch.save", "ckpt.py:40")), "is in torch.save, ckpt.py:40", true, 7},
        {process(3, std::nullopt, total(1)), "launches no work", false, 7},
        {process(3, Stall{kBegan, "gemm_k", false, 40, ""}, total(0)),
         "runs a kernel that does not end and is no collective: gemm_k or one launched after it", false, 8},
        {process(3, in_collective(40), total(0)), "has launched 40 kernels of communication, others 41", false, 8},
    };
    for (const auto& c : cases) {
      const std::optional<Hang> hang = hang_of(c.p, seed);
      ASSERT_TRUE(hang);
      EXPECT_EQ(hang->rank, 3) << c.why;
      EXPECT_EQ(hang->host, "node1");
      EXPECT_EQ(hang->why, c.why);
      EXPECT_EQ(hang->saves, c.saves);
      EXPECT_EQ(hang->waiting, c.waiting);
      EXPECT_DOUBLE_EQ(hang->since_s, 90);
      EXPECT_DOUBLE_EQ(hang->gpu_s, 90.0 * static_cast<double>(c.waiting));
    }
  }
  EXPECT_EQ(hang_of(process(3, std::nullopt, total(1)))->text(),
            "stalled for 90 s: rank 3 (node1) launches no work; 7 ranks wait, 0.17 GPU-hours so far");
}

TEST(Hang, NobodyIsNamedWhereNobodyDiffers) {
  const std::optional<Hang> hang = hang_of(process(3, in_collective(41), total(0)));
  ASSERT_TRUE(hang);
  EXPECT_FALSE(hang->rank);
  EXPECT_EQ(hang->text(), "stalled for 90 s: no rank differs from the others; 8 ranks wait, 0.2 GPU-hours so far");
  // A rank that works is no cause.
  EXPECT_FALSE(hang_of(process(3, std::nullopt, total(0.1)))->rank);
}

TEST(Hang, RanksWithoutAFileAreCounted) {
  const RegionSummary row = total(0);
  std::vector<HangProcess> processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.push_back(process(rank, in_collective(rank == 0 ? 40 : 41), row));
    processes.back().world_size = 8;
  }
  const std::optional<Hang> hang = find_hang(processes, kNow);
  ASSERT_TRUE(hang);
  EXPECT_FALSE(hang->rank);
  EXPECT_EQ(hang->why, "5 of 8 ranks have written nothing at all");
}

TEST(Hang, AJobWithoutAStallHasNone) {
  std::vector<HangProcess> processes;
  for (int rank = 0; rank < 8; ++rank) {
    processes.push_back(process(rank, std::nullopt, total(0.1 * rank, "torch.save", "a.py:1")));
    processes.back().quiet = rank == 1;
    processes.back().ended = rank == 2;
  }
  EXPECT_FALSE(find_hang(processes, kNow));
  processes.front().stall = in_collective(1);
  processes.front().ended = true;
  EXPECT_FALSE(find_hang(processes, kNow)) << "one that has ended waits for nothing";
}

}  // namespace
}  // namespace mfu
