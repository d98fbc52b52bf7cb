// What was written comes back, line by line, while the file grows, breaks, vanishes and is made anew.
#include "tools/run_dir/run_file.h"
#include "tests/unit/run_dir/read_run_history.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "core/base/printable.h"
#include "core/sinks/sink_jsonl.h"
#include "tests/unit/run_dir/read_run_history.h"

namespace mfu {
namespace {

namespace fs = std::filesystem;

class RunFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mfu-run-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/host-0-1.jsonl";
  }
  void TearDown() override { fs::remove_all(directory_); }
  void append(std::string_view text) { std::ofstream(path_, std::ios::app) << text; }

  std::string directory_, path_;
};

RegionSummary random_region(std::mt19937_64& random) {
  const auto below = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  RegionSummary r;
  r.region = below(2) ? "step" : "deco\"de\n\xC3\xA9";
  if (below(2)) r.device = static_cast<std::uint32_t>(below(8));
  r.window = {1'795'289'438'512'480'419 + below(1'000'000), 1'795'289'448'512'480'419};
  r.instances = random() % 1000;
  r.open = random() % 3;
  r.tokens = below(1 << 30);
  for (auto& t : r.time_ns) r.elapsed_ns += t = below(20'000'000'000);
  r.busy_ns = below(10'000'000'000);
  r.kernel_sum_ns = below(10'000'000'000);
  r.kernels = random() >> 20;
  r.launches = random() >> 20;
  r.comm_kernels = random() % 100;
  r.comm_sum_ns = below(1'000'000'000);
  DurationHistogram latency;
  for (std::int64_t i = below(100); i-- > 0;) latency.add(below(100'000'000'000));
  r.latency = latency.summary();
  if (below(2)) r.inter_token = latency.summary(), r.after_prefill = random() % 100;
  if (below(2)) r.prefill_to_decode = latency.summary();
  for (std::int64_t i = below(4); i-- > 0;) {
    BatchLatency b;
    b.unit = below(2) ? BatchUnit::kTokens : BatchUnit::kSequences;
    b.batch_max = 2 << i;
    b.batch_min = b.batch_max / 2 + 1;
    b.instances = random() % 1000;
    b.tokens = below(1 << 30);
    b.elapsed_ns = below(100'000'000'000);
    b.latency = r.latency;
    if (below(2)) b.flop = static_cast<double>(random()), b.mfu = 0.375;
    if (below(2)) b.bytes = 1e12, b.mbu = 0.625;
    r.by_batch.push_back(b);
  }
  for (std::int64_t i = below(4); i-- > 0;) {
    SlowInstance s;
    s.nth = random() >> 20;
    s.t0_ns = r.window.begin_ns + below(1'000'000);
    for (auto& t : s.time_ns) s.elapsed_ns += t = below(20'000'000'000);
    s.lost_to = static_cast<TimeClass>(below(kTimeClasses));
    s.excess_ns = below(20'000'000'000);
    r.slowest.push_back(s);
  }
  r.classes_known = below(4) != 0;
  if (below(2)) {
    r.flop = static_cast<double>(random());
    r.mfu = 0.25;
    r.hfu_flop = *r.flop * 2;
    r.hfu = 0.5;
    r.lost = {0.1, 0.2, 0.3, 0.15, 0};
  }
  if (below(2)) r.bytes = 1e12, r.mbu = 0.125, r.roofline_s = 0.1, r.bound = Bound::kMemory;
  if (below(2)) r.suspect = "mfu_over_100: batch twice?";
  r.overlapped = below(2) != 0;
  r.top_kernels.push_back({"ampere_sgemm<T>", KernelClass::kGemm, 7, below(1'000'000'000)});
  r.top_kernels.push_back({"ncclKernel", KernelClass::kComm, 7, below(1'000'000'000)});
  if (below(2)) r.shape_source = {{"batch", "range"}, {"context", "cached"}};
  r.named_by = NamedBy::kRange;
  r.settled = true;  // as the window is
  if (below(2)) r.detected = Detected{"step", random() % 5000, "high", 4};
  return r;
}

TEST_F(RunFileTest, WhatWasWrittenComesBackExactly) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  RunInfo run;
  run.t_ns = 1'795'289'438'512'480'419;
  run.host = "node-1";
  run.pid = 4711;
  run.rank = 3;
  run.local_rank = 1;
  run.world_size = 64;
  run.version = "0.1.0";
  run.commit = "0123456789ab";
  run.command = "python train.py 'a \"b\"'";
  run.devices.push_back({1, "NVIDIA H100", "GPU-1", 9.894e14, 3.35e12, "table: H100", "bf16", "model", false});
  run.devices.push_back({2, "?", "GPU-2", std::nullopt, std::nullopt, "unknown", "", "", true});
  run.level = "full";
  run.cupti_version = 130001;
  run.convention = "exact";
  JsonlSink sink(directory_, run);
  ASSERT_TRUE(sink.start(run));
  std::vector<WindowSummary> written;
  for (int i = 0; i < 200; ++i) {
    WindowSummary window;
    const std::int64_t begin = i * 10 * kNsPerSecond;
    window.window = {begin, begin + 10 * kNsPerSecond};
    for (int k = 0; k < 3; ++k) {
      window.regions.push_back(random_region(random));
      window.regions.back().region += std::to_string(k);  // two rows of one region and device would be added up
      window.regions.back().window = window.window;
    }
    window.regions.back().region = "total";
    window.counters.emplace_back("records_dropped", static_cast<std::uint64_t>(i));
    window.self = {0.25 * i, 1 << 20, 0.002};
    ASSERT_TRUE(sink.write(window));
    written.push_back(std::move(window));
  }
  WindowSummary whole = written.back();
  whole.final_run = true;
  whole.launches = {10, 7, 1, 1, 1};
  whole.self = {0.5, 1 << 20, 0.001};
  ASSERT_TRUE(sink.event({5, "paused", "another client"}));
  ASSERT_TRUE(sink.write(whole));

  const auto history = read_run_history(sink.path());
  ASSERT_TRUE(history) << history.error().message;
  const RunHistory& h = history.value();
  EXPECT_EQ(h.run.host, "node-1");
  EXPECT_EQ(h.run.rank, 3);
  EXPECT_EQ(h.run.local_rank, 1);
  EXPECT_EQ(h.run.world_size, 64);
  EXPECT_EQ(h.run.commit, run.commit);
  EXPECT_EQ(h.run.build, "");
  EXPECT_EQ(h.run.command, run.command);
  ASSERT_EQ(h.run.devices.size(), 2U);
  EXPECT_EQ(h.run.devices[0].peak_flop_per_s, 9.894e14);
  EXPECT_FALSE(h.run.devices[1].peak_flop_per_s.has_value());
  ASSERT_EQ(h.windows.size(), written.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    ASSERT_EQ(h.windows[i].regions.size(), written[i].regions.size());
    EXPECT_EQ(h.windows[i].counters, written[i].counters);
    EXPECT_EQ(h.windows[i].self.cpu_s, written[i].self.cpu_s);
    for (std::size_t k = 0; k < written[i].regions.size(); ++k) {
      RegionSummary as_read = written[i].regions[k];
      as_read.region = printable(as_read.region);  // no name of a file reaches a terminal as it is
      EXPECT_EQ(region_json(h.windows[i].regions[k]), region_json(as_read));
    }
  }
  ASSERT_EQ(h.events.size(), 1U);
  EXPECT_EQ(h.events[0].kind, "paused");
  ASSERT_TRUE(h.end.has_value());
  EXPECT_EQ(h.end->launches.seen, 10U);
  EXPECT_EQ(h.end->launches.dropped, 1U);
  EXPECT_EQ(h.end->self.rss_bytes, 1U << 20);
  EXPECT_TRUE(h.oddities.empty());
}

TEST_F(RunFileTest, FollowsWholeLinesOnly) {
  RunFile file(path_, RunFile::From::kBeginning);
  std::vector<std::string> kinds;
  const auto on_line = [&kinds](RunLine&& line) { kinds.push_back(std::get<RunEvent>(line.what).kind); };
  EXPECT_FALSE(file.poll(on_line)) << "there is no file yet";
  append(R"({"v":1,"type":"event","t_ns":1,"seq":0,"kind":"a","message":""})"
         "\n"
         R"({"v":1,"type":"event","t_ns":1,"se)");
  ASSERT_TRUE(file.poll(on_line));
  EXPECT_EQ(kinds, std::vector<std::string>{"a"});
  append(R"(q":1,"kind":"b","message":""})");
  ASSERT_TRUE(file.poll(on_line));
  EXPECT_EQ(kinds.size(), 1U);
  append("\nrubbish\n[1]\n{\"v\":1}\n");
  append(R"({"v":2,"type":"event","t_ns":1,"seq":2,"kind":"c","message":"","new":{"x":[1]}})"
         "\n");
  ASSERT_TRUE(file.poll(on_line));
  EXPECT_EQ(kinds, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(file.bad_lines(), 3U);
  EXPECT_EQ(file.newer_lines(), 1U);
  ASSERT_FALSE(file.oddities().empty());
  EXPECT_NE(file.oddities()[0].find(path_ + ":3: "), std::string::npos) << file.oddities()[0];
  // Made anew: from its beginning.
  fs::remove(path_);
  EXPECT_FALSE(file.poll(on_line));
  append(R"({"v":1,"type":"event","t_ns":1,"seq":0,"kind":"d","message":""})"
         "\n");
  ASSERT_TRUE(file.poll(on_line));
  EXPECT_EQ(kinds.back(), "d");
}

TEST_F(RunFileTest, WrongTypesNameTheKey) {
  append(R"({"v":1,"type":"window","t_ns":1,"seq":0,"region":"step","elapsed_s":"long"})"
         "\n");
  RunFile file(path_, RunFile::From::kBeginning);
  ASSERT_TRUE(file.poll([](RunLine&&) { FAIL(); }));
  ASSERT_EQ(file.oddities().size(), 1U);
  EXPECT_NE(file.oddities()[0].find("'elapsed_s': \"long\" is not a number"), std::string::npos) << file.oddities()[0];
}

TEST_F(RunFileTest, TailHasTheStartAndTheLastLines) {
  append(R"({"v":1,"type":"start","t_ns":1,"seq":0,"host":"h","rank":7})"
         "\n");
  constexpr int kLines = 20'000;
  std::string text;
  for (int i = 1; i <= kLines; ++i)
    text += "{\"v\":1,\"type\":\"event\",\"t_ns\":1,\"seq\":" + std::to_string(i) + ",\"kind\":\"k\"," +
            (i % 100 == 0 ? "\"region\":\"total\"," : "") + "\"message\":\"\"}\n";  // as often as windows end
  append(text);
  RunFile file(path_, RunFile::From::kTail);
  std::int64_t rank = -1;
  std::vector<std::uint64_t> seen;
  const auto done = file.poll([&](RunLine&& line) {
    if (const auto* run = std::get_if<RunInfo>(&line.what)) rank = run->rank;
    seen.push_back(line.seq);
  });
  ASSERT_TRUE(done);
  EXPECT_EQ(rank, 7);
  EXPECT_EQ(seen.back(), static_cast<std::uint64_t>(kLines));
  EXPECT_LT(seen.size(), 2000U);
  for (std::size_t i = 2; i < seen.size(); ++i) EXPECT_EQ(seen[i], seen[i - 1] + 1);
  EXPECT_EQ(file.bad_lines(), 0U);
}

TEST_F(RunFileTest, ListsOnlyRunFiles) {
  append("x");
  std::ofstream(directory_ + "/notes.txt") << "x";
  const auto files = list_run_files(directory_);
  ASSERT_TRUE(files);
  EXPECT_EQ(files.value(), std::vector<std::string>{path_});
  EXPECT_EQ(list_run_files(path_).value(), std::vector<std::string>{path_});
  EXPECT_FALSE(list_run_files(directory_ + "/none"));
  EXPECT_FALSE(read_run_history(path_)) << "not one line of a run";
}

}  // namespace
}  // namespace mfu
