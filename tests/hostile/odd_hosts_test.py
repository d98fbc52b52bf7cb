"""Hosts with signals, jumps, filters and roots of their own; junk in every variable; every config that a stranger may write."""

import ctypes
import json
import os
import re
import shutil
import stat
import subprocess
import time

from harness import BUILD, DEADLINE_S, GPT2, LIBRARY, SANITIZE, SOURCE, main, patience, unittest
from hosts_test import HOST, ROOT, Hosts

ODD = BUILD / "clients/odd_host"
MFU = BUILD / "mfu"
X86 = os.uname().machine == "x86_64"
# What neither a step nor a written window takes, once the library's threads run. Numbers of x86-64.
NEVER = {
    "socket": 41,
    "connect": 42,
    "sendto": 44,
    "ptrace": 101,
    "personality": 135,
    "mount": 165,
    "keyctl": 250,
    "unshare": 272,
    "perf_event_open": 298,
    "process_vm_readv": 310,
    "memfd_create": 319,
    "bpf": 321,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "close_range": 436,
    "fork": 57,
    "vfork": 58,
    "execve": 59,
    "kill": 62,
    "setuid": 105,
    "unlink": 87,
    "sched_setscheduler": 144,
    "setrlimit": 160,
    "sethostname": 170,
}


class Odd(Hosts):
    """Each host ends with the library as it does without; what of its run was written is whole lines."""

    def alike(self, *words, entries=("cuda nvtx", "preload"), bare=None, **options):
        """The host's exit code and output, the same with every entry. Runs with the library, by entry."""
        bare_run = self.program([ODD, *words], entry="", env=bare, **options)
        runs = {}
        for entry in entries:
            with self.subTest(words=words, entry=entry):
                run = self.program([ODD, *words], entry=entry, env={"MFU_INTERVAL": "0.05", **(bare or {})}, **options)
                self.assertEqual((run.code, run.stdout), (bare_run.code, bare_run.stdout), run.stderr[-4000:])
                self.assertEqual(run.foreign_log, bare_run.foreign_log)
                for name in run.files:
                    run.objects(name)
                runs[entry] = run
        return runs


QUIET = {"SIMGPU_TRACE": None}  # the simulated GPU's own file costs more than all else where threads launch at full speed


class Signals(Odd):
    def test_timers(self):
        for run in self.alike("timers", bare=QUIET).values():
            self.assertEqual(run.code, 0, "a signal of the host came to a thread of the library")
            self.assertEqual(run.lines()[-1]["type"], "end")

    def test_jumps_out_of_calls(self):
        for run in self.alike("longjmp").values():
            self.assertEqual((run.code, run.stdout), (0, b"jumped\n"))


class Ends(Odd):
    KINDS = (
        "exit",
        "_exit",
        "quick_exit",
        "return",
        "kill",
        "abortthread",
        "execthread",
        "handler_exit",
        "handler__exit",
        "handler_abort",
        "handler_exec",
    )

    def test_while_others_launch(self):
        for kind in self.KINDS:
            runs = self.alike("leave", kind, entries=("cuda nvtx",), bare=QUIET)
            for run in runs.values():
                if kind in ("exit", "return", "handler_exit"):
                    self.assertEqual(run.lines()[-1]["type"], "end", (kind, run.log[-5:]))

    def test_children_while_others_launch(self):
        for run in self.alike("storm", entries=("cuda nvtx",), bare=QUIET).values():
            self.assertEqual((run.code, run.stdout), (0, b"stormed\n"))
            # None where it ended, by _exit, before the first line was due.
            self.assertLessEqual(len(run.files), 1, "children have no run of their own")


class Loader(Odd):
    def test_unloading(self):
        for run in self.alike("unload", LIBRARY).values():
            self.assertEqual((run.code, run.stdout), (0, b"worked\n"))

    @unittest.skipIf(SANITIZE, "sanitizers want to be loaded first")
    def test_two_copies(self):
        """One of them measures, and nothing is counted twice."""
        copy = self.directory / "copy.so"
        shutil.copy(LIBRARY, copy)
        link = self.directory / "link.so"
        link.symlink_to(LIBRARY)
        for other in (copy, link):
            for variables in (
                {"NVTX_INJECTION64_PATH": other},
                {"LD_PRELOAD": other},
                {"LD_PRELOAD": f"{other}:{LIBRARY}"},
                {"CUDA_INJECTION64_PATH": other, "LD_PRELOAD": LIBRARY},
            ):
                with self.subTest(other=other.name, variables=list(variables)):
                    run = self.program([HOST, "leave", "return"], env={"MFU_INTERVAL": "0.05", **variables})
                    self.assertEqual((run.code, run.stdout), (21, b""), run.stderr)
                    steps = [
                        region["instances"]
                        for name in run.files
                        for end in run.objects(name, "end")
                        for region in end["regions"]
                        if region["region"] == "step"
                    ]
                    self.assertLessEqual(sum(steps), 5, run.files)
                    self.assertLessEqual(len(run.files), 1)


class Limits(Odd):
    def test_small_stacks(self):
        for size in (16 << 10, 20 << 10, 64 << 10):
            for run in self.alike("threads", size, "range-before").values():
                self.assertEqual((run.code, run.stdout), (0, b"worked\n"))

    @unittest.skipIf(SANITIZE, "frames that sanitizers guard are larger")
    def test_small_stacks_begin_nvtx(self):
        """The first range of the process on a small stack. NVTX's own start may need more, and kills the bare host."""
        for size in (16 << 10, 20 << 10, 64 << 10):
            with self.subTest(size=size):
                if self.program([ODD, "threads", size], entry="").code != 0:
                    self.skipTest("these NVTX headers need more themselves")
                for run in self.alike("threads", size).values():
                    self.assertEqual((run.code, run.stdout), (0, b"worked\n"))

    def test_stack_and_locked_memory_after_the_start(self):
        for name, value in (("STACK", 0), ("STACK", 65536), ("MEMLOCK", 0)):
            with self.subTest(name=name, value=value):
                self.same("limit", name, value)


class Filters(Odd):
    def test_no_system_call_where_ranges_are_pushed(self):
        for run in self.alike("strict").values():
            self.assertEqual(run.code, 0)

    @unittest.skipIf(not X86 or SANITIZE, "numbers of x86-64")
    def test_calls_that_are_death(self):
        for run in self.alike("kill", *NEVER.values()).values():
            self.assertEqual(run.code, 0, run.stderr)
            self.assertEqual(run.lines()[-1]["type"], "end")


class Roots(Odd):
    @unittest.skipIf(not ROOT or SANITIZE, "needs root, to change it")
    def test_an_empty_root(self):
        folder = self.directory / "empty"
        folder.mkdir()
        for when in ("before", "after"):
            self.alike("chroot", when, folder, bare=QUIET)
        self.assertEqual([p for p in folder.rglob("*") if p.is_file()], [], "nobody asked for files there")

    def test_every_descriptor_closed(self):
        for run in self.alike("closerange", bare=QUIET).values():
            self.assertEqual(run.code, 33)


class Variables(Hosts):
    """Values that mean nothing: the host never notices, and what is said of them is printable lines."""

    VALUES = (
        "",
        " ",
        "nan",
        "-inf",
        "-1",
        "1e308",
        "1e-308",
        "9" * 400,
        "0x10",
        "%s%n%d{}",
        "\x1b[2J\nline",
        "\u202e\U0001f600",
        "x" * 80_000,  # in each variable at once: an environment has 2 MB
        "/",
        "/dev/zero",
        "/dev/full",
        "/proc/self/mem",
        "/proc/no/such/folder",
        "{",
        '{"a":' * 1000,
        "true,false",
        "../" * 300,
    )

    def variables(self):
        text = (SOURCE / "docs/reference.md").read_text()
        return sorted(set(re.findall(r"\bMFU_[A-Z][A-Z_]*[A-Z]\b", text)) - {"MFU_DISABLE"})

    def check(self, env):
        run = self.program([HOST, "leave", "exit"], env={"SIMGPU_TRACE": None, **env})
        self.assertEqual((run.code, run.stdout), (21, b""), run.stderr[-3000:])
        self.assertEqual(run.foreign_log, [])
        self.assertIsNone(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", run.stderr.decode()), run.stderr[-3000:])
        self.assertLess(max((len(line) for line in run.log), default=0), 2000)

    def test_junk_in_all_at_once(self):
        for value in self.VALUES:
            with self.subTest(value=value[:30]):
                # All of the output variables on one file would be no junk but a mess of its own.
                self.check({name: value for name in self.variables() if name not in ("MFU_RUN_DIR", "MFU_TB_DIR")})

    def test_junk_in_each(self):
        names = self.variables()
        self.assertGreater(len(names), 15)
        for i, name in enumerate(names):
            for value in (self.VALUES[i % len(self.VALUES)], self.VALUES[(7 * i + 3) % len(self.VALUES)]):
                if name.endswith("_DIR") and set(value) <= set("./") and value:
                    continue  # the root of this machine is a folder like any other
                with self.subTest(name=name, value=value[:30]):
                    self.check({name: value})

    def test_bytes_that_are_no_text(self):
        for name in self.variables():
            environment = {os.fsencode(k): os.fsencode(v) for k, v in self.environment(
                self.directory, ["cuda", "nvtx"], "cupti-13.0", GPT2, {"MFU_INTERVAL": "0.05", "SIMGPU_TRACE": None}).items()}
            environment[name.encode()] = b"\xff\xfe\xc0\xaf\x80"
            done = subprocess.run([HOST, "leave", "exit"], env=environment, capture_output=True, timeout=DEADLINE_S,
                                  cwd=self.directory)
            self.assertEqual((done.returncode, done.stdout), (21, b""), (name, done.stderr))
            done.stderr.decode()  # raises where it is no UTF-8


class Configs(Hosts):
    """Configs of a stranger: a model, or one line that says what is wrong, in no time; never a crash."""

    NUMBERS = (-1, 0, 2.5, 1e308, 2**31, 2**63, 2**64)
    WRONG = (*NUMBERS, None, True, "x", "9" * 300, [], {}, [[]], {"a": {}}, [1e999], "\u0000\x1b[2J")

    def flops(self, path):
        begin = time.monotonic()
        done = subprocess.run(
            [MFU, "flops", path, "--phase", "prefill", "--batch", "2", "--seq-len", "8"],
            capture_output=True,
            timeout=DEADLINE_S,
            cwd=self.directory,
        )
        self.assertIn(done.returncode, (0, 1), (path, done.stderr[-2000:]))
        if done.returncode == 1:
            self.assertEqual(done.stdout, b"")
            message = done.stderr.decode()
            self.assertEqual(message.count("\n"), 1, message[:2000])
            self.assertLess(len(message), 2000)
            self.assertIsNone(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", message), message)
        self.assertLess(time.monotonic() - begin, patience(5), path)
        return done

    def write(self, name, data):
        path = self.directory / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def texts(self):
        """(name, bytes, whether it must be refused)."""
        good = GPT2.read_text().strip()
        head = good[:-1].rstrip()
        yield "bom", b"\xef\xbb\xbf" + good.encode(), False
        yield "crlf", good.replace("\n", "\r\n").encode(), False
        yield "utf16", good.encode("utf-16"), True
        yield "utf32", good.encode("utf-32"), True
        yield "latin", head.encode() + b', "x": "\xe9\xff"}', True
        yield "overlong", head.encode() + b', "x": "\xc0\xaf"}', True
        yield "surrogate", (head + ', "x": "\\ud800"}').encode(), True
        yield "nul", good.encode().replace(b"{", b"{\0", 1), True
        yield "infinite", (head + ', "n_embd": 1e400}').encode(), True
        yield "digits", (head + ', "n_layer": ' + "9" * 100_000 + "}").encode(), True
        yield "doubled", (head + "".join(f', "n_layer": {i}' for i in range(1, 50_000)) + "}").encode(), False
        yield "cut", good[: len(good) // 2].encode(), True
        yield "more", (good + good).encode(), True
        yield "empty", b"", True
        yield "spaces", b" " * 1_000_000, True
        yield "list", b"[" * 60 + b"]" * 60, True
        yield "string", b'"x"', True
        yield "null", b"null", True
        yield "open string", b'{"a": "' + b"x" * 1_000_000, True
        yield "quotes", b'"' * 1_000_000, True
        yield "large", (head + ', "x": "' + "y" * 20_000_000 + '"}').encode(), True
        yield "many keys", (head + "".join(f', "k{i}": {i}' for i in range(200_000)) + "}").encode(), False
        yield "random", bytes((i * i * 31 + 7 * i) % 251 for i in range(100_000)), True

    def test_texts(self):
        for name, data, refused in self.texts():
            with self.subTest(name):
                path = self.write("config.json", data)
                done = self.flops(path)
                self.assertEqual(done.returncode, 1 if refused else 0, done.stderr[-500:])
                run = self.program([HOST, "leave", "exit"], config=path, env={"SIMGPU_TRACE": None})
                self.assertEqual((run.code, run.stdout, run.foreign_log), (21, b"", []))
                self.assertEqual(run.lines()[-1]["type"], "end")

    def test_wrong_types_everywhere(self):
        """Each key of a config with each value that it may not have; and all of them at once."""
        for source in ("gpt2.json", "qwen3-8b.json"):
            config = json.loads((SOURCE / "tests/data/configs" / source).read_text())
            for i, key in enumerate(sorted(config)):
                for value in self.WRONG[i % 5 :: 5]:
                    with self.subTest(source=source, key=key, value=str(value)[:20]):
                        self.flops(self.write("config.json", json.dumps({**config, key: value})))
            for value in self.WRONG:
                with self.subTest(source=source, value=str(value)[:20]):
                    wrong = dict.fromkeys(config, value)
                    for keep in ({}, {"model_type": config["model_type"]}):
                        self.flops(self.write("config.json", json.dumps({**wrong, **keep})))

    def test_no_other_file_is_opened(self):
        """Whatever paths stand in a model's config, nobody looks there."""
        folder = self.directory / "decoys"
        folder.mkdir()
        decoy = folder / "decoy.json"
        decoy.write_text("{}")
        notify = ctypes.CDLL(None, use_errno=True)
        watch = notify.inotify_init1(os.O_NONBLOCK)
        self.assertGreaterEqual(watch, 0)
        self.addCleanup(os.close, watch)
        opened, accessed = 0x20, 0x1
        self.assertGreaterEqual(notify.inotify_add_watch(watch, os.fsencode(folder), opened | accessed), 0)
        decoy.read_text()
        self.assertTrue(os.read(watch, 4096), "the watch works")
        config = json.loads(GPT2.read_text())
        keys = ("_name_or_path", "tokenizer_class", "auto_map", "quantization_config", "custom_pipelines", "text_config_path")
        paths = dict.fromkeys((*keys, "$ref", "include", "base_model_name_or_path", "weights", "extends"), str(decoy))
        for more in (paths, {k: {"path": v} for k, v in paths.items()}, {k: [f"file://{v}"] for k, v in paths.items()}):
            path = self.write("config.json", json.dumps({**config, **more}))
            self.flops(path)
            self.program([HOST, "leave", "exit"], config=path, env={"SIMGPU_TRACE": None})
        with self.assertRaises(BlockingIOError):
            os.read(watch, 4096)

    def test_what_is_no_file(self):
        fifo = self.directory / "fifo"
        os.mkfifo(fifo)
        link = self.directory / "loop"
        link.symlink_to(link)
        folder = self.directory / "folder.json"
        folder.mkdir()
        for path in (fifo, link, folder, "/dev/zero", "/dev/stdin", "/proc/self/environ", "/proc/self/mem", "x" * 5000):
            with self.subTest(str(path)[:30]):
                self.assertEqual(self.flops(path).returncode, 1)
                run = self.program([HOST, "leave", "exit"], config=None, env={"MFU_MODEL_CONFIG": path, "SIMGPU_TRACE": None})
                self.assertEqual((run.code, run.stdout), (21, b""), run.stderr)
        self.assertTrue(stat.S_ISFIFO(fifo.stat().st_mode))


if __name__ == "__main__":
    main()
