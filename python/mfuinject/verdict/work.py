"""The programs that are measured: `python -m mfuinject.verdict.work NAME ARGUMENTS` does one thing and prints a line of JSON.

None of them calls mfuinject: the environment alone decides whether the library is in the process.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

from .driver import Blas, Cuda, DriverError, Nvml
from .statistics import median, quantile


def init() -> dict[str, Any]:
    """cuInit, and a launch if there is a device."""
    try:
        Cuda(init_only=True)
    except DriverError as error:
        return {"cuInit": error.code}
    except OSError as error:
        return {"cuInit": None, "why": str(error)}
    cuda = Cuda()
    cuda.launch_empty()
    cuda.synchronize()
    return {"cuInit": 0, "devices": cuda.devices()}


def launches(count: int, blocks: int) -> dict[str, Any]:
    """What a launch of an empty kernel takes the host, in batches that fit the driver's queue."""
    cuda = Cuda()
    batch, each, slow = 500, [], []
    for _ in range(4):
        cuda.launch_empty(blocks)
    cuda.synchronize()
    for _ in range(max(1, count // batch)):
        begin = before = time.perf_counter_ns()
        for _ in range(batch):
            cuda.launch_empty(blocks)
            now = time.perf_counter_ns()
            slow.append(now - before)
            before = now
        each.append((before - begin) / batch)
        cuda.synchronize()
    return {"ns": median(each), "p50_ns": quantile(slow, 0.5), "p999_ns": quantile(slow, 0.999)}


def kernel_time(blocks: int, count: int) -> dict[str, Any]:
    """What a kernel of many short blocks takes the device, by events."""
    cuda = Cuda()
    cuda.launch_empty(blocks)
    cuda.synchronize()
    return {"ns": median([cuda.timed(lambda: cuda.launch_empty(blocks)) for _ in range(count)]) * 1e9}


def graph(nodes: int, count: int) -> dict[str, Any]:
    """What a launch of a graph of empty kernels takes the host, and until it is done."""
    cuda = Cuda()
    executable = cuda.graph_of_empty_kernels(nodes)
    host, done = [], []
    for _ in range(count):
        begin = time.perf_counter_ns()
        cuda.launch_graph(executable)
        host.append(time.perf_counter_ns() - begin)
        cuda.synchronize()
        done.append(time.perf_counter_ns() - begin)
    return {"host_ns": median(host), "done_ns": median(done)}


def known(loop_s: float) -> dict[str, Any]:
    """Kernels of known length: single ones between events, two streams at once, a graph, `loop_s` seconds of launches without any
    synchronisation, and one that still runs at the end. Returns counts, and times in s; CUPTI has no part in those by events."""
    cuda = Cuda()
    spin, other = cuda.spinner(), cuda.new_stream()
    singles, pairs, graphs, nodes, loop = 50, 100, 10, 20, int(loop_s * 1000)
    by_events = [cuda.timed(lambda: spin(400_000, cuda.stream)) for _ in range(singles)]
    for _ in range(pairs):
        spin(200_000, cuda.stream)
        spin(200_000, other)
    cuda.synchronize()
    cuda.call("cuStreamSynchronize", other)
    executable = cuda.graph_of(nodes, lambda: spin(50_000, cuda.stream))
    for _ in range(graphs):
        cuda.launch_graph(executable)
    cuda.synchronize()
    begin = time.time_ns()
    for _ in range(loop):
        spin(1_000_000, cuda.stream)
    cuda.synchronize()
    end = time.time_ns()
    spin(3_000_000_000, other)
    return {
        "launches": singles + 2 * pairs + graphs + loop + 1,
        "kernels": singles + 2 * pairs + graphs * nodes + loop,  # that ran to their end
        "kernel_s": (singles * 400_000 + 2 * pairs * 200_000 + graphs * nodes * 50_000 + loop * 1_000_000) * 1e-9,
        # The GPU waits for a host that is interrupted between an event and the launch: the median counts for all.
        "by_events_s": median(by_events) * singles,
        "measured_alone_s": singles * 400_000 * 1e-9,
        "loop_begin_ns": begin,
        "loop_end_ns": end,
    }


def exhaust(nodes: int, count: int) -> dict[str, Any]:
    """Many kernels in graphs; the device memory that goes with them."""
    cuda = Cuda()
    executable = cuda.graph_of_empty_kernels(nodes)
    before = cuda.free_memory()
    for i in range(count):
        cuda.launch_graph(executable)
        if i % 8 == 7:
            cuda.synchronize()
    cuda.synchronize()
    return {"kernels": nodes * count, "device_bytes": before - cuda.free_memory()}


def products(path: str, size: int, count: int) -> dict[str, Any]:
    """bf16 products of known size through cuBLAS."""
    cuda = Cuda()
    blas = Blas(cuda, path)
    matrices = [cuda.allocate(2 * size * size) for _ in range(3)]
    for matrix in matrices:
        cuda.call("cuMemsetD8_v2", matrix, 0x3C, ctypes.c_size_t(2 * size * size))  # bf16 of 0.0115: no zeros to save power
    blas.product(size, size, size, *matrices)
    cuda.synchronize()
    took = cuda.timed(lambda: [blas.product(size, size, size, *matrices) for _ in range(count)])
    return {"flop": 2 * size**3 * (count + 1), "s": took, "flop_per_s": 2 * size**3 * count / took}


def energy(seconds: float) -> dict[str, Any]:
    """NVML's counter and power over a time: how often the counter changes, what calls take."""
    nvml = Nvml()
    samples, calls, powers = [], [], []
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        before = time.perf_counter_ns()
        value = nvml.energy_mj()
        calls.append((time.perf_counter_ns() - before) / 1e3)
        samples.append((time.monotonic(), value))
        powers.append(nvml.power_mw() / 1e3)
        time.sleep(0.002)
    changes = [t for (_, a), (t, b) in zip(samples, samples[1:]) if a != b]
    gaps = [b - a for a, b in zip(changes, changes[1:])]
    (first, low), (last, high) = samples[0], samples[-1]
    return {
        "watts": (high - low) / 1e3 / (last - first),
        "power_w": median(powers),
        "period_s": median(gaps) if gaps else None,
        "call_us": median(calls),
        "call_max_us": max(calls),
        "backwards": sum(b < a for (_, a), (_, b) in zip(samples, samples[1:])),
        "sm_clock_mhz": nvml.sm_clock_mhz(),
    }


def torch_steps(seconds: float, width: int, layers: int, mode: str) -> dict[str, Any]:
    """A small decoder of plain PyTorch, trained in bf16 for so long: ms per step by the program's own clock, of all and of
    the first and the last quarter of its time."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    heads, length, batch, vocabulary = width // 64, 512, 4, 8192

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, heads, 64).permute(2, 0, 3, 1, 4)
            a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    model = Decoder().cuda().to(torch.bfloat16)
    if mode == "compile":
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, vocabulary, (batch, length), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=False):
            logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.float().view(-1, vocabulary), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    each = []
    origin = now = time.perf_counter()
    while now - origin < seconds:
        torch.cuda.nvtx.range_push(f"step batch={batch} seq_len={length}")
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        now = time.perf_counter()
        each.append((begin - origin, now - begin))
        torch.cuda.nvtx.range_pop()

    def of(low: float, high: float) -> float:
        return median([took for at, took in each if low * seconds <= at < high * seconds] or [each[-1][1]]) * 1e3

    tokens_per_step = batch * length
    matrices = layers * 12 * width * width + vocabulary * width
    # 6 FLOP per weight and token, and 3 x 2 x 2 x width per pair of tokens that the causal mask allows (arXiv:2204.02311 B).
    flop = 6 * matrices * tokens_per_step + 12 * layers * width * batch * length * (length + 1) / 2
    return {
        "ms": of(0, 1),
        "first_ms": of(0, 0.25),
        "last_ms": of(0.75, 1),
        "flop_per_step": flop,
        "tokens_per_step": tokens_per_step,
        "torch": torch.__version__,
        "config": {"width": width, "layers": layers, "heads": heads, "vocabulary": vocabulary},
    }


def rank(steps: int, sleeper: int) -> dict[str, Any]:
    """One rank of a data-parallel job; rank `sleeper` sleeps 50 ms before each of the later collectives."""
    import os

    import torch
    import torch.distributed as dist

    me = int(os.environ["RANK"])
    torch.cuda.set_device(me)
    dist.init_process_group("nccl")
    values = torch.ones(16 << 20, device="cuda")
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for i in range(steps):
        torch.cuda.nvtx.range_push("step")
        matrix @ matrix
        if me == sleeper and i >= 5:
            time.sleep(0.05)
        dist.all_reduce(values)
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    dist.destroy_process_group()
    return {"rank": me}


PROGRAMS = {
    "init": init,
    "launches": launches,
    "kernel_time": kernel_time,
    "graph": graph,
    "known": known,
    "exhaust": exhaust,
    "products": products,
    "energy": energy,
    "torch_steps": torch_steps,
    "rank": rank,
}


def main(argv: list[str]) -> int:
    arguments: list[Any] = []
    for word in argv[1:]:
        try:
            arguments.append(json.loads(word))
        except ValueError:
            arguments.append(word)
    try:
        said = PROGRAMS[argv[0]](*arguments)
    except (DriverError, OSError, ImportError, AttributeError) as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)
    return 1 if "error" in said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
