// The kernels of a small decoder as PyTorch launches them, with their products: an independent witness of what a step
// is. It knows nothing of the code under test but the records that it fills.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/attribution/product_table.h"
#include "core/base/activity_record.h"
#include "core/base/product.h"
#include "core/kernels/kernel_names.h"

namespace mfu {

struct MadeTransformer {
  std::uint64_t d = 512, heads = 8, kv_heads = 2, head_dim = 64, f = 1536, vocab = 4096, layers = 4;

  enum class Attention { kFlash2, kBatched, kFlash3, kCudnn };
  bool causal = true, deterministic = false;
  Attention attention = Attention::kFlash2;
  bool recompute = false;
  DType dtype = DType::kBf16;
  double flop_per_ns = 400'000;  ///< speed of every matmul

  /// Its config.
  [[nodiscard]] static std::string config(const std::string& more = "") {
    return R"({"model": {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4,
      "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4096, "tie_word_embeddings": false})" +
           (more.empty() ? std::string() : ", " + more) + "}";
  }

  ProductTable* products = nullptr;
  KernelNames* names = nullptr;
  std::function<void(const ActivityRecord&)> give;
  std::int64_t at = 0;  ///< where the next kernel begins

  // What was given out.
  double product_flop = 0;    ///< 2mnk of every product
  double attention_flop = 0;  ///< of fused kernels: forward core once, backward two and a half times
  double gemm_ns = 0, attention_ns = 0;
  std::uint64_t calls = 0;

  void kernel(const std::string& name, std::int64_t length, const Product* product = nullptr, bool first = true,
              Grid grid = {}) {
    ActivityRecord r;
    r.begin_ns = at;
    r.end_ns = at + length;
    r.kind = ActivityKind::kKernel;
    r.name = names->intern(name.c_str());
    r.extent = pack(grid);
    if (product != nullptr) {
      r.product = products->number_of(*product);
      r.first_of_product = first;
    }
    at += length;
    give(r);
  }

  void product(std::uint64_t m, std::uint64_t n, std::uint64_t k, bool ta, bool tb, std::uint32_t batch = 1) {
    Product p;
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = batch;
    p.transpose_a = ta;
    p.transpose_b = tb;
    p.operands = p.result = dtype;
    const double flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * batch;
    const auto length = static_cast<std::int64_t>(flop / flop_per_ns) + 1;
    kernel("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", length, &p);
    product_flop += flop;
    gemm_ns += static_cast<double>(length);
    ++calls;
    if (k >= 4096) {  // split over k: a second kernel, which belongs to the same call
      kernel("void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>(...)", 50, &p, false);
      gemm_ns += 50;
    }
  }
  void forward(std::uint64_t out, std::uint64_t in, std::uint64_t rows) { product(out, rows, in, true, false); }
  void backward(std::uint64_t out, std::uint64_t in, std::uint64_t rows) {
    product(in, rows, out, false, false);
    product(in, out, rows, false, true);
  }

  /// FLOP of the core of one layer.
  [[nodiscard]] double core(std::uint64_t batch, std::uint64_t seq) const {
    const auto s = static_cast<double>(seq);
    return 4.0 * static_cast<double>(batch * heads * head_dim) * (causal ? s * (s + 1) / 2 : s * s);
  }
  void attend(std::uint64_t batch, std::uint64_t seq, bool is_backward) {
    const auto blocks = static_cast<std::uint32_t>((seq + 127) / 128);
    const Grid grid{blocks, static_cast<std::uint32_t>(batch), static_cast<std::uint32_t>(heads)};
    if (attention == Attention::kBatched) {
      const auto count = static_cast<std::uint32_t>(batch * heads);
      if (!is_backward) {
        product(seq, seq, head_dim, true, false, count);
        kernel("void softmax_warp_forward<float>(...)", 500);
        product(head_dim, seq, seq, false, false, count);
      } else {
        product(seq, seq, head_dim, true, false, count);
        product(head_dim, seq, seq, false, true, count);
        product(head_dim, seq, seq, false, false, count);
        product(head_dim, seq, seq, false, true, count);
      }
      return;
    }
    const double flop = core(batch, seq) * (is_backward ? 2.5 : 1);
    const auto length = static_cast<std::int64_t>(flop / flop_per_ns) + 1;
    attention_flop += flop;
    attention_ns += static_cast<double>(length);
    // Names and grids of Dao-AILab/flash-attention 0251105a, csrc/flash_attn/src and hopper; blocks of 128 and of 64.
    const std::string traits = "64, 128, 128, 4, false, false, bf16, Flash_kernel_traits<64, 128, 128, 4, bf16> >";
    const bool whole = seq % 128 == 0;
    const std::string flags = std::string("false, ") + (causal ? "true" : "false") + ", false, false, " +
                              (whole ? "true" : "false") + ", true, false";
    const auto h = static_cast<std::uint32_t>(heads), b = static_cast<std::uint32_t>(batch);
    const auto helper = [&](const std::string& name, const Grid& of) {
      kernel(name, 100, nullptr, true, of);
      attention_ns += 100;
    };
    if (attention == Attention::kCudnn) {
      kernel(std::string("cudnn_generated_fort_native_sdpa_sm90_flash_") + (is_backward ? "bprop" : "fprop") +
                 "_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
             length, nullptr, true, {132, 1, 1});
    } else if (attention == Attention::kFlash3) {
      const std::string block =
          "cute::tuple<cute::C<64>, cute::C<64> >, cutlass::bfloat16_t, float, "
          "cutlass::arch::Sm90";
      const Grid by_queries{static_cast<std::uint32_t>((seq + 63) / 64), h, b};
      if (is_backward)
        helper("void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<" + block + ", true, false> >(Params)",
               by_queries);
      kernel(is_backward ? "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<X> > >(Params)"
                         : "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<X> > >(Params)",
             length, nullptr, true, {is_backward ? blocks * h * b : 132, 1, 1});
      if (is_backward)
        helper("void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<" + block + ", 256, X> >(Params)",
               by_queries);
    } else if (!is_backward) {
      kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<" + traits + ", " + flags +
                 ", false>(pytorch_flash::Flash_fwd_params)",
             length, nullptr, true, grid);
    } else {
      helper("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<" + traits +
                 " >(pytorch_flash::Flash_bwd_params)",
             grid);
      const std::uint32_t processors = (132 + b * h - 1) / (b * h);
      kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<" + traits +
                 ", " + flags + ">(pytorch_flash::Flash_bwd_params)",
             length, nullptr, true, {deterministic ? processors : blocks, b, h});
    }
  }
  void layer_forward(std::uint64_t batch, std::uint64_t seq) {
    const std::uint64_t rows = batch * seq, kv = kv_heads * head_dim;
    forward(heads * head_dim, d, rows);
    forward(kv, d, rows);
    forward(kv, d, rows);
    attend(batch, seq, false);
    forward(d, heads * head_dim, rows);
    forward(f, d, rows);
    forward(f, d, rows);
    forward(d, f, rows);
    kernel("void vectorized_elementwise_kernel<4, Add>(...)", 400);
  }
  void layer_backward(std::uint64_t batch, std::uint64_t seq) {
    const std::uint64_t rows = batch * seq, kv = kv_heads * head_dim;
    backward(d, f, rows);
    backward(f, d, rows);
    backward(f, d, rows);
    backward(d, heads * head_dim, rows);
    attend(batch, seq, true);
    backward(kv, d, rows);
    backward(kv, d, rows);
    backward(heads * head_dim, d, rows);
  }
  void pass_forward(std::uint64_t batch, std::uint64_t seq, std::uint64_t logits_rows) {
    for (std::uint64_t l = 0; l < layers; ++l) layer_forward(batch, seq);
    if (logits_rows != 0) forward(vocab, d, logits_rows);
  }
  /// One training step of `passes` micro-batches.
  void step(std::uint64_t batch, std::uint64_t seq, int passes = 1) {
    for (int p = 0; p < passes; ++p) {
      pass_forward(batch, seq, batch * seq);
      backward(vocab, d, batch * seq);
      for (std::uint64_t l = 0; l < layers; ++l) {
        if (recompute) layer_forward(batch, seq);
        layer_backward(batch, seq);
      }
    }
    kernel("void multi_tensor_apply_kernel<Adam>(...)", 5000);
  }

  /// Model FLOP of a training step, by hand: 6 x weights x tokens, three times the causal core.
  [[nodiscard]] double step_flop(std::uint64_t batch, std::uint64_t seq, int passes = 1) const {
    const std::uint64_t kv = kv_heads * head_dim, q = heads * head_dim;
    const auto weights = static_cast<double>(layers * (d * q + 2 * d * kv + q * d + 3 * d * f) + vocab * d);
    return passes *
           (6 * weights * static_cast<double>(batch * seq) + 3 * static_cast<double>(layers) * core(batch, seq));
  }
};

}  // namespace mfu
