"""Which rows decide which assumption. A row decides by `ok`; one that no step could fill leaves the assumption unseen."""

from __future__ import annotations

from typing import Any

# What the library relies on: (step, beginning of the row's name), all of which must hold.
ASSUMPTIONS: dict[str, list[tuple[str, str]]] = {
    "the driver loads the library inside cuInit and the program goes on": [
        ("injection", "exit with the library"),
        ("injection", "processes with a start line"),
    ],
    "a path that leads nowhere does no harm": [("injection", "exit with a wrong path")],
    "a user without rights can measure": [("injection", "level as another user")],
    "every launch is seen, and has a record": [("work", "launches seen"), ("work", "launches without a record")],
    "every kernel is recorded, in graphs too": [("work", "kernels, node"), ("work", "kernels, auto")],
    "kernels' times are right": [("work", "kernel time")],
    "CUDA events agree": [("work", "by events")],
    "a GPU that never runs dry is measured in time": [("work", "busy"), ("work", "lag")],
    "nothing was contradicted while measuring": [("work", "assumptions contradicted")],
    "graphs can be timed as a whole, and split": [("work", "graphs split")],
    "the library without CUPTI costs a launch nothing": [("price", "launch, no CUPTI")],
    "a launch costs less than 3 us more": [("price", "launch, auto")],
    "a graph timed as a whole costs less than 1 us more per node": [("price", "node, auto")],
    "kernels of many short blocks are not slowed down": [("price", "kernel of many blocks")],
    "times of graph kernels do not run out, auto": [("exhaust", "untimed, auto")],
    "times of graph kernels do not run out, node": [("exhaust", "untimed, node")],
    "tracing takes little device memory": [("exhaust", "device memory, auto")],
    "products of cuBLAS are seen exactly": [("blas", "executed FLOP")],
    "the rate of products is right": [("blas", "rate, ours")],
    "the peak in the table is not exceeded": [("blas", "of peak")],
    "NVML's energy counter works": [("energy", "counter goes backwards")],
    "NVML's calls are short": [("energy", "call")],
    "figures of PyTorch agree with an untouched run": [("torch", "step time, ours")],
    "MFU of PyTorch is that of the formula": [("torch", "MFU")],
    "two ranks: the straggler is named": [("ranks", "straggler")],
    "two ranks: collectives are communication": [("ranks", "communication")],
    "another profiler says the same": [("nsys", "kernel time")],
    "the library keeps still beside a profiler": [("nsys", "level")],
}


def verdicts(steps: list[dict[str, Any]]) -> dict[str, str]:
    """`safe`, `wrong` or `not seen here` per assumption."""
    found = {}
    for name, deciders in ASSUMPTIONS.items():
        rows = [
            [
                row["ok"]
                for step in steps
                if step["step"] == its_step
                for row in step["rows"]
                if row["what"].startswith(beginning) and row["ok"] is not None
            ]
            for its_step, beginning in deciders
        ]
        if any(False in oks for oks in rows):
            found[name] = "wrong"
        elif all(rows):
            found[name] = "safe"
        else:
            found[name] = "not seen here"
    return found
