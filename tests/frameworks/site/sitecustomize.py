"""What a real framework needs to run on the simulated GPU, in every Python process of a run. Without SIMGPU_LIBRARIES nothing happens.

- The simulated CUDA libraries take the place of those in PyTorch's wheels. PyTorch's libraries name their directories by DT_RPATH, which
  LD_LIBRARY_PATH cannot override; but the dynamic linker takes a library that the process has already when its SONAME fits. So they are opened
  before torch is, and whatever opens the real ones by path afterwards gets them as well. SIMGPU_LIBRARIES is their folder.
- Kernels compute nothing, so transformers' generate() asks in vain whether all sequences are finished: it still asks, with the same kernels
  and the same copy, and is then told what follows from the length.
- SIMGPU_MARKS=file: the ranges that the program opened, by torch.cuda.nvtx or mfuinject.region, with CLOCK_REALTIME, whether a tool listens
  or not. SIMGPU_RANGES=0: they are noted there and nowhere else.
"""

import contextlib
import ctypes
import importlib.abc
import importlib.util
import json
import os
import sys
import threading
import time

_after = {}  # module name > functions that take the module


class _AfterImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        actions = _after.pop(name, None)
        if not actions:
            return None
        for action in [a for a in actions if getattr(a, "before", False)]:
            action()
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            for action in actions:
                if not getattr(action, "before", False):
                    action(module)

        spec.loader.exec_module = exec_module
        return spec


def replace_libraries(folder):
    # In the order of their dependencies.
    order = ["libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcupti.so.13", "libnccl.so.2", "libcudnn.so.9"]
    paths = {name: path for name in order if os.path.exists(path := os.path.join(folder, name))}
    original = ctypes.CDLL.__init__

    def redirected(self, name, *args, **kwargs):
        known = paths.get(os.path.basename(name)) if isinstance(name, (str, os.PathLike)) else None
        original(self, known or name, *args, **kwargs)

    ctypes.CDLL.__init__ = redirected
    opened = []

    def before():
        opened.extend(ctypes.CDLL(path) for path in paths.values())

    before.before = True
    _after["torch"] = _after["jaxlib"] = [before]


def show_device(module):
    """jax._src.hardware_utils, which looks for the files of a real driver"""
    module.has_visible_nvidia_gpu = lambda: True


def end_generation_by_length(module):
    """transformers.generation.utils"""
    state = threading.local()
    criteria, check = module.StoppingCriteriaList.__call__, module.StopCheck.__call__

    def remember(self, input_ids, scores, **kwargs):
        limit = self.max_length
        state.finished = limit is not None and input_ids.shape[1] >= limit
        return criteria(self, input_ids, scores, **kwargs)

    def answer(self, *args, **kwargs):
        check(self, *args, **kwargs)
        return state.finished

    module.StoppingCriteriaList.__call__ = remember
    module.StopCheck.__call__ = answer


class _Marks:
    def __init__(self, path):
        self.path, self.stacks = path, threading.local()

    def open(self, text):
        stack = self.stacks.__dict__.setdefault("stack", [])
        stack.append((text, time.time_ns()))

    def close(self):
        text, begin = self.stacks.stack.pop()
        if self.path:
            line = json.dumps(
                {"name": text, "begin": begin, "end": time.time_ns(), "pid": os.getpid(), "thread": threading.get_native_id()}
            )
            with open(self.path, "a") as out:
                out.write(line + "\n")


@contextlib.contextmanager
def noted(name):
    """Notes when a part of the program ran, where it has no range of its own."""
    marks = _Marks(os.environ.get("SIMGPU_MARKS"))
    marks.open(name)
    yield
    marks.close()


def note_ranges(marks, shown):
    def torch_ranges(module):
        push, pop = module.range_push, module.range_pop

        def range_push(message):
            marks.open(message)
            return push(message) if shown else 0

        def range_pop():
            marks.close()
            return pop() if shown else 0

        module.range_push, module.range_pop = range_push, range_pop

    def own_regions(module):
        make, text_of = (
            module.region,
            lambda name, shape: " ".join([name, *(f"{k}={v}" for k, v in shape.items() if v is not None)]),
        )

        class Noted:
            def __init__(self, text, inner):
                self.text, self.inner = text, inner

            def __enter__(self):
                marks.open(self.text)
                if shown:
                    self.inner.__enter__()
                return self

            def __exit__(self, *error):
                if shown:
                    self.inner.__exit__(*error)
                marks.close()

        module.region = lambda name, **shape: Noted(text_of(name, shape), make(name, **shape))

    _after["torch.cuda.nvtx"] = [torch_ranges]
    _after["mfuinject"] = [own_regions]


if os.environ.get("SIMGPU_LIBRARIES"):
    sys.meta_path.insert(0, _AfterImport())
    replace_libraries(os.environ["SIMGPU_LIBRARIES"])
    _after["transformers.generation.utils"] = [end_generation_by_length]
    _after["jax._src.hardware_utils"] = [show_device]
    note_ranges(_Marks(os.environ.get("SIMGPU_MARKS")), os.environ.get("SIMGPU_RANGES") != "0")
