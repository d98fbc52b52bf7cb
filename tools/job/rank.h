// One process of a job by its file, up to date while that grows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/rows/region_summary.h"
#include "core/rows/region_totals.h"
#include "core/sinks/sink.h"
#include "tools/job/process_life.h"
#include "tools/run_dir/region_limit.h"
#include "tools/run_dir/run_file.h"
#include "tools/run_dir/run_history.h"

namespace mfu {

/// Collectives of a region in one window: all that a comparison of ranks needs.
struct CommSample {
  std::string region;
  std::optional<std::uint32_t> device;
  Interval window;
  DurationNs elapsed_ns = 0;
  DurationNs exposed_ns = 0;  ///< time of class comm
  std::uint64_t comm_kernels = 0;
  DurationNs comm_sum_ns = 0;
};

enum class RankState {
  kStarting,  ///< no window yet
  kLive,
  kStale,       ///< nothing for more than three windows while others went on, or while it was watched
  kEnded,       ///< its end line is there
  kReplaced,    ///< a later process has its rank: a restart
  kUnreadable,  ///< not one line of a run, or no start line
};
[[nodiscard]] std::string_view name(RankState state) noexcept;

/// A window of a region, as little as a history of it needs. Ratios 0..1, negative: not known.
struct HistoryPoint {
  TimeNs end_ns = 0;  ///< of the window, UTC
  float mfu = -1, mbu = -1, busy = -1;
};

struct Rank {
  using RegionKey = std::pair<std::string, std::optional<std::uint32_t>>;
  static constexpr std::size_t kRecentWindows = 6;  ///< that comm samples are kept of
  static constexpr std::size_t kEventsKept = 8;
  static constexpr std::size_t kHistory = 160;  ///< windows that the history keeps

  std::string path;
  std::optional<RunInfo> run;         ///< t_ns: of the first start line
  std::optional<WindowSummary> last;  ///< the newest window that is complete
  std::optional<WindowSummary> end;
  std::deque<std::vector<CommSample>> recent;             ///< per window, oldest first
  std::deque<RunEvent> events;                            ///< the last ones
  std::map<RegionKey, RegionTotals> sums;                 ///< over every window that was read
  std::map<RegionKey, std::deque<HistoryPoint>> history;  ///< oldest first
  ProcessLife life;
  std::optional<Stall> stall;  ///< of its GPU's work, while it lasts
  std::uint64_t windows = 0;
  TimeNs last_line_ns = 0;           ///< UTC, by the clock of its host
  std::int64_t pipeline_stages = 1;  ///< `parallel.pp` of its config
  DurationNs interval_ns = 0;        ///< longest window so far; 0: none yet
  RankState state = RankState::kStarting;
  double quiet_s = 0;  ///< how long it has been quiet, where it is stale [s]
  std::uint64_t bad_lines = 0;
  std::vector<std::string> problems;  ///< lines that could not be read, each with its place

  /// Figures to show: the whole run where it has ended, else the newest window; null before the first.
  [[nodiscard]] const WindowSummary* shown() const noexcept {
    return state == RankState::kEnded && end ? &*end : last ? &*last : end ? &*end : nullptr;
  }
  /// The line of region `total`; null before the first window.
  [[nodiscard]] const RegionSummary* total() const noexcept;
  /// Records that were lost, by the newest window's counters: CUPTI's drops, full hand-offs, buffers cut.
  [[nodiscard]] std::uint64_t dropped_records() const noexcept;
  [[nodiscard]] const DeviceInfo* device(std::optional<std::uint32_t> index) const noexcept;

  /// Takes one line in. Windows are complete with their `total` line, which is written last.
  void take(RunLine&& line);

 private:
  void take_window(WindowLine&& window);

  WindowSummary open_;  ///< regions of the window whose total is still to come
  RegionLimit limit_;
};

}  // namespace mfu
