// A stored trace through the same attribution and ledger as a live process: regions, windows, MFU.
#pragma once

#include <string>
#include <vector>

#include "core/account/account_observer.h"
#include "core/config/config.h"
#include "core/ranges/region_rules.h"
#include "core/rows/region_summary.h"
#include "core/sinks/sink.h"
#include "tools/trace/trace.h"

namespace mfu {

/// One process of a trace as the live library would have reported it.
struct ProcessRegions {
  std::string process;  ///< as the figures name it
  RunInfo run;
  std::vector<WindowSummary> windows;  ///< in order of time; times are the file's, made UTC where it says its base
  WindowSummary whole;                 ///< final_run
  std::vector<std::string> notes;      ///< deviations from the request, one line each
};

/// Gets what an AccountObserver gets, with the place in the trace. Times are those of the Ledger: `shift_ns` later
/// than the trace's.
class ReplayObserver : public AccountObserver {
 public:
  std::uint32_t process = 0;   ///< index into Trace::processes
  std::uint32_t activity = 0;  ///< index into Trace::activities of the record of on_record
  DurationNs shift_ns = 0;
  const RegionRules* rules = nullptr;  ///< names of the regions; valid until the process has been replayed
};

/// Ranges that are one region, in place of all rules.
struct OneRegion {
  std::string name;
  Phase phase = Phase::kNone;
  std::vector<std::uint32_t> ranges;  ///< indices into Trace::ranges, ascending
};

struct RegionsOptions {
  const OneRegion* only = nullptr;     ///< nullptr: regions by the config's and the built-in rules
  bool detect = false;                 ///< regions as the step detector finds them, in place of the ranges
  ReplayObserver* observer = nullptr;  ///< nullptr: none
};

/// Ranges, launches and activities of each process, in order of time, through Attribution, Drain and Ledger.
[[nodiscard]] std::vector<ProcessRegions> trace_regions(const Trace& trace, const Config& config,
                                                        const RegionsOptions& options = {});

/// `regions` of `mfu replay --json`: one entry per process, region and device over the whole trace, with the keys of
/// the run directory and `process`.
[[nodiscard]] std::string regions_json(const std::vector<ProcessRegions>& processes);

}  // namespace mfu
