"""The command line of `mfu verdict`.

Exit status: 0 all checks held, 1 some did not, 2 wrong arguments, 77 no GPU (with the number that cuInit returned).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import time
from typing import NoReturn

from . import facts, report, steps
from .assumptions import verdicts


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"mfu verdict: {message}\n")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="mfu verdict",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Tries on this machine what mfuinject assumes about a GPU, its driver and CUPTI. Ten minutes, one file.",
        epilog="examples:\n  mfu verdict\n  mfu verdict --only injection work\n"
        "  sudo mfu verdict --minutes 15 --out /tmp/verdict.json.gz\n\n"
        "exit status: 0 all checks held, 1 some did not, 2 wrong arguments, 77 no GPU",
    )
    parser.add_argument("--minutes", type=float, default=10, help="for all steps together (default: 10)")
    parser.add_argument("--out", metavar="FILE", help="the result file (default: verdict-HOST-DATE.json.gz here)")
    parser.add_argument("--only", nargs="+", metavar="STEP", choices=steps.STEPS, help=f"some of: {', '.join(steps.STEPS)}")
    parser.add_argument("--list", action="store_true", help="name the steps and stop")
    parser.add_argument("--python", default=sys.executable, help="the Python whose packages are tried (default: this one)")
    parser.add_argument("--small", action="store_true", help="little of everything: tries the steps, not the machine")
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--mfu", default=shutil.which("mfu", path=here) or shutil.which("mfu") or "mfu", help=argparse.SUPPRESS)
    parser.add_argument("--library", dest="injected", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.minutes <= 0:
        parser.error("--minutes: expected a number above 0")
    args.mfu = os.path.abspath(args.mfu)
    args.injected = args.injected or os.path.join(os.path.dirname(args.mfu), "libmfuinject.so")
    if not args.list and not os.access(args.injected, os.R_OK):
        parser.error(f"{args.injected} is not there")
    return args


def main(argv: list[str]) -> int:
    args = parse(argv)
    if args.list:
        for name, (function, limit) in steps.STEPS.items():
            print(f"{name:10} {limit:4.0f} s  {(function.__doc__ or '').strip()}")
        return 0
    context = steps.Context(args.mfu, args.injected, args.python, args.minutes, args.small)
    try:
        return measure(args, context)
    finally:
        shutil.rmtree(context.folder, ignore_errors=True)


def measure(args: argparse.Namespace, context: steps.Context) -> int:
    said, _, _ = context.work("init", ours=False)
    if said.get("cuInit") != 0:
        number = said.get("cuInit")
        why = said.get("why", said.get("error")) if number is None else f"cuInit returned {number}"
        print(f"mfu verdict: no GPU: {why}")
        return 77
    name = f"verdict-{socket.gethostname()}-{time.strftime('%Y%m%d-%H%M')}.json.gz"
    file = report.File(args.out or name)
    document: dict[str, object] = {
        "v": 1,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "facts": facts.collect(args.mfu),
        "steps": [],
    }
    file.append({"facts": document["facts"]})
    done: list[dict[str, object]] = []
    for step_name in args.only or steps.STEPS:
        step = steps.run_step(context, step_name)
        done.append(step.as_json())
        file.append(done[-1])
        print(f"{step.name}: {step.status}{' (' + step.why + ')' if step.why else ''}, {step.seconds:.0f} s", flush=True)
        for row in step.rows:
            mark = {True: "ok", False: "WRONG", None: ""}[row["ok"]]
            print(f"  {mark:5} {row['what']}: {report.value_text(row)}", flush=True)
    document["steps"], document["assumptions"] = done, verdicts(done)
    size = file.finish(document)
    print(f"\n{report.text(document)}\n{file.path}: {size} bytes")
    return 1 if any(step["status"] == "fail" for step in done) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
