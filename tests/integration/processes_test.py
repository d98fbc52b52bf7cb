"""Processes that fork, exec, die, throw or leave while work is in flight; run directories that cannot be written, are full or
vanish; output that is closed. The host's stdout and exit code stay what they are without the library, and nothing hangs."""

import json
import os
import shutil
import subprocess
import threading
import time

from harness import DEADLINE_S, EMULATED, LIBRARY, SANITIZE, SCENARIO, TestCase, main, patience, unittest

LONG = """
kernel gemm_step ns=2000000
print begins
repeat 100 { push "step batch=1 seq_len=32"; launch gemm_step count=4; sync; pop }
"""

# Our programs for another processor carry gcc's unwinder inside. The C library that they run on there ends a thread with that
# of an older gcc, and neither understands the other's frames.
UNWINDERS_DIFFER = EMULATED


class Processes(TestCase):
    def test_fork_without_cuda(self):
        """A parent that never used CUDA; its children do."""
        run = self.unharmed("""
            push x; pop
            fork { kernel gemm_k ns=50000; push "step batch=1 seq_len=8"; launch gemm_k count=3; sync; pop; print child }
            wait
            print parent
        """, entry="cuda nvtx preload")
        self.assertEqual((run.code, run.stdout), (0, b"child\nparent\n"))
        self.assert_sound(run)
        self.assertEqual(run.region("step")["kernels"], 3)

    def test_fork_with_cuda(self):
        """A data loader's workers: forked from a process that uses CUDA, they stay silent, and the parent goes on."""
        threaded = "fork HOW { thread t { push step; pop }; join; print threaded }"
        if "address" in SANITIZE:  # a thread of the parent may hold its allocator's lock: the child's thread waits for ever
            threaded = ""
        for how in ("", "_exit"):
            with self.subTest(how):
                lines = []
                for entry in ("", "cuda nvtx"):
                    got = self.scenario("""
                        kernel gemm_k ns=100000
                        repeat 5 { push "step batch=1 seq_len=8"; launch gemm_k; sync; pop }
                        push outer
                        fork HOW { push step; pop; push a; pop; pop; pop; start r step; end r; sleep 200; print child }
                        fork HOW { exec /bin/echo other }
                        THREADED
                        repeat 5 { push "step batch=1 seq_len=8"; launch gemm_k; sync; pop }
                        pop
                        wait
                        print parent
                    """.replace("THREADED", threaded).replace("HOW", how), entry=entry)
                    lines.append((got.code, sorted(got.stdout.splitlines()), got.foreign_log))
                self.assertEqual(lines[0], lines[1])
                self.assertEqual(len(got.files), 1)
                self.assert_sound(got)
                self.assertEqual((got.region("step")["instances"], got.region("step")["kernels"]), (10, 10))

    def test_fork_while_other_threads_are_busy(self):
        run = self.scenario("""
            kernel gemm_k ns=20000
            # The NVTX headers themselves cannot stand a fork while another thread is in a module's first call.
            push warm; pop
            thread a { repeat 300 { push "prefill tok=1"; launch gemm_k count=5; pop }; sync }
            thread b { repeat 300 { push "decode b=1"; launch gemm_k count=5; pop }; sync }
            repeat 10 { fork _exit { push step; pop; print x }; sleep 5 }
            wait
            join
        """, env={"MFU_INTERVAL": "0.05"})
        self.assertEqual(run.stdout, b"x\n" * 10)
        self.assert_sound(run)
        self.assertEqual((run.region("prefill")["kernels"], run.region("decode")["kernels"]), (1500, 1500))

    def test_exec(self):
        run = self.unharmed(LONG.replace("repeat 100", "repeat 20") + "exec /bin/echo replaced", code=0)
        self.assertEqual(run.stdout, b"begins\nreplaced\n")
        for name in run.files:
            run.objects(name)

    def assert_whole_lines(self, run):
        self.assertEqual(len(run.files), 1)
        objects = run.lines()
        self.assertEqual([o["seq"] for o in objects], list(range(len(objects))))
        self.assertEqual(objects[0]["type"], "start")
        for o in objects:
            if o["type"] == "window":
                self.assert_region_sound(o)
        return objects

    def test_ends_without_exit_handlers(self):
        """What is lost is the open window at most; the file holds whole lines."""
        for last, code in (("_exit 4", 4), ("raise TERM", -15), ("raise KILL", -9), ("raise HUP", -1), ("raise INT", -2)):
            with self.subTest(last):
                run = self.unharmed(LONG + last, env={"MFU_INTERVAL": "0.1"})
                self.assertEqual(run.code, code)
                objects = self.assert_whole_lines(run)
                self.assertGreater(len([o for o in objects if o["type"] == "window"]), 3)
                self.assertFalse([o for o in objects if o["type"] == "end"])

    def test_crashes_are_the_host_s_own(self):
        for last, code in (("raise SEGV", -11), ("abort", -6), ('throw "out of luck"', -6)):
            if SANITIZE and code == -11:
                continue  # the sanitizer answers SIGSEGV with a report of its own
            with self.subTest(last):
                run = self.unharmed(LONG + last, env={"MFU_INTERVAL": "0.1"})
                self.assertEqual(run.code, code)
                self.assert_whole_lines(run)

    def test_killed_at_any_moment(self):
        for i in range(4 if SANITIZE else 10):
            directory = self.directory / f"kill{i}"
            directory.mkdir()
            env = self.environment(directory, ["cuda", "nvtx"], "cupti-13.0", None, {"MFU_INTERVAL": "0.02"})
            child = subprocess.Popen(
                [SCENARIO, "-c", LONG.replace("repeat 100", "repeat 100000")],
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=directory,
            )
            time.sleep(0.25 + 0.037 * i)
            child.kill()
            child.wait()
            for path in (directory / "run").glob("*"):
                data = path.read_bytes()
                self.assertTrue(data.endswith(b"\n") or not data, data[-100:])
                for line in data.splitlines():
                    json.loads(line)

    def test_exit_while_launches_are_in_flight(self):
        run = self.unharmed("""
            kernel gemm_k ns=100000
            launch gemm_k
            sync
            thread a { push "prefill tok=1"; repeat 100000 { launch gemm_k } }
            thread b { repeat 100000 { push "decode b=1"; launch gemm_k; pop } }
            sleep 300
            print leaves
            exit 5
        """)
        self.assertEqual((run.code, run.stdout), (5, b"leaves\n"))
        self.assertLess(run.seconds, patience(20))
        self.assert_whole_lines(run)

    def test_exit_right_after_the_last_launch(self):
        run = self.unharmed("""
            kernel gemm_k ns=1000000
            push "step batch=1 seq_len=8"
            launch gemm_k count=50
            pop
            exit 0
        """)
        self.assertEqual(run.code, 0)
        account = self.assert_sound(run)["launches"]
        self.assertEqual(account["seen"], 50)
        delivered = len([a for a in run.activities() if a["delivered"]])
        # What the last flush forced out while it ran has no time.
        self.assertEqual((account["attributed"] - account["not_timed"], account["dropped"]), (delivered, 0))

    def test_exit_while_a_kernel_never_ends(self):
        """A prefetcher or a collective that still runs: everything that has finished is accounted all the same."""
        flushes = ({}, {"SIMGPU_FLUSH_KEEPS_OPEN": "0"}, {"SIMGPU_PER_THREAD": "0"}, {"SIMGPU_FLUSH_ON_WORKER": "1"})
        # Beside a kernel that runs on, records come after time has gone past their launches, for which it waits 2 s.
        for env, pause in [*((env, 0) for env in flushes), ({}, 2600), ({}, 4100)]:
            with self.subTest(env=env, pause=pause):
                run = self.unharmed(f"""
                    kernel gemm_step ns=20000; kernel endless ns=600000000000
                    stream side
                    launch endless stream=side
                    repeat 299 {{ push "step batch=1 seq_len=8"; launch gemm_step count=10; pop }}
                    push "step batch=1 seq_len=8"; launch gemm_step count=10; sync default; sleep 20; pop
                    launch endless stream=side
                    sleep {pause}
                    print leaves
                    exit 4
                """, env=env)
                self.assertEqual((run.code, run.stdout), (4, b"leaves\n"))
                end = self.assert_sound(run)
                finished = [a for a in run.activities() if a["name"] == "gemm_step"]
                self.assert_region(run, "step", finished, instances=300)
                # The two that never ended are known, and have no time.
                self.assertEqual(
                    end["launches"],
                    {"seen": 3002, "attributed": 3000, "outside": 2, "unattributed": 0, "dropped": 0, "not_timed": 2},
                )
                self.assertEqual(end["counters"]["records_no_time"], 2)

    def test_exit_while_threads_go_on_launching(self):
        """The account ends where exit begins; the process is not held up, and its table is there."""
        script = """
            kernel gemm_step ns=5000; kernel gemm_load ns=3000
            stream a; stream b
            thread prefetch { repeat 100000000 { launch gemm_load stream=a } }
            thread daemon { repeat 100000000 { launch gemm_load stream=b; sleep 1 } }
            repeat 200 { push "step batch=1 seq_len=8"; launch gemm_step count=5; sync; sleep 1; pop }
            print leaves
            exit 4
        """
        for env in ({}, {"MFU_PROFILER": "share"}):
            with self.subTest(env):
                run = self.unharmed(script, env={**env, "SIMGPU_TRACE": None})
                self.assertEqual((run.code, run.stdout), (4, b"leaves\n"))
                end = self.assert_sound(run)
                self.assertEqual(run.region("step")["instances"], 200)
                self.assertGreater(run.region("step")["launches"], 1000)  # the others' belong to the open step
                self.assertTrue([line for line in run.log if line.startswith("total")], run.log)
                bare = self.scenario(script, code=4, entry="", env={"SIMGPU_TRACE": None})
                self.assertLess(run.seconds, bare.seconds + patience(1.5), end)

    def test_exit_while_cupti_hangs(self):
        for hang in ("cuptiActivityFlushAll", "cuptiActivityFlushAll:1@4"):
            with self.subTest(hang):
                script = 'kernel gemm_k ns=100000; repeat 20 { push "step batch=1 seq_len=8"; launch gemm_k count=9; sync; pop }'
                run = self.unharmed(script, env={"SIMGPU_HANG": hang})
                self.assert_sound(run)
                bare = self.scenario(script, entry="")
                # The library multiplies its deadlines at exit by ten under ThreadSanitizer (injection/threads/wakeup.h).
                self.assertLess(run.seconds, bare.seconds + patience(20 if SANITIZE == "thread" else 2))

    def test_exit_inside_a_range(self):
        run = self.unharmed("""
            kernel gemm_k ns=100000
            repeat 4 { push "step batch=1 seq_len=8"; launch gemm_k; sync; pop }
            push "step batch=1 seq_len=8"
            launch gemm_k
            sync
        """)
        self.assert_sound(run)
        self.assertEqual(run.region("step")["instances"], 4)
        self.assertEqual(run.end["counters"]["instances_unclosed"], 1)
        self.assertEqual(run.end["launches"]["attributed"], 5)

    def test_threads_that_leave_ranges_open(self):
        run = self.unharmed("""
            kernel gemm_k ns=100000
            repeat 20 { thread t { push "step batch=1 seq_len=8"; launch gemm_k; sync }; join }
            thread u { push "step batch=1 seq_len=8"; launch gemm_k; sync; LEAVE }
            join
            launch gemm_k
            sync
        """.replace("LEAVE", "" if UNWINDERS_DIFFER else "thread_exit"))
        self.assert_sound(run)
        self.assertEqual(
            run.end["launches"],
            {"seen": 22, "attributed": 21, "outside": 1, "unattributed": 0, "dropped": 0, "not_timed": 0},
        )

    @unittest.skipIf(UNWINDERS_DIFFER, "the program itself does not survive it there")
    def test_threads_that_are_cancelled_inside_the_library(self):
        """The thread ends after the call, which opens, reads and waits: each would be a place to end at, in noexcept ones."""
        calls = {
            "cuda": ("", "cuinit"),
            "nvtx": ("cuinit; launch gemm_k; sync", "push first; pop"),
            "cuda nvtx": ("cuinit", "launch gemm_k"),
            "cuda nvtx preload": ("cuinit", "push first; pop"),
        }
        for entry, (before, call) in calls.items():
            with self.subTest(entry):
                run = self.unharmed(
                    f"kernel gemm_k ns=50000; {before}; thread t {{ thread_cancel; {call}; sleep 900000 }}; join; "
                    "push first; launch gemm_k; sync; pop; print alive",
                    entry=entry,
                )
                self.assertEqual((run.code, run.stdout), (0, b"alive\n"))
                self.assert_sound(run)

    def test_many_threads(self):
        run = self.unharmed(
            "kernel gemm_k ns=2000\n"
            + "\n".join(f'thread t{i} {{ push "prefill tok=1"; launch gemm_k; pop }}' for i in range(100 if SANITIZE else 400))
            + "\njoin\nsync"
        )
        account = self.assert_sound(run)["launches"]
        self.assertEqual(account["seen"], account["attributed"])

    def test_dlclose(self):
        run = self.unharmed(f"""
            kernel gemm_k ns=50000
            dlopen us {LIBRARY}
            push "step batch=1 seq_len=8"; launch gemm_k; sync; pop
            dlclose us; dlclose us
            repeat 10 {{ push "step batch=1 seq_len=8"; launch gemm_k; sync; pop }}
            print still
        """)
        self.assertEqual((run.code, run.stdout), (0, b"still\n"))
        self.assert_sound(run)
        self.assertEqual(run.region("step")["kernels"], 11)

    def test_contexts_come_and_go(self):
        run = self.unharmed("""
            kernel gemm_k ns=50000
            repeat 5 { push "step batch=1 seq_len=8"; launch gemm_k count=2; sync; pop }
            context_reset
            kernel gemm_k ns=50000
            repeat 5 { push "step batch=1 seq_len=8"; launch gemm_k count=2; sync; pop }
            context_create
            kernel gemm_k2 ns=50000
            repeat 5 { push "step batch=1 seq_len=8"; launch gemm_k2 count=2; sync; pop }
            context_destroy
        """)
        self.assert_sound(run)
        self.assertEqual(run.region("step")["kernels"], 30)

    def test_closed_stdout_and_stderr(self):
        def closed(fds):
            def close():
                for fd in fds:
                    os.close(fd)
            return close
        for fds in ((1,), (2,), (1, 2), (0, 1, 2)):
            with self.subTest(fds):
                run = self.program([SCENARIO, "-c", LONG.replace("repeat 100", "repeat 10") + "exit 6"], preexec_fn=closed(fds))
                self.assertEqual(run.code, 6)
                self.assert_sound(run)

    def test_descriptors_closed_by_the_host(self):
        run = self.unharmed(LONG.replace("repeat 100", "close_fds\nrepeat 30") + "close_fds", env={"MFU_INTERVAL": "0.1"})
        self.assertEqual(run.code, 0)
        self.assert_sound(run)

    def test_stderr_is_a_pipe_nobody_reads_any_more(self):
        read, write = os.pipe()
        os.close(read)
        try:
            run = self.program([SCENARIO, "-c", LONG.replace("repeat 100", "repeat 30") + "print alive; exit 6"], stderr=write,
                               env={"MFU_INTERVAL": "0.1"})
        finally:
            os.close(write)
        self.assertEqual((run.code, run.stdout), (6, b"begins\nalive\n"))
        self.assert_sound(run)

    def test_stderr_is_a_full_pipe(self):
        """Nobody reads, and the pipe is full: our threads wait, the host does not, and it ends when it wants to."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        try:
            while True:
                os.write(write, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(write, True)
        try:
            run = self.program([SCENARIO, "-c", LONG.replace("repeat 100", "repeat 30") + "print alive; exit 6"], stderr=write,
                               env={"MFU_INTERVAL": "0.1"})
        finally:
            os.close(write)
            os.close(read)
        self.assertEqual((run.code, run.stdout), (6, b"begins\nalive\n"))
        self.assertLess(run.seconds, patience(80 if "thread" in SANITIZE else 10))  # the library is patient where all is slow


class RunDirectory(TestCase):
    SHORT = LONG.replace("repeat 100", "repeat 60") + "print finished\nexit 2"

    def assert_said(self, run, *words):
        self.assertEqual((run.code, run.stdout), (2, b"begins\nfinished\n"))
        self.assert_one_line(run, "the program runs on", *words)
        self.assertTrue(any("launches 240 = attributed 240" in line for line in run.log), run.log)

    def test_a_path_that_cannot_be_made(self):
        blocked = self.directory / "file"
        blocked.write_text("in the way")
        for path in (blocked / "run", "/proc/nothing"):
            with self.subTest(path):
                run = self.unharmed(self.SHORT, env={"MFU_RUN_DIR": path, "MFU_INTERVAL": "0.1"})
                self.assert_said(run, str(path))

    @unittest.skipIf(
        os.geteuid() == 0 and shutil.which("setpriv") is None, "root may write anywhere, and setpriv is not installed"
    )
    def test_a_directory_without_write_permission(self):
        locked = self.directory / "locked"
        locked.mkdir(mode=0o555)
        os.chmod(self.directory, 0o755)
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", SCENARIO, "-c", self.SHORT]
            if subprocess.run(command[:6] + [SCENARIO, "-c", "print x"], capture_output=True).stdout != b"x\n":
                self.skipTest("the build directory cannot be read by another user")
        else:
            command = [SCENARIO, "-c", self.SHORT]
        run = self.program(command, env={"MFU_RUN_DIR": locked, "MFU_INTERVAL": "0.1", "SIMGPU_TRACE": None})
        self.assert_said(run, str(locked))

    def test_a_disk_that_is_full(self):
        """A file size limit stands in for it: writes beyond it are cut off or fail."""
        import resource

        def limit():
            import signal
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

        run = self.program([SCENARIO, "-c", self.SHORT], env={"MFU_INTERVAL": "0.05", "SIMGPU_TRACE": None}, preexec_fn=limit)
        self.assertEqual((run.code, run.stdout), (2, b"begins\nfinished\n"))
        self.assertEqual(len(run.files), 1)
        objects = run.objects(next(iter(run.files)))  # no half line stays
        self.assertEqual(objects[0]["type"], "start")

    def test_a_file_size_limit_does_not_kill_the_host(self):
        """SIGXFSZ is the host's to get for its own files, not for ours."""
        import resource

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

        run = self.program([SCENARIO, "-c", self.SHORT], env={"MFU_INTERVAL": "0.05", "SIMGPU_TRACE": None}, preexec_fn=limit)
        self.assertEqual((run.code, run.stdout), (2, b"begins\nfinished\n"))

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount a small file system")
    def test_a_small_file_system(self):
        mount = self.directory / "small"
        mount.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", mount], capture_output=True).returncode != 0:
            self.skipTest("mounting is not permitted here")
        try:
            run = self.unharmed(self.SHORT, env={"MFU_RUN_DIR": mount / "run", "MFU_INTERVAL": "0.05"})
            self.assert_said(run, "o space left")
            for path in (mount / "run").glob("*.jsonl"):
                data = path.read_bytes()
                self.assertTrue(data.endswith(b"\n"), data[-200:])
                for line in data.splitlines():
                    json.loads(line)
        finally:
            subprocess.run(["umount", mount], check=False)

    def test_removed_while_running(self):
        removed = threading.Event()

        def remover(directory, _environment):
            def loop():
                path = directory / "run"
                until = time.monotonic() + DEADLINE_S
                while time.monotonic() < until and not list(path.glob("*.jsonl")):
                    time.sleep(0.005)
                time.sleep(0.2)
                shutil.rmtree(path, ignore_errors=True)
                removed.set()
            threading.Thread(target=loop, daemon=True).start()

        run = self.scenario(LONG + "print finished\nexit 2", env={"MFU_INTERVAL": "0.1"}, code=2, before=remover)
        self.assertTrue(removed.wait(DEADLINE_S))
        self.assertEqual(run.stdout, b"begins\nfinished\n")
        objects = run.lines()
        self.assertEqual((objects[0]["type"], objects[-1]["type"]), ("start", "end"))
        self.assertGreater(len(objects), 5)

    def test_two_ranks_in_one_directory(self):
        shared = self.directory / "shared"
        for rank in (0, 1):
            self.scenario(self.SHORT, env={"MFU_RUN_DIR": shared, "RANK": rank, "WORLD_SIZE": 2}, code=2)
        names = sorted(p.name for p in shared.glob("*.jsonl"))
        self.assertEqual(len(names), 2)


if __name__ == "__main__":
    main()
