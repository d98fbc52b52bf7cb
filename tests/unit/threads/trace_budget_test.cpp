#include "injection/threads/trace_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace mfu {
namespace {

constexpr TimeNs kOrigin = 1'000'000'000'000;
constexpr DurationNs kWindow = 10 * kNsPerSecond;

/// A program of steps that tracing makes longer by `cost`, seen by ticks of at most a second.
struct Program {
  double step_s = 0.02, cost = 0, noise = 0, drift = 0, pauses = 0;
  std::uint64_t seed = 1;
  DurationNs runs_ahead = 0;         ///< work of the GPU behind the host
  std::uint64_t launches = 100'000;  ///< of a step
  double idle = 0.5;                 ///< share of the time in which the GPU waits

  struct Outcome {
    std::uint64_t every = 0;
    TraceBudget::Cost cost;
    bool known = false;
    double slowdown = 0;  ///< from 20 s on, without what tracing does not cause
    double traced = 0;    ///< share of windows from 20 s on
    std::size_t notices = 0;
  };
  [[nodiscard]] Outcome run(double seconds_in_all, double budget = 0.01) const {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::bernoulli_distribution pause(pauses);
    TraceBudget trace(budget, kOrigin, kWindow);
    TraceBudget::Progress progress;
    Outcome out;
    bool on = true;
    TimeNs now = kOrigin, next_look = now, traced_from = kOrigin;
    double with = 0, without = 0;
    std::int64_t window = 0;
    std::uint64_t windows = 0, whole = 0;
    while (now - kOrigin < static_cast<DurationNs>(seconds_in_all * 1e9)) {
      const double at = static_cast<double>(now - kOrigin) * 1e-9;
      const double plain = step_s * std::max(0.2, 1 + noise * normal(random)) * (1 + drift * at / seconds_in_all) +
                           (pause(random) ? 1 : 0);
      const double took = plain + (on ? step_s * cost : 0);
      if (at > 20) {
        with += took;
        without += plain;
      }
      now += static_cast<DurationNs>(took * 1e9);
      progress = {progress.units + 1, now, progress.launches + launches, false,
                  progress.idle_ns + static_cast<DurationNs>(took * idle * 1e9)};
      if (const std::int64_t w = (now - kOrigin) / kWindow; w != window) {
        if (at > 20) {
          ++windows;
          whole += on && traced_from != TraceBudget::kNotTraced && traced_from <= kOrigin + window * kWindow ? 1 : 0;
        }
        window = w;
      }
      if (now < next_look) continue;
      const bool was = std::exchange(on, trace.look(now, progress, traced_from));
      if (on != was) traced_from = on ? now + runs_ahead : TraceBudget::kNotTraced;
      out.notices += trace.take_news() ? 1 : 0;
      next_look = std::min(trace.due(now), now + kNsPerSecond);
    }
    out.every = trace.every();
    out.known = trace.cost().has_value();
    if (out.known) out.cost = *trace.cost();
    out.slowdown = with / without - 1;
    out.traced = static_cast<double>(whole) / static_cast<double>(windows);
    return out;
  }
};

TEST(CostOf, IsTheMeanWithoutTheOutermost) {
  std::vector<double> pairs(16, 0.05);
  pairs[3] = 9;
  pairs[11] = -7;
  const TraceBudget::Cost cost = cost_of(pairs);
  EXPECT_NEAR(cost.mean, 0.05, 1e-12);
  EXPECT_NEAR(cost.error, 0, 1e-7);
}

TEST(CostOf, ErrorHoldsTheTruthInNineteenOfTwenty) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0.02, 0.03);
  for (const std::size_t pairs : {8, 16, 32}) {
    int held = 0;
    constexpr int kTries = 4000;
    for (int i = 0; i < kTries; ++i) {
      std::vector<double> values(pairs);
      for (double& value : values) value = normal(random);
      const TraceBudget::Cost cost = cost_of(values);
      held += std::abs(cost.mean - 0.02) <= cost.error ? 1 : 0;
    }
    EXPECT_NEAR(held / static_cast<double>(kTries), 0.95, 0.015) << pairs;
  }
}

TEST(TraceBudget, ACheapTracerIsLeftAlone) {
  for (const double noise : {0.0, 0.02, 0.1}) {
    int left_alone = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      const Program::Outcome out = Program{.cost = 0.002, .noise = noise, .seed = seed}.run(120);
      EXPECT_TRUE(out.known);
      EXPECT_EQ(out.notices, 1);
      left_alone += out.every == 1 ? 1 : 0;
    }
    EXPECT_GE(left_alone, 98) << noise;
  }
}

TEST(TraceBudget, ADearTracerStaysWithinItsBudget) {
  for (const double cost : {0.05, 0.3, 0.9})
    for (const double noise : {0.0, 0.02, 0.1})
      for (const double drift : {0.0, 0.1}) {
        int right = 0;
        constexpr int kSeeds = 20;
        for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
          const Program::Outcome out = Program{.cost = cost, .noise = noise, .drift = drift, .seed = seed}.run(590);
          right += out.every != 1 && out.slowdown < 0.01 &&
                   std::abs(out.cost.mean - cost) < 2 * out.cost.error + 0.02 * cost;
        }
        EXPECT_GE(right, kSeeds * 95 / 100) << cost << " " << noise << " " << drift;
      }
}

TEST(TraceBudget, TracedWindowsAreWhole) {
  for (const DurationNs ahead : {DurationNs{0}, kNsPerSecond / 2, 3 * kNsPerSecond}) {
    const Program::Outcome out = Program{.cost = 0.05, .runs_ahead = ahead}.run(590);
    EXPECT_GT(out.traced, 0.5 / static_cast<double>(out.every)) << ahead;
    EXPECT_LT(out.traced, 2.5 / static_cast<double>(out.every)) << ahead;
  }
}

TEST(TraceBudget, StepsThatAreLongOrPauseNowAndThen) {
  EXPECT_NE((Program{.step_s = 3, .cost = 0.4}).run(599).every, 1);
  int found = 0, left_alone = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    found += Program{.cost = 0.3, .noise = 0.02, .pauses = 0.002, .seed = seed}.run(300).every != 1;
    left_alone += Program{.cost = 0.001, .noise = 0.02, .pauses = 0.002, .seed = seed}.run(300).every == 1;
  }
  EXPECT_GE(found, 38);
  EXPECT_GE(left_alone, 38);
}

TEST(TraceBudget, AProgramThatCannotBeTracedWithinItIsNotTraced) {
  const Program::Outcome out = Program{.cost = 3}.run(590);
  EXPECT_EQ(out.every, 0);
  EXPECT_EQ(out.traced, 0);
  EXPECT_LT(out.slowdown, 0.01);
}

TEST(TraceBudget, LooksAgainAndFindsThatItHasBecomeCheap) {
  TraceBudget trace(0.01, kOrigin, kWindow);
  TraceBudget::Progress progress;
  TimeNs now = kOrigin;
  bool on = true;
  std::uint64_t every_before = 0;
  while (now - kOrigin < 1300 * kNsPerSecond) {
    const bool dear = now - kOrigin < 300 * kNsPerSecond;
    now += 20'000'000 + (on && dear ? 10'000'000 : 0);
    progress = {progress.units + 1, now, progress.launches + 100, false, progress.idle_ns + 10'000'000};
    on = trace.look(now, progress, on ? kOrigin : TraceBudget::kNotTraced);
    if (dear) every_before = trace.every();
  }
  EXPECT_GT(every_before, 40);
  EXPECT_EQ(trace.every(), 1);
}

TEST(TraceBudget, FewLaunchesCostLittle) {
  // 100 steps of 9 launches are 900 launches/s, at 10 us each.
  const Program few{.step_s = 0.01, .cost = 0, .noise = 0.02, .launches = 9};
  EXPECT_FALSE(few.run(120).known);
  EXPECT_EQ(few.run(120).traced, 1);
  EXPECT_TRUE(few.run(120, 0.005).known);
}

TEST(TraceBudget, AGpuThatDoesNotWaitLosesNothing) {
  EXPECT_FALSE((Program{.cost = 0, .noise = 0.02, .idle = 0.009}.run(120).known));
  EXPECT_TRUE((Program{.cost = 0, .noise = 0.02, .idle = 0.02}.run(120).known));
}

TEST(TraceBudget, GraphsMayCostAnything) {
  TraceBudget trace(0.01, kOrigin, kWindow);
  TraceBudget::Progress progress{.graphs = true};
  bool paused = false;
  for (TimeNs now = kOrigin; now < kOrigin + 20 * kNsPerSecond; now += 20'000'000) {
    progress.at = now;
    progress.idle_ns += 10'000'000;
    ++progress.units;
    paused = !trace.look(now, progress, kOrigin) || paused;
  }
  EXPECT_TRUE(paused);
}

TEST(TraceBudget, AnIdleProgramIsTraced) {
  TraceBudget trace(0.01, kOrigin, kWindow);
  for (TimeNs now = kOrigin; now < kOrigin + 100 * kNsPerSecond; now += kNsPerSecond)
    EXPECT_TRUE(trace.look(now, {}, kOrigin));
  EXPECT_FALSE(trace.cost());
}

}  // namespace
}  // namespace mfu
