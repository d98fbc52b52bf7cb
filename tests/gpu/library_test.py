"""The readers of tests/gpu against the real library, over the simulated GPU: keys, account, level."""
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import results
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


    def test_first_contact(self):
        with tempfile.TemporaryDirectory() as directory:
            context = suites.Context(pathlib.Path(os.environ["MFU_TEST_LIBRARY"]), pathlib.Path(directory), minutes=10)
            context.cupti = os.environ["PROBE_CUPTI"]
            suite = results.Suite("contact")
            suites.contact(context, suite, loop_s=3)
            rows = {row["what"]: row for row in suite.rows}
            broken = {what for what, row in rows.items() if row.get("ok") is False}
            self.assertLessEqual(broken, {"lag"}, rows)  # a machine that others use may be late
            self.assertIn("3261 seen of 3261 made", rows["launches"]["value"])
            self.assertIn("3450 recorded of 3450", rows["kernels"]["value"])
            self.assertLessEqual({"driver", "gpu 0", "cupti", "time", "events", "loop", "lag", "assumption"}, set(rows))


if __name__ == "__main__":
    unittest.main()
