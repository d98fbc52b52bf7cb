"""A hostile machine, hostile neighbours, hostile input: the host never notices, and nothing is written where it should not be."""

import json
import os
import pathlib
import subprocess

from harness import BUILD, DEADLINE_S, GPT2, LIBRARY, SANITIZE, SCENARIO, TestCase, main, unittest

HOST = BUILD / "clients/hostile_host"
REFUSE = BUILD / "clients/librefuse_allocation.so"
MFU = BUILD / "mfu"
# Each place is refused on its own where MFU_HOSTILE_ALL is set; else so many, spread evenly.
SAMPLES = None if os.environ.get("MFU_HOSTILE_ALL") else 40

WORK = """
    kernel gemm_k ns=20000
    repeat 30 { push "step batch=1 seq_len=8"; launch gemm_k count=3; sync; sleep 2; pop }
    print finished
    exit 7
"""


class Memory(TestCase):
    """Allocations of the library that the system refuses."""

    def run_with(self, **env):
        preload = {"LD_PRELOAD": REFUSE, "MFU_INTERVAL": "0.03", "MFU_TRACE": "trace.json", **env}
        return self.program([SCENARIO, "-c", WORK], env=preload)

    def tally(self):
        path = self.directory / "tally"
        self.run_with(REFUSE_TALLY=path)
        return [int(word) for word in path.read_text().split()]

    def places(self, count):
        if SAMPLES is None:
            return range(count)
        return sorted({round(i * (count - 1) / (SAMPLES - 1)) for i in range(SAMPLES)})

    @unittest.skipIf(SANITIZE, "sanitizers bring their own allocator")
    def test_a_single_refused_allocation(self):
        count, _ = self.tally()
        self.assertGreater(count, 200)
        for place in self.places(count):
            with self.subTest(place=place):
                run = self.run_with(REFUSE_FROM=place, REFUSE_COUNT=1)
                self.assertEqual((run.code, run.stdout), (7, b"finished\n"), run.stderr)

    @unittest.skipIf(SANITIZE, "sanitizers bring their own allocator")
    def test_every_allocation_refused_from_a_place_on(self):
        count, _ = self.tally()
        for place in self.places(count):
            with self.subTest(place=place):
                run = self.run_with(REFUSE_FROM=place, REFUSE_COUNT=0)
                self.assertEqual((run.code, run.stdout), (7, b"finished\n"), run.stderr)

    @unittest.skipIf(SANITIZE, "sanitizers map memory of their own")
    def test_each_table_that_cannot_be_mapped(self):
        _, mappings = self.tally()
        self.assertGreater(mappings, 5)
        for place in range(mappings):
            with self.subTest(place=place):
                run = self.run_with(REFUSE_MAPPING=place)
                self.assertEqual((run.code, run.stdout), (7, b"finished\n"), run.stderr)


class Neighbours(TestCase):
    """Files, links and descriptors of others."""

    def test_a_file_that_became_descriptor_2_is_left_alone(self):
        database = self.directory / "database"
        run = self.program([HOST, "descriptor2", database], env={"MFU_INTERVAL": "0.05"})
        self.assertEqual(run.code, 0, run.stderr)
        self.assertEqual(database.read_bytes(), b"database")

    @unittest.skipIf(SANITIZE, "frames that sanitizers guard are larger")
    def test_a_small_stack_is_enough(self):
        for size in (16 << 10, 20 << 10, 32 << 10):
            for entry in ("nvtx", "preload", "cuda nvtx"):
                with self.subTest(size=size, entry=entry):
                    run = self.program([HOST, "smallstack", size], entry=entry)
                    self.assertEqual((run.code, run.stdout), (0, b"lives\n"), run.stderr)

    def test_the_run_directory_is_that_of_the_start(self):
        run = self.program([HOST, "chdir", "elsewhere"], env={"MFU_RUN_DIR": "run", "MFU_INTERVAL": "0.1"})
        self.assertEqual(run.code, 0, run.stderr)
        self.assertEqual([o["type"] for o in run.lines()][0], "start")
        self.assertEqual([o["type"] for o in run.lines()][-1], "end")
        self.assertFalse((run.directory / "elsewhere/run").exists())

    def test_links_at_names_that_can_be_guessed(self):
        victim = self.directory / "victim"
        victim.write_text("precious")

        def run_with(*links):
            def plant(directory, environment):
                for name in links:
                    (directory / name).symlink_to(victim)

            run = self.program([SCENARIO, "-c", WORK], env={"MFU_TRACE": "t.json", "MFU_INTERVAL": "0.1"}, before=plant)
            self.assertEqual(run.code, 7, run.stderr)
            self.assertEqual(victim.read_text(), "precious")
            return run

        run = run_with("t.json.part")
        self.assertFalse((run.directory / "t.json").is_symlink())
        json.loads((run.directory / "t.json").read_text())
        run = run_with("t.json.part", "t.json")
        self.assertTrue((run.directory / "t.json").is_symlink(), "not put aside for a file either")
        self.assert_one_line(run, "t.json", "no trace")

    def test_names_of_run_files_that_are_taken(self):
        """Whatever has the name that the file of this process would have, it stays as it is, and the run has another file."""
        victim = self.directory / "victim"
        victim.write_text("precious")
        links = (f"ln -s {victim} $N", f"ln {victim} $N", "ln -s $N $N", "ln -s /dev/full $N")
        for plant in (*links, f"cp {victim} $N", "mkfifo $N", "mkdir $N"):
            with self.subTest(plant.split("/")[0]):
                script = f'mkdir run; N=run/$(uname -n)-0-$$.jsonl; {plant}; exec "$@"'
                run = self.program(["sh", "-c", script, "sh", SCENARIO, "-c", WORK], env={"MFU_INTERVAL": "0.1"})
                self.assertEqual((run.code, run.stdout), (7, b"finished\n"), run.stderr)
                self.assertEqual(victim.read_text(), "precious")
                ends = [name for name, text in run.files.items() if b'"type":"end"' in text]
                self.assertEqual(len(ends), 1, (sorted(run.files), run.log))
                planted = next(p for p in (run.directory / "run").iterdir() if p.name not in ends)
                self.assertIn(planted.read_text() if planted.is_file() and not planted.is_symlink() else "precious", "precious")

    def test_a_log_that_nobody_reads(self):
        """The run directory is whole, whatever the log does."""

        def fifo(directory, environment):
            os.mkfifo(directory / "log")

        run = self.program([SCENARIO, "-c", WORK], env={"MFU_LOG": "log", "MFU_INTERVAL": "0.1"}, before=fifo)
        self.assertEqual(run.code, 7, run.stderr)
        self.assert_sound(run)
        read, write = os.pipe()
        os.set_blocking(write, False)
        try:
            while True:
                os.write(write, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(write, True)
        try:
            run = self.program([SCENARIO, "-c", WORK], stderr=write, env={"MFU_INTERVAL": "0.1"})
        finally:
            os.close(write)
            os.close(read)
        self.assertEqual(run.code, 7)
        self.assert_sound(run)


class Input(TestCase):
    """Configs and rules of a stranger."""

    def test_deeply_nested_configs(self):
        deep = "[" * 75000 + "]" * 75000
        for name, text in (
            ("value", '{"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8, "x": %s}' % deep),
            ("objects", '{"a":' * 75000 + "1" + "}" * 75000),
            ("open", "[" * 1000000),
        ):
            with self.subTest(name):
                config = self.directory / f"{name}.json"
                config.write_text(text)
                run = self.unharmed(WORK, config=config)
                self.assertTrue(any("nested at most 64 deep" in line for line in run.log), run.log)
                done = subprocess.run([MFU, "flops", config], capture_output=True, text=True, timeout=DEADLINE_S)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("nested at most 64 deep", done.stderr)

    def test_a_config_that_cannot_be_read(self):
        for path in ("/proc/kmsg", "/proc/self/mem", "/dev/zero", "/proc/self/fd", "/"):
            with self.subTest(path):
                run = self.unharmed(WORK, config=path)
                self.assertEqual(run.code, 7)

    def test_rules_that_explode(self):
        rules = [{"region": f"r{i}", "match": "((a|aa)+)+c"} for i in range(200)]
        config = {"model": json.loads(GPT2.read_text()), "regions": rules}
        script = "kernel gemm_k ns=1000\n" + "\n".join(
            f'push "{"a" * (100 + i)}cx"; launch gemm_k; pop' for i in range(50)) + "\nprint finished\nexit 3"
        run = self.unharmed(script, config=config)
        self.assertEqual(run.code, 3)
        self.assertTrue(any("takes too many steps" in line for line in run.log), run.log)


class Rights(TestCase):
    @unittest.skipIf(SANITIZE or os.geteuid() != 0, "needs root, to make a setuid program")
    def test_a_setuid_program_is_left_alone(self):
        program = pathlib.Path("/usr/local/lib/mfu-hostile-test")
        self.addCleanup(program.unlink, missing_ok=True)
        program.write_bytes(HOST.read_bytes())
        os.chmod(program, 0o4755)
        os.chmod(self.directory, 0o777)
        # The loader ignores LD_* here, so the program loads the library itself, as a driver would that honours its variable.
        env = {"MFU_RUN_DIR": str(self.directory / "run"), "MFU_LOG": str(self.directory / "log"),
               "CUDA_INJECTION64_PATH": str(LIBRARY), "NVTX_INJECTION64_PATH": str(LIBRARY)}
        done = subprocess.run([program, "smallstack", "65536"], env=env, capture_output=True, timeout=DEADLINE_S, user=65534)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(self.directory), [])


if __name__ == "__main__":
    main()
