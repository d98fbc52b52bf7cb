"""A small Llama whose layers two ranks share, trained on random tokens: each computes half of the heads and of the MLP."""

import argparse
import os
import sys

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import AutoConfig, AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--steps", type=int, default=16)
args = parser.parse_args()

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (2,))
config = AutoConfig.from_pretrained(args.config)
config.num_hidden_layers = 2
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
parts = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {"self_attn.o_proj": RowwiseParallel()}
parts |= {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()}
for layer in model.model.layers:
    parallelize_module(layer, mesh, parts)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(args.steps):
    ids = torch.randint(1000, (4, 128)).cuda()
    with torch.cuda.nvtx.range("step batch=4 seq_len=128"):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
torch.cuda.synchronize()
sys.stdout.write("done\n")  # in one piece: the other rank writes too
torch.distributed.destroy_process_group()
