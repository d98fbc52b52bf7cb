"""Reports what a PyTorch program does, from inside its interpreter: passes, backward passes, updates, batches, models.

Runs once in the process, from a string: objects.py and flop.py come before it. Nothing of the program or of torch is replaced,
wrapped, kept alive or imported, and no method of the program's objects is called but a config's to_dict(): `sys.monitoring`
calls back where one of a few code objects starts or returns, and once at each call while a model without a config runs for the
first time. `post`, `tell`, `refused`, `guard`, `at_end` and `asked` are functions of libmfuinject.so. Before CPython 3.12 the
hooks of torch.optim report updates, and nothing else is reported.
"""

import sys

if sys is None:  # for linters alone
    from flop import (
        ATTENTION,
        CALLED,
        FAKE,
        FUSED,
        KNOWN,
        Call,
        Measured,
        State,
        Traced,
        Unseen,
        flop_of_call,
        flop_of_gradients,
        pairs_of,
        products_of_graph,
        shape_of,
    )
    from objects import (
        METHOD,
        NOTHING,
        Several,
        arguments,
        attribute,
        calls_first,
        code_of,
        code_within,
        dictionary_of,
        elements,
        every_module,
        first_two,
        gradient_of,
        has_matrix,
        innermost,
        is_scripted,
        layers_of,
        maker,
        module_of,
        number_of_elements,
        own,
        parameters_of,
        parts_called,
        plain,
        receiver,
        shares,
        text_of,
        unwrapped,
        whole,
    )

# Put there by interpreter.cpp.
post, tell, refused, guard, at_end, asked, layers = (
    globals()[name] for name in ("post", "tell", "refused", "guard", "at_end", "asked", "layers")
)

# FactKind
PASS_BEGIN, PASS_END, BACKWARD_BEGIN, BACKWARD_END, UPDATE_BEGIN, UPDATE_END, MADE, GONE, FETCH = range(9)
PASS_WORK, NOT_REACHED, MORE_WORK, LAYER, DROPPED = 9, 10, 11, 12, 13
GRADIENTS, TRAINING, TRAINABLE, CACHE, REPLAYED = 1, 2, 4, 8, 16  # ProgramFact
OF_BACKWARD = 1
AGAIN, UNKNOWN = 1, 2  # gradients have gradients; of unknown FLOP
BEGINS, ENDS = (PASS_BEGIN, BACKWARD_BEGIN, UPDATE_BEGIN), (PASS_END, BACKWARD_END, UPDATE_END)
REPLAY = 100  # the end of a call that replays a graph
USED, MODEL, STOPPED, NOT_YET = range(4)  # kinds of tell()
FIRST_MEASURED = 1 << 16  # numbers of models whose FLOP are counted here: one for each shape of its arguments
RANKS = 1 << 8  # times the ranks that share the work of a model, beside its number
OF_CONFIG = 1 << 24  # times the number of a config that the drain has not read yet: if it can be read, that counts
FIRST_ONCE, MOST_ONCE = 1 << 20, 1 << 22  # numbers of single passes, whose FLOP are not those of others with these shapes
MOST_MODELS, MOST_MEASURED = 64, 1024
MOST_WALKED = 256
ALIKE, ALIKE_AGAIN = 3, 64  # passes with the same FLOP, until only one of so many is looked at
SURE = 16  # passes that ask for the same FLOP: until then autograd's graph is asked about each, and then about one in so many
MOST_VARIANTS = 64  # FLOP of passes with arguments of the same shapes
MOST_UPDATES = 64  # until the gradients of a pass are there
SHOW_LOCALS = frozenset(("locals", "vars", "dir", "eval", "exec"))  # to a program, as values of the frame
ALONE = 3  # references to the values of a frame: the frame's, the variable's and the argument's
MODULES, MOST_AROUND = "torch.nn.modules.module", 8  # where modules are called; frames between that and their forward()
EVENTS = ("PY_START", "PY_RETURN", "CALL", "C_RETURN")
TOOLS = (3, 4)  # ids of sys.monitoring without a meaning
LEARN_PASSES = 128  # outermost calls during which unknown modules are looked for
RELEARN_PASSES, RELEARN_STEPS, RELEARN = 1000, 100, 16  # then again after so many, during fewer
LEARN_SELDOM = 32  # passes, where modules are made all the time
MOST_INNER = 256  # calls inside of other passes, after which a code object is no longer watched
MOST_CODES = 512
NUMBERS = frozenset((int,))
MOST_LAYERS = 256
FEATURES = -2  # instead of a length: numbers, as of a sound, of which no config says how many tokens they become
MOST_REFS = 4096  # weak ones: dead ones are dropped where there are so many
MOST_IN_GRAPH = 256  # facts
MOST_RESULTS, MOST_IN_RESULT = 256, 64  # that wait for a backward pass; values in one
PROBES = 8  # parameters of a module whose gradients are looked at, where several modules are trained

# Programs that do not go through torch.optim or nn.Module alone: module, qualified name, what it is.
ENGINES = (
    ("transformers.cache_utils", "Cache.reset", "cache"),
    ("transformers.generation.utils", "GenerationMixin._assisted_decoding", "drafts"),
    ("transformers.generation.continuous_batching.continuous_api", "ContinuousBatchProcessor._generation_step", "paged_pass"),
    ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner.execute_model", "vllm_pass"),
    ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner.sample_tokens", "vllm_sample"),
    ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner._dummy_run", "no_pass"),
    ("vllm.v1.worker.gpu.model_runner", "GPUModelRunner.execute_model", "vllm_pass"),  # the second runner
    ("vllm.v1.worker.gpu.model_runner", "GPUModelRunner.sample_tokens", "vllm_sample"),
    ("sglang.srt.model_executor.model_runner", "ModelRunner.forward", "sglang_pass"),
    ("deepspeed.runtime.engine", "DeepSpeedEngine._take_model_step", "update"),
    ("megatron.core.optimizer.optimizer", "MixedPrecisionOptimizer.step", "update"),
    ("megatron.core.optimizer.optimizer", "ChainedOptimizer.step", "update"),
    ("transformers.modeling_flash_attention_utils", "_prepare_from_posids", "packed_rows"),
    ("transformers.modeling_flash_attention_utils", "prepare_fa2_from_position_ids", "packed_rows"),
    ("triton.runtime.jit", "JITFunction.run", "kernel"),
    ("flash_attn.flash_attn_interface", "flash_attn_func", "attention"),
    ("flash_attn.flash_attn_interface", "flash_attn_varlen_func", "packed_attention"),
    ("flash_attn.flash_attn_interface", "flash_attn_with_kvcache", "packed_attention"),
    ("flash_attn_interface", "flash_attn_func", "attention"),  # version 3
    ("flash_attn_interface", "flash_attn_varlen_func", "packed_attention"),
    ("flash_attn_interface", "flash_attn_with_kvcache", "packed_attention"),
    ("xformers.ops.fmha", "memory_efficient_attention", "attention"),
)


def alike(sequences):
    """`sequences`: (new tokens, tokens before them) of each. \return how many there are, their new tokens, and one context: as
    many sequences of equal length behind it have as many pairs of a token and one that it attends to."""
    count, tokens = len(sequences), sum(new for new, _ in sequences)
    if tokens <= 0:
        return 0, 0, -1
    pairs = sum(new * before + new * (new + 1) // 2 for new, before in sequences)
    each, more = divmod(tokens, count)
    own_pairs = count * each * (each + 1) // 2 + more * (each + 1)
    return count, tokens, (pairs - own_pairs + tokens // 2) // tokens


class Mark:
    """Lies with an autograd node as long as that lives."""

    __slots__ = ("__weakref__",)


class Check:
    """A pass whose calls of attention are compared with those of an earlier one of these shapes."""

    __slots__ = ("before", "thread", "given", "attention", "looks")

    def __init__(self, before, thread, given, looks):
        self.before, self.thread, self.given = before, thread, given
        self.attention, self.looks = 0, looks  # FLOP of the calls so far, None where they are not known; at the next one


class Watched:
    """A code object: what is done where it starts, returns or calls. `call`: its frames are on the stack of a thread."""

    __slots__ = ("ref", "start", "end", "call", "first", "inner", "outer", "listens")

    def __init__(self, ref):
        self.ref, self.start, self.end, self.call = ref, None, None, False
        code = ref()
        self.first = code.co_varnames[0] if code.co_argcount > 0 else None  # name of the first argument
        self.inner = self.outer = self.listens = 0


class Layers:
    """The layers of models, where MFU_PARTS asks for them. A layer's work goes on until the next one begins."""

    def __init__(self, watch):
        self.watch, self.local = watch, watch.local
        self.numbers, self.codes = {}, {}  # by id of a layer: weak, its number, whether it is the last; code objects: weak
        self.models = {}  # by id: weak, whether its layers were seen at work
        self.newest = None  # what was said last
        self.outputs = 0  # whose gradients are waited for
        self.backward_on = None  # thread

    def say(self, mode, number):
        if not self.watch.stopped and self.watch.capture is None and self.newest != (mode, number):
            self.newest = (mode, number)
            self.watch.say(LAYER, mode, 0, number)

    def pass_begins(self, module):
        """Numbers the layers of a model that runs for the first time; those of further models go on counting."""
        model = self.models.get(id(module))
        if model is None or model[0]() is not module:
            if len(self.models) >= MOST_MODELS:
                return
            model = self.models[id(module)] = [self.watch.ref(module), False]
            self.number(layers_of(module))
        self.local.model, self.local.in_layers, self.newest = model, False, None
        if model[1]:
            self.say(0, 0)

    def number(self, found):
        last = None
        for layer in found:
            code = self.watch.code_of(layer)
            known = self.numbers.get(id(layer))
            if code is None or len(self.numbers) >= MOST_LAYERS or (known is not None and known[0]() is layer):
                continue
            last = self.numbers[id(layer)] = [self.watch.ref(layer), len(self.numbers) + 1, False]
            self.codes[id(code)] = self.watch.ref(code)
            self.watch.set_events(code, self.watch.monitor.get_local_events(self.watch.tool, code))
        if last is not None:
            last[2] = True

    def find(self, module):
        found = self.numbers.get(id(module))
        return found if found is not None and found[0]() is module else None

    def begins(self, frame):
        layer = self.find(receiver(frame))
        if layer is None:
            return
        if self.backward_on is not None:  # with checkpoints it runs again before its backward pass, and belongs to that
            self.say(OF_BACKWARD, layer[1])
        elif getattr(self.local, "model", None) is not None and self.watch.inside():
            if not self.local.in_layers:
                self.local.in_layers = self.local.model[1] = True
                with self.watch.quiet():
                    self.at_gradient_of(self.watch.first_tensor(arguments(frame.f_locals), 2), 0)
            self.say(0, layer[1])

    def ends(self, frame, value):
        layer = self.find(receiver(frame))
        if layer is None or self.backward_on is not None or getattr(self.local, "model", None) is None:
            return
        while type(value) in (tuple, list) and value:
            value = value[0]
        with self.watch.quiet():
            self.at_gradient_of(value, layer[1])
        if layer[2]:
            self.say(0, 0)

    def at_gradient_of(self, tensor, number):
        """The backward pass of a layer begins with the gradient of its output; that of all ends with their input's, number 0."""
        node = tensor.grad_fn if self.watch.is_tensor(tensor) and self.watch.capture is None else None
        if node is not None and hasattr(node, "register_prehook"):
            node.register_prehook(guard(lambda gradients: self.say(OF_BACKWARD, number)))
            self.outputs += 1

    def backward_begins(self):
        if getattr(self.local, "model", None) is not None:
            self.backward_on, self.newest = self.watch.ident(), None
            if self.outputs > 1:
                self.say(OF_BACKWARD, 0)
            self.outputs = 0

    def backward_ends(self):
        if self.backward_on == self.watch.ident():
            self.backward_on = None


class Watch:
    def __init__(self, torch):
        self.torch, self.monitor, self.events = torch, sys.monitoring, sys.monitoring.events
        self.ref, self.ident = sys.modules["_weakref"].ref, sys.modules["_thread"].get_ident
        self.local = sys.modules["_thread"]._local()
        # By id of a code object: what is done there; those that call attention, weak.
        self.watched, self.attends = {}, {}
        self.searching = False  # every call is looked at, while the first pass of a model is measured
        self.refs, self.known, self.engines, self.drafts = {}, {}, set(), None
        self.has_models = False  # with matrices
        self.packed = set()  # ids of modules: in their rows are several documents
        self.detached = []  # passes that were measured, with what may get no gradients
        self.numbers, self.unsure, self.unread = {}, set(), set()  # models by config; those that may not be readable
        self.left, self.passes, self.steps, self.passes_before = LEARN_PASSES, 0, 0, -1
        self.learn_from = 0  # passes
        self.models, self.measured = 0, FIRST_MEASURED - 1
        self.measuring = self.checking = None
        self.states, self.listening = {}, set()  # by number of a model: State; those whose calls of attention are looked at
        self.keeps = set()  # numbers of models whose passes read what earlier ones kept
        self.once, self.calls = 0, {}  # of attention, by code object and offset: weak, Call
        self.capture = None  # (thread, facts) while a graph is made
        # Modules: weak; what their gradients were before a pass; the same of a pass that a backward pass has left out.
        self.trained, self.probed, self.passed = {}, {}, {}
        self.several, self.methods = {}, {}  # by the ids of the modules; by id: code objects that were looked at, weak
        self.results = {}  # of passes that no backward pass has followed: weak, the pass
        # By passes: FLOP of gradients that are no backward pass; how many since the last pass or backward pass, and their FLOP.
        self.walked, self.beside = {}, (0, 0)
        self.backward_on = None  # the thread that waits for a backward pass
        self.again, self.pending = 0, 0  # whether gradients have gradients; passes that train, since the last backward pass
        # While no optimizer was seen: the module whose gradients are zeroed; whether there are some; whether they are in use.
        self.optimizers, self.updated, self.computed, self.updates = False, 0, False, False
        self.found, self.taken = {}, 0  # after a backward pass, by module: what traces_of() saw; of autograd.grad(), a number
        self.layers = Layers(self) if layers else None
        self.stopped = self.compiled = self.traced_updates = False
        self.late = False  # the pass that begins is seen only now
        self.plain_call = code_of(own(torch.nn.Module, "_call_impl")) or self  # which no code is
        # Of modules; torch.compile's around what it compiles; around what it has; of Triton's kernels.
        self.call = self.wrapper = self.runs = self.kernels = None
        # Sizes are asked without what a program puts in front of its tensors' methods.
        self.tensor = torch.Tensor
        self.quiet = getattr(torch._C, "DisableTorchFunctionSubclass", None) or torch._C.DisableTorchFunction
        self.tracing = getattr(torch._C, "_get_tracing_state", lambda: None)
        self.functorch = getattr(torch._C, "_functorch", None)
        self.sequence = getattr(getattr(torch._C, "_autograd", None), "_get_sequence_nr", int)  # the next node's; int: not known
        for self.tool in TOOLS:
            try:
                self.monitor.use_tool_id(self.tool, "mfuinject")
                break
            except ValueError:
                continue
        else:
            raise RuntimeError("other tools have both free ids of sys.monitoring")

    def start(self):
        """Each name that is missing, as in another version of torch, is one fact less."""
        torch, optimizer = self.torch, self.torch.optim.Optimizer
        for event, callback in zip(EVENTS, (self.on_start, self.on_return, self.on_call, self.on_call_end)):
            self.monitor.register_callback(self.tool, getattr(self.events, event), guard(callback))
        step = code_within(code_of(own(optimizer, "profile_hook_step")), "wrapper")
        call = code_of(own(torch.nn.Module, "_wrapped_call_impl") or own(torch.nn.Module, "_call_impl"))
        found = [self.watch(step, self.update, self.leave), self.watch(call, self.module, None, False)]
        self.watch(code_of(own(optimizer, "__init__")), self.made, None, False)
        self.watch(code_of(own(torch.nn.Module, "zero_grad")), self.zeroes, None, False)
        self.watch(code_of(own(torch.nn.Module, "__init__")), self.module_made, None, False)
        self.watch(code_of(attribute("torch.autograd", "backward")), self.backward, self.leave)
        self.watch(code_of(attribute("torch.autograd", "grad")), self.gradients_alone, self.leave)
        loader = attribute("torch.utils.data.dataloader", "_BaseDataLoaderIter")
        self.watch(code_of(own(loader, "__next__")), self.fetch, None, False)
        graph = attribute("torch.cuda.graphs", "CUDAGraph")
        self.watch(code_of(own(graph, "capture_begin")), None, self.capture_begins, False)
        self.watch(code_of(own(graph, "capture_end")), self.capture_ends, None, False)
        self.watch(code_of(own(graph, "replay")), self.replay, self.leave)
        self.watch(code_of(plain(torch).get("compile")), None, lambda frame, called, value: self.find_engines(), False)
        self.find_engines()
        self.call = found[1]
        if not any(found):
            raise RuntimeError("this torch has other names than those that are known")

    def stop(self):
        self.stopped = True
        of_layers = self.layers.codes.values() if self.layers is not None else ()
        self.search(False)
        for ref in [*(watched.ref for watched in self.watched.values()), *self.attends.values(), *of_layers]:
            code = ref()
            if code is not None:
                self.monitor.set_local_events(self.tool, code, 0)
        try:
            for event in EVENTS:
                self.monitor.register_callback(self.tool, getattr(self.events, event), None)
            self.monitor.free_tool_id(self.tool)
        except Exception:  # an audit hook forbids it: no event calls it any more
            pass
        for kept in (self.watched, self.attends, self.refs, self.known, self.numbers):
            kept.clear()

    def say(self, *fact):
        capture = self.capture
        if capture is not None and fact[0] in (*BEGINS, *ENDS, NOT_REACHED, MORE_WORK) and capture[0] == self.ident():
            if len(capture[1]) > MOST_IN_GRAPH:  # its end was not seen
                self.capture = None
            capture[1].append(fact)
            return
        if post(*fact) is not None and not self.stopped:  # there is no listener any more
            self.stop()

    # --- events -----------------------------------------------------------------------------------------------------

    def find(self, code):
        watched = self.watched.get(id(code))
        return watched if watched is not None and watched.ref() is code else None

    def on_start(self, code, _):
        if self.stopped:
            return
        try:
            if self.layers is not None and id(code) in self.layers.codes:
                self.layers.begins(sys._getframe(1))
            watched = self.watched.get(id(code))
            if watched is None or watched.ref() is not code or watched.start is None:
                return
            if watched is not self.call or not self.inside():  # a module inside of another one, most often
                watched.start(sys._getframe(1), watched)
        except Exception as fault:
            self.fail(fault)

    def on_return(self, code, _, value):
        if self.stopped:
            return
        try:
            if self.layers is not None and id(code) in self.layers.codes:
                self.layers.ends(sys._getframe(1), value)
            watched = self.watched.get(id(code))
            if watched is None or watched.ref() is not code:
                return
            if self.measuring is not None:
                self.measure(sys._getframe(1), value)
            if watched.end is not None:
                watched.end(sys._getframe(1), watched, value)
        except Exception as fault:
            self.fail(fault)

    def on_call(self, code, offset, function, first):
        looks = self.measuring or self.checking
        if looks is None or (looks is self.checking and not looks.looks) or self.stopped:
            return None  # of a pass that is compared, one call may say enough
        try:
            name = function.__name__ if type(function) is type(len) else None
            if name not in CALLED:
                return self.monitor.DISABLE  # of this place
            if looks.thread == self.ident():
                if len(self.attends) < MOST_CODES:
                    self.attends[id(code)] = self.ref(code)
                if name == ATTENTION:
                    self.attend(looks, sys._getframe(1), offset, first)
                elif looks is self.measuring:
                    looks.counts_apart(sys._getframe(1))
                elif name in FUSED:
                    with self.quiet():
                        self.compare_call(looks, lambda: (first, first, False))
        except Exception as fault:
            self.fail(fault)
        return None

    def on_call_end(self, code, offset, function, first):
        """Of the calls that on_call() leaves on: what they asked of cuBLAS is known."""
        name = function.__name__ if self.measuring is not None and type(function) is type(len) else None
        if name not in CALLED or self.stopped or self.measuring.thread != self.ident():
            return
        frame = sys._getframe(1)
        if name == ATTENTION:
            self.measuring.attended()
        elif name in FUSED:
            with self.quiet():
                self.count(self.measuring.add_fused, frame, first)
        else:
            with self.quiet():
                self.count(self.measuring.convolve, frame, offset, first, name)

    def search(self, on):
        if self.searching != on:
            self.searching = on
            self.monitor.set_events(self.tool, self.events.CALL if on else 0)

    def fail(self, fault):
        """A fault of this part is never the program's; near the end of its stack it is none of this part's."""
        if isinstance(fault, RecursionError):
            return
        place = fault.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        self.stop()
        where = f"{place.tb_frame.f_code.co_qualname}(): " if place is not None else ""
        tell(STOPPED, place.tb_lineno if place is not None else 0, f"{where}{type(fault).__name__}: {fault}"[:200])

    def watch(self, code, start, end, call=True):
        """\return what is watched; None: there is no such code, or no room"""
        if code is None:
            return None
        watched = self.find(code)
        if watched is None:
            if len(self.watched) >= MOST_CODES:
                self.watched = {number: one for number, one in self.watched.items() if one.ref() is not None}
            if len(self.watched) >= MOST_CODES:
                return None
            watched = self.watched[id(code)] = Watched(self.ref(code))
        watched.start, watched.end, watched.call = start or watched.start, end or watched.end, call
        self.listen(watched)
        return watched

    def listen(self, watched, on=True, returns=False):
        code = watched.ref()
        if code is None:
            return
        wanted = self.events.PY_START if on and watched.start is not None else 0
        if returns or (on and watched.end is not None):
            wanted |= self.events.PY_RETURN
        watched.listens = on
        self.set_events(code, wanted)

    def set_events(self, code, wanted):
        if self.layers is not None and id(code) in self.layers.codes:
            wanted |= self.events.PY_START | self.events.PY_RETURN
        if (self.measuring is not None or self.listening) and id(code) in self.attends:
            wanted |= self.events.CALL
        self.monitor.set_local_events(self.tool, code, wanted)

    # --- what a thread is inside of ---------------------------------------------------------------------------------

    def stack(self):
        try:
            return self.local.stack
        except AttributeError:
            stack = self.local.stack = []
            return stack

    def inside(self):
        """This thread is inside of a pass, or of a call that may hold no other. An optimizer's step(closure) makes passes."""
        stack = self.stack()
        return bool(stack) and stack[-1][1] != UPDATE_END

    def enter(self, frame, called, end, subject=0):
        """A call begins. \\return it is inside of no other"""
        stack = self.stack()
        if stack:  # an exception leaves a call without a return: only those that are among the callers are still there
            codes, caller = [], frame.f_back
            while caller is not None:
                watched = self.find(caller.f_code)
                if watched is not None and watched.call:
                    codes.append(watched)
                caller = caller.f_back
            codes.reverse()
            there = 0
            for code in codes:
                if there < len(stack) and stack[there][0] is code:
                    there += 1
            while len(stack) > there:
                self.end(stack.pop(), failed=True)
        stack.append((called, end, subject))
        return len(stack) == 1

    def leave_call(self, frame, called, value=None):
        """Modules inside of the one that began are called by the same code."""
        if self.stack() and self.stack()[-1][::2] == (called, id(receiver(frame))):
            self.leave(frame, called, value)

    def leave(self, frame, watched, value=None):
        stack = self.stack()
        if stack and stack[-1][0] is not watched and not any(entry[0] is watched for entry in stack):
            return
        while stack:
            entry = stack.pop()
            self.end(entry, result=value if entry[0] is watched else None)
            if entry[0] is watched:
                if entry[1] == PASS_END and value is not None:
                    self.wait_for_gradients(value)
                return

    def end(self, entry, failed=False, result=None):
        _, end, subject = entry
        if end is None:
            return
        mode = number = 0
        if end == BACKWARD_END:
            if self.layers is not None:
                self.layers.backward_ends()
            self.backward_on = None
            self.look_at_gradients()
            if not self.optimizers:
                self.look_at_detached()
        elif end == PASS_END and self.measuring is not None and self.measuring.thread == self.ident():
            self.end_measuring(failed, result)
        elif end == PASS_END and (found := self.end_check(failed, result)) != 0:
            number, begun = self.local.config + found, getattr(self.local, "begun", None)
            self.local.begun = begun and (*begun[:2], number, *begun[3:])
        if end == PASS_END and self.keeps and getattr(self.local, "number", 0) in self.keeps:
            mode = CACHE
        if end == REPLAY:
            self.say(*subject)
        else:
            self.say(end, mode, subject, number)
        if end == BACKWARD_END and not self.optimizers:
            self.computed = True
            self.found = {number: self.traces_of(found[1]) for number, found in self.trained.items()}
            self.begin_update()

    # --- modules ----------------------------------------------------------------------------------------------------

    def module(self, frame, called):
        """Some module is called: only while unknown ones are looked for, or some are compiled in place."""
        if self.inside() or self.backward_on not in (None, self.ident()):
            return
        self.find_engines()
        module = receiver(frame)
        if type(module).__module__ == "torch.nn.modules.loss":
            return
        if own(module, "_compiled_call_impl") is not None or is_scripted(module):
            if called.end is None:
                self.compiled = True
                called.call = True
                self.watch(called.ref(), None, self.leave_call)
            self.pass_begins(frame, called)
            return
        code = self.code_of(module)
        watched = self.find(code) if code is not None else None
        if code is not None and (watched is None or watched.start is None or not watched.listens):
            watched = self.watch(code, self.pass_begins, self.leave)
            if watched is not None:
                watched.inner = 0
            # The wrapper of torch.compile runs already.
            if watched is not None and frame.f_back is not None and code is frame.f_back.f_code:
                self.pass_begins(frame.f_back, watched)
        self.left -= 1
        if self.left <= 0 and not self.compiled:
            self.listen(self.call, False)

    def code_of(self, module):
        if "dynamo_ctx" in plain(module):
            return code_of(own(type(module), "__call__"))
        code = code_of(own(module, "forward"))
        return code if code is not None and not code.co_flags & 0x2A0 else None  # no generator, no coroutine

    def pass_begins(self, frame, watched, module=None, function=None, values=None):
        """`function`: what torch.compile compiled, where that is not the module itself."""
        if module is None and not self.inside() and self.method_around(frame):
            return
        values = frame.f_locals if values is None else values
        if module is None:
            module = values.get(watched.first) if watched.first is not None else receiver(frame, values)
        if not self.enter(frame, watched, PASS_END, id(module)):
            stack = self.stack()
            if any(entry[1] in (PASS_END, BACKWARD_END) for entry in stack[:-1]):  # a part of it; with checkpoints once more
                stack[-1] = (watched, None, 0)
                watched.inner += 1
                if watched.inner > MOST_INNER + 64 * watched.outer and watched is not self.call:
                    self.listen(watched, False, self.measuring is not None)
                return
        elif self.backward_on is not None and self.backward_on != self.ident():  # a checkpoint on the autograd thread
            self.stack()[-1] = (watched, None, 0)
            return
        with self.quiet():
            # torch.compile of 2.4 calls modules with fake tensors while it traces.
            traced = self.tracing() is not None or self.is_fake(self.first_tensor(arguments(values), 0))
            found = self.about(module) if not traced else None
            if found is None:
                self.stack().pop()  # there may be models inside of it, or among its arguments
                return
            self.report_pass(module, found, values, function)
        watched.outer += 1
        self.passes += 1
        if self.passes % RELEARN_PASSES == 0:
            self.learn_again()

    def is_fake(self, tensor):
        return type(tensor) is not self.tensor and type(tensor).__module__.startswith(FAKE)

    def report_pass(self, module, found, values, function):
        _, trains, model, compiled, _ = found
        self.beside = (0, 0)
        trainable = TRAINABLE if trains or "Vmap" in self.transforms() else 0  # what it maps says of no tensor that it trains
        more = values.get("kwargs")
        if type(more) is not dict:
            more = NOTHING
        batch, seq_len, tokens = self.shape(values, more)
        cache = values.get("past_key_values")
        cache = values.get("cache_params") if cache is None else cache
        if cache is None and more:
            cache = more.get("past_key_values", more.get("cache_params"))
        # torch.compile's own module has a property of that name.
        inside = plain(module)["_modules"]["_orig_mod"] if compiled else module
        if type(module) is Several:
            training = any(own(one, "training") is True for one in every_module(module))
        else:
            training = own(inside, "training") is True
        mode = (GRADIENTS if self.torch.is_grad_enabled() else 0) | (TRAINING if training else 0) | trainable
        # A frozen module that hands gradients on to what it was given, as a loss network: no config says so. It has a number
        # that is no object's, since its passes without gradients are not trained.
        subject = id(module)
        if mode & GRADIENTS and not trainable and self.needs_gradients(values):
            mode, model, subject = mode | TRAINING | TRAINABLE, 0, subject + 1
        context, number = -1, 0
        if seq_len >= 0 and (cache is not None or values.get("use_cache", more.get("use_cache")) is True):
            mode |= CACHE
            context = self.context(cache, seq_len) if cache is not None else 0
        if model != 0 and context < 0:
            model, batch, seq_len = self.documents(subject, values, more, model, batch, seq_len)
        if function is not None or seq_len == FEATURES:  # it may call the module in its own way
            model = 0
        self.local.compared, self.local.number, config = None, 0, model * OF_CONFIG
        self.local.since = self.sequence()
        if model == 0 or model in self.unsure:
            number = self.measured_number(module, values, mode, seq_len, context, function, trains)
            model, self.local.number = config + number, number
        if self.computed and not self.optimizers and not self.stack()[:-1]:
            self.look_for_update(mode & GRADIENTS and trainable)
        self.local.counted = number != 0
        if trainable and mode & GRADIENTS:
            self.probe(module)
        if mode & TRAINABLE and mode & GRADIENTS:
            self.pending += 1
        if context > 0 and seq_len > 1 and self.is_of_drafts():
            self.say(PASS_BEGIN, mode, subject, model, batch, -1, context, -1, -1, batch * seq_len)
        else:
            self.say(PASS_BEGIN, mode, subject, model, batch, seq_len, context, tokens)
        all_of_it = GRADIENTS | TRAINING | TRAINABLE
        self.local.begun = (mode, subject, model, batch, seq_len, context, tokens) if mode & all_of_it == all_of_it else None
        self.local.config = config
        if self.layers is not None:
            self.layers.pass_begins(module)

    def is_of_drafts(self):
        """Whether a pass with several tokens checks drafted ones, or drafts: some method that calls it speculates."""
        code, frame = self.drafts() if self.drafts is not None else None, sys._getframe(1)
        while code is not None and frame is not None and frame.f_code is not code:
            frame = frame.f_back
        return code is not None and frame is not None

    # --- methods that call several parts of their module ---------------------------------------------------------------

    def method_around(self, frame):
        """A forward() that the program calls itself is a pass, and so is a method that calls several parts of its module, as the
        training_step() of an autoencoder. It is seen for the first time when it calls one of them. \return it has begun"""
        called, frame = frame, self.caller_of(frame)
        code = frame.f_code if frame is not None else None
        found = self.methods.get(id(code))
        if code is None or (found is not None and found() is code):
            return False
        if not code.co_flags & 1 or code.co_argcount == 0 or not SHOW_LOCALS.isdisjoint(code.co_names):
            return False
        if len(self.methods) >= MOST_CODES:
            self.methods.clear()
        self.methods[id(code)] = self.ref(code)
        values = frame.f_locals
        given = {name: values.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
        # Before CPython 3.13 it would keep what is in it as long as the frame. Others that have it keep it as it is.
        if type(values) is dict and sys.getrefcount(values) <= ALONE:
            values.clear()
        module = given[code.co_varnames[0]]
        if not issubclass(type(module), self.torch.nn.Module) or self.find(code) is not None:
            return False
        if self.code_of(module) is code:
            watched = self.watch(code, self.pass_begins, self.leave)
            self.late = not calls_first(frame)
            try:
                if watched is not None:
                    self.pass_begins(frame, watched, module, None, given)
            finally:
                self.late = False
            return self.inside()
        parts = parts_called(code, module)
        watched = self.watch(code, self.method_begins, self.leave) if parts else None
        if watched is None or parts[0] is not receiver(called):
            return False
        self.pass_begins(frame, watched, module, code, given)
        return self.inside()

    def caller_of(self, frame):
        """The frame that calls the module whose forward() this is; None: it is too far away."""
        outer = frame.f_back
        if outer is not None and outer.f_code is self.plain_call:  # no hook, and nothing else around it
            outer = outer.f_back
            if outer is not None and outer.f_code is self.call.ref():
                return outer.f_back
        depth = 0
        while frame is not None and frame.f_globals.get("__name__") != MODULES:
            frame, depth = frame.f_back, depth + 1
            if depth == MOST_AROUND:
                return None
        while frame is not None and frame.f_globals.get("__name__") == MODULES:
            frame = frame.f_back
        return frame

    def method_begins(self, frame, called):
        module = receiver(frame)
        if issubclass(type(module), self.torch.nn.Module):
            self.pass_begins(frame, called, module, frame.f_code)

    # --- functions that torch.compile compiled -----------------------------------------------------------------------

    def function_begins(self, frame, called):
        """A module's forward() is a pass. Another function is one of the only module that it can reach, if what is traced of
        it has products, which the first call shows."""
        if self.inside() or self.backward_on not in (None, self.ident()):
            return
        if self.waits() and self.wrapper_around(frame.f_back) is not None:
            return
        self.local.waits = 0
        values = frame.f_locals
        function, values = maker(values.get("fn"), methods=True), {name: values.get(name) for name in ("args", "kwargs")}
        if type(function) is METHOD and self.is_optimizer(function.__self__) and innermost(function).__name__ == "step":
            self.local.function = id(frame)
            self.update_begins(frame, called, function.__self__)
            return
        known = self.refs.get(("function", id(innermost(function))))
        known = known[1] if known is not None and known[0]() is innermost(function) else None
        if known is False:
            return
        module, forward = known() if known is not None else None, False
        if module is None or any(issubclass(type(one), self.torch.nn.Module) and one is not module for one in arguments(values)):
            module, forward = module_of(function, values, self.torch)
            if type(module) is tuple:
                module = self.several_of(module)
        if module is not None and (forward or known is not None):
            self.local.function = id(frame)
            self.pass_begins(frame, called, module, None if forward else innermost(function), values)
        elif module is not None:
            self.local.waits, self.local.waits_for = id(frame), self.ref(module)
            self.listen_to_parts()
        elif known is None:
            self.know_function(frame, False)

    def several_of(self, modules):
        """The same object for the same modules."""
        key = tuple(map(id, modules))
        found = self.several.get(key)
        if found is None or any(ref() is not module for ref, module in zip(found.modules, modules)):
            if len(self.several) >= MOST_MODELS:
                return None
            found = self.several[key] = Several(modules)
        return found

    def function_ends(self, frame, called, value=None):
        if getattr(self.local, "function", 0) == id(frame):
            self.local.function = 0
            self.leave(frame, called, value)
        elif self.waits() == id(frame):
            self.know_function(frame, False)

    def know_function(self, frame, known):
        """`known`: the module that it is a pass of, weak; False: it is none."""
        function = innermost(maker(frame.f_locals.get("fn"), methods=True))
        self.local.waits = 0
        self.listen_to_parts()
        if type(function).__weakrefoffset__:
            self.keep(("function", id(function)), function, known)

    def waits(self):
        """The number of the frame that calls a function for the first time, until it is known whether that is a pass."""
        return getattr(self.local, "waits", 0)

    def wrapper_around(self, frame):
        """The outermost frame of torch.compile's wrapper."""
        found = None
        while frame is not None:
            found = frame if frame.f_code is self.wrapper.ref() else found
            frame = frame.f_back
        return found

    def wait_for_products(self, frame, traced):
        frame = self.wrapper_around(frame)
        if frame is None:  # an exception has left it
            self.local.waits = 0
        elif traced is not None and (traced.products or traced.attention):
            self.know_function(frame, self.local.waits_for)
            self.function_begins(frame, self.wrapper)

    def wait_for_gradients(self, result):
        """Of a pass. Where all of its result is gone before a backward pass begins, none has computed its gradients: what
        lies with the autograd nodes of the result goes with them."""
        begun, self.local.begun = getattr(self.local, "begun", None), None
        if begun is None or self.capture is not None:
            return
        mark = Mark()
        with self.quiet():
            try:
                nodes = self.nodes_of(result)
                for node in nodes:
                    node.metadata["mfuinject"] = mark
            except Exception:  # nodes or tensors of another kind
                return
        if not nodes or len(self.results) >= MOST_RESULTS:
            return
        number = id(mark)
        self.results[number] = (self.ref(mark, guard(lambda reference: self.is_dropped(number, begun))), begun)

    def is_dropped(self, number, begun):
        if self.results.pop(number, None) is not None and not self.stopped:
            self.pending -= 1
            self.say(DROPPED, *begun)

    def nodes_of(self, result):
        """Autograd nodes of the tensors in a result; none where it holds too many values."""
        if self.is_tensor(result):
            return [result.grad_fn] if result.grad_fn is not None else []
        found, waiting, seen = [], [result], set()
        for one in waiting:
            kind = type(one)
            if self.is_tensor(one):
                if one.grad_fn is not None:
                    found.append(one.grad_fn)
            elif issubclass(kind, (tuple, list)):
                waiting += (tuple if issubclass(kind, tuple) else list).__iter__(one)
            elif issubclass(kind, dict):
                waiting += dict.values(one)
            elif id(one) not in seen and not issubclass(kind, (type, self.torch.nn.Module)):  # of the program's own class
                seen.add(id(one))
                waiting += plain(one).values()
            if len(waiting) > MOST_IN_RESULT:
                return []
        return found

    def module_made(self, frame, called):
        """Later than others: it may be around those whose calls are not watched any more."""
        if self.left <= 0 and self.passes >= self.learn_from:
            self.learn_from = self.passes + LEARN_SELDOM
            self.look_for_modules()

    def learn_again(self):
        self.known.clear()  # what trains may have changed
        self.look_for_modules()

    def look_for_modules(self):
        self.left = max(self.left, RELEARN)
        if self.call is not None:
            self.listen(self.call)

    def about(self, module):
        """(weak, a number that says which parameters train, or 0, number of the model that its config is, or 0, whether it is
        torch.compile's, two of its parameters and whether they train) of a module; None: it is none."""
        if self.unsure:
            self.look_at_answers()
        found = self.known.get(id(module))
        if found is not None and found[0]() is module:
            first, of_first, last, of_last = found[4]
            # Some programs freeze a whole model in each step and let it train again.
            if getattr(first(), "requires_grad", None) is of_first and getattr(last(), "requires_grad", None) is of_last:
                return found
        if type(module) is not Several and not issubclass(type(module), self.torch.nn.Module):
            return None
        if len(self.known) > MOST_CODES:
            self.known.clear()
        parameters = [p for m in every_module(module) for p in parameters_of(m)]
        trains = [p.requires_grad for p in parameters]
        graph = any(kind.__module__ == "torch.fx.graph_module" for kind in type(module).__mro__)
        if not trains and (graph or not any(plain(m).get("_buffers") for m in every_module(module))):
            return None  # no model: an activation, a loss, a sampler, what torch.compile traced
        matrices = any(has_matrix(m) for m in every_module(module))
        if not matrices and (self.has_models or not trains):
            return None  # a loss with weights of classes or, beside models, of tasks
        self.has_models = self.has_models or matrices
        inside = unwrapped(module)
        # A config does not say what is frozen or another rank's, so that the products are counted where they run.
        counted = (any(trains) and not all(trains)) or shares(module)
        number = 0 if counted else self.number_of(inside, own(inside, "config"), size=number_of_elements(parameters))
        compiled = "_orig_mod" in (plain(module).get("_modules") or NOTHING)
        first, last = (parameters[0], parameters[-1]) if parameters else (self, self)
        ends = (self.ref(first), getattr(first, "requires_grad", None), self.ref(last), getattr(last, "requires_grad", None))
        found = self.known[id(module)] = (self.ref(module), hash(tuple(trains)) if any(trains) else 0, number, compiled, ends)
        return found

    def look_at_answers(self):
        for number in list(self.unsure):
            answer = refused(number)
            if answer is not None:
                self.unsure.discard(number)
            if answer:
                self.unread.add(number)
                self.known.clear()
                self.refs = {k: kept for k, kept in self.refs.items() if type(k) is not int or kept[1] != number}

    def number_of(self, owner, config, ranks=1, size=0):
        """The number of the model, 0 where its config cannot be read; hands the config over the first time. `ranks` share
        its work. `size`: elements of its parameters, by which the drain sees whether the config is of it; 0: not known."""
        seen = self.refs.get(id(owner))
        if seen is not None and seen[0]() is owner:
            return seen[1]
        try:
            text = text_of(owner, config, self.torch)
            if text is not None:
                packed = '"quantization_config": {' in text
                text = f"{0 if packed else size} {text}"
        except Exception:  # of the program's to_dict()
            text = None
        number = self.numbers.get((text, ranks), 0)
        if text is not None and number == 0 and self.models < MOST_MODELS:
            self.models += 1
            number = self.numbers[text, ranks] = self.models
            self.unsure.add(number)
            tell(MODEL, number + RANKS * ranks, text)
        if number in self.unread:
            number = 0
        self.keep(id(owner), owner, number)
        return number

    def keep(self, key, thing, number, then=None):
        """Remembers the number of an object for as long as that lives."""
        if len(self.refs) >= MOST_REFS:
            self.refs = {k: kept for k, kept in self.refs.items() if kept[0]() is not None}
        if len(self.refs) < MOST_REFS:
            self.refs[key] = (self.ref(thing, then) if then is not None else self.ref(thing), number)

    def context(self, cache, seq_len):
        """Tokens that are in a cache before a pass; counted here where no shape says it, since to ask may be to ask the GPU."""
        inner = own(cache, "self_attention_cache")  # of a decoder, beside that of what its encoder read
        cache = inner if inner is not None else cache
        if type(cache).__name__ == "DynamicCache":
            layers = own(cache, "layers")
            layers = layers if type(layers) is list else []
            before = max((self.tokens_in(layer) for layer in layers), default=0)
            if before >= 0:
                return before
        seen, before = getattr(self.local, "cached", (None, 0))
        if seen is None or seen() is not cache:
            before = 0 if seq_len > 1 else -1  # a prompt of one token is rare, and a cache that was filled before is not
        after = before + seq_len if before >= 0 else -1
        self.local.cached = (self.ref(cache), after) if hasattr(cache, "__weakref__") else (None, 0)
        return before

    def tokens_in(self, layer):
        """Of a cache; -1: it keeps a state of one size, however many there were."""
        seen, keys = own(layer, "cumulative_length"), own(layer, "keys")
        if type(seen) is int:  # more than it keeps
            return seen
        if keys is None:
            return 0 if "keys" in plain(layer) else -1
        return max(0, whole(keys.shape[-2])) if self.is_tensor(keys) and keys.dim() == 4 else 0

    def is_tensor(self, value):
        kind = type(value)
        return kind is self.tensor or issubclass(kind, self.tensor)

    def first_tensor(self, values, least_dim):
        for value in values:
            if value is not None and self.is_tensor(value) and value.dim() >= least_dim:
                return value
        return None

    def needs_gradients(self, values):
        return any(self.is_tensor(value) and value.requires_grad for value in arguments(values) if value is not None)

    def shape(self, values, more):
        """(batch, seq_len, tokens) of a call's arguments, below 0 where it does not say: no tensor is read."""
        tensor = values.get("input_ids")
        if tensor is None:
            tensor = more.get("input_ids", values.get("inputs_embeds"))
        if tensor is None or not self.is_tensor(tensor):
            tensor = self.first_tensor(arguments(values), 2)
        if tensor is None:  # in batches as a tokenizer makes them
            several = (value if type(value) in (list, tuple) else (value,) for value in arguments(values))
            batches = [dictionary_of(one) for held in several for one in held[:MOST_IN_RESULT]]
            batches = [dict.get(one, "input_ids") for one in batches if one is not None]
            batches = [one for one in batches if one is not None and self.is_tensor(one)]
            if len(batches) > 1:
                return -1, -1, sum(whole(one.numel()) for one in batches)
            tensor = batches[0] if batches else None
        if tensor is None:
            return -1, -1, -1
        try:
            size = tensor.shape
        except RuntimeError:  # a nested one has none
            return -1, -1, -1
        dim = len(size)
        if dim < 2:  # sequences behind each other, as servers have them
            return -1, -1, whole(tensor.numel())
        batch, seq_len = size[0], size[1]
        if dim > 3:  # images
            seq_len = -1
        elif dim == 2 and tensor.is_floating_point():
            seq_len = FEATURES
        return batch if type(batch) is int else -1, seq_len if type(seq_len) is int else -1, -1

    def documents(self, subject, values, more, model, batch, seq_len):
        """(model, batch, seq_len) of a pass whose rows may hold documents, with attention within each. How long those are, the
        device alone knows, unless the longest one shows that all are alike: no config says their FLOP."""
        ends, longest = (more.get(name, values.get(name)) for name in ("cu_seq_lens_q", "max_length_q"))
        if ends is None and subject not in self.packed:
            return model, batch, seq_len
        count = whole(ends.numel()) - 1 if ends is not None and self.is_tensor(ends) else 0
        if count > 0 and type(longest) is int and count * longest == batch * seq_len:
            return model, count, longest
        return 0, batch, seq_len

    def packed_rows_begin(self, frame, called):
        """Attention within documents begins, whose ends are found on the device."""
        passes = [entry[2] for entry in self.stack() if entry[1] == PASS_END]
        if passes and len(self.packed) < MOST_MODELS:
            self.packed.add(passes[0])

    # --- models without a config ------------------------------------------------------------------------------------

    def measured_number(self, module, values, mode, seq_len, context, function, trains):
        """The number of this module with arguments of these shapes; the first time, its products are counted while it runs."""
        if mode & CACHE and context < 0:
            return 0
        key = [id(module), id(function), mode, context, trains]
        try:
            for value in arguments(values):
                kind = type(value)
                if kind in KNOWN or value is module:
                    continue
                if kind is self.tensor or issubclass(kind, self.tensor):
                    key += value.shape
                    key.append(-2 if value.requires_grad else -1)
                    continue
                held = value if kind is list or kind is tuple else dict.values(dictionary_of(value) or NOTHING)
                for one in held:
                    if self.is_tensor(one):
                        key += one.shape
                        key.append(-2 if one.requires_grad else -1)
        except RuntimeError:  # as above
            return 0
        key = tuple(key)
        if not NUMBERS.issuperset(map(type, key)):  # a size that is a symbol of a trace
            return 0
        found = self.refs.get(key)
        if found is not None and found[0]() is module:
            self.check(found[1], values)
            return found[1]
        if self.measuring is not None or self.measured >= FIRST_MEASURED + MOST_MEASURED:
            return 0
        number, late = self.refs.pop(("late", *key), (None, 0))[1], self.late
        self.measured += number == 0
        number = number or self.measured
        self.keep(("late", *key) if late else key, module, number)
        if late:  # some of it has run: the next pass says how many FLOP it had
            return number
        try:
            measuring = Measured(self, module, number, key, seq_len, mode & GRADIENTS and mode & TRAINABLE, function is not None)
        except Exception:  # parameters that have no shape yet
            self.refs.pop(key, None)
            return 0
        for code in measuring.codes.values():
            watched = self.find(code) or self.watch(code, None, None, False)
            if watched is not None:
                self.listen(watched, watched.listens, True)
        self.measuring = measuring
        self.listen_to_parts()
        searched = self.refs.get(("searched", id(module), mode))
        if searched is None or searched[0]() is not module:
            self.keep(("searched", id(module), mode), module, None)
            self.search(True)
        else:
            for code in self.alive(self.attends):
                self.set_events(code, self.monitor.get_local_events(self.tool, code))
        return number

    def is_proven(self, module):
        """The matrix products of a pass of it were all that autograd kept: there is no other work that has FLOP."""
        found = self.refs.get(("proven", id(module)))
        return found is not None and found[0]() is module

    def prove(self, module):
        self.keep(("proven", id(module)), module, None)

    def check(self, number, values):
        """The FLOP of a pass may depend on more than the shapes of its arguments, as on what the module keeps of earlier tokens
        or on layers that are left out at random: end_check() compares what was asked of cuBLAS with the first pass of these."""
        state = self.states.get(number)
        if state is None or self.measuring is not None or self.capture is not None:
            return
        self.local.compared = state
        if state.attention and state.graph is None and self.checking is None:
            state.passes += 1
            if state.alike < ALIKE or state.passes % ALIKE_AGAIN == 0:
                given = ((place, value) for place, value in enumerate(arguments(values)) if type(value) is int)
                looks = state.steady < ALIKE or state.passes % ALIKE_AGAIN == 0
                self.checking = Check(state, self.ident(), {*given} if state.per_pair else (), looks)
                self.listen_to_attention(state, looks)
        asked()  # before this pass

    def end_check(self, failed, result):
        """\return the number of this pass where its FLOP are not those of the first one of its shapes, else 0"""
        state, self.local.compared = getattr(self.local, "compared", None), None
        check = self.checking
        if check is not None and check.thread == self.ident():
            self.checking = None
        else:
            check = None
        if state is None:
            return 0
        products, attention = asked(), state.attention
        if not (products and state.everything or failed):  # of one nothing was seen, as while CUPTI is not the library's
            products = state.everything
        if state.tokens_of_pass == 1 and state.graph is None and products > state.everything:
            self.keeps.add(self.local.number)  # from token to token there is more to read
        if check is not None:
            attention = check.attention if state in self.listening else state.attention_by(check.given)
            alike = products == state.everything and attention == state.attention
            state.alike = state.alike + 1 if alike else 0
            if state.alike >= ALIKE:
                self.listen_to_attention(state, False)
        if attention == state.attention and not failed:
            differs = products != state.everything or (state.variants and state.graph is not None)
            return self.variant(state, products, result) if differs else 0
        known = attention is not None and not (failed and attention)  # what fails has no backward pass
        forward = state.forward + products - state.everything + attention - state.attention if known else -1
        return self.once_number(forward, 0 if known else -1, state.no_attention)

    def variant(self, state, products, result):
        """The number of a pass that asks for these FLOP. What it asks for says most often what its gradients will."""
        if not state.variants:
            state.variants[state.everything] = [state.number, (state.forward, state.backward), 0]
        known = state.variants.get(products)
        if known is not None:
            number, flop, known[2] = known[0], known[1], known[2] + 1
            if flop is not None and (state.graph is None or (known[2] > SURE and known[2] % SURE)):
                return number
        found = -1, -1
        with self.quiet():
            try:
                found = state.flop_of_other(products, self.nodes_of(result), self.local.since)
            except Exception:  # nodes or tensors of another kind
                pass
        if known is not None and found == known[1]:
            return known[0]
        full = len(state.variants) >= MOST_VARIANTS or self.measured >= FIRST_MEASURED + MOST_MEASURED
        if known is not None or full:
            if known is not None:
                known[1] = None  # passes that ask for it differ
            return self.once_number(*found, state.no_attention)
        self.measured += 1
        state.variants[products] = [self.measured, found, 1]
        self.say(PASS_WORK, int(state.no_attention), 0, self.measured, *found)
        return self.measured

    def listen_to_attention(self, state, on):
        if (state in self.listening) == on:
            return
        (self.listening.add if on else self.listening.discard)(state)
        for code in self.alive(self.attends):
            self.set_events(code, self.monitor.get_local_events(self.tool, code) & ~self.events.CALL)

    @staticmethod
    def alive(refs):
        return [code for code in (ref() for ref in refs.values()) if code is not None]

    def measure(self, frame, value):
        measuring = self.measuring
        if measuring.thread == self.ident() and id(frame.f_code) in measuring.codes:
            module = receiver(frame)
            if issubclass(type(module), self.torch.nn.Module):
                with self.quiet():
                    self.count(measuring.add, module, frame, value)

    def count(self, counts, *about):
        try:
            counts(*about)
        except Exception:
            self.measuring.whole = False  # the FLOP of this model are not known

    # --- what torch.compile traced ------------------------------------------------------------------------------------

    def traces_update(self, frame, called):
        one = plain(frame.f_locals.get("self")).get("value")
        if self.is_optimizer(one):
            self.local.optimizers = {**getattr(self.local, "optimizers", NOTHING), id(one): self.ref(one)}

    def compiles(self, frame, called):
        """A part of the program was traced, and is handed to a compiler, which may change it."""
        optimizers, self.local.optimizers = getattr(self.local, "optimizers", NOTHING), NOTHING
        with self.quiet():
            try:
                self.local.traced = Traced(frame.f_locals["gm"], optimizers.values())
            except Exception:  # nodes that are not known
                self.local.traced = None

    def compiled_part(self, frame, called, value=None):
        traced, self.local.traced = getattr(self.local, "traced", None), None
        made = maker(frame.f_locals.get("compiled_fn"))
        if traced is not None and type(made).__weakrefoffset__:
            self.keep(("traced", id(made)), made, traced)
            if traced.optimizers:
                self.traced_updates = True
                self.listen_to_parts()

    def traced_of(self, function):
        """The graph that `function` runs, None where it runs none."""
        made = maker(function)
        found = self.refs.get(("traced", id(made)))
        return found[1] if found is not None and found[0]() is made else None

    def listen_to_parts(self):
        """Their calls matter while products are counted, and where they hold an update. So do kernels of Triton, meanwhile."""
        if self.kernels is not None:
            self.listen(self.kernels, self.measuring is not None)
        if self.runs is not None:
            wanted = self.measuring is not None or self.traced_updates or self.waits() != 0
            self.listen(self.runs, wanted or bool(self.states))

    def part_runs(self, frame, called):
        """torch.compile's function around what it compiled, and around others that it does not look into."""
        traced = self.traced_of(frame.f_locals.get("fn"))
        if self.waits():
            self.wait_for_products(frame, traced)
        if traced is None:
            return
        self.local.compared = None  # a compiler asks for other products
        measuring = self.measuring
        if measuring is not None and measuring.thread == self.ident():
            with self.quiet():
                self.count(measuring.add_traced, traced, frame.f_locals.get("args", ()))
        for one in traced.optimizers:
            if one() is not None:
                self.part_ran(frame, called)  # of the one before
                self.local.part = id(frame)
                self.update_begins(frame, called, one())

    def part_ran(self, frame, called, value=None):
        if getattr(self.local, "part", 0) == id(frame):
            self.local.part = 0
            self.leave(frame, called)

    def attend(self, looks, frame, offset, query):
        """`looks`: Measured, or Check."""
        with self.quiet():
            if looks is self.measuring:
                self.count(looks.attend, frame, offset, query)
            else:
                self.compare_call(looks, lambda: self.attention(frame, offset, query))

    def compare_call(self, check, attention):
        try:
            self.compare(check, *attention())
        except Exception:  # as above
            check.attention, check.looks = None, False

    def compare(self, check, query, key, causal):
        if shape_of(query) is None or shape_of(key) is None or Unseen in (type(query), type(key)):
            check.attention, check.looks = None, False
        elif check.before.per_pair:
            tokens, keys = (whole(shape_of(one)[-2]) for one in (query, key))
            check.before.compare(check.given, keys)
            check.attention, check.looks = check.before.per_pair * pairs_of(tokens, keys, causal is True), False
        else:
            check.attention += flop_of_call(query, key, causal)

    def attention(self, frame, offset, query):
        """(query, key, causal) of a call of scaled_dot_product_attention(). The key is Unseen where nothing says its shape."""
        passed = self.arguments_of_call(frame, offset, ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"))
        query = query if self.is_tensor(query) else passed.get("query")
        shape, key = shape_of(query), passed.get("key")
        if type(key) is Unseen and key.shape is not None and shape is not None and elements(key.shape) == elements(shape):
            key = query  # the same values in another order
        return query, key, passed.get("is_causal", False)

    def arguments_of_call(self, frame, offset, names):
        """Arguments of a call of a builtin function with these parameters, as far as they can be followed."""
        code = frame.f_code
        found = self.calls.get((id(code), offset))
        if found is None or found[0]() is not code:
            if len(self.calls) >= MOST_CODES:
                self.calls.clear()
            place = (id(code), offset)
            gone = guard(lambda reference: self.calls.pop(place, None) and None)
            found = self.calls[place] = (self.ref(code, gone), Call.at(code, offset))
        return found[1].passed(frame, names) if found[1] is not None else {}

    def attention_begins(self, frame, called):
        """Of flash-attn and xformers: sequences x tokens x heads x width."""
        if self.measuring is not None and self.measuring.thread == self.ident():
            with self.quiet():
                self.count(self.measuring.attend_by_heads, frame.f_locals)

    def packed_attention_begins(self, frame, called):
        """The lengths of the sequences are on the device."""
        if self.measuring is not None and self.measuring.thread == self.ident():
            self.measuring.whole = False

    def kernel_runs(self, frame, called):
        """A kernel that is written in Triton: one that multiplies asks nothing of cuBLAS."""
        if self.measuring is not None and self.measuring.thread == self.ident():
            with self.quiet():
                self.count(self.measuring.run_kernel, frame)

    def end_measuring(self, failed, result):
        measuring, self.measuring = self.measuring, None
        if failed:  # once more, with the next pass
            measuring.whole = False
            self.refs.pop(measuring.key, None)
        self.search(False)
        self.listen_to_parts()
        for code in {*measuring.codes.values(), *self.alive(self.attends)}:
            watched = self.find(code)
            if watched is not None:
                self.listen(watched, watched.listens)
            else:
                self.set_events(code, 0)
        forward, backward = -1, -1
        if measuring.reads_more():
            self.keeps.add(measuring.number)
        with self.quiet():
            try:
                forward, backward = measuring.finish(self.nodes_of(result), self.local.since) or (-1, -1)
                empty = not (failed or measuring.key[5:] or measuring.forward or measuring.everything)  # no tensor came in
                if self.is_tensor(result):
                    empty = result.is_meta
                if empty:  # it was asked for the shape of a result alone
                    forward = backward = 0
                    self.refs.pop(measuring.key, None)
            except Exception:  # nodes or tensors of another kind
                pass
        measuring.attention *= not measuring.in_products
        if forward >= 0 and not (measuring.traced or measuring.replayed or measuring.convolved):
            self.states[measuring.number] = State(measuring)
            self.listen_to_parts()
        self.say(PASS_WORK, int(measuring.no_attention()), 0, measuring.number, forward, backward)
        if forward >= 0 and measuring.detached is not None and len(self.detached) < MOST_MODELS:
            *parameters, backward = measuring.detached
            before = [[gradient_of(p()) for p in some] for some in parameters]
            self.detached.append((measuring, parameters, before, (forward, backward) if backward >= 0 else (-1, -1), 0))

    # --- backward passes, updates and batches -----------------------------------------------------------------------

    def gradients(self, frame, called):
        """Gradients that have gradients again. How many FLOP those have, the backward pass may know."""
        values, stack = frame.f_locals, self.stack()
        again = values.get("create_graph") is True
        if not (again or stack):
            return
        results, wanted = values.get("outputs"), values.get("inputs")
        wanted = wanted if type(wanted) in (tuple, list) else (wanted,)
        in_pass = any(entry[1] == PASS_END for entry in stack)
        if results is not None and in_pass and getattr(self.local, "counted", False):  # a part of it, whose FLOP are counted
            if self.measuring is not None and self.measuring.thread == self.ident():
                with self.quiet():
                    self.count(self.measuring.differentiate, results, wanted, again)
        elif not again:
            return
        elif results is not None:
            self.more_work(results, wanted)
            self.again = self.again or AGAIN
        else:
            self.say(MORE_WORK, 0, 0, 0, 1)
            self.again = UNKNOWN

    def gradients_alone(self, frame, called):
        """torch.autograd.grad(): of parameters, which an optimizer gets then, it is a backward pass. Of other tensors, as a
        picture that is attacked, it is work of unknown FLOP."""
        inputs, again = frame.f_locals.get("inputs"), frame.f_locals.get("create_graph") is True
        if self.is_functional(frame):
            self.backward(frame, called, functional=True)
            self.taken = 0 if self.optimizers else id(self.call)
            return
        given = inputs if type(inputs) in (tuple, list) else ()
        trains = type(inputs).__name__ == "generator" or any(issubclass(type(one), self.torch.nn.Parameter) for one in given)
        if again or self.stack() or not (self.optimizers or trains):
            self.gradients(frame, called)
        elif trains:
            self.backward(frame, called)
            by_torch = frame.f_back is not None and str(frame.f_back.f_globals.get("__name__")).startswith("torch.")
            if not self.optimizers and not by_torch:
                self.taken = id(self.call)  # by the program, which changes the parameters with them
        elif self.results:
            self.more_work(frame.f_locals.get("outputs"), given or (inputs,))

    def transforms(self):
        """Names of those of torch.func that are under way on this thread, the outermost first."""
        if self.functorch is None or self.functorch.maybe_current_level() is None:
            return ()
        return [one.key().name for one in self.functorch.get_interpreter_stack() or ()]

    def is_functional(self, frame):
        """torch.func.grad() and the like, of passes that train: there are no gradients of these gradients."""
        caller = frame.f_back.f_globals.get("__name__") if frame.f_back is not None else None
        functional = caller == "torch._functorch.eager_transforms" and self.pending > 0 and not self.stack()
        return functional and self.transforms().count("Grad") == 1

    def more_work(self, results, wanted):
        """Gradients of these tensors are asked of autograd, beside the backward passes."""
        flop = None
        if self.capture is None and "Vmap" not in self.transforms():  # a number of one time is none of each replay
            flop = self.walk(len(wanted), lambda: flop_of_gradients(self.nodes_of(results), wanted))
        self.beside = (self.beside[0] + 1, self.beside[1] + (flop or 0))
        self.say(MORE_WORK, 0, 0, self.once_number(flop, flop) if flop is not None else 0, 1)

    def once_number(self, forward, backward, no_attention=False):
        """Of work that happens once; -1: its FLOP are not known."""
        self.once = (self.once + 1) % MOST_ONCE
        self.say(PASS_WORK, int(no_attention), 0, FIRST_ONCE + self.once, forward, backward)
        return FIRST_ONCE + self.once

    def walk(self, what, counts):
        """FLOP that autograd's graph says, None where it does not: of `what`, after passes of these shapes and so many gradients
        with so many FLOP. It is looked at until it was the same a few times, and then now and again."""
        passes = (what, self.beside, *(begun for _, begun in self.results.values()))
        known = self.walked.get(passes)
        if known is None:
            if len(self.walked) >= MOST_WALKED:
                self.walked.clear()
            known = self.walked[passes] = [None, 0, 0]  # FLOP, how often it had as many one after the other, calls
        known[2] += 1
        if known[1] < ALIKE or known[2] % ALIKE_AGAIN == 0:
            flop = None
            with self.quiet():
                try:
                    flop = counts()
                except Exception:  # nodes or tensors of another kind
                    pass
            known[:2] = flop, known[1] + 1 if flop == known[0] else 0
        return known[0]

    def all_gradients(self, frame):
        """FLOP of a backward pass through gradients that were computed before it, and through all passes since the last one."""
        given, inputs = frame.f_locals.get("tensors"), frame.f_locals.get("inputs")
        if self.again != AGAIN or self.capture is not None or inputs is not None or self.pending != len(self.results):
            return None

        def counts():
            _, flop, *others = products_of_graph(self.nodes_of(given))
            return None if any(others) else flop

        return self.walk("all", counts)

    def backward(self, frame, called, functional=False):
        if not functional:
            self.gradients(frame, called)
        stack = self.stack()
        # Checkpoints compute gradients inside of a backward pass, on the thread that works for it.
        thread = self.ident()
        if (self.backward_on is not None and self.backward_on != thread) or any(entry[1] == BACKWARD_END for entry in stack):
            self.enter(frame, called, None)
            return
        if stack and (stack[-1][0] is self.wrapper or stack[-1][0].start == self.method_begins):  # it holds the whole step
            self.local.function = 0
            self.end(stack.pop())
        flop = self.all_gradients(frame) if self.again else None
        if flop is not None:  # of all passes, and not one by one
            for _, begun in self.results.values():
                self.say(DROPPED, *begun)
        self.results.clear()
        self.pending, self.beside = 0, (0, 0)
        self.enter(frame, called, BACKWARD_END)
        self.backward_on = thread
        if self.passes == self.passes_before:  # nothing that was seen computed what this is the gradient of
            self.learn_again()
        self.passes_before = self.passes
        self.say(BACKWARD_BEGIN, 0, 0, 0)
        if self.again:
            self.again, number = 0, self.once_number(flop, flop) if flop is not None else 0
            if number:
                self.say(MORE_WORK, 0, 0, number, 1)
            self.say(MORE_WORK, OF_BACKWARD, 0, number, 1)
        if self.layers is not None:
            self.layers.backward_begins()

    def probe(self, module):
        """Where several modules are trained, a backward pass may leave some of them out: their gradients stay as they are."""
        number = id(module)
        found = self.trained.get(number)
        if found is None or found[0]() is not module:
            if len(self.trained) >= MOST_MODELS:
                self.trained.clear()
            parameters = [p for m in every_module(module) for p in parameters_of(m) if p.requires_grad]
            some = parameters[:: max(1, len(parameters) // PROBES)]
            found = self.trained[number] = (self.ref(module), [self.ref(p) for p in some])
        self.passed.pop(number, None)
        if number not in self.probed and (len(self.trained) > 1 or self.steps < 4):
            self.probed[number] = [gradient_of(p()) for p in found[1]]

    def look_at_detached(self):
        """When gradients are used: of a measured pass, what is not in autograd's graph has none, if what is in it has."""
        waiting, self.detached = self.detached, []
        for one in waiting:
            measuring, parameters, before, flop, updates = one
            with self.quiet():
                reached, missing = ([gradient_of(p()) for p in some] for some in parameters)
            if reached == before[0]:  # these gradients are of another pass
                if updates < MOST_UPDATES:
                    self.detached.append((*one[:4], updates + 1))
                continue
            if missing != before[1]:  # the result is kept elsewhere: which gradients products without a matrix have is not known
                if not measuring.activations:
                    continue
                flop = -1, -1
            state = self.states.pop(measuring.number, None)
            if state is not None and flop[0] >= 0:
                state.backward = flop[1]
                self.states[measuring.number] = state
            self.say(PASS_WORK, int(measuring.no_attention()), 0, measuring.number, *flop)

    def look_at_gradients(self):
        if not self.probed:
            return
        probed, self.probed, self.passed = self.passed | self.probed, {}, {}
        if len(probed) < 2:
            return
        same = []
        with self.quiet():
            for number, before in probed.items():
                parameters = self.trained.get(number, (None, ()))[1]
                if before == [gradient_of(p()) for p in parameters]:
                    same.append(number)
        if len(same) < len(probed):
            for number in same:
                self.passed[number] = probed[number]
                self.say(NOT_REACHED, 0, number, 0)

    def fetch(self, frame, called):
        self.say(FETCH, 0, 0, 0)

    def made(self, frame, called):
        self.optimizer(frame.f_locals["self"], MADE)

    def optimizer(self, one, kind):
        number = id(one)
        if number in self.refs and self.refs[number][0]() is one:
            return
        self.keep(number, one, 0, at_end(number))
        self.optimizers = True
        if self.updated:
            self.end_update()
            self.say(GONE, 0, self.updated, 0)
            self.updated = 0
        if kind == MADE:
            self.say(MADE, 0, number, 0)

    def update(self, frame, called):
        values = frame.f_locals
        self.update_begins(frame, called, values["self"] if "self" in values else values["args"][0])

    def is_optimizer(self, one):
        return issubclass(type(one), self.torch.optim.Optimizer)

    def update_begins(self, frame, called, one):
        stack = self.stack()
        if stack and any(entry[1] == UPDATE_END for entry in stack):  # an optimizer around another one
            self.enter(frame, called, None)
            return
        self.optimizer(one, UPDATE_BEGIN)
        if self.detached:
            self.look_at_detached()
        self.enter(frame, called, UPDATE_END, id(one))
        self.say(UPDATE_BEGIN, 0, id(one), 0)
        self.steps += 1
        if self.steps % RELEARN_STEPS == 0:
            self.learn_again()

    def zeroes(self, frame, called):
        """module.zero_grad(): a program without an optimizer has changed the weights itself since its backward pass."""
        if not self.optimizers and not self.stack():
            self.updated = self.updated or id(receiver(frame))
            self.end_update()

    @staticmethod
    def traces_of(parameters):
        """Pairs that change where a program changes a parameter, or clears its gradient; None: they are gone."""
        alive = [p() for p in parameters]
        return [(gradient_of(p), p._version) for p in alive] if all(p is not None for p in alive) else None

    def look_for_update(self, trains):
        """Before a pass: without an optimizer, too, gradients were used where they are gone, or parameters have changed."""
        now = {number: self.traces_of(self.trained[number][1]) for number in self.found if number in self.trained}
        used = next((number for number, traces in now.items() if traces not in (None, self.found[number])), 0)
        self.updated = self.updated or self.taken or used
        if used or self.taken or (self.updated and not trains):
            self.end_update()

    def begin_update(self):
        if self.updated and self.computed and not self.updates:
            self.updates = True
            self.say(UPDATE_BEGIN, 0, self.updated, 0)

    def end_update(self):
        self.begin_update()
        if self.updates:
            self.say(UPDATE_END, 0, self.updated, 0)
        self.computed = self.updates = False
        self.taken = 0

    # --- graphs -----------------------------------------------------------------------------------------------------

    def capture_begins(self, frame, called, value=None):
        """What is called while a graph is made happens in each of its replays, and not now."""
        self.capture = None if self.stack() else (self.ident(), [])

    def capture_ends(self, frame, called):
        capture, self.capture = self.capture, None
        if capture is None or capture[0] != self.ident():
            return
        facts = capture[1]
        begun, ended = ([fact[0] for fact in facts if fact[0] in kinds] for kinds in (BEGINS, ENDS))
        if not facts or len(facts) > MOST_IN_GRAPH or len(begun) != len(ended) or facts[-1][0] not in ENDS:
            return
        if len(begun) > 1 and all(kind == PASS_BEGIN for kind in begun):  # how they share its time is not known
            return
        parts = REPLAYED if len(begun) > 1 else 0
        kept = [(kind, mode | parts, *rest[:4], -1, *rest[5:]) if kind == PASS_BEGIN else (kind, mode | parts, *rest)
                for kind, mode, *rest in facts]
        one = frame.f_locals["self"]
        self.keep(("graph", id(one)), one, kept)

    def replay(self, frame, called):
        one = frame.f_locals["self"]
        kept = self.refs.get(("graph", id(one)))
        if self.stack():
            self.replay_inside(kept[1] if kept is not None and kept[0]() is one else ())
        if kept is None or kept[0]() is not one or self.stack():
            return
        self.enter(frame, called, REPLAY, kept[1][-1])
        for fact in kept[1][:-1]:
            self.say(*fact)

    def replay_inside(self, facts):
        """A graph is a part of a pass: its products are asked of nobody."""
        self.local.compared, measuring = None, self.measuring
        if measuring is None or measuring.thread != self.ident():
            return
        begun = [fact for fact in facts if fact[0] == PASS_BEGIN]
        passes = [self.states.get(fact[3]) for fact in begun]
        if passes and None not in passes:
            measuring.add_passes(passes, {fact[2] for fact in begun})
        else:
            measuring.whole = False

    # --- engines ----------------------------------------------------------------------------------------------------

    def find_engines(self):
        context = attribute("torch._dynamo.eval_frame", "_TorchDynamoContext")
        if context is not None and "dynamo" not in self.engines:
            self.engines.add("dynamo")
            self.wrapper = self.watch(
                code_within(code_of(own(context, "__call__")), "compile_wrapper"), self.function_begins, self.function_ends
            )
            traced = attribute("torch._dynamo.output_graph", "OutputGraph")
            self.watch(code_of(own(traced, "_call_user_compiler")), self.compiles, self.compiled_part, False)
            untraced = own(attribute("torch._dynamo.eval_frame", "DisableContext"), "__call__")
            self.runs = self.watch(code_within(code_of(untraced), "_fn"), self.part_runs, self.part_ran)
            self.listen_to_parts()
            # A function of tracing that every optimizer of torch.optim calls in its step().
            traced = attribute("torch._dynamo.variables.optimizer", "OptimizerVariable")
            traced = own(traced, "_init_group") or own(traced, "call_method")
            self.watch(code_of(traced), self.traces_update, None, False)
        for place, name, kind in ENGINES:
            if (place, name) in self.engines or place not in sys.modules:
                continue
            holder, _, function = name.partition(".")
            found = attribute(place, holder)
            code = code_of(own(found, function) if function else found)
            if code is None:
                continue
            self.engines.add((place, name))
            if kind == "drafts":
                self.drafts = self.ref(code)
                continue
            start, end = {
                "attention": (self.attention_begins, None),
                "packed_attention": (self.packed_attention_begins, None),
                "no_pass": (lambda frame, called: self.enter(frame, called, None), self.leave),
                "cache": (self.cache_resets, None),
                "kernel": (self.kernel_runs, None),
                "packed_rows": (self.packed_rows_begin, None),
                "paged_pass": (self.paged_begins, self.leave),
                "sglang_pass": (self.sglang_begins, self.leave),
                "update": (self.update, self.leave),
                "vllm_pass": (self.vllm_begins, self.vllm_launched),
                "vllm_sample": (None, self.vllm_sampled),
            }[kind]
            watched = self.watch(code, start, end, kind not in ("cache", "kernel") and not kind.endswith(("attention", "rows")))
            if kind == "kernel":
                self.kernels = watched
                self.listen_to_parts()

    def cache_resets(self, frame, called):
        self.local.cached = (None, 0)

    def engine_pass(self, owner, inside, model, reads, writes):
        """A pass of a server over sequences that it reads and others that it writes, each as alike() has them."""
        count, tokens, context = writes
        if count == 0:
            self.say(PASS_BEGIN, CACHE, id(owner), model, reads[0], -1, reads[2], reads[1])
        elif reads[0] != 0:
            self.say(PASS_BEGIN, CACHE, id(owner), model, reads[0], -1, context, reads[1], count, tokens, reads[2])
        elif tokens == count:
            self.say(PASS_BEGIN, CACHE, id(owner), model, count, 1, context)
        else:  # drafted tokens among them
            self.say(PASS_BEGIN, CACHE, id(owner), model, count, -1, context, -1, -1, tokens)
        if self.layers is not None and issubclass(type(inside), self.torch.nn.Module):
            self.layers.pass_begins(inside)

    def paged_begins(self, frame, called):
        """Continuous batching of transformers."""
        processor, model = first_two(frame)
        batch = processor.inputs_and_outputs
        pairs = getattr(batch, "io_pairs", None)  # two batches that take turns
        batch = batch if pairs is None else pairs[batch.current_pair].host_io
        requests = getattr(batch, "requests_in_batch", ())
        if not all(hasattr(one, "query_length") and hasattr(one.state, "initial_tokens") for one in requests):
            return  # of an older version
        if not self.enter(frame, called, PASS_END, id(model)):
            return
        reads, writes = [], []
        for one in requests:
            before = one.state.position_offset - one.query_length
            (writes if before >= len(one.state.initial_tokens) else reads).append((one.query_length, before))
        found = self.about(model)
        self.engine_pass(model, model, found[2] if found is not None else 0, alike(reads), alike(writes))

    def vllm_begins(self, frame, called):
        runner, scheduled = first_two(frame)
        self.vllm_sampled(frame, called)  # an exception left the last one
        self.enter(frame, called, None)
        tokens = scheduled.num_scheduled_tokens
        if not tokens or frame.f_locals.get("dummy_run") is True:
            return
        cached, drafted = scheduled.scheduled_cached_reqs, getattr(scheduled, "scheduled_spec_decode_tokens", NOTHING)
        before = {one.req_id: one.num_computed_tokens for one in scheduled.scheduled_new_reqs}
        made = dict.fromkeys(before, 0)  # tokens of the answer so far
        before.update(zip(cached.req_ids, cached.num_computed_tokens, strict=False))
        made.update(zip(cached.req_ids, getattr(cached, "num_output_tokens", ()), strict=False))
        reads, writes = [], []
        for request, count in tokens.items():
            decodes = made.get(request, 1) > 0 and (count == 1 or request in drafted)
            (writes if decodes else reads).append((count, before.get(request, 0)))
        parallel = getattr(runner, "parallel_config", None)
        ranks = getattr(parallel, "tensor_parallel_size", 1) * getattr(parallel, "pipeline_parallel_size", 1)
        model = self.number_of(runner, runner.model_config.hf_config, ranks)
        self.engine_pass(runner, plain(runner).get("model"), model, alike(reads), alike(writes))
        self.local.vllm = id(runner)

    def vllm_launched(self, frame, called, value=None):
        self.leave(frame, called)
        if getattr(receiver(frame), "execute_model_state", 0) is None:  # nothing is left to sample
            self.vllm_sampled(frame, called)

    def vllm_sampled(self, frame, called, value=None):
        runner, self.local.vllm = getattr(self.local, "vllm", None), None
        if runner is not None:
            self.say(PASS_END, 0, runner, 0)

    def sglang_begins(self, frame, called):
        runner, batch = first_two(frame)
        mode, count = batch.forward_mode.name, batch.batch_size
        # Without sequences it runs beside other ranks; of a prefill that is split by layers, one call is a part of a pass.
        if count == 0 or mode == "SPLIT_PREFILL":
            self.enter(frame, called, None)
            return
        if not self.enter(frame, called, PASS_END, id(runner)):
            return
        fed = count
        if mode != "DECODE":
            fed = getattr(batch, "extend_num_tokens", None)
            fed = fed if type(fed) is int else batch.input_ids.shape[0]  # a pass over drafted tokens
        keys, context = batch.seq_lens_sum, -1
        if type(keys) is int:
            keys -= fed if mode != "TARGET_VERIFY" else 0  # there the drafted tokens are not among the keys
            context = (max(0, keys) + count // 2) // count
        reads, writes = (count, fed, context), (0, 0, -1)
        lengths, ahead = getattr(batch, "extend_seq_lens_cpu", None), getattr(batch, "extend_prefix_lens_cpu", None)
        if mode in ("DECODE", "TARGET_VERIFY") or mode.startswith("DRAFT_EXTEND"):
            reads, writes = writes, reads
        elif type(lengths) is list and type(ahead) is list:
            groups = [], []
            for tokens, before in zip(lengths, ahead, strict=False):
                groups[mode == "MIXED" and tokens == 1].append((tokens, before))
            reads, writes = map(alike, groups)
        ranks = getattr(runner, "tp_size", 1) * getattr(runner, "pp_size", 1)
        if getattr(getattr(runner, "server_args", None), "enable_dp_attention", False):  # groups with sequences of their own
            ranks = max(1, ranks // max(1, getattr(runner, "dp_size", 1)))
        model = self.number_of(runner, runner.model_config.hf_config, ranks)
        self.engine_pass(runner, plain(runner).get("model"), model, reads, writes)


def updates_alone():
    """CPython 3.10 and 3.11: the official hooks of torch.optim."""
    optimizer = sys.modules["torch.optim.optimizer"]  # torch.optim has no name for it in some versions
    optimizer.register_optimizer_step_pre_hook(guard(lambda one, args, kwargs: post(UPDATE_BEGIN, 0, id(one), 0) and None))
    optimizer.register_optimizer_step_post_hook(guard(lambda one, args, kwargs: post(UPDATE_END, 0, id(one), 0) and None))


def leave_uncompiled(torch):
    """torch.compile of versions up to 2.8, at least, compiles each function that is called inside of what it compiles, and so
    those of this file, which run there as callbacks: it is asked to pass them over."""
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    pass_over = getattr(frames, "skip_code", None)
    if hasattr(frames, "set_code_exec_strategy") and hasattr(frames, "_FrameExecStrategy"):
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)  # and all that it calls

        def pass_over(code):
            frames.set_code_exec_strategy(code, strategy)

    if pass_over is None:
        return
    here = [*globals().values()]
    here += [method for one in here if type(one) is type for method in one.__dict__.values()]
    waiting = [getattr(getattr(one, "__func__", one), "__code__", None) for one in here]
    for code in waiting:
        if type(code) is type(begin.__code__) and code.co_filename == begin.__code__.co_filename:
            pass_over(code)
            waiting += [one for one in code.co_consts if type(one) is type(code)]


def begin():
    torch = sys.modules.get("torch")
    if torch is None or not all(hasattr(torch, name) for name in ("optim", "nn", "autograd", "__version__", "is_grad_enabled")):
        tell(NOT_YET, 0, "")
        return
    release = ".".join(str(torch.__version__).split(".")[:2])
    versions = f"(CPython {sys.version_info[0]}.{sys.version_info[1]}, torch {release})"
    if "t" in getattr(sys, "abiflags", ""):
        tell(STOPPED, 0, "a free-threaded build of CPython")
        return
    if hasattr(sys, "monitoring"):
        try:
            leave_uncompiled(torch)
        except Exception:  # of another version
            pass
        Watch(torch).start()
    else:
        updates_alone()
    tell(USED, 0, ("steps and shapes" if hasattr(sys, "monitoring") else "steps") + " from the interpreter " + versions)


try:
    begin()
except Exception as fault:
    tell(STOPPED, fault.__traceback__.tb_lineno, f"{type(fault).__name__}: {fault}"[:200])
