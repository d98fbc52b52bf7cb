// One file of a run directory, read whole.
#pragma once

#include "tools/run_dir/run_processes.h"

namespace mfu {

/// The first process in a file. Error: it cannot be read, or holds not one line of a run.
inline Result<RunHistory> read_run_history(const std::string& path) {
  std::vector<std::string> failures;
  const std::vector<RunProcess> processes = find_processes({path}, failures);
  if (!failures.empty()) return Error{failures.front()};
  return read_process(processes.front());
}

}  // namespace mfu
