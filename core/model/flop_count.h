// The exact count: FLOP of every component, forward, backward and recomputed. Internal to core/model.
#pragma once

#include "core/model/flops_model.h"
#include "core/model/vision.h"

namespace mfu {

/// The keys that a query of this mixer may see.
[[nodiscard]] inline Mask mask_of(const MixerSpec& m) noexcept {
  return {m.causal, m.window, m.chunk, m.sparse_block, m.random_blocks};
}
[[nodiscard]] inline bool has_attention(const MixerSpec& m) noexcept {
  return m.kind == MixerKind::kAttention || m.kind == MixerKind::kLatent;
}

/// Every position has logits, not only the last of each sequence and pass.
[[nodiscard]] bool all_logits(const Architecture& model, LogitsMode mode, Phase phase) noexcept;

/// The passes over one group as the context mode sees them.
[[nodiscard]] PassSeries series_of(const SequenceGroup& group, std::int64_t passes, ContextMode mode) noexcept;

struct Totals {
  Count fed;        ///< tokens of all passes
  Count sequences;  ///< sequences that feed anything, per pass
};
[[nodiscard]] Totals totals_of(const CountRequest& r) noexcept;

/// The images as the layers that attend to them see them: tokens whose keys and values are made in this work, tokens
/// kept in all, and the pairs with them in one layer. `encoder_len` says how many each sequence has where they are
/// cached.
struct ImageContext {
  Count projected, kept, pairs;
};
[[nodiscard]] ImageContext image_context_of(const Architecture& model, const CountRequest& r) noexcept;

/// Forward FLOP of all images by `tower`, the model's or a part of it: those that are given or, where the tower is the
/// model or an image goes with every sequence, one of the tower's size for each sequence.
[[nodiscard]] VisionCount count_images(const Architecture& model, const VisionSpec& tower,
                                       const CountRequest& r) noexcept;

/// The components, backward and recomputation; `total` by the exact rule.
[[nodiscard]] FlopCount count_components(const Architecture& model, const FlopsOptions& o,
                                         const CountRequest& r) noexcept;

}  // namespace mfu
