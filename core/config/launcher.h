// Which process of its job this one is, as the launcher says it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/environment.h"

namespace mfu {

struct LauncherFacts {
  std::int64_t rank = 0;
  std::optional<std::int64_t> local_rank;  ///< among the processes of its host; none: the launcher does not say
  std::int64_t world_size = 1;
  std::vector<std::pair<const char*, std::string>> unusable;  ///< variables that are no whole number, with their values
};

/// Reads the variables of torchrun, Slurm, Open MPI, PMIx, PMI (MPICH, Intel MPI), MVAPICH2 and Flux, the first that
/// has a rank. A value that is no whole number counts as absent, and is told.
[[nodiscard]] LauncherFacts read_launcher(const Getenv& getenv);

}  // namespace mfu
