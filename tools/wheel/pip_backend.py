"""What pip calls to build the package: scikit-build-core, after a look at what building takes.

Without it `pip install .` on a bare machine downloads CMake and configures for a minute before it stops at the first thing that
is missing. Here one line names all of them, before anything more is downloaded.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F403  the hooks of PEP 517 and 660, as far as this version has them

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# A header of each, and the Debian package that brings it.
HEADERS = {"fmt/format.h": "libfmt-dev", "nlohmann/json.hpp": "nlohmann-json3-dev", "simdjson.h": "libsimdjson-dev",
           "sqlite3.h": "libsqlite3-dev", "zlib.h": "zlib1g-dev", "CLI/CLI.hpp": "libcli11-dev", "pcre2.h": "libpcre2-dev",
           "curses.h": "libncurses-dev", "prometheus/registry.h": "prometheus-cpp-dev", "civetweb.h": "libcivetweb-dev",
           "cupti.h": "CUPTI's headers", "crt/host_defines.h": "CUDA's headers", "nvtx3/nvToolsExt.h": "NVTX's headers"}
PARTS = ("include", "extras/CUPTI/include")  # of a CUDA toolkit


def places():
    """Where cmake/CudaHeaders.cmake looks, beside the compiler's own."""
    homes = [pathlib.Path(p) for p in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if p]
    return [SOURCE / ".deps/nvidia/cu13/include", *(home / part for home in homes for part in PARTS)]


def missing():
    """What building takes and is not here, in words; [] where all of it is. One run of the preprocessor."""
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        return [f"a C++ compiler ({compiler})"]
    asked = "".join(f"#if !__has_include(<{header}>)\nMISSING {package}\n#endif\n" for header, package in HEADERS.items())
    ran = subprocess.run([compiler, "-E", "-P", "-x", "c++", *(f"-I{place}" for place in places()), "-"], input=asked, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return [line.partition(" ")[2] for line in ran.stdout.splitlines() if line.startswith("MISSING ")]


def _look():
    # Who gives CMake arguments, as tools/build-wheel does, builds against other headers than this machine's.
    lacking = [] if os.environ.get("SKBUILD_CMAKE_ARGS") else missing()
    if lacking:
        sys.exit(f"mfuinject: this machine lacks {', '.join(lacking)}: run tools/install-deps once (as root, or with sudo), then "
                 "pip install . again; tools/build-wheel makes a wheel that other machines take without any of it")


def get_requires_for_build_wheel(config_settings=None):
    _look()
    return _backend.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings=None):
    _look()
    return _backend.get_requires_for_build_editable(config_settings)
