#include "injection/threads/client_watch.h"

#include "core/base/number_text.h"

namespace mfu {

/// Why the records must have gone to somebody else; nullptr: nothing says so.
const char* ClientWatch::evidence(const Look& seen) const {
  if (seen.foreign_buffers != foreign_before_) return "buffers of another client come back";
  if (seen.refused_calls != last_.refused_calls) return "CUPTI refuses our calls";
  if (seen.now - last_.now <= kQuietAfter) return nullptr;
  if (seen.launches - last_.launches > seen.room) return "more launches wait for a record than CUPTI can hold";
  if (seen.finished_without_record - last_.finished_without_record >= kEnoughFinished)
    return "work that has finished gives no record";
  return nullptr;
}

void ClientWatch::note(const Look& seen) {
  last_ = seen;
  said_ = false;
}

ClientWatch::Verdict ClientWatch::look(const Look& seen) {
  Verdict verdict;
  if (!started_) {
    started_ = true;
    note(seen);
    last_.records = 0;
    last_.foreign_buffers = last_.refused_calls = 0;
  }
  if (seen.ended_sessions != ended_before_) {
    // Whether its records were missed at all: a session may lie between two of ours.
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
  } else if (seen.now - silent_since_ > (seen.ends_are_seen ? kGoneUnseen : kGone) && seen.launches != last_.launches &&
             tries_ < kMaxTries && (tries_ == 0 || seen.now - last_try_ > kBetweenTries)) {
    ++tries_;
    last_try_ = seen.now;
    verdict = {Action::kResume, seen.now, "", ""};
  }
  foreign_before_ = seen.foreign_buffers;
  return verdict;
}

}  // namespace mfu
