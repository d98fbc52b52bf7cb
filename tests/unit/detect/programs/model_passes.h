// The layers, losses and heads of models, forward and backward, as PyTorch, Inductor and XLA launch them.
#pragma once

#include <cstdint>
#include <string>

#include "tests/unit/detect/programs/writer.h"

namespace mfu::programs {

class ModelPasses {
 public:
  enum class Body { kLlama, kGpt, kCnn, kRecommender, kExperts, kCompiled, kXla };

 protected:
  explicit ModelPasses(Writer& writer) : w_(writer), d_(writer.dice) {}

  void head(std::uint32_t shape) {
    if (body_ == Body::kCnn) w_.reduce("MeanOps<float, float, float, float>");
    if (body_ == Body::kLlama || body_ == Body::kExperts) rms_norm();
    if (body_ == Body::kGpt)
      w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
    if (body_ == Body::kXla) {
      w_.kernel("loop_convert_fusion_" + std::to_string(salt_ % 9));
    }
    w_.gemm(shape + 90);
  }
  void loss() {
    if (body_ == Body::kXla) {
      w_.kernels({"input_reduce_fusion_1", "loop_exponential_fusion", "input_reduce_fusion_2", "loop_select_fusion_7"});
      return;
    }
    if (body_ == Body::kCompiled) {
      w_.kernels({"triton_red_fused__log_softmax_5", "triton_per_fused_nll_loss_forward_6"});
      return;
    }
    if (body_ == Body::kRecommender) {
      w_.elementwise("binary_cross_entropy_out_kernel");
      w_.reduce("MeanOps<float, float, float, float>");
      return;
    }
    w_.unrolled("direct_copy_kernel_cuda");
    w_.kernel("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>()");
    w_.kernel("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>()");
  }
  void loss_backward() {
    if (body_ == Body::kXla) {
      w_.kernels({"loop_multiply_fusion_3", "input_scatter_fusion_2"});
      return;
    }
    if (body_ == Body::kCompiled) {
      w_.kernel("triton_red_fused__log_softmax_backward_data_nll_loss_backward_0");
      return;
    }
    if (body_ == Body::kRecommender) {
      w_.elementwise("binary_cross_entropy_backward_out_kernel");
      return;
    }
    w_.elementwise("FillFunctor<float>");
    w_.kernel("void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>()");
    w_.kernel("void (anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, LogSoftMaxBackwardEpilogue>()");
    w_.unrolled("direct_copy_kernel_cuda");
  }
  void rms_norm() {
    w_.unrolled("direct_copy_kernel_cuda");
    w_.elementwise("pow_tensor_scalar_kernel_impl<float, float>");
    w_.reduce("MeanOps<float, float, float, float>");
    w_.elementwise("CUDAFunctorOnSelf_add<float>");
    w_.elementwise("rsqrt_kernel_cuda");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.unrolled("bfloat16_copy_kernel_cuda");
    w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
  }
  void rms_norm_backward() {
    w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
    w_.reduce("sum_functor<c10::BFloat16, float, c10::BFloat16>");
    w_.unrolled("direct_copy_kernel_cuda");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.reduce("sum_functor<float, float, float>");
    w_.elementwise("pow_tensor_scalar_kernel_impl<float, float>");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.elementwise("CUDAFunctor_add<float>");
    w_.unrolled("bfloat16_copy_kernel_cuda");
  }
  void rope() {
    for (int i = 0; i < 2; ++i) {
      w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
      w_.elementwise("neg_kernel_cuda");
      w_.kernel(
          "void at::native::(anonymous namespace)::CatArrayBatchedCopy<c10::BFloat16, unsigned int, 4, 64, 64>()");
      w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
      w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
    }
  }
  void experts(std::uint32_t shape, bool backward) {
    w_.kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>()");
    const std::uint32_t chosen = d_.between(5, 8);
    for (std::uint32_t e = 0; e < chosen; ++e) {
      w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
      for (std::uint32_t g = 0; g < (backward ? 6u : 3u); ++g) w_.gemm(shape + 60 + g);
      w_.elementwise(backward ? "silu_backward_kernel" : "silu_kernel");
      w_.kernel("void at::native::(anonymous namespace)::indexFuncLargeIndex<c10::BFloat16, long, unsigned int>()");
    }
  }
  void layer_forward(std::uint32_t shape, std::uint32_t l) {
    switch (body_) {
      case Body::kLlama:
      case Body::kExperts:
        rms_norm();
        for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + g);
        rope();
        w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false>>()");
        w_.gemm(shape + 3);
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        rms_norm();
        if (body_ == Body::kExperts) {
          experts(shape, false);
        } else {
          w_.gemm(shape + 4);
          w_.elementwise("silu_kernel");
          w_.gemm(shape + 4);
          w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
          w_.gemm(shape + 5);
        }
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        break;
      case Body::kGpt:
        w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
        w_.gemm(shape);
        w_.kernel("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)");
        w_.gemm(shape + 1);
        w_.kernel(
            "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4>()");
        w_.elementwise("CUDAFunctor_add<float>");
        w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
        w_.gemm(shape + 2);
        w_.elementwise("GeluCUDAKernelImpl");
        w_.gemm(shape + 3);
        w_.kernel(
            "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4>()");
        w_.elementwise("CUDAFunctor_add<float>");
        break;
      case Body::kCnn:
        for (std::uint32_t c = 0; c < 1 + l % 3; ++c) {
          w_.kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_" +
                    std::to_string(64 << (l + c) % 3) + "x128_16x4_nhwc_align4>()");
          w_.kernel("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>()");
          w_.elementwise("clamp_scalar_kernel_impl");
        }
        w_.elementwise("CUDAFunctor_add<float>");
        break;
      case Body::kRecommender:
        if (l == 0)
          w_.kernel("void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 5ul>()");
        w_.gemm(shape + l % 4);
        w_.elementwise("clamp_scalar_kernel_impl");
        break;
      case Body::kCompiled:
        w_.kernel("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_" + std::to_string(salt_ % 20 + (l > 0 ? 1 : 0)));
        w_.gemm(shape);
        w_.kernel("triton_poi_fused_cat_" + std::to_string(salt_ % 20 + 2));
        w_.kernel("triton_poi_fused_cat_" + std::to_string(salt_ % 20 + 3));
        w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>>()");
        w_.gemm(shape + 1);
        w_.kernel("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_" + std::to_string(salt_ % 20 + 4));
        w_.gemm(shape + 2);
        w_.kernel("triton_poi_fused_mul_silu_" + std::to_string(salt_ % 20 + 5));
        w_.gemm(shape + 3);
        break;
      case Body::kXla:
        w_.kernel("input_add_reduce_fusion_" + std::to_string(salt_ % 9));
        w_.gemm(shape);
        w_.kernel("loop_transpose_fusion_" + std::to_string(salt_ % 9));
        w_.kernel("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_128x128x64");
        w_.gemm(shape + 1);
        w_.kernel("input_add_reduce_fusion_" + std::to_string(salt_ % 9 + 1));
        w_.gemm(shape + 2);
        w_.kernel("loop_tanh_multiply_fusion_" + std::to_string(salt_ % 9));
        w_.gemm(shape + 3);
        break;
    }
  }
  void layer_backward(std::uint32_t shape, std::uint32_t l) {
    switch (body_) {
      case Body::kLlama:
      case Body::kExperts:
        if (body_ == Body::kExperts) {
          experts(shape, true);
        } else {
          for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 20 + g);
          w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
          w_.elementwise("silu_backward_kernel");
          for (std::uint32_t g = 0; g < 4; ++g) w_.gemm(shape + 22 + g % 2);
          w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        }
        rms_norm_backward();
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        w_.gemm(shape + 30);
        w_.gemm(shape + 31);
        w_.kernel("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128, 64, 128, 8>>()");
        w_.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>()");
        w_.kernel("void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>>()");
        rope();
        for (std::uint32_t g = 0; g < 6; ++g) w_.gemm(shape + 32 + g);
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        rms_norm_backward();
        break;
      case Body::kGpt:
        w_.kernel("void at::native::(anonymous namespace)::masked_scale_kernel<float, unsigned char>()");
        for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 20 + g);
        w_.reduce("sum_functor<float, float, float>");
        w_.elementwise("GeluBackwardCUDAKernelImpl");
        for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 22 + g);
        w_.reduce("sum_functor<float, float, float>");
        layer_norm_backward();
        w_.elementwise("CUDAFunctor_add<float>");
        w_.kernel("void at::native::(anonymous namespace)::masked_scale_kernel<float, unsigned char>()");
        for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 24 + g);
        w_.kernel("fmha_cutlassB_bf16_aligned_64x64_k64_dropout_sm80(AttentionBackwardKernel::Params)");
        for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 26 + g);
        w_.reduce("sum_functor<float, float, float>");
        layer_norm_backward();
        w_.elementwise("CUDAFunctor_add<float>");
        break;
      case Body::kCnn:
        for (std::uint32_t c = 1 + l % 3; c-- > 0;) {
          w_.elementwise("threshold_backward_kernel");
          w_.kernel("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>()");
          w_.kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_" +
                    std::to_string(64 << (l + c) % 3) + "x64_16x4_nhwc_align4>()");
          w_.kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_" +
                    std::to_string(64 << (l + c) % 3) + "x128_16x4_nhwc_align4>()");
        }
        break;
      case Body::kRecommender:
        w_.elementwise("threshold_backward_kernel");
        w_.gemm(shape + 20 + l % 4);
        w_.gemm(shape + 30 + l % 4);
        w_.reduce("sum_functor<float, float, float>");
        if (l == 0) {
          w_.kernel("void split_embedding_backward_codegen_adagrad_unweighted_kernel_warp_per_row_1<float, float>()");
        }
        break;
      case Body::kCompiled:
        for (std::uint32_t g = 0; g < 4; ++g) w_.gemm(shape + 20 + g);
        w_.kernel("triton_poi_fused_mul_silu_silu_backward_" + std::to_string(salt_ % 20 + 6));
        w_.gemm(shape + 24);
        w_.kernel("triton_red_fused__to_copy_add_div_mul_pow_sum_" + std::to_string(salt_ % 20 + 7));
        w_.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>()");
        w_.kernel("void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8>>()");
        w_.kernel("triton_poi_fused_cat_" + std::to_string(salt_ % 20 + 8));
        for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + 25 + g);
        w_.kernel("triton_red_fused__to_copy_add_div_mul_pow_sum_" + std::to_string(salt_ % 20 + 9));
        break;
      case Body::kXla:
        for (std::uint32_t g = 0; g < 4; ++g) w_.gemm(shape + 20 + g);
        w_.kernel("loop_multiply_fusion_" + std::to_string(salt_ % 9));
        w_.kernel("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_128x128x64");
        for (std::uint32_t g = 0; g < 4; ++g) w_.gemm(shape + 24 + g);
        w_.kernel("input_multiply_reduce_fusion_" + std::to_string(salt_ % 9));
        break;
    }
  }
  void layer_norm_backward() {
    w_.kernel("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float, float>()");
    w_.kernel("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 64u, 1u>()");
  }

  Writer& w_;
  Dice& d_;
  Body body_ = Body::kLlama;
  std::uint32_t salt_ = 0;  ///< makes the shapes and names of two programs differ
};

}  // namespace mfu::programs
