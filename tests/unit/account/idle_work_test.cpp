// Idle time by what the host did: every nanosecond of a gap that a look says something about goes to that cause.
#include "core/account/idle_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/account/ledger.h"
#include "core/config/config.h"
#include "core/rows/idle_causes.h"
#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

constexpr DurationNs kUs = 1000;

/// Steps on one device, one behind another; in each a kernel, then a gap, a kernel, a gap.
struct MadeRun {
  struct Step {
    Interval range;
    std::vector<Interval> kernels;
  };
  std::vector<Step> steps;
  std::vector<WorkSpan> spans;  ///< in order of time, over gaps and kernels
  TimeNs end = kOrigin;
};

MadeRun make(std::mt19937& random, const std::vector<HostWork>& works) {
  MadeRun run;
  const auto up_to = [&](DurationNs most) { return static_cast<DurationNs>(random() % static_cast<unsigned>(most)); };
  for (int i = 0; i < 60; ++i) {
    MadeRun::Step step;
    step.range.begin_ns = run.end;
    for (int k = 0; k < 2; ++k) {
      run.end += random() % 2 == 0 ? up_to(9000) * kUs : up_to(50) * kUs;
      step.kernels.push_back({run.end, run.end + (1 + up_to(3000)) * kUs});
      run.end = step.kernels.back().end_ns;
    }
    run.end += up_to(7000) * kUs;
    step.range.end_ns = run.end;
    run.steps.push_back(step);
  }
  for (TimeNs at = kOrigin; at < run.end;) {
    const TimeNs from = at + up_to(4000) * kUs, to = from + (1 + up_to(5000)) * kUs;
    run.spans.push_back({{from, to}, &works[random() % works.size()], random() % 4 == 0});
    at = random() % 3 == 0 ? to : to + up_to(3000) * kUs;
  }
  return run;
}

DurationNs overlap(Interval a, Interval b) {
  return std::max<DurationNs>(0, std::min(a.end_ns, b.end_ns) - std::max(a.begin_ns, b.begin_ns));
}

constexpr DurationNs kWindowLength = 37'000 * kUs;

/// Adds the time of a piece of a gap: each nanosecond is of the span that it lies in, else of the next one in the
/// piece, else of the last one in it. One that was seen at its begin alone is of the gap that this lies in.
void add_piece(Interval piece, TimeNs gap_from, const std::vector<WorkSpan>& spans,
               std::map<std::string, DurationNs>& to) {
  std::vector<WorkSpan> inside;
  for (const WorkSpan& span : spans)
    if (overlap(piece, span.when) > 0 && (!span.at_begin || span.when.begin_ns >= gap_from)) inside.push_back(span);
  for (TimeNs at = piece.begin_ns; at < piece.end_ns && !inside.empty(); at += kUs) {  // all times are whole us
    auto of = std::find_if(inside.begin(), inside.end(), [at](const WorkSpan& s) { return at < s.when.end_ns; });
    if (of == inside.end()) --of;
    to[of->work->cause] += kUs;
  }
}

/// Time of each cause inside of steps while no kernel runs, of the pieces of gaps that a look knows.
std::map<std::string, DurationNs> truth_of(const MadeRun& run) {
  std::map<std::string, DurationNs> truth;
  TimeNs gap_from = kOrigin;
  for (const MadeRun::Step& step : run.steps) {
    TimeNs from = step.range.begin_ns;
    std::vector<Interval> gaps;
    for (const Interval& k : step.kernels) {
      gaps.push_back({from, k.begin_ns});
      from = k.end_ns;
    }
    gaps.push_back({from, step.range.end_ns});
    for (Interval gap : gaps) {
      if (gap.begin_ns != step.range.begin_ns) gap_from = gap.begin_ns;  // else the last one of the step before goes on
      while (gap.begin_ns < gap.end_ns) {                                // windows cut it
        const TimeNs edge = kOrigin + ((gap.begin_ns - kOrigin) / kWindowLength + 1) * kWindowLength;
        const Interval piece{gap.begin_ns, std::min(edge, gap.end_ns)};
        add_piece(piece, gap_from, run.spans, truth);
        gap.begin_ns = piece.end_ns;
      }
    }
  }
  std::erase_if(truth, [](const auto& cause) { return cause.second == 0; });
  return truth;
}

std::vector<WindowSummary> account(const MadeRun& run, std::mt19937& random, DurationNs window = kWindowLength) {
  const auto config =
      load_config_file(R"({"model": {"params": 1000000}})", [](const char*) -> const char* { return nullptr; });
  EXPECT_TRUE(config);
  std::vector<std::string> warnings;
  const RegionRules rules(config->regions, std::vector<std::string>{}, warnings);
  Counters counters;
  KernelNames names(counters);
  LedgerOptions options;
  options.origin_ns = kOrigin;
  options.window_ns = window;
  std::vector<WindowSummary> windows;
  Ledger ledger(rules, config->flops_model(), config->workload, names, counters, options,
                [&](WindowSummary&& w) { windows.push_back(std::move(w)); });
  ledger.expect_device(0);
  auto span = run.spans.begin();
  std::uint32_t id = 0;
  for (const MadeRun::Step& step : run.steps) {
    // What the host did is known before time goes on past it.
    for (; span != run.spans.end() && span->when.begin_ns < step.range.end_ns + 100'000 * kUs; ++span)
      ledger.add_host_work(*span);
    const RegionOpening opening = rules.open(rules.match("", "step tokens=8"), "step tokens=8", nullptr);
    InstanceSlot slot;
    slot.id = static_cast<InstanceId>(++id);
    slot.opener = static_cast<ThreadSerial>(1);
    slot.region = opening.region;
    slot.rule = opening.rule;
    slot.shape = opening.shape;
    ledger.open(slot, step.range.begin_ns);
    for (const Interval& kernel : step.kernels) {
      ActivityRecord record;
      record.begin_ns = kernel.begin_ns;
      record.end_ns = kernel.end_ns;
      record.kind = ActivityKind::kKernel;
      record.name = names.intern("vectorized_elementwise_kernel");
      ledger.add(record, slot.id, true);
    }
    ledger.close(slot, step.range.end_ns, 0);
    // Not beyond what was added: kernels of the next step would come late.
    const TimeNs to = step.range.begin_ns + static_cast<DurationNs>(random() % 5000) * kUs;
    if (random() % 2 == 0) ledger.advance(std::min(to, step.range.end_ns));
  }
  ledger.finish(run.end);
  return windows;
}

TEST(IdleWork, EveryCauseHasItsTimeInGaps) {
  std::mt19937 random(11);
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    std::vector<HostWork> works;
    for (int c = 1; c <= 5; ++c) works.push_back({"f" + std::to_string(c), "a.py:" + std::to_string(c), "main"});
    const MadeRun run = make(random, works);
    const std::vector<WindowSummary> windows = account(run, random);
    std::map<std::string, DurationNs> by_window, by_run;
    for (const WindowSummary& window : windows)
      for (const RegionSummary& r : window.regions) {
        DurationNs sum = 0;
        for (const IdleCause& cause : r.idle_by) {
          sum += cause.ns;
          EXPECT_GT(cause.ns, 0);
          if (r.region == "step" && cause.cause.starts_with("f"))
            (window.final_run ? by_run : by_window)[cause.cause] += cause.ns;
        }
        EXPECT_EQ(sum, r.time_ns[static_cast<std::size_t>(TimeClass::kIdle)]) << r.region;
        EXPECT_TRUE(std::is_sorted(r.idle_by.begin(), r.idle_by.end(), [](auto& a, auto& b) { return a.ns > b.ns; }));
      }
    EXPECT_EQ(by_run, truth_of(run));
    EXPECT_EQ(by_window, truth_of(run));
  }
}

/// Steps with a gap of 30 ms each, two thirds of it one thing and a third another.
MadeRun steps_of_30_ms(const std::vector<HostWork>& works, const std::vector<bool>& rests) {
  MadeRun run;
  for (const bool rest : rests) {
    MadeRun::Step step;
    step.range = {run.end, run.end + 32'000 * kUs};
    step.kernels = {{run.end, run.end + 1000 * kUs}, {run.end + 31'000 * kUs, run.end + 31'500 * kUs}};
    const TimeNs idle = run.end + 1000 * kUs;
    if (rest) {
      run.spans.push_back({step.range, not_looked_at()});
    } else {
      run.spans.push_back({{idle, idle + 20'000 * kUs}, &works[0]});
      run.spans.push_back({{idle + 20'000 * kUs, idle + 30'000 * kUs}, &works[1]});
    }
    run.end = step.range.end_ns;
    run.steps.push_back(step);
  }
  return run;
}

TEST(IdleWork, TimeThatWasNotLookedAtIsSharedOutAsTheRest) {
  std::mt19937 random(5);
  const std::vector<HostWork> works{{"load", "a.py:1", "main"}, {"save", "a.py:2", "main"}};
  const std::vector<bool> rests{false, true, true, false, true, true, true, true, true, true};
  const std::vector<WindowSummary> windows = account(steps_of_30_ms(works, rests), random, 64'000 * kUs);
  std::map<std::string, DurationNs> found;
  for (const WindowSummary& window : windows)
    for (const RegionSummary& r : window.regions)
      if (window.final_run && r.region == "step")
        for (const IdleCause& cause : r.idle_by) found[cause.cause] += cause.ns;
  // Of 305 ms of idle time 300 are in long gaps; the last half millisecond of a step is as long after its last kernel.
  // A window has two whole steps: one that cuts a gap would have other shares.
  EXPECT_NEAR(static_cast<double>(found["load"]), 200e6, 1e6);
  EXPECT_NEAR(static_cast<double>(found["save"]), 100e6, 1e6);
  EXPECT_EQ(found.count("not looked at"), 0u);
}

TEST(IdleWork, WithNoLookInAWindowItsIdleTimeIsUnknown) {
  std::mt19937 random(5);
  const std::vector<HostWork> works(2);
  for (const WindowSummary& window : account(steps_of_30_ms(works, {true, true, true}), random))
    for (const RegionSummary& r : window.regions)
      for (const IdleCause& cause : r.idle_by) EXPECT_TRUE(cause.cause.empty() || cause.cause == kLaunching);
}

TEST(IdleWork, WithoutLooksNothingIsSaid) {
  std::mt19937 random(1);
  MadeRun run = make(random, std::vector<HostWork>(1));
  run.spans.clear();
  for (const WindowSummary& window : account(run, random))
    for (const RegionSummary& r : window.regions) EXPECT_TRUE(r.idle_by.empty());
}

}  // namespace
}  // namespace mfu
