"""Offline generation with vLLM: all prompts in one prefill, then decode passes, named in the program or not; or prompts of many lengths, which are
read in parts or have their beginning in the cache. Kernels compute nothing, so what is generated says nothing."""

import argparse
import os
import random

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True, help="folder of a config.json")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--prompt-len", type=int, default=64)
parser.add_argument("--new-tokens", type=int, default=48)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--graphs", action="store_true", help="torch.compile and CUDA graphs, as vLLM does by default")
parser.add_argument("--lengths", choices=["chunked", "prefix"], help="prompts of many lengths: in parts beside decode, or with a common beginning")
parser.add_argument("--engine-process", action="store_true", help="the engine in a process of its own, as vLLM does by default")
args = parser.parse_args()

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(args.engine_process))
import vllm_names  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402


def main():
    if not args.engine_process:
        vllm_names.name_passes(vllm_names.by_prompts if args.lengths else vllm_names.by_requests)
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
        enable_prefix_caching=args.lengths != "chunked",
        max_num_batched_tokens=256 if args.lengths == "chunked" else None,
    )
    if args.lengths:
        random.seed(1)
        common = [3 + k for k in range(200)] if args.lengths == "prefix" else []
        prompts = [{"prompt_token_ids": common + [random.randrange(3, 30000) for _ in range(random.randint(16, 600))]} for _ in range(20)]
        wanted = [SamplingParams(temperature=0, max_tokens=random.randint(8, 40), ignore_eos=True, detokenize=False) for _ in prompts]
        print("generated", [len(one.outputs[0].token_ids) for one in llm.generate(prompts, wanted, use_tqdm=False)], flush=True)
        return
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
