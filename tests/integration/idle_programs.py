"""Programs whose idle GPU time is known, cause by cause: python3 idle_programs.py NAME STEPS. Each step launches a few kernels
and then does other things, whose times it takes itself. Prints {"elapsed": s, "causes": {name: s}} as JSON."""

import contextlib
import ctypes
import gc
import hashlib
import json
import os
import queue
import sys
import threading
import time

import mfuinject

cuda = ctypes.CDLL("libcuda.so.1")
did = {}


def check(result):
    if result != 0:
        sys.exit(f"CUDA error {result}")


@contextlib.contextmanager
def timed(cause):
    begin = time.monotonic()
    yield
    did[cause] = did.get(cause, 0) + time.monotonic() - begin


def start():
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    image = b".version 8.0\n.target sm_90\n.address_size 64\n// simgpu: gemm_k ns=400000\n.visible .entry gemm_k()\n{ ret; }\n"
    check(cuda.cuModuleLoadData(ctypes.byref(module), image))
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"gemm_k"))
    return context, function


def launch(count=4):
    for _ in range(count):
        check(cuda.cuLaunchKernel(FUNCTION, 132, 1, 1, 128, 1, 1, 0, None, None, None))


def item():
    """As .item(): the host waits for the device, and goes on when it is done."""
    check(cuda.cuStreamSynchronize(None))


def load():
    time.sleep(0.12)


def augment():
    end = time.monotonic() + 0.08
    rows = 0
    while time.monotonic() < end:
        rows += sum(range(50))
    return rows


def sleeps():
    with timed("load"):
        load()
    with timed("augment"):
        augment()


def c_calls():
    with timed("digest"):
        digest()


def digest():
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 20_000)


def worker():
    """A batch comes from another thread, which is late."""
    ASKED.put(None)
    with timed("queue.Queue.get"):
        DONE.get()


def serve():
    while True:
        ASKED.get()
        time.sleep(0.1)
        DONE.put(None)


def allocates():
    """The call of the driver takes long."""
    memory = ctypes.c_uint64()
    with timed("cuMemAlloc_v2"):
        check(cuda.cuMemAlloc_v2(ctypes.byref(memory), 4096))
    check(cuda.cuMemFree_v2(memory))


def lock():
    held = threading.Lock()
    held.acquire()
    threading.Timer(0.1, held.release).start()
    with timed("hold"):
        hold(held)


def hold(held):
    held.acquire()


def collect():
    with timed("gc"):
        for _ in range(2):
            gc.collect()


def libraries():
    """The library functions that have names of their own, from a stand-in for torch."""
    with timed("DataLoader.__next__"):
        next(ITERATOR)
    with timed("torch.save"):
        torch.save({}, os.devnull)
    with timed("Optimizer.step"):
        torch.optim.optimizer.Optimizer().step()
    with timed("dist.barrier"):
        torch.distributed.distributed_c10d.barrier()


def thread():
    """Another thread launches, and waits."""
    def body():
        check(cuda.cuCtxSetCurrent(CONTEXT))
        launch()
        item()
        with timed("load"):
            load()

    other = threading.Thread(target=body, name="other")
    other.start()
    other.join()


def busy():
    for _ in range(10):
        launch(10)
        item()


def quick():
    """Each step has a pause of the host that is over soon."""
    with timed("load"):
        time.sleep(0.005)


def everything():
    for part in (sleeps, c_calls, worker, lock, collect, libraries):
        launch()
        item()
        part()


CONTEXT, FUNCTION = start()
ASKED, DONE = queue.Queue(), queue.Queue()
threading.Thread(target=serve, daemon=True).start()
name, steps = sys.argv[1], int(sys.argv[2])
if name in ("collect", "everything"):
    garbage = [[i] for i in range(200_000)]
if name in ("libraries", "everything"):
    import torch.distributed.distributed_c10d
    import torch.optim.optimizer
    import torch.utils.data.dataloader
    ITERATOR = torch.utils.data.dataloader._BaseDataLoaderIter()
elapsed = 0.0
for _ in range(steps):
    with mfuinject.region("step", batch=1, seq_len=8):
        begun = time.monotonic()
        launch()
        item()
        globals()[name]()
        elapsed += time.monotonic() - begun
print(json.dumps({"elapsed": elapsed, "causes": did}))
sys.stdout.flush()
os._exit(0) if len(sys.argv) > 3 else None
