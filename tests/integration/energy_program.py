"""A server whose board takes 700 W in prefill, 400 W in decode and 95 W idle, and says so in the file NVML_POWER_FILE, which the
stand-in for NVML reads: python3 energy_program.py SECONDS. Prints {"joules": {...}, "tokens": {...}} by region as JSON."""

import ctypes
import json
import mmap
import os
import random
import struct
import sys
import time

import mfuinject

WATTS = {"prefill": 700.0, "decode": 400.0, "idle": 95.0}
with open(os.environ["NVML_POWER_FILE"], "wb") as file:
    file.write(bytes(24))
board = mmap.mmap(os.open(os.environ["NVML_POWER_FILE"], os.O_RDWR), 24)
joules = {"prefill": 0.0, "decode": 0.0, "idle": 0.0}
state = ["idle", time.monotonic_ns()]


def becomes(what):
    now = time.monotonic_ns()
    joules[state[0]] += WATTS[state[0]] * (now - state[1]) * 1e-9
    state[:] = [what, now]
    board[:] = struct.pack("ddq", sum(joules.values()), WATTS[what], now)


becomes("idle")
cuda = ctypes.CDLL("libcuda.so.1")
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
image = b".version 8.0\n.target sm_90\n.address_size 64\n// simgpu: gemm_k ns=5000000\n.visible .entry gemm_k()\n{ ret; }\n"
assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"gemm_k") == 0
rng = random.Random(4)
tokens = {"prefill": 0, "decode": 0}


def work(region, kernels, **shape):
    becomes(region)
    with mfuinject.region(region, **shape):
        for _ in range(kernels):
            assert cuda.cuLaunchKernel(function, 132, 1, 1, 128, 1, 1, 0, None, None, None) == 0
        assert cuda.cuStreamSynchronize(None) == 0
    becomes("idle")


end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    # Long, so that what the host needs to begin and end a region is little beside it.
    for _ in range(rng.randrange(1, 8)):
        work("prefill", 10, batch=1, seq_len=1000)
        tokens["prefill"] += 1000
    for _ in range(rng.randrange(1, 8)):
        work("decode", 10, batch=8, seq_len=1, context=1000)
        tokens["decode"] += 8
    time.sleep(rng.random() * 0.4)
becomes("idle")
print(json.dumps({"joules": joules, "tokens": tokens}))
