#include "injection/threads/tracing_switch.h"

#include <algorithm>

namespace mfu {

/// By ranges where there are any, else by the waits of the host: a step has the same number of them each time.
TraceBudget::Progress TracingSwitch::progress() {
  const Opened& opened = parts_.drain.opened();
  if (by_waits_ != (opened.count == 0)) budget_.stop_turns();
  by_waits_ = opened.count == 0;
  TraceBudget::Progress progress{opened.count, opened.last, parts_.attribution.launches_seen(),
                                 parts_.drain.any_graph(), parts_.ledger.idle_ns()};
  if (!by_waits_) return progress;
  const CuptiSession::Waits waits = parts_.session.waits();
  progress.units = waits.count;
  progress.at = waits.count != 0 ? parts_.ticks.to_ns(waits.last) : 0;
  return progress;
}

void TracingSwitch::tick(TimeNs now, bool alone) {
  bool on = true;
  if (alone && parts_.session.can_pause())
    on = budget_.look(now, progress(), traced_from_);
  else
    budget_.stop_turns();
  if (on != on_) change(on, now);
  if (parts_.flush.traces() != on_) return;
  if (effect_at_ == kNever) {
    effect_at_ = now;
    any_newest_ = parts_.attribution.newest_correlation(newest_);
  }
  if (on_ && traced_from_ == TraceBudget::kNotTraced) look_for_begin(now);
  if (!on_ && waiting_ && now - effect_at_ > kSettles) {
    waiting_ = false;
    parts_.drain.forget_waiting();
  }
}

void TracingSwitch::change(bool on, TimeNs now) {
  on_ = on;
  waiting_ = !on;
  effect_at_ = sorts_until_ = kNever;
  begins_.clear();
  if (!on) {
    traced_from_ = TraceBudget::kNotTraced;
    parts_.ledger.not_measured_from(now, true);
  }
  parts_.flush.trace(on);
}

/// Finds the moment from which on all work of the GPU has records. Launches of the pause may run on for a while, so
/// each stream counts from its first work with a record on. The streams are those that come soon.
void TracingSwitch::look_for_begin(TimeNs now) {
  CorrelationId newest{};
  const bool launched = parts_.attribution.newest_correlation(newest) && (!any_newest_ || newer(newest, newest_));
  const DurationNs soon = std::min(parts_.ledger.window_ns() / 8, kNsPerSecond / 2);
  if (now - effect_at_ < soon || (launched && begins_.empty())) return;
  traced_from_ = effect_at_;
  for (const auto& [stream, begin] : begins_) traced_from_ = std::max(traced_from_, begin);
  sorts_until_ = now + kSettles;
  parts_.ledger.measured_again(traced_from_);
}

void TracingSwitch::sort_out(RecordBatch& batch) {
  if (batch.count == 0 || batch.records[0].begin_ns > sorts_until_) return;
  const bool looks = on_ && effect_at_ != kNever && traced_from_ == TraceBudget::kNotTraced;
  const auto unknown = [&](const ActivityRecord& record) {
    if (is_host_call(record.kind)) return false;
    if (!parts_.attribution.map().holds(record.correlation)) return true;
    if (looks && record.begin_ns != 0 && (!any_newest_ || newer(record.correlation, newest_)))
      begins_.try_emplace(std::uint64_t{raw(record.device)} << 32 | raw(record.stream), record.begin_ns);
    return false;
  };
  const auto end = std::remove_if(batch.records.begin(), batch.records.begin() + batch.count, unknown);
  batch.count = static_cast<std::uint32_t>(end - batch.records.begin());
}

}  // namespace mfu
