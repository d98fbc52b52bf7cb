"""The scripts of deploy/: what they leave behind a job, and that rules exist once."""

import json
import os
import subprocess
import unittest

import fake_ranks
from harness import BUILD, DEADLINE_S, SOURCE, TestCase, main

DEPLOY = SOURCE / "deploy"


class Slurm(TestCase):
    def epilog(self, **env):
        """Runs the epilog where `scontrol` writes its arguments to a file. The arguments, None where it was not called."""
        prefix, programs = self.directory / "prefix", self.directory / "programs"
        (prefix / "bin").mkdir(parents=True, exist_ok=True)
        programs.mkdir(exist_ok=True)
        if not (prefix / "bin/mfu").exists():
            (prefix / "bin/mfu").symlink_to(BUILD / "mfu")
        said = self.directory / "said"
        (programs / "scontrol").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{said}"\n')
        (programs / "scontrol").chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        variables = {**os.environ, "MFUINJECT": str(prefix), "PATH": path, "SLURM_JOB_ID": "77", **env}
        done = subprocess.run(["sh", DEPLOY / "slurm/task_epilog.sh"], env=variables, capture_output=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        return said.read_text().splitlines() if said.exists() else None

    def test_the_first_rank_leaves_a_page_and_a_comment(self):
        runs = self.directory / "runs"
        fake_ranks.Job(ranks=3, hosts=1).write(runs)
        self.assertIsNone(self.epilog(SLURM_PROCID="1", MFU_RUN_DIR=str(runs)), "another rank")
        self.assertFalse((runs / "report.html").exists())
        command, job, comment = self.epilog(SLURM_PROCID="0", MFU_RUN_DIR=str(runs))
        self.assertEqual((command, job), ("update", "JobId=77"))
        figures = json.loads(comment.removeprefix("Comment="))
        self.assertEqual(figures.pop("mfuinject"), 1)
        report = subprocess.run([BUILD / "mfu", "report", runs, "--json"], capture_output=True, check=True, timeout=DEADLINE_S)
        job = json.loads(report.stdout)["job"]
        for key, value in figures.pop("job").items():
            self.assertAlmostEqual(value, job[key], delta=0.00005)
        truth = {row["region"]: row for row in job["regions"]}
        self.assertIn("step", figures)
        for region, row in figures.items():
            for key, value in row.items():
                self.assertAlmostEqual(value, truth[region][key], delta=0.00005)
        self.assertIn("<html", (runs / "report.html").read_text()[:200])

    def test_without_a_run_directory_it_does_nothing(self):
        self.assertIsNone(self.epilog(SLURM_PROCID="0", MFU_RUN_DIR=str(self.directory / "none")))


class Kubernetes(unittest.TestCase):
    def test_the_operators_rules_are_those_of_the_file(self):
        made = subprocess.run([DEPLOY / "kubernetes/prometheus-rule"], capture_output=True, text=True, check=True).stdout
        head, spec = made.split("spec:\n", 1)
        self.assertIn("kind: PrometheusRule\n", head)
        rules = (DEPLOY / "prometheus/mfu.rules.yml").read_text()
        self.assertEqual("".join(line.removeprefix("  ") for line in spec.splitlines(True)), rules)
        self.assertTrue(all(line.startswith("  ") for line in spec.splitlines() if line.strip()))


if __name__ == "__main__":
    main()
