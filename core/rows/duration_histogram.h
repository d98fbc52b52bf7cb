// How long the instances of a region took: counts in buckets whose width grows with the duration.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/units.h"

namespace mfu {

/// Quantiles of durations, and their histogram.
struct LatencySummary {
  std::uint64_t count = 0;
  DurationNs p50_ns = 0, p90_ns = 0, p99_ns = 0, max_ns = 0;
  /// (inclusive upper edge [ns], durations in the bucket), ascending, empty buckets left out.
  std::vector<std::pair<DurationNs, std::uint64_t>> histogram;
};

/// Log-linear buckets as HdrHistogram has them: 128 to an octave, so a quantile is at most 0.8 % above the truth, and
/// never below it. Only buckets that were met take memory. One thread.
class DurationHistogram {
 public:
  void add(DurationNs duration_ns, std::uint64_t times = 1) {
    if (times == 0) return;
    const std::uint32_t at = bucket(duration_ns);
    auto it = std::lower_bound(buckets_.begin(), buckets_.end(), at,
                               [](const auto& entry, std::uint32_t wanted) { return entry.first < wanted; });
    if (it == buckets_.end() || it->first != at) it = buckets_.insert(it, {at, 0});
    it->second += times;
    count_ += times;
    max_ns_ = std::max(max_ns_, duration_ns);
  }

  void merge(const DurationHistogram& other) {
    const DurationNs max_ns = std::max(max_ns_, other.max_ns_);
    for (const auto& [at, times] : other.buckets_) add(upper_edge(at), times);
    max_ns_ = max_ns;  // an edge counts the durations below it
  }

  void clear() noexcept {
    buckets_.clear();
    count_ = 0;
    max_ns_ = 0;
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// The smallest edge that at least `share` (0..1] of the durations do not exceed [ns]; 0 when empty.
  [[nodiscard]] DurationNs quantile(double share) const noexcept {
    const double wanted = share * static_cast<double>(count_);
    std::uint64_t seen = 0;
    for (const auto& [at, times] : buckets_) {
      seen += times;
      if (static_cast<double>(seen) >= wanted) return std::min(upper_edge(at), max_ns_);
    }
    return max_ns_;
  }

  /// Quantiles, and the histogram in eighths of an octave.
  [[nodiscard]] LatencySummary summary() const {
    LatencySummary s;
    s.count = count_;
    if (count_ == 0) return s;
    s.p50_ns = quantile(0.5);
    s.p90_ns = quantile(0.9);
    s.p99_ns = quantile(0.99);
    s.max_ns = max_ns_;
    constexpr std::uint32_t kFinePerCoarse = (1u << kSubBits) / 8;
    for (const auto& [at, times] : buckets_) {
      const DurationNs edge = upper_edge(at / kFinePerCoarse * kFinePerCoarse + kFinePerCoarse - 1);
      if (s.histogram.empty() || s.histogram.back().first != edge) s.histogram.emplace_back(edge, 0);
      s.histogram.back().second += times;
    }
    return s;
  }

 private:
  static constexpr std::uint32_t kSubBits = 7;

  /// Durations below 128 ns have a bucket each; above, the 7 bits after the leading one choose it.
  [[nodiscard]] static std::uint32_t bucket(DurationNs duration_ns) noexcept {
    const auto value = static_cast<std::uint64_t>(std::max<DurationNs>(0, duration_ns));
    if (value < (1u << kSubBits)) return static_cast<std::uint32_t>(value);
    const auto octave = static_cast<std::uint32_t>(std::bit_width(value)) - 1 - kSubBits;
    return ((octave + 1) << kSubBits) + static_cast<std::uint32_t>((value >> octave) & ((1u << kSubBits) - 1));
  }
  /// The largest duration of a bucket [ns].
  [[nodiscard]] static DurationNs upper_edge(std::uint32_t at) noexcept {
    if (at < (1u << kSubBits)) return at;
    const std::uint32_t octave = (at >> kSubBits) - 1;
    const std::uint64_t lead = (1u << kSubBits) + (at & ((1u << kSubBits) - 1));
    return static_cast<DurationNs>(((lead + 1) << octave) - 1);
  }

  std::vector<std::pair<std::uint32_t, std::uint64_t>> buckets_;  ///< ascending
  std::uint64_t count_ = 0;
  DurationNs max_ns_ = 0;
};

}  // namespace mfu
