"""Rows, the result file and the text."""

from __future__ import annotations

import gzip
import json
import os
from typing import Any, Optional

MOST_BYTES = 200_000  # of the file that is sent


class Step:
    """One step: its rows, how it ended, and the last words of its programs."""

    def __init__(self, name: str, summary: str) -> None:
        self.name, self.summary = name, summary
        self.status, self.why, self.seconds = "ok", "", 0.0
        self.rows: list[dict[str, Any]] = []
        self.logs: list[str] = []

    def row(self, what: str, value: Any, unit: str = "", ok: Optional[bool] = None, limit: str = "", ci: Any = None) -> Any:
        """A figure; with `ok`, one that decides. Returns the value."""
        if isinstance(value, float):
            value = float(f"{value:.5g}")
        row = {"what": what, "value": value, "unit": unit, "ok": ok, "limit": limit}
        if ci is not None:
            row["ci"] = [float(f"{x:.4g}") for x in ci]
        self.rows.append(row)
        if ok is False and self.status == "ok":
            self.status = "fail"
        return value

    def equal(self, what: str, value: Any, expected: Any) -> None:
        self.row(what, value, ok=value == expected, limit=f"{expected}")

    def within(self, what: str, value: Optional[float], low: float, high: float, unit: str = "", ci: Any = None) -> None:
        ok = value is not None and low <= value <= high
        self.row(what, value, unit, ok, f"{low:g} to {high:g}", ci)

    def skip(self, why: str) -> None:
        """This machine cannot answer."""
        self.status, self.why = "skip", why

    def as_json(self) -> dict[str, Any]:
        return {
            "step": self.name,
            "status": self.status,
            "why": self.why,
            "seconds": round(self.seconds, 1),
            "rows": self.rows,
            "log": self.logs,
        }


def of_its_own(path: str, flags: int) -> int:
    """Opens a file where no link leads elsewhere, as somebody may have planted in a folder that all may write to."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o640)


class File:
    """Grows by a line per fact, each on the disk before the next step begins; at the end one compressed file takes its place."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines = path.removesuffix(".json.gz") + ".jsonl"
        self.file = open(self.lines, "w", encoding="utf-8", opener=of_its_own)

    def append(self, record: dict[str, Any]) -> None:
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def finish(self, document: dict[str, Any]) -> int:
        """Returns the size of the file [B]. Logs are left out where it would be too large."""
        for keep in (20, 3, 0):
            for step in document["steps"]:
                step["log"] = step["log"][-keep:] if keep else []
            data = gzip.compress(json.dumps(document).encode(), mtime=0)
            if len(data) <= MOST_BYTES:
                break
        with open(self.path, "wb", opener=of_its_own) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self.file.close()
        os.unlink(self.lines)
        return len(data)


def value_text(row: dict[str, Any]) -> str:
    ci = f" ({row['ci'][0]:g} to {row['ci'][1]:g})" if "ci" in row else ""
    limit = f" [{row['limit']}]" if row["ok"] is False and row["limit"] else ""
    return f"{row['value']}{' ' + row['unit'] if row['unit'] else ''}{ci}{limit}"


def text(document: dict[str, Any], lines: int = 30) -> str:
    """What is mailed: the machine, a line per step, what is wrong, the assumptions."""
    facts = document["facts"]
    smi = facts.get("nvidia-smi", {})
    out = [
        f"mfu verdict: {facts['mfu']}",
        f"{smi.get('name', 'GPU unknown')} x{smi.get('gpus', '?')}, driver {smi.get('driver', '?')}, "
        f"CUDA {smi.get('cuda', '?')}, Linux {facts['kernel']}, glibc {facts['glibc']}, Python {facts['python']}",
        ", ".join(f"{name} {version}" for name, version in facts["packages"].items()) or "no framework",
    ]
    for step in document["steps"]:
        decided = [row for row in step["rows"] if row["ok"] is not None]
        kept = sum(row["ok"] for row in decided)
        out.append(
            f"{step['step']:<10} {step['status']:<5} {step['seconds']:>5.0f} s  "
            + (step["why"] or f"{kept} of {len(decided)} checks held")
        )
    wrong = [(step["step"], row) for step in document["steps"] for row in step["rows"] if row["ok"] is False]
    assumptions = document["assumptions"]
    by_word = {word: [name for name, its in assumptions.items() if its == word] for word in ("wrong", "safe", "not seen here")}
    tail = [f"{word}: {', '.join(names)}" for word, names in by_word.items() if names]
    room = max(1, lines - len(out) - len(tail))
    for name, row in wrong[:room]:
        out.append(f"  WRONG {name}: {row['what']}: {value_text(row)}")
    if len(wrong) > room:
        out[-1] = f"  and {len(wrong) - room + 1} more"
    return "\n".join(out + tail) + "\n"
