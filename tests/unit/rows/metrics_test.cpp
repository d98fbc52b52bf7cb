// The quotients by hand, what is lost, and every rule that calls a figure suspect.
#include "core/rows/metrics.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/config/config.h"
#include "core/families/read_architecture.h"
#include "core/model/flops_model.h"

namespace mfu {
namespace {

constexpr DurationNs kMs = 1'000'000;

Peak h100(bool sparse = false) {
  PeakOptions config;
  config.sparse = sparse;
  DeviceFacts facts;
  facts.name = "NVIDIA H100 80GB HBM3";
  return find_peak(facts, DType::kBf16, config);
}

/// 100 ms: 60 matmul, 15 other, 10 comm, 5 memcpy, 10 idle.
RegionSummary region(double flop) {
  RegionSummary s;
  s.region = "step";
  s.instances = 1;
  s.elapsed_ns = 100 * kMs;
  s.busy_ns = 85 * kMs;
  s.kernel_sum_ns = 90 * kMs;
  s.time_ns = {60 * kMs, 15 * kMs, 10 * kMs, 5 * kMs, 10 * kMs};
  s.flop = flop;
  return s;
}

TEST(Metrics, ByHand) {
  // 40 ms of ideal time at 989.4 TFLOP/s.
  RegionSummary s = region(989.4e12 * 0.040);
  s.hfu_flop = 989.4e12 * 0.050;
  s.bytes = 3350e9 * 0.020;
  complete_metrics(s, Phase::kPrefill, h100());
  EXPECT_NEAR(*s.mfu, 0.40, 1e-12);
  EXPECT_NEAR(*s.mfu_busy, 40.0 / 85, 1e-12);
  EXPECT_NEAR(*s.hfu, 0.50, 1e-12);
  EXPECT_NEAR(*s.mbu, 0.20, 1e-12);
  EXPECT_NEAR(*s.roofline_s, 0.040, 1e-12);
  EXPECT_EQ(s.bound, Bound::kCompute);
  const auto& lost = *s.lost;
  EXPECT_NEAR(lost[0], 0.20, 1e-12);
  EXPECT_NEAR(lost[1], 0.15, 1e-12);
  EXPECT_NEAR(lost[2], 0.10, 1e-12);
  EXPECT_NEAR(lost[3], 0.05, 1e-12);
  EXPECT_NEAR(lost[4], 0.10, 1e-12);
  EXPECT_EQ(s.suspect, "");
}

TEST(Metrics, LostAndMfuSumToOne) {
  for (double ideal_s : {1e-9, 0.001, 0.0333, 0.06, 0.5}) {
    RegionSummary s = region(989.4e12 * ideal_s);
    complete_metrics(s, Phase::kTrain, h100());
    const bool beyond_matmul = ideal_s > 0.06;
    ASSERT_EQ(s.lost.has_value(), !beyond_matmul) << "no part is negative";
    if (s.lost) {
      EXPECT_NEAR(std::accumulate(s.lost->begin(), s.lost->end(), *s.mfu), 1.0, 1e-12);
    }
    EXPECT_EQ(s.suspect.starts_with("flops_exceed_matmul_time"), beyond_matmul);
  }
}

TEST(Metrics, OfGraphsRecordedAsOneKernelsHaveNoClasses) {
  for (const double ideal_s : {0.001, 0.06, 0.07, 0.5}) {
    RegionSummary s = region(989.4e12 * ideal_s);
    s.graph_sum_ns = 10 * kMs;
    complete_metrics(s, Phase::kTrain, h100());
    const bool beyond_kernels = ideal_s > 0.075;  // matmul and other
    ASSERT_EQ(s.lost.has_value(), !beyond_kernels);
    EXPECT_EQ(s.suspect != "", beyond_kernels) << s.suspect;
    EXPECT_EQ(s.suspect.find("matmul kernels"), std::string::npos);
    if (!s.lost) continue;
    EXPECT_NEAR(std::accumulate(s.lost->begin(), s.lost->end(), *s.mfu), 1.0, 1e-12);
    EXPECT_EQ((*s.lost)[0], 0);
    EXPECT_NEAR((*s.lost)[1], 0.75 - ideal_s * 10, 1e-12);
  }
}

TEST(Metrics, NoFigureWithoutBothHalves) {
  RegionSummary s = region(1e12);
  Peak unknown;
  complete_metrics(s, Phase::kTrain, unknown);
  EXPECT_FALSE(s.mfu || s.mfu_busy || s.hfu || s.mbu || s.lost || s.roofline_s);
  s = region(1e12);
  s.flop.reset();
  complete_metrics(s, Phase::kTrain, h100());
  EXPECT_FALSE(s.mfu || s.lost || s.roofline_s);
  EXPECT_EQ(s.suspect, "");
  s = region(1e12);
  s.elapsed_ns = 0;
  complete_metrics(s, Phase::kTrain, h100());
  EXPECT_FALSE(s.mfu);
}

TEST(Metrics, StaleFiguresAreCleared) {
  RegionSummary s = region(989.4e12 * 0.04);
  complete_metrics(s, Phase::kTrain, h100());
  ASSERT_TRUE(s.mfu);
  s.flop.reset();
  complete_metrics(s, Phase::kTrain, h100());
  EXPECT_FALSE(s.mfu);
}

// Llama-3-8B's step on kernels that ran at 85 % of peak: what each mistake in the FLOP then looks like.
class SuspectTest : public testing::Test {
 protected:
  static std::string config(int layers) {
    return R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "num_hidden_layers": )" +
           std::to_string(layers) + "}";
  }
  static double flop_of(const std::string& text, std::int64_t batch) {
    const Result<Architecture> spec = read_model(text, "test: ");
    EXPECT_TRUE(spec.ok());
    Shape shape;
    shape.batch = batch;
    shape.seq_len = 4096;
    return FlopsModel::make(*spec, {}).work(Phase::kTrain, shape).flop;
  }
  /// A region whose matmul kernels did `flop` at `efficiency` of the dense peak, in 80 % of its time.
  static RegionSummary ran(double flop, double efficiency) {
    RegionSummary s;
    s.instances = 1;
    const double matmul_s = flop / 989.4e12 / efficiency;
    s.time_ns[0] = static_cast<DurationNs>(matmul_s * 1e9);
    s.time_ns[4] = s.time_ns[0] / 4;
    s.elapsed_ns = s.time_ns[0] + s.time_ns[4];
    s.busy_ns = s.time_ns[0];
    return s;
  }
  static std::string verdict(double true_flop, double claimed_flop, double efficiency = 0.85, bool sparse = false,
                             Phase phase = Phase::kTrain) {
    RegionSummary s = ran(true_flop, efficiency);
    s.flop = claimed_flop;
    complete_metrics(s, phase, h100(sparse));
    return s.suspect;
  }
};

TEST_F(SuspectTest, MoreBytesThanTheTimeHoldsAreDoubted) {
  const Peak peak = h100(false);
  for (const bool with_flop : {false, true}) {
    for (const double share : {0.5, 1.0, 1.3}) {
      RegionSummary s = ran(1e12, 0.85);
      if (with_flop) s.flop = 1e12;
      s.bytes = share * *peak.bytes_per_s * seconds(s.elapsed_ns);
      complete_metrics(s, Phase::kDecode, peak);
      EXPECT_NEAR(*s.mbu, share, 1e-9);
      EXPECT_EQ(s.suspect.starts_with("mbu_over_100"), share > 1) << s.suspect;
    }
  }
}

TEST_F(SuspectTest, TheTruthIsNot) { EXPECT_EQ(verdict(flop_of(config(32), 8), flop_of(config(32), 8)), ""); }

TEST_F(SuspectTest, LayersDoubled) {
  const std::string why = verdict(flop_of(config(32), 8), flop_of(config(64), 8));
  EXPECT_TRUE(why.starts_with("flops_exceed_matmul_time")) << why;
  EXPECT_NE(why.find("layers counted twice"), std::string::npos) << why;
}

TEST_F(SuspectTest, BatchCountedTwice) {
  const std::string why = verdict(flop_of(config(32), 8), flop_of(config(32), 16));
  EXPECT_TRUE(why.starts_with("flops_exceed_matmul_time")) << why;
  EXPECT_NE(why.find("batch or layers counted twice"), std::string::npos) << why;
}

TEST_F(SuspectTest, TiedEmbeddingCountedTwice) {
  // GPT-2 by 6ND: the table counted as input and as output, on kernels at 90 % of peak.
  const double once = flop_of(R"({"params": 124439808})", 8), twice = flop_of(R"({"params": 163037184})", 8);
  const std::string why = verdict(once, twice, 0.9);
  EXPECT_TRUE(why.starts_with("flops_exceed_matmul_time")) << why;
  EXPECT_NE(why.find("tied embedding"), std::string::npos) << why;
}

TEST_F(SuspectTest, WholeModelOnOneKernel) {
  const double step = flop_of(config(32), 8);
  const std::string why = verdict(step / 32 / 7, step);
  EXPECT_TRUE(why.starts_with("flops_exceed_matmul_time")) << why;
  EXPECT_NE(why.find("whole model on one kernel"), std::string::npos) << why;
}

TEST_F(SuspectTest, WrongDtype) {  // FP8 kernels at 85 % of the FP8 peak, divided by the BF16 one
  const std::string why = verdict(flop_of(config(32), 8), flop_of(config(32), 8), 2 * 0.85);
  EXPECT_TRUE(why.starts_with("flops_exceed_matmul_time")) << why;
  EXPECT_NE(why.find("faster dtype"), std::string::npos) << why;
}

TEST_F(SuspectTest, SparsePeak) {
  const std::string why = verdict(flop_of(config(32), 8), flop_of(config(32), 8), 0.85, true);
  EXPECT_TRUE(why.starts_with("sparse_peak")) << why;
}

TEST_F(SuspectTest, FarBelowOnComputeBoundWorkOnly) {
  const double step = flop_of(config(32), 8);
  EXPECT_TRUE(verdict(step, step / 5000).starts_with("mfu_below_0.1"));
  RegionSummary compiling = ran(step, 0.85);  // for an hour, with the GPU idle
  compiling.flop = step;
  compiling.elapsed_ns *= 10'000;
  complete_metrics(compiling, Phase::kTrain, h100());
  EXPECT_LT(*compiling.mfu, 0.001);
  EXPECT_EQ(compiling.bound, Bound::kCompute);
  EXPECT_EQ(compiling.suspect, "") << "its idle time says why";
  RegionSummary decode = ran(step, 0.85);
  decode.flop = step / 5000;
  decode.bytes = 0.9 * 3350e9 * seconds(decode.elapsed_ns);
  complete_metrics(decode, Phase::kDecode, h100());
  EXPECT_EQ(decode.bound, Bound::kMemory);
  EXPECT_EQ(decode.suspect, "");  // decode at batch 1 is honestly low
}

TEST(Metrics, ClockIsItsOwnFigure) {
  const Peak peak = h100();
  EXPECT_NEAR(*clock_ratio(1'464'000, peak), 0.8, 1e-12);  // the table's peak stands for 1830 MHz
  EXPECT_FALSE(clock_ratio(0, peak));
  PeakOptions config;
  config.tflops = 500;
  DeviceFacts facts;
  EXPECT_FALSE(clock_ratio(1'464'000, find_peak(facts, DType::kBf16, config)));
}

}  // namespace
}  // namespace mfu
