#include "core/config/launcher.h"

#include <algorithm>

#include "core/base/number_text.h"

namespace mfu {
namespace {

struct Launcher {
  const char* rank;
  const char* local_rank;
  const char* world;
  const char* world_too;           ///< read where `world` is not set; nullptr: none
  bool (*is_ours)(const Getenv&);  ///< whether the variables say what this process is; nullptr: always
};

bool is_set(const Getenv& getenv, const char* name) { return value_of(getenv, name) != nullptr; }

/// A batch script has a SLURM_PROCID of 0 and the allocation's SLURM_NTASKS, which all that it starts inherits; a task
/// of srun has a step as well.
bool task_of_a_step(const Getenv& getenv) { return !is_set(getenv, "SLURM_JOB_ID") || is_set(getenv, "SLURM_STEP_ID"); }

/// Hydra (mpiexec of MPICH and Intel MPI) sets this beside PMI_RANK; srun, which has a PMI_RANK too, does not.
bool started_by_hydra(const Getenv& getenv) { return is_set(getenv, "MPI_LOCALRANKID"); }

/// Without a WORLD_SIZE the pods of an indexed Kubernetes job may be separate tasks, each of them a rank 0.
bool pods_of_one_job(const Getenv& getenv) { return is_set(getenv, "WORLD_SIZE"); }

/// Lightning starts its processes with no RANK. On the first host the place there is the rank.
bool on_the_first_host(const Getenv& getenv) {
  const char* node = value_of(getenv, "NODE_RANK");
  return node != nullptr && std::string(node) == "0" && is_set(getenv, "WORLD_SIZE");
}

// In this order: torchrun, Open MPI, MVAPICH2, Hydra; those start processes inside an allocation of Slurm, too, whose
// variables are inherited. Then Slurm (SLURM_NTASKS is the allocation's under --preserve-env), PMIx, Flux (which has a
// PMI_RANK as well), PMI, pods, Lightning.
constexpr Launcher kLaunchers[] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", nullptr, nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", nullptr, nullptr},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE", nullptr, nullptr},
    {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", nullptr, started_by_hydra},
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", task_of_a_step},
    {"PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE", nullptr, nullptr},
    {"FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE", nullptr, nullptr},
    {"PMI_RANK", "PMI_LOCAL_RANK", "PMI_SIZE", nullptr, nullptr},
    {"JOB_COMPLETION_INDEX", "LOCAL_RANK", "WORLD_SIZE", nullptr, pods_of_one_job},
    {"LOCAL_RANK", "LOCAL_RANK", "WORLD_SIZE", nullptr, on_the_first_host},
};

std::optional<std::int64_t> number_of(const Getenv& getenv, const char* name) {
  const char* text = value_of(getenv, name);
  return text != nullptr ? parse_whole_number(text) : std::nullopt;
}

/// The name of the job that process `rank` of `world` belongs to; empty where it is alone.
std::string job_of(const Getenv& getenv, std::int64_t rank, std::optional<std::int64_t> world) {
  if (world && *world <= 1) return "";
  const auto text = [&](const char* name) {
    const char* value = value_of(getenv, name);
    return std::string(value != nullptr ? value : "");
  };
  const auto number = [&](const char* name) { return number_of(getenv, name); };
  // A script may have given a task of Slurm a RANK.
  auto tasks = number("SLURM_STEP_NUM_TASKS");
  if (!tasks) tasks = number("SLURM_NTASKS");
  const bool is_the_task = tasks && number("SLURM_PROCID") == rank && tasks == world;
  std::string job;
  if (is_the_task && is_set(getenv, "SLURM_JOB_ID") && is_set(getenv, "SLURM_STEP_ID")) {
    job = "slurm-" + text("SLURM_JOB_ID") + "." + text("SLURM_STEP_ID");
  } else if (is_set(getenv, "PMIX_NAMESPACE")) {
    job = "mpi-" + text("PMIX_NAMESPACE");
  } else if (is_set(getenv, "FLUX_JOB_ID") && number("FLUX_TASK_RANK") == rank) {
    job = "flux-" + text("FLUX_JOB_ID");
  }
  std::replace(job.begin(), job.end(), '/', '_');
  return job;
}

/// Who starts a job again under one name, and counts it. A workload manager comes before what runs inside its
/// allocation. Sources: sbatch(1); torch.distributed.run; the downward variables of indexed Kubernetes jobs; Ray.
constexpr std::pair<const char*, const char*> kRestarters[] = {
    {"SLURM_JOB_ID", "slurm-"}, {"FLUX_JOB_ID", "flux-"}, {"TORCHELASTIC_RUN_ID", "elastic-"}, {"RAY_JOB_ID", "ray-"}};
constexpr const char* kRestarts[] = {"SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"};

/// Pods of an indexed job are named after it: `job-3`. Empty: this is none.
std::string indexed_job(const Getenv& getenv) {
  const char *host = value_of(getenv, "HOSTNAME"), *index = value_of(getenv, "JOB_COMPLETION_INDEX");
  const std::string tail = index != nullptr ? std::string("-") + index : "";
  std::string name = host != nullptr ? host : "";
  if (tail.empty() || !name.ends_with(tail)) return "";
  name.resize(name.size() - tail.size());
  return "kubernetes-" + name;
}

}  // namespace

LauncherFacts read_launcher(const Getenv& getenv) {
  LauncherFacts facts;
  const auto whole_number_of = [&](const char* name) {
    const auto number = number_of(getenv, name);
    const auto is_known = [&](const auto& known) { return std::string_view(known.first) == name; };
    if (is_set(getenv, name) && !number && std::none_of(facts.unusable.begin(), facts.unusable.end(), is_known))
      facts.unusable.emplace_back(name, value_of(getenv, name));
    return number;
  };
  for (const auto& [id, prefix] : kRestarters)
    if (const char* text = value_of(getenv, id); facts.job_id.empty() && text != nullptr && std::string(text) != "none")
      facts.job_id = std::string(prefix) + text;
  if (facts.job_id.empty()) facts.job_id = indexed_job(getenv);
  for (const char* count : kRestarts) facts.restart += number_of(getenv, count).value_or(0);
  for (const Launcher& launcher : kLaunchers) {
    if (!is_set(getenv, launcher.rank) || (launcher.is_ours != nullptr && !launcher.is_ours(getenv))) continue;
    const auto rank = whole_number_of(launcher.rank);
    if (!rank) continue;
    facts.rank = *rank;
    facts.local_rank = whole_number_of(launcher.local_rank);
    auto world = whole_number_of(launcher.world);
    if (!world && launcher.world_too != nullptr) world = whole_number_of(launcher.world_too);
    if (world && *world > 0) facts.world_size = *world;
    facts.job = job_of(getenv, *rank, world);
    return facts;
  }
  facts.local_rank = whole_number_of("LOCAL_RANK");
  if (const auto world = whole_number_of("WORLD_SIZE"); world && *world > 0) facts.world_size = *world;
  return facts;
}

}  // namespace mfu
