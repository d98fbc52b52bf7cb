"""How the page of `mfu report` looks and answers: every width and theme, much data and none, timelines, keys, the clipboard."""

import json
import re
import shutil
import struct
import unittest
import zlib

import browser
import fake_ranks
from harness import SOURCE, main
from report_case import COMPONENTS, SCRIPT, TRACES, ReportCase

CHECKS = (SOURCE / "tests/integration/page_checks.js").read_text()
VIEWS = [(width, dark) for width in (1440, 1280, 390) for dark in (False, True)]

def png_size(data):
    """Width and height of a PNG, and how many distinct rows it has."""
    width, height = struct.unpack(">II", data[16:24])
    at, pixels = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IDAT":
            pixels += data[at + 8:at + 8 + length]
        at += 12 + length
    raw = zlib.decompress(pixels)
    stride = len(raw) // height
    return width, height, len({raw[i * stride:(i + 1) * stride] for i in range(height)})


@unittest.skipIf(browser.program() is None, "no Chromium here: tools/install-deps --tests installs it")
class Layout(ReportCase):
    def look(self, path, **how):
        page = super().look(path, **how)
        page.evaluate(CHECKS + "; true")
        return page

    def check(self, path, views=VIEWS):
        """Nothing wider than the window, no text on text, no label on a label, no message, in every view."""
        for width, dark in views:
            with self.subTest(path.name, width=width, dark=dark):
                page = self.look(path, width=width, dark=dark)
                self.assertEqual(page.evaluate("checks.overlaps()"), [])
                self.assertEqual(page.evaluate("checks.ticks()"), [])
                self.assertNotRegex(page.evaluate("document.body.innerText"), r"\b(NaN|undefined|null|Infinity)\b")
        return page

    def ranks(self, count, windows=4, **changes):
        """The run directory of a job that never ran."""
        directory = self.directory / f"ranks{count}"
        job = fake_ranks.Job(ranks=count, hosts=max(1, count // 8))
        for rank, change in changes.items():
            for name, value in change.items():
                setattr(job.ranks[int(rank[1:])], name, value)
        job.write(directory, windows)
        return directory

    def test_a_live_run(self):
        self.check(self.page(self.live_run())[0])

    def test_traces(self):
        ranks = self.directory / "ranks"
        ranks.mkdir()
        for trace in TRACES.glob("param_dlrm8_v100_rank*.json.gz"):
            shutil.copy(trace, ranks)
        for source in (TRACES / "kineto_resnet50_v100_w0.json.gz", TRACES / "hta_resnet_ddp2_a100_rank0.json.gz", ranks):
            self.check(self.page(source)[0])

    def test_two_runs(self):
        a = self.live_run()
        b = self.scenario(SCRIPT.replace("launch softmax count=20", "launch softmax count=60")).directory / "run"
        self.check(self.page(a, b)[0])

    def test_a_thousand_ranks(self):
        directory = self.ranks(1000, windows=2, r13={"late_s": 0.002}, r7={"mfu": 0.25}, r30={"flop_known": False})
        page = self.check(self.page(directory)[0], [(1440, False), (390, True)])
        notes = page.evaluate("Array.from(document.querySelectorAll('.odd li'), e => e.textContent)")
        self.assertRegex(notes[0], r"straggler: rank 13 \(node01 gpu 0\) costs .* points of MFU: last in step by 2 ms")
        self.assertRegex(notes[1], r"slowest: rank 7 gpu0 \(node00\) with 25\.0 % in step; the median is 40\.0 %")
        self.assertIn("1 of 1000 ranks have no MFU", notes)
        self.assertEqual(page.evaluate("document.querySelectorAll('#ranks tbody tr').length"), 20)
        page.evaluate("document.querySelector('#ranks .more').click()")
        self.assertEqual(page.evaluate("document.querySelectorAll('#ranks tbody tr').length"), 1000)
        self.assertIn("differs", page.evaluate("document.querySelector('#ranks tbody tr').textContent"))

    def test_ten_thousand_windows(self):
        page = self.check(self.page(self.ranks(1, windows=10_000))[0], [(1440, True), (390, False)])
        labels = page.evaluate("Chart.getChart('chart-time').scales.x.ticks.map(t => t.label)")
        self.assertTrue(all(label == "0 s" or label.endswith(":00:00") for label in labels), labels)

    def test_nothing_to_show(self):
        """Before the first window, and with a single one."""
        directory = self.ranks(2, windows=0)
        path = self.directory / "early.html"
        self.report(directory, "-o", path)
        self.check(path, [(1280, False), (390, True)])
        self.check(self.page(self.ranks(3, windows=1))[0], [(390, False)])

    # --- timelines ---

    def recorded_run(self):
        """A run with a recording of it, as MFU_TRACE makes one; one step waits for the host."""
        script = """
            kernel gemm_step ns=2000000
            kernel softmax ns=500000
            repeat 6 { push "step batch=2 seq_len=64"; launch gemm_step count=10; launch softmax count=20; sync; pop }
            push "step batch=2 seq_len=64"; launch gemm_step count=10; sleep 80; launch softmax count=20; sync; pop
            repeat 6 { push "step batch=2 seq_len=64"; launch gemm_step count=10; launch softmax count=20; sync; pop }
        """
        run = self.scenario(script, env={"MFU_TRACE": "run/%h-%r-%p.json"}).directory / "run"
        return run, next(run.glob("*.json"))

    def test_the_slowest_and_the_median_instance(self):
        directory, recording = self.recorded_run()
        path, data = self.page(directory)
        page = self.check(path, [(1280, False), (390, True)])
        timelines = page.evaluate("report.timelines")
        self.assertEqual([t["region"] for t in timelines], ["step"])
        step = timelines[0]
        self.assertEqual((len(step["instances"]), step["instances_in_all"]), (13, 13))
        # Against the run's own figures, and against the recording itself.
        slowest = next(r for r in data["job"]["regions"] if r["region"] == "step")["slowest"][0]
        self.assertEqual(step["slowest"]["nth"], slowest["nth"])
        self.assertEqual(step["slowest"]["nth"], 6)
        self.assertAlmostEqual(step["slowest"]["elapsed_s"], slowest["elapsed_s"], delta=1e-6)
        kernels = [e for e in json.loads(recording.read_text())["traceEvents"] if e.get("cat") == "kernel"]
        self.assertEqual(len(kernels), 13 * 30)
        drawn = [bar for row in step["slowest"]["rows"] for bar in row["bars"] if bar[3] < 3]
        self.assertEqual(sum(bar[4] for bar in drawn), 30)
        end = step["slowest"]["elapsed_s"] * 1e9
        self.assertTrue(all(-1 <= begin and begin + length <= end + 1 for begin, length, *_ in drawn))
        self.assertAlmostEqual(sum(bar[1] for bar in drawn) / 1e9, 10 * 0.002 + 20 * 0.0005, delta=1e-6)
        names = {step["slowest"]["names"][bar[2]]: bar[3] for bar in drawn}
        self.assertEqual(names, {"gemm_step": 0, "softmax": 1})
        self.assertIn("#6", page.evaluate("document.querySelector('#timeline').textContent"))

    def test_a_recording_that_lies_elsewhere_is_found_and_another_run_s_is_not_drawn(self):
        script = 'kernel gemm_step ns=2000000\nrepeat 4 { push "step batch=2 seq_len=64"; launch gemm_step; sync; pop }'
        directory = self.scenario(script, env={"MFU_TRACE": "elsewhere.json"}).directory / "run"
        recording = directory.parent / "elsewhere.json"
        self.assertEqual([json.loads(line)["trace"] for file in directory.glob("*.jsonl")
                          for line in file.read_text().splitlines() if '"start"' in line], [str(recording)])
        page = self.look(self.page(directory)[0])
        self.assertEqual([t["region"] for t in page.evaluate("report.timelines")], ["step"])
        recording.write_text(re.sub(r'"pid": \d+', '"pid": 1', recording.read_text(), count=1))
        path = self.directory / "other.html"
        _, said = self.report(directory, "-o", path)
        self.assertIn("recorded by process 1, not by", said)
        self.assertEqual(self.look(path).evaluate("report.timelines"), [])

    def test_components_have_their_share_of_the_peak_and_of_the_loss(self):
        directory = self.live_run()
        file = next(directory.glob("*.jsonl"))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        step = next(r for line in lines if line["type"] == "end" for r in line["regions"] if r["region"] == "step")
        matmul, at_peak = step["time_s"]["matmul"], step["flop"] / step["mfu"] / step["elapsed_s"]
        step["components"] = [
            {"name": name, "pass": direction, "calls": 12, "shapes": 1, "time_s": share * matmul,
             "flop": 0.5 * share * matmul * at_peak, "flop_per_s": 0.5 * at_peak, "of_peak": 0.5, "bound": "compute"}
            for name, direction, share in (("mlp down", "forward", 0.5), ("attention qkv", "wgrad", 0.25))
        ]
        file.write_text("\n".join(map(json.dumps, lines)) + "\n")
        page = self.check(self.page(directory)[0], [(1280, False), (390, True)])
        cells = "[...document.querySelectorAll('#components tr')].map(r => [...r.children].map(c => c.textContent))"
        head, *rows = page.evaluate(cells)
        self.assertEqual(head[:6], ["component", "of elapsed", "loses", "of matmul loss", "reached", "of peak"])
        loss = step["lost"]["matmul"] * step["elapsed_s"]
        self.assertEqual(rows[0][0], "mlp down forward")
        for row, share in zip(rows, (0.5, 0.25), strict=True):
            lost = 0.5 * share * matmul
            self.assertEqual(row[2], f"{lost / step['elapsed_s'] * 100:.1f} %")
            self.assertEqual(row[3], f"{lost / loss * 100:.1f} %")
            self.assertEqual(row[5], "50.0 %")
        # The way from 100 % to MFU names them below the loss that they are part of.
        parts = page.evaluate("[...document.querySelectorAll('.step.part')].map(e => e.textContent)")
        self.assertTrue(parts and parts[0].startswith("of it mlp down forward"), parts)

    def test_components_of_a_real_program(self):
        """PyTorch's GPT-2: every matrix product of it and its attention, as the library recorded them."""
        path, data = self.page(COMPONENTS)
        page = self.check(path, [(1440, False), (1280, True), (390, False)])
        step = next(r for r in data["job"]["regions"] if r["region"] == "step")
        cells = "[...document.querySelectorAll('#components tbody tr')].map(r => [...r.children].map(c => c.textContent))"
        rows = page.evaluate(cells)
        self.assertEqual([row[0] for row in rows], [f"{c['name']} {c['pass']}" for c in step["components"]])
        self.assertEqual({row[0] for row in rows},
                         {f"{name} {way}" for name in ("qkv", "o", "up", "down", "logits") for way in ("fwd", "dgrad", "wgrad")}
                         | {"attention fwd", "attention bwd"})
        loss = step["lost"]["matmul"] * step["elapsed_s"]
        for row, c in zip(rows, step["components"], strict=True):
            lost = c["time_s"] * (1 - c["of_peak"])
            self.assertEqual((row[3], row[5]), (f"{lost / loss * 100:.1f} %", f"{c['of_peak'] * 100:.1f} %"))
            self.assertEqual((row[6], row[8]), ("–", "–") if c["name"] == "attention" else ("compute", "1"))
        # The components are all of the region's matmuls: what they lose is what the region loses.
        self.assertAlmostEqual(sum(c["time_s"] * (1 - c["of_peak"]) for c in step["components"]), loss, delta=0.03 * loss)
        self.assertEqual(page.evaluate("document.querySelector('.command').textContent"), "python gpt2.py --steps 30")

    def test_timelines_answer_to_keys_wheel_and_pointer(self):
        page = self.look(self.page(TRACES / "kineto_resnet50_v100_w0.json.gz")[0], width=1280)

        def view():
            text = page.evaluate("document.querySelector('#timeline .in-view').textContent")
            return float(text.split("In view ")[1].split()[0]), text
        whole, _ = view()
        page.evaluate("document.querySelector('#timeline .timeline').focus()")
        page.evaluate("checks.press('+')")
        half, at_middle = view()
        self.assertAlmostEqual(half, whole / 2, delta=0.03 * whole)
        page.evaluate("checks.press('ArrowRight')")
        self.assertNotEqual(view()[1], at_middle)
        page.evaluate("checks.press('0')")
        self.assertEqual(view()[0], whole)
        left, top, width, height = page.evaluate("checks.timeline()")
        place = {"x": left + 0.6 * width, "y": top + height - 12}
        ctrl = 2
        page.call("Input.dispatchMouseEvent", {"type": "mouseWheel", "deltaX": 0, "deltaY": -120, "modifiers": ctrl, **place})
        self.assertLess(view()[0], whole)
        page.call("Input.dispatchMouseEvent", {"type": "mouseMoved", **place})
        self.assertRegex(page.evaluate("checks.tip()"), r"kernel|copy|call|range")
        page.evaluate("[...document.querySelectorAll('#timeline .actions button')].find(b => b.textContent === 'all').click()")
        self.assertEqual(view()[0], whole)
        self.assertEqual(page.evaluate("checks.unreachable()"), [])

    # --- to take away ---

    def test_copy_as_markdown_and_as_picture(self):
        path, data = self.page(self.live_run())
        page = self.look(path)
        page.call("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        page.call("Page.bringToFront")
        self.assertEqual(page.evaluate("checks.click('copy as Markdown')"), "copied")
        text = page.evaluate("navigator.clipboard.readText()")
        self.assertTrue(text.startswith("**gpt2 124 M: "), text)
        step = next(r for r in data["job"]["regions"] if r["region"] == "step")
        self.assertRegex(text, rf"(?m)^\| step \| .* \| {step['mfu'] * 100:.1f} % \|")
        self.assertRegex(text, r"(?m)^- step: .*, up to \d")
        self.assertEqual(page.evaluate("checks.click('copy as PNG')"), "copied")
        picture = page.evaluate("checks.picture()")
        width, height, rows = png_size(bytes(picture))
        self.assertEqual((width, height), (1200, 630))
        self.assertGreater(rows, 100)

    def test_opportunities_say_what_a_region_would_gain(self):
        path, data = self.page(self.live_run())
        page = self.look(path)
        items = page.evaluate("Array.from(document.querySelectorAll('#opportunities li'), e => e.textContent)")
        items = [item.replace("\u00a0", " ") for item in items]
        regions = {r["region"]: r for r in data["job"]["regions"]}
        # Sleeping between steps is outside of them; inside, half of the time is softmax.
        step = regions["step"]
        share = step["time_s"]["other"] / step["elapsed_s"]
        line = next(item for item in items if item.startswith("step other kernels"))
        self.assertIn(f"{share * 100:.1f} %", line)
        gain = 1 / (1 - share)
        self.assertIn(f"up to {gain:.2f}×", line)
        weights = []
        for item in items:
            region, what = item.split(" ", 1)
            key = {"idle": "idle", "othe": "other", "matm": "matmul", "expo": "comm", "copi": "memcpy"}[what[:4]]
            lost = (regions[region]["lost"] if regions[region]["mfu"] is not None else {})[key]
            weights.append(lost * regions[region]["elapsed_s"])
        self.assertEqual(weights, sorted(weights, reverse=True))


if __name__ == "__main__":
    main()
