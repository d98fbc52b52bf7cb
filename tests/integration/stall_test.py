"""Work on the GPU that does not end: said once, with the kernel and the host's place, and taken back when it goes on."""

import json
import os
import signal
import subprocess
import time

from harness import BUILD, GPT2, SCENARIO, TestCase, main, patience

MFU = BUILD / "mfu"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
STEP = 'push "step batch=1 seq_len=8"; launch gemm_k count=3; %s; sync; pop'
KERNELS = f"kernel gemm_k ns=2000000\nkernel long_k ns=400000000\nkernel longer_k ns=2500000000\nkernel {NCCL} ns=4000000000\n"


class Stall(TestCase):
    def stalls(self, script, seconds=1, **env):
        run = self.scenario(KERNELS + script, env={"MFU_STALL": seconds, "MFU_INTERVAL": "0.5", **env})
        events = [o for o in run.lines("event") if o["kind"] in ("stalled", "resumed")]
        self.assertEqual([e["kind"] for e in events], ["stalled", "resumed"] * (len(events) // 2), events)
        end = self.assert_sound(run)
        return run, events, end["launches"]

    def test_a_collective_that_does_not_end(self):
        usual = f"repeat 20 {{ {STEP % 'launch gemm_k'} }}\n"
        run, events, _ = self.stalls(usual + f"launch {NCCL} count=1\n" + STEP % "launch gemm_k count=20" + "\n" + usual)
        self.assertEqual(len(events), 2)
        stall = events[0]["stall"]
        self.assertEqual((stall["kernel"], stall["comm"], stall["comm_kernels"]), (NCCL, True, 1))
        self.assertEqual(stall["host"], "cuCtxSynchronize")
        self.assertLess((events[0]["t_ns"] - stall["since_ns"]) / 1e9, 2.5)
        self.assertEqual(stall["collective"], 1)
        self.assertIn(f"; {NCCL} (number 1 on its stream) is under way; the host is in cuCtxSynchronize",
                      events[0]["message"])
        self.assertAlmostEqual(float(events[1]["message"].split()[-2]), 4, delta=1)
        self.assertIn("no work has ended on the GPU for", run.stderr.decode())

    def test_a_kernel_on_one_of_several_streams_and_a_host_that_polls(self):
        steps = f"repeat 20 {{ {STEP % 'launch gemm_k'} }}\n"
        _, events, _ = self.stalls(f"{steps}launch {NCCL} stream=7\nsleep 6000\n" + STEP % "sync")
        self.assertEqual((len(events), events[0]["stall"]["kernel"], events[0]["stall"]["host"]), (2, NCCL, ""))

    def test_the_number_of_a_collective_is_its_communicators(self):
        """Of two communicators with streams of their own, the second one's third collective does not end."""
        short = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
        many = f"launch {short} stream=tensor count=40; launch {short} stream=data; sync"
        _, events, _ = self.stalls(f"kernel {short} ns=20000\nstream tensor\nstream data\nrepeat 2 {{ {many} }}\nsleep 1500\n"
                                   + f"{STEP % f'launch {NCCL} stream=data'}\nrepeat 20 {{ {STEP % 'launch gemm_k'} }}\n")
        stall = events[0]["stall"]
        self.assertEqual((stall["kernel"], stall["collective"], stall["comm_kernels"]), (NCCL, 3, 83))
        self.assertIn("(number 3 on its stream) is under way", events[0]["message"])

    def test_a_host_that_waits_for_an_event(self):
        script = f"stream s1\nrepeat 20 {{ {STEP % 'launch gemm_k'} }}\nlaunch {NCCL} stream=s1\nrecord e1 s1\nsync_event e1\n"
        _, events, _ = self.stalls(script + STEP % "sync" + "\nsleep 1000")
        self.assertEqual((len(events), events[0]["stall"]["kernel"], events[0]["stall"]["host"]), (2, NCCL, "cuEventSynchronize"))

    def test_what_is_no_stall(self):
        for name, script, seconds in (
            ("kernels as long as usual", f"repeat 5 {{ {STEP % 'launch long_k'} }}\n{STEP % 'launch longer_k'}", 1),
            ("an idle host", f"repeat 20 {{ {STEP % 'launch gemm_k'} }}\nsync\nsleep 3000\n" + STEP % "sync", 1),
            ("switched off", STEP % f"launch {NCCL}", 0),
        ):
            with self.subTest(name):
                self.assertEqual(self.stalls(script, seconds)[1], [])

    def test_a_launch_that_leaves_no_record(self):
        """An empty graph, whose nodes would have the records: the host idles, nothing stalls."""
        graph = "stream s1\ncapture s1\nend_capture s1 g1\ninstantiate g1\n"
        usual = f"repeat 20 {{ {STEP % 'launch gemm_k'} }}\n"
        _, events, launches = self.stalls(graph + usual + "graph_launch g1 stream=s1\nsleep 4000", MFU_GRAPHS="node")
        self.assertEqual((events, launches["dropped"]), ([], 1))

    def test_the_rank_that_did_not_arrive(self):
        usual = f"repeat 30 {{ {STEP % 'launch gemm_k'} }}\n"
        for name, late, action, words in (
            ("sleeps", "sleep 12000\n", None, "launches no work"),
            ("is stopped", "until_ended nobody\n", signal.SIGSTOP, "has written nothing for"),
            ("is killed", "until_ended nobody\n", signal.SIGKILL, "has written nothing for"),
            ("leaves", "", None, "has ended"),
            ("has a kernel of its own", f"{STEP % 'launch own_k'}\n", None, "runs a kernel that does not end"),
        ):
            with self.subTest(name):
                directory = self.directory / name.replace(" ", "_")
                directory.mkdir()
                kernels = KERNELS.replace("ns=4000000000", "ns=12000000000") + "kernel own_k ns=12000000000\n"
                ranks = []
                for rank in range(3):
                    wait = late.replace("until_ended nobody", "sleep 12000") if rank == 2 else STEP % f"launch {NCCL}" + "\n"
                    env = self.environment(directory, ["cuda", "nvtx"], "cupti-13.0", GPT2, {
                        "MFU_STALL": "1", "MFU_INTERVAL": "0.5", "RANK": str(rank), "WORLD_SIZE": "3", "SIMGPU_TRACE": None})
                    ranks.append(subprocess.Popen([SCENARIO, "-c", kernels + usual + wait], env=env, stdout=subprocess.DEVNULL,
                                                  stderr=subprocess.DEVNULL))
                try:
                    if action is not None:
                        self.until_rows_of(directory, ranks[2])
                        os.kill(ranks[2].pid, action)
                    found = self.seen_hang(directory, words)
                    self.assertEqual((found["rank"], found["saves"]), (2, False), found)
                    report = subprocess.run([MFU, "report", "--json", directory / "run"], capture_output=True, check=True)
                    self.assertIn(words, report.stdout.decode())
                finally:
                    for rank in ranks:
                        rank.kill()
                        rank.wait()

    def until_rows_of(self, directory, process):
        """A build that is slow to start has not begun a step where another one hangs in it."""
        end = time.monotonic() + patience(20)
        while not any('"region":"step"' in file.read_text() for file in (directory / "run").glob(f"*-{process.pid}.jsonl")):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def seen_hang(self, directory, words):
        """The first stall of a job that says `words`."""
        end = time.monotonic() + 10
        seen = []
        while time.monotonic() < end:
            done = subprocess.run([MFU, "top", "--json", directory / "run"], capture_output=True, text=True, check=False)
            hang = json.loads(done.stdout)["hang"] if done.returncode == 0 else None
            if hang is not None and words in hang["text"]:
                return hang
            seen.append(hang and hang["text"])
            time.sleep(0.3)
        self.fail(f"{words!r} is not in {seen}")


if __name__ == "__main__":
    main()
