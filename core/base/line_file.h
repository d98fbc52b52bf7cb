// Appending whole lines to a file or a standard stream, in a process that is not ours.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace mfu {

/// Where lines go. A file is opened for each write and closed again: no descriptor of ours is around for the host to
/// close, reuse or inherit, and a file that was moved away is simply made anew. Never raises SIGPIPE or SIGXFSZ.
class LineFile {
 public:
  enum class Kind { kNone, kStderr, kStdout, kFile };

  /// `stderr`, `stdout`, `none`, or a path. Missing folders are made.
  explicit LineFile(std::string target);

  /// Appends `line` and a newline with one write. After a short write (a full disk) what got through is taken back, so
  /// that the file holds whole lines only.
  [[nodiscard]] Result<void> append(std::string_view line) const;
  /// Appends `bytes` as they are, whole or not at all.
  [[nodiscard]] Result<void> append_bytes(std::string_view bytes) const;
  /// True when the file does not exist or is empty: its first line is still to be written.
  [[nodiscard]] bool fresh() const noexcept;
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& target() const noexcept { return target_; }

 private:
  std::string target_;
  Kind kind_;
};

/// Makes the folders of `path` that are missing.
void make_folders(const std::string& path);

}  // namespace mfu
