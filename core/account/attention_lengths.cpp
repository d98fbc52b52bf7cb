#include "core/account/attention_lengths.h"

#include <algorithm>

namespace mfu {
namespace {

using Kernel = AttentionKernel;

/// Its name and grid say all that FLOP depend on but the length of sequences.
bool says_enough(const AttentionLaunch& launch) {
  const Kernel& kernel = launch.kernel;
  return launch.sequences && heads_of(kernel, launch.grid) && kernel.head_dim != 0 &&
         kernel.mask != Kernel::Mask::kUnknown;
}

}  // namespace

void AttentionLengths::add_new(const AttentionLaunch& launch) {
  added_[launch.number % kMost] = launch.number;
  if (launch.kernel.part == Kernel::Part::kHelper || !says_enough(launch)) return;
  std::vector<AttentionLaunch>& known = launch.kernel.part == Kernel::Part::kForward ? forward_ : backward_;
  // The newest last: of more than kMost the one that came first is forgotten.
  if (!known.empty() && known.back() == launch) return;
  if (std::find(known.begin(), known.end(), launch) != known.end()) return;
  if (known.size() == kMost) {
    known.erase(known.begin());
    added_.fill(0);
  }
  known.push_back(launch);
}

std::optional<std::int64_t> AttentionLengths::queries(const AttentionLaunch& forward,
                                                      std::optional<std::int64_t> rows) {
  if (forward.kernel.queries_per_block == 0 || forward.grid.x == 0) return std::nullopt;
  if (forward.kernel.whole_blocks) return std::int64_t{forward.grid.x} * forward.kernel.queries_per_block;
  if (!rows || *rows % *forward.sequences != 0) return std::nullopt;
  const std::int64_t each = *rows / *forward.sequences;
  return may_have_queries(forward.kernel, forward.grid, each) ? std::optional(each) : std::nullopt;
}

bool AttentionLengths::belong_together(const AttentionLaunch& forward, const AttentionLaunch& backward) {
  return forward.sequences == backward.sequences && forward.kernel.head_dim == backward.kernel.head_dim &&
         forward.kernel.mask == backward.kernel.mask &&
         heads_of(forward.kernel, forward.grid) == heads_of(backward.kernel, backward.grid);
}

std::optional<double> AttentionLengths::flop(const AttentionLaunch& launch, std::optional<std::int64_t> rows) const {
  if (launch.kernel.part == Kernel::Part::kHelper || !says_enough(launch)) return std::nullopt;
  std::optional<std::int64_t> length;
  if (launch.kernel.part == Kernel::Part::kForward) {
    const std::optional<std::int64_t> each = queries(launch, rows);
    const auto shows = [&](const AttentionLaunch& backward) {
      return belong_together(launch, backward) && has_keys(backward.kernel, backward.grid, *each);
    };
    if (each && std::any_of(backward_.begin(), backward_.end(), shows)) length = each;
  } else {
    for (const AttentionLaunch& forward : forward_) {
      if (!belong_together(forward, launch)) continue;
      const std::optional<std::int64_t> each = queries(forward, rows);
      if (!each || !has_keys(launch.kernel, launch.grid, *each)) continue;
      if (length && length != each) return std::nullopt;  // it may be the backward kernel of either
      length = each;
    }
  }
  if (!length) return std::nullopt;
  const auto n = static_cast<double>(*length);
  const double pairs = launch.kernel.mask == Kernel::Mask::kCausal ? n * (n + 1) / 2 : n * n;
  const double products = launch.kernel.part == Kernel::Part::kForward ? 2 : 5;
  return products * 2 * pairs * launch.kernel.head_dim * static_cast<double>(*launch.sequences) *
         static_cast<double>(*heads_of(launch.kernel, launch.grid));
}

}  // namespace mfu
