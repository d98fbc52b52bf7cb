"""Passes of servers and of speculative decoding, as the interpreter's part reports them. On the CPU.

vLLM and SGLang are stand-ins here: classes of their names, with the fields that a pass is read from, fed by a scheduler that chunks
prompts, drafts tokens and has sequences wait. transformers is the real one. Prints a line for each program, and exits with 1 where a
pass is missing, has another kind, other sequences, tokens or context.
"""

import enum
import sys
import types
import warnings

import torch
from counts_child import facts, listen
from torch import nn

PASS_BEGIN, PASS_END = 0, 1
OF_CONFIG = 1 << 24
PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"


def found_passes():
    """(kind, of those that are read: sequences, tokens, context; the same of those that decode) of each pass."""
    passes = []
    for kind, _, _, _, *shape in facts:
        if kind != PASS_BEGIN:
            continue
        batch, seq_len, context, tokens, writes, write_tokens, read_context = (*shape, *[-1] * (7 - len(shape)))
        if writes >= 0:
            passes.append((MIXED, (batch, tokens, read_context), (writes, write_tokens, context)))
        elif (seq_len == 1 or (seq_len < 0 and tokens < 0)) and context != 0:
            passes.append((DECODE, None, (batch, write_tokens if write_tokens >= 0 else batch, context)))
        else:
            passes.append((PREFILL, (batch, tokens if tokens >= 0 else batch * seq_len, context), None))
    ends = sum(fact[0] == PASS_END for fact in facts)
    return passes if ends == len(passes) else [*passes, f"{ends} ends"]


def seen(sequences):
    """Pairs of a new token and one that it sees."""
    return sum(before + i + 1 for new, before, _ in sequences for i in range(new))


def evenly(count, tokens, context):
    return [(tokens // count + (i < tokens % count), context, None) for i in range(count)]


def group(sequences):
    """One context for all, such that the pairs are as near to theirs as they can be."""
    if not sequences:
        return None
    count, tokens = len(sequences), sum(one[0] for one in sequences)
    contexts = range(max(one[1] for one in sequences) + tokens + 1)
    return count, tokens, min(contexts, key=lambda c: (abs(seen(evenly(count, tokens, c)) - seen(sequences)), -c))


def true_pass(sequences):
    """\\param sequences (new tokens, tokens before them, whether it decodes)"""
    reads, writes = (group([one for one in sequences if one[2] is decodes]) for decodes in (False, True))
    return MIXED if reads and writes else DECODE if writes else PREFILL, reads, writes


class Config:
    def to_dict(self):
        return {"model_type": "llama", "hidden_size": 8}


# --- vLLM ---------------------------------------------------------------------------------------------------------------


class GPUModelRunner:
    def __init__(self):
        self.model_config, self.parallel_config = types.SimpleNamespace(hf_config=Config()), types.SimpleNamespace()

    def execute_model(self, scheduler_output):
        self.execute_model_state = len(scheduler_output.num_scheduled_tokens)

    def sample_tokens(self, grammar=None):
        self.execute_model_state = None

    def _dummy_run(self, tokens):
        return self.model(torch.zeros(tokens, 4))


class SecondRunner(GPUModelRunner):
    def execute_model(self, scheduler_output, intermediate_tensors=None, dummy_run=False):
        self.execute_model_state = len(scheduler_output.num_scheduled_tokens)
        return self.model(torch.zeros(1, 4)) if dummy_run else None

    def sample_tokens(self, grammar=None):
        self.execute_model_state = None

    def _dummy_run(self, tokens):
        made_up = types.SimpleNamespace(num_scheduled_tokens={"dummy": tokens}, scheduled_new_reqs=None)
        self.execute_model(made_up, dummy_run=True)
        self.execute_model_state = None


def vllm(drafts, has_outputs, runner=None):
    """Five prompts in chunks of 16 tokens, one of which leaves a chunk of a single token."""
    runner, true, chunk = (runner or GPUModelRunner)(), [], 16
    runner.model = torch.nn.Linear(4, 4)
    runner._dummy_run(8)
    prompts = {"a": 40, "b": 33, "c": 1, "d": 12, "e": 20}
    computed, made, arrived = dict.fromkeys(prompts, 0), dict.fromkeys(prompts, 0), set()
    for turn in range(12):
        coming = [name for name in prompts if name not in arrived][: 2 if turn % 3 == 0 else 0]
        old = [name for name in prompts if name in arrived]
        counts, tried, sequences = {}, {}, []
        for name in [*old, *coming]:
            decodes = computed[name] >= prompts[name]
            if decodes and drafts and (turn + len(name)) % 2 == 0:
                tried[name] = [7] * (1 + (turn + ord(name[0])) % drafts)
            counts[name] = 1 + len(tried.get(name, ())) if decodes else min(chunk, prompts[name] - computed[name])
            if not decodes and counts[name] == 1 and not has_outputs and name not in coming:
                decodes = True  # without that field, a last chunk of one token looks like decode
            sequences.append((counts[name], computed[name], decodes))
        cached = types.SimpleNamespace(req_ids=old, num_computed_tokens=[computed[name] for name in old])
        if has_outputs:
            cached.num_output_tokens = [made[name] for name in old]
        new = [types.SimpleNamespace(req_id=name, num_computed_tokens=0) for name in coming]
        scheduled = types.SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=counts, scheduled_spec_decode_tokens=tried
        )
        runner.execute_model(scheduled)
        runner.sample_tokens()
        arrived.update(coming)
        if counts:
            true.append(true_pass(sequences))
        for name, count in counts.items():
            accepted = 1 + len(tried.get(name, ())) // 2
            computed[name] += accepted if name in tried else count
            if computed[name] >= prompts[name]:
                made[name] += accepted if name in tried else 1
    return true


# --- SGLang -------------------------------------------------------------------------------------------------------------


class ForwardMode(enum.IntEnum):
    EXTEND = enum.auto()
    DECODE = enum.auto()
    MIXED = enum.auto()
    IDLE = enum.auto()
    TARGET_VERIFY = enum.auto()
    DRAFT_EXTEND_V2 = enum.auto()


class ModelRunner:
    def __init__(self):
        self.model_config, self.server_args = types.SimpleNamespace(hf_config=Config()), types.SimpleNamespace()

    def forward(self, forward_batch):
        return forward_batch.batch_size


def batch_of(mode, sequences, **more):
    new, before = ([one[i] for one in sequences] for i in (0, 1))
    keys = sum(before) + (0 if mode is ForwardMode.TARGET_VERIFY else sum(new))
    ids = torch.zeros(sum(new), dtype=torch.int64)
    batch = types.SimpleNamespace(forward_mode=mode, batch_size=len(sequences), input_ids=ids, seq_lens_sum=keys)
    batch.extend_num_tokens = batch.extend_seq_lens_cpu = batch.extend_prefix_lens_cpu = None
    if mode in (ForwardMode.EXTEND, ForwardMode.MIXED):
        batch.extend_num_tokens, batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu = sum(new), new, before
    vars(batch).update(more)
    return batch


def sglang():
    runner, mode = ModelRunner(), ForwardMode
    passes = [
        (mode.EXTEND, [(40, 0, False), (12, 64, False)]),
        (mode.DECODE, [(1, 40, True), (1, 76, True)]),
        (mode.IDLE, []),
        (mode.MIXED, [(64, 128, False), (1, 41, True), (1, 77, True)]),
        (mode.TARGET_VERIFY, [(4, 42, True), (4, 78, True)]),
        (mode.DRAFT_EXTEND_V2, [(5, 42, True), (5, 78, True)]),
    ]
    for kind, sequences in passes:
        runner.forward(batch_of(kind, sequences))
    runner.forward(batch_of(mode.DECODE, passes[1][1], seq_lens_sum=None))
    return [true_pass(sequences) for _, sequences in passes if sequences] + [(DECODE, None, (2, 2, -1))]


# --- transformers -------------------------------------------------------------------------------------------------------


def language_model(width):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(width)
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, max_position_embeddings=256, **sizes)).eval()


def speculating(prompts=2, draft=None, **words):
    """Of each prompt one pass is prefill; the others check what was drafted, or draft it."""
    models = [language_model(16)] + ([language_model(8)] if draft else [])
    true = []

    def note(model, values, more):
        cache, ids = more["past_key_values"], more["input_ids"]
        before = cache.get_seq_length()
        true.append(true_pass([(ids.shape[1], before, before > 0)] * ids.shape[0]))

    for model in models:
        model.register_forward_pre_hook(note, with_kwargs=True)
    if draft:
        words["assistant_model"] = models[1]
    for turn in range(prompts):
        ids = (torch.arange(20)[None] * (turn + 3)) % 37
        models[0].generate(ids, max_new_tokens=24, min_new_tokens=24, do_sample=False, pad_token_id=0, **words)
    return true


def continuous():
    """Prompts of several lengths in one batch. What is reported is held against the model's own positions and lengths."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    model, true = language_model(16), []

    def note(module, values, more):
        ends, keys = more["cu_seq_lens_q"].tolist(), more["cu_seq_lens_k"]
        keys = (next(iter(keys.values())) if type(keys) is dict else keys).tolist()
        passes = zip(ends, ends[1:], keys, keys[1:], strict=False)
        # No prompt here leaves a chunk of one token.
        each = [(end - begin, last - first - (end - begin)) for begin, end, first, last in passes if end > begin]
        true.append(true_pass([(new, before, new == 1) for new, before in each]))

    words = GenerationConfig(max_new_tokens=8, eos_token_id=39, pad_token_id=0, do_sample=False)
    sizes = ContinuousBatchingConfig(num_blocks=64, block_size=8, max_batch_tokens=32)
    model.register_forward_pre_hook(note, with_kwargs=True)
    model.generate_batch([list(range(1, 1 + length)) for length in (12, 20, 16, 16, 20)], generation_config=words, continuous_batching_config=sizes)
    return true


def classes_with_configs():
    """\return whether a config says what runs: of a class of transformers and what the program calls so, or of another package's
    language model; not where the program adds to it"""
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, LlamaPreTrainedModel, PreTrainedModel

    class Renamed(LlamaForCausalLM):
        pass

    class WithValues(LlamaForCausalLM):
        def forward(self, input_ids):
            return super().forward(input_ids=input_ids).logits.mean()

    class WithHead(LlamaPreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.model, self.head = LlamaModel(config), nn.Linear(16, 64)

        def forward(self, input_ids):
            return self.head(self.model(input_ids)[0])

    class Around(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.model, self.head = config, LlamaModel(config), nn.Linear(16, 64)

        def forward(self, input_ids):
            return self.head(self.model(input_ids)[0])

    class OtherForCausalLM(PreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.layer, self.head = nn.Embedding(40, 16), nn.Linear(16, 40)

        def forward(self, input_ids):
            return self.head(self.layer(input_ids))

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40}
    config, found = LlamaConfig(**sizes, attn_implementation="eager"), []
    for kind in (LlamaForCausalLM, Renamed, WithValues, WithHead, Around, OtherForCausalLM):
        model = kind(config)
        facts.clear()
        model(torch.ones(2, 8, dtype=torch.int64))
        found += [fact[3] >= OF_CONFIG for fact in facts if fact[0] == PASS_BEGIN]
    return found == [True, True, False, False, False, True]


def documents_in_rows():
    """\return whether a config does not count rows with documents, unless all are of one length"""
    from transformers import LlamaConfig, LlamaForCausalLM, modeling_flash_attention_utils
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def within(module, query, key, value, mask, position_ids=None, **more):
        if "cu_seq_lens_q" not in more and position_ids[0, 4] == 0:
            modeling_flash_attention_utils._prepare_from_posids(query.mT, key.mT, value.mT, position_ids)
        return query.transpose(1, 2), None

    ALL_ATTENTION_FUNCTIONS.register("within", within)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40}
    model = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="within"))
    ids, row, documents = torch.ones(1, 12, dtype=torch.int64), torch.arange(12)[None], torch.arange(4).repeat(3)[None]
    ends, equal = torch.tensor([0, 3, 7, 12]), torch.tensor([0, 4, 8, 12])
    facts.clear()
    model(ids, position_ids=row)
    model(ids, position_ids=documents, cu_seq_lens_q=ends, max_length_q=5)
    model(ids, position_ids=documents, cu_seq_lens_q=equal, max_length_q=4)
    for _ in range(2):
        model(ids, position_ids=documents)
    found = [(fact[3] >= OF_CONFIG, fact[4], fact[5]) for fact in facts if fact[0] == PASS_BEGIN]
    return found == [(True, 1, 12), (False, 1, 12), (True, 3, 4), (True, 1, 12), (False, 1, 12)]


PROGRAMS = {
    "vLLM": lambda: vllm(0, True),
    "vLLM, drafted tokens": lambda: vllm(3, True),
    "vLLM before it said how many tokens were made": lambda: vllm(3, False),
    "vLLM, the second runner": lambda: vllm(3, True, SecondRunner),
    "SGLang": sglang,
    "transformers": lambda: speculating(),
    "transformers, tokens of the prompt tried": lambda: speculating(prompt_lookup_num_tokens=3),
    "transformers, continuous batching": continuous,
    "transformers, a draft model": lambda: speculating(draft=True),
}


def main():
    warnings.simplefilter("ignore")
    for name, words, one in (
        ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", GPUModelRunner),
        ("vllm.v1.worker.gpu.model_runner", "GPUModelRunner", SecondRunner),
        ("sglang.srt.model_executor.model_runner", "ModelRunner", ModelRunner),
    ):
        sys.modules[name] = types.ModuleType(name)
        setattr(sys.modules[name], words, one)
    import transformers.generation.utils  # noqa: F401

    listen()
    wrong = 0
    others = {"classes with configs": classes_with_configs, "documents in rows": documents_in_rows}
    for words, program in others.items():
        good = program()
        wrong += not good
        print("ok  " if good else "FAIL", words)
    for words, program in PROGRAMS.items():
        facts.clear()
        true = program()
        found = found_passes()
        other = [pair for pair in zip(found, true, strict=False) if pair[0] != pair[1]]
        good = not other and len(found) == len(true)
        wrong += not good
        print("ok  " if good else f"FAIL {len(found)} of {len(true)} passes, {other[:3]}:", words)
    print(f"{len(PROGRAMS) + len(others) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
