"""A program that names its regions with mfuinject.region, and launches kernels in them through libcuda.so.1. Prints what it
saw of itself as JSON."""

import ctypes
import json
import sys
import threading

import mfuinject

seen = {"raised": []}

cuda = ctypes.CDLL("libcuda.so.1")


def check(result):
    if result != 0:
        sys.exit(f"CUDA error {result}")


outer = mfuinject.region("prefill", batch=2, seq_len=64)  # asked for, and entered, before CUDA starts
outer.__enter__()
check(cuda.cuInit(0))
context = ctypes.c_void_p()
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
module, function = ctypes.c_void_p(), ctypes.c_void_p()
image = b".version 8.0\n.target sm_90\n.address_size 64\n// simgpu: gemm_k ns=20000\n.visible .entry gemm_k()\n{ ret; }\n"
check(cuda.cuModuleLoadData(ctypes.byref(module), image))
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"gemm_k"))


def launch():
    check(cuda.cuLaunchKernel(function, 132, 1, 1, 128, 1, 1, 0, None, None, None))


launch()
check(cuda.cuCtxSynchronize())
outer.__exit__()

decode = mfuinject.region("decode", batch=4, context=100)  # one object, used again and again


def decode_some():
    check(cuda.cuCtxSetCurrent(context))
    for _ in range(5):
        with decode:
            launch()
            check(cuda.cuCtxSynchronize())


decode_some()
thread = threading.Thread(target=decode_some)
thread.start()
thread.join()


@mfuinject.region("step", batch=1, seq_len=32)
def step(n, *, fail=False):
    """Its own docstring."""
    launch()
    check(cuda.cuCtxSynchronize())
    if fail:
        raise ValueError("the program's own")
    return n + 1


seen["returned"] = step(step(1))
try:
    step(1, fail=True)
except ValueError as error:
    seen["raised"].append(str(error))
seen["wrapped"] = [step.__name__, step.__doc__]

# A shape that is no number, text that is no UTF-8, a name of another alphabet: the program's business, not ours.
for wrong in (lambda: mfuinject.region("step", batch="many"), lambda: mfuinject.region("\udcff", tokens=-1),
              lambda: mfuinject.region("шаг", tokens=3.5)):
    with wrong():
        pass


async def coroutine():
    pass


def generator():
    yield


for suspends in (coroutine, generator):
    try:
        mfuinject.region("step")(suspends)
    except TypeError as error:
        seen["raised"].append(str(error).split(":")[0])
try:
    mfuinject.region("step", sequences=1)
except TypeError as error:
    seen["raised"].append("sequences" in str(error))

print(json.dumps(seen))
