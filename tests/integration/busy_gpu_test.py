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


if __name__ == "__main__":
    main()
