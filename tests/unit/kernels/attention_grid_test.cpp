// Names as PyTorch, flash-attn and vLLM have them.
#include "core/kernels/attention_grid.h"

#include <gtest/gtest.h>

#include <string>

namespace mfu {
namespace {

using Part = AttentionKernel::Part;
using Mask = AttentionKernel::Mask;

TEST(AttentionGrid, FlashAttention2) {
  const AttentionKernel forward = attention_kernel_of(
      "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
      "cutlass::bfloat16_t, "
      "Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, false, true, false, false, true, true, false, "
      "false>(pytorch_flash::Flash_fwd_params)");
  EXPECT_EQ(forward.part, Part::kForward);
  EXPECT_EQ(forward.queries_per_block, 128u);
  EXPECT_EQ(sequences_of(forward, {16, 4, 32}), 4);
  // 2048 tokens are 16 blocks of 128; so are 1921, and 1920 are not.
  EXPECT_TRUE(may_have_queries(forward, {16, 4, 32}, 2048));
  EXPECT_TRUE(may_have_queries(forward, {16, 4, 32}, 1921));
  EXPECT_FALSE(may_have_queries(forward, {16, 4, 32}, 1920));
  EXPECT_FALSE(may_have_queries(forward, {16, 4, 32}, 2049));
  EXPECT_EQ(heads_of(forward, {16, 4, 32}), 32);
  EXPECT_EQ(forward.mask, Mask::kCausal);
  EXPECT_TRUE(forward.whole_blocks);
  EXPECT_EQ(forward.head_dim, 128u);

  const AttentionKernel backward = attention_kernel_of(
      "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, "
      "4, false, false, cutlass::bfloat16_t>, false, true, false, false, true, true, false>(Flash_bwd_params)");
  EXPECT_EQ(backward.part, Part::kBackward);
  EXPECT_EQ(backward.queries_per_block, 0u);  // x counts keys, or processors
  EXPECT_EQ(sequences_of(backward, {8, 4, 12}), 4);
  EXPECT_EQ(backward.head_dim, 64u);
  EXPECT_EQ(backward.mask, Mask::kCausal);
  EXPECT_EQ(backward.keys_per_block, 128u);
  EXPECT_TRUE(has_keys(backward, {8, 4, 12}, 1024));
  EXPECT_FALSE(has_keys(backward, {8, 4, 12}, 1000));  // whole blocks, says the kernel
  EXPECT_FALSE(has_keys(backward, {8, 4, 12}, 1152));
  const AttentionKernel helper = attention_kernel_of(
      "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, "
      "false, cutlass::bfloat16_t> >(Flash_bwd_params)");
  EXPECT_EQ(helper.part, Part::kHelper);
  EXPECT_EQ(helper.queries_per_block, 128u);
  EXPECT_EQ(sequences_of(helper, {8, 4, 12}), 4);
}

/// Flags behind the traits: dropout, causal, local, ALiBi, whole blocks, whole width, and more in later versions.
TEST(AttentionGrid, WhatTheFlagsOfFlashAttention2Say) {
  const auto forward = [](const std::string& flags) {
    return attention_kernel_of(
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<96, 128, 64, 4, (bool)0, (bool)0, "
        "cutlass::half_t, Flash_kernel_traits<96, 128, 64, 4, cutlass::half_t>>" +
        flags + ">(flash::Flash_fwd_params)");
  };
  const AttentionKernel full = forward(", (bool)1, (bool)0, (bool)0, (bool)0, (bool)0, (bool)1, (bool)0");
  EXPECT_EQ(full.mask, Mask::kNone);
  EXPECT_FALSE(full.whole_blocks);
  EXPECT_EQ(full.head_dim, 96u);
  EXPECT_EQ(forward(", false, true, false, false, true, false, false, false").head_dim, 0u);  // 80 in a kernel for 96
  EXPECT_EQ(forward(", false, false, true, false, false, true, false, false").mask, Mask::kUnknown);  // a window
  // Before 2.4 the flags were others.
  for (const char* old : {", false, true, false, true, true, false", ", false, true, true, true, false", ""}) {
    const AttentionKernel kernel = forward(old);
    EXPECT_EQ(kernel.head_dim, 0u) << old;
    EXPECT_EQ(kernel.mask, Mask::kUnknown) << old;
    EXPECT_FALSE(kernel.whole_blocks) << old;
  }
  for (const char* odd : {", false, 1, false, false, true, true, false", ", false, true, false, false, true, true, X",
                          ", , , , , , , ", ", false, true, false, false, true, true, false, f<1>"})
    EXPECT_EQ(forward(odd).head_dim, 0u) << odd;
  EXPECT_EQ(attention_kernel_of("flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128").head_dim, 0u);
}

TEST(AttentionGrid, FlashAttention3IsSaidByItsHelpers) {
  const AttentionKernel before = attention_kernel_of(
      "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<80>, cute::C<128> >, "
      "cutlass::bfloat16_t, float, cutlass::arch::Sm90, true, false> >(Params)");
  EXPECT_EQ(before.part, Part::kHelper);
  EXPECT_EQ(before.queries_per_block, 80u);
  EXPECT_EQ(sequences_of(before, {13, 16, 4}), 4);
  EXPECT_EQ(heads_of(before, {13, 16, 4}), 16);
  EXPECT_TRUE(may_have_queries(before, {13, 16, 4}, 1024));
  for (const char* name : {"FlashAttnBwdPostprocessConvertdQ", "FlashAttnFwdCombine"})
    EXPECT_EQ(attention_kernel_of("void cutlass::device_kernel<flash::" + std::string(name) +
                                  "<cute::tuple<cute::C<80>, cute::C<128> >, float> >(Params)")
                  .part,
              Part::kHelper);
  for (const char* name : {"FlashAttnFwdSm90", "FlashAttnBwdSm90"}) {
    const AttentionKernel kernel = attention_kernel_of(
        "void cutlass::device_kernel<flash::enable_sm90<flash::" + std::string(name) + "<X> > >(P)");
    EXPECT_TRUE(kernel.said_by_helpers);
    EXPECT_NE(kernel.part, Part::kHelper);
    EXPECT_FALSE(sequences_of(kernel, {132, 1, 1}));
  }
}

TEST(AttentionGrid, PyTorchsMemoryEfficientKernels) {
  const AttentionKernel forward = attention_kernel_of(
      "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, "
      "cutlass::arch::Sm80, true, 64, 128, 128, true, true>::Params)");
  EXPECT_EQ(forward.part, Part::kForward);
  EXPECT_EQ(forward.queries_per_block, 64u);
  EXPECT_EQ(sequences_of(forward, {16, 12, 8}), 8);
  EXPECT_EQ(attention_kernel_of("fmha_cutlassF_f32_notaligned_32x128_gmem_sm75(X::Params)").queries_per_block, 32u);
  const AttentionKernel backward = attention_kernel_of(
      "fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<...>::Params)");
  EXPECT_EQ(backward.part, Part::kBackward);
  EXPECT_EQ(sequences_of(backward, {1, 12, 8}), 8);
  EXPECT_EQ(backward.queries_per_block, 0u);
}

TEST(AttentionGrid, DecodeKernels) {
  for (const char* name : {"_fwd_kernel_stage1", "_fwd_grouped_kernel_stage1"}) {
    const AttentionKernel kernel = attention_kernel_of(name);
    EXPECT_EQ(kernel.part, Part::kForward) << name;
    EXPECT_EQ(sequences_of(kernel, {24, 2, 8}), 24) << name;
    EXPECT_EQ(sequences_of(kernel, {70'000, 1, 8}), 70'000) << name;
    EXPECT_FALSE(sequences_of(kernel, {24 * 2 * 8, 1, 1})) << name;
    EXPECT_FALSE(sequences_of(kernel, {})) << name;
  }
  EXPECT_EQ(attention_kernel_of("_fwd_kernel_stage2").part, Part::kHelper);  // adds the splits up
  const AttentionKernel masked = attention_kernel_of(
      "void mmha::masked_multihead_attention_kernel<unsigned short, unsigned short, 128, 256, false, "
      "true>(Multihead_attention_params<unsigned short, false>)");
  EXPECT_EQ(masked.part, Part::kForward);
  EXPECT_EQ(sequences_of(masked, {32, 7, 4}), 7);
}

TEST(AttentionGrid, GridsThatSayNothing) {
  for (const char* name :
       {"void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, "
        "cutlass::bfloat16_t>, false, false, false, true, true, false, true, false>(flash::Flash_fwd_params)",
        "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<...> > >(Params)",
        "fmhaSm100aKernel_QkvBfloat16OBfloat16H128PagedKvCausalP32VarSeqQ128Kv128PersistentContext",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"}) {
    const AttentionKernel kernel = attention_kernel_of(name);
    EXPECT_FALSE(sequences_of(kernel, {132, 1, 1})) << name;
    EXPECT_TRUE(may_have_queries(kernel, {132, 1, 1}, 1)) << name;
  }
  EXPECT_EQ(attention_kernel_of("void flash::flash_fwd_splitkv_combine_kernel<...>(Params)").part, Part::kHelper);
  const AttentionKernel forward =
      attention_kernel_of("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(P)");
  EXPECT_FALSE(sequences_of(forward, {}));               // no grid is known
  EXPECT_FALSE(sequences_of(forward, {1, 0xFFFF, 12}));  // more than is kept of it
  EXPECT_FALSE(sequences_of(attention_kernel_of("flash_fwd_kernel"), {1, 2, 3}));
}

}  // namespace
}  // namespace mfu
