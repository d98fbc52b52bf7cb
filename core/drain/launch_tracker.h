// Which launches have their records, and up to which moment the account is complete therefore.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/attribution/correlation_map.h"
#include "core/base/counters.h"
#include "core/base/ids.h"
#include "core/base/units.h"
#include "core/drain/stream_order.h"

namespace mfu {

/// [mfu-drain] What began before settled() is recorded. A launch without a record holds that moment back to where its
/// work can have begun at the earliest (StreamOrder); but not for ever:
/// - Where a later launch on its stream has a record, it is over. If its record does not come with the next flushes it
///   has none (an empty graph, a copy of nothing), and is given up.
/// - Where other work has overtaken it, it may run long (a collective that waits for another rank). Time goes on 2 s
///   behind now; windows from its begin on are not settled.
/// - Where nothing has overtaken it, the device may be busy with it alone: time waits for it for up to a minute.
/// - Of a launch on an unknown stream it is only known that it was called: it is waited for 10 s while others finish.
class LaunchTracker {
 public:
  LaunchTracker(CorrelationMap& map, Counters& counters) : map_(map), counters_(counters) {}

  /// \param newest of the launches so far; `any`: there was one.
  void begin_tick(TimeNs now, CorrelationId newest, bool any);
  /// Before the first tick with a launch: none was made so many ids or more before its newest one.
  void begin_at(std::uint32_t ids_before) noexcept { ids_before_ = ids_before; }
  [[nodiscard]] bool started() const noexcept { return started_; }
  /// Moves on over what was recorded. Cheap where little is new; while the map's slots are near.
  void pass_recorded();
  /// A launch that the map knows has its first record, which began at `begin_ns`; `settled`: how far the account is.
  void recorded(CorrelationId id) noexcept {
    // A choice, not a branch: with several streams it falls either way.
    newest_recorded_ = !any_recorded_ || newer(id, newest_recorded_) ? id : newest_recorded_;
    any_recorded_ = true;
  }
  /// The first record of a launch begins before the moment up to which the account was settled.
  void violated(CorrelationId id, TimeNs begin_ns);

  struct Settled {
    TimeNs until = 0;          ///< work that began before is recorded, or is in unsettled()
    CorrelationId complete{};  ///< of this launch and all before it there are records, or none are waited for
  };
  /// \param flushed a flush has ended since the last call: all complete records have come.
  /// \param lossy CUPTI said that it dropped records.
  [[nodiscard]] Settled settle(bool flushed, bool lossy);

  /// Whether the work of `newest` and all before it is over, as far as records and the order of streams say.
  [[nodiscard]] bool all_over(TimeNs now, CorrelationId newest);

  /// The oldest launch whose work is not over, as of the last settle; none: there is no such launch.
  [[nodiscard]] std::optional<CorrelationId> oldest_waiting() const;

  /// Instances with a launch that is waited for, as of the last settle. Any of them may stand there several times.
  [[nodiscard]] const std::vector<InstanceId>& awaited() const noexcept { return awaited_; }

  /// False if work that began in the interval may not be recorded yet, though time went on.
  [[nodiscard]] bool settled(Interval interval) const noexcept;
  /// The earliest begin of work that time went past and that may still be recorded; none: 0.
  [[nodiscard]] TimeNs unsettled_from() const noexcept;
  /// The account went on up to `until` whether or not everything had come.
  void force(TimeNs until) noexcept { forced_until_ = std::max(forced_until_, until); }

  /// The records of this launch and all before it have gone elsewhere. Counted as launches_elsewhere.
  void forget_until(CorrelationId id) noexcept {
    forgotten_ = id;
    any_forgotten_ = true;
  }

  [[nodiscard]] bool any_tick() const noexcept { return !ticks_.empty(); }
  [[nodiscard]] TimeNs now() const noexcept { return ticks_.back().at; }
  /// True if several streams have outstanding launches: event records would tighten the bound.
  [[nodiscard]] bool wants_events() const noexcept { return wants_events_; }
  /// For the log, once each.
  [[nodiscard]] std::vector<std::string> take_notices();

 private:
  struct Tick {
    TimeNs at;
    CorrelationId newest;
    bool any;
  };
  /// Of a stream on which something waits: the newest launch behind it that had a record, now and flushes ago.
  struct Evidence {
    std::uint32_t lane;
    CorrelationId now, one_flush_ago, two_flushes_ago;
  };

  /// Work that has no record and may still run.
  struct Running {
    CorrelationId id{};
    bool long_run = false;
  };

  /// Walks over the ticks beside ids in order: a moment before which `id` was not called.
  class Calls {
   public:
    explicit Calls(const std::deque<Tick>& ticks) : ticks_(ticks) {}
    [[nodiscard]] TimeNs before(CorrelationId id) noexcept {
      while (next_ < ticks_.size() && (!ticks_[next_].any || newer(id, ticks_[next_].newest))) ++next_;
      return next_ == 0 ? 0 : ticks_[next_ - 1].at;
    }

   private:
    const std::deque<Tick>& ticks_;
    std::size_t next_ = 0;  ///< the first tick that may have seen it
  };

  void start(TimeNs now, CorrelationId newest, bool any);
  void walk(const Tick& now, bool lossy);
  void give_up(CorrelationId id, CorrelationMap::Entry& entry, Counter counter) noexcept {
    map_.give_up(id);
    counters_.add(counter);
    entry.kind = CorrelationMap::Kind::kOther;
  }
  [[nodiscard]] bool lost(CorrelationId id, LaunchPlace place, TimeNs called, TimeNs now, bool lossy) const noexcept;
  void keep_evidence(TimeNs now);
  /// How long time waits for a launch on an unknown stream while other work finishes.
  [[nodiscard]] DurationNs patience(bool lossy) const noexcept {
    return lossy || given_up_unknown_ > kFewGivenUp ? kMostHeld : kPatience;
  }

  static constexpr DurationNs kMostHeld = 2 * kNsPerSecond;
  static constexpr DurationNs kMostHeldAlone = 60 * kNsPerSecond;
  static constexpr DurationNs kPatience = 10 * kNsPerSecond;  ///< for a record of a launch on an unknown stream
  static constexpr DurationNs kLongRun = kNsPerSecond / 2;    ///< launches that wait longer may run for long
  static constexpr std::uint32_t kSameBuffer = 1u << 14;      ///< ids so far apart have no buffer in common
  static constexpr std::uint32_t kMaxWalk = CorrelationMap::kCapacity;
  static constexpr std::uint64_t kFewGivenUp = 16;
  static constexpr std::uint64_t kFewViolations = 16, kViolationsPer = 10'000;

  CorrelationMap& map_;
  Counters& counters_;
  StreamOrder order_;
  bool ordered_ = true;  ///< the rule of stream order has held so far
  std::deque<Tick> ticks_;
  TimeNs first_tick_ = 0;
  bool started_ = false;
  std::uint32_t ids_before_ = CorrelationMap::kCapacity - 1;
  CorrelationId oldest_{};  ///< all before it are recorded, or no longer waited for
  CorrelationId newest_recorded_{};
  bool any_recorded_ = false;
  std::vector<StreamOrder::Waiting> waiting_;
  std::vector<InstanceId> awaited_;
  std::vector<Evidence> evidence_;
  std::vector<Running> keeps_buffer_;            ///< back, perhaps, with records of others in it
  std::vector<StreamOrder::Waiting> unsettled_;  ///< that time went past
  CorrelationId forgotten_{};                    ///< it and all before it
  bool any_forgotten_ = false;
  TimeNs forced_until_ = 0;
  TimeNs gone_past_until_ = 0;          ///< time went on to there though something was waited for
  std::uint64_t given_up_unknown_ = 0;  ///< launches on unknown streams
  std::uint64_t passed_ = 0, violations_ = 0;
  bool wants_events_ = false;
  std::vector<std::string> notices_;
};

}  // namespace mfu
