"""Changes all that a look at its stacks reads, as fast as it can: python3 look_storm_program.py LOOKS HOW_IT_ENDS"""

import ctypes
import gc
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

storm = ctypes.CDLL(None)
storm.watch.argtypes = [ctypes.c_uint64]
storm.looks.restype = storm.frames.restype = ctypes.c_uint64
LOOKS, END = int(sys.argv[1]), sys.argv[2]


def deep(n):
    return n if n == 0 else deep(n - 1)


def made(n):
    """Code that is freed at once."""
    space = {}
    lines = "    a += 0\n" * (n % 50)
    exec(compile(f"def f{n}(a):\n{lines}    return [x for x in range(a)]\n", f"made_{n}.py", "exec"), space)
    return space[f"f{n}"](20)


def generate(n):
    yield from (deep(5) + i for i in range(n))


def work():
    storm.watch(threading.get_ident())
    for n in range(30):
        made(n)
        list(generate(20))
        deep(n * 5)
        try:
            deep(200)
            raise ValueError(n)
        except ValueError:
            pass


def modules(folder, n):
    name = f"module_{n}"
    (folder / (name + ".py")).write_text("def f(g):\n    return g(50)\n")
    importlib.invalidate_caches()
    importlib.import_module(name).f(deep)
    del sys.modules[name]
    (folder / (name + ".py")).unlink()


sys.setrecursionlimit(5000)
with tempfile.TemporaryDirectory() as folder:
    sys.path.insert(0, folder)
    rounds = 0
    while storm.looks() < LOOKS:
        rounds += 1
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        modules(pathlib.Path(folder), rounds)
        garbage = [[] for _ in range(1000)]
        for g in garbage:
            g.append(garbage)
        del garbage
        gc.collect()
        if rounds % 20 == 0:
            child = os.fork()
            if child == 0:
                work()
                os._exit(3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
            subprocess.run([sys.executable, "-c", "import json; print(json.dumps([1]))"], stdout=subprocess.DEVNULL, check=True,
                           env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
assert storm.frames() > storm.looks(), "stacks have frames"
print("done")
sys.stdout.flush()
if END == "exec":
    os.execv("/bin/echo", ["echo", "other"])
elif END == "_exit":
    os._exit(5)
elif END == "threads":  # daemon threads run while the interpreter ends
    threading.Thread(target=lambda: [work() for _ in iter(int, 1)], daemon=True).start()
