"""`mfu verdict` over the simulated GPU: everything holds on one that keeps the documents; each GPU that breaks an assumption is
caught by the step that owns it."""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import fake_ranks
from harness import BUILD, LIBRARY, SANITIZE, SOURCE, TestCase, main

sys.path.insert(0, str(SOURCE / "python"))
from mfuinject.verdict import steps

COMMAND = [str(BUILD / "mfu"), "verdict", "--small", "--minutes", "5", "--python", sys.executable]


def verdict(only, cupti="cupti-13.3", **variables):
    """The document that came back, the exit status and what was printed."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "verdict.json.gz"
        env = {**os.environ, "LD_LIBRARY_PATH": f"{BUILD / 'simgpu'}:{BUILD / 'simgpu' / cupti}", **variables}
        words = [*COMMAND, "--out", str(out), *(f"--only={step}" for step in only)]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=400, check=False)
        document = json.loads(gzip.decompress(out.read_bytes())) if out.exists() else None
        return document, done


@unittest.skipIf(SANITIZE, "the programs are Python's own")
class Verdict(TestCase):
    def rows(self, document, ok):
        return {(step["step"], row["what"]) for step in document["steps"] for row in step["rows"] if row["ok"] is ok}

    def test_a_gpu_that_keeps_the_documents(self):
        document, done = verdict(["injection", "work", "exhaust"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.rows(document, False), set())
        self.assertGreater(len(self.rows(document, True)), 25)
        safe = {name for name, word in document["assumptions"].items() if word == "safe"}
        self.assertLessEqual(
            {
                "every launch is seen, and has a record",
                "every kernel is recorded, in graphs too",
                "kernels' times are right",
                "graphs can be timed as a whole, and split",
                "times of graph kernels do not run out, auto",
            },
            safe,
        )
        self.assertNotIn("wrong", document["assumptions"].values())
        self.assertLessEqual(len(done.stdout.split("\nmfu verdict: ")[1].splitlines()), 32)
        self.assertIn("mfu", document["facts"])

    def test_each_broken_assumption_is_caught_by_its_step(self):
        for what, step, assumption, cupti, variables in (
            ("records are lost", "work", "every launch is seen, and has a record", "cupti-13.0", {"SIMGPU_LOSE_RATE": "0.01"}),
            (
                "launches without a callback",
                "work",
                "nothing was contradicted while measuring",
                "cupti-13.0",
                {"SIMGPU_SILENT_RATE": "0.05"},
            ),
            (
                "records too early",
                "work",
                "nothing was contradicted while measuring",
                "cupti-13.0",
                {"SIMGPU_EARLY_RATE": "0.2", "SIMGPU_EARLY_NS": "50000000"},
            ),
            (
                "times run out",
                "exhaust",
                "times of graph kernels do not run out, node",
                "cupti-13.0",
                {"SIMGPU_GRAPH_BUFFER_RECORDS": "2"},
            ),
            (
                "tracing is dear",
                "price",
                "a launch costs less than 3 us more",
                "cupti-13.3",
                {"SIMGPU_TRACED_LAUNCH_NS": "60000"},
            ),
            ("no records at all", "injection", "", "cupti-13.3", {"SIMGPU_FAIL": "cuptiActivityEnable:35"}),
        ):
            with self.subTest(what):
                document, done = verdict([step], cupti, **variables)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertEqual({name for name, _ in self.rows(document, False)}, {step})
                if assumption:
                    self.assertEqual(document["assumptions"][assumption], "wrong")

    def test_the_rank_that_comes_late(self):
        folder = self.directory / "ranks"
        job = fake_ranks.Job(ranks=2, hosts=1)
        job.ranks[1].late_s = 0.002
        job.write(folder)
        context = steps.Context(str(BUILD / "mfu"), str(LIBRARY), sys.executable, minutes=1, small=True)
        self.addCleanup(shutil.rmtree, context.folder)
        self.assertEqual(steps.late_ranks(context, str(folder)), [1])

    def test_no_gpu(self):
        document, done = verdict(["injection"], SIMGPU_DEVICES="0")
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertIn("no GPU: cuInit returned 100", done.stdout)
        self.assertIsNone(document)


if __name__ == "__main__":
    main()
