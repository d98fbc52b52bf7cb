// How far time is settled, against a GPU that is worked out beside it: whatever streams, threads, events, programmatic
// launches and graphs do, no work that is not recorded began before the settled moment.
#include "core/drain/launch_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "tests/sanitized.h"

namespace mfu {
namespace {

constexpr TimeNs kStart = 1'000 * kNsPerSecond;
constexpr DurationNs kMs = 1'000'000;

struct Part {  ///< one record of a launch
  TimeNs begin, end, comes;
  bool delivered = false;
};
struct Enqueued {
  CorrelationId id{};
  std::uint32_t stream = 0;
  std::vector<Part> parts;  ///< none: a launch of nothing
};

/// Streams of a device whose times follow from what was enqueued, as the driver documents it.
class Gpu {
 public:
  struct Stream {
    TimeNs tail = 0;         ///< all before has ended
    TimeNs last_begin = 0;   ///< of the last launch
    std::uint32_t lane = 1;  ///< the number that the map knows it by
  };
  std::map<std::uint32_t, Stream> streams;
  std::map<std::uint32_t, TimeNs> events;  ///< by handle: when it is complete

  Part run(std::uint32_t stream, TimeNs enqueued, DurationNs length, bool programmatic) {
    Stream& s = streams[stream];
    const TimeNs begin = std::max(enqueued, programmatic ? s.last_begin : s.tail);
    s.last_begin = begin;
    s.tail = std::max(s.tail, begin + length);
    return {begin, begin + length, 0};
  }
};

class LaunchTrackerTest : public ::testing::Test {
 protected:
  CorrelationId next() { return static_cast<CorrelationId>(++id_); }
  void tick(TimeNs now) { tracker_->begin_tick(now, static_cast<CorrelationId>(id_), launched_); }
  /// A kernel is launched at `now` on a stream of its own number.
  Enqueued launch(std::uint32_t lane, TimeNs now, DurationNs length, std::uint32_t thread = 1) {
    Enqueued work;
    work.id = next();
    map_->insert(work.id, LaunchOwner::kOutside, LaunchPlace::on(lane).by(thread));
    launched_ = true;
    work.parts.push_back(gpu_.run(lane, now, length, false));
    return work;
  }
  Enqueued launch_graph(std::uint32_t lane, TimeNs now, DurationNs length) {
    const Enqueued graph{next(), lane, {gpu_.run(lane, now, length, false)}};
    map_->insert(graph.id, LaunchOwner::kOutside, LaunchPlace::on(lane).by(1).graph());
    launched_ = true;
    return graph;
  }
  void deliver(const Enqueued& work) {
    for (const Part& part : work.parts) {
      const auto found = map_->record(work.id);
      const bool first = found.result == CorrelationMap::Lookup::kFound;
      map_->note_times(work.id, part.begin, part.end, first);
      tracker_->recorded(work.id);
    }
  }

  Counters counters_;
  std::unique_ptr<CorrelationMap> map_ = std::make_unique<CorrelationMap>();
  std::unique_ptr<LaunchTracker> tracker_ = std::make_unique<LaunchTracker>(*map_, counters_);
  Gpu gpu_;
  std::uint32_t id_ = 0xFFFF'F000u;  // wraps soon
  bool launched_ = false;
};

TEST_F(LaunchTrackerTest, OneStreamIsSettledUpToTheLastKernelThatEndedHoweverFarTheCpuIsAhead) {
  TimeNs now = kStart;
  tick(now);
  std::deque<Enqueued> queued;
  for (int i = 0; i < 1024; ++i) queued.push_back(launch(1, now + i * 1000, 10 * kMs));
  for (int t = 0; t < 90; ++t) {
    now += 100 * kMs;
    tick(now);
    while (!queued.empty() && queued.front().parts[0].end <= now) {
      deliver(queued.front());
      queued.pop_front();
    }
    const TimeNs until = tracker_->settle(true, false).until;
    if (queued.empty()) break;
    ASSERT_LE(until, queued.front().parts[0].begin);
    ASSERT_GE(until, queued.front().parts[0].begin - kMs / 10);
    ASSERT_TRUE(tracker_->settled({kStart, now}));
  }
}

TEST_F(LaunchTrackerTest, WhatWaitsForAnEventCannotBeginBeforeIt) {
  TimeNs now = kStart;
  tick(now);
  const Enqueued first = launch(1, now, 50 * kMs);
  map_->insert_event(next(), false, LaunchPlace::on(1).by(1), 77);
  map_->insert_event(next(), true, LaunchPlace::on(2).by(1), 77);
  const TimeNs first_end = first.parts[0].end;
  gpu_.streams[2].tail = first_end;
  const Enqueued second = launch(2, now, 100 * kMs);
  tick(now += 60 * kMs);
  deliver(first);
  const TimeNs until = tracker_->settle(true, false).until;
  EXPECT_LE(until, first_end);
  EXPECT_GE(until, first_end - kMs / 10);
}

TEST_F(LaunchTrackerTest, LaunchesOfNothingAreGivenUpTwoFlushesAfterWhatCameBehindThem) {
  TimeNs now = kStart;
  tick(now);
  for (int i = 0; i < 60; ++i) {
    map_->insert(next(), LaunchOwner::kOutside, LaunchPlace::on(1).by(1));
    launched_ = true;
  }
  const Enqueued behind = launch(1, now, kMs);
  tick(now += 100 * kMs);
  deliver(behind);
  for (int flush = 0; flush < 4; ++flush) {
    tick(now += 100 * kMs);
    const TimeNs until = tracker_->settle(true, false).until;
    if (flush < 2) {
      EXPECT_LE(until, kStart) << flush;
    } else {
      EXPECT_EQ(until, now) << flush;
    }
  }
  EXPECT_EQ(counters_.get(Counter::kLaunchesExpired), 60u);
  EXPECT_TRUE(tracker_->settled({kStart, now}));
}

/// CUPTI keeps a buffer while one record in it is incomplete: a record of work that is over waits there for what was
/// launched beside it, while later buffers come.
TEST_F(LaunchTrackerTest, WhatLiesInABufferWithWorkThatRunsIsNotGivenUp) {
  TimeNs now = kStart;
  tick(now);
  const Enqueued kept = launch(1, now, kMs), running = launch(2, now, 300 * kMs);
  const auto lost = [this] { return counters_.get(Counter::kLaunchesExpired); };
  for (int t = 0; t < 14; ++t) {
    deliver(launch(1, now, kMs));
    tick(now += 20 * kMs);
    (void)tracker_->settle(true, false);
    ASSERT_EQ(lost(), 0u) << t;
  }
  deliver(running);  // it was in another buffer then: now nothing keeps the first one's back
  for (int t = 0; t < 4; ++t) {
    deliver(launch(1, now, kMs));
    tick(now += 20 * kMs);
    (void)tracker_->settle(true, false);
  }
  EXPECT_EQ(lost(), 1u);
  EXPECT_EQ(map_->look(kept.id).kind, CorrelationMap::Kind::kOther);
}

TEST_F(LaunchTrackerTest, ALongKernelBesideOthersHoldsTimeForTwoSecondsAndIsNotGivenUp) {
  TimeNs now = kStart;
  tick(now);
  const Enqueued collective = launch(2, now, 20 * kNsPerSecond);
  std::deque<Enqueued> others;
  for (int t = 0; t < 180; ++t) {
    others.push_back(launch(1, now, kMs / 2));
    now += 100 * kMs;
    tick(now);
    deliver(others.back());
    const TimeNs until = tracker_->settle(true, false).until;
    ASSERT_LE(until, std::max(collective.parts[0].begin, now - 2 * kNsPerSecond));
    ASSERT_GE(until, now - 2 * kNsPerSecond - kMs);
  }
  EXPECT_EQ(counters_.get(Counter::kLaunchesExpired), 0u);
  EXPECT_FALSE(tracker_->settled({now - kNsPerSecond, now}));
  deliver(collective);
  tick(now += 100 * kMs);
  EXPECT_EQ(tracker_->settle(true, false).until, now);
  EXPECT_TRUE(tracker_->settled({kStart, now}));
}

/// A buffer ends in the middle of a graph's records.
TEST_F(LaunchTrackerTest, AGraphIsCompleteWhenWhatFollowsItHasARecord) {
  TimeNs now = kStart;
  tick(now);
  const Enqueued graph = launch_graph(1, now, kMs);
  const Enqueued copy = launch(1, now, kMs / 10);
  for (int t = 0; t < 5; ++t) {
    tick(now += 20 * kMs);
    deliver(graph);  // one more of its records
    EXPECT_EQ(tracker_->settle(true, false).complete, static_cast<CorrelationId>(raw(graph.id) - 1)) << t;
  }
  tick(now += 20 * kMs);
  deliver(graph);
  deliver(copy);
  EXPECT_EQ(tracker_->settle(true, false).complete, copy.id);
}

TEST_F(LaunchTrackerTest, AGraphWithNothingBehindItIsCompleteWhenNoMoreOfItsRecordsCome) {
  TimeNs now = kStart;
  tick(now);
  const Enqueued graph = launch_graph(1, now, kMs);
  tick(now += 20 * kMs);
  deliver(graph);
  EXPECT_EQ(tracker_->settle(true, false).complete, static_cast<CorrelationId>(raw(graph.id) - 1));
  for (int t = 0; t < 3; ++t) {
    tick(now += 20 * kMs);
    (void)tracker_->settle(true, false);
  }
  EXPECT_EQ(tracker_->settle(true, false).complete, graph.id);
}

TEST_F(LaunchTrackerTest, AKernelThatRunsAloneIsWaitedForUpToAMinute) {
  TimeNs now = kStart;
  tick(now);
  const Enqueued alone = launch(1, now, 50 * kNsPerSecond);
  const Enqueued behind = launch(1, now, kMs);
  for (int t = 0; t < 500; ++t) {
    tick(now += 100 * kMs);
    ASSERT_LE(tracker_->settle(true, false).until, alone.parts[0].begin);
  }
  deliver(alone);
  tick(now += 100 * kMs);
  EXPECT_GE(tracker_->settle(true, false).until, alone.parts[0].end - kMs);
  EXPECT_LE(tracker_->settle(true, false).until, behind.parts[0].begin);
}

TEST_F(LaunchTrackerTest, WorkThatKeepsBeginningTooEarlyTurnsTheRuleOff) {
  TimeNs now = kStart;
  tick(now);
  for (int i = 0; i < 17; ++i) {
    const Enqueued work = launch(1, now, kMs);
    tracker_->violated(work.id, work.parts[0].begin);
    deliver(work);
  }
  EXPECT_EQ(counters_.get(Counter::kStreamOrderBroken), 17u);
  EXPECT_EQ(tracker_->take_notices().size(), 1u);
  EXPECT_TRUE(tracker_->take_notices().empty());
  // From now on a launch holds time back where it was called.
  const TimeNs called = now;
  deliver(launch(1, now, 50 * kMs));
  (void)launch(1, now, 50 * kMs);
  tick(now += 100 * kMs);
  EXPECT_LE(tracker_->settle(true, false).until, called);
}

/// Random programs. A call has two moments: its beginning, when its id is handed out, and the moment in which the
/// driver takes it; calls of several threads overlap.
class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : rng_(seed), tracker_(*map_, counters_) {
    threads_ = 1 + any(4);
    streams_ = 1 + any(6);
    calls_.resize(threads_);
    events_ = 1 + any(4);
    programmatic_ = any(3) == 0;
    graphs_ = any(3) == 0;
    empty_ = any(4) == 0;
    // Either the next flush brings a record, in any order, or each stream's records come late and in order.
    in_order_ = any(2) == 0;
    latest_ = in_order_ ? 900 * kMs : 5 * kMs;
    for (std::uint32_t s = 0; s < streams_; ++s) gpu_.streams[s].lane = next_lane_++;
  }

  void run() {
    TimeNs now = kStart;
    DurationNs lag = 0;
    tracker_.begin_tick(now, newest_, any_launch_);
    for (int t = 0; t < 120 && !::testing::Test::HasFailure(); ++t) {
      const TimeNs end = now + 10 * kMs + static_cast<DurationNs>(any(200)) * kMs;
      if (t < 100) {
        for (std::size_t n = any(400); n > 0; --n) step(now += static_cast<DurationNs>(any(100'000)));
      }
      now = std::max(now, end);
      tracker_.begin_tick(now, newest_, any_launch_);
      deliver_until(now);
      const LaunchTracker::Settled settled = tracker_.settle(true, false);
      check(settled.until, now);
      lag += now - settled.until;
      if (any(3) == 0) tracker_.pass_recorded();
      if (any(20) == 0) recreate_stream();
    }
    ::testing::Test::RecordProperty("mean_lag_ms", static_cast<int>(lag / 120 / kMs));
  }

 private:
  struct Call {
    bool under_way = false;
    CorrelationId id{};
    TimeNs begun = 0;
    std::uint32_t kind = 0, stream = 0, event = 0;
  };
  enum : std::uint32_t { kKernel, kProgrammatic, kGraph, kNothing, kRecord, kWait, kOtherCall };

  std::size_t any(std::size_t below) { return rng_() % below; }

  /// One thread begins a call, or the driver takes the one that it is in.
  void step(TimeNs now) {
    const auto t = static_cast<std::uint32_t>(any(threads_));
    Call& call = calls_[t];
    if (!call.under_way) {
      call = {true,     static_cast<CorrelationId>(++id_),         now,
              choose(), static_cast<std::uint32_t>(any(streams_)), static_cast<std::uint32_t>(any(events_))};
      newest_ = call.id;
      // A program that uses an event in two threads at once means nothing by it.
      const auto uses_event = [](const Call& c) { return c.under_way && (c.kind == kRecord || c.kind == kWait); };
      if (uses_event(call) && std::any_of(calls_.begin(), calls_.end(), [&](const Call& other) {
            return &other != &call && uses_event(other) && other.event == call.event;
          }))
        call.kind = kOtherCall;
      const LaunchPlace place = LaunchPlace::on(gpu_.streams[call.stream].lane).by(t + 1);
      switch (call.kind) {
        case kKernel:
        case kNothing:
          map_->insert(call.id, LaunchOwner::kOutside, place);
          break;
        case kProgrammatic:
          map_->insert(call.id, LaunchOwner::kOutside, place.programmatic());
          break;
        case kGraph:
          map_->insert(call.id, LaunchOwner::kOutside, place.graph());
          break;
        case kRecord:
        case kWait:
          map_->insert_event(call.id, call.kind == kWait, place, call.event);
          break;
        default:
          break;
      }
      any_launch_ = any_launch_ || call.kind <= kNothing;
      if (any(3) != 0) return;  // nearly always the driver has it at once
    }
    call.under_way = false;
    take(call, now);
  }

  std::uint32_t choose() {
    switch (any(10)) {
      case 0:
        return kRecord;
      case 1:
        return kWait;
      case 2:
        return kOtherCall;
      case 3:
        return programmatic_ ? kProgrammatic : kKernel;
      case 4:
        return graphs_ ? kGraph : kKernel;
      case 5:
        return empty_ ? kNothing : kKernel;
      default:
        return kKernel;
    }
  }

  void take(const Call& call, TimeNs now) {
    Gpu::Stream& stream = gpu_.streams[call.stream];
    if (call.kind == kRecord) {
      gpu_.events[call.event] = stream.tail;
      return;
    }
    if (call.kind == kWait) {
      if (const auto event = gpu_.events.find(call.event); event != gpu_.events.end()) {
        stream.tail = std::max(stream.tail, event->second);
        stream.last_begin = std::max(stream.last_begin, event->second);
      }
      return;
    }
    if (call.kind == kOtherCall) return;
    Enqueued work;
    work.id = call.id;
    work.stream = call.stream;
    const DurationNs length = any(200) == 0 ? 200 * kMs : static_cast<DurationNs>(1000 + any(300'000));
    if (call.kind == kGraph) {
      // Branches: parts that follow on nothing but the graph's own begin, in any order.
      const TimeNs begin = std::max(now, stream.tail);
      TimeNs end = begin;
      for (std::size_t n = 1 + any(5); n > 0; --n) {
        const TimeNs from = begin + static_cast<DurationNs>(any(100'000));
        work.parts.push_back({from, from + length, 0});
        end = std::max(end, from + length);
      }
      stream.last_begin = begin;
      stream.tail = end;
    } else if (call.kind != kNothing) {
      work.parts.push_back(gpu_.run(call.stream, now, length, call.kind == kProgrammatic));
    }
    // The records of a graph come in one go, after its end.
    TimeNs comes = 0;
    for (const Part& part : work.parts) comes = std::max(comes, part.end);
    comes += static_cast<DurationNs>(any(static_cast<std::size_t>(latest_)));
    if (in_order_) {
      comes = std::max(comes, last_comes_[call.stream]);
      last_comes_[call.stream] = comes;
    }
    for (Part& part : work.parts) part.comes = comes;
    works_.push_back(std::move(work));
  }

  void deliver_until(TimeNs now) {
    for (Enqueued& work : works_) {
      for (Part& part : work.parts) {
        if (part.delivered || part.comes > now) continue;
        part.delivered = true;
        const auto found = map_->record(work.id);
        ASSERT_NE(found.result, CorrelationMap::Lookup::kNeverSeen);
        map_->note_times(work.id, part.begin, part.end, found.result == CorrelationMap::Lookup::kFound);
        tracker_.recorded(work.id);
      }
    }
    std::erase_if(works_, [](const Enqueued& work) {
      return std::all_of(work.parts.begin(), work.parts.end(), [](const Part& p) { return p.delivered; });
    });
  }

  void check(TimeNs until, TimeNs now) {
    for (const Enqueued& work : works_) {
      for (const Part& part : work.parts) {
        if (part.delivered) continue;
        ASSERT_LE(until, part.begin) << "id " << raw(work.id) << " on stream " << work.stream << ", " << (now - until)
                                     << " ns behind; in the map " << static_cast<int>(map_->look(work.id).kind)
                                     << ", given up " << counters_.get(Counter::kLaunchesExpired);
      }
    }
  }

  /// A stream goes, and another gets its handle: the map knows it by a new number.
  void recreate_stream() {
    const auto s = static_cast<std::uint32_t>(any(streams_));
    if (std::any_of(calls_.begin(), calls_.end(), [s](const Call& c) { return c.under_way && c.stream == s; })) return;
    gpu_.streams[s] = {};
    gpu_.streams[s].lane = next_lane_++;
    last_comes_.erase(s);
  }

  std::mt19937 rng_;
  Counters counters_;
  std::unique_ptr<CorrelationMap> map_ = std::make_unique<CorrelationMap>();
  LaunchTracker tracker_;
  Gpu gpu_;
  std::vector<Call> calls_;
  std::deque<Enqueued> works_;
  std::map<std::uint32_t, TimeNs> last_comes_;
  std::size_t threads_ = 1, streams_ = 1, events_ = 1;
  bool programmatic_ = false, graphs_ = false, empty_ = false, in_order_ = false;
  DurationNs latest_ = 0;
  std::uint32_t id_ = 0xFFFF'FF00u, next_lane_ = 1;
  CorrelationId newest_{};
  bool any_launch_ = false;
};

TEST(LaunchTrackerProperty, NothingThatIsNotRecordedBeganBeforeTheSettledMoment) {
  const auto seeds = static_cast<unsigned>(tests::sanitized_share(150));
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram(seed).run();
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace mfu
