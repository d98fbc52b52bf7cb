// The slowest instances of a row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/rows/region_summary.h"

namespace mfu {

/// The longest instances of those it was shown.
class SlowestInstances {
 public:
  static constexpr std::size_t kMost = 3;
  /// Fewer instances than these have no typical one.
  static constexpr std::uint64_t kEnough = 5;
  /// Beyond the median [ratio]: less is the usual spread.
  static constexpr double kFactor = 1.1;

  void add(const SlowInstance& instance) noexcept;
  void merge(const SlowestInstances& other) noexcept {
    for (const SlowInstance& s : other.all()) add(s);
  }
  [[nodiscard]] std::span<const SlowInstance> all() const noexcept { return {slowest_.data(), count_}; }
  /// Those that are slow beside the others; `latency` is that of all instances.
  [[nodiscard]] std::vector<SlowInstance> beyond(const LatencySummary& latency) const;

 private:
  std::array<SlowInstance, kMost> slowest_;  ///< longest first, at equal length the earlier one
  std::size_t count_ = 0;
};

}  // namespace mfu
