// Adds rows of one region up: windows to a run, devices and ranks to a job.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/account/duration_histogram.h"
#include "core/account/latency_stats.h"
#include "core/account/region_summary.h"

namespace mfu {

/// The denominators of one device, as its `start` line gives them.
struct RowPeak {
  std::optional<double> flop_per_s;   ///< [FLOP/s]
  std::optional<double> bytes_per_s;  ///< [B/s]
};

/// Numerators and denominators of MFU, HFU, MBU and the waterfall: what may be added up, as the quotients may not.
/// MFU covers the rows whose FLOP and peak are known, and those in which no instance was at work (their FLOP are 0).
/// The others are left out of both sides: a row that nobody could count must not make the rest look slow.
struct Weights {
  double flop = 0, hfu_flop = 0;                  ///< [FLOP]
  double flop_at_peak = 0;                        ///< sum of peak x elapsed [FLOP]
  double flop_at_peak_busy = 0;                   ///< sum of peak x busy [FLOP]
  double bytes = 0, bytes_at_peak = 0;            ///< [B]
  std::array<double, kTimeClasses> counted_ns{};  ///< class times of the rows that MFU covers [ns]
  std::array<double, kTimeClasses> time_ns{};     ///< class times of all rows [ns]
  double with_flop = 0, with_bytes = 0;           ///< rows, or shares of rows, that have FLOP or bytes
  double left_out = 0;                            ///< rows that MFU does not cover

  [[nodiscard]] static Weights of(const RegionSummary& row, const RowPeak& peak);
  /// Adds a share (0..1) of `other`: the part of a window that falls into a longer or a shifted one.
  void add(const Weights& other, double share = 1);

  [[nodiscard]] std::optional<double> mfu() const;
  [[nodiscard]] std::optional<double> hfu() const;
  [[nodiscard]] std::optional<double> mfu_busy() const;
  [[nodiscard]] std::optional<double> mbu() const;
  /// With mfu sums to 1. None where MFU is unknown.
  [[nodiscard]] std::optional<std::array<double, kTimeClasses>> lost() const;
  /// Share of each class in the elapsed time; sums to 1. None where there was no time.
  [[nodiscard]] std::optional<std::array<double, kTimeClasses>> time_shares() const;
};

/// Durations of several rows together. From the histograms of their summaries: quantiles at most 9 % above the truth,
/// never below.
class LatencySum {
 public:
  void add(const LatencySummary& row);
  void add(const LatencySum& other);
  [[nodiscard]] LatencySummary summary() const;

 private:
  DurationHistogram histogram_;
  DurationNs max_ns_ = 0;
};

/// A sum, and what its quotients were divided by.
struct RegionTotals {
  RegionSummary sum;  ///< times in device-seconds
  Weights weights;
  std::uint64_t rows = 0;  ///< that were added up
};

/// One region's rows. Counts, times and latencies are those of all rows, quotients those of their Weights:
/// MFU = sum(FLOP) / sum(peak x elapsed). Rows without device activity (`classes_known` false) are left out altogether
/// where others have it. The sum of one row is that row, to the last digit.
class RegionSum {
 public:
  /// The next window, or the whole run of one device: `open` is that of the latest.
  void add(const RegionSummary& row, const RowPeak& peak);
  /// Another device or rank, beside this one.
  void add(const RegionSum& other);
  [[nodiscard]] bool empty() const noexcept { return seen_.rows + blind_.rows == 0; }
  [[nodiscard]] RegionTotals totals() const;

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
    RegionSummary sum;  ///< counts and times; no quotient
    Weights weights;
    std::uint64_t rows = 0, with_roofline = 0;
    double roofline_s = 0;
    std::array<DurationNs, 3> bound_ns{};  ///< elapsed time by Bound
    double clock_weighted = 0, clock_s = 0;
    DurationNs suspect_ns = -1;  ///< elapsed time of the row that `sum.suspect` is from
    LatencySum latency, inter_token, prefill_to_decode;
    std::map<std::pair<BatchUnit, std::int64_t>, Batch> by_batch;  ///< by unit and smallest batch
    SlowestInstances slowest;
    std::map<std::string, TopKernel> kernels;

    void add(const RegionSummary& row, const RowPeak& peak);
    void add(const Part& other);
    void add_counts(const RegionSummary& row);
    [[nodiscard]] RegionTotals totals() const;
  };

  Part seen_, blind_;
  std::optional<RegionSummary> only_;  ///< the row, while there is one
};

}  // namespace mfu
