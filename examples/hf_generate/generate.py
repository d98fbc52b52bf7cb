"""Hugging Face generate() with prefill and decode told apart: the model's forward is wrapped, generate() stays as it is.

    mfu run -c Qwen/Qwen3-0.6B python examples/hf_generate/generate.py --model Qwen/Qwen3-0.6B
    mfu run -c ./my-model python examples/hf_generate/generate.py --model ./my-model --batch 8 --prompt-len 512

Needs PyTorch, transformers and a CUDA GPU. A pass with more than one new token per sequence is prefill, one with a single token
decode; the context comes from the cache, whose length transformers keeps on the CPU.
"""

import argparse
import functools


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="a model id or folder")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--prompt-len", type=int, default=512)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--random-weights", action="store_true", help="make the model from its config, load no weights")
    return parser.parse_args(words)


def name_passes(model, region):
    """Puts `region` around every forward pass of `model`, with its shape."""
    forward = model.forward

    @functools.wraps(forward)
    def named(*args, **kwargs):
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is None:
            return forward(*args, **kwargs)  # called with embeddings: no pass of generate()
        batch, new = ids.shape
        cache = kwargs.get("past_key_values")
        context = cache.get_seq_length() if cache is not None else 0
        if new > 1:
            shape = region("prefill", batch=batch, seq_len=new, context=context)
        else:
            shape = region("decode", batch=batch, context=context)
        with shape:
            return forward(*args, **kwargs)

    model.forward = named
    return model


def main():
    args = arguments()
    import mfuinject
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if args.random_weights:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.model), torch_dtype=torch.bfloat16)
    else:
        model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model = name_passes(model.cuda().eval(), mfuinject.region)
    for _ in range(args.rounds):
        ids = torch.randint(model.config.vocab_size, (args.batch, args.prompt_len), device="cuda")
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=args.new_tokens,
                       min_new_tokens=args.new_tokens, do_sample=False)


if __name__ == "__main__":
    main()
