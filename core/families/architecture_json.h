// An architecture as JSON text.
#pragma once

#include <string>

#include "core/model/architecture.h"

namespace mfu {

/// The model in the project's own schema ({"d_model", "vocab_size", "layers": [...]}).
[[nodiscard]] std::string spec_json(const Architecture& model);

/// The `model` block of `mfu flops --json`: family, parameters by group, and what the config left to assume.
[[nodiscard]] std::string model_json(const Architecture& model);

}  // namespace mfu
