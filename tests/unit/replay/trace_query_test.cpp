// MFU of one range and of one kernel kind on three time bases, worked by hand. The peak is 100 TFLOP/s.
#include "tools/replay/trace_query.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/replay/made_time.h"
#include "tests/unit/trace/trace_text.h"
#include "tools/trace/kineto.h"

namespace mfu {
namespace {

constexpr auto kWall = static_cast<std::size_t>(TimeBase::kWall);
constexpr auto kSum = static_cast<std::size_t>(TimeBase::kKernelSum);
constexpr auto kUnion = static_cast<std::size_t>(TimeBase::kKernelUnion);

Config config(bool model = false) {
  return load_config(
      [model](const char* name) -> const char* {
        static const std::string path = std::string(MFU_TEST_DATA) + "/configs/gpt2.json";
        const std::string_view variable = name;
        if (variable == "MFU_PEAK_TFLOPS") return "100";
        if (variable == "MFU_MODEL_CONFIG" && model) return path.c_str();
        return nullptr;
      },
      nullptr);
}

Result<QueryAnswers> ask(const TraceText& text, const TraceQuery& query, bool model = false) {
  const auto trace = read_kineto_text(text.text(), "t.json");
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return answer_query(*trace, config(model), query);
}

/// Two `attention` ranges; in the first flash [10, 30) and [20, 50) on two streams, in the second [110, 120).
TraceText two_ranges() {
  TraceText t;
  t.range("attention layer 0", 0, 60).range("mlp", 60, 90).range("attention layer 1", 100, 130);
  t.launch(1, 1).kernel("flash_fwd_kernel", 10, 30, 1).launch(2, 2).kernel("flash_fwd_kernel", 20, 50, 2, 0, 8);
  t.launch(3, 62).kernel("gemm", 65, 80, 3);
  t.launch(4, 101).kernel("flash_fwd_kernel", 110, 120, 4).launch(5, 102).kernel("add", 120, 125, 5);
  return t;
}

TEST(TraceQuery, KernelsOnThreeTimeBases) {
  // 1e9 FLOP a launch. All: wall 10..120 = 110, sum 20 + 30 + 10 = 60, union 40 + 10 = 50.
  TraceQuery query;
  query.kernel = "^flash";
  query.flop = 1e9;
  const auto answers = ask(two_ranges(), query);
  ASSERT_TRUE(answers.ok()) << answers.error().message;
  ASSERT_TRUE(answers->kernel && !answers->range);
  const BaseFigures& f = answers->kernel->sum;
  EXPECT_EQ(f.kernels, 3u);
  EXPECT_EQ(f.time_ns[kWall], 110 * kUs);
  EXPECT_EQ(f.time_ns[kSum], 60 * kUs);
  EXPECT_EQ(f.time_ns[kUnion], 50 * kUs);
  EXPECT_NEAR(*f.mfu[kWall], 3e9 / (1e14 * 110e-6), 1e-12);
  EXPECT_NEAR(*f.mfu[kSum], 0.5, 1e-12);    // 3e9 / (1e14 x 60e-6)
  EXPECT_NEAR(*f.mfu[kUnion], 0.6, 1e-12);  // 3e9 / (1e14 x 50e-6)
  EXPECT_NEAR(*f.flop_s[kSum], 5e13, 1);
  EXPECT_EQ(f.suspect, "");
}

TEST(TraceQuery, KernelsInsideARange) {
  TraceQuery query;
  query.range = "attention";
  query.kernel = "flash";
  query.flop = 1e9;
  const auto answers = ask(two_ranges(), query);
  ASSERT_TRUE(answers.ok()) << answers.error().message;
  const auto& occurrences = answers->kernel->occurrences;
  ASSERT_EQ(occurrences.size(), 2u);
  EXPECT_EQ(occurrences[0].name, "attention layer 0");
  EXPECT_EQ(occurrences[0].figures.time_ns[kWall], 40 * kUs);
  EXPECT_NEAR(*occurrences[0].figures.mfu[kUnion], 0.5, 1e-12);  // 2e9 / (1e14 x 40e-6)
  EXPECT_NEAR(*occurrences[1].figures.mfu[kUnion], 1.0, 1e-12);
  EXPECT_EQ(answers->kernel->sum.time_ns[kWall], 50 * kUs);
  // The ranges themselves: [0, 60) and [100, 130); no FLOP, since --flop is the kernel's.
  EXPECT_EQ(answers->range->sum.time_ns[kWall], 90 * kUs);
  EXPECT_EQ(answers->range->sum.time_ns[kUnion], 55 * kUs);
  EXPECT_FALSE(answers->range->sum.flop.has_value());
}

TEST(TraceQuery, ARangeWithItsFlop) {
  TraceQuery query;
  query.range = "attention";
  query.nth = 1;
  query.flop = 3e9;
  const auto answers = ask(two_ranges(), query);
  ASSERT_TRUE(answers.ok()) << answers.error().message;
  const QueryAnswer& range = *answers->range;
  ASSERT_EQ(range.occurrences.size(), 1u);
  EXPECT_NEAR(*range.sum.mfu[kWall], 0.5, 1e-12);    // 3e9 / (1e14 x 60e-6)
  EXPECT_NEAR(*range.sum.mfu[kSum], 0.6, 1e-12);     // 50 us
  EXPECT_NEAR(*range.sum.mfu[kUnion], 0.75, 1e-12);  // 40 us
  EXPECT_NEAR(*range.region->mfu, 0.5, 1e-12);
  EXPECT_EQ(range.region->time_ns[0], 40 * kUs);
  EXPECT_EQ(range.region->top_kernels.at(0).name, "flash_fwd_kernel");
}

TEST(TraceQuery, ExactNamesAndNestedOnes) {
  // The inner `work` is a part of the outer one: one occurrence, not two.
  TraceText t;
  t.range("work", 0, 100).range("work", 20, 50).range("work more", 200, 300);
  t.launch(1, 25).kernel("gemm", 30, 40, 1).launch(2, 210).kernel("gemm", 220, 230, 2);
  TraceQuery query;
  query.range = "work";
  query.exact = true;
  const auto exact = ask(t, query);
  ASSERT_TRUE(exact.ok()) << exact.error().message;
  ASSERT_EQ(exact->range->occurrences.size(), 1u);
  EXPECT_EQ(exact->range->sum.time_ns[kWall], 100 * kUs);
  query.exact = false;
  query.nth = 2;
  const auto second = ask(t, query);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->range->occurrences.at(0).name, "work more");
  EXPECT_EQ(second->range->occurrences.at(0).index, 2);
}

TEST(TraceQuery, SeveralGpusScaleThePeak) {
  // Device 0 [10, 30), device 1 [10, 50): wall 40 on both = 80, sum = union = 60 device-us.
  TraceText t;
  t.range("step", 0, 100);
  t.launch(1, 5).kernel("gemm", 10, 30, 1, 0).launch(2, 6).kernel("gemm", 10, 50, 2, 1);
  TraceQuery query;
  query.kernel = "gemm";
  query.flop = 1.2e9;
  const auto both = ask(t, query);
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(both->kernel->devices, 2u);
  EXPECT_NEAR(*both->kernel->sum.mfu[kWall], 0.3, 1e-12);   // 2.4e9 / (1e14 x 80e-6)
  EXPECT_NEAR(*both->kernel->sum.mfu[kUnion], 0.4, 1e-12);  // 2.4e9 / (1e14 x 60e-6)
  query.gpus = 4;  // the FLOP are those of four GPUs, of which the trace has two
  EXPECT_NEAR(*ask(t, query)->kernel->sum.mfu[kUnion], 0.2, 1e-12);
  query.gpus.reset();
  query.device = 1;
  const auto one = ask(t, query);
  EXPECT_EQ(one->kernel->sum.kernels, 1u);
  EXPECT_NEAR(*one->kernel->sum.mfu[kWall], 0.3, 1e-12);  // 1.2e9 / (1e14 x 40e-6)
  query.kernel.clear();
  query.range = "step";
  query.flop = 4e9;  // two thirds of it where two thirds of the matmul time was
  const auto range = ask(t, query);
  EXPECT_NEAR(*range->range->sum.flop, 4e9 * 2 / 3, 1);
  EXPECT_EQ(range->range->sum.time_ns[kWall], 100 * kUs);
}

TEST(TraceQuery, KernelKindsAsTheFlopsCommandCountsThem) {
  // GPT-2: 12 layers, 12 heads of 64. Causal pairs of 128 tokens: 128 x 129 / 2 = 8256; 2 x 8256 x 12 x (64 + 64).
  constexpr double kLayer = 2.0 * 8256 * 12 * 128;
  TraceText t;
  t.range("prefill batch=1 seq_len=128", 0, 1000);
  for (int i = 0; i < 12; ++i) t.launch(i + 1, 10 + i).kernel("flash_fwd_kernel", 100 + 10 * i, 105 + 10 * i, i + 1);
  TraceQuery query;
  query.range = "prefill";
  query.kernel = "flash";
  query.kernel_kind = "flash_fwd";
  const auto launches = ask(t, query, true);
  ASSERT_TRUE(launches.ok()) << launches.error().message;
  EXPECT_EQ(*launches->kernel->flop_per_launch, kLayer);
  EXPECT_EQ(*launches->kernel->layers, 12);
  EXPECT_EQ(*launches->kernel->sum.flop, 12 * kLayer);
  EXPECT_TRUE(launches->kernel->notes.empty());
  query.per_pass = true;
  EXPECT_EQ(*ask(t, query, true)->kernel->sum.flop, 12 * kLayer);
  query.kernel_kind = "gemm";
  query.per_pass = false;
  query.m = 10, query.n = 20, query.k = 30;
  EXPECT_EQ(*ask(t, query, true)->kernel->sum.flop, 12 * 2.0 * 10 * 20 * 30);
}

TEST(TraceQuery, WhatCannotBeIsSuspect) {
  TraceQuery query;
  query.kernel = "flash";
  query.flop = 1e12;
  const auto answers = ask(two_ranges(), query);
  ASSERT_TRUE(answers.ok());
  EXPECT_GT(*answers->kernel->sum.mfu[kUnion], 1);
  EXPECT_TRUE(answers->kernel->sum.suspect.starts_with("flops_exceed_matmul_time")) << answers->kernel->sum.suspect;
  query.kernel.clear();
  query.range = "attention";
  const auto range = ask(two_ranges(), query);
  EXPECT_TRUE(range->range->sum.suspect.starts_with("flops_exceed_matmul_time")) << range->range->sum.suspect;
  query.flop = 1;
  EXPECT_TRUE(ask(two_ranges(), query)->range->sum.suspect.starts_with("mfu_below_0.1"));
}

TEST(TraceQuery, ErrorsSayWhatThereIs) {
  const auto error = [](const TraceQuery& query, bool model = false) {
    const auto answers = ask(two_ranges(), query, model);
    return answers.ok() ? std::string("no error") : answers.error().message;
  };
  TraceQuery query;
  query.kernel = "flash(";
  EXPECT_EQ(error(query),
            "--kernel: expected a regular expression, got \"flash(\": missing closing parenthesis at "
            "character 6");
  query.kernel = "flush";
  EXPECT_EQ(error(query), "--kernel: no kernel matches \"flush\"; nearest: \"flash_fwd_kernel\", \"gemm\", \"add\"");
  query = {};
  query.range = "atention";
  EXPECT_TRUE(error(query).starts_with("--range: no range contains \"atention\"; nearest: \"attention layer 0\", "))
      << error(query);
  query.range = "mlp";
  query.nth = 3;
  EXPECT_EQ(error(query), "--nth 3: \"mlp\" occurs 1 time");
  query.nth.reset();
  query.device = 5;
  EXPECT_EQ(error(query), "--device 5: no work on it; devices here: 0");
  query.device.reset();
  query.kernel = "flash";
  EXPECT_EQ(error(query), "--kernel: \"flash\" matches no kernel inside \"mlp\"");
  query.range.clear();
  query.nth = 4;
  EXPECT_EQ(error(query), "--nth 4: \"flash\" was launched 3 times");
  query.nth.reset();
  query.kernel_kind = "qkv";
  EXPECT_EQ(error(query), "--kernel-kind qkv: expected a model: name it with --config");
  EXPECT_EQ(error(query, true), "--kernel-kind qkv: expected --phase train, prefill or decode");
  query.phase = Phase::kPrefill;
  EXPECT_EQ(error(query, true).substr(0, 35), "--kernel-kind qkv: expected seq_len");
}

TEST(TraceQuery, JsonHoldsTheSame) {
  TraceQuery query;
  query.range = "attention";
  query.kernel = "flash";
  query.flop = 1e9;
  const auto answers = ask(two_ranges(), query);
  ASSERT_TRUE(answers.ok());
  const auto members = query_json(query, *answers);
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].first, "range");
  EXPECT_EQ(members[1].first, "kernel");
  const auto range = nlohmann::json::parse(members[0].second);
  const auto kernel = nlohmann::json::parse(members[1].second);
  EXPECT_EQ(range["occurrences"][0]["regions"][0]["elapsed_s"], 60e-6);
  EXPECT_EQ(kernel["mfu_by"]["kernel_union"], 0.6);
  EXPECT_EQ(kernel["names"][0]["count"], 3);
  EXPECT_NE(query_text(query, *answers).find("kernel /flash/: 2 occurrences on 1 device"), std::string::npos);
}

}  // namespace
}  // namespace mfu
