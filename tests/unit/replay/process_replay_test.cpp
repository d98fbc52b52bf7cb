// What the replay makes of small traces, worked by hand. Numbers in the comments are microseconds.
#include "tools/replay/process_replay.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/unit/replay/made_time.h"
#include "tests/unit/trace/trace_text.h"
#include "tools/trace/kineto.h"

namespace mfu {
namespace {

std::vector<ProcessRegions> replay(const std::string& text, const std::map<std::string, std::string>& variables = {}) {
  const auto trace = read_kineto_text(text, "t.json");
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  const Config config = load_config(
      [&variables](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      nullptr);
  EXPECT_TRUE(config.warnings.empty()) << config.warnings.front();
  return trace_regions(trace.value(), config);
}

const RegionSummary& row(const WindowSummary& window, const std::string& region, std::uint32_t device = 0) {
  for (const RegionSummary& r : window.regions)
    if (r.region == region && (region == "total" || r.device == device)) return r;
  ADD_FAILURE() << "no region " << region << " on " << device;
  static const RegionSummary none;
  return none;
}

/// matmul, other, comm, memcpy, idle [us]
ClassTimes times(DurationNs matmul, DurationNs other, DurationNs comm, DurationNs memcpy, DurationNs idle) {
  return {matmul * kUs, other * kUs, comm * kUs, memcpy * kUs, idle * kUs};
}

TEST(TraceRegions, TwoInstancesWithOverlappingKernels) {
  // decode 1: [0, 100); gemm [10, 40) and add [30, 60): matmul 30, other 40..60 = 20, idle 50; union 50, sum 60.
  // decode 2: [100, 150) with gemm [130, 200): ends with it, elapsed 100: matmul 70, idle 30; union and sum 70.
  TraceText t;
  t.range("decode", 0, 100).range("decode", 100, 150);
  t.launch(1, 5).kernel("gemm", 10, 40, 1).launch(2, 6).kernel("add", 30, 60, 2, 0, 8);
  t.launch(3, 120).kernel("gemm", 130, 200, 3);
  const auto processes = replay(t.text());
  ASSERT_EQ(processes.size(), 1u);
  const RegionSummary& r = row(processes[0].whole, "decode");
  EXPECT_EQ(r.instances, 2u);
  EXPECT_EQ(r.elapsed_ns, 200 * kUs);
  EXPECT_EQ(r.time_ns, times(100, 20, 0, 0, 80));
  EXPECT_EQ(r.busy_ns, 120 * kUs);
  EXPECT_EQ(r.kernel_sum_ns, 130 * kUs);
  EXPECT_EQ(r.kernels, 3u);
  EXPECT_EQ(r.launches, 3u);
  EXPECT_EQ(processes[0].whole.launches.attributed, 3u);
}

TEST(TraceRegions, ACpuThatRunsAheadDoesNotOverlapItself) {
  // Ranges [0, 10) and [10, 20); their kernels run [20, 60) and [60, 90). Instance 1: 0..60; instance 2 begins where
  // it ends: 60..90.
  TraceText t;
  t.range("decode", 0, 10).range("decode", 10, 20);
  t.launch(1, 5).kernel("gemm", 20, 60, 1).launch(2, 15).kernel("gemm", 60, 90, 2);
  const auto processes = replay(t.text());
  const RegionSummary& r = row(processes[0].whole, "decode");
  EXPECT_EQ(r.elapsed_ns, 90 * kUs);
  EXPECT_EQ(r.time_ns, times(70, 0, 0, 0, 20));
  EXPECT_FALSE(r.overlapped);
  EXPECT_EQ(r.latency.max_ns, 60 * kUs);
}

TEST(TraceRegions, BackwardOnAThreadWithoutRanges) {
  TraceText t;
  t.range("step", 0, 100, 1);
  t.launch(1, 10, 1).kernel("gemm_fwd", 20, 40, 1);
  t.launch(2, 50, 2).kernel("gemm_bwd", 60, 90, 2);
  t.launch(3, 120, 2).kernel("gemm_later", 130, 140, 3);  // nothing is open any more
  const auto processes = replay(t.text());
  const RegionSummary& r = row(processes[0].whole, "step");
  EXPECT_EQ(r.kernels, 2u);
  EXPECT_EQ(r.time_ns, times(50, 0, 0, 0, 50));
  EXPECT_EQ(processes[0].whole.launches.attributed, 2u);
  EXPECT_EQ(processes[0].whole.launches.outside, 1u);
  EXPECT_EQ(row(processes[0].whole, "total").kernels, 3u);
}

TEST(TraceRegions, AGraphIsOneLaunch) {
  TraceText t;
  t.range("decode", 0, 100).launch(7, 10, 1, "cudaGraphLaunch");
  t.kernel("gemm", 20, 30, 7).kernel("add", 30, 35, 7).kernel("gemm", 40, 60, 7).copy(60, 65, 7);
  const auto processes = replay(t.text());
  const RegionSummary& r = row(processes[0].whole, "decode");
  EXPECT_EQ(r.launches, 1u);
  EXPECT_EQ(r.kernels, 3u);
  EXPECT_EQ(r.time_ns, times(30, 5, 0, 5, 60));
}

TEST(TraceRegions, SeveralDevicesHaveEachTheirOwnTime) {
  // Both are in the region all of its time: [0, 100). NCCL alone on device 1 is exposed communication.
  TraceText t;
  t.range("step", 0, 100);
  t.launch(1, 5).kernel("gemm", 10, 30, 1, 0).launch(2, 6).kernel("gemm", 10, 50, 2, 1);
  t.launch(3, 7).kernel("ncclDevKernel_AllReduce", 40, 70, 3, 1, 8);
  const auto processes = replay(t.text());
  EXPECT_EQ(row(processes[0].whole, "step", 0).time_ns, times(20, 0, 0, 0, 80));
  EXPECT_EQ(row(processes[0].whole, "step", 1).time_ns, times(40, 0, 20, 0, 40));
  const RegionSummary& total = row(processes[0].whole, "total");
  EXPECT_EQ(total.elapsed_ns, 200 * kUs);  // device time
  EXPECT_FALSE(total.device.has_value());
}

TEST(TraceRegions, FlopGoWhereTheMatmulsRan) {
  // 124 M parameters, forward over 16 tokens; two thirds of the matmul time on device 1.
  TraceText t;
  t.range("prefill batch=1 seq_len=16", 0, 100);
  t.launch(1, 5).kernel("gemm", 10, 30, 1, 0).launch(2, 6).kernel("gemm", 10, 50, 2, 1);
  const auto processes = replay(
      t.text(), {{"MFU_MODEL_CONFIG", std::string(MFU_TEST_DATA) + "/configs/gpt2.json"}, {"MFU_PEAK_TFLOPS", "100"}});
  const RegionSummary& first = row(processes[0].whole, "prefill", 0);
  const RegionSummary& second = row(processes[0].whole, "prefill", 1);
  ASSERT_TRUE(first.flop && second.flop);
  EXPECT_NEAR(*second.flop / *first.flop, 2, 1e-9);
  EXPECT_EQ(first.tokens + second.tokens, 16);
  EXPECT_NEAR(*first.mfu, *first.flop / (1e14 * 100e-6), 1e-12);
}

TEST(TraceRegions, WindowsSplitAnInstanceAndSumToTheRun) {
  // Windows of 1 s from the first event. An instance from 0.5 s to 1.5 s with a kernel from 0.9 s to 1.2 s.
  TraceText t;
  t.range("prefill batch=1 seq_len=16", 0, 100);
  t.range("prefill batch=1 seq_len=16", 500'000, 1'500'000);
  t.launch(1, 10).kernel("gemm", 20, 80, 1).launch(2, 600'000).kernel("gemm", 900'000, 1'200'000, 2);
  t.launch(3, 2'100'000).kernel("add", 2'100'010, 2'100'020, 3);
  const auto processes = replay(
      t.text(), {{"MFU_MODEL_CONFIG", std::string(MFU_TEST_DATA) + "/configs/gpt2.json"}, {"MFU_INTERVAL", "1"}});
  const auto& windows = processes[0].windows;
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(row(windows[0], "prefill").elapsed_ns, (100 + 500'000) * kUs);
  EXPECT_EQ(row(windows[0], "prefill").time_ns[0], (60 + 100'000) * kUs);
  EXPECT_EQ(row(windows[0], "prefill").instances, 1u);
  EXPECT_EQ(row(windows[1], "prefill").elapsed_ns, 500'000 * kUs);
  EXPECT_EQ(row(windows[1], "prefill").time_ns[0], 200'000 * kUs);
  EXPECT_EQ(row(windows[1], "prefill").instances, 1u);
  // Half of the second instance's FLOP in each window; the first one's all in the first.
  const RegionSummary& whole = row(processes[0].whole, "prefill");
  ASSERT_TRUE(whole.flop && row(windows[0], "prefill").flop);
  EXPECT_NEAR(*row(windows[0], "prefill").flop / *whole.flop, 0.75, 1e-9);
  EXPECT_NEAR(*row(windows[1], "prefill").flop / *whole.flop, 0.25, 1e-9);
  EXPECT_EQ(row(windows[2], "total").kernels, 1u);
}

TEST(TraceRegions, StrayTimesAndDevicesStayWithinMemory) {
  TraceText t;
  t.range("decode", 0, 100).launch(1, 5).kernel("gemm", 10, 30, 1, 2'000'000'000);
  t.launch(2, 6).kernel("gemm", 4'000'000'000'000'000, 4'000'000'000'000'001, 2);
  const auto processes = replay(t.text());
  EXPECT_LE(processes[0].windows.size(), (1u << 16) + 1);
  ASSERT_EQ(processes[0].notes.size(), 1u);
  EXPECT_NE(processes[0].notes[0].find("too long for shorter ones"), std::string::npos);
  EXPECT_EQ(row(processes[0].whole, "total").kernels, 2u);
}

}  // namespace
}  // namespace mfu
