"""A GPU that never runs dry, or is blocked behind one kernel, hands out its records late: CUPTI keeps a buffer back as long as
one record in it is incomplete. The program is measured all the same, and nobody is blamed for it."""

import concurrent.futures

from harness import SANITIZE, TestCase, Truth, main, ns, unittest

KEEPS_OPEN = {"SIMGPU_FLUSH_KEEPS_OPEN": "1", "SIMGPU_QUEUE_DEPTH": "128"}


def steady(kernel_ns, seconds):
    """A loop that only launches: the host is ahead of the GPU by as much as the driver lets it be."""
    return f"""
        kernel gemm_step ns={kernel_ns}
        repeat {int(seconds * 1e9 / kernel_ns)} {{ push "step batch=1 seq_len=32"; launch gemm_step; pop }}
        sync
        print ends
    """


STRAGGLER = """
    kernel gemm_wait ns=9000000000; kernel gemm_step ns=1000000
    push "step batch=1 seq_len=32"; launch gemm_wait; pop
    repeat 400 { push "step batch=1 seq_len=32"; launch gemm_step; pop; sleep 15 }
    sync
    print ends
"""

LOADS = {
    "10 ms kernels": (steady(10_000_000, 8), KEEPS_OPEN),
    "2 ms kernels": (steady(2_000_000, 8), KEEPS_OPEN),
    "1 ms kernels": (steady(1_000_000, 8), KEEPS_OPEN),
    "0.3 ms kernels": (steady(300_000, 8), KEEPS_OPEN),
    "one 9 s kernel, 400 launches behind it": (STRAGGLER, {}),
    "the same, open buffers kept": (STRAGGLER, KEEPS_OPEN),
}


@unittest.skipIf(SANITIZE, "nine seconds of GPU time in each, where everything takes ten times as long")
class BusyGpu(TestCase):
    def check(self, name):
        script, env = LOADS[name]
        run = self.scenario(script, env={**env, "SIMGPU_PEAK_TFLOPS": "989.4"})
        self.assertEqual(run.stdout, b"ends\n")
        for line in run.log:
            self.assertNotIn("stepping aside", line)
        self.assert_sound(run)
        launches = run.launches()
        self.assertEqual(run.end["launches"]["attributed"], len(launches), run.end)
        step = run.region("step")
        truth = Truth(run.activities())
        self.assertEqual((step["kernels"], ns(step["kernel_sum_s"])), (truth.kernels, truth.kernel_sum_ns))
        self.assertIsNotNone(step["mfu"], step)
        windows = [w for w in run.lines("window") if w["region"] == "total"]
        self.assertEqual([w for w in windows if w["time_s"]["matmul"] is None], [])
        # What the windows say adds up to the run: none of them went out before its records came.
        self.assertLess(abs(sum(ns(w["busy_s"]) for w in windows) - truth.busy_ns), 0.01 * truth.busy_ns)

    def test_measured_and_nobody_blamed(self):
        names = list(LOADS)
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            results = {name: pool.submit(self.check, name) for name in names}
        for name, result in results.items():
            with self.subTest(name):
                result.result()


@unittest.skipIf(SANITIZE, "nine seconds of GPU time, where everything takes ten times as long")
class LateTime(TestCase):
    def test_a_long_kernel_beside_others_is_in_the_totals(self):
        """Time goes past a collective that waits; its record comes when its windows are out. The run has all of its time."""
        run = self.scenario("""
            kernel gemm_step ns=500000; kernel ncclDevKernel_AllReduce ns=7000000000
            stream side; stream main
            push "step batch=1 seq_len=32"; launch ncclDevKernel_AllReduce stream=side; launch gemm_step stream=main; pop
            repeat 800 { push "step batch=1 seq_len=32"; launch gemm_step count=8 stream=main; sync main; sleep 5; pop }
            sync
            print ends
        """, env=KEEPS_OPEN)
        self.assertEqual(run.stdout, b"ends\n")
        self.assert_sound(run)
        truth = Truth(run.activities())
        self.assertEqual(run.end["launches"]["attributed"], 800 * 8 + 2)
        windows = [w for w in run.lines("window") if w["region"] == "total"]
        self.assertTrue([w for w in windows if w["settled"] is False], "nothing came late: the test says nothing")
        total = run.region("total")
        self.assertEqual((total["kernels"], ns(total["kernel_sum_s"]), ns(total["busy_s"])),
                         (truth.kernels, truth.kernel_sum_ns, truth.busy_ns))
        self.assertEqual({c: ns(total["time_s"][c]) for c in truth.time_ns}, truth.time_ns)
        step = run.region("step")
        self.assertEqual((step["kernels"], step["launches"], ns(step["kernel_sum_s"])),
                         (truth.kernels, truth.kernels, truth.kernel_sum_ns))
        # Every step while it ran waited beside it: their time is communication where no GEMM ran.
        self.assertGreater(step["time_s"]["comm"], 0.5 * total["time_s"]["comm"])


@unittest.skipIf(SANITIZE, "as many launches as the machine can make, each ten times as slow")
class Overload(TestCase):
    def test_as_many_launches_as_the_machine_can_make(self):
        """Three threads that do nothing but launch. What is lost is counted, memory is bounded, windows and the end come."""
        run = self.scenario("""
            kernel gemm_a ns=1000
            """ + "\n".join(f"stream s{i}" for i in range(3)) + """
            push "step batch=1 seq_len=32"
            """ + "\n".join(f"thread t{i} {{ repeat 600 {{ launch gemm_a stream=s{i} count=1000 }} }}" for i in range(3)) + """
            join
            sync
            pop
            print ends
        """, env={"SIMGPU_TRACE": None, "SIMGPU_GAP_NS": "0"})
        self.assertEqual(run.stdout, b"ends\n")
        end = self.assert_sound(run)
        account = end["launches"]
        self.assertEqual(account["seen"], 1_800_000)
        self.assertLess(end["self"]["rss_bytes"], 64 << 20)
        windows = [w for w in run.lines("window") if w["region"] == "total"]
        self.assertLess(max(w["self"]["rss_bytes"] for w in windows), 64 << 20)
        # A window of half a second for as long as it took, none of them later than the run.
        took = (end["t1_ns"] - end["t0_ns"]) / 1e9
        self.assertGreaterEqual(len(windows), int(took / 0.5) - 1)
        # What no record came of was dropped by CUPTI for want of a buffer, and nothing else.
        lost = end["counters"].get("records_dropped", 0) + end["counters"].get("records_no_batch", 0)
        self.assertLessEqual(account["dropped"], lost)


if __name__ == "__main__":
    main()
