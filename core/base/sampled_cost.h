// The cost of something short that is timed now and then, by a clock that goes on while the thread does not run.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/base/ticks.h"

namespace mfu {

/// Samples by powers of two. [any thread] add; lock-free.
///
/// A thread that is preempted inside what is timed makes a sample of milliseconds, which is not its cost. mean() leaves
/// out what is more than 16 times the median: caches and branch predictors account for less than that.
class SampledCost {
 public:
  /// \param took below 0: the thread changed to a processor whose counter is behind.
  void add(Ticks took) noexcept {
    const auto ticks = static_cast<std::uint64_t>(took > 0 ? took : 0);
    Range& range = ranges_[static_cast<std::size_t>(std::bit_width(ticks))];
    range.ticks.fetch_add(ticks, std::memory_order_relaxed);
    range.samples.fetch_add(1, std::memory_order_relaxed);
  }
  struct Estimate {
    double mean = 0, error = 0;  ///< the error is half of the 95 % interval
  };
  /// Ticks per call; 0 without samples.
  [[nodiscard]] Estimate estimate() const noexcept {
    std::array<std::uint64_t, kRanges> samples{};
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < kRanges; ++i) all += samples[i] = ranges_[i].samples.load(std::memory_order_relaxed);
    if (all == 0) return {};
    std::size_t median = 0;
    for (std::uint64_t below = samples[0]; below * 2 < all; below += samples[++median]) {
    }
    std::uint64_t ticks = 0, counted = 0;
    double squares = 0;  // as if all of a range were alike
    for (std::size_t i = 0; i < kRanges && i <= median + kWider; ++i) {
      if (samples[i] == 0) continue;
      const std::uint64_t sum = ranges_[i].ticks.load(std::memory_order_relaxed);
      ticks += sum;
      counted += samples[i];
      squares += static_cast<double>(sum) / static_cast<double>(samples[i]) * static_cast<double>(sum);
    }
    const auto n = static_cast<double>(counted);
    const double mean = static_cast<double>(ticks) / n;
    return {mean, 2 * std::sqrt(std::max(0.0, squares / n - mean * mean) / n)};
  }
  [[nodiscard]] double mean() const noexcept { return estimate().mean; }

 private:
  static constexpr std::size_t kRanges = 65, kWider = 4;
  struct Range {
    std::atomic<std::uint64_t> ticks{0}, samples{0};
  };
  std::array<Range, kRanges> ranges_;
};

}  // namespace mfu
