// Tiles, padding and waves: kernels whose tensor operations Nsight Compute counted, launches of public traces, brute
// force.
#include "core/kernels/tile.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/kernel_traits.h"

namespace mfu {
namespace {

struct Counted {
  std::string kernel;
  Grid grid;
  double tensor_ops = 0;
};

/// The rows of counted/ncu_rtx5090.tsv.
std::vector<Counted> counted_kernels() {
  std::vector<Counted> rows;
  std::ifstream file(std::string(MFU_TEST_DATA) + "/counted/ncu_rtx5090.tsv");
  std::string line;
  std::getline(file, line);  // the names of the columns
  while (std::getline(file, line)) {
    std::vector<std::string> fields;
    for (std::size_t at = 0; at <= line.size();) {
      const std::size_t end = std::min(line.find('\t', at), line.size());
      fields.push_back(line.substr(at, end - at));
      at = end + 1;
    }
    Counted row{fields.at(3), {}, 0};
    EXPECT_EQ(std::sscanf(fields.at(1).c_str(), "(%u, %u, %u)", &row.grid.x, &row.grid.y, &row.grid.z), 3);
    std::string digits;
    for (const char c : fields.at(5))
      if (c != ',') digits += c;
    row.tensor_ops = std::stod(digits);
    rows.push_back(row);
  }
  return rows;
}

TEST(Tile, EqualsWhatNsightComputeCounted) {
  // The sizes that the name and the grid do not have; tensor operations are multiplications and additions.
  const std::map<std::string, ProblemSize> problems = {{"256x128_32x3", {0, 0, 576}},
                                                       {"128x256_32x3", {0, 0, 2304}},
                                                       {"32x32_128x2", {0, 0, 1024}},
                                                       {"fmha_cutlassF", {196, 196, 64}},
                                                       {"flash_fwd_splitkv", {1, 1000, 128}}};
  int compared = 0;
  for (const Counted& row : counted_kernels()) {
    std::optional<ProblemSize> problem;
    for (const auto& [piece, sizes] : problems)
      if (row.kernel.find(piece) != std::string::npos) problem = sizes;
    const auto tiling = tiling_of(row.kernel, row.grid, problem);
    if (!problem) {
      EXPECT_FALSE(tiling) << row.kernel;  // cuBLAS's GEMV, on CUDA cores, and kernels that multiply no matrices
      EXPECT_EQ(row.tensor_ops, 0) << row.kernel;
      continue;
    }
    ASSERT_TRUE(tiling && tiling->padded_flop) << row.kernel;
    EXPECT_EQ(*tiling->padded_flop, row.tensor_ops) << row.kernel;
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

/// Grids of launches in tracelens_vllm_eager_b200_rank0, tracelens_bert_small_h100, tracelens_qwen05b_h100 and
/// kineto_resnet50_v100_w0, with the sizes that PyTorch wrote beside them.
TEST(Tile, LaunchesOfPublicTraces) {
  struct Launch {
    const char* kernel;
    Grid grid;
    ProblemSize problem;
    std::int64_t tiles;
  };
  const Launch launches[] = {
      {"nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", {140, 1, 1}, {2880, 888, 512}, 140},
      {"nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", {140, 1, 1}, {640, 888, 2880}, 140},
      {"nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT", {112, 1, 1}, {128, 888, 2880}, 112},
      {"nvjet_tst_192x8_64x8_4x1_v_bz_TNT", {132, 1, 1}, {25136, 1, 2880}, 131},  // a whole cluster of four more
      {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(Params)",
       {40, 2, 1},
       {512, 141, 512},
       80},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(Params)",
       {16, 15, 1},
       {30522, 141, 512},
       240},
      {"volta_sgemm_128x32_nt", {16, 32, 1}, {2048, 1000, 32}, 512},
      {"volta_sgemm_64x32_sliced1x4_tn", {16, 1, 5}, {1000, 32, 2048}, 16},  // k is split by 5
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__"
       "5x_"
       "cublas",
       {132, 1, 1},
       {2816, 8944, 1024},
       1540},  // persistent: a block per SM
  };
  for (const Launch& l : launches) {
    const auto tiling = tiling_of(l.kernel, l.grid, l.problem);
    ASSERT_TRUE(tiling) << l.kernel;
    EXPECT_EQ(tiling->tiles, l.tiles) << l.kernel;
    EXPECT_FALSE(tiling->upper_bound);
    EXPECT_GE(*tiling->padded_flop, 2.0 * static_cast<double>(l.problem.m * l.problem.n * l.problem.k)) << l.kernel;
  }
}

TEST(Tile, WhatTheNameDoesNotSayIsNotSplit) {
  const ProblemSize problem{4096, 4096, 4096};
  for (const char* name :
       {"triton_tem_fused_mm_1", "fused_moe_kernel", "void gemv2T_kernel_val<int, int, float, float, 128>(int)",
        "void splitKreduce_kernel<32, 16, int, float>(int)", "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt",
        "void cutlass::Kernel<cutlass::gemm::kernel::GemmGrouped<cutlass_80_tensorop_s16816gemm_128x128_32x3>>(int)",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(float)", "ncclDevKernel_AllReduce_Sum_bf16_128x64_",
        "nvjet", "nvjet_tst_", "ampere_sgemm_128x", "ampere_sgemm_99999999x64_nn", ""}) {
    EXPECT_FALSE(tiling_of(name, {64, 64, 1}, problem)) << name;
  }
  const char* persistent = "sm90_xmma_gemm_bf16bf16_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas";
  EXPECT_FALSE(tiling_of(persistent, {132, 1, 1}, std::nullopt));
  EXPECT_TRUE(tiling_of(persistent, {132, 1, 1}, problem));
  // A grid that is too small for the problem: this is another product.
  EXPECT_FALSE(tiling_of("ampere_sgemm_128x64_nn", {22, 63, 1}, ProblemSize{2798, 4096, 64}));
  EXPECT_FALSE(tiling_of("ampere_sgemm_128x64_nn", {}, problem));
  const auto by_grid = tiling_of("ampere_sgemm_128x64_nn", {22, 64, 1}, std::nullopt);
  ASSERT_TRUE(by_grid);
  EXPECT_TRUE(by_grid->upper_bound);
  EXPECT_EQ(by_grid->tiles, 22 * 64);
  EXPECT_FALSE(by_grid->padded_flop);
}

TEST(Tile, Cutlass3HasItsTileAmongTheArguments) {
  const std::string name =
      "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
      "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4, "
      "cute::tuple<cute::C<2>, cute::C<1>, cute::C<1>>, cutlass::gemm::KernelTmaWarpSpecializedCooperative>, "
      "cute::tuple<cute::C<128>, cute::C<256>, cute::C<64>>, cutlass::bfloat16_t>>>(Params)";
  EXPECT_FALSE(tiling_of(name, {132, 1, 1}, std::nullopt));
  const auto tiling = tiling_of(name, {132, 1, 1}, ProblemSize{4096, 4096, 1000});
  ASSERT_TRUE(tiling);
  EXPECT_EQ(tiling->tile_m, 128U);
  EXPECT_EQ(tiling->tile_n, 256U);
  EXPECT_EQ(tiling->tiles, 32 * 16);
  EXPECT_EQ(*tiling->padded_flop, 2.0 * 4096 * 4096 * 1024);
}

/// FlashAttention-2 against a walk over all pairs of a query and a key.
TEST(Tile, FlashAttentionComputesTheBlocksThatHoldAVisiblePair) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t keys = 1 + random() % 700, queries = 1 + random() % keys;
    const bool causal = random() % 2 == 0, backward = random() % 2 == 0;
    const std::int64_t bm = 64 << (random() % 2), bn = 64 << (random() % 2), width = 64 << (random() % 2);
    const auto blocks = [](std::int64_t size, std::int64_t block) { return (size + block - 1) / block; };
    std::vector<std::vector<bool>> met(blocks(queries, bm), std::vector<bool>(blocks(keys, bn)));
    for (std::int64_t q = 0; q < blocks(queries, bm) * bm; ++q)
      for (std::int64_t k = 0; k < keys; ++k)
        if (!causal || k <= q + keys - queries) met[q / bm][k / bn] = true;
    std::int64_t pairs = 0;
    for (const auto& row : met)
      for (const bool one : row) pairs += one ? 1 : 0;
    const std::string traits = std::to_string(width) + ", " + std::to_string(bm) + ", " + std::to_string(bn);
    const std::string flags = std::string("false, ") + (causal ? "true" : "false") + ", false, false, false, true";
    const std::string name = backward
                                 ? "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<" +
                                       traits + ", 8, 4, 4, 4, false, true>, " + flags + ", false>(Flash_bwd_params)"
                                 : "void flash_fwd_kernel<Flash_fwd_kernel_traits<" + traits + ", 4, false, false>, " +
                                       flags + ", false, false>(Flash_fwd_params)";
    const auto along = static_cast<std::uint32_t>(backward ? blocks(keys, bn) : blocks(queries, bm));
    const auto tiling = tiling_of(name, {along, 3, 5}, ProblemSize{queries, keys, width});
    ASSERT_TRUE(tiling) << name << " " << queries << " " << keys;
    EXPECT_EQ(tiling->tiles, pairs * 15) << name << " " << queries << " " << keys;
    EXPECT_EQ(*tiling->padded_flop,
              (backward ? 10.0 : 4.0) * static_cast<double>(bm * bn * width) * static_cast<double>(pairs) * 15);
  }
}

/// Names of published traces: a tile is one that a block can hold, and only of kernels that multiply matrices.
TEST(Tile, NamesOfPublishedTraces) {
  std::ifstream file(std::string(MFU_TEST_DATA) + "/reference/kernel_names.csv");
  std::string line;
  int matmuls = 0, tiled = 0;
  while (std::getline(file, line)) {
    const std::size_t quote = line.find('"');
    const std::string name = quote != std::string::npos ? line.substr(quote + 1, line.rfind('"') - quote - 1)
                                                        : line.substr(line.find(',', line.find(',') + 1) + 1);
    const auto tiling = tiling_of(name, {1000, 10, 1}, ProblemSize{1000, 1000, 1000});
    if (!is_matmul(classify_kernel(name))) {
      EXPECT_FALSE(tiling) << name;
      continue;
    }
    ++matmuls;
    if (!tiling) continue;
    ++tiled;
    EXPECT_GE(tiling->tile_m * tiling->tile_n, 64U * 16U) << name;
    EXPECT_LE(tiling->tile_m * tiling->tile_n, 256U * 256U) << name;
    EXPECT_LE(tiling->tile_k, 256U) << name;
  }
  EXPECT_GT(matmuls, 140);
  EXPECT_GT(tiled, 80);
}

}  // namespace
}  // namespace mfu
