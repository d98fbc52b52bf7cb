#!/usr/bin/env python3
"""Counts what the parts of models store, on the meta device, so that `mfu flops --by module` can be held against it.

    count_parts.py MODULES.jsonl OUT.jsonl    decoders, alone or behind a tower, of MODULES.jsonl, which count_modules.py writes

Sizes are changed from the class's defaults by chance (layers, heads' number, widths of the MLP, rows of the table), so that no
model of this file is in another one. Each line of OUT: the config, and by part the parameters and, of 2 x 40 tokens, the
forward FLOP as count_modules.py counts them. A part follows from a module's name; PARTS has the patterns. Needs torch and
transformers; no GPU, no weights, no network.
"""

import collections
import json
import os
import random
import re
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import count_modules  # noqa: E402

SHAPE = (2, 40)  # sequences, tokens
CLASSES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")  # whose modules have names of one kind

# The first that matches. Counter names a module `layers.*.mlp`.
PARTS = (
    ("projector", r"multi_modal_projector|\bprojector\b|mm_projector|\bmerger\b|\bconnector\b|embed_vision|image_newline|"
                  r"deepstack_merger|aligner|visual\.downsample|vision_projection|perceiver|abstractor|patch_merger|mlp_AR|resampler|vision_adapter|"
                  r"visual_projection|text_projection|logit_scale|logit_bias"),
    ("tower", r"(vision|audio|video|image)_tower|vision_model|\bvisual\b|vision_encoder|image_encoder|patch_embedding"),
    ("outside of layers", r"cls\.predictions\.transform|lm_head\.(dense|layer_norm)|vocab_(transform|layer_norm)"),
    ("output matrix", r"lm_head|embed_out|output_projection|cls\.predictions|vocab_projector|^head\b"),
    ("layers", r"(^|\.)(layers|h|blocks|block|layer)\.(\d+|\*)(\.|$)"),
    ("embedding", r"embed|\bwte\b|\bwpe\b|\bshared\b|^transformer\.w\b"),
)
KEYS = ("num_hidden_layers", "intermediate_size", "vocab_size", "n_layer", "n_inner", "ffn_dim")


def part_of(name):
    return next((part for part, pattern in PARTS if re.search(pattern, name)), "outside of layers")


def change(config, chance):
    """Other sizes; the config of a text inside, and of a tower."""
    for inner in (config, *(getattr(config, key, None) for key in ("text_config", "vision_config"))):
        if inner is None:
            continue
        for key in KEYS:
            value = getattr(inner, key, None)
            if not isinstance(value, int) or isinstance(value, bool) or value < 4:
                continue
            if key in ("num_hidden_layers", "n_layer"):
                if getattr(inner, "layer_types", None) is None:
                    setattr(inner, key, chance.randrange(2, 6))
            else:
                setattr(inner, key, value + 64 * chance.randrange(1, 5))


def count(entry, chance):
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode
    cls = getattr(transformers, entry["class"])
    config = cls.config_class(**{k: v for k, v in entry["config"].items() if k not in ("architectures", "model_type")})
    if getattr(config, "is_encoder_decoder", False):
        return None
    change(config, chance)
    written = json.loads(config.to_json_string(use_diff=True), parse_constant=lambda word: None)  # Infinity is no JSON
    model = count_modules.build(cls, config)
    params, flop = collections.Counter(), collections.Counter()
    for name, parameter in model.named_parameters():
        params[part_of(name)] += parameter.numel()
    for name, buffer in model.named_buffers():
        if "correction_bias" in name or name.endswith("expert_bias"):  # checkpoints have them
            params[part_of(name)] += buffer.numel()
    line = {"type": entry["type"], "class": entry["class"], "config": written, "params": params}
    counter = count_modules.Counter(model)
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as of_torch, counter.mode:
            model(**count_modules.inputs_of(model, config, SHAPE, "meta"))
    except Exception as failure:  # classes that want more than tokens have parameters alone
        print(entry["type"], "no FLOP:", type(failure).__name__, str(failure)[:80], file=sys.stderr)
        return line
    for (_, name, _, _), products in counter.detail.items():
        flop[part_of(name)] += products
    if of_torch.get_total_flops() != sum(flop.values()):
        print(entry["type"], "torch's own counter has", of_torch.get_total_flops(), "FLOP, not", sum(flop.values()), file=sys.stderr)
    return {**line, "flop": flop}


def main():
    chance = random.Random(7)
    seen = set()
    with open(sys.argv[2], "w") as out:
        import torch
        import transformers
        count_modules.count_experts()
        out.write(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__}) + "\n")
        for text in open(sys.argv[1]):
            entry = json.loads(text)
            if "config" not in entry or entry["type"] in seen or not entry["class"].endswith(CLASSES):
                continue
            seen.add(entry["type"])
            try:
                if (line := count(entry, chance)) is not None:
                    out.write(json.dumps(line) + "\n")
            except Exception as failure:
                print(entry["type"], type(failure).__name__, str(failure)[:100], file=sys.stderr)
            out.flush()


main()
