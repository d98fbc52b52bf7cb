"""Follows a run directory from outside the job: what any tracker needs, in Python's standard library."""

import json
import pathlib
import time


def follow(directory, poll_s=1.0, once=False):
    """Yields (start line, window line) of every rank as they come, until every rank has written its end line.

    Half-written lines wait for their other half, lines that are no JSON are passed over, files may come later. `once`:
    what is there now, then end.
    """
    offsets, starts, ended = {}, {}, set()
    while True:
        paths = sorted(pathlib.Path(directory).glob("*.jsonl"))
        for path in paths:
            try:
                with open(path, "rb") as file:
                    file.seek(offsets.get(path, 0))
                    whole, newline, _ = file.read().rpartition(b"\n")
            except OSError:
                continue  # gone, or not there yet
            offsets[path] = offsets.get(path, 0) + len(whole + newline)
            for text in whole.splitlines():
                try:
                    line = json.loads(text)
                    kind = line["type"]
                except (ValueError, KeyError, TypeError):
                    continue
                if kind == "start":
                    starts[path] = line
                elif kind == "window" and path in starts:
                    yield starts[path], line
                elif kind == "end":
                    ended.add(path)
        if once or (paths and ended.issuperset(paths)):
            return
        time.sleep(poll_s)


def scalars(window):
    """{"step/mfu": 0.41, "step/lost/comm": 0.06, ...}: the figures of a window line that are known."""
    region = window["region"] if window.get("device") in (None, 0) else f"{window['region']}/gpu{window['device']}"
    named = {key: window.get(key) for key in ("mfu", "hfu", "mbu", "clock_ratio")}
    named.update({f"lost/{name}": value for name, value in (window.get("lost") or {}).items()})
    named["p50_s"] = (window.get("latency") or {}).get("p50_s")
    seconds = (window["t1_ns"] - window["t0_ns"]) / 1e9
    if window.get("tokens") and seconds > 0:
        named["tokens_per_s"] = window["tokens"] / seconds
    return {f"{region}/{key}": value for key, value in named.items() if value is not None}
