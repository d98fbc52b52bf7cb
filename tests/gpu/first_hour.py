"""The first hour on a real GPU: questions about CUPTI that no document answers, one suite each. Every answer is a figure in the
result file; a check only where one answer would make the library wrong.

The first two questions, whether a busy GPU is measured and what a kernel alive at exit costs, are suite `contact`.
"""
import json
import pathlib

import figures
import kineto
import run_directory
import suites
from suites import Spec, last_json


def totals(context, suite):
    """Question 3. Eager training: launches seen against records, kernel time against torch.profiler in a second run."""
    config, path = context.model("totals", layers=4)
    env = context.ours("totals", {"model": config, "peak": {"dtype": "bf16"}})
    base = ["train", "--config", path, "--batch", 2, "--seq", 512, "--steps", 4]
    context.workload("totals ours", base, env)
    trace = context.out / "totals.trace.json"
    context.workload("totals torch.profiler", [*base, "--profiler", "torch", "--trace", trace])
    count, seconds = kineto.kernel_seconds_by_annotation(kineto.read_events(trace), "step")
    trace.unlink()
    process = context.run_of(env)
    account, step = process.launches(), process.region("step")
    for key in ("seen", "attributed", "outside", "unattributed", "dropped", "not_timed"):
        suite.figure(f"launches {key}", account.get(key))
    counters = (process.end or {}).get("counters", {})
    recordless = ("launches_captured", "launches_failed", "launches_expired", "records_unmatched")
    without = {key: counters.get(key, 0) for key in recordless}
    suite.figure("launches without a record, by what is known of them", json.dumps(without))
    suite.equal("step: kernels", step and step["kernels"], count)
    suite.figure("step: kernel time, torch.profiler", seconds, "s")
    suite.figure("step: kernel time, ours", step and step["kernel_sum_s"], "s")
    difference = figures.relative_difference(step["kernel_sum_s"], seconds) if step else None
    suite.at_most("step: kernel time, difference", difference, 0.02)
    for name, state in (process.end or {}).get("trust", {}).items():
        suite.figure(f"assumption {name}", f"holds: {state['holds']}, {state['against']} cases against it")


def cost(context, suite, launches=250_000):
    """Question 4. What a launch costs with nothing, kernel records, the driver's callbacks, the runtime's, those of copies."""
    host, _ = suites._build_probes(context)
    env = suites._probe_environment()
    features = ("none", "kernel", "kernel+callbacks", "kernel+callbacks+runtime", "kernel+callbacks+runtime+memory+copies")
    found = {feature: [] for feature in (*features, "our library")}
    for turn in range(3):  # interleaved
        for feature, values in found.items():
            ours = feature == "our library"
            run = context.ours(f"cost_{turn}", MFU_CUPTI=env["PROBE_CUPTI"]) if ours else env
            argv = [host, "latency", "none" if ours else feature, 1, launches]
            values.append(last_json(context.command(f"cost {feature} {turn}", argv, run).stdout)["launch_ns"])
    _report_cost(suite, "empty kernel", found)
    cudart = find_cudart(context)
    if cudart is None:
        suite.figure("call of the runtime", "no libcudart found")
        return
    found = {feature: [] for feature in ("none", "kernel+memory+callbacks+copies", "kernel+memory+callbacks+copies+runtime")}
    for turn in range(3):
        for feature, values in found.items():
            done = context.command(f"cost runtime {feature} {turn}", [host, "runtime", feature, launches // 5],
                                   {**env, "PROBE_CUDART": str(cudart)})
            values.append(last_json(done.stdout)["call_ns"])
    _report_cost(suite, "cudaMemsetAsync", found)


def _report_cost(suite, call, found):
    alone = figures.median(found["none"])
    for feature, values in found.items():
        middle = figures.median(values)
        suite.figure(f"{call}, {feature}", middle, f"ns ({middle - alone:+.0f})")


def find_cudart(context):
    """The libcudart beside the libcupti in use; None: there is none."""
    cupti = context.cupti or suites.find_cupti()
    if cupti is None:
        return None
    folder = pathlib.Path(cupti).resolve().parent
    for place in (folder, folder.parent, folder.parent.parent / "cuda_runtime/lib", folder.parent.parent.parent / "lib64"):
        found = sorted(place.glob("libcudart.so.1*"))
        if found:
            return found[0]
    return None


def graphs(context, suite, nodes=2000, launches=25_000):
    """Question 5. A large graph, often: zero times, device memory and ms per launch, by pool limit and by kinds."""
    host, _ = suites._build_probes(context)
    launches = launches * 4 if context.long else launches
    for limit in (32, 250):
        for feature in ("kernel", "kernel+memory"):
            env = suites._probe_environment(PROBE_POOL_LIMIT=str(limit))
            done = context.command(f"graphs {limit} {feature}", [host, "graph", feature, nodes, launches], env, limit_s=300)
            found = last_json(done.stdout)
            what = f"limit {limit}, {feature}"
            first, last = found["series"][1], found["series"][-1]
            suite.figure(f"{what}: kernel records", found["kernels"])
            suite.figure(f"{what}: of these without times", found["zero_times"])
            blind = next((s["launches"] for s in found["series"] if s["zero_times"]), None)
            suite.figure(f"{what}: launches until the first without times", blind if blind is not None else "none had")
            suite.figure(f"{what}: a launch, until done", found["graph_us"] / 1e3, "ms")
            suite.figure(f"{what}: device memory taken", (first["device_free"] - last["device_free"]) / 2**20, "MiB")


def sessions(context, suite, count=10):
    """Question 6. Ten sessions of a second client inside a run, and a graph that was captured before the first."""
    host, _ = suites._build_probes(context)
    cupti = str(context.cupti or suites.find_cupti())
    alone = last_json(context.command("sessions alone", [host, "sessions", count], suites._probe_environment()).stdout)
    env = context.ours("sessions", MFU_CUPTI=cupti)
    beside = last_json(context.command("sessions ours", [host, "sessions", count], {**env, "PROBE_CUPTI": cupti}).stdout)
    expected = alone["nodes"] + alone["eager"]
    suite.figure("kernels of each session, without us", " ".join(map(str, alone["kernels"])), f"of {expected}")
    suite.figure("kernels of each session, beside us", " ".join(map(str, beside["kernels"])), f"of {expected}")
    suite.figure("kinds refused to it", beside["refused"])
    process = context.run_of(env)
    account = process.launches()
    suite.figure("our launches seen", account.get("seen"))
    suite.figure("our launches with a record", account.get("attributed", 0) + account.get("outside", 0))
    kernels = (process.region("total") or {}).get("kernels")
    suite.figure("our kernels", "not known: others had the records" if kernels is None else kernels)
    between = count * 20  # turns of ours between its sessions
    suite.figure("our kernels if every turn between sessions is whole", between * expected + expected)
    suite.figure("events", " ".join(sorted(e.get("kind", "?") for e in process.events)) or "none")
    suite.check("we ended in order", process.end is not None, process.end is not None, "yes")


def stubs(context, suite):
    """Question 7. Kernels launched by the stubs that nvcc made (PyTorch's own), at both levels: are all launches seen?"""
    config, path = context.model("stubs", layers=4)
    for policy in ("own", "share"):
        env = context.ours(f"stubs_{policy}", {"model": config, "peak": {"dtype": "bf16"}}, MFU_PROFILER=policy)
        context.workload(f"stubs {policy}", ["train", "--config", path, "--batch", 2, "--seq", 512, "--steps", 4], env)
        process = context.run_of(env)
        suite.figure(f"{policy}: level", process.level())
        account = process.launches()
        suite.figure(f"{policy}: launches seen", account.get("seen"))
        suite.equal(f"{policy}: launches without an owner", account.get("unattributed"), 0)
        suite.figure(f"{policy}: launches dropped", account.get("dropped"))
        unmatched = (process.end or {}).get("counters", {}).get("records_unmatched", 0)
        suite.equal(f"{policy}: records of launches that no callback saw", unmatched, 0)
        suite.figure(f"{policy}: kernels of a step", (process.region("step") or {}).get("kernels"))


def ends(context, suite):
    """Question 8. What is on disk after each way for a process to end."""
    host, _ = suites._build_probes(context)
    cupti = str(context.cupti or suites.find_cupti())
    for how in ("return", "term", "abort", "_exit", "inflight", "fork"):
        env = {**context.ours(f"ends_{how}", MFU_CUPTI=cupti), "MFU_INTERVAL": "0.5"}
        alone = context.command(f"ends {how} alone", [host, "exit", how], any_exit=True, limit_s=60)
        done = context.command(f"ends {how}", [host, "exit", how], env, any_exit=True, limit_s=60)
        suite.equal(f"{how}: exit status", done.returncode, alone.returncode)
        suite.check(f"{how}: output", "same" if done.stdout == alone.stdout else "differs", done.stdout == alone.stdout, "same")
        processes = list(run_directory.read(env["MFU_RUN_DIR"]).values())
        suite.figure(f"{how}: files on disk", len(processes))  # a process that is gone at once has left none
        process = processes[0] if processes else run_directory.Process()
        suite.at_most(f"{how}: broken lines", process.broken, 0)
        windows = [w for w in process.windows if w.get("region") == "total"]
        suite.figure(f"{how}: windows on disk", len(windows))
        suite.figure(f"{how}: kernels on disk", sum(w.get("kernels") or 0 for w in windows))
        suite.figure(f"{how}: end line", "there" if process.end else "none")
        if how in ("return", "fork"):
            suite.equal(f"{how}: launches dropped", process.launches().get("dropped"), 0)


def hours(context, suite, per_second=5000, seconds=60):
    """Question 9. CPU time per hour of our threads and of CUPTI's, at the beginning and at the end. --long: eight hours."""
    host, _ = suites._build_probes(context)
    cupti = str(context.cupti or suites.find_cupti())
    seconds = 8 * 3600 if context.long else seconds
    env = context.ours("hours", MFU_CUPTI=cupti)
    done = context.command("hours", [host, "rate", per_second, seconds], env, limit_s=seconds + 120)
    found = last_json(done.stdout)
    per_hour = 3600 / found["tenth_s"]
    suite.figure("launches", found["launches"])
    suite.figure("resident memory at the end", found["rss"] / 2**20, "MiB")
    for thread in sorted(found["last"]):
        first, last = found["first"].get(thread, 0) * per_hour, found["last"][thread] * per_hour
        suite.figure(f"thread {thread}: CPU per hour, first tenth", first, "s")
        suite.figure(f"thread {thread}: CPU per hour, last tenth", last, "s")
    account = context.run_of(env).launches()
    suite.figure("launches dropped", account.get("dropped"))


SUITES = {
    "totals": Spec(totals, 90, False),
    "cost": Spec(cost, 200, False),
    "graphs": Spec(graphs, 500, False),
    "sessions": Spec(sessions, 90, False),
    "stubs": Spec(stubs, 120, False),
    "ends": Spec(ends, 180, False),
    "hours": Spec(hours, 9 * 3600, False),
}
