// A config that comes after the run, against the same run that had it from its start.
#include "tools/replay/late_count.h"

#include <gtest/gtest.h>

#include "tests/unit/replay/made_time.h"
#include "tests/unit/trace/trace_text.h"
#include "tools/replay/process_replay.h"
#include "tools/trace/kineto.h"
#include "tools/trace/trace_input.h"

namespace mfu {
namespace {

constexpr const char* kModel = R"({"model": {"params": 1000000}, "peak": {"tflops": 1, "gbps": 1})";

Config config_of(const std::string& workload) {
  const auto config = trace_config({.config = std::string(kModel) + workload + "}"});
  EXPECT_TRUE(config.ok()) << config.error().message;
  return *config;
}

std::vector<ProcessRegions> replayed(const std::string& text, const Config& config) {
  const auto trace = read_kineto_text(text, "t.json");
  EXPECT_TRUE(trace.ok());
  return trace_regions(*trace, config);
}

/// Two steps, a prefill and ten decode passes, each with its tokens in its range.
std::string run_text() {
  TraceText t;
  std::uint64_t id = 0;
  const auto range = [&](const std::string& name, int begin, int end) {
    t.range(name, begin, end);
    ++id;
    t.launch(id, begin + 1).kernel("gemm", begin + 2, end - 3, id);
  };
  range("step batch=4 seq_len=128", 0, 10'000);
  range("step batch=4 seq_len=128", 10'000, 20'000);
  range("prefill tokens=64 batch=1", 20'000, 21'000);
  for (int i = 0; i < 10; ++i) range("decode batch=8", 21'000 + 500 * i, 21'500 + 500 * i);
  return t.text();
}

TEST(LateCount, ComesToWhatTheRunWouldHaveSaid) {
  const Config config = config_of("");
  const auto truth = replayed(run_text(), config);
  auto blind = replayed(run_text(), trace_config({}).value());
  ASSERT_EQ(truth.size(), 1u);
  ASSERT_EQ(blind.size(), 1u);
  LateCount late(config);
  ASSERT_TRUE(late.start(blind[0].run));
  EXPECT_NE(blind[0].run.model_json, "null");
  for (WindowSummary& window : blind[0].windows)
    for (RegionSummary& row : window.regions) late.count(row);
  ASSERT_EQ(blind[0].whole.regions.size(), truth[0].whole.regions.size());
  for (std::size_t i = 0; i < truth[0].whole.regions.size(); ++i) {
    RegionSummary& got = blind[0].whole.regions[i];
    const RegionSummary& want = truth[0].whole.regions[i];
    SCOPED_TRACE(want.region);
    EXPECT_FALSE(got.flop.has_value());
    late.count(got, true);
    ASSERT_EQ(got.region, want.region);
    ASSERT_TRUE(got.flop && want.flop);
    EXPECT_NEAR(*got.flop, *want.flop, 1e-9 * *want.flop);
    EXPECT_NEAR(got.mfu.value_or(-1), want.mfu.value_or(-2), 1e-9);
    EXPECT_EQ(got.lost.has_value(), want.lost.has_value());
    EXPECT_EQ(got.suspect, want.suspect);
    double sum = got.mfu.value_or(0);
    for (const double part : got.lost.value_or(std::array<double, kTimeClasses>{})) sum += part;
    EXPECT_NEAR(sum, 1, 1e-9);
  }
  EXPECT_EQ(late.missing(), "");
}

/// A run that says no tokens: the workload of the config does.
TEST(LateCount, TheWorkloadSaysWhatTheRangesDoNot) {
  TraceText t;
  t.range("step", 0, 1000).range("step", 1000, 2000);
  t.launch(1, 5).kernel("gemm", 10, 900, 1).launch(2, 1005).kernel("gemm", 1010, 1900, 2);
  const Config with = config_of(R"(, "workload": {"batch": 2, "seq_len": 8})");
  const auto truth = replayed(t.text(), with);
  auto blind = replayed(t.text(), trace_config({}).value());
  LateCount late(with);
  ASSERT_TRUE(late.start(blind[0].run));
  for (RegionSummary& row : blind[0].whole.regions) late.count(row, true);
  EXPECT_NEAR(*blind[0].whole.regions[0].flop, *truth[0].whole.regions[0].flop, 1);
  EXPECT_NEAR(*blind[0].whole.regions[0].mfu, *truth[0].whole.regions[0].mfu, 1e-9);
}

/// More knowledge never gives less: a bound stays where the config adds nothing, and so does what a run had.
TEST(LateCount, NothingIsLost) {
  RunInfo run;
  RegionSummary row;
  row.region = "step";
  row.instances = 2;
  row.elapsed_ns = kNsPerSecond;
  row.mfu_lower = 0.25;
  const Config config = config_of("");
  LateCount late(config);
  ASSERT_TRUE(late.start(run));
  late.count(row, true);
  EXPECT_EQ(row.mfu_lower, 0.25);
  EXPECT_FALSE(row.flop.has_value());
  EXPECT_NE(late.missing().find("step: "), std::string::npos) << late.missing();

  run.model_json = R"({"family": "gpt2"})";
  LateCount other(config);
  EXPECT_FALSE(other.start(run));
  row.tokens = 1000;
  other.count(row, true);
  EXPECT_FALSE(row.flop.has_value());
}

}  // namespace
}  // namespace mfu
