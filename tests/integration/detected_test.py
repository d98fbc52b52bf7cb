"""Steps and serving iterations that no range names: the demo with and without its ranges, live and from a recording."""

import json
import os
import subprocess
import tempfile
import unittest

from harness import BUILD, DEADLINE_S, EMULATED, SANITIZE, SOURCE, TIME_CLASSES, pathlib

MFU = BUILD / "mfu"
SECONDS = 16 if SANITIZE else 8
# The demo's own: what no kernel tells.
TRAIN_SEQ_LEN, PROMPT, NEW_TOKENS = 512, 256, 64
REGIONS = ("step", "prefill_or_mixed", "decode")


def demo(directory, *options, new_tokens=NEW_TOKENS, seconds=SECONDS, **environment):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")} | environment
    if SANITIZE:  # an instrumented library has no time to split graphs as well
        environment.setdefault("MFU_GRAPHS", "node")
    done = subprocess.run([MFU, "demo", "--simulated", "--seconds", str(seconds), "--interval", "1", "--run-dir", directory,
                           "--train-seq-len", str(TRAIN_SEQ_LEN), "--prompt-len", str(PROMPT), "--new-tokens",
                           str(new_tokens), *options], env=environment, capture_output=True, timeout=DEADLINE_S, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for path in pathlib.Path(directory).glob("*.jsonl")
             for line in path.read_text().splitlines()]
    return done.stderr, lines


def whole_run(lines):
    (end,) = [line for line in lines if line["type"] == "end"]
    return {region["region"]: region for region in end["regions"]}, end["launches"]


class DetectedTest(unittest.TestCase):
    def close(self, a, b, what):
        self.assertIsNotNone(a, what)
        self.assertIsNotNone(b, what)
        self.assertLess(abs(a / b - 1), 0.01, f"{what}: {a} against {b}")

    def test_a_run_without_ranges_says_what_one_with_ranges_says(self):
        # On a machine that others use a few seconds may hold too few steps: longer, until there are enough.
        for seconds in (SECONDS, 3 * SECONDS, 9 * SECONDS):
            with tempfile.TemporaryDirectory() as with_ranges, tempfile.TemporaryDirectory() as without:
                _, lines = demo(with_ranges, seconds=seconds)
                said, _ = whole_run(lines)
                log, lines = demo(without, "--no-ranges", seconds=seconds)
                found, launches = whole_run(lines)
            if all(region in found and found[region]["instances"] > 3 for region in REGIONS):
                break
        self.assertEqual({r["named_by"] for r in said.values() if r["region"] != "total"}, {"range"})
        self.assertNotIn("detected", said["step"])
        for region, same in (("step", "step"), ("prefill_or_mixed", "prefill"), ("decode", "decode")):
            here, there = found[region], said[same]
            self.assertEqual(here["named_by"], "detector")
            self.assertGreater(here["instances"], 3)
            # Two runs of one simulated clock: kernels take the same time, the pauses between them do not.
            self.close(here["busy_s"] / here["instances"], there["busy_s"] / there["instances"], region + " busy")
            self.close(here["mfu_busy"], there["mfu_busy"], region + " mfu_busy")
            self.close(here["flop"] / here["instances"], there["flop"] / there["instances"], region + " flop")
            self.close(here["tokens"] / here["instances"], there["tokens"] / there["instances"], region + " tokens")
            self.close(sum(here["time_s"][c] for c in TIME_CLASSES), here["elapsed_s"], region)
        self.assertEqual(found["step"]["shape_source"], {"seq_len": "given", "tokens": "detected"})
        self.assertEqual(found["decode"]["shape_source"], {"batch": "detected", "context": "given"})
        phases = [found[phase] for phase in ("forward", "backward", "optimizer")]
        self.assertEqual([p["instances"] for p in phases], [found["step"]["instances"]] * 3)
        self.close(sum(p["busy_s"] for p in phases), found["step"]["busy_s"], "phases")
        self.close(phases[0]["flop"] + phases[1]["flop"], found["step"]["flop"], "flop of the passes")
        # The first step, and serving until it is certain that training is over.
        self.assertLess(launches["outside"], 3000)
        self.assertIn("training step every", log)
        # No window says more than the detector does.
        for window in (line for line in lines if line["type"] == "window"):
            self.assertIn("detected", window)
            self.assertEqual(set(window["detected"]), {"kind", "period_launches", "confidence", "micro_steps"})
            if window["region"] != "total":
                self.assertNotEqual(window["detected"]["confidence"], "not_sure")

    @unittest.skipIf(SANITIZE, "an instrumented library has no time to write the whole run down when it ends")
    @unittest.skipIf(EMULATED, "an emulator makes six steps in a run that a recording holds: one that is not sure is too many")
    def test_of_one_run_both_say_the_same(self):
        with tempfile.TemporaryDirectory() as directory:
            recording, config = os.path.join(directory, "trace.json"), os.path.join(directory, "config.json")
            # So little that the recording holds the whole run.
            demo(os.path.join(directory, "run"), new_tokens=1, seconds=1.5, MFU_TRACE=recording, MFU_TRACE_SECONDS="100")
            pathlib.Path(config).write_text(json.dumps({
                "model": json.loads((SOURCE / "tools/demo/config.json").read_text()),
                "workload": {"phase": "train", "seq_len": TRAIN_SEQ_LEN},
                "regions": [{"region": "prefill_or_mixed", "seq_len": PROMPT},
                            {"region": "decode", "context": PROMPT}]}))
            said, found = ({r["region"]: r for r in self.replay("--config", config, *options, recording)["regions"]}
                           for options in ([], ["--detect"]))
            boundaries = self.replay("--detect", recording)["detected"][0]["boundaries"]
        for region, same in (("step", "step"), ("prefill_or_mixed", "prefill"), ("decode", "decode")):
            if region != "step" and region not in found:
                continue  # a few requests behind training may be too few to be sure of
            here, there = found[region], said[same]
            self.assertEqual((here["named_by"], there["named_by"]), ("detector", "range"))
            # Between training and serving, and at both ends, a few are not sure.
            self.assertGreaterEqual(here["instances"], 0.9 * there["instances"])
            self.assertLessEqual(here["instances"], there["instances"])
            for value in ("busy_s", "kernels", "launches", "flop", "tokens"):
                self.close(here[value] / here["instances"], there[value] / there["instances"], f"{region} {value}")
        # The few steps that were not found may have been held up by others on this machine: pauses are left out.
        self.close(found["step"]["mfu_busy"], said["step"]["mfu_busy"], "step mfu_busy")
        self.assertLessEqual(found["step"]["elapsed_s"], said["step"]["elapsed_s"])
        self.assertEqual(boundaries, sorted(boundaries, key=lambda b: b["launch"]))

    def replay(self, *options):
        done = subprocess.run([MFU, "replay", "--json", *options], capture_output=True, timeout=DEADLINE_S, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_it_can_be_switched_off(self):
        with tempfile.TemporaryDirectory() as directory:
            log, lines = demo(directory, "--no-ranges", MFU_DETECT="0")
        found, launches = whole_run(lines)
        self.assertEqual(set(found), {"total"})
        self.assertNotIn("detected", found["total"])
        self.assertEqual(launches["attributed"], 0)
        self.assertEqual(launches["outside"], launches["seen"])
        self.assertNotIn("no range names a region", log)

    def test_a_wrong_switch_is_said(self):
        with tempfile.TemporaryDirectory() as directory:
            log, _ = demo(directory, MFU_DETECT="maybe")
        self.assertIn('MFU_DETECT: expected 1, 0 or explain, got "maybe"; using 1', log)

    def test_it_explains_itself_with_the_words_of_the_replay(self):
        with tempfile.TemporaryDirectory() as directory:
            log, lines = demo(directory, "--no-ranges", MFU_DETECT="explain")
        found, _ = whole_run(lines)
        said = [line["message"] for line in lines if line["type"] == "event" and line["kind"] == "explain"]
        self.assertGreater(found["step"]["instances"], 3)
        self.assertLessEqual(len(said), 1001)
        for line in said:
            self.assertRegex(line, r"^gpu0 launch \d+: ")
            self.assertIn(line, log)
        at = [int(line.split()[2].rstrip(":")) for line in said]
        self.assertEqual(at, sorted(at))
        taken = next(line for line in said if "taken: " in line and "optimizer" in line)
        before, after = said[:said.index(taken)], said[said.index(taken):]
        self.assertTrue(any("refused: " in line or "not taken yet: " in line for line in before), said)
        self.assertTrue(any("taken: iterations of a server" in line for line in after), said)


if __name__ == "__main__":
    unittest.main()
