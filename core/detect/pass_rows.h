// How many rows (tokens) a forward pass ran over, read from the grids of kernels with one block per row. No allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/base/activity_record.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {

struct Rows {
  std::int64_t rows = 0;                 ///< of one pass on this device, however often it ran
  KernelRole from = KernelRole::kOther;  ///< kCacheWrite, kRope or kNorm
  std::uint32_t launches = 0;            ///< of that class with this many rows: layers x passes
};

/// Is fed every kernel of one step, iteration or phase, in any order, kernels inside graphs included. Answers only
/// where the launches agree:
///   - cache writes and rotary embeddings: seven in eight have the same count;
///   - norms: seven in eight have the same count, or a multiple of it by a number of attention heads. Norms of queries
///     and keys run over rows x heads, once or twice per layer, where those of rows run at least as often;
///   - two classes do not contradict each other. Cache writes may count fewer than the rest, by less than half: rows
///     that only fill up a graph's batch are not written (vLLM pads to the next size that it captured, and every one of
///     those is at most twice the one before).
/// The first class of these that answers is named. Repeated passes (accumulation, recomputation) do not change the
/// rows, only the launches. With sequence parallelism norms run on a device's share of the rows.
class PassRows {
 public:
  void add(const KernelTraits& traits, const Grid& grid) noexcept;
  [[nodiscard]] std::optional<Rows> rows() const noexcept;

 private:
  struct Count {
    std::uint32_t rows = 0, launches = 0;
  };
  /// The launches of one class by their rows, in the order of their first.
  struct Counts {
    static constexpr std::size_t kMost = 24;
    std::array<Count, kMost> counts{};
    std::uint32_t used = 0;
    bool more = false;  ///< than there is room for: batches of many sizes, so no one pass to speak of

    void add(std::uint32_t rows) noexcept;
    [[nodiscard]] std::uint64_t launches() const noexcept;
    [[nodiscard]] std::optional<Count> same() const noexcept;
    [[nodiscard]] std::optional<Count> same_or_per_head() const noexcept;
  };

  Counts cache_writes_, ropes_, norms_;
};

}  // namespace mfu
