#include "core/drain/call_records.h"

#include <algorithm>

namespace mfu {

void CallAttribution::open(const InstanceSlot& slot, TimeNs at) {
  if (slot.kind == InstanceKind::kNested) return;
  Span span;
  span.open = at;
  span.id = slot.id;
  spans_[slot.kind == InstanceKind::kProcess ? kProcess : slot.os_thread].push_back(span);
}

void CallAttribution::close(const InstanceSlot& slot, TimeNs at) {
  if (slot.kind == InstanceKind::kNested) return;
  auto& spans = spans_[slot.kind == InstanceKind::kProcess ? kProcess : slot.os_thread];
  const auto found = std::find_if(spans.rbegin(), spans.rend(), [&](const Span& s) { return s.id == slot.id; });
  if (found != spans.rend()) found->close = at;
}

InstanceId CallAttribution::innermost(const std::vector<Span>& spans, TimeNs at) {
  // The last one to open by then that has not closed: ranges of a thread nest.
  auto after = std::upper_bound(spans.begin(), spans.end(), at, [](TimeNs t, const Span& s) { return t < s.open; });
  while (after != spans.begin()) {
    --after;
    if (after->close > at) return after->id;
  }
  return InstanceId::kNone;
}

LaunchOwner CallAttribution::owner_at(std::uint32_t os_thread, TimeNs at) const {
  if (const auto own = spans_.find(os_thread); own != spans_.end() && os_thread != kProcess)
    if (const InstanceId id = innermost(own->second, at); id != InstanceId::kNone)
      return static_cast<LaunchOwner>(raw(id));
  InstanceId process = InstanceId::kNone, other = InstanceId::kNone;
  int owners = 0;
  for (const auto& [thread, spans] : spans_) {
    const InstanceId id = innermost(spans, at);
    if (id == InstanceId::kNone) continue;
    if (thread == kProcess) {
      process = id;
    } else {
      other = id;
      ++owners;
    }
  }
  if (owners == 1) return static_cast<LaunchOwner>(raw(other));
  if (process != InstanceId::kNone) return static_cast<LaunchOwner>(raw(process));
  return owners == 0 ? LaunchOwner::kOutside : LaunchOwner::kAmbiguous;
}

void CallAttribution::forget_before(TimeNs time) {
  for (auto it = spans_.begin(); it != spans_.end();) {
    std::erase_if(it->second, [time](const Span& s) { return s.close < time; });
    it = it->second.empty() ? spans_.erase(it) : std::next(it);
  }
}

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
