// The job in one row: the sum over its ranks, weighted by their peaks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/job/rank.h"

namespace mfu {

/// The newest window of every live rank as one row (RegionTotals); whole runs where no rank is live any more but some
/// ended in peace. Ratios 0..1. The row is that of the `total` lines: device-seconds, those outside of regions too.
struct JobTotals {
  std::size_t live = 0, starting = 0, stale = 0, ended = 0, replaced = 0, unreadable = 0;
  std::int64_t world_size = 0;  ///< as the start lines say it
  std::size_t hosts = 0, devices = 0;
  std::size_t counted = 0;   ///< ranks whose figures are in the sums below
  std::size_t with_mfu = 0;  ///< of them, those that mfu covers
  bool whole_run = false;    ///< over `end` lines
  std::optional<double> mfu, hfu, mbu;
  /// Bounds from below, only where no rank's figure is known: a rank without any bound counts as nothing done.
  std::optional<double> mfu_lower, mbu_lower;
  std::optional<double> seen;         ///< share of the matmul time whose FLOP are known; none: calls were not watched
  bool hfu_of_seen = false;           ///< hfu is of the products that ran
  std::string suspect;                ///< why a ratio is beyond 100 %; empty: none is
  std::optional<double> busy;         ///< sum busy / sum elapsed, over the ranks whose device activity is known
  std::optional<double> clock_ratio;  ///< mean over devices
  std::optional<std::array<double, kTimeClasses>> lost;
  std::array<double, kTimeClasses> time_share{};  ///< time of the class / elapsed; zero where nothing is known
  bool classes_known = false;
  double flop_per_s = 0;    ///< sum of every rank's FLOP per second of its window [FLOP/s]
  double tokens_per_s = 0;  ///< [token/s]
  std::uint64_t dropped_records = 0;
  std::optional<double> overhead;  ///< mean over ranks
};

/// The factor for the elapsed device-seconds of `row`: the peak of its device, or the mean of the
/// process's devices. None where that of any of them is not known.
[[nodiscard]] RowPeak peak_of(const Rank& rank, const RegionSummary& row) noexcept;

[[nodiscard]] JobTotals job_totals(const std::vector<const Rank*>& ranks);

}  // namespace mfu
