#include "core/kernels/kernel_traits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace mfu {
namespace {

constexpr auto kGemm = KernelClass::kGemm;
constexpr auto kAttention = KernelClass::kAttention;
constexpr auto kComm = KernelClass::kComm;
constexpr auto kOther = KernelClass::kOther;

struct Named {
  KernelClass expected;
  std::string_view name;
};

// Each name as a profiler prints it (long parameter lists cut), classed by hand.
// clang-format off
constexpr auto kNames = std::to_array<Named>({
    // cuBLAS
    {kGemm, "volta_sgemm_128x64_nt"},
    {kGemm, "ampere_sgemm_32x32_sliced1x4_tn"},
    {kGemm, "ampere_sgemm_64x32_sliced1x4_nn"},
    {kGemm, "maxwell_sgemm_fp16_128x128_tn"},
    {kGemm, "volta_h884gemm_256x128_ldg8_tn"},
    {kGemm, "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn"},
    {kGemm, "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn"},
    {kGemm, "ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_stages_64x3_tn"},
    {kGemm, "ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_nn"},
    {kGemm, "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn"},
    {kGemm, "ampere_h16816gemm_256x128_ldg8_stages_32x3_tn"},
    {kGemm, "ampere_dgemm_tensor_op_64x64_nn"},
    {kGemm, "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel"},
    {kGemm, "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x64_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"},
    {kGemm, "sm86_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize32x32x64_stage6_warpsize2x2x1_tensor16x8x16_execute_kernel_trt"},
    {kGemm, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"},
    {kGemm, "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128_cgasize1x1x1_stage4_gmmastage2_warpgroupsize1x1x1_tensor64x64x32_execute_kernel__51_cublas"},
    {kGemm, "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, false, cublasGemvParams<cublasGemvTensorStridedBatched<float const>>>(float)"},
    {kGemm, "void gemv2N_kernel<int, int, __half, __half, __half, float, 128, 8, 4, 4, 1, false, cublasGemvParamsEx<int>>(int)"},
    {kGemm, "void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, false, cublasGemvParams<float>>(float)"},
    {kGemm, "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true, true, false, 7, false, cublasGemvParamsEx<int>>(int)"},
    {kGemm, "void gemvx::kernel<int, int, float, float, float, float, false, true, false, false, 7, false, cublasGemvParams<float>>(float)"},
    {kGemm, "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false, cublasGemvTensorStridedBatched<float const>>(float)"},
    {kGemm, "void gemmk1_kernel<int, float, 256, 5, false, false, false, false, cublasGemvTensorStridedBatched<float const>>(float)"},
    {kGemm, "void gemm_kernel2x2_core<double, false, false, false, false, false>(double*, double const*, double const*, int)"},
    {kGemm, "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float>>>(cublasDotParams<float>)"},
    {kGemm, "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>, cublasGemvTensorStridedBatched<float const>>(float)"},
    {kGemm, "void splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(cublasSplitKParams<float>)"},
    // cuBLASLt
    {kGemm, "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"},
    {kGemm, "nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT"},
    {kGemm, "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT"},
    {kGemm, "nvjet_qqtst_128x128_128x6_2x1_v_bz_TNT"},
    {kGemm, "nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT"},
    {kGemm, "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN"},
    {kGemm, "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16, __nv_bfloat16, float, __nv_bfloat16, true, true, false>(cublasLt::cublasSplitKParams<float>)"},
    {kGemm, "void cublasLt::epilogue::impl::globalKernel<8, 32, float, __half, __half, __half, true, true, 1>(int, int, long)"},
    {kGemm, "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, float*, cublasLtEpilogue_t)"},
    // CUTLASS 2 and 3, and what is built on them
    {kGemm, "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align1>(cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align1::Params)"},
    {kGemm, "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(T1::Params)"},
    {kGemm, "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(T1::Params)"},
    {kGemm, "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)"},
    {kGemm, "Kernel2"},
    {kGemm, "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<int>>>(T1::Params)"},
    {kGemm, "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<int>>>>(T1::Params)"},
    {kGemm, "void cutlass::device_kernel<vllm::cutlass_3x_gemm<cutlass::float_e4m3_t, cutlass::bfloat16_t>::GemmKernel>(T1::Params)"},
    {kGemm, "void cutlass::device_kernel<tensorrt_llm::cutlass_extensions::GemmUniversal<int>>(T1::Params)"},
    {kGemm, "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS1_17GroupProblemShapeIN4cute5tupleIJiiiEEEEEEEEvNT_6ParamsE"},
    {kGemm, "_ZN7cutlass6KernelINS_4gemm6kernel23GemmWithEpilogueVisitorINS1_11threadblock13MmaMultistageEEEEEvNT_6ParamsE"},
    {kGemm, "void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<cutlass::MatrixShape<4, 128>>>(T1::Params)"},
    {kGemm, "kernel_cutlass_kernel_flashinfergemmkernelsdense_blockscaled_gemm_sm120_b12xDenseGemmKernel_object_at__tensor000o1"},
    {kGemm, "void at::native::tinygemm_m16n8k16_chunk_kernel<at::native::ALayout_RM<1>, 8>(void const*)"},
    {kGemm, "void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>(int, int, int)"},
    // cuDNN convolutions
    {kGemm, "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_stage5_warpsize2x2x1_g1_tensor16x8x8_execute_kernel_cudnn_infer"},
    {kGemm, "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_split_k_kernel_cudnn_train"},
    {kGemm, "sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"},
    {kGemm, "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cgasize1x1x1_stage4_kernel__5x_cudnn"},
    {kGemm, "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"},
    {kGemm, "cudnn_infer_volta_scudnn_128x64_stridedB_interior_nn_v1"},
    {kGemm, "maxwell_scudnn_128x32_relu_small_nn"},
    {kGemm, "volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1"},
    {kGemm, "volta_fp16_s884cudnn_fp16_256x64_ldg8_dgrad_f2f_exp_small_nhwc2nchw_tt_v1"},
    {kGemm, "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_interior_nhwc_tn_v1"},
    {kGemm, "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_32x4_nhwc_align4>(T1::Params)"},
    {kGemm, "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816dgrad_optimized_f16_128x128_32x4_nhwc_align8>(T1::Params)"},
    {kGemm, "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int, int, int)"},
    {kGemm, "void precomputed_convolve_sgemm<float, 1024, 5, 5, 4, 3, 3, 1, false>(int, int, int)"},
    {kGemm, "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int)"},
    {kGemm, "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int)"},
    {kGemm, "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::WinogradDataParams<float, float>)"},
    {kGemm, "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float, float>(cudnnTensorStruct)"},
    {kGemm, "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(at::GenericPackedTensorAccessor<float const, 4ul>)"},
    {kOther, "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(cudnn::ops::nchw2nhwc_params_t<float>)"},
    {kOther, "void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true, false, (cudnnKernelDataType_t)0>(int)"},
    {kOther, "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)"},
    {kOther, "cask_cudnn_train::computeWgradSplitKOffsetsKernel(cask_cudnn_train::ComputeSplitKOffsetsParams)"},
    {kOther, "void cask__5x_cudnn::computeOffsetsKernel<false, false>(cask__5x_cudnn::ComputeOffsetsParams)"},
    {kOther, "void convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)0>(float, float const*, cudnnTensorStruct)"},
    {kOther, "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(cudnn::bn_fw_tr_1C11_args<float>)"},
    {kOther, "void at::native::im2col_kernel<float>(long, float const*, long, long)"},
    // FlashAttention 1, 2, 3, 4 and what surrounds it
    {kAttention, "void fmha_fwd_loop_kernel<FMHA_kernel_traits<128, 64, 16, 1, 4, 8u, __half>, true, false, false>(FMHA_fprop_params, int)"},
    {kAttention, "void fmha_bwd_dq_dk_dv_loop_kernel<FMHA_kernel_traits<128, 64, 16, 1, 8, 8u, __half>, false, true, -1>(FMHA_dgrad_params)"},
    {kAttention, "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::half_t>, false, true>(Flash_fwd_params)"},
    {kAttention, "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t>>(flash::Flash_fwd_params)"},
    {kAttention, "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>, false, true>(pytorch_flash::Flash_fwd_params)"},
    {kAttention, "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 128, 128, 8>, false>(pytorch_flash::Flash_bwd_params)"},
    {kAttention, "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, pytorch_flash::Flash_bwd_kernel_traits<64, 128, 128, 8>>(pytorch_flash::Flash_bwd_params)"},
    {kAttention, "void pytorch_flash::flash_bwd_convert_dq_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 128, 128, 8>>(pytorch_flash::Flash_bwd_params, int)"},
    {kAttention, "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, true, false, false, false, true, true>(flash::Flash_fwd_params)"},
    {kAttention, "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, 4, 2, true>(flash::Flash_fwd_params)"},
    {kAttention, "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8, cutlass::bfloat16_t, 512>, false, flash::SharedStorageMLA<int>>(Flash_fwd_mla_params)"},
    {kAttention, "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<int>>>>>(T1::Params)"},
    {kAttention, "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90<2, 2>>>>(T1::Params)"},
    {kAttention, "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<128>, cute::C<64>>, cutlass::bfloat16_t, float>>(T1::Params)"},
    {kAttention, "void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<cute::tuple<int>, cutlass::bfloat16_t>>(T1::Params)"},
    {kAttention, "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>, cute::C<128>>, 4, 256, 1, true>>(T1::Params)"},
    {kAttention, "_ZN7cutlass13device_kernelIN5flash19enable_sm90_or_laterINS1_16FlashAttnFwdSm90INS1_25CollectiveMainloopFwdSm90EEEEEEvNT_6ParamsE"},
    {kAttention, "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor0000o11101213_0"},
    {kOther, "void flash::prepare_varlen_num_blocks_kernel<1, true>(int, int, int, int const*)"},
    {kOther, "void get_mla_metadata_kernel(GetDecodingMetadataParams)"},
    // cuDNN attention
    {kAttention, "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"},
    {kAttention, "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1_kernel0_0"},
    {kAttention, "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x128_4x1x1_kernel0_0"},
    {kAttention, "cudnn_generated_fort_native_sdpa_sm100_flash_fprop_f16_knob_1_128x128x128_kernel0_0"},
    {kAttention, "void cudnn::fusion::compute_dot_do_o_specialized<true, __nv_bfloat16, 256, 128, cudnn::fusion::dotProductSequence>(float)"},
    {kAttention, "void cudnn::fusion::convert_dq_to_16bits<__nv_bfloat16, 256, 64>(float)"},
    // FlashInfer
    {kAttention, "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1, 128u, 2u, 2u, 8u, 8u>>(T2)"},
    {kAttention, "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1, 128u>>(T2)"},
    {kAttention, "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 4u, 8u, 16u, 1u, 8u>(T2)"},
    {kAttention, "void flashinfer::BatchDecodeWithPagedKVCacheKernelMLA<2u, 8u, 2u, 32u, 8u, 4u>(T2)"},
    {kAttention, "void flashinfer::SinglePrefillWithKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1>>(T2)"},
    {kAttention, "void flashinfer::PrefillWithKVCacheKernel<flashinfer::CollectiveMainloop<flashinfer::StandardAttention>>(T2)"},
    {kAttention, "void flashinfer::mla::BatchMLAPagedAttentionKernel<flashinfer::mla::KernelTraits<true, 2u>>(T2)"},
    {kAttention, "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u, float, __nv_bfloat16, int>(float*)"},
    {kAttention, "void flashinfer::VariableLengthMergeStatesKernel<8u, 16u, 8u, 4u, float, __nv_bfloat16, int>(float*)"},
    {kOther, "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)"},
    {kOther, "void flashinfer::norm::GemmaRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)"},
    {kOther, "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u, 8u, 16u, __nv_bfloat16, long>(__nv_bfloat16*)"},
    {kOther, "void flashinfer::AppendPagedKVCacheKernel<128u, 8u, __nv_bfloat16, int>(flashinfer::paged_kv_t<__nv_bfloat16, int>)"},
    {kOther, "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, 0, 0, 4u, true, float, int>(float*)"},
    {kOther, "create_flashinfer_kv_indices_triton"},
    {kOther, "create_flash_mla_kv_indices_triton"},
    {kOther, "void concat_mla_k_kernel(__nv_bfloat16*, __nv_bfloat16 const*, __nv_bfloat16 const*)"},
    {kComm, "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, true, true>(T1)"},
    // vLLM and SGLang
    {kAttention, "void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16, 128, (vllm::Fp8KVCacheDataType)0, false>(unsigned short*)"},
    {kAttention, "void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128, (vllm::Fp8KVCacheDataType)0, false, 512>(float*)"},
    {kAttention, "void vllm::paged_attention_v2_reduce_kernel<unsigned short, 128, 128, 512>(unsigned short*, float const*)"},
    {kAttention, "void vllm::merge_attn_states_kernel<__nv_bfloat16, uint4, 128u>(__nv_bfloat16*, float*)"},
    {kAttention, "kernel_unified_attention_2d"},
    {kAttention, "kernel_unified_attention_3d"},
    {kAttention, "reduce_segments"},
    {kAttention, "kernel_paged_attention_2d"},
    {kAttention, "_fwd_kernel"},
    {kAttention, "_fwd_kernel_stage1"},
    {kAttention, "_fwd_grouped_kernel_stage1"},
    {kAttention, "_fwd_kernel_stage2"},
    {kAttention, "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0, 1, 128, 256, false, 4, 1, ck_tile::ComposedAttention<0u, false> >(int)"},
    {kGemm, "fused_moe_kernel"},
    {kGemm, "fused_moe_kernel_gptq_awq"},
    {kGemm, "_w8a8_block_fp8_matmul"},
    {kGemm, "_w8a8_triton_block_scaled_mm"},
    {kGemm, "scaled_mm_kernel"},
    {kGemm, "_lora_shrink_kernel"},
    {kGemm, "_lora_expand_kernel"},
    {kGemm, "_bgmv_shrink_kernel"},
    {kGemm, "_sgmv_expand_kernel"},
    {kGemm, "batched_triton_kernel"},
    {kGemm, "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 4>(int)"},
    {kOther, "_fwd_kernel_ep_scatter_2"},
    {kOther, "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(__nv_bfloat16 const*)"},
    {kOther, "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(__nv_bfloat16 const*)"},
    {kOther, "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)"},
    {kOther, "void vllm::moe::moe_align_block_size_kernel<int>(int*, int*)"},
    {kOther, "void vllm::moe::topkGatingSoftmax<4, 64, 4, 16, int>(float const*)"},
    {kOther, "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(c10::BFloat16*)"},
    {kOther, "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)"},
    {kOther, "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(c10::Float8_e4m3fn*)"},
    {kOther, "void __get_group_gemm_starts<cutlass::float_e4m3_t, cutlass::bfloat16_t, float>(int*)"},
    {kOther, "set_mla_kv_buffer_kernel"},
    {kOther, "void concat_and_cast_mha_k_kernel<__nv_bfloat16>(int)"},
    {kOther, "void vllm::silu_mul_fp8_quant_deep_gemm_kernel<__nv_bfloat16, __nv_fp8_e4m3, 128>(int)"},
    {kOther, "get_num_kv_splits_triton"},
    {kAttention, "_fwd_kernel_alibi"},
    {kAttention, "merge_state_kernel"},
    {kGemm, "grouped_gemm_triton_kernel"},
    {kOther, "void moe_fused_gate_kernel<float, 1, 8, 8>(int)"},
    {kOther, "void at::cuda::detail::prepare_grouped_gemm_data<cutlass::bfloat16_t, cutlass::bfloat16_t>(cutlass::bfloat16_t*)"},
    // TensorRT-LLM
    {kAttention, "fmha_v2_flash_attention_bf16_64_128_S_q_paged_kv_128_causal_tma_ws_sm90_kernel"},
    {kAttention, "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext"},
    {kAttention, "kernel_mha"},
    {kAttention, "xqa_kernel_dt_bf16_d_128_beam_1_kvt_bf16_pagedKV_64_nqpkv_8_m_8_sm_90"},
    {kAttention, "void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<unsigned short, unsigned short, tensorrt_llm::kernels::KVBlockArray, 128, 64>(int)"},
    {kAttention, "_gemm_mha_v2_0x1234abcd"},
    {kGemm, "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3"},
    {kGemm, "void tensorrt_llm::kernels::weight_only::kernel<tensorrt_llm::kernels::weight_only::KernelDetails<int>, 1, 8, 128>(int)"},
    {kGemm, "void tensorrt_llm::kernels::dsv3MinLatencyKernels::fused_a_gemm_kernel<1, 16, 8>(int)"},
    {kComm, "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8, true, false>(tensorrt_llm::kernels::AllReduceParams)"},
    {kComm, "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(int)"},
    {kOther, "void tensorrt_llm::kernels::quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2, __nv_bfloat16, 32, true>(int)"},
    {kOther, "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCache<__nv_bfloat16, __nv_bfloat16>(int)"},
    // xFormers and PyTorch's memory-efficient attention
    {kAttention, "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, cutlass::arch::Sm80, true, 64, 128, 128, true, true>::Params)"},
    {kAttention, "fmha_cutlassB_bf16_aligned_128x128_k128_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::arch::Sm80, cutlass::bfloat16_t>::Params)"},
    {kAttention, "void attention_kernel_batched_impl<AttentionKernel<cutlass::half_t, cutlass::arch::Sm80, true, 64, 64, 64>>(T1::Params)"},
    {kAttention, "void qk_int_sv_f8_attn_kernel<128, 64, 32, 64, 128, (DataType)2>(signed char*)"},
    {kAttention, "_fwd_kernel_splitK"},
    {kAttention, "_splitK_reduce"},
    // Triton and torch.compile
    {kAttention, "_attn_fwd"},
    {kAttention, "_attn_bwd"},
    {kAttention, "_attn_bwd_preprocess"},
    {kAttention, "attn_fwd"},
    {kAttention, "_bwd_kernel"},
    {kAttention, "bwd_kernel_dq"},
    {kAttention, "bwd_kernel_dk_dv"},
    {kAttention, "_bwd_preprocess_do_o_dot"},
    {kAttention, "triton_tem_fused_flex_attention_0"},
    {kAttention, "triton_tem_fused_flex_attention_backward_split_transpose_3"},
    {kGemm, "triton_tem_fused__to_copy_addmm_gelu_t_view_9"},
    {kGemm, "triton_tem_fused_bmm_7"},
    {kGemm, "triton_tem_fused_0"},
    {kGemm, "triton_tem_fused__to_copy_convolution_repeat_unsqueeze_view_2"},
    {kGemm, "triton_mm"},
    {kGemm, "matmul_kernel"},
    {kGemm, "matmul_kernel_persistent"},
    {kGemm, "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu"},
    {kGemm, "_kernel_grouped_gemm"},
    {kGemm, "gemm_fusion_dot_12"},
    {kOther, "triton_poi_fused_addmm_relu_3"},
    {kOther, "triton_red_fused__to_copy_add_mean_mm_mul_pow_rsqrt_2"},
    {kOther, "triton_per_fused__scaled_dot_product_flash_attention_native_layer_norm_1"},
    {kOther, "triton_poi_fused_all_reduce_mul_0"},
    {kOther, "triton_for_fused_0"},
    {kOther, "triton_spl_fused_cumsum_mm_1"},
    {kOther, "triton_for_fused_mm_1"},
    {kOther, "triton_softmax_kernel"},
    {kOther, "_layer_norm_fwd_fused"},
    {kOther, "fused_recurrent_gated_delta_rule_packed_decode_kernel"},
    {kOther, "_chunk_scan_fwd_kernel"},
    {kOther, "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::BFloat16, c10::BFloat16>>(ConvParamsBase)"},
    // DeepGEMM, Marlin, AWQ, GPTQ, Machete, bitsandbytes, ggml
    {kGemm, "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u, 128u, 128u, 128u>(float*)"},
    {kGemm, "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, (cute::UMMA::Major)0, 128u, 128u, 0u>(int*)"},
    {kGemm, "void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u, 16384u, 64u, 32u>(unsigned int)"},
    {kAttention, "void deep_gemm::sm90_fp8_mqa_logits<64u, 128u, false>(int)"},
    {kOther, "void deep_gemm::transpose_fp32<512, 64>(float const*, float*)"},
    {kGemm, "void marlin::Marlin<__nv_bfloat16, 34366955712l, 256, 1, 8, 8, false, 4, 8, false>(int4 const*)"},
    {kGemm, "void marlin_moe_wna16::Marlin<__nv_bfloat16, 1125899906909960l, 256, 4, 16, 4, false, 4, 4, false>(int4 const*)"},
    {kOther, "void marlin::gptq_marlin_repack_kernel<256, 4, false>(unsigned int const*)"},
    {kOther, "void marlin::permute_cols_kernel(int4 const*, int const*, int4*)"},
    {kGemm, "void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int, int, __half*)"},
    {kGemm, "awq_gemm_kernel"},
    {kGemm, "matmul_forward_kernel4(float*, float const*, float const*, float const*, int, int)"},
    {kOther, "void matmul_backward_bias_kernel9<float, true>(float*, __nv_bfloat16 const*, int, int, int)"},
    {kOther, "matmul_backward_bias_kernel4(float*, float const*, int, int, int)"},
    {kOther, "awq_dequantize_kernel"},
    {kGemm, "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 1>(__half const*)"},
    {kOther, "void vllm::gptq::reconstruct_exllama_4bit_kernel(unsigned int const*)"},
    {kGemm, "void cutlass::device_kernel<machete::MacheteKernelTemplate<cutlass::bfloat16_t, cutlass::vllm_uint4b8_t>>(T1::Params)"},
    {kGemm, "void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(int, int, int)"},
    {kOther, "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*)"},
    {kGemm, "void mul_mat_vec_q<(ggml_type)12, 1, false>(void const*)"},
    {kAttention, "void flash_attn_ext_f16<128, 128, 16, 4, 1, false>(char const*)"},
    {kOther, "quantize_q8_1(float const*, void*, long, long)"},
    {kOther, "void flash_attn_mask_to_KV_max<4>(__half2 const*, int*, int, int, int)"},
    {kGemm, "_cce_lse_forward_kernel"},
    {kGemm, "_cce_backward_kernel"},
    {kGemm, "efficient_entropy_kernel_general_mainloop"},
    // TransformerEngine (its GEMMs are cuBLASLt's, its attention cuDNN's or FlashAttention's)
    {kOther, "void transformer_engine::normalization::rmsnorm_fwd_general_kernel<transformer_engine::normalization::Kernel_traits<__nv_bfloat16>>(T1)"},
    {kOther, "void transformer_engine::normalization::ln_bwd_tuned_kernel<transformer_engine::normalization::Kernel_traits<float>>(T1)"},
    {kOther, "void transformer_engine::cast_transpose_general_kernel<8ul, 8ul, float, __nv_bfloat16, __nv_fp8_e4m3>(__nv_bfloat16 const*)"},
    {kOther, "void transformer_engine::detail::cast_transpose_fused_kernel_notaligned<false, true, float>(int)"},
    {kOther, "void transformer_engine::gated_act_kernel<__nv_bfloat16, transformer_engine::Empty>(int)"},
    {kOther, "void transformer_engine::(anonymous namespace)::scaled_aligned_causal_masked_softmax_warp_forward<__nv_bfloat16, __nv_bfloat16, float, 11>(int)"},
    {kOther, "void transformer_engine::fused_rope_forward_kernel<__nv_bfloat16>(int)"},
    {kOther, "void transformer_engine::fused_attn::cu_seqlens_to_offsets(long, int*)"},
    {kOther, "void transformer_engine::setup_grouped_gemm_kernel(int)"},
    {kComm, "void transformer_engine::userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8<8, __nv_fp8_e4m3>(int)"},
    {kComm, "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)"},
    // NCCL, RCCL
    {kComm, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    {kComm, "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    {kComm, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    {kComm, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"},
    {kComm, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"},
    {kComm, "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)"},
    {kComm, "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymkDevWorkArgs)"},
    {kComm, "ncclSymDevKernel_AllGather_STMC(ncclSymDevArgs)"},
    {kComm, "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)"},
    // NVSHMEM, DeepEP
    {kComm, "nvshmemi_proxy_barrier_on_stream_kernel"},
    {kComm, "void nvshmemi_reduce_on_stream_kernel<float, (rdxn_ops)7>(int, float*, float const*, unsigned long)"},
    {kComm, "nvshmem_barrier_all_kernel()"},
    {kComm, "void c10d::nvshmem_extension::nvshmem_all_to_all_vdev<1>(void*)"},
    {kComm, "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*)"},
    {kComm, "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int, int, int, int**, int)"},
    {kComm, "void deep_ep::internode::notify_dispatch<false, 4>(int const*, int*, int, int const*)"},
    {kComm, "void deep_ep::internode_ll::dispatch<true, true, 6144>(void*, void*, int*, long*)"},
    {kComm, "void deep_ep::internode_ll::combine<false, 6144, 11, 4>(void*, void*, int*)"},
    {kOther, "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)"},
    // Custom all-reduce
    {kComm, "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)"},
    {kComm, "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 8>(sglang::RankData*)"},
    {kComm, "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)"},
    {kComm, "void c10d::symmetric_memory::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(c10::BFloat16**)"},
    {kComm, "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)"},
    {kComm, "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>>(int)"},
    {kComm, "void (anonymous namespace)::barrier_kernel<8>(unsigned int**)"},
    {kComm, "void c10d::symmetric_memory::put_signal_kernel(unsigned int**, int, int, int, unsigned long)"},
    {kComm, "void c10d::symmetric_memory::wait_signal_kernel(unsigned int**, int, int, int, unsigned long)"},
    {kComm, "mscclKernel_Sum_half_LL(ncclDevComm*, mscclAlgo*)"},
    {kGemm, "void flux::gemm_allreduce_kernel<8>(int)"},
    // AMD
    {kGemm, "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1"},
    {kGemm, "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<int>, true>(T1)"},
    {kAttention, "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync<int>>>(T1)"},
    {kAttention, "void ck_tile::kentry<256, 2, ck_tile::UnifiedAttentionKernel<ck_tile::UnifiedAttentionPipeline<int>>>(T1)"},
    {kGemm, "void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::tensor_operation::device::Conv<int>>(T1)"},
    {kGemm, "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1"},
    {kAttention, "_ZN5aiter24fmha_fwd_hd128_bf16_rttE"},
    {kAttention, "mla_a16w16_qh16_m16x4_n16x1_coex0_mask1"},
    {kOther, "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib"},
    // Everything else
    {kOther, "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>>(int)"},
    {kOther, "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}>(int)"},
    {kOther, "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::gemm_and_attention_bias_functor>>(int)"},
    {kOther, "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, cublasGemvParams>>>(int)"},
    {kOther, "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>>(int)"},
    {kOther, "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)"},
    {kOther, "void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>(int, int, int)"},
    {kOther, "void split_embedding_codegen_forward_weighted_kernel<float, fbgemm_gpu::gemm, float, long, 1ul>(float)"},
    {kOther, "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false>(long*)"},
    {kOther, "gemma_fused_add_rmsnorm_kernel"},
    {kOther, "saxpy(double *, double *, double *, double, int)"},
    {kOther, "void cutlass::device_kernel<my_scan<int>>(T1::Params)"},
    {kOther, "Memcpy DtoH (Device -> Pageable)"},
    {kOther, "Memset (Device)"},
});
// clang-format on

TEST(KernelClassTest, HandCheckedNames) {
  static_assert(kNames.size() >= 150);
  std::set<std::string_view> seen;
  for (const Named& n : kNames) {
    EXPECT_EQ(name(classify_kernel(n.name)), name(n.expected)) << n.name;
    EXPECT_TRUE(seen.insert(n.name).second) << "twice: " << n.name;
  }
}

// One field of a CSV line; `at` moves past the comma behind it. Quotes are doubled inside a quoted field.
std::string take_field(const std::string& line, std::size_t& at) {
  std::string field;
  const bool quoted = at < line.size() && line[at] == '"';
  if (quoted) ++at;
  for (; at < line.size(); ++at) {
    if (quoted && line[at] == '"') {
      if (at + 1 >= line.size() || line[at + 1] != '"') {
        ++at;
        break;
      }
      ++at;
    } else if (!quoted && line[at] == ',') {
      break;
    }
    field += line[at];
  }
  ++at;
  return field;
}

KernelClass expected_of(const std::string& csv_class) {
  if (csv_class == "gemm" || csv_class.starts_with("conv")) return kGemm;
  if (csv_class.starts_with("attention")) return kAttention;
  if (csv_class == "nccl" || csv_class == "comm_other") return kComm;
  return kOther;
}

// Names that the list's regular expressions call convolutions because a cuDNN convolution launches them. They move or
// index data and multiply nothing, so their time is not matmul time.
bool is_convolution_helper(const std::string& kernel) {
  constexpr std::array<std::string_view, 5> kHelpers{"nchwToNhwcKernel", "nhwcToNchwKernel", "OffsetsKernel", "im2col",
                                                     "col2im"};
  return std::any_of(kHelpers.begin(), kHelpers.end(),
                     [&](std::string_view helper) { return kernel.find(helper) != std::string::npos; });
}

TEST(KernelClassTest, NamesOfPublishedTraces) {
  std::ifstream file(std::string(MFU_TEST_DATA) + "/reference/kernel_names.csv");
  ASSERT_TRUE(file);
  std::string line;
  std::getline(file, line);
  ASSERT_EQ(line, "class,phase_hint,example_kernel_name,source_trace,count");
  std::map<std::string_view, int> counts;
  int helpers = 0;
  int names = 0;
  while (std::getline(file, line)) {
    std::size_t at = 0;
    const std::string csv_class = take_field(line, at);
    take_field(line, at);
    const std::string kernel = take_field(line, at);
    KernelClass expected = expected_of(csv_class);
    if (is_convolution_helper(kernel)) {
      expected = kOther;
      ++helpers;
    }
    EXPECT_EQ(name(classify_kernel(kernel)), name(expected)) << csv_class << ": " << kernel;
    ++counts[name(expected)];
    ++names;
  }
  EXPECT_EQ(names, 400);
  EXPECT_EQ(helpers, 18);
  EXPECT_EQ(counts["comm"], 9);
  EXPECT_EQ(counts["attention"], 7);
}

TEST(KernelClassTest, ParametersNeverDecide) {
  EXPECT_EQ(classify_kernel("void scale(ncclDevComm*, cutlass::gemm::Params, flash::flash_fwd_params)"), kOther);
  EXPECT_EQ(classify_kernel("void my::copy<float>(nvjet_tst)"), kOther);
}

TEST(KernelClassTest, CaseAndTrailingClonesDoNotMatter) {
  EXPECT_EQ(classify_kernel("NCCLDEVKERNEL_ALLREDUCE"), kComm);
  EXPECT_EQ(classify_kernel("_attn_fwd [clone .kd]"), kAttention);
  EXPECT_EQ(classify_kernel("void cutlass::gemmAllReduce<8>(int)"), kGemm);
}

// Everyday words for collectives, in whatever library.
TEST(KernelClassTest, CollectivesByWord) {
  for (const std::string_view word : {"all_reduce", "allReduce", "all_gather", "allgather", "reduce_scatter",
                                      "ReduceScatter", "all_to_all", "AllToAll", "all2all", "moeA2A"}) {
    EXPECT_EQ(classify_kernel(std::string("void lib::my_") + std::string(word) + "_kernel<float, 8>(float*)"), kComm);
    EXPECT_EQ(classify_kernel(std::string("void lib::gemm_") + std::string(word) + "_kernel<float>(float*)"), kGemm);
  }
}

TEST(KernelClassTest, NamesAndMatmul) {
  EXPECT_EQ(name(kGemm), "gemm");
  EXPECT_EQ(name(kAttention), "attention");
  EXPECT_EQ(name(kComm), "comm");
  EXPECT_EQ(name(kOther), "other");
  EXPECT_TRUE(is_matmul(kGemm));
  EXPECT_TRUE(is_matmul(kAttention));
  EXPECT_FALSE(is_matmul(kComm));
  EXPECT_FALSE(is_matmul(kOther));
}

TEST(KernelClassTest, HostileNames) {
  using std::string_literals::operator""s;
  const std::vector<std::string> hostile{
      "",
      " ",
      ":",
      "::",
      "<",
      ">",
      "(",
      ")",
      "{",
      "}",
      "_Z",
      "_ZN",
      "_Z9",
      "_ZN99999999999999999999999999gemm",
      "_ZNI",
      "_ZN4gemm",
      "(anonymous namespace)",
      "(anonymous namespace",
      "<unnamed>",
      "<unnamed",
      "void ",
      "void (",
      "a<b<c<d",
      "a>b>c",
      "a->b",
      ")))(((",
      "\0gemm"s,
      "\xff\xfe\x80 \xc3\x28",
      "operator<<gemm>(int)",
      "kernel<",
      "kernel<>",
      "Kernel2<",
      std::string(8192, '<'),
      std::string(8192, '('),
      std::string(8192, ':'),
      std::string(8192, 'g'),
      std::string(8192, ' '),
      "void cutlass::Kernel<" + std::string(8192, '<'),
      "_ZN7cutlass6KernelI" + std::string(8192, 'N'),
      "_Z" + std::string(8192, '9'),
      std::string(1 << 20, 'm'),
  };
  for (const std::string& text : hostile) {
    // Exactly sized, so that a sanitizer sees a read past the end: a string would have its terminator there.
    const std::vector<char> bytes(text.begin(), text.end());
    const KernelClass c = classify_kernel({bytes.data(), bytes.size()});
    EXPECT_LE(static_cast<int>(c), static_cast<int>(kOther));
  }
}

/// The class is one of the four, and nothing beyond the end of the name decides it.
void expect_stable(std::string_view name) {
  const std::vector<char> bytes(name.begin(), name.end());
  const KernelClass known = classify_kernel({bytes.data(), bytes.size()});
  EXPECT_NE(mfu::name(known), "") << name;
  std::string longer(name);
  longer += "gemm flash_fwd ncclDevKernel";  // would decide if it were read
  EXPECT_EQ(classify_kernel(std::string_view(longer).substr(0, name.size())), known) << name;
}

TEST(KernelClassTest, EveryPrefixAndRandomBytes) {
  for (const Named& n : kNames) {
    for (std::size_t size = 0; size <= n.name.size(); ++size) expect_stable(std::string_view(n.name).substr(0, size));
    EXPECT_EQ(classify_kernel(n.name), n.expected) << n.name;
  }
  std::mt19937 random(12345);
  constexpr std::string_view kAlphabet = "_ZNIE0123456789<>(){}:: ->gemmflashattnnccl\xff";
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 200, ' ');
    for (char& c : bytes) c = kAlphabet[random() % kAlphabet.size()];
    expect_stable(bytes);
  }
}

// Generous enough for a sanitizer and a busy machine; the measured figure is the benchmark's.
TEST(KernelClassTest, CostIsBounded) {
  std::string longest = "void cutlass::device_kernel<";
  while (longest.size() < 8192) longest += "cute::tuple<cute::C<1>, cute::C<0>>, ";
  longest += ">(int)";
  constexpr int kRounds = 200;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    longest[8000] = static_cast<char>('a' + i % 26);
    ASSERT_EQ(classify_kernel(longest), kOther);
  }
  const auto each = (std::chrono::steady_clock::now() - begin) / kRounds;
  EXPECT_LT(each, std::chrono::milliseconds(2));
}

/// Operands of two widths run at the rate of the wider one.
TEST(KernelClassTest, DtypesOfMixedOperands) {
  const std::pair<const char*, std::optional<DType>> kMixed[] = {
      {"bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32", DType::kFp8},
      {"bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32", DType::kFp8},
      {"bmm_E4m3_E2m1E2m1_Fp32_t128x16x256u2", DType::kFp4},
      {"bmm_Bfloat16_MxE2m1Bfloat16_Fp32_t128x16x128", DType::kBf16},
      {"cutlass3x_sm100_bstensorop_mxf8f6f4_s128x128x64gemm", DType::kFp8},
      {"cutlass3x_sm100_bstensorop_s256x256x64spgemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32", DType::kFp4},
      {"cutlass3x_sm100_bstensorop_gemm_ue8m0xe4m3_ue8m0xe2m1_f32_void_bf16", DType::kFp8},
      {"ampere_bf16_s16816gemm_bf16_128x128", DType::kBf16}};
  for (const auto& [name, dtype] : kMixed) EXPECT_EQ(matmul_dtype(name), dtype) << name;
}

/// A mixed-precision training whose evaluation runs in FP32, as by timm: of 2.7 TFLOP in 16 bit and 0.4 in FP32 the
/// latter take longer, and the peak of FP32 would call the training impossible.
TEST(KernelClassTest, TheDtypeOfMostFlopIsNotThatOfTheLongestTime) {
  std::array<DurationNs, kDTypes> ran{};
  EXPECT_EQ(dtype_of_most(ran), std::nullopt);
  ran[static_cast<std::size_t>(DType::kFp32)] = 6000;
  EXPECT_EQ(dtype_of_most(ran), DType::kFp32);
  ran[static_cast<std::size_t>(DType::kFp16)] = 2700;
  EXPECT_EQ(dtype_of_most(ran), DType::kFp16);
  ran[static_cast<std::size_t>(DType::kFp16)] = 100;
  EXPECT_EQ(dtype_of_most(ran), DType::kFp32);
}

}  // namespace
}  // namespace mfu
