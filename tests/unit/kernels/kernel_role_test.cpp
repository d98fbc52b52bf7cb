// Families of kernel names: real ones, and the traps among them.
#include "core/kernels/kernel_traits.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

namespace mfu {
namespace {

TEST(KernelRole, RealNames) {
  using enum KernelRole;
  const std::pair<std::string_view, KernelRole> names[] = {
      {"void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>(int, int volatile*)",
       kOptimizer},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
       "namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, "
       "0>, "
       "std::plus<float>, float>(at::native::(anonymous namespace)::TensorListMetadata<2>)",
       kForeach},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&, "
       "c10::Scalar const&)::{lambda()#2}>(int)",
       kForeach},
      {"triton_for_fused_3", kForeach},
      {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", kComm},
      {"void cudnn::bn_bw_1C11_singleread<float, 512, true, 1, 2, 0>(cudnn::bn_bw_1C11_args<float>)", kNormBackward},
      {"void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(cudnn::bn_fw_tr_1C11_args<float>)", kNorm},
      {"void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long, long, float const*)",
       kNormBackward},
      {"void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true, false>(float*)",
       kSoftmaxBackward},
      {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)", kSoftmax},
      {"void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*, float*)", kLoss},
      {"void cunn_ClassNLLCriterion_updateGradInput_kernel<float>(float*, float*, long*)", kSoftmaxBackward},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, "
       "long, 4, 4> >(at::native::ReduceOp<float>)",
       kSampling},
      {"void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, __hip_bfloat16, 128>(__hip_bfloat16*)",
       kAttentionDecode},
      {"fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", kAttentionPrefill},
      {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>, false>(p)",
       kAttention},
      {"void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>(Flash_bwd_params)",
       kAttentionBackward},
      {"void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>(__nv_bfloat16 const*)", kCacheWrite},
      {"void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", kRope},
      {"void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)", kConvBackward},
      {"nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", kGemm},
      {"void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*)", kNorm},
      {"std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
       "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, flash::AdamFunctor*)",
       kNorm},
      {"void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*)",
       kElementwiseBackward},
  };
  for (const auto& [name, expected] : names) EXPECT_EQ(role_of_kernel(name).role, expected) << name;
}

TEST(KernelRole, Traps) {
  using enum KernelRole;
  // FBGEMM's namespace holds the letters of a matmul, its embedding backward is its optimizer too.
  EXPECT_NE(role_of_kernel("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int)").role, kGemm);
  EXPECT_EQ(role_of_kernel("void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1"
                           "<float, float, float, 5ul>(at::GenericPackedTensorAccessor<float, 2ul>)")
                .flags,
            kFlagBackward);
  // cuDNN's prefixes do not follow the direction of the pass; "unrolled" contains "roll".
  EXPECT_EQ(role_of_kernel("cudnn_infer_volta_scudnn_128x64_stridedB_dgrad_nn").role, kConvBackward);
  EXPECT_EQ(role_of_kernel("void at::native::unrolled_elementwise_kernel<at::native::CopyFunctor>(int)").role,
            kElementwise);
  // Parameter types name other kernels.
  EXPECT_EQ(role_of_kernel("copy_rows(flash::AdamFunctor*, multi_tensor_apply_kernel*)").flags, 0);
  EXPECT_EQ(role_of_kernel("").role, kOther);
}

TEST(KernelRole, Copies) {
  using enum KernelRole;
  EXPECT_EQ(copy_direction("Memcpy HtoD (Pageable -> Device)"), CopyDirection::kToDevice);
  EXPECT_EQ(copy_direction("Memcpy HtoA"), CopyDirection::kToDevice);
  EXPECT_EQ(copy_direction("[CUDA memcpy DtoH]"), CopyDirection::kToHost);
  EXPECT_EQ(copy_direction("CopyDeviceToHost"), CopyDirection::kToHost);
  EXPECT_EQ(copy_direction("Memcpy DtoD (Device -> Device)"), CopyDirection::kWithin);
  EXPECT_EQ(copy_direction("Memcpy PtoP"), CopyDirection::kWithin);
  EXPECT_EQ(copy_direction("Memcpy"), CopyDirection::kUnknown);
  EXPECT_EQ(copy_role(CopyDirection::kToDevice), kCopyToDevice);
  EXPECT_EQ(copy_role(CopyDirection::kToHost), kCopyToHost);
  EXPECT_EQ(copy_role(CopyDirection::kWithin), kCopyWithin);
  EXPECT_EQ(copy_role(CopyDirection::kUnknown), kCopyWithin);
}

}  // namespace
}  // namespace mfu
