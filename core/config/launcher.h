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
  /// The launcher's name for the job, the same for all of its processes on every host: "slurm-12.3" (job and step),
  /// "mpi-" and a PMIx namespace, "flux-" and an id. Without '/'. Empty: this process is alone, or there is no name.
  std::string job;
  /// The launcher's job, the same through its restarts, and how often it was started before: "slurm-12", 2. Empty: no
  /// launcher says so. Set where this process is alone, too.
  std::string job_id;
  std::int64_t restart = 0;
  std::vector<std::pair<const char*, std::string>> unusable;  ///< variables that are no whole number, with their values
};

/// Reads the variables of torchrun, Open MPI, MVAPICH2, Hydra (MPICH, Intel MPI), Slurm, PMIx, Flux and PMI, the first
/// that has a rank: a launcher that is used inside the allocation of another one comes before that. A value that is
/// no whole number counts as absent, and is reported.
[[nodiscard]] LauncherFacts read_launcher(const Getenv& getenv);

}  // namespace mfu
