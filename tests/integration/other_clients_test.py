"""Other users of CUPTI in the same process keep what they take: the library steps aside, says so once, and the host's output,
exit code and the other client stay whole. So do changes of the system clock."""

import re

from harness import BUILD, SANITIZE, TestCase, main, ns, unittest

BUSY = """
kernel gemm_step ns=100000
print begins
repeat 120 { push "step batch=1 seq_len=32"; launch gemm_step count=4; sync; sleep 8; pop }
print ends
"""


class OtherClients(TestCase):
    def test_old_kineto_while_we_hold_the_slot(self):
        """It is refused, and does without for the rest of the process: our records are complete."""
        run = self.unharmed(BUSY, env={"SIMGPU_FOREIGN": "old_kineto:200:600"})
        self.assert_sound(run)
        self.assertEqual(run.region("step")["kernels"], 480)
        self.assertEqual(run.end["launches"]["dropped"], 0)

    MONITORED = """
        kernel gemm_step ns=100000
        cuinit
        foreign monitor start
        repeat 120 { push "step batch=1 seq_len=32"; launch gemm_step count=4; sync; sleep 4; pop }
        foreign monitor stop
        print ends
    """

    def test_a_subscriber_that_allows_others_beside_one_of_ours(self):
        """Each has all records, with buffers of its own; the monitor says on stderr what it got."""
        run = self.scenario(self.MONITORED, cupti="cupti-13.3", env={"MFU_CUPTI_V2": "1", "SIMGPU_DRIVER_VERSION": "13030"})
        self.assertEqual((run.stdout, run.foreign_log), (b"ends\n", ["[monitor] 480 kernels"]))
        account = self.assert_sound(run)["launches"]
        self.assertEqual((account["seen"], account["attributed"], account["dropped"]), (480, 480, 0))
        self.assert_region(run, "step", run.activities(), instances=120)
        self.assertEqual([line for line in run.log if "profiler" in line or "subscriber" in line], [])

    def test_it_is_refused_where_we_are_the_only_one(self):
        for cupti, v2 in (("cupti-13.3", "0"), ("cupti-13.0", "1")):
            with self.subTest(cupti=cupti, v2=v2):
                run = self.scenario(self.MONITORED, cupti=cupti, env={"MFU_CUPTI_V2": v2, "SIMGPU_DRIVER_VERSION": "13030"})
                self.assertEqual(run.foreign_log, ["[monitor] refused with error 39"])
                self.assertEqual(self.assert_sound(run)["launches"]["attributed"], 480)
                self.assertEqual(len([line for line in run.log if "MFU_CUPTI_V2=1" in line]), int(v2), run.log)

    def test_kineto_has_nothing_beside_subscribers_with_forms_of_their_own(self):
        """Why this is not the default: calls that name no subscriber are refused from then on."""
        run = self.scenario(BUSY, cupti="cupti-13.3", env={"MFU_CUPTI_V2": "1", "SIMGPU_DRIVER_VERSION": "13030",
                                                           "SIMGPU_FOREIGN": "new_kineto:200:600"})
        self.assertEqual(self.assert_sound(run)["launches"]["attributed"], 480)
        self.assertEqual(run.activities(fate="foreign"), [])

    def test_the_slot_is_taken_before_us(self):
        run = self.unharmed(BUSY, env={"SIMGPU_FOREIGN": "first:0:400"})
        self.assert_one_line(run, "another tool holds CUPTI", "keeps it")
        self.assert_sound(run)

    def test_a_client_that_takes_the_buffers(self):
        for kind in ("new_kineto", "resiliency", "freer"):
            with self.subTest(kind):
                run = self.unharmed(BUSY, env={"SIMGPU_FOREIGN": f"{kind}:300:700", "MFU_INTERVAL": "0.2"})
                self.assertEqual((run.code, run.stdout), (0, b"begins\nends\n"))
                account = self.assert_sound(run)["launches"]
                self.assertEqual(account["seen"], 480)
                # Records that went to the other client are not ours to have: never more than were delivered to us.
                ours = len([a for a in run.activities() if a["delivered"]])
                self.assertLessEqual(account["attributed"], ours)
                self.assertLessEqual(run.region("total")["kernels"], ours)

    def test_we_come_back_as_soon_as_it_has_finished(self):
        """torch.profiler, three sessions: CUPTI's attributes say when each has ended. What was launched in them is not
        measured, and what comes after is."""
        steps = 'repeat {} {{ push "step batch=1 seq_len=32"; launch gemm_step count=4; sync; sleep {}; pop }}\n'
        session = "foreign new_kineto start\n" + steps.format(60, 5) + "foreign new_kineto stop\n" + steps.format(150, 10)
        script = "kernel gemm_step ns=100000\ncuinit\n" + steps.format(60, 5) + 3 * session + "print ends"
        for env in ({}, {"MFU_PROFILER": "share"}):
            with self.subTest(env):
                run = self.unharmed(script, env={"MFU_INTERVAL": "0.2", **env})
                self.assertEqual(run.stdout, b"ends\n")
                end = self.assert_sound(run)
                self.assertEqual(len([line for line in run.log if "another profiler had" in line]), 3, run.log)
                self.assertFalse([line for line in run.log if "stepping aside" in line], run.log)
                account = end["launches"]
                # In each session 240 launches; and those whose record was in a buffer of ours that went to the other,
                # or that were made before the end of the session was seen: a tick or two.
                delivered = len({a["correlation"] for a in run.activities() if a["fate"] == "delivered"})
                self.assertLessEqual(account["attributed"], delivered)
                self.assertGreater(account["attributed"], 240 + 3 * 600 - 3 * 240)
                if not env:
                    self.assertEqual(account["seen"], 240 + 3 * 840)
                    # One that was made in the moment of coming back may have its record after all.
                    forgotten = end["counters"]["launches_elsewhere"]
                    self.assertLessEqual(account["dropped"], forgotten + end["counters"].get("launches_expired", 0))
                    self.assertLessEqual(forgotten, account["dropped"] + 3 * 8)
                windows = [w for w in run.lines("window") if w["region"] == "total"]
                lag = max(w["t_ns"] - w["t1_ns"] for w in windows)
                self.assertLess(lag / 1e9, max(4, 0.3 * run.seconds), "windows wait for records that others have")
                measured = [w for w in windows if w["time_s"]["matmul"] is not None]
                self.assertGreater(sum(w["kernels"] for w in measured), 0)
                self.assertGreater(windows[-1]["t1_ns"] - measured[-2]["t0_ns"], 0)

    @unittest.skipIf(SANITIZE, "takes a minute, nearly all of it asleep")
    def test_we_come_back_when_it_is_gone(self):
        """Before CUPTI 13.0 nothing says when its session has ended: after 30 s without a sign of it. It leaves the kinds
        switched off and CUPTI's clock in ticks: we register again, and read the ticks."""
        run = self.scenario("""
            kernel gemm_step ns=1000000
            repeat 750 { push "step batch=1 seq_len=32"; launch gemm_step count=4; sync; sleep 60; pop }
            print ends
        """, cupti="cupti-12.9", env={"SIMGPU_FOREIGN": "new_kineto:1000:2000", "MFU_INTERVAL": "2"})
        self.assertEqual(run.stdout, b"ends\n")
        self.assert_one_line(run, "stepping aside until it is done")
        self.assert_one_line(run, "records come to us again")
        self.assert_sound(run)
        last = [w for w in run.lines("window") if w["region"] == "step"][-2]
        self.assertGreater(last["kernels"], 20, last)
        self.assertLess(abs(ns(last["kernel_sum_s"]) / last["kernels"] - 1e6), 1e4, last)
        self.assertNotIn("records_late", run.end["counters"])
        away = [w for w in run.lines("window") if w["region"] == "step" and w["time_s"]["matmul"] is None]
        self.assertGreater(len(away), 5)
        for window in away:
            self.assertIsNone(window["mfu"])
        # Nothing waits for records that others have, once it is known: three samples of one launch in 256 take 12 s here.
        self.assertLess(max(w["t_ns"] - w["t1_ns"] for w in run.lines("window")) / 1e9, 30)

    def test_several_at_once(self):
        run = self.unharmed(BUSY, env={"SIMGPU_FOREIGN": "old_kineto:100:400,new_kineto:200:500,resiliency:600:900"})
        self.assertEqual((run.code, run.stdout), (0, b"begins\nends\n"))
        self.assert_sound(run)

    def test_a_client_on_the_host_s_own_thread(self):
        script = """
            kernel gemm_step ns=100000
            cuinit
            repeat 40 { push "step batch=1 seq_len=32"; launch gemm_step count=4; sync; sleep 5; pop }
            foreign new_kineto start
            repeat 20 { push "step batch=1 seq_len=32"; launch gemm_step count=4; sync; sleep 5; pop }
            foreign new_kineto stop
            repeat 20 { push "step batch=1 seq_len=32"; launch gemm_step count=4; sync; sleep 5; pop }
            print ends
        """
        run = self.scenario(script, env={"MFU_INTERVAL": "0.1"})
        self.assertEqual(run.stdout, b"ends\n")
        self.assert_sound(run)
        self.assertEqual(run.end["launches"]["seen"], 320)

    def test_sharing_leaves_the_slot_to_the_other(self):
        run = self.unharmed(BUSY, env={"SIMGPU_FOREIGN": "first:0:-1", "MFU_PROFILER": "share"})
        self.assert_sound(run)
        self.assertEqual(run.lines("start")[0]["cupti"]["level"], "share")
        self.assertEqual(run.region("total")["kernels"], 480)


class LinkedProfiler(TestCase):
    """A program that traces itself now and then, through functions that it was linked against, as PyTorch does."""

    SESSIONS, LAUNCHES = 4, 1000

    def traced(self, linked, env, launches=LAUNCHES, between_ms=1500):
        command = [BUILD / f"clients/profiler_client_{linked}", self.SESSIONS, launches, between_ms]
        return self.program([str(word) for word in command], env={"MFU_INTERVAL": "0.5", **env})

    def whole_sessions(self, launches):
        whole = f"{launches} of {launches} kernels, 0 unknown buffers"
        return "".join(f"session {i}: {whole}\n" for i in range(self.SESSIONS)) + "done\n"

    def test_its_rows_are_its_own(self):
        """Buffers that CUPTI has of ours when it registers are asked for first: CUPTI would fill them on, and give them to it."""
        got = self.whole_sessions(self.LAUNCHES)
        for linked in ("lazy", "now"):
            for env in ({}, {"MFU_PROFILER": "share"}):
                with self.subTest(linked=linked, env=env):
                    run = self.traced(linked, env)
                    self.assertEqual((run.code, run.stdout.decode()), (0, got), run.stderr)
                    end = self.assert_sound(run)
                    # What it launched between its sessions is ours: all but what came before the end of each was seen.
                    own, between = self.SESSIONS * self.LAUNCHES, (self.SESSIONS + 1) * self.LAUNCHES
                    self.assertGreater(end["launches"]["outside"], between / 2)
                    self.assertLessEqual(end["launches"]["outside"], between + 8)
                    if not env:
                        self.assertEqual(end["launches"]["seen"], own + between)

    def test_what_comes_soon_after_a_session_is_measured(self):
        """Its end is looked for often while it lasts, however long the windows are: the first tenth of what follows may be lost,
        and the next on a busy machine."""
        run = self.traced("now", {"MFU_INTERVAL": "10"})
        self.assertEqual((run.code, run.stdout.decode()), (0, self.whole_sessions(self.LAUNCHES)), run.stderr)
        between = (self.SESSIONS + 1) * self.LAUNCHES
        self.assertGreater(self.assert_sound(run)["launches"]["outside"], 0.75 * between)

    def test_a_session_soon_after_another(self):
        """Nobody has looked for the end of the one when the next begins; looked for in the middle of it, it is not found."""
        launches = 20_000  # half a second at least: several looks
        run = self.traced("now", {"MFU_INTERVAL": "0.2"}, launches, between_ms=0)
        self.assertEqual((run.code, run.stdout.decode()), (0, self.whole_sessions(launches)), run.stderr)
        self.assert_sound(run)

    def test_without_the_hook_some_are_lost(self):
        """That the test above can fail: nobody asks for the buffers where no slot may be changed and no idle time is looked into.
        On a busy machine the threads take turns in such a way, now and then, that all come back."""
        for _ in range(5):
            run = self.traced("now", {"MFU_EXECUTED": "0", "MFU_IDLE": "0"}, between_ms=100)
            self.assertEqual(run.code, 0)
            if re.search(r"session \d: (?!1000)\d+ of 1000 kernels", run.stdout.decode()):
                return
        self.fail(run.stdout.decode())


class SystemClock(TestCase):
    @unittest.skipIf("thread" in SANITIZE, "clock_gettime of ThreadSanitizer's own is in the way")
    def test_the_system_clock_is_set(self):
        for step in (3600, 86400 * 3650):
            with self.subTest(step):
                run = self.unharmed(BUSY, env={"LD_PRELOAD": BUILD / "clients/libclock_step.so", "CLOCK_STEP_S": step,
                                               "CLOCK_STEP_AFTER_S": "0.5", "MFU_INTERVAL": "0.1"})
                self.assertEqual((run.code, run.stdout), (0, b"begins\nends\n"))
                end = self.assert_sound(run)
                self.assertLess(end["t1_ns"] - end["t0_ns"], 30e9)
                self.assertLess(len(run.lines()), 300)
                self.assert_one_line(run, "system clock was set")
                self.assertEqual(end["counters"]["clock_jumps"], 1)
                self.assertEqual(end["launches"]["attributed"], 480)
                self.assertEqual(run.region("step")["kernels"], 480)
                self.assertEqual(ns(run.region("step")["kernel_sum_s"]), 480 * 100000)

    @unittest.skipIf("thread" in SANITIZE, "clock_gettime of ThreadSanitizer's own is in the way")
    def test_the_system_clock_is_set_between_any_two_readings(self):
        for reading in range(1, 25):
            with self.subTest(reading):
                run = self.unharmed(BUSY, env={"LD_PRELOAD": BUILD / "clients/libclock_step.so", "CLOCK_STEP_S": 86400,
                                               "CLOCK_STEP_AT_READING": reading, "MFU_INTERVAL": "0.1"})
                self.assertEqual((run.code, run.stdout), (0, b"begins\nends\n"))
                end = self.assert_sound(run)
                self.assertLess(end["t1_ns"] - end["t0_ns"], 30e9)
                self.assertLess(run.seconds, 20)
                self.assertLess(len(run.lines()), 300)
                for region in run.lines("window") + end["regions"]:
                    self.assertLess(region["elapsed_s"], 30)
                self.assertEqual(end["launches"]["attributed"], 480)
                self.assertEqual(ns(run.region("step")["kernel_sum_s"]), 480 * 100000)



if __name__ == "__main__":
    main()
