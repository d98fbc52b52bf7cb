"""FLOP of a dense decoder-only transformer, written apart from the product so that the two can disagree.

A multiply and an add are two operations; matrix multiplies only; attention counts the keys that the causal mask lets
each row see; embeddings, norms and activations are not counted.
"""


def forward_flop(config, batch, new, past=0, logits="all"):
    """FLOP of one forward pass over `batch` sequences of `new` tokens with `past` tokens cached each.

    config: a Hugging Face config (llama, qwen2, qwen3 or mistral keys) as a dict. logits: `all` rows or the `last`.
    """
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    tokens = batch * new
    projections = 2 * tokens * hidden * head_dim * (heads + 2 * kv_heads) + 2 * tokens * heads * head_dim * hidden
    mlp = 3 * 2 * tokens * hidden * config["intermediate_size"]
    pairs = batch * (new * past + new * (new + 1) // 2)
    attention = 2 * 2 * pairs * heads * head_dim  # scores, then the weighted sum
    rows = tokens if logits == "all" else batch
    return config["num_hidden_layers"] * (projections + mlp + attention) + 2 * rows * hidden * config["vocab_size"]


def train_flop(config, batch, seq_len):
    """Forward and backward of one step, every weight trained: three forward passes."""
    return 3 * forward_flop(config, batch, seq_len, logits="all")
