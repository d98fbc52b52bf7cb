"""Builds models of transformers from the configs that are read from stdin, on the device and with no weights loaded, and runs one forward and one
training pass of each. Says on stdout when each pass began and ended (CLOCK_REALTIME ns), or why a model could not be run.

    {"name", "config", "batch", "seq_len"} a line > {"name", "passes": {"prefill": [begin, end], "train": [begin, end]}} or {"name", "error"}
"""

import json
import sys
import time
import warnings

import torch
import transformers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()


def build(config):
    kind = config.pop("model_type")
    made = transformers.AutoConfig.for_model(kind, **config)
    for maker in (transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForMaskedLM):
        if type(made) in maker._model_mapping:
            for attention in ("sdpa", "eager"):
                try:
                    with torch.device("cuda"):
                        return maker.from_config(made, dtype=torch.bfloat16, attn_implementation=attention)
                except ValueError as error:
                    if "attention implementation" not in str(error):
                        raise
    raise ValueError(f"{kind} is no text model of transformers")


def routed_flop(model, tokens):
    """FLOP of the experts that a forward pass is routed to: each token takes so many, and each is a product with every matrix of it."""
    total = 0
    for module in model.modules():
        if type(module).__name__.endswith("Experts"):
            text = model.config.get_text_config()
            taken = next(
                getattr(text, key) for key in ("num_experts_per_tok", "moe_topk", "num_experts_per_token") if hasattr(text, key)
            )
            matrices = [p for p in module.parameters() if p.dim() == 3]
            total += sum(2 * tokens * taken * p.numel() // p.shape[0] for p in matrices)
    return total


def timed(run):
    torch.cuda.synchronize()
    begin = time.time_ns()
    run()
    torch.cuda.synchronize()
    return [begin, time.time_ns()]


def main():
    torch.manual_seed(1)
    for line in sys.stdin:
        wanted = json.loads(line)
        answer = {"name": wanted["name"]}
        try:
            model = build(dict(wanted["config"]))
            ids = torch.randint(5, 99, (wanted["batch"], wanted["seq_len"])).cuda()
            words = {"input_ids": ids}
            if model.config.is_encoder_decoder:
                words["decoder_input_ids"] = ids
            passes = {}
            with torch.no_grad():
                model.eval()
                passes["prefill"] = timed(
                    lambda: (
                        model(**words, use_cache=False) if "use_cache" in model.forward.__code__.co_varnames else model(**words)
                    )
                )
            model.train()
            passes["train"] = timed(lambda: model(**words, labels=ids).loss.backward())
            answer |= {"passes": passes, "routed": routed_flop(model, ids.numel())}
        except Exception as error:  # noqa: BLE001: whatever a model does not like is its result
            answer["error"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]
        model = None
        torch.cuda.empty_cache()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
