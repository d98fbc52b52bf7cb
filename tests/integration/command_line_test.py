"""The command line of `mfu`: help, exit codes, the program's own words behind `mfu run`, completion in real shells."""

import json
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from harness import BUILD, DEADLINE_S, TestCase, main, unittest

MFU = BUILD / "mfu"
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256}


def mfu(*words, **options):
    return subprocess.run([MFU, *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S, **options)


def commands():
    """The names that `mfu --help` lists: a command that is added later is tested too."""
    listed = mfu("--help").stdout.split("Options:\n")[1].split("\nExamples:\n")[0]
    return [line.split()[0] for line in listed.splitlines() if re.match(r"  \w", line)]


class Help(TestCase):
    def test_every_command_has_examples_that_it_understands_and_exit_codes(self):
        names = commands()
        self.assertIn("run", names)
        self.assertGreaterEqual(len(names), 6)
        for name in [None, *names]:
            with self.subTest(command=name):
                shown = mfu(*filter(None, [name]), "--help")
                self.assertEqual((shown.returncode, shown.stderr), (0, ""))
                self.assertRegex(shown.stdout, r"\nExit codes?: ")
                self.assertEqual([line for line in shown.stdout.splitlines() if len(line) > 80], [])
                self.assertNotRegex(shown.stdout, r"TEXT:|Excludes:|Needs:")
                examples = re.search(r"\nExamples:\n((?:  .*\n)+)", shown.stdout)
                self.assertIsNotNone(examples, shown.stdout)
                for example in examples[1].splitlines():
                    # Up to a pipe, a redirection or the program that `run` starts; `source <(mfu ...)` has one inside.
                    found = re.search(r"\bmfu( [^|)]*)?", example)
                    self.assertIsNotNone(found, example)
                    words = shlex.split(found[0].split(" > ")[0])[1:]
                    self.assertIn(words[0], names, example)
                    if name is not None:
                        self.assertIn(name, words, example)
                        text = mfu(words[0], "--help").stdout
                        for word in words[1:words.index("torchrun") if "torchrun" in words else None]:
                            if word.startswith("-") and word != "--":
                                self.assertRegex(text, rf"(?m)^  (.*,)?{re.escape(word)}[ ,]", example)

    def test_commands_are_grouped_by_what_they_are_for(self):
        titles = re.findall(r"(?m)^(\S.*):$", mfu("--help").stdout)
        self.assertEqual(titles, ["Options", "Measure a program", "Look at what was measured", "Count without a run",
                                  "For the shell", "Examples"])

    def test_the_examples_of_flops_count(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(LLAMA))
            examples = re.search(r"\nExamples:\n((?:  .*\n)+)", mfu("flops", "--help").stdout)[1].splitlines()
            self.assertGreater(len(examples), 3)
            for example in examples:
                with self.subTest(example=example):
                    words = ["config.json" if "/" in word else word for word in shlex.split(example)[1:]]
                    shown = mfu(*words, cwd=folder)
                    self.assertEqual((shown.returncode, shown.stderr), (0, ""))
                    json.loads(mfu(*words, *([] if "--json" in words else ["--json"]), cwd=folder).stdout)
                    page = mfu(*[word for word in words if word != "--json"], "--markdown", cwd=folder)
                    self.assertEqual((page.returncode, page.stderr), (0, ""))
                    has_shape = "--phase" in words or "--kernel" in words
                    self.assertIn("|---" if has_shape else "no shape", page.stdout)

    def test_flops_says_what_a_shape_needs(self):
        shown = mfu("flops", json.dumps(LLAMA))
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertIn("--seq-len", shown.stdout)
        self.assertNotIn("total", shown.stdout)

    def test_other_conventions_are_what_each_counts(self):
        words = ["flops", json.dumps(LLAMA), "--phase", "train", "--batch", 2, "--seq-len", 128, "--json"]
        others = json.loads(mfu(*words).stdout)["other_conventions"]
        self.assertEqual(set(others), {"palm", "nanogpt", "torchtitan", "torchtitan-2026", "megatron", "kaplan", "chinchilla",
                                       "6nd"})
        for name, total in others.items():
            self.assertEqual(json.loads(mfu(*words, "--convention", name).stdout)["flop"]["total"], total)

    def test_a_wrong_command_line_exits_with_2_and_says_why(self):
        for words, said in [([], "Measure a program:"), (["repot", "x"], "did you mean report?"), (["nonsense"], "nonsense"),
                            (["plan", "--flopp", "1"], "--flopp: no such option; did you mean --flop?"),
                            (["plan", "--beauty"], "--beauty: no such option\n"),
                            (["compare", "a"], "expected B, that of after, got nothing"),
                            (["top", "--sort", "mf"], '--sort: expected rank, mfu, mbu, step, busy, comm, clock, dropped, cost '
                                                      'or late, got "mf"'),
                            (["serve", "--per-rank", "some"], '--per-rank: expected auto, all, mfu or none, got "some"'),
                            (["replay", "--peak-tflops", "0", "x"], '--peak-tflops: expected a number above 0, got "0"'),
                            (["run"], "no program"), (["run", "--"], "no program"), (["run", "-c"], "--config"),
                            (["run", "--intervall", "5", "echo", "x"], "--intervall"),
                            (["run", "--profiler", "both", "echo"], "both"),
                            (["report", "-o"], "--output: expected FILE, got nothing"),
                            (["completion", "tcsh"], 'expected bash, zsh or fish, got "tcsh"')]:
            with self.subTest(words=words):
                done = mfu(*words)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(said, done.stderr)

    def test_the_manual_page_has_every_command_and_option(self):
        page = mfu("man").stdout.replace("\\-", "-")
        self.assertTrue(page.startswith(".TH MFU 1 "))
        for name in commands():
            self.assertIn(f"\n.SS mfu {name}\n", page)
            for option in re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", mfu(name, "--help").stdout):
                if option != "--help":
                    self.assertIn(f"\\fB{option}\\fR", page)
        if shutil.which("man"):
            shown = subprocess.run(["man", "--warnings", "-l", "-"], input=mfu("man").stdout, capture_output=True, text=True,
                                   env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "100"})
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))

    def test_words_that_people_try_first(self):
        self.assertEqual(mfu("help", "run").stdout, mfu("run", "--help").stdout)
        self.assertEqual(mfu("version").stdout, mfu("--version").stdout)

    def test_version(self):
        shown = mfu("--version")
        self.assertEqual(shown.returncode, 0)
        self.assertRegex(shown.stdout, r"^\d+\.\d+\.\d+( \([0-9a-f]{12}(-dirty)?\))?\n$")


class Run(TestCase):
    def words_after(self, *words):
        """What a program that prints its arguments is given."""
        show = [sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))"]
        done = mfu("run", "--no-run-dir", *[w for word in words for w in (show if word is PROGRAM else [word])])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def test_the_program_gets_its_words_as_they_are(self):
        own = ["-c", "x", "--help", "--version", "--interval", "3", "--", "-i", "run", "plan", "--json", "", "a b", "-"]
        expected = str(own).replace("'", '"')
        for ours in (
            [],
            ["--"],
            ["-i", "5"],
            ["-i5", "--all-ranks"],
            ["--interval=5", "--"],
            ["--log", "none", "--set", "workload.batch=1", "--"],
        ):
            with self.subTest(ours=ours):
                self.assertEqual(self.words_after(*ours, PROGRAM, *own), expected)

    def test_a_program_named_like_a_command(self):
        program = self.directory / "plan"
        program.write_text("#!/bin/sh\necho mine $1\n")
        program.chmod(0o755)
        done = mfu("run", "--no-run-dir", "plan", "--flop", env={**os.environ, "PATH": f"{self.directory}:{os.environ['PATH']}"})
        self.assertEqual((done.returncode, done.stdout), (0, "mine --flop\n"))

    def test_exit_codes(self):
        for words, code in ((["sh", "-c", "exit 7"], 7), (["/nonexistent"], 127), ([self.directory], 126),
                            (["sh", "-c", "kill -TERM $$"], -15)):
            with self.subTest(words=words):
                self.assertEqual(mfu("run", "--no-run-dir", *words).returncode, code)

    def test_ranks_that_each_run_mfu_share_a_run_directory(self):
        script = f'for rank in 0 1 2; do RANK_OF_LAUNCHER=$rank {shlex.quote(str(MFU))} run sh -c "echo \\$MFU_RUN_DIR"; done'
        base = {k: v for k, v in os.environ.items()
                if not re.match(r"MFU_|SLURM_|OMPI_|PMIX_|PMI_|FLUX_|RANK|WORLD_SIZE|LOCAL_RANK", k)}
        batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "12"}  # a script that is no task of a step
        for variables, name in ((("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {}), r"ranks-of-\d+-\d+"),
                                (("PMI_RANK", "PMI_SIZE", {}), r"ranks-of-\d+-\d+"),
                                (("PMIX_RANK", "PMIX_SIZE", {"PMIX_NAMESPACE": "prte/host-1@1"}), r"mpi-prte_host-1@1"),
                                (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"PMIX_NAMESPACE": "7", **batch}), r"mpi-7"),
                                (("FLUX_TASK_RANK", "FLUX_JOB_SIZE", {"FLUX_JOB_ID": "f2Vd"}), r"flux-f2Vd"),
                                (("SLURM_PROCID", "SLURM_NTASKS", {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}), r"slurm-12\.3")):
            with self.subTest(variables=variables):
                rank, world, more = variables
                done = subprocess.run(["sh", "-c", script.replace("RANK_OF_LAUNCHER", rank)], cwd=self.directory, text=True,
                                      capture_output=True, env={**base, world: "3", **more}, timeout=DEADLINE_S)
                directories = done.stdout.splitlines()
                self.assertEqual(len(directories), 3, done)
                self.assertEqual(len(set(directories)), 1, directories)
                self.assertRegex(directories[0], rf"/mfu-runs/{name}$")
                said = done.stderr.splitlines()  # by rank 0 alone
                self.assertEqual(len(said), 3, said)  # the last names the file that a container would need
                self.assertTrue(said[0].endswith(f"; run directory mfu-runs/{pathlib.Path(directories[0]).name}"), said)
                self.assertTrue(said[1].startswith("[mfu] nothing was measured"), said)
        # One process, or a batch script: a directory of its own each time.
        for more in ({}, batch):
            said = {
                mfu("run", "sh", "-c", "echo $MFU_RUN_DIR", cwd=self.directory, env={**base, **more}).stdout for _ in range(2)
            }
            self.assertEqual(len(said), 2, said)


PROGRAM = object()

# A line to complete, what must be offered, and what must not. The last word is what is completed.
CASES = [
    ("mfu ", ["run", "flops", "doctor", "completion"], ["--help"]),
    ("mfu re", ["replay"], ["run"]),
    ("mfu run --pro", ["--profiler"], ["--peak-gbps"]),
    ("mfu run --profiler ", ["own", "share"], ["--help"]),
    ("mfu flops --phase ", ["train", "prefill", "decode"], ["bash"]),
    ("mfu completion ", ["bash", "zsh", "fish"], ["train"]),
    ("mfu replay tra", ["trace.json"], ["other.txt"]),
    ("mfu run -c con", ["config.json"], ["other.txt"]),
    ("mfu run mfu-test-prog", ["mfu-test-program"], []),
    ("mfu run -i 5 --all-ranks mfu-test-prog", ["mfu-test-program"], []),
    ("mfu run mfu-test-program oth", ["other.txt"], []),
    ("mfu run -- mfu-test-program oth", ["other.txt"], []),
]


class Completion(TestCase):
    def setUp(self):
        super().setUp()
        for name in ("trace.json", "config.json", "other.txt"):
            (self.directory / name).touch()
        programs = self.directory / "bin"
        programs.mkdir()
        (programs / "mfu").symlink_to(MFU)
        (programs / "mfu-test-program").write_text("#!/bin/sh\n")
        (programs / "mfu-test-program").chmod(0o755)
        self.env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(self.directory),
                    "ZDOTDIR": str(self.directory), "TERM": "dumb", "HITS": str(self.directory / "hits"),
                    "XDG_CONFIG_HOME": str(self.directory / "xdg"), "XDG_DATA_HOME": str(self.directory / "xdg")}

    def assert_offers(self, offers, cases=None):
        for line, wanted, unwanted in cases or CASES:
            with self.subTest(line=line):
                offered = offers(line)
                for word in wanted:
                    self.assertIn(word, offered)
                for word in unwanted:
                    self.assertNotIn(word, offered)

    def offers_of_every_option(self, offers):
        """Every option that a command's help shows is offered for it."""
        for name in commands():
            with self.subTest(command=name):
                shown = re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", mfu(name, "--help").stdout)
                self.assertLessEqual(set(shown), set(offers(f"mfu {name} --")))

    def bash(self, line):
        words = line.split(" ")
        script = (
            'source <(mfu completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mfu; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", *words], cwd=self.directory, env=self.env, text=True,
                              capture_output=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split("\n")

    def test_bash(self):
        self.assert_offers(self.bash)
        self.offers_of_every_option(self.bash)
        # As bash splits `--option=value`.
        self.assert_offers(
            self.bash,
            [
                ("mfu run --profiler =", ["own", "share"], []),
                ("mfu run --profiler = sh", ["share"], ["own"]),
                ("mfu run --profiler = own mfu-test-prog", ["mfu-test-program"], []),
            ],
        )

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed: tools/install-deps --tests does it")
    def test_fish(self):
        def fish(line):
            done = subprocess.run(["fish", "--no-config", "-c", f"mfu completion fish | source; complete -C {shlex.quote(line)}"],
                                  cwd=self.directory, env=self.env, text=True, capture_output=True, timeout=DEADLINE_S)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [offer.split("\t")[0] for offer in done.stdout.splitlines()]

        self.assert_offers(fish)
        self.offers_of_every_option(fish)

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed: tools/install-deps --tests does it")
    def test_zsh(self):
        # zsh completes in an interactive shell only: one on a terminal of our own, which notes what would be offered.
        (self.directory / ".zshrc").write_text("""
            PS1=; autoload -Uz compinit; compinit -u -D; source <(mfu completion zsh)
            compadd() {
              local -a hits
              [[ " $* " == *" -"[OAD]" "* ]] || { builtin compadd -A hits "$@"; print -l -- $hits >>$HITS }
              builtin compadd "$@"
            }
            # One key completes, says that it is done, and clears the line for the next question.
            ask() { zle complete-word; print done >>$HITS; zle kill-whole-line }
            zle -N ask; bindkey '^I' ask
            zle-line-init() { print ready >>$HITS }
            zle -N zle-line-init
        """)
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.directory)
            os.execvpe("zsh", ["zsh", "-d", "-i"], self.env)
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, 9)
        hits = pathlib.Path(self.env["HITS"])

        def wait_for(word):
            until = time.monotonic() + DEADLINE_S
            shown = b""
            while time.monotonic() < until:
                if select.select([terminal], [], [], 0.02)[0]:
                    shown += os.read(terminal, 65536)
                lines = hits.read_text().splitlines() if hits.exists() else []
                if word in lines:
                    return lines
            self.fail(f"zsh never said {word}: {shown[-2000:]!r}")

        wait_for("ready")

        def zsh(line):
            hits.write_text("")
            os.write(terminal, line.encode() + b"\t")
            return wait_for("done")

        self.assert_offers(zsh)
        self.offers_of_every_option(zsh)


if __name__ == "__main__":
    main()
