// Lines of instructions, against what five versions of CPython say of their own code.
#include "core/idle/line_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace mfu {
namespace {

using Table = std::vector<std::uint8_t>;

Table bytes_of(const std::string& hex) {
  Table bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(LineTable, EveryInstructionHasTheLineThatItsInterpreterSays) {
  std::ifstream file(std::string(MFU_TEST_DATA) + "/truth/line_tables.jsonl");
  std::set<unsigned> versions;
  for (std::string line; std::getline(file, line);) {
    const auto code = nlohmann::json::parse(line);
    const unsigned minor = code["minor"];
    versions.insert(minor);
    const Table table = bytes_of(code["table"]);
    for (const auto& [at, wanted] : code["lines"].get<std::vector<std::pair<std::size_t, std::uint32_t>>>())
      EXPECT_EQ(line_of(minor, table, code["first_line"], at), wanted)
          << "CPython 3." << minor << " " << code["name"] << " at " << at;
  }
  EXPECT_EQ(versions, (std::set<unsigned>{9, 10, 11, 12, 13}));
}

TEST(LineTable, AnyBytesAreReadToTheirEnd) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    Table table(random() % 40);
    for (std::uint8_t& byte : table) byte = static_cast<std::uint8_t>(random());
    (void)line_of(9 + i % 6, table, random(), random() % 500);
  }
  EXPECT_EQ(line_of(12, {}, 17, 4), 17u);
}

}  // namespace
}  // namespace mfu
