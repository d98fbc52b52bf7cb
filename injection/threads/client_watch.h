// Whether CUPTI's activity records still come to us, told by evidence.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/units.h"

namespace mfu {

/// [mfu-drain] Another activity client (torch.profiler) can take CUPTI's buffer callbacks without a word to us. This
/// class finds out, waits until the other one is done, and says when to register again. It has no thread and calls
/// nobody: one look() per tick takes what is known and returns what to do.
///
/// That no record comes is no evidence: CUPTI keeps a buffer back while one record in it is incomplete, so a GPU that
/// is busy with one long kernel gives none for as long as the kernel runs. Evidence is
/// - a buffer that came back and is not ours;
/// - a call of ours that CUPTI refused;
/// - the end of another client's session, which it leaves behind in CUPTI's attributes;
/// - more launches since the last record than the buffers that CUPTI has, and the driver's queues, can hold;
/// - work that is known to have finished (the host synchronised its stream) without a record, several times over, while
///   no record at all came.
class ClientWatch {
 public:
  enum class State : std::uint8_t {
    kOurs,     ///< records come, or nothing is launched
    kQuiet,    ///< launches, but no records: one long kernel, or another client
    kYielded,  ///< somebody else has the records
  };

  /// What one tick sees. All numbers count from the start of the process.
  struct Look {
    TimeNs now = 0;  ///< CLOCK_MONOTONIC
    std::uint64_t launches = 0;
    std::uint64_t records = 0;
    std::uint64_t foreign_buffers = 0;
    std::uint64_t refused_calls = 0;
    std::uint64_t ended_sessions = 0;           ///< of other clients, as CuptiSession knows them
    bool ends_are_seen = false;                 ///< of sessions of Kineto
    std::uint64_t finished_without_record = 0;  ///< launches whose stream was synchronised and that have no record
    std::uint64_t room = 0;  ///< launches that may wait at this moment: in CUPTI's buffers, in the driver's queues
  };

  enum class Action : std::uint8_t {
    kNothing,
    kSay,     ///< `text` is worth an event
    kYield,   ///< nothing is measured since `since`
    kResume,  ///< register and enable again; perhaps the other client has finished
    kReturn,  ///< it has finished, and we have registered: nothing was measured since `since`, and from now on it is
    kBack,    ///< records come to us again
  };
  struct Verdict {
    Action action = Action::kNothing;
    TimeNs since = 0;
    const char* kind = "";  ///< of the event
    std::string text;
  };

  [[nodiscard]] Verdict look(const Look& seen);
  [[nodiscard]] State state() const noexcept { return state_; }
  /// Nobody waits for records of what was launched so far: they went to the other client.
  [[nodiscard]] bool records_are_lost(TimeNs now) const noexcept {
    return state_ == State::kYielded && (tries_ == 0 || now - last_try_ > kQuietAfter);
  }

 private:
  [[nodiscard]] const char* evidence(const Look& seen) const;
  void note(const Look& seen);

  static constexpr DurationNs kQuietAfter = 5 * kNsPerSecond;
  static constexpr DurationNs kGone = 30 * kNsPerSecond;  ///< silence after which the other client has finished
  /// Longer where the end of a session of Kineto would have been seen: registering in the middle of one takes its
  /// records.
  static constexpr DurationNs kGoneUnseen = 600 * kNsPerSecond;
  static constexpr DurationNs kBetweenTries = 60 * kNsPerSecond;  ///< from one registration to the next
  static constexpr std::uint32_t kMaxTries = 20;                  ///< in a row, without a record in between
  static constexpr std::uint64_t kEnoughLaunches = 100;
  static constexpr std::uint64_t kEnoughFinished = 3;

  State state_ = State::kOurs;
  bool started_ = false;
  Look last_;                ///< when the last record came
  TimeNs silent_since_ = 0;  ///< since the other client was last heard of
  std::uint64_t foreign_before_ = 0;
  std::uint64_t ended_before_ = 0;
  DurationNs say_after_ = 2 * kQuietAfter;  ///< doubles with each time that it was said
  bool said_ = false;
  std::uint32_t tries_ = 0;
  TimeNs last_try_ = 0;
};

}  // namespace mfu
