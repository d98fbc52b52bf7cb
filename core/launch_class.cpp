#include "core/launch_class.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "core/kernel_class.h"

namespace mfu {
namespace {

/// A family matches where `text` occurs, and `also` (if any) occurs after it. Lower case.
struct Rule {
  std::string_view text;
  std::string_view also;
  LaunchClass launch_class;
};

using enum LaunchClass;

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
    {"adafactor", {}, kOptimizer},
    {"newton_schulz", {}, kOptimizer},
    {"addcdiv", {}, kForeach},
    {"addcmul", {}, kForeach},
    {"multi_tensor_apply", "copy", kOther},
    {"multi_tensor_apply", {}, kForeach},

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
    {"nll_loss", {}, kLoss},
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
  int angle = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++angle;
    if (name[i] == '>' && angle > 0 && (i == 0 || name[i - 1] != '-')) --angle;
    if (name[i] == '(' && angle == 0 && i > 0 && !name.substr(i).starts_with("(anonymous namespace)"))
      return name.substr(0, i);
  }
  return name;
}

template <std::size_t N>
std::optional<LaunchClass> first_match(const std::array<Rule, N>& rules, std::string_view name) noexcept {
  for (const Rule& rule : rules) {
    const std::size_t at = name.find(rule.text);
    if (at == name.npos) continue;
    if (rule.also.empty() || name.find(rule.also, at + rule.text.size()) != name.npos) return rule.launch_class;
  }
  return std::nullopt;
}

LaunchClass class_of(std::string_view demangled) noexcept {
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

LaunchTraits traits_of(LaunchClass launch_class) noexcept {
  LaunchTraits traits{launch_class, 0, 0};
  switch (launch_class) {
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
  if (launch_class == kGemm || launch_class == kConvBackward || launch_class == kAttention ||
      launch_class == kAttentionPrefill || launch_class == kAttentionDecode || launch_class == kAttentionBackward)
    traits.family = 1 + static_cast<std::uint32_t>(launch_class == kConvBackward ? kGemm : launch_class);
  return traits;
}

LaunchTraits classify_launch_name(std::string_view demangled) noexcept { return traits_of(class_of(demangled)); }

LaunchClass copy_class(std::string_view name) noexcept {
  if (name.find("HtoD") != name.npos || name.find("HtoA") != name.npos || name.find("HostToDevice") != name.npos)
    return kCopyToDevice;
  if (name.find("DtoH") != name.npos || name.find("AtoH") != name.npos || name.find("DeviceToHost") != name.npos)
    return kCopyToHost;
  return kCopyWithin;
}

}  // namespace mfu
