// A flag as a lock, for a few instructions at a time.
#pragma once

#include <sched.h>

#include <atomic>

namespace mfu {

/// Holds the flag while it lives. It is not waited for without end: the child of a fork may find it taken by a thread
/// that the child does not have. Then it is false, and what it guards is left alone.
class SpinGuard {
 public:
  explicit SpinGuard(std::atomic_flag& flag) noexcept : flag_(flag) {
    constexpr int kSpins = 64, kMost = 1 << 14;
    for (int tries = 0; tries < kMost; ++tries) {
      if (!flag_.test_and_set(std::memory_order_acquire)) {
        held_ = true;
        return;
      }
      if (tries >= kSpins) ::sched_yield();  // so that a holder that was interrupted can go on
    }
  }
  ~SpinGuard() {
    if (held_) flag_.clear(std::memory_order_release);
  }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

  [[nodiscard]] explicit operator bool() const noexcept { return held_; }

 private:
  std::atomic_flag& flag_;
  bool held_ = false;
};

}  // namespace mfu
