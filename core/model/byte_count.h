// Bytes that the model must move. Internal to core/model.
#pragma once

#include "core/model/flops_model.h"

namespace mfu {

/// The widths by which a model's weights are read: the options' where they say one, else the config's.
[[nodiscard]] WeightStorage effective_storage(const Architecture& model, const FlopsOptions& o);

[[nodiscard]] ByteCount count_all_bytes(const Architecture& model, const WeightStorage& storage, const FlopsOptions& o,
                                        const CountRequest& r) noexcept;

}  // namespace mfu
