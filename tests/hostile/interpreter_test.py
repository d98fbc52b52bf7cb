"""The library inside a CPython interpreter that runs odd programs: they do what they do without it, and what it reports is right.

Each program of interpreter_programs.py runs with every CPython from 3.12 on that this machine has, over a stand-in for torch.
"""

import collections
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

from harness import SANITIZE, TestCase, main, unittest

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "interpreter_programs.py"
USED = "from the interpreter"
STOPPED = "the interpreter is not asked: "


def interpreters():
    """Version > path."""
    found = {}
    places = [sys.executable, *(shutil.which(f"python3.{n}") or "" for n in range(10, 16))]
    for path in [*places, *sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")))]:
        asked = subprocess.run([path, "-c", "import sys, _ctypes; print('%d.%d' % sys.version_info[:2])"], capture_output=True,
                               text=True) if path else None
        if asked is not None and asked.returncode == 0:
            found.setdefault(tuple(map(int, asked.stdout.split(".")[:2])), path)
    return found


INTERPRETERS = interpreters()
MONITORING = {version: path for version, path in INTERPRETERS.items() if version >= (3, 12)}


class Programs(TestCase):
    def run_program(self, interpreter, name, env=None, entry="cuda"):
        environment = {"PYTHONPATH": f"{HERE / 'standin'}", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
        if not entry:
            environment = {k: v for k, v in environment.items() if not k.startswith("MFU_")}
        return self.program([interpreter, "-W", "ignore", str(PROGRAMS), name], entry=entry, config=None, env=environment)

    def same(self, name, env=None, versions=None):
        """Yields (version, run): the program with the library did as without it."""
        for version, interpreter in (MONITORING if versions is None else versions).items():
            with self.subTest(f"{name}, CPython {version[0]}.{version[1]}"):
                bare = self.run_program(interpreter, name, entry="")
                run = self.run_program(interpreter, name, env)
                self.assertEqual((run.code, run.stdout), (bare.code, bare.stdout), run.stderr.decode(errors="replace")[-3000:])
                own = [line for line in run.stderr.decode().splitlines() if not line.startswith("[mfu]")]
                self.assertEqual(sorted(own), sorted(bare.stderr.decode().splitlines()))
                yield version, run

    def regions(self, run):
        return {r["region"]: r for r in run.end["regions"]}

    def lines(self, run, words):
        return [line for line in run.stderr.decode().splitlines() if words in line]

    def well(self, run):
        """It was used, and never stopped."""
        self.assertEqual((len(self.lines(run, USED)), self.lines(run, STOPPED)), (1, []))


@unittest.skipIf(SANITIZE, "the interpreter is not instrumented, and the library needs its sanitizer's runtime first")
@unittest.skipIf(not MONITORING, "no CPython 3.12 or newer here")
class Interpreter(Programs):
    def test_steps_and_evaluations_are_exact(self):
        for _, run in self.same("plain"):
            self.well(run)
            regions = self.regions(run)
            self.assertEqual((regions["step"]["instances"], regions["eval"]["instances"]), (20, 12))
            self.assertEqual((regions["step"]["tokens"], regions["eval"]["tokens"]), (20 * 2 * 16, 12 * 32))
            self.assertEqual({regions[r]["named_by"] for r in ("step", "eval", "forward", "backward")}, {"interpreter"})
            # One matrix of 8 x 16; its own gradient alone in a step, since the stand-in's activations need none.
            flop = 2 * 8 * 16
            self.assertEqual((regions["step"]["flop"], regions["eval"]["flop"]), (20 * 2 * 2 * 16 * flop, 12 * 32 * flop))
            self.assertEqual(regions["step"]["kernels"], 20 * (2 * (2 + 4) + 2))
            account = run.end["launches"]
            self.assertEqual((account["seen"], account["attributed"], account["dropped"]), (304, 304, 0))

    def test_the_first_argument_has_any_name(self):
        for _, run in self.same("names"):
            self.well(run)
            regions = self.regions(run)
            self.assertEqual({name: regions[name]["instances"] for name in ("step", "forward", "backward")},
                             {"step": 20, "forward": 40, "backward": 40})
            self.assertEqual(regions["step"]["flop"], 20 * 2 * 2 * 16 * 2 * 8 * 16)

    def layers(self, run):
        """Region > (instances, launches)."""
        names = [r for r in self.regions(run) if r.startswith(("layer ", "outside "))]
        return {name: tuple(self.regions(run)[name][key] for key in ("instances", "launches")) for name in names}

    def test_layers_have_the_work_that_is_theirs(self):
        """A layer launches one kernel, and two backward; the model two outside of its layers, and six backward."""
        for _, run in self.same("deep", {"MFU_PARTS": "layers"}):
            self.well(run)
            found = self.layers(run)
            for layer in range(3):
                self.assertEqual((found[f"layer {layer}"], found[f"layer {layer} backward"]), ((20, 20), (20, 40)))
            self.assertEqual(found["outside of layers backward"][1], 20 * 6)
            # Where a model runs for the first time, that it has layers is known when the first one begins.
            self.assertEqual(found["outside of layers"][1], 20 * 2 - 1)
            self.assertEqual(len(found), 8)
            self.assertEqual(self.regions(run)["step"]["launches"], 20 * (5 + 12 + 2))
        for _, run in self.same("deep"):
            self.assertEqual(self.layers(run), {})

    def test_layers_that_run_again_are_a_part_of_their_backward_pass(self):
        for _, run in self.same("deep_checkpoints", {"MFU_PARTS": "layers"}):
            self.well(run)
            found = self.layers(run)
            for layer in range(3):
                self.assertEqual((found[f"layer {layer}"], found[f"layer {layer} backward"]), ((20, 20), (20, 60)))

        for _, run in self.same("deep_checkpoints_elsewhere", {"MFU_PARTS": "layers"}):
            self.well(run)
            found = self.layers(run)
            for layer in range(3):
                self.assertEqual((found[f"layer {layer}"], found[f"layer {layer} backward"]), ((20, 20), (20, 140)))
            self.assertEqual(self.regions(run)["backward"]["instances"], 20)

    def test_exceptions_out_of_layers(self):
        for _, run in self.same("deep_failures", {"MFU_PARTS": "layers"}):
            self.well(run)
            found = self.layers(run)
            self.assertEqual([found[f"layer {layer}"][1] for layer in range(3)], [25, 25, 20])
            self.assertEqual(self.regions(run)["step"]["instances"], 20)

    def test_nothing_is_replaced_or_kept_alive(self):
        for _, run in self.same("untouched"):
            self.well(run)

    def test_objects_that_raise_at_every_question(self):
        for _, run in self.same("attributes"):
            self.well(run)
            self.assertEqual(self.regions(run)["step"]["instances"], 18)

    def test_modules_that_are_deleted_while_they_run(self):
        for _, run in self.same("deleted"):
            self.well(run)

    def test_exceptions_out_of_passes(self):
        for _, run in self.same("exceptions"):
            self.well(run)
            self.assertEqual(self.regions(run)["step"]["instances"], 30)

    def test_methods_that_call_several_parts(self):
        for _, run in self.same("methods"):
            self.well(run)
            regions = self.regions(run)
            self.assertEqual((regions["step"]["instances"], regions["forward"]["instances"]), (20, 40))

    def test_models_on_several_threads(self):
        for _, run in self.same("threads"):
            self.assertLessEqual(len(self.lines(run, USED)), 1)
            self.assertLessEqual(len(self.lines(run, "the interpreter is not asked any more")), 1)

    def test_forks_inside_a_pass(self):
        for _, run in self.same("fork_inside"):
            self.well(run)
            self.assertEqual(self.regions(run)["step"]["instances"], 10)

    def test_tracers_see_nothing_of_it(self):
        for _, run in self.same("tracers"):
            self.well(run)
            self.assertNotIn(b"mfuinject", run.stdout)

    def test_other_tools_of_sys_monitoring(self):
        for _, run in self.same("monitored"):
            self.well(run)
            self.assertNotIn(b"library", run.stdout)

    def test_both_ids_are_taken(self):
        for _, run in self.same("taken"):
            self.assertEqual(len(self.lines(run, STOPPED)), 1)

    def test_passes_without_end(self):
        """A hundred thousand; a million with MFU_HOSTILE_ALL."""
        passes = {"PASSES": "1000000" if os.environ.get("MFU_HOSTILE_ALL") else "100000"}

        def growth(run):
            used = [int(word) for word in (run.directory / "pages").read_text().split()]
            return used[-1] - used[1]

        # Arenas of the C library's allocator come and go: of three runs the one that grew least counts, on either side.
        least = collections.defaultdict(list)
        for _ in range(3):
            for version, run in self.same("growth", passes):
                off = self.run_program(MONITORING[version], "growth", {"MFU_PYTHON": "0", **passes})
                least[version].append((growth(run), growth(off)))
        for grown in least.values():
            ours, without = (min(column) for column in zip(*grown, strict=True))
            self.assertLess(ours, without + (4 << 20), grown)

    def test_code_without_end(self):
        for _, run in self.same("made_classes"):
            self.assertLessEqual(len(self.lines(run, STOPPED)), 1)

    def test_interrupts_at_any_instruction(self):
        for _, run in self.same("interrupts"):
            self.assertIn(b"lost 0 foreign 0", run.stdout)
        for _ in range(6):
            for _, run in self.same("interrupted_start"):
                self.assertIn(b"lost 0", run.stdout)

    def test_the_end_of_the_stack(self):
        for _ in self.same("recursion"):
            pass

    def test_generators_and_coroutines(self):
        for _ in self.same("generators"):
            pass

    def test_audit_hooks_that_forbid(self):
        for _, run in self.same("audited"):
            self.assertEqual(len(self.lines(run, STOPPED)), 1)

    def test_every_kind_of_process(self):
        for _, run in self.same("processes"):
            ends = [end for name in run.files for end in run.objects(name, "end")]
            self.assertEqual(len(ends), 6)
            for end in ends:  # the interpreter's part begins a moment after CUDA
                self.assertIn([r["instances"] for r in end["regions"] if r["region"] == "step"], ([], [7], [8]))

    def test_subinterpreters(self):
        for _, run in self.same("subinterpreters"):
            self.well(run)
            self.assertEqual(self.regions(run)["step"]["instances"], 9)

    def test_the_end_at_every_moment(self):
        names = [name for name in re.findall(r"^def (ends_\w+)\(", PROGRAMS.read_text(), re.M)]
        self.assertGreater(len(names), 5)
        for name in names:
            for _ in range(4):
                for _, run in self.same(name):
                    self.assertEqual(self.lines(run, STOPPED), [])

    def test_it_is_off(self):
        for _, run in self.same("plain", {"MFU_PYTHON": "0"}):
            self.assertEqual(self.lines(run, "interpreter"), [])
            self.assertNotIn("interpreter", {r.get("named_by") for r in run.end["regions"]})

    def test_older_interpreters_are_left_alone(self):
        """The stand-in has no official hooks: one line, and nothing else."""
        for _, run in self.same("plain", versions={v: p for v, p in INTERPRETERS.items() if (3, 9) < v < (3, 12)}):
            self.assertEqual(len(self.lines(run, STOPPED)), 1)


if __name__ == "__main__":
    main()
