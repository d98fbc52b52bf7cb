"""`mfu report` without a page: JSON, CSV, Perfetto, Markdown, assertions, and input that is no run."""

import csv
import io
import json
import os
import subprocess

from harness import BUILD, GPT2, main
from report_case import TRACES, ReportCase


class Forms(ReportCase):
    def test_json_csv_perfetto_markdown(self):
        directory = self.live_run()
        data = json.loads(self.report(directory, "--json")[0])
        file = next(directory.glob("*.jsonl"))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        windows = [
            {k: v for k, v in line.items() if k not in ("v", "type", "t_ns", "seq", "counters", "self", "trust")}
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

    def test_advice_for_people_and_programs(self):
        """ResNet-50 of the PyTorch profiler's tutorial, whose GPU waits for its data loader."""
        trace = TRACES / "kineto_resnet50_v100_w0.json.gz"
        words = [BUILD / "mfu", "advise", trace]
        env = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        answer = json.loads(subprocess.run([*words, "--json"], capture_output=True, text=True, check=True, env=env).stdout)
        self.assertEqual((answer["v"], answer["source"]), (1, str(trace)))
        for one in answer["advice"]:
            self.assertEqual(list(one), ["kind", "region", "evidence", "action", "gain"])
        kinds = [one["kind"] for one in answer["advice"]]
        self.assertEqual(kinds, sorted(kinds, key="measure config work time rank".find))
        self.assertIn("no model config", answer["advice"][0]["evidence"])
        first = answer["advice"][kinds.index("time")]
        self.assertEqual(first["region"], "step")
        self.assertIn("before the first kernel", first["evidence"])
        self.assertIn("data-loader", first["action"])
        self.assertGreater(first["gain"], 1.5)
        shown = subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout
        self.assertEqual([line for line in shown.splitlines() if len(line) > 120], [])
        self.assertEqual(shown.count("\n- ") + 1, len(kinds))

    def test_assertions(self):
        directory = self.live_run()
        self.report(directory, "--assert", "step.mfu>0", "--assert", "step.instances==12", "--assert", "decode.p99_s < 10 s")
        self.assertFalse((self.directory / "report/mfu-report.html").exists())
        _, err = self.report(
            directory, "--assert", "step.mfu>=99%", "--assert", "step.mbu>=0", "--assert", "decode.mfu>0", code=1
        )
        self.assertEqual(len(err.splitlines()), 3, err)
        self.assertIn("mfu report: ok decode.mfu 0.", err)
        self.assertRegex(err, r"step\.mfu>=99% does not hold: step\.mfu is [0-9.]+ %")
        self.assertIn("step.mbu>=0 does not hold: step.mbu is unknown: ", err)
        for text, words in (
            ("stop.mfu>=0", "there are step, decode, total"),
            ("step.mfuu>=0", ", mfu, mfu_busy, "),
            ("step.mfu", "no >="),
        ):
            _, err = self.report(directory, "--assert", text, code=2)
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertIn(words, err)

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
