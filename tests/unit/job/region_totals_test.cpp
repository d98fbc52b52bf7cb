// Sums over windows, devices and ranks against a brute-force account of every row.
#include "core/rows/region_totals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "core/rows/metrics.h"
#include "tools/job/time_grid.h"

namespace mfu {
namespace {

struct Row {
  RegionSummary summary;
  RowPeak peak;
};

/// A row as the ledger would give it: quotients from complete_metrics, times that add up.
Row random_row(std::mt19937_64& random) {
  const auto below = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Row row;
  RegionSummary& r = row.summary;
  r.region = "step";
  r.device = 0;
  r.window = {1'795'289'438'000'000'000, 1'795'289'448'000'000'000};
  r.instances = 1 + random() % 100;
  r.tokens = below(1 << 20);
  for (DurationNs& t : r.time_ns) r.elapsed_ns += t = below(2'000'000'000);
  r.busy_ns = r.elapsed_ns - r.time_ns[4];
  r.kernel_sum_ns = r.busy_ns + below(1'000'000);
  r.kernels = random() % 100000;
  r.launches = random() % 100000;
  row.peak = {200e12 + 800e12 * static_cast<double>(below(2)), 2e12 + 1e12 * static_cast<double>(below(2))};
  // No more than its matmul kernels can have done.
  r.flop = *row.peak.flop_per_s * seconds(r.time_ns[0]) * static_cast<double>(below(1000)) / 1000;
  r.hfu_flop = *r.flop * 1.25;
  r.bytes = static_cast<double>(below(1'000'000)) * 1e6;
  DurationHistogram latency;
  for (int i = 0; i < 20; ++i) latency.add(1'000'000 + below(100'000'000));
  r.latency = latency.summary();
  for (const char* name : {"gemm", "softmax", "copy"})
    r.top_kernels.push_back({name, KernelClass::kOther, static_cast<std::uint64_t>(below(1000)), below(1'000'000'000)});
  Peak peak;
  peak.flop_per_s = row.peak.flop_per_s;
  peak.bytes_per_s = row.peak.bytes_per_s;
  complete_metrics(r, Phase::kTrain, peak);
  return row;
}

class RegionTotalsTest : public testing::Test {
 protected:
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

TEST_F(RegionTotalsTest, JobIsWeightedByWhatEachRowWasDividedBy) {
  for (int round = 0; round < 50; ++round) {
    std::vector<Row> rows(2 + random_() % 40);
    for (Row& row : rows) row = random_row(random_);
    RegionTotals sum;
    for (const Row& row : rows) {
      RegionTotals rank;
      rank.add(row.summary, row.peak);
      sum.add(rank);
    }
    long double flop = 0, hfu_flop = 0, at_peak = 0, at_busy = 0, bytes = 0, bytes_at_peak = 0;
    DurationNs elapsed = 0;
    std::array<DurationNs, kTimeClasses> times{};
    std::uint64_t instances = 0;
    for (const Row& row : rows) {
      flop += *row.summary.flop;
      hfu_flop += *row.summary.hfu_flop;
      bytes += *row.summary.bytes;
      at_peak += static_cast<long double>(*row.peak.flop_per_s) * row.summary.elapsed_ns * 1e-9L;
      at_busy += static_cast<long double>(*row.peak.flop_per_s) * row.summary.busy_ns * 1e-9L;
      bytes_at_peak += static_cast<long double>(*row.peak.bytes_per_s) * row.summary.elapsed_ns * 1e-9L;
      elapsed += row.summary.elapsed_ns;
      instances += row.summary.instances;
      for (std::size_t c = 0; c < kTimeClasses; ++c) times[c] += row.summary.time_ns[c];
    }
    const SummedRegion totals = sum.summed();
    const RegionSummary& s = totals.sum;
    EXPECT_NEAR(*s.mfu, static_cast<double>(flop / at_peak), 1e-12);
    EXPECT_NEAR(*s.hfu, static_cast<double>(hfu_flop / at_peak), 1e-12);
    EXPECT_NEAR(*s.mfu_busy, static_cast<double>(flop / at_busy), 1e-12);
    EXPECT_NEAR(*s.mbu, static_cast<double>(bytes / bytes_at_peak), 1e-12);
    EXPECT_EQ(s.elapsed_ns, elapsed);
    EXPECT_EQ(s.instances, instances);
    EXPECT_EQ(s.time_ns, times);
    EXPECT_EQ(std::accumulate(s.time_ns.begin(), s.time_ns.end(), DurationNs{0}), s.elapsed_ns);
    if (s.lost) {
      EXPECT_NEAR(*s.mfu + std::accumulate(s.lost->begin(), s.lost->end(), 0.0), 1, 1e-12);
    } else {  // more FLOP than the matmul kernels had time for: a part would be negative
      EXPECT_GT(*s.mfu, static_cast<double>(times[0]) / static_cast<double>(elapsed));
    }
    EXPECT_NEAR(totals.weights.flop_at_peak, static_cast<double>(at_peak), 1e-9 * static_cast<double>(at_peak));
    EXPECT_EQ(totals.weights.left_out, 0);
  }
}

TEST_F(RegionTotalsTest, OneRowStaysAsItIs) {
  const Row row = random_row(random_);
  RegionTotals sum;
  sum.add(row.summary, row.peak);
  RegionTotals job;
  job.add(sum);
  const RegionSummary s = job.summed().sum;
  EXPECT_EQ(s.mfu, row.summary.mfu);
  EXPECT_EQ(s.lost, row.summary.lost);
  EXPECT_EQ(s.latency.p99_ns, row.summary.latency.p99_ns);
  EXPECT_EQ(s.device, row.summary.device);
}

TEST_F(RegionTotalsTest, ARowThatNobodyCouldCountIsLeftOutOfBothSides) {
  const Row known = random_row(random_);
  Row unknown = random_row(random_);
  unknown.summary.flop = unknown.summary.bytes = std::nullopt;
  Row no_peak = random_row(random_);
  no_peak.peak = {};
  RegionTotals sum;
  for (const Row& row : {known, unknown, no_peak}) sum.add(row.summary, row.peak);
  const SummedRegion totals = sum.summed();
  EXPECT_DOUBLE_EQ(*totals.sum.mfu, *known.summary.mfu);
  EXPECT_DOUBLE_EQ(*totals.sum.flop, *known.summary.flop);
  EXPECT_EQ(totals.weights.left_out, 2);
  EXPECT_EQ(totals.sum.elapsed_ns, known.summary.elapsed_ns + unknown.summary.elapsed_ns + no_peak.summary.elapsed_ns);
  EXPECT_NEAR(*totals.sum.mfu + std::accumulate(totals.sum.lost->begin(), totals.sum.lost->end(), 0.0), 1, 1e-12);
}

TEST_F(RegionTotalsTest, TimeInWhichNothingWasAtWorkCountsAgainstMfu) {
  const Row work = random_row(random_);
  Row idle = work;
  idle.summary.flop = idle.summary.hfu_flop = idle.summary.bytes = std::nullopt;
  idle.summary.instances = idle.summary.open = 0;
  RegionTotals sum;
  sum.add(work.summary, work.peak);
  sum.add(idle.summary, idle.peak);
  EXPECT_DOUBLE_EQ(*sum.summed().sum.mfu, *work.summary.mfu / 2);  // the same time again, without FLOP
  EXPECT_EQ(sum.summed().weights.left_out, 0);
}

TEST_F(RegionTotalsTest, NothingKnownStaysUnknown) {
  Row row = random_row(random_);
  row.summary.flop = row.summary.bytes = row.summary.mfu = std::nullopt;
  row.summary.lost = std::nullopt;
  RegionTotals sum;
  sum.add(row.summary, row.peak);
  sum.add(row.summary, row.peak);
  const RegionSummary s = sum.summed().sum;
  EXPECT_FALSE(s.flop || s.mfu || s.hfu || s.mbu || s.lost);
  const auto shares = sum.summed().weights.time_shares();
  EXPECT_NEAR(std::accumulate(shares->begin(), shares->end(), 0.0), 1, 1e-12);
}

TEST_F(RegionTotalsTest, RowsWithoutDeviceActivityDoNotBecomeIdleTime) {
  const Row seen = random_row(random_);
  Row blind = random_row(random_);
  blind.summary.classes_known = false;
  RegionTotals sum;
  sum.add(seen.summary, seen.peak);
  sum.add(blind.summary, blind.peak);
  EXPECT_EQ(sum.summed().sum.time_ns, seen.summary.time_ns);
  EXPECT_EQ(sum.summed().sum.elapsed_ns, seen.summary.elapsed_ns);
  EXPECT_TRUE(sum.summed().sum.classes_known);
}

/// As the ledger gives it: its times are not all known, and MFU only where the ends of its instances are.
void take_times(Row& row, std::uint64_t launches, bool ends_known) {
  row.summary.untimed = launches;
  row.summary.forget_kernel_times();
  if (!ends_known) row.summary.mfu = row.summary.mbu = std::nullopt;
}

TEST_F(RegionTotalsTest, ASumWithAnUntimedRowIsUntimed) {
  for (int round = 0; round < 200; ++round) {
    RegionTotals sum, beside;
    double flop = 0, at_peak = 0;
    std::uint64_t untimed = 0, instances = 0;
    DurationNs elapsed = 0;
    for (std::size_t n = 2 + random_() % 10; n > 0; --n) {
      Row row = random_row(random_);
      const bool ends_known = random_() % 2 == 0;
      if (random_() % 3 == 0) take_times(row, 1 + random_() % 9, ends_known);
      if (random_() % 3 == 0) row.summary.graph_sum_ns = row.summary.time_ns[1];
      if (random_() % 6 == 0) row.summary.elapsed_ns -= std::exchange(row.summary.time_ns[0], 0);  // lost records
      sum.add(row.summary, row.peak);
      beside.add_beside(row.summary, row.peak);
      untimed += row.summary.untimed;
      instances += row.summary.instances;
      elapsed += row.summary.elapsed_ns;
      if (row.summary.untimed != 0 && !row.summary.mfu) continue;
      flop += *row.summary.flop;
      at_peak += *row.peak.flop_per_s * seconds(row.summary.elapsed_ns);
    }
    for (const RegionSummary& s : {sum.summed().sum, beside.summed().sum}) {
      EXPECT_EQ(s.untimed, untimed);
      EXPECT_EQ(s.instances, instances);
      EXPECT_EQ(s.elapsed_ns, elapsed);
      EXPECT_EQ(s.mfu.has_value(), at_peak > 0);
      EXPECT_NEAR(s.mfu.value_or(0), at_peak > 0 ? flop / at_peak : 0, 1e-12);
      EXPECT_EQ(s.classes_known, untimed == 0);
      EXPECT_FALSE(untimed != 0 && (s.lost || s.mfu_busy || s.hfu || s.executed || !s.top_kernels.empty()));
      if (!s.lost) continue;
      for (const double part : *s.lost) EXPECT_GE(part, 0);
      EXPECT_NEAR(std::accumulate(s.lost->begin(), s.lost->end(), *s.mfu), 1, 1e-9);
    }
  }
}

TEST_F(RegionTotalsTest, LatenciesOfAllRanksTogether) {
  std::vector<DurationNs> all;
  RegionTotals sum;
  for (int rank = 0; rank < 9; ++rank) {
    DurationHistogram histogram;
    for (int i = 0; i < 200; ++i) {
      all.push_back(1'000'000 + static_cast<DurationNs>(random_() % 50'000'000));
      histogram.add(all.back());
    }
    Row row = random_row(random_);
    row.summary.latency = histogram.summary();
    RegionTotals one;
    one.add(row.summary, row.peak);
    sum.add(one);
  }
  std::sort(all.begin(), all.end());
  const LatencySummary l = sum.summed().sum.latency;
  EXPECT_EQ(l.count, all.size());
  EXPECT_EQ(l.max_ns, all.back());
  for (const auto& [value, share] : {std::pair(l.p50_ns, 0.5), std::pair(l.p90_ns, 0.9), std::pair(l.p99_ns, 0.99)}) {
    const DurationNs truth = all[static_cast<std::size_t>(std::ceil(share * static_cast<double>(all.size()))) - 1];
    EXPECT_GE(value, truth);
    EXPECT_LE(static_cast<double>(value), 1.1 * static_cast<double>(truth));  // eight buckets to an octave
  }
}

TEST_F(RegionTotalsTest, BatchesOfAllRowsTogether) {
  struct Truth {
    std::uint64_t instances = 0;
    std::int64_t tokens = 0;
    double flop = 0, flop_at_peak = 0;
    std::vector<DurationNs> all;
  };
  std::map<std::pair<BatchUnit, std::int64_t>, Truth> truth;
  std::uint64_t after_prefill = 0;
  std::vector<DurationNs> slow;
  RegionTotals job, run;
  for (int rank = 0; rank < 6; ++rank) {
    Row row = random_row(random_);
    row.summary.after_prefill = random_() % 100;
    after_prefill += *row.summary.after_prefill;
    for (const BatchUnit unit : {BatchUnit::kSequences, BatchUnit::kTokens}) {
      for (std::int64_t max = 1; max <= 64; max *= 2) {
        if (random_() % 3 == 0) continue;
        DurationHistogram histogram;
        Truth& t = truth[{unit, max}];
        BatchLatency b;
        b.unit = unit;
        b.batch_max = max;
        b.batch_min = max / 2 + 1;
        b.instances = 40;
        b.tokens = static_cast<std::int64_t>(random_() % 5000);
        for (int i = 0; i < 40; ++i) {
          t.all.push_back(1'000'000 + static_cast<DurationNs>(random_() % 50'000'000));
          histogram.add(t.all.back());
          b.elapsed_ns += t.all.back();
        }
        b.latency = histogram.summary();
        if (random_() % 4 != 0) {  // of some the FLOP are not known: neither above nor below the line
          b.flop = 1e12;
          t.flop += 1e12;
          t.flop_at_peak += *row.peak.flop_per_s * seconds(b.elapsed_ns);
        }
        t.instances += 40;
        t.tokens += b.tokens;
        row.summary.by_batch.push_back(b);
      }
    }
    for (int i = 0; i < 2; ++i) {
      SlowInstance s;
      s.elapsed_ns = 1'000'000'000 + static_cast<DurationNs>(random_() % 1'000'000'000);
      slow.push_back(s.elapsed_ns);
      row.summary.slowest.push_back(s);
    }
    RegionTotals one;
    one.add(row.summary, row.peak);
    job.add(one);
    run.add(row.summary, row.peak);
  }
  std::sort(slow.rbegin(), slow.rend());
  for (const RegionTotals* sum : {&job, &run}) {
    const RegionSummary s = sum->summed().sum;
    EXPECT_EQ(s.after_prefill, after_prefill);
    ASSERT_EQ(s.by_batch.size(), truth.size());
    auto want = truth.begin();
    for (const BatchLatency& b : s.by_batch) {
      auto& [range, t] = *want++;
      EXPECT_EQ(std::pair(b.unit, b.batch_max), range);
      EXPECT_EQ(b.batch_min, range.second / 2 + 1);
      EXPECT_EQ(b.instances, t.instances);
      EXPECT_EQ(b.tokens, t.tokens);
      EXPECT_EQ(b.mfu.has_value(), t.flop > 0);
      if (b.mfu) {
        EXPECT_NEAR(*b.mfu, t.flop / t.flop_at_peak, 1e-12);
      }
      std::sort(t.all.begin(), t.all.end());
      EXPECT_EQ(b.latency.count, t.all.size());
      EXPECT_EQ(b.latency.max_ns, t.all.back());
      const DurationNs p90 = t.all[static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(t.all.size()))) - 1];
      EXPECT_GE(b.latency.p90_ns, p90);
      EXPECT_LE(static_cast<double>(b.latency.p90_ns), 1.1 * static_cast<double>(p90));
    }
    ASSERT_EQ(s.slowest.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(s.slowest[i].elapsed_ns, slow[i]);
  }
}

TEST_F(RegionTotalsTest, TopKernelsAreAddedUpByName) {
  const Row a = random_row(random_);
  const Row b = random_row(random_);
  RegionTotals sum;
  sum.add(a.summary, a.peak);
  sum.add(b.summary, b.peak);
  for (const TopKernel& kernel : sum.summed().sum.top_kernels) {
    DurationNs expected = 0;
    for (const Row& row : {a, b})
      for (const TopKernel& k : row.summary.top_kernels)
        if (k.name == kernel.name) expected += k.sum_ns;
    EXPECT_EQ(kernel.sum_ns, expected);
  }
  EXPECT_EQ(sum.summed().sum.top_kernels.size(), 3u);
}

// --- over time ------------------------------------------------------------------------------------------------------

TEST_F(RegionTotalsTest, ALongRunKeepsItsTruthInFewerBins) {
  TimeGrid job;
  Weights all;
  constexpr DurationNs kWindow = 10 * kNsPerSecond;
  const TimeNs origin = 1'795'289'438'512'480'419;
  for (int rank = 0; rank < 3; ++rank) {
    TimeGrid grid = TimeGrid::like(job);
    const TimeNs begin = origin + rank * 3'333'333'333;  // ranks do not start together
    for (int w = 0; w < 5000; ++w) {
      const Row row = random_row(random_);
      const Weights weights = Weights::of(row.summary, row.peak);
      all.add(weights);
      grid.add("step", {begin + w * kWindow, begin + (w + 1) * kWindow}, weights, true);
    }
    job.add_rank(std::move(grid));
  }
  ASSERT_EQ(job.regions().size(), 1u);
  const TimeGrid::Bins& bins = job.regions().at("step");
  EXPECT_LE(bins.size(), static_cast<std::size_t>(TimeGrid::kMaxBins));
  EXPECT_GE(bins.size(), static_cast<std::size_t>(TimeGrid::kMaxBins / 2));
  Weights binned;
  for (const auto& [index, bin] : bins) {
    binned.add(bin.weights);
    EXPECT_LE(*bin.lowest, *bin.weights.mfu());
    EXPECT_GE(*bin.highest, *bin.weights.mfu());
  }
  EXPECT_NEAR(*binned.mfu(), *all.mfu(), 1e-9);
  EXPECT_NEAR(binned.flop, all.flop, 1e-9 * all.flop);
  for (std::size_t c = 0; c < kTimeClasses; ++c) EXPECT_NEAR(binned.time_ns[c], all.time_ns[c], 1e-9 * all.time_ns[c]);
}

TEST_F(RegionTotalsTest, AShortRunKeepsEveryWindow) {
  TimeGrid grid;
  std::vector<double> expected;
  for (int w = 0; w < 300; ++w) {
    const Row row = random_row(random_);
    expected.push_back(*row.summary.mfu);
    grid.add("step", {w * kNsPerSecond, (w + 1) * kNsPerSecond}, Weights::of(row.summary, row.peak), true);
  }
  const TimeGrid::Bins& bins = grid.regions().at("step");
  ASSERT_EQ(bins.size(), expected.size());
  for (std::size_t w = 0; w < expected.size(); ++w)
    EXPECT_DOUBLE_EQ(*bins.at(static_cast<std::int64_t>(w)).weights.mfu(), expected[w]);
  EXPECT_EQ(grid.width_ns(), kNsPerSecond);
}

TEST_F(RegionTotalsTest, NoTimeIsTooStrange) {
  TimeGrid grid;
  const Row row = random_row(random_);
  const Weights weights = Weights::of(row.summary, row.peak);
  for (const Interval& window : {Interval{0, 1}, Interval{INT64_MIN, INT64_MIN + 5}, Interval{INT64_MAX - 5, INT64_MAX},
                                 Interval{INT64_MIN, INT64_MAX}, Interval{5, 5}, Interval{7, 3},
                                 Interval{1'795'289'438'512'480'419, 1'795'289'448'512'480'419}})
    grid.add("step", window, weights, true);
  EXPECT_LE(grid.regions().at("step").size(), static_cast<std::size_t>(TimeGrid::kMaxBins));
}

}  // namespace
}  // namespace mfu
