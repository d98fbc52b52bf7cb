"""What is not timed is not reported: CUPTI before 13.3 gives no times to kernels of graphs once its device buffers for them are
used up."""

import csv
import json

from harness import BUILD, CONFIGS, TestCase, main

QWEN = CONFIGS / "qwen3-8b.json"
# 50 kernels a launch; 250 buffers of 100 records last for 500 launches.
SCRIPT = """
kernel gemm_a ns=20000
stream s
capture s
repeat 50 { launch gemm_a stream=s }
end_capture s g
instantiate g
repeat %d { push "decode batch=8 context=1000"; graph_launch g stream=s; sync s; pop }
"""
OF_TIMES = ("busy_s", "kernel_sum_s", "mfu_busy", "hfu", "executed", "comm_sum_s")


class Paused(TestCase):
    def test_work_behind_a_pause_within_a_long_window(self):
        """The library looks once per window while nothing is launched; what comes then in full buffers is not in the future."""
        script = """
            kernel gemm_a ns=2000
            stream s
            repeat 100 { push "step"; launch gemm_a stream=s; sync s; pop }
            sleep 13000
            repeat 300 { push "step"; launch gemm_a count=60 stream=s; sync s; pop }
        """
        run = self.scenario(script, env={"MFU_INTERVAL": 20, "MFU_DETECT": "0"})
        self.assertEqual(run.end["launches"]["not_timed"], 0, run.end)
        self.assertEqual(run.end["counters"].get("records_bad_time", 0), 0)
        self.assertEqual(run.region("step")["instances"], 400)


class Untimed(TestCase):
    def run_it(self, launches, **env):
        env = {"SIMGPU_GRAPH_BUFFER_RECORDS": 100, "MFU_INTERVAL": 0.25, "MFU_GRAPHS": "node", **env}
        return self.scenario(SCRIPT % launches, config=QWEN, env=env)

    def command(self, *words):
        return self.program([BUILD / "mfu", *words], entry="", config=None)

    def assert_untimed(self, row):
        for key in OF_TIMES:
            self.assertIsNone(row[key], (key, row))
        for key in ("time_s", "lost"):
            self.assertEqual(set(row[key].values()), {None}, row)
        self.assertEqual(row["top_kernels"], [])
        self.assertIsNone(row["suspect"])

    def test_windows_after_the_buffers_are_used_up(self):
        run = self.run_it(1200)
        self.assert_sound(run)
        rows = [w for w in run.lines("window") if w["region"] in ("decode", "total")]
        timed = [w for w in rows if w["untimed"] == 0]
        untimed = [w for w in rows if w["untimed"] != 0]
        self.assertTrue(timed and untimed, rows)
        for row in untimed:
            self.assert_untimed(row)
        for row in timed:
            self.assertIsNotNone(row["busy_s"])
            if row["lost"]["matmul"] is not None:
                self.assertGreaterEqual(min(row["lost"].values()), 0)
        # The simulated GPU knows which launches lost their times: those behind 250 x 100 kernels.
        zeroed = {a["correlation"] for a in run.activities(fate="zeroed")}
        self.assertGreater(len(zeroed), 500)
        decode, total = run.region("decode"), run.region("total")
        for row in (decode, total):
            self.assertEqual(row["untimed"], len(zeroed))
            self.assert_untimed(row)
        self.assertEqual(run.end["launches"]["not_timed"], len(zeroed))
        # What is true stays. Each pass ended with its range before, so that it is known how long it takes.
        self.assertEqual((decode["instances"], decode["tokens"], decode["launches"]), (1200, 9600, 1200))
        exact = self.run_it(1200, SIMGPU_GRAPH_BUFFER_RECORDS=0).region("decode")
        self.assertEqual(exact["untimed"], 0)
        self.assertAlmostEqual(decode["flop"] / exact["flop"], 1)
        self.assertIsNotNone(decode["mfu"])
        self.assertAlmostEqual(decode["mfu"] * decode["elapsed_s"], exact["mfu"] * exact["elapsed_s"], delta=1e-6)

    def test_every_output_says_so_and_has_no_number(self):
        run = self.run_it(1200)
        trust = run.end["trust"]["times"]
        self.assertIs(trust["holds"], False)
        table = [line for line in run.log if "decode@gpu0" in line and "not timed" in line]
        self.assertTrue(table, run.log)
        for line in table:
            for word in ("gemm-loss", "idle", "suspect"):
                self.assertNotIn(word, line)
        folder = run.directory / "run"
        job = json.loads(self.command("report", folder, "--json").stdout)["runs"][0]
        region = next(r for r in job["regions"] if r["region"] == "decode")
        self.assert_untimed(region)
        header, *lines = self.command("report", folder, "--csv").stdout.decode().splitlines()
        rows = list(csv.DictReader([header, *lines]))
        self.assertGreater(sum(int(row["untimed"]) for row in rows), 500)
        for row in rows:
            if int(row["untimed"]) != 0:
                self.assertEqual((row["busy_s"], row["lost_idle"], row["mfu_busy"]), ("", "", ""))
        refused = self.command("report", folder, "--assert", "decode.lost.idle<=0.9")
        self.assertEqual(refused.code, 1)
        self.assertIn(b"not timed", refused.stdout + refused.stderr)
        compared = self.command("compare", folder, folder)
        self.assertIn(b"no usable time", compared.stdout)
        self.assertIn(b"not timed", self.command("top", folder, "--once").stdout)

    def test_programs_whose_work_outlives_its_ranges_have_no_mfu(self):
        script = SCRIPT.replace("sync s; pop", "pop") + "sync\n"
        run = self.scenario(script % 1200, config=QWEN,
                            env={"SIMGPU_GRAPH_BUFFER_RECORDS": 100, "MFU_INTERVAL": 0.25, "MFU_GRAPHS": "node"})
        decode = run.region("decode")
        self.assertGreater(decode["untimed"], 0)
        self.assertIsNone(decode["mfu"])
        self.assertIsNone(decode["latency"])
        self.assertEqual((decode["instances"], decode["tokens"]), (1200, 9600))


if __name__ == "__main__":
    main()
