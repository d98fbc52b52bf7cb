"""mfuinject beyond regions: the version, reading a run, and the callbacks against the real packages where they are installed.

MFU_FRAMEWORKS_PYTHON names an interpreter that has them; without it the one that runs the tests is tried.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

from harness import DEADLINE_S, SANITIZE, SOURCE, TestCase, main, unittest

BACKEND = SOURCE / "tools/wheel/pip_backend.py"
PYTHON = os.environ.get("MFU_FRAMEWORKS_PYTHON", sys.executable)
TRAINING = """kernel gemm_k ns=200000
    repeat 300 { push "step batch=1 seq_len=64"; launch gemm_k count=4; sync; pop }"""

# What every callback test begins with: regions go into a list instead of to a tool.
RECORDED = """
import json, os, sys
import mfuinject._region as r
marks = []
r._unasked, r._push, r._pop = False, lambda text: marks.append(text.decode()), lambda: marks.append("pop")
"""

TRAINER = (
    RECORDED
    + """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from mfuinject.hf import MfuCallback
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return {"input_ids": torch.arange(8), "labels": torch.arange(8)}
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8))
args = TrainingArguments(output_dir=sys.argv[1], max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                         use_cpu=True, save_strategy="no", report_to=[], logging_steps=1, disable_tqdm=True)
trainer = Trainer(model=model, args=args, train_dataset=Data(), callbacks=[MfuCallback(seq_len=8)])
trainer.train()
print(json.dumps([marks, trainer.state.log_history]))
"""
)

ACCELERATE = (
    RECORDED
    + """
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from mfuinject.accelerate import MfuTracker
class Other(GeneralTracker):
    name, requires_logging_directory, got = "other", False, []
    tracker = None
    def store_init_configuration(self, values): pass
    def log(self, values, step=None, **kwargs): self.got.append([values, step])
other, mfu = Other(), MfuTracker()
accelerator = Accelerator(cpu=True, log_with=[other, mfu])
mfu.follow(accelerator)
accelerator.init_trackers("p")
accelerator.log({"loss": 1.0}, step=5)
print(json.dumps([sorted(mfu.tracker), other.got]))
"""
)

LIGHTNING = (
    RECORDED
    + """
import torch
try:
    import lightning.pytorch as L
except ModuleNotFoundError:
    import pytorch_lightning as L
from mfuinject.lightning import MfuCallback
class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
    def training_step(self, batch, _): return self.linear(batch["input_ids"].float()).mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
class Logger(L.loggers.logger.DummyLogger):
    got = []
    def log_metrics(self, metrics, step=None): self.got.append([sorted(metrics), step])
logger = Logger()
loader = torch.utils.data.DataLoader([{"input_ids": torch.arange(8)} for _ in range(6)], batch_size=2)
trainer = L.Trainer(max_epochs=1, accelerator="cpu", logger=logger, callbacks=[MfuCallback()], enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1)
trainer.fit(Module(), loader)
print(json.dumps([marks, logger.got]))
"""
)


def has(*modules):
    probe = "import importlib.util, sys; sys.exit(not all(importlib.util.find_spec(m) for m in sys.argv[1:]))"
    return subprocess.run([PYTHON, "-c", probe, *modules], capture_output=True).returncode == 0


@unittest.skipIf(SANITIZE, "nothing of it is instrumented")
class Package(TestCase):
    def run_of(self):
        run = self.scenario(TRAINING, env={"MFU_INTERVAL": "0.05"})
        return run, str(run.directory / "run")

    def python(self, code, *words, python=sys.executable, **env):
        done = subprocess.run(
            [python, "-c", code, *words],
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_S,
            cwd=self.directory,
            env={
                **os.environ,
                "PYTHONPATH": f"{SOURCE / 'python'}:{os.environ.get('PYTHONPATH', '')}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "HF_HUB_OFFLINE": "1",
                **env,
            },
        )
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return json.loads(done.stdout.splitlines()[-1])

    def test_the_version_is_a_string(self):
        self.assertRegex(self.python("import json, mfuinject; print(json.dumps(mfuinject.__version__))"), r"^\d+[.+\w]+$")

    def test_a_run_as_records(self):
        run, path = self.run_of()
        got = self.python(
            """import json, sys, mfuinject
r = mfuinject.read(sys.argv[1])
p, = r.processes
print(json.dumps([r.windows, r.regions, r.events, p.start, p.end, len(mfuinject.read(p.path).windows)]))""",
            path,
        )
        windows, regions, _, start, end, of_file = got
        plain = [{k: v for k, v in w.items() if k not in ("host", "rank", "pid")} for w in windows]
        self.assertEqual(plain, run.lines("window"))
        self.assertGreater(len(windows), 2)
        self.assertEqual(of_file, len(windows))
        self.assertEqual({(w["host"], w["rank"], w["pid"]) for w in windows}, {(start["host"], start["rank"], start["pid"])})
        self.assertEqual([r["region"] for r in regions], [r["region"] for r in run.end["regions"]])
        self.assertEqual(end, run.end)

    def test_a_run_that_goes_on_is_read_as_far_as_it_is_whole(self):
        _, path = self.run_of()
        (file,) = pathlib.Path(path).glob("*.jsonl")
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) - 40] if whole.endswith(b"\n") else whole)
        code = (
            "import json, sys, mfuinject; p, = mfuinject.read(sys.argv[1]).processes; print(json.dumps([p.end, len(p.windows)]))"
        )
        end, windows = self.python(code, path)
        self.assertIsNone(end)
        self.assertGreater(windows, 2)
        missing = "import json, mfuinject\ntry: mfuinject.read('none')\nexcept FileNotFoundError as e: print(json.dumps(str(e)))"
        self.assertIn("none", self.python(missing))

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not installed")
    def test_a_run_as_a_frame(self):
        run, path = self.run_of()
        columns = self.python(
            "import json, sys, mfuinject; print(json.dumps(list(mfuinject.read(sys.argv[1]).frame().columns)))", path
        )
        self.assertLessEqual({"region", "mfu", "lost.idle", "t0", "rank"}, set(columns))

    def with_own_file(self, code, *words):
        """`code` in a process that has a run file with two windows: the figures are known before it starts."""
        windows = [
            {"v": 1, "type": "window", "region": "step", "device": 0, "t0_ns": 0, "t1_ns": 10**9, "tokens": t, "mfu": m}
            for t, m in ((100, 0.25), (500, 0.5))
        ]
        own = f"""
import json, os, socket
d = {str(self.directory / "run")!r}
os.makedirs(d, exist_ok=True)
open(f"{{d}}/{{socket.gethostname()}}-0-{{os.getpid()}}.jsonl", "w").write({"".join(json.dumps(w) + chr(10) for w in windows)!r})
open(f"{{d}}/other-0-1.jsonl", "w").write({json.dumps({**windows[0], "mfu": 0.9}) + chr(10)!r})
"""
        return self.python(own + code, *words, python=PYTHON, MFU_RUN_DIR=str(self.directory / "run"))

    def test_the_newest_figures_of_this_process(self):
        got = self.with_own_file("import mfuinject; print(json.dumps(mfuinject.latest()))")
        self.assertEqual(got, {"step/mfu": 0.5, "step/tokens_per_s": 500})
        self.assertEqual(self.python("import json, mfuinject; print(json.dumps(mfuinject.latest()))", MFU_RUN_DIR=""), {})
        pattern = (
            f"import os; os.environ['MFU_RUN_DIR'] = {str(self.directory)!r} + '/r%%/%h-%q{{NAME}}-%p'; "
            "os.environ['NAME'] = 'n'\n"
        )
        code = (
            pattern
            + """import json, socket, mfuinject
d = os.path.dirname(os.environ['MFU_RUN_DIR'].split('/r%%')[0] + '/r%/x') + f"/{socket.gethostname()}-n-{os.getpid()}"
os.makedirs(d)
window = '{"type": "window", "region": "a", "t0_ns": 0, "t1_ns": 1, "mfu": 0.1}\\n'
open(f"{d}/{socket.gethostname()}-3-{os.getpid()}.jsonl", "w").write(window)
print(json.dumps(mfuinject.latest()))"""
        )
        self.assertEqual(self.python(code), {"a/mfu": 0.1})

    @unittest.skipUnless(has("torch", "transformers", "accelerate"), "transformers is not installed")
    def test_the_trainer_of_transformers(self):
        marks, history = self.with_own_file(TRAINER, str(self.directory / "out"))
        self.assertEqual(marks, ["step batch=4 seq_len=8", "pop"] * 3)  # both micro-batches
        logged = [entry for entry in history if "loss" in entry]
        self.assertEqual(len(logged), 3)
        for entry in logged:
            self.assertEqual(entry["mfu/step/mfu"], 0.5)

    @unittest.skipUnless(has("torch", "transformers", "accelerate"), "transformers is not installed")
    def test_the_config_may_say_how_many_micro_batches_a_step_has(self):
        marks, _ = self.python(TRAINER, str(self.directory / "out"), MFU_SET="workload.grad_accum=2")
        self.assertEqual(marks, ["step batch=2 seq_len=8", "pop"] * 3)

    @unittest.skipUnless(has("torch", "accelerate"), "accelerate is not installed")
    def test_a_tracker_of_accelerate(self):
        known, got = self.with_own_file(ACCELERATE)
        self.assertEqual(known, ["step/mfu", "step/tokens_per_s"])
        self.assertEqual(
            sorted(got, key=str), sorted([[{"loss": 1.0}, 5], [{"mfu/step/mfu": 0.5, "mfu/step/tokens_per_s": 500}, 5]], key=str)
        )

    @unittest.skipUnless(has("torch", "lightning") or has("torch", "pytorch_lightning"), "lightning is not installed")
    def test_a_callback_of_lightning(self):
        marks, got = self.with_own_file(LIGHTNING)
        self.assertEqual(marks, ["step batch=2 seq_len=8", "pop"] * 3)
        self.assertEqual([names for names, _ in got if "mfu/step/mfu" in names], [["mfu/step/mfu", "mfu/step/tokens_per_s"]] * 3)


class Install(TestCase):
    """What pip builds with looks first at what building takes."""

    def look(self, **env):
        program = """
import importlib.util, sys, types
for name in ("scikit_build_core", "scikit_build_core.build"):  # it is asked for nothing here
    sys.modules[name] = types.ModuleType(name)
sys.modules["scikit_build_core"].build = sys.modules["scikit_build_core.build"]
sys.modules["scikit_build_core.build"].get_requires_for_build_wheel = lambda settings: ["cmake"]
spec = importlib.util.spec_from_file_location("pip_backend", sys.argv[1])
backend = importlib.util.module_from_spec(spec)
spec.loader.exec_module(backend)
print(backend.get_requires_for_build_wheel())
"""
        return subprocess.run([sys.executable, "-c", program, BACKEND], capture_output=True, text=True, timeout=DEADLINE_S,
                              env={**os.environ, **env})

    def test_one_line_names_what_a_bare_machine_lacks(self):
        bare = self.directory / "c++"
        bare.write_text('#!/bin/sh\nexec c++ -nostdinc -nostdinc++ "$@"\n')
        bare.chmod(0o755)
        for env, words in (({"CXX": str(bare)}, ("libfmt-dev", "libcli11-dev", "prometheus-cpp-dev", "libsqlite3-dev")),
                           ({"CXX": "no-such-compiler"}, ("a C++ compiler (no-such-compiler)",))):
            with self.subTest(env=env):
                done = self.look(**env)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                for word in (*words, "tools/install-deps"):
                    self.assertIn(word, done.stderr)

    def test_a_machine_that_built_this_lacks_nothing(self):
        self.assertEqual(self.look(CXX="c++").stdout, "['cmake']\n")
        # Who gives CMake arguments builds against headers of their own.
        self.assertEqual(self.look(CXX="no-such-compiler", SKBUILD_CMAKE_ARGS="-DX=1").stdout, "['cmake']\n")


if __name__ == "__main__":
    main()
