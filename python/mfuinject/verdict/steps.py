"""The steps: what is started, what is compared, what is written down."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from typing import Any, Callable, Optional

from .._run_dir import Process, read
from . import facts
from .report import Step
from .statistics import median, paired_difference

PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOBODY = 65534


class OutOfTime(Exception):
    """The call's or the step's time is used up."""


class Run:
    """What the library wrote into a run directory: of the first process, of several ranks."""

    def __init__(self, folder: str) -> None:
        self.processes: list[Process] = []
        with contextlib.suppress(FileNotFoundError):  # nothing was written
            self.processes = read(folder).processes
        first = self.processes[0] if self.processes else None
        self.start: dict[str, Any] = first.start if first else {}
        self.windows: list[dict[str, Any]] = first.windows if first else []
        self.end: dict[str, Any] = (first.end or {}) if first else {}

    @property
    def level(self) -> str:
        return (self.start.get("cupti") or {}).get("level") or "none"

    def region(self, name: str) -> dict[str, Any]:
        return next((row for row in self.end.get("regions", []) if row["region"] == name), {})

    def launches(self, key: str) -> Optional[int]:
        return self.end.get("launches", {}).get(key)

    def said(self) -> list[str]:
        """What the library said while it ran, and what it counted."""
        events = self.processes[0].events if self.processes else []
        counted = json.dumps({key: self.end.get(key) for key in ("launches", "counters", "graphs", "trust")})
        return [f"{event.get('kind')}: {event.get('message')}"[:300] for event in events[-20:]] + [counted]


class Context:
    """The command and the library that are tried, the time that is left, and how programs are started."""

    def __init__(self, mfu: str, injected: str, python: str, minutes: float, small: bool) -> None:
        self.mfu, self.injected, self.python, self.small = mfu, injected, python, small
        self.deadline = time.monotonic() + 60 * minutes
        self.step_deadline = self.deadline
        self.folder = tempfile.mkdtemp(prefix="mfu-verdict-")
        os.chmod(self.folder, 0o755)
        self.step: Optional[Step] = None
        self.count = 0

    def remaining(self) -> float:
        return min(self.deadline, self.step_deadline) - time.monotonic()

    def environment(self, ours: bool = True, **variables: str) -> dict[str, str]:
        """This process's variables without any of the library's but MFU_CUPTI, and with them again where `ours`."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if (name == "MFU_CUPTI" or not name.startswith("MFU_"))
            and name not in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD")
        }
        kept["PYTHONPATH"] = os.pathsep.join(
            [PACKAGE_ROOT] + ([os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else [])
        )
        if ours:
            self.count += 1
            folder = f"{self.folder}/run{self.count}"
            os.mkdir(folder)
            os.chmod(folder, 0o777)
            kept.update(
                {
                    "CUDA_INJECTION64_PATH": self.injected,
                    "NVTX_INJECTION64_PATH": self.injected,
                    "MFU_RUN_DIR": folder,
                    "MFU_INTERVAL": "1",
                    **variables,
                }
            )
        return kept

    def run(
        self, words: list[str], env: dict[str, str], limit: float = 60, user: Optional[int] = None
    ) -> subprocess.CompletedProcess[str]:
        """A program to its end, killed with all its children when the time is over; its last words are kept."""
        limit = min(limit, self.remaining())
        if limit <= 0:
            raise OutOfTime
        child = subprocess.Popen(
            words,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
            user=user,
            cwd=self.folder,
        )
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            err += f"\nkilled after {limit:.0f} s"
        if self.step is not None:
            self.step.logs += [line[:300] for line in err.strip().splitlines()[-20:]]
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def work(
        self, name: str, *arguments: Any, ours: bool = True, limit: float = 60, user: Optional[int] = None, **variables: str
    ) -> tuple[dict[str, Any], Run, int]:
        """One of `work`'s programs: what it printed, what the library wrote, its exit status."""
        env = self.environment(ours, **variables)
        done = self.run([self.python, "-m", "mfuinject.verdict.work", name, *map(str, arguments)], env, limit, user)
        said: dict[str, Any] = {"error": f"no answer, exit status {done.returncode}"}
        with contextlib.suppress(ValueError, IndexError):
            said = json.loads(done.stdout.strip().splitlines()[-1])
        return said, Run(env["MFU_RUN_DIR"]) if ours else Run(os.devnull), done.returncode


def injection(context: Context, step: Step) -> None:
    """Whether the driver loads the library, as whom, with which CUPTI, and what the program notices."""
    bare, _, bare_code = context.work("init", ours=False)
    step.row("cuInit without the library", bare.get("cuInit"), ok=bare.get("cuInit") == 0, limit="0")
    with_it, run, code = context.work("init")
    step.equal("exit with the library", (with_it.get("cuInit"), code), (bare.get("cuInit"), bare_code))
    step.equal("processes with a start line", len(run.processes), 1)
    step.row("level", run.level, ok=run.level in ("full", "share"), limit="full")
    step.row("CUPTI in use", f"{(run.start.get('cupti') or {}).get('version')} {(run.start.get('cupti') or {}).get('path')}")
    env = context.environment(CUDA_INJECTION64_PATH="/nowhere/libmfuinject.so")
    wrong = context.run([context.python, "-m", "mfuinject.verdict.work", "init"], env)
    step.equal(
        "exit with a wrong path",
        (json.loads(wrong.stdout or "{}").get("cuInit"), wrong.returncode),
        (bare.get("cuInit"), bare_code),
    )
    if os.getuid() == 0:
        try:
            other, run, _ = context.work("init", user=NOBODY)
        except PermissionError:
            other = {"cuInit": "not tried: another user may not run this Python"}
        if other.get("cuInit") == 0:
            step.row("level as another user", run.level, ok=run.level in ("full", "share"), limit="full")
        else:
            step.row("cuInit as another user", other.get("cuInit"))
    for path in facts.libraries("libcupti.so*"):
        _, run, code = context.work("init", MFU_CUPTI=path)
        step.row(f"level with {path}", run.level)
        step.equal(f"exit with {path}", code, bare_code)


def known_work(context: Context, step: Step) -> None:
    """Kernels of known length: counts exact, times within 1 % and 2 us; a stream that never waits; graphs, node and auto."""
    seconds = 4 if context.small else 20
    for graphs in ("node", "auto"):
        made, run, _ = context.work("known", seconds, limit=60 + 4 * seconds, MFU_GRAPHS=graphs, MFU_DETECT="0")
        if "error" in made:
            step.row(f"known work, {graphs}", made["error"], ok=False)
            continue
        total = run.region("total")
        step.equal(f"launches seen, {graphs}", run.launches("seen"), made["launches"])
        step.equal(f"launches without a record, {graphs}", run.launches("dropped"), 0)
        step.equal(f"kernels, {graphs}", total.get("kernels"), made["kernels"])
        step.row(f"launches without times, {graphs}", run.launches("not_timed"))
        measured, known = total.get("kernel_sum_s"), made["kernel_s"]
        tolerance = 0.01 + 2e-6 * made["kernels"] / known
        step.within(f"kernel time, {graphs}", measured and measured / known, 1 - 0.001, 1 + tolerance, "of what they last")
        step.within(f"by events, {graphs}", made["by_events_s"] / made["measured_alone_s"], 0.99, 1.05, "of what they last")
        loop = [
            w
            for w in run.windows
            if w["region"] == "total" and made["loop_begin_ns"] <= w["t0_ns"] and w["t1_ns"] <= made["loop_end_ns"]
        ]
        step.row(f"windows of a GPU that never runs dry, {graphs}", len(loop), ok=len(loop) > 0, limit="> 0")
        if loop:
            untimed = sum(w["busy_s"] is None for w in loop)
            busy = None if untimed else min(w["busy_s"] / w["elapsed_s"] for w in loop)
            step.within(f"busy, {graphs}", busy, 0.9, 1.001)
            step.within(f"lag, {graphs}", max((w["t_ns"] - w["t1_ns"]) * 1e-9 for w in loop), 0, 2.5, "s")
        against = sorted(name for name, its in run.end.get("trust", {}).items() if its.get("holds") is False)
        step.row(f"assumptions contradicted, {graphs}", " ".join(against) or "none", ok=not against, limit="none")
        step.logs += run.said()
        if graphs == "auto" and run.end.get("graphs", {}).get("s"):
            split = run.end["graphs"]
            step.within("graphs split", split["known_s"] / split["s"], 0.99, 1)
            step.row("graphs split, error", split["error"])


HOW = {
    "bare": (False, {}),
    "off": (True, {"MFU_DISABLE": "1"}),
    "ranges": (True, {"MFU_CUPTI": "/nowhere"}),
    "auto": (True, {"MFU_GRAPHS": "auto"}),
    "node": (True, {"MFU_GRAPHS": "node"}),
}


def price(context: Context, step: Step) -> None:
    """What tracing costs the host per launch and per node of a graph, and the device per kernel of many blocks; in pairs."""
    nodes, count, rounds = (200, 2000, 3) if context.small else (2000, 20_000, 12)
    found: dict[str, dict[str, list[float]]] = {}
    step_end = context.remaining() * 0.95
    begin = time.monotonic()
    for turn in range(rounds):
        order = list(HOW) if turn % 2 == 0 else list(reversed(HOW))  # ABBA: drift of the machine cancels out
        for how in order:
            ours, variables = HOW[how]
            for what, arguments, key in (
                ("launches", (count, 1), "ns"),
                ("graph", (nodes, 20), "host_ns"),
                ("kernel_time", (4096 if context.small else 1 << 20, 10), "ns"),
            ):
                said, _, _ = context.work(what, *arguments, ours=ours, **variables)
                if key in said:
                    found.setdefault(what, {}).setdefault(how, []).append(said[key])
                if "p999_ns" in said:
                    found.setdefault("slowest launch in 1000", {}).setdefault(how, []).append(said["p999_ns"])
        if (time.monotonic() - begin) * (turn + 2) / (turn + 1) > step_end:
            break

    def difference(what: str, how: str, base: str = "bare", scale: float = 1) -> tuple[float, float, float]:
        a, b = found[what].get(how, []), found[what].get(base, [])
        count = min(len(a), len(b))
        if count == 0:
            raise OutOfTime
        middle, low, high = paired_difference([x / scale for x in a[:count]], [x / scale for x in b[:count]])
        return middle, low, high

    for what, by_how in found.items():
        for how, values in by_how.items():
            step.row(f"{what}, {how}, alone", median(values), "ns")
    middle, low, high = difference("launches", "ranges")
    step.within("launch, no CUPTI", middle, -1e9, 500, "ns more", (low, high))
    for how in ("auto", "node"):
        middle, low, high = difference("launches", how)
        step.within(f"launch, {how}", middle, -1e9, 3000, "ns more", (low, high))
        middle, low, high = difference("graph", how, scale=nodes)
        step.within(f"node, {how}", middle, -1e9, 1000 if how == "auto" else 1e9, "ns more of the host", (low, high))
        bare = median(found["kernel_time"]["bare"])
        middle, low, high = difference("kernel_time", how, scale=bare)
        step.within(f"kernel of many blocks, {how}", middle, -1, 0.02, "of its time more", (low, high))


def exhaust(context: Context, step: Step) -> None:
    """Whether the times of graph kernels run out, and the device memory that tracing takes."""
    nodes, count = (50, 40) if context.small else (2000, 13_000)
    alone, _, _ = context.work("exhaust", nodes, min(count, 100), ours=False, limit=120)
    for graphs in ("auto", "node"):
        said, run, _ = context.work("exhaust", nodes, count, limit=200, MFU_GRAPHS=graphs)
        if "kernels" not in said:
            step.row(f"untimed, {graphs}", said.get("error"), ok=False)
            continue
        step.row(f"kernels in graphs, {graphs}", said["kernels"])
        untimed = run.launches("not_timed")
        step.equal(f"untimed, {graphs}", untimed, 0)
        taken = (said["device_bytes"] - alone.get("device_bytes", 0)) / 2**20
        step.within(f"device memory, {graphs}", taken, -1e6, 64 if graphs == "auto" else 1e6, "MiB")
        last = next((w for w in reversed(run.windows) if w["region"] == "total"), {})
        step.row(
            f"last window, {graphs}", json.dumps({key: last.get(key) for key in ("busy_s", "elapsed_s", "untimed", "settled")})
        )


def blas(context: Context, step: Step) -> None:
    """Products of known size through cuBLAS: FLOP exact, rate within 1 % of events, below the peak."""
    path = next(facts.libraries("libcublas.so*"), None)
    if path is None:
        return step.skip("no libcublas here")
    size, count = (512, 20) if context.small else (8192, 200)
    said, run, _ = context.work("products", path, size, count, limit=90)
    if "error" in said:
        return step.skip(said["error"])
    total = run.region("total")
    executed = total.get("executed") or {}
    step.row("cuBLAS", path)
    step.equal("executed FLOP", executed.get("flop"), float(said["flop"]))
    step.row("rate by events", said["flop_per_s"] / 1e12, "TFLOP/s")
    if executed.get("covered_s"):
        step.within("rate, ours over events", executed["flop"] / executed["covered_s"] / said["flop_per_s"], 0.97, 1.03)
    peak = ((run.start.get("devices") or [{}])[0] or {}).get("peak_flop_per_s")
    if peak:
        step.within("of peak", said["flop_per_s"] / peak, 0.0 if context.small else 0.5, 1.0)


def energy(context: Context, step: Step) -> None:
    """NVML's energy counter: how often it changes, how long a call takes, whether it agrees with the power."""
    seconds = 1 if context.small else 15
    load = [context.mfu, "doctor", "--known-work", f"{context.folder}/load.json", "--seconds", str(3 * seconds)]
    for name in ("idle", "busy"):
        with contextlib.ExitStack() as running:
            if name == "busy":
                child = subprocess.Popen(load, env=context.environment(False), stdout=subprocess.DEVNULL)
                running.callback(child.wait)
                running.callback(child.kill)
                time.sleep(1)  # until its kernels run
            its, _, _ = context.work("energy", seconds, ours=False)
        if "error" in its:
            return step.skip(its["error"])
        step.row(f"{name}: by the counter", its["watts"], "W")
        step.row(f"{name}: power", its["power_w"], "W")
        step.row(f"{name}: the counter changes every", its["period_s"], "s")
        step.row(f"{name}: SM clock", its["sm_clock_mhz"], "MHz")
        step.within(f"call, {name}", its["call_us"], 0, 1000, "us")
        step.row(f"longest call, {name}", its["call_max_us"], "us")
        step.equal(f"counter goes backwards, {name}", its["backwards"], 0)
    return None


def torch(context: Context, step: Step) -> None:
    """PyTorch, without anything else: time per step and MFU against a run without the library."""
    alone, beside, width, layers = (0.3, 0.5, 128, 2) if context.small else (4, 24, 1024, 12)
    for mode in ("eager",) if context.small else ("eager", "compile"):
        bare, _, _ = context.work("torch_steps", alone, width, layers, mode, ours=False, limit=60)
        if "error" in bare:
            return step.skip(bare["error"]) if mode == "eager" else None
        ours, run, _ = context.work("torch_steps", beside, width, layers, mode, limit=90)
        if "error" in ours:
            step.row(f"step time, ours, {mode}", ours["error"], ok=False)
            continue
        step.row(f"step time without us, {mode}", bare["ms"], "ms")
        step.row(f"at first, ours, {mode}", ours["first_ms"] / bare["ms"], "of that")  # the cost is not known yet
        step.within(f"step time, ours, {mode}", ours["last_ms"] / bare["ms"], 0.9, 1.05, "of that")
        step.logs += run.said()
        region = run.region("step")
        if region.get("latency"):
            step.within(
                f"step time by the library, {mode}",
                region["latency"]["p50_s"] * 1e3 / ours["ms"],
                0.95,
                1.1,
                "of the program's own",
            )
        executed = region.get("executed") or {}
        if (
            executed.get("flop")
            and executed.get("covered_s", 0) > 0.9 * executed.get("matmul_s", 1)
            and region.get("instances")
        ):
            step.within(
                f"MFU: executed FLOP per step, {mode}",
                executed["flop"] / region["instances"] / ours["flop_per_step"],
                0.97,
                1.05,
                "of the formula",
            )


def late_ranks(context: Context, folder: str) -> list[int]:
    """Ranks that the others wait for, by `mfu top`."""
    said = context.run([context.mfu, "top", folder, "--json"], context.environment(False), 60)
    return [straggler["rank"] for straggler in json.loads(said.stdout)["stragglers"]]


def ranks(context: Context, step: Step) -> None:
    """Two GPUs: collectives are communication, and the rank that comes late is named."""
    said, _, _ = context.work("init", ours=False)
    if said.get("devices", 0) < 2:
        return step.skip("fewer than two GPUs")
    env = context.environment()
    words = f"{context.python} -m torch.distributed.run --standalone --nproc-per-node=2 -m mfuinject.verdict.work rank 60 1"
    done = context.run(words.split(), env, 120)
    if done.returncode != 0:
        return step.skip(done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else f"exit {done.returncode}")
    step.equal("straggler", late_ranks(context, env["MFU_RUN_DIR"]), [1])
    communication = (Run(env["MFU_RUN_DIR"]).region("step").get("time_s") or {}).get("comm")
    step.row("communication", communication, "s", ok=bool(communication), limit="> 0")
    return None


def nsys(context: Context, step: Step) -> None:
    """Nsight Systems, if it is here: the sum of kernel times of the same work, and that we keep still beside it."""
    program = shutil.which("nsys")
    if program is None:
        return step.skip("no nsys here")
    out = f"{context.folder}/nsys"
    words = [context.mfu, "doctor", "--known-work", f"{context.folder}/nsys.json", "--seconds", "2"]
    env = context.environment(MFU_DETECT="0")
    done = context.run(
        [
            program,
            "profile",
            "-t",
            "cuda",
            "--cuda-graph-trace=node",
            "-o",
            out,
            "--export=sqlite",
            "--force-overwrite=true",
            *words,
        ],
        env,
        120,
    )
    if not os.path.exists(f"{out}.sqlite"):
        return step.skip((done.stderr or done.stdout).strip()[-200:] or "nsys made no file")
    with contextlib.closing(sqlite3.connect(f"{out}.sqlite")) as file:
        taken = file.execute("SELECT SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0] or 0
    with open(f"{context.folder}/nsys.json", encoding="utf-8") as written:
        known = json.load(written)["kernel_s"]
    step.within("kernel time by nsys", taken * 1e-9 / known, 0.999, 1.02, "of what they last")
    level = Run(env["MFU_RUN_DIR"]).level
    step.row("level beside nsys", level, ok=level in ("inert", "ranges", "none"), limit="inert or ranges")
    return None


# Order: the answers that stop everything first. Seconds that each may take.
STEPS: dict[str, tuple[Callable[[Context, Step], None], float]] = {
    "injection": (injection, 90),
    "work": (known_work, 120),
    "price": (price, 130),
    "exhaust": (exhaust, 150),
    "blas": (blas, 60),
    "energy": (energy, 50),
    "torch": (torch, 150),
    "ranks": (ranks, 90),
    "nsys": (nsys, 90),
}


def run_step(context: Context, name: str) -> Step:
    function, limit = STEPS[name]
    step = Step(name, (function.__doc__ or "").strip())
    context.step, begin = step, time.monotonic()
    context.step_deadline = begin + limit
    try:
        if context.remaining() <= 0:
            raise OutOfTime
        function(context, step)
    except OutOfTime:
        step.why = "out of time"
        step.status = "skip" if step.status == "ok" else step.status
    except Exception as error:  # a step that breaks takes no other with it
        step.status, step.why = "fail", f"{type(error).__name__}: {error}"
    step.seconds = time.monotonic() - begin
    context.step = None
    return step
