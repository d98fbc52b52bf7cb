// Reading environment variables through a function, so that tests can answer for the process.
#pragma once

#include <functional>

namespace mfu {

/// Looks a variable up; nullptr when unset. `getenv` in the product, a map in tests.
using Getenv = std::function<const char*(const char* name)>;

}  // namespace mfu
