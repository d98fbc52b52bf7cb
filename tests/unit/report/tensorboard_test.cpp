// Exported afterwards, a run has the event file that the library would have written while it ran.
#include "tools/report/outputs/tensorboard.h"
#include "tests/unit/run_dir/read_run_history.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/sinks/sink_jsonl.h"
#include "core/sinks/sink_tensorboard.h"
#include "tests/unit/run_dir/read_run_history.h"

namespace mfu {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}

TEST(WriteTensorboardTest, IsWhatTheSinkWrites) {
  std::string folder = (fs::temp_directory_path() / "mfu-export-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  RunInfo run;
  run.host = "node";
  run.rank = 1;
  run.pid = 7;
  run.t_ns = 1'795'000'000 * kNsPerSecond;
  run.devices.resize(2);
  run.devices[1].device = 1;
  JsonlSink jsonl(folder + "/run", run);
  TensorboardSink live(folder + "/live", run);
  ASSERT_TRUE(jsonl.start(run));
  ASSERT_TRUE(live.start(run));
  for (int i = 0; i < 5; ++i) {
    WindowSummary window;
    window.window = {run.t_ns + i * 10 * kNsPerSecond, run.t_ns + (i + 1) * 10 * kNsPerSecond};
    window.self.overhead = 0.001 * i;
    window.counters = {{"records_dropped", 3}};
    for (const char* name : {"step", "total"}) {
      RegionSummary r;
      r.region = name;
      if (r.region == "step") r.device = 1;
      r.window = window.window;
      r.instances = 20;
      r.tokens = 1000;
      r.elapsed_ns = 10 * kNsPerSecond;
      r.time_ns[4] = r.elapsed_ns;
      r.mfu = 0.1 * i;
      DurationHistogram latency;
      latency.add(400'000'000, 20);
      r.latency = r.inter_token = r.prefill_to_decode = latency.summary();
      BatchLatency batch;
      batch.batch_min = 5;
      batch.batch_max = 8;
      batch.latency = r.latency;
      r.by_batch = {batch};
      window.regions.push_back(r);
    }
    ASSERT_TRUE(jsonl.write(window));
    ASSERT_TRUE(live.write(window));
  }
  const auto history = read_run_history(jsonl.path());
  ASSERT_TRUE(history);
  for (int again = 0; again < 2; ++again) {
    const auto written = write_tensorboard({*history, RunHistory{}}, folder + "/export");
    ASSERT_TRUE(written) << written.error().message;
    ASSERT_EQ(written->size(), 1U) << "a history without a window gives no file";
    const std::string exported = bytes_of(written->front());
    EXPECT_GT(exported.size(), 1000U);
    EXPECT_EQ(exported, bytes_of(live.path()));
    EXPECT_NE(exported.find("step/gpu1/mfu"), std::string::npos);
    EXPECT_NE(exported.find("total/records_dropped"), std::string::npos);
    for (const char* tag :
         {"step/gpu1/inter_token_p99_s", "step/gpu1/prefill_to_decode_p50_s", "step/gpu1/sequences_5-8/p99_s"})
      EXPECT_NE(exported.find(tag), std::string::npos) << tag;
  }
  std::ofstream(folder + "/taken") << "a file";
  EXPECT_FALSE(write_tensorboard({*history}, folder + "/taken"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace mfu
