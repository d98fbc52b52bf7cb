"""The event files that MFU_TB_DIR makes, read by TensorBoard itself."""

import subprocess
import sys

from harness import BUILD, DEADLINE_S, SOURCE, TestCase, main, unittest

sys.path.insert(0, str(SOURCE / ".deps/tensorboard"))
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None

SCRIPT = """
kernel gemm_kernel ns=20000000
repeat 20 {
  push "step batch=4 seq_len=1024"
  launch gemm_kernel
  sync
  sleep 20
  pop
}
"""


@unittest.skipIf(EventAccumulator is None, "no tensorboard: tools/install-deps --tests")
class Tensorboard(TestCase):
    def test_curves_are_those_of_the_run_directory(self):
        folder = self.directory / "tb"
        run = self.scenario(SCRIPT, env={"MFU_TB_DIR": f"{folder}/%q{{EXPERIMENT}}", "EXPERIMENT": "first", "RANK": "3",
                                         "MFU_INTERVAL": "0.2"})
        files = list(folder.rglob("events.out.tfevents.*"))
        self.assertEqual(len(files), 1, run.log)
        start = run.lines("start")[0]
        self.assertEqual(files[0].parent, folder / "first" / f"{start['host']}-3-{start['pid']}")
        read = EventAccumulator(str(files[0].parent), size_guidance={"scalars": 0})
        read.Reload()
        windows = [w for w in run.lines("window") if w["region"] == "step"]
        self.assertGreater(len(windows), 1)
        for tag, key in (("step/mfu", "mfu"), ("step/lost/idle", "lost")):
            curve = read.Scalars(tag)
            wanted = [w[key] if key == "mfu" else w["lost"]["idle"] for w in windows if w[key] is not None]
            wanted = [value for value in wanted if value is not None]  # what is not known is no point of a curve
            self.assertEqual(len(curve), len(wanted), tag)
            for point, value in zip(curve, wanted):
                self.assertAlmostEqual(point.value, value, delta=1e-6 * max(1, abs(value)))
        curve = read.Scalars("step/lost/idle")
        done, steps = 0, []
        for window in windows:
            done += window["instances"]
            if (window["lost"] or {}).get("idle") is not None:
                steps.append((done, window["t1_ns"] / 1e9))
        self.assertEqual([p.step for p in curve], [done for done, _ in steps])
        self.assertAlmostEqual(curve[0].wall_time, steps[0][1], places=3)
        self.assertIn("total/overhead", read.Tags()["scalars"])

        # Made afterwards from the run directory, the file is the same to the byte.
        done = subprocess.run([BUILD / "mfu", "report", run.directory / "run", "--tensorboard", self.directory / "later"],
                              capture_output=True, text=True, timeout=DEADLINE_S, cwd=self.directory)
        self.assertEqual(done.returncode, 0, done.stderr)
        later = self.directory / "later" / files[0].relative_to(folder / "first")
        self.assertEqual(later.read_bytes(), files[0].read_bytes())
        self.assertFalse((self.directory / "mfu-report.html").exists(), "no page where none was asked for")


if __name__ == "__main__":
    main()
