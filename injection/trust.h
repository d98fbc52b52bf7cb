// The library's assumptions about CUPTI, held against what it sees on this machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/attribution/correlation_map.h"
#include "core/attribution/record_queue.h"

namespace mfu {

/// [mfu-drain] What documents say of CUPTI need not hold for this driver, GPU and version. Each assumption that figures
/// rest on is a check with a share of cases that contradict it; one that no longer holds is said once, with what is not
/// to be trusted any more, and once more should it hold again.
class TrustChecks {
 public:
  enum Check : std::uint8_t {
    kRecords,    ///< launches get a record
    kCallbacks,  ///< records belong to a launch that a callback saw
    kOrder,      ///< work of one stream begins in the order in which it was launched
    kClock,      ///< no record ends after the moment at which it is handed over
    kChecks,
  };
  /// Counts since the start of the process.
  struct Look {
    std::uint64_t launches = 0;        ///< that are settled: with a record, or given up on
    std::uint64_t without_record = 0;  ///< of these
    std::uint64_t records = 0;
    std::uint64_t unmatched = 0;  ///< of these
  };

  /// Looks at records as they come: all of the first ones, then one batch in 64. `now`: on the records' clock.
  void see(const RecordBatch& batch, TimeNs now);
  /// Once per tick. What is worth saying, one line each.
  [[nodiscard]] std::vector<std::string> look(const Look& seen);
  [[nodiscard]] bool holds(Check check) const noexcept { return !states_[check].violated; }

 private:
  struct State {
    std::uint64_t cases = 0, against = 0;  ///< since the last judgement
    bool violated = false;
  };
  struct LastOfStream {
    CorrelationId launch{};
    TimeNs begin_ns = 0;
  };
  static constexpr std::uint64_t kEnough = 1000;  ///< cases for a judgement
  static constexpr DurationNs kClockTolerance = 1'000'000;
  static constexpr std::uint64_t kFirstBatches = 64;

  std::array<State, kChecks> states_{};
  Look before_;
  std::uint64_t batches_ = 0;
  std::unordered_map<std::uint64_t, LastOfStream> last_;  ///< by device and stream
};

}  // namespace mfu
