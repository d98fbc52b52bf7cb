#include "injection/threads/trust.h"

namespace mfu {

namespace {

struct Assumption {
  const char* name;
  double limit;          ///< share of cases against it that is still borne
  std::uint64_t enough;  ///< cases for a judgement
  const char* against;   ///< nullptr: somebody else says it, with the cause
  const char* consequence;
};

// The limits: calls that make no work (empty graphs, copies of nothing) have no record; two threads that launch on one
// stream, and programmatic dependent launches, change an order now and then; the clock is a fact. A long kernel keeps
// all buffers back for as long as it runs.
constexpr Assumption kAssumptions[TrustChecks::kChecks] = {
    {"records", 0.2, 1000, "of the launches got no record", "busy time and FLOP are lower bounds"},
    {"callbacks", 0.05, 1000, "of the records belong to no launch that was seen",
     "work may be missing from its region"},
    {"order", 0.05, 1000, "of the work began before what was launched before it", "windows may go out too early"},
    {"clock", 0.001, 1000, "of the records lie outside of launch and hand-over", "work may be in the wrong window"},
    {"times", 0.01, 1000, nullptr, nullptr},
    {"buffers", 0.5, 6, "of the seconds with launches gave no buffer back", "windows may lack work when they go out"},
};

}  // namespace

void TrustChecks::begin_tick(TimeNs now, CorrelationId newest) {
  ticks_.push_back({now, newest});
  if (ticks_.size() > kTicks) ticks_.pop_front();
}

/// A moment before which `id` was not called; 0: not known.
TimeNs TrustChecks::called_after(CorrelationId id) const noexcept {
  for (auto tick = ticks_.rbegin(); tick != ticks_.rend(); ++tick)
    if (newer(id, tick->newest)) return tick->at;
  return 0;
}

void TrustChecks::see(const RecordBatch& batch, TimeNs now) {
  if (++batches_ > kFirstBatches && batches_ % 64 != 0) return;
  State& order = states_[kOrder];
  State& clock = states_[kClock];
  last_.clear();  // batches in between were not looked at
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    const ActivityRecord& record = batch.records[i];
    if (is_host_call(record.kind) || record.begin_ns == 0 || record.end_ns == 0) continue;
    clock.add(1, record.end_ns > now + kClockTolerance ||
                     record.begin_ns < called_after(record.correlation) - kClockTolerance);
    if (record.graph != GraphId::kNone) continue;
    LastOfStream& last = last_[std::uint64_t{raw(record.device)} << 32 | raw(record.stream)];
    if (last.begin_ns != 0 && last.launch != record.correlation)
      order.add(1, newer(record.correlation, last.launch) != (record.begin_ns >= last.begin_ns));
    last = {record.correlation, record.begin_ns};
  }
}

/// Seconds in which something was launched; those in which, and in the one before, no buffer came back.
void TrustChecks::count_seconds(const Look& seen) {
  if (second_.now == 0) second_ = seen;
  if (seen.now - second_.now < kNsPerSecond) return;
  const bool none = seen.buffers == second_.buffers;
  if (seen.called != second_.called || (waits_ && none)) {
    states_[kBuffers].add(1, none && waits_);
    waits_ = none;
  } else {
    waits_ = false;
  }
  second_ = seen;
}

std::vector<std::string> TrustChecks::look(const Look& seen) {
  const std::uint64_t records = seen.records - before_.records;
  states_[kRecords].add(seen.launches - before_.launches, seen.without_record - before_.without_record);
  states_[kCallbacks].add(records, seen.unmatched - before_.unmatched);
  states_[kTimes].add(records, seen.untimed - before_.untimed);
  count_seconds(seen);
  before_ = seen;
  std::vector<std::string> said;
  for (std::size_t i = 0; i < kChecks; ++i) {
    State& state = states_[i];
    if (state.cases < kAssumptions[i].enough) continue;
    const double share = static_cast<double>(state.against) / static_cast<double>(state.cases);
    // What was violated holds again once it is well below the limit.
    const bool violated = share > (state.violated ? kAssumptions[i].limit / 2 : kAssumptions[i].limit);
    if (violated != state.violated && kAssumptions[i].against != nullptr) {
      const int per_cent = static_cast<int>(share * 100 + 0.5);
      said.push_back(violated ? std::string(kAssumptions[i].name) + ": " + std::to_string(per_cent) + "% " +
                                    kAssumptions[i].against + "; " + kAssumptions[i].consequence
                              : std::string(kAssumptions[i].name) + ": as expected again");
    }
    state.violated = violated;
    state.judged = true;
    state.cases = state.against = 0;
  }
  return said;
}

std::vector<TrustState> TrustChecks::states() const {
  std::vector<TrustState> all;
  for (std::size_t i = 0; i < kChecks; ++i) {
    TrustState& one = all.emplace_back();
    one.name = kAssumptions[i].name;
    one.against = states_[i].all_against;
    if (states_[i].judged) one.holds = !states_[i].violated;
  }
  return all;
}

}  // namespace mfu
