"""What containers take away: no /proc, /tmp, /dev or /etc, no HOME, a root that cannot be written, another user, host names and
process ids that every container has. The program runs as it would, and is measured where there is a place to write to.

Each case is a root folder with nothing in it but a program, the libraries that the loader asks for, the simulated GPU and the
library, entered with chroot in namespaces of its own. Skipped where the kernel gives an ordinary user no namespaces.
"""

import json
import os
import pathlib
import shutil
import subprocess

from harness import BUILD, GPT2, LIBRARY, SANITIZE, SCENARIO, TestCase, main, unittest

MFU = BUILD / "mfu"
STEPS = 6
STEP = 'push "step batch=1 seq_len=8"; launch gemm_k count=2; sync; pop'
SCRIPT = f"kernel gemm_k ns=200000; repeat {STEPS} {{ {STEP} }}; print done"
SIMGPU = [BUILD / "simgpu/libcuda.so.1", BUILD / "simgpu/libnvidia-ml.so.1", BUILD / "simgpu/cupti-13.0/libcupti.so.13"]
OLD_ROOT = os.environ.get("MFU_OLD_ROOT")  # a C library to run on instead of this machine's; the build is linked for it
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--uts", "--pid", "--fork"]


def namespaces_work():
    try:
        return subprocess.run([*NAMESPACES, "chroot", "/", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def loaded_by(path):
    """What the loader opens for `path`: absolute paths, the loader itself among them."""
    shown = subprocess.run(["ldd", str(path)], stdout=subprocess.PIPE, check=True).stdout.decode()
    words = [word for line in shown.splitlines() for word in line.split() if word.startswith("/")]
    return [pathlib.Path(word) for word in words]


@unittest.skipIf(SANITIZE, "a sanitizer's runtime wants /proc")
@unittest.skipUnless(namespaces_work(), "no user namespaces here")
class BareRoot(TestCase):
    def setUp(self):
        super().setUp()
        self.root = self.directory / "root"
        if OLD_ROOT:
            shutil.copytree(OLD_ROOT, self.root, symlinks=True)
        for path in (SCENARIO, LIBRARY, *SIMGPU, GPT2):
            self.copy(path)
            if path != GPT2 and not OLD_ROOT:
                for needed in loaded_by(path):
                    self.copy(needed)
        self.runs = self.root / "runs"
        self.runs.mkdir()

    def copy(self, path):
        into = self.root / str(path).lstrip("/")
        if not into.exists():
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, into)  # what a link leads to

    def enter(self, before="", namespaces=NAMESPACES, env=None, script=SCRIPT):
        """Runs the scenario in the root; `before`: shell commands in its namespaces, with ROOT set."""
        command = [*namespaces, "sh", "-c", f'{before}\nexec chroot "$ROOT" "$@"', "sh", SCENARIO, "-c", script]
        run = self.program(
            command,
            env={
                "ROOT": self.root,
                "MFU_RUN_DIR": "/runs",
                "SIMGPU_TRACE": None,
                "HOME": None,
                "TMPDIR": None,
                "USER": None,
                "LD_LIBRARY_PATH": f"{BUILD}/simgpu:{BUILD}/simgpu/cupti-13.0",
                **(env or {}),
            },
        )
        self.assertEqual((run.code, run.stdout), (0, b"done\n"), run.stderr.decode(errors="replace"))
        self.assertEqual(run.foreign_log, [])
        return run

    def measured(self, count=1):
        """The objects of each file of the run directory, every one of which has counted all steps."""
        files = sorted(self.runs.iterdir())
        self.assertEqual(len(files), count, files)
        everything = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
        for objects in everything:
            account = objects[-1]["launches"]
            self.assertEqual((account["seen"], account["attributed"]), (2 * STEPS, 2 * STEPS), objects[-1])
            self.assertEqual([r["instances"] for r in objects[-1]["regions"] if r["region"] == "step"], [STEPS])
        return files, everything

    def test_nothing_but_the_files(self):
        before = {path for path in self.root.rglob("*")}
        run = self.enter()
        files, _ = self.measured()
        self.assertEqual({path for path in self.root.rglob("*")} - before, set(files), run.log)

    def test_root_that_cannot_be_written(self):
        read_only = 'mount --bind "$ROOT" "$ROOT" && mount -o remount,bind,ro "$ROOT"'
        run = self.enter(read_only)
        self.assertEqual(list(self.runs.iterdir()), [])
        said = [line for line in run.log if "/runs" in line and "Read-only file system" in line]
        self.assertEqual(len(said), 1, run.log)
        # With a volume where the run directory is, as a pod has it.
        volume = self.directory / "volume"
        volume.mkdir()
        self.enter(
            f'mount --bind "{volume}" "$ROOT/runs" && mount --bind "$ROOT" "$ROOT" && mount -o remount,bind,ro "$ROOT"'
            f' && mount --bind "{volume}" "$ROOT/runs"'
        )
        self.runs = volume
        self.measured()

    def test_proc_is_there(self):
        (self.root / "proc").mkdir()
        self.enter('mount -t proc proc "$ROOT/proc"')
        self.measured()

    def test_a_driver_that_keeps_hardware_counters_for_root(self):
        self.copy(MFU)
        for needed in loaded_by(MFU):
            self.copy(needed)
        parameters = self.root / "proc/driver/nvidia/params"
        parameters.parent.mkdir(parents=True)
        (self.root / "proc/self").mkdir()
        (self.root / "proc/self/exe").symlink_to(MFU)
        env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{BUILD}/simgpu:{BUILD}/simgpu/cupti-13.0"}
        for value in (0, 1):
            parameters.write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {value}\nTCEBypassMode: 0\n")
            shown = subprocess.run([*NAMESPACES, "chroot", self.root, MFU, "doctor"], env=env, capture_output=True, text=True)
            self.assertEqual(shown.returncode, 0, shown.stdout + shown.stderr)
            said = [line for line in shown.stdout.splitlines() if "RmProfilingAdminOnly: 1: hardware counters (ncu)" in line]
            self.assertEqual(len(said), value, shown.stdout)

    def test_containers_with_one_name_and_one_process_id(self):
        for _ in range(2):
            self.enter("hostname pod-7.train", env={"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 0})
        files, everything = self.measured(2)
        self.assertEqual([file.name for file in files], ["pod-7.train-3-1-2.jsonl", "pod-7.train-3-1.jsonl"])
        for objects in everything:
            self.assertEqual(
                (objects[0]["rank"], objects[0]["world"], objects[0]["host"], objects[0]["pid"]), (3, 4, "pod-7.train", 1)
            )

    def test_another_user(self):
        if os.getuid() == 0:
            self.directory.chmod(0o755)
            namespaces = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *NAMESPACES]
        else:
            namespaces = NAMESPACES
            self.runs.chmod(0o555)
        run = self.enter(namespaces=namespaces)
        self.assertEqual(list(self.runs.iterdir()), [])
        said = [line for line in run.log if "/runs" in line and "Permission denied" in line]
        self.assertEqual(len(said), 1, run.log)


if __name__ == "__main__":
    main()
