"""The life of a job that is killed and started again: what `mfu report` says against what happened, to a window."""

import json
import signal
import subprocess
import threading
import time

from harness import BUILD, DEADLINE_S, GPT2, SANITIZE, SCENARIO, TestCase, main, unittest

MFU = BUILD / "mfu"
WINDOW_S = 0.25
# Each line that is printed begins a part. A step is 20 ms of a kernel, and the GPU does nothing else.
STEPS = 'repeat {n} {{ push "step batch=1 seq_len=8"; launch gemm_k count=2; sync; pop }}\n'
SCRIPT = "kernel gemm_k ns=10000000\nprint start_up\nsleep {load}\nprint steps\n{before}" \
         "push checkpoint\nprint checkpoint\nsleep 700\nlaunch gemm_k; sync; pop\nprint lasting\n{behind}print over\n"
# Without a range for the checkpoint, which is 256 MiB of weights that go to the host and a file. Then work does not end.
HANGS = "kernel gemm_k ns=10000000\nkernel long_k ns=60000000000\nprint start_up\nsleep {load}\nprint steps\n{before}" \
        "print checkpoint\n" + "memcpy dtoh 67108864 sync\n" * 4 + "sleep 1200\nprint lasting\n{behind}" \
        'push "step batch=1 seq_len=8"; launch gemm_k; sync; print stalled; launch long_k; sync\n'


@unittest.skipIf(SANITIZE, "killed in the middle")
class Life(TestCase):
    def attempt(self, rank, number, steps, script=SCRIPT, **env):
        """[(part, when it began)] of a process that is killed when it is done with its steps, and when it was gone."""
        config = self.directory / "config.json"
        config.write_text(json.dumps({"model": json.loads(GPT2.read_text()),
                                      "regions": [{"region": "checkpoint", "match": "checkpoint"}]}))
        environment = self.environment(self.directory, ["cuda", "nvtx"], "cupti-13.0", config, {
            "SIMGPU_TRACE": None, "MFU_INTERVAL": WINDOW_S, "RANK": rank, "WORLD_SIZE": 2, "SLURM_JOB_ID": 7,
            "SLURM_RESTART_COUNT": number, "MFU_STALL": 1, **env})
        script = script.format(load=600, before=STEPS.format(n=steps), behind=STEPS.format(n=steps)) + "sleep 60000\n"
        begun = [("process", time.time())]
        return begun, subprocess.Popen(["stdbuf", "-oL", SCENARIO, "-c", script], env=environment, cwd=self.directory,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    @staticmethod
    def follow(begun, child):
        """Notes when each line comes."""
        for line in child.stdout:
            begun.append((line.strip(), time.time()))
            if line.strip() == "over":
                return
            if line.strip() == "stalled":
                time.sleep(4)
                begun.append(("over", time.time()))
                return

    def test_killed_and_started_again(self):
        self.killed_and_started_again(SCRIPT)

    def test_killed_in_a_hang_after_a_checkpoint_in_no_range(self):
        self.killed_and_started_again(HANGS)

    def killed_and_started_again(self, script):
        truth = dict.fromkeys(("restart", "start_up", "checkpoint", "repeated", "productive", "stalled", "outside"), 0.0)
        first, gone = None, [None, None]
        attempts = 3
        for number in range(attempts):
            ranks = [self.attempt(rank, number, 60, script) for rank in range(2)]
            readers = [threading.Thread(target=self.follow, args=rank) for rank in ranks]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join(DEADLINE_S)
            for rank, (begun, child) in enumerate(ranks):
                child.send_signal(signal.SIGKILL)
                child.wait(DEADLINE_S)
                child.stdout.close()
                over, begun[-1:] = time.time(), []
                first = min(first or begun[0][1], begun[0][1])
                if gone[rank] is not None:
                    truth["restart"] += begun[0][1] - gone[rank]
                gone[rank] = over
                ends = [at for _, at in begun[1:]] + [over]
                for (part, at), end in zip(begun, ends):
                    last = number + 1 == attempts
                    name = {"process": "start_up", "steps": "productive", "lasting": "productive" if last else "repeated"}
                    truth[name.get(part, part)] += end - at
            time.sleep(5)
        done = subprocess.run([MFU, "report", self.directory / "run", "--json"], capture_output=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = json.loads(done.stdout)["job"]
        self.assertEqual([a["processes"] for a in job["attempts"]], [2] * attempts)
        self.assertFalse(any(a["ended"] for a in job["attempts"]))
        parts = {k: v * 3600 for k, v in job["lost_gpu_hours"].items()}
        parts["productive"] = job["gpu_hours"] * 3600 - sum(v for k, v in parts.items() if k != "away")
        if script is HANGS:  # windows in which a launch does not end come a minute later: the last sign of life is the event
            self.assertGreater(parts["stalled"], 2 * attempts * 1.0)
            for part in (parts, truth):
                part["restart"] += part.pop("stalled")
        # A window at each limit between two parts, of each process.
        for part, seconds in truth.items():
            with self.subTest(part):
                room = 2 * WINDOW_S * 2 * attempts + 0.1 * seconds
                # A killed process does not write its last windows; in a hang, the last records are in the kernel's buffer.
                if part in ("restart", "repeated", "productive") or (part == "outside" and script is HANGS):
                    room += 1.5 * 2 * attempts
                self.assertAlmostEqual(parts[part], seconds, delta=room, msg=(parts, truth))
        self.assertAlmostEqual(job["mfu_job"], job["mfu_steps"] * job["productive"] * job["alive"])
        self.assertRegex(job["life"], r"^job MFU [\d.]+ % = [\d.]+ % in steps x \d+ % productive x \d+ % alive; .* lost: ")
        text = subprocess.run([MFU, "report", self.directory / "run", "-o", self.directory / "page.html"], capture_output=True,
                              text=True, timeout=DEADLINE_S).stdout
        self.assertIn("job MFU ", text)
        prometheus = self.directory / "m.prom"
        subprocess.run([MFU, "serve", self.directory / "run", "--textfile", prometheus, "--once"], check=True, timeout=DEADLINE_S)
        self.assertIn('mfu_job_attempts{job="run"} 3', prometheus.read_text())

    def test_a_checkpoint_by_its_copies_and_work_that_does_not_end(self):
        """No range for the checkpoint: 256 MiB of weights to the host, then a file for 2 s. Then a kernel of 5 s."""
        script = ("kernel gemm_k ns=10000000\nkernel long_k ns=5000000000\n" + STEPS.format(n=60)
                  + "memcpy dtoh 67108864 sync\n" * 4 + "sleep 2000\n" + STEPS.format(n=60)
                  + 'push "step batch=1 seq_len=8"; launch long_k; sync; pop\n' + STEPS.format(n=60))
        run = self.scenario(script, env={"MFU_INTERVAL": WINDOW_S, "MFU_STALL": 1})
        totals = [w for w in run.lines("window") if w["region"] == "total"]
        self.assertEqual(sum(w.get("to_host_bytes", 0) for w in totals), 4 * 67108864)
        done = subprocess.run([MFU, "report", run.directory / "run", "--json"], capture_output=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = json.loads(done.stdout)["job"]
        parts = {k: v * 3600 for k, v in job["lost_gpu_hours"].items()}
        self.assertAlmostEqual(parts["checkpoint"], 2, delta=2 * WINDOW_S)
        self.assertAlmostEqual(parts["stalled"], 5, delta=2 * WINDOW_S)
        self.assertAlmostEqual(job["gpu_hours"] * 3600 - sum(parts.values()), 3 * 60 * 0.02, delta=4 * WINDOW_S)
        self.assertRegex(job["life"], r": stalls [45][.\d]*, checkpoints [12][.\d]*")

    def test_the_start_line_says_when_the_process_began_and_of_which_job_it_is(self):
        before = time.time_ns()
        run = self.program(["sh", "-c", f"sleep 1; exec {SCENARIO} -c 'kernel k ns=1000; launch k; sync'"],
                           env={"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2", "MFU_INTERVAL": "0.2"})
        start = run.lines()[0]
        self.assertEqual(start["job"], {"id": "slurm-12", "restart": 2})
        self.assertLess(abs(start["began_ns"] - before), 900_000_000)  # exec keeps the process
        self.assertGreater(start["t_ns"] - start["began_ns"], 900_000_000)
        self.assertIsNone(self.program([SCENARIO, "-c", "kernel k ns=1000; launch k; sync"]).lines()[0]["job"])


if __name__ == "__main__":
    main()
