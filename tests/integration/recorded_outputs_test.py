"""What the command said of stored runs at 0.1.0 it still says: every figure, to the last digit. More may be said."""

import csv
import gzip
import io
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MFU = pathlib.Path(os.environ.get("MFU_BUILD_DIR", SOURCE / "build/release")) / "mfu"
DEADLINE_S = 600
RUNS = SOURCE / "tests/data/runs"
EXPECTED = RUNS / "expected"
TRACES = "../traces"
PATHS = {"source", "path"}
WORDS = {"words", "remarks", "notes", "message", "version"}  # sentences for a person may be said better


def expected(name):
    return gzip.decompress((EXPECTED / name).read_bytes()).decode()


def differences(was, now, at=""):
    """Where `now` lacks or contradicts something of `was`."""
    if isinstance(was, dict):
        if not isinstance(now, dict):
            return [f"{at}: {now!r} instead of an object"]
        found = []
        for key, value in was.items():
            if key in PATHS | WORDS:
                continue
            found += differences(value, now[key], f"{at}.{key}") if key in now else [f"{at}.{key} is gone"]
        return found
    if isinstance(was, list):
        if not isinstance(now, list) or len(was) != len(now):
            return [f"{at}: {now!r} instead of {was!r}"]
        return [d for i, (a, b) in enumerate(zip(was, now)) for d in differences(a, b, f"{at}[{i}]")]
    return [] if was == now else [f"{at}: {now!r} instead of {was!r}"]


class RecordedOutputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mfu-recorded-")
        self.addCleanup(folder.cleanup)
        self.directory = pathlib.Path(folder.name)

    def mfu(self, *words):
        env = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        done = subprocess.run([MFU, *map(str, words)], cwd=RUNS, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def assert_kept(self, was, now):
        found = differences(was, now)
        self.assertEqual(found[:10], [], f"{len(found)} differences")

    def test_json(self):
        for run in ("demo", "two_ranks"):
            with self.subTest(run):
                self.assert_kept(json.loads(expected(f"{run}.json.gz")), json.loads(self.mfu("report", "--json", run)))

    def test_csv(self):
        for run in ("demo", "two_ranks"):
            with self.subTest(run):
                was = list(csv.reader(io.StringIO(expected(f"{run}.csv.gz"))))
                now = list(csv.reader(io.StringIO(self.mfu("report", "--csv", run))))
                self.assertEqual(now[0][:len(was[0])], was[0])  # columns are only ever added, at the end
                self.assertEqual([row[:len(was[0])] for row in now], was)

    def test_metrics(self):
        for run in ("demo", "two_ranks"):
            with self.subTest(run):
                file = self.directory / "metrics.prom"
                stored = self.directory / run
                shutil.copytree(RUNS / run, stored)
                for path in stored.iterdir():
                    os.utime(path, (1, 1))  # a rank whose file was written just now might be alive
                self.mfu("serve", stored, "--textfile", file, "--once", "--job", run)
                now = set(line for line in file.read_text().splitlines() if not line.startswith("#"))
                was = [line for line in expected(f"{run}.prom.gz").splitlines() if not line.startswith("#")]
                self.assertGreater(len(was), 50)
                self.assertEqual([line for line in was if line not in now], [])

    def test_comparison(self):
        self.assert_kept(json.loads(expected("compare.json.gz")), json.loads(self.mfu("compare", "--json", "demo", "two_ranks")))

    def test_replay(self):
        asked = {"replay_range": ("-c", "../configs/qwen3-8b.json", "-i", 1, "--range", "ProfilerStep",
                                  f"{TRACES}/tracelens_qwen05b_h100.json.gz"),
                 "replay_two_gpus": ("--range", "FlashAttnFunc", "--flop", "1e12",
                                     f"{TRACES}/nsysai_wan_train_2xh100_before.sqlite.gz")}
        for name, words in asked.items():
            with self.subTest(name):
                self.assert_kept(json.loads(expected(f"{name}.json.gz")), json.loads(self.mfu("replay", "--json", *words)))


if __name__ == "__main__":
    unittest.main()
