"""FLOP of the matrix products and the attention of one pass: of what runs in the interpreter, and of what torch.compile traced.
The second part of the library's string.
"""

import sys

if sys is None:  # for linters alone
    from objects import (
        NOTHING,
        Several,
        arguments,
        code_of,
        elements,
        every_module,
        expression,
        is_scripted,
        kinds_of_module,
        local,
        made_shape,
        matrices_of,
        own,
        plain,
        receiver,
        sizes_of,
        weight_shape,
        whole,
    )

asked = globals()["asked"]  # put there by interpreter.cpp

# Of the functions that torch.compile may trace: products, with the place of their first matrix, and others that hold some.
PRODUCTS = {"linear": 0, "matmul": 0, "mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "conv1d": 0, "conv2d": 0, "conv3d": 0}
PRODUCTS.update({"conv_transpose1d": 0, "conv_transpose2d": 0, "conv_transpose3d": 0, "einsum": 1})
PRODUCTS.update({"_scaled_mm": 0, "_grouped_mm": 0, "grouped_mm": 0})
OTHER_PRODUCTS = ("tensordot", "addbmm", "multi_dot", "bilinear", "lstm", "gru")
NOT_CUBLAS = ("conv", "attention", "lstm", "gru", "rnn")  # in the text of a graph of TorchScript
# Autograd's nodes of products: the place of their first matrix, attributes with the sizes of both.
PRODUCT_NODES = {"AddmmBackward0": (1, "_saved_mat1_sym_sizes", "_saved_mat2_sym_sizes"), "BmmBackward0": (0,)}
PRODUCT_NODES.update({"MmBackward0": (0, "_saved_self_sym_sizes", "_saved_mat2_sym_sizes"), "BaddbmmBackward0": (1,)})
# Parts of the names of others with products.
OTHER_NODES = ("Attention", "Conv", "Rnn", "Lstm", "Gru", "Mv", "ScaledMm", "GroupedMm", "Linear", "Compiled", "CppNode")
OTHER_NODES += ("Addbmm", "Addmv", "Addr", "Cdist", "Dot", "Vdot", "ForeachMm", "Solve", "Sparse", "Trilinear")
MOST_NODES = 1 << 14
MOST_KERNELS = 8  # that call each other
INSIDE = ("tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap", "invoke_subgraph")  # of a part of the graph
MOST_UNSEEN = 0.05  # of a model's matrices, by elements: above it, its FLOP are not known
ATTENTION = "scaled_dot_product_attention"
# Functions that convolve: how many dimensions, and their arguments where those say the size of the result.
OF_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
CONVOLUTIONS = {f"conv{dims}d": (dims, OF_CONVOLUTION) for dims in (1, 2, 3)}
CONVOLUTIONS.update({f"conv_transpose{dims}d": (dims, None) for dims in (1, 2, 3)})
FAKE = "torch._subclasses"  # of tensors, while torch.compile traces
# Functions of torch that run a module without gradients, in C++: the products of its matrices, and attention among all tokens.
FUSED = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")
CALLED = {ATTENTION, *CONVOLUTIONS, *FUSED}
KNOWN = (int, bool, float, str, type(None))  # values that may be asked whether they are true
OF_NUMBERS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, ">": int.__gt__, ">=": int.__ge__}
OF_NUMBERS.update({"<": int.__lt__, "<=": int.__le__, "==": int.__eq__, "!=": int.__ne__})
SAME_SHAPE = ("contiguous", "to", "type_as", "float", "half", "bfloat16", "clone", "detach", "cuda", "type")
# Methods of a tensor that give it another shape: names of their arguments.
SHAPING = {"transpose": ("dim0", "dim1"), "unsqueeze": ("dim",), "squeeze": ("dim",), "size": ("dim",)}
SHAPING.update({"repeat_interleave": ("repeats", "dim"), "flatten": ("start_dim", "end_dim")})
SHAPING.update({"narrow": ("dim", "start", "length"), "permute": ("dims",)})
SHAPING.update({"view": ("size",), "reshape": ("shape",), "expand": ("size",), "repeat": ("repeats",), "tile": ("dims",)})
BY_NUMBERS = ("mul", "div", "add", "sub")  # methods that keep the shape, if their argument is a number


class Traced:
    """The matrix products and the attention of a part of the program that torch.compile traced. A size is a number or, where
    it may differ from call to call, an expression of symbols; each call's arguments say what those are."""

    def __init__(self, module, optimizers):
        self.optimizers = [*optimizers]  # weak: those that it updates with
        self.products = []  # sizes whose product they are, how often forward and backward, arguments that they are made of
        self.attention = []  # sizes of the query with its tokens last, tokens of the key, causal, gradients
        self.symbols = []  # argument, dimension or None, symbol
        self.whole = True
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        for place, node in enumerate(inputs):
            self.add_symbols(place, node.meta["example_value"])
        self.add_nodes(module, [frozenset((place,)) for place in range(len(inputs))])
        self.weights = frozenset().union(*(made_of for *_, made_of in self.products))  # arguments

    def add_symbols(self, place, example):
        shape = getattr(example, "shape", None)
        for dim, size in ((None, example),) if shape is None else enumerate(shape):
            if type(size) is not int and hasattr(size, "node"):
                self.symbols.append((place, dim, expression(size)))

    def add_nodes(self, module, given, forward=1, backward=True):
        """`given`: for each input the arguments that it is, or is made of."""
        given, made_of, reached = iter(given), {}, reached_backward(module) if backward else ()
        for node in module.graph.nodes:
            inputs = node.all_input_nodes
            if node.op == "placeholder":
                made_of[node.name] = next(given, frozenset())
            elif any(kind.__name__ == "HigherOrderOperator" for kind in type(node.target).__mro__):
                self.add_inner(node, plain(module)["_modules"], made_of, node in reached)
            elif node.op.startswith("call") and self.add_node(node, made_of, forward, node in reached or not forward):
                continue
            else:
                tensors = [one for one in inputs if len(getattr(one.meta.get("example_value"), "shape", ())) > 0]
                if len(tensors) == 1:  # scaled, or in another order
                    made_of[node.name] = made_of.get(tensors[0].name, frozenset())

    def add_inner(self, node, graphs, made_of, backward):
        """An operator around further graphs."""
        inside = [graphs[one.target] for one in node.all_input_nodes if one.op == "get_attr" and one.target in graphs]
        given = [made_of.get(one.name, frozenset()) for one in node.all_input_nodes if one.op != "get_attr"]
        if node.target.__name__ in INSIDE:
            self.add_nodes(inside[0], given, backward=backward)
        elif node.target.__name__ == "autograd_function_apply":  # its backward pass is written down
            self.add_nodes(inside[0], given, backward=False)
            if backward:
                self.add_nodes(inside[1], (), forward=0, backward=False)
        elif node.target.__name__ == "flex_attention":
            query, key = (local(one.meta["example_value"]) for one in node.args[:2])
            causal = is_causal_mask(inside[-1])
            self.whole = self.whole and causal is not None
            self.attend(query, key, causal, backward)
        elif any(one.op.startswith("call") and product_of(one) for graph in inside for one in graph.graph.nodes):
            self.whole = False  # which of them run is not known

    def add_node(self, node, made_of, forward, backward):
        """\return it is a product, or attention"""
        name, values = getattr(node.target, "__name__", node.target), node.args
        first = PRODUCTS.get(name)
        if name == ATTENTION:
            given = {**dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), values)), **node.kwargs}
            query, key = (local(given[one].meta["example_value"]) for one in ("query", "key"))
            self.attend(query, key, given.get("is_causal") is True, backward)
        elif first is not None:
            given, weight = (one.meta["example_value"] for one in values[first : first + 2])
            of_given, of_weight, out = map(local, (given, weight, node.meta["example_value"]))
            if name.startswith("conv"):
                sizes = sizes_of(of_given if "transpose" in name else out) + sizes_of(of_weight)[1:]
            elif name == "einsum":
                sizes = sizes_of_einsum(*values, of_given, of_weight)
            elif "grouped" in name and of_weight.dim() != 3:
                sizes = [-1]
            else:
                sizes = [*sizes_of(out), expression(of_given.shape[-1])]
            weights = frozenset().union(*(made_of.get(one.name, frozenset()) for one in node.all_input_nodes))
            gradients = (weight.requires_grad is True) + (given.requires_grad is True) if forward else 1
            self.products.append((sizes, forward, gradients if backward else 0, weights))
        else:
            self.whole = self.whole and not product_of(node)
            return False
        return True

    def attend(self, query, key, causal, backward):
        *batch, tokens, width = sizes_of(query)
        gradients = backward and query.requires_grad is True
        self.attention.append(([*batch, width, tokens], expression(key.shape[-2]), causal is True, gradients))

    def values(self, given):
        """A function of a size: its value in a call with these arguments, -1 where they do not say it."""
        known, numbers = {}, sys.modules["sympy"].Integer if self.symbols else None
        for place, dim, symbol in self.symbols:
            value = given[place] if dim is None else given[place].shape[dim]
            if type(value) is int:
                known[symbol] = numbers(value)

        def value_of(size):
            if type(size) is int:
                return size
            found = size.xreplace(known) if hasattr(size, "xreplace") else None
            return int(found) if getattr(found, "is_Integer", False) else -1

        return value_of


class Unseen:
    """A value that a call computes. `shape`: of the only tensor that it is made of."""

    __slots__ = ("shape",)

    def __init__(self, *given):
        shapes = [shape_of(one) for one in given]
        shapes = [shape for shape in shapes if shape is not None]
        self.shape = shapes[0] if len(shapes) == 1 else None


class Shaped:
    """Some of a tensor's values, or all of them in another order."""

    __slots__ = ("shape", "requires_grad")

    def __init__(self, tensor, shape):
        self.shape, self.requires_grad = shape, tensor.requires_grad


class Call:
    """A call of a builtin function, of whose arguments CPython shows the first one: the others are followed through the
    instructions before it."""

    def __init__(self, instructions, call, jumped, effect):
        self.instructions, self.call, self.jumped, self.effect = instructions, call, jumped, effect

    @classmethod
    def at(cls, code, offset):
        """\return None: its arguments cannot be followed"""
        dis = sys.modules.get("dis")
        every, found, call, otherwise, ended, jumped = [], [], None, 0, False, set()
        for one in dis.get_instructions(code) if dis is not None else ():
            if ended:  # a branch that returned: this one begins where it was left
                jump = next((n for n in reversed(found) if n.opname.startswith("POP_JUMP") and n.argval == one.offset), None)
                if jump is not None:
                    jumped.add(jump.offset)
                    otherwise = 0
                    del found[found.index(jump) + 1 :], every[every.index(jump) + 1 :]
            ended = one.opname.startswith(("RETURN_", "RAISE", "RERAISE"))
            if one.offset == offset:
                call = one
                break
            every.append(one)
            if one.offset >= otherwise:  # of two branches of an expression, the first
                found.append(one)
                if one.opname == "JUMP_FORWARD" and one.argval <= offset:
                    otherwise = one.argval
        if call is None:
            return None
        # It begins where the stack has grown by what the call takes.
        wanted = 3 + (call.arg & 1) if call.opname == "CALL_FUNCTION_EX" else call.arg + 2 + (call.opname == "CALL_KW")
        for place in range(len(found) - 1, -1, -1):
            one = found[place]
            wanted -= dis.stack_effect(one.opcode, one.arg, jump=False)
            if wanted == 0:
                return cls(every[every.index(one) :], call, jumped, dis.stack_effect)
        return None

    def passed(self, frame, names):
        """Arguments by their name."""
        stack, values, keywords, unsure, target = [], frame.f_locals, (), set(), 0
        for one in self.instructions:
            does, value = one.opname, one.argval
            if one.offset < target:
                continue
            if one.offset in unsure:  # one of two values, and which one is not known
                stack[-1] = Unseen()
            if does.startswith("LOAD_FAST") or does == "LOAD_DEREF":
                stack += [values.get(name, Unseen()) for name in (value if type(value) is tuple else (value,))]
            elif does == "LOAD_GLOBAL":
                stack += [None, frame.f_globals.get(value)][1 - (one.arg & 1) :]
            elif does in ("LOAD_CONST", "LOAD_SMALL_INT"):
                stack.append(value)
            elif does == "LOAD_ATTR":
                thing = stack.pop()
                stack += [(thing, value), None] if one.arg & 1 else [attribute_of(thing, value)]
            elif does == "KW_NAMES":
                keywords = value
            elif does in ("CALL", "CALL_KW"):
                keywords = stack.pop() if does == "CALL_KW" else keywords
                given = [stack.pop() for _ in range(one.arg)][::-1]
                stack[-2:] = [result_of(stack[-2], given, keywords)]
                keywords = ()
            elif does in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SLICE"):
                given = [stack.pop() for _ in range(one.arg)][::-1]
                stack.append(slice(*given) if does == "BUILD_SLICE" else given)
            elif does == "LIST_EXTEND" and type(stack[-1]) in (tuple, list) and type(stack[-1 - value]) is list:
                rest = stack.pop()
                stack[-1] = [*stack[-1], *rest]
            elif does == "BUILD_MAP":
                pairs = [stack.pop() for _ in range(2 * value)][::-1]
                stack.append(dict(zip(pairs[::2], pairs[1::2])) if all(type(name) is str for name in pairs[::2]) else Unseen())
            elif does == "BUILD_CONST_KEY_MAP":
                keys = stack.pop()
                stack.append(dict(zip(keys, [stack.pop() for _ in range(value)][::-1])))
            elif does == "DICT_MERGE" and type(stack[-1]) is dict and type(stack[-2]) is dict:
                rest = stack.pop()
                stack[-1] = {**stack[-1], **rest}
            elif does == "JUMP_FORWARD":
                target = value
                if any(one.offset < place for place in unsure):
                    stack[-1] = Unseen()
            elif does.startswith("POP_JUMP_IF"):
                jumps = holds(does[len("POP_JUMP_IF_") :], stack.pop())
                target = value if jumps else target
                if jumps is None and value <= self.call.offset and one.offset not in self.jumped:
                    unsure.add(value)
            elif does == "POP_TOP":
                stack.pop()
            elif does == "COPY":
                stack.append(stack[-value])
            elif does in ("TO_BOOL", "UNARY_NOT") and type(stack[-1]) in KNOWN:
                stack[-1] = bool(stack[-1]) != (does == "UNARY_NOT")
            elif does == "UNARY_NEGATIVE" and type(stack[-1]) is int:
                stack[-1] = -stack[-1]
            elif does == "IS_OP" and Unseen not in (type(stack[-1]), type(stack[-2])):
                second = stack.pop()
                stack[-1] = (stack[-1] is second) != bool(value)
            elif does == "BINARY_SUBSCR" or (does == "BINARY_OP" and one.argrepr == "[]"):
                place = stack.pop()
                stack[-1] = part_of(stack[-1], place)
            elif does == "BINARY_SLICE":
                place = slice(stack.pop(-2), stack.pop())
                stack[-1] = part_of(stack[-1], place)
            elif does in ("BINARY_OP", "COMPARE_OP") and type(stack[-1]) is type(stack[-2]) is int and value_of(one) is not None:
                second = stack.pop()
                stack[-1] = value_of(one)(stack[-1], second)
            elif does not in ("CALL_INTRINSIC_1", "NOT_TAKEN", "CACHE", "NOP"):  # the first makes a tuple of a list
                size = len(stack) + self.effect(one.opcode, one.arg, jump=False)
                made = Unseen(*stack[max(0, size - 1) :])
                del stack[max(0, size - 1) :]
                stack += [made] * (size - len(stack))
        return self.by_name(stack, names, keywords)

    def by_name(self, stack, names, keywords):
        if self.call.opname == "CALL_FUNCTION_EX":
            more = stack.pop() if self.call.arg & 1 else {}
            given = stack.pop()
            if type(given) not in (tuple, list) or type(more) is not dict:
                return {}
            return {**dict(zip(names, given)), **more}
        if self.call.opname == "CALL_KW":
            keywords = stack.pop()
        given = stack[len(stack) - self.call.arg :]
        plain_ones = len(given) - len(keywords)
        return {**dict(zip(names, given[:plain_ones])), **dict(zip(keywords, given[plain_ones:]))}


class Measured:
    """The matrix products of one pass, while it runs: FLOP forward and backward. A matrix is known by its module and name:
    what shards parameters puts others there while the module runs."""

    def __init__(self, watch, module, number, key, seq_len, gradients, parts=False):
        self.watch, self.number, self.key, self.thread = watch, number, key, watch.ident()
        self.gradients = gradients != 0
        self.module = watch.ref(module)
        self.parts = parts  # of the module may be all that runs
        self.forward = self.backward = 0
        # FLOP forward: of products that no module with a matrix makes, as in hand-written attention; of all that were asked
        # for since the last such module returned.
        self.activations = self.asked = 0
        self.linear = self.linear_backward = 0  # of forward and backward: what modules made that multiply by one matrix
        # Modules with matrices that ran; whether cuBLAS was asked for the product of each that is known.
        self.called, self.all_asked = set(), True
        self.fused = 0  # the id of the module that was counted whole
        self.convolutions, self.within = set(), set()  # modules; matrices of those that have modules inside
        self.parameters, self.seen, self.codes = {}, set(), {}  # elements of matrices; code objects
        self.whole = True
        self.convolved, self.graph = False, None  # a convolution asked cuBLAS for products; products_of_graph() of the result
        self.everything, self.in_products = 0, False  # that was asked of cuBLAS; attention, too
        self.calls, self.attention = set(), 0  # of attention: tokens, keys and whether it is causal; FLOP
        self.attended_to = 0  # calls of attention
        # FLOP of gradients of each call of attention, and of each convolution with the id of its module, that has some.
        self.of_attention, self.of_convolutions = [], []
        self.detached = None  # matrices in autograd's graph, others that ran, FLOP backward if those get no gradients
        self.seq_len, self.spans = seq_len, set()  # of attention: tokens and keys, traced or not
        self.places = {}  # of matrices by their id: module, name
        self.traced = self.replayed = False  # what was traced ran; a graph did
        self.gradient = self.again = 0  # FLOP of gradients that the pass computes, and of those that have gradients
        # Of TorchScript cuBLAS alone shows products: how many a backward pass has of them is not known.
        self.scripted = is_scripted(module)
        # Nor is it in torch.func.vmap(), whose tensors have the sizes of one of many.
        self.whole = self.whole and not (self.gradients and (self.scripted or "Vmap" in watch.transforms()))
        self.look_at(module)
        asked()  # before this pass

    def look_at(self, module):
        watch = self.watch
        tables, matrices, scripted = set(), {}, set()
        for one in every_module(module):
            if is_scripted(one) and id(one) not in scripted:
                scripted.update(map(id, every_module(one)))
                self.whole = self.whole and not any(name in str(one.inlined_graph) for name in NOT_CUBLAS)
            if issubclass(type(one), (watch.torch.nn.Embedding, watch.torch.nn.EmbeddingBag)):
                tables.update(id(matrix) for _, matrix in matrices_of(one))
                continue
            inside = matrices_of(one)
            convolves = issubclass(type(one), watch.torch.nn.modules.conv._ConvNd)
            if convolves:
                self.convolutions.update(map(id, every_module(one)))
            if plain(one).get("_modules"):
                self.within.update((id(one), name) for name, matrix in inside if matrix.dim() == 2)
            matrices.update(((id(one), name), matrix) for name, matrix in inside)
            multiplies = inside or convolves or issubclass(type(one), watch.torch.nn.Linear)
            code = watch.code_of(one) if multiplies or self.parts else None
            if code is not None:
                self.codes[id(code)] = code
        self.parameters = {place: one.numel() for place, one in matrices.items() if id(one) not in tables}
        self.looks_up = len(tables) > 0 and not self.parameters

    def add(self, module, frame, result):
        """A module with matrices of its own returned."""
        values, weights = plain(module), matrices_of(module)
        self.called.add(id(module))
        if id(module) == self.fused:
            self.fused = 0
            return
        nn = self.watch.torch.nn
        if issubclass(type(module), nn.MultiheadAttention):
            self.add_projections(module, values, frame)
            return
        if issubclass(type(module), kinds_of_module("RNNBase", "RNNCellBase")):
            self.add_recurrent(module, frame)
            return
        shared = self.watch.first_tensor(arguments(frame.f_locals), 1)
        given = local(shared)
        if type(result) is tuple and result:
            result = result[0]
        result = local(result)
        of_torch = issubclass(type(module), (nn.Linear, nn.modules.conv._ConvNd))
        if given is None or not self.watch.is_tensor(result) or not given.is_floating_point():
            return
        if len(weights) == 1:
            shape = weight_shape(local(weights[0][1]))
        elif of_torch:  # its weight is made of others, as by weight_norm()
            shape = made_shape(values)
        else:
            return
        out = whole(result.numel())
        if out < 0 or not shape or (len(shape) > 2 and not of_torch):
            return
        inputs, convolves = values.get("in_features"), len(shape) > 2
        if convolves and values.get("transposed"):
            forward = 2 * whole(given.numel()) * elements(shape[1:])
        elif convolves:
            forward = 2 * out * elements(shape[1:])
        elif whole(result.shape[-1]) == shape[0] and whole(given.shape[-1]) == shape[1]:
            forward = 2 * out * shape[1]
        elif type(inputs) is int:  # packed
            forward = 2 * out * inputs
        elif whole(result.shape[-1]) == shape[0]:
            forward = 2 * out * shape[1]
        elif whole(result.shape[-1]) == shape[1]:
            forward = 2 * out * shape[0]
        else:
            return
        inside = [(id(one), name, matrix) for one in every_module(module) for name, matrix in matrices_of(one)]
        factors = inside if of_torch else [(id(module), *weights[0])]
        # It was multiplied before its modules ran, or is no factor at all, as embeddings of positions are none.
        if values.get("_modules") and not of_torch and not self.is_asked_for(forward) and self.everything:
            if self.activations >= forward:
                self.seen.update((place, name) for place, name, _ in factors)
            return
        self.seen.update((place, name) for place, name, _ in factors)
        trains = any(matrix.requires_grad is True for _, _, matrix in factors)
        self.count(forward, trains + (shared.requires_grad is True), convolves, module)

    def add_projections(self, module, values, frame):
        query, key = frame.f_locals.get("query"), frame.f_locals.get("key")
        width = values.get("embed_dim")
        if not (self.watch.is_tensor(query) and self.watch.is_tensor(key) and type(width) is int):
            return
        of_query, of_key = whole(query.numel()) // whole(query.shape[-1]), whole(key.numel()) // whole(key.shape[-1])
        others = (values.get("kdim") or width) + (values.get("vdim") or width)
        output = (values.get("_modules") or {}).get("out_proj")
        weights = matrices_of(module) or matrices_of(output)
        trained = (weights[0][1].requires_grad is True) + (query.requires_grad is True)
        self.count(2 * width * (2 * of_query * width + of_key * others), trained)
        self.seen.update((id(one), name) for one in (module, output) for name, _ in matrices_of(one))

    def add_recurrent(self, module, frame):
        """Each matrix of an LSTM or GRU meets each token. A first state of zeros needs no gradient."""
        given, state = frame.f_locals.get("input"), frame.f_locals.get("hx")
        state = state[0] if type(state) is tuple else state
        if not (self.watch.is_tensor(given) and self.watch.is_tensor(state)):
            return
        tokens, first, forward = whole(given.numel()) // whole(given.shape[-1]), whole(state.shape[-2]), 0
        trains = any(weight.requires_grad for _, weight in matrices_of(module)) or given.requires_grad
        for name, weight in matrices_of(module):
            backward = tokens if trains else 0  # that need the gradient of what the matrix is given
            if name in ("weight_ih", "weight_ih_l0", "weight_ih_l0_reverse"):
                backward = tokens * given.requires_grad
            elif "_hh" in name and not state.requires_grad:
                backward -= first * trains
            forward += 2 * tokens * weight.numel()
            self.backward += 2 * weight.numel() * (backward + tokens * weight.requires_grad)
            self.seen.add((id(module), name))
        self.add_forward(forward)

    def is_asked_for(self, forward):
        """So many FLOP, at least, since a module that multiplies returned last."""
        self.asked += self.products()
        return self.asked >= forward

    def count(self, forward, gradients, convolves=False, owner=None):
        """`gradients`: 1 for that of a matrix that trains, and 1 for that of its input where it needs one. `owner`: the module
        that has the matrix."""
        self.add_forward(forward, convolves)
        self.backward += forward * gradients
        if not convolves:
            self.linear += forward
            self.linear_backward += forward * gradients
        elif gradients:
            self.of_convolutions.append((forward * gradients, id(owner)))

    def add_forward(self, forward, convolves=False):
        """`convolves`: where cuDNN does, it asks nothing of cuBLAS, or for the same product once or several times."""
        self.forward += forward
        products, self.asked = self.asked + self.products(), 0
        by_cudnn = convolves and getattr(self.watch.torch._C, "_get_cudnn_enabled", bool)()
        asked_for = products >= forward and not (by_cudnn and products % max(1, forward))
        self.convolved = self.convolved or (convolves and asked_for)
        self.all_asked = self.all_asked and (asked_for or convolves)
        self.activations += products - forward if asked_for else products

    def is_traced(self, frame, given):
        """torch.compile traces the call, or runs what it traced as it is."""
        return type(given).__module__.startswith(FAKE) or self.watch.traced_of(receiver(frame)) is not None

    def attend(self, frame, offset, query):
        """scaled_dot_product_attention(query, ...) is called: 4 x heads x width x pairs, twice that backward."""
        if self.is_traced(frame, query):
            return
        query, key, causal = self.watch.attention(frame, offset, query)
        shape = shape_of(query)
        if shape is None or type(query) is Unseen or len(shape) < 3 or shape_of(key) is None or type(key) is Unseen:
            self.whole = False
        else:
            tokens, keys = whole(shape[-2]), whole(shape_of(key)[-2])
            if type(causal) is not bool and tokens > 1 and tokens == keys:
                self.whole = False
            forward, backward = self.forward, self.backward
            self.add_attention(query, key, causal is True)
            self.calls.add((tokens, keys, causal is True))
            self.attended_to += 1
            self.attention += self.forward - forward
            if self.backward > backward:
                self.of_attention.append(self.backward - backward)
        self.asked += self.products()  # before the call

    def innermost(self, frame):
        """The innermost module with a matrix that a call is inside of; None: there is none."""
        while frame is not None and id(frame.f_code) not in self.codes:
            frame = frame.f_back
        return receiver(frame) if frame is not None else None

    def convolves(self, frame):
        """Whether it is a convolution of torch's, which is counted where it returns."""
        return issubclass(type(self.innermost(frame)), self.watch.torch.nn.modules.conv._ConvNd)

    def run_kernel(self, frame):
        """Products in a kernel of Triton: those of a module's only matrix are counted where it returns, others are not known."""
        if self.whole and has_dot(receiver(frame)):
            module = self.innermost(frame)
            self.whole = module is not None and len(matrices_of(module)) == 1 and not plain(module).get("_modules")

    def counts_apart(self, frame):
        """What was asked of cuBLAS so far is not for the function that is called."""
        if not self.convolves(frame):
            self.activations += self.asked + self.products()
            self.asked = 0

    def add_fused(self, frame, given):
        """One of FUSED returned."""
        module, (batch, tokens, width) = receiver(frame), map(whole, given.shape)
        if self.is_traced(frame, given):
            return
        matrices = [(id(one), name, matrix) for one in every_module(module) for name, matrix in matrices_of(one)]
        before, activations = self.forward, self.activations
        self.add_pairs([batch, width, tokens], tokens, False, False)
        attention = self.forward - before
        self.attention += attention
        self.calls.add((tokens, tokens, False))
        self.attended_to += 1
        self.add_forward(2 * batch * tokens * sum(matrix.numel() for *_, matrix in matrices))
        if self.activations - activations >= attention:  # it was made of products
            self.activations -= attention
            self.in_products = True
        self.seen.update((place, name) for place, name, _ in matrices)
        self.fused = id(module)

    def convolve(self, frame, offset, given, name):
        """A function that convolves returned."""
        if self.convolves(frame) or self.is_traced(frame, given):
            return
        dims, names = CONVOLUTIONS[name]
        passed = self.watch.arguments_of_call(frame, offset, names or OF_CONVOLUTION[:2])
        given = given if self.watch.is_tensor(given) else passed.get("input")
        weight = passed.get("weight")
        if type(weight) is Unseen:  # made of one that has its shape
            alike = [one for _, one in matrices_of(receiver(frame)) if one.shape == weight.shape and one.dim() == dims + 2]
            weight = alike[0] if alike else Unseen()
        sizes, of_given = shape_of(weight), shape_of(given)
        if sizes is None or type(weight) is Unseen or type(given) is Unseen or of_given is None:
            self.whole = False
            return
        out = [*map(whole, of_given)]
        if names is not None:
            out[-dims - 1 :] = sizes[0], *sizes_after(out[-dims:], sizes[2:], *map(passed.get, names[3:6]))
        trained = (weight.requires_grad is True) + (given.requires_grad is True)
        self.count(2 * elements(out) * elements(sizes[1:]), trained, True, receiver(frame))
        unseen = (one for one, size in self.parameters.items() if size == elements(sizes) and one not in self.seen)
        self.seen.update([*unseen][:1])

    def attended(self):
        """Attention that is made of products was counted as attention."""
        self.in_products = self.products() > 0 or self.in_products

    def products(self):
        """FLOP that were asked of cuBLAS since this was called last."""
        newest = asked()
        self.everything += newest
        return newest

    def differentiate(self, results, wanted, again):
        """torch.autograd.grad() is called in the pass. Another thread computes the gradients."""
        first = results[0] if type(results) in (tuple, list) and results else results
        if type(first).__module__.startswith(FAKE):  # as torch.compile traces it
            return
        flop = flop_of_gradients(self.watch.nodes_of(results), wanted)
        self.whole = self.whole and flop is not None
        self.gradient += flop or 0
        self.again += (flop or 0) * again

    def attend_by_heads(self, values):
        first, second = (values.get(short, values.get(name)) for short, name in (("q", "query"), ("k", "key")))
        bias = values.get("attn_bias")
        causal = values.get("causal") is True or type(bias).__name__ == "LowerTriangularMask"
        window = values.get("window_size", (-1, -1))
        other = (bias is not None and not causal) or any(size != -1 for size in window) or values.get("attention_chunk", 0) != 0
        if first.dim() != 4 or other:
            self.whole = False
        else:
            self.add_attention(first, second, causal, 1)

    def add_attention(self, query, key, causal, tokens=-2):
        """`tokens`: the dimension that counts them."""
        query, key = local(query), local(key)
        sizes = [*map(whole, query.shape)]
        sizes.append(sizes.pop(tokens))  # behind the width
        self.add_pairs(sizes, whole(key.shape[tokens]), causal, query.requires_grad)

    def add_pairs(self, sizes, keys, causal, gradients):
        """`sizes` of a query: batch, heads and the like, width, tokens."""
        if min(*sizes, keys) < 0:
            self.whole = False
            return
        *others, queries = sizes
        self.spans.add((queries, keys))
        flop = 4 * pairs_of(queries, keys, causal)
        for size in others:
            flop *= size
        self.forward += flop
        self.backward += 2 * flop if gradients else 0

    def without_detached(self, nodes, since):
        """Autograd's graph lacks products, attention or convolutions that ran: they have no gradients, where their results were
        detached, or nothing reads them. Matrices that are not in the graph at all may be those of a result that is kept
        elsewhere: then they get gradients.
        \return FLOP backward; None: not known, or not yet"""
        _, backward, attention, convolutions, _ = self.graph
        leaves = {id(getattr(node, "variable", None)) for node, _ in graph_below(nodes, since)}
        every = every_module(self.module())
        matrices = [(id(one), matrix) for one in every for name, matrix in matrices_of(one) if (id(one), name) in self.seen]
        reached = [(place, one) for place, one in matrices if id(one) in leaves]
        missing = [one for _, one in matrices if one.requires_grad and id(one) not in leaves]
        if not reached:
            return None  # what autograd has are parts of them
        known, places = True, {place for place, _ in reached}
        convolved = [flop for flop, place in self.of_convolutions if place in places]
        for number, of_calls in ((attention, self.of_attention), (convolutions, convolved)):
            known = known and (number == len(of_calls) or (number < len(of_calls) and len({*of_calls}) == 1))
            backward += sum(of_calls[:number])
        if missing:
            some = ([self.watch.ref(one) for one in those] for those in ([one for _, one in reached], missing))
            self.detached = *some, backward if known else -1
            return None
        self.whole = self.whole and known
        return backward

    def has_functions(self, nodes):
        """Whether autograd's graph has functions of the program's that may compute their gradients in the forward pass: no
        product is in their backward(). Those of torch do not, as activation checkpoints."""
        kinds = (getattr(type(node), "_forward_cls", None) for node, _ in graph_below(nodes) or ())
        kinds = {kind for kind in kinds if kind is not None and not kind.__module__.startswith("torch.")}
        return not all(has_product(code_of(own(kind, "backward"))) for kind in kinds)

    def no_attention(self):
        """No attention was counted. If some ran all the same, as a custom operator, its kernels show it."""
        return not (self.spans or self.traced or self.replayed or self.scripted)

    def add_traced(self, traced, given):
        """A graph that torch.compile traced runs with these arguments."""
        self.traced, self.whole = True, self.whole and traced.whole
        value_of = traced.values(given)
        parameters = [given[place] for place in traced.weights if issubclass(type(given[place]), self.watch.torch.nn.Parameter)]
        # In a function of autograd, as torch 2.8 and 2.11 compile it: its backward() multiplies elsewhere.
        if self.gradients and not self.watch.torch.is_grad_enabled() and any(one.requires_grad for one in parameters):
            self.whole = False
        if any(id(one) not in self.places for one in parameters):
            for one in every_module(self.module()):
                for name, matrix in matrices_of(one):
                    self.places.setdefault(id(matrix), []).append((id(one), name))
        for sizes, forward, backward, made_of in traced.products:
            flop = 2
            for size in map(value_of, sizes):
                self.whole = self.whole and size >= 0
                flop *= size
            self.forward += forward * flop
            self.backward += backward * flop
            for place in made_of:
                self.seen.update(self.places.get(id(given[place]), ()))
        for sizes, keys, causal, gradients in traced.attention:
            self.add_pairs([*map(value_of, sizes)], value_of(keys), causal, gradients)

    def add_passes(self, passes, modules):
        """A graph replays passes of parts of it; `modules`: their ids."""
        self.replayed = True
        for one in passes:
            self.forward += one.forward
            self.backward += one.backward
        for part in every_module(self.module()):
            if id(part) in modules:
                self.seen.update((id(one), name) for one in every_module(part) for name, _ in matrices_of(one))

    def parts_that_ran(self):
        """Ids of the modules that are inside of one that was called, or in what was traced."""
        module = self.module()
        ran = {place[0] for place in self.seen}
        for one in every_module(module):
            if id(one) in self.called:
                ran.update(map(id, every_module(one)))
        parts = [ref() for ref in module.modules] if type(module) is Several else (plain(module).get("_modules") or {}).values()
        for part in parts if self.traced else ():
            inside = {*map(id, every_module(part))}
            ran |= inside if inside & ran else set()
        return ran

    def reads_more(self):
        """All attention reads more than this pass's tokens."""
        more = all(tokens == self.seq_len < keys for tokens, keys in self.spans)
        return bool(self.spans) and more and self.whole and not self.gradients

    def finish(self, nodes, since):
        """`nodes`: of autograd, of the result; those that were made before `since` are of earlier work.
        \return FLOP forward and backward, None where they are not known"""
        self.activations += self.asked + self.products()
        if self.traced:
            self.activations, self.all_asked = 0, False
        self.forward += self.activations
        proven = self.watch.is_proven(self.module()) and not (self.gradients or self.traced or self.replayed)
        if self.gradients and (self.again or not self.traced):
            try:
                # The nodes of gradients are numbered by other threads.
                self.graph = products_of_graph(nodes, 0 if self.again else since)
            except Exception:  # another version's nodes
                self.graph = (0, 0, 0, 0, 1)
        if self.graph is not None:
            products, backward, attention, convolutions, others = self.graph
            # Where autograd has each product that was seen, or those of all modules and no other work, it knows which gradients
            # they have. Else both operands' are assumed.
            seen = products == self.linear + self.activations + self.again
            complete = (attention, convolutions) == (len(self.of_attention), len(self.of_convolutions)) and not others
            numbered = (self.linear > 0 or self.of_convolutions) and self.watch.sequence is not int
            known = seen or (complete and numbered and products >= self.linear)
            ran = self.linear + self.activations
            fewer = attention < len(self.of_attention) or convolutions < len(self.of_convolutions)
            unclear = numbered and (products < ran or (products == ran and fewer))  # more are those of attention, as of products
            unclear = unclear and not (others or self.again or self.gradient or self.in_products)
            without = self.without_detached(nodes, since) if unclear else None
            # An autograd function of the program may compute its gradients in the forward pass already.
            self.whole = self.whole and (known or not self.activations or not self.has_functions(nodes))
            self.backward += backward - self.linear_backward if known else 2 * self.activations
            self.backward = self.backward if without is None else without
            proven = seen and complete and not convolutions
            if proven:
                self.watch.prove(self.module())
        self.whole = self.whole and (proven or not self.again)
        self.forward += self.gradient
        # Where cuBLAS was asked for the product of each module that ran, one that did not run made none: an encoder, while
        # its decoder generates.
        every = self.scripted or self.all_asked
        if self.parts:
            ran = self.parts_that_ran()
            self.parameters = {place: count for place, count in self.parameters.items() if place[0] in ran}
        excused = self.within if every and self.everything else set()  # no product shows them: they are added, or looked up
        unseen = self.parameters.keys() - self.seen - excused
        # Convolutions ask nothing: one that did not run was not called, if calls are all there is.
        silent = self.convolutions if self.traced or self.replayed or self.scripted else set()
        unseen = sum(self.parameters[one] for one in unseen if one[0] in self.called | silent or not every)
        if self.looks_up and self.whole and not (self.everything or self.forward or self.traced or self.replayed):
            return 0, 0  # tables of embeddings alone
        too_many = not proven and unseen > MOST_UNSEEN * sum(self.parameters.values())
        if not self.whole or not self.forward or too_many:
            return None
        return self.forward, self.backward


class State:
    """FLOP of a pass without gradients, and the parts of them that what a module keeps from call to call may change."""

    def __init__(self, measured):
        self.number, self.everything = measured.number, measured.everything
        self.forward, self.backward = measured.forward, measured.backward
        self.graph, self.variants = measured.graph, {}  # of autograd; numbers of passes with other FLOP, by what they ask for
        self.no_attention = measured.no_attention()
        self.attention = measured.attention  # FLOP of it; 0: there is none, or it is made of products that are seen
        self.tokens_of_pass = measured.seq_len  # of each sequence
        self.passes = self.alike = 0  # that came after it; that had as many FLOP
        # Where all calls of attention are alike, one says how many FLOP all have.
        self.per_pair, self.tokens = 0, 0
        if self.attention and len(measured.calls) == 1:
            (calls,) = measured.calls
            self.per_pair, self.tokens = self.attention // pairs_of(*calls), calls[0]
        alike = self.per_pair and self.graph is not None and self.graph[2] == measured.attended_to
        self.per_call = self.attention // measured.attended_to if alike else 0
        # Numbers among the arguments, and how many more keys there are; the passes in which that held.
        self.differs, self.steady = None, 0

    def flop_of_other(self, products, nodes, since):
        """(FLOP forward, backward) of a pass that asked cuBLAS for other products; -1: not known. `nodes`: of its result."""
        more = products - self.everything
        if self.graph is None:
            return self.forward + more, 0
        found = products_of_graph(nodes, since)
        if found[0] == products and not any(found[3:]) and (self.per_call or not found[2]):  # autograd has all of it
            attention = found[2] * self.per_call
            return products + attention, found[1] + 2 * attention
        seen, backward, calls, *others = (count - of_first for count, of_first in zip(found, self.graph))
        hidden = more != seen and (found[4] or not found[0])  # what has gradients, and is not in autograd's graph
        if any(others) or hidden or (calls and not self.per_call):
            return -1, -1
        attention = calls * self.per_call
        return self.forward + more + attention, self.backward + backward + 2 * attention

    def compare(self, given, keys):
        """A pass with these numbers among its arguments had so many keys."""
        found = {(place, keys - number) for place, number in given} if self.per_pair and self.tokens == 1 else set()
        self.differs = found if self.differs is None else self.differs & found
        self.steady = self.steady + 1 if self.differs else 0

    def attention_by(self, given):
        """FLOP of a pass whose calls were not looked at, since a number among its arguments says how many keys there are."""
        keys = [number + more for place, more in self.differs for at, number in given if at == place]
        return self.per_pair * keys[0] if keys else None


def product_of_autograd(node, inputs):
    """(FLOP forward, autograd's nodes of its two operands) of a matrix product; None, (): it is none."""
    first, *sizes = PRODUCT_NODES.get(node.name(), (None,))
    if first is None:
        return None, ()
    operands = inputs[first : first + 2]
    if sizes:
        one, other = (getattr(node, size) for size in sizes)
        flop = 2 * one[0] * one[1] * other[1]
    else:  # what is summed over is a dimension of an operand
        shapes = [one._input_metadata[at].shape if one is not None else None for one, at in operands]
        flop = 2 * elements(node._input_metadata[0].shape) * (shapes[0][-1] if shapes[0] is not None else shapes[1][-2])
    return flop, [one for one, _ in operands]


def graph_below(nodes, since=0):
    """Autograd's nodes from these down: each with its inputs, behind all that come before it; too many: None. `since`: none
    that were made before, by autograd's numbers."""
    seen, order, waiting = set(), [], [*nodes]
    while waiting:
        node = waiting.pop()
        if type(node) is tuple:  # all below it are in the order
            order.append(node)
        elif node not in seen:
            if len(seen) >= MOST_NODES:
                return None
            seen.add(node)
            if since and node._sequence_nr() < since:
                continue
            inputs = node.next_functions
            waiting.append((node, inputs))
            waiting += [one for one, _ in inputs if one is not None]
    return order


def has_other_work(node):
    """A node of autograd that may have FLOP and is no matrix product: a function of the program's, or one of OTHER_NODES."""
    return hasattr(type(node), "_forward_cls") or any(part in node.name() for part in OTHER_NODES)


def products_of_graph(nodes, since=0):
    """(FLOP of the matrix products that autograd keeps, FLOP of the gradients that those need, how many calls of attention and
    convolutions it keeps, how many nodes that may be other work)"""
    forward = backward = attention = convolutions = 0
    order = graph_below(nodes, since)
    others = int(order is None)
    for node, inputs in order or ():
        flop, operands = product_of_autograd(node, inputs)
        if flop is not None:
            forward += flop
            backward += flop * sum(one is not None for one in operands)
        elif node.name().startswith("ScaledDotProduct"):
            attention += 1
        elif "Conv" in node.name():
            convolutions += 1
        else:
            others += has_other_work(node)
    return forward, backward, attention, convolutions, others


def flop_of_gradients(nodes, wanted):
    """Of autograd.grad() of results with these nodes, for the tensors `wanted`: of the products on the way to them. None: it is
    not known, as there are attention or convolutions."""
    ends = {one.grad_fn for one in wanted if one.grad_fn is not None}
    leaves = {id(one) for one in wanted if one.grad_fn is None}
    order, reaches, flop = graph_below(nodes), set(), 0
    for node, inputs in order if order is not None else ():
        below = any(one in reaches for one, _ in inputs)
        if below or node in ends or id(getattr(node, "variable", None)) in leaves:
            reaches.add(node)
        if below:
            if has_other_work(node):
                return None
            of_node, operands = product_of_autograd(node, inputs)
            flop += (of_node or 0) * sum(one in reaches for one in operands)
    return flop if order is not None else None


def sizes_of_einsum(equation, first, second, of_first, of_second):
    """Of all dimensions, each once: einsum("bik,bkj->bij", ...) multiplies b x i x k x j times."""
    names = [name.strip() for name in equation.split("->")[0].split(",")]
    if len(names) != 2 or any(name.replace(" ", "").isalpha() is False for name in names):  # as of "..."
        return [-1]
    of_names = {}
    for name, tensor in zip(names, (of_first, of_second)):
        of_names.update(zip(name.replace(" ", ""), sizes_of(tensor)))
    return [*of_names.values()]


def pairs_of(tokens, keys, causal):
    return tokens * (tokens + 1) // 2 if causal and tokens == keys else tokens * keys


def flop_of_call(query, key, causal):
    """Of scaled_dot_product_attention(), forward."""
    tokens, keys = whole(shape_of(query)[-2]), whole(shape_of(key)[-2])
    return 4 * elements(shape_of(query)) // tokens * pairs_of(tokens, keys, causal is True)


def sizes_after(sizes, kernel, stride, padding, dilation):
    """Of a convolution's result, dimension by dimension."""

    def at(value, place, default):
        value = default if value is None else value
        return value[place % len(value)] if type(value) in (tuple, list) else value

    for place, size in enumerate(sizes):
        within = at(dilation, place, 1) * (kernel[place] - 1)
        around = {"same": within, "valid": 0}.get(padding) if type(padding) is str else 2 * at(padding, place, 0)
        yield (size + around - within - 1) // at(stride, place, 1) + 1


def shape_of(thing):
    kind = type(thing)
    if kind is Unseen or kind is Shaped:
        return thing.shape
    return local(thing).shape if issubclass(kind, sys.modules["torch"].Tensor) else None


def attribute_of(thing, name):
    """As Python would find it, without running what computes one."""
    shape = shape_of(thing)
    if shape is not None and type(thing) is not Unseen and name == "shape":
        return [*shape]
    if shape is not None or type(thing) is Unseen:
        return Unseen(thing)
    values = plain(thing)
    for held in (values, *(values.get(kind) or NOTHING for kind in ("_parameters", "_buffers", "_modules"))):
        if name in held:
            return held[name]
    found = own(thing, name)
    return found if found is not None and not hasattr(type(found), "__get__") else Unseen()


def holds(what, value):
    """Whether a value is TRUE, FALSE, NONE or NOT_NONE; None: it is not known."""
    if type(value) is Unseen:
        return None
    if what.endswith("NONE"):
        return (value is None) == (what == "NONE")
    return bool(value) == (what == "TRUE") if type(value) in KNOWN else None


def value_of(one):
    return OF_NUMBERS.get(one.argval if one.opname == "COMPARE_OP" else one.argrepr)


def part_of(thing, place):
    """thing[place]"""
    if type(thing) in (tuple, list):
        known = type(place) is int and -len(thing) <= place < len(thing)
        return thing[place] if known else Unseen()
    shape = shape_of(thing)
    if shape is None or type(thing) is Unseen:
        return Unseen()
    places, sizes, given = place if type(place) in (tuple, list) else [place], [], [*shape]
    named = sum(one is not None and one is not Ellipsis for one in places)
    for one in places:
        if one is None:
            sizes.append(1)
        elif one is Ellipsis:
            while len(given) > named:
                sizes.append(given.pop(0))
        elif type(one) is int and given:
            given.pop(0)
            named -= 1
        elif type(one) is slice and given and {type(one.start), type(one.stop), type(one.step)} <= {int, type(None)}:
            sizes.append(len(range(whole(given.pop(0)))[one]))
            named -= 1
        else:  # by a tensor, a mask or a number that is not known
            return Unseen()
    return Shaped(thing, sizes + given)


def result_of(function, given, keywords):
    """A call inside of the arguments."""
    thing, name = function if type(function) is tuple and len(function) == 2 else (None, None)
    shape, names = shape_of(thing), SHAPING.get(name)
    same = name in SAME_SHAPE or (name in BY_NUMBERS and all(type(one) in KNOWN for one in given))
    if same and shape is not None and type(thing) is not Unseen:
        return thing
    if shape is None or type(thing) is Unseen or name not in SHAPING:
        return Unseen(thing, *given)
    first = len(given) - len(keywords)
    if not keywords and len(names) == 1 and len(given) > 1:  # sizes, one by one
        given = [given]
    named = {**dict(zip(names, given[:first])), **dict(zip(keywords, given[first:]))}
    try:
        return shaped(thing, name, [*shape], *(named.get(one) for one in names))
    except (ArithmeticError, IndexError, TypeError, ValueError):  # arguments that are not known, or that the call does not take
        return Unseen()


def shaped(thing, name, shape, first=None, second=None, third=None):
    """thing.name(...) for the names in SHAPING."""
    if name == "size":
        return shape if first is None else shape[first]
    if name == "transpose":
        shape[first], shape[second] = shape[second], shape[first]
    elif name == "permute":
        shape = [shape[one] for one in first]
    elif name == "unsqueeze":
        shape.insert(first if first >= 0 else first + len(shape) + 1, 1)
    elif name == "squeeze":
        if first is None:
            shape = [size for size in shape if size != 1]
        elif shape[first] == 1:
            del shape[first]
    elif name == "narrow":
        shape[first] = third
    elif name == "repeat_interleave":
        shape[second] *= first
    elif name == "flatten":
        begin, end = range(len(shape))[first or 0], range(len(shape))[-1 if second is None else second]
        shape[begin : end + 1] = [elements(shape[begin : end + 1])]
    elif name in ("repeat", "tile"):
        shape, times = ([1] * (len(other) - len(one)) + [*one] for one, other in ((shape, first), (first, shape)))
        shape = [size * often for size, often in zip(shape, times)]
    elif name == "expand":
        more = len(first) - len(shape)
        shape = [size if size != -1 else shape[place - more] for place, size in enumerate(first)]
    else:  # view, reshape
        every, sizes = elements(shape), first if type(first) in (tuple, list) else [first]
        shape = [size if size != -1 else every // -elements(sizes) for size in sizes]
    return Shaped(thing, shape) if all(type(size) is int for size in shape) else Unseen()


def reached_backward(module):
    """Nodes of a graph that gradients of its results come to."""
    found, waiting = set(), [node for node in module.graph.nodes if node.op == "output"]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [one for one in node.all_input_nodes if has_gradient(one.meta.get("example_value"))]
    return found


def has_gradient(value):
    """\return True also where it is not known"""
    if type(value) in (tuple, list):
        return any(map(has_gradient, value))
    return getattr(value, "requires_grad", value is None) is True


def has_dot(kernel, depth=0):
    """Whether a kernel of Triton, or one that it calls, multiplies matrices."""
    function = plain(kernel).get("fn")
    code = getattr(function, "__code__", None)
    if code is None or depth > MOST_KERNELS:
        return False
    if "dot" in code.co_names or "dot_scaled" in code.co_names:
        return True
    inside = (function.__globals__.get(name) for name in code.co_names)
    return any(has_dot(one, depth + 1) for one in inside if type(one) is type(kernel))


def has_product(code):
    """Whether a function calls one of torch that multiplies matrices, by its name, or has an operator @."""
    if code is None:
        return False
    if not PRODUCTS.keys().isdisjoint(code.co_names):
        return True
    dis = sys.modules.get("dis")
    return dis is not None and any(one.argrepr == "@" for one in dis.get_instructions(code))


def product_of(node):
    """Whether a call that was traced is a product, or may hold one that is not seen."""
    name = getattr(node.target, "__name__", node.target)
    known = name in PRODUCTS or name in OTHER_PRODUCTS or name == ATTENTION
    return known or node.op == "call_module" or type(node.target).__module__ == "torch._ops"


def is_causal_mask(module):
    """Of FlexAttention's mask, a function of batch, head, query and key: True: causal, False: all pairs, None: another one."""
    nodes = [node for node in module.graph.nodes if node.op != "output"]
    inputs, calls = [n for n in nodes if n.op == "placeholder"], [n for n in nodes if n.op != "placeholder"]
    if len(calls) != 1 or len(inputs) != 4:
        return None
    name, given = getattr(calls[0].target, "__name__", calls[0].target), calls[0].args
    if name == "new_ones":
        return False
    return True if (name, *given) in (("ge", *inputs[2:]), ("le", *inputs[:1:-1])) else None
