// Every drop, miss and fault by name. A counter beats a message: part of every window, and free when nothing happens.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mfu {

enum class Counter : std::uint8_t {
  kNvtxPopUnmatched,     ///< a pop on a thread and domain with nothing open
  kNvtxTooDeep,          ///< a push below the deepest level that is stored
  kNvtxRangeEndUnknown,  ///< a range end whose start was never seen, or ended before
  kNvtxRangesFull,       ///< a start/end range beyond the table of open ones
  kThreadsAnonymous,     ///< launches on threads beyond the thread table
  kInstancesFull,        ///< a region opened while the table of unfinished instances was full
  kInstancesUnclosed,    ///< instances still open at exit: not part of the run's figures
  kRecordsDropped,       ///< CUPTI had no buffer for them
  kRecordsLate,          ///< arrived after their stretch of the timeline was closed
  kRecordsNoTime,        ///< start or end is zero
  kRecordsBadTime,       ///< end before start, longer than an hour, or before the run
  kRecordsUnknownKind,   ///< activity kinds that were not asked for
  kRecordsTruncated,     ///< a buffer that ended inside a record
  kRecordsNoBatch,       ///< decoded, but the hand-off to the drain was full
  kRecordsUnmatched,     ///< no launch seen with their correlation id
  kLaunchesFailed,       ///< launch calls that returned an error: no work was put on a stream
  kLaunchesCaptured,     ///< launch calls that a stream capture recorded: no work was put on a stream
  kLaunchesExpired,      ///< given up on: no record came while later work finished
  kLaunchesElsewhere,    ///< given up on: another client of CUPTI had the records
  kStreamOrderBroken,    ///< began before what was launched before them on their stream had ended
  kKernelNamesFull,      ///< distinct kernel names beyond the table
  kBuffersForeign,       ///< activity buffers that are not ours
  kBuffersExhausted,     ///< CUPTI asked for a buffer beyond the cap
  kFlushStuck,           ///< a flush that did not return
  kSinkErrors,           ///< a window, event or start line that could not be written
  kWindowsDropped,       ///< windows the sink thread had no room for
  kFaultsContained,      ///< exceptions stopped at the boundary to a foreign caller
  kLooksRefused,         ///< the system does not let the process read its own memory: no Python stack is seen
  kClockJumps,           ///< the CUPTI clock moved by more than a second against the TSC
  kCount,
};
inline constexpr std::size_t kCounters = static_cast<std::size_t>(Counter::kCount);

/// Stable names: the keys in the run directory.
inline constexpr std::array<std::string_view, kCounters> kCounterNames{
    "nvtx_pop_unmatched", "nvtx_too_deep",        "nvtx_range_end_unknown", "nvtx_ranges_full",   "threads_anonymous",
    "instances_full",     "instances_unclosed",   "records_dropped",        "records_late",       "records_no_time",
    "records_bad_time",   "records_unknown_kind", "records_truncated",      "records_no_batch",   "records_unmatched",
    "launches_failed",    "launches_captured",    "launches_expired",       "launches_elsewhere", "stream_order_broken",
    "kernel_names_full",  "buffers_foreign",      "buffers_exhausted",      "flush_stuck",        "sink_errors",
    "windows_dropped",    "faults_contained",     "looks_refused",          "clock_jumps"};

/// [any thread] No lock, no allocation.
class Counters {
 public:
  void add(Counter c, std::uint64_t n = 1) noexcept {
    values_[static_cast<std::size_t>(c)].fetch_add(n, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get(Counter c) const noexcept {
    return values_[static_cast<std::size_t>(c)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, kCounters> values_{};
};

}  // namespace mfu
