// Runs where the library is loaded: finds other copies of it, and publishes the two injection variables.
#pragma once

#include <string>

namespace mfu {

/// Address of `symbol` in the copy of this library that was loaded first; nullptr when that is this one.
/// [any thread] cold. The copy is found by its file name, which holds `mfuinject`.
[[nodiscard]] void* find_in_leading_copy(const char* symbol) noexcept;

template <typename Function>
[[nodiscard]] Function* in_leading_copy(const char* symbol) noexcept {
  return reinterpret_cast<Function*>(find_in_leading_copy(symbol));
}

/// Absolute path of the file this library was loaded from; empty where it is unknown.
[[nodiscard]] std::string own_path();

/// Adds `name=value` to the environment when `name` is unset; never overwrites. Other threads may be inside getenv() or
/// setenv(): see EnvironmentCopy.
void publish_variable(const char* name, const std::string& value);

}  // namespace mfu
