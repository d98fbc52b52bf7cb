#!/bin/sh
# TaskEpilog of slurm.conf: as the user, after each task. The first rank leaves the job's page beside its run files, and one line of
# JSON in the job's comment, for `squeue -o %k`, `sacct -o Comment` (AccountingStoreFlags=job_comment) and what reads these; `mfu report`
# makes a newer page once all ranks have ended.
MFUINJECT=${MFUINJECT:-/opt/mfuinject}
[ "${SLURM_PROCID:-0}" = 0 ] || exit 0
runs=${MFU_RUN_DIR:-${SLURM_SUBMIT_DIR:-.}/mfu-runs/slurm-$SLURM_JOB_ID.$SLURM_STEP_ID}
[ -d "$runs" ] || exit 0
timeout 60 "$MFUINJECT/bin/mfu" report "$runs" -o "$runs/report.html" >/dev/null 2>&1
command -v scontrol >/dev/null && command -v python3 >/dev/null || exit 0
comment=$(timeout 60 "$MFUINJECT/bin/mfu" report "$runs" --json 2>/dev/null | python3 -c '
import json, sys
job = json.load(sys.stdin)["job"]
rows = job["regions"]
keys = ("mfu", "hfu", "mbu", "mfu_lower")
out = {row["region"]: {k: round(row[k], 4) for k in keys if row.get(k) is not None and not row.get("suspect")} for row in rows}
life = {k: round(job[k], 4) for k in ("mfu_job", "productive", "alive", "gpu_hours") if job.get(k) is not None}
text = json.dumps({"mfuinject": 1, "job": life, **{k: v for k, v in out.items() if v}}, separators=(",", ":"))
print(text if len(text) <= 1000 else json.dumps({"mfuinject": 1, "job": life, "total": out.get("total", {})}))
' 2>/dev/null) || exit 0
[ -n "$comment" ] && timeout 10 scontrol update "JobId=$SLURM_JOB_ID" "Comment=$comment" >/dev/null 2>&1
exit 0
