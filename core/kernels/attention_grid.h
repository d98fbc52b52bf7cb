// What the name and the grid of a fused attention kernel say: direction, sequences, heads, queries.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/activity_record.h"

namespace mfu {

/// How a fused attention kernel is launched, as far as its name tells.
struct AttentionKernel {
  enum class Part : std::uint8_t {
    kForward,
    kBackward,
    kHelper,  ///< prepares or finishes another one: sums of dO x O, conversions, merging of split keys
  };
  /// Where a grid counts something: along y, along z, or nowhere that is known.
  enum class Axis : std::uint8_t { kNone, kY, kZ };

  Part part = Part::kForward;
  Axis sequences = Axis::kNone;
  Axis heads = Axis::kNone;
  std::uint32_t queries_per_block = 0;  ///< x counts blocks of so many queries of a sequence; 0: it does not
};

/// \param demangled name of a kernel of class kAttention.
/// FlashAttention-2 and PyTorch's copy of it: (blocks of queries, sequences, heads); flash_attn
/// csrc/flash_attn/src/flash_fwd_launch_template.h, flash_bwd_launch_template.h. PyTorch's memory-efficient kernels:
/// (blocks of queries, heads, sequences); aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h,
/// kernel_backward.h (`getBlocksGrid`). With split keys, and in persistent kernels (FlashAttention-3, cuDNN, FMHA for
/// compute capability 10), the grid says neither.
[[nodiscard]] AttentionKernel attention_kernel_of(std::string_view demangled) noexcept;

/// Sequences that a launch of `kernel` with this grid worked on.
[[nodiscard]] std::optional<std::int64_t> sequences_of(const AttentionKernel& kernel, const Grid& grid) noexcept;

/// Whether a launch with this grid may have had `queries` queries per sequence. True where the grid does not say.
[[nodiscard]] bool may_have_queries(const AttentionKernel& kernel, const Grid& grid, std::int64_t queries) noexcept;

}  // namespace mfu
