"""The readers of tests/gpu against the real library, over the simulated GPU: keys, account, level."""
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import first_hour
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


    def first_hour(self, question, **less):
        """A suite over the simulated GPU: it runs to its end, and every row has a value. {what: row}."""
        with tempfile.TemporaryDirectory() as directory:
            context = suites.Context(pathlib.Path(os.environ["MFU_TEST_LIBRARY"]), pathlib.Path(directory), minutes=10)
            context.cupti = os.environ["PROBE_CUPTI"]
            (context.out / "probe_host").symlink_to(os.environ["MFU_TEST_HOST"])
            (context.out / "libprobe_inject.so").write_bytes(b"")  # not used here, and not compiled
            suite = results.Suite("question")
            with mock.patch.object(suites, "find_cupti", lambda: pathlib.Path(context.cupti)):
                question(context, suite, **less)
            self.assertEqual([row for row in suite.rows if row["value"] is None], [])
            self.assertEqual([row for row in suite.rows if row.get("ok") is False], [])
            return {row["what"]: row["value"] for row in suite.rows}

    def test_what_a_launch_costs(self):
        rows = self.first_hour(first_hour.cost, launches=2000)
        self.assertLessEqual({"empty kernel, none", "empty kernel, kernel+callbacks+runtime", "empty kernel, our library",
                              "cudaMemsetAsync, kernel+memory+callbacks+copies+runtime"}, set(rows))

    def test_a_large_graph(self):
        """The simulated 13.0 does not use device buffers again: 100,000 kernels each."""
        rows = self.first_hour(first_hour.graphs, nodes=200, launches=20000)
        self.assertEqual(rows["limit 32, kernel: kernel records"], 4_000_000)
        self.assertEqual(rows["limit 32, kernel: of these without times"], 800_000)
        self.assertEqual(rows["limit 250, kernel: launches until the first without times"], "none had")

    def test_sessions_of_another_client(self):
        """The simulated CUPTI gives no nodes of a graph that was made before its kind was switched off once."""
        rows = self.first_hour(first_hour.sessions, count=3)
        self.assertEqual(rows["kernels of each session, without us"], "150 50 50")

    def test_what_is_on_disk(self):
        rows = self.first_hour(first_hour.ends)
        self.assertEqual({how: rows[f"{how}: end line"] for how in ("return", "fork", "_exit")},
                         {"return": "there", "fork": "there", "_exit": "none"})
        self.assertGreaterEqual(rows["term: windows on disk"], 3)

    def test_hours(self):
        rows = self.first_hour(first_hour.hours, per_second=2000, seconds=6)
        self.assertIn("thread mfu-drain: CPU per hour, last tenth", rows)

    def test_first_contact(self):
        with tempfile.TemporaryDirectory() as directory:
            context = suites.Context(pathlib.Path(os.environ["MFU_TEST_LIBRARY"]), pathlib.Path(directory), minutes=10)
            context.cupti = os.environ["PROBE_CUPTI"]
            suite = results.Suite("contact")
            suites.contact(context, suite, small=True)
            broken = {row["what"] for row in suite.rows if row.get("ok") is False}
            # A machine that others use may be late.
            self.assertEqual({what for what in broken if not what.startswith("lag")}, set())
            rows = {row["what"]: row["value"] for row in suite.rows}
            self.assertEqual((rows["launches seen, node"], rows["kernels, node"]), (4261, 4450))


if __name__ == "__main__":
    unittest.main()
