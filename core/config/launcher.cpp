#include "core/config/launcher.h"

#include <cerrno>
#include <cstdlib>

namespace mfu {
namespace {

struct Launcher {
  const char* rank;
  const char* local_rank;
  const char* world;
};

// The index of a pod of a Kubernetes job. Without a WORLD_SIZE the pods may be tasks of their own, each of them a rank
// 0.
constexpr const char* kPodIndex = "JOB_COMPLETION_INDEX";

// In this order: torchrun, Slurm, Open MPI, PMIx, PMI (MPICH, Intel MPI), MVAPICH2, Flux, pods. torchrun inside a Slurm
// job sets both.
constexpr Launcher kLaunchers[] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE"},
    {"PMI_RANK", "PMI_LOCAL_RANK", "PMI_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"},
    {"FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"},
    {kPodIndex, "LOCAL_RANK", "WORLD_SIZE"},
};

std::optional<std::int64_t> whole_number(const char* text) {
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || value < 0 || value > (std::int64_t{1} << 40)) return std::nullopt;
  return value;
}

}  // namespace

LauncherFacts read_launcher(const Getenv& getenv) {
  LauncherFacts facts;
  const auto whole_number_of = [&](const char* name) {
    const char* text = value_of(getenv, name);
    const auto number = whole_number(text);
    if (text != nullptr && !number) facts.unusable.emplace_back(name, text);
    return number;
  };
  const auto read_rest = [&](const char* local_rank, const char* world) {
    facts.local_rank = whole_number_of(local_rank);
    if (const auto size = whole_number_of(world); size && *size > 0) facts.world_size = *size;
  };
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = whole_number_of(launcher.rank);
    if (!rank || (launcher.rank == kPodIndex && value_of(getenv, launcher.world) == nullptr)) continue;
    facts.rank = *rank;
    read_rest(launcher.local_rank, launcher.world);
    return facts;
  }
  read_rest("LOCAL_RANK", "WORLD_SIZE");
  return facts;
}

}  // namespace mfu
