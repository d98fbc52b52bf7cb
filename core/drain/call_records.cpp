#include "core/drain/call_records.h"

namespace mfu {

void CallRecords::add(const ActivityRecord& call) {
  constexpr TimeNs kOpen = std::numeric_limits<TimeNs>::max();
  const auto thread = static_cast<std::uint32_t>(call.extent);
  if (call.kind == ActivityKind::kCaptureBegins) {
    // The driver's call lies inside the runtime's: the capture is the outer one.
    Interval& capture = captures_[thread];
    if (capture.end_ns != kOpen) capture = {call.begin_ns, kOpen};
    return;
  }
  if (call.kind == ActivityKind::kCaptureEnds) {
    if (const auto found = captures_.find(thread); found != captures_.end()) found->second.end_ns = call.end_ns;
    return;
  }
  if (const auto found = captures_.find(thread);
      found != captures_.end() && call.begin_ns >= found->second.begin_ns && call.begin_ns < found->second.end_ns) {
    // Which stream it is on, its record does not say; should work come of it after all, it is counted then.
    if (map_.insert(call.correlation, LaunchOwner::kNotALaunch)) counters_.add(Counter::kLaunchesCaptured);
    return;
  }
  LaunchOwner owner = ranges_.owner_at(thread, call.begin_ns);
  if (owner == LaunchOwner::kOutside) owner = outside_by(1 + thread % 0xFFFF);
  if (!map_.insert(call.correlation, owner)) return;  // the driver's call inside the runtime's
  if (seen_++ == 0 || newer(call.correlation, newest_)) newest_ = call.correlation;
}

}  // namespace mfu
