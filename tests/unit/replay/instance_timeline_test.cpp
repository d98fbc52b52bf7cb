// Single instances of small traces, worked by hand. Numbers in the comments are microseconds.
#include "tools/replay/instance_timeline.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "tests/unit/replay/made_time.h"
#include "tests/unit/trace/trace_text.h"
#include "tools/trace/kineto.h"
#include "tools/trace/open_trace.h"

namespace mfu {
namespace {

Config no_config() {
  return load_config([](const char*) -> const char* { return nullptr; }, nullptr);
}

std::map<std::string, std::vector<InstanceSpan>> instances(const Trace& trace) {
  InstanceCollector collector;
  (void)trace_regions(trace, no_config(), {.observer = &collector});
  return collector.regions();
}

std::uint64_t bars(const InstanceTimeline& timeline, BarKind kind) {
  std::uint64_t count = 0;
  for (const TimelineRow& row : timeline.rows)
    for (const TimelineBar& bar : row.bars) count += bar.kind == kind ? bar.count : 0;
  return count;
}

TEST(InstanceTimeline, HasWhatRanBetweenBeginAndEndOnItsDevice) {
  // decode 0: [0, 100), decode 1: [100, 200) with its last kernel until 240, and one of the other device.
  TraceText t;
  t.range("decode", 0, 100).range("decode", 100, 200).range("decode", 300, 400);
  t.launch(1, 5).kernel("gemm", 10, 40, 1);
  t.launch(2, 110).kernel("gemm", 120, 150, 2).launch(3, 111).kernel("softmax", 130, 240, 3, 0, 8);
  t.launch(4, 112).kernel("ncclDevKernel_AllReduce", 150, 160, 4, 0, 9).launch(5, 113).copy(160, 165, 5);
  t.launch(6, 310).kernel("gemm", 320, 330, 6, 1);
  const auto trace = read_kineto_text(t.text(), "t.json");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto found = instances(*trace);
  ASSERT_EQ(found.count("decode"), 1u);
  const std::vector<InstanceSpan>& decode = found.at("decode");
  ASSERT_EQ(decode.size(), 3u);
  EXPECT_EQ(decode[0].time.length_ns(), 100 * kUs);
  EXPECT_EQ(decode[1].time.length_ns(), 140 * kUs) << "until the last of its work";
  EXPECT_EQ(decode[1].nth, 1u);
  EXPECT_EQ(decode[2].device, 1u);
  EXPECT_EQ(decode[2].nth, 0u) << "numbered on its own device";

  const InstanceTimeline drawn = draw_instance(*trace, decode[1]);
  EXPECT_EQ(bars(drawn, BarKind::kMatmul), 1u);
  EXPECT_EQ(bars(drawn, BarKind::kOther), 1u);
  EXPECT_EQ(bars(drawn, BarKind::kComm), 1u);
  EXPECT_EQ(bars(drawn, BarKind::kMemcpy), 1u);
  EXPECT_EQ(bars(drawn, BarKind::kRange), 1u);
  EXPECT_EQ(bars(drawn, BarKind::kLaunch), 4u);
  EXPECT_EQ(drawn.rows_left_out, 0u);
  // The host's rows come first; times are after the instance's begin.
  EXPECT_EQ(drawn.rows.front().bars.front().kind, BarKind::kRange);
  EXPECT_EQ(drawn.rows.front().bars.front().begin_ns, 0);
  EXPECT_EQ(drawn.rows.front().bars.front().length_ns, 100 * kUs);
  for (const TimelineRow& row : drawn.rows)
    for (const TimelineBar& bar : row.bars)
      if (drawn.names[bar.name] == "softmax") {
        EXPECT_EQ(bar.begin_ns, 30 * kUs);
        EXPECT_EQ(bar.length_ns, 110 * kUs);
        EXPECT_EQ(row.label, "stream 8");
      }
}

TEST(InstanceTimeline, NestedRangesHaveARowPerDepth) {
  TraceText t;
  t.range("step", 0, 100).range("forward", 10, 40).range("attention", 15, 20).range("backward", 50, 90);
  t.launch(1, 16).kernel("gemm", 20, 30, 1);
  const auto trace = read_kineto_text(t.text(), "t.json");
  ASSERT_TRUE(trace.ok());
  const InstanceTimeline drawn = draw_instance(*trace, instances(*trace).at("step").front());
  std::vector<std::vector<std::string>> names;
  for (const TimelineRow& row : drawn.rows) {
    names.emplace_back();
    for (const TimelineBar& bar : row.bars) names.back().push_back(drawn.names[bar.name]);
  }
  ASSERT_EQ(names.size(), 5u);  // three depths, calls, a stream
  EXPECT_EQ(names[0], std::vector<std::string>{"step"});
  EXPECT_EQ(names[1], (std::vector<std::string>{"forward", "backward"}));
  EXPECT_EQ(names[2], std::vector<std::string>{"attention"});
}

TEST(InstanceTimeline, JoinsTheShortestNeighboursAndLosesNone) {
  TraceText t;
  t.range("step", 0, 100'000);
  for (int i = 0; i < 3000; ++i)
    t.launch(i + 1, 10 + i).kernel(i % 500 == 0 ? "softmax" : "gemm", 10 + 30 * i, 20 + 30 * i, i + 1);
  const auto trace = read_kineto_text(t.text(), "t.json");
  ASSERT_TRUE(trace.ok());
  const InstanceSpan span = instances(*trace).at("step").front();
  EXPECT_EQ(bars(draw_instance(*trace, span, 10'000), BarKind::kMatmul), 2994u);
  const InstanceTimeline few = draw_instance(*trace, span, 100);
  for (const TimelineRow& row : few.rows) EXPECT_LE(row.bars.size(), 100u);
  EXPECT_EQ(bars(few, BarKind::kMatmul), 2994u);
  EXPECT_EQ(bars(few, BarKind::kOther), 6u) << "a kernel of another kind stays by itself";
  EXPECT_EQ(bars(few, BarKind::kLaunch), 3000u);
  for (const TimelineRow& row : few.rows)
    for (std::size_t i = 1; i < row.bars.size(); ++i)
      EXPECT_GE(row.bars[i].begin_ns, row.bars[i - 1].begin_ns + row.bars[i - 1].length_ns);
}

TEST(InstanceTimeline, ManyKindsInTurnEndTheJoining) {
  // Neighbours that differ in kind are never one: there may be more bars than asked for.
  TraceText t;
  t.range("step", 0, 1000);
  for (int i = 1; i <= 40; ++i) t.launch(i, i).kernel(i % 2 == 0 ? "softmax" : "gemm", 50 + 10 * i, 55 + 10 * i, i);
  const auto trace = read_kineto_text(t.text(), "t.json");
  ASSERT_TRUE(trace.ok());
  const InstanceTimeline drawn = draw_instance(*trace, instances(*trace).at("step").front(), 5);
  EXPECT_EQ(bars(drawn, BarKind::kMatmul) + bars(drawn, BarKind::kOther), 40u);
}

TEST(InstanceTimeline, ARealTraceHasAsManyStepsAsItsProfilerSays) {
  const auto trace = open_trace(std::string(MFU_TEST_DATA) + "/traces/kineto_resnet50_v100_w0.json.gz");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto found = instances(*trace);
  EXPECT_EQ(found.at("step").size(), 6u);  // ProfilerStep#8 to #13
  std::uint64_t kernels = 0;
  for (const InstanceSpan& span : found.at("step")) {
    const InstanceTimeline drawn = draw_instance(*trace, span, 1u << 20u);
    kernels += bars(drawn, BarKind::kMatmul) + bars(drawn, BarKind::kOther);
  }
  // 8772 kernels in all (README); one that crosses the edge of two steps is in both.
  EXPECT_NEAR(static_cast<double>(kernels), 8772, 12);
}

TEST(RecordingConfig, HasTheRunsOwnRulesAndNothingElse) {
  const std::string rule = R"({"region": "work", "match": "my_work.*"})";
  const Config config = recording_config(R"({"model": null, "workload": {"batch": 4}, "regions": [)" + rule + "]}");
  ASSERT_EQ(config.regions.size(), 1u);
  EXPECT_EQ(config.regions[0].region, "work");
  EXPECT_FALSE(config.model.has_value());
  EXPECT_TRUE(recording_config("{}").regions.empty());
  EXPECT_TRUE(recording_config("no json").regions.empty());
}

}  // namespace
}  // namespace mfu
