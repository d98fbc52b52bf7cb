// Where the time of matmuls goes: against times worked out by hand, and properties over random rows.
#include "core/account/executed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "core/rows/metrics.h"
#include "core/rows/region_totals.h"

namespace mfu {
namespace {

constexpr auto kMatmul = static_cast<std::size_t>(TimeClass::kMatmul);
constexpr const char* kTile128 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn";

double sum(const GemmLoss& loss) {
  double all = 0;
  for (const auto part : kGemmLossParts) all += loss.*part;
  return all;
}

class GemmLossTest : public testing::Test {
 protected:
  GemmLossTest() {
    roles_.watch(products_);
    peak_.flop_per_s = 1e15;
    peak_.bytes_per_s = 1e12;
    peak_.by_dtype.fill(1e15);
    peak_.sm_count = 100;
  }
  /// `calls` of a product; the shortest took `least_ns`, all of them `all_ns`.
  void run(Product p, const char* kernel, Grid grid, std::uint64_t calls, DurationNs least_ns, DurationNs all_ns) {
    const KernelNameId name = names_.intern(kernel);
    const KernelForm form = roles_.form_of(name, pack(grid));
    row_.products.add({products_.number_of(p), AfterAttention::kLater, form}, {calls, all_ns, all_ns, least_ns});
    row_.kernel_stats.resize(std::max<std::size_t>(row_.kernel_stats.size(), raw(name) + 1U));
    row_.kernel_stats[raw(name)].count += calls;
    row_.kernel_stats[raw(name)].sum_ns += all_ns;
    flop_ += p.flop() * static_cast<double>(calls);
    matmul_ns_ += all_ns;
  }
  static Product product(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
    Product p;
    p.m = m;
    p.n = n;
    p.k = k;
    p.operands = p.result = DType::kBf16;
    return p;
  }
  /// The row of what ran, of a model with `flop` FLOP, and as much time again without a kernel.
  RegionSummary split(double flop) {
    RegionSummary s;
    s.instances = 1;
    s.flop = flop;
    s.elapsed_ns = 2 * matmul_ns_;
    s.busy_ns = matmul_ns_;
    s.time_ns[kMatmul] = matmul_ns_;
    s.time_ns[static_cast<std::size_t>(TimeClass::kIdle)] = matmul_ns_;
    complete_metrics(s, Phase::kTrain, peak_);
    describe_matmuls(row_, roles_, names_, nullptr, Phase::kTrain, peak_, kComponentsOfRun, s);
    return s;
  }

  Counters counters_;
  KernelNames names_{counters_};
  ProductTable products_;
  ProductRoles roles_{nullptr, names_};
  Peak peak_;
  RegionRow row_;
  double flop_ = 0;
  DurationNs matmul_ns_ = 0;
};

TEST_F(GemmLossTest, EachCauseHasItsTime) {
  // 1,600 full tiles are 16 waves of 100 SMs, so neither tiles nor waves lose. At peak a call takes 429,496.7 ns.
  run(product(5120, 5120, 8192), kTile128, {40, 40, 1}, 10, 500'000, 5'500'000);
  const double flop = 10 * 2.0 * 5120 * 5120 * 8192;
  const double elapsed = 11e6;
  RegionSummary s = split(flop);
  ASSERT_TRUE(s.gemm_loss);
  EXPECT_NEAR(s.gemm_loss->shape * elapsed, 10 * (500'000 - 429'496.7296), 1e-3);
  EXPECT_NEAR(s.gemm_loss->rest * elapsed, 500'000, 1e-3);
  EXPECT_NEAR(s.gemm_loss->padding + s.gemm_loss->tiles + s.gemm_loss->waves + s.gemm_loss->not_split, 0, 1e-9);
  EXPECT_NEAR(sum(*s.gemm_loss), (*s.lost)[kMatmul], 1e-12);
  EXPECT_EQ(s.executed->tile_flop, flop);
  EXPECT_EQ(s.executed->tiled_ns, 5'500'000);
  // A model with a tenth less FLOP: the rest is padding.
  s = split(0.9 * flop);
  EXPECT_NEAR(s.gemm_loss->padding * elapsed, 0.1 * flop / 1e6, 1e-3);
  EXPECT_NEAR(sum(*s.gemm_loss), (*s.lost)[kMatmul], 1e-12);
  // The clock at 90 % takes a tenth of the kernels' time, of what shapes and slow calls lost.
  const GemmLoss before = *s.gemm_loss;
  set_clock_ratio(0.9, s);
  EXPECT_NEAR(s.gemm_loss->clock * elapsed, 550'000, 1e-3);
  EXPECT_NEAR(sum(*s.gemm_loss), sum(before), 1e-12);
}

TEST_F(GemmLossTest, TilesBeyondTheEdgeAndTheLastWave) {
  // 41 x 41 tiles for 5,121 x 5,121: 1,681 on 100 SMs are 17 waves, 16.81 of them full.
  run(product(5121, 5121, 8192), kTile128, {41, 41, 1}, 1, 900'000, 900'000);
  const double flop = 2.0 * 5121 * 5121 * 8192, padded = 2.0 * 41 * 128 * 41 * 128 * 8192;
  const RegionSummary s = split(flop);
  EXPECT_NEAR(s.gemm_loss->tiles * 1.8e6, (padded - flop) / 1e6, 1e-3);
  EXPECT_NEAR(s.gemm_loss->waves * 1.8e6, padded / 1e6 * (17 / 16.81 - 1), 1e-3);
  EXPECT_EQ(s.executed->tile_flop, padded);
}

TEST_F(GemmLossTest, WhereMemoryIsSlowerThanTheTilesNeitherTilesNorWavesAreTheCause) {
  // One row in tiles of 128: the weights take 33.6 us to read, the padded tiles 4.3 us to compute.
  run(product(4096, 1, 4096), kTile128, {32, 1, 1}, 5, 36'000, 190'000);
  const RegionSummary s = split(5 * 2.0 * 4096 * 4096);
  EXPECT_EQ(s.gemm_loss->tiles, 0);
  EXPECT_EQ(s.gemm_loss->waves, 0);
  EXPECT_NEAR(s.gemm_loss->shape * 380'000, 5 * (36'000 - 33.554432), 1e-3);
}

TEST_F(GemmLossTest, AKernelThatSaysNoTileIsNotSplit) {
  run(product(4096, 4096, 4096), kTile128, {32, 32, 1}, 1, 200'000, 200'000);
  run(product(4096, 4096, 4096), "triton_tem_fused_mm_1", {32, 32, 1}, 1, 300'000, 300'000);
  const RegionSummary s = split(4.0 * 4096 * 4096 * 4096);
  EXPECT_NEAR(s.gemm_loss->not_split * 1e6, 300'000 - 137'438.953472, 1e-3);
  EXPECT_EQ(s.executed->tiled_ns, 200'000);
}

TEST_F(GemmLossTest, NothingIsSaidWithoutATileOrAModel) {
  run(product(4096, 4096, 4096), "triton_tem_fused_mm_1", {32, 32, 1}, 1, 300'000, 300'000);
  EXPECT_FALSE(split(1e11).gemm_loss);
  run(product(4096, 4096, 4096), kTile128, {32, 32, 1}, 1, 200'000, 200'000);
  EXPECT_TRUE(split(1e11).gemm_loss);
  EXPECT_FALSE(split(1e15).gemm_loss);  // more than the time allows: no part of it is known
}

TEST_F(GemmLossTest, PartsAreNeverNegativeAndAlwaysSumToTheLoss) {
  std::mt19937_64 random(7);
  const auto below = [&](std::uint64_t n) { return 1 + random() % n; };
  RegionTotals totals;
  double lost_s = 0, elapsed_s = 0;
  for (int round = 0; round < 500; ++round) {
    row_ = {};
    flop_ = 0;
    matmul_ns_ = 0;
    peak_.sm_count = static_cast<std::uint32_t>(random() % 200);
    for (std::uint64_t i = below(6); i > 0; --i) {
      const Product p = product(below(5000), below(5000), below(5000));
      const auto blocks = [](std::uint64_t size) { return static_cast<std::uint32_t>((size + 127) / 128); };
      const std::uint64_t calls = below(20);
      const auto least = static_cast<DurationNs>(below(1'000'000));
      run(p, random() % 4 == 0 ? "void gemv2T_kernel_val<int>(int)" : kTile128, {blocks(p.m), blocks(p.n), 1}, calls,
          least, static_cast<DurationNs>(calls) * least + static_cast<DurationNs>(random() % 100'000));
    }
    row_.cut = random() % 3 == 0;
    RegionSummary s = split(flop_ * static_cast<double>(random() % 3000) / 2000);
    if (random() % 2 == 0) set_clock_ratio(0.5 + static_cast<double>(random() % 100) / 150, s);
    if (!s.lost) {
      EXPECT_FALSE(s.gemm_loss);
      continue;
    }
    if (s.gemm_loss) {
      for (const auto part : kGemmLossParts) EXPECT_GE(*s.gemm_loss.*part, 0);
      for (const Component& c : s.components) {
        if (c.loss) {
          EXPECT_NEAR(sum(*c.loss) + *c.of_peak, 1, 1e-9);
        }
      }
      EXPECT_NEAR(sum(*s.gemm_loss), (*s.lost)[kMatmul], 1e-9);
    }
    totals.add(s, {peak_.flop_per_s, peak_.bytes_per_s});
    lost_s += (*s.lost)[kMatmul] * seconds(s.elapsed_ns);
    elapsed_s += seconds(s.elapsed_ns);
    const RegionSummary together = totals.summed().sum;
    ASSERT_TRUE(together.lost);
    EXPECT_NEAR((*together.lost)[kMatmul], lost_s / elapsed_s, 1e-9);
    if (!together.gemm_loss) continue;
    EXPECT_NEAR(sum(*together.gemm_loss), lost_s / elapsed_s, 1e-9);
  }
  EXPECT_TRUE(totals.summed().sum.gemm_loss);
}

}  // namespace
}  // namespace mfu
