"""`mfu collect`: what it copies is the source, whatever moment it is killed at, and counts once."""

import json
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time

import fake_ranks
from harness import BUILD, main, unittest

MFU = BUILD / "mfu"
DEADLINE_S = 900


class Collect(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="mfu-collect-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.whole, self.local, self.shared = (self.directory / name for name in ("whole", "local", "shared"))
        self.local.mkdir()
        job = fake_ranks.Job(ranks=3, hosts=3)
        job.write(self.whole, windows=40)

    def collect(self, *options, source=None, code=0):
        words = [str(w) for w in (MFU, "collect", source or self.local, "--to", self.shared, *options)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def job(self, run_dir):
        """The regions of a run, and what a reader is warned of."""
        done = subprocess.run([str(MFU), "report", "--json", str(run_dir)], capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = json.loads(done.stdout)["job"]
        return job["regions"], job["warnings"]

    def grow(self, share):
        """The local files up to a share of the whole ones, cut anywhere."""
        for file in self.whole.glob("*.jsonl"):
            content = file.read_bytes()
            with open(self.local / file.name, "ab") as local:
                local.write(content[local.tell(): int(share * len(content))])

    def killed_while_it_copies(self, *options):
        rounds, random_ = 40, random.Random(5)
        begin = time.monotonic()
        self.collect(*options)
        once = time.monotonic() - begin
        for i in range(1, rounds + 1):
            self.grow(i / rounds)
            child = subprocess.Popen([str(w) for w in (MFU, "collect", self.local, "--to", self.shared, *options)],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(random_.uniform(0, 2 * once))
            child.kill()
            child.wait()
            for file in self.shared.glob("*.jsonl"):  # as a kill inside of a write leaves it
                if random_.random() < 0.3 and file == max(self.shared.glob(file.name.split(".")[0] + "*")):
                    with open(file, "r+b") as cut:
                        cut.truncate(random_.randint(0, file.stat().st_size))
        self.collect(*options)
        regions, warnings = self.job(self.whole)
        found, said = self.job(self.shared)
        self.assertEqual(found, regions)
        said = [w for w in said if not w["message"].endswith(" pieces, put together")]
        self.assertEqual([w["kind"] for w in said], [w["kind"] for w in warnings], said)

    def test_copies_are_the_source_after_any_kill(self):
        self.killed_while_it_copies()
        for file in self.whole.glob("*.jsonl"):
            self.assertEqual((self.shared / file.name).read_bytes(), file.read_bytes())
            self.assertEqual((self.shared / file.name).stat().st_mode & 0o077, 0o040)
        self.assertRegex(self.collect(), r"^3 files, 0 bytes to ")

    def test_pieces_count_as_the_source_after_any_kill(self):
        self.killed_while_it_copies("--pieces")
        self.assertGreater(len(list(self.shared.glob("*.jsonl"))), 3)

    def test_half_lines_wait(self):
        self.grow(0.5)
        self.collect()
        for file in self.shared.glob("*.jsonl"):
            self.assertTrue(file.read_bytes().endswith(b"\n"))

    def test_beside_a_job_until_it_is_told_to_end(self):
        child = subprocess.Popen([str(w) for w in (MFU, "collect", self.local, "--to", self.shared, "--every", 0.1)],
                                 stdout=subprocess.PIPE, text=True)
        for share in (0.2, 0.7, 1):
            self.grow(share)
            time.sleep(0.15)
        child.send_signal(signal.SIGTERM)
        self.assertRegex(child.communicate(timeout=DEADLINE_S)[0], r"^3 files, \d+ bytes to ")
        self.assertEqual(child.returncode, 0)
        self.assertEqual(self.job(self.shared)[0], self.job(self.whole)[0])

    def test_another_run_of_the_same_name_is_another_file(self):
        for options in ((), ("--pieces",)):
            with self.subTest(options):
                shutil.rmtree(self.shared, ignore_errors=True)
                self.grow(1)
                self.collect(*options)
                before = {file.name: file.read_bytes() for file in self.shared.glob("*.jsonl")}
                again = self.directory / f"again{len(options)}"
                job = fake_ranks.Job(ranks=3, hosts=3)
                job.write(again, windows=2)
                for file in again.glob("*.jsonl"):  # the same host, rank and pid, another time
                    lines = [json.loads(line) for line in file.read_text().splitlines()]
                    lines[0]["t_ns"] += 10**15
                    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
                self.collect(*options, source=again)
                self.assertEqual(len(list(self.shared.glob("*.jsonl"))), 2 * len(before))
                for name, content in before.items():
                    self.assertEqual((self.shared / name).read_bytes(), content)

    def test_what_cannot_be(self):
        self.grow(1)
        self.shared.symlink_to(self.local)
        self.assertIn("is where the files are", self.collect(code=2))
        self.shared.unlink()
        self.shared.write_text("")
        self.assertIn(f"{self.shared}: ", self.collect(code=1))


if __name__ == "__main__":
    main()
