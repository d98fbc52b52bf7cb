// The exact count: FLOP of every component, forward, backward and recomputed. Internal to core/model.
#pragma once

#include "core/model/flops_model.h"

namespace mfu {

/// What a query of this mixer may see.
[[nodiscard]] inline Mask mask_of(const MixerSpec& m) noexcept { return {m.causal, m.window, m.chunk}; }
[[nodiscard]] inline bool has_attention(const MixerSpec& m) noexcept {
  return m.kind == MixerKind::kAttention || m.kind == MixerKind::kLatent;
}

/// The passes over one group as the context mode sees them.
[[nodiscard]] PassSeries series_of(const SequenceGroup& group, std::int64_t passes, ContextMode mode) noexcept;

struct Totals {
  Count fed;        ///< tokens of all passes
  Count sequences;  ///< sequences that feed anything, per pass
};
[[nodiscard]] Totals totals_of(const CountRequest& r) noexcept;

/// The components, backward and recomputation; `total` by the exact rule.
[[nodiscard]] FlopCount count_components(const Architecture& model, const FlopsOptions& o,
                                         const CountRequest& r) noexcept;

}  // namespace mfu
