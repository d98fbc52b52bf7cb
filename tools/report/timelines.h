// Which instances a report draws kernel by kernel: the slowest and the median one of the regions that took most time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/replay/instance_timeline.h"
#include "tools/run_dir/run_history.h"

namespace mfu {

/// A region of one process of a trace or of a recording.
struct RegionTimelines {
  std::string region;
  std::string where;      ///< `rank 3 gpu0`
  std::string recording;  ///< the file that it was read from
  /// Every instance on that device: begin (UTC where the file says it, else the file's own time) and length; at most
  /// kMostInstances, else every n-th and those that took longest.
  std::vector<std::pair<TimeNs, DurationNs>> instances;
  static constexpr std::size_t kMostInstances = 4000;
  std::uint64_t instances_in_all = 0;
  DurationNs median_ns = 0;
  TimeNs base_ns = 0;                ///< added to times of the two below to make them UTC
  InstanceTimeline slowest, median;  ///< the same one where there is one instance only
};

/// Timelines of a job: traces go in one by one, the regions with most time in instances stay, each from the process
/// that has its slowest instance.
class Timelines {
 public:
  static constexpr std::size_t kMostRegions = 3;

  /// \param collector what the replay of `trace` gave to it. \param where of each process of the trace.
  void add(const Trace& trace, const InstanceCollector& collector, const std::vector<std::string>& where);
  [[nodiscard]] const std::vector<RegionTimelines>& regions() const noexcept { return regions_; }

 private:
  std::vector<RegionTimelines> regions_;
};

/// Finds the file that a process recorded its last seconds in (MFU_TRACE). Lists the run directory once: it may have
/// tens of thousands of files.
class Recordings {
 public:
  /// As the events of the process or its start line name it, there or moved into the run directory; else the trace
  /// there with the name of its run file, else the only trace there of a run of one process; empty: none.
  [[nodiscard]] std::string of(const RunHistory& history);

 private:
  const std::vector<std::string>& traces_in(const std::string& folder);

  std::optional<std::string> folder_;
  std::vector<std::string> traces_;  ///< of the folder, sorted
};

/// Replays the recording of a process and adds what is in it. Error: it cannot be read, or is another process's.
[[nodiscard]] Result<void> add_recording(Timelines& timelines, const std::string& recording, const RunHistory& history);

}  // namespace mfu
