// Times are integer nanoseconds on one clock; intervals are half-open. FLOP is a count, FLOP/s a rate.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mfu {

using TimeNs = std::int64_t;      ///< ns since the UTC epoch (live) or since any fixed zero (replay)
using DurationNs = std::int64_t;  ///< ns

inline constexpr DurationNs kNsPerSecond = 1'000'000'000;

/// [begin_ns, end_ns): holds begin_ns, not end_ns. Empty when end_ns <= begin_ns.
struct Interval {
  TimeNs begin_ns = 0;
  TimeNs end_ns = 0;

  [[nodiscard]] constexpr DurationNs length_ns() const noexcept { return std::max<DurationNs>(0, end_ns - begin_ns); }
  /// The part that lies in both.
  [[nodiscard]] constexpr Interval overlap(const Interval& other) const noexcept {
    return {std::max(begin_ns, other.begin_ns), std::min(end_ns, other.end_ns)};
  }
};

[[nodiscard]] constexpr double seconds(DurationNs ns) noexcept { return static_cast<double>(ns) * 1e-9; }

}  // namespace mfu
