"""What the documentation shows exists: links, configs that are read without a complaint, commands with their options."""

import json
import os
import re
import subprocess

from harness import BUILD, DEADLINE_S, EMULATED, SANITIZE, SOURCE, TestCase, main, unittest

MFU = BUILD / "mfu"
PAGES = sorted(
    p
    for p in [*SOURCE.glob("*.md"), *SOURCE.glob("*/README.md"), *SOURCE.glob("docs/*.md"), *SOURCE.glob("*/*/README.md")]
    if not p.relative_to(SOURCE).parts[0].startswith((".", "build"))
)


def blocks(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


class Documentation(TestCase):
    def test_links_lead_somewhere(self):
        self.assertGreater(len(PAGES), 10)
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                if "://" in target:
                    continue
                path, _, anchor = target.partition("#")
                with self.subTest(page=page.relative_to(SOURCE), target=target):
                    file = (page.parent / path) if path else page
                    self.assertTrue(file.exists(), file)
                    if anchor:
                        heads = re.findall(r"(?m)^#+ (.*)$", file.read_text())
                        self.assertIn(anchor, [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads])

    def test_configs_are_read_without_a_complaint(self):
        """Each block as MFU_MODEL_CONFIG of `mfu doctor`, in a folder with a config.json as they name one."""
        (self.directory / "config.json").write_bytes((SOURCE / "examples/nanogpt/config.json").read_bytes())
        found = 0
        for page in PAGES:
            for block in blocks(page.read_text(), "json"):
                found += 1
                with self.subTest(page=page.relative_to(SOURCE), block=block):
                    json.loads(block)
                    env = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
                    shown = subprocess.run(
                        [MFU, "doctor"],
                        cwd=self.directory,
                        capture_output=True,
                        text=True,
                        timeout=DEADLINE_S,
                        env={**env, "MFU_MODEL_CONFIG": block},
                    )
                    self.assertRegex(shown.stdout, r"(?m)^\[ok\] config ")
                    self.assertNotRegex(shown.stdout, r"(?m)^\[NO\] config ")
        self.assertGreaterEqual(found, 3)

    @unittest.skipIf(SANITIZE or EMULATED, "too slow for the simulated times to be seen")
    def test_the_first_lines_of_the_readme_are_the_demos(self):
        """Word for word but for the figures; and in both, MFU and what follows the bar come to 100 %."""
        def shape(line):
            head = re.sub(r" (p99|bound|tok/s)=\S+", "", line.split(" | ")[0])  # given up where the bar needs the room
            return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*(?:[kM]| ms| µs| s)?\b", "N", re.sub(r" MBU=\S+\s*$", "", head)))

        def adds_up(line):
            figures = re.fullmatch(r"\[mfu\] (?:step|prefill|decode)@gpu0 n=.*MFU=([\d.]+)%.* \| ((?:[\w-]+ [\d.]+ ?)+)", line)
            if figures:
                whole = float(figures[1]) + sum(map(float, figures[2].split()[1::2]))
                self.assertAlmostEqual(whole, 100, delta=0.5, msg=line)
            return bool(figures)

        shown = [line for line in blocks((SOURCE / "README.md").read_text(), "")[1].splitlines() if line.startswith("[mfu]")]
        env = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        demo = subprocess.run([MFU, "demo", "--simulated", "--seconds", "8"], capture_output=True, text=True, timeout=DEADLINE_S,
                              cwd=self.directory, env=env)
        printed = (demo.stdout + demo.stderr).splitlines()
        self.assertGreater(sum(map(adds_up, shown)), 2)
        self.assertGreater(sum(map(adds_up, printed)), 2)
        # What it measured is there for the next command.
        self.assertRegex(printed[-1] if printed[-1].startswith("next") else demo.stdout.splitlines()[-1],
                         r"^next: mfu report mfu-runs/\d{8}-\d{6}-\d+$")
        found = subprocess.run([MFU, "report", "--json"], capture_output=True, text=True, cwd=self.directory, env=env)
        self.assertIn("step", {r["region"] for r in json.loads(found.stdout)["job"]["regions"]})
        shapes = {shape(line) for line in printed}
        for line in shown:
            with self.subTest(line=line):
                self.assertIn(shape(line), shapes)

    def test_every_message_is_found_in_troubleshooting_by_its_words(self):
        """Whatever the sources print as a line for a person: three words of it, as they stand there, are on the page."""
        page = " ".join((SOURCE / "docs/troubleshooting.md").read_text().split())
        literal = r'"(?:[^"\\\n]|\\.)*"'
        places = [(path, "") for path in sorted(SOURCE.glob("injection/**/*.cpp"))]  # where every sentence is for a person
        places += [(SOURCE / "core/account/ledger.cpp", "notices_"), (SOURCE / "core/drain/detected_regions.cpp", "notices_"),
                   (SOURCE / "tools/commands/run.cpp", "say")]
        rooms = ("tools/job/job_report.cpp", "tools/job/live_job.cpp", "tools/report/run_source.cpp",
                 "tools/report/timelines.cpp", "tools/run_dir/*.cpp", "core/account/executed.cpp", "core/rows/metrics.cpp")
        places += [(path, "") for room in rooms for path in sorted(SOURCE.glob(room))]
        # No message of their own: parts of sentences, the system's words, and what names the place and the value itself.
        parts = re.compile(r"no such file or directory|against which it is|'\{\}': \{\} is not|of \{\} is \{\}|only .* ran\b")
        checked = 0
        for path, call in places:
            source = re.sub(r"(?m)//.*$", "", path.read_text())
            texts = [source] if not call else re.findall(rf"\b{call}\b[^;]*?\(((?:[^;\"]|{literal})*);", source)
            literals = [found for text in texts for found in re.findall(rf"{literal}(?:\s+{literal})*", text)]
            for sentence in (re.sub(r'"\s*"', "", found) for found in literals):
                words = re.findall(r"[\w'/%-]+", sentence)
                if len(words) < 4 or parts.search(sentence):
                    continue
                checked += 1
                with self.subTest(file=path.name, sentence=sentence):
                    self.assertTrue(any(" ".join(words[i:i + 3]) in page for i in range(len(words) - 2)))
        self.assertGreater(checked, 60)

    def test_commands_have_the_options_that_are_shown(self):
        helps = {}
        checked = 0
        for page in PAGES:
            shown = blocks(page.read_text(), "") + re.findall(r"`(mfu [^`]*)`", page.read_text())
            for line in "\n".join(shown).splitlines():
                words = re.sub(r"#.*|\|.*", "", line).split()  # a comment, or the program that reads the output
                while "mfu" in words:
                    words = words[words.index("mfu") + 1:]
                    if not words or not re.fullmatch(r"[a-z]+", words[0]):
                        continue
                    name = words[0]
                    if name not in helps:
                        helps[name] = subprocess.run([MFU, name, "--help"], capture_output=True, text=True)
                    with self.subTest(page=page.relative_to(SOURCE), line=line):
                        self.assertEqual(helps[name].returncode, 0, f"no command {name}")
                        takes_value = dict(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)(?: ([A-Z]\S*))?", helps[name].stdout))
                        rest = iter(words[1:])
                        for word in rest:
                            if word == "--" or (name == "run" and not word.startswith("-")):
                                break  # what follows is the program's
                            if re.fullmatch(r"-\w", word):
                                self.assertRegex(helps[name].stdout, rf"(?m)^  {word}[, ]")
                                next(rest, None)
                            elif word.startswith("--"):
                                checked += 1
                                option = word.split("=")[0]
                                self.assertIn(option, [*takes_value, "--help"])
                                if takes_value.get(option) and "=" not in word:
                                    next(rest, None)
        self.assertGreater(checked, 10)


if __name__ == "__main__":
    main()
