// Defaults of the configuration classes of transformers, for keys that a config inside another one leaves out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace mfu {

/// Defaults of a `model_type`, as an object; an empty one where the type is not known. Lives until the process ends.
[[nodiscard]] const nlohmann::json& class_defaults(std::string_view model_type);

}  // namespace mfu
