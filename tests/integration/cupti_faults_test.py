"""CUPTI that is missing, too old, taken, incomplete, slow, or refuses: the host runs as without the library, which says one
line with effect and remedy and does what is left to do. And records that are lost, cut off or wrong."""

import pathlib
import shutil
import sys

from harness import BUILD, REAL_CUPTI, SANITIZE, SCENARIO, TestCase, main, ns, patience

SCRIPT = """
kernel gemm_step ns=200000; kernel relu_step ns=50000
launch relu_step
sync
repeat 20 {
  push "step batch=1 seq_len=64"
  launch gemm_step count=5
  launch relu_step count=3
  memcpy htod 1000
  sync
  pop
}
print finished
exit 3
"""


class NoCupti(TestCase):
    """The ladder downwards: what is left are the ranges' own times, or nothing."""

    def assert_ranges_only(self, run, *words):
        self.assertEqual((run.code, run.stdout), (3, b"finished\n"))
        line = self.assert_one_line(run, "measuring the ranges' times only", *words)
        self.assert_sound(run)
        self.assertEqual(run.lines("start")[0]["cupti"]["level"], "ranges")
        step = run.region("step", device=run.end["regions"][0]["device"])
        self.assertEqual(step["instances"], 20)
        self.assertGreaterEqual(step["elapsed_s"], 20 * 1.15e-3)
        self.assertIsNone(step["busy_s"])
        self.assertIsNone(step["time_s"]["matmul"])
        return line

    def assert_inert(self, run, *words):
        self.assertEqual((run.code, run.stdout), (3, b"finished\n"))
        self.assert_one_line(run, *words)
        self.assertEqual(len([line for line in run.log if "MFU=" in line or "launches" in line]), 0, run.log)

    def test_missing(self):
        run = self.unharmed(SCRIPT, cupti=None)
        if REAL_CUPTI:
            self.assert_inert(run, "no driver", "/usr/local/cuda")
        else:
            self.assert_ranges_only(run, "libcupti", "MFU_CUPTI")

    def test_named_path_is_not_there(self):
        run = self.unharmed(SCRIPT, env={"MFU_CUPTI": "/nowhere/libcupti.so"})
        self.assert_ranges_only(run, "/nowhere/libcupti.so")

    def test_named_path_is_no_library(self):
        run = self.unharmed(SCRIPT, env={"MFU_CUPTI": str(BUILD / "CMakeCache.txt")})
        self.assert_ranges_only(run, "MFU_CUPTI")

    def test_named_path_is_used(self):
        path = BUILD / "simgpu/cupti-12.4/libcupti.so.12"
        run = self.unharmed(SCRIPT, env={"MFU_CUPTI": path})
        self.assert_sound(run)
        self.assertEqual(run.lines("start")[0]["cupti"]["path"], str(path))

    def test_too_old(self):
        run = self.unharmed(SCRIPT, env={"SIMGPU_CUPTI_VERSION": "12", "MFU_CUPTI": BUILD / "simgpu/cupti-13.0/libcupti.so.13"})
        self.assert_ranges_only(run, "expected 11.1 or newer")

    def test_a_function_is_missing(self):
        for folder, function in (("cupti-13.0-no-subscribe", "cuptiSubscribe"), ("cupti-13.0-no-flush", "cuptiActivityFlushAll"),
                                 ("cupti-13.0-no-next-record", "cuptiActivityGetNextRecord")):
            with self.subTest(folder):
                path = BUILD / "simgpu" / folder / "libcupti.so.13"
                self.assert_ranges_only(self.unharmed(SCRIPT, env={"MFU_CUPTI": path}), function)

    def test_subscriber_taken(self):
        run = self.unharmed(SCRIPT, env={"SIMGPU_FAIL": "cuptiSubscribe:39"})
        self.assert_ranges_only(run, "another tool holds CUPTI")
        run = self.unharmed(SCRIPT, env={"SIMGPU_FOREIGN": "first:0:-1"})
        self.assert_ranges_only(run, "another tool holds CUPTI")

    def test_no_usable_driver(self):
        for code in (15, 999):
            self.assert_inert(self.unharmed(SCRIPT, env={"SIMGPU_FAIL": f"*:{code}"}), "no driver")

    def test_newer_than_the_driver(self):
        """13.2 dies in any call when it cannot initialise, so it is not called; 13.3 answers 999 even to cuptiGetVersion."""
        for folder, driver, words in (("cupti-13.2", 12080, "is CUPTI 13.2, which overflows the stack"),
                                      ("cupti-13.2", 13000, "is CUPTI 13.2, which overflows the stack"),
                                      ("cupti-13.3", 12080, "is CUPTI for CUDA 13, and the driver is for CUDA 12.8"),
                                      ("cupti-13.0", 12080, "is CUPTI for CUDA 13, and the driver is for CUDA 12.8")):
            with self.subTest(folder=folder, driver=driver):
                path = BUILD / "simgpu" / folder / "libcupti.so.13"
                run = self.unharmed(SCRIPT, env={"SIMGPU_DRIVER_VERSION": driver, "MFU_CUPTI": path})
                self.assert_inert(run, "no driver", words)
        # A sanitizer keeps the signal of an overflow for itself.
        loads = () if SANITIZE else ("", f'dlopen cupti "{BUILD}/simgpu/cupti-13.2/libcupti.so.13"\n')
        for load in loads:  # found by us, loaded by the program
            run = self.unharmed(load + SCRIPT, cupti="cupti-13.2", env={"SIMGPU_DRIVER_VERSION": 13020, "SIMGPU_UNFIT": 1})
            self.assert_one_line(run, "CUPTI finds no driver that it can use", "overflowed its stack")
        run = self.unharmed(SCRIPT, cupti="cupti-13.2", env={"SIMGPU_DRIVER_VERSION": 13020})
        self.assert_sound(run)
        self.assertEqual(run.region("step")["kernels"], 160)
        self.assert_one_line(run, "CUPTI 13.2 overflows the stack", "use a newer one")
        # The file's name says nothing, and the call does.
        link = self.directory / "libcupti.so"
        link.symlink_to(BUILD / "simgpu/cupti-13.3/libcupti.so.13")
        run = self.unharmed(SCRIPT, env={"SIMGPU_DRIVER_VERSION": 12080, "MFU_CUPTI": link})
        self.assert_inert(run, "no driver", "cuptiGetVersion failed with error 999 (the driver is for CUDA 12.8)")

    def test_multi_process_service(self):
        env = {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}
        run = self.unharmed(SCRIPT, cupti="cupti-12.9", env=env)
        self.assert_ranges_only(run, "MPS is in use")
        for more in ({"MFU_PROFILER": "own"}, {"CUDA_MPS_PIPE_DIRECTORY": ""}):
            run = self.unharmed(SCRIPT, cupti="cupti-12.9", env={**env, **more})
            self.assertEqual(run.region("step")["kernels"], 160)
        self.assertEqual(self.unharmed(SCRIPT, env=env).region("step")["kernels"], 160)

    def test_other_tools_by_their_files(self):
        for name, tool in (("libToolsInjection64.so", "Nsight Systems"), ("libInterceptorInjectionTarget.so", "Nsight Compute")):
            library = self.directory / name
            shutil.copy(BUILD / "clients/libclock_step.so", library)
            run = self.unharmed(SCRIPT, env={"LD_PRELOAD": library})
            self.assert_inert(run, tool, "stepping aside for good")
        library = self.directory / "libcudadebugger.so.1"  # the driver loads it for core dumps
        shutil.copy(BUILD / "clients/libclock_step.so", library)
        self.assertEqual(self.unharmed(SCRIPT, env={"LD_PRELOAD": library}).region("step")["kernels"], 160)
        tracer = [sys.executable, pathlib.Path(__file__).with_name("tracer.py")]
        for name, steps_aside in (("some-debugger", False), ("cuda-gdb", True)):
            with self.subTest(name):
                run = self.program([*tracer, name, SCENARIO, "-"], stdin=SCRIPT.encode(), env={"LD_PRELOAD": library})
                if run.code == 77:
                    self.skipTest("this system lets nobody trace a child")
                self.assertEqual(run.code, 3, run.stderr)
                if steps_aside:
                    self.assert_inert(run, "cuda-gdb", "stepping aside for good")
                else:
                    self.assertEqual(run.region("step")["kernels"], 160)

    def test_forbidden(self):
        for code in (35, 40, 41):
            with self.subTest(code):
                run = self.unharmed(SCRIPT, env={"SIMGPU_FAIL": f"cuptiSubscribe:{code}"})
                self.assert_inert(run, "CUPTI may not be used here")

    def test_kernel_records_refused(self):
        run = self.unharmed(SCRIPT, env={"SIMGPU_REFUSE_KINDS": "10"})
        self.assert_ranges_only(run, "kernel records were refused")
        for code in (1, 14):
            run = self.unharmed(SCRIPT, env={"SIMGPU_REFUSE_KINDS": "10", "SIMGPU_REFUSE_KINDS_RESULT": code})
            self.assert_ranges_only(run, "kernel records were refused")

    def test_copy_records_refused(self):
        run = self.unharmed(SCRIPT, env={"SIMGPU_REFUSE_KINDS": "1,2,22"})
        self.assert_sound(run)
        step = run.region("step")
        self.assertEqual(step["kernels"], 160)
        self.assertEqual(ns(step["time_s"]["memcpy"]), 0)

    def test_callbacks_of_buffers_refused(self):
        run = self.unharmed(SCRIPT, env={"SIMGPU_FAIL": "cuptiActivityRegisterCallbacks:2"})
        self.assert_ranges_only(run, "cuptiActivityRegisterCallbacks")

    def test_optional_functions_fail(self):
        run = self.unharmed(SCRIPT, env={"SIMGPU_FAIL": "cuptiActivitySetAttribute:1,cuptiSetThreadIdType:1,cuptiGetContextId:1,"
                                                        "cuptiGetDeviceId:1,cuptiActivityGetNumDroppedRecords:1"})
        self.assert_sound(run)
        self.assertEqual(run.region("step")["kernels"], 160)

    def test_launch_callbacks_refused(self):
        """No launch is seen, so none can be attributed: the kernels are there, counted as unattributed."""
        run = self.unharmed(SCRIPT, env={"SIMGPU_FAIL": "cuptiEnableCallback:1"})
        self.assertEqual((run.code, run.stdout), (3, b"finished\n"))
        self.assert_sound(run)
        account = run.end["launches"]
        self.assertEqual(account["attributed"], 0)
        self.assertEqual(run.region("total")["kernels"], 161)

    def test_flush_fails(self):
        run = self.unharmed(SCRIPT, env={"SIMGPU_FAIL": "cuptiActivityFlushAll:999"})
        self.assertEqual((run.code, run.stdout), (3, b"finished\n"))
        account = self.assert_sound(run)["launches"]
        # A buffer that is full comes by itself; the last one, of at most 150 kernel records, does not.
        self.assertTrue(0 < account["dropped"] <= 150, account)
        self.assertEqual(account["seen"], 181)

    def test_flush_fails_later(self):
        run = self.unharmed(SCRIPT.replace("repeat 20", "repeat 200"), env={"SIMGPU_FAIL": "cuptiActivityFlushAll:999@2",
                                                                            "MFU_INTERVAL": "0.1"})
        account = self.assert_sound(run)["launches"]
        self.assertGreater(account["dropped"], 0)
        self.assertEqual(account["seen"], 200 * 9 + 1)

    def test_flush_blocks(self):
        for hang in ("cuptiActivityFlushAll", "cuptiActivityFlushAll:1@2"):
            with self.subTest(hang):
                run = self.unharmed(SCRIPT, env={"SIMGPU_HANG": hang, "MFU_INTERVAL": "0.1"})
                self.assertEqual((run.code, run.stdout), (3, b"finished\n"))
                self.assertLess(run.seconds, patience(40 if SANITIZE else 6))
                self.assert_sound(run)
                self.assertGreaterEqual(run.end["counters"]["flush_stuck"], 1)

    def test_flush_is_slow(self):
        run = self.unharmed(SCRIPT, env={"SIMGPU_DELAY_MS": "cuptiActivityFlushAll:150", "MFU_INTERVAL": "0.2"})
        self.assert_sound(run)
        self.assertEqual(run.end["launches"]["attributed"], 180)
        self.assertEqual(run.region("step")["kernels"], 160)

    def test_fatal_error_while_running(self):
        """Every function answers with an error from some call on."""
        run = self.unharmed(SCRIPT, env={"SIMGPU_FAIL": "cuptiActivityGetNextRecord:999@40", "MFU_INTERVAL": "0.1"})
        self.assert_sound(run)
        account = run.end["launches"]
        self.assertGreater(account["dropped"], 0)

    def test_launches_that_fail(self):
        run = self.unharmed("ignore_errors\n" + SCRIPT, env={"SIMGPU_FAIL_LAUNCH_RATE": "0.3"})
        self.assert_sound(run)
        self.assertEqual(run.end["launches"]["seen"], len(run.launches()))
        self.assertEqual(run.end["launches"]["dropped"], 0)
        self.assertEqual(run.end["counters"]["launches_failed"], 181 - len(run.launches()))
        self.assert_region(run, "step", [a for a in run.activities()][1:], instances=20)


class WrongRecords(TestCase):
    """What is known is exact; what is not known is counted, under a name that says what happened to it."""

    def steps(self, env, count=40, **options):
        run = self.unharmed(SCRIPT.replace("repeat 20", f"repeat {count}"), env={"MFU_INTERVAL": "0.2", **env}, **options)
        self.assertEqual((run.code, run.stdout), (3, b"finished\n"))
        self.assert_sound(run)
        self.assertEqual(run.end["launches"]["seen"], len(run.launches()))
        return run

    def fates(self, run, *fates, kind=None):
        return [a for a in run.activities() if a["fate"] in fates and (kind is None or a["kind"] == kind)]

    def test_dropped(self):
        for env in ({"SIMGPU_DROP_RATE": "0.2"}, {"SIMGPU_DROP_BURST": "50:20"}):
            with self.subTest(env):
                run = self.steps(env)
                lost = self.fates(run, "dropped")
                self.assertGreater(len(lost), 20)
                self.assertEqual(run.end["launches"]["dropped"], len(lost))
                self.assertEqual(run.end["counters"]["records_dropped"], len(lost))
                self.assert_one_line(run, "dropped records", "lower bounds")
                self.assertEqual(run.region("total")["kernels"], len(self.fates(run, "delivered", kind="kernel")))

    def test_truncated(self):
        run = self.steps({"SIMGPU_TRUNCATE_RATE": "0.5", "MFU_INTERVAL": "0.05"})
        lost = self.fates(run, "truncated")
        self.assertGreater(len(lost), 0)
        self.assertEqual(run.end["launches"]["dropped"], len(lost))
        self.assertEqual(run.end["counters"]["records_truncated"], len(lost))
        self.assertEqual(run.region("total")["kernels"], len(self.fates(run, "delivered", kind="kernel")))

    def assert_not_timed(self, run, launches):
        """What is not timed is not reported."""
        total = run.region("total")
        self.assertEqual(total["untimed"], len(launches))
        for key in ("busy_s", "kernel_sum_s", "mfu_busy"):
            self.assertIsNone(total[key], key)
        self.assertEqual(set(total["time_s"].values()), {None})

    def test_zero_times(self):
        run = self.steps({"SIMGPU_ZERO_TIMESTAMPS": "0.1"})
        zero = self.fates(run, "zeroed")
        self.assertGreater(len(zero), 10)
        self.assertEqual(run.end["counters"]["records_no_time"], len(zero))
        self.assertEqual(run.end["launches"]["dropped"], 0)  # the record came; its time did not
        self.assert_not_timed(run, {a["correlation"] for a in zero})

    def test_all_times_zero(self):
        run = self.steps({"SIMGPU_ZERO_TIMESTAMPS": "1"})
        self.assertEqual(run.end["counters"]["records_no_time"], len(run.activities()))

    def test_negative_times(self):
        run = self.steps({"SIMGPU_NEGATIVE_TIMESTAMPS": "0.1"})
        bad = self.fates(run, "negative")
        self.assertGreater(len(bad), 10)
        self.assertEqual(run.end["counters"]["records_bad_time"], len(bad))
        self.assert_not_timed(run, {a["correlation"] for a in bad})

    def test_bad_times_are_said(self):
        run = self.steps({"SIMGPU_ZERO_TIMESTAMPS": "0.2"})
        self.assert_one_line(run, "no usable time")

    def test_unknown_kinds(self):
        run = self.steps({"SIMGPU_UNKNOWN_KINDS": "0.5"})
        self.assertGreater(run.end["counters"]["records_unknown_kind"], 50)
        self.assert_region(run, "step", [a for a in run.activities()][1:], instances=40)

    def test_names_null(self):
        run = self.steps({"SIMGPU_NULL_NAMES": "1"})
        self.assertEqual(run.region("step")["kernels"], 40 * 8)
        self.assertEqual(run.end["launches"]["dropped"], 0)
        for kernel in run.region("step")["top_kernels"]:
            self.assertIsInstance(kernel["name"], str)

    def test_names_of_8_kb(self):
        run = self.steps({"SIMGPU_LONG_NAMES": 8192})
        step = run.region("step")
        self.assertEqual(step["kernels"], 40 * 8)
        self.assertTrue(step["top_kernels"][0]["name"].startswith("gemm_step"), step["top_kernels"])
        self.assertGreater(step["time_s"]["matmul"], 0)
        for line in run.log:
            self.assertLess(len(line), 400)

    def test_names_that_go_stale_and_buffers_that_are_overwritten(self):
        run = self.steps({"SIMGPU_STALE_NAMES": 1, "SIMGPU_POISON_BUFFERS": 1, "SIMGPU_LONG_NAMES": 300})
        self.assert_sound(run)
        self.assertEqual(run.region("step")["kernels"], 40 * 8)

    def test_everything_at_once(self):
        env = {
            "SIMGPU_DROP_RATE": "0.05",
            "SIMGPU_TRUNCATE_RATE": "0.2",
            "SIMGPU_ZERO_TIMESTAMPS": "0.05",
            "SIMGPU_UNKNOWN_KINDS": "0.2",
            "SIMGPU_NEGATIVE_TIMESTAMPS": "0.05",
            "SIMGPU_NULL_NAMES": "0.1",
            "SIMGPU_LONG_NAMES": 9000,
            "SIMGPU_SHUFFLE": 1,
            "SIMGPU_WORKER_DELAY_MS": 50,
            "SIMGPU_STALE_NAMES": 1,
            "SIMGPU_POISON_BUFFERS": 1,
        }
        for folder in ("cupti-11.8", "cupti-12.9", "cupti-13.3"):
            with self.subTest(folder):
                run = self.steps(env, cupti=folder)
                lost = self.fates(run, "dropped", "truncated")
                self.assertEqual(run.end["launches"]["dropped"], len(lost))

    def test_records_from_another_time(self):
        """CUPTI's clock leaves ours: the records are counted as having no usable time, and nothing is made of them."""
        for jump in (3600, -3600, 86400 * 365):
            with self.subTest(jump):
                # No synchronisation: a clock that went back makes the simulated GPU finish an hour later.
                run = self.unharmed(SCRIPT.replace("sync", "sleep 4").replace("repeat 20", "repeat 200"), env={
                    "MFU_INTERVAL": "0.1", "SIMGPU_CLOCK_JUMP_S": jump, "SIMGPU_CLOCK_JUMP_AFTER_S": "0.4",
                    "SIMGPU_QUEUE_DEPTH": 0})
                self.assertEqual((run.code, run.stdout), (3, b"finished\n"))
                end = self.assert_sound(run)
                self.assertLess(end["t1_ns"] - end["t0_ns"], 60e9, end)
                self.assertLess(len(run.lines()), 200)
                if jump > 0:
                    self.assertGreater(end["counters"]["records_bad_time"], 10)

    def test_the_timestamp_bug(self):
        run = self.steps({"SIMGPU_TIMESTAMP_BUG": 1}, cupti="cupti-12.9")
        self.assertNotIn("records_no_time", run.end["counters"])


if __name__ == "__main__":
    main()
