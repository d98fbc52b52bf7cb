"""Live MFU of a CUDA program: where the library is, and named regions for programs that want to say what they do.

>>> import mfuinject
>>> with mfuinject.region("prefill", batch=4, seq_len=512):
...     model(tokens)

`read` gives what a run wrote as plain records. `mfuinject.hf`, `mfuinject.lightning` and `mfuinject.accelerate` hold callbacks
for those libraries.
"""

from ._region import region

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._run_dir import Process, Run, latest, read

    __version__: str

__all__ = ["Process", "Run", "__version__", "latest", "library_path", "read", "region"]


def __getattr__(name: str) -> object:
    # Only when asked for: a program that marks regions pays for no more than that.
    if name == "__version__":
        return _version()
    if name in ("Process", "Run", "latest", "read"):
        from . import _run_dir

        return getattr(_run_dir, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("mfuinject")
    except metadata.PackageNotFoundError:  # a source tree, or a folder that was copied
        return "0+unknown"


def library_path() -> str:
    """Absolute path of libmfuinject.so: what CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH are set to.

    Raises FileNotFoundError where this package was installed without it, as in a source tree.
    """
    import os

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libmfuinject.so")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: not there; `pip install .` in the source tree builds it")
    return path
