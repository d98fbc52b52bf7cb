// The library's assumptions about CUPTI, held against what it sees on this machine.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/attribution/correlation_map.h"
#include "core/attribution/record_queue.h"
#include "core/rows/region_summary.h"

namespace mfu {

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
  /// Counts since the start of the process.
  struct Look {
    TimeNs now = 0;                    ///< on any clock that only goes on
    std::uint64_t launches = 0;        ///< that are settled: with a record, or given up on
    std::uint64_t without_record = 0;  ///< of these
    std::uint64_t records = 0;
    std::uint64_t unmatched = 0;  ///< of these
    std::uint64_t untimed = 0;    ///< of these, too
    std::uint64_t called = 0;     ///< launches, settled or not
    std::uint64_t buffers = 0;    ///< that came back
  };

  /// Before CUPTI is asked for records: `newest` is the newest launch that was seen when the records' clock had been
  /// read, so whatever is newer began after `now`.
  void begin_tick(TimeNs now, CorrelationId newest);
  /// Looks at records as they come: all of the first ones, then one batch in 64. `now`: on the records' clock.
  void see(const RecordBatch& batch, TimeNs now);
  /// Once per tick. What is worth saying, one line each.
  [[nodiscard]] std::vector<std::string> look(const Look& seen);
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
  void count_seconds(const Look& seen);
  [[nodiscard]] TimeNs called_after(CorrelationId id) const noexcept;

  static constexpr DurationNs kClockTolerance = 1'000'000;
  static constexpr std::uint64_t kFirstBatches = 64;
  static constexpr std::size_t kTicks = 64;

  std::array<State, kChecks> states_{};
  Look before_;
  std::uint64_t batches_ = 0;
  std::unordered_map<std::uint64_t, LastOfStream> last_;  ///< by device and stream
  std::deque<Tick> ticks_;
  Look second_;         ///< when the second began that kBuffers looks at
  bool waits_ = false;  ///< for a buffer, since the second before
};

}  // namespace mfu
