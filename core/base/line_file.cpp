#include "core/base/line_file.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace mfu {
namespace {

/// Holds SIGPIPE (no reader) and SIGXFSZ (the file may not grow) off the calling thread, and takes back what a write
/// here raised: both kill a process that does not expect them.
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
    ::mkdir(path.substr(0, slash).c_str(), 0750);
}

::mode_t mode_beside(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  struct ::stat info {};
  return ::stat(folder.c_str(), &info) == 0 && (info.st_mode & S_IROTH) != 0 ? 0644 : 0640;
}

LineFile::Identity LineFile::Identity::of(int descriptor) noexcept {
  struct ::stat info {};
  if (descriptor < 0 || ::fstat(descriptor, &info) != 0) return {};
  return {true, info.st_dev, info.st_ino, info.st_mode & static_cast<::mode_t>(S_IFMT)};
}

LineFile::LineFile(std::string target, Owner owner)
    : target_(std::move(target)),
      wanted_(target_),
      kind_(target_ == "stderr"                    ? Kind::kStderr
            : target_ == "stdout"                  ? Kind::kStdout
            : target_ == "none" || target_.empty() ? Kind::kNone
                                                   : Kind::kFile),
      owner_(owner) {
  if (kind_ == Kind::kStderr) identity_ = Identity::of(STDERR_FILENO);
  if (kind_ == Kind::kStdout) identity_ = Identity::of(STDOUT_FILENO);
}

Result<void> LineFile::append(std::string_view line) {
  if (kind_ == Kind::kNone) return {};
  std::string text(line);
  text.push_back('\n');
  return append_bytes(text);
}

Result<void> LineFile::append_bytes(std::string_view text) {
  if (kind_ == Kind::kNone) return {};
  return carrier_ != nullptr && kind_ != Kind::kFile ? carrier_->carry(*this, std::string(text)) : write_now(text);
}

Result<void> LineFile::write_now(std::string_view text) {
  const NoWriteSignals guard;
  return kind_ == Kind::kFile ? write_file(text) : write_stream(text);
}

Result<void> LineFile::write_stream(std::string_view text) {
  const int fd = kind_ == Kind::kStderr ? STDERR_FILENO : STDOUT_FILENO;
  // A host that closed its descriptors and opened other files has one of those behind this number.
  if (!identity_.open || Identity::of(fd) != identity_)
    return Error{target_ + ": is no longer the stream of the start"};
  constexpr std::size_t kPortion = 4096;  // a pipe that is ready takes so much without waiting (PIPE_BUF)
  while (!text.empty()) {
    ::pollfd ready{fd, POLLOUT, 0};
    if (::poll(&ready, 1, blocked_ ? 0 : kPatienceMs) <= 0) {
      blocked_ = true;
      return Error{target_ + ": nobody reads it"};
    }
    blocked_ = false;
    const ::ssize_t n = ::write(fd, text.data(), std::min(text.size(), kPortion));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error{target_ + ": " + std::strerror(errno)};
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

namespace {

// O_NONBLOCK: a FIFO without a reader must not hold the thread.
constexpr int kAnyMode = O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
constexpr int kFlags = O_WRONLY | kAnyMode;

/// open(), which makes the folders of `path` when they are missing.
int open_with_folders(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags, mode_beside(path));
  if (fd >= 0 || errno != ENOENT) return fd;
  make_folders(path);
  return ::open(path.c_str(), flags, mode_beside(path));
}

/// `run/a.jsonl`, 2 > `run/a-2.jsonl`
std::string numbered(const std::string& path, int number) {
  const std::size_t slash = path.rfind('/');
  std::size_t dot = path.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) dot = path.size();
  return path.substr(0, dot) + "-" + std::to_string(number) + path.substr(dot);
}

}  // namespace

int LineFile::open_named() const { return open_with_folders(target_, kFlags | O_CREAT); }

int LineFile::open_ours() {
  if (identity_.open) {
    const int fd = ::open(target_.c_str(), O_RDWR | kAnyMode | O_NOFOLLOW);
    if (fd >= 0 && (Identity::of(fd) == identity_ || begins_as_ours(fd))) return fd;
    if (fd >= 0) ::close(fd);
    // It is gone, or something else is in its place: a new file.
    if (fd < 0 && errno != ENOENT && errno != ELOOP && errno != ENXIO && errno != EISDIR) return -1;
    identity_ = {};
  }
  constexpr int kMostNames = 1000;
  for (int number = 1; number <= kMostNames; ++number) {
    const std::string name = number == 1 ? wanted_ : numbered(wanted_, number);
    const int fd = open_with_folders(name, kFlags | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return -1;
    target_ = name;
    identity_ = Identity::of(fd);
    return fd;
  }
  errno = EEXIST;
  return -1;
}

bool LineFile::begins_as_ours(int fd) const {
  std::string begin(head_.size(), '\0');
  return !head_.empty() && Identity::of(fd).type == S_IFREG &&
         ::pread(fd, begin.data(), begin.size(), 0) == static_cast<::ssize_t>(begin.size()) && begin == head_;
}

Result<void> LineFile::write_file(std::string_view text) {
  const int fd = owner_ == Owner::kOurs ? open_ours() : open_named();
  if (fd < 0) return Error{target_ + ": cannot be opened: " + std::strerror(errno)};
  const ::off_t before = ::lseek(fd, 0, SEEK_END);
  const std::string_view header = before == 0 ? std::string_view(header_) : std::string_view();
  const std::string_view gap = half_line_ && before != 0 ? "\n" : "";
  std::array<::iovec, 3> parts{};
  std::size_t bytes = 0, at = 0;
  for (const std::string_view part : {gap, header, text}) {
    parts[at++] = {const_cast<char*>(part.data()), part.size()};
    bytes += part.size();
  }
  ::ssize_t n = 0;
  do n = ::writev(fd, parts.data(), static_cast<int>(parts.size()));
  while (n < 0 && errno == EINTR);
  const int why = errno;
  Result<void> result;
  if (n == static_cast<::ssize_t>(bytes)) {
    half_line_ = false;
    constexpr std::size_t kHead = 128;  // of a start line: its time, host and pid
    if (before == 0) head_ = std::string(header).append(text).substr(0, kHead);
  } else {
    // Where half a line stays, the next one begins behind a line end.
    if (n > 0) half_line_ = before < 0 || ::ftruncate(fd, before) != 0;
    result = Error{target_ + ": cannot be written: " + (n < 0 ? std::strerror(why) : "no space left")};
  }
  // Network file systems report here that the server refused what was written.
  if (::close(fd) != 0 && errno != EINTR && result)
    result = Error{target_ + ": cannot be written: " + std::strerror(errno)};
  return result;
}

}  // namespace mfu
