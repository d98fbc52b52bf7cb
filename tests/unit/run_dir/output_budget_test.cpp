// How much a run writes a day, held against the bytes in its files and the sums that went in.
#include "core/sinks/output_budget.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "core/sinks/sink_jsonl.h"
#include "core/sinks/sink_tensorboard.h"
#include "core/sinks/sink_text.h"
#include "tests/unit/run_dir/read_run_history.h"
#include "tools/run_dir/run_file.h"

namespace mfu {
namespace {

constexpr TimeNs kBegin = 1'795'000'000 * kNsPerSecond;
constexpr DurationNs kWindow = 10 * kNsPerSecond;
constexpr double kMB = 1e6;

/// A process with `devices` GPUs and `regions` regions, each at work in every window, with histograms and names of
/// kernels: rows of 2 kB and more.
class Load {
 public:
  Load(int regions, std::uint32_t devices) : regions_(regions), devices_(devices) {
    run_.host = "node";
    run_.pid = 1;
    for (std::uint32_t d = 0; d < devices; ++d) {
      DeviceInfo info;
      info.device = d;
      info.peak_flop_per_s = 1e15;
      info.peak_bytes_per_s = 3e12;
      run_.devices.push_back(info);
    }
    DurationHistogram histogram;
    for (int i = 0; i < 24; ++i) histogram.add(1'000'000 + i * 300'000, 1 + static_cast<std::uint64_t>(i));
    latency_ = histogram.summary();
  }

  [[nodiscard]] const RunInfo& run() const { return run_; }

  /// The next window of `length`; what is in it is added to the sums below.
  WindowSummary next(DurationNs length = kWindow) {
    WindowSummary w;
    w.window = {at_, at_ + length};
    at_ += length;
    for (int i = 0; i < regions_; ++i)
      for (std::uint32_t d = 0; d < devices_; ++d) w.regions.push_back(row("region" + std::to_string(i), d, w.window));
    RegionSummary total = row("total", 0, w.window);
    if (devices_ != 1) total.device.reset();
    w.regions.push_back(total);
    w.counters = {{"buffers", ++windows}};
    return w;
  }

  [[nodiscard]] WindowSummary end() const {
    WindowSummary w;
    w.window = {kBegin, at_};
    w.final_run = true;
    return w;
  }

  std::uint64_t windows = 0, instances = 0;
  DurationNs elapsed_ns = 0;
  double flop = 0;

 private:
  RegionSummary row(const std::string& name, std::uint32_t device, Interval window) {
    RegionSummary r;
    r.region = name;
    r.device = device;
    r.window = window;
    r.instances = 1 + random_() % 100;
    r.elapsed_ns = 1'000'000 + static_cast<DurationNs>(random_() % 1'000'000'000);
    r.time_ns = {r.elapsed_ns / 2, 0, 0, 0, r.elapsed_ns - r.elapsed_ns / 2};
    r.busy_ns = r.kernel_sum_ns = r.elapsed_ns / 2;
    r.flop = 1e12 * static_cast<double>(1 + random_() % 100);
    r.latency = latency_;
    for (int k = 0; k < 10; ++k)
      r.top_kernels.push_back(
          {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cga1x1x1_execute_kernel__51_cublas_" +
               std::to_string(k),
           KernelClass::kGemm, 3, 1000});
    instances += r.instances;
    elapsed_ns += r.elapsed_ns;
    flop += *r.flop;
    return r;
  }

  int regions_;
  std::uint32_t devices_;
  RunInfo run_;
  LatencySummary latency_;
  TimeNs at_ = kBegin;
  std::mt19937_64 random_{7};
};

class OutputBudgetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "budget_XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::uintmax_t bytes_below(const std::filesystem::path& path) const {
    std::uintmax_t sum = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file()) sum += entry.file_size();
    return sum;
  }
  std::filesystem::path folder_;
};

struct Sums {
  std::uint64_t instances = 0;
  DurationNs elapsed_ns = 0;
  double flop = 0;
};

Sums sums_of(const RunHistory& history) {
  Sums sums;
  for (const WindowSummary& w : history.windows) {
    for (const RegionSummary& r : w.regions) {
      sums.instances += r.instances;
      sums.elapsed_ns += r.elapsed_ns;
      sums.flop += r.flop.value_or(0);
    }
  }
  return sums;
}

TEST_F(OutputBudgetTest, ADayOfFiftyRegionsOnEightDevicesStaysBelowTheDefault) {
#ifdef MFU_SANITIZED
  GTEST_SKIP() << "577,000 rows; the tests below write the same with fewer";
#endif
  Load load(50, 8);
  JsonlSink jsonl((folder_ / "run").string(), load.run(), 100 * kMB);
  TensorboardSink tensorboard((folder_ / "tb").string(), load.run(), 100 * kMB);
  TextSink text((folder_ / "log").string(), 0, false, 1, false, 100 * kMB);
  const std::vector<Sink*> sinks{&jsonl, &tensorboard, &text};
  std::map<std::string_view, int> notices;
  for (Sink* sink : sinks) ASSERT_TRUE(sink->start(load.run()));
  constexpr DurationNs kMinute = 60 * kNsPerSecond;  // shorter windows are no more rows in the files, only in this test
  for (int i = 0; i < 24 * 60; ++i) {
    const WindowSummary window = load.next(kMinute);
    for (Sink* sink : sinks) {
      ASSERT_TRUE(sink->write(window));
      notices[sink->name()] += !sink->take_notice().empty();
    }
  }
  EXPECT_EQ(notices["run_dir"], 1) << "said once";
  EXPECT_EQ(notices["tensorboard"], 1);
  EXPECT_LE(notices["log"], 1);
  EXPECT_LT(bytes_below(folder_ / "run"), 100 * kMB);
  EXPECT_LT(bytes_below(folder_ / "tb"), 100 * kMB);
  EXPECT_LT(std::filesystem::file_size(folder_ / "log"), 100 * kMB);
  EXPECT_GT(bytes_below(folder_ / "run"), 60 * kMB) << "what may be written is used";
  for (Sink* sink : sinks) ASSERT_TRUE(sink->write(load.end()));

  const auto history = read_run_history(jsonl.path());
  ASSERT_TRUE(history) << history.error().message;
  EXPECT_TRUE(history->oddities.empty());
  EXPECT_TRUE(history->end.has_value());
  const Sums read = sums_of(*history);
  EXPECT_EQ(read.instances, load.instances);
  EXPECT_NEAR(static_cast<double>(read.elapsed_ns), static_cast<double>(load.elapsed_ns), 1e4) << "printed in seconds";
  EXPECT_NEAR(read.flop / load.flop, 1, 1e-9);
  TimeNs until = kBegin;
  for (const WindowSummary& w : history->windows) {
    EXPECT_EQ(w.window.begin_ns, until) << "no gap and no overlap";
    until = w.window.end_ns;
    ASSERT_EQ(w.regions.size(), 401u);
    EXPECT_EQ(w.regions.back().region, "total");
    for (const RegionSummary& r : w.regions) {
      ASSERT_EQ(r.window.begin_ns, w.window.begin_ns);
      if (w.window.length_ns() <= kMinute) continue;  // it is as it came, and the load has no MFU
      ASSERT_NEAR(r.mfu.value_or(-1), *r.flop / (1e15 * seconds(r.elapsed_ns)), 1e-9);
    }
  }
  EXPECT_EQ(until, load.end().window.end_ns);
  EXPECT_EQ(history->windows.back().counters,
            (std::vector<std::pair<std::string, std::uint64_t>>{{"buffers", load.windows}}));
}

TEST_F(OutputBudgetTest, EveryLongerWindowIsToldBeforeIt) {
  Load load(20, 8);
  JsonlSink sink(folder_.string(), load.run(), 20 * kMB);
  ASSERT_TRUE(sink.start(load.run()));
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(sink.write(load.next()));
  RunFile file(sink.path(), RunFile::From::kBeginning);
  DurationNs known = kWindow;  // how long readers take the next window to be, at most
  int longer = 0;
  ASSERT_TRUE(file.poll([&](RunLine&& line) {
    const auto* window = std::get_if<WindowLine>(&line.what);
    if (window == nullptr || window->region.region != "total") return;
    EXPECT_LE(window->region.window.length_ns(), known + kWindow);
    longer += window->region.window.length_ns() > kWindow;
    known = std::max(known, window->next_ns);
  }));
  EXPECT_GT(longer, 3);
}

TEST_F(OutputBudgetTest, AFewRegionsAreWrittenAsTheyAre) {
  Load load(2, 1);
  JsonlSink sink(folder_.string(), load.run(), 100 * kMB);
  ASSERT_TRUE(sink.start(load.run()));
  for (int i = 0; i < 24 * 360; ++i) ASSERT_TRUE(sink.write(load.next()));
  EXPECT_EQ(sink.take_notice(), "");
  const auto history = read_run_history(sink.path());
  ASSERT_TRUE(history);
  EXPECT_EQ(history->windows.size(), 24u * 360u);
}

TEST_F(OutputBudgetTest, WindowsAreShortAgainWhenTheyBecomeSmall) {
  OutputBudget budget("file", 1 * kMB);
  Load load(1, 1);
  const auto go = [&](std::size_t bytes, int windows) {
    int written = 0;
    for (int i = 0; i < windows; ++i) {
      if (budget.take(load.next()) == nullptr) continue;
      budget.wrote(bytes);
      ++written;
    }
    return written;
  };
  EXPECT_LT(go(20'000, 1000), 30);
  EXPECT_NE(budget.next_ns(), 0);
  go(50, 20'000);
  EXPECT_EQ(budget.next_ns(), 0);
  EXPECT_EQ(go(50, 100), 100);
}

TEST_F(OutputBudgetTest, WhatIsHeldBackComesBeforeTheEnd) {
  Load load(3, 2);
  JsonlSink sink(folder_.string(), load.run(), 0.05 * kMB);
  ASSERT_TRUE(sink.start(load.run()));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(sink.write(load.next()));
  ASSERT_TRUE(sink.write(load.end()));
  const auto history = read_run_history(sink.path());
  ASSERT_TRUE(history);
  EXPECT_LT(history->windows.size(), 50u);
  EXPECT_EQ(sums_of(*history).instances, load.instances);
  ASSERT_TRUE(history->end);
}

TEST_F(OutputBudgetTest, EventsWithoutEndAreLeftOut) {
  Load load(1, 1);
  JsonlSink sink(folder_.string(), load.run(), 1 * kMB);
  ASSERT_TRUE(sink.start(load.run()));
  int written = 0;
  for (int i = 0; i < 10'000; ++i) written += sink.event({kBegin, "kind", std::string(100, 'x')}) ? 1 : 0;
  EXPECT_GT(written, 20);
  EXPECT_LT(bytes_below(folder_), 0.03 * kMB);
}

}  // namespace
}  // namespace mfu
