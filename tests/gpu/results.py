"""What the suites found: one JSON document, one readable table, earlier calls merged in."""
import json
import pathlib


class Suite:
    """One suite's rows. A figure is a fact; a check also has a limit that it keeps or breaks."""

    def __init__(self, name):
        self.name = name
        self.status = "ok"
        self.message = ""
        self.seconds = 0.0
        self.rows = []

    def figure(self, what, value, unit=""):
        self.rows.append({"what": what, "value": value, "unit": unit})

    def check(self, what, value, ok, limit, unit=""):
        self.rows.append({"what": what, "value": value, "unit": unit, "limit": limit, "ok": bool(ok)})
        if not ok:
            self.status = "failed"

    def at_most(self, what, value, limit, unit=""):
        self.check(what, value, value is not None and value <= limit, f"<= {limit:g}", unit)

    def equal(self, what, value, expected, unit=""):
        self.check(what, value, value == expected, f"= {expected}", unit)

    def fail(self, message):
        self.status = "failed"
        self.message = message

    def skip(self, message):
        self.status = "skipped"
        self.message = message

    def as_json(self):
        return {"status": self.status, "message": self.message, "seconds": round(self.seconds, 1), "rows": self.rows}


def merge(earlier, machine, suites):
    """The document of this call, with suites that only an earlier call ran kept: if the machine is the same."""
    kept = earlier.get("suites", {}) if earlier.get("machine") == machine else {}
    return {"v": 1, "machine": machine, "suites": {**kept, **{suite.name: suite.as_json() for suite in suites}}}


def read(path):
    """An earlier document; {} where there is none or it cannot be read."""
    try:
        document = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def shown(value):
    """A value as the table prints it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def table(document):
    """The document as text: a line per row, columns aligned, the machine first."""
    lines = [f"{key}: {value}" for key, value in document["machine"].items()]
    rows = [("suite", "what", "value", "limit", "")]
    for name, suite in document["suites"].items():
        verdict = suite["status"] + (f": {suite['message']}" if suite["message"] else "")
        rows.append((name, f"({suite['seconds']:.0f} s)", "", "", verdict))
        for row in suite["rows"]:
            value = (shown(row["value"]) + " " + row["unit"]).strip()
            verdict = "" if "ok" not in row else ("ok" if row["ok"] else "FAILED")
            rows.append(("", row["what"], value, row.get("limit", ""), verdict))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines.append("")
    for row in rows:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) + "  " + row[4])
    return "\n".join(line.rstrip() for line in lines) + "\n"
