// Work of a run that had no model config, by a config that comes later.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/config/config.h"
#include "core/rows/region_summary.h"
#include "core/sinks/sink.h"

namespace mfu {

/// Counts the rows of one process, in the order of its file. A run directory keeps no shape: an instance's is that of
/// the config's workload and the mean of the region's tokens, so where lengths differ FLOP come out a little low, by
/// the attention alone. Where the shape lacks a length, MFU gets a bound from below. Figures that a row has stay.
class LateCount {
 public:
  /// \param config with a model; must live as long as this.
  explicit LateCount(const Config& config) : config_(config) {}

  /// The start line. Where the run had no model it becomes the config's, with its convention, and the peaks of a dtype
  /// that was assumed become those of the model's. \return whether it had none: the rows of others stay as they are.
  bool start(RunInfo& run);
  /// The next row; `total` comes after the regions of its window. \param whole of the end line
  void count(RegionSummary& row, bool whole = false);
  /// The values that shapes lacked for a count: `step: seq_len`; empty: none.
  [[nodiscard]] const std::string& missing() const noexcept { return missing_; }

 private:
  /// The instances of one region on one device that ended so far.
  struct Instances {
    DurationNs elapsed_ns = 0;
    std::uint64_t count = 0;
    Shape shape;  ///< of the last window's, on average
  };
  void count_region(RegionSummary& row, bool whole);
  void count_total(RegionSummary& row);
  [[nodiscard]] Peak peak_of(const std::optional<std::uint32_t>& device) const;

  const Config& config_;
  bool counts_ = false;
  std::vector<DeviceInfo> devices_;
  std::map<std::pair<std::string, std::optional<std::uint32_t>>, Instances> instances_;
  struct {
    double steps = 0, parts = 0;  ///< FLOP of whole steps and passes; of forward and backward passes
    Phase phase = Phase::kNone;
    std::string suspect;  ///< of the first of these regions that has one
  } window_;
  std::string missing_;
};

}  // namespace mfu
