"""Names that somebody made up, through every output; files that were made up, through every reader; `mfu serve` under attack."""

import copy
import csv
import html.parser
import io
import json
import re
import socket
import subprocess
import threading
import time
import urllib.request

from harness import BUILD, DEADLINE_S, SANITIZE, SOURCE, TestCase, main, patience

MFU = BUILD / "mfu"
HOST = BUILD / "clients/hostile_host"
RUN = SOURCE / "tests/data/runs/two_ranks/node00-3-1003.jsonl"

# For terminals, spreadsheets, Markdown, HTML, JSON, format strings, exposition formats, paths, readers from right to left.
NAMES = (
    "\x1b[2J\x1b]0;owned\x07red",
    "line\nbreak\r\n# TYPE mfu_ratio counter",
    "=cmd|'/c calc'!A1",
    "+1+1",
    "-1+cmd",
    "@SUM(A1)",
    "tab\there",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><svg onload=alert(1)>",
    "| pipe | table |",
    "[a](javascript:alert(1))",
    '{"v": 1}',
    '\\"},{"type":"end"}',
    "%s%n%d{}{:>1000}",
    "$(touch pwned)`touch pwned`",
    "../../../etc/passwd",
    "caf\u00e9 \u20ac \U0001f600",
    "\x9b31mC1",
    "\u202eright to left\u2066",
    "a\u2028b\u2029c",
    "nul\x01\x02\x7f",
    "_ZN3fooILi99999999999999EEvv",
    "_Z" * 2000,
    "x" * 70000,
    " ",
    "total",
)
ASCII_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # `mfu top` lets the direction of text be
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]


class Outputs(TestCase):
    def command(self, *words, code=0):
        done = subprocess.run([str(w) for w in (MFU, *words)], capture_output=True, timeout=DEADLINE_S, cwd=self.directory)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stderr.decode(errors="replace")[-3000:])
        self.assertGreaterEqual(done.returncode, 0, "no signal")
        return done

    def assert_plain(self, text, what, control=CONTROL):
        """Text that a terminal may see: UTF-8, and nothing in it that it obeys."""
        text = text.decode()
        met = control.search(text.replace("\n", ""))
        self.assertIsNone(met, f"{what}: {met and text.replace(chr(10), '')[max(0, met.start() - 60) : met.end() + 20]!r}")
        return text


class OfFolders(Outputs):
    """What the command makes of a run directory."""

    def check_outputs(self, folder):
        self.assert_plain(self.command("report", folder, "-o", self.directory / "page.html").stdout, "report")
        page = Page()
        page.feed((self.directory / "page.html").read_text())
        self.assertNotIn("img", page.tags)
        self.assertFalse([a for a in page.attributes if a in ("onerror", "onload")])
        table = self.assert_plain(self.command("report", folder, "--csv").stdout.replace(b"\r\n", b"\n"), "csv")
        rows = list(csv.reader(io.StringIO(table)))
        for row in rows:
            self.assertEqual(len(row), len(rows[0]))
            for cell in row:
                if cell[:1] in ("=", "+", "-", "@"):
                    float(cell)  # raises where it is no number
        markdown = self.assert_plain(self.command("report", folder, "--markdown").stdout, "markdown")
        self.assertNotRegex(markdown, r"(^|[^\\])<(script|img|svg)")
        self.assertNotRegex(markdown, r"(^|[^\\])\[a\]\(")
        for word in ("--json", "--perfetto"):
            json.loads(self.command("report", folder, word).stdout)
        for words in (
            ("top", folder, "--once"),
            ("report", folder, "--assert", "step.mfu>0"),
            ("compare", folder, folder),
            ("compare", folder, folder, "--markdown"),
        ):
            done = self.command(*words, code=None)
            self.assert_plain(done.stdout, words, ASCII_CONTROL if words[0] == "top" else CONTROL)
            self.assert_plain(done.stderr, words)
        json.loads(self.command("top", folder, "--json").stdout)
        self.command("serve", folder, "--textfile", self.directory / "m.prom", "--once")
        self.check_exposition((self.directory / "m.prom").read_bytes())

    def check_exposition(self, raw):
        seen = set()
        for line in self.assert_plain(raw, "metrics").splitlines():
            if line.startswith("# "):
                self.assertRegex(line, r"^# (HELP|TYPE) mfu_")
                continue
            self.assertRegex(line, r'^mfu_[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? \S+$')
            series = line.rsplit(" ", 1)[0]
            self.assertNotIn(series, seen)
            seen.add(series)
        return seen


class Live(OfFolders):
    """Names of ranges, domains and threads, which the library sees."""

    def test_every_output_of_the_library(self):
        names = self.directory / "names"
        names.write_bytes(b"\0".join(n.encode(errors="surrogatepass") for n in NAMES) + b"\0" + b"\xff\xfe\xc0\xaf" + b"\0")
        rules = [{"region": name[:100], "match": re.escape(name[:60]) + ".*"} for name in NAMES if name.strip()]
        run = self.program(
            [HOST, "names", names],
            config={"model": {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8}, "regions": rules},
            env={"MFU_INTERVAL": "0.05", "MFU_TRACE": "t.json", "MFU_TB_DIR": "tb", "MFU_RUN_DIR": "run"},
        )
        self.assertEqual(run.code, 0, run.stderr[-2000:])
        self.assert_plain(run.stderr, "the log")
        lines = run.lines()
        self.assertEqual(lines[-1]["type"], "end")
        self.assertGreater(len({line["region"] for line in lines if line["type"] == "window"}), 5)
        json.loads((run.directory / "t.json").read_text())
        self.assertEqual(
            sorted(p.name for p in run.directory.iterdir()),
            sorted(["config.json", "run", "stderr", "stdout", "t.json", "tb", *(["trace"] if run.truth else [])]),
        )
        self.check_outputs(run.directory / "run")


class MadeUp(OfFolders):
    """Files that somebody wrote by hand, with such a name in every text."""

    def write(self, name, folder="run", change=None):
        target = self.directory / folder
        target.mkdir(exist_ok=True)
        lines = [json.loads(line) for line in RUN.read_text().splitlines()]

        def hostile(value, key=""):
            if isinstance(value, dict):
                return {k: hostile(v, k) for k, v in value.items()}
            if isinstance(value, list):
                return [hostile(v, key) for v in value]
            return name if isinstance(value, str) and key not in ("type", "bound", "class", "lost_to", "unit") else value

        lines = [hostile(line) for line in lines]
        for line in lines:
            if line["type"] == "window" and line.get("device") is None:
                line["region"] = "total"
        lines.insert(2, {"v": 1, "type": "event", "t_ns": lines[0]["t_ns"], "seq": 99, "kind": name, "message": name})
        if change:
            lines = change(lines)
        (target / "node-0-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return target

    def test_every_output_of_every_name(self):
        names = NAMES if not SANITIZE else NAMES[::4]
        for name in names:
            with self.subTest(name=name[:40]):
                self.check_outputs(self.write(name))

    def test_numbers_at_the_edge(self):
        """No sum of a reader's overflows; sanitized builds say where one would."""
        edges = (2**63 - 1, -(2**63), 2**64 - 1, 1e308, -1e308, 5e-324, 0, -1)
        for edge in edges:

            def change(lines, edge=edge):
                for line in lines:
                    for key, value in line.items():
                        if key not in ("v", "seq") and isinstance(value, (int, float)) and not isinstance(value, bool):
                            line[key] = edge
                return lines

            with self.subTest(edge):
                folder = self.write("step", change=change)
                for words in (
                    ("report", folder, "--json"),
                    ("report", folder, "--markdown"),
                    ("report", folder, "--csv"),
                    ("top", folder, "--once"),
                    ("serve", folder, "--textfile", self.directory / "m.prom", "--once"),
                ):
                    done = self.command(*words, code=None)
                    self.assertNotIn(b"runtime error", done.stderr)

    def test_regions_without_end(self):
        """20,000 regions in one file: a bounded number of series, and the sum of all."""
        folder = self.directory / "many"
        folder.mkdir()
        lines = [json.loads(line) for line in RUN.read_text().splitlines()]
        start, row = lines[0], next(line for line in lines if line["type"] == "window" and line["region"] == "step")
        total = next(line for line in lines if line["type"] == "window" and line["region"] == "total")
        with open(folder / "node-0-1.jsonl", "w") as out:
            out.write(json.dumps(start) + "\n")
            for i in range(20_000):
                row["region"], row["top_kernels"], row["by_batch"], row["seq"] = f"r{i}", [], [], i + 1
                out.write(json.dumps(row) + "\n")
            out.write(json.dumps({**total, "seq": 20_001}) + "\n")
        self.command("serve", folder, "--textfile", self.directory / "m.prom", "--once")
        text = (self.directory / "m.prom").read_text()
        self.assertLess(len(text), 30_000_000)
        self.check_exposition(text.encode())
        flop = [
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("mfu_model_flops_total{") and 'region="total"' not in line
        ]
        self.assertAlmostEqual(sum(flop) / (20_000 * row["flop"]), 1, places=6)
        report = json.loads(self.command("report", folder, "--json").stdout)
        self.assertLess(len(report["job"]["regions"]), 1000)

    def test_copies_of_one_process(self):
        """A copy of a file is no second process, a device named twice is one, three containers with one name are three."""
        folder = self.directory / "copies"
        folder.mkdir()
        lines = [json.loads(line) for line in RUN.read_text().splitlines() if json.loads(line)["type"] != "end"]
        lines[0]["devices"] *= 3
        text = "".join(json.dumps(line) + "\n" for line in lines)
        for i in range(3):
            (folder / f"node-0-1-{i}.jsonl").write_text(text)
        self.command("serve", folder, "--textfile", self.directory / "m.prom", "--once")
        alone = self.check_exposition((self.directory / "m.prom").read_bytes())
        for i in range(3):
            others = copy.deepcopy(lines)
            others[0]["t_ns"] += i
            others[0]["pid"] = 1
            (folder / f"node-0-1-{i}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in others))
        self.command("serve", folder, "--textfile", self.directory / "m.prom", "--once")
        three = self.check_exposition((self.directory / "m.prom").read_bytes())
        self.assertEqual(len([s for s in alone if s.startswith("mfu_rank_up")]), 1)
        self.assertEqual(len([s for s in three if s.startswith("mfu_rank_up")]), 3)


class Traces(Outputs):
    def test_names_of_a_trace(self):
        for name in NAMES if not SANITIZE else NAMES[::4]:
            with self.subTest(name=name[:40]):
                events = [
                    {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": 0, "dur": 100},
                    {
                        "ph": "X",
                        "cat": "cuda_runtime",
                        "name": "cudaLaunchKernel",
                        "pid": 1,
                        "tid": 1,
                        "ts": 5,
                        "dur": 2,
                        "args": {"correlation": 7},
                    },
                    {
                        "ph": "X",
                        "cat": "kernel",
                        "name": name,
                        "pid": 0,
                        "tid": 7,
                        "ts": 20,
                        "dur": 30,
                        "args": {"correlation": 7, "device": 0, "stream": 7, "context": 1},
                    },
                ]
                path = self.directory / "t.json"
                path.write_text(
                    json.dumps(
                        {"traceEvents": events, "deviceProperties": [{"id": 0, "name": name}], "distributedInfo": {"rank": 0}}
                    )
                )
                for words in (("replay", path), ("replay", path, "--detect"), ("replay", path, "--range", name[:50] or "x")):
                    done = self.command(*words, code=None)
                    self.assert_plain(done.stdout, words)
                    self.assert_plain(done.stderr, words)


class Serve(Outputs):
    def serve(self):
        folder = MadeUp.write(self, "step")
        child = subprocess.Popen([MFU, "serve", folder, "--port", "0"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.terminate)
        return int(re.search(r":(\d+)/metrics", child.stdout.readline()).group(1))

    def test_half_requests(self):
        """200 clients that never finish their request: everybody else is answered within a second, as without them."""
        port = self.serve()
        url = f"http://127.0.0.1:{port}/metrics"

        def series(text):
            return {line.split(" ")[0] for line in text.decode().splitlines() if not line.startswith("#")}

        alone = series(urllib.request.urlopen(url, timeout=DEADLINE_S).read())
        self.assertIn('mfu_job_ranks{job="run",state="ended"}', alone)
        half = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        answers = []

        def ask():
            begin = time.monotonic()
            text = urllib.request.urlopen(url, timeout=DEADLINE_S).read()
            answers.append((time.monotonic() - begin, series(text)))

        try:
            for i, connection in enumerate(half):
                connection.sendall(
                    (b"GET /metrics HTTP/1.1\r\nHost: x", b"GET", b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\nx", b"")[i % 4]
                )
            crowd = [threading.Thread(target=ask) for _ in range(20)]
            for one in crowd:
                one.start()
            for one in crowd:
                one.join()
        finally:
            for connection in half:
                connection.close()
        self.assertEqual(len(answers), 20)
        for took, text in answers:
            self.assertEqual(text, alone)
            self.assertLess(took, patience(0.5))

    def test_a_request_must_be_whole_soon(self):
        """Half a request is cut off after 2 s; so 300 of them, more than are served at a time, hold others up no longer."""
        port = self.serve()
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
            begin = time.monotonic()
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x")
            while connection.recv(4096):
                pass
            self.assertLess(time.monotonic() - begin, patience(2))
        half = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        try:
            for connection in half:
                connection.sendall(b"GET /")
            begin = time.monotonic()
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S).read()
            self.assertIn(b"mfu_job_ranks", text)
            self.assertLess(time.monotonic() - begin, patience(3))
        finally:
            for connection in half:
                connection.close()

    def test_only_two_paths_and_no_bodies(self):
        port = self.serve()

        def status(request):
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
                connection.sendall(request)
                answer = b""
                while part := connection.recv(4096):
                    answer += part
            return answer.split(b" ", 2)[1] if answer.startswith(b"HTTP/1.") else answer

        end = b" HTTP/1.0\r\n\r\n"
        self.assertEqual(status(b"GET /metrics" + end), b"200")
        up = (b"/metrics/../../etc/passwd", b"/../etc/passwd", b"/%2e%2e/etc/passwd")
        for path in (*up, b"/metrics/x", b"/run", b"/" + b"x" * 5000):
            self.assertIn(status(b"GET " + path + end), (b"404", b"400", b"414"), path)
        for method in (b"POST", b"PUT", b"DELETE", b"PATCH", b"PROPFIND", b"MKCOL"):
            answer = status(method + b" /metrics HTTP/1.0\r\nContent-Length: 4\r\n\r\nabcd")
            self.assertIn(answer, (b"405", b"501"), method)
        self.assertEqual(sorted(p.name for p in (self.directory / "run").iterdir()), ["node-0-1.jsonl"])

    def test_those_who_come_again(self):
        """Threads that send a byte a second for ever are shown the door, and never take the last place."""
        port = self.serve()
        stop = threading.Event()

        def annoy():
            while not stop.is_set():
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                        for byte in b"GET / HTTP/1.1\r\nX: " + b"y" * 20:
                            connection.sendall(bytes([byte]))
                            if stop.wait(0.3):
                                return
                except OSError:
                    pass

        crowd = [threading.Thread(target=annoy, daemon=True) for _ in range(50)]
        for one in crowd:
            one.start()
        try:
            for _ in range(10):
                text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S).read()
                self.assertIn(b"mfu_job_ranks", text)
        finally:
            stop.set()
            for one in crowd:
                one.join()


if __name__ == "__main__":
    main()
