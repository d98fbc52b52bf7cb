"""The command as others use it: what it prints of names, arguments, files and variables, and the files that it leaves."""

import json
import os
import pathlib
import random
import re
import resource
import subprocess
import tempfile
import unittest

from harness import BUILD, DEADLINE_S, GPT2, SANITIZE, SCENARIO, SOURCE, TestCase, main
from outputs_test import CONTROL

MFU = BUILD / "mfu"
RUN = SOURCE / "tests/data/runs/two_ranks"
ROUNDS = int(os.environ.get("MFU_FUZZ_ROUNDS", "6"))
SEED = int(os.environ.get("MFU_FUZZ_SEED", "43"))
# Pieces of hostile texts: control characters, marks that turn text around, line ends before a forged line of the command,
# bytes that are no UTF-8, characters that shells, formats and options read.
FORGED = ("[mfu] FORGED", "mfu report: FORGED", "mfu: FORGED", "next: mfu FORGED", "FORGED")
PIECES = (
    "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\x7f", "\x08\x08\x08", "\r", "\t", "\x0b", "\u202e", "\u2066", "\u200f", "\u2028",
    "\u061c", "\udcff", "\udcc0\udcaf", *("\n" + text for text in FORGED), *("\r" + text for text in FORGED), "a", "step", "=",
    "-", "--json", "%s%n", "{}", "{0}", "'", '"', "$(x)", "`x`", " ", ",", ":", "[", "*", "\\", "\u20ac",
)
H = object()  # where a call has the hostile text


def beside(before, after=""):
    """A word that has the hostile text inside."""
    return before, after


# Each subcommand, with the text at each place that is free. `run`, `trace`, `config` are files that are in order.
CALLS = [
    [H], ["help", H], [beside("--")], [beside("--version=")],
    ["report", H], ["report", beside("--")], ["report", "run", H], ["report", "run", "-o", beside("nowhere/")],
    ["report", "run", "--assert", H], ["report", "run", "--assert", beside("", ".mfu>0")], ["report", "run", "-c", H],
    ["report", "run", "--tensorboard", beside("/dev/null/")], ["report", "trace", "--interval", H],
    ["report", "trace", "--batch", H], ["report", beside("run/", ".jsonl")], ["report", "run", "-o", beside("page")],
    ["report", "run", beside("--json=")],
    ["compare", H, "run"], ["compare", "run", H], ["compare", "run", "run", "--assert", H], ["compare", "run", "run", "-c", H],
    ["top", "--once", H], ["top", "run", "--once", "--filter", H], ["top", "run", "--once", "--sort", H],
    ["top", "run", "--once", "-c", H], ["top", "run", "--once", "--theme", H],
    ["serve", H], ["serve", "run", "--once", "--textfile", beside("nowhere/")], ["serve", "run", "--address", H, "--port", "0"],
    ["serve", "run", "--once", "--textfile", "m.prom", "--job", H], ["serve", "run", "--per-rank", H],
    ["serve", "run", "--port", H], ["replay", H], ["replay", beside("", ".csv")], ["replay", "trace", "--range", H],
    ["replay", "trace", "--kernel", H],
    ["replay", "trace", "--gpu", H], ["replay", "trace", "--run-dir", beside("/dev/null/")], ["replay", "trace", "-c", H],
    ["replay", "trace", "--match", H, "--range", "x"], ["replay", "trace", "--kernel-kind", H],
    ["flops", H], ["flops", "config", "--as", H], ["flops", "config", "--gpu", H], ["flops", "config", "--phase", H],
    ["flops", "config", "--images", H], ["flops", "config", "--dtype", H], ["flops", "config", "--convention", H],
    ["flops", "config", "--seq-lens", H], ["flops", beside('{"model_type": "', '"}')], ["flops", "--kernel", H],
    ["plan", "--flop", H], ["plan", "--params", "7B", "--gpu", H], ["plan", "--params", "7B", "--constants", H],
    ["plan", "--params", "7B", "--gpu", "H100", "--mfu", H], ["plan", "--tokens", H, "--dtype", H],
    ["run", "-c", H, "true"], ["run", "-d", H, "true"], ["run", "--set", H, "true"], ["run", "--cupti", H, "true"],
    ["run", "--cupti", beside("./"), "true"], ["run", "--log", beside("nowhere/"), "true"], ["run", "--log", H, "true"],
    ["run", "--report", beside("nowhere/"), "true"], ["run", "-i", H, "true"], ["run", "--peak-tflops", H, "true"],
    ["run", beside("--"), "true"], ["run", "--keep-going", "-c", H, "-i", H, "true"], ["run", "--no-run-dir", beside("./")],
    ["demo", "--run-dir", beside("/dev/null/")], ["demo", "--seconds", H], ["demo", "--prompt-len", H], ["demo", H],
    ["doctor", H], ["doctor", "--seconds", H], ["verdict", "--minutes", H], ["verdict", "--python", beside("./")], ["verdict", H],
    ["completion", H], ["man", H],
]
VARIABLES = (
    "MFU_MODEL_CONFIG", "MFU_SET", "MFU_INTERVAL", "MFU_RUN_DIR", "MFU_LOG", "MFU_PEAK_TFLOPS", "MFU_PROFILER", "MFU_CUPTI",
    "MFU_TRACE", "MFU_TB_DIR", "MFU_LOG_FORMAT", "MFU_GRAPHS", "MFU_INTERVALL", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH",
    "NVTX_DISABLE", "RANK", "SLURM_JOB_ID", "LD_LIBRARY_PATH", "HF_HOME", "HOME",
)


class Terminals(TestCase):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        (self.directory / "run").mkdir()
        for path in RUN.glob("*.jsonl"):
            (self.directory / "run" / path.name).write_bytes(path.read_bytes())
        self.words = {
            "trace": str(next((SOURCE / "tests/data/traces").glob("*.json.gz"))),
            "config": str(GPT2),
        }
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("MFU_", "CUDA_", "NVTX_", "SLURM_"))}

    def hostile(self, most=6):
        return "".join(self.random.choice(PIECES) for _ in range(self.random.randint(1, most))) + self.random.choice(PIECES[:22])

    def check(self, words, env=None):
        words = [os.fsencode(str(word)) for word in (MFU, *words)]
        done = subprocess.run(words, capture_output=True, timeout=DEADLINE_S, cwd=self.directory, env={**self.env, **(env or {})},
                              stdin=subprocess.DEVNULL)
        self.assertGreaterEqual(done.returncode, 0, "no signal")
        for stream in (done.stdout, done.stderr):
            text = stream.decode().replace("\r\n", "\n")  # CSV's line ends
            plain = text.replace("\n", "")
            met = CONTROL.search(plain)
            self.assertIsNone(met, f"{words} {env}: {met and plain[max(0, met.start() - 80) : met.end() + 20]!r}")
            for line in text.split("\n"):
                self.assertFalse(line.startswith(FORGED), f"{words} {env}: {line!r}")
        return done

    def test_every_word_of_every_subcommand(self):
        for _ in range(ROUNDS):
            for call in CALLS:
                text = self.hostile()
                words = [text if word is H else text.join(word) if isinstance(word, tuple) else self.words.get(word, word)
                         for word in call]
                if words[0] == "run" and words[1] == "--log" and not words[2].startswith("nowhere"):
                    words[2] = "x" + words[2].replace("/", "")
                self.check(words)

    def test_every_variable(self):
        for _ in range(ROUNDS):
            for variable in VARIABLES:
                env = {variable: self.hostile().replace("\0", "")}
                for words in (["doctor"], ["run", "true"], ["run", "--keep-going", "./none"], ["report"], ["top", "--once"]):
                    self.check(words, env)

    def test_files_with_such_names_and_contents(self):
        lines = [json.loads(line) for path in sorted(RUN.glob("*.jsonl")) for line in path.read_text().splitlines()]
        for number in range(2 * ROUNDS):
            text = self.hostile()

            def changed(value, text=text):
                if isinstance(value, dict):
                    return {(changed(k) if self.random.random() < 0.1 else k): changed(v) for k, v in value.items()}
                if isinstance(value, list):
                    return [changed(v) for v in value]
                return text if isinstance(value, str) and self.random.random() < 0.3 else value

            folder = self.directory / (text.replace("/", "") + str(number))
            folder.mkdir()
            name = os.fsencode(text.replace("/", ""))
            good = "\n".join(json.dumps({**changed(line), "type": line["type"]}) for line in lines) + "\n"
            for i, content in enumerate((good, good + '{"v": 1, "type": "' + text + '\n', text, "", json.dumps(text))):
                with open(os.path.join(os.fsencode(folder), name + str(i).encode() + b".jsonl"), "wb") as file:
                    file.write(content.encode(errors="surrogateescape"))
            for form in ((), ("--json",), ("--csv",), ("--markdown",), ("--perfetto",)):
                self.check(["report", folder, *form])
            self.check(["compare", folder, "run"])
            self.check(["compare", folder, "run", "--json"])
            self.check(["compare", folder, "run", "--markdown"])
            self.check(["top", "--once", folder])
            self.check(["top", "--json", folder])
            self.check(["serve", "--once", "--textfile", "m.prom", folder])
            self.check([], {"MFU_RUN_DIR": str(folder)})
            self.check(["top", "--once"], {"MFU_RUN_DIR": re.sub(r"[*?\[\\%]", "?", str(folder))})
            self.check_traces(folder, text)
            self.check_configs(folder, text)

    def check_traces(self, folder, text):
        event = {"ph": "X", "cat": "user_annotation", "name": text, "pid": text, "tid": 1, "ts": 0, "dur": 100}
        kernel = {"ph": "X", "cat": "kernel", "name": text, "pid": 0, "tid": 7, "ts": 20, "dur": 30,
                  "args": {"correlation": 7, "device": 0, "stream": 7}}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": text, "tid": 1, "ts": 5, "dur": 2,
                  "args": {"correlation": 7}}
        config = folder / "rules.json"
        config.write_text(json.dumps({"regions": [{"region": text, "match": ".*"}]}))
        for content in (
            json.dumps({"traceEvents": [event, launch, kernel], "deviceProperties": [{"id": 0, "name": text}]}),
            '{"traceEvents": [' + text,
            "SQLite format 3\0" + text,
        ):
            trace = folder / (text.replace("/", "") + ".json")
            trace.write_bytes(content.encode(errors="surrogateescape"))
            for words in (["replay", trace], ["replay", "--json", trace], ["replay", trace, "--range", "nosuch"],
                          ["replay", "--detect", trace], ["report", trace, "-c", config], ["report", "--json", trace],
                          ["report", "--csv", trace, "-c", config]):
                self.check(words)
        head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        for content in (text, f'{head}"0","{text}","{text}","{text}","1"\n'):
            counters = folder / (text.replace("/", "") + ".csv")
            counters.write_bytes(content.encode(errors="surrogateescape"))
            self.check(["replay", counters])
            self.check(["replay", "--json", counters])

    def check_configs(self, folder, text):
        gpt2 = json.loads(pathlib.Path(GPT2).read_text())
        for content in (
            text,
            json.dumps({**gpt2, "model_type": text}),
            json.dumps({**gpt2, text: text, "n_layer": text}),
            json.dumps({"model": gpt2, text: 1, "workload": {text: text, "phase": text}, "peak": {"dtype": text},
                        "regions": [{"region": text, "match": text, text: text}], "presets": [text]}),
        ):
            config = folder / (text.replace("/", "") + "config.json")
            config.write_bytes(content.encode(errors="surrogateescape"))
            self.check(["flops", config, "--seq-len", "8"])
            self.check(["flops", config, "--seq-len", "8", "--json"])
            self.check(["flops", config, "--markdown", "--seq-len", "8"])
            self.check(["run", "-c", config, "--no-run-dir", "true"])
            self.check(["doctor"], {"MFU_MODEL_CONFIG": str(config)})

    def test_the_next_line_can_be_pasted(self):
        names = ("plain", "with blank", "it's $HOME `x` \"q\"", "-leading", "new\nline", "\x1b[2Jclear", "caf\u00e9")
        for number, name in enumerate(names):
            with self.subTest(name=name):
                run = self.program(
                    [MFU, "run", "-d", f"{number}{name}" if not name.startswith("-") else f"./{name}", SCENARIO, "-c",
                     'kernel gemm_k ns=1000\nrepeat 3 { push "step batch=1 seq_len=8"; launch gemm_k; sync; pop }'],
                    entry="", env={"SIMGPU_TRACE": None},
                )
                self.assertEqual(run.code, 0, run.stderr)
                line = run.log[-1]
                self.assertTrue(line.startswith("next: mfu report "), run.log)
                self.assertIsNone(CONTROL.search(line), line)
                pasted = subprocess.run(["bash", "-c", line.removeprefix("next: ") + " --json"], cwd=run.directory,
                                        timeout=DEADLINE_S, capture_output=True,
                                        env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"})
                self.assertEqual(pasted.returncode, 0, (line, pasted.stderr))
                self.assertEqual(len(json.loads(pasted.stdout)["runs"]), 1)


class Files(TestCase):
    """The page and the other files of a command: whole, or as they were."""

    def mfu(self, *words, **options):
        return subprocess.run([MFU, *map(str, words)], cwd=self.directory, capture_output=True, text=True, timeout=DEADLINE_S,
                              **options)

    def left(self):
        return sorted(path.name for path in self.directory.iterdir())

    def test_a_default_output_follows_no_link(self):
        victim = self.directory / "victim"
        for plant in (lambda at: at.symlink_to("victim"), lambda at: os.link(victim, at), lambda at: at.symlink_to("nowhere"),
                      lambda at: os.mkfifo(at)):
            victim.write_text("precious")
            at = self.directory / "mfu-report.html"
            plant(at)
            done = self.mfu("report", RUN)
            self.assertEqual(victim.read_text(), "precious")
            self.assertIn(done.returncode, (0, 1))
            if done.returncode == 1:
                self.assertEqual(done.stderr, "mfu report: mfu-report.html: is there and is no regular file\n")
            else:
                self.assertIn("<html", at.read_text())
            at.unlink()
            self.assertEqual(self.left(), ["victim"])

    def test_a_guessed_name_beside_it_is_not_followed(self):
        (self.directory / "victim").write_text("precious")
        subprocess.run(["bash", "-c", f"ln -s victim page.html.$$.tmp; exec {MFU} report {RUN} -o page.html"], check=True,
                       cwd=self.directory, stdout=subprocess.DEVNULL, timeout=DEADLINE_S)
        self.assertEqual((self.directory / "victim").read_text(), "precious")
        self.assertEqual(self.left(), ["page.html", "victim"])

    def test_a_name_that_a_person_gave_may_be_a_link_a_pipe_or_a_stream(self):
        (self.directory / "there").mkdir()
        target = self.directory / "there/page.html"
        target.write_text("old")
        (self.directory / "link").symlink_to("there/page.html")
        self.assertEqual(self.mfu("report", RUN, "-o", "link").returncode, 0)
        self.assertIn("<html", target.read_text())
        self.assertTrue((self.directory / "link").is_symlink())
        (self.directory / "dangling").symlink_to("there/new.html")
        self.assertEqual(self.mfu("report", RUN, "-o", "dangling").returncode, 0)
        self.assertIn("<html", (self.directory / "there/new.html").read_text())
        self.assertIn('"runs"', self.mfu("report", RUN, "--json", "-o", "/dev/stdout").stdout)
        self.assertEqual(self.mfu("report", RUN, "--json", "-o", "/dev/null").returncode, 0)
        log = self.directory / "log"
        subprocess.run(["sh", "-c", f"exec >>log; echo before; {MFU} report {RUN} --csv -o /dev/stdout; echo behind"], check=True,
                       cwd=self.directory, timeout=DEADLINE_S)
        lines = log.read_text().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("before", "behind"))

    def test_a_file_keeps_its_mode(self):
        page = self.directory / "page.html"
        self.assertEqual(self.mfu("report", RUN, "-o", page, preexec_fn=lambda: os.umask(0o027)).returncode, 0)
        self.assertEqual(page.stat().st_mode & 0o777, 0o640)
        page.chmod(0o600)
        self.assertEqual(self.mfu("report", RUN, "-o", page).returncode, 0)
        self.assertEqual(page.stat().st_mode & 0o777, 0o600)

    def full(self, page, words, **options):
        """A command that finds no room leaves what was there, and says so."""
        before = page.read_bytes()
        done = self.mfu(*words, **options)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, r"cannot be written: (No space left on device|File too large)")
        self.assertEqual(page.read_bytes(), before)
        self.assertEqual([path.name for path in page.parent.iterdir() if ".tmp" in path.name], [])

    def test_a_full_disk_leaves_the_page_that_was_there(self):
        page = self.directory / "mfu-report.html"
        self.assertEqual(self.mfu("report", RUN).returncode, 0)
        limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))}
        self.full(page, ["report", RUN], **limited)
        for words in (["report", RUN, "-o", page], ["report", RUN, "--json", "-o", page],
                      ["compare", RUN, RUN, "--html", "-o", page]):
            self.full(page, words, **limited)
        metrics = self.directory / "m.prom"
        metrics.write_text("of before")
        self.full(metrics, ["serve", RUN, "--once", "--textfile", metrics], **limited)

    @unittest.skipUnless(os.geteuid() == 0, "mounts a small file system")
    def test_a_small_file_system_that_is_full(self):
        small = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], capture_output=True).returncode != 0:
            self.skipTest("the system mounts nothing")
        self.addCleanup(subprocess.run, ["umount", small])
        page = small / "page.html"
        self.assertEqual(self.mfu("report", RUN, "-o", page).returncode, 0)
        try:
            with open(small / "rest", "wb", buffering=0) as rest:
                while True:
                    rest.write(bytes(4096))
        except OSError:
            pass
        self.full(page, ["report", RUN, "-o", page])

    def test_a_full_stdout_is_an_error(self):
        for words in (["report", RUN, "--json"], ["flops", GPT2, "--seq-len", "8"], ["top", "--once", RUN], ["man"],
                      ["plan", "--params", "7B"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([MFU, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
            self.assertEqual(done.returncode, 1, words)
            self.assertRegex(done.stderr, r"^mfu \w+: stdout: cannot be written")


@unittest.skipIf(SANITIZE, "no figures are compared")
class Places(TestCase):
    def test_run_files_are_found_whatever_the_file_server_s_clock_says(self):
        """They get a time of yesterday or of tomorrow; those of an earlier run stay out."""
        script = 'kernel gemm_k ns=1000\nrepeat 3 { push "step batch=1 seq_len=8"; launch gemm_k; sync; pop }'
        for when in ("yesterday", "tomorrow", "now"):
            with self.subTest(when):
                folder = self.directory / when
                folder.mkdir()
                (folder / "other-0-1.jsonl").write_bytes(next(RUN.glob("*.jsonl")).read_bytes())
                run = self.program(
                    [MFU, "run", "-d", folder, "sh", "-c", f'{SCENARIO} -c "$0"; touch -d {when} "$MFU_RUN_DIR"/*', script],
                    entry="", env={"SIMGPU_TRACE": None})
                self.assertEqual(run.code, 0, run.stderr)
                self.assertTrue(run.log[-1].startswith("next: mfu report "), run.log)
                self.assertFalse([line for line in run.log if line.startswith("ended")], run.log)
                again = self.program([MFU, "run", "-d", folder, "true"], entry="", env={"SIMGPU_TRACE": None})
                self.assertTrue(any(line.startswith("nothing was measured") for line in again.log), again.log)


if __name__ == "__main__":
    main()
