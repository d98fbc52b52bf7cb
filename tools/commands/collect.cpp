// `mfu collect DIR --to DIR2`: run files of a node's own disk, copied to where they are read together.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/printable.h"
#include "core/base/say.h"
#include "tools/commands/commands.h"
#include "tools/run_dir/find_run_dir.h"
#include "tools/run_dir/run_file.h"

namespace mfu {
namespace {

namespace fs = std::filesystem;

struct CollectOptions {
  std::vector<std::string> directories;
  std::string to;
  bool pieces = false;
  double every_s = 0;
};

struct Copied {
  std::uint64_t files = 0, bytes = 0;
};

/// 0 where there is none.
std::uint64_t size_of(const std::string& path) {
  std::error_code wrong;
  const std::uint64_t size = fs::file_size(path, wrong);
  return wrong ? 0 : size;
}

/// Bytes [begin, end) of a file, fewer where it is shorter.
std::string bytes_of(const std::string& path, std::uint64_t begin, std::uint64_t end) {
  end = std::min(end, std::max(begin, size_of(path)));
  std::string bytes(end - begin, '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(begin)).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

/// Up to the end of the last whole line.
std::string whole_lines(std::string bytes) {
  bytes.resize(bytes.rfind('\n') + 1);  // npos + 1 is 0
  return bytes;
}

Result<void> write(const std::string& path, std::ios::openmode mode, const std::string& bytes) {
  if (fs::is_symlink(path)) return Error{path + ": is a link, expected a file"};
  errno = 0;
  std::ofstream file(path, std::ios::binary | mode);
  file << bytes;
  file.close();
  if (!file) return Error{path + ": " + (errno != 0 ? std::strerror(errno) : "cannot be written")};
  return {};
}

/// The name of `from` in `to`, or with a number behind it where a file of another beginning has that: two runs of one
/// name are two files. \param end of the name.
std::string target_of(const std::string& from, const fs::path& to, const std::string& end) {
  constexpr std::uint64_t kCompared = 4096;
  for (int i = 0;; ++i) {
    const std::string name = (to / fs::path(from).stem()).string() + (i == 0 ? "" : "." + std::to_string(i));
    const std::uint64_t size = size_of(name + end), head = std::min(size, kCompared);
    if (size_of(from) >= size && bytes_of(from, 0, head) == bytes_of(name + end, 0, head) &&
        bytes_of(from, size - head, size) == bytes_of(name + end, size - head, size))
      return name;
  }
}

constexpr std::uint64_t kAtOnce = 16u << 20;

/// An interrupted copy is a beginning of the source: the next one goes on behind it.
Result<std::uint64_t> add_to_copy(const std::string& from, const fs::path& to) {
  const std::string path = target_of(from, to, ".jsonl") + ".jsonl";
  const std::uint64_t begin = size_of(path);
  for (std::uint64_t at = begin;;) {
    const std::string bytes = whole_lines(bytes_of(from, at, at + kAtOnce));
    if (bytes.empty()) return at - begin;
    if (const auto done = write(path, std::ios::app, bytes); !done) return done.error();
    at += bytes.size();
  }
}

/// Where files cannot be added to: each round writes a new file, `NAME.OFFSET.jsonl`, which begins with the
/// start line. One that was interrupted is written again.
Result<std::uint64_t> add_piece(const std::string& from, const fs::path& to) {
  constexpr std::uint64_t kLongestStart = 1u << 20;
  const std::string head_of = bytes_of(from, 0, kLongestStart), start = head_of.substr(0, head_of.find('\n') + 1);
  if (start.empty()) return 0;
  const auto end_of = [](std::uint64_t offset) { return fmt::format(".{:012}.jsonl", offset); };
  const std::string name = target_of(from, to, end_of(0));
  std::uint64_t copied = 0;
  for (std::uint64_t at = 0;;) {
    const std::string path = name + end_of(at);
    const std::uint64_t size = size_of(path), head = at == 0 ? 0 : start.size();
    if (size > head && bytes_of(path, size - 1, size) == "\n") {
      at += size - head;
      continue;
    }
    const std::string bytes = whole_lines(bytes_of(from, at, at + kAtOnce));
    if (bytes.empty()) return copied;
    if (const auto done = write(path, std::ios::trunc, (head == 0 ? "" : start) + bytes); !done) return done.error();
    copied += bytes.size();
  }
}

Result<Copied> copy_all(const CollectOptions& o) {
  Copied copied;
  for (const std::string& directory : o.directories) {
    const Result<std::vector<std::string>> files = list_run_files(directory);
    if (!files) return files.error();
    std::error_code wrong;
    fs::create_directories(o.to, wrong);
    if (wrong) return Error{o.to + ": " + wrong.message()};
    for (const std::string& from : *files) {
      if (!std::ifstream(from)) return Error{from + ": cannot be read"};
      const auto done = o.pieces ? add_piece(from, o.to) : add_to_copy(from, o.to);
      if (!done) return done.error();
      ++copied.files;
      copied.bytes += *done;
    }
  }
  return copied;
}

int collect(CollectOptions& o) {
  const auto fail = [](const std::string& message) { return say_error("collect", message); };
  auto directories = find_run_dirs(o.directories);
  if (!directories) return fail(directories.error().message);
  o.directories = std::move(*directories);
  ::umask(::umask(0) | 027);  // as the library makes them
  std::error_code none;
  for (const std::string& from : o.directories)
    if (fs::weakly_canonical(from, none) == fs::weakly_canonical(o.to, none))
      return say_error("collect", "--to " + o.to + ": is where the files are", kUsageError);
  for (const std::string& from : o.directories)  // until this process ends
    if (const int alone = ::open(from.c_str(), O_RDONLY | O_CLOEXEC);
        alone >= 0 && ::flock(alone, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      return fail(from + ": another mfu collect copies it");
  ::sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  if (o.every_s > 0) ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  std::uint64_t bytes = 0;
  for (bool last = o.every_s <= 0;;) {
    const Result<Copied> copied = copy_all(o);
    // Beside a job, a share that is away for a while is no reason to give up.
    if (!copied && last) return fail(copied.error().message);
    if (!copied) say_error("collect", copied.error().message);
    bytes += copied ? copied->bytes : 0;
    if (last) {
      say("{} file{}, {} bytes to {}\n", copied->files, copied->files == 1 ? "" : "s", bytes, printable(o.to));
      return 0;
    }
    const ::timespec wait{static_cast<time_t>(o.every_s),
                          static_cast<long>((o.every_s - static_cast<double>(static_cast<time_t>(o.every_s))) * 1e9)};
    last = ::sigtimedwait(&ends, nullptr, &wait) > 0;  // lines that came meanwhile are copied too
  }
}

}  // namespace

void add_collect(CommandLine& line) {
  auto options = std::make_shared<CollectOptions>();
  Command sub = line.command("collect", "Copy run files from a node's disk to where all are read, as they grow");
  sub.option("dir", options->directories, "run directories; default: MFU_RUN_DIR, else the newest in ./mfu-runs");
  sub.option("--to", options->to, "the directory that gets them, of all nodes", {.type = "DIR", .required = true});
  sub.flag("--pieces", options->pieces, "write new files instead of adding to those that are there, as for a bucket");
  sub.option("--every", options->every_s, "seconds between copies, until SIGTERM; default: copy once and end",
             {.between = {0.1, 86400.0}});
  sub.footer({"mfu collect /local/mfu-runs/1 --to /shared/mfu-runs/1", "mfu collect --to /shared/run --every 60 &",
              "mfu collect /local/run --to /mnt/bucket/run --pieces"},
             "0; 1 when a file cannot be read or written; what was copied stays, and the next call goes on behind it");
  sub.action([options] { return collect(*options); });
}

}  // namespace mfu
