"""Stands in for torchrun, accelerate, deepspeed, srun, mpirun and mpiexec: starts ranks on this machine with the variables
that the real one sets, and ends as it does.

    fake_launcher.py NAME [the launcher's own words...] PROGRAM...
"""

import os
import subprocess
import sys

import mfuinject

name, words = sys.argv[1], sys.argv[2:]

# The helper is no rank: it marks a range, as an agent that imports the training script's modules may, and has no GPU work.
with mfuinject.region("step"):
    pass


def take(*options):
    """Removes `OPTION N` from the launcher's words and returns N."""
    for option in options:
        if option in words:
            at = words.index(option)
            value = words[at + 1]
            del words[at:at + 2]
            return int(value)
    sys.exit(f"{name}: none of {options} among {words}")


def torch_elastic(rank, world):
    """torch/distributed/elastic/agent/server/local_elastic_agent.py"""
    return {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": world,
        "GROUP_RANK": 0,
        "GROUP_WORLD_SIZE": 1,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 29500,
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": 0,
        "OMP_NUM_THREADS": 1,
    }


def slurm(rank, world):
    """The output environment variables of srun(1)."""
    return {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": world, "SLURM_NODEID": 0, "SLURM_JOB_ID": 4711,
            "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": world}


def open_mpi(rank, world):
    """mpirun(1) of Open MPI 4."""
    return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_SIZE": world,
            "OMPI_COMM_WORLD_LOCAL_SIZE": world, "OMPI_UNIVERSE_SIZE": world, "PMIX_RANK": rank, "PMIX_NAMESPACE": "815923201"}


def hydra(rank, world):
    """mpiexec of MPICH: one pipe to the process manager per rank, and these."""
    return {"PMI_RANK": rank, "PMI_SIZE": world, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": world}


python = [sys.executable, "-u"]
if name == "torchrun":
    world, variables, program = take("--nproc-per-node", "--nproc_per_node"), torch_elastic, [*python, *words]
elif name == "accelerate":
    words.remove("launch")
    world, program = take("--num_processes"), [*python, *words]
    variables = lambda rank, world: {**torch_elastic(rank, world), "ACCELERATE_MIXED_PRECISION": "no"}  # noqa: E731
elif name == "deepspeed":
    if "--node" not in words:  # the command starts a launcher per node, and that one the ranks
        sys.exit(subprocess.call([sys.executable, __file__, name, "--node", *words]))
    words.remove("--node")
    world, program = take("--num_gpus"), [*python, *words]
    variables = lambda rank, world: {k: v for k, v in torch_elastic(rank, world).items()  # noqa: E731
                                     if k in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
elif name == "srun":
    world, variables, program = take("-n"), slurm, words
elif name == "mpirun":
    world, variables, program = take("-np"), open_mpi, words
elif name == "mpiexec":
    world, variables, program = take("-n"), hydra, words
else:
    sys.exit(f"no launcher {name}")

ranks = [subprocess.Popen(program + ([f"--local_rank={rank}"] if name == "deepspeed" else []),
                          env={**os.environ, **{k: str(v) for k, v in variables(rank, world).items()}}) for rank in range(world)]
codes = [rank.wait() for rank in ranks]
# torchrun and accelerate say 1 for any failure, the others pass a rank's own code on.
sys.exit(int(any(codes)) if name in ("torchrun", "accelerate") else max(codes))
