// Metrics of made-up run directories: names, labels, how many.
#include "tools/serve/exposition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "core/base/number_text.h"
#include "tests/unit/job/fake_run.h"
#include "tests/unit/rows/impossible.h"

namespace mfu {
namespace {

using prometheus::MetricFamily;
using testing_run::Directory;
using testing_run::FakeRank;
using testing_run::kBegin;
using testing_run::kPeak;
using testing_run::region;

class ExpositionTest : public testing::Test {
 protected:
  /// `count` ranks with one window of 40 % MFU each.
  LiveJob job_of(int count) {
    for (int r = 0; r < count; ++r) {
      FakeRank rank(directory_, r, "node" + std::to_string(r / 8));
      rank.start(0);
      RegionSummary step = region("step", 0.4 * kPeak * 10, 1, 100, 2);
      step.tokens = 1000;
      step.lost = std::array<double, kTimeClasses>{0.5, 0, 0.1, 0, 0};
      DurationHistogram latency;
      for (int i = 0; i < 10; ++i) latency.add(1'000'000'000);
      step.latency = latency.summary();
      rank.window(0, {step, region("total", 0.4 * kPeak * 10)});
    }
    LiveJob job({directory_.path()}, RunFile::From::kBeginning);
    EXPECT_TRUE(job.refresh(kNsPerSecond, kBegin + 11 * kNsPerSecond));
    return job;
  }
  static std::size_t series(const std::vector<MetricFamily>& families) {
    std::size_t count = 0;
    for (const MetricFamily& family : families)
      for (const auto& metric : family.metric) count += std::max<std::size_t>(1, metric.histogram.bucket.size());
    return count;
  }
  static const MetricFamily* find(const std::vector<MetricFamily>& families, const std::string& name) {
    const auto at = std::find_if(families.begin(), families.end(), [&](const auto& f) { return f.name == name; });
    return at == families.end() ? nullptr : &*at;
  }
  static std::string label(const prometheus::ClientMetric& metric, const std::string& name) {
    for (const auto& l : metric.label)
      if (l.name == name) return l.value;
    return "";
  }

  Directory directory_;
};

TEST_F(ExpositionTest, ARowBecomesTheMetricsThatTheTableNames) {
  const LiveJob job = job_of(1);
  const auto families = exposition(job, "a");
  const MetricFamily* ratio = find(families, "mfu_ratio");
  ASSERT_NE(ratio, nullptr);
  EXPECT_EQ(ratio->type, prometheus::MetricType::Gauge);
  ASSERT_EQ(ratio->metric.size(), 2u);
  EXPECT_DOUBLE_EQ(ratio->metric[0].gauge.value, 0.4);
  EXPECT_EQ(label(ratio->metric[0], "region"), "step");
  EXPECT_EQ(label(ratio->metric[0], "job"), "a");
  const MetricFamily* flop = find(families, "mfu_model_flops_total");
  ASSERT_NE(flop, nullptr);
  EXPECT_EQ(flop->type, prometheus::MetricType::Counter);
  EXPECT_DOUBLE_EQ(flop->metric[0].counter.value, 4e15);
  EXPECT_DOUBLE_EQ(find(families, "mfu_possible_flops_total")->metric[0].counter.value, kPeak * 10);
  EXPECT_DOUBLE_EQ(find(families, "mfu_tokens_total")->metric[0].counter.value, 1000);
  EXPECT_EQ(find(families, "mfu_bytes_total"), nullptr);  // unknown is no metric
  EXPECT_EQ(find(families, "mfu_mbu_ratio"), nullptr);
  const MetricFamily* seconds_by_class = find(families, "mfu_region_seconds_total");
  double sum = 0;
  for (const auto& metric : seconds_by_class->metric)
    if (label(metric, "region") == "step") sum += metric.counter.value;
  EXPECT_DOUBLE_EQ(sum, 10);
}

TEST_F(ExpositionTest, NoSeriesStandsTwice) {
  const LiveJob job = job_of(20);
  for (const MetricFamily& family : exposition(job, "a")) {
    std::set<std::string> seen;
    for (const auto& metric : family.metric) {
      std::string key;
      for (const auto& l : metric.label) key += l.name + "=" + l.value + ",";
      EXPECT_TRUE(seen.insert(key).second) << family.name << " " << key;
    }
  }
}

TEST_F(ExpositionTest, WhatGoesOutPerRankCanBeChosen) {
  const LiveJob job = job_of(10);
  const std::size_t all = series(exposition(job, "a", PerRank::kAll));
  const std::size_t ratios = series(exposition(job, "a", PerRank::kMfu));
  const std::size_t none = series(exposition(job, "a", PerRank::kNone));
  EXPECT_EQ(series(exposition(job, "a")), all);  // few ranks
  EXPECT_LE(ratios, none + 10 * 5);              // up, and two ratios of two regions
  EXPECT_GT(all, ratios + 10 * 20);
  EXPECT_NE(find(exposition(job, "a", PerRank::kNone), "mfu_job_ratio"), nullptr);
  EXPECT_EQ(find(exposition(job, "a", PerRank::kNone), "mfu_ratio"), nullptr);
}

TEST_F(ExpositionTest, OfALargeJobOnlyRatiosGoOutUnlessAskedFor) {
  const LiveJob job = job_of(140);
  EXPECT_EQ(find(exposition(job, "a"), "mfu_step_seconds"), nullptr);
  EXPECT_EQ(find(exposition(job, "a"), "mfu_ratio")->metric.size(), 280u);
  EXPECT_NE(find(exposition(job, "a", PerRank::kAll), "mfu_step_seconds"), nullptr);
}

TEST_F(ExpositionTest, NoRatioIsMoreThanOneOrNegativeAndTheCauseIsALabel) {
  std::size_t suspect = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Directory directory;
    FakeRank rank(directory, 0);
    rank.start(0);
    std::vector<RegionSummary> rows{region("step", 0.4 * kPeak * 10), region("total", 0.4 * kPeak * 10)};
    for (RegionSummary& row : rows) testing_impossible::make_random(row, random);
    rank.window(0, rows);
    LiveJob job({directory.path()}, RunFile::From::kBeginning);
    ASSERT_TRUE(job.refresh(kNsPerSecond, kBegin + 11 * kNsPerSecond));
    for (const PerRank per_rank : {PerRank::kAll, PerRank::kMfu})
      for (const MetricFamily& family : exposition(job, "job", per_rank)) {
        for (const auto& metric : family.metric) {
          if (family.name.ends_with("_ratio") && family.type == prometheus::MetricType::Gauge) {
            EXPECT_TRUE(is_possible(metric.gauge.value)) << family.name << " " << metric.gauge.value;
          }
          if (family.name != "mfu_suspect") continue;
          ++suspect;
          EXPECT_EQ(metric.gauge.value, 1);
          EXPECT_EQ(label(metric, "cause").find(' '), std::string::npos) << "a kind, not a sentence";
        }
      }
  }
  EXPECT_GT(suspect, 60u);
}

}  // namespace
}  // namespace mfu
