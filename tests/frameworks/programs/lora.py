"""LoRA on a frozen model by peft: only the adapters have gradients."""

import argparse

import peft
import torch
from transformers import AutoConfig, AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--seq-len", type=int, default=256)
args = parser.parse_args()

torch.manual_seed(1)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.config), dtype=torch.bfloat16)
model = (
    peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")).cuda().train()
)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for step in range(args.steps):
    ids = torch.randint(100, (args.batch, args.seq_len)).cuda()
    with torch.cuda.nvtx.range(f"step batch={args.batch} seq_len={args.seq_len}"):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
torch.cuda.synchronize()
print("done")
