// TensorBoard's record format, byte by byte, against the published check values and a reader written from its
// description.
#include "core/sinks/event_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "core/sinks/sink_tensorboard.h"

namespace mfu {
namespace {

namespace fs = std::filesystem;

TEST(EventFileTest, ChecksumsAreThoseOfTheStandard) {
  // RFC 3720, B.4, and the check value of CRC-32/ISCSI.
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending.push_back(c);
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(crc32c(""), 0u);
}

template <typename T>
T fixed(std::string_view& from) {
  T value{};
  EXPECT_GE(from.size(), sizeof value);
  std::memcpy(&value, from.data(), sizeof value);  // the test's machine is little-endian, as the format is
  from.remove_prefix(sizeof value);
  return value;
}

std::uint64_t varint(std::string_view& from) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = fixed<unsigned char>(from);
    value |= static_cast<std::uint64_t>(byte & 0x7Fu) << shift;
    if (byte < 0x80) return value;
  }
}

/// Fields of a message: number > values as raw bytes (varints and fixed ones re-encoded as 8 bytes).
std::multimap<int, std::string> fields(std::string_view message) {
  std::multimap<int, std::string> found;
  while (!message.empty()) {
    const std::uint64_t key = varint(message);
    std::uint64_t number = 0;
    switch (key & 7u) {
      case 0:
        number = varint(message);
        break;
      case 1:
        number = fixed<std::uint64_t>(message);
        break;
      case 5:
        number = fixed<std::uint32_t>(message);
        break;
      case 2: {
        const std::uint64_t length = varint(message);
        EXPECT_LE(length, message.size());
        found.emplace(key >> 3u, std::string(message.substr(0, length)));
        message.remove_prefix(length);
        continue;
      }
      default:
        ADD_FAILURE() << "wire type " << (key & 7u);
        return found;
    }
    found.emplace(key >> 3u, std::string(reinterpret_cast<const char*>(&number), sizeof number));
  }
  return found;
}

std::uint64_t number_of(const std::multimap<int, std::string>& message, int field) {
  const auto at = message.find(field);
  if (at == message.end()) return 0;
  std::string_view bytes = at->second;
  return fixed<std::uint64_t>(bytes);
}

std::vector<std::string> records(std::string_view file) {
  const auto unmasked = [](std::uint32_t masked) {
    const std::uint32_t rotated = masked - 0xA282EAD8u;
    return (rotated >> 17u) | (rotated << 15u);
  };
  std::vector<std::string> all;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = fixed<std::uint64_t>(file);
    EXPECT_EQ(unmasked(fixed<std::uint32_t>(file)), crc32c(length_bytes));
    EXPECT_LE(length, file.size());
    all.emplace_back(file.substr(0, length));
    file.remove_prefix(length);
    EXPECT_EQ(unmasked(fixed<std::uint32_t>(file)), crc32c(all.back()));
  }
  return all;
}

TEST(EventFileTest, ScalarsComeBack) {
  const auto header = records(event_file_header(1795e6));
  ASSERT_EQ(header.size(), 1u);
  EXPECT_EQ(fields(header[0]).find(3)->second, "brain.Event:2");
  EXPECT_EQ(std::bit_cast<double>(number_of(fields(header[0]), 1)), 1795e6);

  const std::string long_tag(300, 't');
  const auto event = records(scalar_event(
      12.5, 1'000'000, {{"step/mfu", 0.41}, {"gone", std::numeric_limits<double>::quiet_NaN()}, {long_tag, -2}}));
  ASSERT_EQ(event.size(), 1u);
  const auto outer = fields(event[0]);
  EXPECT_EQ(std::bit_cast<double>(number_of(outer, 1)), 12.5);
  EXPECT_EQ(number_of(outer, 2), 1'000'000u);
  const auto summary = fields(outer.find(5)->second);
  ASSERT_EQ(summary.count(1), 2u);
  std::map<std::string, float> values;
  for (const auto& [field, bytes] : summary) {
    const auto value = fields(bytes);
    values[value.find(1)->second] = std::bit_cast<float>(static_cast<std::uint32_t>(number_of(value, 2)));
  }
  EXPECT_EQ(values, (std::map<std::string, float>{{"step/mfu", 0.41F}, {long_tag, -2.0F}}));
}

TEST(TensorboardSinkTest, StepsAreInstancesAndAFileThatWasRemovedStartsAnew) {
  std::string folder = (fs::temp_directory_path() / "mfu-tb-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  RunInfo run;
  run.host = "node";
  run.rank = 3;
  run.pid = 42;
  run.t_ns = 1'795'000'000 * kNsPerSecond;
  TensorboardSink sink(folder, run);
  EXPECT_EQ(sink.path(), folder + "/node-3-42/events.out.tfevents.1795000000.node");
  ASSERT_TRUE(sink.start(run));
  EXPECT_FALSE(fs::exists(sink.path())) << "nothing to say yet";
  WindowSummary window;
  for (const char* name : {"step", "total"}) {
    RegionSummary r;
    r.region = name;
    r.instances = 25;
    r.mfu = 0.25;
    window.regions.push_back(r);
  }
  window.window = {run.t_ns, run.t_ns + 10 * kNsPerSecond};
  const auto read = [&sink] {
    std::ostringstream all;
    all << std::ifstream(sink.path(), std::ios::binary).rdbuf();
    return records(all.str());
  };
  ASSERT_TRUE(sink.write(window));
  ASSERT_TRUE(sink.write(window));
  const auto all = read();
  ASSERT_EQ(all.size(), 5u);  // the header, then a record per region and window
  EXPECT_EQ(number_of(fields(all[1]), 2), 25u);
  EXPECT_EQ(number_of(fields(all[2]), 2), 1u) << "total: the window's number";
  EXPECT_EQ(number_of(fields(all[3]), 2), 50u);
  EXPECT_EQ(std::bit_cast<double>(number_of(fields(all[3]), 1)), 1795000010.0);
  fs::remove(sink.path());
  ASSERT_TRUE(sink.write(window));
  EXPECT_EQ(fields(read().front()).count(3), 1u) << "a header first";
  fs::remove_all(folder);
  std::ofstream(folder) << "a file where the folder should be";
  EXPECT_FALSE(sink.write(window));
  fs::remove(folder);
}

}  // namespace
}  // namespace mfu
