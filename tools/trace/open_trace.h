// Opens a stored trace of either kind, by what it holds, not by its name.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/trace/trace.h"

namespace mfu {

/// Reads a Kineto JSON or Nsight Systems SQLite trace, plain or gzip. Error: one line with the file and the fault.
[[nodiscard]] Result<Trace> open_trace(const std::string& path, const ReadProgress& progress = {});

/// The trace files that `path` means: itself, or the .json, .json.gz, .sqlite and .sqlite.gz files of a folder
/// (not of its subfolders), by name with numbers in numeric order, so that rank 10 follows rank 9.
/// Error: it does not exist, or a folder without any.
[[nodiscard]] Result<std::vector<std::string>> list_traces(const std::string& path);

}  // namespace mfu
