"""The host comes first: its threads' ranks and places, its environment, its memory, its locale, its secrets."""

import json
import os
import shutil
import stat
import subprocess

from harness import BUILD, SANITIZE, main, unittest
from hosts_test import Hosts

HOST = BUILD / "clients/first_host"
NOT_ALLOWED = 77
# Of layers whose widths are fractions of others: what is written as 2.667 in the table is 2 where a comma is expected.
XLSTM = {"model_type": "xlstm", "hidden_size": 1024, "num_hidden_layers": 8, "num_heads": 8, "vocab_size": 32000}


@unittest.skipIf(SANITIZE, "a sanitizer has threads, locks and memory of its own")
class First(Hosts):
    def run_host(self, *words, entry="cuda nvtx", **options):
        run = self.program([HOST, *words], entry=entry, **options)
        if run.code == NOT_ALLOWED:
            self.skipTest(f"{words[0]}: the system does not allow it")
        self.assertEqual(run.code, 0, run.stderr[-2000:])
        return run


class Ranks(First):
    def test_own_threads_take_neither_rank_nor_place_of_a_realtime_host(self):
        run = self.run_host("realtime", env={"MFU_INTERVAL": "0.05"})
        threads = [line.split() for line in run.stdout.decode().splitlines()]
        self.assertEqual({"mfu-drain", "mfu-sink", "mfu-flush"} - {name for name, *_ in threads}, set())
        for name, policy, nice, processors in threads:
            with self.subTest(name):
                self.assertEqual(int(policy), os.SCHED_OTHER)
                self.assertGreaterEqual(int(nice), 5)
                self.assertEqual(int(processors), len(os.sched_getaffinity(0)))

    def test_a_realtime_host_wakes_up_as_early_as_alone(self):
        def late(entry):
            run = self.run_host("realtime", entry=entry, env={"MFU_INTERVAL": "0.05"})
            return int(run.stderr.decode().split("late ")[1].split()[0])

        # A virtual machine's own pauses are in both: of three pairs one is quiet.
        pairs = []
        for _ in range(3):
            pairs.append((late(""), late("cuda nvtx")))
            if pairs[-1][1] <= 2 * pairs[-1][0] + 100:
                return
        self.fail(f"99 % of the wake-ups are late by at most, alone and with the library, in us: {pairs}")


class Environment(First):
    def test_variables_that_are_set_while_it_starts(self):
        # Without CUPTI: the simulated one reads its variables with getenv(), which the storm may move under it.
        for entry in ("cuda", "preload"):
            for _ in range(20):
                run = self.run_host("setenv", entry=entry, env={"MFU_CUPTI": "/none"})
                self.assertEqual(run.stdout, b"worked\n")


class Memory(First):
    def test_a_host_that_locks_all_its_memory(self):
        bare, with_library = (int(self.run_host("locked", entry=entry, env={"SIMGPU_TRACE": None}).stdout)
                              for entry in ("", "cuda nvtx"))
        self.assertLess(with_library - bare, 40 * 1024, "KiB that the tables may not fill before they are used")


class Locale(First):
    def test_a_decimal_comma_changes_no_number(self):
        if shutil.which("localedef") is None or not os.path.exists("/usr/share/i18n/locales/de_DE"):
            self.skipTest("no localedef, or no definition of de_DE")
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", self.directory / "de_DE.UTF-8"], check=False,
                       capture_output=True)
        env = {"LOCPATH": str(self.directory), "MFU_PEAK_TFLOPS": "989.4", "MFU_INTERVAL": "0.25", "MFU_SET": "workload.batch=1"}
        config = self.directory / "config.json"
        config.write_text(json.dumps(XLSTM))
        comma = self.run_host("locale", "de_DE.UTF-8", env=env, config=config)
        point = self.run_host("locale", "C", env=env, config=config)
        self.assertEqual((comma.stdout, point.stdout), (b"1,5\n", b"1.5\n"))
        self.assertEqual(comma.lines()[0]["config"], point.lines()[0]["config"])
        self.assertEqual(comma.lines()[0]["model"], point.lines()[0]["model"])
        self.assertEqual(comma.region("step")["flop"], point.region("step")["flop"])
        self.assertGreater(point.region("step")["flop"], 0)
        self.assertNotIn(b"expected", comma.stderr)


class Secrets(First):
    def test_a_command_line_with_a_password_and_a_token(self):
        run = self.run_host("locale", "C", "https://me:PASSWORD@host/x", "Authorization: Bearer SECRETTOKEN")
        text = b"".join(run.files.values()).decode()
        self.assertIn("https://***@host/x", text)
        self.assertNotRegex(text, "PASSWORD|SECRETTOKEN")

    def test_files_in_a_new_folder_are_for_the_user_and_the_group(self):
        folder = self.directory / "new" / "run"
        self.run_host("locale", "C", env={"MFU_RUN_DIR": folder})
        for path in (folder.parent, folder, *folder.iterdir()):
            with self.subTest(path=path):
                self.assertEqual(stat.S_IMODE(path.stat().st_mode) & 0o027, 0)


if __name__ == "__main__":
    main()
