// Sums of counted kernels: FLOP, time, and shares of the peak, per NVTX range and for the whole capture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/peak/peak.h"
#include "tools/counters/counter_csv.h"

namespace mfu {

/// Ratios are 0..1 and absent where a part is unknown.
struct CounterRow {
  std::string range;  ///< a region's name where a built-in rule knows the range, else the range's; `all`
  std::uint64_t launches = 0;
  double seconds = 0;                  ///< of the kernels, one after the other
  double counted_seconds = 0;          ///< of these, kernels whose FLOP the counters have
  double flop = 0;                     ///< tensor cores and, where they were counted, CUDA cores
  DType dtype = DType::kBf16;          ///< operands of most tensor FLOP
  std::optional<double> peak;          ///< [FLOP/s] in dtype, data sheet
  std::optional<double> hfu;           ///< flop / (seconds x peak)
  std::optional<double> hfu_at_clock;  ///< the same at the SM clock that was measured
  std::optional<double> sm, dram;      ///< utilisation, weighted by time
  std::optional<double> sm_hz;
  /// `compute` or `memory`, the larger of the two where it is 60 % or more; `latency` below, as Nsight Compute says it.
  std::string bound;
};

struct CounterReport {
  std::string device;            ///< that the peaks are of; empty: unknown
  std::vector<CounterRow> rows;  ///< `all` first, then ranges, longest first
  std::vector<std::string> remarks;
};

/// \param files of one run: counters of Nsight Compute, and at most one sum of `nsys stats`. With a sum, times and
/// numbers of
///   launches are those of the run itself, and each launch has the mean FLOP of its kernel's counted ones; without, all
///   is of the launches that were counted, which ran alone and at the clock that Nsight Compute set.
/// \param gpu as a person names it; empty: the one that a file names. \return an Error where files do not fit together,
/// or the
///   GPU is not known by its name.
[[nodiscard]] Result<CounterReport> report_counters(const std::vector<CounterFile>& files, const std::string& gpu,
                                                    const PeakOptions& peak);

[[nodiscard]] std::string counter_text(const CounterReport& report);
[[nodiscard]] nlohmann::ordered_json counter_json(const CounterReport& report);

}  // namespace mfu
