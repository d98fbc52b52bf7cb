"""MFU_BUDGET: on a GPU where tracing has a price, the program pays no more than the budget, and figures are those of what was
traced."""

import re
import unittest

from harness import SANITIZE, TestCase, main, ns, union_ns

# Steps of so many launches, each waited for.
SCRIPT = """
    kernel gemm_a ns=1500; stream s
    repeat {steps} {{ push "step batch=1 seq_len=16"; {more} launch gemm_a stream=s count={launches}; sync s; pop }}
    print ends
"""


COST = re.compile(r"tracing costs (-?[0-9.]+) \+-([0-9.]+) % of a step, MFU_BUDGET is [0-9.]+ %: (one window in (\d+)|all|no)")


def totals(run):
    return [w for w in run.lines("window") if w["region"] == "total"]


def traced(window):
    return all(finding["kind"] != "not_traced" for finding in window.get("findings", []))


def said(run):
    """Cost and error [% of a step], of how many windows one is traced (0: none), by the last event."""
    cost, error, words, every = COST.match(run.events("budget")[-1]).groups()
    return float(cost), float(error), int(every or {"all": 1, "no": 0}[words])


@unittest.skipIf(SANITIZE, "it is about time, and instrumented code has another")
class Budget(TestCase):
    def run_it(self, price_ns, steps, launches=100, more="", **env):
        prices = {"SIMGPU_TRACED_LAUNCH_NS": price_ns, "SIMGPU_CALLBACK_NS": price_ns // 10, "SIMGPU_GAP_NS": 0,
                  "SIMGPU_LAUNCH_COST_NS": 2000}
        script = SCRIPT.format(steps=steps, launches=launches, more=more)
        run = self.scenario(script, env={"MFU_INTERVAL": 1, **prices, **env})
        self.assertEqual(run.stdout, b"ends\n")
        # A thread that is held up for long inside the call of a launch meets a pause there.
        self.assertLess(run.end["launches"]["dropped"], max(1, run.end["launches"]["seen"] / 10_000))
        self.assertEqual(run.end["counters"].get("records_unmatched", 0), 0)
        return run

    def slowdown(self, run, since_s):
        """Of the steps from so many seconds after the begin on, against those of the windows in which nothing was traced."""
        windows = totals(run)[:-1]
        later = windows[since_s:]
        self.assertGreater(len(later), 5)
        tracing_begins = [traced(following) for following in windows[1:]] + [True]
        bare = [w for w, begins in zip(windows, tracing_begins) if not traced(w) and not begins][-len(later):]
        steps = [sum(w["instances"] for w in some) / len(some) for some in (later, bare)]
        return steps[1] / steps[0] - 1

    def test_prices(self):
        for price_ns, budget, steps in ((1000, 4, 110_000), (10_000, 10, 90_000)):
            with self.subTest(price_ns):
                run = self.run_it(price_ns, steps, MFU_BUDGET=budget, SIMGPU_TRACE=None)
                cost, error, every = said(run)
                self.assertGreater(every, 1)
                self.assertGreater(cost, error)
                self.assertEqual(len(run.events("budget")), 2, run.log)  # once when it changes, once at the end
                self.assertLess(self.slowdown(run, 10), budget / 100)
                self.assertTrue(any("% of the run, which was traced" in line for line in run.log), run.log)

    def test_figures_are_those_of_what_was_traced(self):
        run = self.run_it(10_000, 25_000, launches=20, more="spin 1;", MFU_BUDGET=4)
        delivered = [(a["begin"], a["end"]) for a in run.activities(kind="kernel", fate="delivered")]
        measured = [w for w in totals(run) if traced(w)]
        self.assertGreater(len(measured), 1)
        for w in measured:
            t0, t1 = w["t0_ns"], w["t1_ns"]
            inside = [(max(b, t0), min(e, t1)) for b, e in delivered if b < t1 and e > t0]
            self.assertAlmostEqual(ns(w["busy_s"]), union_ns(inside), delta=20_000)
            self.assertAlmostEqual(w["mfu"] + sum(w["lost"].values()), 1, places=9)
        bare = [w for w in run.lines("window") if not traced(w)]
        for w in bare:
            self.assertIsNone(w["busy_s"])
            self.assertEqual(set(w["lost"].values()), {None})
        self.assertTrue(any(w["mfu"] for w in bare if w["region"] == "step"))
        total = run.region("total")
        self.assertIn("coverage", [finding["kind"] for finding in total["findings"]])
        self.assertAlmostEqual(total["busy_s"], sum(w["busy_s"] for w in measured), places=6)

    def test_without_a_price_all_is_traced(self):
        run = self.run_it(0, 60_000, MFU_BUDGET=20, SIMGPU_TRACE=None)
        self.assertEqual(said(run)[2], 1, run.log)
        self.assertTrue(traced(totals(run)[-2]))

    def test_none_by_default(self):
        run = self.run_it(1000, 2000)
        self.assertEqual(run.events("budget"), [])
        self.assertEqual(run.end["launches"]["attributed"], 2000 * 100)

    def test_few_launches_never_pause(self):
        run = self.run_it(1000, 700, launches=9, more="spin 10;", MFU_BUDGET=1)
        self.assertGreater(run.end["t1_ns"] - run.end["t0_ns"], 6e9)
        self.assertEqual(run.end["launches"]["attributed"], 700 * 9)
        self.assertTrue(all(map(traced, totals(run))))

    def test_where_tracing_cannot_pause(self):
        run = self.run_it(1000, 2000, MFU_BUDGET=1, MFU_GRAPHS="node")
        self.assert_one_line(run, "MFU_BUDGET", "cannot pause")
        self.assertEqual(run.end["launches"]["attributed"], 2000 * 100)


if __name__ == "__main__":
    main()
