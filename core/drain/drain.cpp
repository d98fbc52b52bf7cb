#include "core/drain/drain.h"

#include <algorithm>
#include <span>
#include <utility>

namespace mfu {
namespace {
constexpr DurationNs kLongestActivity = 3600 * kNsPerSecond;
constexpr DurationNs kClockTolerance = 10 * kNsPerSecond;  // work that was measured cannot begin later than now

/// How much later `t` is than `low`; very much where it is earlier. So two bounds are one comparison.
constexpr std::uint64_t since(TimeNs t, TimeNs low) noexcept {
  return static_cast<std::uint64_t>(t) - static_cast<std::uint64_t>(low);
}
}  // namespace

Drain::Drain(Attribution& attribution, Ledger& ledger, TickClock& clock, const ContextDevices& contexts,
             Counters& counters, DetectedRegions* detected, bool by_calls, GraphInside* graphs)
    : attribution_(attribution),
      ledger_(ledger),
      contexts_(contexts),
      counters_(counters),
      detected_(detected),
      graphs_(graphs),
      instances_(attribution.instances(), clock),
      launches_(attribution.map(), counters),
      lag_(by_calls ? kLagOfCalls : kLag),
      earliest_begin_(std::max<TimeNs>(1, ledger.origin() - kNsPerSecond)),  // 0 is no time
      begin_range_(since(std::numeric_limits<TimeNs>::max(), earliest_begin_)) {
  if (by_calls) calls_.emplace(attribution.map(), counters);
}

void Drain::follow_instances() {
  if (program_ != nullptr)
    for (InstanceSlot* range : program_->take_given_out()) attribution_.instances().release(*range);
  for (const InstanceFeed::Event& event : instances_.take()) {
    if (ledger_.out_of_time()) return;  // the run ends without them
    if (event.opens()) {
      if (!ledger_.has_room()) {
        counters_.add(Counter::kInstancesFull);
        continue;
      }
      if (program_ != nullptr && program_->open_range(event)) continue;
      if (detected_ != nullptr) detected_->stand_aside();
      ledger_.open(*event.slot, event.at);
      if (calls_) calls_->ranges().open(*event.slot, event.at);
      continue;
    }
    if (calls_) calls_->ranges().close(*event.slot, event.at);
    const std::uint32_t context = event.slot->context.load(std::memory_order_relaxed);
    const std::optional<std::uint32_t> device = context != 0 ? contexts_.find(context) : std::nullopt;
    if (program_ != nullptr && program_->close_range(event, device)) continue;
    ledger_.close(*event.slot, event.at, device);
    attribution_.instances().release(*event.slot);
  }
}

bool Drain::newest_launch(CorrelationId& newest) const noexcept {
  if (!calls_) return attribution_.newest_correlation(newest);
  newest = calls_->newest();
  return calls_->seen() != 0;
}

bool Drain::all_over(TimeNs now) {
  CorrelationId newest{};
  if (!newest_launch(newest)) return true;
  follow_launches(newest);
  return launches_.all_over(now, newest);
}

void Drain::follow_launches(CorrelationId newest) {
  if (!launches_.started() && !calls_) launches_.begin_at(attribution_.ids_since_first(newest));
}

void Drain::forget_waiting() noexcept {
  CorrelationId newest{};
  if (newest_launch(newest)) launches_.forget_until(newest);
}

void Drain::begin_tick(TimeNs now) {
  CorrelationId newest{};
  const bool any = newest_launch(newest);
  if (any) follow_launches(newest);
  launches_.begin_tick(now, newest, any);
  if (graphs_ != nullptr) graphs_->follow();
  expect_until(now);
}

void Drain::expect_until(TimeNs now) noexcept { begin_range_ = since(now + kClockTolerance, earliest_begin_); }

void Drain::count_unmatched(CorrelationId id, bool seen) {
  counters_.add(Counter::kRecordsUnmatched);
  if (!unmatched_ids_.add(id)) return;
  ++unattributed_;
  if (!seen) ++seen_by_record_;
}

/// A record whose launch is unknown, or that belongs to no region.
void Drain::deliver_odd(const ActivityRecord& record, CorrelationMap::Lookup result, LaunchOwner owner) {
  const bool first = result == CorrelationMap::Lookup::kFound;
  if (result == CorrelationMap::Lookup::kNeverSeen || result == CorrelationMap::Lookup::kOverwritten)
    count_unmatched(record.correlation, result == CorrelationMap::Lookup::kOverwritten);
  else if (is_outside(owner))
    outside_ += first;
  else if (owner == LaunchOwner::kAmbiguous)
    unattributed_ += first;
  else
    count_unmatched(record.correlation, false);  // not a launch, as far as its thread said
}

/// The account has gone on past the begin of this one.
void Drain::note_late(const ActivityRecord& record, bool first) {
  if (record.begin_ns < forced_to_) return;
  if (first && !calls_)
    launches_.violated(record.correlation, record.begin_ns);
  else
    came_in_two_flushes_ = true;
}

inline bool Drain::time_is_good(const ActivityRecord& record) const noexcept {
  return since(record.begin_ns, earliest_begin_) <= begin_range_ &&
         since(record.end_ns, record.begin_ns) <= static_cast<std::uint64_t>(kLongestActivity);
}

void Drain::note_bad_time(const ActivityRecord& record, InstanceId owner, bool known, bool first) {
  const bool none = record.begin_ns == 0 || record.end_ns == 0;
  counters_.add(none ? Counter::kRecordsNoTime : Counter::kRecordsBadTime);
  if (known ? !attribution_.map().note_no_time(record.correlation, first) : !untimed_ids_.add(record.correlation))
    return;
  ++not_timed_;
  if (unfinished_.possible && record.end_ns == 0) {
    unfinished_.found = true;
    return;
  }
  // No time is settled before its launches have their records.
  const TimeNs from = ledger_.now(), until = launches_.any_tick() ? launches_.now() : from;
  ledger_.add_untimed(owner, record.device, {from, std::max(from, until)}, first);
}

/// Gives a record to its owner.
[[gnu::always_inline]] inline void Drain::deliver(const ActivityRecord& record, const CorrelationMap::Found& found) {
  const bool first = found.result == CorrelationMap::Lookup::kFound;
  const bool known = first || found.result == CorrelationMap::Lookup::kAlreadyRecorded;
  InstanceId owner = InstanceId::kNone;
  if (known && is_instance(found.owner)) [[likely]] {
    owner = static_cast<InstanceId>(found.owner);
    attributed_ += first;
  } else {
    deliver_odd(record, found.result, found.owner);
  }
  if (known) launches_.recorded(record.correlation);
  if (!time_is_good(record)) [[unlikely]]
    return note_bad_time(record, owner, known, first);
  if (known) attribution_.map().note_times(record.correlation, record.begin_ns, record.end_ns, first);
  if (record.begin_ns < advanced_to_) [[unlikely]]
    note_late(record, first);
  newest_.begin = std::max(newest_.begin, record.begin_ns);
  newest_.end = std::max(newest_.end, record.end_ns);
  if (graphs_ != nullptr && record.graph == GraphId::kNone) graphs_->learn(record);
  if (program_ != nullptr && owner != InstanceId::kNone && program_->holds(owner)) [[unlikely]]
    program_->add(record, first, 0, owner);
  else if (owner != InstanceId::kNone)
    ledger_.add(record, owner, first);
  else if (program_ != nullptr && (detected_ == nullptr || !program_->leaves_to_detector()))
    program_->add(record, first, thread_outside(found.owner));
  else if (detected_ != nullptr)
    detected_->add(record, first, thread_outside(found.owner));
  else
    ledger_.add(record, owner, first);
}

/// Sees to it that not too many wait. Not after each record: those of a batch are few beside kMaxPending.
void Drain::added(std::size_t records) {
  since_room_check_ += records;
  if (since_room_check_ < kMaxPending / 16) return;
  since_room_check_ = 0;
  make_room();
}

void Drain::deliver_waiting(const ActivityRecord& record, const CorrelationMap::Found& found) {
  if (found.result == CorrelationMap::Lookup::kNeverSeen && record.begin_ns > unknown_work_until_) return;
  deliver(record, found);
  added(1);
}

/// \param newest see CorrelationMap::record.
[[gnu::always_inline]] inline void Drain::record_one(ActivityRecord& record, CorrelationMap::Newest newest) {
  if (is_host_call(record.kind)) [[unlikely]] {
    if (calls_) calls_->add(record);
    return;
  }
  const CorrelationMap::Found found = attribution_.map().record(record.correlation, newest);
  if (calls_ && found.result == CorrelationMap::Lookup::kNeverSeen && calls_->keep(record)) return;
  // Kernels of graphs have the product of their node already.
  if (found.product && record.kind == ActivityKind::kKernel && record.graph == GraphId::kNone) {
    record.product = found.product.product();
    record.first_of_product = found.product.first();
  }
  if (graphs_ != nullptr && record.kind == ActivityKind::kGraph) [[unlikely]]
    return deliver_graph(record, found);
  deliver(record, found);
}

/// A whole graph, as its nodes where these are known.
void Drain::deliver_graph(const ActivityRecord& record, CorrelationMap::Found found) {
  graphs_->follow();
  std::span<const ActivityRecord> nodes;
  if (time_is_good(record)) nodes = graphs_->of(record, static_cast<GraphNumber>(found.product.word()));
  if (nodes.empty()) return deliver(record, found);
  for (const ActivityRecord& node : nodes) {
    deliver(node, found);
    if (found.result == CorrelationMap::Lookup::kFound) found.result = CorrelationMap::Lookup::kAlreadyRecorded;
  }
}

void Drain::record(const ActivityRecord& record) {
  ActivityRecord of_product = record;
  record_one(of_product, {});
  added(1);
}

void Drain::record(RecordBatch& batch) {
  // The map is larger than any cache near the core: ask for its slots ahead of time.
  constexpr std::uint32_t kAhead = 12;
  const CorrelationMap& map = attribution_.map();
  ActivityRecord* const first = batch.records.data();
  ActivityRecord* const end = first + batch.count;
  // Worth a look at all threads where there are many records.
  constexpr std::uint32_t kMany = 256;
  CorrelationMap::Newest newest;
  if (CorrelationId id{}; batch.count >= kMany && newest_launch(id)) newest = CorrelationMap::Newest(id);
  const ActivityRecord* ahead = first;
  for (; ahead != end && ahead != first + kAhead; ++ahead) map.prefetch(ahead->correlation);
  for (ActivityRecord* record = first; record != end; ++record) {
    if (ahead != end) map.prefetch((ahead++)->correlation);
    record_one(*record, newest);
  }
  if (!calls_) launches_.pass_recorded();  // while those slots are near
  added(batch.count);
}

/// More waits than there is memory for: settles what can be settled at this moment, then what is oldest.
void Drain::make_room() {
  const bool detector_is_full = detected_ != nullptr && detected_->is_full();
  if ((ledger_.pending() <= kMaxPending && !detector_is_full) || !launches_.any_tick()) return;
  follow_instances();
  advance_ledger(launches_.settle(false, false));
  while (ledger_.pending() > kMaxPending && newest_.begin - ledger_.now() > 1) {
    const TimeNs before = ledger_.now();
    ledger_.advance(before + (newest_.begin - before) / 2);
    if (ledger_.now() == before) return;  // the run ends, and time no longer goes on
    forced_to_ = ledger_.now();
    launches_.force(forced_to_);
  }
}

void Drain::advance_ledger(const LaunchTracker::Settled& settled) {
  TimeNs until = program_ != nullptr ? program_->settle(settled.complete, settled.until) : settled.until;
  if (detected_ != nullptr) until = std::min(until, detected_->settle(settled.complete, settled.until));
  advanced_to_ = std::max(advanced_to_, until);
  ledger_.await_launches_of(launches_.awaited());
  const TimeNs late_from = launches_.unsettled_from();
  ledger_.keep_from(late_from != 0 ? late_from : TimeHistory::kNever);
  ledger_.advance(until);
}

void Drain::end_tick(bool lossy, bool flushed) {
  follow_instances();
  if (calls_) {
    calls_->deliver_waiting(false, launches_.now(),
                            [this](const ActivityRecord& r, const CorrelationMap::Found& f) { deliver_waiting(r, f); });
    calls_->ranges().forget_before(launches_.now() - 60 * kNsPerSecond);
  }
  // Records of one launch lay further apart than was waited for: leave more open from now on.
  if (std::exchange(came_in_two_flushes_, false)) lag_ = std::min(kMaxLag, lag_ * 2);
  settled_.push_back(launches_.settle(flushed, lossy));
  while (settled_.size() > lag_ + 1) settled_.pop_front();
  // One ns before the tick: with a coarse clock, a launch made just after begin_tick may carry the tick's own time.
  if (settled_.size() > lag_) advance_ledger({settled_.front().until - 1, settled_.front().complete});
  make_room();
}

void Drain::finish(TimeNs now) {
  follow_instances();
  if (calls_)
    calls_->deliver_waiting(true, now,
                            [this](const ActivityRecord& r, const CorrelationMap::Found& f) { deliver_waiting(r, f); });
  if (program_ != nullptr) program_->finish();
  if (detected_ != nullptr) detected_->finish();
  ledger_.await_launches_of({});
  // How long the device has been busy with work that is not over is not known.
  ledger_.finish(unfinished_.found ? std::clamp(newest_.end, ledger_.now(), std::max(now, ledger_.now())) : now, now);
}

LaunchAccount Drain::account() const {
  LaunchAccount account;
  account.seen = attribution_.launches_seen() + (calls_ ? calls_->seen() : 0) + seen_by_record_;
  // The detector's regions consist of launches outside of every range.
  std::uint64_t detected = detected_ != nullptr ? detected_->attributed() : 0;
  if (program_ != nullptr) detected += program_->attributed();
  detected = std::min(detected, outside_);
  account.attributed = attributed_ + detected;
  account.outside = outside_ - detected;
  account.unattributed = unattributed_;
  account.not_timed = not_timed_;
  const std::uint64_t known = attributed_ + outside_ + unattributed_;
  account.seen = std::max(account.seen, known);
  account.dropped = account.seen - known;
  return account;
}

}  // namespace mfu
