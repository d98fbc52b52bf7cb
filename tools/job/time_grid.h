// MFU over time, for a run of any length and any number of ranks, in a bounded number of points.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/base/units.h"
#include "core/rows/duration_histogram.h"
#include "core/rows/region_totals.h"

namespace mfu {

/// Bins of equal width on one line of time, the same for every region. They begin as wide as a window; when there are
/// more than kMaxBins, pairs become one. A bin holds sums (Weights), so its MFU is that of everything in it,
/// and the sum over all bins is that of the run.
class TimeGrid {
 public:
  static constexpr std::int64_t kMaxBins = 400;

  struct Bin {
    Weights weights;
    /// MFU of the rank that was lowest and highest in any bin that became part of this one.
    std::optional<double> lowest, highest;
    bool classes_known = true;
    /// Of the instances that ended: their number, the sum of their windows' medians (each times its instances) [ns],
    /// and the longest one.
    double instances = 0, medians_ns = 0;
    DurationNs longest_ns = 0;

    void add_instances(const Bin& other, double part) noexcept;
    /// Mean of the medians [s]; none where no instance ended.
    [[nodiscard]] std::optional<double> median_s() const noexcept {
      return instances > 0 ? std::optional(medians_ns / instances * 1e-9) : std::nullopt;
    }
  };
  using Bins = std::map<std::int64_t, Bin>;  ///< index: from anchor_ns_ + index x width_ns() on

  TimeGrid() = default;
  /// An empty grid with the bins of another one.
  [[nodiscard]] static TimeGrid like(const TimeGrid& other);

  /// Adds one window of a region. One that crosses bins is split by time. \param latency of its instances
  void add(const std::string& region, Interval window, const Weights& weights, bool classes_known,
           const LatencySummary& latency = {});
  /// Adds what one rank did, a grid made `like` this one.
  void add_rank(TimeGrid rank);

  [[nodiscard]] bool empty() const noexcept { return regions_.empty(); }
  [[nodiscard]] DurationNs width_ns() const noexcept { return width_ns_; }
  [[nodiscard]] const std::map<std::string, Bins>& regions() const noexcept { return regions_; }

 private:
  [[nodiscard]] std::int64_t index_of(TimeNs t) const noexcept;
  void reach(std::int64_t first, std::int64_t last);
  void halve();

  TimeNs anchor_ns_ = 0;
  DurationNs width_ns_ = 0;  ///< 0: nothing was added yet
  std::int64_t first_ = 0, last_ = -1;
  std::map<std::string, Bins> regions_;
};

}  // namespace mfu
