#!/usr/bin/env python3
"""Counts the query-key pairs that the masks of transformers let through, so that windows, chunks and causality are held too.

    count_masked.py [--types a,b] OUT.jsonl

Each type of our table whose attention goes through the library's interface runs once on 96 tokens, with windows and chunks
made short enough to matter. A line has the config, the parameters and `core`: 2 FLOP per pair and element of a head, over all
layers, where the mask is true. The same needs as count_modules.py.
"""

import argparse
import copy
import json
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import count_modules as modules

TOKENS = 96
SHORT = {"sliding_window": 20, "attention_chunk_size": 24, "local_attention": 24, "window_size": 20, "attention_window_size": 20,
         "use_sliding_window": True, "max_window_layers": 1}


class Pairs:
    """An attention function that multiplies nothing and adds up what the mask shows."""

    def __init__(self):
        self.core = self.calls = 0

    def __call__(self, module, query, key, value, attention_mask, **kwargs):
        batch, heads, rows, width = query.shape
        keys = key.shape[-2]
        if attention_mask is None:
            causal = kwargs.get("is_causal")
            causal = getattr(module, "is_causal", True) if causal is None else causal
            pairs = batch * (rows * (rows + 1) // 2 + rows * (keys - rows) if causal and rows > 1 else rows * keys)
        else:
            mask = attention_mask[..., :keys]
            if mask.is_meta:
                raise RuntimeError("a mask without values")
            seen = int((mask if mask.dtype.is_floating_point is False else mask == 0).sum())
            pairs = seen * batch * heads // (mask.shape[0] * mask.shape[1]) // heads
        self.core += 2 * pairs * heads * (width + value.shape[-1])
        self.calls += 1
        return value.new_empty((batch, rows, heads, value.shape[-1])), None


def short(data, config):
    """Keys of `config` that make windows short."""
    for key, value in SHORT.items():
        old = getattr(config, key, None)
        if old is not None and (isinstance(old, bool) == isinstance(value, bool)) and isinstance(old, int):
            data[key] = value
    for key, nested in vars(config).items():
        if (key.endswith("config") or key in ("encoder", "decoder")) and hasattr(nested, "to_dict"):
            part = data.get(key, {})
            short(part, nested)
            if key in ("encoder", "decoder"):
                part["pad_token_id"] = 1  # our tokens are zeros, and none of them is padding
            if part:
                data[key] = part


def one_type(model_type):
    import torch
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    modules.count_experts()
    config_type = modules.config_class(model_type)
    data = dict(modules.NEEDS.get(model_type, {}))
    short(data, config_type(**copy.deepcopy(data)))
    config = config_type.from_dict(copy.deepcopy(data))
    cls = modules.model_classes(model_type, config)[0]
    pairs = Pairs()

    def whole_mask(*args, **kwargs):
        kwargs |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        return sdpa_mask(*args, **kwargs)

    ALL_ATTENTION_FUNCTIONS.register("pairs", pairs)
    ALL_MASK_ATTENTION_FUNCTIONS.register("pairs", whole_mask)
    stored = modules.strip(json.loads(json.dumps(config.to_diff_dict(), default=str).replace("Infinity", "null")))
    for part in (config, config.get_text_config()):
        if getattr(part, "pad_token_id", None) is None:
            part.pad_token_id = 0
    for part in [config] + [nested for nested in vars(config).values() if hasattr(nested, "to_dict")]:
        part._attn_implementation = "pairs"
    with torch.device("meta"):
        model = cls(config)
    model.eval()
    counter = modules.Counter(model)
    with torch.no_grad(), counter.mode:
        model(**modules.inputs_of(model, config, (1, TOKENS), "meta"))
    if pairs.calls == 0:
        raise RuntimeError("its attention does not go through the interface")
    if counter.core:
        raise RuntimeError("a part of its attention does not go through the interface")
    return {"type": model_type, "class": cls.__name__, "config": stored, "core": pairs.core}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--types")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("out")
    args = parser.parse_args()
    import torch
    import transformers
    import transformers.modeling_utils
    from transformers.models.auto import modeling_auto  # noqa: F401  every type is a fork of this process
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    from select_known import TYPES
    types = args.types.split(",") if args.types else [name for name in CONFIG_MAPPING_NAMES if name in TYPES]
    out = open(args.out, "w")
    out.write(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "tokens": TOKENS}) + "\n")
    lock = threading.Lock()

    def child(model_type, write_end):
        with os.fdopen(write_end, "w") as pipe:
            try:
                line = one_type(model_type)
            except Exception as error:  # a module of its own inputs
                line = {"type": model_type, "failed": f"{type(error).__name__}: {str(error)[:160]}"}
            pipe.write(json.dumps(line, separators=(",", ":")))

    def run(model_type):
        read_end, write_end = os.pipe()
        process = multiprocessing.get_context("fork").Process(target=child, args=(model_type, write_end))
        process.start()
        os.close(write_end)
        timer = threading.Timer(100, process.kill)
        timer.start()
        with os.fdopen(read_end) as pipe:
            text = pipe.read()
        process.join()
        timer.cancel()
        with lock:
            out.write((text or json.dumps({"type": model_type, "failed": f"exit {process.exitcode}"})) + "\n")
            out.flush()

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, types))


if __name__ == "__main__":
    main()
