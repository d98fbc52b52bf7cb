"""Whose kernel is it, and how long did it run? The library against what the simulated GPU says really happened.

Kernel names say where each kernel belongs (`gemm_prefill` and so on); copies and sets say it by their size.
"""

from harness import SANITIZE, TestCase, Truth, main, ns

# Time between a range's opening or closing and the launches next to it, at most, on a machine that is busy otherwise.
SLACK_NS = 60_000_000


class Attribution(TestCase):
    def scenario(self, script, **options):
        """With every node of a graph timed: the truth is known node by node."""
        options["env"] = {"MFU_GRAPHS": "node", **(options.get("env") or {})}
        return super().scenario(script, **options)

    def belonging(self, run, word, **wanted):
        """Activities of kernels whose name holds `word`, in order of time."""
        return [a for a in run.activities(**wanted) if a["kind"] == "kernel" and word in a["name"]]

    def assert_all_attributed(self, run, outside=0):
        seen = len(run.launches())
        self.assertEqual(run.end["launches"], {"seen": seen, "attributed": seen - outside, "outside": outside,
                                               "unattributed": 0, "dropped": 0, "not_timed": 0})

    def assert_elapsed(self, region, activities, instances, gaps_ns=0):
        """Elapsed covers the activities; beyond them lies what the host did between its range calls and its launches."""
        t = Truth(activities)
        span = ns(region["elapsed_s"])
        self.assertGreaterEqual(span, t.busy_ns)
        self.assertLessEqual(span, t.end - t.begin + SLACK_NS * instances + gaps_ns)
        self.assertEqual(ns(region["time_s"]["idle"]), span - sum(t.time_ns.values()))

    def test_training_with_backward_on_a_second_thread(self):
        run = self.scenario("""
            kernel gemm_fwd ns=300000; kernel gemm_bwd ns=400000; kernel elementwise_bwd ns=100000; kernel nccl_bwd ns=300000
            kernel adam_step ns=50000
            stream main; stream comm
            thread main_thread {
              repeat 20 {
                push "train_step batch=2 seq_len=512"
                launch gemm_fwd count=4 stream=main
                barrier begin 2
                barrier done 2
                launch adam_step count=2 stream=main
                sync
                pop
              }
            }
            thread pt_autograd_0 {
              repeat 20 {
                barrier begin 2
                launch gemm_bwd count=4 stream=main
                launch nccl_bwd stream=comm
                launch elementwise_bwd count=3 stream=main
                memcpy dtod 2000 stream=main
                barrier done 2
              }
            }
        """)
        self.assert_sound(run)
        everything = run.activities()
        region = self.assert_region(run, "step", everything, instances=20)
        self.assertEqual(region["launches"], 20 * 15)
        self.assert_elapsed(region, everything, 20)
        self.assert_all_attributed(run)

    def test_ranges_of_backward_hooks_on_a_second_thread_are_inside_the_step(self):
        run = self.scenario("""
            kernel gemm_fwd ns=300000; kernel gemm_bwd ns=400000; kernel elementwise_bwd ns=100000
            stream main
            thread main_thread {
              repeat 20 {
                push "train_step batch=2 seq_len=512"
                launch gemm_fwd count=4 stream=main
                barrier begin 2
                barrier done 2
                sync
                pop
              }
            }
            thread pt_autograd_0 {
              repeat 20 {
                barrier begin 2
                push backward_hook
                launch gemm_bwd count=4 stream=main
                pop
                push backward_hook
                launch elementwise_bwd count=3 stream=main
                pop
                barrier done 2
              }
            }
        """, config={"regions": [{"match": "backward_hook", "region": "backward_hook"}]})
        self.assert_sound(run)
        everything = run.activities()
        step = self.assert_region(run, "step", everything, instances=20)
        self.assertEqual(step["launches"], 20 * 11)
        hooks = run.region("backward_hook")
        self.assertEqual((hooks["instances"], hooks["launches"], hooks["kernels"]), (40, 20 * 7, 20 * 7))
        self.assertEqual(run.region("total")["instances"], 20, "a hook is no step beside the step")
        self.assert_all_attributed(run)

    def test_steps_of_two_threads_are_side_by_side(self):
        thread = """
            thread worker_%d { repeat 10 {
              barrier begin 2
              push "%s"
              barrier open 2
              launch gemm_%d count=3 stream=s%d
              sync
              barrier done 2
              pop } }"""
        for ranges in (("train_step", "train_step"), ("prefill", "decode")):
            with self.subTest(ranges=ranges):
                run = self.scenario("kernel gemm_0 ns=300000; kernel gemm_1 ns=200000; stream s0; stream s1\n" +
                                    "".join(thread % (i, name, i, i) for i, name in enumerate(ranges)))
                self.assert_sound(run)
                self.assertEqual(run.region("total")["instances"], 20)
                for region in {"train_step": ["step"]}.get(ranges[0], list(ranges)):
                    self.assertEqual(run.region(region)["launches"], 60 if region == "step" else 30)

    def test_serving_with_graph_launched_decode(self):
        run = self.scenario("""
            kernel gemm_prefill ns=200000; kernel flash_fwd_kernel_prefill ns=150000
            kernel gemm_decode ns=40000; kernel add_decode ns=10000; kernel nccl_decode ns=30000
            kernel gemm_warmup ns=10000
            stream a; stream b
            launch gemm_warmup stream=a
            sync
            capture a
            launch gemm_decode stream=a count=3
            launch add_decode stream=a
            record e1 a; wait_event e1 b
            launch nccl_decode stream=b
            record e2 b; wait_event e2 a
            memset 5000 stream=a
            end_capture a g; instantiate g
            repeat 10 {
              push LLM@prefill payload=1 u64=512
              launch gemm_prefill count=4 stream=a
              launch flash_fwd_kernel_prefill stream=a
              sync; pop
              push LLM@decode_all
              repeat 10 {
                push "LLM@decode_step batch=1"
                graph_launch g stream=a
                sync a
                pop
              }
              pop
            }
        """)
        self.assert_sound(run)
        graph = [a for a in run.activities() if a["graph_id"] != 0]
        self.assertEqual(len(graph), 100 * 6)
        self.assert_region(run, "prefill", self.belonging(run, "prefill"), instances=10)
        decode = self.assert_region(run, "decode", graph, instances=10)
        self.assertEqual((decode["launches"], decode["tokens"]), (100, 100))
        self.assertEqual(run.region("prefill")["tokens"], 10 * 512)
        self.assert_all_attributed(run, outside=1)
        self.assertEqual(run.end["counters"]["launches_captured"], 6)
        total = run.region("total")
        self.assertEqual(total["kernels"], len([a for a in run.activities() if a["kind"] == "kernel"]))

    def test_capture_inside_a_region_puts_no_work_on_a_stream(self):
        run = self.scenario("""
            kernel gemm_step ns=50000
            stream a; stream side
            push step
            capture a
            launch gemm_step stream=a api=runtime count=2
            record e1 a; wait_event e1 side
            launch gemm_step stream=side api=ex
            memcpy dtod 64 stream=side
            record e2 side; wait_event e2 a
            end_capture a g; instantiate g
            graph_launch g stream=a count=3 api=runtime
            sync
            pop
        """)
        self.assert_sound(run)
        self.assert_region(run, "step", run.activities(), instances=1)
        self.assert_all_attributed(run)
        self.assertEqual(run.end["launches"]["seen"], 3)

    def test_every_launch_api(self):
        apis = ("kernel", "ptsz", "ex", "pdl", "cooperative", "runtime")
        body = "\n".join(f'push "{region}"\n' + "\n".join(f"launch gemm_{region} api={api} count={k + 2}"
                         for k, api in enumerate(apis)) + f"\nmemcpy htod {size}\nmemcpy dtoh {size} sync\nmemcpy dtod {size} "
                         f"stream=s\nmemset {size}\nlaunch gemm_{region} stream=per_thread\nsync\npop"
                         for region, size in (("prefill", 1001), ("decode", 2002)))
        run = self.scenario("kernel gemm_prefill ns=20000; kernel gemm_decode ns=30000; stream s\n" + body)
        self.assert_sound(run)
        for region, size in (("prefill", 1001), ("decode", 2002)):
            activities = [a for a in run.activities() if region in a["name"] or a["bytes"] == size]
            self.assertEqual(len(activities), 2 + 3 + 4 + 5 + 6 + 7 + 4 + 1)
            self.assert_region(run, region, activities, instances=1)
        self.assert_all_attributed(run)

    def test_pdl_overlap_counts_once_in_busy(self):
        run = self.scenario("""
            kernel gemm_a ns=100000; kernel elementwise_a ns=50000
            push step
            repeat 50 { launch gemm_a api=pdl; launch elementwise_a api=pdl }
            sync
            pop
        """, env={"SIMGPU_PDL_OVERLAP_NS": 20000})
        self.assert_sound(run)
        region = self.assert_region(run, "step", run.activities(), instances=1)
        self.assertGreater(region["kernel_sum_s"], region["busy_s"])

    def test_several_streams(self):
        lines = [f"launch gemm_s stream=s{i % 4}\nlaunch nccl_s stream=s{(i + 1) % 4}\nlaunch relu_s stream=s{(i + 2) % 4}\n"
                 f"memcpy htod {100000 + i} stream=s{(i + 3) % 4}" for i in range(24)]
        run = self.scenario("kernel gemm_s ns=130000; kernel nccl_s ns=210000; kernel relu_s ns=70000\n"
                            + "\n".join(f"stream s{i}" for i in range(4)) + "\nrepeat 5 {\npush step\n" + "\n".join(lines)
                            + "\nsync\npop\n}")
        self.assert_sound(run)
        region = self.assert_region(run, "step", run.activities(), instances=5)
        self.assertGreater(region["kernel_sum_s"], region["busy_s"])
        self.assert_all_attributed(run)

    def test_several_gpus_in_one_process(self):
        run = self.scenario("""
            kernel gemm_gpu ns=500000
            repeat 4 {
              push "step batch=1 seq_len=256"
              device 0
              launch gemm_gpu count=4
              device 1
              launch gemm_gpu count=2
              sync
              device 0
              sync
              pop
            }
        """, env={"SIMGPU_DEVICES": 2})
        self.assert_sound(run)
        for device in (0, 1):
            self.assert_region(run, "step", run.activities(device=device), instances=4, device=device)
        total = run.region("total")
        self.assertIsNone(total["device"])
        self.assertEqual(total["kernels"], 24)
        flop = [run.region("step", d)["flop"] for d in (0, 1)]
        self.assertAlmostEqual(flop[0] / flop[1], 2, places=6)  # the work goes where the matmuls ran
        self.assertAlmostEqual(sum(flop) / total["flop"], 1, places=9)
        self.assert_all_attributed(run)
        self.assertEqual({d["device"] for d in run.lines("start")[-1]["devices"]}, {0, 1})

    def test_a_thread_per_gpu(self):
        threads = "".join(f"""
            thread t{d} {{
              device {d}
              repeat 10 {{ push "step batch=1 seq_len=128"; launch gemm_dev{d} count=5; sync; pop; sleep 2 }}
            }}""" for d in range(3))
        run = self.scenario("\n".join(f"kernel gemm_dev{d} ns={(d + 1) * 100000}" for d in range(3)) + threads,
                            env={"SIMGPU_DEVICES": 3})
        self.assert_sound(run)
        for d in range(3):
            activities = run.activities(device=d)
            self.assertEqual({a["name"] for a in activities}, {f"gemm_dev{d}"})
            region = self.assert_region(run, "step", activities, instances=10, device=d)
            self.assertFalse(region["overlapped"], region)
        self.assert_all_attributed(run)

    def test_threads_with_regions_of_their_own(self):
        run = self.scenario("""
            kernel gemm_prefill ns=1000000; kernel gemm_decode ns=700000
            stream p; stream d
            thread prefiller {
              repeat 15 { push "prefill tok=100"; launch gemm_prefill count=2 stream=p; sync p; pop }
            }
            thread decoder {
              repeat 30 { push "decode b=4"; launch gemm_decode stream=d; sync d; pop }
            }
        """)
        self.assert_sound(run)
        # What runs on the device meanwhile belongs to the other region's times as well: only its own kernels are compared.
        prefill = self.assert_region(run, "prefill", self.belonging(run, "prefill"), instances=15, classes=False)
        decode = self.assert_region(run, "decode", self.belonging(run, "decode"), instances=30, classes=False)
        self.assertTrue(prefill["overlapped"] and decode["overlapped"], (prefill, decode))
        self.assert_all_attributed(run)

    def test_launches_of_a_third_thread_go_to_the_thread_that_last_launched_on_the_device(self):
        run = self.scenario("""
            kernel gemm_mine ns=20000; kernel gemm_theirs ns=20000
            device 0
            thread a {
              device 0
              push "prefill tok=5"
              launch gemm_mine
              barrier up 3
              barrier down 3
              pop
            }
            thread b {
              device 1
              push "decode b=1"
              launch gemm_mine
              barrier up 3
              barrier down 3
              pop
            }
            thread helper {
              barrier up 3
              device 0
              launch gemm_theirs count=3
              device 1
              launch gemm_theirs count=5
              sync
              device 0
              sync
              barrier down 3
            }
        """, env={"SIMGPU_DEVICES": 2})
        self.assert_sound(run)
        self.assert_region(run, "prefill", run.activities(device=0), instances=1, device=0)
        self.assert_region(run, "decode", run.activities(device=1), instances=1, device=1)
        self.assert_all_attributed(run)

    def test_ambiguous_launches_are_unattributed(self):
        run = self.scenario("""
            kernel gemm_x ns=20000
            launch gemm_x
            sync
            thread a { push "prefill tok=5"; barrier up 3; barrier down 3; pop }
            thread b { push "decode b=1"; barrier up 3; barrier down 3; pop }
            thread helper { barrier up 3; launch gemm_x count=7; sync; barrier down 3 }
        """)
        self.assert_sound(run)
        self.assertEqual(run.end["launches"], {"seen": 8, "attributed": 0, "outside": 1, "unattributed": 7, "dropped": 0,
                                                   "not_timed": 0})

    def test_start_end_ranges_are_of_the_process(self):
        run = self.scenario("""
            kernel gemm_in ns=100000; kernel gemm_out ns=50000
            launch gemm_out count=2
            start one "step batch=1 seq_len=64"
            launch gemm_in count=3
            thread other { launch gemm_in count=4 ; sync; end one }
            join
            launch gemm_out count=2
            start two step domain=mine
            thread third { launch gemm_in count=5 ; sync }
            join
            end two domain=mine
            launch gemm_out
            sync
        """)
        self.assert_sound(run)
        self.assert_region(run, "step", self.belonging(run, "gemm_in"), instances=2, classes=False)
        self.assert_all_attributed(run, outside=5)

    def test_nested_regions(self):
        run = self.scenario("""
            kernel gemm_vision ns=60000; kernel gemm_prefill ns=90000; kernel gemm_decode ns=30000
            repeat 6 {
              push "my vision" domain=app
              pop domain=app
              push "prefill tok=64"
              push something
              push vision domain=app
              launch gemm_vision count=2
              sync
              pop domain=app
              pop
              launch gemm_prefill count=3
              sync
              pop
              push decode_all
              repeat 4 { push "decode_step b=2"; push inner; launch gemm_decode; pop; sync; pop }
              pop
            }
        """, config={"model": {"params": 1000000000}, "regions": [{"region": "vision", "match": "vision", "domain": "app"}]})
        self.assert_sound(run)
        vision, prefill, decode = (self.belonging(run, w) for w in ("vision", "prefill", "decode"))
        self.assert_region(run, "vision", vision, instances=6)
        self.assert_region(run, "prefill", vision + prefill, instances=6)
        region = self.assert_region(run, "decode", decode, instances=6)
        self.assertEqual(region["tokens"], 6 * 4 * 2)
        total = run.region("total")
        self.assertEqual((total["kernels"], total["instances"]), (6 * 9, 12))
        self.assert_all_attributed(run)

    def test_a_cpu_that_runs_ahead(self):
        """Ranges that close long before their kernels run: consecutive instances of a thread do not overlap."""
        # What a first launch takes, in an emulator seconds, is no part of the steps.
        run = self.scenario("""
            kernel gemm_a ns=3000000
            kernel before ns=1000
            launch before
            sync
            repeat 50 { push "step batch=1 seq_len=32"; launch gemm_a count=4; pop }
            sync
        """)
        self.assert_sound(run)
        steps = self.belonging(run, "gemm_a")
        region = self.assert_region(run, "step", steps, instances=50)
        t = Truth(steps)
        self.assertLessEqual(ns(region["elapsed_s"]), t.end - t.begin + SLACK_NS)
        self.assertFalse(region["overlapped"])

    def test_correlation_ids_wrap(self):
        run = self.scenario(
            """
            kernel gemm_a ns=20000; kernel gemm_b ns=20000
            repeat 40 {
                push "prefill tok=9"; launch gemm_a count=10; sync; pop
                push "decode b=1"; launch gemm_b count=5; sync; pop
            }
        """,
            env={"SIMGPU_CORRELATION_START": 2**32 - 300},
        )
        ids = [a["correlation"] for a in run.activities()]
        self.assertTrue(max(ids) > 2**32 - 100 and min(ids) < 1000, (min(ids), max(ids)))
        self.assert_sound(run)
        self.assert_region(run, "prefill", self.belonging(run, "gemm_a"), instances=40)
        self.assert_region(run, "decode", self.belonging(run, "gemm_b"), instances=40)
        self.assert_all_attributed(run)

    def test_every_version_of_cupti(self):
        for folder in ("cupti-11.8", "cupti-12.4", "cupti-12.6", "cupti-12.9", "cupti-13.0", "cupti-13.3"):
            with self.subTest(folder):
                run = self.scenario("""
                    kernel gemm_a ns=50000; kernel softmax_b ns=30000
                    stream s
                    capture s; launch gemm_a stream=s; launch softmax_b stream=s; end_capture s g; instantiate g
                    repeat 5 {
                      push "prefill tok=7"; launch gemm_a count=6; launch gemm_a api=ex; memcpy htod 333; sync; pop
                      push "decode b=3"; graph_launch g stream=s count=4; memset 444 stream=s; sync; pop
                    }
                """, cupti=folder)
                self.assert_sound(run)
                version = run.lines("start")[0]["cupti"]
                self.assertIn(folder, version["path"])
                self.assertEqual(version["level"], "full")
                prefill = [a for a in run.activities() if a["graph_id"] == 0 and a["bytes"] != 444]
                decode = [a for a in run.activities() if a["graph_id"] != 0 or a["bytes"] == 444]
                self.assert_region(run, "prefill", prefill, instances=5)
                self.assert_region(run, "decode", decode, instances=5)
                self.assert_all_attributed(run)

    def test_sharing_the_profiler_joins_by_thread_and_time(self):
        run = self.scenario("""
            kernel gemm_prefill ns=300000; kernel gemm_decode ns=200000; kernel gemm_none ns=100000
            launch gemm_none count=3
            repeat 10 {
              push "prefill tok=64"; sleep 1; launch gemm_prefill count=4; sync; sleep 1; pop
              sleep 1
              launch gemm_none count=2
              sleep 1
              push "decode b=1"; sleep 1; launch gemm_decode count=2; sync; sleep 1; pop
            }
            sync
        """, env={"MFU_PROFILER": "share"})
        self.assert_sound(run)
        self.assertEqual(run.lines("start")[0]["cupti"]["level"], "share")
        self.assert_region(run, "prefill", self.belonging(run, "prefill"), instances=10, classes=False)
        self.assert_region(run, "decode", self.belonging(run, "decode"), instances=10, classes=False)
        self.assert_all_attributed(run, outside=23)

    def test_shared_profiler_and_captured_launches(self):
        """Without callbacks a capture is known by the records of its calls: what is captured is no launch, and none is missed."""
        run = self.scenario("""
            kernel gemm_step ns=50000
            stream a
            push step
            capture a
            launch gemm_step stream=a api=runtime count=3
            end_capture a g; instantiate g
            graph_launch g stream=a count=4 api=runtime
            launch gemm_step count=2
            sync
            sleep 5
            pop
        """, env={"MFU_PROFILER": "share"})
        self.assert_sound(run)
        self.assert_all_attributed(run)
        self.assertEqual(run.end["counters"]["launches_captured"], 3)
        self.assertEqual(run.region("step")["launches"], 6)
        self.assertEqual(run.region("step")["kernels"], 14)

    def test_late_and_part_full_buffers_in_any_order(self):
        for env in ({"SIMGPU_SHUFFLE": 1}, {"SIMGPU_WORKER_DELAY_MS": 300}, {"SIMGPU_FLUSH_ON_WORKER": 1},
                    {"SIMGPU_FLUSH_KEEPS_OPEN": 1}, {"SIMGPU_PER_THREAD": 0}, {"SIMGPU_POISON_BUFFERS": 1},
                    {"SIMGPU_KERNEL_BEFORE_EXIT": 1}, {"SIMGPU_STALE_NAMES": 1}):
            with self.subTest(env):
                run = self.scenario("""
                    kernel gemm_a ns=50000; kernel softmax_b ns=30000
                    thread one { repeat 30 { push "prefill tok=7"; launch gemm_a count=10; sync; sleep 20; pop } }
                    thread two { repeat 30 { launch softmax_b count=10; sleep 15 } }
                """, env={**env, "MFU_INTERVAL": "0.2"})
                self.assert_sound(run)
                account = run.end["launches"]
                self.assertEqual((account["seen"], account["dropped"], account["unattributed"]), (600, 0, 0), run.end["counters"])
                region = run.region("prefill")
                self.assertEqual(
                    (region["instances"], {k["name"]: k["count"] for k in region["top_kernels"]}["gemm_a"]), (30, 300)
                )
                self.assertNotIn("records_late", run.end["counters"])

    def test_many_launches_on_many_threads(self):
        threads, rounds = (8, 20) if SANITIZE else (16, 40)
        run = self.scenario("kernel gemm_t ns=2000; kernel gemm_free ns=2000\n" + "".join(
            f"thread t{i} {{ stream s{i}; repeat {rounds} {{ push \"prefill tok=1\"; launch gemm_t count=50 stream=s{i}; pop }}; "
            f"sync s{i} }}\n" for i in range(threads)), env={"MFU_INTERVAL": "0.2"})
        self.assert_sound(run)
        region = run.region("prefill")  # busy is summed per instance here, and they overlap
        self.assertEqual((region["instances"], region["kernels"], region["launches"]),
                         (threads * rounds, threads * rounds * 50, threads * rounds * 50), run.end)
        self.assertEqual(ns(region["kernel_sum_s"]), Truth(run.activities()).kernel_sum_ns)
        self.assert_all_attributed(run)


if __name__ == "__main__":
    main()
