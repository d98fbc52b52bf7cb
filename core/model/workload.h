// The workload of one run of a model, where its ranges do not say.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/shape.h"

namespace mfu {

/// The `workload` block.
struct Workload {
  std::optional<Phase> phase;
  Shape shape;                  ///< batch, seq_len, context, new_tokens, tokens, encoder_len
  std::int64_t grad_accum = 1;  ///< micro-batches per step; `batch` is per micro-batch
  bool grad_accum_given = false;
};

}  // namespace mfu
