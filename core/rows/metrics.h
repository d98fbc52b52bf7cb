// The quotients: MFU, HFU, MBU, the roofline, what was lost, and whether to believe it.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/base/shape.h"
#include "core/peak/peak.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// `amount` / (`rate` x `elapsed_s`) [ratio]; none where one of them is unknown or the product is not above 0.
[[nodiscard]] inline std::optional<double> share_of_peak(std::optional<double> amount, std::optional<double> rate,
                                                         double elapsed_s) noexcept {
  const double most = rate.value_or(0) * elapsed_s;
  return amount && rate && *rate > 0 && most > 0 ? std::optional(*amount / most) : std::nullopt;
}

/// Fills every ratio of `summary` (mfu, mfu_busy, hfu, mbu, roofline_s, bound, lost, suspect) from its counts, times
/// and `peak`. `peak` is that of one device; `elapsed_ns` is in device-seconds where several are added up, so the same
/// formula holds. Absent where the FLOP, the bytes or the peak is unknown.
///   ideal    = FLOP / peak                    [s]
///   mfu      = ideal / elapsed,  mfu_busy = ideal / busy,  hfu = (FLOP + recomputed) / (peak x elapsed)
///   mbu      = bytes / (peak bandwidth x elapsed)
///   roofline = max(ideal, bytes / peak bandwidth)  [s]
///   lost     = see lost_of
void complete_metrics(RegionSummary& summary, Phase phase, const Peak& peak) noexcept;

/// Makes a row that cannot be true say so: `suspect` gives a cause where a ratio is beyond 100 %, and `lost` goes where
/// it has a negative part. For rows that were added up, or read from a file.
void doubt_impossible(RegionSummary& row);

/// Its FLOP are suspect, and so is every sum that they are in.
[[nodiscard]] inline bool doubts_flop(const RegionSummary& row) noexcept {
  return row.flop && !row.suspect.empty() && !row.suspect.starts_with("mbu");
}

/// Why the times of classes are not known; empty: they are. `not timed (12 launches)`.
[[nodiscard]] std::string why_no_times(const RegionSummary& row);

/// The rest of the elapsed time beside MFU: `shares` of each class in it, less the ideal, which matmul kernels take;
/// where graphs were recorded as one, less that of all kernels, under `other`. None where that is less than nothing:
/// the FLOP are wrong (`suspect`), times are missing, or they are of an instance whose matmuls ran in another window.
[[nodiscard]] std::optional<std::array<double, kTimeClasses>> lost_of(std::array<double, kTimeClasses> shares,
                                                                      double mfu, bool whole_graphs) noexcept;

/// max(FLOP/peak, bytes/bandwidth) and which of the two it is. Training has no agreed bytes: FLOP/peak alone.
struct Roofline {
  std::optional<double> seconds;  ///< [s]; none: FLOP or peak unknown
  Bound bound = Bound::kUnknown;
};
[[nodiscard]] Roofline roofline(std::optional<double> flop, std::optional<double> bytes, Phase phase,
                                const Peak& peak) noexcept;

/// Why a figure is not to be believed, with the likely cause; empty: nothing found.
/// \param ideal_s FLOP / peak [s]; \param matmul_s time of the kernels that did them [s]: \param kernels matmul
/// kernels,
///   or all `kernels` where graphs were recorded as one; \param busy_s, elapsed_s of the region [s].
/// - FLOP beyond what the matmul kernels could have done at peak: `flops_exceed_matmul_time`
/// - MFU over 100 %: `mfu_over_100`
/// - the 2:4 sparse peak in the denominator: `sparse_peak`
/// - below 0.1 % of busy time where the work is compute-bound: `mfu_below_0.1`; decode at batch 1 is honestly low
[[nodiscard]] std::string suspect_reason(double ideal_s, double matmul_s, double busy_s, double elapsed_s, Bound bound,
                                         bool sparse_peak, const char* kernels = "matmul kernels");

/// The clock that ran over the clock of the peak: 0.8 means that power or heat took a fifth of the peak
/// away. Its own figure, never mixed into mfu. \param actual_sm_clock_khz as NVML reads it once per window
/// (nvmlDeviceGetClockInfo, NVML_CLOCK_SM, in MHz there). None: the peak's clock is not known (override).
[[nodiscard]] std::optional<double> clock_ratio(std::uint32_t actual_sm_clock_khz, const Peak& peak) noexcept;

/// Sets `clock_ratio`, and moves what a slower clock takes of matmuls whose tiles are known from `shape` and `rest` of
/// gemm_loss to `clock`: time x (1 - ratio), unless memory is the bound, whose clock is another.
void set_clock_ratio(std::optional<double> ratio, RegionSummary& row) noexcept;

}  // namespace mfu
