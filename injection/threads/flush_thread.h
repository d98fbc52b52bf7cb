// The one thread that asks CUPTI for records, since the call may block for long.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/cupti_session.h"
#include "injection/threads/wakeup.h"

namespace mfu {

/// [mfu-flush] runs loop(); [mfu-drain] asks. A flush waits inside CUPTI for its worker and, on some versions, for the
/// GPU: it may take seconds, or never return. So no lock is held around it, and the thread that asks waits with a
/// deadline and leaves this thread where it hangs. It is never joined.
class FlushThread {
 public:
  /// \param done woken whenever a flush has returned.
  FlushThread(CuptiSession& session, Wakeup& done) : session_(session), done_wake_(done) {}
  [[nodiscard]] bool start();

  /// [mfu-drain] Asks for what is complete, or at exit for everything. Returns the number of the flush. One that is
  /// asked for while another runs begins after it.
  std::uint64_t ask(bool everything);
  /// [mfu-drain] Whether flush number `wanted`, or a later one, has returned.
  [[nodiscard]] bool returned(std::uint64_t wanted) const noexcept {
    return done_.load(std::memory_order_relaxed) >= wanted;
  }
  /// Nothing that was asked for is under way.
  [[nodiscard]] bool idle() const noexcept { return returned(newest()); }
  [[nodiscard]] std::uint64_t newest() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  /// Of one that is not idle: when the flush under way began; CLOCK_MONOTONIC.
  [[nodiscard]] TimeNs since() const noexcept { return since_.load(std::memory_order_relaxed); }
  /// [host thread] Another client is about to register: from now on looks often for the end of its session, since
  /// nothing is measured until then.
  void watch_for_end() noexcept;

  /// [any thread] Records that CUPTI dropped so far; CPU time of the thread [s].
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  [[nodiscard]] double cpu_s() const noexcept { return cpu_s_.load(std::memory_order_relaxed); }

 private:
  void loop();
  void look_for_end();

  CuptiSession& session_;
  Wakeup wake_;
  Wakeup& done_wake_;
  std::atomic<std::uint64_t> wanted_{0}, done_{0};
  std::atomic<TimeNs> since_{0};
  std::atomic<bool> everything_{false};
  std::atomic<bool> watching_{false};  ///< another client's session
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<double> cpu_s_{0};
};

}  // namespace mfu
