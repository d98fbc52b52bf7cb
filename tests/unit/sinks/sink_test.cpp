// What goes out: exactly the documented keys, finite numbers or null, whatever the names hold.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "core/sinks/component_text.h"
#include "core/sinks/sink_jsonl.h"
#include "core/sinks/sink_text.h"
#include "tests/unit/rows/impossible.h"

namespace mfu {
namespace {

using Json = nlohmann::json;
using Keys = std::set<std::string>;

const Keys kLineKeys{"v", "type", "t_ns", "seq"};
const Keys kRegionKeys{"region",        "device",      "t0_ns",
                       "t1_ns",         "instances",   "open",
                       "tokens",        "elapsed_s",   "busy_s",
                       "kernel_sum_s",  "kernels",     "launches",
                       "flop",          "bytes",       "mfu",
                       "mfu_busy",      "hfu",         "mbu",
                       "roofline_s",    "bound",       "clock_ratio",
                       "suspect",       "overlapped",  "time_s",
                       "lost",          "top_kernels", "comm_kernels",
                       "comm_sum_s",    "latency",     "named_by",
                       "inter_token_s", "by_batch",    "prefill_to_decode_s",
                       "after_prefill", "slowest",     "mfu_lower",
                       "flop_source",   "executed",    "settled",
                       "mbu_lower",     "untimed",     "graph_sum_s",
                       "mfu_mixed",     "idle_gaps",   "gemm_loss"};

/// A new folder below the temporary one.
std::string new_folder() {
  std::string path = (std::filesystem::temp_directory_path() / ("sink_" + std::string(6, 'X'))).string();
  EXPECT_NE(::mkdtemp(path.data()), nullptr);
  return path;
}

Keys keys_of(const Json& j) {
  Keys keys;
  for (const auto& [key, value] : j.items()) keys.insert(key);
  return keys;
}
Keys operator+(Keys a, const Keys& b) {
  a.insert(b.begin(), b.end());
  return a;
}

/// A region with every figure known.
RegionSummary full_region() {
  RegionSummary r;
  r.region = "decode";
  r.device = 1;
  r.window = {1'000'000'000, 11'000'000'000};
  r.instances = 4;
  r.tokens = 128;
  r.time_ns = {4'000'000'000, 1'000'000'000, 500'000'000, 250'000'000, 250'000'000};
  r.elapsed_ns = 6'000'000'000;
  r.busy_ns = 5'500'000'000;
  r.kernel_sum_ns = 5'600'000'000;
  r.kernels = 1000;
  r.launches = 40;
  r.flop = 3e15;
  r.hfu_flop = 3.5e15;
  r.bytes = 1e12;
  r.mfu = 0.5, r.mfu_busy = 0.55, r.hfu = 0.6, r.mbu = 0.25;
  r.roofline_s = 3.0;
  r.bound = Bound::kCompute;
  r.lost = std::array<double, kTimeClasses>{1.0 / 6, 1.0 / 6, 0.5 / 6, 0.25 / 6, 0.25 / 6};
  r.top_kernels = {{"gemm", KernelClass::kGemm, 500, 4'000'000'000}};
  return r;
}

/// The same with what single instances took.
RegionSummary region_with_instances() {
  RegionSummary r = full_region();
  DurationHistogram latency;
  latency.add(1'000'000, 90);
  latency.add(5'000'000, 10);
  r.latency = r.inter_token = latency.summary();
  latency.clear();
  latency.add(250'000, 7);
  r.prefill_to_decode = latency.summary();
  r.after_prefill = 7;
  for (const auto& [min, max] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 8}}) {
    BatchLatency b;
    b.batch_min = min;
    b.batch_max = max;
    b.instances = 50;
    b.tokens = 400;
    b.elapsed_ns = 2'000'000'000;
    b.latency = r.latency;
    b.flop = 1e12;
    b.mfu = 0.125;
    r.by_batch.push_back(b);
  }
  r.slowest = {{17, 1'500'000'000, 5'000'000, {1'000'000, 500'000, 0, 0, 3'500'000}, TimeClass::kIdle, 3'100'000}};
  return r;
}

class JsonlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = new_folder();
    run_.host = "node/7";
    run_.pid = 42;
    run_.rank = 3;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::vector<Json> lines(const std::string& path) {
    std::vector<Json> all;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));  // throws on anything but JSON
    return all;
  }
  std::filesystem::path folder_;
  RunInfo run_;
};

TEST_F(JsonlTest, OneFilePerProcessNamedByHostRankAndPid) {
  const JsonlSink sink(folder_.string(), run_);
  EXPECT_EQ(sink.path(), (folder_ / "node_7-3-42.jsonl").string());
}

TEST_F(JsonlTest, TheRowsOfAWindowAreThereTogetherOrNotAtAll) {
  JsonlSink sink(folder_.string(), run_);
  ASSERT_TRUE(sink.start(run_).ok());
  WindowSummary window;
  window.regions = {full_region(), full_region()};
  window.regions.back().region = "total";
  const auto size = [&] { return std::filesystem::file_size(sink.path()); };
  const auto before = size();
  ASSERT_TRUE(sink.write(window).ok());
  const auto rows = size() - before;
  ASSERT_EQ(lines(sink.path()).size(), 3u);

  // One row would fit.
  ::rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const ::rlimit tight{size() + rows - 100, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const bool written = sink.write(window).ok();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_FALSE(written);
  EXPECT_EQ(lines(sink.path()).size(), 3u);
  ASSERT_TRUE(sink.write(window).ok());
  EXPECT_EQ(lines(sink.path()).size(), 5u);
}

TEST_F(JsonlTest, StartEventAndEndHaveTheirKeys) {
  JsonlSink sink(folder_.string(), run_);
  run_.config_json = R"({"model": "x"})";
  run_.convention = "exact";
  run_.devices = {{0, "H200", "GPU-1", 1e15, std::nullopt, "table: H200", "bf16", "config", false}};
  ASSERT_TRUE(sink.start(run_).ok());
  ASSERT_TRUE(sink.event({77, "dropped", "CUPTI dropped records"}).ok());
  WindowSummary end;
  end.final_run = true;
  end.regions = {full_region()};
  end.launches = {10, 5, 3, 1, 1};
  end.counters = {{"records_late", 2}};
  ASSERT_TRUE(sink.write(end).ok());
  const auto all = lines(sink.path());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(keys_of(all[0]),
            kLineKeys + Keys({"host", "pid", "rank", "local_rank", "world", "began_ns", "job", "version", "commit",
                              "build", "command", "devices", "cupti", "config", "model", "convention", "trace"}));
  EXPECT_EQ(keys_of(all[0]["devices"][0]), Keys({"device", "name", "uuid", "peak_flop_per_s", "peak_bytes_per_s",
                                                 "peak_source", "dtype", "dtype_source", "sparse"}));
  EXPECT_EQ(keys_of(all[0]["cupti"]), Keys({"path", "version", "level"}));
  EXPECT_TRUE(all[0]["devices"][0]["peak_bytes_per_s"].is_null());
  EXPECT_EQ(all[0]["config"]["model"], "x");
  EXPECT_TRUE(all[0]["model"].is_null());
  EXPECT_EQ(keys_of(all[1]), kLineKeys + Keys({"kind", "message"}));
  EXPECT_EQ(all[1]["t_ns"], 77);
  EXPECT_EQ(keys_of(all[2]), kLineKeys + Keys({"t0_ns", "t1_ns", "regions", "launches", "self", "counters"}));
  EXPECT_EQ(keys_of(all[2]["launches"]),
            Keys({"seen", "attributed", "outside", "unattributed", "dropped", "not_timed"}));
  EXPECT_EQ(keys_of(all[2]["self"]), Keys({"cpu_s", "rss_bytes", "overhead"}));
  EXPECT_EQ(keys_of(all[2]["regions"][0]), kRegionKeys);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["v"], 1);
    EXPECT_EQ(all[i]["seq"], i);
  }
}

/// As when a device is known later than the first range.
TEST_F(JsonlTest, WhatIsSaidAgainAtTheStartIsThereAgain) {
  JsonlSink sink(folder_.string(), run_);
  ASSERT_TRUE(sink.start(run_).ok());
  run_.devices = {{0, "H200", "GPU-1", 1e15, std::nullopt, "table: H200", "bf16", "config", false}};
  ASSERT_TRUE(sink.start(run_).ok());
  auto all = lines(sink.path());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["devices"].size(), 0u);
  EXPECT_EQ(all[1]["devices"].size(), 1u);
  std::filesystem::remove(sink.path());
  ASSERT_TRUE(sink.event({77, "dropped", "CUPTI dropped records"}).ok());
  all = lines(sink.path());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["devices"].size(), 1u);  // what was said last
}

TEST_F(JsonlTest, WindowsHaveTheirKeysAndFigures) {
  JsonlSink sink(folder_.string(), run_);
  WindowSummary window;
  RegionSummary total = full_region();
  total.region = "total";
  total.device = std::nullopt;
  window.regions = {full_region(), total};
  window.counters = {{"records_late", 2}};
  ASSERT_TRUE(sink.write(window).ok());
  const auto all = lines(sink.path());
  ASSERT_EQ(all.size(), 2u);
  const Json& j = all[0];
  EXPECT_EQ(keys_of(j), kLineKeys + kRegionKeys);
  EXPECT_EQ(keys_of(all[1]), kLineKeys + kRegionKeys + Keys({"counters", "self"}));
  EXPECT_TRUE(all[1]["device"].is_null());
  EXPECT_EQ(j["type"], "window");
  EXPECT_EQ(j["device"], 1);
  EXPECT_EQ(j["elapsed_s"], 6.0);
  EXPECT_EQ(j["bound"], "compute");
  EXPECT_TRUE(j["suspect"].is_null());
  const Keys classes{"matmul", "other", "comm", "memcpy", "idle"};
  EXPECT_EQ(keys_of(j["time_s"]), classes);
  EXPECT_EQ(keys_of(j["lost"]), classes);
  EXPECT_EQ(keys_of(j["top_kernels"][0]), Keys({"name", "class", "count", "sum_s"}));
  double times = 0, shares = j["mfu"].get<double>();
  for (const auto& t : j["time_s"]) times += t.get<double>();
  for (const auto& l : j["lost"]) shares += l.get<double>();
  EXPECT_NEAR(times, 6.0, 1e-12);
  EXPECT_NEAR(shares, 1.0, 1e-12);
}

TEST_F(JsonlTest, SingleInstancesHaveTheirKeys) {
  JsonlSink sink(folder_.string(), run_);
  WindowSummary window;
  RegionSummary blind = region_with_instances();
  blind.classes_known = false;
  window.regions = {region_with_instances(), full_region(), blind};
  ASSERT_TRUE(sink.write(window).ok());
  const auto all = lines(sink.path());
  const Json& j = all[0];
  EXPECT_EQ(keys_of(j), kLineKeys + kRegionKeys);
  const Keys quantiles{"count", "p50", "p90", "p99", "max", "histogram"};
  EXPECT_EQ(keys_of(j["inter_token_s"]), quantiles);
  EXPECT_EQ(j["inter_token_s"]["max"], 0.005);
  EXPECT_EQ(j["prefill_to_decode_s"]["p99"], 0.00025);
  EXPECT_EQ(j["after_prefill"], 7);
  ASSERT_EQ(j["by_batch"].size(), 2u);
  const Json& batch = j["by_batch"][1];
  EXPECT_EQ(keys_of(batch), Keys({"unit", "batch_min", "batch_max", "instances", "tokens", "elapsed_s", "latency_s",
                                  "flop", "bytes", "mfu", "mbu"}));
  EXPECT_EQ(keys_of(batch["latency_s"]), quantiles);
  EXPECT_EQ(batch["unit"], "sequences");
  EXPECT_EQ(batch["batch_min"], 5);
  EXPECT_EQ(batch["batch_max"], 8);
  EXPECT_EQ(batch["elapsed_s"], 2.0);
  EXPECT_EQ(batch["mfu"], 0.125);
  EXPECT_TRUE(batch["mbu"].is_null());
  ASSERT_EQ(j["slowest"].size(), 1u);
  const Json& slow = j["slowest"][0];
  EXPECT_EQ(keys_of(slow), Keys({"nth", "t0_ns", "elapsed_s", "time_s", "lost_to", "excess_s"}));
  EXPECT_EQ(slow["nth"], 17);
  EXPECT_EQ(slow["lost_to"], "idle");
  EXPECT_EQ(slow["excess_s"], seconds(3'100'000));
  EXPECT_EQ(slow["time_s"]["idle"], seconds(3'500'000));
  // What was not seen.
  EXPECT_TRUE(all[1]["inter_token_s"].is_null() && all[1]["prefill_to_decode_s"].is_null());
  EXPECT_TRUE(all[1]["after_prefill"].is_null());
  EXPECT_TRUE(all[1]["by_batch"].empty() && all[1]["slowest"].empty());
  EXPECT_EQ(all[2]["slowest"][0]["elapsed_s"], 0.005);
  EXPECT_TRUE(all[2]["slowest"][0]["lost_to"].is_null() && all[2]["slowest"][0]["time_s"]["idle"].is_null());
}

TEST_F(JsonlTest, AtLowConfidenceThereAreTimesOnly) {
  for (const char* confidence : {"high", "medium", "low"}) {
    SCOPED_TRACE(confidence);
    const bool low = std::string_view(confidence) == "low";
    RegionSummary r = region_with_instances();
    r.named_by = NamedBy::kDetector;
    r.detected = Detected{"decode", 100, confidence, 0};
    if (low) r.forget_single_instances();
    const Json j = Json::parse(region_json(r));
    EXPECT_EQ(j["elapsed_s"], 6.0);
    EXPECT_EQ(j["named_by"], "detector");
    EXPECT_EQ(j["detected"]["confidence"], confidence);
    for (const char* key : {"latency", "inter_token_s", "prefill_to_decode_s", "after_prefill"})
      EXPECT_EQ(j[key].is_null(), low) << key;
    for (const char* key : {"by_batch", "slowest"}) EXPECT_EQ(j[key].empty(), low) << key;
    WindowSummary run;
    run.regions = {r};
    for (const std::string& text : {region_line(r), region_table(run)})
      for (const char* word : {"p50", "p99=", "slowest", "batch 5-8", "prefill"})
        EXPECT_TRUE(!low || text.find(word) == std::string::npos) << word << " in " << text;
    EXPECT_EQ(region_table(run).find("slowest") == std::string::npos, low);
  }
}

TEST_F(JsonlTest, WhatIsNotANumberIsNull) {
  JsonlSink sink(folder_.string(), run_);
  WindowSummary window;
  RegionSummary r = full_region();
  r.mfu = std::numeric_limits<double>::quiet_NaN();
  r.flop = std::numeric_limits<double>::infinity();
  r.mbu = std::nullopt;
  r.lost = std::nullopt;
  r.bound = Bound::kUnknown;
  window.regions = {r};
  r.classes_known = false;
  window.regions.push_back(r);
  ASSERT_TRUE(sink.write(window).ok());
  const auto all = lines(sink.path());
  for (const char* key : {"mfu", "flop", "mbu", "bound"}) EXPECT_TRUE(all[0][key].is_null()) << key;
  EXPECT_TRUE(all[0]["lost"]["idle"].is_null());
  EXPECT_EQ(all[0]["time_s"]["matmul"], 4.0);
  EXPECT_TRUE(all[1]["busy_s"].is_null());
  EXPECT_TRUE(all[1]["time_s"]["matmul"].is_null());
}

TEST_F(JsonlTest, NamesOfAnyBytesStayOneLineOfJson) {
  JsonlSink sink(folder_.string(), run_);
  WindowSummary window;
  RegionSummary r = full_region();
  r.region = "bad \xff\xc3 \"quoted\"\n\\";
  r.top_kernels[0].name = std::string("nul\0in", 6) + "\xed\xa0\x80";
  window.regions = {r};
  ASSERT_TRUE(sink.write(window).ok());
  ASSERT_TRUE(sink.event({1, "note", "\xf0\x28\x8c\x28\r\n"}).ok());
  const auto all = lines(sink.path());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["region"], "bad \xef\xbf\xbd\xef\xbf\xbd \"quoted\"\n\\");
}

TEST_F(JsonlTest, AFileThatWasRemovedStartsWithTheStartLineAgain) {
  JsonlSink sink(folder_.string(), run_);
  ASSERT_TRUE(sink.start(run_).ok());
  std::filesystem::remove(sink.path());
  ASSERT_TRUE(sink.event({1, "note", "x"}).ok());
  const auto all = lines(sink.path());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["type"], "start");
  EXPECT_EQ(all[1]["type"], "event");
}

TEST_F(JsonlTest, AFolderThatCannotBeIsAnErrorPerLineAndNoMore) {
  std::ofstream(folder_ / "plain") << "x";
  JsonlSink sink((folder_ / "plain").string(), run_);
  EXPECT_FALSE(sink.start(run_).ok());
  EXPECT_FALSE(sink.event({1, "note", "x"}).ok());
}

TEST(TextSink, OneLinePerRegionWithEveryFigure) {
  const std::string line = region_line(full_region());
  EXPECT_EQ(line.rfind("decode@gpu1", 0), 0u);
  for (const char* part : {" n=4 1.50 s/it", " MFU=50.0%", " HFU=60.0%", " MBU=25.0%", " bound=compute",
                           "gemm-loss 16.7", "other 16.7", "comm 8.3", "copy 4.2", "idle 4.2"})
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  EXPECT_LE(line.size(), 120u + 20u);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(TextSink, UnknownRatiosAreADash) {
  EXPECT_EQ(percent(std::nullopt), "-");
  EXPECT_EQ(percent(0.1234), "12.3%");
  RegionSummary r = full_region();
  r.mfu = r.hfu = r.mbu = std::nullopt;
  r.lost = std::nullopt;
  r.bound = Bound::kUnknown;
  const std::string line = region_line(r);
  EXPECT_NE(line.find(" MFU=-"), std::string::npos) << line;
  EXPECT_NE(line.find("matmul 66.7"), std::string::npos) << line;
}

TEST(TextSink, TheTableHoldsTheAccount) {
  WindowSummary run;
  run.final_run = true;
  run.window = {0, 10 * kNsPerSecond};
  run.regions = {full_region()};
  run.launches = {10, 5, 3, 1, 1};
  run.counters = {{"records_late", 2}, {"launches_captured", 9}, {"sink_errors", 1}};
  const std::string table = run_table(run);
  EXPECT_NE(table.find("launches 10 = attributed 5 + outside 3 + unattributed 1 + dropped 1"), std::string::npos)
      << table;
  EXPECT_NE(table.find("noted: records late 2, sink errors 1\n"), std::string::npos) << table;
}

/// On a terminal of 120 columns no row of the table breaks: the smallest parts of the waterfall go, then the region's
/// source takes a line of its own.
TEST(TextSink, TheTableFitsInto120Columns) {
  WindowSummary run;
  run.final_run = true;
  run.window = {0, 10 * kNsPerSecond};
  RegionSummary region = full_region();
  region.region = "prefill_or_mixed";
  region.suspect.clear();
  region.time_ns = {3 * kNsPerSecond, 2 * kNsPerSecond, 2 * kNsPerSecond, kNsPerSecond, 2 * kNsPerSecond};
  region.elapsed_ns = 10 * kNsPerSecond;
  region.lost.reset();
  region.named_by = NamedBy::kDetector;
  region.detected.emplace();
  region.detected->confidence = "high";
  run.regions = {region};
  const std::string table = region_table(run);
  std::istringstream lines(table);
  std::string line, row;
  while (std::getline(lines, line)) {
    EXPECT_LE(line.size() + 6, 120U) << line;
    if (line.starts_with("prefill_or_mixed")) row = line;
  }
  EXPECT_NE(row.find("| matmul 30.0 other 20.0"), std::string::npos) << table;
  EXPECT_NE(table.find("\n  (detected)\n"), std::string::npos) << table;
}

TEST(TextSink, BelowARegionStandsWhatItsInstancesTook) {
  WindowSummary run;
  run.regions = {region_with_instances()};
  const std::string table = region_table(run);
  for (const char* part :
       {"\n  batch 1           n=50 p50=1.00 ms p99=5 ms max=5 ms per token MFU=12.5% tok/s=200\n", "\n  batch 5-8 ",
        "\n  from prefill to decode p50=250 µs p99=250 µs max=250 µs; 7 of 4 came after a prefill\n",
        "\n  slowest (median 1.00 ms): #17 5 ms (idle +3.10 ms)\n"})
    EXPECT_NE(table.find(part), std::string::npos) << part << " in " << table;
  // The line of a window stays a line.
  EXPECT_EQ(region_line(run.regions[0]).find('\n'), std::string::npos);
  // One batch alone says no more than the region.
  run.regions[0].by_batch.pop_back();
  EXPECT_EQ(region_table(run).find("  batch"), std::string::npos);
  // Many batches: those that took the time, smallest first, none wider than a terminal.
  run.regions[0].by_batch.clear();
  for (std::int64_t i = 0; i < 20; ++i) {
    BatchLatency b = region_with_instances().by_batch[0];
    b.unit = BatchUnit::kTokens;
    b.batch_min = (std::int64_t{1} << i) / 2 + 1;
    b.batch_max = std::int64_t{1} << i;
    b.elapsed_ns = (i % 2 == 0 ? 1 : 1000) * (i + 1);
    b.mbu = 1;
    b.instances = 123'456'789;
    run.regions[0].by_batch.push_back(b);
  }
  const std::string many = region_table(run);
  EXPECT_NE(many.find("\n  and 12 shorter ones\n"), std::string::npos) << many;
  std::istringstream in(many);
  std::vector<std::string> shown;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("  tokens ", 0) != 0) continue;
    shown.push_back(line.substr(9, line.find(' ', 9) - 9));
    EXPECT_LE(line.size(), 114u) << line;
  }
  EXPECT_EQ(shown, (std::vector<std::string>{"17-32", "65-128", "257-512", "1025-2048", "4097-8192", "16385-32768",
                                             "65537-131072", "262145-524288"}));
}

/// The rows of a window as the README shows them, figure by figure.
RegionSummary readme_row(const char* region, std::uint64_t instances, double each_s, double mfu,
                         std::optional<double> mbu, std::array<double, kTimeClasses> lost, double tokens_per_s,
                         double p99_s) {
  RegionSummary r;
  r.region = region;
  r.device = 0;
  r.instances = instances;
  r.elapsed_ns = std::llround(each_s * static_cast<double>(instances) * 1e9);
  r.latency.count = instances;
  r.latency.p99_ns = std::llround(p99_s * 1e9);
  r.mfu = r.hfu = mfu;
  r.mbu = mbu;
  r.bound = mbu.value_or(0) > mfu ? Bound::kMemory : Bound::kCompute;
  r.lost = lost;
  r.tokens = std::llround(tokens_per_s * seconds(r.elapsed_ns));
  // Nothing of it may come into the line: 9 % of the matmul time is seen.
  r.executed = ExecutedWork{1e15, 90'000'000, 1'000'000'000, 80'000'000};
  return r;
}

/// `[mfu] ` and the lines that the README shows, with a waterfall that adds up to 100 with MFU.
TEST(TextSink, LinesAreThoseOfTheReadme) {
  const std::vector<std::pair<RegionSummary, std::string>> rows{
      {readme_row("step", 61, 0.0328, 0.409, {}, {0.269, 0.311, 0, 0, 0.012}, 500e3, 0.034),
       "step@gpu0    n=61 32.8 ms/it MFU=40.9% bound=compute tok/s=500k | other 31.1 gemm-loss 26.9 idle 1.2"},
      {readme_row("prefill", 35, 0.00226, 0.328, 0.072, {0.225, 0.367, 0, 0, 0.079}, 1.81e6, 0.0023),
       "prefill@gpu0 n=35 2.26 ms/it MFU=32.8% MBU=7.2% bound=compute tok/s=1.81M | other 36.7 gemm-loss 22.5 idle "
       "7.9"},
      {readme_row("decode", 4526, 0.000423, 0.005, 0.294, {0.459, 0.220, 0, 0, 0.314}, 18.9e3, 0.00043),
       "decode@gpu0  n=4526 423 µs/it MBU=29.4% MFU=0.5% bound=memory tok/s=18.9k | gemm-loss 45.9 idle 31.4 other "
       "22.0"}};
  for (const auto& [row, expected] : rows) {
    EXPECT_EQ(region_line(row), expected);
    double sum = *row.mfu;
    for (const double part : *row.lost) sum += part;
    EXPECT_NEAR(sum, 1, 0.0025) << expected;
  }
}

/// The whole waterfall is in a line of 120 columns; all but the first figure gives way for it.
TEST(TextSink, TheWaterfallComesBeforeWhatElseALineHas) {
  const std::string path = new_folder();
  TextSink sink(path + "/log", 0, false);
  WindowSummary window;
  window.window = {0, 10 * kNsPerSecond};
  RegionSummary long_one =
      readme_row("prefill_or_mixed", 2136, 0.0327, 0.405, 0.139, {0.269, 0.2, 0.06, 0.054, 0.012}, 501e3, 0.0363);
  long_one.executed = ExecutedWork{1e15, 950'000'000, 1'000'000'000, 4'000'000'000};
  long_one.hfu = 0.41;
  window.regions = {long_one, readme_row("step", 61, 0.0328, 0.409, {}, {0.269, 0.311, 0, 0, 0.012}, 500e3, 0.0363)};
  ASSERT_TRUE(sink.write(window).ok());
  std::ifstream in(path + "/log");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 120u) << line;
  EXPECT_NE(lines[0].find("| gemm-loss 26.9 other 20.0 comm 6.0 copy 5.4 idle 1.2"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("MFU=40.5%"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("| other 31.1 gemm-loss 26.9 idle 1.2"), std::string::npos) << lines[1];
  std::filesystem::remove_all(path);
}

TEST(TextSink, NoFigureIsMoreThanAHundredPercentOrNegative) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    RegionSummary r = region_with_instances();
    testing_impossible::make_random(r, random);
    WindowSummary run;
    run.regions = {r};
    const std::string table = region_table(run, true);
    for (const std::string& text : {region_line(r), table}) {
      EXPECT_EQ(testing_impossible::in_text(text), std::vector<std::string>{}) << text;
      EXPECT_EQ(text.find("-0.0"), std::string::npos) << text;
      EXPECT_EQ(text.find("suspect: ") == std::string::npos, r.suspect.empty()) << text;
    }
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size() + 6, 120u) << line;
  }
}

TEST(ComponentText, FlopOfThreeSourcesStandSideBySide) {
  RegionSummary r;
  EXPECT_EQ(flop_text(r), "");
  r.executed = ExecutedWork{};
  EXPECT_EQ(flop_text(r), "") << "no product was seen";
  r.executed->flop = 1.5e12;
  r.executed->covered_ns = 899;
  r.executed->matmul_ns = 1000;
  EXPECT_EQ(flop_text(r), "") << "those of a part would be read as those of all";
  r.executed->covered_ns = 989;
  EXPECT_EQ(flop_text(r), "1.50 TFLOP asked for in 98% of the matmul time");
  r.flop = 1.25e12;
  r.executed->tile_flop = 2.25e12;
  r.executed->tiled_ns = 600;
  EXPECT_EQ(flop_text(r),
            "1.25 TFLOP by the model, 1.50 TFLOP asked for in 98% of the matmul time, 2.25 TFLOP in the tiles of 60%");
}

TEST(TextSink, EveryLineHasThePrefix) {
  const std::string path = new_folder();
  TextSink sink(path + "/log", 2, true);
  WindowSummary window;
  window.regions = {full_region(), full_region()};
  ASSERT_TRUE(sink.write(window).ok());
  window.final_run = true;
  ASSERT_TRUE(sink.write(window).ok());
  ASSERT_TRUE(sink.event({0, "note", "a\nb"}).ok());
  std::ifstream in(path + "/log");
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) EXPECT_EQ(line.rfind("[mfu] r2 ", 0), 0u) << line;
  EXPECT_GE(count, 8);
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace mfu
