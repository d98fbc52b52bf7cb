"""FLOP of models without a config, as the interpreter's part counts them, against PyTorch's own counter of operators. On the CPU.

Every model runs eager, compiled in several ways, sharded and distributed; what is counted must be the same in all of them. Prints a line
for each model and way, and exits with 1 where one is wrong.
"""

import contextlib
import os
import pathlib
import sys
import types
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

PARTS = [pathlib.Path(__file__).parents[2] / "injection/interpreter" / f"{part}.py" for part in ("objects", "flop", "watch")]
PASS_BEGIN, PASS_END, PASS_WORK = 0, 1, 9
WIDTH, HEADS, WORDS, BATCH, LENGTH = 32, 4, 100, 2, 16
facts = []


def numbers_of_passes():
    """What says their FLOP: that of the end, if there is one."""
    numbers = []
    for kind, _, _, number, *_ in facts:
        if kind == PASS_BEGIN:
            numbers.append(number)
        elif kind == PASS_END:
            numbers[-1] = number or numbers[-1]
    return numbers


def listen(asked=lambda: 0):
    """`asked`: FLOP that cuBLAS was asked for since it was called last."""
    functions = {"post": lambda *fact: facts.append(fact), "tell": lambda *words: None}
    functions |= {"refused": lambda model: None, "guard": lambda function: function, "layers": False}
    functions |= {"at_end": lambda number: lambda reference: None, "asked": asked}
    exec(compile("".join(part.read_text() for part in PARTS), "<mfuinject>", "exec"), functions)  # as the library does


class Attention(nn.Module):
    causal = False

    def __init__(self, width):
        super().__init__()
        self.parts, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)

    def forward(self, x):
        parts = (y.unflatten(2, (HEADS, -1)).transpose(1, 2) for y in self.parts(x).chunk(3, 2))
        return x + self.out(self.attend(*parts).transpose(1, 2).flatten(2))


class Causal(Attention):
    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=False)


class Processed(Attention):
    """Attention by an object that is no module, as in diffusers."""

    class Processor:
        def __call__(self, query, key, value):
            return F.scaled_dot_product_attention(query=query, key=key, value=value, attn_mask=None, is_causal=False)

    def __init__(self, width):
        super().__init__(width)
        self.attend = self.Processor()


class Block(nn.Module):
    def __init__(self, width=WIDTH, attention=Attention):
        super().__init__()
        self.attention, self.norm = attention(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.attention(self.norm(x)))))


class Broken(Block):
    def forward(self, x):
        x = self.attention(self.norm(x))
        torch._dynamo.graph_break()
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    """A language model whose head is its table of words."""

    def __init__(self, block=Block, shared=False, frozen=False, recomputed=False):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.words.weight = self.head.weight
        self.layers = nn.ModuleList([block()] * 3 if shared else [block() for _ in range(3)])
        self.recomputed = recomputed
        if frozen:
            self.layers[1].requires_grad_(False)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recomputed else layer(x)
        return self.head(x)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2), nn.ConvTranspose2d(8, 4, 2, stride=2)])
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x.mean((2, 3)))


class Scaled(nn.Module):
    """A convolution of the program's own, whose matrix is scaled in each pass."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(outputs, inputs, 3, 3)), nn.Parameter(torch.zeros(outputs))
        self.scale, self.stride = (9 * inputs) ** -0.5, stride

    def forward(self, x):
        return F.conv2d(x, self.weight * self.scale, self.bias, self.stride, padding=1)


def upwards(x, weight):
    return F.conv_transpose2d(x, weight, stride=2)


class Convolving(nn.Module):
    """Calls of functions that convolve: with matrices that train, with one that is a buffer, and with one that another module has."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList([Scaled(3, 8), Scaled(8, 8, 2)]), nn.Linear(4, 10)
        self.up, self.plain = nn.Parameter(torch.randn(8, 4, 2, 2)), nn.Conv2d(8, 8, 1)
        self.line = nn.Parameter(torch.randn(4, 4, 3))
        self.register_buffer("blur", torch.ones(1, 1, 3, 3) / 18)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        blur = self.blur.to(x.dtype)
        x = self.plain(F.conv2d(x, blur.mul(2).tile([8, 1, 1, 1]), stride=(1, 1), padding=(1, 1), groups=8))
        x = self.plain._conv_forward(x, self.plain.weight * 2, None)
        x = upwards(x, self.up)
        w = self.line.to(x.dtype)
        return self.head(F.conv1d(x.flatten(2), w, padding="same", dilation=2).mean(2))


class Widths(nn.Module):
    """Blocks of two widths in turns: what was traced of one is not that of its neighbour."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(32), nn.Linear(32, 64), Block(64), nn.Linear(64, 32), Block(32)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Matrices(nn.Module):
    """A matrix that no module of PyTorch holds, and a part that is never compiled."""

    def __init__(self):
        super().__init__()
        self.matrix, self.layers, self.last = nn.Parameter(torch.randn(8, 8)), nn.ModuleList([nn.Linear(8, 8)]), nn.Linear(8, 8)

    @torch._dynamo.disable
    def end(self, x):
        return self.last(x)

    def forward(self, x):
        return self.end(self.layers[0](x @ self.matrix.t()))


def ids(length=LENGTH):
    return torch.randint(WORDS, (BATCH, length))


CAUSAL = 3 * 4 * WIDTH * BATCH * (LENGTH * LENGTH - LENGTH * (LENGTH + 1) // 2)  # pairs that a mask leaves out
# Name > the model, its argument, FLOP of the reference that are no FLOP of the model.
MODELS = {
    "language": (Model, ids, 0),
    "causal": (lambda: Model(lambda: Block(attention=Causal)), ids, CAUSAL),
    "processor": (lambda: Model(lambda: Block(attention=Processed)), ids, 0),
    "shared layers": (lambda: Model(shared=True), ids, 0),
    "frozen layer": (lambda: Model(frozen=True), ids, 0),
    "images": (Images, lambda: torch.randn(2, 3, 16, 16), 0),
    "convolving": (Convolving, lambda: torch.randn(2, 3, 16, 16), 0),
    "two widths": (Widths, lambda: torch.randn(BATCH, LENGTH, 32), 0),
    "matrices": (Matrices, lambda: torch.randn(4, 8), 0),
    "checkpoints": (lambda: Model(recomputed=True), ids, 0),
    "graph breaks in layers": (lambda: Model(Broken), ids, 0),
}
REFERENCE = {"checkpoints": "language"}  # PyTorch counts what is recomputed


def each_layer(change):
    def way(model):
        changed = {id(layer): change(layer) for layer in model.layers}
        model.layers = nn.ModuleList([changed[id(layer)] for layer in model.layers])
        return model

    return way


def compiled_in_place(module, backend="aot_eager"):
    module.compile(backend=backend)
    return module


def sharded(change):
    def way(model):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (1,))
        model = each_layer(change)(model)
        for layer in dict.fromkeys(model.layers):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    return way


def compiled(module, backend="aot_eager"):
    return torch.compile(module, backend=backend)


WAYS = {
    "eager": lambda model: model,
    "compiled": compiled,
    "traced": lambda model: compiled(model, "eager"),
    "in place": compiled_in_place,
    "layers compiled": each_layer(compiled),
    "layers traced": each_layer(lambda layer: compiled(layer, "eager")),
    "layers in place": each_layer(compiled_in_place),
    "sharded": sharded(lambda layer: layer),
    "layers compiled and sharded": sharded(compiled),
    "layers in place and sharded": sharded(compiled_in_place),
    "distributed and compiled": lambda model: nn.parallel.DistributedDataParallel(compiled(model)),
}


def true_flop(name, train):
    make, argument, less = MODELS[REFERENCE.get(name, name)]
    model, given = make(), argument()
    with sdpa_kernel(SDPBackend.MATH), contextlib.nullcontext() if train else torch.no_grad():
        with FlopCounterMode(display=False) as forward:
            result = model(given)
        if not train:
            return forward.get_total_flops() - less, None
        with FlopCounterMode(display=False) as backward:
            result.sum().backward()
    return forward.get_total_flops() - less, backward.get_total_flops() - 2 * less


def counted(name, way, train):
    """Of two passes: where they begin and end, and their FLOP, once, since the second one has the same shapes."""
    torch._dynamo.reset()
    make, argument, _ = MODELS[name]
    model, given = WAYS[way](make()), argument()
    facts.clear()
    for _ in range(2):
        if train:
            model(given).sum().backward()
        else:
            with torch.no_grad():
                model(given)
    passes = [fact[0] for fact in facts if fact[0] in (PASS_BEGIN, PASS_END)]
    work = [fact[4:] for fact in facts if fact[0] == PASS_WORK]
    # A pass without gradients is compared with the first one.
    return passes, [one for place, one in enumerate(work) if place == 0 or one != (work[0][0], 0)]


def lengths(way):
    """From the second length on torch.compile traces with symbols, and what it traced then serves all further ones."""
    torch._dynamo.reset()
    model = WAYS[way](Model(lambda: Block(attention=Causal)))
    facts.clear()
    wanted = []
    for length in (16, 24, 40, 7, 24, 65):
        model(ids(length)).sum().backward()
        pairs = 3 * 4 * WIDTH * BATCH * length * (length + 1) // 2
        wanted.append(2 * BATCH * length * (3 * 12 * WIDTH * WIDTH + WIDTH * WORDS) + pairs)
    del wanted[4]  # as the second one
    return [fact[4:] for fact in facts if fact[0] == PASS_WORK] == [(flop, 2 * flop) for flop in wanted]


def two_models():
    """The second one is a module of a class of which the first has some inside: it is a pass all the same."""
    body, head = Widths(), nn.Linear(32, 8)
    facts.clear()
    for _ in range(2):
        head(body(torch.randn(BATCH, LENGTH, 32))).sum().backward()
    passes = [fact[2] for fact in facts if fact[0] == PASS_BEGIN]
    return passes == [id(body), id(head)] * 2


def other_attention(true, name):
    """Stand-ins for functions of flash-attn, which launch kernels and call nothing: of two the lengths are on the device."""

    def flash_attn_func(q, k, v, causal=False, window_size=(-1, -1)):
        return q + k + v

    def flash_attn_varlen_func(q, k, v, cu_seqlens_q):
        return q + k + v

    def flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens):
        return q + k_cache + v_cache

    class Flash(Attention):
        function = staticmethod(flash_attn_func)

        def attend(self, query, key, value):
            return self.function(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), True).transpose(1, 2)

    functions = flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
    place = sys.modules[name] = types.ModuleType(name)
    vars(place).update((function.__name__, function) for function in functions)
    found = []
    for function in functions:
        Flash.function = staticmethod(function)
        model = Model(lambda: Block(attention=Flash))
        facts.clear()
        model(ids()).sum().backward()
        found += [fact[4:] for fact in facts if fact[0] == PASS_WORK]
    del sys.modules[name]
    return found == [true, (-1, -1), (-1, -1)]


def main():
    warnings.filterwarnings("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    true = {(name, train): true_flop(name, train) for name in MODELS for train in (True, False)}
    listen()
    tried = wrong = 0
    others = [("two models in a row", two_models())]
    for name in ("flash_attn.flash_attn_interface", "flash_attn_interface"):
        others.append((name, other_attention(true["causal", True], name)))
    others += [(f"six lengths, {way}", lengths(way)) for way in WAYS]
    for what, good in others:
        print("ok  " if good else "FAIL", what)
        tried, wrong = tried + 1, wrong + (not good)
    for name in MODELS:
        for way in WAYS:
            for train in (True, False):
                if name == "shared layers" and "sharded" in way:  # a module is sharded once
                    continue
                tried += 1
                passes, got = counted(name, way, train)
                forward, backward = true[name, train]
                good = len(got) == 1 and got[0][0] == forward and backward in (None, got[0][1])
                good = good and passes == [PASS_BEGIN, PASS_END] * 2
                wrong += not good
                if not good or train:
                    print(f"{'ok  ' if good else 'FAIL'} {name}, {way}: {passes}, {got}, true {forward}, {backward}")
    torch.distributed.destroy_process_group()
    print(f"{tried - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
