"""Reads a trace of torch.profiler: which annotation launched which kernel."""
import gzip
import json
import pathlib

LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver")


def read_events(path):
    path = pathlib.Path(path)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(data)["traceEvents"]


def kernels(events):
    return [event for event in events if event.get("cat", "").lower() == "kernel"]


def kernel_seconds_by_annotation(events, name):
    """(kernels, sum of their durations [s]) of launches inside annotations of that name."""
    inside = {name: []}
    kernels_by_annotation(events, [name], inside)
    return len(inside[name]), sum(inside[name]) / 1e6


def kernels_by_annotation(events, names, durations=None):
    """{name: (annotations, kernels)}: kernels whose launch starts inside an annotation of that name, on any thread.

    Several host records may share a correlation id (a runtime call and the driver call inside it): the first counts.
    `durations`, where given, gets the kernels' [us] by name.
    """
    launch_at = {}
    for event in events:
        if event.get("cat", "").lower() in LAUNCH_CATEGORIES:
            correlation = event.get("args", {}).get("correlation")
            if correlation is not None:
                launch_at[correlation] = min(event["ts"], launch_at.get(correlation, event["ts"]))
    spans = {name: [] for name in names}
    for event in events:
        if event.get("cat") == "user_annotation" and event.get("name") in spans and "dur" in event:
            spans[event["name"]].append((event["ts"], event["ts"] + event["dur"]))
    counts = dict.fromkeys(names, 0)
    for kernel in kernels(events):
        at = launch_at.get(kernel.get("args", {}).get("correlation"))
        if at is None:
            continue
        for name, ranges in spans.items():
            if any(begin <= at < end for begin, end in ranges):
                counts[name] += 1
                if durations is not None:
                    durations.setdefault(name, []).append(kernel.get("dur", 0))
    return {name: (len(spans[name]), counts[name]) for name in names}
