"""Joules of regions against a board whose power is known, through a stand-in for NVML."""

import json
import pathlib
import re
import sys

from harness import BUILD, SANITIZE, SOURCE, TestCase, main, unittest

PROGRAM = pathlib.Path(__file__).with_name("energy_program.py")


@unittest.skipIf(SANITIZE, "the interpreter is not instrumented, and the library needs its sanitizer's runtime first")
class Energy(TestCase):
    def work(self, seconds, **env):
        """Returns (run, what the program says of itself)."""
        power = self.directory / "power"
        run = self.program(
            [sys.executable, PROGRAM, seconds],
            env={"PYTHONPATH": SOURCE / "python", "PYTHONDONTWRITEBYTECODE": 1, "NVML_POWER_FILE": power, "MFU_INTERVAL": 1,
                 "MFU_IDLE": 0, **env},
            before=lambda _, e: e.update(LD_LIBRARY_PATH=f"{BUILD}/clients/nvml:{e['LD_LIBRARY_PATH']}"),
        )
        self.assertEqual(run.code, 0, run.stderr.decode())
        self.assert_sound(run)
        return run, json.loads(run.stdout)

    def energy(self, run, region):
        return run.region(region).get("energy")

    def test_phases_that_share_windows(self):
        for _ in range(3):  # beside other work, windows and readings may come too late to separate the two
            run, said = self.work(20)
            if all("energy" in run.region(region) for region in ("prefill", "decode")):
                break
        for region in ("prefill", "decode"):
            row = run.region(region)
            energy = row["energy"]
            self.assertEqual(energy["method"], "fit")
            self.assertLess(energy["error"] / energy["joules"], 0.15)
            per_token = said["joules"][region] / said["tokens"][region]
            self.assertAlmostEqual(row["joules_per_token"] / per_token, 1, delta=0.03 + energy["error"] / energy["joules"])
            self.assertAlmostEqual(energy["idle_w"], 95, delta=25)
        total = run.region("total")
        self.assertEqual(total["energy"]["method"], "counter")
        spans = [w["energy"] for w in run.lines("window") if w["region"] == "total" and "energy" in w]
        self.assertGreater(len(spans), 10)
        self.assertAlmostEqual(sum(s["joules"] for s in spans), total["energy"]["joules"], places=6)
        power = total["energy"]["joules"] / len(spans)
        truth = sum(said["joules"].values()) / 20
        self.assertAlmostEqual(power / truth, 1, delta=0.1)
        self.assertLess(spans[-1]["error"], 700 * 2 * 0.04)

    def test_what_nvml_does_not_say_is_null(self):
        for env, words in (
            ({"NVML_REFUSE": 3}, "the energy counter cannot be read: nvmlDeviceGetTotalEnergyConsumption returns 3"),
            ({"NVML_REFUSE": 4}, "returns 4"),
            ({"NVML_PART": 1}, "a part of a GPU (MIG) has no counter of its own"),
            ({"NVML_HANG_AFTER": 1}, None),
            ({"MFU_ENERGY": 0}, None),
        ):
            with self.subTest(env):
                run, _ = self.work(3.5, **env)
                self.assertNotIn("energy", run.region("total"))
                if words:
                    self.assertEqual(sum(words in line for line in run.log), 1, run.log)

    def test_a_counter_that_is_set_back(self):
        run, said = self.work(8, NVML_RESET_AFTER=60)
        spans = [w["energy"]["joules"] for w in run.lines("window") if w["region"] == "total" and "energy" in w]
        self.assertTrue(spans)
        self.assertTrue(all(50 < j < 1500 for j in spans), spans)

    def test_a_slow_call_is_made_once_in_five_seconds(self):
        run, _ = self.work(14, NVML_DELAY_MS=4)
        spans = [w["energy"] for w in run.lines("window") if w["region"] == "total" and "energy" in w]
        self.assertIn(len(spans), (1, 2))
        for span in spans:
            self.assertTrue(5 * 95 < span["joules"] < 6 * 700, spans)
        self.assertTrue(any(re.search(r"a call takes [4-9]\.", line) for line in run.log), run.log)

    def test_a_call_that_is_held_up_now_and_then_changes_nothing(self):
        run, _ = self.work(8, NVML_DELAY_MS=20, NVML_DELAY_EVERY=7)
        self.assertGreater(sum("energy" in w for w in run.lines("window") if w["region"] == "total"), 3)

    def test_what_holds_the_clock_down(self):
        run, _ = self.work(5, NVML_HELD=0.3)
        shares = [w["clock_power"] for w in run.lines("window") if w["region"] == "total" and "clock_power" in w]
        self.assertTrue(shares)
        for share in shares:
            self.assertAlmostEqual(share, 0.3, delta=0.01)


if __name__ == "__main__":
    main()
