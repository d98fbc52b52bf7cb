"""`mfu replay` as a person runs it: recorded traces against what Python makes of the same files, and every kind of bad trace."""

import gzip
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("MFU_BUILD_DIR", "build/release"))
DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
TRACES = DATA / "traces"
CLASSES = ("matmul", "other", "comm", "memcpy", "idle")


def ns(us):
    return round(us * 1000)


def union(intervals):
    total, reached = 0, None
    for begin, end in sorted(intervals):
        begin = begin if reached is None else max(begin, reached)
        total += max(0, end - begin)
        reached = end if reached is None else max(reached, end)
    return total


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mfu-replay-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def mfu(self, *words, code=0, env=None):
        base = {k: v for k, v in os.environ.items() if not k.startswith("MFU_")}
        done = subprocess.run([str(BUILD / "mfu"), "replay", *map(str, words)], capture_output=True, text=True, errors="replace",
                              timeout=900, env={**base, **(env or {})})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def ask(self, *words, **options):
        return json.loads(self.mfu(*words, "--json", **options).stdout)

    def events(self, name):
        with gzip.open(TRACES / name) as file:
            return json.load(file)["traceEvents"]

    # --- recorded traces

    def test_every_recorded_trace_adds_up(self):
        traces = sorted(TRACES.glob("*.gz"))
        if os.environ.get("MFU_SANITIZE"):
            traces = [t for t in traces if t.stat().st_size < 200_000]  # the large ones take a minute each
        for trace in traces:
            with self.subTest(trace.name):
                answer = self.ask(trace, "--run-dir", self.folder / trace.name)
                for region in answer["regions"]:
                    self.assertEqual(sum(ns(region["time_s"][c] * 1e6) for c in CLASSES), ns(region["elapsed_s"] * 1e6))
                    self.assertLessEqual(region["busy_s"], region["kernel_sum_s"])
                for path in (self.folder / trace.name).glob("*.jsonl"):
                    lines = [json.loads(line) for line in path.read_text().splitlines()]
                    self.assertEqual([lines[0]["type"], lines[-1]["type"]], ["start", "end"])
                    account = lines[-1]["launches"]
                    self.assertEqual(account["seen"], sum(v for k, v in account.items() if k != "seen"))
                    total = [r for r in lines[-1]["regions"] if r["region"] == "total"][0]
                    windows = [x for x in lines if x["type"] == "window" and x["region"] == "total"]
                    self.assertEqual(sum(w["kernels"] for w in windows), total["kernels"])
                    self.assertEqual(sum(ns(w["busy_s"] * 1e6) for w in windows), ns(total["busy_s"] * 1e6))
                self.assertTrue(self.mfu(trace).stdout)

    def test_kernels_by_name(self):
        trace = "tracelens_qwen05b_h100.json.gz"
        kernels = [(ns(e["ts"] - 1.75e15) if e["ts"] > 1e15 else ns(e["ts"]), ns(e["dur"])) for e in self.events(trace)
                   if e.get("cat") == "kernel" and re.search("flash_fwd", e["name"])]
        spans = [(b, b + d) for b, d in kernels]
        got = self.ask(TRACES / trace, "--kernel", "flash_fwd", "--flop", "5e9")["kernel"]
        self.assertEqual(got["kernels"], len(spans))
        self.assertEqual(ns(got["kernel_sum_s"] * 1e6), sum(d for _, d in kernels))
        # The file's times are doubles of microseconds here: a few ns each.
        self.assertAlmostEqual(got["kernel_union_s"], union(spans) / 1e9, delta=1e-6)
        self.assertAlmostEqual(got["wall_s"], (max(e for _, e in spans) - min(b for b, _ in spans)) / 1e9, delta=1e-6)
        peak = got["peak_flop_per_s"]
        self.assertEqual((peak, got["dtype"]), (989.4e12, "bf16"))
        for base in ("wall", "kernel_sum", "kernel_union"):
            self.assertAlmostEqual(got["mfu_by"][base], len(spans) * 5e9 / peak / got[base + "_s"], places=9)

    def test_a_range_of_two_processes_on_two_gpus(self):
        trace = TRACES / "nsysai_wan_train_2xh100_before.sqlite.gz"
        with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
            file.write(gzip.decompress(trace.read_bytes()))
            file.flush()
            database = sqlite3.connect(file.name)
            wanted = dict(database.execute("""
                SELECT k.globalPid >> 24 & 0xFFFFFF, sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k
                JOIN StringIds s ON s.id = k.demangledName WHERE s.value LIKE '%flash_fwd_kernel%' GROUP BY 1"""))
            database.close()
        got = self.ask(trace, "--range", "FlashAttnFunc", "--kernel", "flash_fwd_kernel", "--flop", "1e12",
                       env={"MFU_PEAK_TFLOPS": "989.4"})
        self.assertEqual(got["kernel"]["devices"], 2)
        self.assertEqual(
            len(got["range"]["occurrences"]),
            sum(r["instances"] for p in got["processes"] for n, r in p["ranges"].items() if "FlashAttnFunc" in n),
        )
        inside = {p: sum(ns(o["kernel_sum_s"] * 1e6) for o in got["kernel"]["occurrences"] if o["process"] == str(p))
                  for p in wanted}
        whole = self.ask(trace, "--kernel", "flash_fwd_kernel")["kernel"]
        self.assertEqual({int(o["process"]): ns(o["kernel_sum_s"] * 1e6) for o in whole["occurrences"]}, wanted)
        for process, total in wanted.items():
            self.assertLessEqual(inside[process], total)
            self.assertGreater(inside[process], total * 0.9)
        text = self.mfu(trace, "--range", "FlashAttnFunc", "--nth", "2").stdout
        self.assertIn("2 occurrences on 2 devices", text)

    def test_questions_that_cannot_be_answered(self):
        trace = TRACES / "tracelens_qwen05b_h100.json.gz"
        for words, message in ((("--kernel", "flesh"), 'no kernel matches "flesh"; nearest: "void pytorch_flash::'),
                               (("--range", "ProfilerStop"), 'no range contains "ProfilerStop"; nearest: "ProfilerStep#6"'),
                               (("--range", "ProfilerStep", "--nth", "4"), "occurs 1 time"),
                               (("--kernel", "flash", "--device", "3"), "--device 3: no work on it; devices here: 0")):
            done = self.mfu(trace, *words, code=1)
            self.assertIn(message, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    # --- bad traces

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    PAIR = ('{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":10,"dur":2,"args":{"correlation":5}},'
            '{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":14,"dur":3,"args":{"device":0,"stream":7,"correlation":5}}')

    def test_counters_of_two_tools(self):
        """FLOP by Nsight Compute, times by nsys: HFU of prefill and of decode."""
        kernel = "Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>"
        counted, timed = self.folder / "ncu.csv", self.folder / "nsys.csv"
        counted.write_text(
            "==PROF== Connected\n"
            '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
            f'"0","1","void {kernel}(Params)","sm__ops_path_tensor_src_bf16_dst_fp32.sum","","12,532,580,352"\n'
            f'"0","1","void {kernel}(Params)","gpu__time_duration.sum","us","111.81"\n')
        timed.write_text(
            "NVTX Range,Style,NVTX Inst,Kern Inst,Total Time (ns),Kernel Name\n"
            f":prefill batch=1,PushPop,1,10,1000000,void cutlass::{kernel}(T1::Params)\n"
            f":decode,PushPop,5,10,2000000,void cutlass::{kernel}(T1::Params)\n")
        rows = {row["range"]: row for row in self.ask(counted, timed, "--gpu", "RTX 5090")["counters"]}
        self.assertEqual(set(rows), {"prefill", "decode"})
        for name, seconds in (("prefill", 1e-3), ("decode", 2e-3)):
            self.assertAlmostEqual(rows[name]["hfu"], 10 * 12_532_580_352 / seconds / rows[name]["peak_flop_per_s"], places=9)
        self.assertIn("prefill", self.mfu(counted, timed, "--gpu", "RTX 5090").stdout)
        self.assertIn("name it by --gpu", self.mfu(counted).stdout)
        self.assertIn("nearest", self.mfu(counted, "--gpu", "RTX 6666", code=2).stderr)
        timed.write_text("a,b,c\n1,2,3\n")
        self.assertIn("expected CSV of Nsight Compute", self.mfu(counted, timed, code=1).stderr)

    def test_files_that_are_no_trace(self):
        whole = gzip.compress(f"[{self.PAIR}]".encode())
        for name, content, message in (
                ("empty.json", "", "is empty: expected a Kineto JSON or Nsight Systems SQLite trace"),
                ("blank.json", " \n ", "holds no text: expected a Kineto JSON trace"),
                ("text.json", "hello", 'byte 0: found "hello": expected { or ['),
                ("other.json", '{"a": 1}', 'has no "traceEvents" array'),
                ("types.json", '{"traceEvents": 3}', '"traceEvents" is "3}": expected an array'),
                ("syntax.json", "[" + self.PAIR + ',{"ph" 3}]', "is not valid JSON near"),
                ("short.sqlite", b"SQLite format 3\0" + b"\0" * 50, "expected an Nsight Systems SQLite export"),
                ("cut.sqlite.gz", self.cut_database(), "break off before their end"),
                ("bytes.json.gz", whole[:2] + b"\xff" * 40, "")):
            with self.subTest(name):
                done = self.mfu(self.write(name, content), "--json", code=1)
                self.assertIn(message, done.stderr)
                self.assertIn(name, done.stderr)
                self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        self.assertIn("No such file", self.mfu(self.folder / "missing.json", code=1).stderr)

    def cut_database(self):
        whole = gzip.compress(bytes(range(256)) * 400)
        return gzip.compress(b"SQLite format 3\0" + whole)[:-20]

    def test_oddities_are_counted_and_the_rest_is_read(self):
        bad = ('{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":NaN,"dur":1},'
               '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":"x","dur":{}},'
               '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":-2,"args":{"correlation":[1]}},3,')
        path = self.write("odd.json", f"[{bad}{self.PAIR},{self.PAIR}]")
        answer = self.ask(path)["processes"][0]
        self.assertEqual(answer["totals"]["kernels"], 3)
        self.assertEqual(answer["notes"], {"correlation_ids_that_are_no_number": 1, "duplicate_correlation_on_host": 1,
                                           "elements_that_are_no_events": 1, "events_with_unusable_time": 2,
                                           "negative_durations": 1})
        path = self.write("cut.json", f"[{self.PAIR},{self.PAIR[:150]}")
        answer = self.ask(path, "--partial")["processes"][0]
        self.assertEqual((answer["totals"]["kernels"], answer["notes"]), (1, {"cut_off": 1, "duplicate_correlation_on_host": 1}))
        path = self.write("bytes.json", f"[{self.PAIR}]".encode().replace(b"gemm", b"ge\xffm"))
        answer = self.ask(path)["processes"][0]
        self.assertEqual((answer["totals"]["kernels"], answer["notes"]), (1, {"bytes_not_utf8": 1}))
        whole = gzip.compress(f"[{self.PAIR},{self.PAIR}]".encode())
        answer = self.ask(self.write("cut.json.gz", whole[:-12]), "--partial")["processes"][0]
        self.assertEqual(answer["notes"].get("cut_off"), 1)

    def database(self, *statements):
        path = self.folder / f"{len(list(self.folder.iterdir()))}.sqlite"
        database = sqlite3.connect(path)
        for statement in statements:
            database.execute(statement)
        database.commit()
        database.close()
        return path

    def test_databases_without_what_is_needed(self):
        done = self.mfu(self.database("CREATE TABLE t(a)"), code=1)
        self.assertIn("is an SQLite file without any table of Nsight Systems", done.stderr)
        done = self.mfu(self.database("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(begin INTEGER, end INTEGER)"), code=1)
        self.assertIn("table CUPTI_ACTIVITY_KIND_KERNEL has no column start", done.stderr)
        # Kernels alone: no launches, no names, no ranges, and text where a time should be.
        answer = self.ask(self.database(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, globalPid INTEGER, shortName INTEGER)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 1 << 24, 7), ('soon', 20, 1 << 24, 7), (30, 25, 1 << 24, 7)"))
        process = answer["processes"][0]
        self.assertEqual(process["totals"]["kernels"], 2)
        self.assertEqual(process["notes"], {"negative_durations": 1, "rows_with_unusable_time": 1})

    def test_a_folder_with_a_bad_file_still_gives_the_good_one(self):
        self.write("a.json", f"[{self.PAIR}]")
        self.write("b.json", "no")
        done = self.mfu(self.folder, "--json", code=1)
        self.assertEqual(json.loads(done.stdout)["processes"][0]["totals"]["kernels"], 1)
        self.assertIn("b.json", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
