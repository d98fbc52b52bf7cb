#include "injection/trust.h"

namespace mfu {

namespace {

struct Words {
  const char* name;
  double limit;  ///< share of cases against it that is still borne
  const char* against;
  const char* consequence;
};

// The limits: calls that make no work (empty graphs, copies of nothing) have no record; two threads that launch on one
// stream, and programmatic dependent launches, change an order now and then; the clock is a fact.
constexpr Words kWords[TrustChecks::kChecks] = {
    {"records", 0.2, "of the launches got no record", "busy time and FLOP are lower bounds"},
    {"callbacks", 0.05, "of the records belong to no launch that was seen", "work may be missing from its region"},
    {"order", 0.05, "of the work on one stream begins before what was launched earlier on it",
     "windows may go out before all of their work is known"},
    {"clock", 0.001, "of the records end later than they were handed over",
     "CUPTI's clock runs ahead of the system's: work may be booked in a later window"},
};

}  // namespace

void TrustChecks::see(const RecordBatch& batch, TimeNs now) {
  if (++batches_ > kFirstBatches && batches_ % 64 != 0) return;
  State& order = states_[kOrder];
  State& clock = states_[kClock];
  last_.clear();  // batches in between were not looked at
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    const ActivityRecord& record = batch.records[i];
    if (is_host_call(record.kind) || record.begin_ns == 0 || record.end_ns == 0) continue;
    ++clock.cases;
    clock.against += record.end_ns > now + kClockTolerance;
    if (record.graph != GraphId::kNone) continue;
    LastOfStream& last = last_[std::uint64_t{raw(record.device)} << 32 | raw(record.stream)];
    if (last.begin_ns != 0 && last.launch != record.correlation) {
      ++order.cases;
      order.against += newer(record.correlation, last.launch) != (record.begin_ns >= last.begin_ns);
    }
    last = {record.correlation, record.begin_ns};
  }
}

std::vector<std::string> TrustChecks::look(const Look& seen) {
  states_[kRecords].cases += seen.launches - before_.launches;
  states_[kRecords].against += seen.without_record - before_.without_record;
  states_[kCallbacks].cases += seen.records - before_.records;
  states_[kCallbacks].against += seen.unmatched - before_.unmatched;
  before_ = seen;
  std::vector<std::string> said;
  for (std::size_t i = 0; i < kChecks; ++i) {
    State& state = states_[i];
    if (state.cases < kEnough) continue;
    const double share = static_cast<double>(state.against) / static_cast<double>(state.cases);
    // What was violated holds again once it is well below the limit.
    const bool violated = share > (state.violated ? kWords[i].limit / 2 : kWords[i].limit);
    if (violated != state.violated) {
      const int per_cent = static_cast<int>(share * 100 + 0.5);
      said.push_back(violated ? std::string(kWords[i].name) + ": " + std::to_string(per_cent) + "% " +
                                    kWords[i].against + "; " + kWords[i].consequence
                              : std::string(kWords[i].name) + ": as expected again");
    }
    state.violated = violated;
    state.cases = state.against = 0;
  }
  return said;
}

}  // namespace mfu
