// Bounds of work from below, where the length of sequences is not known; the attention core alone.
#pragma once

#include "core/base/shape.h"
#include "core/model/flops_model.h"

namespace mfu {

/// Work of `phase` that a shape without a length implies at least: every matrix for every token, attention not counted,
/// logits of one position in prefill. `flop_known` stays false; the bounds are in flop_least and bytes_least, `missing`
/// is kept. With tokens and batch, attention is counted as if all sequences had one length, since pairs are convex in
/// the length. Decode: the context counts as empty. Nothing (0) where not even the tokens are known.
[[nodiscard]] Work least_work(const FlopsModel& model, Phase phase, const Shape& shape) noexcept;

/// FLOP of the forward attention core (scores and values) of one pass of this rank, and how many layers have one. Zero
/// where `shape` does not say.
struct AttentionCore {
  double flop = 0;    ///< [FLOP]
  double layers = 0;  ///< of this rank: kernels of a pass
};
[[nodiscard]] AttentionCore attention_core(const FlopsModel& model, Phase phase, const Shape& shape) noexcept;

}  // namespace mfu
