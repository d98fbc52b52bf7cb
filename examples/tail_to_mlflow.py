#!/usr/bin/env python3
"""Every window of a run directory as MLflow metrics: tail_to_mlflow.py RUN_DIR EXPERIMENT [RANK]"""

import argparse

from run_tail import follow, scalars

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("run_dir")
parser.add_argument("experiment")
parser.add_argument("rank", type=int, nargs="?", default=0)
arguments = parser.parse_args()

import mlflow  # noqa: E402  after the arguments: --help needs no tracker

mlflow.set_experiment(arguments.experiment)
with mlflow.start_run(run_name=f"mfu rank {arguments.rank}"):
    for start, window in follow(arguments.run_dir):
        if start["rank"] != arguments.rank:
            continue
        step = (window["t1_ns"] - start["t_ns"]) // 1_000_000_000  # seconds since the start
        for name, value in scalars(window).items():
            mlflow.log_metric(name, value, step=step)
