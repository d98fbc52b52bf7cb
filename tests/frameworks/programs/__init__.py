"""The programs of the suite: how each is run, and what the library has to say of it."""

import dataclasses
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent / "models"
EXAMPLES = HERE.parent.parent.parent / "examples"
LLAMA = MODELS / "small-llama"

# What attention kernels do without cuBLAS.
GPT2 = {"heads": 12, "head_dim": 64, "layers": 12}
SMALL_LLAMA = {"heads": 16, "head_dim": 64, "layers": 8}
SMALL_QWEN3 = {"heads": 16, "head_dim": 128, "layers": 6}
SMALL_MIXTRAL = {"heads": 16, "head_dim": 64, "layers": 4}


def mixtral_experts(shape):
    """FLOP of small-mixtral's experts in a step, which CUTLASS multiplies: two of them for each token, three matrices of 1024 x 1792, in four layers,
    forward and twice that backward."""
    return 3 * 4 * shape["batch"] * shape["seq_len"] * 2 * 3 * 2 * 1024 * 1792


def mixtral_experts_of_pass(shape):
    """The same of a forward pass over a prompt; of few rows the experts are products of cuBLAS."""
    return 4 * shape["batch"] * (shape.get("seq_len") or 0) * 2 * 3 * 2 * 1024 * 1792


@dataclasses.dataclass
class Program:
    words: list  # the program and its arguments
    options: list = dataclasses.field(default_factory=list)  # of mfu run
    model: dict = None
    # FLOP of a region is attention plus what was asked of cuBLAS, 'logged': while it was open, 'captured': while its graph was made,
    # 'none': not compared.
    flop: str = "logged"
    # Region > what is found without ranges: at least a share (float) of the true instances, or all but so many (int). None: not tried.
    detected: dict = None
    # FLOP of products that do not go through cuBLAS, by the shape of the range.
    unseen: object = lambda shape: 0
    micro_batches: int = 1  # of the shape that the range names, in one region
    known: tuple = ()  # what fails and is understood, as regular expressions: shown, and no failure
    allowed: tuple = ()  # lines on stderr that are understood, as regular expressions
    processes: int = 1
    devices: int = 1  # of a process; a region has an instance on each
    launcher: tuple = ("python",)
    env: dict = dataclasses.field(default_factory=dict)
    deadline_s: int = 240  # of processor time, or of none at all
    # Where another profiler takes the records for a while: the least share of the instances that is measured all the same.
    measured: float = 1.0
    interpreter: bool = True  # run once more without ranges and without a config: the interpreter reports all
    ranges: bool = True  # run with its ranges; False: not all of them are regions by their names
    alone: bool = False  # run once more with its ranges and without a config: the interpreter reports what runs in them
    layers: tuple = ()  # passes, the layers of which are reported in one run more
    warm: bool = False  # one run more before the others, that compiles
    precision: float = 1e-6  # of FLOP that the interpreter's part says
    requirements: str = "requirements.txt"  # its packages

    def command(self, scratch):
        return [str(w) for w in self.words]


def gpt2(*words, **more):
    more = {"model": GPT2, "options": ["-c", str(MODELS / "gpt2")], "detected": {"step": 4}} | more
    return Program([HERE / "gpt2.py", *words], **more)


TORCHRUN = ("torchrun", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")

LLAMA_OPTIONS = ["-c", str(LLAMA)]


def nanogpt(*words):
    """A model without a Hugging Face config: what runs without one is counted by the interpreter alone."""
    words = [EXAMPLES / "nanogpt/train.py", "--steps", 20, "--batch", 4, "--seq-len", 512, *words]
    return Program(words, ["-c", str(EXAMPLES / "nanogpt/config.json")], model=GPT2, detected={"step": 4}, alone=len(words) == 7, warm=len(words) > 7)


COUNTED = r"\[mfu\] the config of the program's model does not give its FLOP, its products are counted: "


def t5_attention(shape):
    """Two layers of 8 x 64 in each half; all pairs of what the encoder reads, of the decoder's tokens and of the two."""
    encoder, read, new = shape.get("encoder", 0), shape.get("read", shape.get("encoder", 0)), shape.get("new", 0)
    pairs = encoder * encoder + new * (new + shape.get("context", 0)) + new * read
    return 4 * 2 * 8 * 64 * shape["batch"] * pairs * shape.get("passes", 1)


def kept_attention(shape):
    """Four layers of width 512: all pairs of a prompt's tokens up to each, and of a token and those before it."""
    new = shape["seq_len"]
    return 4 * 4 * 512 * shape["batch"] * (new * (new + 1) // 2 + new * shape["context"])


def train(model, dimensions, **more):
    words = [HERE / "train.py", "--config", MODELS / model]
    return Program(words, ["-c", str(MODELS / model)], model=dimensions, detected={"step": 4}, **more)


# Lines of vLLM's own start, with times.
STARTS = (r"autotuner\.py", r"\[W\d+", r"Gloo", r"it/s", r"resource_tracker", r"JIT kernel warmup")
# Lines that only the table of a run directory has.
TABLE = (r"\[mfu\] worth doing: ", r"\[mfu\]  +\S", r"\[mfu\] (config|cupti|interpreter): ")


def pairs_of_qwen3(shape):
    return 4 * SMALL_QWEN3["heads"] * SMALL_QWEN3["head_dim"] * SMALL_QWEN3["layers"] * shape["pairs"]


def vllm(*words, program="vllm_generate.py", **more):
    more = {
        "model": SMALL_QWEN3,
        "options": ["-c", str(MODELS / "small-qwen3")],
        "requirements": "requirements-vllm.txt",
        "env": {
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
            # Both would compile with nvcc, which a machine without a toolkit has not; the second runner asks the device how many tokens it sampled.
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "VLLM_USE_V2_MODEL_RUNNER": "0",
        },
        "allowed": STARTS,
    } | more
    return Program([HERE / program, "--config", MODELS / "small-qwen3", *words], **more)


def jax(program, *words, xla="", **more):
    """XLA opens a range for each run of a compiled function, by the name of which it is a region; the interpreter reports nothing."""
    env = {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": xla} | more.pop("env", {})
    more = {"flop": "none", "interpreter": False, "requirements": "requirements-jax.txt"} | more
    return Program([program, *words], env=env, **more)


# Ranges that are no step, as the rules of a user name them.
PARTS = {"forward": "forward", "backward": "backward", "eval": "forward", "optimizer": None, "batch": None, "data": None}
PART_RULES = {"regions": [{"region": name, "match": name} | ({"phase": phase} if phase else {}) for name, phase in PARTS.items()]}


def odd(mode, **more):
    """Without a config, since there are several models, and a detector of one takes turns for steps."""
    more = {"model": SMALL_LLAMA | {"layers": 2}} | more
    return Program([HERE / "odd.py", mode, LLAMA], ranges=False, **more)


def pairs_of_rows(width, shape):
    """Three layers of attention among all tokens."""
    return 3 * 4 * width * shape["batch"] * (shape["seq_len"] ** 2 + shape.get("other", 0) ** 2) * shape.get("passes", 1)


def package(mode, **more):
    return Program([HERE / "packages.py", mode], ranges=False, requirements="requirements-packages.txt", **more)


PROGRAMS = {
    "gpt2": gpt2("--steps", 30, alone=True, layers=("forward", "backward")),
    "gpt2-foreach": gpt2("--steps", 24, "--optimizer", "foreach"),
    "gpt2-accumulate": gpt2(
        "--steps", 20, "--batch", 2, "--accumulate", 4, micro_batches=4, alone=True,
        options=["-c", str(MODELS / "gpt2"), "--set", "workload.grad_accum=4"],
    ),
    "gpt2-checkpoint": gpt2("--steps", 20, "--checkpoint", flop="none", layers=("forward", "backward")),  # the products of recomputation are no model FLOP
    "gpt2-fp32": gpt2("--steps", 20, "--dtype", "fp32", "--batch", 2),
    "gpt2-tf32": gpt2("--steps", 20, "--dtype", "tf32", "--batch", 2),
    "gpt2-fork": gpt2("--steps", 20, "--workers", 2),
    "gpt2-spawn": gpt2("--steps", 20, "--workers", 2, "--start-method", "spawn"),
    # What goes to the other profiler's buffers is not in the account, and buffers that the library had handed out come back to it.
    "gpt2-profiler-own": gpt2(
        "--steps", 240, "--profile", detected=None, measured=0.2, options=["-c", str(MODELS / "gpt2"), "-i", "1"],
        known=("called with unknown buffer", r"collection.cpp.*Warning: ", r"launches: \d+ dropped"),
        allowed=("another profiler had CUPTI's records",),
    ),
    "gpt2-profiler-share": gpt2(
        "--steps", 240, "--profile", options=["-c", str(MODELS / "gpt2"), "--profiler", "share", "-i", "1"], detected=None, measured=0.2,
        interpreter=False,
        known=("called with unknown buffer", r"collection.cpp.*Warning: ", r"launches: \d+ (dropped|seen, the driver counted)"),
        allowed=("another profiler had CUPTI's records",),
    ),
    # Backward, a product of each layer runs after the first one of the next layer.
    "gpt2-compile": gpt2("--steps", 30, "--compile", "default", warm=True, layers=("forward",)),
    "gpt2-compile-graphs": gpt2("--steps", 30, "--compile", "reduce-overhead", warm=True, flop="none", detected={}),
    "nanogpt": nanogpt(),
    "nanogpt-compile": nanogpt("--compile"),
    "nanogpt-compile-blocks": nanogpt("--compile", "blocks"),
    "nanogpt-ranks": Program(
        [EXAMPLES / "nanogpt/train.py", "--steps", 20, "--batch", 2, "--seq-len", 256],
        ["-c", str(EXAMPLES / "nanogpt/config.json")],
        model=GPT2,
        launcher=TORCHRUN,
        processes=2,
        env={"SIMGPU_DEVICES": "2"},
        detected={"step": 4},
    ),
    "trainer": Program(
        [
            EXAMPLES / "hf_trainer/train.py",
            "--model",
            MODELS / "gpt2",
            "--steps",
            20,
            "--batch",
            2,
            "--seq-len",
            256,
            "--grad-accum",
            2,
        ],
        ["-c", str(MODELS / "gpt2"), "--set", "workload.grad_accum=2"],
        model=GPT2,
        micro_batches=2,
        detected={"step": 4},
        alone=True,
    ),
    "llama": train("small-llama", SMALL_LLAMA),
    "qwen3": train("small-qwen3", SMALL_QWEN3),
    "mixtral": train("small-mixtral", SMALL_MIXTRAL, unseen=mixtral_experts),
    "generate": Program(
        [HERE / "generate.py", "--config", LLAMA], LLAMA_OPTIONS, model=SMALL_LLAMA, detected={"passes": 0.5}, alone=True,
        layers=("prefill", "decode"),
    ),
    "generate-sampled": Program(
        [HERE / "generate.py", "--config", LLAMA, "--sample"], LLAMA_OPTIONS, model=SMALL_LLAMA, detected={"passes": 0.85}
    ),
    "generate-gpt2": Program(
        [HERE / "generate.py", "--config", MODELS / "gpt2"], ["-c", str(MODELS / "gpt2")], model=GPT2, detected={"passes": 0.5}
    ),
    "generate-mixtral": Program(
        [HERE / "generate.py", "--config", MODELS / "small-mixtral"],
        ["-c", str(MODELS / "small-mixtral")],
        model=SMALL_MIXTRAL,
        unseen=mixtral_experts_of_pass,
        detected={"passes": 0.5},
    ),
    "hf-generate": Program(
        [
            EXAMPLES / "hf_generate/generate.py",
            "--model",
            LLAMA,
            "--random-weights",
            "--batch",
            2,
            "--prompt-len",
            64,
            "--new-tokens",
            32,
            "--rounds",
            3,
        ],
        LLAMA_OPTIONS,
        model=SMALL_LLAMA,
    ),
    "decode-graph": Program(
        [HERE / "decode_graph.py", "--config", LLAMA],
        LLAMA_OPTIONS,
        model=SMALL_LLAMA,
        flop="captured",
        detected={"decode": 3},  # those before the capture
        alone=True,
        layers=("decode",),
    ),
    "lora": Program(
        [HERE / "lora.py", "--config", LLAMA],
        ["-c", str(MODELS / "small-llama-lora.json")],
        model=SMALL_LLAMA,
        alone=True,
        detected={"step": 4},
    ),
    "parts": Program([HERE / "parts.py"], ["-c", json.dumps(PART_RULES)], interpreter=False),
    "resnet50": Program([HERE / "resnet50.py"], [], flop="none", detected={}),
    "gan": odd("gan", model=None),
    "shared": odd("shared", model=None),
    "frozen": odd("frozen", model=None),
    "critic": odd("critic", model=None),
    # The teacher has as many FLOP of attention forward again, of twice the layers; generation and the reference model have theirs.
    "distill": odd("distill", unseen=lambda shape: 4 * 16 * 64 * 4 * shape["batch"] * shape["seq_len"] * (shape["seq_len"] + 1) // 2),
    "rl": odd("rl", flop="none"),
    "lengths": odd("lengths"),
    "closure": odd("closure", model=None),
    # Three layers of all pairs, and twice that backward.
    "processor": odd("processor", model=None, unseen=lambda shape: 3 * 3 * 4 * 512 * shape["batch"] * shape["seq_len"] ** 2),
    "handmade": odd("handmade", model=None),
    "recurrent": odd("recurrent", model=None),
    "by-hand": odd("by-hand", model=None),
    "kept": odd("kept", model=None, unseen=kept_attention),
    "kept-products": odd("kept-products", model=None),
    "dropped": odd("dropped", model=None),
    "graph": odd("graph", model=None),
    "attack": odd("attack", model=None),
    "penalty": odd("penalty", model=None),
    "forces": odd("forces", model=None),
    "autoencoder": odd("autoencoder", model=None),
    "seq2seq": odd("seq2seq", model=None, unseen=t5_attention, allowed=(COUNTED + "it needs encoder_len",)),
    "loss-network": odd("loss-network", model=None),
    "pictures": odd("pictures", model=None, allowed=(COUNTED + "it needs images",)),
    # Queries see all keys, and not half of them.
    "embed": odd(
        "embed",
        model={"heads": 12, "head_dim": 64, "layers": 4},
        unseen=lambda shape: 4 * 12 * 64 * 4 * shape["batch"] * shape["seq_len"] * (shape["seq_len"] - 1) // 2,
    ),
    "cut": odd("cut", allowed=(COUNTED + "it needs as many parameters as the model has",)),
    "ddp": Program(
        [HERE / "ranks.py", "--config", LLAMA],
        LLAMA_OPTIONS,
        model=SMALL_LLAMA,
        launcher=TORCHRUN,
        processes=2,
        env={"SIMGPU_DEVICES": "2"},
        detected={"step": 4},
    ),
    # Each rank has half of the heads, and the whole embedding and output matrix.
    "tensor-parallel": Program(
        [HERE / "tensor_parallel.py", "--config", LLAMA],
        model=SMALL_LLAMA | {"heads": 8, "layers": 2},
        launcher=TORCHRUN,
        processes=2,
        env={"SIMGPU_DEVICES": "2"},
        ranges=False,
    ),
    "fsdp": Program(
        [HERE / "ranks.py", "--config", LLAMA, "--how", "fsdp"],
        LLAMA_OPTIONS,
        model=SMALL_LLAMA,
        alone=True,
        layers=("forward", "backward"),
        launcher=TORCHRUN,
        processes=2,
        env={"SIMGPU_DEVICES": "2"},
        detected={"step": 4},
    ),
}

PACKAGES = {
    "lightning": package("lightning", unseen=lambda shape: pairs_of_rows(256, shape)),
    "sentences": package("sentences", unseen=lambda shape: pairs_of_rows(256, shape)),
    "timm": package("timm", unseen=lambda shape: pairs_of_rows(192, shape)),
    # How long its documents are, the device alone knows.
    "titan": package("titan", flop="none"),
    "titan-graphs": package("titan-graphs", flop="none"),
}

VLLM_PROGRAMS = {
    "vllm": vllm(detected={"decode": 0.97, "prefill": 0.6}),
    # The engine in a child that was forked, as vLLM does it by default; which rounds begin together is a matter of time, so nothing is named.
    "vllm-engine": vllm("--engine-process", detected={}, flop="none"),
    # The mean context of a pass is a whole number.
    "vllm-chunked": vllm("--lengths", "chunked", model=None, unseen=pairs_of_qwen3, ranges=False, precision=2e-4),
    "vllm-prefix": vllm("--lengths", "prefix", model=None, unseen=pairs_of_qwen3, ranges=False, precision=2e-4),
    # Its engine is killed at once: `mfu run` asks for the run so far before it passes SIGTERM on, and prints the table.
    "vllm-serve": vllm(
        program="vllm_serve.py", model=None, unseen=pairs_of_qwen3, ranges=False, precision=2e-4,
        allowed=(*STARTS, r"^INFO: ", r"\[mfu\] ended without its last line; from the run directory, with the window", *TABLE),
    ),
    "vllm-graphs": vllm("--graphs", detected={}, flop="none", warm=True, deadline_s=900),
}

# XLA runs a step as one CUDA graph, and multiplies by kernels of its own; both can be switched off.
JAX_PROGRAMS = {
    "jax": jax(HERE / "jax_train.py"),
    "jax-nodes": jax(HERE / "jax_train.py", env={"MFU_GRAPHS": "node"}),
    "jax-devices": jax(HERE / "jax_train.py", "--devices", 2, env={"SIMGPU_DEVICES": "2"}, devices=2, allowed=(r"\[mfu\] total  ",), known=("ncclCommQueryProperties",)),
    "jax-kernels": jax(HERE / "jax_train.py", xla="--xla_gpu_enable_command_buffer="),
    "jax-cublas": jax(HERE / "jax_train.py", xla="--xla_gpu_enable_command_buffer= --xla_gpu_enable_triton_gemm=false", flop="executed"),
}

# Of `check --packages` and so on: what needs packages of its own.
SETS = {"packages": PACKAGES, "vllm": VLLM_PROGRAMS, "jax": JAX_PROGRAMS}
