"""`mfu run` as the parent of the program: what is wrong is said before it starts, signals reach it once, it ends as it would have
ended, and its table is printed when it could not print it itself.
"""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time

from harness import BUILD, DEADLINE_S, GPT2, SANITIZE, SCENARIO, TestCase, main, unittest

MFU = BUILD / "mfu"

# Stopping and going on have their usual effect on `mfu run`; SIGPIPE and SIGCHLD are about its own pipes and children.
NOT_PASSED_ON = ("SIGKILL", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCONT", "SIGPIPE", "SIGCHLD")

# Counts the signals that reach it, until a line on its standard input ends it.
COUNTER = f"""
import os, signal, sys, time
seen = []
names = {{s.value: s.name for s in signal.Signals}}
for s in signal.valid_signals():
    if names.get(s, s) not in {NOT_PASSED_ON}:
        signal.signal(s, lambda number, frame: seen.append(names.get(number, str(number))))
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
print(" ".join(seen) or "none", flush=True)
"""


def children(pid):
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_children(process):
    """Kills every process below `process`; one that went by itself meanwhile is as good."""
    for pid in children(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Checks(TestCase):
    def mfu_run(self, *words, **env):
        base = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        return subprocess.run(
            [MFU, "run", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd=self.directory,
            env={**base, **env},
        )

    def test_what_is_wrong_is_said_before_the_program_starts(self):
        started = self.directory / "started"
        for words, said in (
            (["-c", "nope.json"], "--config nope.json: "),
            (["-c", "nope/nope.json"], "--config nope/nope.json: "),
            (["-c", f"{self.directory}/nope"], "--config .*/nope: "),
            (["-i", "abc"], '--interval: expected seconds .* got "abc"'),
            (["-i", "-1"], "--interval: "),
            (["--every", "1.5"], '--every: expected a whole number .* got "1.5"'),
            (["--every", "0"], "--every: expected a number of windows from 1 on"),
            (["--set", "foo"], "--set: expected key=value"),
            (["--set", "workload.batchh=8"], "workload.batchh: unknown key .* did you mean batch"),
            (["--set", "workload.batch=x"], "--set: workload.batch: "),
            (["--peak-tflops", "abc"], "--peak-tflops: expected a number"),
            (["--peak-gbps", "0"], "--peak-gbps: "),
            (["--cupti", "/nope"], "--cupti /nope: No such file"),
            (["--log", "/proc/zz"], "--log /proc/zz: cannot be"),
            (["--log", "none/such/log"], "there is no folder .*none/such"),
            (["-d", "/proc/x"], "--run-dir /proc/x: "),
            (["--report", "/nonexistent/x.html"], "--report .*there is no folder /nonexistent"),
            (["--no-run-dir", "--report", "x.html"], "--report needs the run directory"),
            (["-c", '{"regions": [{"region": "a", "match": "(un"}]}'], r'regions\[0\]: .*"\(un": missing'),
        ):
            with self.subTest(words=words):
                done = self.mfu_run(*words, "touch", started)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertRegex(done.stderr, f"(?m)^mfu run: .*{said}|^mfu run: {said}")
                self.assertIn("--keep-going", done.stderr)
                self.assertFalse(started.exists())
                self.assertEqual(list(self.directory.iterdir()), [])
        done = self.mfu_run("touch", started, MFU_TRACE="t.json.gz")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r'(?m)^mfu run: MFU_TRACE: expected a name without \.gz, .* got "t\.json\.gz"$')
        done = self.mfu_run("--quiet", "--every", "2", "touch", started)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "--(quiet|every) excludes --(every|quiet)")
        done = self.mfu_run("--keep-going", "-i", "abc", "touch", started)
        self.assertEqual(done.returncode, 0)
        self.assertTrue(started.exists())
        # A variable of another program is not ours to judge; with MFU_DISABLE nothing is.
        self.assertEqual(self.mfu_run("true", MFU_OTHER="1").returncode, 0)
        self.assertEqual(self.mfu_run("-c", "nope.json", "true", MFU_DISABLE="1").returncode, 0)

    def test_a_model_that_is_read_by_a_guess_is_no_mistake(self):
        config = {"model_type": "brandnew", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "intermediate_size": 128, "vocab_size": 256}
        run = self.mfu_run("-c", json.dumps(config), "true")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("brandnew", run.stderr)
        self.assertIn("(assumed)", run.stderr)

    def test_one_line_says_what_was_understood(self):
        done = self.mfu_run(
            "-c", GPT2, "--set", "workload.phase=train,workload.batch=8,workload.seq_len=1024,peak.dtype=bf16", "true"
        )
        self.assertRegex(
            done.stderr.splitlines()[0],
            r"^\[mfu\] gpt2 124 M, train, batch 8, 1,024 tokens, bf16 peak, exact counting; "
            r"run directory mfu-runs/\d{8}-\d{6}-\d+$",
        )

    def test_a_program_without_gpu_work_leaves_nothing(self):
        done = self.mfu_run("echo", "out")
        self.assertEqual((done.returncode, done.stdout), (0, "out\n"))
        self.assertEqual(list(self.directory.iterdir()), [])
        self.assertIn("nothing was measured", done.stderr.splitlines()[-2])
        self.assertEqual(done.stderr.splitlines()[-1],
                         f"[mfu] a container must hold {(BUILD / 'libmfuinject.so').resolve()} under the same path")

    def test_a_config_that_the_program_downloads_counts_the_run(self):
        """Before CUDA starts the library finds it; later `mfu run` counts what was measured without it."""
        cache = self.directory / "cache"
        snapshot = cache / "models--some--model/snapshots/main"
        script = self.directory / "scenario"
        script.write_text('kernel gemm_k ns=300000; repeat 300 { push "step batch=1 seq_len=32"; launch gemm_k; sync; pop }')
        fetch = f"mkdir -p {snapshot} {cache}/models--some--model/refs; cp {GPT2} {snapshot}/config.json; " \
                f"printf main > {cache}/models--some--model/refs/main"
        base = self.environment(self.directory, [], "cupti-13.0", None, {"SIMGPU_TRACE": None})
        for name, program in (("before", f"{fetch}; exec {SCENARIO} {script}"), ("after", f"{SCENARIO} {script}; {fetch}")):
            with self.subTest(name):
                done = self.mfu_run("-c", "some/model", "-d", name, "sh", "-c", program, HF_HUB_CACHE=str(cache),
                                    LD_LIBRARY_PATH=base["LD_LIBRARY_PATH"])
                self.assertEqual(done.returncode, 0, done.stderr)
                lines = done.stderr.splitlines()
                tables = [line for line in lines if line.startswith("[mfu] whole run")]
                self.assertIn("some/model is in no local cache yet", done.stderr)
                steps = [line for line in lines if re.match(r"\[mfu\] step@gpu0 +300 ", line)]
                self.assertEqual((len(tables), len(steps)), (1, 1) if name == "before" else (2, 2), done.stderr)
                self.assertRegex(steps[-1], r" \d+\.\d%")
                self.assertEqual(lines[-1], f"[mfu] next: mfu report {name}" + (" -c some/model" if name == "after" else ""))
            subprocess.run(["rm", "-r", cache], check=True)


class Signals(TestCase):
    def start(self, *words, **options):
        """A supervised COUNTER in a group of its own; the pids of `mfu run` and of the program."""
        child = subprocess.Popen([*words, MFU, "run", "--no-run-dir", sys.executable, "-c", COUNTER], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options)
        self.addCleanup(lambda: child.poll() is None and os.killpg(child.pid, signal.SIGKILL))
        return child, int(child.stdout.readline().split()[1])

    def ends_with(self, child):
        out, err = child.communicate("\n", timeout=DEADLINE_S)
        self.assertEqual((child.returncode, err), (0, ""))
        return out.strip()

    def test_a_signal_reaches_the_program_once(self):
        for name, to_group in (("SIGTERM", False), ("SIGTERM", True), ("SIGINT", False), ("SIGINT", True), ("SIGUSR1", False),
                               ("SIGHUP", True)):
            with self.subTest(signal=name, to_group=to_group):
                child, program = self.start()
                self.assertEqual(os.getpgid(program), child.pid)
                (os.killpg if to_group else os.kill)(child.pid, getattr(signal, name))
                time.sleep(0.5)  # a second one would come by then
                self.assertEqual(self.ends_with(child), name)

    def test_a_signal_to_every_process_of_the_job_reaches_it_once(self):
        """As schedulers do, one process after the other."""
        child, program = self.start()
        for pid in (child.pid, *children(child.pid)):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.5)
        self.assertEqual(self.ends_with(child), "SIGTERM")
        child, program = self.start()
        for _ in range(3):
            os.killpg(child.pid, signal.SIGUSR1)
            time.sleep(0.3)
        os.kill(child.pid, signal.SIGTERM)
        time.sleep(0.3)
        self.assertEqual(self.ends_with(child), "SIGUSR1 SIGUSR1 SIGUSR1 SIGTERM")

    def test_every_signal_that_can_be_passed_on_is(self):
        child, _ = self.start()
        names = {s.value: s.name for s in signal.Signals}
        sent = [names.get(s, str(int(s))) for s in sorted(signal.valid_signals()) if names.get(s) not in NOT_PASSED_ON]
        self.assertGreater(len(sent), 50)
        for name in sent:
            os.kill(child.pid, int(name) if name.isdigit() else getattr(signal, name))
            time.sleep(0.1)
        self.assertEqual(sorted(self.ends_with(child).split()), sorted(sent))

    def test_it_ends_as_the_program(self):
        for how, status in (
            ("kill -TERM $$", -15),
            ("kill -KILL $$", -9),
            ("kill -SEGV $$", -11),
            ("exit 130", 130),
            ("exit 0", 0),
        ):
            with self.subTest(how):
                self.assertEqual(
                    subprocess.run([MFU, "run", "--no-run-dir", "sh", "-c", how], timeout=DEADLINE_S).returncode, status
                )

    def test_without_the_parent_there_is_no_program(self):
        child, program = self.start()
        child.kill()
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            try:
                if pathlib.Path(f"/proc/{program}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    break
            except (FileNotFoundError, ProcessLookupError):
                break
            time.sleep(0.01)
        else:
            self.fail("the program lives on")
        child.communicate(timeout=DEADLINE_S)

    def read_until(self, master, text, pattern):
        """`text` and what comes from the terminal, up to the pattern."""
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, text) and time.monotonic() < deadline:
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                text += os.read(master, 4096)
            except OSError:
                break
        self.assertRegex(text, pattern)
        return text

    def test_ctrl_z_and_fg(self):
        """A shell's job: Ctrl-Z stops the program and mfu run, fg continues both, and the exit code is the shell's."""
        pid, master = pty.fork()
        if pid == 0:
            os.environ["PS1"] = "prompt> "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        (self.directory / "counter.py").write_text(COUNTER)
        text = self.read_until(master, b"", rb"prompt> ")
        os.write(master, f"{MFU} run --no-run-dir {sys.executable} {self.directory}/counter.py; echo code $?\n".encode())
        text = self.read_until(master, text, rb"ready (\d+)\r")
        program = int(re.search(rb"ready (\d+)\r", text)[1])
        os.write(master, b"\x1a")
        text = self.read_until(master, text, rb"Stopped")

        def state(process):
            return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]

        parent = int(pathlib.Path(f"/proc/{program}/stat").read_text().rsplit(")", 1)[1].split()[1])
        deadline = time.monotonic() + DEADLINE_S
        while (state(program), state(parent)) != ("T", "T"):
            self.assertLess(time.monotonic(), deadline, "Ctrl-Z stops both")
            time.sleep(0.02)
        os.write(master, b"fg\n")
        while "T" in (state(program), state(parent)):
            self.assertLess(time.monotonic(), deadline, "fg continues them")
            time.sleep(0.02)
        os.write(master, b"end\n")
        text = self.read_until(master, text, rb"none\r\n")
        os.write(master, b"exit 7\n")
        self.read_until(master, text, rb"exit 7\r\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)
        os.close(master)

    def test_the_terminal_is_the_programs(self):
        """Ctrl-C on it arrives once, what is typed arrives, and it stays a terminal."""
        pid, master = pty.fork()
        if pid == 0:
            program = COUNTER.replace(
                'print("ready"', 'print("tty" if sys.stdin.isatty() and sys.stdout.isatty() else "none", "ready"'
            )
            os.execv(MFU, ["mfu", "run", "--no-run-dir", sys.executable, "-c", program])
        text = self.read_until(master, b"", rb"tty ready \d+")
        os.write(master, b"\x03")
        time.sleep(0.5)
        os.write(master, b"end\n")
        text = self.read_until(master, text, rb"SIGINT\r\n")
        self.assertNotIn(b"SIGINT SIGINT", text)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        os.close(master)


@unittest.skipIf(SANITIZE, "killed in the middle: what the sanitizer would say is lost too")
class Table(TestCase):
    LONG = """kernel gemm_k ns=200000
        print begins
        repeat 100000 { push "step batch=1 seq_len=8"; launch gemm_k count=2; sync; pop }"""

    def killed(self, how, *words):
        """A measured program that is ended by `how(mfu's process)` once two windows are written."""
        env = self.environment(self.directory, [], "cupti-13.0", None, {"SIMGPU_TRACE": None})
        child = subprocess.Popen(
            [MFU, "run", "-c", GPT2, "-i", "0.2", *words, SCENARIO, "-c", self.LONG],
            env=env,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            written = [line for path in self.directory.glob("mfu-runs/*/*.jsonl") for line in path.read_text().splitlines()]
            if len([line for line in written if '"type":"window"' in line]) >= 4:
                break
            time.sleep(0.02)
        how(child)
        out, err = child.communicate(timeout=DEADLINE_S)
        self.assertIn(out, ("", "begins\n"))  # a killed program may not have flushed it
        return child.returncode, err.splitlines()

    def test_a_killed_program_has_its_table(self):
        for name, how in (("SIGINT", lambda c: os.killpg(c.pid, signal.SIGINT)), ("SIGTERM", lambda c: c.terminate()),
                          ("SIGKILL", kill_children)):
            with self.subTest(signal=name):
                code, lines = self.killed(how)
                self.assertEqual(code, -getattr(signal, name))
                said = f"[mfu] ended by {name}; from the run directory, with"
                at = [i for i, line in enumerate(lines) if line.startswith(said)]
                self.assertEqual(len(at), 1, lines)
                table = lines[at[0] + 1:]
                self.assertRegex(table[0], r"^\[mfu\] whole run +instances")
                step = [line for line in table if re.match(r"\[mfu\] step@gpu0 ", line)]
                self.assertEqual(len(step), 1, lines)
                path, = self.directory.glob("mfu-runs/*/*.jsonl")
                windows = [json.loads(line) for line in path.read_text().splitlines()]
                instances = sum(w["instances"] for w in windows if w["type"] == "window" and w["region"] == "step")
                so_far = windows[-1]["type"] == "end"  # and no window has ended since
                self.assertIn("with the window" if so_far else "without the window", lines[at[0]])
                if so_far:
                    self.assertEqual(name, "SIGTERM")
                    instances, = (r["instances"] for r in windows[-1]["regions"] if r["region"] == "step")
                self.assertEqual(int(step[0].split()[2]), instances)
                self.assertRegex(lines[-1], r"^\[mfu\] next: mfu report mfu-runs/\S+$")
                shown = subprocess.run(
                    [MFU, *lines[-1].split()[3:], "--json"], cwd=self.directory, capture_output=True, timeout=DEADLINE_S
                )
                self.assertEqual(shown.returncode, 0, shown.stderr)
                path.unlink()
                path.parent.rmdir()

    def test_nothing_is_lost_before_sigterm(self):
        """Of a program that has done its work and waits, as a server does, the table has all in its first window."""
        env = self.environment(self.directory, [], "cupti-13.0", None, {"SIMGPU_TRACE": None})
        program = """kernel gemm_k ns=200000
            repeat 150 { push "step batch=1 seq_len=8"; launch gemm_k count=2; sync; pop }
            print done
            sleep 600000"""
        words = ["-c", GPT2, "--set", "peak.dtype=bf16", SCENARIO, "-c", program]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        child = subprocess.Popen([MFU, "run", *words], env=env, cwd=self.directory, text=True, **pipes)
        deadline = time.monotonic() + DEADLINE_S
        while not [*self.directory.glob("mfu-runs/*/*.jsonl")] and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(1)  # it has done its work
        child.terminate()
        _, err = child.communicate(timeout=DEADLINE_S)
        step, = (line for line in err.splitlines() if line.startswith("[mfu] step@gpu0 "))
        self.assertEqual(int(step.split()[2]), 150, err)
        self.assertIn("[mfu] launches 300 = attributed 300 + outside 0 + unattributed 0 + dropped 0", err)

    def test_a_program_that_ends_in_peace_has_one_table(self):
        env = self.environment(self.directory, [], "cupti-13.0", None, {"SIMGPU_TRACE": None})
        done = subprocess.run(
            [
                MFU,
                "run",
                "-c",
                GPT2,
                "-i",
                "0.2",
                "--report",
                "page.html",
                SCENARIO,
                "-c",
                self.LONG.replace("100000 {", "500 {") + "; exit 3",
            ],
            env=env,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        lines = done.stderr.splitlines()
        self.assertEqual((done.returncode, done.stdout), (3, "begins\n"))
        self.assertEqual(len([line for line in lines if "whole run " in line]), 1, lines)
        self.assertEqual(lines[-2], "[mfu] report: page.html")
        self.assertRegex(lines[-1], r"^\[mfu\] next: mfu report mfu-runs/")
        self.assertIn(b"<html", (self.directory / "page.html").read_bytes().lower())

    def test_a_log_in_a_file_has_all_of_it(self):
        code, lines = self.killed(lambda c: c.terminate(), "--log", "log")
        self.assertEqual((code, lines), (-15, []))
        log = (self.directory / "log").read_text()
        self.assertRegex(log, r"(?s)run directory mfu-runs.*\nmfuinject |run directory.*ended by SIGTERM.*next: mfu report")


if __name__ == "__main__":
    main()
