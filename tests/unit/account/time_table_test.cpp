// The table "Time" of core/account/README.md, a test per row. ledger_test.cpp holds the same rules against a
// brute-force account; these say which rule broke.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/account/ledger.h"
#include "core/config/config.h"
#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

const char* const kGemm = "ampere_bf16_s16816gemm_bf16_128x128";
const char* const kOther = "vectorized_elementwise_kernel";
const char* const kComm = "ncclDevKernel_AllReduce_Sum_f32";

class TimeTable : public testing::Test {
 protected:
  TimeTable() {
    auto config = load_config_file(R"({"model": {"params": 1000000}, "peak": {"tflops": 1, "gbps": 1}})",
                                   [](const char*) -> const char* { return nullptr; });
    EXPECT_TRUE(config);
    config_ = *config;
    std::vector<std::string> warnings;
    rules_ = std::make_unique<RegionRules>(config_.regions, std::vector<std::string>{}, warnings);
    LedgerOptions options;
    options.origin_ns = kOrigin;
    options.window_ns = kWindow;
    ledger_ = std::make_unique<Ledger>(*rules_, config_.flops_model(), config_.workload, names_, counters_, options,
                                       [this](WindowSummary&& w) { windows_.push_back(std::move(w)); });
    Peak peak;
    peak.flop_per_s = 1e12;
    ledger_->set_peak(0, peak);
  }

  /// Opens an instance of `step` on a thread; 8 tokens. Returns its id.
  InstanceId open(TimeNs at, std::uint32_t thread = 1, InstanceId parent = InstanceId::kNone) {
    InstanceSlot slot;
    fill(slot, static_cast<InstanceId>(++ids_), thread, parent);
    ledger_->open(slot, at);
    return slot.id;
  }
  void close(InstanceId id, TimeNs at, std::uint32_t thread = 1, InstanceId parent = InstanceId::kNone) {
    InstanceSlot slot;
    fill(slot, id, thread, parent);
    ledger_->close(slot, at, 0);
  }
  void kernel(InstanceId owner, TimeNs begin, TimeNs end, const char* name = kGemm) {
    ActivityRecord record;
    record.begin_ns = begin;
    record.end_ns = end;
    record.kind = ActivityKind::kKernel;
    record.name = names_.intern(name);
    ledger_->add(record, owner, true);
  }
  void copy(InstanceId owner, TimeNs begin, TimeNs end) {
    ActivityRecord record;
    record.begin_ns = begin;
    record.end_ns = end;
    record.kind = ActivityKind::kMemcpy;
    record.name = KernelNameId::kOther;
    ledger_->add(record, owner, true);
  }
  /// `step` over the whole run.
  RegionSummary finished(TimeNs end) {
    ledger_->finish(end);
    for (const RegionSummary& r : windows_.back().regions)
      if (r.region == "step") return r;
    return {};
  }
  [[nodiscard]] const RegionSummary* in_window(std::size_t window) const {
    for (const WindowSummary& w : windows_)
      if (!w.final_run && w.window.begin_ns == kOrigin + static_cast<TimeNs>(window) * kWindow)
        for (const RegionSummary& r : w.regions)
          if (r.region == "step") return &r;
    return nullptr;
  }

  std::vector<WindowSummary> windows_;
  Counters counters_;

 private:
  void fill(InstanceSlot& slot, InstanceId id, std::uint32_t thread, InstanceId parent) const {
    slot.id = id;
    slot.parent = parent;
    slot.opener = static_cast<ThreadSerial>(thread);
    const RegionOpening opening = rules_->open(rules_->match("", "step tokens=8"), "step tokens=8", nullptr);
    slot.region = opening.region;
    slot.rule = opening.rule;
    slot.shape = opening.shape;
  }

  Config config_;
  std::unique_ptr<RegionRules> rules_;
  KernelNames names_{counters_};
  std::unique_ptr<Ledger> ledger_;
  std::uint32_t ids_ = 0;
};

TEST_F(TimeTable, BeginsWhenItsRangeOpens) {
  const InstanceId step = open(1100);
  kernel(step, 1150, 1200);
  close(step, 1300);
  EXPECT_EQ(finished(1400).elapsed_ns, 200);
}

TEST_F(TimeTable, BeginsNoEarlierThanThePreviousInstanceOfItsThreadEnds) {
  const InstanceId first = open(1100);
  kernel(first, 1150, 1350);  // runs beyond the range's end, into the next
  close(first, 1200);
  const InstanceId second = open(1200);
  kernel(second, 1350, 1400);
  close(second, 1300);
  EXPECT_EQ(finished(1500).elapsed_ns, 250 + 50);  // 1100-1350 and 1350-1400: nothing twice
}

TEST_F(TimeTable, EndsWithItsLastActivity) {
  const InstanceId step = open(1100);
  kernel(step, 1500, 1700);
  close(step, 1200);  // the CPU ran ahead
  EXPECT_EQ(finished(1900).elapsed_ns, 600);
}

TEST_F(TimeTable, EndsWhenItsRangeClosesIfNothingRunsLonger) {
  const InstanceId step = open(1100);
  kernel(step, 1110, 1120);
  close(step, 1800);
  const RegionSummary r = finished(1900);
  EXPECT_EQ(r.elapsed_ns, 700);
  EXPECT_EQ(r.time_ns[static_cast<std::size_t>(TimeClass::kIdle)], 690);
}

TEST_F(TimeTable, BusyIsTheUnionAndKernelSumTheSum) {
  const InstanceId step = open(1100);
  kernel(step, 1200, 1400);
  kernel(step, 1300, 1500);
  close(step, 1600);
  const RegionSummary r = finished(1700);
  EXPECT_EQ(r.busy_ns, 300);
  EXPECT_EQ(r.kernel_sum_ns, 400);
}

TEST_F(TimeTable, AMomentBelongsToTheFirstClassThatRuns) {
  const InstanceId step = open(1100);
  kernel(step, 1100, 1200, kGemm);
  kernel(step, 1150, 1300, kOther);  // 1200-1300 alone
  kernel(step, 1250, 1400, kComm);   // 1300-1400 alone
  copy(step, 1350, 1500);            // 1400-1500 alone
  close(step, 1600);                 // 1500-1600 nothing
  const RegionSummary r = finished(1700);
  EXPECT_EQ(r.time_ns, (ClassTimes{100, 100, 100, 100, 100}));
}

TEST_F(TimeTable, TheClassesSumToTheElapsedTime) {
  const InstanceId step = open(1100);
  kernel(step, 1123, 1457, kOther);
  kernel(step, 1301, 1999, kGemm);
  close(step, 2503);
  const RegionSummary r = finished(2600);
  DurationNs sum = 0;
  for (const DurationNs t : r.time_ns) sum += t;
  EXPECT_EQ(sum, r.elapsed_ns);
  EXPECT_EQ(r.elapsed_ns, 2503 - 1100);
}

TEST_F(TimeTable, OverlappedIsWhereAnotherThreadIsAtWork) {
  const InstanceId one = open(1100, 1);
  kernel(one, 1150, 1300);
  const InstanceId two = open(1200, 2);
  kernel(two, 1250, 1400);
  close(one, 1350, 1);
  close(two, 1450, 2);
  const RegionSummary r = finished(1500);
  EXPECT_TRUE(r.overlapped);
  EXPECT_EQ(r.elapsed_ns, 250 + 250);  // each its own
}

TEST_F(TimeTable, ThreadsThatTakeTurnsDoNotOverlap) {
  const InstanceId one = open(1100, 1);
  kernel(one, 1150, 1200);
  close(one, 1250, 1);
  const InstanceId two = open(1300, 2);
  kernel(two, 1350, 1400);
  close(two, 1450, 2);
  EXPECT_FALSE(finished(1500).overlapped);
}

TEST_F(TimeTable, AnInstanceAcrossAnEdgeIsSplitThereAndItsFlopByTime) {
  const InstanceId step = open(1600);
  kernel(step, 1700, 2300);
  close(step, 2400);  // 400 ns in the first window, 400 in the second
  const RegionSummary whole = finished(4000);
  ASSERT_NE(in_window(0), nullptr);
  ASSERT_NE(in_window(1), nullptr);
  EXPECT_EQ(in_window(0)->elapsed_ns, 400);
  EXPECT_EQ(in_window(1)->elapsed_ns, 400);
  EXPECT_EQ(in_window(0)->instances, 0u);  // it ended in the second
  EXPECT_EQ(in_window(1)->instances, 1u);
  ASSERT_TRUE(whole.flop && in_window(0)->flop && in_window(1)->flop);
  EXPECT_DOUBLE_EQ(*in_window(0)->flop, *whole.flop / 2);
  EXPECT_DOUBLE_EQ(*in_window(1)->flop, *whole.flop / 2);
}

TEST_F(TimeTable, WhatIsStillOpenAtExitIsNotInTheRun) {
  const InstanceId done = open(1100);
  kernel(done, 1150, 1200);
  close(done, 1300);
  const InstanceId unfinished = open(1400);
  kernel(unfinished, 1450, 1500);
  const RegionSummary r = finished(1900);
  EXPECT_EQ(r.instances, 1u);
  EXPECT_EQ(r.elapsed_ns, 200);
  EXPECT_EQ(counters_.get(Counter::kInstancesUnclosed), 1u);
}

}  // namespace
}  // namespace mfu
