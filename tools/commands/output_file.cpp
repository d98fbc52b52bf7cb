#include "tools/commands/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace mfu {
namespace {

namespace fs = std::filesystem;

Error cannot(const std::string& path, const char* be_what, int why) {
  return Error{path + ": cannot be " + be_what + ": " + std::strerror(why)};
}

/// Writes the file that is open at `name`, which a person knows as `path`.
Result<void> fill(const std::string& name, const std::string& path, const WriteOutput& write,
                  std::ios::openmode how = std::ios::trunc) {
  std::ofstream file(name, std::ios::binary | how);
  if (!file) return cannot(path, "written", errno);
  if (auto done = write(file); !done) return done;
  file.close();
  return file ? Result<void>() : cannot(path, "written", errno);
}

}  // namespace

Result<void> replace_file(const std::string& path, PathFrom from, const WriteOutput& write) {
  // Beyond RLIMIT_FSIZE a write fails, and does not end the process with half a file left.
  (void)::signal(SIGXFSZ, SIG_IGN);
  struct ::stat there {};
  const bool exists = ::lstat(path.c_str(), &there) == 0;
  std::string target = path;
  if (exists && !S_ISREG(there.st_mode)) {
    if (from == PathFrom::kDefault) return Error{path + ": is there and is no regular file"};
    std::error_code failed;
    const fs::path real = fs::canonical(path, failed);
    // A stream of this process may lead to a file in which others have written.
    if (path.starts_with("/dev/") || path.starts_with("/proc/")) return fill(path, path, write, std::ios::app);
    if (failed || ::lstat(real.c_str(), &there) != 0 || !S_ISREG(there.st_mode)) return fill(path, path, write);
    target = real.string();
  }
  const std::string fresh = target + "." + std::to_string(::getpid()) + ".tmp";
  // The name can be guessed: a file that is there is removed, never followed or written into.
  ::unlink(fresh.c_str());
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return exists && from == PathFrom::kUser ? fill(path, path, write) : cannot(path, "written", errno);
  if (exists) (void)::fchmod(file, there.st_mode & 0777);
  // By its descriptor: another file may have got the name by now.
  Result<void> done = fill("/proc/self/fd/" + std::to_string(file), path, write);
  if (::close(file) != 0 && done) done = cannot(path, "written", errno);
  if (done && ::rename(fresh.c_str(), target.c_str()) != 0) done = cannot(path, "replaced", errno);
  if (!done) ::unlink(fresh.c_str());
  return done;
}

Result<void> write_to(const std::string& output, const WriteOutput& write) {
  if (!output.empty() && output != "-") return replace_file(output, PathFrom::kUser, write);
  if (auto done = write(std::cout); !done) return done;
  std::cout.flush();
  return std::cout ? Result<void>() : Error{"stdout: cannot be written"};
}

}  // namespace mfu
