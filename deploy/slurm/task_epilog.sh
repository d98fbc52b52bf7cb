#!/bin/sh
# TaskEpilog of slurm.conf: as the user, after each task. The first rank leaves the job's page beside its run files; `mfu report`
# makes a newer one once all ranks have ended.
MFUINJECT=${MFUINJECT:-/opt/mfuinject}
[ "${SLURM_PROCID:-0}" = 0 ] || exit 0
runs=${MFU_RUN_DIR:-${SLURM_SUBMIT_DIR:-.}/mfu-runs/slurm-$SLURM_JOB_ID.$SLURM_STEP_ID}
[ -d "$runs" ] || exit 0
timeout 60 "$MFUINJECT/bin/mfu" report "$runs" -o "$runs/report.html" >/dev/null 2>&1
exit 0
