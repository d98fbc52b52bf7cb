#include "core/drain/drain.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace mfu {

namespace {
constexpr DurationNs kLongestActivity = 3600 * kNsPerSecond;
constexpr DurationNs kClockTolerance = 10 * kNsPerSecond;  // work that was measured cannot begin later than now
}  // namespace

void Drain::follow_instances() {
  InstanceTable& table = attribution_.instances();
  events_.clear();
  const auto take = [&](InstanceSlot* slot) {
    events_.push_back({clock_.to_ns(slot->open_ticks), Event::kOpen, slot});
    open_.push_back(slot);
  };
  for (std::size_t i = 0; i < unpublished_.size();) {
    bool pending = false;
    InstanceSlot* slot = table.at_sequence(unpublished_[i].sequence, pending);
    if (slot != nullptr) take(slot);
    // Three ticks are enough for any claim to be published: then it met a full table and never will be.
    if (pending && ++unpublished_[i].ticks < 3) {
      ++i;
    } else {
      unpublished_[i] = unpublished_.back();
      unpublished_.pop_back();
    }
  }
  for (const std::uint32_t end = table.next_sequence(); next_sequence_ != end; ++next_sequence_) {
    bool pending = false;
    InstanceSlot* slot = table.at_sequence(next_sequence_, pending);
    if (slot != nullptr)
      take(slot);
    else if (pending)
      unpublished_.push_back({next_sequence_, 0});
  }
  // From the newest on, so that of two that close at one moment the inner one comes first.
  std::size_t kept = open_.size();
  for (std::size_t i = open_.size(); i-- > 0;) {
    InstanceSlot* slot = open_[i];
    if (slot->state.load(std::memory_order_acquire) == InstanceSlot::kClosed)
      events_.push_back({clock_.to_ns(slot->close_ticks),
                         slot->close_ticks > slot->open_ticks ? Event::kCloseEarlier : Event::kClose, slot});
    else
      open_[--kept] = slot;
  }
  open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(kept));
  if (events_.empty()) return;
  std::stable_sort(events_.begin(), events_.end(),
                   [](const Event& a, const Event& b) { return a.at != b.at ? a.at < b.at : a.rank < b.rank; });
  for (const Event& event : events_) {
    if (event.rank == Event::kOpen) {
      if (detected_ != nullptr) detected_->stand_aside();
      ledger_.open(*event.slot, event.at);
      if (by_calls_) calls_.open(*event.slot, event.at);
      continue;
    }
    if (by_calls_) calls_.close(*event.slot, event.at);
    const std::uint32_t context = event.slot->context.load(std::memory_order_relaxed);
    ledger_.close(*event.slot, event.at, context != 0 ? contexts_.find(context) : std::nullopt);
    InstanceTable::release(*event.slot);
  }
}

void Drain::begin_tick(TimeNs now) {
  CorrelationId newest = newest_call_;
  const bool any = by_calls_ ? calls_seen_ != 0 : attribution_.newest_correlation(newest);
  if (any && !started_) {
    started_ = true;
    oldest_ = static_cast<CorrelationId>(raw(newest) - (CorrelationMap::kCapacity - 1));
  }
  ticks_.push_back({now, newest, any});
  latest_begin_ = now + kClockTolerance;
  if (ticks_.size() > 4096) ticks_.pop_front();
}

void Drain::count_unmatched(CorrelationId id, bool seen) {
  counters_.add(Counter::kRecordsUnmatched);
  const std::size_t slot = raw(id) % recent_unmatched_.size();
  if (recent_unmatched_used_[slot] && recent_unmatched_[slot] == raw(id)) return;  // a graph's further records
  recent_unmatched_[slot] = raw(id);
  recent_unmatched_used_[slot] = true;
  ++unattributed_;
  if (!seen) ++seen_by_record_;
}

void Drain::record_call(const ActivityRecord& call) {
  const auto thread = static_cast<std::uint32_t>(call.extent);
  if (call.kind == ActivityKind::kCaptureBegins) {
    // The driver's call lies inside the runtime's: the capture is the outer one.
    Interval& capture = captures_[thread];
    if (capture.end_ns != std::numeric_limits<TimeNs>::max())
      capture = {call.begin_ns, std::numeric_limits<TimeNs>::max()};
    return;
  }
  if (call.kind == ActivityKind::kCaptureEnds) {
    if (const auto found = captures_.find(thread); found != captures_.end()) found->second.end_ns = call.end_ns;
    return;
  }
  if (const auto found = captures_.find(thread);
      found != captures_.end() && call.begin_ns >= found->second.begin_ns && call.begin_ns < found->second.end_ns) {
    // Which stream it is on, its record does not say; should work come of it after all, it is counted then.
    if (attribution_.map().insert(call.correlation, LaunchOwner::kNotALaunch))
      counters_.add(Counter::kLaunchesCaptured);
    return;
  }
  LaunchOwner owner = calls_.owner_at(thread, call.begin_ns);
  if (owner == LaunchOwner::kOutside) owner = outside_by(1 + thread % 0xFFFF);
  if (!attribution_.map().insert(call.correlation, owner)) return;  // the driver's call inside the runtime's
  if (calls_seen_++ == 0 || newer(call.correlation, newest_call_)) newest_call_ = call.correlation;
}

/// A record whose launch nobody knows, or that belongs to no region.
void Drain::settle_odd(const ActivityRecord& record, const CorrelationMap::Found& found) {
  const bool first = found.result == CorrelationMap::Lookup::kFound;
  if (found.result == CorrelationMap::Lookup::kNeverSeen || found.result == CorrelationMap::Lookup::kOverwritten)
    count_unmatched(record.correlation, found.result == CorrelationMap::Lookup::kOverwritten);
  else if (is_outside(found.owner))
    outside_ += first;
  else if (found.owner == LaunchOwner::kAmbiguous)
    unattributed_ += first;
  else
    count_unmatched(record.correlation, false);  // not a launch, as far as its thread said
}

inline bool Drain::time_is_good(const ActivityRecord& record) const noexcept {
  return record.begin_ns != 0 && record.end_ns != 0 && record.begin_ns >= ledger_.origin() - kNsPerSecond &&
         record.begin_ns <= latest_begin_ && record.end_ns >= record.begin_ns &&
         record.end_ns - record.begin_ns <= kLongestActivity;
}

inline void Drain::settle(const ActivityRecord& record, const CorrelationMap::Found& found) {
  const bool first = found.result == CorrelationMap::Lookup::kFound;
  const bool known = first || found.result == CorrelationMap::Lookup::kAlreadyRecorded;
  InstanceId owner = InstanceId::kNone;
  if (known && found.owner != LaunchOwner::kOutside && found.owner <= LaunchOwner::kMaxInstance) {
    owner = static_cast<InstanceId>(found.owner);
    attributed_ += first;
  } else {
    settle_odd(record, found);
  }
  if (known && (!any_recorded_ || newer(record.correlation, newest_recorded_))) {
    newest_recorded_ = record.correlation;
    any_recorded_ = true;
  }
  if (!time_is_good(record)) [[unlikely]] {
    const bool none = record.begin_ns == 0 || record.end_ns == 0;
    counters_.add(none ? Counter::kRecordsNoTime : Counter::kRecordsBadTime);
    return;
  }
  newest_begin_ = std::max(newest_begin_, record.begin_ns);
  if (owner == InstanceId::kNone && detected_ != nullptr)
    detected_->add(record, first, thread_outside(found.owner));
  else
    ledger_.add(record, owner, first);
  if (++until_room_check_ >= kMaxPending / 4) {
    until_room_check_ = 0;
    make_room();
  }
}

inline void Drain::record_one(const ActivityRecord& record) {
  if (is_host_call(record.kind)) {
    record_call(record);
    return;
  }
  const CorrelationMap::Found found = attribution_.map().record(record.correlation);
  if (by_calls_ && found.result == CorrelationMap::Lookup::kNeverSeen && waiting_.size() < kMaxPending) {
    waiting_.push_back({record, 0});
    return;
  }
  settle(record, found);
}

void Drain::record(const ActivityRecord& record) { record_one(record); }

void Drain::record(const RecordBatch& batch) {
  // The map is larger than any cache near the core: ask for its slots ahead of time.
  constexpr std::uint32_t kAhead = 12;
  const CorrelationMap& map = attribution_.map();
  for (std::uint32_t i = 0; i < std::min(kAhead, batch.count); ++i) map.prefetch(batch.records[i].correlation);
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    if (i + kAhead < batch.count) map.prefetch(batch.records[i + kAhead].correlation);
    record_one(batch.records[i]);
  }
  // While those slots are near.
  if (!by_calls_ && !ticks_.empty() && ticks_.back().any) pass_recorded(ticks_.back().newest);
}

/// Moves on to the oldest launch that still waits for its first record; ids in between were other API calls.
void Drain::pass_recorded(CorrelationId newest) {
  if (raw(newest) - raw(oldest_) > kMaxWalk && newer(newest, oldest_))
    oldest_ = static_cast<CorrelationId>(raw(newest) - kMaxWalk);  // its slot is another's many times over
  const CorrelationMap& map = attribution_.map();
  std::uint32_t oldest = raw(oldest_);
  while (!newer(static_cast<CorrelationId>(oldest), newest) && !map.outstanding(static_cast<CorrelationId>(oldest)))
    ++oldest;
  oldest_ = static_cast<CorrelationId>(oldest);
}

/// More waits than there is memory for: settles what can be settled at this moment, then whatever is oldest.
void Drain::make_room() {
  if (ledger_.pending() <= kMaxPending || ticks_.empty()) return;
  follow_instances();
  const TimeNs watermark = settled_until(false);
  advance_ledger({watermark, complete()});
  while (ledger_.pending() > kMaxPending && newest_begin_ - ledger_.now() > 1)
    ledger_.advance(ledger_.now() + (newest_begin_ - ledger_.now()) / 2);
}

TimeNs Drain::settled_until(bool lossy) {
  const Tick& now = ticks_.back();
  if (!now.any) return now.at;
  const DurationNs patience = lossy || counters_.get(Counter::kLaunchesExpired) > 16 ? kShortPatience : kPatience;
  for (pass_recorded(now.newest); !newer(oldest_, now.newest); pass_recorded(now.newest)) {
    // It was launched between the last tick whose newest id is older and the next one.
    const auto after = std::find_if(ticks_.begin(), ticks_.end(),
                                    [this](const Tick& t) { return t.any && !newer(oldest_, t.newest); });
    const TimeNs launched_by = after != ticks_.end() ? after->at : now.at;
    const bool overtaken = any_recorded_ && newer(newest_recorded_, oldest_);
    if (overtaken && now.at - launched_by > patience) {
      counters_.add(Counter::kLaunchesExpired);
      oldest_ = static_cast<CorrelationId>(raw(oldest_) + 1);
      continue;
    }
    return after == ticks_.begin() ? ledger_.now() : (after - 1)->at;
  }
  return now.at;
}

void Drain::advance_ledger(const Settled& settled) {
  ledger_.advance(detected_ != nullptr ? detected_->settle(settled.complete, settled.watermark) : settled.watermark);
}

void Drain::end_tick(bool lossy) {
  follow_instances();
  if (by_calls_) {
    std::size_t kept = 0;
    for (Waiting& w : waiting_) {
      const CorrelationMap::Found found = attribution_.map().record(w.record.correlation);
      if (found.result == CorrelationMap::Lookup::kNeverSeen && ++w.ticks < kLagByCalls)
        waiting_[kept++] = w;
      else
        settle(w.record, found);
    }
    waiting_.resize(kept);
    calls_.forget_before(ticks_.back().at - 60 * kNsPerSecond);
  }
  // Work that came after its time was settled: leave more of it open from now on.
  const std::uint64_t late = counters_.get(Counter::kRecordsLate);
  if (late > late_seen_) {
    lag_ = std::min(kMaxLag, lag_ * 2);
    late_seen_ = late;
  }
  const TimeNs watermark = settled_until(lossy);  // moves on to the oldest launch that waits
  settled_.push_back({watermark, complete()});
  while (settled_.size() > lag_ + 1) settled_.pop_front();
  // Not the very moment of the tick: what it let in after it looked carries the same time where clocks are coarse.
  if (settled_.size() > lag_) advance_ledger({settled_.front().watermark - 1, settled_.front().complete});
  make_room();
  // Ticks before the oldest waiting launch are no longer asked for.
  while (ticks_.size() > 2 && ticks_[1].any && newer(oldest_, ticks_[1].newest)) ticks_.pop_front();
  while (ticks_.size() > 2 && !ticks_[1].any) ticks_.pop_front();
}

void Drain::finish(TimeNs now) {
  follow_instances();
  for (const Waiting& w : std::exchange(waiting_, {}))
    settle(w.record, attribution_.map().record(w.record.correlation));
  if (detected_ != nullptr) detected_->finish();
  ledger_.finish(now);
}

LaunchAccount Drain::account() const {
  LaunchAccount account;
  account.seen = attribution_.launches_seen() + calls_seen_ + seen_by_record_;
  // What the detector found a region for was launched outside of every range.
  const std::uint64_t detected = detected_ != nullptr ? std::min(detected_->attributed(), outside_) : 0;
  account.attributed = attributed_ + detected;
  account.outside = outside_ - detected;
  account.unattributed = unattributed_;
  const std::uint64_t known = attributed_ + outside_ + unattributed_;
  account.seen = std::max(account.seen, known);
  account.dropped = account.seen - known;
  return account;
}

}  // namespace mfu
