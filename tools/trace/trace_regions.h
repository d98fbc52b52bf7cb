// A stored trace through the same attribution and ledger as a live process: regions, windows, MFU.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "core/sink.h"
#include "core/window.h"
#include "tools/trace/trace.h"

namespace mfu {

/// One process of a trace as the live library would have reported it.
struct ProcessRegions {
  std::string process;  ///< as the figures name it
  RunInfo run;
  std::vector<WindowSummary> windows;  ///< in order of time; times are the file's, made UTC where it says its base
  WindowSummary whole;                 ///< final_run
};

/// Ranges, launches and activities of each process, in order of time, through Attribution, Drain and Ledger.
[[nodiscard]] std::vector<ProcessRegions> trace_regions(const Trace& trace, const Config& config);

/// `regions` of `mfu replay --json`: one entry per process, region and device over the whole trace, with the keys of
/// the run directory and `process`.
[[nodiscard]] std::string regions_json(const std::vector<ProcessRegions>& processes);

}  // namespace mfu
