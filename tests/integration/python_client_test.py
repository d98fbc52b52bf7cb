"""A Python program with the PyPI `nvtx` package and Qwen3-8B's config, unmodified, through the library."""

import json
import os
import pathlib
import sys

from harness import BUILD, CONFIGS, REAL_CUPTI, SANITIZE, SOURCE, TestCase, main, unittest

CLIENT = pathlib.Path(__file__).with_name("qwen3_client.py")
QWEN3 = CONFIGS / "qwen3-8b.json"
ROUNDS, PROMPT, NEW_TOKENS = 4, 512, 20


def find_nvtx():
    """The folder that holds the package: where the interpreter has it, or where the install step unpacked it."""
    for folder in (None, SOURCE / ".deps/python"):
        if folder is None:
            try:
                import nvtx  # noqa: F401
                return ""
            except ImportError:
                continue
        if (folder / "nvtx").is_dir():
            return str(folder)
    return None


NVTX = find_nvtx()


def forward_flop(config, new, past):
    """One forward pass of one sequence: exact matmul FLOP, causal attention, logits of the last position."""
    d, layers = config["hidden_size"], config["num_hidden_layers"]
    heads, kv_heads, head = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    weights = d * (heads + 2 * kv_heads) * head + heads * head * d + 3 * d * config["intermediate_size"]
    attended = sum(past + i + 1 for i in range(new))  # keys that query i sees, itself among them
    attention = 2 * 2 * heads * head * attended  # QK^T and PV
    return layers * (2 * weights * new + attention) + 2 * d * config["vocab_size"]


@unittest.skipIf(NVTX is None, "the PyPI package nvtx is not installed: tools/install-deps --tests fetches it")
@unittest.skipIf(SANITIZE, "the interpreter is not instrumented, and the library needs its sanitizer's runtime first")
class PythonClient(TestCase):
    def client(self, entry="cuda nvtx", config=QWEN3, env=None, rounds=ROUNDS):
        path = os.pathsep.join(filter(None, [NVTX, os.environ.get("PYTHONPATH")]))
        run = self.program([sys.executable, CLIENT, QWEN3, rounds, PROMPT, NEW_TOKENS], entry=entry, config=config,
                           env={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": 1, "MFU_GRAPHS": "node", **(env or {})})
        self.assertEqual(run.code, 0, run.stderr.decode())
        return run

    def test_prefill_and_decode_of_qwen3(self):
        without = self.client(entry="")
        run = self.client()
        self.assertEqual(run.stdout, without.stdout)
        self.assertEqual(run.foreign_log, without.foreign_log)
        self.assert_sound(run)
        did = json.loads(run.stdout)
        config = json.loads(QWEN3.read_text())
        graph = [a for a in run.activities() if a["graph_id"] != 0]
        in_prefill = self.eager_without_tokenizer(run)
        self.assertEqual(len(in_prefill), did["launched"]["prefill"])
        words = {"matmul": ("gemm", "flash", "nvjet", "gemv", "paged_attention")}
        prefill = self.assert_region(run, "prefill", in_prefill, instances=ROUNDS, **words)
        decode = self.assert_region(run, "decode", graph, instances=ROUNDS * NEW_TOKENS, **words)
        self.assertEqual(decode["launches"], did["graph_launches"])
        self.assertEqual(run.end["launches"], {"seen": len(run.launches()), "outside": ROUNDS, "unattributed": 0, "dropped": 0,
                                               "not_timed": 0,
                                               "attributed": did["launched"]["prefill"] + did["graph_launches"]})
        # Tokens and FLOP.
        self.assertEqual((prefill["tokens"], decode["tokens"]), (ROUNDS * PROMPT, ROUNDS * NEW_TOKENS))
        self.assertEqual(prefill["flop"], ROUNDS * forward_flop(config, PROMPT, 0))
        self.assertEqual(decode["flop"], ROUNDS * sum(forward_flop(config, 1, PROMPT + i) for i in range(NEW_TOKENS)))
        # MFU is FLOP over the peak's, and the peak is an H100's.
        device = run.lines("start")[0]["devices"][0]
        self.assertEqual((device["peak_flop_per_s"], device["dtype"]), (989.4e12, "bf16"))
        for region in (prefill, decode):
            self.assertAlmostEqual(region["mfu"], region["flop"] / (989.4e12 * region["elapsed_s"]), places=12)
        self.assertEqual((prefill["bound"], decode["bound"]), ("compute", "memory"))
        self.assertIsNotNone(decode["mbu"])
        self.assertEqual(run.lines("start")[0]["model"]["family"], "qwen3")

    def eager_without_tokenizer(self, run):
        """The tokenizer's launch is the one that follows a graph's last node, or begins the program."""
        kept, after_graph = [], True
        for a in sorted(run.activities(), key=lambda a: a["begin"]):
            if a["graph_id"] == 0 and not after_graph:
                kept.append(a)
            after_graph = a["graph_id"] != 0
        return kept

    def test_nvtx_imported_before_cuda_with_each_entry(self):
        for entry in ("nvtx", "preload", "cuda nvtx preload"):
            with self.subTest(entry):
                run = self.client(entry=entry, rounds=1)
                self.assert_sound(run)
                self.assertEqual(run.region("decode")["instances"], NEW_TOKENS)

    def test_the_cuda_variable_alone(self):
        """The package asks for a tool at its first range, which comes after cuInit here."""
        run = self.client(entry="cuda", rounds=1)
        self.assert_sound(run)
        self.assertEqual((run.region("prefill")["instances"], run.region("decode")["instances"]), (1, NEW_TOKENS))

    @unittest.skipIf(REAL_CUPTI, "a newer CUPTI is installed on this machine")
    def test_a_system_cupti_that_torch_could_stumble_over_is_left_alone(self):
        run = self.client(rounds=1, env={"LD_LIBRARY_PATH": f"{self.simgpu('')}:{self.simgpu('cupti-12.4')}"})
        self.assertEqual(run.foreign_log, [])
        self.assertTrue(any("older than 12.5" in line for line in run.log), run.log)

    def simgpu(self, folder):
        return BUILD / "simgpu" / folder


if __name__ == "__main__":
    main()
