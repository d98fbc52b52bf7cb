#!/usr/bin/env python3
"""Every window of a run directory as MLflow metrics: tail_to_mlflow.py RUN_DIR EXPERIMENT [RANK]"""

import sys

import mlflow

from run_tail import follow, scalars

directory, experiment, rank = sys.argv[1], sys.argv[2], int((sys.argv[3:] or [0])[0])
mlflow.set_experiment(experiment)
with mlflow.start_run(run_name=f"mfu rank {rank}"):
    for start, window in follow(directory):
        if start["rank"] != rank:
            continue
        step = (window["t1_ns"] - start["t_ns"]) // 1_000_000_000  # seconds since the start
        for name, value in scalars(window).items():
            mlflow.log_metric(name, value, step=step)
