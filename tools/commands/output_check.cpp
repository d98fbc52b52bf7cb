#include "tools/commands/output_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace mfu {
namespace {

namespace fs = std::filesystem;

/// By doing it: permissions do not tell of a read-only mount, a full quota or /proc.
Result<void> make_a_file_in(const fs::path& folder, const std::string& meant) {
  std::string name = (folder / ".mfu-write-test-XXXXXX").string();
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return Error{meant + ": cannot be written: " + std::strerror(errno)};
  ::close(fd);
  ::unlink(name.c_str());
  return {};
}

}  // namespace

Result<void> check_output_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd >= 0) {
    ::close(fd);
    return {};
  }
  if (errno == ENXIO) return {};  // a named pipe without a reader yet
  if (errno != ENOENT) return Error{path + ": cannot be written: " + std::strerror(errno)};
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  struct ::stat info {};
  if (::stat(folder.c_str(), &info) != 0) return Error{path + ": there is no folder " + folder.string()};
  return make_a_file_in(folder, path);
}

Result<void> check_output_folder(const std::string& path) {
  std::error_code error;
  fs::path there = fs::absolute(path, error).lexically_normal();
  struct ::stat info {};
  while (::stat(there.c_str(), &info) != 0) {
    if (errno != ENOENT || !there.has_relative_path()) return Error{path + ": cannot be used: " + std::strerror(errno)};
    there = there.parent_path();
  }
  if (!S_ISDIR(info.st_mode)) return Error{path + ": " + there.string() + " is a file, expected a folder"};
  return make_a_file_in(there, path);
}

}  // namespace mfu
