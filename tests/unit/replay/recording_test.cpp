// What the library records is read back as it was: times to the ns, owners, shapes; and its memory has an end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/base/counters.h"
#include "core/recording/recording_ring.h"
#include "core/recording/recording_writer.h"
#include "tools/replay/process_replay.h"
#include "tools/replay/trace_launches.h"
#include "tools/trace/open_trace.h"

namespace mfu {
namespace {

namespace fs = std::filesystem;

constexpr TimeNs kStart = 1'763'755'200'123'456'789;  // UTC: more digits than a double holds

class Recording : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "mfu-recording-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void work(TimeNs begin, TimeNs end, std::uint32_t correlation, InstanceId owner, bool first = true,
            std::uint32_t device = 0) {
    ActivityRecord record;
    record.begin_ns = begin;
    record.end_ns = end;
    record.correlation = CorrelationId{correlation};
    record.device = DeviceId{device};
    record.stream = StreamId{7};
    record.name = names_.intern("gemm_kernel");
    ring_.on_record(record, owner, first);
  }
  /// One launch of one activity, as the decoder would have made it.
  void activity(ActivityKind kind, const char* name, std::uint64_t extent,
                CopyDirection direction = CopyDirection::kUnknown) {
    ActivityRecord record;
    record.begin_ns = kStart + 100 * ++activities_;
    record.end_ns = record.begin_ns + 50;
    record.correlation = CorrelationId{static_cast<std::uint32_t>(activities_)};
    record.stream = StreamId{7};
    record.kind = kind;
    record.extent = extent;
    record.direction = direction;
    if (kind == ActivityKind::kKernel) record.name = names_.intern(name);
    ring_.on_record(record, InstanceId::kNone, true);
  }
  void open(std::uint32_t id, TimeNs at, std::uint32_t thread, InstanceKind kind = InstanceKind::kThread) {
    InstanceSlot& slot = slots_[id];
    slot.id = InstanceId{id};
    slot.os_thread = thread;
    slot.kind = kind;
    slot.region = rules_.open(rules_.match("", "decode"), "decode", nullptr).region;
    slot.rule = rules_.match("", "decode");
    slot.shape = {};
    slot.shape.set(ShapeWords::kBatch, 4);
    slot.shape.set(ShapeWords::kContext, 100 + id);
    ring_.on_open(slot, at);
  }
  void close(std::uint32_t id, TimeNs at) { ring_.on_close(slots_[id], at); }

  Result<void> write(const std::string& path, TimeNs now, DurationNs budget = 60 * kNsPerSecond) {
    TraceHeader header;
    header.host = "a \"host\"";
    header.pid = 4711;
    DeviceFacts facts;
    facts.name = "NVIDIA H100 80GB HBM3";
    header.devices.emplace_back(facts, Peak{});
    return write_trace(path, ring_.snapshot(now), header, rules_, names_, budget);
  }

  fs::path folder_;
  Counters counters_;
  std::vector<std::string> warnings_;
  RegionRules rules_{{}, {}, warnings_};
  KernelNames names_{counters_};
  RecordingRing ring_{60 * kNsPerSecond};
  std::map<std::uint32_t, InstanceSlot> slots_;
  int activities_ = 0;
};

TEST_F(Recording, IsReadBackToTheNanosecond) {
  ring_.set_origin(kStart);
  open(1, kStart + 1'001, 11);
  work(kStart + 2'003, kStart + 5'007, 21, InstanceId{1});
  work(kStart + 5'009, kStart + 6'011, 21, InstanceId{1}, false);  // of the same launch
  close(1, kStart + 4'005);
  work(kStart + 7'013, kStart + 8'017, 22, InstanceId::kNone);
  const std::string path = (folder_ / "new" / "t.json").string();
  const auto done = write(path, kStart + 10'019);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto trace = open_trace(path);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->base_ns, kStart);
  ASSERT_TRUE(trace->recording.has_value());
  EXPECT_TRUE(trace->recording->whole_run);
  EXPECT_EQ(trace->recording->end_ns, 10'019);
  ASSERT_EQ(trace->ranges.size(), 1u);
  EXPECT_EQ(trace->ranges[0].begin_ns, 1'001);
  EXPECT_EQ(trace->ranges[0].end_ns, 4'005);
  EXPECT_EQ(trace->strings.at(trace->ranges[0].name), "decode batch=4 context=101");
  EXPECT_EQ(trace->launches.size(), 2u);
  ASSERT_EQ(trace->activities.size(), 3u);
  TimeNs sum = 0;
  for (const TraceActivity& a : trace->activities) {
    sum += a.end_ns - a.begin_ns;
    EXPECT_NE(a.launch, kNoLaunch);
  }
  EXPECT_EQ(sum, 3'004 + 1'002 + 1'004);
  const auto processes = trace_regions(*trace, Config{});
  const WindowSummary& whole = processes.at(0).whole;
  EXPECT_EQ(whole.launches.attributed, 1u);
  EXPECT_EQ(whole.launches.outside, 1u);
  EXPECT_EQ(whole.regions.at(0).region, "decode");
  EXPECT_EQ(whole.regions.at(0).kernels, 2u);
  EXPECT_EQ(whole.regions.at(0).elapsed_ns, 6'011 - 1'001);
  EXPECT_EQ(whole.window.begin_ns, kStart);
  EXPECT_EQ(whole.window.end_ns, kStart + 10'019);
}

/// What the step detector is fed from the file is what it was fed in the process.
TEST_F(Recording, LaunchesAreReadBackWithGridsAndDirections) {
  ring_.set_origin(kStart);
  const Grid norm{4096, 1, 1}, attention{32, 16, 4}, largest{2'147'483'647, 65'535, 65'535};
  activity(ActivityKind::kMemcpy, "", 64, CopyDirection::kToDevice);
  activity(ActivityKind::kKernel, "rms_norm_kernel", pack(norm));
  activity(ActivityKind::kKernel, "flash_fwd_kernel", pack(attention));
  activity(ActivityKind::kMemset, "", 32);
  activity(ActivityKind::kMemcpy, "", 128, CopyDirection::kWithin);
  activity(ActivityKind::kKernel, "rms_norm_kernel", pack(largest));
  activity(ActivityKind::kGraph, "", 0);
  activity(ActivityKind::kKernel, "of_unknown_grid", 0);
  activity(ActivityKind::kMemcpy, "", 4, CopyDirection::kToHost);
  activity(ActivityKind::kMemcpy, "", 4);
  const std::string path = (folder_ / "t.json").string();
  ASSERT_TRUE(write(path, kStart + 10'000).ok());
  const auto trace = open_trace(path);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto devices = trace_launches(*trace);
  ASSERT_EQ(devices.size(), 1u);
  struct Expected {
    KernelRole role;
    Grid grid;
  };
  using enum KernelRole;
  const std::vector<Expected> expected{{kCopyToDevice, {}}, {kNorm, norm},     {kAttention, attention},
                                       {kMemset, {}},       {kCopyWithin, {}}, {kNorm, largest},
                                       {kGraph, {}},        {kOther, {}},      {kCopyToHost, {}},
                                       {kCopyWithin, {}}};
  ASSERT_EQ(devices[0].launches.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(devices[0].launches[i].traits.role, expected[i].role) << i;
    EXPECT_EQ(devices[0].launches[i].grid, expected[i].grid) << i;
  }
  std::map<CopyDirection, std::uint64_t> bytes;  // the file holds the newest first
  for (const TraceActivity& a : trace->activities) {
    const ActivityRecord record = to_kernel_record(*trace, a);
    if (record.kind == ActivityKind::kMemcpy) bytes[record.direction] = record.extent;
  }
  EXPECT_EQ(bytes, (std::map<CopyDirection, std::uint64_t>{{CopyDirection::kToDevice, 64},
                                                           {CopyDirection::kWithin, 128},
                                                           {CopyDirection::kToHost, 4},
                                                           {CopyDirection::kUnknown, 4}}));
}

TEST_F(Recording, AGraphThatBeginsWithACopyIsAGraph) {
  ring_.set_origin(kStart);
  ActivityRecord record;
  record.begin_ns = kStart + 100;
  record.end_ns = kStart + 150;
  record.correlation = CorrelationId{1};
  record.graph = GraphId{5};
  record.kind = ActivityKind::kMemcpy;
  record.direction = CopyDirection::kToDevice;
  ring_.on_record(record, InstanceId::kNone, true);
  record.begin_ns = kStart + 200;
  record.end_ns = kStart + 250;
  record.kind = ActivityKind::kKernel;
  record.name = names_.intern("gemm_kernel");
  record.extent = pack({8, 8, 1});
  ring_.on_record(record, InstanceId::kNone, false);
  const std::string path = (folder_ / "t.json").string();
  ASSERT_TRUE(write(path, kStart + 10'000).ok());
  const auto trace = open_trace(path);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto devices = trace_launches(*trace);
  ASSERT_EQ(devices.size(), 1u);
  ASSERT_EQ(devices[0].launches.size(), 1u);
  EXPECT_EQ(devices[0].launches[0].traits.role, KernelRole::kGraph);
  EXPECT_EQ(devices[0].launches[0].grid, Grid{});
}

/// Whoever owns a launch, on regions of several threads: the replay finds the same owner.
TEST_F(Recording, EveryLaunchGoesBackToItsRegion) {
  const auto seed = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto up_to = [&random](int n) { return std::uniform_int_distribution<int>(0, n)(random); };
  ring_.set_origin(kStart);
  TimeNs now = kStart;
  std::uint64_t attributed = 0, outside = 0;
  std::uint32_t id = 0, correlation = 0;
  const auto launch = [&](InstanceId owner) {
    now += 1 + up_to(50);
    work(now + up_to(2'000), now + 2'000 + up_to(2'000), ++correlation, owner);
    ++(owner == InstanceId::kNone ? outside : attributed);
  };
  for (int i = 0; i < 300; ++i) {
    for (int k = up_to(2); k > 0; --k) launch(InstanceId::kNone);
    const std::uint32_t mine = ++id;
    open(mine, now += 1 + up_to(20), 11 + static_cast<std::uint32_t>(up_to(3)));
    for (int k = up_to(4); k > 0; --k) launch(InstanceId{mine});
    close(mine, now += 1 + up_to(30));
    now += 1;
  }
  const std::string path = (folder_ / "t.json").string();
  ASSERT_TRUE(write(path, now + 10'000).ok());
  const auto trace = open_trace(path);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto processes = trace_regions(*trace, Config{});
  EXPECT_EQ(processes.at(0).whole.launches.attributed, attributed);
  EXPECT_EQ(processes.at(0).whole.launches.outside, outside);
}

TEST_F(Recording, TheRingHasAnEnd) {
  ring_.set_origin(kStart);
  constexpr std::uint32_t kMany = 300'000, kHeld = 1u << 18;
  TimeNs now = kStart;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    now += 100;
    work(now, now + 50, i, InstanceId::kNone);
  }
  for (std::uint32_t i = 0; i < 50'000; ++i) {
    open(1, now, 11);
    close(1, ++now);
  }
  const TraceSnapshot snapshot = ring_.snapshot(now);
  EXPECT_EQ(snapshot.activities.size(), kHeld);
  EXPECT_EQ(snapshot.left_out, kMany - kHeld);
  EXPECT_EQ(raw(snapshot.activities.front().correlation), kMany - kHeld);
  EXPECT_EQ(snapshot.instances.size(), 1u << 15);
  EXPECT_FALSE(snapshot.whole_run);
  EXPECT_LE(ring_.resident_bytes(), 15u << 20);
}

TEST_F(Recording, OnlyTheLastSeconds) {
  ring_.set_origin(kStart);
  work(kStart, kStart + 10, 1, InstanceId::kNone);
  work(kStart + 50 * kNsPerSecond, kStart + 50 * kNsPerSecond + 10, 2, InstanceId::kNone);
  EXPECT_TRUE(ring_.snapshot(kStart + 55 * kNsPerSecond).whole_run);
  const TraceSnapshot later = ring_.snapshot(kStart + 100 * kNsPerSecond);
  ASSERT_EQ(later.activities.size(), 1u);
  EXPECT_EQ(raw(later.activities[0].correlation), 2u);
  EXPECT_FALSE(later.whole_run);
}

TEST_F(Recording, WithoutTimeTheOldestAreLeftOutAndTheFileIsWhole) {
  ring_.set_origin(kStart);
  for (std::uint32_t i = 0; i < 10; ++i) work(kStart + i * 100, kStart + i * 100 + 50, i, InstanceId::kNone);
  const std::string path = (folder_ / "t.json").string();
  ASSERT_TRUE(write(path, kStart + 5'000, -1).ok());
  const auto document = nlohmann::json::parse(std::ifstream(path));
  EXPECT_EQ(document["mfu_end"]["activities_left_out"], 10);
  const auto trace = open_trace(path);
  ASSERT_TRUE(trace.ok());
  EXPECT_FALSE(trace->recording->whole_run);
  EXPECT_EQ(trace->processes[0].notes.at("recording_left_out"), 10u);
}

TEST_F(Recording, ErrorsNameThePathAndLeaveNothing) {
  work(kStart, kStart + 10, 1, InstanceId::kNone);
  const auto in_proc = write("/proc/nowhere/t.json", kStart + 100);
  ASSERT_FALSE(in_proc.ok());
  EXPECT_EQ(in_proc.error().message.substr(0, 40), "/proc/nowhere/t.json: cannot be written:");
  fs::create_directories(folder_ / "t.json");
  const auto on_folder = write((folder_ / "t.json").string(), kStart + 100);
  ASSERT_FALSE(on_folder.ok());
  EXPECT_FALSE(fs::exists(folder_ / "t.json.part"));
}

}  // namespace
}  // namespace mfu
