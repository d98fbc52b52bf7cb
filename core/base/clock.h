// The clocks, in nanoseconds.
#pragma once

#include <time.h>

#include "core/base/units.h"

namespace mfu {

/// Time of a POSIX clock [ns]. CLOCK_REALTIME is UTC, for what other machines read; CLOCK_MONOTONIC measures.
[[nodiscard]] inline TimeNs time_of(clockid_t clock) noexcept {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<TimeNs>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

[[nodiscard]] inline TimeNs utc_now() noexcept { return time_of(CLOCK_REALTIME); }

}  // namespace mfu
