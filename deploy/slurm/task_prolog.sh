#!/bin/sh
# TaskProlog of slurm.conf: every task of jobs that ask for it is measured, whatever its command is. Lines that begin with
# `export` become the task's environment. A user asks with `sbatch --comment=mfu` or by setting MFU_RUN_DIR.
MFUINJECT=${MFUINJECT:-/opt/mfuinject}
[ -n "$MFU_RUN_DIR" ] || [ "$SLURM_JOB_COMMENT" = mfu ] || exit 0
echo "export CUDA_INJECTION64_PATH=$MFUINJECT/lib/libmfuinject.so"
echo "export NVTX_INJECTION64_PATH=$MFUINJECT/lib/libmfuinject.so"
[ -n "$MFU_RUN_DIR" ] || echo "export MFU_RUN_DIR=${SLURM_SUBMIT_DIR:-.}/mfu-runs/slurm-$SLURM_JOB_ID.$SLURM_STEP_ID"
