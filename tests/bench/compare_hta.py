#!/usr/bin/env python3
"""Times HolisticTraceAnalysis against `mfu replay --json` on one Kineto trace, taken in turns.

Usage: compare_hta.py MFU TRACE.json[.gz] [RUNS]   in an environment that has the PyPI package HolisticTraceAnalysis.

HTA: TraceAnalysis loads the trace and get_temporal_breakdown works out its table, in a process that has imported it already.
mfu: the whole command, from start to the JSON with every figure. Medians, and their ratio.
"""

import contextlib
import io
import logging
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def hta_seconds(trace):
    from hta.trace_analysis import TraceAnalysis

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(trace, folder)
        name = pathlib.Path(folder) / pathlib.Path(trace).name
        with contextlib.redirect_stdout(io.StringIO()):
            begin = time.perf_counter()
            analysis = TraceAnalysis(trace_files={0: str(name)}, trace_dir=folder)
            table = analysis.get_temporal_breakdown(visualize=False)
            return time.perf_counter() - begin, table


def mfu_seconds(mfu, trace):
    begin = time.perf_counter()
    done = subprocess.run([mfu, "replay", trace, "--json"], stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"mfu replay: exit code {done.returncode}")
    return time.perf_counter() - begin


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    mfu, trace = sys.argv[1], sys.argv[2]
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    logging.disable(logging.WARNING)
    theirs, ours = [], []
    for _ in range(runs):
        seconds, table = hta_seconds(trace)
        theirs.append(seconds)
        ours.append(mfu_seconds(mfu, trace))
    print(table.to_string())
    print(f"HTA {statistics.median(theirs):.3f} s, mfu replay {statistics.median(ours):.3f} s, "
          f"ratio {statistics.median(theirs) / statistics.median(ours):.1f} (medians of {runs})")


if __name__ == "__main__":
    main()
