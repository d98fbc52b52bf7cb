// The config as it was understood, with every default filled in.
#pragma once

#include <string>

#include "core/config/config.h"

namespace mfu {

/// JSON text: the `config` key of the run directory's `start` line.
[[nodiscard]] std::string resolved_json(const Config& config, const FlopsOptions& options);

}  // namespace mfu
