"""A long run at full speed: memory, descriptors, threads and files stay what they were, and every launch is in the account.

MFU_SOAK_SECONDS: how long the C++ programs take, about (1800). Two thirds are launches in ranges as fast as the simulated GPU
takes them: in 30 minutes 10^9 launches and 10^8 ranges where the machine makes 800,000 launches a second. The rest is contexts,
threads and other clients that come and go. A Python program takes two thirds of that time more: its steps are known from its
interpreter, and its idle time is looked at (MFU_SOAK_PYTHON=0: without looking for an interpreter).
"""

import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hostile"))

from harness import BUILD, GPT2, LIBRARY, SCENARIO, Run, TestCase, main
from interpreter_test import MONITORING

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = float(os.environ.get("MFU_SOAK_SECONDS", "1800"))
LIMIT_MB = 20


class Sample:
    """What a process holds at a moment."""

    def __init__(self, pid, folder):
        status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        self.rss_kb = int(status["VmRSS"].split()[0])
        self.swap_kb = int(status.get("VmSwap", "0 kB").split()[0])
        self.threads = int(status["Threads"])
        self.descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        self.maps = len(pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines())
        self.bytes = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())

    @property
    def memory_kb(self):
        return self.rss_kb + self.swap_kb


class Soak(TestCase):
    def watch(self, script, **env):
        """Runs a script to its end and looks at the process 100 times or more: (run, samples)."""
        return self.watch_command([str(SCENARIO), "-c", script], GPT2, **env)

    def watch_command(self, command, config, **env):
        directory = self.directory / str(next(self.run_numbers))
        directory.mkdir()
        environment = self.environment(
            directory,
            ["cuda", "nvtx"],
            "cupti-13.0",
            config,
            {
                "SIMGPU_TRACE": None,
                "MFU_INTERVAL": "1",
                "MFU_RUN_DIR_LIMIT": LIMIT_MB,
                "MFU_TB_DIR": str(directory / "tb"),
                "MFU_PYTHON": os.environ.get("MFU_SOAK_PYTHON", "1"),
                **env,
            },
        )
        with open(directory / "stdout", "wb") as out, open(directory / "stderr", "wb") as err:
            begin = time.monotonic()
            child = subprocess.Popen(command, env=environment, stdout=out, stderr=err, cwd=directory)
            samples = []
            while child.poll() is None:
                try:
                    samples.append(Sample(child.pid, directory))
                except (OSError, KeyError):
                    break  # it ended meanwhile
                time.sleep(min(1.0, max(0.05, SECONDS / 600)))
            child.wait()
            took = time.monotonic() - begin
        run = Run(child.returncode, (directory / "stdout").read_bytes(), (directory / "stderr").read_bytes(), directory, took)
        self.assertEqual(run.code, 0, run.stderr[-4000:])
        return run, samples

    def rate(self, script_of, least):
        """Repeats a second that this machine makes of a script: measured for a twentieth of the time."""
        return self.rate_of(lambda count: self.watch(script_of(count)), least)

    def rate_of(self, run_with, least):
        count = least
        while True:
            run, _ = run_with(count)
            if run.seconds > max(1, SECONDS / 60) or run.seconds > 20:
                return count / run.seconds
            count *= 4

    def assert_flat(self, samples, run):
        """From a third of the run on nothing grows: the median of the last tenth against that behind the first third.

        Memory may grow by 2 MB, or a 50th: pages of the 512 activity buffers that no record lay in before.
        """
        self.assertGreater(len(samples), 20)

        def median(values):
            return sorted(values)[len(values) // 2]

        n = len(samples)
        early, late = samples[n // 3 : n // 3 + max(3, n // 10)], samples[-max(3, n // 10) :]
        for what in ("memory_kb", "threads", "descriptors", "maps"):
            before, after = (median([getattr(s, what) for s in part]) for part in (early, late))
            print(f"    {what}: {before} > {after}", file=sys.stderr)
            room = {"memory_kb": max(2048, before // 50), "threads": 4, "descriptors": 4, "maps": max(16, before // 20)}[what]
            self.assertLessEqual(after, before + room, what)
        files = samples[-1].bytes
        print(f"    files: {files / 1e6:.1f} MB after {run.seconds:.0f} s; log {len(run.stderr) / 1e6:.2f} MB", file=sys.stderr)
        self.assertLess(files, 3 * (LIMIT_MB * 1e6 * (0.2 + run.seconds / 86400) + 1e6))

    def assert_account(self, run, launches, ranges):
        end = self.assert_sound(run)
        account = end["launches"]
        print(f"    {run.seconds:.0f} s: {account}; counters {end['counters']}", file=sys.stderr)
        self.assertEqual(account["seen"], launches)
        step = [r for r in end["regions"] if r["region"] == "step"]
        lost = end["counters"].get("instances_full", 0)
        self.assertEqual(sum(r["instances"] for r in step) + lost, ranges, end["counters"])
        windows = [o for o in run.lines("window") if o["region"] == "step"]
        self.assertEqual(sum(w["instances"] for w in windows), sum(r["instances"] for r in step))
        self.assertAlmostEqual(sum(w["elapsed_s"] for w in windows), sum(r["elapsed_s"] for r in step), places=3)

    def test_launches_at_full_speed(self):
        work = '{ push "step batch=1 seq_len=8"; launch gemm_k count=10; pop }'

        def script(count, before=""):
            return f"kernel gemm_k ns=300\n{before}repeat {count} {work}"

        def crowd(count):
            """More threads than the machine has cores: the library's own threads have to wait, and its tables and buffers
            of fixed size fill up once. Later delays then touch no new pages, so that memory that still grows is a leak."""
            begin = "\n".join(f"thread crowd{i} {{ repeat {count} {work} }}" for i in range(crowding))
            return begin + "\n" + "\n".join(f"join crowd{i}" for i in range(crowding)) + "\n"

        crowding = 3 * os.cpu_count()
        count = int(self.rate(script, 2000) * SECONDS * 2 / 3)
        each = count // 200
        run, samples = self.watch(script(count, crowd(each)))
        ranges = count + crowding * each
        self.assert_account(run, 10 * ranges, ranges)
        self.assert_flat(samples, run)

    @unittest.skipIf(os.environ.get("MFU_SOAK_PYTHON") == "0", "without looking for an interpreter")
    @unittest.skipIf(not MONITORING, "no CPython 3.12 or newer here")
    def test_steps_of_a_python_program(self):
        interpreter = next(iter(MONITORING.values()))

        def steps(count):
            program = [interpreter, str(HERE / "python_steps.py"), str(BUILD / "clients/liblaunch_many.so"), str(count)]
            return self.watch_command(program, None, PYTHONPATH=str(HERE.parent / "hostile/standin"), PYTHONDONTWRITEBYTECODE="1")

        count = int(self.rate_of(steps, 200) * SECONDS * 2 / 3)
        run, samples = steps(count)
        end = self.assert_sound(run)
        launches = int(run.stdout)
        print(f"    {run.seconds:.0f} s: {end['launches']}; counters {end['counters']}", file=sys.stderr)
        self.assertEqual(end["launches"]["seen"], launches)
        regions = {r["region"]: r for r in end["regions"]}
        self.assertEqual((regions["step"]["instances"], regions["step"]["named_by"]), (count, "interpreter"))
        self.assertEqual(regions["step"]["launches"], launches)
        idle = {part["cause"]: part["s"] for part in regions["total"]["idle_by"]}
        slept = 0.5 + -(-count // 200) * 0.1
        print(f"    slept {slept:.2f} s; idle {idle}", file=sys.stderr)
        self.assertGreater(idle["main program"], slept / 2, "looks went on")
        self.assertLess(idle["main program"], slept * 1.1 + 0.5)
        self.assert_flat(samples, run)

    def test_contexts_that_come_and_go(self):
        def script(count):
            return (
                "kernel gemm_k ns=300\n"
                f'repeat {count} {{ context_create; push "step batch=1 seq_len=8"; launch gemm_k count=10; sync; pop; '
                "context_destroy }"
            )

        count = max(100, int(self.rate(script, 20) * SECONDS / 9))
        run, samples = self.watch(script(count))
        self.assert_account(run, 10 * count, count)
        self.assert_flat(samples, run)

    def test_short_threads(self):
        def script(count):
            return (
                "kernel gemm_k ns=300\n"
                f'repeat {count} {{ thread worker {{ push "step batch=1 seq_len=8"; launch gemm_k count=2; pop }}; join worker }}'
            )

        count = max(200, int(self.rate(script, 100) * SECONDS / 9))  # 10,000 are over in seconds
        run, samples = self.watch(script(count))
        end = self.assert_sound(run)
        self.assertEqual(end["launches"]["seen"], 2 * count)
        self.assert_flat(samples, run)

    def test_other_clients_that_come_and_go(self):
        """Profilers take CUPTI's buffers and give them back, another tool its own ranges: windows go on, nothing counts twice.

        The library comes back when the other has been silent for 30 s, so a round is 40 s; the short form has one.
        """
        rounds = max(1, int(SECONDS / 9 / 40))
        # Every page of the tables of fixed size is touched first: what still grows after that would grow without end.
        fill = 120_000
        fill_tables = f'repeat {fill} {{ push "step batch=1 seq_len=8"; launch gemm_k count=10; pop }}\nsync\n'
        work = 'repeat %d { push "step batch=1 seq_len=8"; launch gemm_k count=10; pop; sync; sleep 10 }'
        run, samples = self.watch(
            "kernel gemm_k ns=300\n"
            + fill_tables
            + work % 300
            + f"\nrepeat {rounds} {{\nforeign new_kineto start\n"
            + work % 200
            + "\nforeign new_kineto stop\n"
            + 'dso_push "another tool"; dso_pop; v2_push "an old one"; v2_pop\n'
            + work % 3500
            + "\n}"
        )
        instances = fill + 300 + 3700 * rounds
        end = self.assert_sound(run)
        account = end["launches"]
        print(f"    {run.seconds:.0f} s: {account}; counters {end['counters']}", file=sys.stderr)
        self.assertEqual(account["seen"], 10 * instances)
        step = [r for r in end["regions"] if r["region"] == "step"]
        windows = [w for w in run.lines("window") if w["region"] == "step"]
        self.assertEqual(sum(w["instances"] for w in windows), instances)
        # The run leaves out the windows in which the other one had the records.
        measured = [w for w in windows if w["time_s"]["matmul"] is not None]
        self.assertEqual(sum(r["instances"] for r in step), sum(w["instances"] for w in measured))
        self.assertGreater(sum(w["instances"] for w in measured) - fill, (instances - fill) / 2)
        self.assertLessEqual(sum(r["launches"] for r in step), account["attributed"])
        last = run.lines("end")[0]["t1_ns"]
        self.assertGreater(max(w["t1_ns"] for w in measured), last - 10e9, "measured again at the end")
        self.assert_flat(samples, run)


if __name__ == "__main__":
    if not LIBRARY.exists():
        sys.exit(f"{LIBRARY} is missing")
    unittest.TestCase.longMessage = True
    main()
