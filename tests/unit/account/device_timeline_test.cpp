// The timeline alone, nanosecond by nanosecond: random activities on a short axis, against an array with an entry per
// nanosecond. ledger_test.cpp holds it together with instances and windows.
#include "core/account/device_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

struct Made {
  TimeNs begin = 0;
  TimeNs end = 0;
  TimeClass time_class = TimeClass::kOther;
  bool is_kernel = true;
  bool first = true;
  KernelNameId name{};
};

struct Edge {
  std::int64_t window;
  TimeNs at;
  ClassTimes times;
  DurationNs busy_ns;
};

/// Writes down what the timeline says, with its figures at that moment.
class Recorder : public TimelineListener {
 public:
  void on_open(std::uint32_t, Instance& instance, TimeNs at) override { marks.emplace_back("open", instance.id, at); }
  void on_end(std::uint32_t, Instance& instance, TimeNs at) override { marks.emplace_back("end", instance.id, at); }
  void on_edge(std::uint32_t, std::int64_t window, TimeNs at) override {
    edges.push_back({window, at, timeline->class_times(), timeline->busy_ns()});
    (void)timeline->cut_gaps();
  }
  void on_corrected(std::uint32_t, const Corrections&) override {}
  DeviceTimeline* timeline = nullptr;
  std::vector<std::tuple<std::string, InstanceId, TimeNs>> marks;
  std::vector<Edge> edges;
};

/// The class of each nanosecond in [kOrigin, until), counted.
ClassTimes by_nanosecond(const std::vector<Made>& all, TimeNs until) {
  std::vector<TimeClass> at(static_cast<std::size_t>(until - kOrigin), TimeClass::kIdle);
  for (const Made& a : all)
    for (TimeNs t = std::max(a.begin, kOrigin); t < std::min(a.end, until); ++t) {
      TimeClass& c = at[static_cast<std::size_t>(t - kOrigin)];
      c = std::min(c, a.time_class);  // the enumerators stand in order of precedence
    }
  ClassTimes times{};
  for (const TimeClass c : at) ++times[static_cast<std::size_t>(c)];
  return times;
}

/// Nanoseconds of [kOrigin, until) in which something other than a copy runs.
DurationNs busy_by_nanosecond(const std::vector<Made>& all, TimeNs until) {
  const ClassTimes times = by_nanosecond(all, until);
  return times[0] + times[1] + times[2];
}

std::vector<Made> random_activities(std::mt19937& random, int count, TimeNs length) {
  std::vector<Made> all;
  for (int i = 0; i < count; ++i) {
    Made a;
    a.begin = kOrigin + static_cast<TimeNs>(random() % static_cast<std::uint32_t>(length));
    a.end = a.begin + static_cast<TimeNs>(random() % (random() % 4 == 0 ? 400 : 30));
    a.time_class = static_cast<TimeClass>(random() % 4);
    a.is_kernel = a.time_class != TimeClass::kMemcpy;
    a.first = random() % 3 != 0;
    a.name = static_cast<KernelNameId>(random() % 5);
    all.push_back(a);
  }
  return all;
}

ActivityTraits traits_of(const Made& a) {
  ActivityTraits traits(a.time_class, a.is_kernel ? ActivityTraits::kKernel : 0);
  traits.set(a.first ? ActivityTraits::kFirstOfLaunch : 0);
  traits.set_name(a.name);
  return traits;
}

void add(DeviceTimeline& timeline, const Made& a) { timeline.add(a.begin, a.end, traits_of(a), nullptr); }

TEST(DeviceTimeline, NothingHappenedIsIdle) {
  Recorder recorder;
  DeviceTimeline timeline(0, kOrigin, 100, recorder);
  recorder.timeline = &timeline;
  timeline.sweep(kOrigin + 250);
  EXPECT_EQ(timeline.now(), kOrigin + 250);
  EXPECT_EQ(timeline.class_times()[static_cast<std::size_t>(TimeClass::kIdle)], 250);
  ASSERT_EQ(recorder.edges.size(), 2u);
  EXPECT_EQ(recorder.edges[1].at, kOrigin + 200);
  EXPECT_EQ(timeline.window(), 2);
}

TEST(DeviceTimeline, EveryNanosecondHasTheClassThatBruteForceGivesIt) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    constexpr TimeNs kLength = 3000;
    const DurationNs window = 50 + static_cast<DurationNs>(random() % 900);
    std::vector<Made> all = random_activities(random, 20 + static_cast<int>(random() % 300), kLength);
    std::vector<Made> waiting = all;
    // Records come in any order, as long as they come before the sweep passes their begin.
    std::shuffle(waiting.begin(), waiting.end(), random);
    Recorder recorder;
    DeviceTimeline timeline(0, kOrigin, window, recorder);
    recorder.timeline = &timeline;
    TimeNs watermark = kOrigin;
    while (watermark < kOrigin + kLength + 500) {
      watermark += 1 + static_cast<TimeNs>(random() % 400);
      std::erase_if(waiting, [&](const Made& a) {
        if (a.begin >= watermark && random() % 2 == 0) return false;
        add(timeline, a);
        return true;
      });
      timeline.sweep(watermark);
      ASSERT_EQ(timeline.class_times(), by_nanosecond(all, watermark)) << "seed " << seed << " until " << watermark;
      ASSERT_EQ(timeline.busy_ns(), busy_by_nanosecond(all, watermark)) << "seed " << seed;
    }
    for (const Edge& edge : recorder.edges) {
      EXPECT_EQ(edge.at, kOrigin + (edge.window + 1) * window);
      EXPECT_EQ(edge.times, by_nanosecond(all, edge.at)) << "seed " << seed << " window " << edge.window;
    }
    EXPECT_EQ(timeline.pending(), 0u);
    DurationNs kernels_ns = 0;
    std::uint64_t launches = 0;
    std::vector<KernelStat> by_name(5);
    for (const Made& a : all) {
      launches += static_cast<std::uint64_t>(a.first);
      if (!a.is_kernel) continue;
      kernels_ns += a.end - a.begin;
      ++by_name[raw(a.name)].count;
      by_name[raw(a.name)].sum_ns += a.end - a.begin;
    }
    EXPECT_EQ(timeline.kernel_sum_ns(), kernels_ns) << "seed " << seed;
    ASSERT_EQ(timeline.counts().size(), 1u);
    EXPECT_EQ(timeline.counts()[0].launches, launches);
    for (std::size_t n = 0; n < by_name.size(); ++n) {
      if (by_name[n].count == 0) continue;
      EXPECT_EQ(timeline.counts()[0].kernels[n].count, by_name[n].count) << "seed " << seed;
      EXPECT_EQ(timeline.counts()[0].kernels[n].sum_ns, by_name[n].sum_ns) << "seed " << seed;
    }
  }
}

/// Gaps of a microsecond to a tenth of a second, also around 20 µs and 1 ms; edges and looks in between cut them.
TEST(DeviceTimeline, GapsHaveTheLengthsThatTheirListGives) {
  const std::vector<DurationNs> lengths{1'000,   19'999,    20'000,    20'001,    300'000,
                                        999'999, 1'000'000, 1'000'001, 60'000'000};
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const DurationNs window = 1'000'000 * (1 + static_cast<DurationNs>(random() % 200));
    Recorder recorder;
    DeviceTimeline timeline(0, kOrigin, window, recorder);
    recorder.timeline = &timeline;
    std::vector<Interval> ran;
    TimeNs at = kOrigin;
    for (int i = 0; i < 60; ++i) {
      at += lengths[random() % lengths.size()];
      const TimeNs end = at + 500 + static_cast<TimeNs>(random() % 100'000);
      ran.push_back({at, end});
      at = end;
    }
    std::set<TimeNs> cuts;
    for (TimeNs edge = kOrigin + window; edge <= at; edge += window) cuts.insert(edge);
    std::size_t next = 0;
    for (TimeNs watermark = kOrigin; watermark < at;) {
      watermark = std::min<TimeNs>(at, watermark + 1 + static_cast<TimeNs>(random() % 50'000'000));
      for (; next < ran.size() && ran[next].begin_ns < watermark; ++next)
        add(timeline, {ran[next].begin_ns, ran[next].end_ns, TimeClass::kOther, true, true, {}});
      timeline.sweep(watermark);
      if (random() % 2 == 0) continue;
      (void)timeline.cut_gaps();
      cuts.insert(watermark);
    }
    IdleGaps expected;
    TimeNs idle_from = kOrigin;
    for (const Interval& one : ran) {
      for (auto cut = cuts.upper_bound(idle_from); cut != cuts.end() && *cut < one.begin_ns; ++cut) {
        expected.of_length(*cut - idle_from) += *cut - idle_from;
        idle_from = *cut;
      }
      expected.of_length(one.begin_ns - idle_from) += one.begin_ns - idle_from;
      idle_from = one.end_ns;
    }
    const IdleGaps& got = timeline.cut_gaps();
    EXPECT_EQ(got.under_20us, expected.under_20us);
    EXPECT_EQ(got.under_1ms, expected.under_1ms);
    EXPECT_EQ(got.longer, expected.longer);
    EXPECT_EQ(got.under_20us + got.under_1ms + got.longer,
              timeline.class_times()[static_cast<std::size_t>(TimeClass::kIdle)]);
  }
}

TEST(DeviceTimeline, ManyStreamsWithMoreOrdersThanLanesAreSortedAll) {
  Recorder recorder;
  DeviceTimeline timeline(0, kOrigin, 1'000'000, recorder);
  recorder.timeline = &timeline;
  std::vector<Made> all;
  for (TimeNs i = 0; i < 64; ++i)  // each begins before all that came earlier
    all.push_back({kOrigin + 2000 - 10 * i, kOrigin + 2000 - 10 * i + 5, TimeClass::kMatmul, true, true, {}});
  for (const Made& a : all) add(timeline, a);
  timeline.sweep(kOrigin + 3000);
  EXPECT_EQ(timeline.class_times(), by_nanosecond(all, kOrigin + 3000));
}

TEST(DeviceTimeline, OpensStandBeforeEndsAndEndsWaitForTheWork) {
  Recorder recorder;
  DeviceTimeline timeline(0, kOrigin, 1'000'000, recorder);
  recorder.timeline = &timeline;
  Instance first, second;
  first.id = InstanceId{1};
  second.id = InstanceId{2};
  first.shares.resize(1);
  second.shares.resize(1);
  timeline.add_open_mark(first, kOrigin + 10);
  timeline.add_end_mark(first, kOrigin + 50);
  timeline.add_open_mark(second, kOrigin + 50);
  timeline.add_end_mark(second, kOrigin + 60);
  // The first one's kernel runs on beyond the end of its range.
  timeline.add(kOrigin + 20, kOrigin + 80,
               ActivityTraits(TimeClass::kMatmul, ActivityTraits::kKernel | ActivityTraits::kFirstOfLaunch), &first);
  timeline.note_added();
  timeline.sweep(kOrigin + 100);
  const std::vector<std::tuple<std::string, InstanceId, TimeNs>> expected{{"open", InstanceId{1}, kOrigin + 10},
                                                                          {"open", InstanceId{2}, kOrigin + 50},
                                                                          {"end", InstanceId{2}, kOrigin + 60},
                                                                          {"end", InstanceId{1}, kOrigin + 80}};
  EXPECT_EQ(recorder.marks, expected);
  EXPECT_EQ(first.shares[0].kernels, 1u);
  EXPECT_EQ(first.shares[0].open_portion.busy_ns, 60);
  EXPECT_FALSE(second.shares[0].has_work());
}

/// Instances inside each other, two such chains side by side, in order and out of it: what each is busy with is the
/// union of its kernels and of those of all inside it, whoever came between.
TEST(DeviceTimeline, NestedInstancesAreBusyForAsLongAsBruteForceSays) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Recorder recorder;
    DeviceTimeline timeline(0, kOrigin, 1'000'000, recorder);
    recorder.timeline = &timeline;
    std::array<Instance, 5> instances;  // 0 > 1 > 2, and 3 > 4
    for (Instance& i : instances) i.shares.resize(1);
    const auto put_inside = [&instances](std::size_t inner, std::size_t outer) {
      instances[inner].parent = &instances[outer];
      instances[inner].root = instances[outer].root;
    };
    put_inside(1, 0);
    put_inside(2, 1);
    put_inside(4, 3);
    std::vector<Made> all = random_activities(random, 300, 2000);
    std::vector<Instance*> owners;
    for (std::size_t i = 0; i < all.size(); ++i) {
      // Runs of one owner, as records come, and none at times.
      if (i == 0 || random() % 4 == 0)
        owners.push_back(random() % 8 == 0 ? nullptr : &instances[random() % 5]);
      else
        owners.push_back(owners.back());
    }
    TimeNs swept = kOrigin;
    std::vector<bool> added(all.size());
    while (swept < kOrigin + 3000) {
      const TimeNs to = swept + 1 + static_cast<TimeNs>(random() % 500);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (added[i] || all[i].begin >= to) continue;
        added[i] = true;
        timeline.add(all[i].begin, all[i].end, traits_of(all[i]), owners[i]);
      }
      timeline.note_added();
      timeline.sweep(to);
      swept = to;
    }
    for (const Instance& instance : instances) {
      std::vector<Made> own;
      DurationNs sum = 0, matmul = 0;
      std::uint64_t kernels = 0;
      TimeNs first = std::numeric_limits<TimeNs>::max(), last = std::numeric_limits<TimeNs>::min();
      for (std::size_t i = 0; i < all.size(); ++i) {
        bool inside = false;
        for (const Instance* o = owners[i]; o != nullptr; o = o->parent) inside = inside || o == &instance;
        if (!inside) continue;
        first = std::min(first, all[i].begin);
        last = std::max(last, all[i].end);
        if (!all[i].is_kernel) continue;
        own.push_back(all[i]);
        ++kernels;
        sum += all[i].end - all[i].begin;
        matmul += all[i].time_class == TimeClass::kMatmul ? all[i].end - all[i].begin : 0;
      }
      const InstanceOnDevice& share = instance.shares[0];
      EXPECT_EQ(share.open_portion.busy_ns, busy_by_nanosecond(own, kOrigin + 3000));
      EXPECT_EQ(share.open_portion.kernel_sum_ns, sum);
      EXPECT_EQ(share.open_portion.matmul_sum_ns, matmul);
      EXPECT_EQ(share.kernels, kernels);
      EXPECT_EQ(share.first_activity_ns, first);
      EXPECT_EQ(share.last_activity_end_ns, last);
    }
  }
}

}  // namespace
}  // namespace mfu
