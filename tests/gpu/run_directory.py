"""Reads a run directory: one JSONL file per process, as the library writes it."""
import json
import pathlib


class Process:
    """One process's lines. `broken` counts lines that are not JSON objects (at most the last of a killed process)."""

    def __init__(self):
        self.start = None
        self.windows = []
        self.events = []
        self.end = None
        self.broken = 0

    def peak_flop_per_s(self):
        """Of the first device; None where unknown."""
        devices = (self.start or {}).get("devices") or []
        return devices[0].get("peak_flop_per_s") if devices else None

    def level(self):
        """How much the library could do: `full`, ..., `inert`; None where it wrote no start line."""
        return ((self.start or {}).get("cupti") or {}).get("level")

    def rows(self, name):
        """The whole run of a region by device: from the `end` line, else from the windows."""
        source = self.end.get("regions", []) if self.end else self.windows
        return [row for row in source if row.get("region") == name]

    def region(self, name):
        """The whole run of a region, its devices added up. None: unseen."""
        rows = self.rows(name)
        if not rows:
            return None
        total = {}
        for key in ("instances", "tokens", "elapsed_s", "busy_s", "kernel_sum_s", "kernels", "launches", "flop", "bytes"):
            values = [row[key] for row in rows if row.get(key) is not None]
            total[key] = sum(values) if values else None
        peak = self.peak_flop_per_s()
        if peak and total["flop"] is not None and total["elapsed_s"]:
            total["mfu"] = total["flop"] / (peak * total["elapsed_s"])
        else:
            total["mfu"] = None
        return total

    def launches(self):
        """The launch account of the `end` line; {} where there is none."""
        return (self.end or {}).get("launches") or {}


def read_process(path):
    process = Process()
    for line in pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            kind = row["type"]
        except (ValueError, KeyError, TypeError):
            process.broken += 1
            continue
        if kind == "start" and process.start is None:
            process.start = row
        elif kind == "start":
            process.start.update(row)  # written again when a device appears later
        elif kind == "window":
            process.windows.append(row)
        elif kind == "event":
            process.events.append(row)
        elif kind == "end":
            process.end = row
    return process


def read(directory):
    """Every process of a run directory, by file name. An absent directory has none."""
    return {path.name: read_process(path) for path in sorted(pathlib.Path(directory).glob("*.jsonl"))}


def only(directory):
    """The one process of a run; an Error in words where there is none or several."""
    processes = read(directory)
    if len(processes) != 1:
        raise RuntimeError(f"{directory}: expected one process's file, found {sorted(processes)}")
    return next(iter(processes.values()))
