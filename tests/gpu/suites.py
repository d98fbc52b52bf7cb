"""What is measured. A suite starts programs, compares what they say and writes rows; it never imports PyTorch itself."""
import dataclasses
import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Callable

import figures
import kineto
import model_flop
import run_directory

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

TRAIN_SHAPE = {"batch": 4, "seq_len": 2048}
GENERATE_SHAPE = {"batch": 4, "seq_len": 2048}
NEW_TOKENS = 64
AGREEMENT = 0.01  # of MFU by CUDA events and tokens with ours
SLOWDOWN = 1.01   # the most that the library may cost


class OutOfTime(Exception):
    """The call's or the suite's time is used up."""


def clean_environment():
    """This process's environment without anything that could inject a library or configure ours."""
    return {key: value for key, value in os.environ.items()
            if not key.startswith("MFU_") and key not in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD")}


def last_json(text):
    """The JSON object in the last line that holds one."""
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise RuntimeError(f"no JSON in {text[-200:]!r}")


class Context:
    """Where things are, how much time is left, and how programs are started."""

    def __init__(self, library, out, minutes, rounds=3, long=False):
        self.library, self.out, self.rounds, self.long = library, out, rounds, long
        self.deadline = time.monotonic() + minutes * 60
        self.suite_deadline = self.deadline
        self.cupti = None
        self.mfu = library.parent / "mfu"

    def remaining_s(self):
        return min(self.deadline, self.suite_deadline) - time.monotonic()

    def command(self, name, argv, env=None, limit_s=150, any_exit=False):
        """Runs a program to its end. Its output is kept in logs/. OutOfTime when time runs out; RuntimeError with its
        last words when it fails, unless any_exit."""
        limit = min(limit_s, self.remaining_s())
        if limit <= 0:
            raise OutOfTime(name)
        logs = self.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen([str(a) for a in argv], env=env or clean_environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True)
        try:
            stdout, stderr = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise OutOfTime(f"{name} after {limit:.0f} s") from None
        file = name.replace(" ", "_").replace("/", "_").replace("+", "_")
        (logs / f"{file}.out").write_text(stdout)
        (logs / f"{file}.err").write_text(stderr)
        if process.returncode != 0 and not any_exit:
            words = (stderr.strip() or stdout.strip()).splitlines()[-1:] or ["no output"]
            raise RuntimeError(f"{name}: exit {process.returncode}: {words[0][:300]}")
        return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)

    def workload(self, name, arguments, env=None, limit_s=150):
        argv = [sys.executable, HERE / "workloads.py", *arguments]
        return last_json(self.command(name, argv, env=env, limit_s=limit_s).stdout)

    def ours(self, name, config=None, /, **more):
        """The environment that puts our library into a program; its run directory is emptied first."""
        directory = self.out / "runs" / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        env = clean_environment()
        env.update(CUDA_INJECTION64_PATH=str(self.library), NVTX_INJECTION64_PATH=str(self.library),
                   MFU_RUN_DIR=str(directory), MFU_LOG=str(directory / "log.txt"), MFU_INTERVAL="2", **more)
        if config is not None:
            path = self.out / f"{name}.config.json"
            path.write_text(json.dumps(config))
            env["MFU_MODEL_CONFIG"] = str(path)
        return env

    def run_of(self, env):
        return run_directory.only(env["MFU_RUN_DIR"])

    def model(self, name, layers=None):
        """Writes a Hugging Face config of Qwen3-8B's shape, with fewer layers if asked; gives it and its path."""
        config = json.loads((ROOT / "tests/data/configs/qwen3-8b.json").read_text())
        if layers:
            config["num_hidden_layers"] = layers
            config["max_window_layers"] = layers
        for key in ("architectures", "transformers_version", "torch_dtype", "bos_token_id", "eos_token_id"):
            config.pop(key, None)
        path = self.out / f"{name}.model.json"
        path.write_text(json.dumps(config))
        return config, path


# ---------------------------------------------------------------------------------------------------------------------
# The machine

_GPU_QUESTION = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
count, version, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
cuda.cuDriverGetVersion(ctypes.byref(version)); cuda.cuDeviceGet(ctypes.byref(device), 0)
name = ctypes.create_string_buffer(256); cuda.cuDeviceGetName(name, 256, device)
print(json.dumps({"name": name.value.decode(), "count": count.value, "cuda": version.value}))
"""

_CUPTI_QUESTION = """
import ctypes, sys
version = ctypes.c_uint(); assert ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(version)) == 0
print(version.value)
"""

_VERSIONS_QUESTION = """
import importlib.metadata, json
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return "absent"
print(json.dumps({name: version(name) for name in ("torch", "transformers", "triton")}))
"""


def find_gpu():
    """{name, count, cuda} of the first GPU, or None. A simulated one is none."""
    try:
        done = subprocess.run([sys.executable, "-c", _GPU_QUESTION], env=clean_environment(), capture_output=True,
                              text=True, timeout=60, check=False)
        gpu = json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return None if gpu is None or gpu["name"].startswith("Simulated") else gpu


def _package_folders():
    return [pathlib.Path(entry) for entry in sys.path if entry and pathlib.Path(entry).is_dir()]


def find_cupti():
    """The libcupti that PyTorch's process would use: its wheel's, else the toolkit's. None: there is none."""
    patterns = [(folder, pattern) for folder in _package_folders()
                for pattern in ("nvidia/cu1[0-9]/lib/libcupti.so.1*", "nvidia/cuda_cupti/lib/libcupti.so.1*")]
    patterns += [(pathlib.Path("/usr/local/cuda"), p) for p in ("lib64/libcupti.so.1*", "extras/CUPTI/lib64/libcupti.so.1*")]
    for folder, pattern in patterns:
        found = sorted(folder.glob(pattern), key=lambda path: len(path.name))
        if found:
            return found[0]
    return None


def find_headers():
    """Include folders that together hold what the probes include; None: something was not found. One folder if one has
    it all: headers of two CUDA versions do not mix well."""
    candidates = [pathlib.Path(p) for p in ("/usr/local/cuda/include", "/usr/local/cuda/extras/CUPTI/include")]
    candidates.append(ROOT / ".deps/nvidia/cu13/include")
    for folder in _package_folders():
        candidates += [*folder.glob("nvidia/cu1[0-9]/include"), folder / "triton/backends/nvidia/include"]
    needed = ("cupti.h", "cuda.h", "crt/host_defines.h")
    for folder in candidates:
        if all((folder / header).exists() for header in needed):
            return [folder]
    found = [next((f for f in candidates if (f / header).exists()), None) for header in needed]
    return None if None in found else list(dict.fromkeys(found))


def machine(gpu):
    """What a reader must know of this machine, for the JSON and the table's head."""
    facts = {"gpu": f"{gpu['count']} x {gpu['name']}", "cuda driver API": gpu["cuda"]}
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                              text=True, timeout=60, check=False)
        facts["driver"] = done.stdout.strip().splitlines()[0] if done.stdout.strip() else "unknown"
    cupti = find_cupti()
    if cupti is not None:
        done = subprocess.run([sys.executable, "-c", _CUPTI_QUESTION, cupti], env=clean_environment(), capture_output=True,
                              text=True, timeout=60, check=False)
        facts["cupti"] = f"{done.stdout.strip() or 'unknown version'} ({cupti})"
    done = subprocess.run([sys.executable, "-c", _VERSIONS_QUESTION], capture_output=True, text=True, timeout=60, check=False)
    facts.update(json.loads(done.stdout))
    return facts


# ---------------------------------------------------------------------------------------------------------------------
# Acceptance: MFU, kernel counts, slowdown, a profiler beside us

def _compare_region(suite, name, own, own_flop, process):
    """One region by its own timing and by ours. own: (instances, seconds by CUDA events)."""
    instances, seconds = own
    found = process.region(name)
    if found is None:
        suite.fail(f"the run directory has no region {name}")
        return
    peak = process.peak_flop_per_s()
    suite.equal(f"{name}: instances", found["instances"], instances)
    suite.figure(f"{name}: seconds by events", seconds, "s")
    suite.at_most(f"{name}: elapsed, difference", figures.relative_difference(found["elapsed_s"], seconds), AGREEMENT)
    if found["flop"] is None or not peak:
        suite.fail(f"{name}: the library gave no FLOP or no peak")
        return
    suite.at_most(f"{name}: FLOP, difference", figures.relative_difference(found["flop"], own_flop), 1e-9)
    own_mfu = own_flop / (peak * seconds)
    suite.figure(f"{name}: MFU by events", own_mfu * 100, "%")
    suite.figure(f"{name}: MFU, ours", found["mfu"] * 100, "%")
    suite.at_most(f"{name}: MFU, difference", figures.relative_difference(found["mfu"], own_mfu), AGREEMENT)


def _check_active(context, suite, what, env):
    """The library must have been at work for its cost, or its harmlessness, to mean anything."""
    process = context.run_of(env)
    seen = process.launches().get("seen", 0)
    suite.check(f"{what}: our level", process.level(), process.level() == "full", "full")
    suite.check(f"{what}: launches we saw", seen, seen > 0, "> 0")


def _check_account(suite, process, level="full"):
    suite.check("our level", process.level(), process.level() == level, level)
    launches = process.launches()
    parts = sum(launches.get(key, 0) for key in ("attributed", "outside", "unattributed", "dropped"))
    suite.equal("launch account adds up", parts, launches.get("seen"))
    suite.figure("launches seen", launches.get("seen"))
    suite.figure("launches dropped", launches.get("dropped"))
    suite.equal("broken lines in the run directory", process.broken, 0)


def train(context, suite):
    """A PyTorch training loop: MFU by CUDA events and tokens beside ours."""
    config, path = context.model("train", layers=8)
    job = {"model": config, "workload": {"phase": "train", **TRAIN_SHAPE}, "peak": {"dtype": "bf16"}}
    env = context.ours("train", job)
    steps = 20
    own = context.workload("train", ["train", "--config", path, "--batch", TRAIN_SHAPE["batch"], "--seq",
                                     TRAIN_SHAPE["seq_len"], "--steps", steps], env)
    process = context.run_of(env)
    flop = steps * model_flop.train_flop(config, TRAIN_SHAPE["batch"], TRAIN_SHAPE["seq_len"])
    _compare_region(suite, "step", own["regions"]["step"], flop, process)
    suite.equal("step: tokens", process.region("step")["tokens"], own["tokens"])
    suite.figure("tensor cores active by hardware counters", own["gpm_tensor_percent"], "%")
    _check_account(suite, process)


def generate(context, suite):
    """Hugging Face generate: prefill and decode by CUDA events beside ours."""
    config, path = context.model("generate")
    job = {"model": config, "peak": {"dtype": "bf16"}}
    env = context.ours("generate", job)
    calls, batch, prompt = 3, GENERATE_SHAPE["batch"], GENERATE_SHAPE["seq_len"]
    own = context.workload("generate", ["generate", "--config", path, "--batch", batch, "--seq", prompt, "--steps", calls,
                                        "--new-tokens", NEW_TOKENS], env)
    process = context.run_of(env)
    suite.equal("tokens generated a call", own["generated"], NEW_TOKENS)
    prefill = calls * model_flop.forward_flop(config, batch, prompt, logits="last")
    decode = calls * sum(model_flop.forward_flop(config, batch, 1, past=prompt + i, logits="last")
                         for i in range(NEW_TOKENS - 1))
    _compare_region(suite, "prefill", own["regions"]["prefill"], prefill, process)
    _compare_region(suite, "decode", own["regions"]["decode"], decode, process)
    _check_account(suite, process)


def detected(context, suite):
    """A training loop and a generation without ranges: what the detector says beside the program's own timing."""
    for program, region, layers, arguments in (
            ("train", "step", 8, ["--batch", TRAIN_SHAPE["batch"], "--seq", TRAIN_SHAPE["seq_len"], "--steps", 40]),
            ("generate", "decode", None, ["--batch", GENERATE_SHAPE["batch"], "--seq", GENERATE_SHAPE["seq_len"],
                                          "--steps", 6, "--new-tokens", NEW_TOKENS])):
        config, path = context.model(f"detected_{program}", layers=layers)
        env = context.ours(f"detected_{program}", {"model": config, "peak": {"dtype": "bf16"}})
        own = context.workload(f"detected {program}", [program, "--config", path, "--no-ranges", *arguments], env)
        process = context.run_of(env)
        _check_account(suite, process)
        total = next(row for row in (process.end or {}).get("regions", []) if row["region"] == "total")
        suite.figure(f"{program}: found", total.get("detected"))
        suite.figure(f"{program}: who said the shape", (process.rows(region) or [{}])[0].get("shape_source"))
        instances, seconds = own["regions"][region]
        found = process.region(region)
        suite.figure(f"{program}: instances by events", instances)
        suite.figure(f"{program}: instances found", found and found["instances"])
        if found is None:
            continue  # not sure is an answer; a layer for a step is none
        # The warm-up has instances too, and the first and last of a loop are not told.
        suite.at_most(f"{program}: instances found, of those there were", found["instances"] / instances, 1.3)
        (row,) = process.rows(region)
        suite.at_most(f"{program}: median, difference",
                      figures.relative_difference(row["latency"]["p50_s"], seconds / instances), 0.1)


def kernels(context, suite):
    """Kernels per region: ours, and torch.profiler's in a run without us."""
    for program, regions, layers, arguments in (
            ("train", ["step"], 4, ["--batch", 2, "--seq", 512, "--steps", 4]),
            ("generate", ["prefill", "decode"], 8, ["--batch", 2, "--seq", 512, "--steps", 2, "--new-tokens", 8])):
        config, path = context.model(f"kernels_{program}", layers=layers)
        env = context.ours(f"kernels_{program}", {"model": config, "peak": {"dtype": "bf16"}})
        base = [program, "--config", path, *arguments]
        context.workload(f"kernels {program} ours", base, env)
        trace = context.out / f"kernels_{program}.trace.json"
        context.workload(f"kernels {program} torch.profiler", [*base, "--profiler", "torch", "--trace", trace])
        theirs = kineto.kernels_by_annotation(kineto.read_events(trace), regions)
        trace.unlink()
        process = context.run_of(env)
        for region in regions:
            found = process.region(region)
            suite.equal(f"{region}: instances", found and found["instances"], theirs[region][0])
            suite.equal(f"{region}: kernels", found and found["kernels"], theirs[region][1])


def slowdown(context, suite):
    """An eager decode loop, a graph decode loop and training: alone, with us, torch.profiler, Proton; interleaved."""
    config = {"model": {"n_layer": 24, "n_head": 16, "n_embd": 1024, "vocab_size": 50304, "block_size": 512}}
    watchers = ("alone", "ours", "torch.profiler", "proton")
    found = {watcher: {} for watcher in watchers}
    done = 0
    for turn in range(context.rounds):
        order = watchers[turn % len(watchers):] + watchers[:turn % len(watchers)]  # nobody always comes first
        row = {}
        try:
            for watcher in order:
                name = f"slowdown {turn} {watcher}"
                env = context.ours(f"slowdown_{turn}", config) if watcher == "ours" else None
                arguments = ["loops"]
                if watcher in ("torch.profiler", "proton"):
                    arguments += ["--profiler", watcher.split(".")[0], "--trace", context.out / f"{watcher}.scratch"]
                if watcher == "torch.profiler":
                    arguments = arguments[:-2]  # measured while recording; nothing is exported
                row[watcher] = context.workload(name, arguments, env)["ms"]
                if watcher == "ours" and turn == 0:
                    _check_active(context, suite, "slowdown", env)
        except OutOfTime:
            if done == 0:
                raise
            break
        for watcher in watchers:
            for loop, ms in row[watcher].items():
                found[watcher].setdefault(loop, []).append(ms)
        done += 1
    suite.figure("rounds", done)
    for loop, alone in found["alone"].items():
        suite.figure(f"{loop}: alone", figures.median(alone), "ms")
        for watcher in watchers[1:]:
            middle, low, high = figures.median_of_ratios(alone, found[watcher][loop])
            what = f"{loop}: {watcher} (from {low:.3f} to {high:.3f})"
            if watcher == "ours":
                suite.at_most(what, middle, SLOWDOWN, "x")
            else:
                suite.figure(what, middle, "x")


def profiler(context, suite):
    """torch.profiler sessions started while we run, under both policies; what each side then has."""
    for policy in ("own", "share"):
        env = context.ours(f"profiler_{policy}", None, MFU_PROFILER=policy)
        own = context.workload(f"profiler {policy}", ["sessions", "--steps", 5, "--pause", 1], env)
        rows = [session["gpu_rows"] for session in own["sessions"]]
        suite.figure(f"{policy}: GPU rows of each session", " ".join(map(str, rows)))
        suite.equal(f"{policy}: rows with impossible times", sum(s["bad_times"] for s in own["sessions"]), 0)
        if policy == "share":
            suite.check("share: every session has GPU rows", min(rows), min(rows) > 0, "> 0")
            # What CUPTI held of ours when a session began is asked for first, so that it loses no rows at its beginning.
            suite.at_most("share: most rows against fewest", max(rows) / max(1, min(rows)), 1.05, "x")
        process = context.run_of(env)
        suite.check(f"{policy}: we ended in order", process.end is not None, process.end is not None, "yes")
        step = process.region("step")
        suite.figure(f"{policy}: our instances", step and step["instances"])
        suite.figure(f"{policy}: our kernels", step and step["kernels"])
        suite.figure(f"{policy}: events", " ".join(sorted({e.get("kind", "?") for e in process.events})) or "none")
        _check_account(suite, process, level="full" if policy == "own" else "share")


# ---------------------------------------------------------------------------------------------------------------------
# Open questions about CUPTI

def _build_probes(context):
    """Compiles the probes once. (host, injection library)."""
    headers = find_headers()
    if headers is None:
        raise RuntimeError("cupti.h and cuda.h were not found")
    host, inject = context.out / "probe_host", context.out / "libprobe_inject.so"
    flags = ["-std=c++20", "-O2", *[f"-isystem{folder}" for folder in headers]]
    if not host.exists():
        context.command("build host", ["g++", *flags, HERE / "probe/host.cpp", "-o", host, "-ldl", "-pthread"])
    if not inject.exists():
        context.command("build inject", ["g++", *flags, "-shared", "-fPIC", "-fvisibility=hidden", HERE / "probe/inject.cpp",
                                         "-o", inject, "-ldl", "-pthread"])
    return host, inject


def _probe_environment(**more):
    env = clean_environment()
    cupti = find_cupti()
    if cupti is None:
        raise RuntimeError("no libcupti found")
    env.update(PROBE_CUPTI=str(cupti), **more)
    return env


def latency(context, suite):
    """What each CUPTI feature adds to a launch, on one thread and on eight; what it does to the GPU itself."""
    host, _ = _build_probes(context)
    env = _probe_environment()
    features = ("none", "load", "kernel", "kernel+memory", "kernel+memory+callbacks", "kernel+memory+callbacks+api",
                "kernel+memory+callbacks+api+external")
    for threads in (1, 8):
        found = {feature: [] for feature in (*features, "our library")}
        for turn in range(3):  # interleaved, so that a machine that changes its mind changes it for all of them
            for feature, values in found.items():
                ours = feature == "our library"
                argv = [host, "latency", "none" if ours else feature, threads, 20000]
                run = context.ours(f"latency_{threads}_{turn}", MFU_CUPTI=env["PROBE_CUPTI"]) if ours else env
                done = context.command(f"latency {feature} {threads} {turn}", argv, run)
                values.append(last_json(done.stdout)["launch_ns"])
                if ours and turn == 0:
                    _check_active(context, suite, f"{threads} thread(s)", run)
        alone = figures.median(found["none"])
        for feature, values in found.items():
            middle = figures.median(values)
            suite.figure(f"{threads} thread(s), {feature}", middle, f"ns ({middle - alone:+.0f})")
    for feature in ("none", "kernel", "kernel+memory", "graph_trace"):
        found = last_json(context.command(f"graph {feature}", [host, "graph", feature, 500, 400], env).stdout)
        suite.figure(f"graph of 500 kernels, {feature}: launch", found["launch_us"], "us")
        suite.figure(f"graph of 500 kernels, {feature}: until done", found["graph_us"], "us")
    for feature in ("none", "kernel"):
        found = last_json(context.command(f"blocks {feature}", [host, "blocks", feature], env).stdout)
        suite.figure(f"kernel of 200,000 blocks, {feature}", found["kernel_us"], "us")


def ids(context, suite):
    """Do driver callbacks see every launch, with the ids of the records? On a training loop and on generate."""
    _, inject = _build_probes(context)
    for program, layers in (("train", 4), ("generate", 8)):
        _, path = context.model(f"ids_{program}", layers=layers)
        out = context.out / f"ids_{program}.json"
        env = _probe_environment(PROBE_MODE="ids", PROBE_OUT=str(out), CUDA_INJECTION64_PATH=str(inject))
        context.workload(f"ids {program}", [program, "--config", path, "--batch", 2, "--seq", 256, "--steps", 3,
                                            "--new-tokens", 8], env)
        found = json.loads(out.read_text())
        suite.figure(f"{program}: CUPTI calls inside InitializeInjection", json.dumps(found["calls"]))
        for key in ("kernels", "driver_callbacks", "runtime_callbacks", "overlapping", "zero_times", "negative"):
            suite.figure(f"{program}: {key.replace('_', ' ')}", found[key])
        suite.equal(f"{program}: kernels that only a runtime callback announced", found["kernels_by_runtime_id_only"], 0)
        suite.equal(f"{program}: kernels that no callback announced", found["kernels_by_neither"], 0)


def clocks(context, suite):
    """Record times against events, CUPTI's clock against the system's, callbacks switched under load, refusals."""
    host, inject = _build_probes(context)
    env = _probe_environment()
    found = last_json(context.command("clock", [host, "clock"], env).stdout)
    suite.figure("spinning kernel by events", found["event_us"], "us")
    suite.figure("spinning kernel by records", found["record_us"], "us")
    for key in ("records", "zero_times", "negative", "overlapping"):
        suite.figure(f"clock: {key.replace('_', ' ')}", found[key])
    suite.figure("CUPTI clock minus CLOCK_REALTIME", found["clock_offset_ns"], "ns")
    suite.figure(f"its drift in {found['drift_seconds']:.1f} s", found["drift_ns"], "ns")
    found = last_json(context.command("toggle", [host, "toggle"], env).stdout)
    suite.figure("launch before 1,000 switches of callbacks", found["before_ns"], "ns")
    suite.figure("launch after them", found["after_ns"], "ns")
    suite.equal("callbacks delivered", found["callbacks"], found["callbacks_expected"])
    suite.equal("ids of callbacks that have a record", found["ids_with_record"], found["ids"])
    for name, library in (("returns 0", inject), ("is missing", context.out / "absent.so")):
        more = {"CUDA_INJECTION64_PATH": str(library), "PROBE_MODE": "refuse"}
        done = context.command(f"injection {name}", [host, "hello"], _probe_environment(**more), any_exit=True)
        suite.figure(f"injection library that {name}: exit", done.returncode)
        suite.figure(f"injection library that {name}: stderr", done.stderr.strip()[-120:] or "silent")


def zeroed(context, suite):
    """Buffers declared zeroed, then a torch.profiler session whose buffers are not: impossible times?"""
    _, inject = _build_probes(context)
    env = _probe_environment(PROBE_MODE="zeroed", CUDA_INJECTION64_PATH=str(inject), PROBE_OUT=str(context.out / "zeroed.json"))
    own = context.workload("zeroed", ["sessions", "--steps", 3, "--pause", 0.5], env)
    suite.figure("GPU rows of each session", " ".join(str(s["gpu_rows"]) for s in own["sessions"]))
    suite.equal("rows with impossible times", sum(s["bad_times"] for s in own["sessions"]), 0)


def memory(context, suite):
    """Device and host memory over millions of graph kernels; buffers larger than CUPTI was told."""
    host, _ = _build_probes(context)
    launches = 100_000 if context.long else 4_000
    for feature in ("kernel", "kernel+memory"):
        found = last_json(context.command(f"memory {feature}", [host, "graph", feature, 500, launches],
                                          _probe_environment(), limit_s=400).stdout)
        first, last = found["series"][1], found["series"][-1]
        suite.figure(f"{feature}: kernel records", found["kernels"])
        suite.figure(f"{feature}: device memory taken", (first["device_free"] - last["device_free"]) / 2**20, "MiB")
        suite.figure(f"{feature}: host memory taken", (last["rss"] - first["rss"]) / 2**20, "MiB")
        suite.figure(f"{feature}: buffers of 8 MiB, 1 MiB told", found["buffers"])
        for key in ("zero_times", "negative", "dropped"):
            suite.figure(f"{feature}: {key.replace('_', ' ')}", found[key])
    env = context.ours("memory", MFU_CUPTI=str(find_cupti()))
    found = last_json(context.command("memory ours", [host, "graph", "none", 500, launches], env, limit_s=400).stdout)
    _check_active(context, suite, "memory", env)
    first, last = found["series"][1], found["series"][-1]
    suite.figure("our library: host memory taken", (last["rss"] - first["rss"]) / 2**20, "MiB")
    suite.figure("our library: device memory taken", (first["device_free"] - last["device_free"]) / 2**20, "MiB")


def exits(context, suite):
    """Every way for a process to end: the same exit status and the same output with and without us."""
    host, _ = _build_probes(context)
    cupti = str(find_cupti())
    programs = [(f"C++ {how}", [host, "exit", how]) for how in ("return", "thread", "_exit", "signal", "inflight")]
    programs += [(f"Python {how}", [sys.executable, HERE / "workloads.py", "leave", "--how", how])
                 for how in ("return", "thread", "_exit", "interrupt", "spawn")]
    for name, argv in programs:
        alone = context.command(f"{name} alone", argv, any_exit=True, limit_s=60)
        more = {"MFU_CUPTI": cupti} if name.startswith("C++") else {}  # a PyTorch process has one of its own
        env = context.ours("exits", **more)
        ours = context.command(f"{name} ours", argv, env, any_exit=True, limit_s=60)
        if name == "C++ return":
            _check_active(context, suite, name, env)
        suite.equal(f"{name}: exit status", ours.returncode, alone.returncode)
        suite.check(f"{name}: output", "same" if ours.stdout == alone.stdout else "differs", ours.stdout == alone.stdout, "same")


@dataclasses.dataclass(frozen=True)
class Spec:
    """One suite: what runs, how long it may take at most [s], whether it is in the default selection."""

    run: Callable
    limit_s: int
    default: bool

    @property
    def summary(self):
        return self.run.__doc__.splitlines()[0]


def contact(context, suite, small=False):
    """First contact: kernels of known length, in a program that never lets the GPU run dry and leaves one kernel running."""
    out = context.out / "contact.json.gz"
    argv = [context.mfu, "verdict", "--only", "work", "--minutes", "2", "--out", out]
    argv += ["--small"] if small else []
    env = {**clean_environment(), **({"MFU_CUPTI": context.cupti} if context.cupti else {})}
    done = context.command("contact", argv, env=env, limit_s=150, any_exit=True)
    if not out.exists():
        return suite.fail("the known work was not measured: " + (done.stderr.strip() or done.stdout.strip())[-300:])
    for step in json.loads(gzip.decompress(out.read_bytes()))["steps"]:
        for row in step["rows"]:
            if row["ok"] is None:
                suite.figure(row["what"], row["value"], row["unit"])
            else:
                suite.check(row["what"], row["value"], row["ok"], row["limit"], row["unit"])


def jax(context, suite):
    """JAX, whose compiled steps are CUDA graphs: training ends well, with and without us and however graphs are traced."""
    ways = {"alone": None, "not at work": {"MFU_DISABLE": "1"}, "node": {"MFU_GRAPHS": "node"}, "auto": {}}
    failed = dict.fromkeys(ways, 0)
    for round_ in range(context.rounds):
        for way, more in ways.items():
            env = clean_environment() if more is None else context.ours("jax", **more)
            env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
            done = context.command(f"jax {way} {round_}", [sys.executable, HERE / "jax_steps.py"], env, any_exit=True, limit_s=60)
            if done.returncode != 0:
                failed[way] += 1
                words = [line for line in done.stderr.splitlines() if "Error" in line] or ["no word"]
                suite.figure(f"{way}, round {round_}: exit {done.returncode}", words[0][:200])
            elif way == "auto" and round_ == 0:
                steps = [r for r in context.run_of(env).end["regions"] if r["region"] == "step"]
                suite.equal("steps", sum(r["instances"] for r in steps), json.loads(done.stdout)["steps"])
    for way, count in failed.items():
        suite.check(f"{way}: programs that failed of {context.rounds}", count, count == 0, "0")


SUITES = {
    "contact": Spec(contact, 60, True),
    "train": Spec(train, 75, True),
    "generate": Spec(generate, 75, True),
    "kernels": Spec(kernels, 90, True),
    "profiler": Spec(profiler, 60, True),
    "slowdown": Spec(slowdown, 180, True),
    "clocks": Spec(clocks, 50, False),
    "detected": Spec(detected, 120, False),
    "ids": Spec(ids, 75, False),
    "latency": Spec(latency, 150, False),
    "zeroed": Spec(zeroed, 40, False),
    "exits": Spec(exits, 200, False),
    "jax": Spec(jax, 300, False),
    "memory": Spec(memory, 500, False),
}
