// The last launches of one device, each as a few bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/zeroed_array.h"
#include "core/detect/launch.h"

namespace mfu {

/// Index of a launch, counted from the first one ever added.
using LaunchPosition = std::uint64_t;

/// [one thread] Hot: add() runs for every launch; no allocation after construction.
class LaunchHistory {
 public:
  static constexpr std::uint32_t kRing = 1u << 17;  ///< launches that are remembered

  /// `first`: the position of the first launch that will be added.
  explicit LaunchHistory(LaunchPosition first) : first_(first), n_(first) {}

  void add(const Launch& launch) noexcept {
    const std::uint32_t at = slot(n_++);
    keys_[at] = launch.traits.family != 0 ? kFamily | launch.traits.family : launch.name;
    flags_[at] = launch.traits.flags;
    begins_[at] = launch.begin_ns;
  }

  [[nodiscard]] LaunchPosition end() const noexcept { return n_; }  ///< of the next launch
  [[nodiscard]] LaunchPosition oldest() const noexcept { return n_ > first_ + kRing ? n_ - kRing : first_; }
  /// Equal for equal kernels, graphs or directions of a copy, and for one operation on other shapes.
  [[nodiscard]] std::uint32_t key(LaunchPosition p) const noexcept { return keys_[slot(p)]; }
  [[nodiscard]] bool has(LaunchPosition p, unsigned flags) const noexcept { return (flags_[slot(p)] & flags) != 0; }
  [[nodiscard]] TimeNs begin_ns(LaunchPosition p) const noexcept { return begins_[slot(p)]; }
  /// A matrix product, a convolution, attention, or a graph that may hold some.
  [[nodiscard]] bool is_product(LaunchPosition p) const noexcept {
    return (keys_[slot(p)] & kFamily) != 0 || has(p, kFlagGraph);
  }
  [[nodiscard]] std::size_t held_bytes() const noexcept {
    return std::size_t{kRing} * (sizeof(keys_[0]) + sizeof(flags_[0]) + sizeof(begins_[0]));
  }

 private:
  static constexpr std::uint32_t kFamily = 0x4000'0000u;
  [[nodiscard]] static std::uint32_t slot(LaunchPosition p) noexcept {
    return static_cast<std::uint32_t>(p) & (kRing - 1);
  }

  LargeZeroedTable<std::uint32_t> keys_{kRing};
  LargeZeroedTable<std::uint8_t> flags_{kRing};
  LargeZeroedTable<TimeNs> begins_{kRing};
  LaunchPosition first_, n_;
};

/// Compares stretches of launches in any order. [one thread] Memory is fixed at construction.
class StretchComparison {
 public:
  /// The common part of [a, a_end) and [b, b_end), as a share of the longer one: 0..1; 0: too many names.
  [[nodiscard]] double likeness(const LaunchHistory& history, LaunchPosition a, LaunchPosition a_end, LaunchPosition b,
                                LaunchPosition b_end);
  [[nodiscard]] std::size_t held_bytes() const noexcept { return kSlots * (sizeof(Count) + sizeof(used_[0])); }

 private:
  static constexpr std::uint32_t kSlotBits = 12, kSlots = 1u << kSlotBits;
  struct Count {
    std::uint32_t key = 0;  ///< plus one; 0: free
    std::int32_t count = 0;
  };
  Count* find(std::uint32_t key) noexcept;

  std::vector<Count> counts_ = std::vector<Count>(kSlots);
  std::vector<std::uint32_t> used_;
};

}  // namespace mfu
