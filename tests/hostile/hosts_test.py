"""Odd hosts: whatever they do to their descriptors, threads, children, rights and limits, they do it as without the library."""

import os
import shutil
import signal
import subprocess
import time

from harness import BUILD, DEADLINE_S, LIBRARY, SANITIZE, SCENARIO, TestCase, main, patience, unittest

HOST = BUILD / "clients/hostile_host"
SLOW = BUILD / "clients/libslow_open.so"
FORKS = BUILD / "clients/libfork_in_constructor.so"
ROOT = os.geteuid() == 0
# Numbers of x86-64: what the library itself calls, beyond what every program needs to start.
REFUSED = {
    "close_range": 436,
    "unshare": 272,
    "clone3": 435,
    "open": 2,
    "mkdir": 83,
    "getdents64": 217,
    "readlink": 89,
    "stat": 4,
    "getcwd": 79,
    "gethostname (uname)": 63,
    "sched_getaffinity": 204,
    "prctl": 157,
    "poll": 7,
    "rt_sigtimedwait": 128,
    "rt_sigpending": 127,
    "clock_nanosleep": 230,
    "ftruncate": 77,
    "lseek": 8,
    "membarrier": 324,
    "getrandom": 318,
    "memfd_create": 319,
    "sigaltstack": 131,
}


class Hosts(TestCase):
    def host(self, *words, **options):
        return self.program([HOST, *words], **{"env": {"MFU_INTERVAL": "0.05"}, **options})

    def same(self, *words, entry="cuda nvtx", env=None, **options):
        """The host with the library ends as it does without."""
        bare = self.program([HOST, *words], entry="", env=options.pop("bare", None), **options)
        run = self.program([HOST, *words], entry=entry, env={"MFU_INTERVAL": "0.05", **(env or {})}, **options)
        self.assertEqual((run.code, run.stdout), (bare.code, bare.stdout), run.stderr.decode(errors="replace")[-4000:])
        self.assertEqual(run.foreign_log, bare.foreign_log)
        return run


class Descriptors(Hosts):
    def test_numbers_are_the_hosts(self):
        """A number that was closed is free, however slow the file system is that the library writes to."""
        if SANITIZE:
            self.skipTest("sanitizers want to be loaded first")
        # SIMGPU_TRACE off: the simulated CUPTI opens that file on the thread that flushes, which takes a descriptor.
        env = {"LD_PRELOAD": SLOW, "SLOW_OPEN_MS": 5, "MFU_INTERVAL": "0.01", "SIMGPU_TRACE": None}
        run = self.same("numbers", env=env)
        self.assertEqual(run.code, 0)
        self.assertGreater(len(run.lines("window")), 20)

    def test_the_end_of_a_pipe_is_seen(self):
        self.assertEqual(self.same("pipe", env={"MFU_INTERVAL": "0.01"}).code, 0)

    def test_all_closed(self):
        run = self.same("closeall", bare={"SIMGPU_TRACE": None}, env={"SIMGPU_TRACE": None})
        self.assertEqual(run.lines()[-1]["type"], "end")

    def test_a_host_without_any_descriptor_left(self):
        """The library needs one for each write and is not to be helped; the host is."""
        # UBSan opens a pipe to test whether a virtual table can be read. If it cannot, it reports the object as invalid.
        for most in (6,) if "address" in SANITIZE else (0, 3, 6):
            with self.subTest(most):
                self.same("limit", "NOFILE", most)


class Ends(Hosts):
    KINDS = ("return", "exit", "quick_exit", "_exit", "abort", "term", "kill", "exec", "handler", "thread", "execthread")

    def test_every_kind(self):
        for kind in self.KINDS:
            for entry in ("cuda nvtx", "preload"):
                with self.subTest(kind=kind, entry=entry):
                    run = self.same("leave", kind, entry=entry)
                    for name in run.files:
                        run.objects(name)  # whole lines

    def test_what_ends_by_itself_has_its_last_line(self):
        for kind in ("return", "exit", "handler", "thread"):
            with self.subTest(kind):
                run = self.host("leave", kind)
                self.assertEqual(run.lines()[-1]["type"], "end", run.log[-5:])
                self.assertEqual(run.region("step")["instances"], 5)

    def test_the_end_of_main_s_thread(self):
        """Without a context the simulated driver has no thread either: the process ends with its last one."""
        run = self.same("lastthread", env={"SIMGPU_FAIL": "cuptiSubscribe:39"}, bare={"SIMGPU_FAIL": "cuptiSubscribe:39"})
        self.assertEqual(run.code, 0)
        self.assertEqual(run.lines()[-1]["type"], "end")


class Children(Hosts):
    KINDS = ("fork", "forkexec", "vfork", "spawn", "clone", "thread", "double", "before")

    def test_every_kind(self):
        for kind in self.KINDS:
            for entry in ("cuda nvtx", "preload"):
                with self.subTest(kind=kind, entry=entry):
                    run = self.same("fork", kind, entry=entry)
                    self.assertEqual(run.code, 0)
                    if kind != "before":
                        self.assertEqual(run.region("step")["instances"], 10)

    @unittest.skipIf(SANITIZE, "sanitizers want to be loaded first")
    def test_a_fork_in_a_constructor(self):
        for order in (f"{FORKS}:{LIBRARY}", f"{LIBRARY}:{FORKS}"):
            with self.subTest(order):
                run = self.host("leave", "return", entry="cuda nvtx", env={"LD_PRELOAD": order, "MFU_INTERVAL": "0.05"})
                self.assertEqual(run.code, 21, run.stderr)
                self.assertEqual(run.region("step")["instances"], 5)


class Limits(Hosts):
    def test_after_the_start(self):
        addresses = () if SANITIZE else (1 << 28, 1 << 26)  # sanitizers map memory of their own, and abort without it
        for name, values in (("FSIZE", (0, 10, 3000)), ("NPROC", (0, 1)), ("AS", addresses)):
            for value in values:
                with self.subTest(limit=name, value=value):
                    quiet = {"SIMGPU_TRACE": None}
                    self.same("limit", name, value, env=quiet, bare=quiet)

    @unittest.skipIf(SANITIZE, "sanitizers take a terabyte of addresses")
    def test_no_memory_after_the_start(self):
        """Not one page more, with a CUPTI that refuses itself: a real one may need memory of its own for each record. The
        simulated driver's log of what happened would need some for each launch."""
        refusing = {"SIMGPU_FAIL": "cuptiSubscribe:39", "SIMGPU_TRACE": None}
        for value in (0, 4096, 1 << 20, 1 << 24):
            for entry in ("cuda nvtx", "preload"):
                with self.subTest(value=value, entry=entry):
                    run = self.same("limit", "AS", value, entry=entry, env=refusing, bare=refusing)
                    self.assertEqual(run.stdout, b"worked\n")

    @unittest.skipIf(SANITIZE, "sanitizers take a terabyte of addresses")
    def test_address_space_from_the_start(self):
        """From what the bare host needs on: it runs with the library as it does without."""
        import resource

        def below(most):
            return lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))

        least = next(
            mb
            for mb in range(8, 2048, 4)
            if self.program([HOST, "leave", "exit"], entry="", preexec_fn=below(mb << 20)).code == 21
        )
        for mb in (*range(least, least + 80, 4), *range(least + 80, least + 640, 16)):
            for entry in ("cuda nvtx", "preload"):
                if entry == "preload" and mb < least + 16:
                    continue  # the loader itself ends a program when it has no room for what is to be preloaded
                with self.subTest(mb=mb, entry=entry):
                    run = self.host("leave", "exit", entry=entry, preexec_fn=below(mb << 20))
                    self.assertEqual((run.code, run.stdout), (21, b""), run.stderr)

    @unittest.skipIf(SANITIZE, "sanitizers need what is refused")
    def test_few_processes_files_and_bytes_from_the_start(self):
        import resource

        os.chmod(self.directory, 0o777)
        as_nobody = {"user": 65534} if ROOT else {}
        for name, limit, values in (
            ("NPROC", resource.RLIMIT_NPROC, (1, 2, 3, 4, 5)),
            ("NOFILE", resource.RLIMIT_NOFILE, (8, 12, 16)),
            ("FSIZE", resource.RLIMIT_FSIZE, (0, 100)),
        ):
            for value in values:
                with self.subTest(limit=name, value=value):
                    set_it = {"preexec_fn": lambda limit=limit, value=value: resource.setrlimit(limit, (value, value))}
                    opened = {"before": lambda directory, _: os.chmod(directory, 0o777)}
                    trace = {"SIMGPU_TRACE": None}
                    bare = self.program([HOST, "limit", "NOFILE", 64], entry="", env=trace, **set_it, **as_nobody, **opened)
                    run = self.host("limit", "NOFILE", 64, env=trace, **set_it, **as_nobody, **opened)
                    self.assertEqual((run.code, run.stdout), (bare.code, bare.stdout), run.stderr)


class Rights(Hosts):
    @unittest.skipIf(not ROOT, "needs root, to become somebody else")
    def test_another_user_while_it_runs(self):
        run = self.same("setuid", 65534)
        self.assertEqual(run.code, 0)

    @unittest.skipIf(os.uname().machine != "x86_64" or SANITIZE, "numbers of x86-64")
    def test_refused_system_calls(self):
        for name, number in REFUSED.items():
            with self.subTest(name):
                self.same("seccomp", number)
        with self.subTest("all that a descriptor table of one's own takes"):
            run = self.same("seccomp", REFUSED["close_range"], REFUSED["unshare"])
            self.assertEqual(run.lines()[-1]["type"], "end")

    @unittest.skipIf(not ROOT or SANITIZE or shutil.which("unshare") is None, "needs root, to hide /proc")
    def test_without_proc(self):
        hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
        if subprocess.run([*hidden, "true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces here")
        for words in (("chdir", "elsewhere"), ("leave", "return"), ("leave", "thread"), ("fork", "fork"), ("numbers",)):
            for entry in ("cuda nvtx", "preload"):
                with self.subTest(words=words, entry=entry):
                    env = {"SIMGPU_TRACE": None}  # see test_numbers_are_the_hosts
                    bare = self.program([*hidden, HOST, *words], entry="", env=env)
                    run = self.program([*hidden, HOST, *words], entry=entry, env={"MFU_INTERVAL": "0.05", **env})
                    self.assertEqual((run.code, run.stdout, run.foreign_log), (bare.code, bare.stdout, bare.foreign_log))


class FileSystems(Hosts):
    WORK = ("chdir", "elsewhere")

    @unittest.skipIf(SANITIZE, "sanitizers want to be loaded first")
    def test_slow(self):
        """A file system that takes a second for everything costs the host nothing but the patience at its end."""
        begin = time.monotonic()
        bare = self.program([HOST, *self.WORK], entry="")
        took = time.monotonic() - begin
        run = self.host(*self.WORK, env={"LD_PRELOAD": SLOW, "SLOW_OPEN_MS": 1000, "SLOW_WRITE_MS": 1000, "MFU_INTERVAL": "0.05"})
        self.assertEqual((run.code, run.stdout), (bare.code, bare.stdout), run.stderr)
        self.assertLess(run.seconds, took + patience(4), "3 s at most at the exit")

    def test_full(self):
        for variable in ("MFU_LOG", "MFU_TRACE"):
            with self.subTest(variable):
                self.same(*self.WORK, env={variable: "/dev/full"})

    def test_read_only_and_no_folders(self):
        for variable in ("MFU_RUN_DIR", "MFU_TB_DIR", "MFU_TRACE", "MFU_LOG"):
            for path in ("/proc/no", "/sys/no/such", "/dev/null/x", "x" * 5000, "/" + "x/" * 2000 + "y"):
                with self.subTest(variable=variable, path=path[:20]):
                    self.same("limit", "NOFILE", 64, env={variable: path})

    @unittest.skipIf(not ROOT or SANITIZE or shutil.which("unshare") is None, "needs root, to make file systems")
    def test_full_and_read_only_mounts(self):
        folder = self.directory / "small"
        folder.mkdir()
        os.chmod(folder, 0o777)
        for options in ("size=16k", "ro", "nr_inodes=2"):
            mounted = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} none {folder} && exec "$@"', "sh"]
            if subprocess.run([*mounted, "true"], capture_output=True).returncode != 0:
                self.skipTest("no mount namespaces here")
            with self.subTest(options):
                bare = self.program([*mounted, HOST, *self.WORK], entry="")
                run = self.program(
                    [*mounted, HOST, *self.WORK],
                    env={"MFU_RUN_DIR": folder, "MFU_TB_DIR": folder, "MFU_TRACE": folder / "t.json", "MFU_INTERVAL": "0.02"},
                )
                self.assertEqual((run.code, run.stdout, run.foreign_log), (bare.code, bare.stdout, bare.foreign_log))


class Programs(TestCase):
    """Programs that have nothing to do with GPUs, under LD_PRELOAD as `mfu run` sets it."""

    COMMANDS = (
        ("sh", "-c", "echo $0; exit 3"),
        ("bash", "-c", "set -e; (echo a; exit 4)"),
        ("env", "-i", "echo", "b"),
        (
            "python3",
            "-c",
            "import threading, subprocess, os; t = threading.Thread(target=print, args=('t',)); t.start(); t.join(); "
            "print(subprocess.run(['true']).returncode); os._exit(5)",
        ),
        ("git", "--version"),
        ("perl", "-e", "fork(); wait(); print 1; exit 6"),
        ("node", "-e", "console.log(1); process.exit(7)"),
        ("gdb", "--batch", "-ex", "print 1"),
        ("ssh", "-V"),
        ("java", "-version"),
        ("make", "--version"),
        ("sqlite3", ":memory:", "select 1"),
        ("tar", "--version"),
        ("find", "/dev/null"),
        ("awk", "BEGIN { print 1; exit 8 }"),
        ("xargs", "true"),
    )

    def test_same_output_and_code(self):
        for command in self.COMMANDS:
            if shutil.which(command[0]) is None:
                continue
            if SANITIZE and command[0] in ("node", "gdb"):
                continue  # they do not bear AddressSanitizer beside them
            with self.subTest(command[0]):
                bare = self.program(command, entry="")
                run = self.program(command, entry="preload")
                self.assertEqual((run.code, run.stdout, run.stderr), (bare.code, bare.stdout, bare.stderr))
                self.assertEqual(run.files, {}, "a program without a GPU writes nothing")

    def test_signals_end_it_as_ever(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(number):
                codes = []
                for entry in ("", "preload"):
                    child = subprocess.Popen(
                        ["sleep", "600"],
                        env=self.environment(self.directory, entry.split(), "cupti-13.0", None, {}),
                        preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP)],
                    )
                    child.send_signal(number)
                    codes.append(child.wait(DEADLINE_S))
                self.assertEqual(codes[0], codes[1])


@unittest.skipIf(SANITIZE, "under sanitizers the account takes ten times as long, and the host waits 3 s for it")
class Launching(Hosts):
    """Faster than records are taken: windows come, and the account ends with what was dropped."""

    STEPS = 20_000  # on each of eight devices: 3.2 million launches

    def check(self, *before):
        """Runs eight threads at full speed, each on a device of its own."""
        threads = "\n".join(
            f'thread w{d} {{ device {d}; repeat {self.STEPS} {{ push "step batch=1 seq_len=8"; launch k count=20; pop }} }}'
            for d in range(8)
        )
        script = f"kernel k ns=500\n{threads}\njoin\nprint finished\nexit 7"
        environment = {"MFU_INTERVAL": "0.5", "SIMGPU_DEVICES": 8, "SIMGPU_TRACE": None}
        run = self.program([*before, SCENARIO, "-"], stdin=script.encode(), env=environment)
        self.assertEqual((run.code, run.stdout), (7, b"finished\n"))
        end = self.assert_sound(run)
        account = end["launches"]
        self.assertEqual(account["seen"], 8 * 20 * self.STEPS)
        self.assertLessEqual(sum(r["launches"] for r in end["regions"] if r["region"] == "step"), account["attributed"])
        self.assertGreater(len({w["t0_ns"] for w in run.lines("window")}), 1)
        return run

    def test_eight_devices_at_full_speed(self):
        self.check()

    @unittest.skipIf(shutil.which("taskset") is None, "needs taskset")
    def test_eight_devices_on_a_processor_that_others_use(self):
        """With a seventeenth of one processor ticks end, windows come, and so does the end within the 3 s that the host waits.

        Others on the machine have a share already: then there are fewer of ours.
        """
        processor = str(min(os.sched_getaffinity(0)))
        count = max(1, int(8 / (patience(0.5) ** 2)))
        others = [
            subprocess.Popen(["taskset", "-c", processor, "sh", "-c", "while :; do :; done"]) for _ in range(count)
        ]
        try:
            self.check("taskset", "-c", processor)
        finally:
            for other in others:
                other.kill()
                other.wait()


if __name__ == "__main__":
    main()
