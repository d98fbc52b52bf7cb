#!/usr/bin/env python3
"""Every window of a run directory as a Weights & Biases history: tail_to_wandb.py RUN_DIR PROJECT [RANK]"""

import argparse

from run_tail import follow, scalars

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("run_dir")
parser.add_argument("project")
parser.add_argument("rank", type=int, nargs="?", default=0)
arguments = parser.parse_args()

import wandb  # noqa: E402  # after the arguments: --help needs no tracker

run = None
for start, window in follow(arguments.run_dir):
    if start["rank"] != arguments.rank:
        continue
    if run is None:
        facts = {k: start.get(k) for k in ("config", "model", "devices", "world")}
        run = wandb.init(project=arguments.project, job_type="mfu", config=facts)
        run.define_metric("*", step_metric="window_end_s")
    run.log({**scalars(window), "window_end_s": window["t1_ns"] / 1e9})
if run is not None:
    run.finish()
