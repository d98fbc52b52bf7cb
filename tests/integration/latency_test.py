"""What single instances of a server took: by batch, from prefill to decode, the slowest; in device time."""

import json
import subprocess

from harness import BUILD, TIME_CLASSES, TestCase, main, ns

SERVER = """
    kernel gemm_prefill ns=3000000; kernel gemm_decode ns=1500000; kernel softmax_slow ns=150000000
    repeat 10 {
      push "prefill batch=1 seq_len=128"; launch gemm_prefill count=2; sync; pop
      sleep 4
      repeat 5 { push "decode batch=1 context=128"; launch gemm_decode; sync; pop }
      repeat 3 { push "decode batch=6 context=128 new_tokens=2"; launch gemm_decode count=2; sync; pop }
    }
    push "decode batch=6 context=128"; launch gemm_decode; sync; sleep 300; pop
    push "decode batch=7 context=128"; launch gemm_decode; launch softmax_slow; sync; pop
"""


class Latency(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = None

    def server(self):
        if Latency.shared is None:
            Latency.shared = self.scenario(SERVER)
            self.assert_sound(Latency.shared)
        return Latency.shared

    def test_by_batch(self):
        run = self.server()
        decode = run.region("decode")
        self.assertEqual([(b["unit"], b["batch_min"], b["batch_max"], b["instances"], b["tokens"]) for b in decode["by_batch"]],
                         [("sequences", 1, 1, 50, 50), ("sequences", 5, 8, 32, 30 * 12 + 6 + 7)])
        prefill = run.region("prefill")
        self.assertEqual([(b["unit"], b["batch_min"], b["batch_max"], b["instances"], b["tokens"]) for b in prefill["by_batch"]],
                         [("tokens", 65, 128, 10, 1280)])
        peak = run.lines("start")[0]["devices"][0]["peak_flop_per_s"]
        for region in (decode, prefill):
            self.assertEqual(sum(ns(b["elapsed_s"]) for b in region["by_batch"]), ns(region["elapsed_s"]))
            self.assertAlmostEqual(sum(b["flop"] for b in region["by_batch"]) / region["flop"], 1, places=9)
            for b in region["by_batch"]:
                self.assertAlmostEqual(b["mfu"], b["flop"] / (peak * b["elapsed_s"]), places=12)
                self.assertGreater(b["mbu"], 0)
                # A pass has one kernel of 1.5 ms, a prefill two of 3 ms.
                self.assertGreaterEqual(b["latency_s"]["p50"], 1.5e-3 if region is decode else 6e-3)
                self.assertEqual(sum(n for _, n in b["latency_s"]["histogram"]), b["latency_s"]["count"])
        self.assertEqual(decode["latency"]["count"], 82)
        self.assertEqual(decode["inter_token_s"]["count"], 50 + 30 * 2 + 2)
        self.assertIsNone(prefill["inter_token_s"])

    def test_from_prefill_to_decode(self):
        run = self.server()
        kernels = sorted((a["begin"], a["end"], a["name"]) for a in run.activities(kind="kernel"))
        waits = [after[0] - before[1] for before, after in zip(kernels, kernels[1:])
                 if before[2] == "gemm_prefill" and after[2] == "gemm_decode"]
        self.assertEqual(len(waits), 10)
        decode = run.region("decode")
        gap = decode["prefill_to_decode_s"]
        self.assertEqual((gap["count"], decode["after_prefill"]), (10, 10))
        self.assertLess(abs(ns(gap["max"]) - max(waits)), 50_000)  # as far as two clocks can be told apart
        self.assertGreaterEqual(gap["p50"], 4e-3)
        self.assertIsNone(run.region("prefill")["prefill_to_decode_s"])
        self.assertIsNone(run.region("prefill")["after_prefill"])

    def test_the_slowest_say_what_they_lost_their_time_to(self):
        run = self.server()
        first, second = run.region("decode")["slowest"][:2]
        self.assertEqual((first["nth"], first["lost_to"]), (80, "idle"))
        self.assertGreater(first["excess_s"], 0.25)
        self.assertEqual((second["nth"], second["lost_to"]), (81, "other"))
        self.assertGreater(second["excess_s"], 0.14)
        for slow in (first, second):
            self.assertEqual(sum(ns(slow["time_s"][c]) for c in TIME_CLASSES), ns(slow["elapsed_s"]))
            self.assertTrue(run.end["t0_ns"] <= slow["t0_ns"] <= run.end["t1_ns"])
        self.assertTrue(any(line.startswith("  slowest (median ") and "#80 " in line for line in run.log), run.log)
        self.assertTrue(any(line.startswith("  batch 5-8 ") for line in run.log), run.log)
        self.assertTrue(any("from prefill to decode" in line and "10 of 82" in line for line in run.log), run.log)

    def test_windows_add_up_to_the_run(self):
        run = self.server()
        for whole in run.end["regions"]:
            parts = [w for w in run.lines("window") if (w["region"], w["device"]) == (whole["region"], whole["device"])]
            self.assertEqual(sum(w["after_prefill"] or 0 for w in parts), whole["after_prefill"] or 0)
            for batch in whole["by_batch"]:
                same = [b for w in parts for b in w["by_batch"] if b["batch_max"] == batch["batch_max"]]
                for key in ("instances", "tokens"):
                    self.assertEqual(sum(b[key] for b in same), batch[key])
                self.assertEqual(sum(ns(b["elapsed_s"]) for b in same), ns(batch["elapsed_s"]))
                self.assertEqual(sum(b["latency_s"]["count"] for b in same), batch["latency_s"]["count"])

    def test_training_steps_too(self):
        run = self.scenario("""
            kernel gemm_step ns=5000000; kernel nccl_late ns=1000000000
            launch gemm_step; sync  # a first call takes long in an emulator
            push warm; pop
            repeat 7 { push "step batch=1 seq_len=64"; launch gemm_step count=2; sync; pop }
            push "step batch=1 seq_len=64"; launch gemm_step count=2; launch nccl_late; sync; pop
            repeat 7 { push "step batch=1 seq_len=64"; launch gemm_step count=2; sync; pop }
        """)
        self.assert_sound(run)
        step = run.region("step")
        self.assertEqual((step["slowest"][0]["nth"], step["slowest"][0]["lost_to"]), (7, "comm"))
        self.assertEqual((step["by_batch"], step["inter_token_s"], step["after_prefill"]), ([], None, None))

    def test_the_report_has_them(self):
        run = self.scenario(SERVER)  # its files are still there
        folder = run.directory / "run"

        def report(*options):
            return subprocess.run([BUILD / "mfu", "report", folder, *options], capture_output=True, text=True, check=True).stdout

        decode = next(r for r in json.loads(report("--json"))["job"]["regions"] if r["region"] == "decode")
        self.assertEqual(decode["by_batch"], run.region("decode")["by_batch"])
        self.assertEqual(decode["slowest"][0], {**run.region("decode")["slowest"][0], "where": "rank 0 gpu0"})
        self.assertIn("| decode | 5-8 | sequences | 32 |", report("--markdown"))
        self.assertIn("sequences 1: p50=", report("--csv"))
        self.assertIn("#80 ", report("-o", run.directory / "page.html"))


if __name__ == "__main__":
    main()
