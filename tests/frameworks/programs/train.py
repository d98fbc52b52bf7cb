"""Any causal language model of transformers by its config.json, trained on random tokens."""

import argparse

import torch
from transformers import AutoConfig, AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--seq-len", type=int, default=512)
args = parser.parse_args()

torch.manual_seed(1)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.config), dtype=torch.bfloat16).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for step in range(args.steps):
    ids = torch.randint(100, (args.batch, args.seq_len)).cuda()
    with torch.cuda.nvtx.range(f"step batch={args.batch} seq_len={args.seq_len}"):
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
torch.cuda.synchronize()
print("done")
