// Which process of its job this one is, as the launcher says it.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/environment.h"

namespace mfu {

struct LauncherFacts {
  std::int64_t rank = 0;
  std::optional<std::int64_t> local_rank;  ///< among the processes of its host; none: the launcher does not say
  std::int64_t world_size = 1;
};

/// Reads the variables of torchrun, Slurm, Open MPI, PMIx, PMI (MPICH, Intel MPI) and Flux, the first that has a rank.
/// A value that is no whole number counts as absent.
[[nodiscard]] LauncherFacts read_launcher(const Getenv& getenv);

}  // namespace mfu
