#!/usr/bin/env python3
"""Counts what the transformers and UNets of diffusers do, on the meta device: see count_modules.py.

    count_diffusers.py > diffusers.jsonl        needs torch, diffusers and transformers; no GPU, no weights, no network

Each line is one class with a config of a published model: its parameters and the forward FLOP of two shapes, each
[image tokens, text tokens, products with stored matrices and convolutions, attention core], batch 2.
"""

import inspect
import json

import diffusers
import torch
from count_modules import Counter

CASES = [
    ("FluxTransformer2DModel", {"guidance_embeds": True}),
    ("FluxTransformer2DModel", {"num_layers": 3, "num_single_layers": 5, "num_attention_heads": 8, "attention_head_dim": 64,
                                "joint_attention_dim": 512, "pooled_projection_dim": 256, "axes_dims_rope": [8, 28, 28]}),
    ("SD3Transformer2DModel", {"num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536, "pos_embed_max_size": 192}),
    ("SD3Transformer2DModel", {"num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536,
                               "pos_embed_max_size": 384, "dual_attention_layers": list(range(13)), "qk_norm": "rms_norm"}),
    ("QwenImageTransformer2DModel", {}),
    ("WanTransformer3DModel", {}),
    ("WanTransformer3DModel", {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30}),
    ("UNet2DConditionModel", {"cross_attention_dim": 768, "sample_size": 64}),  # Stable Diffusion 1.5
    ("UNet2DConditionModel", {"cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20], "use_linear_projection": True,
                              "sample_size": 96}),  # 2.1
    ("UNet2DConditionModel", {"block_out_channels": [320, 640, 1280], "attention_head_dim": [5, 10, 20], "cross_attention_dim": 2048,
                              "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
                              "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
                              "transformer_layers_per_block": [1, 2, 10], "addition_embed_type": "text_time",
                              "addition_time_embed_dim": 256, "projection_class_embeddings_input_dim": 2816,
                              "use_linear_projection": True, "sample_size": 128}),  # XL
    ("UNet2DConditionModel", {"block_out_channels": [32, 64], "attention_head_dim": 4, "cross_attention_dim": 48, "layers_per_block": 1,
                              "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "in_channels": 9,
                              "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "norm_num_groups": 8, "time_cond_proj_dim": 24}),
    ("DiTTransformer2DModel", {"num_attention_heads": 16, "attention_head_dim": 72, "in_channels": 4, "out_channels": 8,
                               "num_layers": 28, "sample_size": 32, "patch_size": 2, "num_embeds_ada_norm": 1000}),
]


def inputs(name, config, side, text):
    """Keyword arguments of one forward pass on side x side image tokens and `text` text tokens."""
    tokens, batch = side * side, 2

    def full(*shape):
        return torch.zeros((batch, *shape), device="meta")

    if name.startswith(("Flux", "Qwen")):
        kwargs = {"hidden_states": full(tokens, config.in_channels), "encoder_hidden_states": full(text, config.joint_attention_dim),
                  "timestep": torch.zeros(batch, device="meta")}
        if name.startswith("Flux"):
            kwargs |= {"pooled_projections": full(config.pooled_projection_dim), "img_ids": torch.zeros((tokens, 3), device="meta"),
                       "txt_ids": torch.zeros((text, 3), device="meta"), "guidance": torch.zeros(batch, device="meta") if config.guidance_embeds else None}
        else:
            kwargs |= {"img_shapes": [[(1, side, side)]] * batch, "encoder_hidden_states_mask": None}
        return kwargs, tokens
    if name.startswith("UNet"):
        high, wide = 2 * side, side  # latent pixels
        kwargs = {"sample": full(config.in_channels, high, wide), "timestep": torch.zeros(batch, device="meta"),
                  "encoder_hidden_states": full(text, config.cross_attention_dim)}
        if config.addition_embed_type:
            pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
            kwargs["added_cond_kwargs"] = {"text_embeds": full(pooled), "time_ids": full(6)}
        if config.time_cond_proj_dim:
            kwargs["timestep_cond"] = full(config.time_cond_proj_dim)
        return kwargs, high * wide
    if name.startswith("SD3"):
        return {"hidden_states": full(config.in_channels, 2 * side, 2 * side), "timestep": torch.zeros(batch, device="meta"),
                "encoder_hidden_states": full(text, config.joint_attention_dim),
                "pooled_projections": full(config.pooled_projection_dim)}, tokens
    if name.startswith("Wan"):
        return {"hidden_states": full(config.in_channels, 3, 2 * side, 2 * side), "timestep": torch.zeros(batch, device="meta"),
                "encoder_hidden_states": full(text, config.text_dim)}, 3 * tokens
    return {"hidden_states": full(config.in_channels, config.sample_size, config.sample_size),
            "timestep": torch.zeros(batch, dtype=torch.long, device="meta"),
            "class_labels": torch.zeros(batch, dtype=torch.long, device="meta")}, (config.sample_size // config.patch_size) ** 2


def main():
    print(json.dumps({"torch": torch.__version__, "diffusers": diffusers.__version__}))
    for name, changes in CASES:
        cls = getattr(diffusers, name)
        with torch.device("meta"):
            model = cls(**changes).eval()
        config = {key: value for key, value in model.config.items() if not key.startswith("_") and key in
                  inspect.signature(cls.__init__).parameters}
        line = {"config": {"_class_name": name, **config}, "params": sum(p.numel() for p in model.parameters()), "flop": []}
        for side, text in ((16, 77), (8, 33)):
            counter = Counter(model)
            kwargs, tokens = inputs(name, model.config, side, text)
            with torch.no_grad(), counter.mode:
                model(**kwargs)
            line["flop"].append([tokens, text, counter.weights + counter.conv, counter.core])
            for module in model.modules():
                module._forward_hooks.clear()
                module._forward_pre_hooks.clear()
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
