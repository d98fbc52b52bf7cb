// The texts of this folder that are built into the program.
#pragma once

#include <string_view>
#include <vector>

#include "core/families/family_table.h"

namespace mfu {

[[nodiscard]] std::vector<FamilyFile> embedded_families();
[[nodiscard]] std::string_view embedded_config_keys();
/// A line per model type: the type, and what its class takes as defaults, as JSON.
[[nodiscard]] std::string_view embedded_class_defaults();

}  // namespace mfu
