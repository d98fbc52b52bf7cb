"""What the library assumes of CUPTI it checks where it runs. Each assumption is broken here, on the simulated GPU: one line names
it and what is no longer to be trusted, the windows count it, and the report says it. The program runs on."""

from harness import BUILD, SANITIZE, TestCase, main, unittest

CHECKS = {"records", "callbacks", "order", "clock", "times", "buffers"}

# Several queued on two streams: enough cases of everything, over a few windows.
WORK = """
    kernel gemm_step ns=40000; kernel gemm_side ns=30000
    stream main; stream side
    repeat 150 {
        push "step batch=1 seq_len=32"
        launch gemm_step stream=main count=24; launch gemm_side stream=side count=8
        sync; sleep 4; pop
    }
    print ends
"""
# Nothing comes back while this kernel runs, and launches go on.
BLOCKED = """
    kernel gemm_step ns=20000; kernel gemm_long ns=11000000000
    push "step batch=1 seq_len=32"; launch gemm_long; pop
    repeat 240 { push "step batch=1 seq_len=32"; launch gemm_step; pop; sleep 45 }
    sync
    print ends
"""


@unittest.skipIf(SANITIZE, "judgements take a thousand records, or seconds, where everything takes ten times as long")
class Trust(TestCase):
    def run_it(self, script=WORK, **env):
        run = self.unharmed(script, env=env)
        self.assertEqual(run.stdout, b"ends\n")
        return run

    def said(self, run, kind="trust"):
        """Events that say that something is not as assumed."""
        return [m for m in run.events(kind) if "as expected again" not in m]

    def check_violated(self, run, check, kind="trust", consequence=""):
        """That check, in a line, in the windows and in the report."""
        said = [m for m in self.said(run, kind) if kind != "trust" or m.startswith(check + ":")]
        self.assertEqual(len(said), 1, (run.log, run.end["counters"]))
        self.assertIn(consequence, said[0])
        totals = [w for w in run.lines("window") if w["region"] == "total"]
        self.assertTrue(any(w["trust"][check]["holds"] is False for w in totals) or run.end["trust"][check]["holds"] is False)
        self.assertGreater(run.end["trust"][check]["against"], 0)
        against = [w["trust"][check]["against"] for w in totals]
        self.assertEqual(against, sorted(against))
        report = self.program([BUILD / "mfu", "report", run.directory / "run", "--markdown"], entry="", config=None)
        self.assertEqual(report.code, 0, report.stderr)
        self.assertIn(said[0][:40].encode(), report.stdout)

    def test_a_gpu_that_is_as_expected(self):
        run = self.run_it()
        self.assertEqual(run.events("trust"), [])
        self.assertEqual(set(run.end["trust"]), CHECKS)
        for name in CHECKS - {"buffers"}:
            self.assertEqual(run.end["trust"][name], {"holds": True, "against": 0}, name)
        for window in run.lines("window"):
            self.assertEqual("trust" in window, window["region"] == "total")

    def test_records_that_do_not_come(self):
        self.check_violated(self.run_it(SIMGPU_LOSE_RATE=0.5), "records", consequence="lower bounds")

    def test_launches_without_a_callback(self):
        self.check_violated(self.run_it(SIMGPU_SILENT_RATE=0.3), "callbacks", consequence="from its region")

    def test_work_that_overtakes_on_its_stream(self):
        # By less than the time between launch and begin of what is queued, so that the clock looks right.
        run = self.run_it(SIMGPU_EARLY_RATE=0.3, SIMGPU_EARLY_NS=100000)
        self.check_violated(run, "order", consequence="too early")
        self.assertEqual(run.end["trust"]["clock"]["against"], 0)

    def test_a_clock_that_runs_ahead(self):
        self.check_violated(self.run_it(SIMGPU_SKEW_NS=400000000), "clock", consequence="wrong window")

    def test_a_clock_that_lags(self):
        self.check_violated(self.run_it(SIMGPU_SKEW_NS=-900000000), "clock", consequence="wrong window")

    def test_records_without_times(self):
        run = self.run_it(SIMGPU_ZERO_TIMESTAMPS=0.3)
        self.check_violated(run, "times", kind="untimed", consequence="nothing that follows from kernel times is reported")
        self.assertGreater(run.region("total")["untimed"], 0)
        self.assertIsNone(run.region("total")["busy_s"])

    def test_buffers_that_do_not_come_back(self):
        run = self.run_it(BLOCKED)
        self.check_violated(run, "buffers", consequence="lack work")


if __name__ == "__main__":
    main()
