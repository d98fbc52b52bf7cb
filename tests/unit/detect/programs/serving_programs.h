// Servers: generate() of transformers, vLLM, TensorRT-LLM, llama.cpp, and compiled models that answer requests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/detect/programs/writer.h"

namespace mfu::programs {

class ServingProgram {
 public:
  enum class Engine {
    kGenerateGreedy,
    kGenerateSampled,
    kVllmEager,
    kVllmGraphs,
    kVllmPiecewise,
    kTensorRt,
    kLlamaCpp
  };

  explicit ServingProgram(Writer& writer) : w_(writer), d_(writer.dice) {
    engine_ = d_.one_of<Engine>({Engine::kGenerateGreedy, Engine::kGenerateSampled, Engine::kVllmEager,
                                 Engine::kVllmGraphs, Engine::kVllmPiecewise, Engine::kTensorRt, Engine::kLlamaCpp});
    layers_ = d_.between(4, 48);
    flash2_ = d_.chance(0.5);
    greedy_ = engine_ == Engine::kGenerateGreedy || (engine_ != Engine::kGenerateSampled && d_.chance(0.5));
    logits_processors_ = d_.between(0, 6);
    graphed_ = engine_ == Engine::kLlamaCpp && d_.chance(0.4);
    extra_inputs_ = d_.between(0, 8);
    salt_ = d_.between(0, 1'000'000);
  }

  void run(std::uint32_t iterations) {
    static constexpr std::string_view kEngines[] = {"generate greedy", "generate sampled", "vllm eager", "vllm graphs",
                                                    "vllm piecewise",  "tensorrt-llm",     "llama.cpp"};
    w_.out.what = std::string(kEngines[static_cast<int>(engine_)]) + " x" + std::to_string(layers_) +
                  (flash2_ ? ", flash 2" : "") + (greedy_ ? ", greedy" : "") + (graphed_ ? ", graphed" : "");
    for (std::uint32_t p = 0; p < layers_ * 9; ++p) {
      w_.to_device();
      if (p % 3 == 0) w_.unrolled("direct_copy_kernel_cuda");
    }
    std::uint32_t running = d_.between(1, 8), until = 0;
    const bool one_request =
        engine_ == Engine::kGenerateGreedy || engine_ == Engine::kGenerateSampled || engine_ == Engine::kLlamaCpp;
    for (std::uint32_t i = 0; i < iterations; ++i) {
      const bool prefill = one_request ? i == until : i == 0 || d_.chance(0.12);
      if (one_request && prefill) {
        until = i + d_.between(12, 60);
        running = engine_ == Engine::kLlamaCpp ? 1 : d_.between(1, 4);
      }
      if (!one_request) running = std::clamp<std::uint32_t>(running + d_.between(0, 2) - 1, 1, 32);
      const std::uint32_t rows = prefill ? d_.between(40, 900) * (one_request ? running : 1) : running;
      const std::uint64_t begin = w_.at();
      iteration(prefill, rows, running);
      w_.out.steps.push_back({begin, w_.at(), prefill ? StepKind::kPrefillOrMixed : StepKind::kDecode});
      w_.out.prefill.push_back(prefill ? 1 : 0);
    }
  }

 private:
  std::uint32_t shape_of(std::uint32_t rows) const { return salt_ + (rows <= 16 ? rows : 16 + rows / 64) * 100; }

  void iteration(bool prefill, std::uint32_t rows, std::uint32_t sequences) {
    const std::uint32_t shape = shape_of(rows);
    switch (engine_) {
      case Engine::kGenerateGreedy:
      case Engine::kGenerateSampled:
        generate(prefill, rows, shape);
        break;
      case Engine::kVllmEager:
      case Engine::kVllmGraphs:
      case Engine::kVllmPiecewise:
        vllm(prefill, rows, sequences, shape);
        break;
      case Engine::kTensorRt:
        tensorrt(prefill, rows, sequences, shape);
        break;
      case Engine::kLlamaCpp:
        llama_cpp(prefill, rows, shape);
        break;
    }
  }

  /// Hugging Face's generate(): the next token stays on the device; what goes to the host is whether all are done.
  void generate(bool prefill, std::uint32_t rows, std::uint32_t shape) {
    if (prefill) w_.to_device(2);
    w_.kernel("void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long, unsigned int, 2>()");
    w_.kernel("void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out>()");
    w_.elementwise("CUDAFunctorOnSelf_add<long>");
    w_.gemm(shape + 70);
    w_.elementwise("cos_kernel_cuda");
    w_.elementwise("sin_kernel_cuda");
    for (std::uint32_t l = 0; l < layers_; ++l) {
      rms(rows);
      for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + g);
      for (int i = 0; i < 2; ++i) {
        w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
        w_.elementwise("neg_kernel_cuda");
        w_.kernel(
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<c10::BFloat16, unsigned int, 4, 64, 64>()");
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
      }
      if (!prefill)
        for (int i = 0; i < 2; ++i)
          w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<OpaqueType<2u>>()");
      if (prefill) {
        w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false>>()");
      } else {
        w_.kernel("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false>>()");
        w_.kernel("void pytorch_flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>()");
      }
      w_.gemm(shape + 3);
      w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
      rms(rows);
      w_.gemm(shape + 4);
      w_.elementwise("silu_kernel");
      w_.gemm(shape + 4);
      w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
      w_.gemm(shape + 5);
      w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
    }
    rms(rows);
    w_.gemm(shape + 6);
    w_.unrolled("direct_copy_kernel_cuda");
    if (engine_ == Engine::kGenerateSampled) {
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>()");
      w_.elementwise("CompareFunctor<float>");
      w_.elementwise("masked_fill_kernel");
      w_.kernel("void at::native::segmented_sort_kernel<float, long>()");
      w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>()");
      w_.kernel("void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >()");
      w_.elementwise("masked_fill_kernel");
      w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>()");
      w_.kernel(
          "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, "
          "exponential>()");
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
    }
    w_.reduce("ArgMaxOps<float>");
    w_.elementwise("BinaryFunctor<long, long, long, MulFunctor>");
    w_.elementwise("CUDAFunctorOnSelf_add<long>");
    w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<long, unsigned int, 2, 128, 1>()");
    for (std::uint32_t i = 0; i < logits_processors_ * 2; ++i) w_.elementwise("CompareEqFunctor<long>");
    w_.elementwise("BitwiseOrFunctor<bool>");
    w_.elementwise("bitwise_not_kernel_cuda");
    w_.elementwise("BitwiseAndFunctor<long>");
    w_.reduce("MaxOps<long>");
    w_.elementwise("CompareEqFunctor<long>");
    w_.to_host();
  }
  void rms(std::uint32_t rows) {
    w_.unrolled("direct_copy_kernel_cuda");
    w_.elementwise("pow_tensor_scalar_kernel_impl<float, float>");
    w_.reduce("MeanOps<float, float, float, float>");
    w_.elementwise("rsqrt_kernel_cuda");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.unrolled("bfloat16_copy_kernel_cuda");
    (void)rows;
  }

  void vllm(bool prefill, std::uint32_t rows, std::uint32_t sequences, std::uint32_t shape) {
    w_.to_device(3 + extra_inputs_);
    const std::uint32_t total = prefill ? rows + sequences - 1 : rows;
    const auto attention = [&] {
      w_.kernel("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>()", total);
      if (flash2_) {  // paged attention of version 2 runs the split kernel for all shapes
        w_.kernel("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false>>()");
        if (!prefill && rows <= 4)
          w_.kernel("void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>()");
      } else {
        w_.kernel(
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<PagedKv, Causal, VarSeq>>>()");
      }
    };
    const auto before = [&] {
      w_.kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()", total);
      w_.gemm(shape);
      w_.kernel("void vllm::rotary_embedding_kernel<c10::BFloat16, true>()", total);
    };
    const auto after = [&] {
      w_.gemm(shape + 1);
      w_.kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()", total);
      w_.gemm(shape + 2);
      w_.kernel("void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel>()");
      w_.gemm(shape + 3);
    };
    const std::uint32_t bucket = rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : (rows + 7) / 8 * 8;
    if (engine_ == Engine::kVllmGraphs && !prefill) {
      w_.graph(bucket, [&] {
        before();
        attention();
        after();
      });
    } else if (engine_ == Engine::kVllmPiecewise && total <= 512) {
      w_.graph(1000 + bucket, [&] { before(); });
      for (std::uint32_t l = 0; l < layers_; ++l) {
        attention();
        w_.graph(2000 + bucket * 100 + l, [&] {
          after();
          before();
        });
      }
    } else {
      w_.kernel("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, int, unsigned int, 2>()");
      for (std::uint32_t l = 0; l < layers_; ++l) {
        before();
        attention();
        after();
      }
    }
    w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
    w_.gemm(shape_of(sequences) + 60);
    w_.unrolled("direct_copy_kernel_cuda");
    if (greedy_) {
      w_.reduce("ArgMaxOps<float>");
    } else {
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.kernel("void at::native::segmented_sort_kernel<float, long>()");
      w_.kernel("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*)");
      w_.kernel(
          "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, "
          "exponential>()");
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.reduce("ArgMaxOps<float>");
      w_.elementwise("where_kernel_impl");
    }
    w_.unrolled("direct_copy_kernel_cuda");
    w_.to_host();
  }

  void tensorrt(bool prefill, std::uint32_t rows, std::uint32_t sequences, std::uint32_t shape) {
    w_.to_device(2 + extra_inputs_);
    const auto pass = [&] {
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.kernel("void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, __nv_bfloat16, false>()", rows);
        w_.gemm(shape);
        if (prefill) {
          w_.kernel("void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16>()");
          w_.kernel("fmha_v2_flash_attention_bf16_64_128_S_qkv_128_causal_tma_ws_sm90_kernel");
        } else {
          w_.kernel("void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<unsigned short, 128>()");
        }
        w_.gemm(shape + 1);
        w_.kernel("void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, __nv_bfloat16, false>()", rows);
        w_.gemm(shape + 2);
        w_.kernel("void tensorrt_llm::kernels::cutlass_kernels::doActivationKernel<__nv_bfloat16>()");
        w_.gemm(shape + 3);
      }
      w_.gemm(shape_of(sequences) + 60);
    };
    if (prefill)
      pass();
    else
      w_.graph(1 + (sequences + 3) / 4, pass);
    w_.kernel("void tensorrt_llm::kernels::batchApplyPenalty<float>()");
    w_.kernel("void tensorrt_llm::kernels::topKStage1<float, 128, 8>()");
    w_.kernel("void tensorrt_llm::kernels::topKStage2Sampling<float, 128, 8>()");
    w_.kernel("void tensorrt_llm::kernels::stopWordsCriterion()");
    w_.to_host(2);
  }

  /// The sampler runs on the host: logits go there for every token.
  void llama_cpp(bool prefill, std::uint32_t rows, std::uint32_t shape) {
    w_.to_device(4 + extra_inputs_ % 3);
    const auto pass = [&] {
      w_.kernel("void k_get_rows<16, 1, &dequantize_q4_0>(void const*)");
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.kernel("void rms_norm_f32<1024, true>(float const*)");
        for (int g = 0; g < 3; ++g) product(prefill, shape);
        w_.kernel("void rope_norm<true, false, float>(float const*)");
        w_.kernel("void rope_norm<true, false, __half>(float const*)");
        w_.kernel("void k_set_rows<long, __half>(float const*)");
        w_.kernel("void k_set_rows<long, __half>(float const*)");
        if (prefill)
          w_.kernel("void flash_attn_ext_f16<128, 128, 64, 1>(char const*)");
        else
          w_.kernel("void flash_attn_ext_vec<128, 1, (ggml_type)1, (ggml_type)1>(char const*)");
        if (!prefill) w_.kernel("void flash_attn_combine_results<128>(float const*)");
        product(prefill, shape);
        w_.kernel("void k_bin_bcast<&op_add, float, float, float>(float const*)");
        w_.kernel("void rms_norm_f32<1024, true>(float const*)");
        for (int g = 0; g < 2; ++g) product(prefill, shape);
        w_.kernel("void unary_gated_op_kernel<&op_silu, float>(float const*)");
        product(prefill, shape);
        w_.kernel("void k_bin_bcast<&op_add, float, float, float>(float const*)");
      }
      w_.kernel("void rms_norm_f32<1024, true>(float const*)");
      product(false, shape);
    };
    (void)rows;
    if (graphed_ && !prefill)
      w_.graph(5, pass);
    else
      pass();
    w_.to_host();
  }
  void product(bool prefill, std::uint32_t shape) {
    if (!prefill) {
      w_.kernel("void quantize_q8_1(float const*, void*, long)");
      w_.kernel("void mul_mat_vec_q<(ggml_type)2, 1, false, false>(void const*)");
    } else {
      w_.kernel("void quantize_mmq_q8_1<(mmq_q8_1_ds_layout)1>(float const*)");
      w_.kernel("void mul_mat_q<(ggml_type)2, " + std::to_string(64 + shape % 3 * 32) + ", false>(char const*)");
    }
  }

  Writer& w_;
  Dice& d_;
  Engine engine_;
  std::uint32_t layers_, logits_processors_, extra_inputs_, salt_;
  bool flash2_, greedy_, graphed_;
};

/// A compiled model answers requests: a copy in, a graph or a few, the result out.
inline void compiled_inference(Writer& w, std::uint32_t turns) {
  const std::uint32_t graphs = w.dice.between(1, 3), outputs = w.dice.between(1, 2);
  const bool kernels = w.dice.chance(0.5);
  w.out.what = "compiled inference, " + std::to_string(graphs) + " graphs";
  for (std::uint32_t i = 0; i < 120; ++i) w.to_device();
  for (std::uint32_t t = 0; t < turns; ++t) {
    const std::uint64_t begin = w.at();
    w.to_device();
    for (std::uint32_t g = 0; g < graphs; ++g) w.graph(3 + g, [&] { w.gemm(g); });
    if (kernels) w.unrolled("direct_copy_kernel_cuda");
    w.to_host(outputs);
    w.out.steps.push_back({begin, w.at(), StepKind::kIteration});
    w.out.prefill.push_back(2);
  }
}

/// An encoder answers requests of a few lengths.
inline void encoder_serving(Writer& w, std::uint32_t turns) {
  const std::uint32_t layers = w.dice.between(4, 24), lengths = w.dice.between(1, 4);
  w.out.what = "encoder x" + std::to_string(layers) + ", " + std::to_string(lengths) + " lengths";
  for (std::uint32_t i = 0; i < layers * 12; ++i) w.to_device();
  for (std::uint32_t t = 0; t < turns; ++t) {
    const std::uint64_t begin = w.at();
    const std::uint32_t shape = 50'000 + 100 * w.dice.between(1, lengths);
    w.to_device(3);
    w.kernel("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2>()");
    w.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
    for (std::uint32_t l = 0; l < layers; ++l) {
      for (std::uint32_t g = 0; g < 3; ++g) w.gemm(shape);
      w.kernel("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)");
      w.gemm(shape + 1);
      w.elementwise("CUDAFunctor_add<float>");
      w.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
      w.gemm(shape + 2);
      w.elementwise("GeluCUDAKernelImpl");
      w.gemm(shape + 3);
      w.elementwise("CUDAFunctor_add<float>");
      w.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
    }
    w.reduce("MeanOps<float, float, float, float>");
    w.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
    w.to_host();
    w.out.steps.push_back({begin, w.at(), StepKind::kIteration});
    w.out.prefill.push_back(2);
  }
}

}  // namespace mfu::programs
