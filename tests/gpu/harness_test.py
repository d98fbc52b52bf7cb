"""Tests of what tests/gpu does without a GPU: statistics, readers, FLOP, merging, the table, the exit without a GPU."""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402
import kineto  # noqa: E402
import model_flop  # noqa: E402
import results  # noqa: E402
import run_directory  # noqa: E402
import suites  # noqa: E402


class Figures(unittest.TestCase):
    def test_ratios_are_taken_round_by_round(self):
        # A machine that halves its speed in round 2 does not change the ratio; medians of the two columns would.
        alone, measured = [10.0, 20.0, 10.0], [11.0, 22.0, 11.0]
        middle, low, high = figures.median_of_ratios(alone, measured)
        self.assertAlmostEqual(middle, 1.1)
        self.assertAlmostEqual(low, 1.1)
        self.assertAlmostEqual(high, 1.1)

    def test_unequal_rounds_and_nothing(self):
        with self.assertRaises(ValueError):
            figures.ratios([1.0], [1.0, 2.0])
        with self.assertRaises(ValueError):
            figures.median([])

    def test_relative_difference(self):
        self.assertAlmostEqual(figures.relative_difference(101, 100), 0.01)
        self.assertEqual(figures.relative_difference(0, 0), 0.0)
        self.assertEqual(figures.relative_difference(1, 0), float("inf"))


class ModelFlop(unittest.TestCase):
    CONFIG = {"hidden_size": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 3,
              "intermediate_size": 5, "num_hidden_layers": 2, "vocab_size": 7}

    def test_by_hand(self):
        # Batch 1, 3 new tokens, nothing cached. Per layer: q 2*3*4*6 = 144, k and v 2*(2*3*4*3) = 144,
        # o 2*3*6*4 = 144, mlp 3*2*3*4*5 = 360; pairs 1+2+3 = 6, attention 2*2*6*6 = 144. Sum 936. Logits 2*3*4*7 = 168.
        self.assertEqual(model_flop.forward_flop(self.CONFIG, 1, 3), 2 * 936 + 168)
        self.assertEqual(model_flop.forward_flop(self.CONFIG, 1, 3, logits="last"), 2 * 936 + 56)
        self.assertEqual(model_flop.train_flop(self.CONFIG, 1, 3), 3 * (2 * 936 + 168))

    def test_decode_continues_prefill(self):
        whole = model_flop.forward_flop(self.CONFIG, 2, 8)
        parts = model_flop.forward_flop(self.CONFIG, 2, 5) + sum(
            model_flop.forward_flop(self.CONFIG, 2, 1, past=p) for p in range(5, 8))
        self.assertEqual(whole, parts)

    def test_published_model(self):
        # Llama 3.2 1B: every weight matrix (tied output included) has 1,235,746,816 weights, its embedding among them.
        config = json.loads((HERE.parent / "data/configs/llama-3.2-1b.json").read_text())
        layers, hidden = config["num_hidden_layers"], config["hidden_size"]
        weights = 1_235_814_400 - (2 * layers + 1) * hidden  # all parameters but the norms
        pairs_flop = layers * 4 * config["num_attention_heads"] * config["head_dim"]  # one token sees itself
        self.assertEqual(model_flop.forward_flop(config, 1, 1), 2 * weights + pairs_flop)


class RunDirectory(unittest.TestCase):
    START = {"v": 1, "type": "start", "t_ns": 1, "seq": 0, "host": "h",
             "devices": [{"device": 0, "name": "NVIDIA H200", "peak_flop_per_s": 1e12}], "cupti": {"level": "full"}}

    @staticmethod
    def region(name, **values):
        return {"region": name, "device": 0, "instances": 2, "tokens": 10, "elapsed_s": 2.0, "busy_s": 1.0,
                "kernel_sum_s": 1.0, "kernels": 4, "launches": 4, "flop": 5e11, "bytes": None, **values}

    def write(self, directory, lines):
        path = pathlib.Path(directory) / "h-0-1.jsonl"
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))

    def test_whole_run_from_the_end_line(self):
        with tempfile.TemporaryDirectory() as directory:
            end = {"v": 1, "type": "end", "regions": [self.region("step"), self.region("step", device=1)],
                   "launches": {"seen": 9, "attributed": 8, "outside": 1, "unattributed": 0, "dropped": 0}}
            window = {"type": "window", **self.region("step", instances=1)}
            self.write(directory, [self.START, window, {"type": "event", "kind": "x"}, end])
            process = run_directory.only(directory)
            step = process.region("step")
            self.assertEqual(step["instances"], 4)
            self.assertEqual(step["flop"], 1e12)
            self.assertAlmostEqual(step["mfu"], 1e12 / (1e12 * 4.0))
            self.assertIsNone(step["bytes"])
            self.assertIsNone(process.region("decode"))
            self.assertEqual(process.level(), "full")
            self.assertEqual(process.launches()["seen"], 9)
            self.assertEqual(len(process.events), 1)

    def test_killed_process_has_its_windows(self):
        with tempfile.TemporaryDirectory() as directory:
            window = {"type": "window", **self.region("step")}
            self.write(directory, [self.START, window, window, '{"type": "win'])
            process = run_directory.only(directory)
            self.assertEqual(process.broken, 1)
            self.assertEqual(process.region("step")["kernels"], 8)
            self.assertEqual(process.launches(), {})

    def test_odd_lines_and_unknown_peak(self):
        with tempfile.TemporaryDirectory() as directory:
            end = {"type": "end", "regions": [self.region("step", flop=None)]}
            self.write(directory, ["", "[]", "3", {"no": "type"}, {**self.START, "devices": []}, end])
            process = run_directory.only(directory)
            self.assertEqual(process.broken, 4)
            self.assertIsNone(process.region("step")["mfu"])

    def test_no_file_or_two(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaises(RuntimeError):
                run_directory.only(directory)
            for name in ("a", "b"):
                (pathlib.Path(directory) / f"{name}.jsonl").write_text("")
            with self.assertRaises(RuntimeError):
                run_directory.only(directory)


class Kineto(unittest.TestCase):
    EVENTS = [
        {"cat": "user_annotation", "name": "step", "ts": 100, "dur": 100, "tid": 1},
        {"cat": "user_annotation", "name": "step", "ts": 300, "dur": 100, "tid": 1},
        {"cat": "gpu_user_annotation", "name": "step", "ts": 100, "dur": 500},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 150, "args": {"correlation": 1}, "tid": 1},
        {"cat": "cuda_driver", "name": "cuLaunchKernel", "ts": 250, "args": {"correlation": 1}, "tid": 1},
        {"cat": "cuda_driver", "name": "cuLaunchKernelEx", "ts": 310, "args": {"correlation": 2}, "tid": 2},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 200, "args": {"correlation": 3}, "tid": 1},
        {"cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 399, "args": {"correlation": 4}, "tid": 1},
        {"cat": "kernel", "name": "late", "ts": 900, "dur": 5, "args": {"correlation": 1}},
        {"cat": "kernel", "name": "backward", "ts": 320, "dur": 5, "args": {"correlation": 2}},
        {"cat": "kernel", "name": "between", "ts": 330, "dur": 5, "args": {"correlation": 3}},
        {"cat": "kernel", "name": "node", "ts": 500, "dur": 5, "args": {"correlation": 4}},
        {"cat": "Kernel", "name": "node", "ts": 510, "dur": 5, "args": {"correlation": 4}},
        {"cat": "kernel", "name": "orphan", "ts": 110, "dur": 5, "args": {"correlation": 99}},
        {"cat": "gpu_memcpy", "name": "copy", "ts": 110, "dur": 5, "args": {"correlation": 1}},
    ]

    def test_by_launch_not_by_gpu_time(self):
        counted = kineto.kernels_by_annotation(self.EVENTS, ["step", "other"])
        self.assertEqual(counted, {"step": (2, 4), "other": (0, 0)})

    def test_reads_both_forms(self):
        with tempfile.TemporaryDirectory() as directory:
            text = json.dumps({"traceEvents": self.EVENTS}).encode()
            plain, packed = pathlib.Path(directory) / "t.json", pathlib.Path(directory) / "t.json.gz"
            plain.write_bytes(text)
            packed.write_bytes(gzip.compress(text))
            self.assertEqual(len(kineto.kernels(kineto.read_events(plain))), 6)
            self.assertEqual(kineto.read_events(packed), kineto.read_events(plain))


class Results(unittest.TestCase):
    def suite(self, name="train"):
        suite = results.Suite(name)
        suite.figure("launch", 1234567, "ns")
        suite.at_most("difference", 0.004, 0.01)
        suite.equal("steps", 20, 20)
        return suite

    def test_status_follows_the_checks(self):
        suite = self.suite()
        self.assertEqual(suite.status, "ok")
        suite.at_most("worse", 0.02, 0.01)
        self.assertEqual(suite.status, "failed")
        unknown = results.Suite("x")
        unknown.at_most("absent", None, 1)
        self.assertEqual(unknown.status, "failed")

    def test_merge_keeps_other_suites_of_the_same_machine_only(self):
        first = results.merge({}, {"gpu": "A"}, [self.suite("train")])
        second = results.merge(first, {"gpu": "A"}, [self.suite("generate")])
        self.assertEqual(list(second["suites"]), ["train", "generate"])
        other = results.merge(first, {"gpu": "B"}, [self.suite("generate")])
        self.assertEqual(list(other["suites"]), ["generate"])

    def test_table(self):
        suite = self.suite()
        suite.at_most("slow", 2.0, 1.01)
        skipped = results.Suite("slowdown")
        skipped.skip("out of time")
        text = results.table(results.merge({}, {"gpu": "NVIDIA H200", "driver": "580.1"}, [suite, skipped]))
        self.assertIn("gpu: NVIDIA H200\n", text)
        self.assertRegex(text, r"launch +1,234,567 ns\n")
        self.assertRegex(text, r"difference +0\.004 +<= 0\.01 +ok\n")
        self.assertRegex(text, r"slow +2 +<= 1\.01 +FAILED\n")
        self.assertRegex(text, r"slowdown .*skipped: out of time\n")
        self.assertFalse(any(line != line.rstrip() for line in text.splitlines()))

    def test_unreadable_results(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "r.json"
            self.assertEqual(results.read(path), {})
            path.write_text("[1")
            self.assertEqual(results.read(path), {})


class Context(unittest.TestCase):
    def context(self, directory, minutes):
        return suites.Context(library=pathlib.Path("lib.so"), out=pathlib.Path(directory), minutes=minutes)

    def test_commands_are_held_to_the_time_left(self):
        with tempfile.TemporaryDirectory() as directory:
            context = self.context(directory, minutes=0.01)
            with self.assertRaises(suites.OutOfTime):
                context.command("sleeper", [sys.executable, "-c", "import time; time.sleep(30)"], limit_s=60)
            with self.assertRaises(suites.OutOfTime):
                context.command("late", [sys.executable, "-c", ""], limit_s=60)

    def test_failure_shows_the_programs_last_words(self):
        with tempfile.TemporaryDirectory() as directory:
            context = self.context(directory, minutes=1)
            with self.assertRaisesRegex(RuntimeError, "exit 3.*no luck"):
                context.command("bad", [sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"])
            done = context.command("good", [sys.executable, "-c", "print('{\"a\": 1}')"])
            self.assertEqual(json.loads(done.stdout), {"a": 1})

    def test_ours_names_the_library_twice(self):
        with tempfile.TemporaryDirectory() as directory:
            env = self.context(directory, minutes=1).ours("train", {"model": {"params": 1}})
            self.assertEqual(env["CUDA_INJECTION64_PATH"], "lib.so")
            self.assertEqual(env["NVTX_INJECTION64_PATH"], "lib.so")
            self.assertEqual(json.loads(pathlib.Path(env["MFU_MODEL_CONFIG"]).read_text()), {"model": {"params": 1}})
            self.assertTrue(pathlib.Path(env["MFU_RUN_DIR"]).is_dir())


class FakeContext(suites.Context):
    """Programs answer from a function instead of running; our run directory is written by the test."""

    def __init__(self, directory, answer, rounds=3):
        super().__init__(library=pathlib.Path("lib.so"), out=pathlib.Path(directory), minutes=1, rounds=rounds)
        self.answer = answer
        self.names = []

    def workload(self, name, arguments, env=None, limit_s=150):
        self.names.append(name)
        return self.answer(name, arguments, env)


class SuiteVerdicts(unittest.TestCase):
    PEAK = 989e12

    def train_answer(self, own_s, ours_s, flop_error=0.0, instances=20):
        def answer(name, arguments, env):
            config = json.loads(pathlib.Path(env["MFU_MODEL_CONFIG"]).read_text())
            shape = config["workload"]
            flop = 20 * model_flop.train_flop(config["model"], shape["batch"], shape["seq_len"]) * (1 + flop_error)
            tokens = 20 * shape["batch"] * shape["seq_len"]
            start = {**RunDirectory.START, "devices": [{"device": 0, "peak_flop_per_s": self.PEAK}]}
            end = {"type": "end", "regions": [RunDirectory.region("step", instances=instances, tokens=tokens,
                                                                  elapsed_s=ours_s, flop=flop)],
                   "launches": {"seen": 10, "attributed": 7, "outside": 3, "unattributed": 0, "dropped": 0}}
            path = pathlib.Path(env["MFU_RUN_DIR"]) / "h-0-1.jsonl"
            path.write_text(json.dumps(start) + "\n" + json.dumps(end) + "\n")
            return {"regions": {"step": [20, own_s]}, "tokens": tokens, "gpm_tensor_percent": None}
        return answer

    def train(self, **how):
        with tempfile.TemporaryDirectory() as directory:
            suite = results.Suite("train")
            suites.train(FakeContext(directory, self.train_answer(**how)), suite)
            return suite

    def failed(self, suite):
        return [row["what"] for row in suite.rows if row.get("ok") is False]

    def test_train_agrees(self):
        suite = self.train(own_s=10.0, ours_s=10.05)
        self.assertEqual(self.failed(suite), [])
        self.assertEqual(suite.status, "ok")

    def test_train_two_percent_apart(self):
        self.assertEqual(self.failed(self.train(own_s=10.0, ours_s=10.2)),
                         ["step: elapsed, difference", "step: MFU, difference"])

    def test_train_other_flop_or_instances(self):
        self.assertEqual(self.failed(self.train(own_s=10.0, ours_s=10.0, flop_error=1e-6)), ["step: FLOP, difference"])
        self.assertEqual(self.failed(self.train(own_s=10.0, ours_s=10.0, instances=19)), ["step: instances"])

    @staticmethod
    def write_run(env, seen):
        end = {"type": "end", "regions": [], "launches": {"seen": seen}}
        path = pathlib.Path(env["MFU_RUN_DIR"]) / "h-0-1.jsonl"
        path.write_text(json.dumps(RunDirectory.START) + "\n" + json.dumps(end) + "\n")

    def slowdown(self, ours, rounds=3, seen=100):
        def answer(name, arguments, env):
            turn = int(name.split()[1])
            factor = ours if env else 1.5 if "--profiler" in arguments else 1.0
            if env:
                self.write_run(env, seen)
            self.assertEqual(env is not None, name.endswith("ours"))
            return {"ms": {loop: (1 + turn) * factor for loop in ("eager decode", "graph decode", "training")}}
        with tempfile.TemporaryDirectory() as directory:
            context, suite = FakeContext(directory, answer, rounds), results.Suite("slowdown")
            suites.slowdown(context, suite)
            return context, suite

    def test_slowdown_takes_ratios_within_rounds(self):
        context, suite = self.slowdown(ours=1.005)
        self.assertEqual(suite.status, "ok")
        values = {row["what"].split(" (")[0]: row["value"] for row in suite.rows}
        self.assertAlmostEqual(values["training: ours"], 1.005)
        self.assertAlmostEqual(values["eager decode: proton"], 1.5)
        self.assertEqual(values["rounds"], 3)
        self.assertEqual([name.split()[2] for name in context.names[::4]], ["alone", "ours", "torch.profiler"])

    def test_slowdown_over_the_limit_fails(self):
        self.assertEqual(len(self.failed(self.slowdown(ours=1.02)[1])), 3)


    def test_slowdown_of_a_library_that_did_nothing_is_no_result(self):
        self.assertEqual(self.failed(self.slowdown(ours=1.0, seen=0)[1]), ["slowdown: launches we saw"])


class Command(unittest.TestCase):
    def test_lists_its_suites(self):
        done = subprocess.run([HERE / "run", "--list"], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0)
        for name in suites.SUITES:
            self.assertIn(name, done.stdout)

    def test_default_selection_fits(self):
        self.assertLessEqual(sum(s.limit_s for s in suites.SUITES.values() if s.default), 9 * 60)

    def test_unknown_suite(self):
        done = subprocess.run([HERE / "run", "nonsense"], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("nonsense", done.stderr)

    @unittest.skipIf(suites.find_gpu() is not None, "there is a GPU")
    def test_without_a_gpu_it_says_so_and_claims_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run([HERE / "run", "--out", directory], capture_output=True, text=True, check=False,
                                  timeout=60, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual(done.returncode, 77)
            self.assertIn("no NVIDIA GPU", done.stdout)
            self.assertEqual(list(pathlib.Path(directory).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
