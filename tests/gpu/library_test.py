"""The readers of tests/gpu against the real library, over the simulated GPU: keys, account, level."""
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import suites

LAUNCHES = 3000
WARM_UP = 4 * 500  # launches that `host latency` makes before it measures


class Library(unittest.TestCase):
    def test_run_directory_of_a_real_run(self):
        with tempfile.TemporaryDirectory() as directory:
            context = suites.Context(pathlib.Path(os.environ["MFU_TEST_LIBRARY"]), pathlib.Path(directory), minutes=1)
            env = context.ours("run", {"model": {"params": 1000000}}, MFU_CUPTI=os.environ["PROBE_CUPTI"])
            done = context.command("host", [os.environ["MFU_TEST_HOST"], "latency", "none", 1, LAUNCHES], env)
            self.assertGreater(suites.last_json(done.stdout)["launch_ns"], 0)
            process = context.run_of(env)
            self.assertEqual(process.broken, 0)
            self.assertEqual(process.level(), "full")
            self.assertGreater(process.peak_flop_per_s(), 1e12)
            launches = process.launches()
            self.assertEqual(launches["seen"], LAUNCHES + WARM_UP)
            self.assertEqual(launches["seen"], sum(launches[k] for k in ("attributed", "outside", "unattributed", "dropped")))
            total = process.region("total")
            self.assertEqual(total["kernels"], LAUNCHES + WARM_UP)
            self.assertGreater(total["elapsed_s"], total["busy_s"])


if __name__ == "__main__":
    unittest.main()
