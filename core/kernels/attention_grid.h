// Facts in the name and the grid of a fused attention kernel: direction, sequences, heads, queries, keys, width.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/activity_record.h"

namespace mfu {

/// How a fused attention kernel is launched, as far as its name says.
struct AttentionKernel {
  enum class Part : std::uint8_t {
    kForward,
    kBackward,
    kHelper,  ///< prepares or finishes another one: sums of dO x O, conversions, merging of split keys
  };
  /// Where a grid counts something: along one axis, or nowhere that is known. kX: of grids with more than that axis.
  enum class Axis : std::uint8_t { kNone, kX, kY, kZ };
  /// Which keys a query sees.
  enum class Mask : std::uint8_t {
    kUnknown,  ///< a window, or nothing that the name says
    kNone,     ///< all
    kCausal,   ///< those up to itself, the last query all
  };

  Part part = Part::kForward;
  Axis sequences = Axis::kNone;
  Axis heads = Axis::kNone;
  Mask mask = Mask::kUnknown;
  /// The sequences of a launch are equally long, whole blocks of queries as of keys. False: not known.
  bool whole_blocks = false;
  std::uint32_t queries_per_block = 0;  ///< x counts blocks of so many queries of a sequence; 0: it does not
  std::uint32_t keys_per_block = 0;     ///< likewise of keys
  std::uint32_t head_dim = 0;           ///< width of queries, keys and values of a head; 0: not known
  /// Its grid says nothing, and those of the helpers that ran with it say what it worked on.
  bool said_by_helpers = false;

  friend bool operator==(const AttentionKernel&, const AttentionKernel&) = default;
};

/// \param demangled name of a kernel of class kAttention.
/// FlashAttention-2 and PyTorch's copy of it: (blocks of queries, sequences, heads), backward (blocks of keys,
/// sequences, heads), or as many blocks as the device has processors where it is deterministic. From 2.4 on the
/// arguments behind the traits are, in both directions, Is_dropout, Is_causal, Is_local, Has_alibi, Is_even_MN (equal
/// lengths of whole blocks), Is_even_K (the width of a head is that of the traits); Dao-AILab/flash-attention
/// csrc/flash_attn/src/flash_fwd_launch_template.h, flash_bwd_launch_template.h at 0251105a, v2.4.0 and v2.6.0.
///
/// PyTorch's memory-efficient kernels: (blocks of queries, heads, sequences);
/// aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h, kernel_backward.h (`getBlocksGrid`).
///
/// FlashAttention-3: its own kernels are persistent, or count blocks in another order. Before and after the
/// backward one run others with (blocks of queries, heads, sequences), their first template argument being the shape of
/// a block; hopper/flash_bwd_launch_template.h at 0251105a. The width of a head is rounded up in it.
///
/// Decode passes, one query to a sequence: Triton's of SGLang and vLLM, `_fwd_kernel_stage1` and
/// `_fwd_grouped_kernel_stage1`, (sequences, blocks of heads, splits of the keys), and a second one that adds the
/// splits up; python/sglang/srt/layers/attention/triton_ops/decode_attention.py,
/// vllm/v1/attention/ops/triton_decode_attention.py. TensorRT-LLM's and FasterTransformer's
/// `masked_multihead_attention_kernel`: (heads, sequences, splits);
/// cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttention/decoderMaskedMultiheadAttentionLaunch.h.
///
/// With split keys otherwise, in cuDNN's kernels and in FMHA for compute capability 10 the grid says nothing.
[[nodiscard]] AttentionKernel attention_kernel_of(std::string_view demangled) noexcept;

/// Sequences that a launch of `kernel` with this grid worked on.
[[nodiscard]] std::optional<std::int64_t> sequences_of(const AttentionKernel& kernel, const Grid& grid) noexcept;

/// Heads of queries, likewise.
[[nodiscard]] std::optional<std::int64_t> heads_of(const AttentionKernel& kernel, const Grid& grid) noexcept;

/// Whether a launch with this grid may have had `queries` queries per sequence. True where the grid does not say.
[[nodiscard]] bool may_have_queries(const AttentionKernel& kernel, const Grid& grid, std::int64_t queries) noexcept;
/// The same of keys. False where the grid does not say.
[[nodiscard]] bool has_keys(const AttentionKernel& kernel, const Grid& grid, std::int64_t keys) noexcept;

}  // namespace mfu
