"""What a run wrote, as plain Python records."""

from __future__ import annotations

import glob
import json
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

    Record = Dict[str, Any]


class Process:
    """One process of a run: its start line, windows, events, and the end line (None while it runs, or when it was killed)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.start: Record = {}
        self.windows: List[Record] = []
        self.events: List[Record] = []
        self.end: Optional[Record] = None
        for line in _lines(path):
            kind = line.get("type")
            if kind == "start":
                self.start = line  # the last one has every device
            elif kind == "window":
                self.windows.append(line)
            elif kind == "event":
                self.events.append(line)
            elif kind == "end":
                self.end = line

    def __repr__(self) -> str:
        return f"<mfuinject process rank {self.start.get('rank')}, {len(self.windows)} windows>"


class Run:
    """Every process of a run directory, ordered by rank. docs/reference.md describes the keys of the records."""

    def __init__(self, path: str, processes: List[Process]) -> None:
        self.path = path
        self.processes = processes

    def __repr__(self) -> str:
        return f"<mfuinject run {self.path}: {len(self.processes)} processes, {len(self.windows)} windows>"

    @property
    def windows(self) -> List[Record]:
        """One record per region and window of every process, with `host`, `rank` and `pid` of the process added."""
        return [{**_process_keys(p), **window} for p in self.processes for window in p.windows]

    @property
    def regions(self) -> List[Record]:
        """One record per region and process for the whole run, from the end lines; a process without one has none."""
        return [{**_process_keys(p), **region} for p in self.processes if p.end for region in p.end.get("regions", [])]

    @property
    def events(self) -> List[Record]:
        return [{**_process_keys(p), **event} for p in self.processes for event in p.events]

    def frame(self) -> Any:
        """`windows` as a pandas DataFrame: nested keys become columns such as `lost.comm`, `t0` and `t1` are UTC times.

        Raises ModuleNotFoundError where pandas is not installed.
        """
        import pandas

        frame = pandas.json_normalize(self.windows)
        for key in ("t0", "t1"):
            if f"{key}_ns" in frame:
                frame[key] = pandas.to_datetime(frame[f"{key}_ns"], unit="ns", utc=True)
        return frame


def read(path: "str | os.PathLike[str]") -> Run:
    """The run in a run directory, or in one of its files.

    Lines that are not finished or that are no JSON are passed over, so a run can be read while it goes on.
    Raises FileNotFoundError where there is no such file, or no *.jsonl in the directory.
    """
    name = os.fspath(path)
    paths = sorted(glob.glob(os.path.join(glob.escape(name), "*.jsonl"))) if os.path.isdir(name) else [name]
    if not paths:
        raise FileNotFoundError(f"{name}: expected a run directory, but there is no *.jsonl in it")
    processes = [Process(p) for p in paths]
    return Run(name, sorted((p for p in processes if p.start), key=lambda p: (p.start.get("rank", 0), p.start.get("pid", 0))))


def latest() -> Dict[str, float]:
    """The newest figures of this process, from its file in MFU_RUN_DIR: `{"step/mfu": 0.41, "step/tokens_per_s": 12345.0}`.

    Empty without a run directory, or before its first window. Reads the end of one file: a millisecond.
    """
    path = _own_file()
    if path is None:
        return {}
    newest: Dict[str, Record] = {}
    for line in _lines(path, tail=64 * 1024):
        if line.get("type") == "window" and line.get("device") in (None, 0):
            newest[line["region"]] = line
    figures: Dict[str, float] = {}
    for region, window in newest.items():
        seconds = (window["t1_ns"] - window["t0_ns"]) / 1e9
        for key in ("mfu", "hfu", "mbu"):
            if window.get(key) is not None:
                figures[f"{region}/{key}"] = window[key]
        if window.get("tokens") and seconds > 0:
            figures[f"{region}/tokens_per_s"] = window["tokens"] / seconds
    return figures


def _process_keys(process: Process) -> Record:
    return {key: process.start.get(key) for key in ("host", "rank", "pid")}


def _lines(path: str, tail: Optional[int] = None) -> Iterator[Record]:
    with open(path, "rb") as file:
        if tail is not None:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - tail))
        for text in file:
            if not text.endswith(b"\n"):
                return
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield line


def _own_file() -> Optional[str]:
    directory = os.environ.get("MFU_RUN_DIR")
    if not directory:
        return None
    pid = str(os.getpid())
    pattern, rest = "", directory
    while rest:
        before, percent, rest = rest.partition("%")
        pattern += glob.escape(before)
        if not percent:
            break
        kind, rest = rest[:1], rest[1:]
        if kind == "q" and rest.startswith("{") and "}" in rest:
            name, _, rest = rest[1:].partition("}")
            pattern += glob.escape(os.environ.get(name, ""))
        else:
            pattern += {"h": glob.escape(socket.gethostname()), "p": pid, "r": "*", "%": "%"}.get(kind, "%" + kind)
    found = glob.glob(os.path.join(pattern, f"*-{pid}.jsonl")) + glob.glob(os.path.join(pattern, f"*-{pid}-*.jsonl"))
    return max(found, key=os.path.getmtime, default=None)
