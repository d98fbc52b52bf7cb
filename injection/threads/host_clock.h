// Three clocks become one: the system's, CUPTI's and the time-stamp counter.
#pragma once

#include <optional>
#include <string>

#include "core/attribution/record_queue.h"
#include "core/base/ticks.h"
#include "core/base/units.h"

namespace mfu {

/// [mfu-drain] Ranges are stamped with the counter, records by CUPTI, windows lie on CUPTI's clock. On Linux CUPTI's
/// clock is CLOCK_REALTIME, which may be set by hand, and which another client can replace by a counter of its own;
/// here all of it is brought onto CLOCK_REALTIME as it ran when the process started.
class HostClock {
 public:
  /// Finds out which clock CUPTI uses: CLOCK_REALTIME is then read directly instead of asking CUPTI, since another
  /// client may replace CUPTI's. Anything else (WSL) is taken as an offset to CLOCK_MONOTONIC.
  /// \param told what CUPTI's clock says at this moment; 0: it does not say.
  void choose(std::uint64_t told);

  /// Once per tick: ties the counter to the clock, and follows a clock that was set. Returns what is worth an event.
  [[nodiscard]] std::optional<std::string> anchor();

  /// CUPTI's clock, as if nobody had ever set it [ns].
  [[nodiscard]] TimeNs now() const noexcept;
  /// Brings the times of records onto the same clock.
  void correct(RecordBatch& batch) const noexcept;

  [[nodiscard]] TickClock& ticks() noexcept { return ticks_; }
  [[nodiscard]] const TickClock& ticks() const noexcept { return ticks_; }

 private:
  [[nodiscard]] std::optional<std::string> follow_steps();

  TickClock ticks_;
  bool direct_ = true;     ///< CUPTI's clock is CLOCK_REALTIME
  DurationNs offset_ = 0;  ///< otherwise: CUPTI's clock less CLOCK_MONOTONIC
  DurationNs lead_ = 0;    ///< CLOCK_REALTIME less CLOCK_MONOTONIC at the last look
  bool lead_known_ = false;
  DurationNs step_ = 0, step_before_ = 0;  ///< by how much CLOCK_REALTIME was set on since the start
};

}  // namespace mfu
