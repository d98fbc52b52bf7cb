// Clocks, and waits that end early when woken: our threads have them in common.
#pragma once

#include <pthread.h>
#include <time.h>

#include <utility>

#include "core/base/clock.h"
#include "core/base/units.h"

namespace mfu {

[[nodiscard]] inline TimeNs monotonic_ns() noexcept { return time_of(CLOCK_MONOTONIC); }
/// CPU time of the calling thread [s].
[[nodiscard]] inline double thread_cpu_s() noexcept { return seconds(time_of(CLOCK_THREAD_CPUTIME_ID)); }

/// Factor on every deadline at exit: ThreadSanitizer slows the process about tenfold.
#ifdef MFU_THREAD_SANITIZED
inline constexpr DurationNs kSlowdown = 10;
#else
inline constexpr DurationNs kSlowdown = 1;
#endif

/// One thread waits, any thread wakes it. On CLOCK_MONOTONIC, so that a clock set by hand moves nothing.
///
/// The lock is held for the few instructions of a change and never while anything else is called, so a host thread that
/// exits or forks may take it: no thread of the library can be stopped for long while it holds it.
class Wakeup {
 public:
  Wakeup() {
    ::pthread_condattr_t attributes;
    ::pthread_condattr_init(&attributes);
    ::pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    ::pthread_cond_init(&condition_, &attributes);
    ::pthread_condattr_destroy(&attributes);
  }
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  /// False when `ns` passed without `ready()`.
  template <typename Ready>
  bool wait(DurationNs ns, Ready&& ready) {
    const TimeNs until = monotonic_ns() + ns;
    const ::timespec deadline{static_cast<::time_t>(until / kNsPerSecond), static_cast<long>(until % kNsPerSecond)};
    ::pthread_mutex_lock(&mutex_);
    bool is_ready = ready();
    while (!is_ready && ::pthread_cond_timedwait(&condition_, &mutex_, &deadline) == 0) is_ready = ready();
    if (!is_ready) is_ready = ready();
    ::pthread_mutex_unlock(&mutex_);
    return is_ready;
  }
  /// Wakes a wait so that it looks again, without a lock: from CUPTI's threads. It may come too early and be lost.
  void poke() noexcept { ::pthread_cond_broadcast(&condition_); }
  /// Makes a change that a wait looks for, and wakes it.
  template <typename Change>
  void notify(Change&& change) {
    ::pthread_mutex_lock(&mutex_);
    std::forward<Change>(change)();
    ::pthread_cond_broadcast(&condition_);
    ::pthread_mutex_unlock(&mutex_);
  }

 private:
  ::pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  ::pthread_cond_t condition_;
};

}  // namespace mfu
