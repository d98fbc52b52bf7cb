"""CUDA graphs: every node timed (MFU_GRAPHS=node), each launch as a whole (graph), or as a whole and split by what its kernels
take elsewhere (auto, the default)."""

from harness import CONFIGS, TestCase, main, ns, union_ns

SCRIPT = """
    kernel gemm_a ns=20000; kernel elementwise_b ns=5000
    stream s
    capture s; launch gemm_a stream=s count=10; launch elementwise_b stream=s count=5; end_capture s g; instantiate g
    repeat 50 { push "step batch=1 seq_len=32"; launch gemm_a stream=s; graph_launch g stream=s; sync; pop }
    print ends
"""

# Decode passes of Qwen3-8B; the times of the kernels are made up, and long beside what the simulated GPU lies between them.
CAPTURE = """
    kernel gemm_a ns=2000000; kernel elementwise_b ns=300000
    stream s; stream t
    capture s; launch gemm_a stream=s count=10; launch elementwise_b stream=s count=5; end_capture s g; instantiate g
"""
GRAPHS = {
    "a graph a pass": CAPTURE + """
        repeat 40 { push "decode batch=8 context=1000"; graph_launch g stream=s; sync s; pop }""",
    "kernels beside the graph": CAPTURE + """
        repeat 40 { push "decode batch=8 context=1000"; launch gemm_a stream=s; graph_launch g stream=s; sync s; pop }""",
    "passes that run ahead": CAPTURE + """
        repeat 40 { push "decode batch=8 context=1000"; graph_launch g stream=s; pop }
        sync""",
    "two graphs at once": CAPTURE + """
        repeat 40 { push "decode batch=8 context=1000"; graph_launch g stream=s; graph_launch g stream=t; sync; pop }""",
}


class Graphs(TestCase):
    def run_it(self, **env):
        run = self.unharmed(SCRIPT, env=env)
        self.assertEqual(run.stdout, b"ends\n")
        self.assert_sound(run)
        self.assertEqual(run.end["launches"], {"seen": 100, "attributed": 100, "outside": 0, "unattributed": 0, "dropped": 0,
                                               "not_timed": 0})
        return run

    def test_nodes(self):
        run = self.run_it(MFU_GRAPHS="node")
        self.assertEqual(run.region("step")["kernels"], 50 * 16)
        self.assertNotIn("graphs", run.end)

    def test_whole(self):
        run = self.run_it(MFU_GRAPHS="graph")
        self.assertEqual(run.end["counters"].get("launches_captured"), 15)
        spans = [(a["begin"], a["end"]) for a in run.activities(fate="delivered")]  # the nodes have no records
        graphs = run.activities(kind="graph", fate="delivered")
        self.assertEqual((len(spans), len(graphs)), (100, 50))
        step = run.region("step")
        self.assertEqual((step["kernels"], step["launches"]), (100, 100))
        self.assertEqual((ns(step["busy_s"]), ns(step["kernel_sum_s"])), (union_ns(spans), sum(e - b for b, e in spans)))
        # Nobody can say of which class the time inside is.
        self.assertEqual(ns(step["time_s"]["other"]), union_ns([(a["begin"], a["end"]) for a in graphs]))

    def assert_whole(self, row):
        """Nothing is said of what was not looked at."""
        self.assertGreater(row["graph_sum_s"], 0)
        self.assertEqual(row["lost"]["matmul"], 0, row)
        self.assertGreaterEqual(min(row["lost"].values()), 0, row)
        self.assertAlmostEqual(row["mfu"] + sum(row["lost"].values()), 1, places=9)
        self.assertIsNone(row["suspect"])
        self.assertIn("graphs", [finding["kind"] for finding in row["findings"]])

    def test_mfu_is_that_of_nodes(self):
        for name, script in GRAPHS.items():
            with self.subTest(name):
                rows = {}
                for graphs in ("node", "graph"):
                    run = self.scenario(script, config=CONFIGS / "qwen3-8b.json", env={"MFU_GRAPHS": graphs})
                    self.assert_sound(run)
                    rows[graphs] = run.region("decode")
                    if graphs == "node":
                        self.assertEqual(rows[graphs]["graph_sum_s"], 0)
                        self.assertIsNone(rows[graphs]["suspect"])
                        continue
                    for row in [run.region("decode")] + [w for w in run.lines("window") if w["region"] == "decode"]:
                        self.assert_whole(row)
                    line = next(line for line in run.log if "decode@gpu0" in line)
                    self.assertNotIn("gemm-loss", line)
                    self.assertIn("kernel-loss", line)
                graph, node = rows["graph"], rows["node"]
                for key in ("flop", "instances", "tokens"):
                    # To one FLOP: a pass on the edge of two windows is the sum of two shares.
                    self.assertEqual(round(graph[key]), round(node[key]), key)
                for key in ("mfu_busy", "busy_s"):
                    self.assertAlmostEqual(graph[key] / node[key], 1, delta=0.005, msg=key)
                # Between passes that wait for the GPU lies the host, which no two runs have the same time for.
                mfu = [r["mfu"] if "ahead" in name else r["mfu"] / (1 - r["lost"]["idle"]) for r in (graph, node)]
                self.assertAlmostEqual(mfu[0] / mfu[1], 1, delta=0.005)

    def test_a_cupti_that_cannot(self):
        run = self.run_it(MFU_GRAPHS="graph", SIMGPU_REFUSE_KINDS="51")
        self.assert_one_line(run, "MFU_GRAPHS=graph", "every node of a graph is traced")
        self.assertEqual(run.region("step")["kernels"], 50 * 16)


# Each captures what ran before, as frameworks do. No two have the same mixture, length of nodes or number of streams.
PROGRAMS = {
    "decode": """
        kernel gemm_a ns=20000; kernel flash_fwd_kernel ns=9000; kernel elementwise_b ns=5000
        stream s
        launch gemm_a stream=s; launch flash_fwd_kernel stream=s; launch elementwise_b stream=s; sync
        capture s; launch gemm_a stream=s count=4; launch flash_fwd_kernel stream=s; launch elementwise_b stream=s count=5
        end_capture s g; instantiate g
        repeat 50 { push "decode batch=1 context=64"; graph_launch g stream=s; sync; pop }
        print ends
    """,
    "short_nodes": """
        kernel gemm_a ns=3000; kernel elementwise_b ns=1500
        stream s
        launch gemm_a stream=s; launch elementwise_b stream=s; sync
        capture s; launch gemm_a stream=s count=30; launch elementwise_b stream=s count=70; end_capture s g; instantiate g
        repeat 100 { push "step batch=1 seq_len=32"; launch elementwise_b stream=s; graph_launch g stream=s; sync; pop }
        print ends
    """,
    "with_communication": """
        kernel gemm_a ns=50000; kernel ncclDevKernel_AllReduce_Sum_bf16 ns=30000; kernel elementwise_b ns=5000
        stream s
        launch gemm_a stream=s; launch ncclDevKernel_AllReduce_Sum_bf16 stream=s; launch elementwise_b stream=s; sync
        capture s; launch gemm_a stream=s count=6; launch ncclDevKernel_AllReduce_Sum_bf16 stream=s count=2
        launch elementwise_b stream=s count=3; end_capture s g; instantiate g
        repeat 40 { push "step batch=1 seq_len=32"; graph_launch g stream=s; graph_launch g stream=s; sync; pop }
        print ends
    """,
}


class Split(TestCase):
    def compare(self, script, **env):
        runs = {how: self.unharmed(script, env={**env, "MFU_GRAPHS": how}) for how in ("node", "auto", "graph")}
        for run in runs.values():
            self.assert_sound(run)
        return runs

    def test_classes_are_those_of_the_nodes(self):
        for name, script in PROGRAMS.items():
            with self.subTest(program=name):
                runs = self.compare(script)
                region = "decode" if name == "decode" else "step"
                node, auto, graph = (runs[how].region(region) for how in ("node", "auto", "graph"))
                self.assertEqual(auto["kernels"], node["kernels"])
                self.assertEqual(auto["launches"], graph["launches"])
                # The two runs differ in their pauses, so what the device did is compared, per instance.
                for time_class in ("matmul", "other", "comm", "memcpy"):
                    split, true = (r["time_s"][time_class] / r["instances"] for r in (auto, node))
                    self.assertLess(abs(split - true), 0.01 * node["busy_s"] / node["instances"], time_class)
                self.assertEqual(auto["flop"], node["flop"])
                self.assertEqual(graph["flop"], node["flop"])
                figures = runs["auto"].end["graphs"]
                self.assertAlmostEqual(figures["known_s"], figures["s"])
                self.assertLess(figures["error"], 0.01)
                self.assertEqual(figures["error_of"], "whole_launches")  # CUPTI gives no second look at the nodes
                self.assertIn(b"100 % of it split by what their kernels take elsewhere", runs["auto"].stderr)

    def test_what_never_ran_outside_stays_whole(self):
        run = self.unharmed(PROGRAMS["decode"].replace("launch gemm_a stream=s; launch flash_fwd_kernel stream=s; "
                                                       "launch elementwise_b stream=s; sync", ""))
        self.assert_sound(run)
        self.assertEqual(run.region("decode")["kernels"], 50)
        self.assertEqual(run.end["graphs"]["known_s"], 0)
        self.assertGreater(run.end["graphs"]["s"], 50 * 114e-6)

    def test_device_buffers_do_not_run_out(self):
        env = {"SIMGPU_GRAPH_BUFFER_RECORDS": "1"}  # 250 buffers: half of the 500 kernels have a time
        lost = self.unharmed(PROGRAMS["decode"], cupti="cupti-13.0", env={**env, "MFU_GRAPHS": "node"})
        self.assertEqual(lost.end["launches"]["not_timed"], 25)
        kept = self.unharmed(PROGRAMS["decode"], cupti="cupti-13.0", env=env)
        self.assertEqual(kept.end["launches"]["not_timed"], 0)
        self.assertEqual(kept.region("decode")["kernels"], 500)

    def test_a_price_per_node_is_not_paid(self):
        env = {"SIMGPU_TRACED_NODE_NS": "10000"}
        runs = self.compare(PROGRAMS["short_nodes"], **env)
        bare = self.scenario(PROGRAMS["short_nodes"], entry="", env=env)
        self.assertGreater(runs["node"].seconds, bare.seconds + 0.09)  # 100 launches of 100 nodes, 10 us each
        self.assertLess(runs["auto"].region("step")["elapsed_s"], runs["node"].region("step")["elapsed_s"] / 2)


if __name__ == "__main__":
    main()
