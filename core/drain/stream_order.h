// How early work can begin whose record has not come: not before what was launched before it on the same stream.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/attribution/correlation_map.h"
#include "core/base/ids.h"
#include "core/base/units.h"

namespace mfu {

/// [mfu-drain] Walks over launches in the order of their correlation ids, which is the order in which their calls
/// began.
///
/// The rule: a launch begins after it was called, and after everything that was enqueued before it on its stream has
/// ended. Launches of one thread are enqueued in the order of their ids. Of two threads the order is known only where
/// the one made another call between the two: then its first call was over. A programmatic dependent launch waits for
/// its predecessor's begin alone. A stream that waits for an event begins nothing before that has ended which the event
/// was recorded behind; a program that waits for an event has seen the call return that recorded it. An edge that is
/// not known makes a window later, never wrong.
class StreamOrder {
 public:
  /// A launch without a record, or a graph of which more records may come: its work began at `from` at the earliest.
  struct Waiting {
    CorrelationId id{};
    TimeNs from = 0;
    std::uint32_t lane = 0;
    bool graph = false;  ///< it has records
    /// The newest launch behind it on its stream that has a record and waited for it: then its own work is over.
    /// Itself: there is none.
    CorrelationId overtaken_by{};

    [[nodiscard]] bool overtaken() const noexcept { return overtaken_by != id; }
  };

  /// `id` is settled: it has its record, or none is waited for. In the order of ids, each once.
  /// \param called the launch was not called before; \param now is within 9 minutes of when its work ended.
  void pass(CorrelationId id, CorrelationMap::Entry entry, TimeNs called, TimeNs now);

  /// The same for what most launches are: recorded, one piece of work, on a stream that the same thread launched on
  /// last, or on an unknown one. False, and nothing is done: it is another.
  bool pass_next_of_thread(CorrelationId id, const CorrelationMap::Entry& entry, TimeNs now) noexcept {
    const LaunchPlace place = entry.place;
    if (place.is_graph() || place.is_programmatic() || place.thread() == 0) return false;
    if (place.lane() == LaunchPlace::kUnknownLane) {
      passed_calls_[place.thread()] = id;
      return true;
    }
    if (place.lane() >= lanes_.size()) return false;
    State& state = lanes_[place.lane()].passed;
    if (state.last_thread != place.thread()) return false;
    const TimeNs from = std::max(state.all_ended, state.last_ended);
    state.all_ended = state.last_began = from;
    state.last_ended = std::max(from, CorrelationMap::end_of(entry, now));
    state.last = passed_calls_[place.thread()] = id;
    state.graph_open = false;
    return true;
  }

  /// Looks at what was not passed yet, from its beginning on: begin_walk, visit in the order of ids, end_walk.
  void begin_walk();
  void visit(CorrelationId id, const CorrelationMap::Entry& entry, TimeNs called, TimeNs now);
  /// The first outstanding launch of each stream, and the oldest one on unknown streams.
  [[nodiscard]] const std::vector<Waiting>& end_walk();

 private:
  /// Knowledge of a stream behind some launch.
  struct State {
    TimeNs all_ended = 0;   ///< a launch by any thread begins after this
    TimeNs last_ended = 0;  ///< one by `last_thread` begins after this too
    TimeNs last_began = 0;  ///< a programmatic one by `last_thread` begins after this, not after the others
    CorrelationId last{};
    std::uint32_t last_thread = 0;  ///< 0: there was no launch
    std::uint32_t holder_thread = 0;
    bool beside = false;       ///< another thread launched after the holder, perhaps before it on the stream
    std::uint32_t holder = 0;  ///< index in waiting_; only while `held`
    bool held = false;         ///< by a launch without a record: later ones are not followed
    bool graph_open = false;   ///< the last launch is a graph: more of its records may come
    std::uint32_t graph_end = 0;
    TimeNs graph_began = 0;
  };
  struct Lane {
    State passed, walked;
    std::uint32_t walk = 0;  ///< that `walked` belongs to
    std::uint32_t graph_end = 0, graph_quiet = 0;
    CorrelationId graph{};
  };
  using ThreadCalls = std::array<CorrelationId, LaunchPlace::kMaxThread + 1>;

  Lane& lane_at(std::uint32_t lane);
  State& walked(std::uint32_t lane);
  [[nodiscard]] static TimeNs earliest_begin(const State& state, LaunchPlace place, TimeNs called) noexcept;
  void add(State& state, const ThreadCalls& calls, CorrelationId id, LaunchPlace place, TimeNs began, TimeNs ended);
  void add_recorded(State& state, const ThreadCalls& calls, CorrelationId id, const CorrelationMap::Entry& entry,
                    TimeNs called, TimeNs now);
  void wait_for(CorrelationId id, TimeNs from, std::uint32_t lane, bool graph);
  void add_wait(State& state, const ThreadCalls& calls, CorrelationId id, LaunchPlace place, TimeNs ended);
  [[nodiscard]] TimeNs event_behind(const State& state, LaunchPlace place) const;
  [[nodiscard]] const TimeNs* find_event(std::uint32_t which) const;
  /// Whether a call of `thread` had ended when the call began that is looked at.
  [[nodiscard]] static bool over(const ThreadCalls& calls, std::uint32_t thread, CorrelationId call) noexcept {
    return newer(calls[thread], call);
  }

  static constexpr DurationNs kSlack = 20'000;  ///< device times are converted to the host's clock, with jumps
  static constexpr std::uint32_t kQuietWalks = 2;
  static constexpr std::size_t kMostEvents = 1u << 16;
  static constexpr std::size_t kMostWaiting = 1u << 14;

  std::vector<Lane> lanes_ = std::vector<Lane>(1);
  std::vector<std::uint32_t> graph_lanes_;  ///< whose last launch may be an open graph
  /// By event: work that waits for it begins after this.
  std::unordered_map<std::uint32_t, TimeNs> events_, walked_events_;
  ThreadCalls passed_calls_{}, walked_calls_{};  ///< the newest call of each thread
  std::vector<Waiting> waiting_;
  bool unknown_waits_ = false;
  std::uint32_t walk_ = 0;
};

}  // namespace mfu
