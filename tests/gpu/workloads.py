#!/usr/bin/env python3
"""The PyTorch programs that the suites measure. Each runs in a process of its own and prints one JSON object.

Every program emits the same NVTX ranges whatever watches it, and times its regions with CUDA events of its own.
"""
import argparse
import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda"


class Regions:
    """Opens regions: an NVTX range, CUDA events at both ends, and an annotation for torch.profiler if asked."""

    def __init__(self, annotate=False, ranges=True):
        self.enabled = False
        self.annotate = annotate
        self.ranges = ranges
        self.events = {}

    @contextlib.contextmanager
    def open(self, region, text):
        if not self.enabled:
            yield
            return
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        annotation = torch.profiler.record_function(region) if self.annotate else contextlib.nullcontext()
        if self.ranges:
            torch.cuda.nvtx.range_push(text)
        try:
            with annotation:
                begin.record()
                yield
                end.record()
        finally:
            if self.ranges:
                torch.cuda.nvtx.range_pop()
        self.events.setdefault(region, []).append((begin, end))

    def seconds(self):
        """{region: (instances, seconds by events)}. Only after a synchronisation."""
        return {region: (len(pairs), sum(a.elapsed_time(b) for a, b in pairs) * 1e-3)
                for region, pairs in self.events.items()}


@contextlib.contextmanager
def watched_by(profiler, trace):
    """Runs the body under torch.profiler, under Proton or under nothing."""
    if profiler == "torch":
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as session:
            yield
        if trace:
            session.export_chrome_trace(trace)
    elif profiler == "proton":
        import triton.profiler as proton
        proton.start(trace or "proton", backend="cupti")
        yield
        proton.finalize()
    else:
        yield


def gpm_sample():
    """A sample of the hardware's own utilisation counters (Hopper and newer), or None."""
    try:
        import pynvml
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        sample = pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlGpmSampleGet(device, sample)
        return sample
    except Exception:  # no pynvml, an old GPU, no rights: the figure is then absent
        return None


def gpm_tensor_utilisation(first, second):
    """Percent of cycles with tensor cores active between two samples, or None."""
    if first is None or second is None:
        return None
    try:
        import pynvml
        query = pynvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 1
        query.sample1, query.sample2 = first, second
        query.metrics[0].metricId = pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
        pynvml.nvmlGpmMetricsGet(query)
        return query.metrics[0].value
    except Exception:
        return None


def build_model(path):
    """A Hugging Face model with random bf16 weights, from a config file alone."""
    import transformers
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
    config.use_cache = True
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    return model.to(torch.bfloat16), config


def train(args):
    """Training steps: forward, backward (on autograd's own thread), optimizer. Region: step."""
    model, config = build_model(args.config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=DEVICE == "cuda")
    regions = Regions(annotate=args.profiler == "torch", ranges=not args.no_ranges)
    tokens = torch.randint(0, config.vocab_size, (args.batch, args.seq), device=DEVICE)

    def step():
        with regions.open("step", "train_step"):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    for _ in range(args.warmup):
        step()
    torch.cuda.synchronize()
    regions.enabled = True
    first = gpm_sample()
    with watched_by(args.profiler, args.trace):
        for _ in range(args.steps):
            step()
        torch.cuda.synchronize()
    utilisation = gpm_tensor_utilisation(first, gpm_sample())
    return {"regions": regions.seconds(), "tokens": args.steps * args.batch * args.seq,
            "gpm_tensor_percent": utilisation}


def generate(args):
    """Hugging Face `generate`, its forward passes wrapped: one prefill, then one decode pass a token."""
    model, config = build_model(args.config)
    model.eval()
    model.generation_config.eos_token_id = None
    regions = Regions(annotate=args.profiler == "torch", ranges=not args.no_ranges)
    prompt = torch.randint(0, config.vocab_size, (args.batch, args.seq), device=DEVICE)
    forward = model.forward
    past = 0

    @functools.wraps(forward)
    def wrapped(*positional, **named):
        nonlocal past
        new = (named["input_ids"] if "input_ids" in named else positional[0]).shape[1]
        if new > 1:
            region, text, past = "prefill", f"prefill batch={args.batch} seq_len={new}", 0
        else:
            region, text = "decode", f"decode batch={args.batch} context={past}"
        past += new
        with regions.open(region, text):
            return forward(*positional, **named)

    model.forward = wrapped

    def call(new_tokens):
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, pad_token_id=0,
                              max_new_tokens=new_tokens, min_new_tokens=new_tokens)

    with torch.no_grad():
        call(4)
        torch.cuda.synchronize()
        regions.enabled = True
        with watched_by(args.profiler, args.trace):
            for _ in range(args.steps):
                out = call(args.new_tokens)
            torch.cuda.synchronize()
    return {"regions": regions.seconds(), "generated": int(out.shape[1] - args.seq)}


class Block(nn.Module):
    """One layer of a plain decoder, small enough that launching it costs more than running it."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(3 * hidden, hidden, bias=False)

    def split(self, x):
        batch, new, _ = x.shape
        return (part.view(batch, new, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))

    def finish(self, x, attended):
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))

    def forward(self, x):
        q, k, v = self.split(x)
        return self.finish(x, functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def decode(self, x, keys, values, slot):
        q, k, v = self.split(x)
        keys.index_copy_(2, slot, k)
        values.index_copy_(2, slot, v)
        return self.finish(x, functional.scaled_dot_product_attention(q, keys, values))


class Loops:
    """The three loops whose slowdown is measured: eager decode, decode as one CUDA graph, training."""

    def __init__(self, layers=24, hidden=1024, heads=16, context=512):
        torch.manual_seed(1)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers)).to(DEVICE, torch.bfloat16)
        shape = (1, heads, context, hidden // heads)
        self.caches = [(torch.zeros(shape, device=DEVICE, dtype=torch.bfloat16),
                        torch.zeros(shape, device=DEVICE, dtype=torch.bfloat16)) for _ in range(layers)]
        self.token = torch.randn(1, 1, hidden, device=DEVICE, dtype=torch.bfloat16)
        self.slot = torch.tensor([7], device=DEVICE)
        self.batch = torch.randn(8, 512, hidden, device=DEVICE, dtype=torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.blocks.parameters(), lr=1e-5, foreach=True)
        self.graph = None

    def decode_pass(self):
        x = self.token
        for block, (keys, values) in zip(self.blocks, self.caches):
            x = block.decode(x, keys, values, self.slot)
        return x

    def eager(self):
        torch.cuda.nvtx.range_push("decode")
        with torch.no_grad():
            self.decode_pass()
        torch.cuda.nvtx.range_pop()

    def capture(self):
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.decode_pass()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.decode_pass()

    def replay(self):
        torch.cuda.nvtx.range_push("decode")
        self.graph.replay()
        torch.cuda.nvtx.range_pop()

    def step(self):
        torch.cuda.nvtx.range_push("train_step")
        x = self.batch
        for block in self.blocks:
            x = block(x)
        x.float().square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.nvtx.range_pop()


def milliseconds_each(body, chunks, per_chunk):
    """Median over chunks of the wall time of one call, the device drained at the end of each chunk."""
    for _ in range(per_chunk):
        body()
    torch.cuda.synchronize()
    each = []
    for _ in range(chunks):
        begin = time.perf_counter()
        for _ in range(per_chunk):
            body()
        torch.cuda.synchronize()
        each.append((time.perf_counter() - begin) / per_chunk * 1e3)
    return sorted(each)[len(each) // 2]


def loops(args):
    """ms per iteration of each loop under one profiler."""
    work = Loops()
    work.capture()
    with watched_by(args.profiler, args.trace):  # few enough iterations that a profiler's own clean-up stays short
        found = {"eager decode": milliseconds_each(work.eager, 9, 20),
                 "graph decode": milliseconds_each(work.replay, 9, 40),
                 "training": milliseconds_each(work.step, 5, 4)}
    return {"ms": found}


def sessions(args):
    """torch.profiler started and stopped again and again while whatever was injected runs on."""
    work = Loops(layers=4)
    work.step()
    found = []
    for _ in range(args.steps):
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as session:
            for _ in range(3):
                work.step()
            torch.cuda.synchronize()
        rows = [e for e in session.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        bad = sum(1 for e in rows if e.time_range.end < e.time_range.start)
        found.append({"gpu_rows": len(rows), "bad_times": bad})
        until = time.monotonic() + args.pause
        while time.monotonic() < until:
            work.step()
        torch.cuda.synchronize()
    return {"sessions": found}


def _child():
    print("child", float(torch.ones(8, 8, device=DEVICE).matmul(torch.ones(8, 8, device=DEVICE)).sum()), flush=True)


def leave(args):
    """Work, then one way for a Python process to end."""
    print("worked", float(torch.ones(64, 64, device=DEVICE).matmul(torch.ones(64, 64, device=DEVICE)).sum()), flush=True)
    if args.how == "thread":
        thread = threading.Thread(target=lambda: sys.exit(3))
        thread.start()
        thread.join()
    elif args.how == "_exit":
        os._exit(3)
    elif args.how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    elif args.how == "spawn":
        context = torch.multiprocessing.get_context("spawn")
        child = context.Process(target=_child)
        child.start()
        child.join()
        print("child ended with", child.exitcode, flush=True)
    sys.exit(3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = {"train": train, "generate": generate, "loops": loops, "sessions": sessions, "leave": leave}
    parser.add_argument("command", choices=commands)
    parser.add_argument("--config", help="a Hugging Face config.json")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--no-ranges", action="store_true", help="emit no NVTX ranges")
    parser.add_argument("--profiler", choices=("none", "torch", "proton"), default="none")
    parser.add_argument("--trace", help="where the profiler's result goes")
    parser.add_argument("--how", default="return")
    args = parser.parse_args()
    print(json.dumps(commands[args.command](args)))


if __name__ == "__main__":
    main()
