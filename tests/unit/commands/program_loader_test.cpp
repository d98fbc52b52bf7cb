// Programs made of nothing but headers, by the ELF specification (System V ABI, chapters 4 and 5), not by <elf.h>.
#include "tools/commands/program_loader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace mfu {
namespace {

#if defined(__aarch64__)
constexpr unsigned kMachine = 183, kOther = 62;
#else
constexpr unsigned kMachine = 62, kOther = 183;
#endif
constexpr std::uint64_t kHeaderBytes = 64, kSegmentBytes = 56, kDynamic = 2, kInterpreter = 3;

std::string number(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i, value >>= 8) out += static_cast<char>(value & 0xFF);
  return out;
}

/// Segments by their type, with what is in them.
std::string program(unsigned machine, const std::vector<std::pair<std::uint64_t, std::string>>& segments) {
  std::string table, rest;
  for (const auto& [type, data] : segments) {
    const std::uint64_t at = kHeaderBytes + kSegmentBytes * segments.size() + rest.size();
    table += number(type, 4) + number(4, 4) + number(at, 8) + number(0, 16) + number(data.size(), 8) +
             number(data.size(), 8) + number(1, 8);
    rest += data;
  }
  return "\x7f"
         "ELF\x02\x01\x01" +
         std::string(9, '\0') + number(2, 2) + number(machine, 2) + number(1, 4) + number(0, 8) +
         number(kHeaderBytes, 8) + number(0, 8) + number(0, 4) + number(kHeaderBytes, 2) + number(kSegmentBytes, 2) +
         number(segments.size(), 2) + number(0, 6) + table + rest;
}

std::string interpreter(const std::string& path) { return path + std::string(1, '\0'); }

class ProgramLoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mfu-program-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string why(const std::string& bytes) {
    const std::string file = folder_ / "program";
    std::ofstream(file, std::ios::binary) << bytes;
    ::chmod(file.c_str(), 0755);
    return cannot_load_because(file);
  }

  std::filesystem::path folder_;
};

TEST_F(ProgramLoaderTest, TellsWhatTheLibraryCannotBeLoadedInto) {
  EXPECT_EQ(why(program(kMachine, {{kInterpreter, interpreter("/lib64/ld-linux-x86-64.so.2")}, {kDynamic, ""}})), "");
  EXPECT_EQ(why(program(kMachine, {{kInterpreter, interpreter("/lib/ld-musl-x86_64.so.1")}, {kDynamic, ""}})),
            "is linked against musl (/lib/ld-musl-x86_64.so.1), and the library needs glibc");
  EXPECT_EQ(why(program(kMachine, {{1, ""}})), "is linked statically, and loads no library");
  EXPECT_EQ(why(program(kOther, {{kInterpreter, interpreter("/lib/ld-linux.so.2")}, {kDynamic, ""}})),
            "is for another processor than this library");
}

TEST_F(ProgramLoaderTest, WhatIsNoProgramIsNotJudged) {
  EXPECT_EQ(why("#!/bin/sh\nexit 0\n"), "");
  EXPECT_EQ(why(""), "");
  EXPECT_EQ(cannot_load_because((folder_ / "missing").string()), "");
  EXPECT_EQ(cannot_load_because(folder_.string()), "");
  EXPECT_EQ(cannot_load_because(""), "");
}

TEST_F(ProgramLoaderTest, AFileThatIsCutShortIsNotJudged) {
  const std::string whole =
      program(kMachine, {{kInterpreter, interpreter("/lib/ld-musl-x86_64.so.1")}, {kDynamic, ""}});
  for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) EXPECT_EQ(why(whole.substr(0, bytes)), "") << bytes;
}

TEST_F(ProgramLoaderTest, IsFoundAsAShellFindsIt) {
  (void)why(program(kOther, {}));
  const char* before = std::getenv("PATH");
  const std::string path = before != nullptr ? before : "";
  ::setenv("PATH", ("/nonexistent:" + folder_.string()).c_str(), 1);
  EXPECT_EQ(cannot_load_because("program"), "is for another processor than this library");
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace mfu
