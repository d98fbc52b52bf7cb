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

  friend bool operator==(const AttentionLaunch&, const AttentionLaunch&) = default;
};

}  // namespace mfu
