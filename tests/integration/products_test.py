"""What a program asks of cuBLAS, against the simulated library's own list of its products: every way of calling it, graphs,
threads, forks, other tools in front of it, and that switched off the library leaves no trace."""

import json

from harness import BUILD, TestCase, main

CLIENTS = BUILD / "clients"
IN_FRONT = CLIENTS / "libblas_in_front.so"


class Products(TestCase):
    def client(self, *words, kind="lazy", env=None, config=None, **options):
        lists = {}

        def before(directory, environment):
            lists["file"] = directory / "products"
            environment["SIMGPU_PRODUCTS"] = str(lists["file"])
            if kind == "looked_up":  # AddressSanitizer opens libraries for the program, and does not know its own path
                environment["LD_LIBRARY_PATH"] = f"{CLIENTS}:{environment['LD_LIBRARY_PATH']}"

        program = CLIENTS / (f"blas_client_{kind}" if kind in ("lazy", "now") else f"blas_{kind}")
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
        """Plugins under the names of those that do so are seen; of a program that does it by itself nothing is said."""
        for plugin in ("xla_cuda_plugin.so", "libtriton.so", None):
            with self.subTest(plugin=plugin):
                words = [CLIENTS / plugin] if plugin else []
                run = self.client("40", *words, kind="looked_up")
                self.assertEqual(run.stdout, b"no error\n")
                self.assertEqual(len(run.products), 80)
                if plugin:
                    self.assert_all_seen(run, self.flop(run.products))
                    continue
                executed = run.region("total")["executed"]
                self.assertFalse(executed and (executed["flop"] or executed["covered_s"]))
                self.assertIsNone(run.region("total")["hfu"])

    def test_kernels_that_a_program_launches_by_itself(self):
        run = self.program([CLIENTS / "blas_client_lazy", "deep_gemm", 20])
        self.assertEqual(run.code, 0, run.stderr)
        executed = run.region("total")["executed"]
        rows = sum(range(1, 21)) + 20 * 1000
        self.assertEqual(executed["flop"], 2 * rows * 4096 * 7168)
        # The rows of groups lie in device memory: one kernel of three has no known size.
        self.assertAlmostEqual(executed["covered_s"] / executed["matmul_s"], 2 / 3, places=3)
        off = self.program([CLIENTS / "blas_client_lazy", "deep_gemm", 20], env={"MFU_EXECUTED": "0"})
        executed = off.region("total")["executed"]
        self.assertFalse(executed and executed["flop"])

    def test_switched_off_nothing_is_seen_and_nothing_changes(self):
        runs = [self.client("calls", 30, env={"MFU_EXECUTED": "0"}), self.client("calls", 30, entry="")]
        self.assertEqual(runs[0].stdout, runs[1].stdout)
        self.assertEqual(runs[0].foreign_log, runs[1].foreign_log)
        executed = runs[0].region("total")["executed"]
        self.assertFalse(executed and executed["flop"])
        self.assertEqual([p["name"] for p in runs[0].products], [p["name"] for p in runs[1].products])


if __name__ == "__main__":
    main()
