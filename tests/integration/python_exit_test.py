"""Python processes that end by os._exit, in which no exit handler runs: forked children of multiprocessing do. Their account is
told all the same, once, and their exit status is theirs."""

import os
import shutil
import sys
import time

from harness import SANITIZE, TestCase, main, unittest

CLIENT = """
import ctypes, os, sys, threading, time
how, launches = sys.argv[1], int(sys.argv[2])

def work():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    image = b".version 8.0\\n.target sm_90\\n.address_size 64\\n// simgpu: gemm_k ns=20000\\n"
    image += b".visible .entry gemm_k()\\n{ ret; }\\n"
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"gemm_k") == 0
    for _ in range(launches):
        assert cuda.cuLaunchKernel(function, 132, 1, 1, 128, 1, 1, 0, None, None, None) == 0
    assert cuda.cuCtxSynchronize() == 0

if how == "fork":
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(7)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
work()
if how == "child":  # a child of a process that measures ends at once, and is nobody's account
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
if how == "thread":
    thread = threading.Thread(target=os._exit, args=(7,))
    thread.start()
    thread.join()
print("written before the end", flush=True)
os._exit(7)
"""


@unittest.skipIf(SANITIZE, "the interpreter is not instrumented, and the library needs its sanitizer's runtime first")
class PythonExit(TestCase):
    def end(self, how, launches=500, env=None, entry="cuda"):
        run = self.program([sys.executable, "-c", CLIENT, how, launches], entry=entry, env=env)
        self.assertEqual(run.code, 7, run.stderr.decode())
        return run

    def test_the_account_is_told(self):
        for how in ("fork", "child", "thread", "plain"):
            with self.subTest(how):
                run = self.end(how)
                self.assertEqual([line["type"] for line in run.lines()].count("end"), 1)
                account = run.end["launches"]
                self.assertEqual((account["seen"], account["dropped"]), (500, 0))
                self.assertEqual([r["kernels"] for r in run.end["regions"] if r["region"] == "total"], [500])
                self.assertEqual(run.stdout, self.end(how, entry="").stdout)

    def test_interpreters_with_and_without_a_library_of_their_own(self):
        others = {os.path.realpath(p) for p in map(shutil.which, ("python3", "/usr/bin/python3", "/usr/local/bin/python3")) if p}
        for interpreter in others | {os.path.realpath(sys.executable)}:
            with self.subTest(interpreter):
                run = self.program([interpreter, "-c", CLIENT, "plain", 50], entry="cuda")
                self.assertEqual((run.code, run.end["launches"]["seen"]), (7, 50))

    def test_nothing_is_changed_where_calls_are_not_hooked(self):
        run = self.end("plain", env={"MFU_EXECUTED": "0"})
        self.assertFalse(run.files)

    def test_it_is_short(self):
        for _ in range(3):
            begin = time.monotonic()
            self.end("plain", launches=20_000, entry="")
            middle = time.monotonic()
            self.end("plain", launches=20_000)
            longer = (time.monotonic() - middle) - (middle - begin)
            if longer < 1 or os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
                return
        self.fail(f"the end took {longer:.1f} s longer with the library")


if __name__ == "__main__":
    main()
