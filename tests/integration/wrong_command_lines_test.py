"""Wrong command lines of every subcommand, as people type them: 2 and one line that names the place, the value and what was
expected, with nothing on stdout. 1 where the words are right and what they name cannot be read, written or worked out.
"""

import json
import re
import subprocess

from harness import BUILD, DEADLINE_S, GPT2, SOURCE, TestCase, main

MFU = BUILD / "mfu"
TRACE = SOURCE / "tests/data/traces/kineto_resnet50_v100_w0.json.gz"
RUN_SCRIPT = 'kernel gemm_step ns=200000\nrepeat 20 { push "step batch=2 seq_len=64"; launch gemm_step count=4; sync; pop }'

# Exit code, words behind the command, what stderr says (an expression). G: a config, T: a trace, R: a run directory.
# The folder that they run in has: folder/ (empty), empty.json, cut.json (breaks off), list.json ([1]), noise.bin and words.txt.
CASES = {
    "flops": [
        (2, "", "CONFIG: expected a config file.*got nothing"),
        (2, "--nope", "--nope: no such option"),
        (2, "-x", "-x: no such option"),
        (2, "G --phasee train", "--phasee: no such option; did you mean --phase"),
        (2, "G G", 'expected no further argument, got ".*gpt2.json"'),
        (2, "G --phase", "--phase: expected train, prefill or decode, got nothing"),
        (2, "G --phase trian", '--phase: expected train, prefill or decode, got "trian"'),
        (2, "G --gpu= --seq-len 8", "--gpu: expected GPU, got nothing"),
        (2, "G --json=3", '--json: expected no value, got "3"'),
        (2, "G --json --markdown", "one of --json and --markdown"),
        (2, "G --batch abc", '--batch: expected a whole number 1 or more, got "abc"'),
        (2, "G --batch 1e3", '--batch: expected a whole number .* got "1e3"'),
        (2, "G --batch nan", '--batch: expected a whole number .* got "nan"'),
        (2, "G --batch -1", '--batch: expected .* got "-1"'),
        (2, "G --batch 0", '--batch: expected .* got "0"'),
        (2, "G --batch 99999999999999999999", "--batch: expected a whole number"),
        (2, "G --seq-lens 1,x", '--seq-lens: expected a whole number .* got "x"'),
        (2, "G --phase prefill --seq-lens 1,2 --contexts 1", "--contexts: expected 2 values, one per --seq-lens, got 1"),
        (2, "G --phase decode", "--context: expected the tokens already in the cache"),
        (2, "G --phase prefill", "--seq-len: expected new tokens per sequence"),
        (2, "G --context 5 --phase train --seq-len 8", "--context: a training step has no cached tokens"),
        (2, "G --encoder-len 3", "--encoder-len: model_type gpt2 has no encoder"),
        (2, "G --convention mine", '--convention: expected exact, .* or 6nd, got "mine"'),
        (2, "G --dtype bf17", '--dtype: expected a number format .* got "bf17"'),
        (2, "G --weight-dtype xx", '--weight-dtype: expected a number format .* got "xx"'),
        (2, "G --images 3xx", '--images: expected HEIGHTxWIDTH in pixels, .* got "3xx"'),
        (2, "G --images 0x0", '--images: expected HEIGHTxWIDTH in pixels, .* got "0x0"'),
        (2, "G --seq-len 8 --gpu TNT", '--gpu: expected a known GPU, got "TNT"; nearest: '),
        (2, "G --as nope", '--as: expected a model type, got "nope"; nearest: '),
        (2, "G --kernel foo", '--kernel: expected flash_fwd, .* or gemm, got "foo"'),
        (2, "G --kernel qkv", "--kernel qkv: expected a shape"),
        (2, "--kernel gemm", "--kernel gemm: expected --m, --n and --k"),
        (2, "--kernel gemm --m 0 --n 1 --k 1", '--m: expected a whole number .* got "0"'),
        (1, "none.json", "none.json: expected a config file"),
        (1, "folder", "folder: expected a folder that holds config.json"),
        (1, "empty.json", "empty.json: expected a JSON object, but it is empty"),
        (1, "cut.json", "cut.json: expected a JSON object, got text that is not valid JSON near line"),
        (1, "list.json", "list.json: expected a JSON object, got a list"),
        (1, "noise.bin", "noise.bin: expected "),
        (1, "G --seq-len 1000000000000 --batch 1000000000000", "beyond 2\\^64"),
    ],
    "verdict": [
        (2, "x", 'expected no further argument, got "x"'),
        (2, "--minutes 0", '--minutes: expected a number from 0.1 to 600, got "0"'),
        (2, "--only nonsense", "argument --only: invalid choice: 'nonsense' .*"),
    ],
    "plan": [
        (2, "", "expected --flop, --params or --tokens"),
        (2, "x", 'expected no further argument, got "x"'),
        (2, "--flopp 1", "--flopp: no such option; did you mean --flop"),
        (2, "--flop", "--flop: expected NUMBER, got nothing"),
        (2, "--flop x", '--flop: expected a number such as 7e9, 7B or 1.4T, got "x"'),
        (2, "--flop nan", '--flop: expected a number .* got "nan"'),
        (2, "--flop -1", '--flop: expected a number of 1 or more, got "-1"'),
        (2, "--flop 0", '--flop: expected a number of 1 or more, got "0"'),
        (2, "--flop 1e400", '--flop: expected a number .* got "1e400"'),
        (2, "--params 7X", '--params: expected a number .* got "7X"'),
        (2, "--flop 1e24 --params 7B --tokens 1T", "at most two of --flop, --params and --tokens"),
        (2, "--flop 1e24 --gpu TNT --mfu 0.4", '--gpu: expected a known GPU, got "TNT"; nearest: '),
        (2, "--flop 1e24 --gpu H100", "--mfu: expected the MFU that the days are for"),
        (2, "--flop 1e24 --mfu 0.4", "--gpu: expected the GPU that the days are for"),
        (2, "--flop 1e24 --mfu fast", '--mfu: expected a share .* got "fast"'),
        (2, "--flop 1e24 --gpu H100 --mfu 40", '--mfu: expected a share .* got "40"'),
        (2, "--flop 1e24 --gpu H100 --mfu nan", '--mfu: expected a share .* got "nan"'),
        (2, "--flop 1e24 --gpu H100 --mfu 0.4 --gpus nan", '--gpus: expected a whole number .* got "nan"'),
        (2, "--flop 1e24 --gpu H100 --mfu 0.4 --gpus 1.5", '--gpus: expected a whole number .* got "1.5"'),
        (2, "--flop 1e24 --gpu H100 --mfu 0.4 --gpus 0", '--gpus: expected a whole number .* got "0"'),
        (2, "--flop 1e24 --dtype foo", '--dtype: expected a number format .* got "foo"'),
        (2, "--flop 1e24 --constants mine", '--constants: expected hoffmann or refit, got "mine"'),
        (2, "--flop 1e24 --alpha 0", '--alpha: expected a number from 0.01 to 10, got "0"'),
        (2, "--flop 1e24 --alpha 1e300", '--alpha: expected a number from 0.01 to 10, got "1e300"'),
        (2, "--flop 1e24 --alpha nan", '--alpha: expected a number from 0.01 to 10, got "nan"'),
        (2, "--flop 1e24 --e nan", '--e: expected a number from 0 to 100, got "nan"'),
        (2, "--flop 1e24 --a inf", '--a: expected a number above 0, got "inf"'),
        (1, "--flop 10", "no plan: "),
    ],
    "replay": [
        (2, "", "expected trace, trace files, .* got nothing"),
        (2, "--nope T", "--nope: no such option"),
        (2, "T -i", "--interval: expected SECONDS, got nothing"),
        (2, "T -i abc", '--interval: expected a number above 0, got "abc"'),
        (2, "T -i 0", '--interval: expected a number above 0, got "0"'),
        (2, "T -i nan", '--interval: expected a number above 0, got "nan"'),
        (2, "T --gpu TNT", '--gpu: expected a known GPU, got "TNT"; nearest: .*or give --peak-tflops'),
        (2, "T --peak-tflops nan", '--peak-tflops: expected a number above 0, got "nan"'),
        (2, "T --peak-tflops -1", '--peak-tflops: expected a number above 0, got "-1"'),
        (2, "T --range x --flop nan", '--flop: expected a number 0 or more, got "nan"'),
        (2, "T --range ProfilerStep --nth 0", '--nth: expected a whole number 1 or more, got "0"'),
        (2, "T --range ProfilerStep --device -1", '--device: expected a whole number 0 or more, got "-1"'),
        (2, "T --kernel (", r'--kernel: expected a regular expression, got "\(": .*character 1'),
        (2, "T --kernel a --kernel-kind foo", '--kernel-kind: expected .* or gemm, got "foo"'),
        (2, "T --kernel a --kernel-kind gemm", "--kernel-kind gemm: expected --m, --n and --k"),
        (2, "T --kernel a --kernel-kind qkv", "--kernel-kind qkv: expected a model: name it with --config"),
        (2, "T --kernel a --kernel-per pass", "--kernel-per pass: expected --range"),
        (2, "T --kernel-kind gemm", "--kernel-kind requires --kernel"),
        (2, "T --match exact", "--match requires --range"),
        (2, "T --nth 3", "--nth: expected --range or --kernel beside it"),
        (2, "T --gpus 2", "--gpus: expected --range or --kernel beside it"),
        (2, "T --phase train", "--phase: expected --range or --kernel beside it"),
        (2, "T --phase trian", '--phase: expected train, prefill or decode, got "trian"'),
        (2, "T --m 5", "--m, --n, --k: expected --kernel-kind gemm"),
        (2, "T --explain", "--explain requires --detect"),
        (1, "none.json", "none.json: cannot be opened: No such file"),
        (1, "folder", "folder: holds no trace"),
        (1, "empty.json", "empty.json: is empty"),
        (1, "cut.json", "cut.json: breaks off"),
        (1, "noise.bin", "noise.bin: byte 0: found "),
        (1, "T --range nosuch", 'no range contains "nosuch"; nearest: '),
        (1, "T --range ProfilerStep --nth 99", '--nth 99: "ProfilerStep" occurs 6 times'),
        (1, "T --range ProfilerStep --device 7", "--device 7: no work on it; devices here: 0"),
        (1, "T -c none.json", "none.json: expected a config file"),
        (1, "T --run-dir /proc/x", "/proc/x/.*: cannot be opened"),
    ],
    "report": [
        (2, "--nope", "--nope: no such option"),
        (2, "R --jsonn", "--jsonn: no such option; did you mean --json"),
        (2, "R R R", "one run at a time; the ranks of one job"),
        (2, "R --json --csv", "one of --json, --csv, --perfetto and --markdown at a time"),
        (2, "R -o", "--output: expected FILE, got nothing"),
        (2, "R --assert", "--assert: expected BOUND, got nothing"),
        (2, "R --assert x", "--assert 'x': .*expected REGION.FIGURE>=NUMBER"),
        (2, "R --assert step.nope>=0", "'step.nope' ends in no figure; there are instances, "),
        (2, "R --assert nope.mfu>=0", "no region 'nope'; there are step, total"),
        (2, "R --assert step.mfu>=nan", "'nan' is no number"),
        (2, "R --assert step.mfu=>0.4", "'=' is no comparison"),
        (2, "T -i abc", '--interval: expected a number above 0, got "abc"'),
        (1, "R -c none.json", "none.json: expected a config file"),
        (2, "R --batch 8", "--batch, --seq-len, --context: expected --config beside them"),
        (2, "R -i 2", "--interval: is for traces, and .* is the directory of a run"),
        (2, "T -i -1", '--interval: expected a number above 0, got "-1"'),
        (2, "R R", "one run at a time; to compare two: mfu compare "),
        (2, "R R --csv", "one run at a time; to compare two: mfu compare "),
        (1, "", "no run directory: name one"),
        (1, "none", "none: no such file or directory"),
        (1, "folder", "folder: holds neither files of a run"),
        (1, "empty.json", "empty.json: is empty"),
        (1, "noise.bin", "noise.bin: byte 0: found "),
        (1, "T -c none.json", "none.json: expected a config file"),
        (1, "R -o folder", "folder: cannot be written: Is a directory"),
        (1, "R -o /proc/x", "/proc/x: cannot be written"),
        (1, "R --tensorboard /proc/x", "/proc/x/.*: cannot be opened"),
    ],
    "compare": [
        (2, "", "expected A, run directory or trace of before, got nothing"),
        (2, "R", "expected B, that of after, got nothing"),
        (1, "R R -c none.json", "none.json: expected a config file"),
        (2, "R R R", 'expected no further argument, got ".*run"'),
        (2, "--nope", "--nope: no such option"),
        (2, "R R --json --markdown", "one of --json, --markdown and --html at a time"),
        (2, "R R -o", "--output: expected FILE, got nothing"),
        (2, "R R --assert x", "--assert 'x': "),
        (2, "R R --assert nope.mfu>=0", "no region 'nope'; there are step, total"),
        (2, "R R --assert step.mfu>=nan", "'nan' is no number"),
        (2, "T T -i abc", '--interval: expected a number above 0, got "abc"'),
        (2, "R R -i 0", '--interval: expected a number above 0, got "0"'),
        (1, "R none", "none: no such file or directory"),
        (1, "R folder", "folder: holds neither files of a run"),
        (1, "R empty.json", "empty.json: is empty"),
        (1, "R noise.bin", "noise.bin: byte 0"),
        (1, "T T -c none.json", "none.json: expected a config file"),
        (1, "R R -o /proc/x", "/proc/x: cannot be written"),
    ],
    "serve": [
        (2, "--nope", "--nope: no such option"),
        (2, "R -p", "--port: expected N, got nothing"),
        (2, "R -p abc", '--port: expected a whole number from 0 to 65535, got "abc"'),
        (2, "R -p -1", '--port: expected .* got "-1"'),
        (2, "R -p 70000", '--port: expected .* got "70000"'),
        (2, "R -p 1.5", '--port: expected .* got "1.5"'),
        (2, "R --once", "--once requires --textfile"),
        (2, "R --every 5", "--every requires --textfile"),
        (2, "R --textfile x --every 0", '--every: expected a number from 0.1 to 86400, got "0"'),
        (2, "R --textfile x --every nan --once", '--every: expected a number from 0.1 to 86400, got "nan"'),
        (2, "R --textfile x --once --port 5", "--textfile excludes --port|--port excludes --textfile"),
        (2, "R --per-rank", "--per-rank: expected auto, all, mfu or none, got nothing"),
        (2, "R --per-rank some", '--per-rank: expected auto, all, mfu or none, got "some"'),
        (2, "R --textfile x --once --job=", "--job: expected a value, got nothing"),
        (1, "", "no run directory: name one"),
        (1, "none", "none: no such file or directory"),
        (1, "R -p 0 --address nonsense", "nonsense:0: cannot listen there"),
        (1, "noise.bin --textfile x --once", "noise.bin: no line yet"),
        (1, "R --textfile folder --once", "folder: is there and is no regular file"),
        (1, "R --textfile /proc/x --once", "/proc/x: cannot be written"),
    ],
    "advise": [
        (2, "--nope", "--nope: no such option"),
        (2, "R R", "one run at a time; to compare two: mfu compare "),
        (2, "R R R", "one run at a time; the ranks of one job"),
        (2, "R --json=3", '--json: expected no value, got "3"'),
        (2, "R -i 5", "--interval: is for traces"),
        (2, "T --batch 8", "--batch, --seq-len, --context: expected --config beside them"),
        (1, "", "no run directory: name one"),
        (1, "none", "none: no such file or directory"),
        (1, "cut.json", "cut.json: breaks off"),
        (1, "T -c none.json", "none.json: expected a config file"),
    ],
    "top": [
        (2, "--nope", "--nope: no such option"),
        (2, "R --sort", "--sort: expected rank, .* or late, got nothing"),
        (2, "R --sort foo", '--sort: expected rank, mfu, .* or late, got "foo"'),
        (2, "R --filter mfuu<35", "filter: no key 'mfuu', did you mean mfu"),
        (2, "R --filter mfu<<35", "filter: mfu: expected a percentage such as 35, got '<35'"),
        (2, "R --filter mfu<x", "filter: mfu: expected a percentage .* got 'x'"),
        (2, "R --theme blue", '--theme: expected dark, light or none, got "blue"'),
        (2, "R --refresh 0", '--refresh: expected a number from 0.1 to 3600, got "0"'),
        (2, "R --refresh nan", '--refresh: expected a number from 0.1 to 3600, got "nan"'),
        (2, "R --refresh abc", '--refresh: expected a number .* got "abc"'),
        (2, "R --refresh 1e9", '--refresh: expected .* got "1e9"'),
        (2, "R --once=maybe", '--once: expected no value, got "maybe"'),
        (1, "", "no run directory: name one"),
        (1, "none", "none: no such file or directory"),
    ],
    "demo": [
        (2, "x", 'expected no further argument, got "x"'),
        (2, "--nope", "--nope: no such option"),
        (2, "--seconds", "--seconds: expected NUMBER, got nothing"),
        (2, "--seconds 0", '--seconds: expected a number above 0, got "0"'),
        (2, "--seconds nan", '--seconds: expected a number .* got "nan"'),
        (2, "--seconds -1", '--seconds: expected a number above 0, got "-1"'),
        (2, "--seconds 1e9", '--seconds: expected a number above 0.* got "1e9"'),
        (2, "--interval inf", '--interval: expected a number .* got "inf"'),
        (2, "--train-batch 0", '--train-batch: expected a whole number from 1 to 1048576, got "0"'),
        (2, "--train-batch 1.5", '--train-batch: expected a whole number .* got "1.5"'),
        (2, "--train-seq-len 100", '--train-seq-len: expected a multiple of 64, got "100"'),
        (2, "--train-seq-len 64x", '--train-seq-len: expected a multiple of 64, got "64x"'),
        (2, "--serve-batch 17", '--serve-batch: expected a whole number from 1 to 16, got "17"'),
        (2, "--prompt-len -64", '--prompt-len: expected a multiple of 64, got "-64"'),
        (2, "--new-tokens -5", '--new-tokens: expected a whole number .* got "-5"'),
        (2, "--run-dir", "--run-dir: expected DIR, got nothing"),
        (2, "--run-dir words.txt", "--run-dir .*words.txt: .* is a file, expected a folder"),
        (2, "--run-dir /proc/x", "--run-dir /proc/x: cannot be written"),
    ],
    "doctor": [
        (2, "x", 'expected no further argument, got "x"'),
        (2, "--nope", "--nope: no such option"),
    ],
    "collect": [
        (2, "", "expected --to, the directory .* got nothing"),
        (2, "run --to", "--to: expected DIR, got nothing"),
        (2, "run --to out --every 0", "--every: expected a number from 0.1 to 86400, got \"0\""),
        (1, "nowhere --to out", "nowhere: no such "),
        (2, "run --to run", "--to run: is where the files are"),
    ],
    "completion": [
        (2, "", "expected shell, the shell, got nothing"),
        (2, "tcsh", 'shell: expected bash, zsh or fish, got "tcsh"'),
        (2, "bash zsh", 'expected no further argument, got "zsh"'),
        (2, "--nope", "--nope: no such option"),
    ],
    "man": [
        (2, "x", 'expected no further argument, got "x"'),
        (2, "--nope", "--nope: no such option"),
    ],
    "run": [
        (2, "", "no program to run"),
        (2, "--", "no program to run"),
        (2, "-d true", "no program to run"),
        (2, "-c", "--config: expected PATH, got nothing"),
        (2, "--nope true", "--nope: no such option"),
        (2, "-x true", "-x: no such option"),
        (2, "--interval= true", "--interval: expected SECONDS, got nothing"),
        (2, "--no-run-dir=3 true", '--no-run-dir: expected no value, got "3"'),
        (2, "--no-run-dir -d x true", "--(no-run-dir|run-dir) excludes --(no-run-dir|run-dir)"),
        (2, "-c none.json true", "--config none.json: expected a config file"),
        (2, "-c folder true", "--config .*folder: expected a folder that holds config.json"),
        (2, "-c empty.json true", "--config .*empty.json: expected a JSON object, but it is empty"),
        (2, "-c cut.json true", "--config .*cut.json: expected a JSON object, got text that is not valid JSON"),
        (2, "-c noise.bin true", "--config .*noise.bin: expected "),
        (2, "-i abc true", '--interval: expected seconds .* got "abc"'),
        (2, "-i nan true", '--interval: expected seconds .* got "nan"'),
        (2, "-i 1e9 true", '--interval: expected seconds .* got "1e9"'),
        (2, "-i5x true", '--interval: expected seconds .* got "5x"'),
        (2, "--every 0 true", '--every: expected a number of windows from 1 on, got "0"'),
        (2, "--every nan true", '--every: expected .* got "nan"'),
        (2, "--log-format xml true", '--log-format: expected text or json, got "xml"'),
        (2, "--log folder true", "--log .*folder: cannot be written: Is a directory"),
        (2, "--set foo true", '--set: expected key=value .* got "foo"'),
        (2, "--set workload.batch=-1 true", "--set: workload.batch: expected an integer from 1 .* got -1"),
        (2, "--peak-tflops nan true", '--peak-tflops: expected a number above 0, .* got "nan"'),
        (2, "--peak-gbps inf true", '--peak-gbps: expected a number above 0, .* got "inf"'),
        (2, "--profiler both true", '--profiler: expected own or share, got "both"'),
        (2, "--cupti folder true", "--cupti folder: is a folder, expected the library's file"),
        (2, "--cupti ./none true", r"--cupti \./none: No such file"),
        (2, "-d words.txt true", "--run-dir .*words.txt: .* is a file, expected a folder"),
        (2, "--report folder true", "--report folder: cannot be written: Is a directory"),
        (126, "./noise.bin", "./noise.bin: Permission denied"),
        (127, "none", "none: No such file or directory"),
    ],
}
OF_NO_COMMAND = [
    (["--nope"], "--nope: no such option"),
    (["-x"], "-x: no such option"),
    (["repot"], 'no command "repot"; did you mean report'),
    (["help", "repot"], 'no command "repot"; did you mean report'),
    (["--", "run"], 'expected a command, got "--"'),
    (["--version=3"], "--version: expected no value"),
]


class WrongCommandLines(TestCase):
    def setUp(self):
        super().setUp()
        self.place = self.directory / "here"
        (self.place / "folder").mkdir(parents=True)
        for name, content in (("empty.json", b""), ("cut.json", b'{"model_type":'), ("list.json", b"[1]"),
                              ("noise.bin", bytes(range(128, 256)) * 8), ("words.txt", b"words\n")):
            (self.place / name).write_bytes(content)

    def call(self, *words):
        environment = self.environment(self.directory, [], None, None, {})
        return subprocess.run([MFU, *map(str, words)], cwd=self.place, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=DEADLINE_S)

    def check(self, command):
        names = {"G": GPT2, "T": TRACE, "R": self.directory / "run"}
        if any("R" in words.split() for _, words, _ in CASES[command]):
            self.scenario(RUN_SCRIPT)
            names["R"] = self.directory / "1" / "run"
        before = sorted(self.place.rglob("*"))
        for code, words, said in CASES[command]:
            with self.subTest(command=f"mfu {command} {words}"):
                done = self.call(command, *[names.get(word, word) for word in words.split()])
                self.assertEqual(done.returncode, code, done.stderr)
                lines = [line for line in done.stderr.splitlines()
                         if not re.match(r"\[mfu\] |mfu [a-z]+ --help lists|mfu run: nothing was started", line)]
                self.assertEqual(len(lines), 1, done.stderr)
                self.assertRegex(lines[0], rf"^mfu {command}: (.*[ :])?({said})")
                # What a run holds is known only when it was read; all else is said before anything is done.
                if code == 2 and "no region" not in said:
                    self.assertEqual(done.stdout, "")
                    self.assertEqual(sorted(self.place.rglob("*")), before)

    def test_every_command_has_its_wrong_lines(self):
        listed = self.call("--help").stdout.split("Options:\n")[1].split("\nExamples:\n")[0]
        self.assertEqual(set(CASES), {line.split()[0] for line in listed.splitlines() if re.match(r"  \w", line)})

    def test_of_no_command(self):
        for words, said in OF_NO_COMMAND:
            with self.subTest(words=words):
                done = self.call(*words)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(said, done.stderr.splitlines()[0])

    def test_a_file_that_may_not_be_read(self):
        """As root everything may: then a name that is too long stands for it."""
        name = self.place / ("x" * 300)
        for command, words in (("flops", [name]), ("replay", [name]), ("report", [name]), ("compare", [name, name])):
            with self.subTest(command=command):
                done = self.call(command, *words)
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_what_the_words_may_be(self):
        """Beside every wrong word of the table there is a right one."""
        for words in (["flops", GPT2, "--seq-len", 8, "--images", "896x896", "--dtype", "fp8", "--convention", "exact-full"],
                      ["plan", "--flop", "1e24", "--gpu", "H100", "--gpus", 512, "--mfu", "40%", "--alpha", 0.35, "--e", 1.8],
                      ["replay", TRACE, "--range", "ProfilerStep", "--phase", "train", "--flop", "785.1e9", "--gpus", 1],
                      ["replay", TRACE, "--gpu", "V100", "--json"]):
            done = self.call(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(done.stdout)
            if "--json" in words:
                json.loads(done.stdout)


for _command in CASES:
    setattr(WrongCommandLines, f"test_{_command}", lambda self, command=_command: self.check(command))

if __name__ == "__main__":
    main()
