"""mfuinject.region: NVTX ranges with a shape, from Python alone, and nothing at all where no tool is loaded."""

import json
import pathlib
import subprocess
import sys

from harness import LIBRARY, SANITIZE, SOURCE, TestCase, main, unittest

CLIENT = pathlib.Path(__file__).with_name("region_client.py")


@unittest.skipIf(SANITIZE, "the interpreter is not instrumented, and the library needs its sanitizer's runtime first")
class Region(TestCase):
    def client(self, entry="cuda nvtx", **env):
        run = self.program([sys.executable, CLIENT], entry=entry,
                           env={"PYTHONPATH": SOURCE / "python", "PYTHONDONTWRITEBYTECODE": 1, **env})
        self.assertEqual(run.code, 0, run.stderr.decode())
        self.assertEqual(run.foreign_log, [])
        return run

    def test_regions_and_their_shapes(self):
        for entry in ("cuda nvtx", "nvtx", "preload"):
            with self.subTest(entry=entry):
                run = self.client(entry)
                self.assert_sound(run)
                got = {name: (run.region(name)["instances"], run.region(name)["kernels"], run.region(name)["tokens"])
                       for name in ("prefill", "decode", "step")}
                # A step with a batch that is no number has the default of 1 sequence and no length: its tokens are not known.
                self.assertEqual(got["prefill"], (1, 1, 2 * 64))
                self.assertEqual(got["decode"], (10, 10, 10 * 4))
                self.assertEqual(got["step"][:2], (4, 3))
                self.assertGreater(run.region("decode")["flop"], 0)
                self.assertEqual(run.end["counters"].get("nvtx_pop_unmatched", 0), 0)

    def test_the_program_sees_no_difference(self):
        without = self.client(entry="")
        seen = json.loads(without.stdout)
        self.assertEqual(seen["returned"], 3)
        self.assertEqual(seen["wrapped"], ["step", "Its own docstring."])
        self.assertEqual(seen["raised"], ["the program's own", "region", "region", True])
        for entry, env in (("cuda nvtx", {}), ("cuda nvtx", {"NVTX_DISABLE": 1}), ("cuda nvtx", {"MFU_DISABLE": 1}),
                           ("cuda", {"NVTX_INJECTION64_PATH": "/nonexistent.so"}),
                           ("cuda", {"NVTX_INJECTION64_PATH": SOURCE / "README.md"})):
            with self.subTest(entry=entry, env=env):
                self.assertEqual(self.client(entry, **env).stdout, without.stdout)

    def test_without_a_tool_it_loads_nothing(self):
        """No module beyond its own, and one region that does nothing for all."""
        code = ("import sys; before = set(sys.modules); import mfuinject; a = mfuinject.region('step', batch=1)\n"
                "with a: pass\n"
                "same = a is mfuinject.region('decode') and a(len) is len\n"
                "print(same, *sorted(set(sys.modules) - before))")
        shown = subprocess.run(
            [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(SOURCE / 'python')!r})\n{code}"],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.assertEqual(shown.stdout.split(), ["True", "__future__", "mfuinject", "mfuinject._nvtx", "mfuinject._region"])

    def test_a_tool_is_attached_once(self):
        code = ("import mfuinject\nfor _ in range(3):\n  with mfuinject.region('step'): pass\n"
                "print(sum('libmfuinject' in line and 'r-xp' in line for line in open('/proc/self/maps')))")
        shown = self.program([sys.executable, "-c", code], entry="nvtx", env={"PYTHONPATH": SOURCE / "python"})
        self.assertEqual((shown.code, shown.stdout, shown.stderr), (0, b"1\n", b""))
        self.assertEqual(shown.files, {})

    def test_library_path(self):
        code = "import mfuinject; print(mfuinject.library_path())"
        package = self.directory / "mfuinject"
        package.mkdir()
        for file in (SOURCE / "python/mfuinject").glob("*.py"):
            (package / file.name).write_text(file.read_text())
        absent = self.program([sys.executable, "-c", code], entry="", env={"PYTHONPATH": self.directory})
        self.assertEqual(absent.code, 1)
        self.assertIn(b"FileNotFoundError", absent.stderr)
        (package / "libmfuinject.so").symlink_to(LIBRARY)
        there = self.program([sys.executable, "-c", code], entry="", env={"PYTHONPATH": self.directory})
        self.assertEqual(there.stdout.decode().strip(), str(package / "libmfuinject.so"))


if __name__ == "__main__":
    main()
