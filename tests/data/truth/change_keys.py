#!/usr/bin/env python3
"""Changes keys of configs by chance, as people write them, and counts what the modules of transformers make of them.

    change_keys.py [--types a,b] [--each N] [--seed S] [--seconds T] [--jobs N] OUT.jsonl     configs that the library takes
    TRUTH=OUT.jsonl truth_test --gtest_filter=Truth.Report                                     what our counts make of them

The config of a type's default class with few layers is what a change starts from; a change sets a key to another number,
turns a flag, leaves the key out, makes it null, shuffles, cuts or swaps a list, or does two of these. Where the class of
transformers refuses a config, it is dropped; else a line has the config as it was written, the parameter count, and for one
of four the forward FLOP of one shape. Each line is one line of count_modules.py, with `key` for what was changed.
"""

import argparse
import copy
import json
import multiprocessing
import os
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import count_modules
import select_known

# What is about training, text and numerics decides no dimension. `tie_word_embeddings` and the rest of the few that do are tried always.
SKIP = re.compile(count_modules.NOT_DIMENSIONS.pattern.replace("chunk_size_feed|", "") + r"|^use_cache$|activation|hidden_act|^dtype$|_fn$|architectures|^model_type$")
ALWAYS = ("tie_word_embeddings", "num_hidden_layers", "num_key_value_heads", "head_dim", "attention_bias", "sliding_window")


def paths(config, prefix=()):
    for key, value in config.items():
        if isinstance(value, dict):
            if not key.startswith("rope") and key not in ("id2label", "label2id"):
                yield prefix + (key,), value
                yield from paths(value, prefix + (key,))
        elif key in ALWAYS or not SKIP.search(key):
            yield prefix + (key,), value


def words_of(model_type):
    """key > the words that the module's code compares it with."""
    config_type = count_modules.config_class(model_type)
    found = {}
    package = Path(__import__("sys").modules[config_type.__module__].__file__).parent
    for path in package.glob("mod*_*.py"):
        for key, word in re.findall(r'\b(\w+)\s*(?:==|!=)\s*"([\w.-]+)"', path.read_text()):
            found.setdefault(key, set()).add(word)
        for key, words in re.findall(r'\b(\w+)\s+(?:not )?in\s+[\[(]((?:"[\w.-]+",?\s*)+)[\])]', path.read_text()):
            found.setdefault(key, set()).update(re.findall(r'"([\w.-]+)"', words))
    return found


def other(value, key, words, rng):
    """Another value for a key; raises IndexError where there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        if value > 1 << 22:
            raise IndexError
        return rng.choice([value * 2, value // 2, value + 1, max(2, value - 1), 2, value * 3, 0, value + 2])
    if isinstance(value, float):
        return rng.choice([value * 2, value / 2, value + 0.25, 1.0])
    if isinstance(value, str):
        return rng.choice(sorted(words.get(key, set()) - {value}))
    if isinstance(value, list) and value:
        changed = list(value)
        way = rng.randrange(6)
        if way == 0:
            rng.shuffle(changed)
        elif way == 1:
            changed.pop()
        elif way == 2:
            changed = [rng.choice(value)] * len(value)
        elif way == 3:
            changed.append(rng.choice(value))
        elif way == 4:
            at = rng.randrange(len(value))
            changed[at] = other(value[at], key, words, rng)
        else:
            changed = [x * 2 if isinstance(x, int) and not isinstance(x, bool) else x for x in value]
        return changed
    if value is None:
        return rng.choice([2, 16, 64, 128, 512, True])
    raise IndexError


def change(config, words, rng):
    """One change in place; its name."""
    spots = list(paths(config))
    if rng.random() < 0.15:
        spots = [s for s in spots if s[0][-1] in ALWAYS] or spots
    path, value = rng.choice(spots)
    if rng.random() < 0.08:
        path, value = path[:-1] + ("tie_word_embeddings",), rng.choice([True, False])
    target = config
    for step in path[:-1]:
        target = target[step]
    way = rng.random()
    name = ".".join(path)
    if path[-1] == "tie_word_embeddings" and way < 0.7:
        target[path[-1]] = bool(rng.randrange(2))
        return f"{name}={target[path[-1]]}"
    if way < 0.15 and path[-1] != "model_type":
        target.pop(path[-1], None)
        return f"-{name}"
    if way < 0.22:
        target[path[-1]] = None
        return f"{name}=null"
    if isinstance(value, dict):
        raise IndexError
    target[path[-1]] = other(value, path[-1], words, rng)
    return f"{name}={json.dumps(target[path[-1]])[:60]}"


def plain(config):
    return json.loads(json.dumps(config, default=str).replace("Infinity", "null").replace("NaN", "null"))


def left_out(written):
    """Names of single keys of the table, and lists, with the config that lacks them."""
    table = set(re.findall(r"\w+", select_known.TABLE))
    for path, value in paths(written):
        if path[-1] in table or isinstance(value, list):
            config = copy.deepcopy(written)
            target = config
            for step in path[:-1]:
                target = target[step]
            target.pop(path[-1])
            yield "-" + ".".join(path), config


def one_type(model_type, each, seed, until, send):
    count_modules.count_experts()
    config_type = count_modules.config_class(model_type)
    default = config_type(**count_modules.NEEDS.get(model_type, {}))
    base = dict(count_modules.NEEDS.get(model_type, {}))
    if each != 0:
        count_modules.set_layers(base, default)
    rng = random.Random(f"{seed} {model_type}")
    words = words_of(model_type)
    try:
        made = config_type.from_dict(copy.deepcopy(base))
    except Exception:  # lists by layer that do not fit: all layers, then
        made = default
    written = count_modules.strip(plain(made.to_dict()))
    written.pop("architectures", None)
    classes = count_modules.model_classes(model_type, default)
    tried = set()
    if each == 0:
        for label, config in left_out(written):
            try:
                params = count_modules.count(classes[0], config_type.from_dict(copy.deepcopy(config)), [], forward=False)[0]
            except Exception:
                continue
            send({"type": model_type, "class": classes[0].__name__, "key": label, "config": config, "params": params, "flop": []})
        return
    for attempt in range(4 * each):
        if len(tried) >= each or time.time() > until:
            break
        config = copy.deepcopy(written)
        cls = classes[0] if rng.random() < 0.8 else rng.choice(classes)
        try:
            names = [change(config, words, rng) for _ in range(rng.choice((1, 1, 1, 2)))]
        except IndexError:
            continue
        label = " ".join(names) + " " + cls.__name__
        if label in tried:
            continue
        tried.add(label)
        try:
            built = config_type.from_dict(copy.deepcopy(config))
            params, flop, _, _ = count_modules.count(cls, built, count_modules.SHAPES[:1], forward=rng.random() < 0.25)
        except Exception:
            continue
        line = {"type": model_type, "class": cls.__name__, "key": label, "config": config, "params": params, "flop": flop}
        if built.num_labels != 2:
            line["config"]["num_labels"] = built.num_labels
        send(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--types", help="comma-separated; default: all of our table")
    parser.add_argument("--each", type=int, default=25, help="changes per type; 0: every key left out that the table names, one by one")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=40, help="seconds per type")
    parser.add_argument("out")
    args = parser.parse_args()
    import torch  # noqa: F401
    import transformers  # noqa: F401
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    types = args.types.split(",") if args.types else [t for t in CONFIG_MAPPING_NAMES if t in select_known.TYPES]
    random.Random(args.seed).shuffle(types)
    import transformers.modeling_utils
    from transformers.models.auto import modeling_auto  # noqa: F401  imported once, every type is a fork of this process
    out = open(args.out, "a")
    lock = threading.Lock()

    def child(model_type, write_end):
        torch.set_num_threads(1)
        with os.fdopen(write_end, "w") as pipe:
            def send(line):
                pipe.write(json.dumps(line, separators=(",", ":")) + "\n")
                pipe.flush()
            one_type(model_type, args.each, args.seed, time.time() + args.timeout, send)

    def run(model_type):
        read_end, write_end = os.pipe()
        process = multiprocessing.get_context("fork").Process(target=child, args=(model_type, write_end))
        process.start()
        os.close(write_end)
        timer = threading.Timer(2 * args.timeout, process.kill)
        timer.start()
        with os.fdopen(read_end) as pipe:
            for line in pipe:
                if line.endswith("\n"):
                    with lock:
                        out.write(line)
                        out.flush()
        process.join()
        timer.cancel()

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, types))


if __name__ == "__main__":
    main()
