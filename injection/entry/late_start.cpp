#include "injection/entry/late_start.h"

#include <pthread.h>

namespace mfu {

void LateStart::begin() noexcept {
  ::clockid_t cpu{};
  if (::pthread_getcpuclockid(::pthread_self(), &cpu) == 0) cpu_.store(cpu, std::memory_order_relaxed);
}

bool LateStart::await() noexcept {
  constexpr DurationNs kLook = 10'000'000;
  const TimeNs begin = monotonic_ns();
  TimeNs moved = begin, used = 0;
  for (TimeNs now = begin; now - moved < kStill && now - begin < kMost; now = monotonic_ns()) {
    if (wake_.wait(kLook, [this] { return ended_; })) return true;
    const ::clockid_t cpu = cpu_.load(std::memory_order_relaxed);
    const TimeNs used_now = cpu != 0 ? time_of(cpu) : 0;
    if (used_now == used) continue;
    used = used_now;
    moved = monotonic_ns();
  }
  left_.store(true, std::memory_order_seq_cst);
  return false;
}

}  // namespace mfu
