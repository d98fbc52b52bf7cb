"""The page of `mfu report` in a real browser: its figures are those of `--json`, for live runs, traces and two runs."""

import json
import math
import shutil

from harness import TIME_CLASSES, main
from report_case import FIGURES, SCRIPT, TRACES, ReportCase


class Page(ReportCase):
    def test_a_live_run_in_a_browser(self):
        path, data = self.page(self.live_run())
        regions = data["job"]["regions"]
        self.assertEqual({r["region"] for r in regions}, {"step", "decode", "total"})
        self.assertIsNotNone(regions[0]["mfu"])
        for width in (1280, 400):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    page = self.look(path, width=width, dark=dark)
                    self.assert_figures(page, regions)
                    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                    brightness = sum(int(c) for c in background[4:-1].split(","))
                    self.assertEqual(brightness < 384, dark, background)
        # The curve is the windows' MFU, and the launch account the run's.
        points = page.evaluate("""Chart.getChart("chart-time").data.datasets.find(d => d.label === "step").data
                                  .filter(p => !isNaN(p.y)).map(p => p.y)""")
        windows = [w["mfu"] for w in data["runs"][0]["windows"] if w["region"] == "step"]
        self.assertEqual(len(points), len(windows))
        for point, window in zip(points, windows):
            if window is None:
                continue  # it closed before the peak was known; the report knows both
            self.assertTrue(math.isclose(point, window, rel_tol=1e-5), (points, windows))
        account = {name: value for name, value, _ in page.evaluate(FIGURES) if name.startswith("launches.")}
        self.assertEqual(account, {
                f"launches.{k}": str(v) for k, v in data["runs"][0]["launches"].items() if v or k != "not_timed"})
        # Every chart drew something: its canvas is not one colour.
        drawn = page.evaluate("""Array.from(document.querySelectorAll("canvas"), c => {
            const pixels = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
            return [c.id, new Set(pixels).size > 3]; })""")
        self.assertGreaterEqual(
            {name for name, _ in drawn}, {"chart-time", "chart-waterfall", "chart-roofline", "chart-latency-0"}
        )
        self.assertTrue(all(several for _, several in drawn), drawn)
        words = page.evaluate("document.querySelector('[data-region=step] .words').textContent")
        self.assertEqual(words.replace("\u00a0", " ").strip(), next(r for r in regions if r["region"] == "step")["words"] + ".")

    def test_recorded_traces_in_a_browser(self):
        ranks = self.directory / "ranks"
        ranks.mkdir()
        for trace in TRACES.glob("param_dlrm8_v100_rank*.json.gz"):
            shutil.copy(trace, ranks)
        for source, wanted in ((TRACES / "kineto_resnet50_v100_w0.json.gz", {"step", "total"}), (ranks, {"step", "total"})):
            with self.subTest(source.name):
                path, data = self.page(source)
                regions = data["job"]["regions"]
                self.assertEqual({r["region"] for r in regions}, wanted)
                for width, dark in ((1280, False), (400, True)):
                    page = self.look(path, width=width, dark=dark)
                    self.assert_figures(page, regions)
        self.assertEqual(data["job"]["processes"], 4)
        self.assertEqual(page.evaluate("document.querySelectorAll('#ranks tbody tr').length"), 4)
        self.assertIn("4 of 8 ranks are not here: 4-7", page.evaluate("document.getElementById('warnings').textContent"))

    def test_two_runs_in_a_browser(self):
        a = self.live_run()
        b = self.scenario(SCRIPT.replace("launch softmax count=20", "launch softmax count=60")).directory / "run"
        path = self.directory / "compared.html"
        self.report(a, b, "--html", "-o", path, command="compare")
        data = json.loads(self.report(a, b, "--json", command="compare")[0])
        step = next(r for r in data["regions"] if r["region"] == "step")
        self.assertEqual(step["basis"], "mfu")
        self.assertAlmostEqual(step["mfu"]["change"] + sum(step["classes"][c]["change"] for c in TIME_CLASSES), 0, places=12)
        self.assertGreater(step["classes"]["other"]["change"], 0)
        page = self.look(path)
        title = rf"^{b.parent.name}/run against {a.parent.name}/run: step -\d.* % token/s$"
        self.assertRegex(page.evaluate("document.title"), title)
        page.call("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        page.call("Page.bringToFront")
        page.evaluate("document.querySelector('.actions button').click()")
        self.assertEqual(page.evaluate("new Promise(done => setTimeout(() => navigator.clipboard.readText().then(done), 300))"),
                         self.report(a, b, "--markdown", command="compare")[0])
        shown = {name: value for name, value, _ in page.evaluate(FIGURES)}
        for side in ("a", "b", "change"):
            self.assertEqual(float(shown[f"step.mfu.{side}"]), step["mfu"][side])
        for c in TIME_CLASSES:
            self.assertEqual(float(shown[f"step.{c}.change"]), step["classes"][c]["change"])
        self.look(path, width=400, dark=True)
        text, _ = self.report(a, b, command="compare")
        self.assertRegex(text, r"(?m)^step: .*token/s to .*; MFU .* points")
        self.assertIn("| step |", self.report(a, b, "--markdown", command="compare")[0])
        _, err = self.report(a, b, code=2)
        self.assertIn("one run at a time; to compare two: mfu compare ", err)

    def test_names_are_text(self):
        """What a traced program calls its things may be anything."""
        evil = "</script><script>window.evil = 1</script><img src=http://127.0.0.1:9/x onerror='window.evil=2'>&amp;\"'`${1}"
        directory = self.live_run()
        for file in directory.glob("*.jsonl"):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            for line in lines:
                for region in [line] + line.get("regions", []):
                    if region.get("region") == "step":
                        region["region"] = evil
                    for kernel in region.get("top_kernels", []):
                        kernel["name"] = evil + kernel["name"]
                for device in line.get("devices", []):
                    device["name"] = evil
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        path, _ = self.page(directory)
        page = self.look(path)
        self.assertIsNone(page.evaluate("window.evil === undefined ? null : window.evil"))
        self.assertIn(evil, page.evaluate("Array.from(document.querySelectorAll('.answer'), e => e.dataset.region)"))
        self.assertIn(evil, page.evaluate("document.body.textContent"))
        self.assertEqual(page.evaluate("document.images.length"), 0)

    def test_a_run_that_was_killed(self):
        directory = self.live_run()
        file = next(directory.glob("*.jsonl"))
        whole = json.loads(self.report(directory, "--json")[0])["job"]
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:-1]) + lines[-1][:100])  # in the middle of its last line
        path, data = self.page(directory)
        job = data["job"]
        self.assertEqual((job["complete"], job["launches"]), (0, None))
        for region in whole["regions"]:
            other = next(r for r in job["regions"] if r["region"] == region["region"])
            self.assertEqual(other["instances"], region["instances"])
            self.assertAlmostEqual(other["elapsed_s"], region["elapsed_s"], places=6)
            self.assertAlmostEqual(other["mfu"], region["mfu"], places=6)
        self.assertIn("unfinished", [w["kind"] for w in job["warnings"]])
        self.assert_figures(self.look(path), job["regions"])

    def test_without_a_model_there_are_times(self):
        directory = self.scenario(SCRIPT, config=None).directory / "run"
        path, data = self.page(directory)
        step = next(r for r in data["job"]["regions"] if r["region"] == "step")
        self.assertIsNone(step["mfu"])
        self.assertIn("no model config", step["why_no_mfu"])
        page = self.look(path)
        self.assert_figures(page, data["job"]["regions"])
        self.assertIn("MFU unknown", page.evaluate("document.querySelector('[data-region=step]').textContent"))
        self.assertNotIn("NaN", page.evaluate("document.body.innerText"))
        _, err = self.report(directory, "--assert", "step.mfu>=0", code=1)
        self.assertIn("is unknown: the run had no model config", err)


if __name__ == "__main__":
    main()
