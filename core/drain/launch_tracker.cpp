#include "core/drain/launch_tracker.h"

#include <algorithm>
#include <array>
#include <utility>

namespace mfu {

void LaunchTracker::begin_tick(TimeNs now, CorrelationId newest, bool any) {
  start(now, newest, any);
  ticks_.push_back({now, newest, any});
  if (ticks_.size() > 4096) ticks_.pop_front();
}

void LaunchTracker::start(TimeNs now, CorrelationId newest, bool any) {
  if (first_tick_ == 0) first_tick_ = now;
  if (!any || started_) return;
  started_ = true;
  oldest_ = static_cast<CorrelationId>(raw(newest) - ids_before_);
}

void LaunchTracker::pass_recorded() {
  if (ticks_.empty() || !ticks_.back().any) return;
  const Tick now = ticks_.back();
  if (raw(now.newest) - raw(oldest_) > kMaxWalk && newer(now.newest, oldest_))
    oldest_ = static_cast<CorrelationId>(raw(now.newest) - kMaxWalk);  // older slots have been reused, so skip them
  Calls calls(ticks_);
  constexpr std::uint32_t kBlock = 256;
  std::array<CorrelationId, kBlock> held;
  while (!newer(oldest_, now.newest)) {
    const std::uint32_t count = std::min(kBlock, raw(now.newest) - raw(oldest_) + 1);
    const std::uint32_t found = map_.find_held(oldest_, count, held.data());
    for (std::uint32_t i = 0; i < found; ++i) {
      const CorrelationId id = held[i];
      const CorrelationMap::Entry entry = map_.look(id);
      if (entry.kind == CorrelationMap::Kind::kRecorded) [[likely]] {
        ++passed_;
        if (order_.pass_next_of_thread(id, entry, now.at)) continue;
      }
      if (entry.kind == CorrelationMap::Kind::kOutstanding) {
        oldest_ = id;
        return;
      }
      if (entry.kind != CorrelationMap::Kind::kOther || entry.place.thread() != 0)
        order_.pass(id, entry, entry.place.is_graph() ? calls.before(id) : 0, now.at);
    }
    oldest_ = static_cast<CorrelationId>(raw(oldest_) + count);
  }
}

/// Looks at all from oldest_ on, gives up what is over without a record, and leaves in waiting_ what holds time back.
void LaunchTracker::walk(const Tick& now, bool lossy) {
  if (newer(oldest_, forgotten_)) any_forgotten_ = false;
  Calls calls(ticks_);
  order_.begin_walk();
  awaited_.clear();
  for (CorrelationId id = oldest_; !newer(id, now.newest); id = static_cast<CorrelationId>(raw(id) + 1)) {
    if (!map_.holds(id)) continue;
    CorrelationMap::Entry entry = map_.look(id);
    if (entry.kind == CorrelationMap::Kind::kOther && entry.place.thread() == 0) continue;
    if (!ordered_) entry.place = LaunchPlace();
    const TimeNs called = calls.before(id);
    const bool outstanding = entry.kind == CorrelationMap::Kind::kOutstanding;
    if (outstanding && any_forgotten_ && !newer(id, forgotten_)) {
      give_up(id, entry, Counter::kLaunchesElsewhere);
    } else if (outstanding && lost(id, entry.place, called, now.at, lossy)) {
      given_up_unknown_ += entry.place.lane() == LaunchPlace::kUnknownLane;
      give_up(id, entry, Counter::kLaunchesExpired);
    }
    if (entry.kind == CorrelationMap::Kind::kOutstanding && is_instance(entry.owner)) {
      const auto owner = static_cast<InstanceId>(entry.owner);
      // A launch that time has gone past does not keep its instance open for ever.
      const bool gone_past =
          std::any_of(unsettled_.begin(), unsettled_.end(), [id](const auto& w) { return w.id == id; });
      if (!gone_past && (awaited_.empty() || awaited_.back() != owner)) awaited_.push_back(owner);
    }
    order_.visit(id, entry, called, now.at);
  }
  waiting_ = order_.end_walk();
}

/// Whether the work of a launch without a record is over, and its record will not come.
bool LaunchTracker::lost(CorrelationId id, LaunchPlace place, TimeNs called, TimeNs now, bool lossy) const noexcept {
  if (place.lane() == LaunchPlace::kUnknownLane) {
    // That others are done says little here; after long enough it says enough.
    return any_recorded_ && newer(newest_recorded_, id) && now - std::max(called, first_tick_) > patience(lossy);
  }
  const auto evidence =
      std::find_if(evidence_.begin(), evidence_.end(), [&](const Evidence& e) { return e.lane == place.lane(); });
  if (evidence == evidence_.end() || !newer(evidence->two_flushes_ago, id)) return false;
  // Its record may be in a buffer that CUPTI keeps because work on another stream, launched about then, still runs.
  // A launch after the one that overtook it has its record in a later buffer, as a rule: of those only what
  // takes long counts, or a busy device would never give anything up.
  return std::none_of(keeps_buffer_.begin(), keeps_buffer_.end(), [&](const Running& other) {
    const auto apart = static_cast<std::int32_t>(raw(other.id) - raw(id));
    return static_cast<std::uint32_t>(apart < 0 ? -apart : apart) < kSameBuffer &&
           (other.long_run || newer(evidence->two_flushes_ago, other.id));
  });
}

void LaunchTracker::keep_evidence(TimeNs now) {
  std::vector<Evidence> kept;
  keeps_buffer_.clear();
  for (const StreamOrder::Waiting& w : waiting_) {
    if (w.graph || w.lane == LaunchPlace::kUnknownLane) continue;
    if (!w.overtaken()) {
      keeps_buffer_.push_back({w.id, now - w.from > kLongRun});
      continue;
    }
    const auto before =
        std::find_if(evidence_.begin(), evidence_.end(), [&](const Evidence& e) { return e.lane == w.lane; });
    Evidence e = before != evidence_.end() ? *before : Evidence{w.lane, w.id, w.id, w.id};
    e.now = w.overtaken_by;
    kept.push_back(e);
  }
  evidence_ = std::move(kept);
}

LaunchTracker::Settled LaunchTracker::settle(bool flushed, bool lossy) {
  const Tick now = ticks_.back();
  if (!now.any) return {now.at, static_cast<CorrelationId>(raw(oldest_) - 1)};
  if (flushed) {
    for (Evidence& e : evidence_) {
      e.two_flushes_ago = e.one_flush_ago;
      e.one_flush_ago = e.now;
    }
  }
  pass_recorded();
  walk(now, lossy);
  keep_evidence(now.at);
  Settled settled{now.at, now.newest};
  unsettled_.clear();
  std::size_t streams = 0;
  for (const StreamOrder::Waiting& w : waiting_) {
    const bool alone = !any_recorded_ || !newer(newest_recorded_, w.id);
    const DurationNs longest = w.lane == LaunchPlace::kUnknownLane ? patience(lossy) : kMostHeld;
    const TimeNs floor = now.at - (alone ? kMostHeldAlone : longest);
    if (w.from < floor) {
      unsettled_.push_back(w);
      gone_past_until_ = std::max(gone_past_until_, floor);
    }
    // A launch that time has gone past does not keep the detector from later ones either. Half a graph is another graph
    // to it: more records may come while nothing behind it on its stream has one.
    if (w.from >= floor && !newer(w.id, settled.complete)) settled.complete = static_cast<CorrelationId>(raw(w.id) - 1);
    settled.until = std::min(settled.until, std::max(w.from, floor));
    streams += !w.graph;
  }
  if (streams > 1 && now.at - settled.until > kNsPerSecond / 20) wants_events_ = true;
  // Ticks before the oldest waiting launch are no longer asked for.
  while (ticks_.size() > 2 && (!ticks_[1].any || newer(oldest_, ticks_[1].newest))) ticks_.pop_front();
  return settled;
}

bool LaunchTracker::all_over(TimeNs now, CorrelationId newest) {
  // Nothing overtakes the newest one. Where launches flow, a walk over all that wait for records takes memory.
  if (const CorrelationMap::Entry last = map_.look(newest);
      map_.holds(newest) && last.kind == CorrelationMap::Kind::kOutstanding && !last.place.is_graph())
    return false;
  start(now, newest, true);  // the first launches may be over before a tick has seen one
  walk({now, newest, true}, false);
  return std::all_of(waiting_.begin(), waiting_.end(),
                     [](const StreamOrder::Waiting& w) { return w.graph || w.overtaken(); });
}

std::optional<CorrelationId> LaunchTracker::oldest_waiting() const {
  std::optional<CorrelationId> oldest;
  for (const StreamOrder::Waiting& w : waiting_)
    if (!w.graph && !w.overtaken() && (!oldest || newer(*oldest, w.id))) oldest = w.id;
  return oldest;
}

bool LaunchTracker::settled(Interval interval) const noexcept {
  return interval.begin_ns >= forced_until_ &&
         std::none_of(unsettled_.begin(), unsettled_.end(),
                      [&](const StreamOrder::Waiting& w) { return w.from < interval.end_ns; });
}

TimeNs LaunchTracker::unsettled_from() const noexcept {
  TimeNs from = 0;
  for (const StreamOrder::Waiting& w : unsettled_) from = from == 0 ? w.from : std::min(from, w.from);
  return from;
}

void LaunchTracker::violated(CorrelationId id, TimeNs begin_ns) {
  if (begin_ns < gone_past_until_) return;
  const LaunchPlace place = map_.place_of(id);
  if (!ordered_ || place.is_given_up() || place.lane() == LaunchPlace::kUnknownLane) return;
  counters_.add(Counter::kStreamOrderBroken);
  ++violations_;
  if (violations_ <= kFewViolations || violations_ * kViolationsPer <= passed_) return;
  ordered_ = false;
  notices_.push_back("work began before what was launched before it on its stream had ended, " +
                     std::to_string(violations_) +
                     " times: the order of streams is no longer relied on, windows come later");
}

std::vector<std::string> LaunchTracker::take_notices() { return std::exchange(notices_, {}); }

}  // namespace mfu
