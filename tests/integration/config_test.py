"""What the environment and the config say, and what is said about it when it is wrong: one line, and the host runs on."""

import json
import os

from harness import GPT2, TestCase, main, ns

SCRIPT = """
kernel gemm_step ns=200000
repeat 10 { push "step batch=2 seq_len=64"; launch gemm_step count=5; sync; pop }
print finished
exit 3
"""


class Config(TestCase):
    def run_with(self, config=GPT2, script=SCRIPT, **env):
        run = self.unharmed(script, config=config, env=env)
        if script == SCRIPT:
            self.assertEqual((run.code, run.stdout), (3, b"finished\n"))
        return run

    def written(self, text):
        path = self.directory / "given.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def assert_times_only(self, run):
        self.assert_sound(run)
        step = run.region("step")
        self.assertEqual((step["instances"], step["kernels"]), (10, 50))
        self.assertIsNone(step["flop"])
        self.assertIsNone(step["mfu"])
        self.assertEqual(ns(step["time_s"]["matmul"]), 50 * 200000)

    def test_no_config(self):
        run = self.run_with(config=None)
        self.assert_times_only(run)
        self.assert_one_line(run, "no model config", "MFU_MODEL_CONFIG")
        self.assertTrue(any(line.startswith("step@gpu0") and "MFU=-" in line for line in run.log), run.log)

    def test_a_file_that_is_missing(self):
        run = self.run_with(config="/nowhere/config.json")
        self.assert_times_only(run)
        self.assert_one_line(run, "MFU_MODEL_CONFIG", "/nowhere/config.json", "measuring time only")

    def test_files_that_are_not_json(self):
        for text in ("", "{", "not json", "[1, 2", b"\xff\xfe\x00\x00", "null", "3", '"x"', "[]", "{" * 5000, "[" * 100000):
            with self.subTest(text[:20]):
                run = self.run_with(config=self.written(text))
                self.assert_times_only(run)
                self.assert_one_line(run, "given.json", "measuring time only")

    def test_a_path_that_is_no_file(self):
        for path in ("/dev/null", "/proc/self/mem", "/"):
            with self.subTest(path):
                run = self.run_with(config=path)
                self.assert_times_only(run)
                self.assert_one_line(run, "measuring time only")

    def test_an_unknown_family(self):
        run = self.run_with(config={"model_type": "frobnicator", "hidden_size": 64})
        self.assert_times_only(run)
        self.assert_one_line(run, "frobnicator", "measuring time only")

    def test_wrong_types(self):
        base = json.loads(GPT2.read_text())
        for key, value in (
            ("n_layer", "twelve"),
            ("n_layer", -3),
            ("n_embd", None),
            ("n_head", 0),
            ("n_embd", 1e300),
            ("n_head", [12]),
            ("vocab_size", {}),
        ):
            with self.subTest(f"{key}={value}"):
                run = self.run_with(config={**base, key: value})
                self.assert_times_only(run)
                self.assert_one_line(run, key, "measuring time only")

    def test_wrong_values_beside_a_good_model(self):
        """Everything else still holds: the default replaces what cannot be read, and the line names it."""
        model = {"params": 1_000_000_000}
        for section, key, value in (("workload", "batch", "eight"), ("workload", "phase", "nap"), ("parallel", "tp", 0),
                                    ("peak", "dtype", "bf17"), ("counting", "convention", "mine"), ("peak", "sparse", "yes"),
                                    ("workload", "grad_accum", 1.5), ("peak", "tflops", -1)):
            with self.subTest(f"{section}.{key}"):
                run = self.run_with(config={"model": model, section: {key: value}})
                self.assert_sound(run)
                self.assertIsNotNone(run.region("step")["mfu"])
                self.assert_one_line(run, f"{section}.{key}", str(value) if isinstance(value, str) else "expected")

    def test_unknown_keys(self):
        run = self.run_with(config={"model": {"params": 1_000_000_000}, "wrokload": {"batch": 1}, "workload": {"bach": 2}})
        self.assert_sound(run)
        self.assertIsNotNone(run.region("step")["mfu"])
        self.assert_one_line(run, "wrokload", "unknown key", "workload")
        self.assert_one_line(run, "bach", "unknown key", "batch")

    def test_rules(self):
        run = self.run_with(config={"model": {"params": 1_000_000_000}, "regions": [
            {"region": "broken", "match": "(("}, {"match": "x"}, 7,
            {"region": "decode", "match": r"gen (?P<batch>\d+)", "context": 100},
            {"region": "sampler", "match": "sample.*", "domain": "app"},
            {"region": "ctx", "match": "given", "payload": "context"}]}, script="""
            kernel gemm_k ns=50000
            push "gen 7"; launch gemm_k; sync; pop
            push "sample x" domain=app; launch gemm_k count=2; sync; pop domain=app
            push "sample x"; launch gemm_k count=3; sync; pop
            push given u64=5; launch gemm_k count=4; sync; pop
        """)
        self.assert_sound(run)
        self.assertEqual(
            {r["region"]: r["kernels"] for r in run.end["regions"]}, {"decode": 1, "sampler": 2, "ctx": 4, "total": 10}
        )
        self.assertEqual(run.region("decode")["tokens"], 7)
        self.assert_one_line(run, "regions[0]", "((")
        self.assert_one_line(run, "regions[1]")
        self.assert_one_line(run, "regions[2]")

    def test_a_shape_that_is_missing(self):
        run = self.run_with(script='kernel gemm_k ns=5000\nrepeat 5 { push step; launch gemm_k; sync; pop }')
        self.assert_sound(run)
        self.assertIsNone(run.region("step")["mfu"])
        self.assert_one_line(run, "region step", "no MFU", "lacks", "workload")

    def test_mfu_set(self):
        run = self.run_with(script='kernel gemm_k ns=5000\nrepeat 5 { push step; launch gemm_k; sync; pop }',
                            MFU_SET="workload.batch=8,workload.seq_len=16,peak.dtype=fp8")
        self.assert_sound(run)
        self.assertEqual(run.region("step")["tokens"], 5 * 8 * 16)
        self.assertTrue(run.lines("start")[0]["devices"][0]["dtype"].startswith("fp8"), run.lines("start")[0]["devices"])
        run = self.run_with(MFU_SET="workload.bach=8,=,,foo,peak.dtype=nope")
        self.assert_sound(run)
        self.assertIsNotNone(run.region("step")["mfu"])
        self.assert_one_line(run, "MFU_SET", "bach")

    def test_mfu_set_without_a_file(self):
        run = self.run_with(config=None, MFU_SET="model.params=1000000000")
        self.assert_sound(run)
        self.assertIsNotNone(run.region("step")["mfu"], run.log)

    def test_peaks(self):
        plain = self.run_with()
        run = self.run_with(MFU_PEAK_TFLOPS="100", MFU_PEAK_GBPS="1000")
        device = run.lines("start")[0]["devices"][0]
        self.assertEqual((device["peak_flop_per_s"], device["peak_bytes_per_s"]), (100e12, 1000e9))
        self.assertNotEqual(device["peak_source"], plain.lines("start")[0]["devices"][0]["peak_source"])
        step = run.region("step")
        self.assertAlmostEqual(step["mfu"], step["flop"] / (100e12 * step["elapsed_s"]), places=12)
        run = self.run_with(MFU_PEAK_TFLOPS="fast")
        self.assert_one_line(run, "MFU_PEAK_TFLOPS", "fast")
        self.assertEqual(run.lines("start")[0]["devices"][0]["peak_flop_per_s"],
                         plain.lines("start")[0]["devices"][0]["peak_flop_per_s"])

    def test_an_unknown_gpu(self):
        run = self.run_with(SIMGPU_DEVICE_NAME="Simulated Graphics 9000", SIMGPU_CC_MAJOR="9", SIMGPU_SM_COUNT="100")
        self.assertTrue(run.lines("start")[0]["devices"][0]["peak_source"].startswith("derived"), run.lines("start")[0])
        run = self.run_with(SIMGPU_DEVICE_NAME="Simulated Graphics 9000", SIMGPU_CC_MAJOR="99")
        self.assertIsNone(run.lines("start")[0]["devices"][0]["peak_flop_per_s"])
        self.assertIsNone(run.region("step")["mfu"])
        self.assertIsNotNone(run.region("step")["flop"])
        self.assert_sound(run)
        self.assertTrue(any("MFU_PEAK_TFLOPS" in line for line in run.log), run.log)

    def test_mfu_beyond_reason_is_suspect(self):
        run = self.run_with(
            script='kernel gemm_k ns=5000\nrepeat 5 { push "step batch=64 seq_len=1024"; launch gemm_k; sync; pop }'
        )
        self.assert_sound(run)
        self.assertIsNotNone(run.region("step")["suspect"])
        self.assertTrue(any("suspect" in line for line in run.log))

    def test_log_targets(self):
        # With stdout the host's own output stays as it is, and our lines are whole between its lines.
        run = self.scenario(SCRIPT, env={"MFU_LOG": "stdout"}, code=3)
        ours = [line for line in run.stdout.decode().splitlines() if line.startswith("[mfu] ")]
        self.assertEqual([line for line in run.stdout.decode().splitlines() if line not in ours], ["finished"])
        self.assertTrue(any("launches" in line for line in ours))
        self.assertEqual(run.stderr, b"")
        run = self.run_with(MFU_LOG="none")
        self.assertEqual(run.stderr, b"")
        self.assert_sound(run)
        path = self.directory / "logs/deep/%r-%p.log"
        run = self.run_with(MFU_LOG=path)
        self.assertEqual(run.stderr, b"")
        pid = run.lines("start")[0]["pid"]
        text = (self.directory / f"logs/deep/0-{pid}.log").read_text()
        self.assertIn("launches 50", text)

    def test_a_log_file_that_cannot_be_written(self):
        run = self.run_with(MFU_LOG="/proc/nothing/here.log")
        self.assert_sound(run)

    def test_ranks(self):
        run = self.run_with(RANK="3", LOCAL_RANK="1", WORLD_SIZE="8")
        start = run.lines("start")[0]
        self.assertEqual((start["rank"], start["world"]), (3, 8))
        self.assertEqual(run.stderr, b"")  # rank 0 speaks
        self.assertIn("-3-", next(iter(run.files)))
        run = self.run_with(RANK="3", WORLD_SIZE="8", MFU_LOG_RANKS="all")
        self.assertTrue(run.stderr and all(line.startswith(b"[mfu] r3 ") for line in run.stderr.splitlines()), run.stderr)
        for names in (
            ("SLURM_PROCID", "SLURM_NTASKS"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
        ):
            start = self.run_with(**{names[0]: "2", names[1]: "4"}).lines("start")[0]
            self.assertEqual((start["rank"], start["world"]), (2, 4), names)
        start = self.run_with(RANK="x", WORLD_SIZE="-1").lines("start")[0]
        self.assertEqual((start["rank"], start["world"]), (0, 1))

    def test_the_run_directory_s_name(self):
        run = self.scenario(SCRIPT, env={"MFU_RUN_DIR": self.directory / "runs/%h/%r", "RANK": 5}, code=3)
        found = list((self.directory / "runs").rglob("*.jsonl"))
        self.assertEqual(len(found), 1)
        self.assertEqual(found[0].parent.parts[-2:], (os.uname().nodename, "5"))
        run = self.scenario(SCRIPT, env={"MFU_RUN_DIR": None}, code=3)
        self.assertEqual(run.files, {})
        self.assertTrue(any("launches 50" in line for line in run.log))

    def test_a_misspelt_variable(self):
        run = self.run_with(MFU_INTERVALL="5")
        self.assert_one_line(run, "MFU_INTERVALL", "MFU_INTERVAL?")
        for value in ("x", "-1", "0", "nan", "1e400", ""):
            with self.subTest(value):
                run = self.run_with(MFU_INTERVAL=value)
                self.assert_sound(run)
                if value:
                    self.assert_one_line(run, "MFU_INTERVAL", value)

    def test_disabled(self):
        for entry in ("cuda nvtx", "cuda nvtx preload", "nvtx"):
            run = self.unharmed(SCRIPT, entry=entry, env={"MFU_DISABLE": "1"})
            self.assertEqual((run.code, run.stdout, run.stderr, run.files), (3, b"finished\n", b"", {}))

    def test_a_window_shorter_than_a_flush(self):
        run = self.run_with(MFU_INTERVAL="0.001")
        self.assert_sound(run)
        self.assertEqual(run.region("step")["kernels"], 50)


if __name__ == "__main__":
    main()
