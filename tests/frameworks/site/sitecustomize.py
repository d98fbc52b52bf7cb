"""Puts the simulated CUDA libraries in the place of those that PyTorch's wheels bring, in every Python process of a run.

PyTorch's libraries name their directories by DT_RPATH, which LD_LIBRARY_PATH cannot override; but the dynamic linker takes a library that
the process has already when its SONAME fits. So the simulated ones are opened before torch is, and whatever opens the real ones by path
afterwards gets them as well. SIMGPU_LIBRARIES is the folder that holds them; without it nothing happens here.
"""

import ctypes
import importlib.abc
import os
import sys

_folder = os.environ.get("SIMGPU_LIBRARIES")


def _install(folder):
    # In the order of their dependencies.
    order = ["libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcupti.so.13", "libnccl.so.2", "libcudnn.so.9"]
    paths = {name: os.path.join(folder, name) for name in order if os.path.exists(os.path.join(folder, name))}
    original = ctypes.CDLL.__init__

    def redirected(self, name, *args, **kwargs):
        original(self, paths.get(os.path.basename(name), name) if isinstance(name, str) else name, *args, **kwargs)

    ctypes.CDLL.__init__ = redirected
    opened = []

    class OpenBeforeTorch(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name == "torch" and not opened:
                opened.extend(ctypes.CDLL(path) for path in paths.values())
            return None

    sys.meta_path.insert(0, OpenBeforeTorch())


if _folder:
    _install(_folder)
