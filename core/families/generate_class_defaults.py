#!/usr/bin/env python3
"""Writes core/families/class_defaults.txt: what the configuration classes of transformers take for keys that we read.

    core/families/generate_class_defaults.py > core/families/class_defaults.txt      (needs transformers, no network)

Only types that our table knows are written, and of those only the keys that the table names.
"""

import json
import re
from pathlib import Path

here = Path(__file__).parent
table = "".join(path.read_text() for path in sorted(here.glob("*.families")))
types = {name.strip() for names in re.findall(r"^\[([^:\]]+)", table, re.M) for name in names.split(",")}
words = set(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", table))


def plain(value):
    if isinstance(value, (bool, int, str)):
        return True
    return isinstance(value, (list, tuple)) and len(value) <= 16 and all(isinstance(item, (int, str)) for item in value)


def main():
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    print(f"# Written by core/families/generate_class_defaults.py from transformers {transformers.__version__}. Do not edit.")
    for model_type in CONFIG_MAPPING_NAMES:
        if model_type not in types:
            continue
        fields = CONFIG_MAPPING[model_type].default_config_fields()
        keys = {key: value for key, value in fields.items() if key in words and plain(value) and value != "" and
                key not in ("model_type", "id2label", "architectures", "transformers_version", "hidden_act")}
        print(model_type, json.dumps(keys, separators=(",", ":")))


main()
