#include "core/base/line_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mfu {

namespace {

/// Holds SIGPIPE (nobody reads) and SIGXFSZ (the file may not grow) off the calling thread, and takes back what a write
/// of ours raised: both kill a process that does not expect them.
class NoWriteSignals {
 public:
  NoWriteSignals() noexcept {
    ::sigset_t pending;
    ::sigpending(&pending);
    ::sigemptyset(&blocked_);
    ::sigemptyset(&ours_);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      ::sigaddset(&blocked_, signal);
      if (::sigismember(&pending, signal) != 1) ::sigaddset(&ours_, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &blocked_, &before_);
  }
  ~NoWriteSignals() {
    const ::timespec now{0, 0};
    while (::sigtimedwait(&ours_, nullptr, &now) > 0) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoWriteSignals(const NoWriteSignals&) = delete;
  NoWriteSignals& operator=(const NoWriteSignals&) = delete;

 private:
  ::sigset_t blocked_{}, ours_{}, before_{};
};

}  // namespace

void make_folders(const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    ::mkdir(path.substr(0, slash).c_str(), 0777);
}

LineFile::LineFile(std::string target)
    : target_(std::move(target)),
      kind_(target_ == "stderr"                    ? Kind::kStderr
            : target_ == "stdout"                  ? Kind::kStdout
            : target_ == "none" || target_.empty() ? Kind::kNone
                                                   : Kind::kFile) {}

bool LineFile::fresh() const noexcept {
  if (kind_ != Kind::kFile) return false;
  struct ::stat info {};
  return ::stat(target_.c_str(), &info) != 0 || info.st_size == 0;
}

Result<void> LineFile::append(std::string_view line) const {
  if (kind_ == Kind::kNone) return {};
  std::string text(line);
  text.push_back('\n');
  return append_bytes(text);
}

Result<void> LineFile::append_bytes(std::string_view text) const {
  if (kind_ == Kind::kNone) return {};
  const NoWriteSignals guard;
  if (kind_ != Kind::kFile) {
    const int fd = kind_ == Kind::kStderr ? STDERR_FILENO : STDOUT_FILENO;
    const char* at = text.data();
    for (std::size_t left = text.size(); left != 0;) {
      const ::ssize_t n = ::write(fd, at, left);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Error{target_ + ": " + std::strerror(errno)};
      at += n;
      left -= static_cast<std::size_t>(n);
    }
    return {};
  }
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY;
  int fd = ::open(target_.c_str(), kFlags, 0644);
  if (fd < 0 && errno == ENOENT) {
    make_folders(target_);
    fd = ::open(target_.c_str(), kFlags, 0644);
  }
  if (fd < 0) return Error{target_ + ": cannot be opened: " + std::strerror(errno)};
  const ::off_t before = ::lseek(fd, 0, SEEK_END);
  ::ssize_t n = 0;
  do n = ::write(fd, text.data(), text.size());
  while (n < 0 && errno == EINTR);
  const int why = errno;
  Result<void> result;
  if (n != static_cast<::ssize_t>(text.size())) {
    if (n > 0 && before >= 0 && ::ftruncate(fd, before) != 0) {
      // The half line stays; the next one still begins on its own line for a reader that skips what it cannot parse.
    }
    result = Error{target_ + ": cannot be written: " + (n < 0 ? std::strerror(why) : "no space left")};
  }
  ::close(fd);
  return result;
}

}  // namespace mfu
