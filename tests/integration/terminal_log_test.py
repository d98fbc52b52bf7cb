"""The log on a real terminal (tmux): beside progress bars, in colour where it is wanted, in 60 columns and in 200."""

import os
import re
import shutil
import subprocess
import sys
import time
import unittest

from harness import BUILD, DEADLINE_S, GPT2, SANITIZE, SCENARIO, TestCase, main

# A progress bar as tqdm draws it, beside a program that is measured.
BAR = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
n = 0
while child.poll() is None:
    n += 1
    sys.stderr.write("\\r %3d%%|%-10s| %d/500 [00:07<00:08, 31.2it/s]" % (n % 100, "#" * (n % 10), n))
    sys.stderr.flush()
    time.sleep(0.01)
sys.stderr.write("\\nended\\n")
"""
SCRIPT = """kernel gemm_k ns=200000
kernel softmax ns=100000
repeat 60 { push "step batch=1 seq_len=8"; launch gemm_k count=40; launch softmax count=20; sync; pop; sleep 10 }"""


@unittest.skipUnless(shutil.which("tmux"), "no tmux")
@unittest.skipIf(SANITIZE, "its programs are slow, and their terminal the same")
class TerminalLog(TestCase):
    def setUp(self):
        super().setUp()
        self.terminals = 0

    def tmux(self, *arguments):
        words = ["tmux", "-u", "-S", self.directory / f"tmux{self.terminals}", "-f", "/dev/null", *arguments]
        done = subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True, timeout=DEADLINE_S)
        return done.stdout

    def screen(self, width, *environment, bar=False):
        """What is on the screen when the program has ended: its text, and the same with escape sequences."""
        env = self.environment(self.directory, [], "cupti-13.0", None, {"SIMGPU_TRACE": None})
        words = [f"{k}={v}" for k, v in env.items() if os.environ.get(k) != v]
        program = [SCENARIO, "-c", SCRIPT]
        (self.directory / "bar.py").write_text(BAR)
        if bar:
            program = [sys.executable, self.directory / "bar.py", *program]
        run = [BUILD / "mfu", "run", "--no-run-dir", "-c", GPT2, "-i", "0.2"]
        command = ["env", "-u", "NO_COLOR", *words, "TERM=screen-256color", *environment, *run, *program]
        script = self.directory / "command.sh"
        quoted = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in command)
        script.write_text(f"{quoted}\necho all over\nsleep 1000\n")
        self.terminals += 1  # a server that was killed may not be gone yet
        self.tmux("new-session", "-d", "-x", width, "-y", 60, "sh", script)
        try:
            deadline = time.monotonic() + DEADLINE_S
            while "all over" not in (text := self.tmux("capture-pane", "-p", "-J")):
                self.assertLess(time.monotonic(), deadline, text)
                time.sleep(0.1)
            return text, self.tmux("capture-pane", "-p", "-e")
        finally:
            self.tmux("kill-server")

    def test_a_progress_bar_stays_whole(self):
        text, _ = self.screen(160, bar=True)
        ours = [line for line in text.splitlines() if "[mfu]" in line]
        self.assertGreater(len(ours), 5, text)
        for line in ours:
            self.assertTrue(line.startswith("[mfu] "), text)
            self.assertNotIn("%|", line, text)
        # No half of a bar is left behind: at most the last one, which our last line may have cleared.
        self.assertLessEqual(len([line for line in text.splitlines() if "it/s]" in line]), 1, text)

    def test_colour_where_it_is_wanted_and_columns_that_line_up(self):
        text, styled = self.screen(200)
        self.assertRegex(styled, r"\x1b\[1m")
        windows = [line for line in text.splitlines() if re.match(r"\[mfu\] step@gpu0 +n=", line)]
        self.assertGreater(len(windows), 2, text)
        self.assertEqual(len({line.index("n=") for line in windows}), 1, windows)
        for line in text.splitlines():
            if line.startswith("[mfu]") and "run directory" not in line and "peak" not in line:
                self.assertLessEqual(len(line), 120)
        _, plain = self.screen(200, "NO_COLOR=1")
        self.assertNotRegex(plain, r"\x1b\[1m\S")

    def test_a_narrow_terminal_wraps_and_loses_nothing(self):
        text, _ = self.screen(60)
        self.assertRegex(text, r"(?m)^\[mfu\] step@gpu0 +n=\d+ .* \| gemm-loss \d")
        self.assertRegex(text, r"(?m)^\[mfu\] whole run +instances")


if __name__ == "__main__":
    main()
