"""`mfu top` as its users meet it: once as text, in a real terminal (tmux), over broken directories, and over 1,000 ranks."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import fake_ranks
from harness import EMULATED

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MFU_BUILD_DIR", SOURCE / "build/dev"))
SANITIZE = os.environ.get("MFU_SANITIZE", "")
MFU = BUILD / "mfu"
DEADLINE_S = 900  # what does not end by then hangs


class Top(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="mfu-top-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.run_dir = self.directory / "run"

    def top(self, *arguments, code=0, env=None, cwd=None):
        environment = {k: v for k, v in os.environ.items() if k not in ("MFU_RUN_DIR", "COLUMNS")}
        done = subprocess.run([str(a) for a in (MFU, "top", *arguments)], capture_output=True, text=True, timeout=DEADLINE_S,
                              env={**environment, **(env or {})}, cwd=cwd or self.directory)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr


class Text(Top):
    def test_a_rank_that_differs_is_marked(self):
        job = fake_ranks.Job(ranks=16, hosts=2)
        job.ranks[7].mfu = 0.25
        job.write(self.run_dir)
        self.assertRegex(self.top(self.run_dir, "--once"), r"(?m)^\*    7 .* 25\.0 ")
        found = {r["rank"]: r["differs_in"] for r in json.loads(self.top(self.run_dir, "--json"))["ranks"]}
        self.assertEqual(found.pop(7), "MFU")
        self.assertEqual(set(found.values()), {None})
        self.assertIn("no key 'mfuu'", self.top(self.run_dir, "--filter", "mfuu<35", code=2))
        self.assertIn("no row matches", self.top(self.run_dir, "--once", "--filter", "mfu<1"))

    def test_a_job_has_its_price(self):
        fake_ranks.Job(ranks=4).write(self.run_dir)
        job = json.loads(self.top(self.run_dir, "--json", env={"MFU_GPU_HOUR": "2"}))["job"]
        self.assertEqual(job["cost_per_hour"], 8)
        self.assertAlmostEqual(job["cost_per_million_tokens"], 8e6 / 3600 / job["tokens_per_s"])
        self.assertIn("8 an hour, idle ", self.top(self.run_dir, "--once", "--gpu-hour", 2))
        self.assertIn("expected a price above 0", self.top(self.run_dir, env={"MFU_GPU_HOUR": "x"}, code=2))

    def test_a_bound_is_the_job_s_too(self):
        job = fake_ranks.Job(ranks=4, hosts=2)
        job.write(self.run_dir)
        unknown = dict.fromkeys(("mfu", "hfu", "mfu_busy", "flop", "hfu_flop", "lost"))
        for file in self.run_dir.glob("*.jsonl"):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            for row in (line for line in lines if line["type"] == "window"):
                row.update(unknown, mfu_lower=0.25)
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        text = self.top(self.run_dir, "--once")
        self.assertIn("job:  MFU >= 25.0 %  HFU -  MBU 20.0 %", text)
        self.assertEqual(text.count(">=25.0"), 4, text)
        found = json.loads(self.top(self.run_dir, "--json"))["job"]
        self.assertEqual((found["mfu"], found["mfu_lower"], found["mbu_lower"]), (None, 0.25, None))

    def job(self):
        job = fake_ranks.Job(ranks=16, hosts=4, jitter_s=2e-5)
        job.ranks[5].late_s = 0.002
        job.ranks[9].dies_after = 2
        job.ranks[12].dropped = 7
        for rank in job.ranks[12:]:
            rank.clock_ahead_s = -3600
        job.write(self.run_dir)
        return job

    def test_once(self):
        self.job()
        text = self.top(self.run_dir, "--once")
        self.assertIn("15 live, 1 stale of 16 ranks on 4 hosts", text)
        self.assertIn("job:  MFU 40.0 %  HFU 50.0 %  MBU 20.0 %", text)
        # 500 collectives, 2 ms each, of 10 s: 10 % of the time; 40 % MFU in 90 % of it would be 44.4 %.
        self.assertRegex(text, r"straggler: rank 5 \(node01 gpu 0\) costs 4\.[345] points of MFU: last in step by 2(\.00)? ms")
        self.assertIn("host node03: its clock is 3600 s behind the others'", text)
        self.assertRegex(text, r"(?m)^     9 node02 +0 stale 40 s")
        self.assertRegex(text, r"(?m)^    12 .* 7  0\.20 #+=+o+c+\.")
        self.assertNotIn("\x1b", text)
        self.assertLessEqual(max(len(line) for line in text.splitlines()), 120)
        narrow = self.top(self.run_dir, "--once", env={"COLUMNS": "80"})
        table = narrow[narrow.index(" RANK"):]
        self.assertLessEqual(max(len(line) for line in table.splitlines()), 80)

    def test_json_sort_and_filter(self):
        self.job()
        found = json.loads(self.top(self.run_dir, "--json", "--sort", "late"))
        self.assertEqual(found["ranks"][0]["rank"], 5)
        self.assertEqual(found["job"]["stale"], 1)
        self.assertAlmostEqual(found["stragglers"][0]["cost_mfu"], 0.4 * 0.1 / 0.9, delta=0.002)
        self.assertEqual(
            [r["rank"] for r in json.loads(self.top(self.run_dir, "--json", "--filter", "node01 comm<5"))["ranks"]], [5]
        )
        self.assertIn("--sort: expected rank, mfu, mbu", self.top(self.run_dir, "--sort", "beauty", code=2))

    def test_which_directory(self):
        job = fake_ranks.Job(ranks=1, hosts=1)
        self.assertIn("no run directory: name one", self.top("--once", code=1))
        job.write(self.directory / "mfu-runs/20260101-000000-1")
        os.utime(self.directory / "mfu-runs/20260101-000000-1", (1, 1))
        job.write(self.directory / "mfu-runs/20260102-000000-2")
        self.assertIn("mfu-runs/20260102-000000-2", self.top("--once"))
        job.write(self.directory / "by/hostA/x")
        self.assertIn("by/hostA/x", self.top("--once", env={"MFU_RUN_DIR": "by/%h/%q{WHICH}", "WHICH": "x"}))
        self.assertIn("no such directory yet", self.top("--once", code=1, env={"MFU_RUN_DIR": "none/%p"}))

    def test_directories_that_are_not_what_they_should_be(self):
        self.assertIn("none: no such file or directory", self.top(self.directory / "none", "--once", code=1))
        empty = self.directory / "empty"
        empty.mkdir()
        self.assertIn("no run here yet", self.top(empty, "--once"))
        job = fake_ranks.Job(ranks=3, hosts=1)
        job.ranks[1].version = 7
        job.write(self.run_dir)
        with open(self.run_dir / job.ranks[0].file, "ab") as file:
            file.write(b'\xff\x00\x1b[2J\n[1,2]\n{"v":1,"type":"window","time_s":"none"}\n{"v":1,"type":"wi')
        (self.run_dir / "foreign.jsonl").write_bytes(os.urandom(100_000))
        (self.run_dir / "huge.jsonl").write_bytes(b"x" * (20 << 20))
        (self.run_dir / "link.jsonl").symlink_to("nowhere")
        (self.run_dir / "folder.jsonl").mkdir()
        text = self.top(self.run_dir, "--once")
        self.assertIn("3 live", text)
        for words in (
            "not a JSON object",
            "'time_s'",
            "newer version",
            "foreign.jsonl",
            "huge.jsonl",
            "a line of more than 16 MB",
            "link.jsonl: cannot be read: No such file",
            "folder.jsonl: not a file",
        ):
            self.assertIn(words, text)
        self.assertNotIn("\x1b", text)

    def test_a_run_that_is_over_is_shown_whole(self):
        job = fake_ranks.Job(ranks=4, hosts=2)
        for rank in job.ranks:
            rank.ends = True
        job.write(self.run_dir, windows=3)
        text = self.top(self.run_dir, "--once")
        self.assertIn("0 live, 4 ended of 4 ranks", text)
        self.assertIn("job, whole run:  MFU 40.0 %", text)


@unittest.skipUnless(shutil.which("tmux"), "no tmux")
class Terminal(Top):
    def setUp(self):
        super().setUp()
        self.terminals = 0

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-u", "-S", str(self.socket), "-f", "/dev/null", *[str(a) for a in arguments]], check=True,
                              capture_output=True, text=True, timeout=DEADLINE_S).stdout

    def open(self, width, height, *environment):
        self.terminals += 1
        self.socket = self.directory / f"tmux{self.terminals}"  # a server that was killed may not be gone yet
        self.tmux("new-session", "-d", "-x", width, "-y", height,
                  "env", "-u", "NO_COLOR", "LC_ALL=C.UTF-8", *environment, MFU, "top", self.run_dir, "--refresh", "0.2")
        self.addCleanup(subprocess.run, ["tmux", "-S", str(self.socket), "kill-server"], capture_output=True)

    def see(self, *words, without=()):
        """The screen, once it has these words."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            screen = self.tmux("capture-pane", "-p")
            if all(w in screen for w in words) and not any(w in screen for w in without):
                return screen
            self.assertLess(time.monotonic(), deadline, f"{words} not in\n{screen}")
            time.sleep(0.1)

    def see_styled(self, pattern):
        """The same with its escape sequences, once the pattern is in it."""
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, self.tmux("capture-pane", "-p", "-e")):
            self.assertLess(time.monotonic(), deadline, pattern)
            time.sleep(0.1)

    def click(self, column, line, button=0):
        """A mouse button pressed and let go, as xterm and tmux report it (columns and lines from 0); a wheel has no release."""
        for code in (button,) if button >= 64 else (button, 3):
            self.tmux("send-keys", "-H", *[f"{b:02x}" for b in (0x1B, 0x5B, 0x4D, 0x20 + code, 0x21 + column, 0x21 + line)])

    def test_hosts_mouse_marks_and_filters(self):
        job = fake_ranks.Job(ranks=64, hosts=8)
        job.ranks[17].late_s = 0.002
        job.ranks[7].mfu = 0.25
        job.write(self.run_dir)
        self.open(120, 40, "TERM=screen-256color")
        screen = self.see("64 live", "*    7 ", "!   17 ")
        # The history of the job has its scale, and grows upwards from the bottom.
        self.assertRegex(screen, r"(?m)^MFU 40 % +[\u2800-\u28ff]")
        self.assertRegex(screen, r"(?m)^0 % .*⣿")
        lines = screen.splitlines()
        head = next(i for i, line in enumerate(lines) if "REGION" in line)
        self.click(lines[head].index("MFU%") + 2, head)
        first = self.see("sort: mfu").splitlines()[head + 1]
        self.assertRegex(first, r"^\*    7 ")
        self.click(lines[head].index("MFU%") + 2, head)  # once more: the other way round
        self.see("sort: mfu reversed")
        self.click(lines[head].index("MFU%") + 2, head)
        self.see("sort: mfu ", without=("reversed",))
        self.click(5, head + 4)
        self.see("4/64")
        self.click(5, head + 4, button=1 + 64)  # wheel down
        self.see("7/64")
        self.click(5, head + 4)
        self.see("4/64")
        self.click(5, head + 4)  # once more: what is behind it
        self.see("KERNEL of step", "last 6 windows")
        self.tmux("send-keys", "Escape")
        self.see("sort: mfu", without=("KERNEL",))
        self.tmux("send-keys", "o")
        hosts = self.see("8 hosts", "HIGHEST")
        self.assertRegex(hosts, r"node00 +8 +8 +38\.1 +25\.0 +40\.0 .*\* 1 differ")
        self.assertRegex(hosts, r"node02 .*! 1 late")
        self.tmux("send-keys", "Down", "Down", "Enter")
        self.see("1/8 ", "filter: host=node02", "!   17 ")
        self.tmux("send-keys", "Escape")
        self.see("/64", without=("filter: host",))
        self.tmux("send-keys", "/", "mfuu<3", "Enter")
        self.see("no key 'mfuu'")
        self.tmux("send-keys", "/", "BSpace", "BSpace", "BSpace", "BSpace", "BSpace", "BSpace", "mfu<1", "Enter")
        self.see("no row matches the filter; Esc takes it away")
        self.tmux("send-keys", "Escape")
        self.see("/64", without=("no row matches",))

    def test_letters_where_blocks_cannot_be_shown(self):
        fake_ranks.Job(ranks=2, hosts=1).write(self.run_dir)
        self.open(80, 24, "LC_ALL=C", "TERM=screen-256color")
        screen = self.see("2 live", "# MFU")
        self.assertTrue(screen.isascii(), screen)

    def test_what_the_driver_says_of_this_machines_gpus(self):
        job = fake_ranks.Job(ranks=8, hosts=1)
        job.ranks[3].uuid = "GPU-513a6d0f-7369-6d75-8c61-746564000000"
        job.write(self.run_dir)
        self.open(140, 30, f"LD_LIBRARY_PATH={BUILD}/simgpu", "TERM=screen-256color")
        screen = self.see("8 live", "POWER", "650 W here")
        self.assertRegex(screen, r"(?m)^     3 .* 0\.0 G 650 W ")
        self.assertRegex(screen, r"(?m)^     2 .* - +- ")
        self.tmux("send-keys", "Down", "Down", "Down", "Enter")
        self.see("rank 3 of 8", "power 650 W  55 °C")

    def test_keys_growth_and_resize(self):
        job = fake_ranks.Job(ranks=64, hosts=8)
        job.ranks[17].late_s = 0.002
        job.write(self.run_dir)
        self.open(80, 24)
        screen = self.see("64 live of 64 ranks on 8 hosts", "straggler: rank 17", "1/64  sort: rank").splitlines()
        self.assertEqual(len(screen), 24)
        self.assertTrue(all(len(line) <= 80 for line in screen))
        self.assertNotIn("node00", "\n".join(screen[8:-1]))  # no room for hosts
        self.tmux("resize-window", "-x", 200, "-y", 50)
        wide = self.see("HOST", "node04").splitlines()
        self.assertEqual(len(wide), 50)
        self.assertGreater(max(len(line) for line in wide), 190)
        self.tmux("resize-window", "-x", 80, "-y", 24)
        self.see("1/64", without=("HOST",))
        self.tmux("send-keys", "j", "Down", "j")
        self.see("4/64")
        self.tmux("send-keys", "G")
        self.see("64/64", "\n    63 ")
        self.tmux("send-keys", "g", "S")
        self.assertIn("!   17 ", self.see("1/64  sort: late"))
        self.tmux("send-keys", "Enter")
        self.see("rank 17 of 64  host node02", "KERNEL of step")
        self.see("page: down (", without=("library: ",))
        self.tmux("send-keys", "NPage", "NPage")
        self.see("rank 17 of 64  host node02", "library: ", "page: up (")
        self.tmux("send-keys", "h")
        self.see("others wait for this rank")
        self.tmux("send-keys", "x")
        self.see("rank 17 of 64  host node02", "page: up (")
        self.tmux("send-keys", "Enter", "/", "node03", "Enter")
        self.see("1/8 ", "filter: node03")
        self.tmux("send-keys", "h")
        self.see("others wait for this rank")
        self.tmux("send-keys", "x")
        self.see("1/8 ")
        job.ranks[25].mfu = 0.77
        job.append(self.run_dir, first=6)
        self.see("77.0")
        shutil.rmtree(self.run_dir)
        deadline = time.monotonic() + DEADLINE_S
        while subprocess.run(["tmux", "-S", str(self.socket), "has-session"], capture_output=True).returncode == 0:
            self.assertLess(time.monotonic(), deadline, "it ends when its directory is gone")
            time.sleep(0.1)

    def test_colours_only_where_they_are_wanted(self):
        fake_ranks.Job(ranks=2, hosts=1).write(self.run_dir)
        self.open(80, 24, "NO_COLOR=1")
        self.see("2 live")
        self.assertNotRegex(self.tmux("capture-pane", "-p", "-e"), r"\x1b\[[0-9;]*[34]8;5;")
        self.assertIn("#MFU", self.tmux("capture-pane", "-p").replace(" ", ""))
        self.tmux("kill-server")
        self.open(80, 24, "TERM=screen-256color")
        self.see("2 live", "█")
        dark = self.tmux("capture-pane", "-p", "-e")
        self.assertRegex(dark, r"\x1b\[[0-9;]*38;5;36m█")  # MFU in the page's green
        self.tmux("send-keys", "t")
        self.see_styled(r"\x1b\[[0-9;]*38;5;29m█")
        self.tmux("send-keys", "t")
        self.see("# MFU")
        self.assertNotRegex(self.tmux("capture-pane", "-p", "-e"), r"38;5;")
        self.tmux("kill-server")
        self.open(80, 24, "TERM=unheard-of", "sh", "-c", '"$@" 2>&1; sleep 30', "sh")
        self.see("TERM=unheard-of: not a terminal that ncurses knows")


class Scale(Top):
    @unittest.skipIf(EMULATED, "an emulator's times mean nothing")
    def test_a_thousand_ranks(self):
        """First merge, and what following them costs: limits are generous, figures are printed."""
        job = fake_ranks.Job(ranks=1000, hosts=125)
        template = fake_ranks.Job(ranks=1, hosts=1)
        self.run_dir.mkdir()
        texts = [json.dumps(template.start_line(template.ranks[0]))]
        texts += [json.dumps(line) for _, line in template.lines(0, 16)]
        text = "\n".join(texts) + "\n"
        for rank in job.ranks:
            own = text.replace('"node00"', f'"{rank.host}"').replace('"rank": 0', f'"rank": {rank.number}').replace(
                '"pid": 1000', f'"pid": {rank.pid}').replace('"world": 1', '"world": 1000')
            (self.run_dir / rank.file).write_text(own)
        begin = time.monotonic()
        found = json.loads(self.top(self.run_dir, "--json"))
        first_s = time.monotonic() - begin
        self.assertEqual(found["job"]["live"], 1000)
        self.assertAlmostEqual(found["job"]["mfu"], 0.4)

        # Under a pseudo-terminal, while every rank writes a window every 10 s, spread evenly.
        import pty
        child, terminal = pty.fork()
        if child == 0:
            os.environ["TERM"] = "xterm"
            os.execv(MFU, [str(MFU), "top", str(self.run_dir)])
        stop = threading.Event()

        def read():
            while True:
                try:
                    if not os.read(terminal, 65536):
                        return
                except OSError:
                    return

        reader = threading.Thread(target=read)
        reader.start()
        window = text.splitlines()[-2:]

        def cpu():
            ticks = pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
            return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

        try:
            time.sleep(2)
            before, begin = cpu(), time.monotonic()
            turn = 0
            while time.monotonic() - begin < 6:
                for rank in job.ranks[turn % 10::10]:  # a tenth of them each second
                    with open(self.run_dir / rank.file, "a") as file:
                        file.write("\n".join(window) + "\n")
                turn += 1
                stop.wait(max(0, begin + turn - time.monotonic()))
            share = (cpu() - before) / (time.monotonic() - begin)
            memory = int(pathlib.Path(f"/proc/{child}/status").read_text().split("VmRSS:")[1].split()[0]) // 1024
        finally:
            os.write(terminal, b"q")
            os.waitpid(child, 0)
            reader.join(10)
            os.close(terminal)
        print(
            f"1,000 ranks of {len(text) // 1024} KB: first merge {first_s:.2f} s, then {100 * share:.1f} % of a core, {memory} MB"
        )
        slack = 10 if SANITIZE else 1
        self.assertLess(first_s, 8 * slack)
        self.assertLess(share, 0.25 * slack)
        self.assertLess(memory, 300 * slack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
