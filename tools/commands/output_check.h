// Can the places be written to where a run is asked to leave its files?
#pragma once

#include <string>

#include "core/base/result.h"

namespace mfu {

/// A file that lines are appended to (a log, a trace). It is opened as it would be then; where it is not there yet, its
/// folder must be, and a file can be made in it. Leaves nothing behind. Error: `PATH: why`.
[[nodiscard]] Result<void> check_output_file(const std::string& path);

/// A folder that files are made in. Where it is not there yet, it can be made. Leaves nothing behind.
[[nodiscard]] Result<void> check_output_folder(const std::string& path);

}  // namespace mfu
