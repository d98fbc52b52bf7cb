"""A program as people write them: the PyPI `nvtx` package marks prefill and decode of Qwen3-8B's shapes, and libcuda.so.1 runs
kernels with the names that real ones have. It knows nothing of the library. Prints what it did as JSON.

    python qwen3_client.py CONFIG.json ROUNDS PROMPT_TOKENS NEW_TOKENS
"""

import ctypes
import json
import sys

import nvtx

config = json.load(open(sys.argv[1]))
rounds, prompt, new_tokens = (int(word) for word in sys.argv[2:5])

cuda = ctypes.CDLL("libcuda.so.1")


def check(result):
    if result != 0:
        sys.exit(f"CUDA error {result}")


check(cuda.cuInit(0))
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuStreamCreate(ctypes.byref(stream), 1))

KERNELS = {
    "rms_norm": ("vectorized_layer_norm_kernel", 3000),
    "qkv": ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", 20000),
    "attention": ("flash_fwd_kernel", 15000),
    "o_proj": ("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", 12000),
    "mlp": ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8", 40000),
    "silu": ("act_and_mul_kernel", 4000),
    "decode": ("gemvx_kernel", 5000),
    "paged": ("paged_attention_v2_kernel", 4000),
}


def load(name, duration_ns):
    image = (f".version 8.0\n.target sm_90\n.address_size 64\n// simgpu: {name} ns={duration_ns}\n"
             f".visible .entry {name}()\n{{ ret; }}\n").encode()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuModuleLoadData(ctypes.byref(module), image))
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
    return function


functions = {key: load(*kernel) for key, kernel in KERNELS.items()}


def launch(key):
    check(cuda.cuLaunchKernel(functions[key], 132, 1, 1, 128, 1, 1, 0, stream, None, None))


layers = config["num_hidden_layers"]
launched = {"prefill": 0, "decode": 0, "outside": 0}


def forward(region, keys):
    for _ in range(layers):
        for key in keys:
            launch(key)
            launched[region] += 1


@nvtx.annotate("tokenizer", domain="app")
def tokenize():
    launch("silu")
    launched["outside"] += 1
    check(cuda.cuStreamSynchronize(stream))  # else it may run on into the prefill's time


# The decode step as a CUDA graph, as serving engines have it.
graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
check(cuda.cuStreamBeginCapture_v2(stream, 0))
for _ in range(layers):
    for key in ("rms_norm", "decode", "paged", "decode"):
        launch(key)
check(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
check(cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_uint64(0)))

graph_launches = 0
for _ in range(rounds):
    tokenize()
    with nvtx.annotate(f"prefill batch=1 seq_len={prompt}", color="green"):
        forward("prefill", ("rms_norm", "qkv", "attention", "o_proj", "mlp", "silu"))
        check(cuda.cuStreamSynchronize(stream))
    for _ in range(new_tokens):
        # No context is given: the library follows prompt length and steps.
        with nvtx.annotate("decode", domain="engine", payload=1):
            check(cuda.cuGraphLaunch(executable, stream))
            graph_launches += 1
            check(cuda.cuStreamSynchronize(stream))

print(json.dumps({"launched": launched, "graph_launches": graph_launches, "layers": layers}))
