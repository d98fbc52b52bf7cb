#!/usr/bin/env python3
"""Counts what the modules of transformers do, on the meta device, so that core/model can be held against them.

    count_modules.py [--types a,b] [--jobs N] [--timeout S] OUT.jsonl    count every model type in processes of their own
    count_modules.py --show TYPE [KEY=VALUE ...]                         print the parameters and matrix products of one type

Each line of OUT is one architecture of one model type: its config as `save_pretrained` writes it, and for the default
and for configs with one key changed the parameter count and the forward FLOP (a multiply and an add count as two):

    weights    products of an activation with a stored matrix (nn.Linear, experts, tied output matrix)
    conv       convolutions
    core       products of two activations inside attention modules: full squares, whatever the mask
    rest       other products of two activations (linear attention, state space; rotary tables are left out)

Needs torch, transformers and Pillow; no GPU, no weights, no network.
"""

import argparse
import copy
import importlib
import inspect
import json
import multiprocessing
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

HEADS = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT", "MODEL_FOR_SPEECH_SEQ_2_SEQ", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "MODEL_FOR_MASKED_LM",
    "MODEL_FOR_CAUSAL_LM", "MODEL_FOR_MULTIMODAL_LM", "MODEL_FOR_CTC", "MODEL_FOR_IMAGE_CLASSIFICATION",
    "MODEL_FOR_VIDEO_CLASSIFICATION", "MODEL_FOR_AUDIO_CLASSIFICATION", "MODEL_FOR_PRETRAINING",
    "MODEL_FOR_OBJECT_DETECTION", "MODEL_FOR_SEMANTIC_SEGMENTATION", "MODEL_FOR_DEPTH_ESTIMATION",
)
OTHERS = ("MODEL_FOR_SEQUENCE_CLASSIFICATION", "MODEL_FOR_TOKEN_CLASSIFICATION", "MODEL_FOR_TEXT_ENCODING")
# What a class without a usable default needs.
NEEDS = {
    "hunyuan_v1_dense": {"head_dim": 128}, "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 8, "moe_topk": 2,
    "num_shared_expert": 1}, "dots1": {"n_routed_experts": 32, "n_shared_experts": 2, "first_k_dense_replace": 1,
    "head_dim": 128, "num_experts_per_tok": 4}, "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "glm4_moe": {"head_dim": 128}, "nemotron": {"head_dim": 128, "num_key_value_heads": 8}, "ministral": {"head_dim": 128},
    "step3p7": {"text_config": {"sliding_window": 512, "num_sliding_attention_heads": 96, "num_hidden_layers": 5, "layer_types":
                ["full_attention"] + ["sliding_attention"] * 3 + ["full_attention"]}},
    "lfm2_moe": {"num_hidden_layers": 6, "layer_types": ["conv", "conv", "full_attention"] * 2},
    "rwkv": {"hidden_size": 512, "num_hidden_layers": 3}, "aya_vision": {"vision_config": {"model_type":
    "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "vision_use_head": False}}, "deepseek_v2": {"num_experts_per_tok": 6, "n_routed_experts": 64, "topk_group": 1,
    "n_group": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 1408},
}
SHAPES = ((2, 48), (1, 72))
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
              "num_decoder_layers", "depth", "num_encoder_layers", "layers")
NOT_DIMENSIONS = re.compile(
    r"dropout|token|_id$|initializer|eps$|epsilon|theta|_scale$|seed|version|label|pad_|cache|dtype|std|prob|"
    r"temperature|loss|coef|problem|return_|output_attent|output_hidden|chunk_size_feed|gradient|drop_|logit_scale|"
    r"scaling|clip_|max_length|sampling|beam|penalty|min_length|length_penalty|pruned|is_decoder$|tie_encoder|"
    r"max_window_layers|original_max|mask_time|mask_feature|jitter|layerdrop|ctc_|quantiz|rope_|_path_rate|logit_cap|"
    r"softcap|soft_cap|multiplier|add_cross|cross_attention_hidden|finetun|task|transformers_|torchscript|attn_impl")


def config_class(model_type):
    from transformers import CONFIG_MAPPING
    return CONFIG_MAPPING[model_type]


def model_classes(model_type, config):
    """(name of the auto class, class) for the model type: the main one, the base, sequence and token classifiers."""
    from transformers.models.auto import modeling_auto as auto
    found = []
    for head in HEADS:
        mapping = getattr(auto, head + "_MAPPING", None)
        if mapping is not None and type(config) in mapping:
            found.append(mapping[type(config)])
            break
    for name in ("MODEL",) + OTHERS:
        mapping = getattr(auto, name + "_MAPPING", None)
        if mapping is not None and type(config) in mapping:
            found.append(mapping[type(config)])
    classes = []
    for entry in found:
        for cls in entry if isinstance(entry, (list, tuple)) else (entry,):
            if cls not in classes:
                classes.append(cls)
    if not classes:
        from transformers import PreTrainedModel
        package = type(config).__module__.rsplit(".", 1)[0]
        for path in sorted(Path(importlib.import_module(package).__file__).parent.glob("modeling_*.py")):
            module = importlib.import_module(package + "." + path.stem)
            for _, cls in inspect.getmembers(module, inspect.isclass):
                if issubclass(cls, PreTrainedModel) and cls.__module__ == module.__name__ and \
                        getattr(cls, "config_class", None) is type(config) and not cls.__name__.endswith("PreTrainedModel"):
                    classes.append(cls)
        classes.sort(key=lambda cls: (not cls.__name__.endswith(("Model", "Encoder")), len(cls.__name__)))
        classes = classes[:1]
    return classes


def on_two_devices(packet, args, kwargs):
    """Whole numbers and masks are computed for real, on the CPU, so that sizes that depend on them are known; what they
    meet on the meta device takes them along."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten
    aten = torch.ops.aten
    flat, spec = tree_flatten((args, kwargs))
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    meta = [t for t in tensors if t.is_meta]
    if not meta:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "meta":
            whole = [t.dtype for t in tensors] or [kwargs.get("dtype")]
            if packet in (aten.arange, aten.full) and kwargs.get("dtype") is None:
                numbers = [x for x in flat if isinstance(x, (int, float)) and not isinstance(x, bool)]
                whole = [torch.int64 if all(isinstance(x, int) for x in numbers) else torch.float32]
            if kwargs.get("dtype") is not None:
                whole = [kwargs["dtype"]]
            if all(d is not None and not d.is_floating_point and not d.is_complex for d in whole):
                kwargs = dict(kwargs, device=torch.device("cpu"))
        return args, kwargs
    if len(meta) == len(tensors):
        return args, kwargs
    if packet == aten.index and args[0].is_meta:
        flat = [x if not isinstance(x, torch.Tensor) or x.is_meta or x.dtype != torch.bool else x.nonzero(as_tuple=True)
                for x in flat]
        args, kwargs = tree_unflatten(flat, spec)
        if any(isinstance(x, tuple) for x in args[1]):
            args = (args[0], [y for x in args[1] for y in (x if isinstance(x, tuple) else (x,))])
        flat, spec = tree_flatten((args, kwargs))
    flat = [torch.empty_like(x, device="meta") if isinstance(x, torch.Tensor) and not x.is_meta else x for x in flat]
    return tree_unflatten(flat, spec)


class Counter:
    """Counts matrix products of a module while it runs."""

    def __init__(self, model):
        from torch.utils._python_dispatch import TorchDispatchMode
        import torch
        self.weights = self.conv = self.core = self.rest = 0
        self.detail = {}
        self.stack = []
        # A parameter may lie in several views; their storage is what they share.
        self.stored = {p.untyped_storage()._cdata for p in list(model.parameters()) + list(model.buffers())}
        for name, module in model.named_modules():
            kind = (re.sub(r"\d+", "*", name), type(module).__name__)
            module.register_forward_pre_hook(lambda m, a, kind=kind: self.stack.append(kind))
            module.register_forward_hook(lambda m, a, o: self.stack.pop() and None)
        outer = self
        aten = torch.ops.aten

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                packet = func.overloadpacket
                if packet == aten._local_scalar_dense and args[0].is_meta:
                    return True if args[0].dtype == torch.bool else 1  # "nothing is packed", "nothing is padded"
                args, kwargs = on_two_devices(packet, args, kwargs or {})
                out = func(*args, **kwargs)
                if packet in (aten.mm, aten.bmm):
                    a, b = args[0], args[1]
                    outer.add(a, b, 2 * a.numel() * b.shape[-1], a.shape[-1])
                elif packet in (aten.addmm, aten.baddbmm):
                    a, b = args[1], args[2]
                    outer.add(a, b, 2 * a.numel() * b.shape[-1], a.shape[-1])
                elif packet in (aten.addmv, aten.mv, aten.dot):
                    a, b = args[-2], args[-1]
                    outer.add(a, b, 2 * a.numel(), a.shape[-1])
                elif packet == aten.convolution:
                    x, w, transposed = args[0], args[1], args[6]
                    positions = (x if transposed else out).shape[2:].numel() * x.shape[0]
                    outer.note("conv", 2 * positions * w.numel(), tuple(w.shape))
                elif "scaled_dot_product" in str(packet):
                    q, k, v = args[0], args[1], args[2]
                    pairs = q.shape[:-1].numel() * k.shape[-2]
                    outer.note("core", 2 * pairs * (q.shape[-1] + v.shape[-1]), "sdpa")
                elif packet == aten._grouped_mm:
                    a, b = args[0], args[1]
                    outer.note("weights", 2 * a.numel() * b.shape[-1], tuple(b.shape))
                return out

        self.mode = Mode()

    def is_stored(self, tensor):
        return tensor.untyped_storage()._cdata in self.stored

    def add(self, a, b, flop, inner):
        if self.is_stored(a) or self.is_stored(b):
            if inner == 1:
                return  # rotary tables: positions times frequencies
            self.note("weights", flop, tuple((b if self.is_stored(b) else a).shape))
        elif inner > 1:
            place = " ".join(kind for _, kind in self.stack).lower()
            linear = re.search(r"mamba|deltanet|delta_net|deltaattention|linearatt|lightning|rwkv|mlstm|shortconv|rglru|kda", place)
            attention = "atten" in place or "attn" in place or "mha" in place
            self.note("core" if attention and not linear else "rest", flop, "x")

    def note(self, kind, flop, what):
        setattr(self, kind, getattr(self, kind) + flop)
        where = self.stack[-1] if self.stack else ("", "")
        key = (kind, where[0], where[1], str(what))
        self.detail[key] = self.detail.get(key, 0) + flop

    def result(self):
        return [self.weights, self.conv, self.core, self.rest]


def count_experts():
    """Routed experts without data-dependent shapes: every token through `top_k` of them."""
    import torch
    try:
        from transformers.integrations import moe
    except ImportError:
        return

    def forward(self, hidden_states, top_k_index, top_k_weights):
        rows = top_k_index.numel()
        x = hidden_states.new_empty((rows, hidden_states.shape[-1]))
        transposed = getattr(self, "is_transposed", False)
        first = self.gate_up_proj if getattr(self, "has_gate", True) else self.up_proj
        y = x @ (first[0] if transposed else first[0].T)
        if getattr(self, "has_gate", True):
            y = y[:, : y.shape[-1] // 2]
        y = y @ (self.down_proj[0] if transposed else self.down_proj[0].T)
        return hidden_states.new_empty(hidden_states.shape)

    for name in list(moe.ALL_EXPERTS_FUNCTIONS._global_mapping) + ["eager"]:
        moe.ALL_EXPERTS_FUNCTIONS.register(name, forward)
    moe.ALL_EXPERTS_FUNCTIONS.get_interface = lambda *a, **k: forward


def sub(config, *names):
    for name in names:
        value = getattr(config, name, None)
        if value is not None and not isinstance(value, dict):
            return value
    return config


def image_of(config):
    """(channels, height, width) that a tower of fixed size takes."""
    vision = sub(config, "vision_config", "backbone_config")
    size = getattr(vision, "image_size", None) or getattr(config, "image_size", None) or 224
    if isinstance(size, dict):
        size = [size.get("height"), size.get("width")]
    height, width = (size, size) if isinstance(size, int) else (size[-2], size[-1])
    channels = getattr(vision, "num_channels", None) or getattr(config, "num_channels", 3) or 3
    return channels, height, width


def inputs_of(model, config, shape, device):
    """Keyword arguments of one forward pass."""
    import torch
    batch, tokens = shape
    signature = inspect.signature(model.forward).parameters
    kwargs = {}

    def ids(b=batch, t=tokens):
        return torch.zeros((b, t), dtype=torch.long)

    main = getattr(model, "main_input_name", "input_ids")
    if "grid_thw" in signature and "input_ids" not in signature:
        return vision_grid(model, config, shape, device)
    if config.model_type == "molmo2_vision":  # takes the patches of one crop
        rows = config.patch_size * config.patch_size * config.num_channels
        return {"pixel_values": torch.zeros((1, config.num_position_embeddings, rows), device=device)}
    if config.model_type == "florence_vision":  # of the size that its processor makes
        return {"hidden_states": torch.zeros((1, config.in_channels, 768, 768), device=device)}
    if main == "pixel_values":
        batch = 1  # towers that pack images see all of them as one
    has = signature.__contains__
    vision_only = "pixel_values" in signature and "input_ids" not in signature
    if has("input_ids") and main != "pixel_values":
        kwargs["input_ids"] = ids()
    elif has("input_ids"):
        kwargs["input_ids"] = ids()
        if main == "pixel_values" and not hasattr(config, "text_config"):
            kwargs["pixel_values"] = torch.zeros((batch, *image_of(config)), device=device)
    elif vision_only or (main == "pixel_values" and has("pixel_values")):
        kwargs["pixel_values"] = torch.zeros((batch, *image_of(config)), device=device)
    elif has("input_values") and hasattr(config, "frequency_stride"):
        kwargs["input_values"] = torch.zeros((1, config.max_length, config.num_mel_bins), device=device)
    elif has("input_values"):
        samples = tokens
        for kernel, stride in zip(reversed(config.conv_kernel), reversed(config.conv_stride)):
            samples = (samples - 1) * stride + kernel  # what `tokens` frames need
        kwargs["input_values"] = torch.zeros((batch, samples), device=device)
    elif has("input_features"):
        mel = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or \
            getattr(sub(config, "audio_config", "encoder_config"), "num_mel_bins", 80)
        positions = getattr(config, "max_source_positions", None)
        length = 2 * positions if positions else 8 * tokens
        kwargs["input_features"] = torch.zeros((batch, mel, length), device=device)
    elif has("inputs_embeds"):
        kwargs["inputs_embeds"] = torch.zeros((batch, tokens, config.hidden_size), device=device)
    if has("cross_attention_states") and not hasattr(config, "vision_config"):
        kwargs["cross_attention_states"] = torch.zeros((batch, tokens // 2, config.hidden_size), device=device)
    if has("aspect_ratio_ids") and not has("input_ids"):
        kwargs["pixel_values"] = torch.zeros((1, 1, config.max_num_tiles, *image_of(config)), device=device)
        kwargs["aspect_ratio_ids"] = torch.ones((1, 1), dtype=torch.long)
        kwargs["aspect_ratio_mask"] = torch.ones((1, 1, config.max_num_tiles), dtype=torch.long)
    if has("feature_lens"):  # sound of 30 seconds
        kwargs["input_features"] = torch.zeros((config.num_mel_bins, 3000), device=device)
        kwargs["feature_lens"] = torch.tensor([3000], device="cpu")
    if has("decoder_input_ids"):
        kwargs["decoder_input_ids"] = ids(batch, tokens // 2)
    if has("pixel_values") and hasattr(config, "text_config") and hasattr(model, "get_text_features"):
        kwargs["pixel_values"] = torch.zeros((batch, *image_of(config)), device=device)  # two towers: CLIP and its kin
    if has("bbox"):
        kwargs["bbox"] = torch.zeros((batch, tokens, 4), dtype=torch.long, device=device)
    if has("use_cache"):
        kwargs["use_cache"] = False
    return kwargs


def vision_grid(model, config, shape, device):
    """Patches of one image for towers that take them flattened (Qwen2-VL and its kin)."""
    import torch
    side = 8 * shape[0]
    patch = config.patch_size
    temporal = getattr(config, "temporal_patch_size", 1)
    channels = getattr(config, "in_channels", None) or getattr(config, "in_chans", 3)
    name = next(iter(inspect.signature(model.forward).parameters))
    return {name: torch.zeros((side * side, channels * temporal * patch * patch), device=device),
            "grid_thw": torch.tensor([[1, side, side]], device="cpu")}


def build(cls, config, device="meta"):
    import torch
    config = copy.deepcopy(config)
    for part in (config, config.get_text_config()):
        if getattr(part, "pad_token_id", None) is None:
            part.pad_token_id = 0  # classifiers of several sequences ask for one
    with torch.device(device):
        for implementation in ("eager", None):
            try:
                if implementation:
                    config._attn_implementation = implementation
                model = cls(config)
                break
            except (ValueError, ImportError):
                if implementation is None:
                    raise
    return model.eval()


def count(cls, config, shapes, forward=True):
    """(parameters, [[weights, conv, core, rest] per shape], why there is no forward pass)"""
    import torch
    model = build(cls, config)
    params = sum(p.numel() for p in model.parameters())
    # Routing corrections of DeepSeek-V3 and its kin are buffers; checkpoints and published totals have them.
    params += sum(b.numel() for name, b in model.named_buffers() if "correction_bias" in name or name.endswith("expert_bias"))
    if not forward:
        return params, [], ""
    results, why, detail = [], "", {}
    for shape in shapes:
        counter = Counter(model)
        try:
            with torch.no_grad(), counter.mode:
                model(**inputs_of(model, config, shape, "meta"))
            results.append(counter.result())
            detail = counter.detail
        except Exception as error:
            if os.environ.get("TRACE"):
                import traceback
                traceback.print_exc()
            # a module of its own inputs or with data-dependent shapes
            why = f"{type(error).__name__}: {str(error)[:160]}"
        for module in model.modules():
            module._forward_hooks.clear()
            module._forward_pre_hooks.clear()
        if why:
            break
    return params, results, why, detail


def strip(value):
    """What decides no dimension is left out of the stored config."""
    if isinstance(value, dict):
        return {k: strip(v) for k, v in value.items()
                if not (k in ("id2label", "label2id", "transformers_version", "_attn_implementation", "bos_token_id",
                              "eos_token_id", "pad_token_id", "initializer_range", "return_dict", "architectures")
                        or k.endswith(("_dropout", "_token_id", "_token_index")) or "dropout" in k)}
    return value


def dimension_keys(config, prefix=""):
    """Keys of a config that may decide a dimension, with another value for each."""
    for key, value in config.to_dict().items():
        nested = getattr(config, key, None)
        if hasattr(nested, "to_dict") and key.endswith("config"):
            yield from dimension_keys(nested, prefix + key + ".")
            continue
        if NOT_DIMENSIONS.search(key) or key.startswith("_"):
            continue
        if isinstance(value, bool):
            yield prefix + key, not value
        elif isinstance(value, int) and 0 < value < 1 << 22:
            yield prefix + key, value * 2
            if value % 2 == 0 and key not in LAYER_KEYS:
                yield prefix + key, value // 2
            elif key in LAYER_KEYS:
                yield prefix + key, value + 1


def changed(config_type, base, key, value):
    """A config with one key changed: built from the keys that the class was given, so that derived ones follow."""
    data = copy.deepcopy(base)
    *path, last = key.split(".")
    target = data
    for step in path:
        target = target.setdefault(step, {})
    target[last] = value
    return config_type.from_dict(data)


def set_layers(data, config):
    """The same model with few layers, so that it runs fast."""
    for key in LAYER_KEYS:
        if isinstance(getattr(config, key, None), int) and getattr(config, key) > 3:
            data[key] = 3
    for key, nested in vars(config).items():
        if key.endswith("config") and hasattr(nested, "to_dict"):
            part = {}
            set_layers(part, nested)
            if part:
                data[key] = part


def one_type(model_type, variants=True):
    import torch  # noqa: F401
    count_experts()
    config_type = config_class(model_type)
    default = config_type(**NEEDS.get(model_type, {}))
    lines = []
    for place, cls in enumerate(model_classes(model_type, default)):
        line = {"type": model_type, "class": cls.__name__}
        try:
            params, flop, why, _ = count(cls, default, SHAPES)
        except Exception as error:
            line["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
            lines.append(line)
            continue
        line["config"] = strip(json.loads(json.dumps(default.to_diff_dict(), default=str).replace("Infinity", "null")))
        if default.num_labels != 2:
            line["config"]["num_labels"] = default.num_labels
        line["params"], line["flop"] = params, flop
        if why:
            line["no_forward"] = why
        if place == 0 and variants:
            line["variants"] = []
            base = dict(NEEDS.get(model_type, {}))
            set_layers(base, default)
            tried = [("", None)] + list(dimension_keys(default))
            for key, value in tried[:40]:
                try:
                    config = changed(config_type, base, key, value) if key else config_type.from_dict(copy.deepcopy(base))
                    p, f, _, _ = count(cls, config, SHAPES[:1], forward=not why)
                    line["variants"].append([strip(json.loads(json.dumps(config.to_diff_dict(), default=str).replace("Infinity", "null"))), key, p,
                                             f[0] if f else None])
                except Exception:
                    continue
            line["base"] = base
        lines.append(line)
    return lines


def show(model_type, assignments):
    count_experts()
    config_type = config_class(model_type)
    data = {}
    for text in assignments:
        key, value = text.split("=", 1)
        data[key] = json.loads(value)
    config = config_type.from_dict(data)
    for cls in model_classes(model_type, config):
        model = build(cls, config)
        print(f"== {model_type} {cls.__name__}: {sum(p.numel() for p in model.parameters()):,} parameters")
        groups = {}
        for name, p in model.named_parameters():
            key = (re.sub(r"\.\d+\.", ".*.", name), tuple(p.shape))
            groups[key] = groups.get(key, 0) + 1
        for (name, shape_), times in groups.items():
            print(f"  {times:4} {name} {list(shape_)}")
        _, flop, why, detail = count(cls, config, SHAPES[:1])
        print("flop", flop, why)
        for (kind, where, what, shape_), value in detail.items():
            print(f"  {kind} {value:,} {where} {what} {shape_}")
        break


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--types", help="comma-separated; default: all")
    parser.add_argument("--show", nargs="+", metavar="TYPE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=150)
    parser.add_argument("--no-variants", action="store_true")
    parser.add_argument("out", nargs="?")
    args = parser.parse_args()
    if args.show:
        show(args.show[0], args.show[1:])
        return
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    types = args.types.split(",") if args.types else list(CONFIG_MAPPING_NAMES)
    out = open(args.out, "a")
    done = set()
    if Path(args.out).exists():
        done = {json.loads(line).get("type") for line in open(args.out)}
    if not done:
        out.write(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "shapes": SHAPES}) + "\n")

    import transformers.modeling_utils
    from transformers.models.auto import modeling_auto  # noqa: F401  imported once, every type is a fork of this process

    def child(model_type, write_end):
        with os.fdopen(write_end, "w") as pipe:
            for line in one_type(model_type, not args.no_variants):
                pipe.write(json.dumps(line, separators=(",", ":")) + "\n")
                pipe.flush()

    def run(model_type):
        if model_type in done:
            return
        read_end, write_end = os.pipe()
        process = multiprocessing.get_context("fork").Process(target=child, args=(model_type, write_end))
        process.start()
        os.close(write_end)
        timer = threading.Timer(args.timeout, process.kill)
        timer.start()
        with os.fdopen(read_end) as pipe:
            lines = pipe.read().splitlines()
        process.join()
        timer.cancel()
        if not lines:
            lines = [json.dumps({"type": model_type, "failed": f"exit {process.exitcode}"})]
        with lock:
            out.write("".join(line + "\n" for line in lines))
            out.flush()

    lock = threading.Lock()
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, types))


if __name__ == "__main__":
    main()
