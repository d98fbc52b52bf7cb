"""GPT-2 124M of transformers, trained on random tokens, in the ways that people train."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--seq-len", type=int, default=512)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--dtype", choices=("bf16", "fp32", "tf32"), default="bf16")
parser.add_argument("--optimizer", choices=("fused", "foreach", "single"), default="fused")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--checkpoint", action="store_true")
parser.add_argument("--compile", choices=("default", "reduce-overhead"))
parser.add_argument("--profile", action="store_true", help="torch.profiler over steps 10 to 14, twice")
parser.add_argument("--workers", type=int, default=0, help="DataLoader workers")
parser.add_argument("--start-method", choices=("fork", "spawn"), default="fork")
args = parser.parse_args()


class RandomTokens(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.randint(50257, (args.seq_len,), generator=torch.Generator().manual_seed(index))


def main():
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high" if args.dtype == "tf32" else "highest")
    with torch.device("cuda"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=args.layers, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).train()
    if args.checkpoint:
        model.gradient_checkpointing_enable()
    forward = torch.compile(model, mode=args.compile) if args.compile else model
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=3e-4,
        fused=args.optimizer == "fused" or None,
        foreach={"foreach": True, "single": False}.get(args.optimizer),
    )
    loader = iter(
        torch.utils.data.DataLoader(
            RandomTokens(),
            batch_size=args.batch,
            num_workers=args.workers,
            pin_memory=True,
            multiprocessing_context=args.start_method if args.workers else None,
        )
    )
    profiler = None
    if args.profile:
        profiler = torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=8, warmup=2, active=5, repeat=2),
            on_trace_ready=lambda p: print("profiled rows", count_rows(p)),
        )
        profiler.start()
    for step in range(args.steps):
        with torch.cuda.nvtx.range(f"step batch={args.batch} seq_len={args.seq_len}"):
            for _ in range(args.accumulate):
                ids = next(loader).cuda(non_blocking=True)
                with torch.autocast("cuda", torch.bfloat16, enabled=args.dtype == "bf16"):
                    loss = forward(input_ids=ids, labels=ids).loss / args.accumulate
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if step % 20 == 19:
            print("step", step, "loss is a number:", loss.item() == loss.item())
        if profiler:
            profiler.step()
    torch.cuda.synchronize()
    if profiler:
        profiler.stop()
    print("done")


def count_rows(profile):
    return sum(1 for e in profile.profiler.kineto_results.events() if e.device_type() == torch.autograd.DeviceType.CUDA)


if __name__ == "__main__":
    main()
