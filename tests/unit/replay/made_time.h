// Units of made-up time.
#pragma once

#include "core/base/units.h"

namespace mfu {

inline constexpr DurationNs kUs = 1000;

}  // namespace mfu
