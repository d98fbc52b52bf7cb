#include "core/drain/stream_order.h"

#include <algorithm>
#include <utility>

namespace mfu {
namespace {
using Entry = CorrelationMap::Entry;
using Kind = CorrelationMap::Kind;
}  // namespace

StreamOrder::Lane& StreamOrder::lane_at(std::uint32_t lane) {
  if (lanes_.size() <= lane) lanes_.resize(lane + 1);
  return lanes_[lane];
}

StreamOrder::State& StreamOrder::walked(std::uint32_t number) {
  Lane& lane = lane_at(number);
  if (lane.walk != walk_) {
    lane.walk = walk_;
    lane.walked = lane.passed;
  }
  return lane.walked;
}

TimeNs StreamOrder::earliest_begin(const State& state, LaunchPlace place, TimeNs called) noexcept {
  const bool same_thread = state.last_thread == place.thread();
  if (place.is_programmatic()) return same_thread ? std::max(called, state.last_began) : called;
  const TimeNs ended = same_thread ? std::max(state.all_ended, state.last_ended) : state.all_ended;
  return std::max(called, ended);
}

/// A launch, or a wait, that is settled: [began, ended) are lower bounds.
void StreamOrder::add(State& state, const ThreadCalls& calls, CorrelationId id, LaunchPlace place, TimeNs began,
                      TimeNs ended) {
  if (state.last_thread == place.thread()) {
    state.all_ended = std::max(state.all_ended, state.last_ended);
    state.last_ended = std::max(state.last_ended, ended);
  } else {
    // Enqueued before this one for certain only if its thread has made another call since.
    if (over(calls, state.last_thread, state.last)) state.all_ended = std::max(state.all_ended, state.last_ended);
    state.last_ended = ended;
  }
  state.last_thread = place.thread();
  state.last_began = began;
  state.last = id;
  state.graph_open = false;
}

void StreamOrder::add_recorded(State& state, const ThreadCalls& calls, CorrelationId id, const Entry& entry,
                               TimeNs called, TimeNs now) {
  const TimeNs from = earliest_begin(state, entry.place, called);
  const TimeNs noted = CorrelationMap::end_of(entry, now);
  add(state, calls, id, entry.place, entry.place.is_programmatic() ? std::max(from, noted) : from,
      std::max(from, noted));
  if (!entry.place.is_graph()) return;
  state.graph_open = true;
  state.graph_began = from;
  state.graph_end = entry.detail;
  graph_lanes_.push_back(entry.place.lane());
}

const TimeNs* StreamOrder::find_event(std::uint32_t which) const {
  if (const auto walked = walked_events_.find(which); walked != walked_events_.end()) return &walked->second;
  const auto passed = events_.find(which);
  return passed != events_.end() ? &passed->second : nullptr;
}

TimeNs StreamOrder::event_behind(const State& state, LaunchPlace place) const {
  const TimeNs ended =
      state.last_thread == place.thread() ? std::max(state.all_ended, state.last_ended) : state.all_ended;
  // Behind a launch that has not ended: not before it began.
  return state.held && state.holder_thread == place.thread() ? std::max(ended, waiting_[state.holder].from) : ended;
}

void StreamOrder::add_wait(State& state, const ThreadCalls& calls, CorrelationId id, LaunchPlace place, TimeNs ended) {
  if (state.held) return;
  const bool graph_open = state.graph_open;
  const TimeNs began = state.last_thread == place.thread() ? std::max(ended, state.last_began) : ended;
  add(state, calls, id, place, began, ended);
  state.graph_open = graph_open;  // a wait says nothing of the graph before it
}

void StreamOrder::pass(CorrelationId id, Entry entry, TimeNs called, TimeNs now) {
  const std::uint32_t lane = entry.place.lane();
  if (lane != LaunchPlace::kUnknownLane) {
    State& state = lane_at(lane).passed;
    if (entry.kind == Kind::kRecorded) {
      add_recorded(state, passed_calls_, id, entry, called, now);
    } else if (entry.kind == Kind::kEventRecorded) {
      if (events_.size() >= kMostEvents) events_.clear();
      events_[entry.detail] = event_behind(state, entry.place);
    } else if (entry.kind == Kind::kEventAwaited) {
      if (const auto event = events_.find(entry.detail); event != events_.end())
        add_wait(state, passed_calls_, id, entry.place, event->second);
    }
  }
  if (entry.place.thread() != 0) passed_calls_[entry.place.thread()] = id;
}

void StreamOrder::begin_walk() {
  ++walk_;
  walked_events_.clear();
  walked_calls_ = passed_calls_;
  waiting_.clear();
  unknown_waits_ = false;
}

void StreamOrder::wait_for(CorrelationId id, TimeNs from, std::uint32_t lane, bool graph) {
  if (waiting_.size() < kMostWaiting)
    waiting_.push_back({id, from, lane, graph, id});
  else
    waiting_.back().from = std::min(waiting_.back().from, from);
}

void StreamOrder::visit(CorrelationId id, const Entry& entry, TimeNs called, TimeNs now) {
  const std::uint32_t lane = entry.place.lane();
  const std::uint32_t thread = entry.place.thread();
  if (lane == LaunchPlace::kUnknownLane) {
    if (entry.kind == Kind::kOutstanding && !std::exchange(unknown_waits_, true)) wait_for(id, called, lane, false);
    if (thread != 0) walked_calls_[thread] = id;
    return;
  }
  State& state = walked(lane);
  switch (entry.kind) {
    case Kind::kRecorded:
      if (!state.held)
        add_recorded(state, walked_calls_, id, entry, called, now);
      else if (!entry.place.is_programmatic() &&  // that one need not have waited for it
               (state.holder_thread == thread || over(walked_calls_, state.holder_thread, waiting_[state.holder].id)))
        waiting_[state.holder].overtaken_by = id;
      break;
    case Kind::kOutstanding:
      if (!state.held) {
        if (state.graph_open) wait_for(state.last, state.graph_began - kSlack, lane, true);
        state.held = true;
        state.holder_thread = thread;
        wait_for(id, std::max(called, earliest_begin(state, entry.place, called) - kSlack), lane, false);
        state.holder = static_cast<std::uint32_t>(waiting_.size()) - 1;
        state.beside = false;
      } else if (state.holder_thread != thread && !state.beside) {
        // Which of the two is first on the stream is not known. Later ones cannot begin before this could.
        wait_for(id, std::max(called, state.all_ended - kSlack), lane, false);
        state.beside = true;
      }
      break;
    case Kind::kEventRecorded:
      walked_events_[entry.detail] = event_behind(state, entry.place);
      break;
    case Kind::kEventAwaited:
      if (const TimeNs* event = find_event(entry.detail)) add_wait(state, walked_calls_, id, entry.place, *event);
      break;
    case Kind::kOther:
      break;
  }
  if (thread != 0) walked_calls_[thread] = id;
}

const std::vector<StreamOrder::Waiting>& StreamOrder::end_walk() {
  std::sort(graph_lanes_.begin(), graph_lanes_.end());
  graph_lanes_.erase(std::unique(graph_lanes_.begin(), graph_lanes_.end()), graph_lanes_.end());
  std::erase_if(graph_lanes_, [this](std::uint32_t number) {
    State& state = walked(number);
    Lane& lane = lanes_[number];
    if (!state.graph_open) return true;
    if (state.held) return false;  // it is in waiting_ already
    // Its records come in one flush or two. With nothing behind it on its stream it is complete when no more come.
    const bool quiet = lane.graph == state.last && lane.graph_end == state.graph_end;
    lane.graph = state.last;
    lane.graph_end = state.graph_end;
    lane.graph_quiet = quiet ? lane.graph_quiet + 1 : 0;
    if (lane.graph_quiet < kQuietWalks) {
      wait_for(state.last, state.graph_began - kSlack, number, true);
      return false;
    }
    if (lane.passed.graph_open && lane.passed.last == state.last) lane.passed.graph_open = false;
    return lane.passed.last == state.last;
  });
  return waiting_;
}

}  // namespace mfu
