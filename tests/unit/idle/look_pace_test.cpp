// When it looks, played over made programs: never while work runs, and no more often than it may.
#include "core/idle/look_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace mfu {
namespace {

constexpr DurationNs kMs = 1'000'000;

/// A program: launches at these moments, whose work is over `busy_ns` after each.
struct Program {
  std::vector<TimeNs> launches;
  DurationNs busy_ns = kMs;

  [[nodiscard]] std::uint64_t made(TimeNs now) const {
    return static_cast<std::uint64_t>(std::upper_bound(launches.begin(), launches.end(), now) - launches.begin());
  }
  [[nodiscard]] bool idle(TimeNs now) const {
    const std::uint64_t n = made(now);
    return n == 0 || now >= launches[n - 1] + busy_ns;
  }
};

struct Played {
  std::vector<TimeNs> looks;
  std::uint64_t asked = 0, calls = 0;
};

/// The time of which a step says what the host does, if nothing runs.
Interval known_by(const LookPace::Step& step, TimeNs now, TimeNs next) {
  return {now, step.sample ? now + LookPace::kSample : step.rests ? now : next};
}

Played play(const Program& program, TimeNs until, bool gaps = true) {
  Played played;
  LookPace pace;
  std::uint64_t over = ~std::uint64_t{0};
  TimeNs over_at = 0;
  for (TimeNs now = 1; now < until; ++played.calls) {
    const LookPace::Step step = pace.step({now, program.made(now), over, false, gaps, 0, over_at});
    EXPECT_GT(step.wait_ns, 0) << "at " << now;
    if (step.look) {
      EXPECT_TRUE(program.idle(now)) << "at " << now;
      played.looks.push_back(now);
    }
    DurationNs wait = step.wait_ns;
    if (step.ask) {
      ++played.asked;
      wait = std::min<DurationNs>(wait, kMs / 3);  // the answer wakes it
      if (program.idle(now + wait)) {
        over = program.made(now + wait);
        over_at = over == 0 ? 0 : program.launches[over - 1] + program.busy_ns;
      }
    }
    now += wait;
  }
  return played;
}

TEST(LookPace, IsCalledSeldomWhileLaunchesKeepComing) {
  Program program;
  for (TimeNs at = kMs; at < 4000 * kMs; at += kMs / 5) program.launches.push_back(at);
  EXPECT_LT(play(program, 4000 * kMs).calls, 500u);
  // Then each tenth millisecond begins a gap of five.
  for (TimeNs at = 4000 * kMs; at < 6000 * kMs; at += kMs / 5)
    if (at / kMs % 10 < 5) program.launches.push_back(at);
  program.busy_ns = kMs / 5;
  EXPECT_GT(play(program, 6000 * kMs).looks.size(), 100u);
}

TEST(LookPace, LooksInEveryLongGapAndNeverWhileWorkRuns) {
  std::mt19937 random(3);
  for (int run = 0; run < 50; ++run) {
    Program program;
    program.busy_ns = kMs * (1 + static_cast<DurationNs>(random() % 30));
    std::vector<std::pair<TimeNs, TimeNs>> gaps;
    TimeNs now = 50 * kMs;
    for (int step = 0; step < 40; ++step) {
      for (unsigned i = 0; i < 1 + random() % 50; ++i) program.launches.push_back(now += 20'000);
      const DurationNs gap = kMs * static_cast<DurationNs>(random() % 60);
      if (gap > 24 * kMs) gaps.emplace_back(now + program.busy_ns, now + program.busy_ns + gap);
      now += program.busy_ns + gap;
    }
    const Played played = play(program, now);
    std::size_t missed = 0;
    for (const auto& [begin, end] : gaps)
      missed += std::none_of(played.looks.begin(), played.looks.end(),
                             [&, b = begin, e = end](TimeNs at) { return at > b && at < e; });
    EXPECT_EQ(missed, 0u) << "run " << run;
  }
}

TEST(LookPace, LooksAtMostTwoHundredTimesASecondOnAverage) {
  Program program;
  for (TimeNs now = 0; now < 60 * kNsPerSecond; now += 40 * kMs) program.launches.push_back(now);
  const Played played = play(program, 60 * kNsPerSecond);
  EXPECT_LT(played.looks.size(), 60 * 200 + 300u);
  EXPECT_GT(played.looks.size(), 60 * 100u);
  for (std::size_t i = 1; i < played.looks.size(); ++i)
    EXPECT_GE(played.looks[i] - played.looks[i - 1], kMs) << "one a millisecond at most";
}

/// Gaps of 50 ms, always alike: the host does one thing for `first` of it, then another. Between two looks, half of the
/// time is either's.
TEST(LookPace, SharesOfAnUnchangingProgramComeOutRight) {
  for (const DurationNs first : {5 * kMs, 12 * kMs, 20 * kMs, 33 * kMs, 47 * kMs}) {
    constexpr DurationNs kGap = 50 * kMs, kStep = 60 * kMs;
    Program program;
    for (TimeNs now = kStep; now < 120 * kNsPerSecond; now += kStep) program.launches.push_back(now);
    program.busy_ns = kStep - kGap;
    const Played played = play(program, 120 * kNsPerSecond);
    double of_first = 0, known = 0;
    auto look = played.looks.begin();
    for (const TimeNs launch : program.launches) {
      const TimeNs begin = launch + program.busy_ns, end = launch + kStep;
      while (look != played.looks.end() && *look < begin) ++look;
      TimeNs from = begin;
      for (; look != played.looks.end() && *look < end; ++look) {
        const bool last = look + 1 == played.looks.end() || *(look + 1) >= end;
        const TimeNs to = last ? end : *look + (*(look + 1) - *look) / 2;
        known += static_cast<double>(to - from);
        if (*look < begin + first) of_first += static_cast<double>(to - from);
        from = to;
      }
    }
    // A gap always begins with a look, so that a change soon after it is seen late.
    const double allowed = first < 10 * kMs ? 0.035 : 0.02;
    EXPECT_NEAR(of_first / known, static_cast<double>(first) / kGap, allowed) << first / kMs << " ms";
    EXPECT_GT(known / static_cast<double>(program.launches.size()), 0.97 * kGap);
  }
}

/// Twelve gaps that are alike, each with a change: what looks miss of it evens out within these few.
TEST(LookPace, SharesOfAFewGapsComeOutRight) {
  constexpr DurationNs kGap = 360 * kMs, kStep = 370 * kMs;
  constexpr int kGaps = 12;
  Program program;
  for (int i = 1; i <= kGaps; ++i) program.launches.push_back(i * kStep);
  program.busy_ns = kStep - kGap;
  const Played played = play(program, (kGaps + 1) * kStep);
  double worst = 0;
  for (DurationNs first = 60 * kMs; first <= 300 * kMs; first += kMs) {
    double off = 0;
    for (const TimeNs launch : program.launches) {
      const TimeNs begin = launch + program.busy_ns, change = begin + first;
      const auto behind = std::upper_bound(played.looks.begin(), played.looks.end(), change);
      ASSERT_TRUE(behind != played.looks.begin() && behind != played.looks.end());
      off += static_cast<double>(*(behind - 1) + (*behind - *(behind - 1)) / 2 - change) / kGap / kGaps;
    }
    worst = std::max(worst, std::abs(off));
  }
  EXPECT_LT(worst, 0.01);
}

TEST(LookPace, AsksSeldomWhereNoGapIsKnown) {
  Program program;  // launches without a pause, far ahead of the device
  program.busy_ns = 3600 * kNsPerSecond;
  for (TimeNs now = 0; now < 10 * kNsPerSecond; now += 100'000) program.launches.push_back(now);
  const Played played = play(program, 10 * kNsPerSecond, false);
  EXPECT_EQ(played.looks.size(), 0u);
  EXPECT_EQ(played.asked, 0u);
  EXPECT_LT(played.calls, 600u);
}

TEST(LookPace, ALongWaitCostsLittle) {
  const Played played = play({{1}}, 3600 * kNsPerSecond);
  EXPECT_LT(played.looks.size(), 3600 * 6u);
  EXPECT_GT(played.looks.size(), 3600 * 4u);
}

TEST(LookPace, CostsAThousandthOfTheTime) {
  constexpr DurationNs kPerCall = 20'000, kPerAsk = 100'000, kFirst = 50'000'000, kUntil = 600 * kNsPerSecond;
  constexpr DurationNs kTurns = 20 * kMs;  // it pays behind a turn, not in it
  Program program;
  for (TimeNs at = kMs; at < kUntil; at += 7 * kMs) program.launches.push_back(at);
  LookPace pace;
  std::uint64_t over = 0, looks = 0;
  DurationNs cost = 0, rested = 0;
  for (TimeNs now = 1; now < kUntil;) {
    const LookPace::Step step = pace.step({now, program.made(now), over, false, true, cost});
    cost += kPerCall + (step.ask ? kPerAsk : 0);
    looks += step.look || step.sample;
    if (step.rests) {
      EXPECT_FALSE(step.ask || step.look);
      rested += step.wait_ns;
    }
    now += step.wait_ns;
    if (step.ask && program.idle(now)) over = program.made(now);
    EXPECT_LT(cost, kFirst + now / 1000 + kTurns) << "at " << now;
  }
  EXPECT_GT(cost, kUntil / 1000);  // and what it may cost is used
  EXPECT_GT(looks, 3000u);
  EXPECT_GT(rested, kUntil / 2);
}

/// Five gaps of 20 ms for each of 130 ms, where the GPU works 15 ms before each, and looks cost far more than they may.
TEST(LookPace, LongGapsAreSeenNoMoreOftenThanTheyAreThere) {
  constexpr DurationNs kUntil = 20'000 * kNsPerSecond;
  Program program;
  program.busy_ns = 15 * kMs;
  std::vector<Interval> gaps;
  for (TimeNs at = 40 * kMs; at < kUntil;) {
    program.launches.push_back(at);
    const DurationNs gap = gaps.size() % 6 == 5 ? 130 * kMs : 20 * kMs;
    gaps.push_back({at + program.busy_ns, at + program.busy_ns + gap});
    at = gaps.back().end_ns;
  }
  LookPace pace;
  std::uint64_t over = ~std::uint64_t{0};
  DurationNs cost = 0, seen_long = 0, seen_short = 0, rested = 0;
  std::size_t gap = 0;
  bool looked = false;
  for (TimeNs now = 1; now < kUntil;) {
    const LookPace::Step step = pace.step({now, program.made(now), over, false, true, cost});
    cost += 60'000 + (step.ask ? 500'000 : 0);
    looked = looked || step.look || step.sample;
    const TimeNs next = now + (step.ask ? std::min<DurationNs>(step.wait_ns, 2 * kMs) : step.wait_ns);
    if (step.ask && program.idle(next)) over = program.made(next);
    if (step.rests) rested += step.wait_ns;
    for (; gap < gaps.size() && gaps[gap].begin_ns < next; ++gap) {
      const DurationNs known = gaps[gap].overlap(known_by(step, now, next)).length_ns();
      if (known > 0) (gaps[gap].length_ns() > 100 * kMs ? seen_long : seen_short) += known;
      if (gaps[gap].end_ns > next) break;
    }
    now = next;
  }
  EXPECT_GT(rested, kUntil / 2);
  EXPECT_TRUE(looked);
  EXPECT_NEAR(static_cast<double>(seen_long) / static_cast<double>(seen_long + seen_short), 130.0 / 230.0, 0.02);
}

/// Ten causes take turns, and looks cost more than they may: what is seen in 10 s is near what there is.
TEST(LookPace, SharesOfTenSecondsAreNearTheTruthWhereItRests) {
  constexpr std::array<DurationNs, 10> kGaps{120, 80, 100, 100, 100, 30, 150, 100, 60, 50};  // [ms]
  constexpr DurationNs kUntil = 2000 * kNsPerSecond, kWindow = 10 * kNsPerSecond;
  Program program;
  program.busy_ns = 2 * kMs;
  for (TimeNs at = kMs; at < kUntil; at += program.busy_ns + kGaps[(program.launches.size() - 1) % 10] * kMs)
    program.launches.push_back(at);
  LookPace pace;
  std::uint64_t over = ~std::uint64_t{0};
  DurationNs cost = 0;
  TimeNs window = 100 * kNsPerSecond;  // by then the first allowance is spent
  std::array<double, 10> seen{};
  double squares = 0, windows = 0;
  for (TimeNs now = 1; now < kUntil - kWindow;) {
    const LookPace::Step step = pace.step({now, program.made(now), over, false, true, cost});
    cost += step.look || step.sample ? 50'000 : step.rests ? 5'000 : 10'000;
    cost += step.ask ? 150'000 : 0;
    const TimeNs next = now + (step.ask ? std::min<DurationNs>(step.wait_ns, kMs / 2) : step.wait_ns);
    if (step.ask && program.idle(next)) over = program.made(next);
    for (std::size_t g = std::max<std::uint64_t>(1, program.made(now)) - 1; now > window && program.launches[g] < next;
         ++g) {
      const Interval gap{program.launches[g] + program.busy_ns, program.launches[g + 1]};
      seen[g % 10] += static_cast<double>(gap.overlap(known_by(step, now, next)).length_ns());
    }
    now = next;
    if (now < window + kWindow) continue;
    window = now;
    double all = 0, truth = 0;
    for (std::size_t c = 0; c < 10; ++c) all += seen[c], truth += static_cast<double>(kGaps[c]);
    for (std::size_t c = 0; c < 10; ++c) {
      const double error = seen[c] / all - static_cast<double>(kGaps[c]) / truth;
      squares += error * error / 10;
    }
    ++windows;
    seen = {};
  }
  EXPECT_GT(windows, 150);
  EXPECT_LT(std::sqrt(squares / windows), 0.01);  // turns of 10 ms: 0.034; single looks: 0.007
}

TEST(LookPace, BeforeTheFirstLaunchThereIsNothingToLookAt) {
  const Played played = play({}, 3600 * kNsPerSecond);
  EXPECT_EQ(played.looks.size(), 0u);
  EXPECT_EQ(played.asked, 0u);
  EXPECT_LT(played.calls, 3600 * 6u);
}

TEST(LookPace, TheFirstGapOfAProgramIsSeenFromItsStart) {
  constexpr TimeNs kLoaded = 70 * kMs;
  const Played played = play({{kLoaded}}, kLoaded + 20 * kMs);
  ASSERT_FALSE(played.looks.empty());
  EXPECT_LT(played.looks.front(), kLoaded + 8 * kMs);
}

}  // namespace
}  // namespace mfu
