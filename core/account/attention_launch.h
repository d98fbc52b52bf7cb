// A fused attention kernel that ran, and what its grid says.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/activity_record.h"
#include "core/kernels/attention_grid.h"

namespace mfu {

struct AttentionLaunch {
  AttentionLaunch() = default;
  AttentionLaunch(const AttentionKernel& of, const Grid& g) noexcept
      : kernel(of), grid(g), sequences(sequences_of(of, g)) {}

  AttentionKernel kernel;
  Grid grid;
  std::optional<std::int64_t> sequences;
  std::uint32_t number = 0;  ///< launches of one number are equal, and equal ones mostly have one; 0: not numbered

  friend bool operator==(const AttentionLaunch& a, const AttentionLaunch& b) noexcept {
    return a.kernel == b.kernel && a.grid == b.grid;
  }
};

}  // namespace mfu
