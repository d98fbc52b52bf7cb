"""`mfu report` of run directories with thousands of files: processor time in proportion to the files, memory in bounds."""

import os
import pathlib
import subprocess
import unittest

import fake_ranks
from harness import BUILD, SANITIZE, TestCase, main

MFU = BUILD / "mfu"


def report(directory, *options):
    """(seconds of processor time, MB at most, what it printed) of `mfu report`."""
    child = subprocess.Popen([MFU, "report", directory, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    text = child.stdout.read()
    child.stdout.close()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, text
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text


@unittest.skipIf(SANITIZE, "it is about time, and instrumented code has another")
class Scale(TestCase):
    def made(self, name, files, windows):
        """`files` processes, each with `windows` windows: lines of one made rank, under other ranks and names."""
        folder = pathlib.Path(self.directory) / name
        job = fake_ranks.Job(ranks=1, hosts=1, world=files)
        job.write(folder, windows=windows)
        first = folder / job.ranks[0].file
        text = first.read_text()
        first.unlink()
        for number in range(files):
            own = text.replace('"rank": 0', f'"rank": {number}', 1).replace('"pid": 1000', f'"pid": {1000 + number}', 1)
            (folder / f"node-{number}-{1000 + number}.jsonl").write_text(own)
        return folder

    def test_twenty_thousand_files(self):
        few_s, few_mb, _ = report(self.made("few", 2000, 1), "--markdown")
        many_s, many_mb, text = report(self.made("many", 20_000, 1), "--markdown")
        self.assertIn("20000 processes", text.replace(",", ""))
        # Ten times the files: what is worked out once per file and file would take a hundred times as long.
        self.assertLess(many_s, 25 * few_s)
        self.assertLess(many_mb, few_mb + 20_000 * 0.05)

    def test_long_runs_take_no_more_memory_than_short_ones(self):
        _, short_mb, _ = report(self.made("short", 20, 10), "--markdown")
        _, long_mb, _ = report(self.made("long", 20, 1000), "--markdown")
        self.assertLess(long_mb, short_mb + 60)

    def test_the_page_looks_for_recordings_once(self):
        few, many = self.made("few", 1000, 1), self.made("many", 8000, 1)
        page = str(pathlib.Path(self.directory) / "page.html")
        times = [report(folder, "-o", page)[0] for folder in (few, many)]
        self.assertLess(times[1], 20 * times[0])


if __name__ == "__main__":
    main()
