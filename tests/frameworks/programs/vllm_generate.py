"""Offline generation with vLLM: all prompts in one prefill, then decode passes, named in the program or not. Kernels compute nothing, so what is
generated says nothing."""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True, help="folder of a config.json")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--prompt-len", type=int, default=64)
parser.add_argument("--new-tokens", type=int, default=48)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--graphs", action="store_true", help="torch.compile and CUDA graphs, as vLLM does by default")
parser.add_argument("--engine-process", action="store_true", help="the engine in a process of its own, as vLLM does by default")
args = parser.parse_args()

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(args.engine_process))
import torch  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402
from vllm.v1.worker.gpu_model_runner import GPUModelRunner  # noqa: E402

execute = GPUModelRunner.execute_model


def named(self, scheduled, *words, **kwargs):
    """A pass has one name, up to the sample: vLLM's own are there for its profilers only."""
    tokens = scheduled.num_scheduled_tokens
    if not tokens:
        return execute(self, scheduled, *words, **kwargs)
    if scheduled.scheduled_new_reqs:
        name = f"prefill batch={len(tokens)} seq_len={next(iter(tokens.values()))}"
    else:
        name = f"decode batch={len(tokens)} context={scheduled.scheduled_cached_reqs.num_computed_tokens[0]}"
    torch.cuda.nvtx.range_push(name)
    return execute(self, scheduled, *words, **kwargs)


sample = GPUModelRunner.sample_tokens


def sampled(self, *words, **kwargs):
    try:
        return sample(self, *words, **kwargs)
    finally:
        torch.cuda.nvtx.range_pop()


def main():
    if not args.engine_process:
        GPUModelRunner.execute_model, GPUModelRunner.sample_tokens = named, sampled
    llm = LLM(
        model=args.config,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=not args.graphs,
        max_model_len=1024,
        max_num_seqs=8,
        gpu_memory_utilization=0.5,
        disable_log_stats=True,
        compilation_config={"cudagraph_capture_sizes": [1, 2, 4, 8]},
    )
    wanted = SamplingParams(temperature=0, max_tokens=args.new_tokens, ignore_eos=True, detokenize=False)
    for turn in range(args.rounds):
        # Different in each round, so that nothing of an earlier one is found in the cache.
        prompts = [
            {"prompt_token_ids": [3 + (turn * 1000 + i * 100 + k) % 30000 for k in range(args.prompt_len)]} for i in range(args.batch)
        ]
        done = llm.generate(prompts, wanted, use_tqdm=False)
        print("round", turn, [len(one.outputs[0].token_ids) for one in done], flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
