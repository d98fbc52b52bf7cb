"""Live MFU of a CUDA program: where the library is, and named regions for programs that want to say what they do.

>>> import mfuinject
>>> with mfuinject.region("prefill", batch=4, seq_len=512):
...     model(tokens)
"""

from ._region import region

__all__ = ["library_path", "region"]


def library_path() -> str:
    """Absolute path of libmfuinject.so: what CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH are set to.

    Raises FileNotFoundError where this package was installed without it, as in a source tree.
    """
    import os

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libmfuinject.so")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: not there; `pip install .` in the source tree builds it")
    return path
