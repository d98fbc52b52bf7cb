// Between attribution and the ledger: gives every record to its owner and says up to when the account is complete.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/account/ledger.h"
#include "core/attribution/attribution.h"
#include "core/attribution/context_devices.h"
#include "core/attribution/record_queue.h"
#include "core/base/activity_record.h"
#include "core/base/counters.h"
#include "core/base/ticks.h"
#include "core/drain/call_records.h"
#include "core/drain/detected_regions.h"
#include "core/drain/graph_inside.h"
#include "core/drain/instance_feed.h"
#include "core/drain/launch_tracker.h"
#include "core/drain/program_regions.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// Launches that were met lately, so that further records of a graph count no more.
class RecentIds {
 public:
  /// False: it was met.
  bool add(CorrelationId id) noexcept {
    const std::uint64_t word = std::uint64_t{1} << 32 | raw(id);
    return std::exchange(ids_[raw(id) % ids_.size()], word) != word;
  }

 private:
  std::array<std::uint64_t, 64> ids_{};
};

/// [mfu-drain] One tick is: begin_tick (before asking CUPTI for what is complete), record for everything that came,
/// end_tick. LaunchTracker has the rules for waiting.
class Drain {
 public:
  /// \param detected takes what no range owns; nullptr: it is outside of every region.
  /// \param by_calls there are no launch callbacks: launches are known by kCall records, which may come after the
  ///   records of the work they launched.
  /// \param graphs splits whole-graph records into their nodes; nullptr: they stay as they are.
  Drain(Attribution& attribution, Ledger& ledger, TickClock& clock, const ContextDevices& contexts, Counters& counters,
        DetectedRegions* detected = nullptr, bool by_calls = false, GraphInside* graphs = nullptr);

  /// Records that no range owns go there first, and from there to the detector. Call before the first record.
  void report_to(ProgramRegions& program) noexcept { program_ = &program; }

  void begin_tick(TimeNs now);
  /// It is `now`, and no tick has begun for long: records that come may have begun until then.
  void expect_until(TimeNs now) noexcept;
  void record(const ActivityRecord& record);
  /// Kernels of it get the product that they were launched for.
  void record(RecordBatch& batch);
  /// \param lossy CUPTI said that it dropped records: launches without one are given up on sooner.
  /// \param flushed what CUPTI had complete at begin_tick was recorded.
  void end_tick(bool lossy, bool flushed = true);
  /// Level `share`, at the end: work that begins later and whose call has no record was launched while the process
  /// went, and is left out.
  void leave_out_unknown_work_after(TimeNs end) noexcept { unknown_work_until_ = end; }
  /// The run is over: everything that will ever come has been recorded.
  void finish(TimeNs now);

  /// Opens and closes instances that host threads published since the last call. Before their first record.
  void follow_instances();

  [[nodiscard]] LaunchAccount account() const;
  /// False for a window that was closed before all of its work was recorded, as far as is known now.
  [[nodiscard]] bool settled(Interval window) const noexcept { return launches_.settled(window); }
  /// It would help to follow event records and waits; see Attribution::event_call.
  [[nodiscard]] bool wants_events() const noexcept { return launches_.wants_events(); }
  /// Whether everything that was launched so far is over, as far as records say: then nothing runs.
  [[nodiscard]] bool all_over(TimeNs now);
  [[nodiscard]] TimeNs newest_end() const noexcept { return newest_.end; }  ///< of all work so far
  /// See LaunchTracker.
  [[nodiscard]] std::optional<CorrelationId> oldest_waiting() const { return launches_.oldest_waiting(); }
  /// The records of what was launched so far have gone elsewhere: nothing waits for them.
  void forget_waiting() noexcept;
  /// The records that come from now on were asked for by force: those without times are of work that is not over. The
  /// account then ends with the last work that is.
  void take_unfinished() noexcept { unfinished_.possible = true; }
  [[nodiscard]] bool unfinished() const noexcept { return unfinished_.found; }
  /// For the log, once each.
  [[nodiscard]] std::vector<std::string> take_notices() { return launches_.take_notices(); }

 private:
  static constexpr std::uint32_t kLag = 1;  ///< ticks that the account stays behind: buffers come back in any order
  static constexpr std::uint32_t kLagOfCalls = 3;  ///< the same where launches are known by records too
  static constexpr std::uint32_t kMaxLag = 8;
  static constexpr std::size_t kMaxPending = 1u << 18;  ///< activities held back by the watermark: 8 MiB

  [[nodiscard]] bool newest_launch(CorrelationId& newest) const noexcept;
  void follow_launches(CorrelationId newest);
  void make_room();
  void added(std::size_t records);
  void advance_ledger(const LaunchTracker::Settled& settled);
  void count_unmatched(CorrelationId id, bool seen);
  void deliver(const ActivityRecord& record, const CorrelationMap::Found& found);
  [[gnu::noinline]] void deliver_waiting(const ActivityRecord& record, const CorrelationMap::Found& found);
  void record_one(ActivityRecord& record, CorrelationMap::Newest newest);
  void deliver_graph(const ActivityRecord& record, CorrelationMap::Found found);
  [[gnu::noinline]] void deliver_odd(const ActivityRecord& record, CorrelationMap::Lookup result, LaunchOwner owner);
  [[gnu::noinline]] void note_late(const ActivityRecord& record, bool first);
  [[gnu::noinline]] void note_bad_time(const ActivityRecord& record, InstanceId owner, bool known, bool first);
  [[nodiscard]] bool time_is_good(const ActivityRecord& record) const noexcept;

  Attribution& attribution_;
  Ledger& ledger_;
  const ContextDevices& contexts_;
  Counters& counters_;
  DetectedRegions* detected_;
  ProgramRegions* program_ = nullptr;
  GraphInside* graphs_;
  InstanceFeed instances_;
  LaunchTracker launches_;
  std::optional<CallRecords> calls_;  ///< only where there are no launch callbacks

  std::deque<LaunchTracker::Settled> settled_;
  std::uint32_t lag_;
  TimeNs unknown_work_until_ = std::numeric_limits<TimeNs>::max();
  bool came_in_two_flushes_ = false;  ///< a record, and the first one of its launch
  TimeNs advanced_to_ = std::numeric_limits<TimeNs>::min();
  TimeNs forced_to_ = std::numeric_limits<TimeNs>::min();
  std::size_t since_room_check_ = 0;  ///< records
  struct {
    TimeNs begin = 0, end = 0;
  } newest_;  ///< of good records
  struct {
    bool possible = false;  ///< the records that come now may be of work that is not over
    bool found = false;     ///< one of them was
  } unfinished_;
  const TimeNs earliest_begin_;  ///< of a plausible record: a second before the run
  std::uint64_t begin_range_;    ///< likewise: how much later it may be, up to 10 s from now

  std::uint64_t attributed_ = 0, outside_ = 0, unattributed_ = 0;
  std::uint64_t not_timed_ = 0;       ///< of them, with a record that has no usable time
  std::uint64_t seen_by_record_ = 0;  ///< launches that no callback saw
  RecentIds unmatched_ids_, untimed_ids_;
};

}  // namespace mfu
