// Reading environment variables through a function, so that tests can answer for the process.
#pragma once

#include <functional>

namespace mfu {

/// Looks a variable up; nullptr when unset. `getenv` in the product, a map in tests.
using Getenv = std::function<const char*(const char* name)>;

/// A variable's value; nullptr when it is unset or empty.
inline const char* value_of(const Getenv& getenv, const char* name) {
  const char* value = getenv ? getenv(name) : nullptr;
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace mfu
