// Between attribution and the ledger: follows instances, matches records to launches, and says how far time is settled.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <unordered_map>
#include <vector>

#include "core/account/ledger.h"
#include "core/account/region_summary.h"
#include "core/attribution/attribution.h"
#include "core/attribution/context_devices.h"
#include "core/attribution/record_queue.h"
#include "core/base/activity_record.h"
#include "core/base/counters.h"
#include "core/base/ticks.h"
#include "core/drain/call_attribution.h"
#include "core/drain/detected_regions.h"

namespace mfu {

/// [mfu-drain] One tick is: begin_tick (before asking CUPTI for what is complete), record for everything that came,
/// end_tick. A launch without a record holds the watermark back at the tick before it was launched, since its work may
/// begin any time after; one that stays without while later work finishes is given up on after a while.
class Drain {
 public:
  /// \param detected takes what no range owns; nullptr: it is outside of every region.
  /// \param by_calls there are no launch callbacks: launches are known by kCall records, which may come after the
  ///   records of the work they launched.
  Drain(Attribution& attribution, Ledger& ledger, TickClock& clock, const ContextDevices& contexts, Counters& counters,
        DetectedRegions* detected = nullptr, bool by_calls = false)
      : attribution_(attribution),
        ledger_(ledger),
        clock_(clock),
        contexts_(contexts),
        counters_(counters),
        detected_(detected),
        by_calls_(by_calls),
        lag_(by_calls ? kLagByCalls : kLag) {}

  void begin_tick(TimeNs now);
  void record(const ActivityRecord& record);
  void record(const RecordBatch& batch);
  /// \param lossy CUPTI said that it dropped records: launches without one are given up on sooner.
  void end_tick(bool lossy);
  /// The run is over: everything that will ever come has been recorded.
  void finish(TimeNs now);

  /// Opens and closes instances that host threads published since the last call. Before any record of theirs.
  void follow_instances();

  [[nodiscard]] LaunchAccount account() const;

 private:
  struct Tick {
    TimeNs at;
    CorrelationId newest;
    bool any;
  };
  struct Event {
    TimeNs at;
    std::uint8_t rank;  ///< of events at one moment: what closes makes way first, unless it opened just then
    InstanceSlot* slot;
    static constexpr std::uint8_t kCloseEarlier = 0, kOpen = 1, kClose = 2;
  };
  struct Settled {
    TimeNs watermark;
    CorrelationId complete;  ///< the newest launch of which, with all before it, a record came
  };
  static constexpr std::uint32_t kLag = 1;         ///< ticks: records of one graph launch may come in two flushes
  static constexpr std::uint32_t kLagByCalls = 3;  ///< a call's record may be a flush behind that of its kernel
  static constexpr std::uint32_t kMaxLag = 8;
  static constexpr DurationNs kPatience = 10 * kNsPerSecond;
  static constexpr DurationNs kShortPatience = 2 * kNsPerSecond;
  static constexpr std::size_t kMaxPending = 1u << 18;  ///< activities held back by the watermark: 8 MiB
  static constexpr std::uint32_t kMaxWalk = 1u << 24;   ///< ids that one look for waiting launches goes over

  void pass_recorded(CorrelationId newest);
  [[nodiscard]] TimeNs settled_until(bool lossy);
  void make_room();
  [[nodiscard]] CorrelationId complete() const noexcept { return static_cast<CorrelationId>(raw(oldest_) - 1); }
  void advance_ledger(const Settled& settled);
  void count_unmatched(CorrelationId id, bool seen);
  void record_call(const ActivityRecord& call);
  void settle(const ActivityRecord& record, const CorrelationMap::Found& found);
  void record_one(const ActivityRecord& record);
  [[gnu::noinline]] void settle_odd(const ActivityRecord& record, const CorrelationMap::Found& found);
  [[nodiscard]] bool time_is_good(const ActivityRecord& record) const noexcept;

  Attribution& attribution_;
  Ledger& ledger_;
  TickClock& clock_;
  const ContextDevices& contexts_;
  Counters& counters_;
  DetectedRegions* detected_;
  bool by_calls_;
  CallAttribution calls_;
  struct Waiting {
    ActivityRecord record;
    std::uint32_t ticks;
  };
  std::vector<Waiting> waiting_;  ///< by_calls: records whose call has not come yet
  std::uint64_t calls_seen_ = 0;
  CorrelationId newest_call_{};
  std::unordered_map<std::uint32_t, Interval> captures_;  ///< by_calls: the latest one of each OS thread

  std::uint32_t next_sequence_ = 0;
  struct Unpublished {
    std::uint32_t sequence;
    std::uint32_t ticks;
  };
  std::vector<Unpublished> unpublished_;
  std::vector<InstanceSlot*> open_;
  std::vector<Event> events_;

  std::deque<Tick> ticks_;
  std::deque<Settled> settled_;
  std::uint32_t lag_;
  std::uint64_t late_seen_ = 0;
  std::uint32_t until_room_check_ = 0;
  TimeNs newest_begin_ = 0;
  TimeNs latest_begin_ = std::numeric_limits<TimeNs>::max();  ///< what is measured cannot begin later
  bool started_ = false;
  CorrelationId oldest_{};  ///< every launch before it has a record, or was given up on
  CorrelationId newest_recorded_{};
  bool any_recorded_ = false;

  std::uint64_t attributed_ = 0, outside_ = 0, unattributed_ = 0;
  std::uint64_t seen_by_record_ = 0;  ///< launches that no callback saw
  std::array<std::uint32_t, 64> recent_unmatched_{};
  std::array<bool, 64> recent_unmatched_used_{};
};

}  // namespace mfu
