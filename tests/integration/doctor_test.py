"""`mfu doctor`: what stands in the way of a measurement, and what is only not as it was meant; the line of a run whose
ranges are no region.
"""

import os
import re
import shutil
import subprocess
import sys

from harness import BUILD, DEADLINE_S, GPT2, TestCase, main

MFU = BUILD / "mfu"


class Doctor(TestCase):
    def doctor(self, simulated=True, **env):
        """Marks and names of the lines, as they were printed, and the exit code."""
        base = self.environment(self.directory, [], "cupti-13.0", None, {"SIMGPU_TRACE": None})
        if not simulated:
            base["LD_LIBRARY_PATH"] = ""
        done = subprocess.run(
            [MFU, "doctor"],
            env={**base, **{k: str(v) for k, v in env.items()}},
            cwd=self.directory,
            text=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )
        lines = done.stdout.splitlines()
        return [re.match(r"\[(..)\] (\S+) +(.*)", line).groups() for line in lines[:-1]], lines[-1], done.returncode

    def test_a_machine_where_it_works(self):
        lines, last, code = self.doctor(MFU_MODEL_CONFIG=GPT2, MFU_RUN_DIR="run/%r", MFU_LOG="log")
        self.assertEqual((last, code), ("everything that a measurement needs is here", 0), lines)
        said = {what: text for mark, what, text in lines if mark == "ok"}
        self.assertIn("gpt2 124 M, exact counting", said["config"])
        self.assertEqual(sorted(p.name for p in self.directory.iterdir()), [])  # what was tried was taken back
        self.assertLessEqual({"driver", "cupti", "MFU_RUN_DIR", "MFU_LOG"}, set(said))

    def test_what_is_not_as_it_was_meant_is_a_warning(self):
        for env in (
            {"MFU_INTERVAL": "0"},
            {"MFU_FOO": "1"},
            {"MFU_MODEL_CONFIG": f'{{"model": "{GPT2}", "presetss": []}}'},
            {"MFU_PROFILER": "both"},
        ):
            with self.subTest(env):
                lines, last, code = self.doctor(**env)
                self.assertEqual((last, code), ("everything that a measurement needs is here; 1 warning", 0), lines)
                self.assertEqual([what for mark, what, _ in lines if mark in ("!!", "NO")], ["config"])

    def test_the_wheels_of_the_active_environment_are_found(self):
        """As a Python process of it would, where the machine has no other CUPTI."""
        venv = self.directory / "venv"
        for link, site in (("bin/python3", "venv/lib/python3.11/site-packages/nvidia/cu13/lib"),):
            (venv / "bin").mkdir(parents=True)
            (venv / link).symlink_to(sys.executable)
            wheel = self.directory / site
            wheel.mkdir(parents=True)
            shutil.copy(BUILD / "simgpu/cupti-13.0/libcupti.so.13", wheel)
        for how, env in (("activated", {"VIRTUAL_ENV": venv}), ("first in PATH", {"PATH": f"{venv}/bin:{os.environ['PATH']}"}),
                         ("conda", {"CONDA_PREFIX": venv})):
            with self.subTest(how):
                env = {"LD_LIBRARY_PATH": BUILD / "simgpu", "MFU_CUPTI": "", "MFU_MODEL_CONFIG": GPT2, **env}
                lines, last, code = self.doctor(**env)
                self.assertEqual((last, code), ("everything that a measurement needs is here", 0), lines)
                said = [text for _, what, text in lines if what == "cupti"]
                self.assertEqual(len(said), 1)
                self.assertIn(f"at {wheel}/libcupti.so.13, for Python programs", said[0])

    def test_what_changes_cupti_from_outside_is_said(self):
        stubs = self.directory / "lib64/stubs"
        stubs.mkdir(parents=True)
        (stubs / "libcuda.so").touch()
        lines, last, code = self.doctor(MFU_MODEL_CONFIG=GPT2, CUPTI_ENABLE_HW_TRACE="1")
        self.assertEqual((last, code), ("everything that a measurement needs is here", 0))
        self.assertIn(("--", "cupti", "CUPTI_ENABLE_HW_TRACE=1 is set: CUPTI reads it, and may record otherwise with it"), lines)
        plain = self.environment(self.directory, [], "cupti-13.0", None, {})["LD_LIBRARY_PATH"]
        lines, last, code = self.doctor(MFU_MODEL_CONFIG=GPT2, LD_LIBRARY_PATH=f"{plain}:{stubs}")
        self.assertEqual((last, code), ("everything that a measurement needs is here; 1 warning", 0))
        self.assertEqual([text.split(":")[0] for mark, _, text in lines if mark == "!!"], [f"{stubs} is in LD_LIBRARY_PATH"])

    def test_what_stands_in_the_way_is_a_problem(self):
        for env, what in (
            ({"MFU_RUN_DIR": "/proc/x"}, "MFU_RUN_DIR"),
            ({"MFU_LOG": "/proc/x"}, "MFU_LOG"),
            ({"MFU_TRACE": "/proc/x/t.json"}, "MFU_TRACE"),
            ({"MFU_TB_DIR": "/proc/x"}, "MFU_TB_DIR"),
            ({"MFU_TRACE": "none/t.json"}, "MFU_TRACE"),
            ({"MFU_MODEL_CONFIG": '{"regions": [{"region": "a", "match": "(un"}]}'}, "config"),
            ({"MFU_MODEL_CONFIG": "nope.json"}, "config"),
            ({"simulated": False}, "driver"),
        ):
            with self.subTest(env):
                lines, last, code = self.doctor(**env)
                self.assertEqual((last, code), ("1 of these stands in the way of a measurement", 1), lines)
                self.assertEqual([name for mark, name, _ in lines if mark == "NO"], [what])


class UnmatchedRanges(TestCase):
    def test_ranges_that_are_no_region_are_named_with_the_rule_that_is_missing(self):
        script = 'kernel k ns=1000000; repeat 6000 { push "forward tokens=4096"; launch k; sync; pop }'
        rule = {"model": str(GPT2), "regions": [{"region": "f", "match": "fwd.*"}]}
        for config, said in (
            (rule, 'no rule of the config matches a range; seen: "forward tokens=4096"; not matched by "fwd.*"; '),
            (GPT2, 'no NVTX range is a region; seen: "forward tokens=4096"; '),
        ):
            with self.subTest(config=config):
                run = self.scenario(script, config=config, env={"MFU_DETECT": "0"})
                line = self.assert_one_line(run, said)
                self.assertTrue(line.endswith('try this in "regions": {"region": "forward", "match": "forward.*"}'), line)
                self.assertEqual(len(run.events("ranges_unmatched")), 1)
                short = self.scenario(script.replace("6000", "50"), config=config, env={"MFU_DETECT": "0"})
                self.assertEqual(short.events("ranges_unmatched"), run.events("ranges_unmatched"))
                self.assert_one_line(short, said)

    def test_a_short_program_whose_ranges_are_regions_has_no_such_line(self):
        script = 'kernel k ns=1000000; repeat 50 { push warm; push "forward tokens=4096"; launch k; sync; pop; pop }'
        rule = {"model": str(GPT2), "regions": [{"region": "f", "match": "forward.*"}]}
        self.assertEqual(self.scenario(script, config=rule).events("ranges_unmatched"), [])

    def test_rules_that_wait_for_ranges_that_do_not_come(self):
        script = "kernel k ns=1000000; repeat 2500 { launch k; sync }"
        rules = [{"region": f"r{i}", "match": f"part_{i}"} for i in range(3)]
        said = 'no NVTX range came so far, and rules of the config wait for "part_0", "part_1", ...'
        run = self.scenario(script, config={"model": str(GPT2), "regions": rules}, env={"MFU_DETECT": "0"})
        self.assertEqual(run.events("ranges_unmatched"), [said], run.log)
        run = self.scenario(script, config=GPT2, env={"MFU_DETECT": "0"})
        self.assertEqual(run.events("ranges_unmatched"), [], run.log)

    def test_ranges_that_another_library_gets(self):
        script = 'kernel k ns=100000; repeat 20 { push "step batch=1 seq_len=32"; launch k; sync; pop }'
        other = self.directory / "libother.so"
        run = self.scenario(script, entry="cuda", env={"NVTX_INJECTION64_PATH": other})
        self.assertEqual(
            run.events("ranges_taken"),
            [f"NVTX_INJECTION64_PATH is {other}: that library gets the program's ranges, and none come here"],
        )
        self.assertIsNone(run.region("step"))
        for entry in ("cuda nvtx", "cuda", "preload"):
            self.assertEqual(self.scenario(script, entry=entry).events("ranges_taken"), [])


if __name__ == "__main__":
    main()
