// The cheapest monotonic time there is on a host thread, and its conversion to nanoseconds elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/base/units.h"

namespace mfu {

using Ticks = std::int64_t;  ///< of the processor's counter live; plain ns in replay

/// [any thread] hot. No system call. x86-64: the time-stamp counter, 7-10 ns; servers have an invariant one, and where
/// the kernel itself distrusts it the error stays within a window, since the drain re-anchors every tick. aarch64: the
/// virtual counter, which runs at the fixed rate of cntfrq_el0 (1 GHz from Armv8.6 on, 25 to 100 MHz before). TickClock
/// takes any rate.
[[nodiscard]] inline Ticks ticks_now() noexcept {
#if defined(__x86_64__)
  return static_cast<Ticks>(__builtin_ia32_rdtsc());
#elif defined(__aarch64__)
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return static_cast<Ticks>(ticks);
#else
#error "no counter that can be read without a system call is known for this processor"
#endif
}

/// A thread's pause between two looks at a lock that is held for nanoseconds.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // waits some ten cycles; `yield` is a no-op on cores without hardware threads
#endif
}

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
