// The state of `mfu top` at one moment: rows, their order and filter, and the same as JSON. No terminal here.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/job/cost.h"
#include "tools/job/hang.h"
#include "tools/job/live_job.h"
#include "tools/job/straggler.h"
#include "tools/job/totals.h"
#include "tools/top/glyphs.h"
#include "tools/top/local_gpus.h"

namespace mfu {

/// Which figure a history shows.
enum class HistoryOf : std::uint8_t { kMfu, kMbu, kBusy };

/// Below 0: not known.
[[nodiscard]] float value_of(const HistoryPoint& point, HistoryOf of) noexcept;

/// One row of the table: a rank's device.
struct TopRow {
  const Rank* rank = nullptr;
  std::optional<std::uint32_t> device;
  const RegionSummary* region =
      nullptr;              ///< the outermost region with the most time in the window; `total` where there is none
  double lost_share = 0;    ///< as a straggler, 0..1
  bool odd = false;         ///< not like the other ranks in the same region
  std::string odd_in = {};  ///< in what: `MFU`, `step time`, ...
  const std::deque<HistoryPoint>* history = nullptr;  ///< of `region`; nullptr: none
  HistoryOf history_of = HistoryOf::kMfu;
  const GpuNow* gpu = nullptr;  ///< as this machine's driver sees it; nullptr: another machine's GPU, or no driver

  [[nodiscard]] std::optional<double> step_s() const;  ///< median instance, else mean [s]
  [[nodiscard]] std::optional<double> busy() const;    ///< busy / elapsed
  [[nodiscard]] std::optional<double> comm() const;    ///< exposed communication / elapsed
  [[nodiscard]] std::optional<double> clock() const;
};

/// The ranks of one host together.
struct TopHost {
  std::string name;
  JobTotals totals;
  std::size_t ranks = 0, late = 0, odd = 0, quiet = 0;  ///< stragglers, outliers, stale ones
  std::optional<double> lowest, highest;                ///< MFU of its rows
};

/// A job at one moment.
struct TopSnapshot {
  JobTotals totals;
  std::optional<LiveCost> cost;  ///< none: no price is known
  std::optional<Hang> hang;      ///< none: nothing has stalled
  std::string life;              ///< of the job, one line; empty: unknown, since not all was read
  std::vector<Straggler> stragglers;
  std::vector<TopRow> rows;
  std::vector<std::string> problems;
  std::string title;     ///< the directories
  std::string gpu_name;  ///< of the devices; `mixed` where they differ
  double silent_s = 0;
  std::vector<TopHost> hosts;  ///< by name, with numbers in numeric order
  /// Mean over the ranks, window by window, oldest first; none where no rank has it.
  std::vector<std::optional<double>> job_history;
  HistoryOf job_history_of = HistoryOf::kMfu;
  bool has_history = false;            ///< some row has two windows or more
  DurationNs history_interval_ns = 0;  ///< of one value of job_history
  double history_top = 1;              ///< a round value not below any of the histories, 0..1
  double power_w = 0;                  ///< of this machine's GPUs that the job uses [W]
  GpusNow gpus;
};

/// Valid until the job is refreshed. \param gpus of this machine, as LocalGpus sees them.
[[nodiscard]] TopSnapshot take_snapshot(const LiveJob& job, GpusNow gpus = {});

/// The parts of a job's bar; none where what ran was not measured.
[[nodiscard]] std::optional<BarShares> totals_shares(const JobTotals& totals);

/// `rank`, `mfu`, `mbu`, `step`, `busy`, `comm`, `clock`, `dropped`, `cost`, `late`: the worst first, ranks ascend.
inline constexpr std::array<std::string_view, 10> kSortKeys{"rank", "mfu",   "mbu",     "step", "busy",
                                                            "comm", "clock", "dropped", "cost", "late"};

/// Rows that match every word of `filter`, sorted. A word is part of a host, region, GPU name, UUID or state; or
/// KEY=VALUE (also !=, <, <=, >, >=) with a sort key, `gpu`, `host` or `region` (ratios in %, steps in ms).
[[nodiscard]] std::vector<TopRow> select_rows(const std::vector<TopRow>& rows, std::string_view sort,
                                              std::string_view filter, bool reversed = false);

/// The mistake in a filter, in a few words; empty: none.
[[nodiscard]] std::string filter_problem(std::string_view filter);

/// `live`, `stale 40 s`, ...
[[nodiscard]] std::string state_text(const Rank& rank);

/// The rows that `select_rows` gives, and the job, as a JSON object: `job`, `ranks[]`, `stragglers[]`, `problems[]`;
/// ratios 0..1, times in s.
[[nodiscard]] std::string snapshot_json(const TopSnapshot& snapshot, std::string_view sort, std::string_view filter);

}  // namespace mfu
