"""What the tests of `mfu report` share: running it, and looking at its pages in a real browser."""

import json
import os
import subprocess

import browser
from harness import BUILD, DEADLINE_S, SOURCE, TestCase

MFU = BUILD / "mfu"
TRACES = SOURCE / "tests/data/traces"
COMPONENTS = SOURCE / "tests/data/components"
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
    for depth, part in enumerate(key.split(".")):
        if isinstance(value, list):
            value = value[int(part)]
        elif value is not None:
            value = value[part] if depth == 0 else value.get(part)  # a part of a figure that is unknown may be left out
    return value


class ReportCase(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser() if browser.program() else None

    @classmethod
    def tearDownClass(cls):
        if cls.browser:
            cls.browser.close()

    def report(self, *arguments, code=0, env=None, command="report"):
        """Runs the command in a directory of its own. Returns stdout and stderr."""
        directory = self.directory / "report"
        directory.mkdir(exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        done = subprocess.run([MFU, command, *map(str, arguments)], cwd=directory, env={**environment, **(env or {})},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S)
        err = done.stderr.decode()
        self.assertEqual(done.returncode, code, err)
        return done.stdout.decode(), err

    def live_run(self):
        """The run directory of a small program."""
        run = self.scenario(SCRIPT)
        return run.directory / "run"

    def page(self, *arguments):
        """The page of these arguments, and its JSON; of two runs, their comparison."""
        path = self.directory / f"page{len(list(self.directory.iterdir()))}.html"
        compared = len(arguments) == 2 and not any(str(a).startswith("-") for a in arguments)
        how = {"command": "compare"} if compared else {}
        self.report(*arguments, *(["--html"] if compared else []), "-o", path, **how)
        return path, json.loads(self.report(*arguments, "--json", **how)[0])

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
            if key == "mfu_lower":
                self.assertIn("≥ ", text)
            met.add(name)
        for name in by_name:
            bound = by_name[name]["mfu"] is None and (by_name[name].get("mfu_lower") or 2) <= 1
            self.assertIn(f"{name}.mfu_lower" if bound else f"{name}.mfu", met)
            self.assertIn(f"{name}.elapsed_s", met)
