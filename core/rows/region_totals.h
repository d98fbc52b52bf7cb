// Adds rows of one region up: windows to a run, devices and ranks to a job.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/rows/duration_histogram.h"
#include "core/rows/region_fields.h"
#include "core/rows/region_summary.h"
#include "core/rows/slowest_instances.h"

namespace mfu {

/// The denominators of one device, as its `start` line gives them.
struct RowPeak {
  std::optional<double> flop_per_s;   ///< [FLOP/s]
  std::optional<double> bytes_per_s;  ///< [B/s]
};

/// Numerators and denominators of MFU, HFU, MBU and the waterfall, which may be added up, as the quotients may not.
/// MFU covers the rows whose FLOP and peak are known, and those in which no instance was at work (their FLOP are 0).
/// The others are left out of both sides: a row that could not be counted must not make the rest look slow.
struct Weights {
  double flop = 0, hfu_flop = 0;                       ///< [FLOP]
  double flop_at_peak = 0;                             ///< sum of peak x elapsed [FLOP]
  double flop_at_peak_busy = 0;                        ///< sum of peak x busy [FLOP]
  double bytes = 0, bytes_at_peak = 0;                 ///< [B]
  std::array<double, kTimeClasses> counted_ns{};       ///< class times of the rows that MFU covers [ns]
  std::array<double, kTimeClasses> time_ns{};          ///< class times of all rows [ns]
  double with_flop = 0, with_bytes = 0;                ///< rows, or shares of rows, that have FLOP or bytes
  double left_out = 0;                                 ///< rows that MFU does not cover
  double graph_ns = 0;                                 ///< of graphs recorded as one, in the rows that it covers
  double ideal_ns = 0, covered_ns = 0, matmul_ns = 0;  ///< ExecutedWork of the rows that have it [ns]
  double executed_elapsed_ns = 0;                      ///< elapsed time of those rows [ns]
  GemmLoss gemm_loss_ns;                               ///< of the rows that MFU covers [ns]

  [[nodiscard]] static Weights of(const RegionSummary& row, const RowPeak& peak);
  /// Adds a share (0..1) of `other`: the part of a window that falls into a longer or a shifted one.
  void add(const Weights& other, double share = 1);

  [[nodiscard]] std::optional<double> mfu() const;
  [[nodiscard]] std::optional<double> hfu() const;
  /// It is of the products that ran, as ExecutedWork::enough() has it for one row.
  [[nodiscard]] bool hfu_is_executed() const noexcept {
    return ideal_ns > 0 && matmul_ns > 0 && covered_ns >= ExecutedWork::kEnough * matmul_ns;
  }
  [[nodiscard]] std::optional<double> mfu_busy() const;
  [[nodiscard]] std::optional<double> mbu() const;
  /// With mfu sums to 1. None where MFU is unknown, or see lost_of.
  [[nodiscard]] std::optional<std::array<double, kTimeClasses>> lost() const;
  /// Sums to `lost_matmul`, that of lost(). None where nothing is split.
  [[nodiscard]] std::optional<GemmLoss> gemm_loss(double lost_matmul) const;
  /// Share of each class in the elapsed time; sums to 1. None where there was no time.
  [[nodiscard]] std::optional<std::array<double, kTimeClasses>> time_shares() const;
};

/// Durations of several rows, from their histograms: quantiles at most 9 % above the truth, never below.
class LatencySum {
 public:
  void add(const LatencySummary& row);
  void add(const LatencySum& other);
  [[nodiscard]] LatencySummary summary() const;

 private:
  DurationHistogram histogram_;
  DurationNs max_ns_ = 0;
};

/// Kernels by name, added up.
class KernelSums {
 public:
  void add(const TopKernel& kernel);
  void add(const KernelSums& other);
  /// Those that took most time, longest first: as many as a row has.
  [[nodiscard]] std::vector<TopKernel> top() const;

 private:
  std::map<std::string, TopKernel> by_name_;
};

/// As many kernels as a row has.
inline constexpr std::size_t kTopKernels = 10;

/// Adds each field that adds up by itself (region_fields.h says which): those of RegionCounts, or of RegionSummary.
void add_up(RegionCounts& into, const RegionCounts& from);
void add_up(RegionSummary& into, const RegionSummary& from);

/// How many fields add up to a mean.
inline constexpr std::size_t kMeans = [] {
  std::size_t count = 0;
  for_each_field<RegionSummary>([&count](const auto& field) { count += field.adds_up == AddsUp::kMean ? 1 : 0; });
  return count;
}();

/// A mean of ratios, weighted by time.
struct WeightedMean {
  double weighted = 0, weight_s = 0;

  void add(double value, double s) noexcept {
    weighted += value * s;
    weight_s += s;
  }
  void add(const WeightedMean& other) noexcept {
    weighted += other.weighted;
    weight_s += other.weight_s;
  }
  [[nodiscard]] std::optional<double> mean() const noexcept {
    return weight_s > 0 ? std::optional(weighted / weight_s) : std::nullopt;
  }
};

/// Components of several rows, by name and pass.
class ComponentSums {
 public:
  void add(const Component& component);
  void add(const ComponentSums& other);
  /// Most time first, `other` last; at most `most` besides it.
  [[nodiscard]] std::vector<Component> list(std::size_t most) const;

 private:
  struct Sum {
    Component sum;
    double ideal_ns = 0, with_peak_ns = 0;  ///< of_peak x time, and that time
    double flop_ns = 0;                     ///< time of those whose FLOP are known
    GemmLoss loss_ns;                       ///< loss x time
    bool any_loss = false;
    std::array<DurationNs, 3> bound_ns{};  ///< by Bound

    void add(const Sum& other);
    [[nodiscard]] Component total() const;
  };
  std::map<std::pair<std::string, std::string>, Sum> by_name_;
};

/// A sum, and what its quotients were divided by.
struct SummedRegion {
  RegionSummary sum;  ///< times in device-seconds
  Weights weights;
  std::uint64_t rows = 0;  ///< that were added up
};

/// The one sum of a region's rows: the report, `mfu top`, `mfu serve` and replay all take it from here. Counts, times
/// and latencies are those of all rows, quotients those of their Weights: MFU = sum(FLOP) / sum(peak x elapsed). Rows
/// without device activity (`classes_known` false) are left out altogether where others have it; a sum with a row whose
/// times are missing (`untimed`) has no figure that follows from times, and no MFU of such rows. FLOP and bytes are
/// those of the rows that MFU and MBU cover; where no peak is known, of all rows whose FLOP are. The sum of one row is
/// that row, to the last digit.
class RegionTotals {
 public:
  /// The next window, or the whole run of one device: `open` is that of the latest.
  void add(const RegionSummary& row, const RowPeak& peak);
  /// Another device or rank, beside this one.
  void add(const RegionTotals& other);
  /// The same for one row.
  void add_beside(const RegionSummary& row, const RowPeak& peak);
  [[nodiscard]] bool empty() const noexcept { return seen_.rows + blind_.rows == 0; }
  [[nodiscard]] SummedRegion summed() const;
  /// Counts, times, FLOP, bytes and latencies of all rows, those without device activity too: for a counter of
  /// Prometheus, which may never fall. No quotient but these sums.
  [[nodiscard]] RegionSummary everything() const;
  /// Peak x elapsed of all rows that MFU covers [FLOP].
  [[nodiscard]] double flop_at_peak() const noexcept {
    return seen_.weights.flop_at_peak + blind_.weights.flop_at_peak;
  }

 private:
  /// The rows' instances of one batch range.
  struct Batch {
    BatchLatency sum;  ///< counts; no quotient
    LatencySum latency;
    double flop = 0, flop_at_peak = 0, bytes = 0, bytes_at_peak = 0;

    void add_counts(const BatchLatency& row);
    void add(const BatchLatency& row, const RowPeak& peak);
    void add(const Batch& other);
    [[nodiscard]] BatchLatency totals() const;
  };

  /// Rows that saw the device, or rows that did not.
  struct Part {
    RegionSummary sum;  ///< the figures that add up; no quotient
    Weights weights;
    std::uint64_t rows = 0;
    std::array<DurationNs, 3> bound_ns{};  ///< elapsed time by Bound
    std::array<WeightedMean, kMeans> means{};
    DurationNs suspect_ns = -1;  ///< elapsed time of the row that `sum.suspect` is from
    LatencySum latency, inter_token, prefill_to_decode;
    std::map<std::pair<BatchUnit, std::int64_t>, Batch> by_batch;  ///< by unit and smallest batch
    SlowestInstances slowest;
    KernelSums kernels;
    ComponentSums components;
    std::vector<IdleCause> idle_by;

    void add(const RegionSummary& row, const RowPeak& peak);
    void add(const Part& other);
    void merge(const RegionSummary& row);
    void merge_histograms(const Part& other);
    [[nodiscard]] SummedRegion summed() const;
    void describe(RegionSummary& into) const;
  };

  Part seen_, blind_;
  std::optional<RegionSummary> only_;  ///< the row, while there is one
};

}  // namespace mfu
