#include "injection/threads/host_clock.h"

#include <cstdlib>

#include "cuda/nvtx_handler.h"
#include "injection/threads/wakeup.h"

namespace mfu {

void HostClock::choose(std::uint64_t told) {
  const TimeNs real = clock_ns(CLOCK_REALTIME);
  if (told == 0) return;
  const auto theirs = static_cast<TimeNs>(told);
  // A clock that is nearer to the counter than to CLOCK_REALTIME is another client's, and will go with it.
  if (std::llabs(theirs - real) <= kNsPerSecond || std::llabs(theirs - ticks_now()) <= std::llabs(theirs - real))
    return;
  direct_ = false;
  offset_ = theirs - monotonic_ns();
}

TimeNs HostClock::now() const noexcept { return direct_ ? clock_ns(CLOCK_REALTIME) - step_ : monotonic_ns() + offset_; }

/// Somebody set the system clock, or the machine slept: windows go on as if nothing had happened.
std::optional<std::string> HostClock::follow_steps() {
  if (!direct_) return std::nullopt;
  const DurationNs lead = clock_ns(CLOCK_REALTIME) - monotonic_ns();
  const DurationNs step = lead_known_ ? lead - lead_ : 0;
  lead_ = lead;
  lead_known_ = true;
  if (std::llabs(step) <= kNsPerSecond) return std::nullopt;
  step_before_ = step_;
  step_ += step;
  host_counters().add(Counter::kClockJumps);
  return "the system clock was set " + std::to_string(step / kNsPerSecond) +
         " s on; the window around it is not to be trusted, and t0_ns and t1_ns stay on the clock of before";
}

std::optional<std::string> HostClock::anchor() {
  std::optional<std::string> notice = follow_steps();
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

/// No record says which clock its times are on: it is the one that puts them nearest to now. Kineto gives CUPTI the
/// time-stamp counter for a clock, and leaves it there when it is done.
void HostClock::correct(RecordBatch& batch) const noexcept {
  const TimeNs real = now() + step_;
  const Ticks ticks = ticks_now();
  const TimeNs between = ticks + (real - ticks) / 2;  // what lies below is nearer to the counter
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    ActivityRecord& record = batch.records[i];
    if (record.begin_ns == 0) continue;
    if ((record.begin_ns < between) == (ticks < real)) {
      record.begin_ns = ticks_.to_ns(record.begin_ns);
      if (record.end_ns != 0) record.end_ns = ticks_.to_ns(record.end_ns);
      continue;
    }
    if (step_ == 0) continue;
    const DurationNs since = record.begin_ns - real;
    const DurationNs step = std::llabs(since) <= std::llabs(since + step_ - step_before_) ? step_ : step_before_;
    record.begin_ns -= step;
    if (record.end_ns != 0) record.end_ns -= step;
  }
}

}  // namespace mfu
