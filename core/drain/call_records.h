// Launches that are known by API records alone, where the callbacks belong to another tool.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "core/attribution/correlation_map.h"
#include "core/attribution/instance_table.h"
#include "core/base/activity_record.h"
#include "core/base/counters.h"
#include "core/base/ids.h"
#include "core/base/units.h"

namespace mfu {

/// [mfu-drain] The rule of Attribution, answered afterwards: the thread's innermost region instance open at that
/// moment; else the one that is open elsewhere, if only one thread has any; else that of the process; else none.
/// As exact as CUPTI's clock against ours: about a microsecond at a range's edges.
class CallAttribution {
 public:
  void open(const InstanceSlot& slot, TimeNs at);
  void close(const InstanceSlot& slot, TimeNs at);
  [[nodiscard]] LaunchOwner owner_at(std::uint32_t os_thread, TimeNs at) const;
  /// Forgets what closed before `time`.
  void forget_before(TimeNs time);

 private:
  struct Span {
    TimeNs open;
    TimeNs close = std::numeric_limits<TimeNs>::max();
    InstanceId id;
  };
  [[nodiscard]] static InstanceId innermost(const std::vector<Span>& spans, TimeNs at);

  static constexpr std::uint32_t kProcess = 0;                  ///< key of start/end ranges; no thread has it
  std::unordered_map<std::uint32_t, std::vector<Span>> spans_;  ///< by OS thread, in the order in which they opened
};

/// [mfu-drain] Level `share`: a kCall record enters its launch into the map, as a callback does at level `full`. It may
/// come after the records of the work that it launched, which wait here meanwhile.
class CallRecords {
 public:
  CallRecords(CorrelationMap& map, Counters& counters) : map_(map), counters_(counters) {}

  /// Ranges that are open when a call is made own it.
  [[nodiscard]] CallAttribution& ranges() noexcept { return ranges_; }

  /// A record of a host call; see is_host_call.
  void add(const ActivityRecord& call);

  /// Keeps a record whose call has not come. False when there is no room: then it is an unknown launch.
  [[nodiscard]] bool keep(const ActivityRecord& record) {
    if (waiting_.size() >= kMostWaiting) return false;
    waiting_.push_back({record, 0});
    return true;
  }
  /// Gives `deliver(record, found)` what has waited for long enough at `now`, or whose call has come. Once a tick.
  template <typename Deliver>
  void deliver_waiting(bool all, TimeNs now, Deliver&& deliver) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      Waiting w = waiting_[i];
      const CorrelationMap::Found found = map_.record(w.record.correlation);
      const bool waits = ++w.ticks < kLeastTicks || now - w.record.begin_ns < kPatience;
      if (!all && found.result == CorrelationMap::Lookup::kNeverSeen && waits)
        waiting_[kept++] = w;
      else
        deliver(w.record, found);
    }
    waiting_.resize(kept);
  }

  [[nodiscard]] std::uint64_t seen() const noexcept { return seen_; }
  /// Of the calls so far; none while seen() is 0.
  [[nodiscard]] CorrelationId newest() const noexcept { return newest_; }

  /// A call is recorded when it returns, so its record may lie in a later buffer than that of its kernel; CUPTI keeps
  /// that one until it is full, or something asks for it by force.
  static constexpr std::uint32_t kLeastTicks = 4;
  static constexpr DurationNs kPatience = 30 * kNsPerSecond;

 private:
  struct Waiting {
    ActivityRecord record;
    std::uint32_t ticks;
  };
  static constexpr std::size_t kMostWaiting = 1u << 17;  ///< 7 MiB

  CorrelationMap& map_;
  Counters& counters_;
  CallAttribution ranges_;
  std::vector<Waiting> waiting_;
  std::uint64_t seen_ = 0;
  CorrelationId newest_{};
  std::unordered_map<std::uint32_t, Interval> captures_;  ///< the latest one of each OS thread
};

}  // namespace mfu
