"""What the tracker examples share: following a run directory from outside."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import fake_ranks

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "examples"))
import run_tail  # noqa: E402


class Tail(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="mfu-tail-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.run_dir = self.directory / "run"

    def test_every_window_comes_once_while_files_grow_and_end(self):
        job = fake_ranks.Job(ranks=3, hosts=1)
        job.write(self.run_dir, windows=2)
        (self.run_dir / "foreign.txt").write_text("not ours")
        seen = []

        def read():
            for start, window in run_tail.follow(self.run_dir, poll_s=0.02):
                seen.append((start["rank"], window["region"], window["seq"]))

        reader = threading.Thread(target=read)
        reader.start()
        late = fake_ranks.Job(ranks=4, hosts=1)
        late.ranks = late.ranks[3:]
        late.write(self.run_dir, windows=3)
        for rank, line in job.lines(2, 3):
            text = json.dumps(line) + "\n"
            with open(self.run_dir / rank.file, "a") as file:  # in two halves, and nonsense between lines
                file.write(text[:40])
                file.flush()
                time.sleep(0.01)
                file.write(text[40:] + "nonsense\n[1]\n")
        for any_job in (job, late):
            for rank in any_job.ranks:
                with open(self.run_dir / rank.file, "a") as file:
                    file.write(json.dumps(any_job.end_line(rank, 5)) + "\n")
        reader.join(30)
        self.assertFalse(reader.is_alive(), "it ends with the last end line")
        wanted = [(r, region, 1 + 2 * w + k) for r, n in ((0, 5), (1, 5), (2, 5), (3, 3)) for w in range(n)
                  for k, region in enumerate(("step", "total"))]
        self.assertEqual(sorted(seen), sorted(wanted))

    def test_scalars_are_the_figures_that_are_known(self):
        job = fake_ranks.Job(ranks=2, hosts=1)
        job.ranks[1].flop_known = False
        job.write(self.run_dir, windows=1)
        found = {(s["rank"], w["region"]): run_tail.scalars(w) for s, w in run_tail.follow(self.run_dir, once=True)}
        known = found[0, "step"]
        self.assertEqual((known["step/mfu"], known["step/p50_s"], known["step/tokens_per_s"]), (0.4, 0.4, 8192 * 25 / 10))
        self.assertAlmostEqual(known["step/mfu"] + sum(v for k, v in known.items() if k.startswith("step/lost/")), 1)
        self.assertNotIn("step/mfu", found[1, "step"])

    def test_the_examples_log_what_they_read(self):
        """Each example runs unchanged, over a stand-in of its tracker that writes down what it is given."""
        job = fake_ranks.Job(ranks=2, hosts=1)
        for rank in job.ranks:
            rank.ends = True
        job.ranks[1].mfu = 0.2
        job.write(self.run_dir, windows=2)
        stand_in = self.directory / "modules"
        stand_in.mkdir()
        (stand_in / "wandb.py").write_text(
            "import json\nclass Run:\n"
            "    def define_metric(self, *a, **k): pass\n"
            "    def log(self, values): print(json.dumps(values))\n"
            "    def finish(self): print('{}')\n"
            "def init(**k): return Run()\n")
        (stand_in / "mlflow.py").write_text(
            "import contextlib, json\ndef set_experiment(name): pass\n"
            "def start_run(**k): return contextlib.nullcontext()\n"
            "def log_metric(name, value, step): print(json.dumps({name: value, 'step': step}))\n")
        for script, lines in (("tail_to_wandb.py", 5), ("tail_to_mlflow.py", None)):
            done = subprocess.run([sys.executable, SOURCE / "examples" / script, self.run_dir, "name", "1"], capture_output=True,
                                  text=True, timeout=900, env={"PYTHONPATH": str(stand_in), "PYTHONDONTWRITEBYTECODE": "1"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            logged = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual([x["step/mfu"] for x in logged if "step/mfu" in x], [0.2, 0.2], script)
            if lines:
                self.assertEqual(len(logged), lines)


if __name__ == "__main__":
    unittest.main(verbosity=2)
