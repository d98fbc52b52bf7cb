// Windows in which tracing pauses: what ranges say stays, nothing else is said, and the run is of the others.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "core/account/ledger.h"
#include "core/config/config.h"
#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

constexpr int kWindows = 8, kPerWindow = 10;
constexpr DurationNs kStep = kWindow / kPerWindow;

/// Steps one after the other; their kernels leave records but from the third window to the end of the fourth.
/// \param outlives work ends after its range.
std::vector<WindowSummary> windows_of(bool outlives) {
  auto config = load_config_file(R"({"model": {"params": 1000000}, "peak": {"tflops": 1, "gbps": 1}})",
                                 [](const char*) -> const char* { return nullptr; });
  std::vector<std::string> warnings;
  RegionRules rules(config->regions, std::vector<std::string>{}, warnings);
  Counters counters;
  KernelNames names(counters);
  std::vector<WindowSummary> windows;
  LedgerOptions options{kOrigin, kWindow, false};
  Ledger ledger(rules, config->flops_model(), config->workload, names, counters, options,
                [&](WindowSummary&& w) { windows.push_back(std::move(w)); });
  Peak peak;
  peak.flop_per_s = 1e18;
  peak.bytes_per_s = 1e15;
  ledger.set_peak(0, peak);
  const RegionOpening opening = rules.open(rules.match("", "step tokens=8"), "step tokens=8", nullptr);
  const TimeNs from = kOrigin + 2 * kWindow, until = kOrigin + 4 * kWindow;
  for (int i = 0; i < kWindows * kPerWindow; ++i) {
    const TimeNs open = kOrigin + i * kStep, close = open + kStep / 2;
    if (open == from) ledger.not_measured_from(open, true);
    if (open == until) ledger.measured_again(open);
    InstanceSlot slot;
    slot.id = static_cast<InstanceId>(i + 1);
    slot.opener = static_cast<ThreadSerial>(1);
    slot.region = opening.region;
    slot.rule = opening.rule;
    slot.shape = opening.shape;
    ledger.open(slot, open);
    if (open < from || open >= until) {
      ActivityRecord record{};
      record.kind = ActivityKind::kKernel;
      record.name = names.intern("gemm");
      record.begin_ns = open + 5;
      record.end_ns = outlives ? close + 5 : close - 5;
      ledger.add(record, slot.id, true);
    }
    ledger.close(slot, close, 0);
    ledger.advance(open);
  }
  ledger.finish(kOrigin + kWindows * kWindow);
  return windows;
}

const RegionSummary& row(const WindowSummary& window, const char* region) {
  for (const RegionSummary& r : window.regions)
    if (r.region == region) return r;
  ADD_FAILURE() << region;
  return window.regions.back();
}

std::string said(const RegionSummary& row, const char* kind) {
  for (const Finding& finding : row.findings)
    if (finding.kind == kind) return finding.text;
  return "";
}

TEST(Paused, WhatRangesSayStays) {
  const std::vector<WindowSummary> windows = windows_of(false);
  ASSERT_EQ(windows.size(), kWindows + 1);
  for (int w = 0; w < kWindows; ++w) {
    const bool traced = w < 2 || w >= 4;
    for (const char* region : {"step", "total"}) {
      const RegionSummary& r = row(windows[static_cast<std::size_t>(w)], region);
      EXPECT_EQ(said(r, "not_traced").empty(), traced) << w;
      EXPECT_EQ(r.classes_known, traced) << w;
      EXPECT_EQ(r.lost.has_value(), traced) << w;
      EXPECT_EQ(r.mfu_busy.has_value(), traced) << w;
      ASSERT_TRUE(r.mfu) << w;
      EXPECT_NEAR(*r.mfu / *row(windows[0], region).mfu, 1, 0.02) << w;
    }
    EXPECT_NEAR(static_cast<double>(row(windows[static_cast<std::size_t>(w)], "step").instances), kPerWindow, 1);
  }
}

TEST(Paused, TheRunIsOfWhatWasTraced) {
  const std::vector<WindowSummary> windows = windows_of(false);
  for (const char* region : {"step", "total"}) {
    const RegionSummary& run = row(windows.back(), region);
    EXPECT_EQ(said(run, "coverage"), "of 75.0 % of the run, which was traced (MFU_BUDGET)");
    EXPECT_NEAR(static_cast<double>(run.instances), 6 * kPerWindow, 2);
    ASSERT_TRUE(run.mfu && run.lost);
    EXPECT_NEAR(*run.mfu + std::accumulate(run.lost->begin(), run.lost->end(), 0.0), 1, 1e-9);
    EXPECT_NEAR(*run.mfu / *row(windows[0], region).mfu, 1, 0.02);
  }
}

TEST(Paused, NoMfuWhereWorkOutlivesItsRange) {
  const std::vector<WindowSummary> windows = windows_of(true);
  EXPECT_TRUE(row(windows[1], "step").mfu);
  EXPECT_FALSE(row(windows[3], "step").mfu);
  EXPECT_TRUE(row(windows[3], "total").mfu);  // of the window's time
}

}  // namespace
}  // namespace mfu
