#!/usr/bin/env python3
"""Keeps of count_modules.py's output what the test needs: types of our table, keys that may decide a count.

    select_known.py COUNTED.jsonl > modules.jsonl
"""

import json
import re
import sys
from pathlib import Path

MODEL = Path(__file__).parents[3] / "core" / "model"
TABLE = "".join((MODEL / name).read_text() for name in ("families.inc", "read_architecture.cpp"))
TYPES = set(re.findall(r'^\{"([^"]+)"', TABLE, re.M)) | set(re.findall(r'_like\("([^"]+)"\)', TABLE))
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


for line in open(sys.argv[1]):
    entry = json.loads(line)
    if "torch" in entry:
        print(json.dumps(entry, separators=(",", ":")))
    elif entry["type"] in TYPES and "config" in entry:
        entry["config"] = clean(entry["config"])
        if entry.get("variants"):
            entry["variants"] = [[clean(config), *rest] for config, *rest in entry["variants"]]
        entry.pop("no_forward", None)
        print(json.dumps(entry, separators=(",", ":")))
