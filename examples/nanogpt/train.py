"""A GPT-2 of nanoGPT's size, trained on random tokens: what the loop itself needs to be measured is the one `with` line.

    mfu run -c examples/nanogpt/config.json python examples/nanogpt/train.py --steps 100
    mfu run -c examples/nanogpt/config.json torchrun --nproc-per-node 8 examples/nanogpt/train.py

Needs PyTorch 2.1 or newer and a CUDA GPU. The model is built from the same config.json that MFU is counted from. With --nvtx
torch.cuda.nvtx names the step instead of mfuinject.region, and the program knows nothing of mfuinject.
"""

import argparse
import json
import os
import pathlib


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", type=pathlib.Path, default=pathlib.Path(__file__).with_name("config.json"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="sequences per step and rank")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--compile", nargs="?", const="model", choices=("model", "blocks"), help="the model, or each block")
    parser.add_argument("--nvtx", action="store_true", help="name the step by torch.cuda.nvtx")
    return parser.parse_args(words)


def step_name(batch, seq_len):
    """The range that both ways come to."""
    return f"step batch={batch} seq_len={seq_len}"


def build(config):
    import torch
    from torch import nn
    from torch.nn import functional as F

    width, heads = config["n_embd"], config["n_head"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, heads, width // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(config["vocab_size"], width)
            self.positions = nn.Embedding(config["n_positions"], width)
            self.blocks = nn.Sequential(*(Block() for _ in range(config["n_layer"])))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, config["vocab_size"], bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
            logits = self.head(self.norm(self.blocks(x)))
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    return GPT()


def main():
    args = arguments()
    import torch

    rank, local_rank, world = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1)))
    torch.cuda.set_device(local_rank)
    torch.manual_seed(1337 + rank)
    config = json.loads(args.config.read_text())
    model = build(config).cuda()
    if args.compile == "blocks":
        for block in model.blocks:
            block.compile()
    elif args.compile:
        model = torch.compile(model)
    if world > 1:
        torch.distributed.init_process_group("nccl")
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    if args.nvtx:
        def step_region():
            return torch.cuda.nvtx.range(step_name(args.batch, args.seq_len))
    else:
        import mfuinject

        def step_region():
            return mfuinject.region("step", batch=args.batch, seq_len=args.seq_len)

    for step in range(args.steps):
        ids = torch.randint(config["vocab_size"], (args.batch, args.seq_len + 1), device="cuda")
        with step_region():
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(ids[:, :-1], ids[:, 1:])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
