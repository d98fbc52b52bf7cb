// Appending whole lines to a file or a standard stream, in a process that is not ours.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace mfu {

class LineFile;

/// Writes for a LineFile on another thread.
class LineCarrier {
 public:
  virtual ~LineCarrier() = default;
  /// Leads to `file.write_now(text)`, sooner or later.
  [[nodiscard]] virtual Result<void> carry(LineFile& file, std::string text) = 0;
};

/// Where lines go. A file is opened for each write and closed again: no descriptor is around for the host to
/// close, reuse or inherit, and a file that was moved away is simply made anew. Never raises SIGPIPE or SIGXFSZ, and
/// never waits for a reader longer than kPatienceMs.
class LineFile {
 public:
  enum class Kind { kNone, kStderr, kStdout, kFile };
  /// Whose file it is. kNamed: a person named it, so links are followed and what is there is appended to. kOurs: we
  /// made up its name, in a folder that others may write to. It is made new, a regular file, through no link; where
  /// something of that name exists already, the file gets another name (`name-2.jsonl`).
  enum class Owner { kNamed, kOurs };

  static constexpr int kPatienceMs = 100;

  /// `stderr`, `stdout`, `none`, or a path. Missing folders are made. A standard stream is what it is now: when the
  /// host puts another file in its place, nothing is written there.
  explicit LineFile(std::string target, Owner owner = Owner::kNamed);

  /// Appends `line` and a newline with one write. After a short write (a full disk) what got through is taken back;
  /// where that is refused, the next line begins behind a line end. An error of close() is one of this line.
  [[nodiscard]] Result<void> append(std::string_view line);
  /// Appends `bytes` as they are, whole or not at all.
  [[nodiscard]] Result<void> append_bytes(std::string_view bytes);
  /// From now on a standard stream is written elsewhere; a file is not. The file must not move then.
  void carried_by(LineCarrier* carrier) noexcept { carrier_ = carrier; }
  /// [carrier's thread] The bytes, whole or not at all.
  [[nodiscard]] Result<void> write_now(std::string_view bytes);
  /// The first bytes of a new or empty file, also when it is made anew. In one write with the first line.
  void begins_with(std::string header) { header_ = std::move(header); }
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// The path as it is now: of a kOurs file the name that it got.
  [[nodiscard]] const std::string& target() const noexcept { return target_; }

 private:
  /// Which file a descriptor is.
  struct Identity {
    bool open = false;
    ::dev_t device = 0;
    ::ino_t inode = 0;
    ::mode_t type = 0;

    static Identity of(int descriptor) noexcept;
    bool operator==(const Identity&) const = default;
  };

  Result<void> write_stream(std::string_view text);
  Result<void> write_file(std::string_view text);
  [[nodiscard]] int open_named() const;
  [[nodiscard]] int open_ours();
  /// Whether it is a file that begins as ours does: some network file systems number a file anew at each look.
  [[nodiscard]] bool begins_as_ours(int fd) const;

  std::string target_;
  std::string header_;
  std::string wanted_;  ///< the name that a kOurs file should have
  std::string head_;    ///< how the file that was made begins
  Kind kind_;
  Owner owner_;
  Identity identity_;  ///< the stream at the start, or the file that was made
  LineCarrier* carrier_ = nullptr;
  bool blocked_ = false;    ///< the stream was not read last time: do not wait again
  bool half_line_ = false;  ///< the file ends in one
};

/// The mode of a new file at `path`, before the umask: others may read it where they may read its folder.
[[nodiscard]] ::mode_t mode_beside(const std::string& path);

/// Makes the folders of `path` that are missing, for the user and the group.
void make_folders(const std::string& path);

}  // namespace mfu
