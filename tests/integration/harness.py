"""Runs programs with and without the library over the simulated GPU, and reads what came of it.

MFU_BUILD_DIR names the build directory (CTest sets it); MFU_SANITIZE says what that build was instrumented with.
"""

import collections
import glob
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MFU_BUILD_DIR", SOURCE / "build/dev"))
SANITIZE = os.environ.get("MFU_SANITIZE", "")
LIBRARY = BUILD / "libmfuinject.so"
SCENARIO = BUILD / "clients/scenario"
CONFIGS = SOURCE / "tests/data/configs"
GPT2 = CONFIGS / "gpt2.json"


def elf_machine(path):
    """Which processor a program or library is for, as its ELF header says; None where there is none."""
    try:
        with open(path, "rb") as file:
            header = file.read(20)
    except OSError:
        return None
    return header[18:20] if header[:4] == b"\x7fELF" else None


# The library is for another processor than this machine's own programs, and only ours run, in an emulator.
EMULATED = elf_machine(LIBRARY) not in (None, elf_machine(os.path.realpath(sys.executable)))
# A CUPTI of NVIDIA's on this machine is found where the simulated one is missing, and finds no driver that it knows.
REAL_CUPTI = not EMULATED and bool(glob.glob("/usr/local/cuda*/**/libcupti.so*", recursive=True))
TIME_CLASSES = ("matmul", "other", "comm", "memcpy", "idle")

if "address" in SANITIZE:
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # commands end with what they opened still open

# A program that ends later than this hangs. On a machine that others use, one that does not may take minutes.
DEADLINE_S = 900


def patience(seconds):
    """What `seconds` on an idle machine come to now: wall time per CPU time that a busy loop gets, twice over."""
    wall, cpu = time.monotonic(), time.thread_time()
    while time.thread_time() - cpu < 0.1:
        pass
    return 2 * seconds * max(1, (time.monotonic() - wall) / 0.1)


def ns(value):
    """Seconds as the run directory writes them > integer nanoseconds."""
    return None if value is None else round(value * 1e9)


def union_ns(intervals):
    """Length of the union of [begin, end) intervals."""
    total, reached = 0, None
    for begin, end in sorted(intervals):
        if reached is None or begin > reached:
            total += end - begin
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total


class Run:
    """One finished program: exit code, output, log lines, run directory and the simulated GPU's truth."""

    def __init__(self, code, stdout, stderr, directory, seconds):
        self.code, self.stdout, self.stderr, self.seconds = code, stdout, stderr, seconds
        self.files = {}
        run_dir = directory / "run"
        if run_dir.is_dir():
            for path in sorted(run_dir.rglob("*.jsonl")):
                if path.is_file():  # some tests put other things there
                    self.files[path.name] = path.read_bytes()
        self.truth = []
        trace = directory / "trace"
        if trace.exists():
            for line in trace.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # the simulated GPU was killed in the middle of the last one
                    self.truth.append(json.loads(line))

    @property
    def log(self):
        """The library's lines on stderr, without the prefix."""
        return [line[6:] for line in self.stderr.decode(errors="replace").splitlines() if line.startswith("[mfu] ")]

    @property
    def foreign_log(self):
        """What others wrote to stderr."""
        return [line for line in self.stderr.decode(errors="replace").splitlines() if not line.startswith("[mfu]")]

    def lines(self, kind=None):
        """Objects of the one file of the run directory; every line must be whole."""
        if len(self.files) != 1:
            raise AssertionError(f"expected one run file, got {sorted(self.files)}; stderr: {self.stderr.decode()}")
        return self.objects(next(iter(self.files)), kind)

    def objects(self, name, kind=None):
        data = self.files[name]
        if data and not data.endswith(b"\n"):
            raise AssertionError(f"{name} ends inside a line: {data[-200:]!r}")
        objects = [json.loads(line) for line in data.splitlines()]
        return [o for o in objects if kind is None or o["type"] == kind]

    @property
    def end(self):
        ends = self.lines("end")
        if len(ends) != 1:
            raise AssertionError(f"expected one end line, got {len(ends)}; log: {self.log}")
        return ends[0]

    def region(self, name, device=0):
        """The whole run's figures of a region on a device; None where it has none."""
        for region in self.end["regions"]:
            if region["region"] == name and (region["device"] == device or name == "total"):
                return region
        return None

    def events(self, kind):
        return [e["message"] for e in self.lines("event") if e["kind"] == kind]

    def activities(self, **wanted):
        """Device activities of the truth whose keys have these values."""
        return [a for a in self.truth if a["type"] == "activity" and all(a[k] == v for k, v in wanted.items())]

    def launches(self):
        """Calls that put work on a stream: neither captured nor failed."""
        return [t for t in self.truth if t["type"] == "launch" and not t["capturing"] and t["result"] == 0]


class Truth:
    """What a set of device activities must come to, by the definitions of the run directory's keys."""

    def __init__(self, activities, matmul=("gemm", "flash"), comm=("nccl",)):
        kernels = [a for a in activities if a["kind"] == "kernel"]

        def of(*words):
            return [(a["begin"], a["end"]) for a in kernels if any(w in a["name"] for w in words)]

        compute = [(a["begin"], a["end"]) for a in kernels if not any(w in a["name"] for w in comm)]
        everything = [(a["begin"], a["end"]) for a in activities]
        all_kernels = [(a["begin"], a["end"]) for a in kernels]
        self.kernels = len(kernels)
        self.launches = len({(a["pid"], a["correlation"], a["thread"]) for a in activities})
        self.kernel_sum_ns = sum(e - b for b, e in all_kernels)
        self.busy_ns = union_ns(all_kernels)
        matmul_ns, compute_ns = union_ns(of(*matmul)), union_ns(compute)
        self.time_ns = {
            "matmul": matmul_ns,
            "other": compute_ns - matmul_ns,
            "comm": self.busy_ns - compute_ns,
            "memcpy": union_ns(everything) - self.busy_ns,
        }
        self.begin = min((b for b, _ in everything), default=None)
        self.end = max((e for _, e in everything), default=None)
        counts = collections.Counter(a["name"] for a in kernels)
        sums = collections.Counter()
        for a in kernels:
            sums[a["name"]] += a["end"] - a["begin"]
        self.by_name = {name: (counts[name], sums[name]) for name in counts}


class TestCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="mfu-integration-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.run_numbers = itertools.count(1)

    def environment(self, directory, entry, cupti, config, env):
        """`entry`: which of cuda, nvtx and preload name the library; `cupti`: folder of the simulated CUPTI."""
        foreign = ("MFU_", "SIMGPU_", "CUDA_", "NVTX_", "SLURM_", "OMPI_", "PMI", "FLUX_", "MV2_")
        base = {k: v for k, v in os.environ.items()
                if not k.startswith(foreign) and k not in ("LD_PRELOAD", "RANK", "LOCAL_RANK", "WORLD_SIZE")}
        base["LD_LIBRARY_PATH"] = ":".join(str(BUILD / "simgpu" / d) for d in ("", cupti) if d is not None)
        base["SIMGPU_TRACE"] = str(directory / "trace")
        if "thread" in SANITIZE:
            base["TSAN_OPTIONS"] = f"die_after_fork=0 report_signal_unsafe=0 suppressions={SOURCE}/tests/integration/tsan.supp"
        if "address" in SANITIZE:
            # What the library holds when the process ends is held on purpose: callbacks may come until it is gone.
            base["ASAN_OPTIONS"] = "detect_leaks=0 verify_asan_link_order=0"
        if entry:
            base["MFU_RUN_DIR"] = str(directory / "run")
            base["MFU_INTERVAL"] = "0.5"
        if "cuda" in entry:
            base["CUDA_INJECTION64_PATH"] = str(LIBRARY)
        if "nvtx" in entry:
            base["NVTX_INJECTION64_PATH"] = str(LIBRARY)
        if "preload" in entry:
            base["LD_PRELOAD"] = str(LIBRARY)
        if config is not None and entry:
            path = config
            if isinstance(config, dict):
                path = directory / "config.json"
                path.write_text(json.dumps(config))
            base["MFU_MODEL_CONFIG"] = str(path)
        base.update({k: str(v) for k, v in env.items() if v is not None})
        for key in [k for k, v in env.items() if v is None]:
            base.pop(key, None)
        return base

    def program(self, command, entry="cuda nvtx", cupti="cupti-13.0", config=GPT2, env=None, stdin=None, deadline=DEADLINE_S,
                before=None, **popen):
        """Runs `command` to its end (its whole process group is ended past the deadline, and the test fails)."""
        directory = self.directory / str(next(self.run_numbers))
        directory.mkdir()
        environment = self.environment(directory, entry.split(), cupti, config, env or {})
        if before is not None:
            before(directory, environment)
        begin = time.monotonic()
        # Files, not pipes: a forked child that lives on must not hold up the end of the test.
        with open(directory / "stdout", "wb") as out, open(directory / "stderr", "wb") as err:
            child = subprocess.Popen([str(c) for c in command], env=environment, stdin=subprocess.PIPE, start_new_session=True,
                                     cwd=directory, **{"stdout": out, "stderr": err, **popen})
            try:
                child.communicate(stdin, timeout=deadline)
                code = child.returncode
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                code = "hangs"
        result = Run(code, (directory / "stdout").read_bytes(), (directory / "stderr").read_bytes(), directory,
                     time.monotonic() - begin)
        result.directory = directory
        if code == "hangs":
            self.fail(f"did not end within {deadline} s; stderr: {result.stderr.decode(errors='replace')[-4000:]}")
        for word in ("ThreadSanitizer", "AddressSanitizer", "runtime error:", "[simgpu]"):
            if word.encode() in result.stderr:
                self.fail(f"{word}: {result.stderr.decode(errors='replace')[:8000]}")
        return result

    def scenario(self, script, **options):
        """Runs a script of tests/clients/scenario. Exit code 0 is expected unless `code` says otherwise."""
        code = options.pop("code", 0)
        if "thread" in SANITIZE and "thread " in script:
            script = "push first; pop\n" + script  # the NVTX headers race at a module's first call; the report takes seconds
        result = self.program([SCENARIO, "-"], stdin=script.encode(), **options)
        if code is not None and result.code != code:
            self.fail(f"exit code {result.code}, expected {code}; stderr: {result.stderr.decode(errors='replace')[-4000:]}")
        return result

    def unharmed(self, script, **options):
        """Runs a script with and without the library: stdout and exit code must be the same. Returns the run with it."""
        options.setdefault("code", None)
        without = self.scenario(script, **{**options, "entry": "", "env": {
            k: v for k, v in (options.get("env") or {}).items() if not k.startswith(("MFU_", "CUDA_INJ", "NVTX_INJ", "LD_"))}})
        run = self.scenario(script, **options)
        self.assertEqual((run.code, run.stdout), (without.code, without.stdout), run.stderr.decode(errors="replace")[-4000:])
        self.assertEqual(run.foreign_log, without.foreign_log)
        return run

    # What must hold in every run that has an end line.

    def assert_sound(self, run):
        """Every sum of every window and of the end line adds up, and the launch account with them."""
        objects = run.lines()
        self.assertEqual([o["seq"] for o in objects], list(range(len(objects))))
        self.assertEqual(objects[0]["type"], "start")
        self.assertEqual(objects[-1]["type"], "end")
        for o in objects:
            self.assertEqual(o["v"], 1)
        for region in [o for o in objects if o["type"] == "window"] + objects[-1]["regions"]:
            self.assert_region_sound(region)
        account = objects[-1]["launches"]
        self.assertEqual(account["seen"],
                         account["attributed"] + account["outside"] + account["unattributed"] + account["dropped"], account)
        return objects[-1]

    def assert_region_sound(self, r):
        if r["time_s"]["matmul"] is None:
            return
        self.assertEqual(sum(ns(r["time_s"][c]) for c in TIME_CLASSES), ns(r["elapsed_s"]), r)
        for c in TIME_CLASSES:
            self.assertGreaterEqual(r["time_s"][c], 0, r)
        if r["kernel_sum_s"] is not None:
            self.assertLessEqual(ns(r["busy_s"]), ns(r["kernel_sum_s"]), r)
        if r["mfu"] is not None and r["lost"]["matmul"] is not None:
            self.assertAlmostEqual(r["mfu"] + sum(r["lost"].values()), 1, places=9, msg=r)

    def assert_region(self, run, name, activities, instances=None, device=0, classes=True, **truth):
        """The run's figures of a region are exactly those of these activities."""
        region = run.region(name, device)
        self.assertIsNotNone(region, f"no region {name}: {[(r['region'], r['device']) for r in run.end['regions']]}; {run.log}")
        t = Truth(activities, **truth)
        got = {"kernels": region["kernels"], "launches": region["launches"], "kernel_sum": ns(region["kernel_sum_s"]),
               "busy": ns(region["busy_s"])}
        self.assertEqual(got, {"kernels": t.kernels, "launches": t.launches, "kernel_sum": t.kernel_sum_ns, "busy": t.busy_ns},
                         f"{name}: {run.end}")
        if instances is not None:
            self.assertEqual(region["instances"], instances, region)
        if classes:
            self.assertEqual({c: ns(region["time_s"][c]) for c in t.time_ns}, t.time_ns, region)
        top = {k["name"]: (k["count"], ns(k["sum_s"])) for k in region["top_kernels"]}
        self.assertEqual(top, t.by_name)
        return region

    def assert_one_line(self, run, *words):
        """Exactly one line of the log says all of these words."""
        said = [line for line in run.log if all(w in line for w in words)]
        self.assertEqual(len(said), 1, f"{words}: {run.log}")
        return said[0]


def main():
    if not LIBRARY.exists() or not SCENARIO.exists():
        print(f"{LIBRARY} or {SCENARIO} is missing: build the targets mfuinject, clients and simgpu", file=sys.stderr)
        sys.exit(1)
    unittest.main(verbosity=2)
