"""CUDA graphs: every node timed (MFU_GRAPHS=node), or each launch as a whole (MFU_GRAPHS=graph)."""

from harness import TestCase, main, ns, union_ns

SCRIPT = """
    kernel gemm_a ns=20000; kernel elementwise_b ns=5000
    stream s
    capture s; launch gemm_a stream=s count=10; launch elementwise_b stream=s count=5; end_capture s g; instantiate g
    repeat 50 { push "step batch=1 seq_len=32"; launch gemm_a stream=s; graph_launch g stream=s; sync; pop }
    print ends
"""


class Graphs(TestCase):
    def run_it(self, **env):
        run = self.unharmed(SCRIPT, env=env)
        self.assertEqual(run.stdout, b"ends\n")
        self.assert_sound(run)
        self.assertEqual(run.end["launches"], {"seen": 100, "attributed": 100, "outside": 0, "unattributed": 0, "dropped": 0,
                                               "not_timed": 0})
        return run

    def test_nodes(self):
        for env in ({}, {"MFU_GRAPHS": "node"}):
            run = self.run_it(**env)
            self.assertEqual(run.region("step")["kernels"], 50 * 16)

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

    def test_a_cupti_that_cannot(self):
        run = self.run_it(MFU_GRAPHS="graph", SIMGPU_REFUSE_KINDS="51")
        self.assert_one_line(run, "MFU_GRAPHS=graph", "every node of a graph is traced")
        self.assertEqual(run.region("step")["kernels"], 50 * 16)


if __name__ == "__main__":
    main()
