#include "injection/threads/cupti_health.h"

#include <utility>

#include "core/base/number_text.h"
#include "cuda/cupti_versions.h"
#include "cuda/nvtx_handler.h"

namespace mfu {

// --- other clients --------------------------------------------------------------------------------------------------

/// Why the records must have gone elsewhere; nullptr: nothing says so.
const char* ClientWatch::evidence(const CuptiLook& seen) const {
  if (seen.foreign_buffers != foreign_before_) return "buffers of another client come back";
  if (seen.refused_calls != last_.refused_calls) return "CUPTI refuses our calls";
  if (seen.now - last_.now <= kQuietAfter) return nullptr;
  if (seen.launches - last_.launches > seen.room) return "more launches wait for a record than CUPTI can hold";
  if (seen.finished_without_record - last_.finished_without_record >= kEnoughFinished)
    return "work that has finished gives no record";
  return nullptr;
}

void ClientWatch::note(const CuptiLook& seen) {
  last_ = seen;
  said_ = false;
}

ClientWatch::Verdict ClientWatch::look(const CuptiLook& seen) {
  // Registering in the middle of a session takes its records: where its end would be seen it gets more time.
  const DurationNs gone_after =
      coexistence_with(seen.ends_are_seen ? OtherProfiler::kTakerWithEnd : OtherProfiler::kTaker).gone_after;
  Verdict verdict;
  if (!started_) {
    started_ = true;
    note(seen);
    last_.records = 0;
    last_.foreign_buffers = last_.refused_calls = 0;
  }
  if (seen.ended_sessions != ended_before_) {
    // Whether its records were missed at all: a session may lie between two of the library's.
    ended_before_ = seen.ended_sessions;
    const TimeNs since = last_.now;
    const DurationNs away = seen.now - since;
    state_ = State::kOurs;
    tries_ = 0;
    foreign_before_ = seen.foreign_buffers;
    note(seen);
    return {Action::kReturn, since, "resumed",
            "another profiler had CUPTI's records for " + duration_text(seconds(away)) +
                " and has finished: what ran meanwhile is not measured"};
  }
  const bool foreign = seen.foreign_buffers != foreign_before_;
  if (foreign) silent_since_ = seen.now;
  if (seen.records != last_.records && !foreign) {
    if (state_ == State::kYielded) {
      verdict = {Action::kBack, seen.now, "resumed", "CUPTI's records come to us again"};
      tries_ = 0;
    }
    state_ = State::kOurs;
    note(seen);
    return verdict;
  }
  if (state_ != State::kYielded) {
    const DurationNs quiet = seen.now - last_.now;
    const std::uint64_t launches = seen.launches - last_.launches;
    if (const char* why = evidence(seen)) {
      state_ = State::kYielded;
      verdict = {Action::kYield, last_.now, "yielded",
                 std::string("another profiler takes CUPTI's records (") + why +
                     "): stepping aside until it is done; what runs meanwhile is not measured"};
      if (silent_since_ < last_.now) silent_since_ = last_.now;
    } else if (quiet > kQuietAfter && launches > kEnoughLaunches) {
      state_ = State::kQuiet;
      if (quiet > say_after_ && !said_) {
        said_ = true;
        say_after_ *= 2;
        verdict = {Action::kSay, last_.now, "quiet",
                   "no records from CUPTI for " + std::to_string(quiet / kNsPerSecond) + " s though " +
                       std::to_string(launches) + " launches were made: one long kernel, or another profiler"};
      }
    } else if (launches == 0) {
      last_.now = seen.now;  // nothing to wait for
      state_ = State::kOurs;
    }
  } else if (seen.now - silent_since_ > gone_after && seen.launches != last_.launches && tries_ < kMaxTries &&
             (tries_ == 0 || seen.now - last_try_ > kBetweenTries)) {
    ++tries_;
    last_try_ = seen.now;
    verdict = {Action::kResume, seen.now, "", ""};
  }
  foreign_before_ = seen.foreign_buffers;
  return verdict;
}

// --- assumptions ----------------------------------------------------------------------------------------------------

namespace {

struct Assumption {
  const char* name;
  double limit;          ///< share of cases against it that is still borne
  std::uint64_t enough;  ///< cases for a judgement
  const char* against;   ///< nullptr: another line says it, with the cause
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
    {"times", 0, 1, nullptr, nullptr},
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
void TrustChecks::count_seconds(const CuptiLook& seen) {
  if (second_.now == 0) second_ = seen;
  if (seen.now - second_.now < kNsPerSecond) return;
  const bool none = seen.buffers == second_.buffers;
  if (seen.launches != second_.launches || (waits_ && none)) {
    states_[kBuffers].add(1, none && waits_);
    waits_ = none;
  } else {
    waits_ = false;
  }
  second_ = seen;
}

std::vector<std::string> TrustChecks::look(const CuptiLook& seen) {
  const std::uint64_t records = seen.records - before_.records;
  states_[kRecords].add(seen.settled - before_.settled, seen.without_record - before_.without_record);
  states_[kCallbacks].add(records, seen.unmatched - before_.unmatched);
  states_[kTimes].add(records, seen.untimed - before_.untimed);
  count_seconds(seen);
  before_ = seen;
  std::vector<std::string> said;
  for (std::size_t i = 0; i < kChecks; ++i) {
    State& state = states_[i];
    if (state.cases < kAssumptions[i].enough) continue;
    const double share = static_cast<double>(state.against) / static_cast<double>(state.cases);
    // A violated assumption holds again once it is well below the limit.
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

// --- all of it ------------------------------------------------------------------------------------------------------

void CuptiHealth::count_finished(CuptiSession& session, Attribution& attribution, TimeNs now) {
  std::array<CorrelationId, 16> launches;
  const std::uint64_t seen = attribution.launches_seen();
  const std::uint32_t taken = session.take_finished(launches.data(), launches.size());
  for (std::uint32_t i = 0; i < taken; ++i) finished_.push_back({launches[i], seen, now});
  const std::uint64_t room = session.buffers().bytes_out() / ActivityBuffers::kShortestRecord;
  while (!finished_.empty() && seen - finished_.front().launches > room && now - finished_.front().at > kNsPerSecond) {
    finished_without_record_ += attribution.map().outstanding(finished_.front().launch);
    finished_.pop_front();
  }
  if (finished_.size() > 1024) finished_.pop_front();
}

CuptiHealth::Findings CuptiHealth::look(CuptiLook seen) {
  Findings found;
  seen.finished_without_record = finished_without_record_;
  ends_handled_ = seen.ended_sessions;
  ClientWatch::Verdict verdict = watch_.look(seen);
  found.action = verdict.action;
  found.since = verdict.since;
  found.records_are_lost = found.action == ClientWatch::Action::kReturn || watch_.records_are_lost(seen.now);
  const CuptiDefect* defect = cupti_defect(cupti_version_, CuptiRemedy::kSayIfNoRecords);
  if (verdict.action == ClientWatch::Action::kSay && seen.records == 0 && defect != nullptr)
    verdict.text += std::string(", or this CUPTI: ") + defect->what;
  if (!verdict.text.empty()) found.lines.push_back({verdict.kind, std::move(verdict.text)});
  for (Line& line : look_for_loss(seen, false)) found.lines.push_back(std::move(line));
  if (watch_.state() == ClientWatch::State::kYielded) return found;
  for (std::string& notice : trust_.look(seen)) found.lines.push_back({"trust", std::move(notice)});
  found.launches_are_missed = !trust_.holds(TrustChecks::kCallbacks) && !std::exchange(misses_said_, true);
  return found;
}

std::vector<CuptiHealth::Line> CuptiHealth::look_for_loss(const CuptiLook& seen, bool at_exit) {
  std::vector<Line> lines;
  if (seen.dropped != dropped_) {
    host_counters().add(Counter::kRecordsDropped, seen.dropped - dropped_);
    if (dropped_ == 0) lines.push_back({"dropped", "CUPTI dropped records: figures of that window are lower bounds"});
    dropped_ = seen.dropped;
  }
  if (std::string text = untimed_text(seen.untimed - untimed_before_, seen.records - records_before_); !text.empty())
    lines.push_back({"untimed", std::move(text)});
  if (seen.records - records_before_ < 10'000 && !at_exit) return lines;  // goes on until there are enough to judge
  untimed_before_ = seen.untimed;
  records_before_ = seen.records;
  return lines;
}

/// \param untimed of the last \param records: by pieces, since buffers can run out after an hour of good ones.
std::string CuptiHealth::untimed_text(std::uint64_t untimed, std::uint64_t records) {
  if (untimed <= 16 || untimed <= records / 100) return "";
  const int share = records >= 1000 && untimed > records / 2 ? 2 : 1;
  if (untimed_said_ >= share) return "";
  untimed_said_ = share;
  std::string why = "device buffers ran out, or another client set CUPTI's clock";
  for (const CuptiDefect& defect : kCuptiDefects)
    if (defect.remedy == CuptiRemedy::kSayIfUntimed && cupti_version_ >= defect.first && cupti_version_ <= defect.last)
      why = std::string("known: ") + defect.what;
  return std::to_string(untimed * 100 / records) + "% of CUPTI's records have no usable time (" + why +
         "); nothing that follows from kernel times is reported where they are missing";
}

}  // namespace mfu
