#include "tools/run_dir/run_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace mfu {
namespace {

constexpr std::size_t kChunk = 256 * 1024;
constexpr std::size_t kStartChunk = 16 * 1024;    ///< a start line fits, as a rule
constexpr std::size_t kLongestLine = 16u << 20u;  ///< beyond it, what is read is not a run directory's file
constexpr std::size_t kOdditiesKept = 8;

class Descriptor {
 public:
  // O_NONBLOCK: should a FIFO have taken the file's place.
  explicit Descriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

/// How much of the file's end holds its last whole window: it ends with a row of `total`, and begins behind one.
std::uint64_t tail_bytes(int file, std::uint64_t size) {
  constexpr std::uint64_t kMost = 16u << 20u;
  constexpr std::string_view kTotal = R"("region":"total")";  // in a name its quotes would be escaped
  std::string text;
  for (std::uint64_t tail = RunFile::kTailBytes;; tail *= 4) {
    tail = std::min(tail, size);
    if (tail >= std::min(size, kMost)) return tail;
    text.resize(tail);
    const ::ssize_t got = ::pread(file, text.data(), tail, static_cast<off_t>(size - tail));
    if (got < 0) return tail;
    text.resize(static_cast<std::size_t>(got));
    const std::size_t last = text.rfind(kTotal);
    if (last != std::string::npos && last != 0 && text.rfind(kTotal, last - 1) != std::string::npos) return tail;
  }
}

}  // namespace

void RunFile::odd(std::string_view message) {
  ++bad_lines_;
  if (oddities_.size() >= kOdditiesKept) return;
  oddities_.push_back(fmt::format("{}:{}: {}", path_, numbered_ ? std::to_string(line_) : "(near its end)", message));
}

void RunFile::take(std::string_view line, const std::function<void(RunLine&&)>& on_line) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  thread_local RunLineReader reader;
  Result<RunLine> read = reader.read(line);
  if (!read) {
    odd(read.error().message);
    return;
  }
  if (read->v > kRunLineVersion) ++newer_lines_;
  on_line(std::move(*read));
}

Result<std::size_t> RunFile::poll(const std::function<void(RunLine&&)>& on_line) {
  return poll_text([&](std::string_view text, std::uint64_t) { take(text, on_line); });
}

Result<std::size_t> RunFile::poll_text(const OnText& on_text) {
  const auto failed = [this](const char* what) {
    return Error{fmt::format("{}: {}: {}", path_, what, std::strerror(errno))};
  };
  restarted_ = false;
  struct ::stat at {};
  if (::stat(path_.c_str(), &at) != 0) return failed("cannot be read");
  if (!S_ISREG(at.st_mode)) return Error{path_ + ": not a file"};
  auto size = std::min(static_cast<std::uint64_t>(at.st_size), end_);
  if (inode_ == at.st_ino && size == offset_) return std::size_t{0};  // the usual case costs one call
  const Descriptor file(path_);
  if (file.get() < 0) return failed("cannot be opened");
  if (::fstat(file.get(), &at) != 0) return failed("cannot be read");
  if (!S_ISREG(at.st_mode)) return Error{path_ + ": not a file"};
  size = std::min(static_cast<std::uint64_t>(at.st_size), end_);
  constexpr std::size_t kHead = 256;  // of a start line: its time, host and pid
  std::string head(std::min<std::uint64_t>(kHead, size), '\0');
  if (const ::ssize_t got = ::pread(file.get(), head.data(), head.size(), 0); got < 0) return failed("cannot be read");
  const bool same = at.st_ino == inode_ && head.starts_with(head_);
  if (inode_ != 0 && (!same || size < offset_)) {
    restarted_ = true;
    offset_ = line_ = 0;
    numbered_ = true;
    half_.clear();
  }
  inode_ = at.st_ino;
  head_ = std::move(head);

  std::size_t lines = 0;
  bool skip_first = false;  // the line that a jump to the tail lands in
  bool start_only = from_ == From::kTail && offset_ == 0 && size > 2 * kTailBytes;
  // One for all files of a thread: a job has thousands of them.
  thread_local std::vector<char> buffer(kChunk);
  while (offset_ < size) {
    const std::size_t wanted = start_only ? kStartChunk : kChunk;
    const ::ssize_t got = ::pread(file.get(), buffer.data(), std::min<std::uint64_t>(wanted, size - offset_),
                                  static_cast<off_t>(offset_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("cannot be read");
    if (got == 0) break;
    offset_ += static_cast<std::uint64_t>(got);
    std::string_view rest(buffer.data(), static_cast<std::size_t>(got));
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      std::string_view line = rest.substr(0, end);
      const std::uint64_t begin = offset_ - rest.size() - half_.size();
      if (!half_.empty()) {
        half_.append(line);
        line = half_;
      }
      if (skip_first) {
        skip_first = false;
      } else {
        ++line_;
        on_text(line, begin);
        ++lines;
      }
      half_.clear();
      rest.remove_prefix(end + 1);
      if (start_only) break;
    }
    if (start_only && lines != 0) {
      start_only = false;
      const std::uint64_t behind_start = offset_ - rest.size();
      const std::uint64_t tail = size - tail_bytes(file.get(), size);
      numbered_ = tail <= behind_start;
      skip_first = !numbered_;
      offset_ = std::max(tail, behind_start);
      half_.clear();
      continue;
    }
    half_.append(rest);
    if (half_.size() > kLongestLine) {
      odd(fmt::format("a line of more than {} MB", kLongestLine >> 20u));
      half_.clear();
      offset_ = size;
      skip_first = true;
    }
  }
  return lines;
}

Result<std::vector<std::string>> list_run_files(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (!fs::exists(status)) return Error{fmt::format("{}: no such file or directory", path)};
  if (!fs::is_directory(status)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  fs::directory_iterator entries(path, failed);
  if (failed) return Error{fmt::format("{}: cannot be listed: {}", path, failed.message())};
  for (; entries != fs::directory_iterator(); entries.increment(failed)) {
    if (failed) return Error{fmt::format("{}: cannot be listed: {}", path, failed.message())};
    if (entries->path().extension() == ".jsonl") files.push_back(entries->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace mfu
