#include "core/base/file_start.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

namespace mfu {
namespace {

/// A file with `content`, gone with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view content) {
    const int file = ::mkstemp(path_.data());
    EXPECT_GE(file, 0);
    EXPECT_EQ(::write(file, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    ::close(file);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  [[nodiscard]] const char* path() const { return path_.c_str(); }

 private:
  std::string path_ = ::testing::TempDir() + "file_startXXXXXX";
};

TEST(FileStart, ReadsAWholeFileOrAsMuchAsThereIsRoomFor) {
  const TemporaryFile file("Name:\tpython\nState:\tR\n");
  std::array<char, 64> wide;
  EXPECT_EQ(file_start(file.path(), wide), "Name:\tpython\nState:\tR\n");
  std::array<char, 4> narrow;
  EXPECT_EQ(file_start(file.path(), narrow), "Name");
  EXPECT_EQ(file_start(file.path(), std::span<char>()), "");
}

TEST(FileStart, IsEmptyWhereNothingCanBeRead) {
  std::array<char, 64> text;
  EXPECT_EQ(file_start("/nonexistent/file", text), "");
  EXPECT_EQ(file_start("/proc", text), "") << "a directory";
  EXPECT_EQ(file_start(TemporaryFile("").path(), text), "");
}

TEST(FileStart, ReadsProc) {
  std::array<char, 512> text;
  const std::string key = "\nPid:\t" + std::to_string(::getpid()) + "\n";
  EXPECT_NE(file_start("/proc/self/status", text).find(key), std::string_view::npos);
}

}  // namespace
}  // namespace mfu
