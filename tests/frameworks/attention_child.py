"""Ways to call scaled_dot_product_attention(): its keys and its mask must be those of the call, however they are written. On the CPU.

Prints a line for each, and exits with 1 where one is counted wrong, or is counted although nothing says its keys or its mask.
"""

import contextlib
import sys

import torch
import triton
import triton.language as tl
from counts_child import PASS_BEGIN, PASS_WORK, facts, listen, numbers_of_passes
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.utils.flop_counter import FlopCounterMode

BATCH, HEADS, TOKENS, KEYS, WIDTH = 2, 3, 10, 25, 8
ALL, CACHE, CAUSAL, PART = TOKENS * TOKENS, TOKENS * KEYS, TOKENS * (TOKENS + 1) // 2, TOKENS * (TOKENS + 4)  # pairs
UNKNOWN = None


class Attention(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.project, self.call, self.dropout, self.causal = nn.Linear(WIDTH, WIDTH), call, 0.0, True
        self.flag, self.mask, self.at, self.layer = False, None, 4, 1
        self.plain = torch.randn(BATCH, HEADS, KEYS, WIDTH)
        self.moved, self.six = torch.randn(BATCH, KEYS, HEADS, WIDTH), torch.randn(6, BATCH, HEADS, KEYS, WIDTH)
        self.one_head, self.rows = torch.randn(BATCH, 1, KEYS, WIDTH), torch.arange(7)
        self.register_buffer("cache", torch.randn(BATCH, HEADS, KEYS, WIDTH))

    def forward(self, x):
        return self.call(self, self.project(x))


def same(x):
    return x.reshape(x.shape)


def local_names(m, q):
    key, value = m.cache, m.plain
    k = q  # not that of the call
    return attention(q, key, value) + k


# Calls, and pairs of a query and a key.
WAYS = {
    "names": (lambda m, q: attention(q, q, q), ALL),
    "names of others": (local_names, CACHE),
    "module of functions": (lambda m, q: nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), CAUSAL),
    "positions": (lambda m, q: attention(q, q, q, None, 0.0, True), CAUSAL),
    "moved": (
        lambda m, q: attention(
            q.transpose(1, 2).transpose(1, 2), q.contiguous(), q, dropout_p=m.dropout if m.training else 0, is_causal=True
        ),
        CAUSAL,
    ),
    "attribute": (lambda m, q: attention(q, m.plain, m.plain), CACHE),
    "buffer": (lambda m, q: attention(q, m.cache, m.cache, attn_mask=None, is_causal=m.causal), CACHE),
    "moved buffer": (lambda m, q: attention(q, m.cache.transpose(2, 3).transpose(2, 3), m.cache), CACHE),
    "tuple": (lambda m, q: attention(*(q, m.cache, m.cache)), CACHE),
    "tuple behind the query": (lambda m, q: attention(q, *(m.cache, m.cache), **{"is_causal": False}), CACHE),
    "names of arguments": (lambda m, q: attention(query=q, key=m.cache, value=m.cache, is_causal=False), CACHE),
    "moved, by names": (lambda m, q: attention(query=q.transpose(1, 2).transpose(1, 2), key=q, value=q, is_causal=m.causal), CAUSAL),
    "dictionary": (lambda m, q: attention(q, q, q, is_causal=True, **{}), CAUSAL),
    "causal without a mask": (lambda m, q: attention(q, q, q, attn_mask=None, is_causal=m.cache is None), ALL),
    "function of the key": (lambda m, q: attention(q, same(q), same(q)), ALL),
    "list that is made": (lambda m, q: attention(*[one.contiguous() for one in (q, q, q)], is_causal=True), UNKNOWN),
    "function of a cache": (lambda m, q: attention(q, same(m.cache), same(m.cache)), UNKNOWN),
    "part of a cache": (lambda m, q: attention(q, m.cache[:, :, :TOKENS], m.cache[:, :, :TOKENS]), ALL),
    "part of a cache up to a sum": (lambda m, q: attention(q, m.cache[:, :, : m.at + q.shape[2]], m.cache[:, :, : m.at + 10]), PART),
    "part from behind": (lambda m, q: attention(q, m.cache[..., -TOKENS - 1 :, :], m.cache[..., -TOKENS - 1 :, :]), 11 * TOKENS),
    "part by numbers": (lambda m, q: attention(q, m.six[m.layer][:, :, :14], m.six[m.layer][:, :, :14]), PART),
    "part of a part, moved": (lambda m, q: attention(q, m.moved[:, :14].transpose(1, 2), m.moved[:, :14].transpose(1, 2)), PART),
    "permuted and widened": (
        lambda m, q: attention(q, m.moved.permute(0, 2, 1, 3)[:, :1].expand(-1, HEADS, -1, -1), m.cache.expand(-1, HEADS, -1, -1)),
        CACHE,
    ),
    "heads for several queries": (
        lambda m, q: attention(q, m.one_head.repeat_interleave(HEADS, dim=1), m.one_head.repeat_interleave(repeats=HEADS, dim=1)),
        CACHE,
    ),
    "viewed": (
        lambda m, q: attention(q, m.cache.view(BATCH, HEADS, -1, WIDTH), m.cache.flatten(0, 1).reshape(q.size(0), HEADS, -1, WIDTH)),
        CACHE,
    ),
    "narrowed": (lambda m, q: attention(q, m.cache.narrow(2, 0, 14), m.cache.narrow(2, 0, length=14)), PART),
    "further dimension": (lambda m, q: attention(q, m.cache[0].unsqueeze(0), m.cache[None, 1]), CACHE),
    "rows by a tensor": (lambda m, q: attention(q, m.cache[:, :, m.rows], m.cache[:, :, m.rows]), UNKNOWN),
    "part of a function": (lambda m, q: attention(q, same(q)[:, :, :5], same(q)[:, :, :5]), UNKNOWN),
    "part of unknown length": (lambda m, q: attention(q, m.cache[:, :, : len(m.rows)], m.cache[:, :, : len(m.rows)]), UNKNOWN),
    "one of two keys": (lambda m, q: attention(q, m.cache if m.flag else q, q if m.causal else m.cache), ALL),
    "one of three keys": (lambda m, q: attention(q, q if m.flag else (m.cache if m.at else q), m.cache), CACHE),
    "one of two masks": (lambda m, q: attention(q, q, q, is_causal=m.causal if m.dropout else False), ALL),
    "two flags": (lambda m, q: attention(q, q, q, is_causal=m.flag and m.causal), ALL),
    "two flags and a key": (lambda m, q: attention(q, m.cache, m.cache, is_causal=m.flag and m.causal), CACHE),
    "computed mask": (lambda m, q: attention(q, q, q, is_causal=m.causal and q.shape[2] > 1), CAUSAL),
    "one of two keys, later": (lambda m, q: attention(q, m.cache if m.flag else q, q) + 0, ALL),
    "one of three keys, later": (lambda m, q: attention(q, q if m.flag else (m.cache if m.at else q), m.cache) + 0, CACHE),
    "one of two masks, later": (lambda m, q: attention(q, q, q, is_causal=m.causal if not m.dropout else False) + 0, CAUSAL),
    "no mask": (lambda m, q: attention(q, q, q, is_causal=m.mask is None and not m.flag), CAUSAL),
    "one of two keys, by a function": (lambda m, q: attention(q, q if bool(m.causal) else m.cache, q) + 0, UNKNOWN),
    "one of two keys, within two": (lambda m, q: attention(q, m.cache if bool(m.flag) else (q if m.causal else m.cache), q) + 0, UNKNOWN),
    "one of two masks, by a function": (lambda m, q: attention(q, q, q, is_causal=bool(m.causal) and m.flag) + 0, UNKNOWN),
    "one of two keys, one call for each": (lambda m, q: attention(q, q if bool(m.flag) else m.cache, m.cache), CACHE),
}


class Keeper(nn.Module):
    """Keeps the keys of earlier calls, which no argument shows."""

    def __init__(self, grows, cross):
        super().__init__()
        self.read = torch.randn(BATCH, HEADS, 7, WIDTH) if cross else None
        self.project, self.keys, self.filled, self.grows = nn.Linear(WIDTH, WIDTH), torch.randn(BATCH, HEADS, 999, WIDTH), KEYS, grows

    def forward(self, x, start=0):
        keys = self.keys[:, :, : self.filled]
        self.filled += self.grows
        x = attention(self.project(x), keys, keys)
        return x if self.read is None else attention(x, self.read, self.read)


@torch.no_grad()
def kept_keys(grows, says, first=KEYS, passes=150):
    """\return each pass had its own FLOP; whether all had a number of a model, at the end"""
    module, cross = Keeper(grows, first == 1), 7 * (first == 1)
    module.filled = first
    facts.clear()
    for place in range(passes):
        if place == passes // 2 and grows:  # the next prompt
            module.filled = first
        module(torch.randn(BATCH, HEADS, 1, WIDTH), module.filled - 2 if says else 7)
    work = {fact[3]: fact[4] for fact in facts if fact[0] == PASS_WORK}
    numbers = numbers_of_passes()
    true = [2 * BATCH * HEADS * WIDTH * (WIDTH + 2 * (cross + first + place % (passes // 2) * grows)) for place in range(passes)]
    return [work[number] for number in numbers] == true, len({*numbers}) < passes // 10


class Among(nn.Module):
    """Attention of a module of PyTorch's among all tokens, behind one layer."""

    def __init__(self):
        super().__init__()
        self.layer, self.attention = nn.Linear(HEADS * WIDTH, HEADS * WIDTH), nn.MultiheadAttention(HEADS * WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        x = self.layer(x)
        return self.attention(x, x, x, need_weights=False)[0]


def by_one_function(make):
    """\return whether a pass in evaluation, which PyTorch makes by one function for several layers, has the FLOP that the
    layers have one by one"""
    model, found = make().eval(), []
    for tokens in (TOKENS, TOKENS, 2 * TOKENS):
        x = torch.randn(BATCH, tokens, HEADS * WIDTH)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as true:
            torch.backends.mha.set_fastpath_enabled(False)
            model(x)
        torch.backends.mha.set_fastpath_enabled(True)
        model = make().eval()  # that no pass was counted of
        facts.clear()
        with torch.no_grad():
            for _ in range(5):
                model(x)
        passes = sum(fact[0] == PASS_BEGIN for fact in facts)
        found.append(passes == 5 and [fact[4] for fact in facts if fact[0] == PASS_WORK] == [true.get_total_flops()])
    return all(found)


@triton.jit
def product(one, other):
    return tl.dot(one, other)


@triton.jit
def multiplies(x, weight, y, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(y + places, product(tl.load(x + places), tl.load(weight + places)))


@triton.jit
def rectifies(x, weight, y, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    tl.store(y + places, tl.maximum(tl.load(x + places), 0.0))


def launched(kernel, x, weight):
    with contextlib.suppress(Exception):  # there is no GPU
        kernel[(1,)](x, weight, x, WIDTH)
    return x


class OfTriton(nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.kernel, self.weight = kernel, nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        return launched(self.kernel, x, self.weight)


class Between(nn.Module):
    """A kernel of Triton between two layers."""

    def __init__(self, kernel, inside):
        super().__init__()
        self.kernel, self.layers = kernel, nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)])
        self.inside = OfTriton(kernel) if inside else None

    def forward(self, x):
        x = self.layers[0](x)
        x = launched(self.kernel, x, x) if self.inside is None else self.inside(x)
        return self.layers[1](x)


def of_triton(kernel, inside, layers):
    """\return whether so many products of a layer were counted; 0: they are not known"""
    model = Between(kernel, inside)
    facts.clear()
    with torch.no_grad():
        model(torch.randn(WIDTH, WIDTH))
    return [fact[4] for fact in facts if fact[0] == PASS_WORK] == [2 * WIDTH**3 * layers or -1]


TRITON = {
    "a kernel of Triton that multiplies": (multiplies, False, 0),
    "one that a module with the matrix runs": (multiplies, True, 3),
    "one that does not multiply": (rectifies, False, 2),
}
FUSED = {
    "layers of an encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(HEADS * WIDTH, HEADS, 40, batch_first=True), 2),
    "attention of a module": Among,
}


def main():
    listen()
    wrong = 0
    for words, about in TRITON.items():
        good = of_triton(*about)
        wrong += not good
        print("ok  " if good else f"FAIL {facts}", words)
    for words, make in FUSED.items():
        good = by_one_function(make)
        wrong += not good
        print("ok  " if good else f"FAIL {facts}", words, "by one function")
    for way, (call, pairs) in WAYS.items():
        module = Attention(call)
        facts.clear()
        module(torch.randn(BATCH, HEADS, TOKENS, WIDTH)).sum().backward()
        found = [fact[4:] for fact in facts if fact[0] == PASS_WORK]
        flop = 4 * BATCH * HEADS * WIDTH * (pairs or 0)
        project = 2 * BATCH * HEADS * TOKENS * WIDTH * WIDTH  # of what it is given no gradient is needed
        wanted = [(project + flop, project + 2 * flop) if pairs else (-1, -1)]
        wrong += found != wanted
        print("ok  " if found == wanted else f"FAIL {found}, true {wanted}", way)
    for grows, says, first in ((1, True, KEYS), (1, False, KEYS), (0, False, KEYS), (0, False, 1), (1, False, 1)):
        found = kept_keys(grows, says, first)
        wrong += found != (True, grows == 0)
        words = f"kept keys, {'more' if grows else 'as many'} in each pass{', as an argument says' if says else ''}{', beside those of an encoder' if first == 1 else ''}"
        print("ok  " if found == (True, grows == 0) else f"FAIL {found}", words)
    print(f"{len(WAYS) + len(TRITON) + len(FUSED) + 5 - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
