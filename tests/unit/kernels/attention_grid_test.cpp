// Names as PyTorch, flash-attn and vLLM have them.
#include "core/kernels/attention_grid.h"

#include <gtest/gtest.h>

namespace mfu {
namespace {

using Part = AttentionKernel::Part;

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

  const AttentionKernel backward = attention_kernel_of(
      "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, "
      "4, false, false, cutlass::bfloat16_t>, false, true, false, false, true, true, false>(Flash_bwd_params)");
  EXPECT_EQ(backward.part, Part::kBackward);
  EXPECT_EQ(backward.queries_per_block, 0u);  // x counts keys, or processors
  EXPECT_EQ(sequences_of(backward, {8, 4, 12}), 4);
  const AttentionKernel helper = attention_kernel_of(
      "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, "
      "false, cutlass::bfloat16_t> >(Flash_bwd_params)");
  EXPECT_EQ(helper.part, Part::kHelper);
  EXPECT_EQ(helper.queries_per_block, 128u);
  EXPECT_EQ(sequences_of(helper, {8, 4, 12}), 4);
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
