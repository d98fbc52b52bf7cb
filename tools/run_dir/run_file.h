// One process's file in a run directory, followed while it grows.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/run_dir/run_line.h"

namespace mfu {

/// Reads what was appended since the last call. Only whole lines: one that a writer has not finished waits for the next
/// call. A file that was made anew or cut is read from its beginning again.
class RunFile {
 public:
  /// Where the first call of poll begins.
  enum class From {
    kBeginning,
    kTail,  ///< the start line, then the end of the file: kTailBytes, or as much as its last whole window takes
  };
  static constexpr std::uint64_t kTailBytes = 64 * 1024;

  /// One line as it is in the file, and where it begins.
  using OnText = std::function<void(std::string_view text, std::uint64_t begin)>;

  RunFile(std::string path, From from) : path_(std::move(path)), from_(from) {}
  /// The bytes from `begin` to `end` alone; `line`: number of the first line there, from 0.
  RunFile(std::string path, std::uint64_t begin, std::uint64_t end, std::uint64_t line)
      : path_(std::move(path)), from_(From::kBeginning), end_(end), offset_(begin), line_(line) {}

  /// Hands each new line to `on_line`, in order. \return lines read; an Error when the file cannot be read (gone, no
  /// permission): the next call tries again. Lines that are no such lines are counted, and the first ones kept.
  [[nodiscard]] Result<std::size_t> poll(const std::function<void(RunLine&&)>& on_line);
  /// The same, without parsing.
  [[nodiscard]] Result<std::size_t> poll_text(const OnText& on_text);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t bad_lines() const noexcept { return bad_lines_; }
  [[nodiscard]] std::uint64_t newer_lines() const noexcept { return newer_lines_; }  ///< of a later `v`
  [[nodiscard]] bool restarted() const noexcept { return restarted_; }  ///< read from its beginning again, last time
  /// `path:line: value met and expectation`, the first 8.
  [[nodiscard]] const std::vector<std::string>& oddities() const noexcept { return oddities_; }

 private:
  void take(std::string_view line, const std::function<void(RunLine&&)>& on_line);
  void odd(std::string_view message);

  std::string path_;
  From from_;
  std::uint64_t end_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t offset_ = 0;  ///< of the first byte that was not read
  std::uint64_t inode_ = 0;
  std::string head_;        ///< how the file begins: an inode number is used again
  std::uint64_t line_ = 0;  ///< number of the last line read; 0 after a jump to the tail
  bool numbered_ = true;    ///< line numbers are known
  std::uint64_t bad_lines_ = 0, newer_lines_ = 0;
  bool restarted_ = false;
  std::string half_;
  std::vector<std::string> oddities_;
};

/// The files of a run directory (`*.jsonl`), sorted by name; or `path` itself when it is a file. Error: neither, or
/// unreadable, and what was met. An empty directory is an empty list: a job may be about to start.
[[nodiscard]] Result<std::vector<std::string>> list_run_files(const std::string& path);

}  // namespace mfu
