"""Each pass of vLLM has one name, up to the sample: vLLM's own are there for its profilers only."""

import torch
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

prompts_of = {}  # request > tokens of its prompt


def by_requests(scheduled):
    """Where all sequences are as long."""
    tokens = scheduled.num_scheduled_tokens
    if scheduled.scheduled_new_reqs:
        return f"prefill batch={len(tokens)} seq_len={next(iter(tokens.values()))}"
    return f"decode batch={len(tokens)} context={scheduled.scheduled_cached_reqs.num_computed_tokens[0]}"


def by_prompts(scheduled):
    """All that a pass reads is of prompts, or behind them; with its tokens, and its pairs of a token and one before it or itself."""
    cached = scheduled.scheduled_cached_reqs
    before = {one.req_id: one.num_computed_tokens for one in scheduled.scheduled_new_reqs}
    before.update(zip(cached.req_ids, cached.num_computed_tokens))
    prompts_of.update((one.req_id, len(one.prompt_token_ids)) for one in scheduled.scheduled_new_reqs)
    tokens = scheduled.num_scheduled_tokens
    writes = sum(before[one] >= prompts_of[one] for one in tokens)
    name = "decode" if writes == len(tokens) else "mixed" if writes else "prefill"
    pairs = sum(new * before[one] + new * (new + 1) // 2 for one, new in tokens.items())
    return f"{name} tokens={sum(tokens.values())} pairs={pairs}"


def name_passes(name):
    execute, sample = GPUModelRunner.execute_model, GPUModelRunner.sample_tokens

    def named(self, scheduled, *words, **kwargs):
        if scheduled.num_scheduled_tokens:
            torch.cuda.nvtx.range_push(name(scheduled))
        return execute(self, scheduled, *words, **kwargs)

    def sampled(self, *words, **kwargs):
        try:
            return sample(self, *words, **kwargs)
        finally:
            torch.cuda.nvtx.range_pop()

    GPUModelRunner.execute_model, GPUModelRunner.sample_tokens = named, sampled
