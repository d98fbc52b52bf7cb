#include "core/kernels/kernel_role.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>

#include "core/kernels/kernel_class.h"

namespace mfu {
namespace {

/// A family matches where `text` occurs, and `also` (if any) occurs after it. Lower case.
struct Rule {
  std::string_view text;
  std::string_view also;
  KernelRole role;
};

using enum KernelRole;

// Before GEMM and attention are asked of classify_kernel. In order of precedence.
constexpr auto kFirst = std::to_array<Rule>({
    // Loss scaling checks all gradients just before the update; it runs nowhere else.
    {"amp_non_finite", {}, kOptimizer},
    {"amp_update_scale", {}, kOptimizer},
    // The update rules by name. FBGEMM's embedding backward is its optimizer too and stays with the backward pass.
    {"split_embedding_backward", {}, kEmbeddingBackward},
    {"embedding_backward", {}, kEmbeddingBackward},
    {"multi_tensor_apply", "adam", kOptimizer},
    {"multi_tensor_apply", "sgd", kOptimizer},
    {"multi_tensor_apply", "lamb", kOptimizer},
    {"multi_tensor_apply", "lion", kOptimizer},
    {"multi_tensor_apply", "adagrad", kOptimizer},
    {"multi_tensor_apply", "novograd", kOptimizer},
    {"multi_tensor_apply", "lars", kOptimizer},
    {"multi_tensor_apply", "rmsprop", kOptimizer},
    {"fusedadam", {}, kOptimizer},
    {"fused_adam", {}, kOptimizer},
    {"fusedsgd", {}, kOptimizer},
    {"fused_sgd", {}, kOptimizer},
    {"fusedlamb", {}, kOptimizer},
    {"fused_lamb", {}, kOptimizer},
    {"adamw", {}, kOptimizer},
    {"adam_kernel", {}, kOptimizer},
    {"adam_cuda", {}, kOptimizer},
    {"adamfunctor", {}, kOptimizer},
    {"koptimizer", "bit", kOptimizer},  // bitsandbytes: kOptimizer32bit2State, kOptimizerStatic8bit...
    {"lion_update", {}, kOptimizer},
    // TensorFlow and MindSpore: ApplyAdamKernel, ApplyKerasMomentumKernel; Paddle: AdamKernelREG; OneFlow:
    // AdamUpdateGpu.
    {"applyada", {}, kOptimizer},
    {"applykerasmomentum", {}, kOptimizer},
    {"adamkernel", {}, kOptimizer},
    {"adamupdate", {}, kOptimizer},
    {"momentumupdate", {}, kOptimizer},
    {"sgdupdate", {}, kOptimizer},
    {"adafactor", {}, kOptimizer},
    {"newton_schulz", {}, kOptimizer},
    {"addcdiv", {}, kForeach},
    {"addcmul", {}, kForeach},
    {"multi_tensor_apply", "copy", kOther},
    {"multi_tensor_apply", {}, kForeach},
    {"triton_for_fused", {}, kForeach},  // Inductor's kernels over lists of tensors, as a compiled optimizer runs them

    {"flashattnbwd", {}, kAttentionBackward},
    {"flash_bwd", {}, kAttentionBackward},
    {"fmha", "dgrad", kAttentionBackward},
    {"fmha", "bwd", kAttentionBackward},
    {"fmha", "backward", kAttentionBackward},
    {"attention", "backward", kAttentionBackward},
    {"attention", "bwd", kAttentionBackward},
    {"attn_bwd", {}, kAttentionBackward},
    {"attn", "backward", kAttentionBackward},
    {"sdpa", "bprop", kAttentionBackward},
    {"sdpa", "bwd", kAttentionBackward},
    {"bwd_dq_dk_dv", {}, kAttentionBackward},
    {"bwd_kernel_dk_dv", {}, kAttentionBackward},
    {"bwd_kernel_dq", {}, kAttentionBackward},
    {"_bwd_preprocess", {}, kAttentionBackward},
    {"dot_do_o", {}, kAttentionBackward},
    {"convert_dq", {}, kAttentionBackward},

    {"argmax", {}, kSampling},
    {"topktopp", {}, kSampling},
    {"top_k_top_p", {}, kSampling},
    {"topp", "sampl", kSampling},
    {"topk", "sampl", kSampling},
    {"minp", "sampl", kSampling},
    {"samplingfrom", {}, kSampling},
    {"sampling_from", {}, kSampling},
    {"samplekernel", {}, kSampling},
    {"sample_token", {}, kSampling},
    {"sample_recovered", {}, kSampling},
    {"rejection_", "sample", kSampling},
    {"multinomial", {}, kSampling},
    {"gumbel", {}, kSampling},

    {"reshape_and_cache", {}, kCacheWrite},
    {"store_kvcache", {}, kCacheWrite},
    {"concat_and_cache", {}, kCacheWrite},
    {"appendpagedkv", {}, kCacheWrite},
    {"updatekvcache", {}, kCacheWrite},
    {"kv_buffer", {}, kCacheWrite},
    {"rotary", {}, kRope},
    {"rope_", {}, kRope},
    {"_rope", {}, kRope},
    {"ropequantize", {}, kRope},
    {"flash_attn_ext_vec", {}, kAttentionDecode},  // llama.cpp: one row of queries at a time
    {"k_set_rows", {}, kCacheWrite},
    {"k_get_rows", {}, kEmbedding},
    {"paged_attention", {}, kAttentionDecode},
    {"splitkv", {}, kAttentionDecode},
    {"unified_attention_3d", {}, kAttentionDecode},
    {"reduce_segments", {}, kAttentionDecode},
    {"batchdecode", {}, kAttentionDecode},
    {"singledecode", {}, kAttentionDecode},
    {"mla_decode", {}, kAttentionDecode},
    {"flash_fwd_mla", {}, kAttentionDecode},
    {"_fwd_kernel_stage", {}, kAttentionDecode},
    {"_fwd_grouped_kernel_stage", {}, kAttentionDecode},
    {"masked_multihead_attention", {}, kAttentionDecode},
    {"mmha", {}, kAttentionDecode},
    {"xqa", {}, kAttentionDecode},
    {"pagedkv", "causal", kAttentionPrefill},
    {"unified_attention_2d", {}, kAttentionPrefill},
    {"batchprefill", {}, kAttentionPrefill},
    {"singleprefill", {}, kAttentionPrefill},

    {"moe::", {}, kRouting},
    {"topkgating", {}, kRouting},
    {"routingindices", {}, kRouting},
    {"_topk_forward", {}, kRouting},
    {"moe_align", {}, kRouting},
    {"grouped_topk", {}, kRouting},
    {"scaled_fp8_quant", {}, kQuantise},
    {"quantize_with_block_size", {}, kQuantise},
    {"per_token_cast", {}, kQuantise},
    {"per_token_group_quant", {}, kQuantise},
});

// For names that classify_kernel takes for neither matmul nor communication.
constexpr auto kThen = std::to_array<Rule>({
    {"gammabetabackward", {}, kNormBackward},
    {"layer_norm_grad", {}, kNormBackward},
    {"norm_backward", {}, kNormBackward},
    {"normbackward", {}, kNormBackward},
    {"norm_bwd", {}, kNormBackward},
    {"ln_bwd", {}, kNormBackward},
    {"bn_bw", {}, kNormBackward},
    {"batch_norm_backward", {}, kNormBackward},
    {"norm", "backward", kNormBackward},
    {"norm", "bwd", kNormBackward},
    {"softmax", "backward", kSoftmaxBackward},
    {"softmax", "bwd", kSoftmaxBackward},
    {"nll_loss_backward", {}, kSoftmaxBackward},
    {"mse_backward", {}, kSoftmaxBackward},
    {"classnllcriterion_updategradinput", {}, kSoftmaxBackward},
    {"cross_entropy", "bwd", kSoftmaxBackward},
    {"cross_entropy", "backward", kSoftmaxBackward},
    {"ctc_loss", "backward", kSoftmaxBackward},
    {"smooth_l1", "backward", kSoftmaxBackward},
    {"huber", "backward", kSoftmaxBackward},
    {"nll_loss", {}, kLoss},
    {"ctc_loss", {}, kLoss},
    {"smooth_l1", {}, kLoss},
    {"huber", {}, kLoss},
    {"classnll", {}, kLoss},
    {"mse_", {}, kLoss},
    {"cross_entropy", {}, kLoss},
    {"binary_cross_entropy", {}, kLoss},
    {"embedding_dense_backward", {}, kEmbeddingBackward},
    {"embedding_backward", {}, kEmbeddingBackward},
    {"grad_indice", {}, kEmbeddingBackward},
    {"grad_weight", {}, kEmbeddingBackward},
    {"layer_norm", {}, kNorm},
    {"layernorm", {}, kNorm},
    {"rms_norm", {}, kNorm},
    {"rmsnorm", {}, kNorm},
    {"bn_fw", {}, kNorm},
    {"batch_norm", {}, kNorm},
    {"group_norm", {}, kNorm},
    {"softmax", {}, kSoftmax},
    {"embedding", {}, kEmbedding},
    {"indexselect", {}, kEmbedding},
    {"vectorized_gather", {}, kEmbedding},
    {"max_pool_backward", {}, kElementwiseBackward},
    {"avg_pool", "backward", kElementwiseBackward},
    {"pool", "backward", kElementwiseBackward},
    {"sigmoid_backward", {}, kElementwiseBackward},
    {"tanh_backward", {}, kElementwiseBackward},
    {"threshold_backward", {}, kElementwiseBackward},
    {"gelu_backward", {}, kElementwiseBackward},
    {"gelubackward", {}, kElementwiseBackward},
    {"silu_backward", {}, kElementwiseBackward},
    {"silubackward", {}, kElementwiseBackward},
    {"swiglu_bwd", {}, kElementwiseBackward},
    {"swiglu", "backward", kElementwiseBackward},
    {"backward", {}, kElementwiseBackward},
    {"_bwd", {}, kElementwiseBackward},
    {"pool", {}, kPool},
    {"distribution_", {}, kRandom},
    {"dropout", {}, kRandom},
    {"radixsort", {}, kSort},
    {"devicescan", {}, kSort},
    {"sort", {}, kSort},
    {"reduce_kernel", {}, kReduce},
    {"scatter_gather", {}, kIndex},
    {"index", {}, kIndex},
    {"catarray", {}, kIndex},
    {"elementwise", {}, kElementwise},
});

/// A kernel whose launch has one block per row. `name` with its namespace where other libraries have such a name too;
/// looked up in the sources of the libraries.
struct RowKernel {
  std::string_view name;
  RowAxis axis;
};
constexpr auto kRowKernels = std::to_array<RowKernel>({
    // PyTorch, ATen/native/cuda/layer_norm_kernel.cu: <<<M>>> for M rows. RowwiseMoments is left out: group norms run
    // it over batch x groups.
    {"vectorized_layer_norm_kernel", RowAxis::kX},
    {"LayerNormForwardCUDAKernel", RowAxis::kX},
    // vLLM, csrc/layernorm_kernels.cu and layernorm_quant_kernels.cu: grid(num_tokens), all but the last dimension.
    {"vllm::rms_norm_kernel", RowAxis::kX},
    {"vllm::fused_add_rms_norm_kernel", RowAxis::kX},
    {"vllm::rms_norm_static_fp8_quant_kernel", RowAxis::kX},
    {"vllm::fused_add_rms_norm_static_fp8_quant_kernel", RowAxis::kX},
    // FlashInfer, include/flashinfer/norm.cuh: nblks(batch_size), the rows. QKRMSNormKernel takes no more blocks than
    // fit the device.
    {"RMSNormKernel", RowAxis::kX},
    {"FusedAddRMSNormKernel", RowAxis::kX},
    {"RMSNormQuantKernel", RowAxis::kX},
    // TensorRT-LLM, cpp/tensorrt_llm/kernels/rmsnormKernels.cu and layernormKernels.cu: grid(tokens).
    {"generalRmsNorm", RowAxis::kX},
    {"generalLayerNorm", RowAxis::kX},
    // Apex, csrc/layer_norm_cuda_kernel.cu: blocks(1, min(n1, maxGridY), 1) for n1 rows.
    {"cuApplyLayerNorm", RowAxis::kY},
    {"cuApplyRMSNorm", RowAxis::kY},
    // Triton. Liger ops/rms_norm.py and rope.py: (n_rows,), (batch x seq_len,), the latter backward too; Unsloth
    // kernels/rms_layernorm.py: (n_rows,); flash-attn ops/triton/layer_norm.py: (M,) for M rows.
    {"_rms_norm_forward_kernel", RowAxis::kX},
    {"_rms_layernorm_forward", RowAxis::kX},
    {"_layer_norm_fwd_1pass_kernel", RowAxis::kX},
    {"_triton_rope", RowAxis::kX},
    // vLLM, csrc/pos_encoding_kernels.cu: grid(num_tokens); layers/rotary_embedding/mrope.py: (n_row,), the tokens.
    {"vllm::rotary_embedding_kernel", RowAxis::kX},
    {"_triton_mrope_forward", RowAxis::kX},
    // vLLM, csrc/cache_kernels.cu: grid(num_tokens) of the slot mapping, so without the rows that pad a graph;
    // triton_reshape_and_cache_flash.py: (slot_mapping.shape[0], tiles of a row).
    {"vllm::reshape_and_cache_kernel", RowAxis::kX},
    {"vllm::reshape_and_cache_flash_kernel", RowAxis::kX},
    {"vllm::concat_and_cache_mla_kernel", RowAxis::kX},
    {"reshape_and_cache_kernel_flash", RowAxis::kXTiled},
    // SGLang, python/sglang/srt/mem_cache: (slots, tiles of a row). FlashInfer fb28d724, include/flashinfer/page.cuh:
    // nblks(batch_size), one token of each sequence; (tokens, heads).
    {"set_mla_kv_buffer_kernel", RowAxis::kXTiled},
    {"AppendPagedKVCacheDecodeKernel", RowAxis::kX},
    {"NVFP4QuantizeAppendPagedKVCacheKernel", RowAxis::kXTiled},
    {"NVFP4QuantizeAppendPagedKVCacheWithSlotMappingKernel", RowAxis::kXTiled},
    // mfu demo, tools/demo_kernels.cu.
    {"demo_layernorm", RowAxis::kX},
});

/// Names are read up to here: what decides stands in the first few hundred bytes of every name seen.
constexpr std::size_t kMaxRead = 1024;

class LowerName {
 public:
  explicit LowerName(std::string_view name) noexcept : size_(std::min(name.size(), kMaxRead)) {
    for (std::size_t i = 0; i < size_; ++i) {
      const char c = name[i];
      text_[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, kMaxRead> text_;  // left unset on purpose: only the first size_ characters are read
  std::size_t size_;
};

/// The name without its parameter list, whose types name other kernels' namespaces; template arguments stay, since
/// ATen's elementwise and reduce kernels carry their functor there.
std::string_view without_parameters(std::string_view name) noexcept {
  // Brackets that are open: a `>` inside parentheses compares, as in enable_if<(((8)>(0)))>.
  std::array<char, 64> open;
  std::size_t depth = 0, parentheses = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '(' && depth == 0) {
      if (i > 0 && !name.substr(i).starts_with("(anonymous namespace)")) return name.substr(0, i);
    } else if (c == '<' || c == '(') {
      if (depth == open.size()) return name;
      open[depth++] = c;
      parentheses += c == '(';
    } else if (c == '>') {
      if (depth > 0 && open[depth - 1] == '<' && name[i - 1] != '-') --depth;
    } else if (c == ')' && parentheses > 0) {
      --parentheses;
      while (open[--depth] != '(') {  // a `<` inside them compared, too
      }
    }
  }
  return name;
}

template <std::size_t N>
std::optional<KernelRole> first_match(const std::array<Rule, N>& rules, std::string_view name) noexcept {
  for (const Rule& rule : rules) {
    const std::size_t at = name.find(rule.text);
    if (at == name.npos) continue;
    if (rule.also.empty() || name.find(rule.also, at + rule.text.size()) != name.npos) return rule.role;
  }
  return std::nullopt;
}

/// Whole names only: `_block_rms_norm_forward_kernel` has several rows to a block.
RowAxis row_axis_of(std::string_view demangled) noexcept {
  const auto of_a_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const std::string_view name = without_parameters(demangled.substr(0, kMaxRead));
  for (const RowKernel& kernel : kRowKernels) {
    const std::size_t at = name.find(kernel.name);
    if (at == name.npos) continue;
    const std::string_view after = name.substr(at + kernel.name.size());
    if ((at == 0 || !of_a_name(name[at - 1])) && (after.empty() || !of_a_name(after.front()))) return kernel.axis;
  }
  return RowAxis::kNone;
}

KernelRole class_of(std::string_view demangled) noexcept {
  const LowerName lowered(demangled);
  const std::string_view name = without_parameters(lowered.view());
  const KernelClass kernel_class = classify_kernel(demangled);
  if (kernel_class == KernelClass::kComm) return kComm;
  if (const auto known = first_match(kFirst, name)) return *known;
  if (kernel_class == KernelClass::kAttention) return kAttention;
  // cuDNN's offset tables and layout changes are no matmuls, but they come and go with the algorithm as matmuls do.
  const bool of_convolution = name.find("wgrad") != name.npos || name.find("dgrad") != name.npos;
  if (kernel_class == KernelClass::kGemm) return of_convolution ? kConvBackward : kGemm;
  if (of_convolution) return kConvBackward;
  if (name.find("cudnn") != name.npos && name.find("offsets") != name.npos) return kGemm;
  if (const auto known = first_match(kThen, name)) return *known;
  return kOther;
}

}  // namespace

KernelTraits traits_of(KernelRole role) noexcept {
  KernelTraits traits{role, 0, RowAxis::kNone, 0};
  switch (role) {
    case kGraph:
      traits.flags = kFlagGraph;
      break;
    case kCopyToDevice:
      traits.flags = kFlagToDevice;
      break;
    case kCopyToHost:
      traits.flags = kFlagToHost;
      break;
    case kOptimizer:
      traits.flags = kFlagOptimizer;
      break;
    case kForeach:
      traits.flags = kFlagForeach;
      break;
    case kAttentionBackward:
    case kConvBackward:
    case kNormBackward:
    case kSoftmaxBackward:
    case kEmbeddingBackward:
    case kElementwiseBackward:
      traits.flags = kFlagBackward;
      break;
    case kLoss:
      traits.flags = kFlagLoss;
      break;
    case kSampling:
      traits.flags = kFlagSampling;
      break;
    default:
      break;
  }
  // What a library picks by shape, and copies, whose sizes say nothing.
  if (role == kGemm || role == kConvBackward || role == kAttention || role == kAttentionPrefill ||
      role == kAttentionDecode || role == kAttentionBackward)
    traits.family = 1 + static_cast<std::uint32_t>(role == kConvBackward ? kGemm : role);
  return traits;
}

KernelTraits role_of_kernel(std::string_view demangled) noexcept {
  KernelTraits traits = traits_of(class_of(demangled));
  if (traits.role == kNorm || traits.role == kRope || traits.role == kCacheWrite)
    traits.row_axis = row_axis_of(demangled);
  return traits;
}

KernelRole copy_role(CopyDirection direction) noexcept {
  if (direction == CopyDirection::kToDevice) return kCopyToDevice;
  if (direction == CopyDirection::kToHost) return kCopyToHost;
  return kCopyWithin;
}

CopyDirection copy_direction(std::string_view name) noexcept {
  const auto has = [name](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [name](std::string_view w) { return name.find(w) != name.npos; });
  };
  // A stands for an array, P for a peer.
  if (has({"HtoD", "HtoA", "HostToDevice"})) return CopyDirection::kToDevice;
  if (has({"DtoH", "AtoH", "DeviceToHost"})) return CopyDirection::kToHost;
  if (has({"DtoD", "DtoA", "AtoD", "AtoA", "PtoP", "HtoH", "DeviceToDevice", "HostToHost"}))
    return CopyDirection::kWithin;
  return CopyDirection::kUnknown;
}

}  // namespace mfu
