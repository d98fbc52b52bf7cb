// Windows of made-up time.
#pragma once

#include "core/base/units.h"

namespace mfu {

inline constexpr TimeNs kOrigin = 100 * kNsPerSecond;  ///< where the first window begins
inline constexpr DurationNs kWindow = kNsPerSecond;

}  // namespace mfu
