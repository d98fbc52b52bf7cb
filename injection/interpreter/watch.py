"""Reports what a PyTorch program does, from inside its interpreter: passes, backward passes, updates, batches, models.

Runs once in the process, from a string. Nothing of the program or of torch is replaced, wrapped, kept alive or imported:
`sys.monitoring` calls back where one of a few code objects starts or returns. `post` and `tell` are functions of libmfuinject.so.
Before CPython 3.12 the hooks of torch.optim report updates, and nothing else is reported.
"""

import sys

post, tell = globals()["post"], globals()["tell"]  # put there by interpreter.cpp

PASS_BEGIN, PASS_END, BACKWARD_BEGIN, BACKWARD_END, UPDATE_BEGIN, UPDATE_END, MADE, GONE, FETCH = range(9)  # FactKind
GRADIENTS, TRAINING, TRAINABLE, CACHE = 1, 2, 4, 8  # ProgramFact
USED, MODEL, STOPPED, NOT_YET = range(4)  # kinds of tell()
TOOLS = (3, 4)  # ids of sys.monitoring without a meaning
LEARN_PASSES = 64  # outermost calls during which unknown modules are looked for
RELEARN_PASSES, RELEARN_STEPS = 1000, 100  # then again after so many
MOST_INNER = 256  # calls inside of other passes, after which a code object is no longer watched

# Programs that do not go through torch.optim or nn.Module alone: module, qualified name, what it is.
ENGINES = (
    ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner.execute_model", "vllm_pass"),
    ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner.sample_tokens", "vllm_sample"),
    ("sglang.srt.model_executor.model_runner", "ModelRunner.forward", "sglang_pass"),
    ("deepspeed.runtime.engine", "DeepSpeedEngine._take_model_step", "update"),
    ("megatron.core.optimizer.optimizer", "MixedPrecisionOptimizer.step", "update"),
    ("megatron.core.optimizer.optimizer", "ChainedOptimizer.step", "update"),
)


class Watch:
    def __init__(self, torch):
        self.torch, self.monitor, self.events = torch, sys.monitoring, sys.monitoring.events
        self.ref, self.ident = sys.modules["_weakref"].ref, sys.modules["_thread"].get_ident
        self.local = sys.modules["_thread"]._local()
        self.at_start, self.at_return, self.inner = {}, {}, {}  # by code object
        self.refs, self.known, self.engines = {}, {}, set()
        self.left, self.passes, self.steps, self.models = LEARN_PASSES, 0, 0, 0
        self.backward_on = None  # the thread that waits for a backward pass
        self.stopped = self.compiled = False
        for self.tool in TOOLS:
            try:
                self.monitor.use_tool_id(self.tool, "mfuinject")
                break
            except ValueError:
                continue
        else:
            raise RuntimeError("other tools have both free ids of sys.monitoring")

    def start(self):
        torch, optimizer = self.torch, self.torch.optim.Optimizer
        self.monitor.register_callback(self.tool, self.events.PY_START, self.on_start)
        self.monitor.register_callback(self.tool, self.events.PY_RETURN, self.on_return)
        self.watch(code_within(optimizer.profile_hook_step.__code__, "wrapper"), self.update, self.leave)
        self.watch(optimizer.__init__.__code__, self.made, None)
        self.watch(torch.autograd.backward.__code__, self.backward, self.leave)
        loader = sys.modules.get("torch.utils.data.dataloader")
        if loader is not None:
            self.watch(loader._BaseDataLoaderIter.__next__.__code__, lambda frame: post(FETCH, 0, 0, 0), None)
        self.call = torch.nn.Module._wrapped_call_impl.__code__
        self.watch(self.call, self.module, None)

    def stop(self):
        self.stopped = True
        for code in {*self.at_start, *self.at_return}:
            self.monitor.set_local_events(self.tool, code, 0)
        self.monitor.free_tool_id(self.tool)

    def on_start(self, code, _):
        self.do(self.at_start.get(code))

    def on_return(self, code, _, __):
        self.do(self.at_return.get(code))

    def do(self, action):
        if action is None or self.stopped:
            return
        try:
            action(sys._getframe(2))
        except Exception as fault:  # a fault of ours is never the program's
            self.stop()
            tell(
                STOPPED,
                fault.__traceback__.tb_next.tb_lineno if fault.__traceback__.tb_next else 0,
                f"{type(fault).__name__}: {fault}",
            )

    def watch(self, code, start, end):
        if start is not None:
            self.at_start[code] = start
        if end is not None:
            self.at_return[code] = end
        self.listen(code)

    def listen(self, code, on=True):
        wanted = (self.events.PY_START if code in self.at_start else 0) | (self.events.PY_RETURN if code in self.at_return else 0)
        self.monitor.set_local_events(self.tool, code, wanted if on else 0)

    # --- what a thread is inside of ---------------------------------------------------------------------------------

    def stack(self):
        try:
            return self.local.stack
        except AttributeError:
            self.local.stack = []
            return self.local.stack

    def enter(self, frame, end, subject=0):
        """A call begins. \\return it is inside of no other"""
        stack = self.stack()
        if stack:  # an exception leaves a call without a return: only those that are among the callers are still there
            codes, caller = [], frame.f_back
            while caller is not None:
                if caller.f_code in self.at_return:
                    codes.append(caller.f_code)
                caller = caller.f_back
            codes.reverse()
            there = 0
            for code in codes:
                if there < len(stack) and stack[there][0] is code:
                    there += 1
            while len(stack) > there:
                self.end(stack.pop())
        stack.append((frame.f_code, end, subject))
        return len(stack) == 1

    def leave(self, frame):
        stack = self.stack()
        while stack and any(entry[0] is frame.f_code for entry in stack):
            entry = stack.pop()
            self.end(entry)
            if entry[0] is frame.f_code:
                return

    def end(self, entry):
        _, end, subject = entry
        if end == BACKWARD_END:
            self.backward_on = None
        if end is not None:
            post(end, 0, subject, 0)

    # --- modules ----------------------------------------------------------------------------------------------------

    def module(self, frame):
        """Some module is called: only while unknown ones are looked for, or some are compiled in place."""
        if self.stack() or self.backward_on not in (None, self.ident()):
            return
        self.find_engines()
        module = frame.f_locals["self"]
        if type(module).__module__ == "torch.nn.modules.loss":
            return
        if module._compiled_call_impl is not None:  # nothing of its forward() runs in the interpreter
            if self.call not in self.at_return:
                self.compiled = True
                self.watch(self.call, None, self.leave)
            self.pass_begins(frame)
            return
        code = self.code_of(module)
        if code is not None and code not in self.inner:
            self.inner[code] = 0
            self.watch(code, self.pass_begins, self.leave)
            if frame.f_back is not None and code is frame.f_back.f_code:  # the wrapper of torch.compile runs already
                self.pass_begins(frame.f_back)
        self.left -= 1
        if self.left <= 0 and not self.compiled:
            self.listen(self.call, False)

    def code_of(self, module):
        if type(module).__name__ == "OptimizedModule":
            return type(module).__call__.__code__
        function = innermost(module.forward)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        return code if code is not None and not code.co_flags & 0x2A0 else None  # no generator, no coroutine

    def pass_begins(self, frame):
        code = frame.f_code
        backward_on = self.backward_on
        if not self.enter(frame, PASS_END, id(frame.f_locals.get("self"))):
            stack = self.stack()
            if any(entry[1] == PASS_END for entry in stack[:-1]):
                stack[-1] = (code, None, 0)
                self.inner[code] = self.inner.get(code, 0) + 1
                if self.inner[code] > MOST_INNER and code is not self.call:
                    self.listen(code, False)
                return
        elif backward_on not in (None, self.ident()):  # checkpointing: the autograd thread computes it again
            self.stack()[-1] = (code, None, 0)
            return
        values = frame.f_locals
        module = values.get("self")
        trainable, model = self.about(module)
        batch, seq_len, tokens = self.shape(values)
        cache = values.get("past_key_values")
        if cache is None:
            cache = (values.get("kwargs") or {}).get("past_key_values")
        mode = (GRADIENTS if self.torch.is_grad_enabled() else 0) | (TRAINING if module.training else 0) | trainable
        context = -1
        if seq_len >= 0 and (cache is not None or values.get("use_cache") is True):
            mode |= CACHE
            context = self.context(cache, seq_len) if cache is not None else 0
        post(PASS_BEGIN, mode, id(module), model, batch, seq_len, context, tokens)
        self.passes += 1
        if self.passes % RELEARN_PASSES == 0:
            self.learn_again()

    def learn_again(self):
        self.left = LEARN_PASSES
        self.known.clear()  # what trains may have changed
        self.listen(self.call)

    def about(self, module):
        """(TRAINABLE or 0, number of its model) of a module."""
        found = self.known.get(id(module))
        if found is not None and found[0]() is module:
            return found[1:]
        trainable = TRAINABLE if any(p.requires_grad for p in module.parameters()) else 0
        inside = unwrapped(module)
        found = self.known[id(module)] = (self.ref(module), trainable, self.number_of(inside, getattr(inside, "config", None)))
        return found[1:]

    def number_of(self, owner, config):
        """The number of the model, 0 where its config cannot be read; hands the config over the first time."""
        seen = self.refs.get(id(owner))
        if seen is not None and seen[0]() is owner:
            return seen[1]
        text = text_of(config)
        if text is not None:
            self.models += 1
            tell(MODEL, self.models, text)
        self.refs[id(owner)] = (self.ref(owner), self.models if text is not None else 0)
        return self.refs[id(owner)][1]

    def context(self, cache, seq_len):
        """Tokens that are in a cache before a pass; counted here where no shape says it, since to ask may be to ask the GPU."""
        if type(cache).__name__ == "DynamicCache":
            keys = getattr(next(iter(cache.layers), None), "keys", None)
            return keys.shape[-2] if keys is not None and keys.dim() == 4 else 0
        seen, before = getattr(self.local, "cached", (None, 0))
        if seen is None or seen() is not cache:
            before = 0
        self.local.cached = (self.ref(cache), before + seq_len) if hasattr(cache, "__weakref__") else (None, 0)
        return before

    def shape(self, values):
        """(batch, seq_len, tokens) of a call's arguments, -1 where it does not say: no tensor is read."""
        more = values.get("kwargs") or {}
        tensor = values.get("input_ids")
        if tensor is None:
            tensor = more.get("input_ids", values.get("inputs_embeds"))
        if tensor is None:
            given = (*values.values(), *(values.get("args") or ()), *more.values())
            tensor = next((v for v in given if isinstance(v, self.torch.Tensor) and v.dim() >= 2), None)
        if tensor is None:
            return -1, -1, -1
        if tensor.dim() < 2:  # sequences behind each other, as servers have them
            return -1, -1, tensor.numel()
        if tensor.dim() > 3 or (tensor.dim() == 2 and tensor.is_floating_point()):  # images; features
            return tensor.shape[0], -1, -1
        return tensor.shape[0], tensor.shape[1], -1

    # --- backward passes and updates --------------------------------------------------------------------------------

    def backward(self, frame):
        if any(entry[1] == BACKWARD_END for entry in self.stack()):
            self.enter(frame, None)
            return
        self.enter(frame, BACKWARD_END)
        self.backward_on = self.ident()
        post(BACKWARD_BEGIN, 0, 0, 0)

    def made(self, frame):
        self.optimizer(frame.f_locals["self"], MADE)

    def optimizer(self, one, kind):
        if id(one) in self.refs and self.refs[id(one)][0]() is one:
            return
        number = id(one)

        def gone(_):
            self.refs.pop(number, None)
            if not self.stopped:
                post(GONE, 0, number, 0)

        self.refs[number] = (self.ref(one, gone), 0)
        if kind == MADE:
            post(MADE, 0, number, 0)

    def update(self, frame):
        values = frame.f_locals
        one = values["self"] if "self" in values else values["args"][0]
        if any(entry[1] == UPDATE_END for entry in self.stack()):  # an optimizer around another one
            self.enter(frame, None)
            return
        self.optimizer(one, UPDATE_BEGIN)
        self.enter(frame, UPDATE_END, id(one))
        post(UPDATE_BEGIN, 0, id(one), 0)
        self.steps += 1
        if self.steps % RELEARN_STEPS == 0:
            self.learn_again()

    def compiled_update(self, frame):
        """torch.compile(optimizer.step): what it wraps does not run in the interpreter."""
        one = getattr(frame.f_locals.get("fn"), "__self__", None)
        if isinstance(one, self.torch.optim.Optimizer) and not self.stack():
            post(UPDATE_BEGIN, 0, id(one), 0)
            post(UPDATE_END, 0, id(one), 0)

    # --- engines ----------------------------------------------------------------------------------------------------

    def find_engines(self):
        context = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_TorchDynamoContext", None)
        if context is not None and "dynamo" not in self.engines:
            self.engines.add("dynamo")
            self.watch(code_within(context.__call__.__code__, "compile_wrapper"), None, self.compiled_update)
        for place, name, kind in ENGINES:
            holder, _, function = name.partition(".")
            found = getattr(getattr(sys.modules.get(place), holder, None), function, None)
            if found is None or name in self.engines:
                continue
            self.engines.add(name)
            code = innermost(found).__code__
            start = {"vllm_pass": self.vllm_begins, "sglang_pass": self.sglang_begins, "update": self.update}.get(kind)
            end = {"vllm_pass": self.vllm_launched, "vllm_sample": self.vllm_sampled}.get(kind, self.leave)
            self.watch(code, start, end)

    def engine_pass(self, owner, config, reads, read_tokens, read_context, writes, write_tokens, write_context):
        """A pass of a server: sequences that it reads and writes, their new tokens, and the tokens before them."""
        model = self.number_of(owner, config)
        if reads == 0:
            context = (write_context + writes // 2) // max(1, writes)
            post(PASS_BEGIN, CACHE, id(owner), model, writes, 1, context, write_tokens if write_tokens != writes else -1)
        elif writes == 0:
            post(PASS_BEGIN, CACHE, id(owner), model, reads, -1, (read_context + reads // 2) // reads, read_tokens)
        else:
            post(PASS_BEGIN, CACHE, id(owner), model, reads, -1, -1, read_tokens, writes, write_tokens)

    def vllm_begins(self, frame):
        runner, scheduled = frame.f_locals["self"], frame.f_locals["scheduler_output"]
        self.vllm_sampled(frame)  # an exception left the last one
        self.enter(frame, None)
        tokens = scheduled.num_scheduled_tokens
        if not tokens:
            return
        new = {one.req_id for one in scheduled.scheduled_new_reqs}
        before = {one.req_id: one.num_computed_tokens for one in scheduled.scheduled_new_reqs}
        cached = scheduled.scheduled_cached_reqs
        before.update(zip(cached.req_ids, cached.num_computed_tokens, strict=False))
        sums = [0, 0, 0, 0, 0, 0]  # sequences, new tokens, tokens before them; of prompts, and of those that decode
        for request, count in tokens.items():
            place = 0 if request in new or count > 1 else 3
            for offset, value in enumerate((1, count, before.get(request, 0))):
                sums[place + offset] += value
        self.engine_pass(runner, runner.model_config.hf_config, *sums)
        self.local.vllm = id(runner)

    def vllm_launched(self, frame):
        self.leave(frame)
        runner = frame.f_locals["self"]
        if getattr(runner, "execute_model_state", 0) is None:  # nothing is left to sample
            self.vllm_sampled(frame)

    def vllm_sampled(self, frame):
        runner, self.local.vllm = getattr(self.local, "vllm", None), None
        if runner is not None:
            post(PASS_END, 0, runner, 0)

    def sglang_begins(self, frame):
        runner, batch = frame.f_locals["self"], frame.f_locals["forward_batch"]
        if not self.enter(frame, PASS_END, id(runner)):
            return
        count, keys = batch.batch_size, int(batch.seq_lens_sum)
        fed = count if batch.forward_mode.is_decode() else int(batch.extend_num_tokens)
        sums = (0, 0, 0, count, fed, keys - fed) if batch.forward_mode.is_decode() else (count, fed, keys - fed, 0, 0, 0)
        self.engine_pass(runner, runner.model_config.hf_config, *sums)


def innermost(function):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def code_within(code, name):
    return next(c for c in code.co_consts if getattr(c, "co_name", None) == name)


def unwrapped(module):
    """The model inside of torch.compile, DistributedDataParallel and PEFT."""
    while True:
        parts = module.__dict__.get("_modules", {})
        # Never ask an object of the program whether it is true: that calls its __len__.
        inner = next((parts[name] for name in ("_orig_mod", "module", "base_model") if parts.get(name) is not None), None)
        if inner is None or len(parts) != 1:
            return module
        module = inner


def text_of(config):
    """JSON of a model's config, None where it has none that anybody could read."""
    json = sys.modules.get("json")
    if config is None or json is None:
        return None
    if hasattr(config, "to_dict"):
        return json.dumps(config.to_dict(), default=str)
    values = config if isinstance(config, dict) else getattr(config, "__dict__", {})
    if {"n_layer", "n_head", "n_embd", "vocab_size"} <= values.keys():
        kept = {k: values[k] for k in ("n_layer", "n_head", "n_embd", "vocab_size")}
        return json.dumps({"model_type": "gpt2", "n_positions": values.get("block_size", 1024), **kept}, default=str)
    return None


def updates_alone(torch):
    """CPython 3.10 and 3.11: the official hooks of torch.optim."""
    optimizer = torch.optim.optimizer
    optimizer.register_optimizer_step_pre_hook(lambda one, args, kwargs: post(UPDATE_BEGIN, 0, id(one), 0))
    optimizer.register_optimizer_step_post_hook(lambda one, args, kwargs: post(UPDATE_END, 0, id(one), 0))


def begin():
    torch = sys.modules.get("torch")
    if torch is None or not all(hasattr(torch, name) for name in ("optim", "nn", "autograd", "__version__", "is_grad_enabled")):
        tell(NOT_YET, 0, "")
        return
    release = ".".join(torch.__version__.split(".")[:2])
    versions = f"(CPython {sys.version_info[0]}.{sys.version_info[1]}, torch {release})"
    if "t" in getattr(sys, "abiflags", ""):
        tell(STOPPED, 0, "a free-threaded build of CPython")
        return
    if hasattr(sys, "monitoring"):
        Watch(torch).start()
    else:
        updates_alone(torch)
    tell(USED, 0, ("steps and shapes" if hasattr(sys, "monitoring") else "steps") + " from the interpreter " + versions)


try:
    begin()
except Exception as fault:
    tell(STOPPED, fault.__traceback__.tb_lineno, f"{type(fault).__name__}: {fault}")
