"""Other users of CUPTI in the same process keep what they take: the library steps aside, says so once, and the host's output,
exit code and the other client stay whole. So do changes of the system clock."""

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



if __name__ == "__main__":
    main()
