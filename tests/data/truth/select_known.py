#!/usr/bin/env python3
"""Keeps of count_modules.py's output what the test needs: types of our table, keys that may decide a count.

    select_known.py COUNTED.jsonl > modules.jsonl
    select_known.py COUNTED.jsonl --variants > variants.jsonl
"""

import json
import re
import sys
from pathlib import Path

FAMILIES = Path(__file__).parents[3] / "core" / "families"
TABLE = "".join(path.read_text() for path in sorted(FAMILIES.glob("*.families")))
TYPES = {name.strip() for names in re.findall(r"^\[([^:\]]+)", TABLE, re.M) for name in names.split(",")}
NOISE = re.compile(
    r"^(use_cache|hidden_act|hidden_activation|activation_function|rope_.*|.*_eps|.*epsilon|output_(attentions|hidden_states|router_logits)|router_aux.*|scoring_func|"
    r"routed_scaling_factor|n_group|topk_group|topk_method|norm_topk_prob|is_encoder_decoder|is_decoder|init_.*|attn_.*softcap.*|"
    r"final_logit.*|query_pre_attn_scalar|rescale.*|residual.*|time_step_(min|max|limit|floor|scale|init.*)|.*layerdrop|summary_.*|"
    r"scale_embedding|mask_time.*|mask_feature.*|apply_spec.*|drop_path_rate|layer_scale_init_value|semantic_.*|auxiliary_.*|use_aux.*|"
    r".*_multiplier|.*_coef|embedding_dropout|begin_suppress.*|suppress.*|dtype|pretraining_tp|partial_rotary_factor|max_length)$")


def clean(config):
    out = {}
    for key, value in config.items():
        if isinstance(value, dict):
            value = clean(value)
        if value is not None and not NOISE.match(key) and value != {}:
            out[key] = value
    return out


def patch(old, new):
    out = {key: None for key in old if key not in new}
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            if inner := patch(old[key], value):
                out[key] = inner
        elif old.get(key) != value or key not in old:
            out[key] = value
    return out


def main():
    only_variants = "--variants" in sys.argv
    for line in open(sys.argv[1]):
        entry = json.loads(line)
        if "torch" in entry:
            print(json.dumps(entry, separators=(",", ":")))
        elif entry["type"] in TYPES and "config" in entry and (not only_variants or entry.get("variants")):
            if only_variants:
                entry = {key: entry[key] for key in ("type", "class", "variants")}
            else:
                entry["config"] = clean(entry["config"])
            if entry.get("variants"):
                # The first is the config with few layers; of the others what differs from it, as a JSON merge patch.
                base = clean(entry["variants"][0][0])
                entry["base"] = base
                entry["variants"] = [[patch(base, clean(config)), *rest] for config, *rest in entry["variants"]]
            else:
                entry.pop("base", None)
            entry.pop("no_forward", None)
            print(json.dumps(entry, separators=(",", ":")))


if __name__ == "__main__":
    main()
