// Everything that one process wrote about its run.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/rows/region_summary.h"
#include "core/sinks/sink.h"
#include "tools/run_dir/region_limit.h"
#include "tools/run_dir/run_line.h"

namespace mfu {

/// One process: its start line, its windows in order, its events, and the whole run where it ended in peace. A trace's
/// process has the same parts.
struct RunHistory {
  std::string source;  ///< the file, or the process of a trace
  RunInfo run;
  std::vector<WindowSummary> windows;
  std::vector<RunEvent> events;
  std::optional<WindowSummary> end;   ///< none: still running, or killed; so_far: likewise, and that is all it was
  std::vector<std::string> oddities;  ///< lines that could not be read, each with its place
  [[nodiscard]] bool ended() const noexcept { return end && !end->so_far; }
};

/// Puts the lines of one process together, in the order of its file.
class HistoryBuilder {
 public:
  explicit HistoryBuilder(std::string source) { history_.source = std::move(source); }
  void take(RunLine&& line);
  [[nodiscard]] bool any() const noexcept { return any_; }  ///< a line was taken
  [[nodiscard]] bool started() const noexcept { return started_; }
  [[nodiscard]] RunHistory finish();

 private:
  RunHistory history_;
  RegionLimit limit_;
  bool any_ = false, started_ = false;
};

}  // namespace mfu
