"""A small Llama on every rank of torchrun: DDP, or FSDP."""

import argparse
import os
import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--how", choices=("ddp", "fsdp"), default="ddp")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--seq-len", type=int, default=256)
args = parser.parse_args()

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
torch.manual_seed(1 + rank)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.config), dtype=torch.bfloat16).train()
if args.how == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
else:
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(args.steps):
    ids = torch.randint(100, (args.batch, args.seq_len)).cuda()
    with torch.cuda.nvtx.range(f"step batch={args.batch} seq_len={args.seq_len}"):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
torch.cuda.synchronize()
sys.stdout.write(f"rank {rank} of {distributed.get_world_size()} done\n")  # in one piece: the other rank writes too
distributed.destroy_process_group()
