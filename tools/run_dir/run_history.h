// Everything that one process wrote about its run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/account/region_summary.h"
#include "core/base/result.h"
#include "core/sinks/sink.h"

namespace mfu {

struct RunEvent {
  TimeNs t_ns = 0;  ///< UTC
  std::string kind, message;
};

/// One process: its start line, its windows in order, its events, and the whole run where it ended in peace. A trace's
/// process has the same parts.
struct RunHistory {
  std::string source;  ///< the file, or the process of a trace
  RunInfo run;
  std::vector<WindowSummary> windows;
  std::vector<RunEvent> events;
  std::optional<WindowSummary> end;   ///< none: still running, or killed
  std::vector<std::string> oddities;  ///< what could not be read, each with its place
};

/// The whole file. Error: it cannot be read, or holds not one line of a run.
[[nodiscard]] Result<RunHistory> read_run_history(const std::string& path);

}  // namespace mfu
