"""Attributes, sizes and modules of the program's objects: no method of theirs runs. The first part of the library's string."""

import sys

NOTHING = {}
MOST_REACHED = 256  # values that a function may use


def method(self):
    """Of any object, for its type."""


METHOD, FUNCTION = type(method.__get__(0)), type(method)


def plain(thing):
    """The values of an object's own dict."""
    try:
        return object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}


def own(thing, name):
    """An attribute as it lies in the object, in its class or in a base class; None: it has none."""
    values = plain(thing)
    if name in values:
        return values[name]
    for kind in thing.__mro__ if isinstance(thing, type) else type(thing).__mro__:
        if name in kind.__dict__:
            return kind.__dict__[name]
    return None


def attribute(place, name):
    """An attribute of a module that is imported; None: there is none."""
    found = sys.modules.get(place)
    return plain(found).get(name) if found is not None else None


def receiver(frame, values=None):
    """The object whose method runs: its first argument, however that is called."""
    code, values = frame.f_code, frame.f_locals if values is None else values
    if code.co_argcount > 0:
        return values.get(code.co_varnames[0])
    rest = values.get("args")
    return rest[0] if type(rest) is tuple and rest else None


def first_two(frame):
    """Its first two arguments, under any name: a program may have put another function around the known one."""
    names = frame.f_code.co_varnames[:2]
    return [frame.f_locals[name] for name in names] if frame.f_code.co_argcount > 1 else frame.f_locals["args"][:2]


def whole(number):
    """A size, -1 where it is a symbol of a trace: to ask for its value would change the trace."""
    return number if type(number) is int else -1


def expression(size):
    """A size of what was traced: a number, or an expression of symbols. To compare two would change the trace."""
    return size if type(size) is int else getattr(getattr(size, "node", None), "expr", -1)


def sizes_of(tensor):
    return [*map(expression, tensor.shape)]


def elements(shape):
    count = 1
    for size in shape:
        count *= whole(size)
    return count


def maker(function, methods=False):
    """The function or the module behind what torch.compile puts around it; `methods`: or the method."""
    while True:
        inside = plain(function).get("_torchdynamo_orig_callable")
        if inside is None:
            return function if methods or type(function) is not METHOD else function.__self__
        function = inside


def reached_by(function):
    """The values of a function's closure, and of the global names that it uses."""
    code = code_of(function)
    if code is None:
        return []
    found = [function.__globals__.get(name) for name in code.co_names]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # it is empty
            pass
    return found


class Several:
    """Modules that a function calls, weak."""

    def __init__(self, modules):
        self.modules = [sys.modules["_weakref"].ref(module) for module in modules]


def module_of(function, values, torch):
    """The module whose method a function is, or those with parameters among its arguments, the values of its object, and what it
    and the functions that it calls reach. \return module, a tuple of several, or None; whether the function is its forward()"""
    given = [one for one in arguments(values) if issubclass(type(one), torch.nn.Module)]
    owner = function.__self__ if type(function) is METHOD else None
    first = owner if owner is not None else next(iter(given), None)
    code = code_of(function)
    if code is None:
        return None, False
    if issubclass(type(first), torch.nn.Module) and code in (code_of(own(first, name)) for name in ("forward", "__call__")):
        return first, True
    if issubclass(type(owner), torch.nn.Module):
        return owner, False
    found, waiting, seen = {}, [*given, *plain(owner).values(), innermost(function)], set()
    while waiting and len(seen) < MOST_REACHED:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if issubclass(type(one), torch.nn.Module):
            if any(parameters_of(inner) for inner in every_module(one)):
                found[id(one)] = one
        elif type(one) is FUNCTION:
            waiting += reached_by(innermost(maker(one, methods=True)))
    inside = {id(inner) for one in found.values() for inner in every_module(one) if inner is not one}
    found = [one for number, one in sorted(found.items()) if number not in inside]
    return (found[0] if len(found) == 1 else tuple(found) or None, False)


def inner_of(module, name):
    """The module inside of another one that has this name; None: there is none."""
    modules = plain(module).get("_modules") or NOTHING  # TorchScript has a dictionary of another kind
    return modules[name] if name in modules else None


def last_of(names):
    """The name that an instruction loads last."""
    return names[-1] if type(names) is tuple else names


def may_repeat(code, module, depth=3):
    """Whether a method of a module holds a loop, calls another one that may, or hands a part on to what may."""
    owner, before = code.co_varnames[:1], None
    for one in sys.modules["dis"].get_instructions(code):
        does, value = one.opname, one.argval
        if does.startswith("JUMP_BACKWARD"):
            return True
        if does == "LOAD_ATTR" and before in owner:
            hands_on = one.arg & 1 == 0 and inner_of(module, value) is not None
            if hands_on or (one.arg & 1 and not is_straight(module, value, depth)):
                return True
        before = last_of(value) if "LOAD_FAST" in does else None
    return code.co_flags & 0x2A0 != 0


def is_straight(module, name, depth=3):
    """An attribute is a part of the module, or a method of it without a loop."""
    if inner_of(module, name) is not None:
        return True
    code = code_of(own(module, name))
    return code is not None and depth > 0 and not may_repeat(code, module, depth - 1)


def calls_first(frame):
    """What a frame calls now is the first that it calls, and nothing is multiplied before."""
    dis = sys.modules.get("dis")
    for one in dis.get_instructions(frame.f_code) if dis is not None else ():
        if one.offset >= frame.f_lasti:
            return True
        if (one.opname.startswith("CALL") and "INTRINSIC" not in one.opname) or one.argrepr in ("@", "@="):
            return False
    return False


def parts_called(code, module):
    """Parts of a module that one of its methods calls, as they are called, where that are several, one after the other, and in
    between no method with a loop, and no function with one of them, which may call them in a loop. Else none."""
    dis = sys.modules.get("dis")
    if dis is None or code.co_flags & 0x2A0 or code.co_argcount == 0:
        return ()
    called, pending, between, owner = [], [], False, code.co_varnames[0]  # `pending`: what is called when it has its arguments
    holder = given = None  # the module whose attribute comes next; the one that an expression ended with
    for one in dis.get_instructions(code):
        does, value = one.opname, one.argval
        if does.startswith("JUMP_BACKWARD"):
            return ()
        if does != "LOAD_ATTR" and holder is not None and holder is not module:
            given = holder
        part = inner_of(holder, value) if does == "LOAD_ATTR" and holder is not None else None
        if does == "PUSH_NULL" or (does in ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_SUPER_ATTR") and one.arg & 1):
            repeats = does == "LOAD_ATTR" and holder is not None and part is None and not is_straight(holder, value)
            pending.append((part, repeats))
            part = None
        if does.startswith("LOAD_FAST") or does == "STORE_FAST_LOAD_FAST":
            holder = module if last_of(value) == owner else None
        else:
            holder = part
        if does in ("CALL", "CALL_KW", "CALL_FUNCTION_EX") and pending:
            part, repeats = pending.pop()
            if given is not None and does != "CALL_FUNCTION_EX":
                return ()
            part, given = given if given is not None else part, None
            if part is not None and between:
                return ()
            called += [part] if part is not None else []
            between = between or (repeats and bool(called))
            holder = None
    return called if len({*map(id, called)}) > 1 else ()


def local(tensor):
    """This rank's part of a tensor that several share (DTensor)."""
    part = getattr(tensor, "_local_tensor", None) if type(tensor).__name__ == "DTensor" else None
    return tensor if part is None else part


def shares(module):
    """Ranks share the work of this module, or of one inside of it, and not only its memory as FSDP's do."""
    modules = every_module(module)
    fsdp = any(kind.__name__ == "FSDPModule" for one in modules for kind in type(one).__mro__)
    found = (p for one in modules for p in parameters_of(one) if type(local(p)) is not type(p))
    return any(not fsdp or p.device_mesh.ndim > 1 for p in found)


def weight_shape(weight):
    """Elements of a weight by dimension; empty: not plain numbers."""
    shape = [whole(n) for n in weight.shape]
    return shape if min(shape) > 0 else []


def made_shape(values):
    """Elements by dimension of the weight of a Linear or a convolution, by what it was made with."""
    if "in_features" in values:
        return [values["out_features"], values["in_features"]]
    first, second = values["out_channels"], values["in_channels"]
    if values["transposed"]:
        first, second = second, first
    return [first, second // values["groups"], *values["kernel_size"]]


def arguments(values):
    rest, more = values.get("args"), values.get("kwargs")
    if rest is None and more is None:
        return values.values()
    return (*values.values(), *(rest if type(rest) is tuple else ()), *(more.values() if type(more) is dict else ()))


def dictionary_of(value):
    """What an argument holds by name, as a batch of a tokenizer does; None: it is no dictionary."""
    kind = type(value)
    if issubclass(kind, dict):
        return value
    found = plain(value).get("data") if attribute("collections", "UserDict") in kind.__mro__ else None
    return found if type(found) is dict else None


def innermost(function):
    """The function behind methods and wrappers of functools."""
    while True:
        if type(function) in (staticmethod, classmethod, METHOD):
            function = function.__func__
        inside = plain(function).get("__wrapped__")
        if inside is None:
            return function
        function = inside


def code_of(function):
    """The code object behind a function, a method or a wrapper of one; None: it is no function of Python."""
    code = getattr(innermost(function), "__code__", None)
    return code if type(code) is type(plain.__code__) else None


def code_within(code, name):
    return next((c for c in code.co_consts if getattr(c, "co_name", None) == name), None) if code is not None else None


def parameters_of(module):
    """Those of the module itself."""
    return [p for p in (plain(module).get("_parameters") or {}).values() if p is not None]


def matrices_of(module):
    """Those of the module itself: name, parameter."""
    return [(name, p) for name, p in (plain(module).get("_parameters") or {}).items() if p is not None and p.dim() > 1]


def is_flat(parameter):
    """FSDP and ZeRO keep it flat, and parts of it on other ranks."""
    return any(own(parameter, name) is not None for name in ("_is_flat_param", "ds_shape"))


def number_of_elements(parameters):
    """Of all parameters, each counted once; 0: not known, since some are packed, flat or on other ranks."""
    each = {id(one): one for one in parameters}.values()
    odd = any(is_flat(one) or not one.is_floating_point() for one in each)
    return 0 if odd else sum(whole(one.numel()) for one in each)


def has_matrix(module):
    """Whether a parameter or a buffer of the module itself is one, or may be: FSDP and ZeRO keep theirs flat."""
    kept = [*parameters_of(module), *(one for one in (plain(module).get("_buffers") or {}).values() if one is not None)]
    try:
        return any(one.dim() > 1 or is_flat(one) for one in kept)
    except Exception:  # one that has no shape yet
        return True


def gradient_of(parameter):
    """A pair that changes where a gradient is added to; no value is read."""
    gradient = parameter.grad if parameter is not None else None
    return None if gradient is None else (id(gradient), gradient._version)


def every_module(module):
    """A module and all inside of it, each once."""
    found, waiting = {}, [module]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in found:
            continue
        found[id(one)] = one
        values = plain(one)
        if type(one) is Several:
            waiting += [ref() for ref in one.modules]
        waiting += (values.get("_modules") or {}).values()
        waiting.append(values.get("_actual_script_module"))  # of a module that TorchScript traced
    return found.values()


def kinds_of_module(*names):
    nn = sys.modules["torch"].nn
    return tuple(kind for kind in (getattr(nn, name, None) for name in names) if kind is not None)


def is_scripted(module):
    """TorchScript runs it, and Python none of its modules."""
    return any(kind.__name__ == "ScriptModule" and kind.__module__ == "torch.jit._script" for kind in type(module).__mro__)


def layers_of(module):
    """Modules of one class, with others inside, that a list of modules, a dictionary or a sequence holds: as the model
    holds them, and none that is inside of another one."""
    lists = kinds_of_module("ModuleList", "ModuleDict", "Sequential")
    found, waiting = [], [module]
    while waiting:
        one = waiting.pop()
        inner = [m for m in (plain(one).get("_modules") or {}).values() if m is not None]
        whole_ones = [m for m in inner if plain(m).get("_modules")]
        alike = []
        if issubclass(type(one), lists):
            alike = [m for m in whole_ones if sum(type(other) is type(m) for other in whole_ones) > 1]
        found += alike
        waiting += [m for m in reversed(inner) if not any(m is layer for layer in alike)]
    return found


def unwrapped(module):
    """The model inside of torch.compile, DistributedDataParallel and PEFT."""
    while True:
        parts = plain(module).get("_modules") or {}
        # Never ask an object of the program whether it is true: that calls its __len__.
        inner = next((parts[name] for name in ("_orig_mod", "module", "base_model") if name in parts), None)
        if inner is None or len(parts) != 1:
            return module
        module = inner


def known_class_of(kind, torch):
    """Name of the class of a module whose config says what runs: one of transformers, or a language model of another package.
    None: the program adds to such a class, or it is none."""
    adds = False
    for one in kind.__mro__:
        if one.__module__.startswith("transformers") and issubclass(one, torch.nn.Module):
            if one.__name__.endswith("PreTrainedModel"):  # a base
                return kind.__name__ if kind.__name__.endswith("ForCausalLM") else None
            return None if adds else one.__name__
        adds = adds or "forward" in one.__dict__
    return None


def text_of(owner, config, torch):
    """JSON of a model's config, None where it has none that anybody could read. The class that runs is the owner's: a config
    names the one that was saved, which may have another head, or none. A language model of another package has its own."""
    json = sys.modules.get("json")
    if config is None or json is None or code_of(own(config, "to_dict")) is None:
        return None
    values = config.to_dict()
    if issubclass(type(owner), torch.nn.Module):
        name = known_class_of(type(owner), torch)
        if name is None:
            return None  # what the program makes of it, no config says
        values["architectures"] = [name]
    return json.dumps(values, default=lambda value: str(value) if type(value) is torch.dtype else None)
