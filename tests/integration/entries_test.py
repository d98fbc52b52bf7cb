"""Every way into the process, in any combination, with one copy of the library doing the work; and what it exports."""

import os
import re
import shutil
import subprocess
import sys

from harness import BUILD, EMULATED, LIBRARY, SANITIZE, SCENARIO, SOURCE, TestCase, main, unittest

STEPS = """
kernel gemm_step ns=30000; kernel relu_out ns=10000
cuinit
push before
launch relu_out
pop
repeat 5 { push "step batch=1 seq_len=16"; launch gemm_step count=4; sync; pop }
sync
print bye
"""

EARLY = """
kernel gemm_step ns=30000; kernel relu_out ns=10000
push one; push two; pop; pop
mark hello
push "step batch=1 seq_len=16"
launch gemm_step count=2
sync
pop
start all "decode b=1"
cuinit
launch relu_out
sync
end all
print bye
"""


sys.path.insert(0, str(SOURCE / "tests/packaging"))
import library  # noqa: E402


@unittest.skipIf(SANITIZE, "sanitizers have checks of their own")
class Hardening(unittest.TestCase):
    def test_what_runs_beside_others_code_is_hardened(self):
        for file in (LIBRARY, BUILD / "mfu"):
            if file.exists():
                with self.subTest(file=file):
                    self.assertEqual(list(library.hardening_faults(file)), [])


class Entries(TestCase):
    def assert_steps(self, run):
        self.assertEqual(run.stdout, b"bye\n")
        self.assert_sound(run)
        self.assert_region(run, "step", [a for a in run.activities() if "gemm_step" in a["name"]], instances=5)
        self.assertEqual(run.end["launches"], {"seen": 21, "attributed": 20, "outside": 1, "unattributed": 0, "dropped": 0,
                                               "not_timed": 0})

    def test_both_variables(self):
        self.assert_steps(self.unharmed(STEPS))

    def test_cuda_variable_alone(self):
        self.assert_steps(self.unharmed(STEPS.replace("push before", ""). replace("pop\nrepeat", "repeat"), entry="cuda"))

    def test_cuda_variable_alone_with_ranges_before_cuda(self):
        """NVTX looked for a tool and found none before the library was there: ranges of that module are lost, no more."""
        run = self.unharmed(EARLY, entry="cuda", code=0)
        self.assert_sound(run)
        self.assertEqual(run.end["launches"]["outside"], 3)

    def test_preload_alone(self):
        self.assert_steps(self.unharmed(STEPS, entry="preload"))
        run = self.unharmed(EARLY, entry="preload")
        self.assert_sound(run)
        self.assertEqual((run.region("step")["kernels"], run.region("decode")["kernels"]), (2, 1))

    def test_nvtx_before_cuda(self):
        run = self.unharmed(EARLY)
        self.assert_sound(run)
        self.assertEqual((run.region("step")["kernels"], run.region("decode")["kernels"]), (2, 1))
        self.assertEqual(run.end["launches"]["attributed"], 3)

    def test_nvtx_variable_alone(self):
        """The library loads before cuInit and publishes itself to the driver; or after, and starts late."""
        self.assert_steps(self.unharmed("push x; pop\n" + STEPS, entry="nvtx"))

    def test_nvtx_variable_alone_after_cuda(self):
        run = self.unharmed("""
            kernel gemm_step ns=30000
            cuinit
            launch gemm_step
            sync
            push first; pop
            sleep 100; until_ended mfu-start
            repeat 20 { push "step batch=1 seq_len=16"; launch gemm_step count=2; sync; pop }
            sync
            print bye
        """, entry="nvtx")
        self.assert_sound(run)
        self.assert_region(run, "step", [a for a in run.activities() if a["fate"] == "delivered"], instances=20)

    def test_all_three(self):
        for entry in ("cuda nvtx preload", "cuda preload", "nvtx preload"):
            with self.subTest(entry):
                self.assert_steps(self.unharmed(STEPS, entry=entry))

    def test_two_copies_at_different_paths(self):
        def copies(directory, environment):
            other = directory / "elsewhere/libmfuinject.so"
            other.parent.mkdir()
            shutil.copy(LIBRARY, other)
            environment[self.variable] = str(other)

        for self.variable in ("NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "LD_PRELOAD"):
            with self.subTest(self.variable):
                run = self.scenario(STEPS, before=copies)
                self.assertEqual(len(run.files), 1)
                self.assertEqual(len(run.lines("start")), 1)
                self.assertEqual(run.stdout, b"bye\n")
                self.assert_sound(run)
                self.assertEqual(run.region("step")["kernels"] if run.region("step") else None, 20, run.end)

    def test_a_path_that_is_relative_or_a_bare_name(self):
        def relative(directory, environment):
            path = os.path.relpath(LIBRARY, directory)
            environment["CUDA_INJECTION64_PATH"] = environment["NVTX_INJECTION64_PATH"] = path

        def bare(_directory, environment):
            environment["LD_LIBRARY_PATH"] += f":{BUILD}"
            environment["CUDA_INJECTION64_PATH"] = environment["NVTX_INJECTION64_PATH"] = "libmfuinject.so"

        self.assert_steps(self.scenario(STEPS, before=relative))
        self.assert_steps(self.scenario(STEPS, before=bare))

    def test_the_nvtx_2_abi(self):
        run = self.unharmed("""
            kernel gemm_step ns=30000; kernel relu_out ns=10000
            launch relu_out
            v2_mark hi
            repeat 3 { v2_push "step batch=1 seq_len=16"; launch gemm_step; sync; v2_pop }
            v2_push "step batch=1 seq_len=16" text=wide; launch gemm_step; sync; v2_pop
            v2_start r "prefill tok=64"; launch relu_out; sync; v2_end r
            v2_push prefill u64=32; launch relu_out; sync; v2_pop
            print bye
        """)
        self.assert_sound(run)
        self.assertEqual((run.region("step")["instances"], run.region("step")["kernels"]), (4, 4))
        self.assertEqual((run.region("prefill")["instances"], run.region("prefill")["tokens"]), (2, 96))

    def test_the_payload_extension(self):
        run = self.scenario("""
            kernel gemm_step ns=30000
            ext_enabled
            ext_enabled domain=mine
            ext_push "step batch=1 seq_len=16" domain=mine rows=4
            launch gemm_step; sync
            ext_pop domain=mine
            push "step batch=1 seq_len=16"
            ext_push domain=other a=1 b=2
            launch gemm_step; sync
            ext_pop domain=other
            launch gemm_step; sync
            pop
            launch gemm_step; sync
        """)
        self.assertEqual(run.stdout, b"enabled 1\nenabled 1\n")
        self.assert_sound(run)
        self.assertEqual((run.region("step")["instances"], run.region("step")["kernels"]), (2, 3))
        self.assertEqual(run.end["launches"]["outside"], 1)

    def test_ranges_of_a_second_module(self):
        run = self.unharmed("""
            kernel gemm_step ns=30000
            dso_push "step batch=1 seq_len=16"
            push inner
            launch gemm_step
            sync
            pop
            dso_pop
            dso_mark x
            launch gemm_step
            push "step batch=1 seq_len=16"; dso_push noise; launch gemm_step; sync; dso_pop; pop
            sync
        """)
        self.assert_sound(run)
        self.assertEqual((run.region("step")["instances"], run.region("step")["kernels"]), (2, 2))

    def test_nvtx_in_every_form(self):
        run = self.unharmed("""
            kernel gemm_p ns=20000; kernel gemm_d ns=20000
            domain wide_one wide
            category_name 7 "seven"; category_name 7 seven domain=LLM
            nvtx_name_thread me
            push "prefill" text=wide u64=10; launch gemm_p; sync; pop
            push "prefill" text=registered i64=10; launch gemm_p; sync; pop
            push "prefill" text=registered_wide domain=LLM double=10; launch gemm_p; sync; pop domain=LLM
            push "prefill" u32=10 category=7 color=FF00FF; launch gemm_p; sync; pop
            push "prefill" i32=10 domain=wide_one; launch gemm_p; sync; pop domain=wide_one
            push "prefill" float=10; launch gemm_p; sync; pop
            push "x" text=none u64=5; pop
            start r "decode" text=registered domain=LLM i32=1; launch gemm_d; sync; end r domain=LLM
            mark "prefill" u64=3
            pop; pop; pop domain=LLM
            push "prefill" domain=NCCL u64=10; launch gemm_d; sync; pop domain=NCCL
            domain_destroy LLM
        """)
        self.assert_sound(run)
        prefill = run.region("prefill")
        self.assertEqual((prefill["instances"], prefill["kernels"], prefill["tokens"]), (6, 6, 60))
        self.assertEqual(run.region("decode")["kernels"], 1)
        self.assertEqual(run.end["launches"]["outside"], 1)
        self.assertEqual(run.end["counters"]["nvtx_pop_unmatched"], 3)

    def test_deep_nesting_and_long_names(self):
        run = self.unharmed(f"""
            kernel gemm_p ns=20000
            push "prefill tok=5 {'x' * 65536}"; launch gemm_p; sync; pop
            push "{'y' * 65536}" domain={'z' * 300}; pop domain={'z' * 300}
            push "prefill tok=5"
            {"push level; " * 300}
            launch gemm_p; sync
            {"pop; " * 300}
            launch gemm_p; sync
            pop
            launch gemm_p; sync
        """)
        self.assert_sound(run)
        self.assertEqual((run.region("prefill")["instances"], run.region("prefill")["kernels"], run.region("prefill")["tokens"]),
                         (2, 3, 10))
        self.assertEqual(run.end["launches"]["outside"], 1)

    def test_region_names_of_frameworks(self):
        names = [("ProfilerStep#12", "step"), ("train_step", "step"), ("iteration 3", "step"), ("LLM@prefill", "prefill"),
                 ("LLM@decode_all", "decode"), ("LLM@decode_step", "decode"), ("Prefill", "prefill"), ("Decode", "decode"),
                 ("execute_context_0(0)_generation_4(4)", "decode"), ("execute_context_2(512)_generation_0(0)", "prefill"),
                 ("execute_context_2(512)_generation_4(4)", "mixed"),
                 ("[Executor] _forward_step 3: 0 ctx reqs, 8 gen reqs", "decode"),
                 ("[Executor] _forward_step 3: 1 ctx reqs, 100 ctx tokens, 0 gen reqs", "prefill"),
                 ("stepping stone", None), ("decoder_layer", None), ("predecode", None), ("steps", None)]
        script = "kernel gemm_k ns=5000\n"
        for i, (name, _) in enumerate(names):
            script += f'push "{name}"; launch gemm_k count={i + 1}; sync; pop\n'
        run = self.scenario(script)
        self.assert_sound(run)
        wanted = {}
        for i, (_, region) in enumerate(names):
            wanted[region] = wanted.get(region, 0) + i + 1
        self.assertEqual(run.end["launches"]["outside"], wanted.pop(None))
        self.assertEqual({r["region"]: r["kernels"] for r in run.end["regions"] if r["region"] != "total"}, wanted)

    @unittest.skipIf(EMULATED, "this machine's own programs cannot load a library for another processor")
    def test_children_of_an_exec_and_a_spawn(self):
        """The environment stays for programs that this one starts: each measures itself."""
        run = self.scenario(
            f'exec {SCENARIO} -c "kernel gemm_k ns=5000; push prefill u64=4; launch gemm_k; sync; pop; print child"'
        )
        self.assertEqual(run.stdout, b"child\n")
        self.assertEqual(run.region("prefill")["kernels"], 1)
        run = self.program(
            ["/bin/sh", "-c", f"echo one; {SCENARIO} -c 'launch gemm_k; sync; print two'; {SCENARIO} -c 'print three'"],
            entry="cuda nvtx preload",
        )
        self.assertEqual((run.code, run.stdout), (0, b"one\ntwo\nthree\n"))
        self.assertEqual(len(run.files), 1)  # the shell and the program without CUDA stay silent
        self.assertEqual(run.foreign_log, [])

    def test_a_process_without_a_device_is_silent(self):
        """Login nodes and data workers start CUDA, too; the driver calls the library, and answers 100."""
        script = "push step; cuinit; pop; print hello"
        without = self.program([SCENARIO, "-c", script], entry="", env={"SIMGPU_DEVICES": 0})
        self.assertIn(b"100", without.stdout + without.stderr)
        for cupti in ("cupti-12.4", "cupti-13.0", "cupti-13.3"):
            with self.subTest(cupti):
                run = self.program([SCENARIO, "-c", script], entry="cuda nvtx", cupti=cupti, env={"SIMGPU_DEVICES": 0})
                self.assertEqual((run.code, run.stdout, run.stderr), (without.code, without.stdout, without.stderr))
                self.assertEqual(run.files, {})

    @unittest.skipIf(EMULATED, "this machine's own programs cannot load a library for another processor")
    def test_a_process_without_cuda_is_silent(self):
        for command in (["/bin/echo", "hello"], ["/bin/ls", "/"], [SCENARIO, "-c", "push step; pop; print hello"]):
            without = self.program(command, entry="")
            run = self.program(command, entry="cuda nvtx preload")
            self.assertEqual((run.code, run.stdout, run.stderr, run.files), (0, without.stdout, b"", {}))

    # What the file is made of.

    @unittest.skipIf(shutil.which("nm") is None, "binutils are not installed")
    def test_exported_symbols_are_those_of_the_map(self):
        out = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
        exported = {line.split()[-1] for line in out.splitlines() if line.split()[-2] != "A"}
        text = (SOURCE / "injection/exports.map").read_text()
        wanted = set(re.findall(r"^\s+(\w+);", text.split("local:")[0], re.M))
        self.assertEqual({s.split("@")[0] for s in exported}, wanted)

    @unittest.skipIf(shutil.which("readelf") is None, "binutils are not installed")
    @unittest.skipIf(SANITIZE, "an instrumented library needs its sanitizer's runtime")
    def test_needs_nothing_the_host_could_lack(self):
        out = subprocess.run(["readelf", "-dW", LIBRARY], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", out))
        self.assertLessEqual(needed, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0"})
        self.assertIn("NODELETE", out)

    @unittest.skipIf(shutil.which("readelf") is None, "binutils are not installed")
    @unittest.skipIf(SANITIZE, "instrumentation adds thread-local state of its own")
    def test_takes_little_of_the_static_tls(self):
        out = subprocess.run(["readelf", "-lW", LIBRARY], capture_output=True, text=True, check=True).stdout
        tls = [int(line.split()[5], 16) for line in out.splitlines() if line.split()[:1] == ["TLS"]]
        self.assertLessEqual(sum(tls), 256, out)


if __name__ == "__main__":
    main()
