// The project's own schema: {"d_model", "vocab_size", "layers": [...]}. Internal to the readers of core/model.
#pragma once

#include <optional>

#include "core/base/json_fields.h"
#include "core/model/architecture.h"

namespace mfu {

/// Reads `f` as the own schema; docs/config.md describes it.
void read_own(const Fields& f, std::optional<Error>* problem, Architecture& spec);

}  // namespace mfu
