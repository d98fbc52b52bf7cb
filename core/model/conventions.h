// The named rules for a total, beside the exact count. Internal to core/model.
#pragma once

#include "core/model/flops_model.h"

namespace mfu {

/// Sum over attention layers of heads * (dq + dv), and of heads.
struct HeadSums {
  Count width, heads;
};

/// Parameters and sums that the named conventions need, worked out once per model.
struct ConventionTerms {
  Count active, position, embed, lm_head, matmul;
  HeadSums heads;
  /// Megatron's bill per token beside attention, in multiply-adds and in FLOP of recurrent states, and its heads;
  /// in training with the prediction modules.
  struct Megatron {
    Count weights, state;
    HeadSums heads;
  } megatron, megatron_train;
};

[[nodiscard]] ConventionTerms convention_terms(const Architecture& model) noexcept;

/// The count whose `total` is that of the convention in `o`; the components stay exact.
[[nodiscard]] FlopCount count_by_convention(const Architecture& model, const ConventionTerms& terms,
                                            const FlopsOptions& o, const CountRequest& r) noexcept;

}  // namespace mfu
