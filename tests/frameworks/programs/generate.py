"""generate() of a small model: greedy or sampled, its prefill and its decode passes named or not."""

import argparse
import functools

import torch
from transformers import AutoConfig, AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--prompt-len", type=int, default=128)
parser.add_argument("--new-tokens", type=int, default=48)
parser.add_argument("--rounds", type=int, default=4)
parser.add_argument("--sample", action="store_true")
args = parser.parse_args()

torch.manual_seed(1)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.config), dtype=torch.bfloat16).eval()
forward = model.forward


@functools.wraps(
    forward
)  # generate() looks at the signature: without `logits_to_keep` it would ask for the logits of all positions
def named(*words, **kwargs):
    ids, cache = kwargs["input_ids"], kwargs.get("past_key_values")
    context = cache.get_seq_length() if cache is not None else 0
    what = (
        f"prefill batch={ids.shape[0]} seq_len={ids.shape[1]}"
        if ids.shape[1] > 1
        else f"decode batch={ids.shape[0]} context={context}"
    )
    with torch.cuda.nvtx.range(what):
        return forward(*words, **kwargs)


model.forward = named
for turn in range(args.rounds):
    ids = torch.randint(model.config.vocab_size, (args.batch, args.prompt_len)).cuda()
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=args.new_tokens,
        min_new_tokens=args.new_tokens,
        do_sample=args.sample,
    )
    print("round", turn, tuple(out.shape))
print("done")
