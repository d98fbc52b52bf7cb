// What `mfu top` shows at one moment: rows, their order and filter, and the same as JSON. No terminal here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/job/live_job.h"
#include "tools/job/straggler.h"
#include "tools/job/totals.h"

namespace mfu {

/// One row of the table: a rank's device.
struct TopRow {
  const Rank* rank = nullptr;
  std::optional<std::uint32_t> device;
  const RegionSummary* region =
      nullptr;            ///< the outermost region with the most time in the window; `total` where there is none
  double lost_share = 0;  ///< as a straggler, 0..1

  [[nodiscard]] std::optional<double> step_s() const;  ///< median instance, else mean [s]
  [[nodiscard]] std::optional<double> busy() const;    ///< busy / elapsed
  [[nodiscard]] std::optional<double> comm() const;    ///< exposed communication / elapsed
  [[nodiscard]] std::optional<double> clock() const;
};

/// A job at one moment.
struct TopSnapshot {
  JobTotals totals;
  std::vector<Straggler> stragglers;
  std::vector<TopRow> rows;
  std::vector<std::string> problems;
  std::string title;     ///< the directories
  std::string gpu_name;  ///< of the devices; `mixed` where they differ
  double silent_s = 0;
};

/// Valid until the job is refreshed.
[[nodiscard]] TopSnapshot take_snapshot(const LiveJob& job);

/// `rank`, `mfu`, `mbu`, `step`, `busy`, `comm`, `clock`, `dropped`, `cost`, `late`: what is worst comes first, ranks
/// ascend.
inline constexpr std::array<std::string_view, 10> kSortKeys{"rank", "mfu",   "mbu",     "step", "busy",
                                                            "comm", "clock", "dropped", "cost", "late"};

/// Rows that match every word of `filter`, sorted. A word is part of a host, region, GPU name, UUID or state; or
/// KEY=VALUE, KEY<VALUE, KEY>VALUE with a sort key, `gpu` or `host` (ratios in %, steps in ms).
[[nodiscard]] std::vector<TopRow> select_rows(const std::vector<TopRow>& rows, std::string_view sort,
                                              std::string_view filter);

/// What is wrong with a filter, in a few words; empty: nothing.
[[nodiscard]] std::string filter_problem(std::string_view filter);

/// `live`, `stale 40 s`, ...
[[nodiscard]] std::string state_text(const Rank& rank);

/// The rows that `select_rows` gives, and the job, as a JSON object: `job`, `ranks[]`, `stragglers[]`, `problems[]`;
/// ratios 0..1, times in s.
[[nodiscard]] std::string snapshot_json(const TopSnapshot& snapshot, std::string_view sort, std::string_view filter);

}  // namespace mfu
