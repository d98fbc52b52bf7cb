"""The run directory, the log and the exit table, as their readers rely on them."""

import re
import socket

from harness import TIME_CLASSES, TestCase, main, ns

WINDOW_KEYS = {
    "v", "type", "t_ns", "seq", "region", "device", "t0_ns", "t1_ns", "instances", "tokens", "elapsed_s", "busy_s",
    "kernel_sum_s", "kernels", "launches", "flop", "bytes", "mfu", "mfu_busy", "hfu", "mbu", "roofline_s", "bound",
    "clock_ratio", "suspect", "overlapped", "time_s", "lost", "top_kernels", "comm_kernels", "comm_sum_s", "latency",
    "named_by", "inter_token_s", "by_batch", "prefill_to_decode_s", "after_prefill", "slowest", "mfu_lower", "flop_source",
    "executed", "settled", "mbu_lower", "untimed", "graph_sum_s", "mfu_mixed",
    "idle_gaps", "gemm_loss"}
START_KEYS = {"v", "type", "t_ns", "seq", "host", "pid", "rank", "local_rank", "world", "began_ns", "job", "version",
              "commit", "build", "command", "devices", "cupti", "config", "model", "convention", "trace"}
DEVICE_KEYS = {"device", "name", "uuid", "peak_flop_per_s", "peak_bytes_per_s", "peak_source", "dtype", "dtype_source", "sparse"}

TRAINING = """
kernel gemm_kernel ns=4000000
kernel elementwise_kernel ns=500000
memset 4096
repeat 30 {
  push "step batch=4 seq_len=1024"
  launch gemm_kernel count=8
  launch elementwise_kernel count=3
  memcpy htod 1000000
  sync
  sleep 5
  pop
}
push unmapped
launch elementwise_kernel count=5
pop
sync
print done
"""


class Contract(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = None

    def training(self):
        if Contract.shared is None:
            Contract.shared = self.scenario(TRAINING)
        return Contract.shared

    def test_lines_and_keys(self):
        run = self.training()
        self.assert_sound(run)
        objects = run.lines()
        for o in objects:
            self.assertIn(o["type"], ("start", "window", "event", "end"))
            self.assertLess(abs(o["t_ns"] - objects[0]["t_ns"]), 120e9)
        for start in run.lines("start"):
            self.assertLessEqual(START_KEYS, start.keys())
            self.assertEqual(len(start["devices"]), 1)
            self.assertLessEqual(DEVICE_KEYS, start["devices"][0].keys())
            self.assertEqual({"path", "version", "level"}, start["cupti"].keys())
        self.assertEqual(len(run.lines("start")), 1)
        start = objects[0]
        self.assertEqual(start["host"], socket.gethostname())
        self.assertIn("scenario", start["command"])
        self.assertEqual((start["rank"], start["world"]), (0, 1))
        self.assertIn("Simulated", start["devices"][0]["name"])
        self.assertEqual(start["cupti"]["level"], "full")
        self.assertTrue(start["cupti"]["path"].endswith("libcupti.so.13"), start["cupti"])
        self.assertEqual(start["convention"], "exact")
        self.assertEqual(next(iter(run.files)), f"{start['host']}-0-{start['pid']}.jsonl")
        for window in run.lines("window"):
            self.assertLessEqual(WINDOW_KEYS, window.keys())
            if window["region"] == "total":
                self.assertLessEqual({"cpu_s", "rss_bytes", "overhead"}, window["self"].keys())
        for region in run.end["regions"]:
            self.assertLessEqual(WINDOW_KEYS - {"v", "type", "t_ns", "seq"}, region.keys())
            self.assertEqual(set(region["time_s"]), set(TIME_CLASSES))
            self.assertEqual(set(region["lost"]), set(TIME_CLASSES))
            for kernel in region["top_kernels"]:
                self.assertEqual(set(kernel), {"name", "class", "count", "sum_s"})
        self.assertEqual(set(run.end["launches"]), {"seen", "attributed", "outside", "unattributed", "dropped", "not_timed"})
        self.assertLessEqual({"cpu_s", "rss_bytes", "overhead"}, run.end["self"].keys())

    def test_windows_add_up_to_the_run(self):
        run = self.training()
        windows = run.lines("window")
        self.assertGreater(len({w["t0_ns"] for w in windows}), 2)
        for whole in run.end["regions"]:
            parts = [w for w in windows if w["region"] == whole["region"] and w["device"] == whole["device"]]
            for key in ("instances", "tokens", "kernels", "launches"):
                self.assertEqual(sum(w[key] for w in parts), whole[key], (whole["region"], key))
            for key in ("elapsed_s", "busy_s", "kernel_sum_s"):
                self.assertEqual(sum(ns(w[key]) for w in parts), ns(whole[key]), (whole["region"], key))
            for c in TIME_CLASSES:
                self.assertEqual(sum(ns(w["time_s"][c]) for w in parts), ns(whole["time_s"][c]), (whole["region"], c))
            if all(w["flop"] is not None for w in parts):
                self.assertAlmostEqual(sum(w["flop"] for w in parts) / whole["flop"], 1, places=9)

    def test_windows_are_contiguous(self):
        run = self.training()
        totals = [w for w in run.lines("window") if w["region"] == "total"]
        for before, after in zip(totals, totals[1:]):
            self.assertEqual(before["t1_ns"], after["t0_ns"])
        for w in totals[:-1]:
            self.assertEqual(w["t1_ns"] - w["t0_ns"], 500_000_000)
        self.assertEqual(run.end["t0_ns"], totals[0]["t0_ns"])
        self.assertEqual(run.end["t1_ns"], totals[-1]["t1_ns"])
        for w in run.lines("window"):
            if w["region"] != "total":
                self.assertLessEqual(ns(w["elapsed_s"]), w["t1_ns"] - w["t0_ns"], w)

    def test_mfu_is_flop_over_peak_times_elapsed(self):
        run = self.training()
        peak = run.lines("start")[0]["devices"][0]["peak_flop_per_s"]
        for r in run.lines("window") + run.end["regions"]:
            if r["mfu"] is None:
                continue
            wall = (r["t1_ns"] - r["t0_ns"]) / 1e9 if r["region"] == "total" else r["elapsed_s"]
            self.assertAlmostEqual(r["mfu"], r["flop"] / (peak * wall), places=12)
            if r["busy_s"] > 0:
                self.assertAlmostEqual(r["mfu_busy"], r["flop"] / (peak * r["busy_s"]), places=12)
        self.assertIsNotNone(run.region("step")["mfu"])
        self.assertIsNotNone(run.region("total")["mfu"])

    def test_the_launch_account(self):
        run = self.training()
        self.assertEqual(run.end["launches"],
                         {"seen": len(run.launches()), "attributed": 30 * 12, "outside": 1 + 5, "unattributed": 0, "dropped": 0,
                          "not_timed": 0})

    def test_the_log(self):
        run = self.training()
        step = [line for line in run.log if re.match(r"step@gpu0 +n=\d+ ", line)]
        self.assertGreaterEqual(len(step), 2, run.log)
        pattern = (r"^step@gpu0 +n=\d+ +[\d.]+ (us|ms|s)/it +(p99=[\d.]+ \w+ +)?MFU=[\d.]+% +"
                   r"bound=compute +tok/s=[\d.]+ ?[kMG]? *\| "
                   r"((gemm-loss|other|comm|copy|idle) -?[\d.]+ ?)+( suspect: .*)?$")
        self.assertTrue(any(re.match(pattern, line) for line in step), step)
        for line in run.stderr.decode().splitlines():
            self.assertTrue(line.startswith("[mfu] "), line)
            if re.search(r" MFU=[\d.-]+", line):
                self.assertLessEqual(len(line), 120, line)
        total = r"total@gpu0 +(t=[\d.]+s +MFU=[\d.]+%|\d+ +[\d.]+ m?s )"
        self.assertTrue(any(re.match(total, line) for line in run.log), run.log)
        self.assert_one_line(run, "launches ", "attributed 360", "outside 6", "unattributed 0", "dropped 0")
        self.assert_one_line(run, "mfuinject itself", "CPU", "MB")
        self.assertEqual(run.foreign_log, [])
        self.assertEqual(run.stdout, b"done\n")

    def test_a_suspect_line_fits_too(self):
        run = self.scenario(
            'kernel gemm_k ns=5000\nrepeat 40 { push "step batch=64 seq_len=1024"; launch gemm_k; sync; sleep 20; pop }'
        )
        suspect = [line for line in run.stderr.decode().splitlines() if " MFU=" in line]
        self.assertTrue(any("suspect: flops_exceed_matmul_time" in line for line in suspect), suspect)
        for line in suspect:
            self.assertLessEqual(len(line), 120, line)

    def test_whole_lines_in_one_write(self):
        """A line is one write: a reader beside the program may meet the kernel in the middle of it (it copies page by
        page), but a moment later the line is whole."""
        import threading
        seen = []

        def watch(directory, _environment):
            def loop():
                import time
                until = time.monotonic() + 600
                while time.monotonic() < until and not stop.is_set():
                    for path in (directory / "run").glob("*.jsonl"):
                        data = path.read_bytes()
                        if data and data[-1:] != b"\n":
                            time.sleep(0.02)
                            rest = path.read_bytes()[len(data):]
                            seen.append(b"\n" if b"\n" in rest else b"half a line")
                        else:
                            seen.append(b"\n")
                    time.sleep(0.001)
            threading.Thread(target=loop, daemon=True).start()

        stop = threading.Event()
        try:
            self.scenario(TRAINING, env={"MFU_INTERVAL": "0.05"}, before=watch)
        finally:
            stop.set()
        self.assertGreater(len(seen), 10)
        self.assertEqual(set(seen), {b"\n"})


if __name__ == "__main__":
    main()
