"""Live equals offline: what MFU_TRACE records and `mfu replay` reads gives the windows that the run itself gave."""

import collections
import glob
import json
import os
import pathlib
import subprocess

from harness import BUILD, DEADLINE_S, GPT2, TestCase, main

MFU = BUILD / "mfu"
# Of a line: what only a live process knows, or what says when the line was written.
LIVE_ONLY = ("v", "type", "t_ns", "seq", "clock_ratio", "counters", "self", "trust")

MIXED = """
    kernel gemm_a ns=300000; kernel flash_fwd_kernel_b ns=200000; kernel elementwise_c ns=70000; kernel nccl_d ns=150000
    stream main; stream comm
    push "outer_region"; pop
    repeat 3 { launch elementwise_c stream=main }
    sync
    capture main; launch gemm_a stream=main count=3; launch elementwise_c stream=main; end_capture main g; instantiate g
    repeat 40 {
      push "prefill batch=2 seq_len=128"
      launch gemm_a stream=main count=4; launch flash_fwd_kernel_b stream=main count=2; launch nccl_d stream=comm
      push "vision"; launch elementwise_c stream=main; pop
      memcpy htod 4096 stream=comm
      sync
      pop
      push "decode_all"
      repeat 5 {
        push "decode batch=2 context=128"
        graph_launch g stream=main
        memset 64 stream=main
        pop
      }
      sync
      pop
      launch elementwise_c stream=main; sync
    }
"""


class Trace(TestCase):
    def record(self, script, env=None, **options):
        env = {"MFU_TRACE": "recorded.json", "MFU_GRAPHS": "node", "MFU_IDLE": "0", **(env or {})}
        run = self.scenario(script, env=env, **options)
        run.trace = run.directory / "recorded.json"
        return run

    def replay(self, run, *options, trace=None, interval=0.5, config=GPT2):
        out = run.directory / "replayed"
        command = [MFU, "replay", trace or run.trace, "--json", "--run-dir", out, "--interval", str(interval), *options]
        if config is not None:
            command += ["--config", config]
        env = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=DEADLINE_S, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = []
        for path in glob.glob(str(out / "*.jsonl")):
            lines += [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        return json.loads(done.stdout), lines

    def figures(self, lines):
        """Windows and run rows by what they are of; windows in which nothing happened are left out."""
        found = {}
        for line in lines:
            rows = [line] if line["type"] == "window" else line["regions"] if line["type"] == "end" else []
            for row in rows:
                if line["type"] == "window" and row["kernels"] == 0 and row["instances"] == 0:
                    continue
                key = (line["type"], row["t0_ns"] if line["type"] == "window" else "run", row["region"], row["device"])
                found[key] = {k: v for k, v in row.items() if k not in LIVE_ONLY}
        return found

    def assert_same_value(self, name, offline, live, where):
        if isinstance(live, float) and name in ("flop", "bytes", "mfu", "mfu_busy", "hfu", "mbu", "roofline_s"):
            # Sums of doubles, in an order of their own.
            self.assertAlmostEqual(offline / live if live else 1, 1, places=9, msg=where)
        elif isinstance(live, list) and live and isinstance(live[0], dict):
            self.assertEqual(len(offline), len(live), where)
            for a, b in zip(offline, live):
                self.assertEqual(a.keys(), b.keys(), where)
                for inner in b:
                    self.assert_same_value(inner, a[inner], b[inner], (*where, inner))
        else:
            self.assertEqual(offline, live, where)

    def assert_same(self, run, lines):
        live, offline = self.figures(run.lines()), self.figures(lines)
        self.assertEqual(sorted(map(str, live)), sorted(map(str, offline)))
        moved = {}  # by region and device: launches that the two have in different windows
        for key, row in live.items():
            for name, value in row.items():
                if name == "launches" and key[0] == "window":
                    self.assertLessEqual(abs(offline[key][name] - value), self.launches_across(run, row), (key, name))
                    moved[key[2:]] = moved.get(key[2:], 0) + offline[key][name] - value
                else:
                    self.assert_same_value(name, offline[key].get(name), value, (key, name))
        self.assertEqual(set(moved.values()), {0})
        self.assertGreater(len(live), 5)

    def launches_across(self, run, row):
        """Launches of graphs that begin in one window and go on in the next, at both edges of the row's window. Such a launch
        belongs to the window of the record that comes first, which with two threads that hand out buffers need not be that of its
        first kernel."""
        of_launch = collections.defaultdict(list)
        for activity in run.activities():
            of_launch[activity["correlation"]].append(activity["begin"])
        spans = [(min(begins), max(begins)) for begins in of_launch.values()]
        return sum(first < edge <= last for edge in (row["t0_ns"], row["t1_ns"]) for first, last in spans)

    def test_live_equals_offline(self):
        run = self.record(MIXED)
        self.assert_sound(run)
        report, lines = self.replay(run)
        self.assertEqual(report["processes"][0]["totals"]["kernels"],
                         len([a for a in run.activities() if a["kind"] == "kernel"]))
        self.assert_same(run, lines)
        live, offline = run.end["launches"], [line for line in lines if line["type"] == "end"][0]["launches"]
        self.assertEqual(offline, live)

    def test_threads_backward_and_process_ranges(self):
        run = self.record("""
            kernel gemm_fwd ns=300000; kernel gemm_bwd ns=400000; kernel nccl_bwd ns=300000
            stream main; stream comm
            thread main_thread {
              repeat 30 {
                push "train_step batch=2 seq_len=512"
                launch gemm_fwd count=4 stream=main
                barrier begin 2; barrier done 2
                sync
                pop
              }
            }
            thread pt_autograd_0 {
              repeat 30 { barrier begin 2; launch gemm_bwd count=4 stream=main; launch nccl_bwd stream=comm; barrier done 2 }
            }
            join
            start r "decode batch=1 context=77 n=3"
            launch gemm_fwd count=3 stream=main; sync
            end r
        """)
        _, lines = self.replay(run)
        self.assert_same(run, lines)

    def test_regions_and_counters_are_tracks(self):
        run = self.record(MIXED)
        events = json.loads(run.trace.read_text())["traceEvents"]
        slices = [e for e in events if e.get("cat") == "user_annotation"]
        self.assertEqual(len([e for e in slices if e["args"]["region"] == "prefill"]), 40)
        self.assertEqual(len([e for e in slices if e["name"] == "decode batch=2 context=128"]), 200)
        counters = {e["name"] for e in events if e["ph"] == "C"}
        self.assertLessEqual({"prefill TFLOP/s", "decode TFLOP/s"}, counters)
        kernels = {e["args"]["correlation"] for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")}
        launches = [e["args"]["correlation"] for e in events if e.get("cat") == "cuda_runtime"]
        self.assertEqual(kernels, set(launches))
        self.assertEqual(len(launches), len(set(launches)))
        # A launch lies inside the slice of its region, and never after what it launched.
        begins = {}
        for e in events:
            if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                c = e["args"]["correlation"]
                begins[c] = min(begins.get(c, e["ts"]), e["ts"])
        for e in events:
            if e.get("cat") == "cuda_runtime":
                self.assertLessEqual(e["ts"], begins[e["args"]["correlation"]])

    def test_grids_and_directions(self):
        """Of every kernel, those inside graphs too, and of every copy: what the program asked for."""
        run = self.record("""
            kernel rms_norm_kernel ns=3000; kernel gemm_a ns=5000
            stream main
            launch rms_norm_kernel grid=4096 stream=main
            launch gemm_a grid=12,345,6 stream=main
            launch gemm_a grid=2000000,65535,65535 stream=main
            memcpy htod 4096 stream=main; memcpy dtoh 2048 stream=main; memcpy dtod 1024 stream=main
            memcpy htod 8192 sync
            memset 512 stream=main
            capture main
            launch rms_norm_kernel grid=77 stream=main; launch gemm_a grid=8,9 stream=main; memcpy dtoh 256 stream=main
            end_capture main g; instantiate g
            graph_launch g stream=main count=3
            sync
        """)
        events = json.loads(run.trace.read_text())["traceEvents"]
        recorded = [(e["args"]["correlation"], e["name"], e["args"]["grid"]) for e in events if e.get("cat") == "kernel"]
        truth = [(a["correlation"], a["name"], a["grid"]) for a in run.activities(kind="kernel")]
        self.assertEqual(len(truth), 9)
        self.assertEqual(sorted(recorded), sorted(truth))
        copies = sorted((e["args"]["bytes"], e["name"]) for e in events if e.get("cat") == "gpu_memcpy")
        self.assertEqual(copies, 3 * [(256, "Memcpy DtoH")] + [(1024, "Memcpy DtoD"), (2048, "Memcpy DtoH"),
                                                              (4096, "Memcpy HtoD"), (8192, "Memcpy HtoD")])

    def test_only_the_last_seconds(self):
        run = self.record("""
            kernel add ns=100000
            stream main
            push "decode batch=1 context=5"; launch add stream=main count=10; sync; pop
            sleep 1500
            push "decode batch=1 context=5"; launch add stream=main count=7; sync; pop
        """, env={"MFU_TRACE_SECONDS": "1"})
        document = json.loads(run.trace.read_text())
        self.assertEqual(len([e for e in document["traceEvents"] if e.get("cat") == "kernel"]), 7)
        self.assertFalse(document["mfu"]["whole_run"])

    def test_on_request(self):
        run = self.record("""
            kernel gemm_a ns=100000
            stream main
            repeat 60 { push "decode batch=1 context=5"; launch gemm_a stream=main count=3; sync; pop; sleep 50 }
        """, before=self.touch_later)
        self.toucher.wait()
        found = list((run.directory / "run").glob("*.trace.json"))
        self.assertEqual(len(found), 1, (run.log, list((run.directory / "run").iterdir())))
        document = json.loads(found[0].read_text())
        self.assertGreater(len([e for e in document["traceEvents"] if e.get("cat") == "kernel"]), 0)
        self.assert_one_line(run, found[0].name)
        self.replay(run, trace=found[0])
        self.assertTrue(run.trace.exists())

    def test_the_run_so_far_on_request(self):
        """An end line in the middle changes no sum, and is none once a window follows it."""
        run = self.record("""
            kernel gemm_a ns=100000
            stream main
            repeat 80 { push "decode batch=1 context=5"; launch gemm_a stream=main count=3; sync; pop; sleep 50 }
        """, env={"MFU_INTERVAL": "0.5"}, before=self.ask_later)
        self.toucher.wait()
        path, = (run.directory / "run").glob("*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        so_far, end = (line for line in lines if line["type"] == "end")
        self.assertEqual((so_far["so_far"], end.get("so_far")), (True, None))

        def decode(of):
            return next(r for r in of if r["region"] == "decode")

        part, whole = decode(so_far["regions"]), decode(end["regions"])
        self.assertEqual(whole["instances"], 80)
        self.assertTrue(0 < part["instances"] < 80, part)
        windows = [line for line in lines if line["type"] == "window"]
        self.assertEqual(sum(w["instances"] for w in windows if w["region"] == "decode"), 80)
        for key in ("busy_s", "elapsed_s"):
            total = sum(w[key] for w in windows if w["region"] == "total")
            self.assertAlmostEqual(total, next(r[key] for r in end["regions"] if r["region"] == "total"), places=6)
        # Cut off behind it, the file is that of a program that was killed.
        path.write_text("".join(json.dumps(line) + "\n" for line in lines[: lines.index(so_far) + 1]))
        self.assertEqual(decode(self.report(run))["instances"], part["instances"])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines[:-1]))
        self.assertEqual(decode(self.report(run))["instances"], 80)

    def report(self, run):
        words = [MFU, "report", "--json", run.directory / "run"]
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=DEADLINE_S, check=True)
        return json.loads(done.stdout)["runs"][0]["regions"]

    def ask_later(self, directory, environment):
        """Once a window is written."""
        words = f"until grep -q '\"window\"' {directory}/run/*.jsonl; do sleep 0.05; done; touch {directory}/run/now"
        self.toucher = subprocess.Popen(["sh", "-c", words], stderr=subprocess.DEVNULL)

    def touch_later(self, directory, environment):
        self.toucher = subprocess.Popen(["sh", "-c", f"sleep 1.2; touch {directory}/run/trace"])

    def test_a_path_that_cannot_be_written(self):
        for path in ("/proc/nowhere/trace.json", "/dev/full/x"):
            run = self.unharmed(MIXED, env={"MFU_TRACE": path})
            self.assert_one_line(run, path, "cannot be")
            self.assert_sound(run)

    def test_a_process_without_gpu_work_writes_none(self):
        run = self.record('print "nothing"')
        self.assertFalse(run.trace.exists())
        self.assertFalse((run.directory / "recorded.json.part").exists())


if __name__ == "__main__":
    main()
