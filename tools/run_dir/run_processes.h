// The processes of a run directory, also where its files were copied, renamed, cut or put together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/run_dir/process_lines.h"
#include "tools/run_dir/run_history.h"

namespace mfu {

/// How a file begins.
struct FileBegin {
  std::optional<ProcessId> id;
  std::uint64_t seq = 0;  ///< of the line behind the start line
};
[[nodiscard]] FileBegin begin_of_file(const std::string& path);

/// Lines of one process that follow each other in a file.
struct FilePart {
  std::string path;
  std::uint64_t begin = 0, end = 0;  ///< bytes
  std::uint64_t line = 0;            ///< number of its first line, from 0
  bool has_start = false;
  std::uint64_t first_seq = 0, last_seq = 0;  ///< without the start line, which each piece of a run repeats
  TimeNs first_ns = 0, last_ns = 0;           ///< of these lines
};

/// One process: every part that it wrote, in order of `seq`.
struct RunProcess {
  std::vector<FilePart> parts;
  std::vector<std::string> remarks;  ///< conclusions about its parts
};

/// Looks at every line's begin, and parses the start lines and the first and last line of each part. Parts without a
/// start line go to the process that has the same lines, else to the one whose missing lines they are where that is one
/// only. \param paths files. Unreadable files are named in `failures`.
[[nodiscard]] std::vector<RunProcess> find_processes(const std::vector<std::string>& paths,
                                                     std::vector<std::string>& failures);

/// Reads each line once, by its `seq`. Lines that come again, and those that are missing, are among its oddities.
/// Error: nothing of it can be read, or it holds not one line of a run.
[[nodiscard]] Result<RunHistory> read_process(const RunProcess& process);

}  // namespace mfu
