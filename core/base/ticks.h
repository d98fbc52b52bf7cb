// The cheapest monotonic time there is on a host thread, and its conversion to nanoseconds elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "core/base/units.h"

namespace mfu {

using Ticks = std::int64_t;  ///< TSC cycles live; plain ns in replay

/// [any thread] hot. The time-stamp counter: 7-10 ns, no system call. x86-64 servers have an invariant one; where the
/// kernel itself distrusts it the error stays within a window, since the drain re-anchors every tick.
[[nodiscard]] inline Ticks ticks_now() noexcept { return static_cast<Ticks>(__rdtsc()); }

/// [mfu-drain] Piecewise-linear map from ticks to ns, through anchors taken once per tick of the drain.
class TickClock {
 public:
  /// Live: convert through anchors. Replay (`identity`): ticks are ns already.
  explicit TickClock(bool identity = false) : identity_(identity) {}

  /// Adds an anchor. Ticks must not go back. Returns false when `ns` jumped by more than a second against the TSC.
  bool anchor(Ticks ticks, TimeNs ns);
  /// ns of `ticks`: interpolated between anchors, extrapolated with the nearest slope outside.
  [[nodiscard]] TimeNs to_ns(Ticks ticks) const;

 private:
  struct Anchor {
    Ticks ticks;
    TimeNs ns;
  };
  static constexpr std::size_t kKept = 64;
  bool identity_;
  std::deque<Anchor> anchors_;
};

}  // namespace mfu
