"""The examples, as far as a machine without a GPU, PyTorch or a server goes: they compile and explain themselves, their own
parts do what they say, their configs are what they claim, and the CUDA C++ one runs on the simulated GPU."""

import contextlib
import json
import os
import re
import runpy
import subprocess
import sys

from harness import BUILD, DEADLINE_S, SANITIZE, SOURCE, TestCase, main, unittest

MFU = BUILD / "mfu"
EXAMPLES = SOURCE / "examples"
PROGRAM = BUILD / "examples/mlp"


class Recorder:
    """Stands in for mfuinject.region: notes what is opened and closed."""

    def __init__(self):
        self.events = []

    @contextlib.contextmanager
    def __call__(self, name, **shape):
        self.events.append((name, shape))
        yield
        self.events.append("end")


class Region:
    def __init__(self, events):
        self.events = events

    def __enter__(self):
        self.events.append("begin")

    def __exit__(self, *_):
        self.events.append("end")


class Examples(TestCase):
    def run_module(self, name):
        return runpy.run_path(str(EXAMPLES / name), run_name="example")

    def test_python_programs_explain_themselves(self):
        programs = sorted(EXAMPLES.rglob("*.py"))
        self.assertGreaterEqual(len(programs), 3)
        for path in programs:
            with self.subTest(example=path.relative_to(EXAMPLES)):
                shown = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, timeout=DEADLINE_S,
                                       env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
                self.assertEqual((shown.returncode, shown.stderr), (0, ""))
                # What the head of the file tells to run is what the program takes.
                for line in re.findall(rf"{re.escape(str(path.relative_to(SOURCE)))} (.*)", path.read_text().split('"""')[1]):
                    for option in re.findall(r"--[\w-]+", line):
                        self.assertIn(option, shown.stdout)

    def test_scripts_parse_and_say_what_they_need(self):
        scripts = sorted(EXAMPLES.rglob("*.sh"))
        self.assertGreaterEqual(len(scripts), 3)
        for path in scripts:
            with self.subTest(example=path.relative_to(EXAMPLES)):
                self.assertTrue(os.access(path, os.X_OK))
                subprocess.run(["bash", "-n", path], check=True)
                done = subprocess.run([path], capture_output=True, text=True, timeout=DEADLINE_S,
                                      env={k: v for k, v in os.environ.items() if k != "MEGATRON"})
                self.assertIn(done.returncode, (1, 2))
                self.assertRegex(done.stderr, str(path.relative_to(SOURCE)) + "|MEGATRON")

    def test_servers_are_started_with_the_library_and_their_own_switches(self):
        programs = self.directory / "bin"
        programs.mkdir()
        show = f"#!{sys.executable}\nimport json, os, sys\n"
        show += "json.dump([os.path.basename(sys.argv[0]), *sys.argv[1:]], open('started', 'w'))\n"
        for name in ("mfu", "curl"):
            (programs / name).write_text(show if name == "mfu" else "#!/bin/sh\nexit 0\n")
            (programs / name).chmod(0o755)
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "MEGATRON": "/megatron", "GPUS": "2"}
        for script, words, wanted in (
            (
                "vllm/serve.sh",
                ["some/model", "--port", "8123"],
                ["-c", "some/model", "vllm", "serve", "--profiler-config.profiler", "--port", "8123"],
            ),
            ("sglang/serve.sh", ["some/model"], ["-c", "some/model", "sglang.launch_server", "--enable-layerwise-nvtx-marker"]),
            ("megatron/pretrain.sh", ["--lr", "1"], ["torchrun", str(EXAMPLES / "megatron/pretrain.py"), "--lr"]),
        ):
            with self.subTest(script=script):
                subprocess.run([EXAMPLES / script, *words], check=True, cwd=self.directory, env=env, timeout=DEADLINE_S)
                started = json.loads((self.directory / "started").read_text())
                self.assertEqual(started[:2], ["mfu", "run"])
                self.assertLessEqual(set(wanted), set(started))

    def test_configs_are_counted(self):
        """Parameters by hand: GPT-2 with a padded vocabulary, a small MLP, Megatron-LM's 345M with longer rows."""
        gpt2 = 12 * (12 * 768 * 768 + 13 * 768) + 2 * 768 + 1024 * 768 + 50304 * 768
        for config, words, params in (("nanogpt/config.json", ["--phase", "train", "--batch", 1, "--seq-len", 8], gpt2),
                                      ("cuda_cpp/config.json", ["--phase", "prefill", "--batch", 1, "--seq-len", 8],
                                       4 * 2 * 1024 * 4096)):
            with self.subTest(config=config):
                shown = subprocess.run(
                    [MFU, "flops", EXAMPLES / config, "--json", *map(str, words)], capture_output=True, text=True
                )
                self.assertEqual((shown.returncode, shown.stderr), (0, ""))
                self.assertEqual(json.loads(shown.stdout)["model"]["params"]["total"], params)
        megatron = subprocess.run(
            [MFU, "flops", EXAMPLES / "megatron/config.json", "--json", "--batch", "1"], capture_output=True, text=True
        )
        self.assertEqual((megatron.returncode, megatron.stderr), (0, ""))
        self.assertAlmostEqual(json.loads(megatron.stdout)["model"]["params"]["total"] / 1e6, 355, delta=10)

    def test_megatron_s_step_is_named(self):
        module = self.run_module("megatron/pretrain.py")

        class Training:
            @staticmethod
            def train_step(iterations):
                return iterations + 1

        named = []
        module["name_steps"](Training, lambda function: named.append(function) or (lambda *args: ["step", function(*args)]))
        self.assertEqual((Training.train_step(1), len(named)), (["step", 2], 1))

    def test_the_training_loop_s_ranges_are_the_same_either_way(self):
        module = self.run_module("nanogpt/train.py")
        sys.path.insert(0, str(SOURCE / "python"))
        self.addCleanup(sys.path.remove, str(SOURCE / "python"))
        args = module["arguments"](["--batch", "3", "--seq-len", "5"])
        self.assertEqual(module["step_name"](args.batch, args.seq_len), "step batch=3 seq_len=5")

    def test_generate_s_passes_are_told_apart(self):
        module = self.run_module("hf_generate/generate.py")

        class Ids:
            def __init__(self, *shape):
                self.shape = shape

        class Cache:
            def __init__(self, length):
                self.length = length

            def get_seq_length(self):
                return self.length

        class Model:
            def forward(self, input_ids=None, past_key_values=None, inputs_embeds=None):
                """The model's own."""
                if past_key_values is not None and past_key_values.length < 0:
                    raise ValueError("the model's own")
                return "logits"

        region = Recorder()
        model = module["name_passes"](Model(), region)
        self.assertEqual(model.forward.__doc__, "The model's own.")
        for call in (lambda: model.forward(input_ids=Ids(2, 512), past_key_values=Cache(0)), lambda: model.forward(Ids(2, 7)),
                     lambda: model.forward(input_ids=Ids(2, 1), past_key_values=Cache(512)),
                     lambda: model.forward(inputs_embeds=object())):
            self.assertEqual(call(), "logits")
        self.assertEqual(
            [e for e in region.events if e != "end"],
            [
                ("prefill", {"batch": 2, "seq_len": 512, "context": 0}),
                ("prefill", {"batch": 2, "seq_len": 7, "context": 0}),
                ("decode", {"batch": 2, "context": 512}),
            ],
        )
        self.assertEqual(region.events.count("end"), 3)
        with self.assertRaisesRegex(ValueError, "the model's own"):
            model.forward(input_ids=Ids(1, 1), past_key_values=Cache(-1))

    def test_the_trainer_s_steps_hold_all_micro_batches(self):
        module = self.run_module("hf_trainer/train.py")
        events = []

        class Optimizer:
            def register_step_post_hook(self, hook):
                self.hook = hook

            def step(self):
                events.append("optimizer")
                self.hook(self, (), {})

        class Trainer:
            def create_optimizer(self):
                self.optimizer = Optimizer()
                return self.optimizer

            def training_step(self, model, inputs):
                events.append("micro")
                return 0.5

            def train(self):
                self.create_optimizer()
                return [self.training_step(None, None) if i % 3 else self.optimizer.step() or self.training_step(None, None)
                        for i in range(1, 7)]

        trainer = module["with_steps"](Trainer, Region(events))()
        self.assertEqual(trainer.train(), [0.5] * 6)
        self.assertEqual(
            events,
            [
                "begin",
                "micro",
                "micro",
                "optimizer",
                "end",
                "begin",
                "micro",
                "micro",
                "micro",
                "optimizer",
                "end",
                "begin",
                "micro",
            ],
        )

    @unittest.skipIf(SANITIZE, "the example is built as it stands in the repository")
    def test_the_cuda_program_shows_its_mfu(self):
        run = self.program(
            [
                MFU,
                "run",
                "-c",
                EXAMPLES / "cuda_cpp/config.json",
                "-d",
                "run",
                "-i",
                "0.5",
                PROGRAM,
                "--seconds",
                "1",
                "--kernels",
                EXAMPLES / "cuda_cpp/kernels.ptx",
            ],
            entry="",
            env={"MFU_CUPTI": BUILD / "simgpu/cupti-13.0/libcupti.so.13"},
        )
        self.assertEqual(run.code, 0, run.stderr.decode())
        passes = int(re.fullmatch(r"(\d+) passes of 4096 tokens\n", run.stdout.decode())[1])
        self.assert_sound(run)
        forward = run.region("forward")
        self.assertEqual((forward["instances"], forward["tokens"]), (passes, passes * 4096))
        # Passes that a window's edge splits are added up from their parts.
        self.assertAlmostEqual(forward["flop"] / (passes * 2 * 2 * 4096 * 1024 * 4096 * 4), 1, places=12)
        self.assertAlmostEqual(forward["mfu"], forward["flop"] / (989.4e12 * forward["elapsed_s"]), places=12)
        self.assertTrue(any(line.startswith("forward@gpu0 ") and "MFU=" in line for line in run.log), run.log)


if __name__ == "__main__":
    main()
