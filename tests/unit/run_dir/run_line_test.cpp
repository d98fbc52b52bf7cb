// One line at a time: what the reader makes of it, and how it names what it cannot read.
#include "tools/run_dir/run_line.h"

#include <gtest/gtest.h>

#include <string>

namespace mfu {
namespace {

const WindowLine& window_of(const Result<RunLine>& line) { return std::get<WindowLine>(line->what); }

TEST(RunLine, AWindowHasWhatItSays) {
  RunLineReader reader;
  const auto line = reader.read(
      R"({"v":1,"type":"window","t_ns":17,"seq":3,"region":"step","device":2,"t0_ns":1000,"t1_ns":2000,"instances":4,)"
      R"("tokens":4096,"elapsed_s":1.5,"busy_s":1.25,"kernels":7,"flop":2e15,"mfu":0.4,"hfu":0.5,"bound":"memory",)"
      R"("time_s":{"matmul":1.0,"other":0.25,"comm":0.0,"memcpy":0.0,"idle":0.25},"named_by":"framework",)"
      R"("latency":{"count":2,"p50_s":0.001,"p90_s":0.002,"p99_s":0.002,"max_s":0.002,"histogram":[[0.001,1],[0.002,1]]},)"
      R"("settled":false,"executed":{"flop":3e15,"covered_s":0.9,"matmul_s":1.0},"flop_source":"shape"})");
  ASSERT_TRUE(line) << line.error().message;
  EXPECT_EQ(line->t_ns, 17);
  EXPECT_EQ(line->seq, 3u);
  const RegionSummary& r = window_of(line).region;
  EXPECT_EQ(r.region, "step");
  EXPECT_EQ(r.device, 2u);
  EXPECT_EQ(r.window.begin_ns, 1000);
  EXPECT_EQ(r.window.end_ns, 2000);
  EXPECT_EQ(r.instances, 4u);
  EXPECT_EQ(r.elapsed_ns, 1'500'000'000);
  EXPECT_EQ(r.busy_ns, 1'250'000'000);
  EXPECT_TRUE(r.classes_known);
  EXPECT_EQ(r.time_ns[0], 1'000'000'000);
  EXPECT_EQ(r.bound, Bound::kMemory);
  EXPECT_EQ(r.named_by, NamedBy::kFramework);
  EXPECT_EQ(r.flop_source, FlopSource::kShape);
  EXPECT_DOUBLE_EQ(*r.hfu_flop, 2.5e15);  // by the ratio of HFU to MFU
  EXPECT_EQ(r.latency.histogram.size(), 2u);
  EXPECT_EQ(r.settled, false);
  ASSERT_TRUE(r.executed);
  EXPECT_DOUBLE_EQ(r.executed->flop, 3e15);
  EXPECT_EQ(r.executed->covered_ns, 900'000'000);
  EXPECT_FALSE(r.mbu || r.roofline_s || r.mfu_lower || r.after_prefill);
}

TEST(RunLine, NullAndAbsentAreUnknown) {
  RunLineReader reader;
  const auto line =
      reader.read(R"({"v":1,"type":"window","region":"total","device":null,"mfu":null,"busy_s":null,"bound":null,)"
                  R"("lost":{"matmul":null,"other":null,"comm":null,"memcpy":null,"idle":null}})");
  ASSERT_TRUE(line);
  const RegionSummary& r = window_of(line).region;
  EXPECT_FALSE(r.device || r.mfu || r.lost || r.settled || r.executed || r.detected);
  EXPECT_FALSE(r.classes_known);
  EXPECT_EQ(r.bound, Bound::kUnknown);
  EXPECT_EQ(r.named_by, NamedBy::kNobody);
}

TEST(RunLine, WhatIsUnknownIsPassedOver) {
  RunLineReader reader;
  EXPECT_TRUE(std::holds_alternative<UnknownLine>(reader.read(R"({"v":9,"type":"weather"})")->what));
  const auto line = reader.read(R"({"v":2,"type":"window","region":"a","of_tomorrow":{"x":[1]},"bound":"sideways"})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->v, 2);
  EXPECT_EQ(window_of(line).region.bound, Bound::kUnknown);  // a word that this version does not know
}

TEST(RunLine, AWrongValueIsNamed) {
  RunLineReader reader;
  for (const auto& [text, words] :
       {std::pair(R"({"v":1,"type":"window","mfu":"high"})", R"('mfu': "high" is not a number)"),
        std::pair(R"({"v":1,"type":"window","instances":-1})", "'instances': -1 is not a count"),
        std::pair(R"({"v":1,"type":"window","top_kernels":{}})", "'top_kernels': {} is not an array"),
        std::pair(R"({"v":1,"type":"window","detected":7})", "'detected': 7 is not an object"),
        std::pair(R"({"v":1,"type":"window","region":5})", "'region': 5 is not a string"),
        std::pair(R"({"v":1,"type":"end","counters":{"a":"b"}})", R"('a': "b" is not a count)"),
        std::pair(R"({"type":"window"})", "neither 'v' nor 'type'"),
        std::pair(R"({"v":1,"type":)", "not a JSON object"), std::pair("[1]", "is not an object"),
        std::pair("", "not a JSON object")}) {
    const auto line = reader.read(text);
    ASSERT_FALSE(line) << text;
    EXPECT_NE(line.error().message.find(words), std::string::npos) << text << ": " << line.error().message;
  }
}

TEST(RunLine, AnEndHasTheAccountAndEveryRegion) {
  RunLineReader reader;
  const auto line =
      reader.read(R"({"v":1,"type":"end","t0_ns":5,"t1_ns":9,"regions":[{"region":"step"},{"region":"total"}],)"
                  R"("launches":{"seen":10,"attributed":6,"outside":2,"unattributed":1,"dropped":1},)"
                  R"("self":{"cpu_s":0.5,"rss_bytes":1024,"overhead":0.01},"counters":{"records_late":3}})");
  ASSERT_TRUE(line);
  const WindowSummary& whole = std::get<EndLine>(line->what).whole;
  EXPECT_TRUE(whole.final_run);
  ASSERT_EQ(whole.regions.size(), 2u);
  EXPECT_EQ(whole.launches.seen,
            whole.launches.attributed + whole.launches.outside + whole.launches.unattributed + whole.launches.dropped);
  EXPECT_DOUBLE_EQ(whole.self.cpu_s, 0.5);
  ASSERT_EQ(whole.counters.size(), 1u);
  EXPECT_EQ(whole.counters[0].second, 3u);
}

}  // namespace
}  // namespace mfu
