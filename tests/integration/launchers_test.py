"""`mfu run` in front of the launchers, and behind them: the environment is inherited, each rank writes one file that names it,
rank 0 alone logs, launchers and helpers write nothing, words and exit codes go through as they are.

The launchers are stand-ins (fake_launcher.py) that set the variables of the real ones; the ranks run on the simulated GPU.
"""

import os
import pathlib
import re
import sys

from harness import BUILD, GPT2, SANITIZE, SCENARIO, SOURCE, TestCase, main, unittest

MFU = BUILD / "mfu"
RANKS, STEPS = 3, 8

# What a rank does: a helper process as data loaders have it, then work on the GPU in our place.
TRAIN = f"""
import os, subprocess, sys
rank = next((os.environ[k] for k in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK") if k in os.environ))
subprocess.run([sys.executable, "-c", "import mfuinject\\nwith mfuinject.region('step'): pass"], check=True)
script = 'kernel gemm_k ns=200000; repeat {STEPS} {{ push "step batch=1 seq_len=8"; launch gemm_k count=2; sync; pop }}'
os.write(1, ("rank " + rank + " of " + " ".join(sys.argv[1:]) + "\\n").encode())  # whole, beside the other ranks'
code = os.environ.get("FAIL_" + rank, "0")
os.execv(os.environ["SCENARIO"], ["scenario", "-c", script + "; exit " + code])
"""

PYTHON_LAUNCHERS = {
    "torchrun": ["torchrun", "--nproc-per-node", RANKS],
    "accelerate": ["accelerate", "launch", "--num_processes", RANKS],
    "deepspeed": ["deepspeed", "--num_gpus", RANKS],
}
PROGRAM_LAUNCHERS = {
    "srun": ["srun", "-n", RANKS],
    "mpirun": ["mpirun", "-np", RANKS],
    "mpiexec": ["mpiexec", "-n", RANKS],
}


@unittest.skipIf(SANITIZE, "the interpreter is not instrumented, and the library needs its sanitizer's runtime first")
class Launchers(TestCase):
    def setUp(self):
        super().setUp()
        self.train = self.directory / "train.py"
        self.train.write_text(TRAIN)
        self.programs = self.directory / "bin"
        self.programs.mkdir()
        for name in (*PYTHON_LAUNCHERS, *PROGRAM_LAUNCHERS):
            path = self.programs / name
            path.write_text(
                f'#!/bin/sh\nexec {sys.executable} {pathlib.Path(__file__).with_name("fake_launcher.py")} {name} "$@"\n'
            )
            path.chmod(0o755)

    def launch(self, command, **env):
        """Runs `command`; the run directory it makes is `run` beside its output."""
        return self.program(command, entry="", env={
            "PATH": f"{self.programs}:{os.environ['PATH']}", "PYTHONPATH": SOURCE / "python", "PYTHONDONTWRITEBYTECODE": 1,
            "SCENARIO": SCENARIO, "MFU_CUPTI": BUILD / "simgpu/cupti-13.0/libcupti.so.13", "SIMGPU_TRACE": None, **env})

    def assert_ranks(self, run, launcher):
        """One file per rank, with all of its steps; the log of rank 0 and nothing else."""
        self.assertEqual(len(run.files), RANKS, sorted(run.files))
        seen = {}
        for name in run.files:
            start, end = run.objects(name)[0], run.objects(name, "end")
            seen[start["rank"]] = (start["world"], len(end), [r["instances"] for r in end[0]["regions"] if r["region"] == "step"])
            self.assertRegex(name, rf"-{start['rank']}-{start['pid']}\.jsonl$")
        self.assertEqual(seen, {rank: (RANKS, 1, [STEPS]) for rank in range(RANKS)})
        self.assertEqual(run.foreign_log, [])
        self.assertEqual(len([line for line in run.log if "; run directory " in line]), 1, run.log)
        self.assertEqual(len([line for line in run.log if line.startswith("next: mfu report ")]), 1, run.log)
        self.assertEqual(len([line for line in run.log if re.match(r"mfuinject \d", line)]), 1, run.log)
        self.assertEqual(len([line for line in run.log if line.startswith("launches ")]), 1, run.log)
        own = " --local_rank={}" if launcher == "deepspeed" else ""
        self.assertEqual(sorted(run.stdout.decode().splitlines()),
                         [f"rank {rank} of -c own --help{own.format(rank)}" for rank in range(RANKS)])

    def test_in_front_of_each_launcher(self):
        for name, launcher in (*PYTHON_LAUNCHERS.items(), *PROGRAM_LAUNCHERS.items()):
            with self.subTest(launcher=name):
                program = [self.train] if name in PYTHON_LAUNCHERS else [sys.executable, self.train]
                dashes = ["--"] if name in ("accelerate", "mpirun") else []  # with and without
                run = self.launch([MFU, "run", "-c", GPT2, "-d", "run", *dashes, *launcher, *program, "-c", "own", "--help"])
                self.assertEqual(run.code, 0, run.stderr.decode())
                self.assert_ranks(run, name)

    def test_behind_a_launcher(self):
        """Each rank runs `mfu run`; without --run-dir they find one folder for all."""
        for name, launcher in PROGRAM_LAUNCHERS.items():
            with self.subTest(launcher=name):
                run = self.launch([*launcher, MFU, "run", "-c", GPT2, sys.executable, self.train, "-c", "own", "--help"])
                self.assertEqual(run.code, 0, run.stderr.decode())
                folders = list((run.directory / "mfu-runs").iterdir())
                self.assertEqual(len(folders), 1, folders)
                run.files = {path.name: path.read_bytes() for path in folders[0].iterdir()}
                self.assert_ranks(run, name)

    def test_every_rank_logs_when_asked(self):
        run = self.launch([MFU, "run", "--all-ranks", "-c", GPT2, "-d", "run", *PYTHON_LAUNCHERS["torchrun"], self.train])
        self.assertEqual(run.code, 0)
        for rank in range(RANKS):
            self.assertTrue(any(re.match(rf"r{rank}\b|.*\brank {rank}\b", line) for line in run.log), run.log)

    def test_exit_codes(self):
        launchers = {**PYTHON_LAUNCHERS, **PROGRAM_LAUNCHERS}
        for name in ("torchrun", "deepspeed", "srun"):  # one of each way to end
            with self.subTest(launcher=name):
                program = [self.train] if name in PYTHON_LAUNCHERS else [sys.executable, self.train]
                run = self.launch([MFU, "run", "-c", GPT2, "-d", "run", *launchers[name], *program], FAIL_1=5)
                self.assertEqual(run.code, 1 if name == "torchrun" else 5)
                self.assertEqual(len(run.files), RANKS)
                for file in run.files:
                    self.assertEqual(len(run.objects(file, "end")), 1)


if __name__ == "__main__":
    main()
