"""100,000 looks (MFU_LOOKS) at the stacks of Python programs that end threads, free code, fork, exec and exit: none is harmed."""

import os
import pathlib
import subprocess

from harness import BUILD, SANITIZE, TestCase, main, unittest
from interpreter_test import INTERPRETERS

PROGRAM = pathlib.Path(__file__).with_name("look_storm_program.py")
LOOKS = int(os.environ.get("MFU_LOOKS", 100_000))
READ = {version: path for version, path in INTERPRETERS.items() if (3, 9) <= version <= (3, 14)}
ENDS = {"return": (0, "done\n"), "exec": (0, "done\nother\n"), "_exit": (5, "done\n"), "threads": (0, "done\n")}


def sanitizer():
    """The runtime of AddressSanitizer; empty: there is none."""
    path = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False).stdout.strip()
    return path if os.path.isabs(path) else ""


@unittest.skipIf(SANITIZE, "the interpreter is not instrumented")
class LookStorm(TestCase):
    def storm(self, interpreter, looks, end, before="", **env):
        preload = ":".join(filter(None, (before, str(BUILD / "clients/liblook_storm.so"))))
        run = self.program([interpreter, PROGRAM, looks, end], entry="", env={"LD_PRELOAD": preload, **env})
        self.assertEqual((run.code, run.stdout.decode()), ENDS[end], run.stderr.decode()[-3000:])

    def test_every_interpreter_and_every_end(self):
        for version, interpreter in READ.items():
            for end in ENDS:
                with self.subTest(f"CPython {version[0]}.{version[1]}, {end}"):
                    self.storm(interpreter, LOOKS // len(ENDS) // len(READ), end)

    def test_under_a_sanitizer(self):
        """Every object in memory of its own, and freed memory not used again for a while."""
        if not sanitizer():
            self.skipTest("no AddressSanitizer here")
        for version, interpreter in READ.items():
            with self.subTest(f"CPython {version[0]}.{version[1]}"):
                self.storm(interpreter, LOOKS // 20, "return", sanitizer(), PYTHONMALLOC="malloc", ASAN_OPTIONS="detect_leaks=0")


if __name__ == "__main__":
    main()
