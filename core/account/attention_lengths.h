// How long the sequences of fused attention kernels are, where their names and grids say it by themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/account/attention_launch.h"

namespace mfu {

/// [mfu-drain] What one kernel leaves open another one says: the grid of a forward kernel counts blocks of queries,
/// that of the backward kernel of the same sequences, heads, width and mask counts blocks of keys. Where both can be of
/// one length, the launches are self-attention of that length. A forward kernel alone says nothing of its keys, which
/// may lie in a cache. Of a process, 8 KiB at most: one step's lengths hold for the next.
class AttentionLengths {
 public:
  /// A launch that ran, in any order.
  void add(const AttentionLaunch& launch) {
    if (launch.number == 0 || added_[launch.number % kMost] != launch.number) add_new(launch);
  }

  /// FLOP of this launch: two products of each query with the keys that it sees, over the width of a head; backward
  /// five (arXiv:2307.08691 section 4.1). Nothing where anything of it is not known for sure. \param rows tokens of the
  /// pass that it was launched in, for lengths that are no whole blocks.
  [[nodiscard]] std::optional<double> flop(const AttentionLaunch& launch,
                                           std::optional<std::int64_t> rows = std::nullopt) const;

 private:
  static constexpr std::size_t kMost = 64;

  void add_new(const AttentionLaunch& launch);
  [[nodiscard]] static std::optional<std::int64_t> queries(const AttentionLaunch& forward,
                                                           std::optional<std::int64_t> rows);
  [[nodiscard]] static bool belong_together(const AttentionLaunch& forward, const AttentionLaunch& backward);

  std::vector<AttentionLaunch> forward_, backward_;  ///< distinct ones
  std::array<std::uint32_t, kMost> added_{};         ///< numbers of launches that need not be looked at again
};

}  // namespace mfu
