"""Traces as other tools and versions write them: the figure that is right, or one sentence that says what the file is."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("MFU_BUILD_DIR", "build/release"))
CASES = pathlib.Path(__file__).resolve().parents[1] / "data" / "cases"
STEP = ("--range", "ProfilerStep", "--phase", "train", "--flop", "3e11")
OF_PEAK = 0.3063  # of an H100


class Cases(unittest.TestCase):
    def replay(self, path, *words, code=0):
        env = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        done = subprocess.run([str(BUILD / "mfu"), "replay", str(path), "--gpu", "H100", *words], capture_output=True, text=True,
                              timeout=300, env=env)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def ask(self, name, *words):
        return json.loads(self.replay(CASES / name, *words, "--json").stdout)

    def regions(self, name):
        return {r["region"]: r for r in self.ask(name)["regions"] if r["region"] != "total"}

    def test_merged_ranks_are_processes(self):
        answer = self.ask("merged_ranks.json.gz", *STEP)
        self.assertEqual([p["process"] for p in answer["processes"]], [f"[TP0{i}-DP00-PP00-EP00]" for i in range(4)])
        occurrences = answer["range"]["occurrences"]
        self.assertEqual([o["kernels"] for o in occurrences], [20] * 24)
        for o in occurrences:
            self.assertAlmostEqual(o["mfu_by"]["wall"], OF_PEAK, places=3)

    def test_an_annotation_without_time_has_no_flop(self):
        for name in ("negative_duration", "zero_duration"):
            with self.subTest(name):
                answer = self.ask(f"{name}.json.gz", *STEP)["range"]
                self.assertAlmostEqual(answer["mfu_by"]["wall"], OF_PEAK, places=3)
                self.assertEqual(len(answer["occurrences"]), 5)
                self.assertIn("begin and end at the same time", " ".join(answer["notes"]))

    def test_begin_and_end_events_are_ranges(self):
        answer = self.ask("begin_and_end.json.gz", *STEP)["range"]
        self.assertAlmostEqual(answer["mfu_by"]["wall"], OF_PEAK, places=3)
        self.assertEqual([o["kernels"] for o in answer["occurrences"]], [20] * 6)

    def test_steps_without_records_are_said(self):
        out = self.replay(CASES / "steps_without_records.json.gz").stdout
        self.assertIn("decode: 30 of 32 instances have no GPU record", out)

    def test_lost_records_are_said(self):
        done = self.replay(CASES / "lost_records.json.gz")
        self.assertIn("15 of 120 kernel launches have no record", done.stderr)
        self.assertIn("idle is overstated", done.stderr)
        self.assertEqual(self.replay(CASES / "begin_and_end.json.gz").stderr, "")

    def test_records_that_the_profiler_dropped_all_of(self):
        """pytorch/kineto 996: a profile of one step, all of whose kernel records were out of its range."""
        calls = [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": t, "dur": 1,
                  "args": {"correlation": t}} for t in range(1, 4)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.json"
            path.write_text(json.dumps({"traceEvents": calls}))
            self.assertIn("no GPU activity in it, though it launched 3 kernels", self.replay(path).stdout)

    def test_passes_of_sglang(self):
        april = self.regions("sglang_april_2026.json.gz")
        self.assertEqual({name: r["instances"] for name, r in april.items()}, {"prefill": 10, "decode": 10})
        self.assertEqual([april[name]["tokens"] for name in ("prefill", "decode")], [40960, 320])
        july = self.regions("sglang_july_2026.json.gz")
        self.assertEqual({name: r["instances"] for name, r in july.items()},
                         {"prefill": 4, "decode": 4, "mixed": 4, "verification": 4, "idle_pass": 4})
        self.assertEqual([july[name]["tokens"] for name in ("prefill", "decode", "mixed")], [4 * 1025, 4 * 64, 4 * (2048 + 64)])

    def test_passes_of_old_vllm(self):
        passes = {name: r["instances"] for name, r in self.regions("vllm_0.10.json.gz").items()}
        self.assertEqual(passes, {"prefill": 4, "decode": 4})

    def test_a_name_that_no_rule_knows_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.json"
            kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 4,
                      "args": {"device": 0, "stream": 7, "correlation": 1}}
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 2, "dur": 1,
                      "args": {"correlation": 1}}
            proposed = '{"region": "prefill", "match": "my_prefill_pass.*"}'
            for name, rule in (("my_prefill_pass 3", proposed), ("Optimizer.step#SGD", "")):
                text = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 9, "tid": 9, "ts": 1, "dur": 9}
                path.write_text(json.dumps({"traceEvents": [text, launch, kernel]}))
                out = self.replay(path).stdout
                self.assertEqual("no NVTX range is a region" in out, bool(rule), out)
                self.assertIn(rule, out)

    def test_nvtx_tables_of_the_second_version(self):
        answer = self.ask("nvtx_v2.sqlite.gz", "--range", "train_step", "--phase", "train", "--flop", "3e11")["range"]
        self.assertAlmostEqual(answer["mfu_by"]["wall"], OF_PEAK, places=3)

    def test_files_of_other_tools(self):
        xprof = ('{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[{"ph":"M","pid":1,'
                 '"name":"process_name","args":{"name":"/device:GPU:0"}},'
                 '{"ph":"X","pid":1,"tid":1,"ts":0,"dur":2,"name":"fusion"}]}')
        made = {
            "r.nsys-rep": (b"NVIDIA Tegra Profiler Report\0\x13", "nsys export --type sqlite"),
            "r.sqlite": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "git lfs pull"),
            "z.sqlite": (bytes(4096), "begins with zeros"),
            "x.json": (xprof.encode(), "XProf"),
            "r.ncu-rep": (b"NVR\0" + bytes(64), "Nsight Compute"),
        }
        with tempfile.TemporaryDirectory() as folder:
            for name, (content, words) in made.items():
                path = pathlib.Path(folder) / name
                path.write_bytes(content)
                with self.subTest(name):
                    self.said(path, words)
        cases = {"proton.json.gz": "Proton", "legacy_autograd.json.gz": "before PyTorch 1.8", "nvprof.sqlite.gz": "nvprof"}
        for name, words in cases.items():
            with self.subTest(name):
                self.said(CASES / name, words)

    def said(self, path, words):
        done = self.replay(path, code=1)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
