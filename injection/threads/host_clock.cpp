#include "injection/threads/host_clock.h"

#include <utility>

#include "cuda/nvtx_handler.h"
#include "injection/threads/wakeup.h"

namespace mfu {

void HostClock::choose(const std::function<std::uint64_t()>& ask) {
  // A clock that is set while CUPTI is asked says nothing: once more.
  for (int tries = 0; tries < 3; ++tries) {
    follow_steps();
    const DurationNs before = step_;
    const auto theirs = static_cast<TimeNs>(ask());
    follow_steps();
    if (theirs == 0) return;
    if (step_ != before) continue;
    const TimeNs real = monotonic_ns() + lead_;
    // A clock that is nearer to the counter than to CLOCK_REALTIME is another client's, and will go with it.
    if (std::llabs(theirs - real) <= kNsPerSecond || std::llabs(theirs - ticks_now()) <= std::llabs(theirs - real))
      return;
    direct_ = false;
    lead_ = theirs - monotonic_ns();
    step_ = step_before_ = unsaid_ = 0;
    return;
  }
}

/// The system clock was set, or the machine slept: windows go on as if nothing had happened. The one place where
/// CLOCK_REALTIME is read.
void HostClock::follow_steps() noexcept {
  if (!direct_) return;
  const DurationNs lead = utc_now() - monotonic_ns();
  const DurationNs step = lead_known_ ? lead - lead_ : 0;
  lead_ = lead;
  lead_known_ = true;
  if (std::llabs(step) <= kNsPerSecond) return;
  step_before_ = step_;
  step_ += step;
  unsaid_ += step;
  host_counters().add(Counter::kClockJumps);
}

std::optional<std::string> HostClock::anchor() {
  follow_steps();
  std::optional<std::string> notice;
  if (const DurationNs step = std::exchange(unsaid_, 0); step != 0)
    notice = "the system clock was set " + std::to_string(step / kNsPerSecond) +
             " s on; the window around it is not to be trusted, and t0_ns and t1_ns stay on the clock of before";
  // Of three readings the one with the least time between the two counters.
  Ticks best_width = 0, best_ticks = 0;
  TimeNs best_ns = 0;
  for (int i = 0; i < 3; ++i) {
    const Ticks before = ticks_now();
    const TimeNs ns = now();
    const Ticks after = ticks_now();
    if (i != 0 && after - before >= best_width) continue;
    best_width = after - before;
    best_ticks = before + best_width / 2;
    best_ns = ns;
  }
  if (!ticks_.anchor(best_ticks, best_ns)) {
    host_counters().add(Counter::kClockJumps);
    notice = "the system clock was set; the window around it is not to be trusted";
  }
  return notice;
}

/// By how much the clock had been set when `at` was read: as puts it nearest to `real`, which is now on that clock.
DurationNs HostClock::step_of(TimeNs at, TimeNs real) const noexcept {
  const DurationNs since = at - real;
  return std::llabs(since) <= std::llabs(since + step_ - step_before_) ? step_ : step_before_;
}

/// No record says which clock its times are on: it is the one that puts them nearest to now. Kineto gives CUPTI the
/// time-stamp counter for a clock, and leaves it there when it is done.
void HostClock::correct(RecordBatch& batch) noexcept {
  follow_steps();  // these records may have been made since the clock was set
  const TimeNs real = now() + step_;
  const Ticks ticks = ticks_now();
  const TimeNs between = ticks + (real - ticks) / 2;  // a smaller one is nearer to the counter
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    ActivityRecord& record = batch.records[i];
    if (record.begin_ns == 0) continue;
    if ((record.begin_ns < between) == (ticks < real)) {
      record.begin_ns = ticks_.to_ns(record.begin_ns);
      if (record.end_ns != 0) record.end_ns = ticks_.to_ns(record.end_ns);
      continue;
    }
    if (step_ == 0) continue;
    const DurationNs step = step_of(record.begin_ns, real);
    if (record.end_ns != 0) {
      // Only where the clock was set while it ran its end is on another one.
      const bool set_meanwhile = std::llabs(record.end_ns - record.begin_ns) > std::llabs(step_ - step_before_) / 2;
      record.end_ns -= set_meanwhile ? step_of(record.end_ns, real) : step;
    }
    record.begin_ns -= step;
  }
}

}  // namespace mfu
