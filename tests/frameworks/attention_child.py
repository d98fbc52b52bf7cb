"""Ways to call scaled_dot_product_attention(): its keys and its mask must be those of the call, however they are written. On the CPU.

Prints a line for each, and exits with 1 where one is counted wrong, or is counted although nothing says its keys or its mask.
"""

import sys

import torch
from counts_child import PASS_WORK, facts, listen
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention

BATCH, HEADS, TOKENS, KEYS, WIDTH = 2, 3, 10, 25, 8
ALL, CACHE, CAUSAL, UNKNOWN = TOKENS * TOKENS, TOKENS * KEYS, TOKENS * (TOKENS + 1) // 2, None  # pairs


class Attention(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.project, self.call, self.dropout, self.causal = nn.Linear(WIDTH, WIDTH), call, 0.0, True
        self.flag = False
        self.plain = torch.randn(BATCH, HEADS, KEYS, WIDTH)
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
    "part of a cache": (lambda m, q: attention(q, m.cache[:, :, :TOKENS], m.cache[:, :, :TOKENS]), UNKNOWN),
    "one of two keys": (lambda m, q: attention(q, q if m.causal else m.cache, q if m.causal else m.cache), UNKNOWN),
    "one of two masks": (lambda m, q: attention(q, q, q, is_causal=m.causal if m.dropout else False), UNKNOWN),
    "two flags": (lambda m, q: attention(q, q, q, is_causal=m.flag and m.causal), UNKNOWN),
    "two flags and a key": (lambda m, q: attention(q, m.cache, m.cache, is_causal=m.flag and m.causal), CACHE),
    "computed mask": (lambda m, q: attention(q, q, q, is_causal=m.causal and q.shape[2] > 1), UNKNOWN),
}


def main():
    listen()
    wrong = 0
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
    print(f"{len(WAYS) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
