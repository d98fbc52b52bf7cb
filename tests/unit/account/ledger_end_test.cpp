// A run that ends before its account does: what time went past is exact, what it did not is left out, and said.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/account/ledger.h"
#include "core/config/config.h"
#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

constexpr DurationNs kPeriod = 3'000'000, kKernel = 1'000'000;
constexpr int kInstances = 1000;
constexpr TimeNs kEnd = kOrigin + kInstances * kPeriod;

/// Instance i is [i, i + 1) x 3 ms, and its one kernel the first of them, on each of `devices`.
std::vector<WindowSummary> run(std::uint32_t devices, int looks, DurationNs& left_out) {
  const auto config = load_config_file(R"({"model": {"params": 1000000}, "peak": {"tflops": 1, "gbps": 1}})",
                                       [](const char*) -> const char* { return nullptr; });
  EXPECT_TRUE(config);
  std::vector<std::string> warnings;
  const RegionRules rules(config->regions, std::vector<std::string>{}, warnings);
  Counters counters;
  KernelNames names(counters);
  LedgerOptions options;
  options.origin_ns = kOrigin;
  options.window_ns = kNsPerSecond;
  std::vector<WindowSummary> windows;
  Ledger ledger(rules, config->flops_model(), config->workload, names, counters, options,
                [&](WindowSummary&& w) { windows.push_back(std::move(w)); });
  ledger.stop_when([&] { return looks-- <= 0; });
  for (std::uint32_t d = 0; d < devices; ++d) ledger.expect_device(d);
  for (int i = 0; i < kInstances; ++i) {
    const TimeNs at = kOrigin + i * kPeriod;
    const RegionOpening opening = rules.open(rules.match("", "step tokens=8"), "step tokens=8", nullptr);
    InstanceSlot slot;
    slot.id = static_cast<InstanceId>(i + 1);
    slot.opener = static_cast<ThreadSerial>(1);
    slot.region = opening.region;
    slot.rule = opening.rule;
    slot.shape = opening.shape;
    ledger.open(slot, at);
    for (std::uint32_t d = 0; d < devices; ++d) {
      ActivityRecord record;
      record.begin_ns = at;
      record.end_ns = at + kKernel;
      record.device = static_cast<DeviceId>(d);
      record.kind = ActivityKind::kKernel;
      record.name = names.intern("vectorized_elementwise_kernel");
      ledger.add(record, slot.id, true);
    }
    ledger.close(slot, at + kPeriod, 0);
  }
  ledger.finish(kEnd);
  left_out = ledger.left_out_ns();
  return windows;
}

TEST(LedgerEnd, IsWhereTimeStands) {
  for (const std::uint32_t devices : {1u, 3u}) {
    for (const int looks : {0, 1, 7, 100, 250, 100'000}) {
      DurationNs left_out = -1;
      const std::vector<WindowSummary> windows = run(devices, looks, left_out);
      ASSERT_FALSE(windows.empty());
      const WindowSummary& whole = windows.back();
      ASSERT_TRUE(whole.final_run);
      const TimeNs stands = kEnd - left_out;
      EXPECT_EQ(whole.window.end_ns, stands);
      EXPECT_EQ(left_out == 0, looks == 100'000) << looks;
      EXPECT_GE(left_out, 0);
      if (looks == 0) {
        EXPECT_EQ(stands, kOrigin);
        continue;  // no time at all
      }
      // Kernels that began, and the time that they ran, up to where time stands.
      std::uint64_t begun = 0, over = 0;
      DurationNs busy = 0;
      for (int i = 0; i < kInstances; ++i) {
        const TimeNs at = kOrigin + i * kPeriod;
        begun += at < stands ? 1 : 0;
        over += at + kPeriod <= stands ? 1 : 0;
        busy += std::clamp<DurationNs>(stands - at, 0, kKernel);
      }
      std::uint64_t kernels = 0, instances = 0;
      DurationNs sum = 0, elapsed = 0;
      for (const RegionSummary& region : whole.regions) {
        if (region.region == "total") {
          EXPECT_EQ(region.elapsed_ns, static_cast<DurationNs>(devices) * (stands - kOrigin));
        }
        if (region.region != "step") continue;
        kernels += region.kernels;
        instances += region.instances;
        sum += region.busy_ns;
        elapsed += region.elapsed_ns;
      }
      EXPECT_EQ(kernels, devices * begun) << looks;
      EXPECT_EQ(instances, devices * over) << looks;
      EXPECT_EQ(sum, static_cast<DurationNs>(devices) * busy) << looks;
      EXPECT_EQ(elapsed, static_cast<DurationNs>(devices) * (stands - kOrigin)) << looks;
      // And the windows that were given out before add up to that.
      std::uint64_t of_windows = 0;
      for (const WindowSummary& window : windows)
        for (const RegionSummary& region : window.regions)
          of_windows += !window.final_run && region.region == "step" ? region.kernels : 0;
      EXPECT_EQ(of_windows, kernels) << looks;
    }
  }
}

}  // namespace
}  // namespace mfu
