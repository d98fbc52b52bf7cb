// Three clocks become one: the system's, CUPTI's and the time-stamp counter.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/attribution/record_queue.h"
#include "core/base/ticks.h"
#include "core/base/units.h"
#include "injection/threads/wakeup.h"

namespace mfu {

/// [mfu-drain] Ranges are stamped with the counter, records by CUPTI, windows lie on CUPTI's clock. On Linux CUPTI's
/// clock is CLOCK_REALTIME, which may be set by hand, and which another client can replace by another counter;
/// here all of it is brought onto CLOCK_REALTIME as it ran when the process started.
class HostClock {
 public:
  /// Finds out which clock CUPTI uses: CLOCK_REALTIME is then read directly instead of asking CUPTI, since another
  /// client may replace CUPTI's. Anything else (WSL) is taken as an offset to CLOCK_MONOTONIC.
  /// \param ask what CUPTI's clock says at that moment; 0: it does not say.
  void choose(const std::function<std::uint64_t()>& ask);

  /// Once per tick: ties the counter to the clock, and follows a clock that was set. Returns what is worth an event.
  [[nodiscard]] std::optional<std::string> anchor();

  /// CUPTI's clock, as if it had never been set [ns]. Read from CLOCK_MONOTONIC: a clock that is set between two
  /// readings moves nothing.
  [[nodiscard]] TimeNs now() const noexcept { return monotonic_ns() + lead_ - step_; }
  /// Brings the times of records onto the same clock.
  void correct(RecordBatch& batch) noexcept;

  [[nodiscard]] TickClock& ticks() noexcept { return ticks_; }
  [[nodiscard]] const TickClock& ticks() const noexcept { return ticks_; }

 private:
  void follow_steps() noexcept;
  [[nodiscard]] DurationNs step_of(TimeNs at, TimeNs real) const noexcept;

  TickClock ticks_;
  bool direct_ = true;   ///< CUPTI's clock is CLOCK_REALTIME
  DurationNs lead_ = 0;  ///< CUPTI's clock less CLOCK_MONOTONIC at the last look
  bool lead_known_ = false;
  DurationNs step_ = 0, step_before_ = 0;  ///< by how much CLOCK_REALTIME was set on since the start
  DurationNs unsaid_ = 0;                  ///< of that, since the last anchor()
};

}  // namespace mfu
