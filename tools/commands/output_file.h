// Where a command leaves what it worked out: stdout, or a file that is replaced whole.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "core/base/result.h"

namespace mfu {

using WriteOutput = std::function<Result<void>(std::ostream&)>;

/// Who chose the name of a file.
enum class PathFrom {
  kUser,     ///< devices, pipes and links are written through, as a shell's `>` does
  kDefault,  ///< somebody else may have put a link there: nothing but a regular file is replaced
};

/// Writes beside `path` and puts it in its place when it is whole: a reader sees the old or the new file, and where the
/// disk is full the old one stays, with its mode. Error: `PATH: why`, or the one of `write`.
[[nodiscard]] Result<void> replace_file(const std::string& path, PathFrom from, const WriteOutput& write);

/// The same for `-o OUTPUT`; stdout where it is empty or `-`.
[[nodiscard]] Result<void> write_to(const std::string& output, const WriteOutput& write);

}  // namespace mfu
