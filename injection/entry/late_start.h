// A start that a host's thread waits for, but not for long.
#pragma once

#include <time.h>

#include <atomic>

#include "injection/threads/wakeup.h"

namespace mfu {

/// CUDA was in use before the library was loaded: it starts on a thread apart, while the host's thread that made
/// the first NVTX call waits. It waits as long as the start gets on, and for kMost at the most; all that the start
/// waits for may be the caller's to give.
class LateStart {
 public:
  static constexpr DurationNs kMost = kSlowdown * 300'000'000;   ///< in all
  static constexpr DurationNs kStill = kSlowdown * 100'000'000;  ///< without CPU time of the starting thread

  /// [starting thread] First of all.
  void begin() noexcept;
  /// [starting thread] Last of all, however it went.
  void end() noexcept {
    wake_.notify([this] { ended_ = true; });
  }
  /// [host's thread] False: it goes on before the start has ended.
  bool await() noexcept;
  /// [any thread] The host's thread has gone on before the start had ended.
  [[nodiscard]] bool was_left() const noexcept { return left_.load(std::memory_order_seq_cst); }

 private:
  Wakeup wake_;
  bool ended_ = false;  ///< under the lock of wake_
  std::atomic<bool> left_{false};
  std::atomic<::clockid_t> cpu_{0};  ///< of the starting thread; 0: it does not run yet
};

}  // namespace mfu
