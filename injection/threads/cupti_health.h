// Whether CUPTI does what it should in this process: whether its records come to us, and are as its documents say.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/attribution/attribution.h"
#include "core/attribution/record_queue.h"
#include "core/base/units.h"
#include "core/rows/region_summary.h"
#include "cuda/coexistence.h"
#include "cuda/cupti_session.h"

namespace mfu {

/// Numbers of one tick. All count from the start of the process.
struct CuptiLook {
  TimeNs now = 0;                    ///< CLOCK_MONOTONIC
  std::uint64_t launches = 0;        ///< calls
  std::uint64_t settled = 0;         ///< of these, with a record or given up on
  std::uint64_t without_record = 0;  ///< of these, given up on
  std::uint64_t records = 0;
  std::uint64_t unmatched = 0;  ///< of these
  std::uint64_t untimed = 0;    ///< of these, too
  std::uint64_t dropped = 0;    ///< records, as CUPTI says
  std::uint64_t buffers = 0;    ///< that came back
  std::uint64_t foreign_buffers = 0;
  std::uint64_t refused_calls = 0;
  std::uint64_t ended_sessions = 0;           ///< of other clients, as CuptiSession knows them
  bool ends_are_seen = false;                 ///< of sessions of Kineto
  std::uint64_t finished_without_record = 0;  ///< launches whose stream was synchronised and that have no record
  std::uint64_t room = 0;  ///< launches that may wait at this moment: in CUPTI's buffers, in the driver's queues
};

/// [mfu-drain] Another activity client (torch.profiler) can take CUPTI's buffer callbacks without a word to us. This
/// class finds out, waits until the other one is done, and says when to register again. It has no thread and calls
/// nothing: one look() per tick takes what is known and returns what to do.
///
/// That no record comes is no evidence: CUPTI keeps a buffer back while one record in it is incomplete, so a GPU that
/// is busy with one long kernel gives none for as long as the kernel runs. Evidence is
/// - a buffer that came back and is not ours;
/// - a call that CUPTI refused;
/// - the end of another client's session, which it leaves behind in CUPTI's attributes;
/// - more launches since the last record than the buffers that CUPTI has, and the driver's queues, can hold;
/// - work that is known to have finished (the host synchronised its stream) without a record, several times over, while
///   no record at all came.
class ClientWatch {
 public:
  enum class State : std::uint8_t {
    kOurs,     ///< records come, or nothing is launched
    kQuiet,    ///< launches, but no records: one long kernel, or another client
    kYielded,  ///< another client has the records
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

  [[nodiscard]] Verdict look(const CuptiLook& seen);
  [[nodiscard]] State state() const noexcept { return state_; }
  /// Records of what was launched so far went to the other client.
  [[nodiscard]] bool records_are_lost(TimeNs now) const noexcept {
    return state_ == State::kYielded && (tries_ == 0 || now - last_try_ > kQuietAfter);
  }

 private:
  [[nodiscard]] const char* evidence(const CuptiLook& seen) const;
  void note(const CuptiLook& seen);

  static constexpr DurationNs kQuietAfter = 5 * kNsPerSecond;
  static constexpr DurationNs kBetweenTries = 60 * kNsPerSecond;  ///< from one registration to the next
  static constexpr std::uint32_t kMaxTries = 20;                  ///< in a row, without a record in between
  static constexpr std::uint64_t kEnoughLaunches = 100;
  static constexpr std::uint64_t kEnoughFinished = 3;

  State state_ = State::kOurs;
  bool started_ = false;
  CuptiLook last_;           ///< when the last record came
  TimeNs silent_since_ = 0;  ///< since the other client was last heard of
  std::uint64_t foreign_before_ = 0;
  std::uint64_t ended_before_ = 0;
  DurationNs say_after_ = 2 * kQuietAfter;  ///< doubles with each time that it was said
  bool said_ = false;
  std::uint32_t tries_ = 0;
  TimeNs last_try_ = 0;
};

/// [mfu-drain] What documents say of CUPTI need not hold for this driver, GPU and version. Each assumption that figures
/// rest on is a check with a share of cases that contradict it; one that no longer holds is said once, with what is not
/// to be trusted any more, and once more should it hold again. How many cases there were so far is in every window.
class TrustChecks {
 public:
  enum Check : std::uint8_t {
    kRecords,    ///< launches get a record
    kCallbacks,  ///< records belong to a launch that a callback saw
    kOrder,      ///< work of one stream begins in the order in which it was launched
    kClock,      ///< work begins after it was launched, and ends before its record is handed over
    kTimes,      ///< records have times
    kBuffers,    ///< while there are launches, buffers come back
    kChecks,
  };

  /// Before CUPTI is asked for records: `newest` is the newest launch that was seen when the records' clock had been
  /// read, so what is newer began after `now`.
  void begin_tick(TimeNs now, CorrelationId newest);
  /// Looks at records as they come: all of the first ones, then one batch in 64. `now`: on the records' clock.
  void see(const RecordBatch& batch, TimeNs now);
  /// Once per tick. Lines for people.
  [[nodiscard]] std::vector<std::string> look(const CuptiLook& seen);
  [[nodiscard]] bool holds(Check check) const noexcept { return !states_[check].violated; }
  /// Every check and what came of it so far, for a window.
  [[nodiscard]] std::vector<TrustState> states() const;

 private:
  struct State {
    std::uint64_t cases = 0, against = 0;  ///< since the last judgement
    std::uint64_t all_against = 0;         ///< since the start
    bool judged = false;
    bool violated = false;
    void add(std::uint64_t of, std::uint64_t which) noexcept {
      cases += of;
      against += which;
      all_against += which;
    }
  };
  struct LastOfStream {
    CorrelationId launch{};
    TimeNs begin_ns = 0;
  };
  struct Tick {
    TimeNs at;
    CorrelationId newest;
  };
  void count_seconds(const CuptiLook& seen);
  [[nodiscard]] TimeNs called_after(CorrelationId id) const noexcept;

  static constexpr DurationNs kClockTolerance = 1'000'000;
  static constexpr std::uint64_t kFirstBatches = 64;
  static constexpr std::size_t kTicks = 64;

  std::array<State, kChecks> states_{};
  CuptiLook before_;
  std::uint64_t batches_ = 0;
  std::unordered_map<std::uint64_t, LastOfStream> last_;  ///< by device and stream
  std::deque<Tick> ticks_;
  CuptiLook second_;    ///< when the second began that kBuffers looks at
  bool waits_ = false;  ///< for a buffer, since the second before
};

/// [mfu-drain] All that is to be said and done about CUPTI in one tick: other clients, assumptions that do not hold,
/// records that were dropped or have no time.
class CuptiHealth {
 public:
  struct Line {
    const char* kind;  ///< of the event
    std::string text;
  };
  struct Findings {
    ClientWatch::Action action = ClientWatch::Action::kNothing;
    TimeNs since = 0;                  ///< of the action, CLOCK_MONOTONIC
    bool records_are_lost = false;     ///< of all that was launched so far
    bool launches_are_missed = false;  ///< said once: not every launch makes a driver call that is known
    std::vector<Line> lines;
  };

  explicit CuptiHealth(std::uint32_t cupti_version) : cupti_version_(cupti_version) {}

  /// Before CUPTI is asked for records; see TrustChecks.
  void begin_tick(TimeNs now, CorrelationId newest) { trust_.begin_tick(now, newest); }
  void see(const RecordBatch& batch, TimeNs now) { trust_.see(batch, now); }
  /// Launches that have finished, as the host's own synchronisation says: of which of them no record came although
  /// every buffer that could hold it has been filled since.
  void count_finished(CuptiSession& session, Attribution& attribution, TimeNs now);

  /// Once per tick.
  [[nodiscard]] Findings look(CuptiLook seen);
  /// Records that were dropped or have no time, at the end of the run too: then there need not be many to judge by.
  [[nodiscard]] std::vector<Line> look_for_loss(const CuptiLook& seen, bool at_exit);

  /// Some records were dropped.
  [[nodiscard]] bool dropped_any() const noexcept { return dropped_ != 0; }
  /// No other client has the records, as far as is known.
  [[nodiscard]] bool alone() const noexcept { return watch_.state() != ClientWatch::State::kYielded; }
  /// Sessions of other clients whose end look() has seen.
  [[nodiscard]] std::uint64_t ends_handled() const noexcept { return ends_handled_; }
  [[nodiscard]] std::vector<TrustState> trust() const { return trust_.states(); }

 private:
  struct Finished {
    CorrelationId launch;
    std::uint64_t launches;  ///< that were made when this became known
    TimeNs at;
  };
  [[nodiscard]] std::string untimed_text(std::uint64_t untimed, std::uint64_t records);

  const std::uint32_t cupti_version_;
  ClientWatch watch_;
  TrustChecks trust_;
  std::deque<Finished> finished_;
  std::uint64_t finished_without_record_ = 0;
  std::uint64_t ends_handled_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t untimed_before_ = 0, records_before_ = 0;  ///< at the last judgement
  int untimed_said_ = 0;                                   ///< 1: of some records, 2: of most
  bool misses_said_ = false;
};

}  // namespace mfu
