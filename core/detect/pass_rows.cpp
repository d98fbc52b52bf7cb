#include "core/detect/pass_rows.h"

#include <algorithm>
#include <span>

#include "core/detect/thresholds.h"

namespace mfu {
namespace {

using namespace thresholds;

/// True where `per_head` launches may be norms of queries or keys beside `of_rows` launches of row norms: each layer
/// has a fixed number of both, and a pass has a last row norm, which no layer owns.
constexpr bool fits_layers(std::uint32_t of_rows, std::uint32_t per_head) noexcept {
  return per_head <= of_rows && of_rows % per_head * kPart <= of_rows;
}

}  // namespace

void PassRows::Counts::add(std::uint32_t rows) noexcept {
  const auto end = counts.begin() + used;
  const auto known = std::find_if(counts.begin(), end, [rows](const Count& c) { return c.rows == rows; });
  if (known != end)
    ++known->launches;
  else if (used < kMost)
    counts[used++] = {rows, 1};
  else
    more = true;
}

std::uint64_t PassRows::Counts::launches() const noexcept {
  std::uint64_t sum = 0;
  for (const Count& c : std::span(counts.data(), used)) sum += c.launches;
  return sum;
}

std::optional<PassRows::Count> PassRows::Counts::same() const noexcept {
  if (more) return std::nullopt;
  const std::uint64_t all = launches();
  for (const Count& c : std::span(counts.data(), used))
    if (c.launches > 1 && within<std::uint64_t>(c.launches, all, kAlike)) return c;
  return std::nullopt;
}

std::optional<PassRows::Count> PassRows::Counts::same_or_per_head() const noexcept {
  if (more) return std::nullopt;
  const std::uint64_t all = launches();
  const std::span known(counts.data(), used);
  for (const Count& c : known) {
    std::uint64_t explained = c.launches;
    int multiples = 0;  // of queries, and of keys where they have fewer heads
    for (const Count& other : known) {
      if (other.rows <= c.rows || other.rows % c.rows != 0 || other.rows / c.rows > kMostHeads) continue;
      if (!fits_layers(c.launches, other.launches)) continue;
      explained += other.launches;
      ++multiples;
    }
    if (c.launches > 1 && multiples <= 2 && within(explained, all, kAlike)) return c;
  }
  return std::nullopt;
}

void PassRows::add(const KernelTraits& traits, const Grid& grid) noexcept {
  constexpr std::uint32_t kMostBlocks = 65'535;  // along y; these kernels loop over what is beyond
  const RowAxis axis = traits.row_axis;
  if (axis == RowAxis::kX && (grid.y != 1 || grid.z != 1)) return;
  if (axis == RowAxis::kY && (grid.x != 1 || grid.z != 1 || grid.y >= kMostBlocks)) return;
  const std::uint32_t rows = axis == RowAxis::kNone ? 0 : axis == RowAxis::kY ? grid.y : grid.x;
  if (rows == 0) return;
  if (traits.role == KernelRole::kCacheWrite) cache_writes_.add(rows);
  if (traits.role == KernelRole::kRope) ropes_.add(rows);
  if (traits.role == KernelRole::kNorm) norms_.add(rows);
}

std::optional<Rows> PassRows::rows() const noexcept {
  const std::optional<Count> written = cache_writes_.same(), rotated = ropes_.same(),
                             normed = norms_.same_or_per_head();
  if (rotated && normed && rotated->rows != normed->rows) return std::nullopt;
  const std::optional<Count>& ran = rotated ? rotated : normed;
  if (written) {
    if (ran && (ran->rows < written->rows || ran->rows / 2 >= written->rows)) return std::nullopt;
    return Rows{written->rows, KernelRole::kCacheWrite, written->launches};
  }
  if (!ran) return std::nullopt;
  return Rows{ran->rows, rotated ? KernelRole::kRope : KernelRole::kNorm, ran->launches};
}

}  // namespace mfu
