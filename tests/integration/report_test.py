"""`mfu report`: what it prints and the page it writes, looked at in a real browser, for a live run and for recorded traces."""

import csv
import io
import json
import math
import os
import shutil
import subprocess

import browser
from harness import BUILD, DEADLINE_S, GPT2, SOURCE, TIME_CLASSES, TestCase, main

MFU = BUILD / "mfu"
TRACES = SOURCE / "tests/data/traces"
# Two windows or more, a region with bytes, one without, and time that belongs to none.
SCRIPT = """
kernel gemm_step ns=2000000
kernel softmax ns=500000
repeat 12 { push "step batch=2 seq_len=64"; launch gemm_step count=10; launch softmax count=20; sync; pop; sleep 30 }
repeat 20 { push "decode batch=2 context=64"; launch gemm_step; sync; pop; sleep 5 }
"""
FIGURES = """Array.from(document.querySelectorAll("[data-figure]"), e => [e.dataset.figure, e.dataset.value, e.textContent])"""


def at(region, key):
    """The value of a figure as the JSON output has it."""
    value = region
    for part in key.split("."):
        value = None if value is None else value[int(part) if isinstance(value, list) else part]
    return value


class Report(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser() if browser.program() else None

    @classmethod
    def tearDownClass(cls):
        if cls.browser:
            cls.browser.close()

    def report(self, *arguments, code=0, env=None):
        """Runs the command in a directory of its own. Returns stdout and stderr."""
        directory = self.directory / "report"
        directory.mkdir(exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        done = subprocess.run([MFU, "report", *map(str, arguments)], cwd=directory, env={**environment, **(env or {})},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S)
        err = done.stderr.decode()
        self.assertEqual(done.returncode, code, err)
        return done.stdout.decode(), err

    def live_run(self):
        """The run directory of a small program."""
        run = self.scenario(SCRIPT)
        return run.directory / "run"

    def page(self, *arguments):
        """The page of these arguments, and its JSON."""
        path = self.directory / f"page{len(list(self.directory.iterdir()))}.html"
        self.report(*arguments, "-o", path)
        return path, json.loads(self.report(*arguments, "--json")[0])

    def look(self, path, **how):
        """Opens a page; nothing may be complained about, asked for or wider than the window."""
        if self.browser is None:
            self.skipTest("no Chromium here: tools/install-deps --tests installs it")
        self.browser.open(path, **how)
        self.assertEqual(self.browser.evaluate("document.body.dataset.ready"), "yes", self.browser.complaints())
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual(self.browser.requests(), [path.resolve().as_uri()])
        width = how.get("width", 1280)
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
        return self.browser

    def assert_figures(self, page, regions):
        """Every figure of the page is the JSON's; every region's MFU is among them."""
        shown = page.evaluate(FIGURES)
        by_name = {r["region"]: r for r in regions}
        met = set()
        for name, value, text in shown:
            region = next((r for r in by_name if name.startswith(r + ".")), None)
            if region is None or ".kernel." in name:
                continue
            key = name[len(region) + 1:]
            expected = at(by_name[region], key)
            self.assertEqual(None if value == "null" else float(value), expected, name)
            self.assertEqual("unknown" in text or text.strip() in ("–", ""), expected is None, f"{name}: {text}")
            if key == "mfu" and expected is not None:
                self.assertIn(f"{expected * 100:.1f} %", text)
            met.add(name)
        for name in by_name:
            self.assertIn(f"{name}.mfu", met)
            self.assertIn(f"{name}.elapsed_s", met)

    # --- pages ---

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
        self.assertEqual(account, {f"launches.{k}": str(v) for k, v in data["runs"][0]["launches"].items()})
        # Every chart drew something: its canvas is not one colour.
        drawn = page.evaluate("""Array.from(document.querySelectorAll("canvas"), c => {
            const pixels = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
            return [c.id, new Set(pixels).size > 3]; })""")
        self.assertGreaterEqual(
            {name for name, _ in drawn}, {"chart-time", "chart-waterfall", "chart-roofline", "chart-latency-0"}
        )
        self.assertTrue(all(several for _, several in drawn), drawn)
        words = page.evaluate("document.querySelector('[data-region=step] .words').textContent")
        self.assertEqual(words.strip(), next(r for r in regions if r["region"] == "step")["words"] + ".")

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
        path, data = self.page(a, b)
        step = next(r for r in data["regions"] if r["region"] == "step")
        self.assertEqual(step["basis"], "mfu")
        self.assertAlmostEqual(step["mfu"]["change"] + sum(step["classes"][c]["change"] for c in TIME_CLASSES), 0, places=12)
        self.assertGreater(step["classes"]["other"]["change"], 0)
        page = self.look(path)
        shown = {name: value for name, value, _ in page.evaluate(FIGURES)}
        for side in ("a", "b", "change"):
            self.assertEqual(float(shown[f"step.mfu.{side}"]), step["mfu"][side])
        for c in TIME_CLASSES:
            self.assertEqual(float(shown[f"step.{c}.change"]), step["classes"][c]["change"])
        self.look(path, width=400, dark=True)
        text, _ = self.report(a, b)
        self.assertRegex(text, r"(?m)^step: .*token/s to .*; MFU .* points")
        self.assertIn("| step |", self.report(a, b, "--markdown")[0])
        for wrong in (["--csv"], ["--perfetto"], ["--assert", "step.mfu>=0"]):
            _, err = self.report(a, b, *wrong, code=2)
            self.assertIn("take one run", err)

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

    # --- other forms ---

    def test_json_csv_perfetto_markdown(self):
        directory = self.live_run()
        data = json.loads(self.report(directory, "--json")[0])
        file = next(directory.glob("*.jsonl"))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        windows = [
            {k: v for k, v in line.items() if k not in ("v", "type", "t_ns", "seq", "counters", "self")}
            for line in lines
            if line["type"] == "window"
        ]
        run = data["runs"][0]
        self.assertTrue(run["complete"])
        self.assertEqual(run["windows"], windows)
        end = lines[-1]
        self.assertEqual(run["launches"], end["launches"])
        for region in run["regions"]:
            written = next(r for r in end["regions"] if r["region"] == region["region"])
            self.assertEqual(
                {k: v for k, v in region.items() if k != "clock_ratio"}, {k: v for k, v in written.items() if k != "clock_ratio"}
            )
        rows = list(csv.DictReader(io.StringIO(self.report(directory, "--csv")[0], newline="")))
        self.assertEqual(len(rows), len(windows))
        for row, window in zip(rows, windows):
            self.assertEqual(
                (row["region"], int(row["t0_ns"]), int(row["instances"])),
                (window["region"], window["t0_ns"], window["instances"]),
            )
            self.assertEqual(float(row["mfu"]) if row["mfu"] else None, window["mfu"])
            self.assertEqual(float(row["time_idle_s"]), window["time_s"]["idle"])
        trace = json.loads(self.report(directory, "--perfetto")[0])
        slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        self.assertEqual(len(slices), len(windows))
        self.assertEqual(trace["baseTimeNanoseconds"], windows[0]["t0_ns"])
        for event, window in zip(slices, windows):
            self.assertAlmostEqual(event["ts"] * 1e3 + trace["baseTimeNanoseconds"], window["t0_ns"], delta=1000)
        names = {e["name"] for e in trace["traceEvents"] if e["ph"] == "C"}
        self.assertLessEqual({"step@gpu0 MFU %", "step@gpu0 TFLOP/s", "decode@gpu0 MBU %"}, names)
        markdown, _ = self.report(directory, "--markdown")
        mfu = next(r for r in data["job"]["regions"] if r["region"] == "step")["mfu"]
        self.assertRegex(markdown, rf"\| step \| 12 \|.*\| {mfu * 100:.1f} % \|")

    def test_assertions(self):
        directory = self.live_run()
        self.report(directory, "--assert", "step.mfu>0", "--assert", "step.instances==12", "--assert", "decode.p99_s < 10 s")
        self.assertFalse((self.directory / "report/mfu-report.html").exists())
        _, err = self.report(
            directory, "--assert", "step.mfu>=99%", "--assert", "step.mbu>=0", "--assert", "decode.mfu>0", code=1
        )
        self.assertEqual(len(err.splitlines()), 3, err)
        self.assertIn("mfu report: ok decode.mfu 0.", err)
        self.assertIn("step.mfu>=99% does not hold: step.mfu is 0.", err)
        self.assertIn("step.mbu>=0 does not hold: step.mbu is unknown: ", err)
        for text, words in (
            ("stop.mfu>=0", "there are step, decode, total"),
            ("step.mfuu>=0", ", mfu, mfu_busy, "),
            ("step.mfu", "no >="),
        ):
            _, err = self.report(directory, "--assert", text, code=2)
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertIn(words, err)

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

    def test_input_that_is_no_run(self):
        directory = self.directory / "input"
        directory.mkdir()
        cases = [(self.directory / "nowhere", "no such file"), (directory, "neither files of a run"), ("/dev/null", "/dev/null")]
        for name, content in (
            ("empty.jsonl", b""),
            ("foreign.jsonl", b'{"a": 1}\n[1]\nnull\n'),
            ("binary.jsonl", bytes(range(256)) * 40),
            ("half.jsonl", b'{"v":1,"type":"start","t_ns":1'),
            ("other.txt", b"hello"),
            ("trace.json", b'{"traceEvents": []}'),
        ):
            path = self.directory / name
            path.write_bytes(content)
            cases.append((path, name))
        for path, words in cases:
            with self.subTest(str(path)):
                out, err = self.report(path, code=1)
                self.assertEqual(out, "")
                self.assertEqual(len(err.splitlines()), 1, err)
                self.assertIn(words, err)
        self.assertFalse((self.directory / "report/mfu-report.html").exists())
        # One that can be used beside some that cannot: a remark each, and the rest is worked out.
        run = self.live_run()
        (run / "zz.jsonl").write_bytes(b"not a run\n")
        out, err = self.report(run)
        self.assertIn("zz.jsonl", err)
        self.assertIn("step@gpu0", out)
        self.report(run, "-o", "/nowhere/page.html", code=1)
        self.report(run, "--json", "--csv", code=2)
        self.report(run, run, run, code=2)

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

    def test_a_trace_with_a_model(self):
        trace = TRACES / "tracelens_qwen05b_h100.json.gz"
        data = json.loads(self.report(trace, "--json", "-c", GPT2, env={"MFU_SET": "workload.batch=1,workload.seq_len=64"})[0])
        step = next(r for r in data["job"]["regions"] if r["region"] == "step")
        self.assertGreater(step["flop"], 0)
        self.assertAlmostEqual(step["mfu"], step["flop"] / step["flop_at_peak"], places=12)
        _, err = self.report(trace, "-c", "/nowhere.json", code=1)
        self.assertIn("/nowhere.json", err)


if __name__ == "__main__":
    main()
