// Servers unlike those of serving_programs.h: SGLang, drafts that are verified, generate() with a compiled model, a
// speech model, latent attention, image models that denoise, classifiers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/unit/detect/programs/writer.h"

namespace mfu::programs {

class FurtherServing {
 public:
  enum class Engine { kSglang, kDrafts, kStaticCache, kSpeech, kLatentAttention, kDenoises, kClassifier };
  static constexpr std::uint32_t kEngines = 7;

  explicit FurtherServing(Writer& writer) : w_(writer), d_(writer.dice) {
    engine_ = static_cast<Engine>(d_.between(0, kEngines - 1));
    layers_ = d_.between(4, 40);
    drafts_ = d_.between(1, 5);
    samples_ = d_.chance(0.5);
    inputs_ = d_.between(1, 9);
    draft_in_graph_ = d_.chance(0.6);
    asks_host_ = d_.chance(0.5);
    denoising_steps_ = d_.between(4, 30);
    salt_ = d_.between(0, 1'000'000);
  }

  void run(std::uint32_t iterations) {
    static constexpr std::string_view kNames[kEngines] = {"sglang",           "drafts",   "static cache", "speech",
                                                          "latent attention", "denoises", "classifier"};
    w_.out.what = std::string(kNames[static_cast<int>(engine_)]) + " x" + std::to_string(layers_) +
                  (engine_ == Engine::kDrafts
                       ? ", " + std::to_string(drafts_) + (draft_in_graph_ ? " drafts in a graph" : " drafts")
                       : "") +
                  (engine_ == Engine::kDenoises
                       ? ", " + std::to_string(denoising_steps_) + " steps" + (asks_host_ ? ", asks the host" : "")
                       : "") +
                  (samples_ ? ", samples" : "");
    for (std::uint32_t p = 0; p < layers_ * 9; ++p) {
      w_.to_device();
      if (p % 4 == 0) w_.elementwise("FillFunctor<c10::BFloat16>");
    }
    std::uint32_t running = d_.between(1, 8), until = 0;
    const bool one_request = engine_ == Engine::kStaticCache || engine_ == Engine::kSpeech;
    if (engine_ == Engine::kDenoises) iterations = std::max(8u, iterations / denoising_steps_);
    for (std::uint32_t i = 0; i < iterations; ++i) {
      const bool prefill = one_request ? i == until : i == 0 || d_.chance(0.1);
      if (one_request && prefill) until = i + d_.between(12, 60);
      if (!one_request) running = std::clamp<std::uint32_t>(running + d_.between(0, 2) - 1, 1, 24);
      const std::uint64_t begin = w_.at();
      iteration(prefill, prefill ? d_.between(40, 900) : running, one_request ? 1 : running);
      const bool tokens = engine_ != Engine::kDenoises && engine_ != Engine::kClassifier;
      w_.out.steps.push_back({begin, w_.at(),
                              !tokens   ? StepKind::kIteration
                              : prefill ? StepKind::kPrefillOrMixed
                                        : StepKind::kDecode});
      w_.out.prefill.push_back(!tokens ? 2 : prefill ? 1 : 0);
    }
  }

 private:
  [[nodiscard]] std::uint32_t shape_of(std::uint32_t rows) const {
    return salt_ + (rows <= 16 ? rows : 16 + rows / 64) * 100;
  }

  void iteration(bool prefill, std::uint32_t rows, std::uint32_t sequences) {
    switch (engine_) {
      case Engine::kSglang:
        sglang(prefill, rows, sequences);
        break;
      case Engine::kDrafts:
        drafts(prefill, rows, sequences);
        break;
      case Engine::kStaticCache:
        static_cache(prefill, rows);
        break;
      case Engine::kSpeech:
        speech(prefill);
        break;
      case Engine::kLatentAttention:
        latent_attention(prefill, rows, sequences);
        break;
      case Engine::kDenoises:
        image();
        break;
      case Engine::kClassifier:
        classify();
        break;
    }
  }

  /// FlashInfer's kernels; decode in a graph for each number of sequences.
  void sglang(bool prefill, std::uint32_t rows, std::uint32_t sequences) {
    w_.to_device(inputs_);
    const std::uint32_t total = prefill ? rows : sequences, shape = shape_of(total);
    const auto pass = [&] {
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.kernel("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", total);
        w_.gemm(shape);
        w_.kernel("void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u, 8u, 16u, __nv_bfloat16>()");
        w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::index_put_kernel_impl>()");
        if (prefill)
          w_.kernel("void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(MaskMode)1>>()");
        else
          w_.kernel("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(PosEncodingMode)0, 2u, 4u, 8u, 16u>()");
        w_.gemm(shape + 1);
        w_.kernel("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", total);
        w_.gemm(shape + 2);
        w_.kernel("void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(silu(float const&))>()");
        w_.gemm(shape + 3);
      }
      w_.gemm(shape_of(sequences) + 60);
    };
    if (prefill) {
      w_.kernel(
          "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2>()");
      pass();
    } else {
      w_.graph(10 + sequences, pass);
    }
    choose();
    w_.to_host();
  }

  /// A draft model runs ahead, the target verifies what it proposed.
  void drafts(bool prefill, std::uint32_t rows, std::uint32_t sequences) {
    w_.to_device(inputs_ + 2);
    const auto layer = [&](std::uint32_t shape, std::uint32_t total, bool splits) {
      w_.kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()", total);
      w_.gemm(shape);
      w_.kernel("void vllm::rotary_embedding_kernel<c10::BFloat16, true>()", total);
      w_.kernel("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>()", total);
      w_.kernel("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<PagedKv, Causal, VarSeq>>>()");
      if (splits) w_.kernel("void cutlass::device_kernel<flash::FlashAttnFwdCombine<PagedKv>>()");
      w_.gemm(shape + 1);
      w_.kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()", total);
      w_.gemm(shape + 2);
      w_.kernel("void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel>()");
      w_.gemm(shape + 3);
    };
    const std::uint32_t verified = prefill ? rows : sequences * (drafts_ + 1);
    const auto target = [&] {
      for (std::uint32_t l = 0; l < layers_; ++l) layer(shape_of(verified), verified, !prefill);
    };
    if (prefill) {
      w_.kernel("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, int, unsigned int, 2>()");
      target();
    } else {
      w_.graph(100 + sequences, target);
    }
    w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
    w_.gemm(shape_of(sequences) + 60);
    w_.reduce("ArgMaxOps<float>");
    if (!prefill) w_.kernel("rejection_greedy_sample_kernel");
    // The next drafts, from what was accepted.
    w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
    for (std::uint32_t k = 0; k < drafts_; ++k) {
      const auto draft = [&] { layer(salt_ + 900'000, sequences, false); };
      if (draft_in_graph_)
        w_.graph(500 + sequences, draft);
      else
        draft();
      w_.gemm(shape_of(sequences) + 61);
      w_.reduce("ArgMaxOps<float>");
      w_.elementwise("CUDAFunctorOnSelf_add<int>");
    }
    w_.to_host();
  }

  /// generate() with a static cache and mode="reduce-overhead": a pass is one graph, the rest is not.
  void static_cache(bool prefill, std::uint32_t rows) {
    if (prefill) w_.to_device(2);
    if (prefill) {
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.kernel("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", rows);
        w_.gemm(shape_of(rows));
        w_.kernel("triton_poi_fused_cat_1");
        w_.kernel("triton_poi_fused_index_copy_2");
        w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false>>()");
        w_.gemm(shape_of(rows) + 1);
        w_.kernel("triton_poi_fused_mul_silu_3");
        w_.gemm(shape_of(rows) + 2);
      }
      w_.gemm(salt_ + 66);
    } else {
      w_.graph(3, [&] { w_.gemm(1); });
    }
    w_.unrolled("direct_copy_kernel_cuda");
    choose();
    w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<long, unsigned int, 2, 128, 1>()");
    w_.elementwise("CompareEqFunctor<long>");
    w_.elementwise("BitwiseOrFunctor<bool>");
    w_.elementwise("bitwise_not_kernel_cuda");
    w_.reduce("MaxOps<long>");
    w_.to_host();
    w_.elementwise("CUDAFunctorOnSelf_add<long>");
  }

  /// Whisper: an encoder over thirty seconds, then tokens that attend to it.
  void speech(bool prefill) {
    if (prefill) {
      w_.to_device(1);
      for (std::uint32_t c = 0; c < 2; ++c) {
        w_.kernel("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x32_kernel_cudnn");
        w_.elementwise("GeluCUDAKernelImpl");
      }
      for (std::uint32_t l = 0; l < layers_; ++l) decoder_layer(salt_ + 10'000, false);
    }
    w_.kernel("void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::Half, long, unsigned int, 2>()");
    for (std::uint32_t l = 0; l < layers_; ++l) {
      decoder_layer(salt_ + (prefill ? 20'000 : 30'000), true);
      for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(salt_ + 30'010 + g);
      w_.kernel("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)");
    }
    w_.gemm(salt_ + 30'090);
    w_.elementwise("masked_fill_kernel");
    w_.kernel("void (anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, LogSoftMax>()");
    choose();
    w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<long, unsigned int, 2, 128, 1>()");
    w_.elementwise("CompareEqFunctor<long>");
    w_.to_host();
  }
  void decoder_layer(std::uint32_t shape, bool cached) {
    w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>()");
    for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + g);
    if (cached)
      for (std::uint32_t i = 0; i < 2; ++i)
        w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<c10::Half, unsigned int, 4, 64, 64>()");
    w_.kernel("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)");
    w_.gemm(shape + 3);
    w_.elementwise("CUDAFunctor_add<c10::Half>");
    w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>()");
    w_.gemm(shape + 4);
    w_.elementwise("GeluCUDAKernelImpl");
    w_.gemm(shape + 5);
    w_.elementwise("CUDAFunctor_add<c10::Half>");
  }

  /// DeepSeek's attention over one latent head; experts in one grouped product.
  void latent_attention(bool prefill, std::uint32_t rows, std::uint32_t sequences) {
    w_.to_device(inputs_ + 1);
    const std::uint32_t total = prefill ? rows + sequences - 1 : sequences, shape = shape_of(total);
    const auto pass = [&] {
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()", total);
        w_.kernel("void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16, __nv_fp8_e4m3>()");
        for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + g);
        w_.kernel("void vllm::rotary_embedding_kernel<c10::BFloat16, false>()", total);
        w_.kernel("void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16>()", total);
        if (prefill) {
          w_.kernel("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<192, 128, 64, 8, false>>()");
        } else {
          w_.kernel("void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8, __nv_bfloat16>>()");
          w_.kernel("void flash_fwd_splitkv_mla_combine_kernel<__nv_bfloat16, float, long, 512, 32>()");
        }
        w_.gemm(shape + 4);
        w_.kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()", total);
        w_.kernel("void vllm::moe::grouped_topk_fused_kernel<float, int>()");
        w_.kernel("void vllm::moe::moe_align_block_size_kernel<int>()");
        w_.kernel("fused_moe_kernel");
        w_.kernel("void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel>()");
        w_.kernel("fused_moe_kernel");
        w_.kernel("void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>()");
      }
    };
    if (!prefill && salt_ % 2 == 0)
      w_.graph(10 + (sequences + 3) / 4, pass);
    else
      pass();
    w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
    w_.gemm(shape_of(sequences) + 60);
    choose();
    w_.to_host();
  }

  /// Classifier-free guidance: each step over a batch and its unconditional twin; the image at the end.
  void image() {
    w_.to_device(2);
    w_.kernel("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::Half, long, unsigned int, 2, 2>()");
    for (std::uint32_t l = 0; l < 6; ++l) decoder_layer(salt_ + 1'000, false);
    w_.kernel(
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, normal>()");
    for (std::uint32_t s = 0; s < denoising_steps_; ++s) {
      const std::uint64_t begin = w_.at();
      w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<c10::Half, unsigned int, 4, 64, 64>()");
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.elementwise("cos_kernel_cuda");
      w_.elementwise("sin_kernel_cuda");
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.kernel("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*)");
        w_.elementwise("silu_kernel");
        w_.kernel("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_kernel_cudnn");
        if (l % 2 == 1) decoder_layer(salt_ + 2'000, false);
      }
      w_.elementwise("CUDAFunctor_add<c10::Half>");
      w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
      if (asks_host_) w_.to_host();
      for (std::uint32_t i = 0; i < 5; ++i) w_.elementwise("BUnaryFunctor<float, float, float, MulFunctor>");
      w_.elementwise("CUDAFunctor_add<float>");
      w_.out.finer.push_back({begin, w_.at(), StepKind::kIteration});
    }
    for (std::uint32_t l = 0; l < 12; ++l) {
      w_.kernel("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*)");
      w_.elementwise("silu_kernel");
      w_.kernel("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize256x64x32_kernel_cudnn");
    }
    w_.elementwise("clamp_scalar_kernel_impl");
    w_.to_host();
  }

  void classify() {
    w_.to_device();
    w_.unrolled("direct_copy_kernel_cuda");
    for (std::uint32_t l = 0; l < layers_; ++l) {
      w_.kernel(
          "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>()");
      w_.kernel("void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>()");
      w_.elementwise("clamp_scalar_kernel_impl");
    }
    w_.reduce("MeanOps<float, float, float, float>");
    w_.gemm(salt_);
    w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>()");
    if (samples_) w_.reduce("ArgMaxOps<float>");
    w_.to_host(samples_ ? 1 : 2);
  }

  void choose() {
    if (samples_) {
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>()");
      w_.kernel("void at::native::(anonymous namespace)::sampleMultinomialOnce<float, float>(long*)");
    } else {
      w_.reduce("ArgMaxOps<float>");
    }
  }

  Writer& w_;
  Dice& d_;
  Engine engine_;
  std::uint32_t layers_, drafts_, inputs_, denoising_steps_, salt_;
  bool samples_, draft_in_graph_, asks_host_;
};

}  // namespace mfu::programs
