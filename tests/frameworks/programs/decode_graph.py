"""A decode step captured as one CUDA graph and replayed for every token, as serving engines do."""

import argparse

import torch
from transformers import AutoConfig, AutoModelForCausalLM, StaticCache

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=256)
parser.add_argument("--tokens", type=int, default=200)
args = parser.parse_args()

torch.manual_seed(1)
config = AutoConfig.from_pretrained(args.config)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
cache = StaticCache(config=config, max_cache_len=args.length)
ids = torch.zeros(args.batch, 1, dtype=torch.long).cuda()
position = torch.full((args.batch, 1), args.length - 1).cuda()


def step():
    return model(input_ids=ids, position_ids=position, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)


with torch.no_grad():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            with torch.cuda.nvtx.range(f"decode batch={args.batch} context={args.length - 1}"):
                step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token = step()
    for number in range(args.tokens):
        with torch.cuda.nvtx.range(f"decode batch={args.batch} context={args.length - 1}"):
            graph.replay()
        if number % 8 == 7:
            token.cpu()
torch.cuda.synchronize()
print("done")
