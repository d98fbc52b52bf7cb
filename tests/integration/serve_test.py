"""`mfu serve` under a real Prometheus: 64 ranks on 8 hosts, the shipped rules, and every query of the shipped dashboard."""

import gzip
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import browser
import fake_ranks

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MFU_BUILD_DIR", SOURCE / "build/dev"))
MFU = BUILD / "mfu"
DEPLOY = SOURCE / "deploy"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
DEADLINE_S = 900  # what does not end by then hangs


def get(url):
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return answer.read().decode()


def samples(text):
    """Exposition text > {(name, labels as a frozenset): value}."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        name, labels, value = re.fullmatch(r"([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)", line).groups()
        key = (name, frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")))
        assert key not in found, f"twice: {line}"
        found[key] = float(value)
    return found


class Served(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="mfu-serve-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.run_dir = self.directory / "run64"

    def start(self, command, **popen):
        process = subprocess.Popen([str(c) for c in command], **popen)

        def stop():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(DEADLINE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

        self.addCleanup(stop)
        return process

    def serve(self, *directories):
        """Starts the server on a free port of 127.0.0.1 and returns (process, URL)."""
        process = self.start([MFU, "serve", *(directories or [self.run_dir]), "--port", 0], stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        self.assertRegex(line, r"^mfu serve: the live page is http://127\.0\.0\.1:\d+/, for Prometheus http://127\.0\.0\.1:\d+/metrics$")
        return process, line.split()[-1]

    def text(self, *arguments):
        """What --textfile writes."""
        path = self.directory / "mfu.prom"
        done = subprocess.run([str(a) for a in (MFU, "serve", *arguments, "--textfile", path, "--once")], capture_output=True,
                              text=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return path.read_text()


class Exposition(Served):
    def test_every_rank_has_what_its_file_says(self):
        job = fake_ranks.Job(ranks=4, hosts=2)
        job.ranks[1].flop_known = False
        job.ranks[2].dropped = 7
        job.ranks[3].serves = True
        job.write(self.run_dir, windows=3)
        text = self.text(self.run_dir)
        found = samples(text)

        def value(name, rank, **labels):
            wanted = set({"rank": str(rank), **labels}.items())
            matching = [v for (n, have), v in found.items() if n == name and wanted <= have]
            self.assertLessEqual(len(matching), 1, (name, labels))
            return matching[0] if matching else None

        self.assertEqual(value("mfu_ratio", 0, region="step", gpu="0", uuid="GPU-00000000", hostname="node00", local_rank="0",
                               job="run64"), 0.4)
        self.assertIsNone(value("mfu_ratio", 1, region="step"), "a rank whose FLOP are not known has no MFU, not 0")
        self.assertEqual(value("mfu_dropped_records_total", 2), 7)
        self.assertEqual(value("mfu_peak_flops", 3, gpu="0"), fake_ranks.H100_FLOP)
        # Three windows of 10 s, 25 steps of 8192 tokens each.
        self.assertTrue(math.isclose(value("mfu_model_flops_total", 0, region="total"), 3 * 10 * 0.4 * fake_ranks.H100_FLOP))
        self.assertTrue(math.isclose(value("mfu_executed_flops_total", 0, region="total"), 3 * 10 * 0.5 * fake_ranks.H100_FLOP,
                                     rel_tol=1e-9))
        self.assertEqual(value("mfu_tokens_total", 0, region="step"), 3 * 25 * 8192)
        self.assertTrue(math.isclose(sum(value("mfu_region_seconds_total", 0, region="step", **{"class": c})
                                         for c in ("matmul", "other", "comm", "memcpy", "idle")), 30))
        self.assertEqual(value("mfu_step_seconds_count", 0, region="step"), 75)
        # 72 steps of 0.4 s and 3 of 0.44 s: all above 0.268 s and below 0.537 s, the edges of that octave.
        self.assertEqual(value("mfu_step_seconds_bucket", 0, region="step", le="0.268435455"), 0)
        self.assertEqual(value("mfu_step_seconds_bucket", 0, region="step", le="0.536870911"), 75)
        for batch, passes in (("1", 15), ("32", 60)):
            of = {"region": "step", "batch_unit": "sequences", "batch_max": batch}
            self.assertEqual(value("mfu_iteration_seconds_count", 3, **of), passes)
            self.assertTrue(math.isclose(value("mfu_iteration_seconds_sum", 3, **of), passes * 0.4))
            self.assertEqual(value("mfu_iteration_seconds_bucket", 3, le="0.536870911", **of), passes)
        self.assertIsNone(value("mfu_iteration_seconds_count", 0, region="step", batch_unit="sequences", batch_max="1"))
        self.assertTrue(math.isclose(value("mfu_overhead_seconds_total", 0), 0.03))
        info = [dict(have) for (n, have) in found if n == "mfu_info" and ("rank", "0") in have][0]
        self.assertEqual((info["convention"], info["peak_source"], info["model"], info["version"]),
                         ("exact", "table: H100 SXM", "llama", "0.1.0"))

    def test_a_price_is_that_of_all_devices(self):
        job = fake_ranks.Job(ranks=4, hosts=2)
        job.write(self.run_dir, windows=3)
        found = {name: v for (name, _), v in samples(self.text(self.run_dir, "--gpu-hour", 2.5)).items()}
        self.assertEqual(found["mfu_job_cost_per_hour"], 4 * 2.5)
        per_hour = 3600 * found["mfu_job_tokens_per_second"]
        self.assertTrue(math.isclose(found["mfu_job_cost_per_million_tokens"], 10 / (per_hour / 1e6)))
        self.assertLess(found["mfu_job_idle_cost_per_hour"], 10)
        self.assertNotIn("mfu_job_cost_per_hour", {name for name, _ in samples(self.text(self.run_dir))})

    def test_promtool_has_nothing_to_say(self):
        if not PROMTOOL:
            self.skipTest("no promtool: Debian has it in the package prometheus")
        job = fake_ranks.Job(ranks=6, hosts=2, jitter_s=1e-5)
        job.ranks[4].late_s = 0.002
        job.ranks[5].serves = True
        job.write(self.run_dir)
        _, url = self.serve()
        for text in (get(url), get(url), self.text(self.run_dir)):
            done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            self.assertIn('mfu_straggler_cost_ratio{', text)
            self.assertIn('mfu_iteration_seconds_bucket{', text)

    def test_stale_ranks_lose_their_figures_and_come_back(self):
        job = fake_ranks.Job(ranks=8)
        job.ranks[3].dies_after = 2
        job.write(self.run_dir, windows=8)
        _, url = self.serve()
        found = samples(get(url))

        def of(rank):
            return {n for (n, have) in found if ("rank", str(rank)) in have}

        self.assertEqual(of(3), {"mfu_rank_up", "mfu_last_line_timestamp_seconds"})
        self.assertIn("mfu_ratio", of(2))
        self.assertEqual([v for (n, have), v in found.items() if n == "mfu_job_ranks" and ("state", "stale") in have], [1])
        job.ranks[3].dies_after = None
        job.append(self.run_dir, first=8)
        time.sleep(0.6)  # younger answers are given again
        found = samples(get(url))
        self.assertIn("mfu_ratio", of(3))

    def test_programs_without_a_launcher_are_told_apart(self):
        job = fake_ranks.Job(ranks=2, hosts=1, world=1)
        job.ranks[1].number = 0
        job.write(self.run_dir)
        found = samples(self.text(self.run_dir))  # fails where a series comes twice
        self.assertEqual(sum(n == "mfu_rank_up" for n, _ in found), 2)

    def test_directories_that_are_empty_foreign_broken_or_gone(self):
        empty = self.directory / "empty"
        empty.mkdir()
        self.assertIn('mfu_job_ranks{job="empty",state="live"} 0', self.text(empty))
        done = subprocess.run(
            [MFU, "serve", self.directory / "none", "--port", "0"], capture_output=True, text=True, timeout=DEADLINE_S
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("none: no such file or directory", done.stderr)
        job = fake_ranks.Job(ranks=2, hosts=1)
        job.ranks[0].version = 2
        job.write(self.run_dir)
        with open(self.run_dir / job.ranks[1].file, "a") as file:
            file.write('{"v":1,"type":"window","region":7}\nnot json\n{"v":1,"type":"win')
        (self.run_dir / "foreign.jsonl").write_text('{"level": "info", "msg": "hello"}\n')
        (self.run_dir / "notes.txt").write_text("not ours")
        process, url = self.serve()
        text = get(url)
        self.assertIn('mfu_unreadable_lines_total{job="run64"} 3', text)
        self.assertIn('mfu_job_ranks{job="run64",state="live"} 2', text)
        shutil.rmtree(self.run_dir)
        time.sleep(0.6)
        self.assertIn('mfu_run_directory_up{job="run64"} 0', get(url))
        self.assertIsNone(process.poll())

    def test_it_listens_where_it_is_told_and_ends_when_it_is_told(self):
        fake_ranks.Job(ranks=1, hosts=1).write(self.run_dir)
        process, url = self.serve()
        port = urllib.parse.urlsplit(url).port
        taken = subprocess.run(
            [MFU, "serve", self.run_dir, "--port", str(port)], capture_output=True, text=True, timeout=DEADLINE_S
        )
        self.assertEqual(taken.returncode, 1)
        self.assertIn(f"127.0.0.1:{port}: cannot listen there", taken.stderr)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(DEADLINE_S), 0)

    def answer(self, url, **headers):
        """Body and headers of an answer."""
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=DEADLINE_S) as answer:
            return answer.read(), answer.headers

    def test_the_root_is_the_live_page(self):
        job = fake_ranks.Job(ranks=2, hosts=1)
        job.write(self.run_dir)
        _, url = self.serve()
        root = url.removesuffix("metrics")
        page, headers = self.answer(root)
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        self.assertIn(b'<meta http-equiv="refresh" content="10">', page)
        self.assertIn(b"<title>llama 8.03 B: 40.0 % MFU in step, run64</title>", page)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.answer(root + "nothing")
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()

    @unittest.skipUnless(browser.program(), "no Chromium: tools/install-deps --tests installs it")
    def test_the_live_page_keeps_what_its_reader_chose_and_stays_when_the_server_goes(self):
        job = fake_ranks.Job(ranks=30, hosts=2)
        job.write(self.run_dir)
        process, url = self.serve()
        with browser.Browser() as page:
            def wait(expression):
                deadline = time.monotonic() + DEADLINE_S
                while not page.evaluate(expression):
                    self.assertLess(time.monotonic(), deadline, expression)
                    time.sleep(0.1)
            page.call("Emulation.setDeviceMetricsOverride",
                      {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False})
            page.call("Page.navigate", {"url": url.removesuffix("metrics")})
            wait("document.readyState === 'complete' && document.body.dataset.ready === 'yes'")
            ranks = "document.querySelector('#ranks')"
            page.evaluate(f"{ranks}.querySelector('select').value = 'total'; "
                          f"{ranks}.querySelector('select').dispatchEvent(new Event('change'))")
            head = f"[...{ranks}.querySelectorAll('th')].find(e => e.textContent === 'elapsed')"
            page.evaluate(f"{head}.querySelector('button').focus(); {head}.querySelector('button').click(); "
                          f"{ranks}.querySelector('.more').click(); scrollTo(0, 700); window.before = true")
            windows = page.evaluate("job.regions[0].instances")
            job.append(self.run_dir, first=6)
            wait("!window.before && document.readyState === 'complete' && document.body.dataset.ready === 'yes' && "
                 f"job.regions[0].instances > {windows}")
            self.assertEqual(page.evaluate(f"{ranks}.querySelector('select').value"), "total")
            self.assertEqual(page.evaluate(f"{head}.getAttribute('aria-sort')"), "descending")
            self.assertEqual(page.evaluate(f"{ranks}.querySelectorAll('tbody tr').length"), 30)
            self.assertEqual(page.evaluate("document.activeElement.textContent"), "elapsed")
            self.assertEqual(page.evaluate("scrollY"), 700)
            process.send_signal(signal.SIGTERM)
            process.wait(DEADLINE_S)
            wait("document.querySelector('.actions .badge').textContent.startsWith('no answer at ')")
            self.assertEqual(page.evaluate(f"{ranks}.querySelectorAll('tbody tr').length"), 30)

    def test_answers_are_packed_for_those_who_take_it(self):
        fake_ranks.Job(ranks=8, hosts=1).write(self.run_dir)
        _, url = self.serve()
        for address in (url, url.removesuffix("metrics")):
            with self.subTest(address):
                plain, headers = self.answer(address)
                self.assertIsNone(headers["Content-Encoding"])
                packed, headers = self.answer(address, **{"Accept-Encoding": "gzip"})
                self.assertEqual(headers["Content-Encoding"], "gzip")
                self.assertLess(len(packed), len(plain) / 2)
                self.assertEqual(len(gzip.decompress(packed)), len(plain))

    def test_the_weights_of_encodings_are_minded(self):
        fake_ranks.Job(ranks=8, hosts=1).write(self.run_dir)
        _, url = self.serve()
        for accepts, packed in (("gzip;q=0", False), ("gzip; q=0.000, deflate", False), ("*;q=0", False), ("identity", False),
                                ("gzipped", False), ("gzip;q=0.001", True), ("br, GZIP;q=1.0", True), ("*", True),
                                ("*;q=0, gzip", True), ("gzip;q=0, *", False), ("", False)):
            with self.subTest(accepts):
                _, headers = self.answer(url, **{"Accept-Encoding": accepts})
                self.assertEqual(headers["Content-Encoding"], "gzip" if packed else None)

    def raw(self, url, request):
        """Status and headers of the answer to these bytes."""
        at = urllib.parse.urlsplit(url)
        with socket.create_connection((at.hostname, at.port), timeout=DEADLINE_S) as connection:
            connection.sendall(request)
            text = b""
            while part := connection.recv(65536):
                text += part
        head = text.split(b"\r\n\r\n", 1)[0].decode().split("\r\n")
        return int(head[0].split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:])}

    def test_only_its_own_names_are_answered(self):
        fake_ranks.Job(ranks=1, hosts=1).write(self.run_dir)
        _, url = self.serve(self.run_dir, "--allow-host", "gpu.example.org", "--allow-host", "second")
        port = urllib.parse.urlsplit(url).port
        for host, status in (("evil.example", 421), (f"evil.example:{port}", 421), ("127.0.0.1.evil.example", 421), ("", 421),
                             ("localhost.evil", 421), ("1.2.3", 421), ("localhost", 200), (f"LocalHost:{port}", 200),
                             ("127.0.0.1", 200), (f"10.1.2.3:{port}", 200), ("[::1]", 200), (f"[fe80::1]:{port}", 200),
                             ("gpu.example.org", 200), ("gpu.example.org.:80", 200), ("SECOND", 200),
                             (socket.gethostname(), 200)):
            for path in ("/", "/metrics", "/nothing"):
                with self.subTest(host=host, path=path):
                    got, headers = self.raw(url, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                    self.assertEqual(got, 404 if path == "/nothing" and status == 200 else status)
        self.assertEqual(self.raw(url, b"GET / HTTP/1.0\r\n\r\n")[0], 200)

    def test_no_answer_may_be_sniffed_or_framed(self):
        fake_ranks.Job(ranks=1, hosts=1).write(self.run_dir)
        _, url = self.serve()
        for request in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
                        b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"nonsense\r\n\r\n", b"GET /%00 HTTP/9.9\r\n\r\n"):
            with self.subTest(request):
                status, headers = self.raw(url, request)
                self.assertEqual(headers["x-content-type-options"], "nosniff", status)
                self.assertIn("frame-ancestors 'none'", headers["content-security-policy"])
                self.assertIn("default-src 'none'", headers["content-security-policy"])

    def test_a_thousand_ranks_are_a_scrape_of_less_than_a_megabyte(self):
        fake_ranks.Job(ranks=1000, hosts=125).write(self.run_dir, windows=1)
        text = self.text(self.run_dir)
        self.assertLess(len(text), 1_000_000)
        self.assertEqual(len(re.findall(r'(?m)^mfu_ratio\{', text)), 2000)  # step and total of each
        self.assertNotRegex(text, r"exposer_|(?i:nan)")

    def test_many_scrapes_at_once_share_one_rendering(self):
        fake_ranks.Job(ranks=400, hosts=50).write(self.run_dir, windows=2)
        process, url = self.serve(self.run_dir, "--per-rank", "all")

        def cpu_s():
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        get(url)  # reads the files
        before = cpu_s()
        time.sleep(0.6)  # until what was rendered is too old
        whole = get(url)
        one = cpu_s() - before
        time.sleep(0.6)
        before, texts = cpu_s(), []
        threads = [threading.Thread(target=lambda: texts.append(get(url))) for _ in range(120)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(texts), 120)
        self.assertGreater(len(whole), 1_000_000)
        self.assertEqual({len(text) for text in texts}, {len(whole)})
        # Processor time, which a busy machine does not change: 120 renderings take 120 times that of one.
        self.assertLess(cpu_s() - before, 30 * one + 0.5)

    def test_the_textfile_is_replaced_whole(self):
        fake_ranks.Job(ranks=2, hosts=1).write(self.run_dir)
        path = self.directory / "out.prom"
        process = self.start([MFU, "serve", self.run_dir, "--textfile", path, "--every", "0.1"])
        seen, deadline = set(), time.monotonic() + DEADLINE_S
        while len(seen) < 3 and time.monotonic() < deadline:
            if path.exists():
                with open(path) as file:
                    seen.add(os.fstat(file.fileno()).st_ino)
                    self.assertIn("mfu_run_directory_up", file.read())  # the last family: the file is whole
        self.assertGreaterEqual(len(seen), 2)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(DEADLINE_S), 0)
        self.assertEqual([p.name for p in self.directory.iterdir() if p.suffix == ".tmp"], [])


@unittest.skipUnless(PROMETHEUS and PROMTOOL, "no prometheus: Debian has it in the package prometheus")
class Prometheus(Served):
    def test_shipped_rules_pass_promtool(self):
        rules = DEPLOY / "prometheus"
        for command in (["check", "rules", "mfu.rules.yml"], ["test", "rules", "mfu.rules.test.yml"]):
            done = subprocess.run([PROMTOOL, *command], cwd=rules, capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def query(self, expression):
        answer = json.loads(get(f"{self.api}/query?" + urllib.parse.urlencode({"query": expression})))
        self.assertEqual(answer["status"], "success", expression)
        return answer["data"]["result"]

    def wait_for(self, expression, accept=bool):
        deadline = time.monotonic() + DEADLINE_S
        while True:
            result = self.query(expression)
            if accept(result):
                return result
            self.assertLess(time.monotonic(), deadline, f"{expression}: {result}")
            time.sleep(0.3)

    def test_queries_rules_and_dashboard_over_64_ranks(self):
        job = fake_ranks.Job(ranks=64, hosts=8, jitter_s=1e-6)
        for rank in job.ranks:
            rank.mfu = 0.30 + 0.002 * rank.number
        job.ranks[23].mfu = 0.10
        job.ranks[40].late_s = 0.001
        job.ranks[40].peak_flop /= 2  # half the peak, half the weight: 0.30 + 0.08 of the full one is 76 %
        job.write(self.run_dir, windows=4)
        server, url = self.serve()

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = self.directory / "prometheus.yml"
        config.write_text(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{DEPLOY}/prometheus/mfu.rules.yml]
scrape_configs:
  - job_name: mfu
    honor_labels: true
    static_configs: [{{targets: ["{urllib.parse.urlsplit(url).netloc}"]}}]
""")
        with open(self.directory / "prometheus.log", "w") as log:
            self.start([PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={self.directory}/data",
                        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"], stdout=log, stderr=log)
        self.api = f"http://127.0.0.1:{port}/api/v1"
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                get(f"http://127.0.0.1:{port}/-/ready")
                break
            except OSError:
                self.assertLess(time.monotonic(), deadline, (self.directory / "prometheus.log").read_text())
                time.sleep(0.2)
        self.wait_for("count(mfu_rank_up)", lambda r: r and r[0]["value"][1] == "64")
        # The job goes on, five times as fast as its clock says.
        over = threading.Event()

        def go_on():
            for window in range(4, 1000):
                job.append(self.run_dir, first=window)
                if over.wait(2):
                    return

        job_thread = threading.Thread(target=go_on)
        job_thread.start()
        self.addCleanup(job_thread.join)
        self.addCleanup(over.set)
        def moved(r):
            return r and float(r[0]["value"][1]) > 0
        self.wait_for('sum(rate(mfu_model_flops_total[1m]))', moved)

        # Job MFU: FLOP of all / (peak x time) of all, by gauge, by counters and by rule.
        flop = sum(r.mfu * fake_ranks.H100_FLOP for r in job.ranks)
        truth = flop / sum(r.peak_flop for r in job.ranks)
        for expression in (
            'mfu_job_ratio{job="run64"}',
            'sum(rate(mfu_model_flops_total{region="total"}[1m])) / sum(rate(mfu_possible_flops_total{region="total"}[1m]))',
            'job:mfu:ratio{job="run64"}',
        ):
            result = self.wait_for(expression)
            self.assertEqual(len(result), 1)
            self.assertAlmostEqual(float(result[0]["value"][1]), truth, places=6, msg=expression)

        slowest = self.wait_for('bottomk(1, mfu_ratio{region="step"})')
        self.assertEqual((slowest[0]["metric"]["rank"], slowest[0]["metric"]["hostname"]), ("23", "node02"))
        self.assertAlmostEqual(float(slowest[0]["value"][1]), 0.10, places=9)

        comm = self.wait_for('job_class:mfu_time:ratio{class="comm"}')
        by_gauge = self.wait_for('avg(mfu_region_seconds_total{region="total",class="comm"}) / '
                                 'avg(sum without (class) (mfu_region_seconds_total{region="total"}))')
        self.assertAlmostEqual(float(comm[0]["value"][1]), float(by_gauge[0]["value"][1]), places=3)

        # 63 of 64 wait 1 ms in each of 500 collectives per 10 s.
        late = self.wait_for("mfu_straggler_wait_ratio")
        self.assertEqual([(r["metric"]["rank"], r["metric"]["hostname"]) for r in late], [("40", "node05")])
        self.assertAlmostEqual(float(late[0]["value"][1]), 0.05, places=3)

        # Every query of the dashboard has something to show, and every family is scraped without complaint.
        dashboard = json.loads((DEPLOY / "grafana/mfu.json").read_text())
        asked = 0
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", "1m").replace("$job", ".+")
                self.assertNotIn("$", expression)
                result = self.wait_for(expression)
                self.assertTrue(all(not math.isnan(float(r["value"][1])) for r in result), (expression, result))
                asked += 1
        self.assertGreater(asked, 15)
        self.assertEqual(self.query("up")[0]["value"][1], "1")
        for group in json.loads(get(f"{self.api}/rules"))["data"]["groups"]:
            for rule in group["rules"]:
                self.assertIn(rule["health"], ("ok", "unknown"), rule)
        self.assertNotRegex((self.directory / "prometheus.log").read_text(), r"(?i)duplicate|error on ingesting")
        self.assertIsNone(server.poll())


if __name__ == "__main__":
    unittest.main(verbosity=2)
