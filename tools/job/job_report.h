// A job: every process of a run directory or of traces, added up region by region. The one input of every output.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/rows/region_totals.h"
#include "core/sinks/sink.h"
#include "tools/job/hang.h"
#include "tools/job/life.h"
#include "tools/job/time_grid.h"
#include "tools/run_dir/run_history.h"

namespace mfu {

/// `a, b`, with `none` for an empty value and where there are none.
[[nodiscard]] std::string joined(const std::set<std::string>& values, std::string_view none = "none");

/// The whole run of one process, without its windows.
struct JobProcess {
  std::string source;
  std::string label;  ///< `rank 3`; with the pid where several processes have that rank
  RunInfo run;
  bool ended = false;                     ///< false: no end line, the regions are summed from the windows
  Interval span;                          ///< first to last moment measured
  std::uint64_t windows = 0;              ///< that were read
  std::vector<SummedRegion> regions;      ///< every region and device, `total` last
  std::optional<LaunchAccount> launches;  ///< none where there is no end line
  std::optional<SelfCost> self;
  std::vector<std::pair<std::string, std::uint64_t>> counters;
};

/// One region over all devices and ranks.
struct JobRegion {
  std::string name;
  SummedRegion totals;
  std::uint64_t devices = 0;  ///< devices of processes that have it
  std::uint64_t processes = 0;
  /// Where each of `sum().slowest` ran: the slowest of all ranks, each compared with others of its device.
  std::vector<std::string> slowest_at;
  std::string why_no_mfu;          ///< one clause, where MFU is unknown
  std::string words;               ///< where most of the time went, as one sentence
  std::optional<double> cost;      ///< of its device time; none: no price is known
  std::int64_t output_tokens = 0;  ///< of those that cost is paid for

  [[nodiscard]] const RegionSummary& sum() const noexcept { return totals.sum; }
};

/// Something that a reader of the figures should know.
struct JobWarning {
  std::string kind;  ///< `unfinished`, `oddity`, `suspect`, `hang`, `ranks`, `clock`, `launches`, or an event's own
  std::string message;
  std::string source;       ///< where it was met first
  std::uint64_t count = 1;  ///< how often
};

struct Job {
  std::string path;                ///< as given
  std::optional<double> gpu_hour;  ///< price of a GPU for an hour
  bool trace = false;
  std::vector<JobProcess> processes;  ///< by rank
  std::vector<JobRegion> regions;     ///< longest first, `total` last
  Interval span;
  LaunchAccount launches;
  std::uint64_t processes_without_account = 0;  ///< of launches: those that have no end line
  SelfCost self;                                ///< summed; overhead: the mean
  std::vector<std::pair<std::string, std::uint64_t>> counters;
  std::vector<JobWarning> warnings;
  /// Which rank the others wait for, which one is slowest, which differ from the rest: one sentence each.
  std::vector<std::string> rank_notes;
  std::vector<std::string> costs;  ///< cost_lines(), where a price is given
  JobLife life;                    ///< of a trace: empty
  TimeGrid series;

  /// The region of that name; nullptr: none.
  [[nodiscard]] const JobRegion* find(std::string_view region) const noexcept;
};

/// Takes processes one at a time, so that their windows need not all be in memory.
class JobBuilder {
 public:
  explicit JobBuilder(std::string path, bool trace);
  void add(const RunHistory& history);
  /// About the input as a whole: a file that could not be read.
  void warn(JobWarning warning);
  [[nodiscard]] Job finish();

 private:
  void look_for_stall(const RunHistory& history);
  void warn_of_hang(const Clocks& clocks);
  struct Region {
    RegionTotals sum;
    std::uint64_t devices = 0, processes = 0;
  };
  Job job_;
  std::vector<ProcessLife> lives_;
  std::map<std::int64_t, HangProcess> hangs_;  ///< by rank
  std::map<std::string, Region> regions_;
};

/// The whole run of one process, one entry per region and device in the order of its file: its end line, or its windows
/// added up where it has none.
[[nodiscard]] std::vector<RegionTotals> whole_run(const RunHistory& history);

/// The peaks that a row of this run was divided by: its device's, or for all devices together the one they agree on.
[[nodiscard]] RowPeak peak_of(const RunInfo& run, const std::optional<std::uint32_t>& device);

/// The job as one closed window, for the tables that the log prints.
[[nodiscard]] WindowSummary job_window(const Job& job);

/// `rank 3`, or where that is not enough `rank 3 gpu1`.
[[nodiscard]] std::string row_label(const JobProcess& process, const RegionSummary& row);

/// The meaning of a class of the waterfall, as the end of a sentence: `nothing ran on the GPU`.
[[nodiscard]] std::string_view class_meaning(TimeClass c, bool lost) noexcept;

}  // namespace mfu
