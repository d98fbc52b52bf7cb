"""What a program asks of cuBLAS, against the simulated library's own list of its products: every way of calling it, graphs,
threads, forks, other tools in front of it, and that switched off the library leaves no trace."""

import json
import sys
import unittest

from harness import BUILD, EMULATED, TestCase, main

CLIENTS = BUILD / "clients"
IN_FRONT = CLIENTS / "libblas_in_front.so"

# A script that needs nothing but the libraries.
PYTHON = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, stream, handle = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
blas = ctypes.CDLL("libcublas.so.13")
assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0 and blas.cublasSetStream_v2(handle, stream) == 0
for i in range(int(sys.argv[1])):
    assert blas.cublasGemmEx(handle, 1, 0, 640, 384, 1024, None, None, 14, 1, None, 14, 1, None, None, 14, 1, 68, -1) == 0
assert cuda.cuStreamSynchronize(stream) == 0
"""


class Products(TestCase):
    def client(self, *words, kind="lazy", env=None, config=None, **options):
        lists = {}

        def before(directory, environment):
            lists["file"] = directory / "products"
            environment["SIMGPU_PRODUCTS"] = str(lists["file"])
            # AddressSanitizer opens libraries for the program, and does not know its own path.
            if kind not in ("lazy", "now"):
                environment["LD_LIBRARY_PATH"] = f"{CLIENTS}:{environment['LD_LIBRARY_PATH']}"

        program = CLIENTS / (f"blas_client_{kind}" if kind in ("lazy", "now") else f"blas_{kind}")
        program = kind if kind == sys.executable else program
        run = self.program([program, *words], config=config, env=env, before=before, **options)
        self.assertEqual(run.code, 0, run.stderr.decode(errors="replace"))
        text = lists["file"].read_text()
        run.products = [json.loads(line) for line in text.splitlines()]
        self.assertGreater(len(run.products), 0)
        return run

    @staticmethod
    def flop(products):
        return sum(2 * p["m"] * p["n"] * p["k"] * p["batch"] for p in products)

    def assert_all_seen(self, run, flop):
        executed = run.region("total")["executed"]
        self.assertEqual(executed["flop"], flop)
        self.assertEqual(executed["covered_s"], executed["matmul_s"])
        self.assertGreater(executed["matmul_s"], 0)

    def test_every_product_of_a_program_is_seen(self):
        for kind in ("lazy", "now"):
            with self.subTest(kind=kind):
                run = self.client("calls", 100, kind=kind)
                self.assertEqual(len(run.products), 500)
                self.assertEqual(sum(p["kernels"] for p in run.products), 600)  # one of five has two
                self.assert_all_seen(run, self.flop(run.products))

    def test_a_second_thread(self):
        run = self.client("threads", 50)
        self.assert_all_seen(run, self.flop(run.products))

    def test_a_captured_product_is_billed_at_each_launch_of_the_graph(self):
        for cupti in ("cupti-11.8", "cupti-12.6", "cupti-13.0", "cupti-13.3"):
            with self.subTest(cupti=cupti):
                run = self.client("graph", 1000, cupti=cupti)
                self.assertTrue(all(p["capturing"] for p in run.products))
                self.assertEqual(len(run.products), 5)
                self.assert_all_seen(run, self.flop(run.products) * 1001)

    def test_a_program_that_forks_before_it_uses_cuda(self):
        run = self.client("fork", 20)
        self.assertEqual(len(run.files), 2)
        for name in run.files:
            pid = int(name.rsplit("-", 1)[1].split(".")[0])
            total = [r for r in run.objects(name, "end")[0]["regions"] if r["region"] == "total"][0]
            self.assertEqual(total["executed"]["flop"], self.flop(p for p in run.products if p["pid"] == pid))

    def test_a_child_that_cannot_use_cuda_gets_the_librarys_answer(self):
        run = self.client("fork_after", 20)
        self.assertEqual(run.stdout, b"child 1\n")  # CUBLAS_STATUS_NOT_INITIALIZED
        self.assert_all_seen(run, self.flop(run.products))

    def test_another_tool_in_front_keeps_working(self):
        for kind in ("lazy", "now"):
            with self.subTest(kind=kind):
                run = self.client("calls", 30, kind=kind, env={"LD_PRELOAD": IN_FRONT})
                self.assertEqual(run.stdout, b"in front: 60\n")
                self.assert_all_seen(run, self.flop(run.products))

    def test_a_program_that_looks_the_functions_up(self):
        """By itself, with each kind of slot for dlsym, where the address of dlsym is a slot of the program, and in plugins of
        any name."""
        for kind, plugin in (
            ("looked_up", None),
            ("looked_up_lazy", None),
            ("looked_up_fixed", None),
            ("looked_up", "xla_cuda_plugin.so"),
            ("looked_up", "any_plugin.so"),
            ("looked_up_fixed", "any_plugin.so"),
        ):
            with self.subTest(kind=kind, plugin=plugin):
                run = self.client("40", *([CLIENTS / plugin] if plugin else []), kind=kind)
                self.assertEqual(run.stdout, b"no error\n")
                self.assertEqual(len(run.products), 80)
                self.assert_all_seen(run, self.flop(run.products))

    @unittest.skipIf(EMULATED, "this machine's Python cannot load the library")
    def test_python_looks_the_functions_up(self):
        run = self.client("-c", PYTHON, 30, kind=sys.executable)
        self.assertEqual(len(run.products), 30)
        self.assert_all_seen(run, self.flop(run.products))

    def test_of_matmuls_whose_calls_nobody_saw_no_part_is_covered(self):
        """Functions that were looked up before the library was there."""
        run = self.client("40", "before", kind="looked_up", config=None)
        executed = run.region("total")["executed"]
        self.assertEqual((executed["flop"], executed["covered_s"]), (0, 0))
        self.assertGreater(executed["matmul_s"], 0)
        for figure in ("mfu", "mfu_lower", "hfu", "flop_source"):
            self.assertIsNone(run.region("total")[figure], figure)
        components = run.region("total")["components"]
        self.assertEqual([c["name"] for c in components], ["not seen"])
        self.assertEqual(components[0]["time_s"], executed["matmul_s"])
        self.assertFalse([line for line in run.log if "seen)" in line], run.log)
        self.assertEqual(run.region("total")["findings"][0]["kind"], "not_seen")
        off = self.client("40", "before", kind="looked_up", config=None, env={"MFU_EXECUTED": "0"})
        self.assertIsNone(off.region("total")["executed"])
        self.assertFalse([line for line in off.log if "seen)" in line], off.log)

    def test_kernels_that_a_program_launches_by_itself(self):
        words = [CLIENTS / "blas_client_lazy", "deep_gemm", 20, CLIENTS / "deep_gemm" / "_C.so"]
        run = self.program(words)
        self.assertEqual(run.code, 0, run.stderr)
        executed = run.region("total")["executed"]
        rows = sum(range(1, 21)) + 20 * 1000
        self.assertEqual(executed["flop"], 2 * rows * 4096 * 7168)
        # The rows of groups lie in device memory: one kernel of three has no known size.
        self.assertAlmostEqual(executed["covered_s"] / executed["matmul_s"], 2 / 3, places=3)
        off = self.program(words, env={"MFU_EXECUTED": "0"})
        executed = off.region("total")["executed"]
        self.assertFalse(executed and executed["flop"])

    def test_such_kernels_are_looked_at_once_one_has_run(self):
        run = self.program([CLIENTS / "blas_client_lazy", "deep_gemm", 60])
        self.assertEqual(run.code, 0, run.stderr)
        executed = run.region("total")["executed"]
        self.assertGreater(executed["flop"], 2 * 30 * 1000 * 4096 * 7168)
        self.assertLess(executed["flop"], 2 * (sum(range(1, 61)) + 60 * 1000) * 4096 * 7168)
        self.assertLess(executed["covered_s"] / executed["matmul_s"], 2 / 3)

    def test_switched_off_nothing_is_seen_and_nothing_changes(self):
        runs = [self.client("calls", 30, env={"MFU_EXECUTED": "0"}), self.client("calls", 30, entry="")]
        self.assertEqual(runs[0].stdout, runs[1].stdout)
        self.assertEqual(runs[0].foreign_log, runs[1].foreign_log)
        executed = runs[0].region("total")["executed"]
        self.assertFalse(executed and executed["flop"])
        self.assertEqual([p["name"] for p in runs[0].products], [p["name"] for p in runs[1].products])


if __name__ == "__main__":
    main()
