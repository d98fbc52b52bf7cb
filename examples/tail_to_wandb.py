#!/usr/bin/env python3
"""Every window of a run directory as a Weights & Biases history: tail_to_wandb.py RUN_DIR PROJECT [RANK]"""

import sys

import wandb

from run_tail import follow, scalars

directory, project, rank = sys.argv[1], sys.argv[2], int((sys.argv[3:] or [0])[0])
run = None
for start, window in follow(directory):
    if start["rank"] != rank:
        continue
    if run is None:
        run = wandb.init(project=project, job_type="mfu", config={k: start.get(k) for k in ("config", "model", "devices", "world")})
        run.define_metric("*", step_metric="window_end_s")
    run.log({**scalars(window), "window_end_s": window["t1_ns"] / 1e9})
if run is not None:
    run.finish()
