"""The names of torch that the library's Python part looks for, over a simulated GPU: calls launch kernels and compute nothing."""

import contextlib
import ctypes
import dis  # noqa: F401, as the real one does
import functools
import sys
import types

__version__ = "2.99.0+standin"

_cuda = ctypes.CDLL("libcuda.so.1")
_state = types.SimpleNamespace(function=None, grad=True, tape=[])


def start():
    """cuInit and a kernel to launch."""
    context, module, _state.function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    image = b".version 8.0\n.target sm_90\n.address_size 64\n// simgpu: gemm_k ns=2000\n.visible .entry gemm_k()\n{ ret; }\n"
    assert _cuda.cuInit(0) == 0
    assert _cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert _cuda.cuCtxSetCurrent(context) == 0
    assert _cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
    assert _cuda.cuModuleGetFunction(ctypes.byref(_state.function), module, b"gemm_k") == 0
    _state.context = context


def use_on_this_thread():
    assert _cuda.cuCtxSetCurrent(_state.context) == 0


def launch(count=1):
    for _ in range(count if _state.function is not None else 0):
        assert _cuda.cuLaunchKernel(_state.function, 132, 1, 1, 128, 1, 1, 0, None, None, None) == 0


def synchronize():
    assert _cuda.cuCtxSynchronize() == 0


class dtype:
    pass


class Node:
    """The backward pass of one operation: two kernels, after the functions that are to run before it."""

    def __init__(self, again=None):
        self.before, self.again = [], again
        _state.tape.append(self)

    def register_prehook(self, function):
        self.before.append(function)

    def run(self):
        for function in self.before:
            assert function(()) is None
        if self.again is not None:
            self.again()
        launch(2)


class Tensor:
    requires_grad, grad_fn = False, None

    def __init__(self, *shape, floating=True):
        self.shape, self._floating = shape, floating

    def dim(self):
        return len(self.shape)

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def is_floating_point(self):
        return self._floating

    def backward(self):
        autograd.backward(self)


class Parameter(Tensor):
    requires_grad, grad = True, None


def is_grad_enabled():
    return _state.grad


@contextlib.contextmanager
def no_grad():
    before, _state.grad = _state.grad, False
    try:
        yield
    finally:
        _state.grad = before


class _Quiet:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Module:
    _compiled_call_impl = None

    def __init__(self):
        self._parameters, self._modules, self.training = {}, {}, True

    def __getattr__(self, name):
        for kept in ("_parameters", "_modules"):
            if name in self.__dict__.get(kept, {}):
                return self.__dict__[kept][name]
        raise AttributeError(name)

    def __setattr__(self, name, value):
        if isinstance(value, Parameter):
            self._parameters[name] = value
        elif isinstance(value, Module):
            self._modules[name] = value
        else:
            object.__setattr__(self, name, value)

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    __call__ = _wrapped_call_impl

    def parameters(self):
        yield from self._parameters.values()
        for module in self._modules.values():
            yield from module.parameters()

    def train(self, mode=True):
        self.training = mode
        for module in self._modules.values():
            module.train(mode)
        return self


# Both are known by the module that they are in.
for _call in ("_call_impl", "_wrapped_call_impl"):
    setattr(Module, _call, types.FunctionType(Module.__dict__[_call].__code__, {"__name__": "torch.nn.modules.module"}, _call))
Module.__call__ = Module._wrapped_call_impl


class ModuleList(Module):
    def __init__(self, modules):
        super().__init__()
        self._modules = {str(i): module for i, module in enumerate(modules)}

    def __iter__(self):
        return iter(self._modules.values())


class Linear(Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.in_features, self.weight = inputs, Parameter(outputs, inputs)

    def forward(self, x):
        launch()
        return Tensor(*x.shape[:-1], self.weight.shape[0])


class Embedding(Module):
    def __init__(self, rows, width):
        super().__init__()
        self.weight = Parameter(rows, width)

    def forward(self, ids):
        launch()
        return Tensor(*ids.shape, self.weight.shape[1])


class _ConvNd(Module):
    pass


class Optimizer:
    def __init__(self, parameters):
        self.parameters = list(parameters)
        self._patch()

    @staticmethod
    def profile_hook_step(func):
        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            return func(*args, **kwargs)

        return wrapper

    def _patch(self):
        if not getattr(type(self).step, "hooked", False):
            type(self).step = self.profile_hook_step(type(self).step)
            type(self).step.hooked = True


class SGD(Optimizer):
    def step(self):
        launch(2)


def _backward(tensors):
    launch(4)
    tape, _state.tape = _state.tape, []
    for node in reversed(tape):
        node.run()


def _module(name, **names):
    made = sys.modules["torch." + name] = types.ModuleType("torch." + name)
    for key, value in names.items():
        setattr(made, key, value)
    return made


_backward.__name__ = "backward"
autograd = _module("autograd", backward=_backward)
optim = _module("optim", Optimizer=Optimizer, SGD=SGD)
nn = _module("nn", Module=Module, Linear=Linear, Embedding=Embedding, EmbeddingBag=type("EmbeddingBag", (Module,), {}),
             MultiheadAttention=type("MultiheadAttention", (Module,), {}), ModuleList=ModuleList, Parameter=Parameter)
nn.modules = _module("nn.modules", conv=_module("nn.modules.conv", _ConvNd=_ConvNd))
nn.functional = _module("nn.functional")
_C = _module("_C", DisableTorchFunctionSubclass=_Quiet, _get_tracing_state=lambda: None)
