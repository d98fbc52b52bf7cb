// The two injection variables, published to whoever looks later, without endangering a host that reads its environment.
#pragma once

#include <string>

namespace mfu {

/// Absolute path of the file this library was loaded from; empty when it cannot be told.
[[nodiscard]] std::string own_path();

/// Adds `name=value` to the environment when `name` is unset; never overwrites. Other threads may be inside getenv() or
/// setenv(): see EnvironmentCopy.
void publish_variable(const char* name, const std::string& value);

}  // namespace mfu
