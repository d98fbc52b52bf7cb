// The run directory that is meant where none is named.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"

namespace mfu {

/// `given` where it is not empty. Else every directory that MFU_RUN_DIR may stand for (%h %p %r stand for anything,
/// %q{VAR} for the variable's value), else the newest directory in `./mfu-runs`, where `mfu run` makes them. Error:
/// none of these is there, and what to do.
[[nodiscard]] Result<std::vector<std::string>> find_run_dirs(const std::vector<std::string>& given);

/// A name below `./mfu-runs` that no other run has: the time and this process. Nothing is made.
[[nodiscard]] std::string new_run_dir();

}  // namespace mfu
