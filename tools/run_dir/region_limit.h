// How many regions of one file are kept apart.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/rows/region_summary.h"

namespace mfu {

/// A process has at most 256 rules for regions, and as many devices as its machine. A file with more than kNames names
/// or kRows rows to a window was made up, and would be memory and time series without end: rows beyond them become
/// the region `other`, of no device.
class RegionLimit {
 public:
  static constexpr std::size_t kNames = 512, kRows = 8192;

  /// Puts a row into its window. A second row of a region and device in one window takes the place of the first; those
  /// of `other` are added up, without quotients. Returns where the row is now.
  RegionSummary& put(std::vector<RegionSummary>& window, RegionSummary&& row);
  /// Forgets which rows the window has: the next one begins.
  void next_window() noexcept { here_.clear(); }
  [[nodiscard]] bool reached() const noexcept { return reached_; }

 private:
  using Key = std::pair<std::string, std::optional<std::uint32_t>>;
  std::set<std::string> names_;
  std::set<Key> rows_;
  std::map<Key, std::size_t> here_;  ///< of this window: index of its row
  bool reached_ = false;
};

}  // namespace mfu
