"""What machine this is. Everything is looked up, nothing is changed; what cannot be read is left out."""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import xml.etree.ElementTree as tree
from importlib import metadata
from typing import Any, Iterator

PACKAGES = (
    "torch",
    "triton",
    "vllm",
    "sglang",
    "jax",
    "jaxlib",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "transformers",
    "nvidia-cuda-cupti",
    "nvidia-cuda-cupti-cu12",
    "nvidia-cublas",
    "nvidia-cublas-cu12",
    "nvidia-ml-py",
)
SMI = {
    "driver": "driver_version",
    "cuda": "cuda_version",
    "name": "gpu/product_name",
    "mig": "gpu/mig_mode/current_mig",
    "ecc": "gpu/ecc_mode/current_ecc",
    "persistence": "gpu/persistence_mode",
    "power limit": "gpu/gpu_power_readings/current_power_limit",
    "sm clock": "gpu/clocks/sm_clock",
    "max sm clock": "gpu/max_clocks/sm_clock",
    "memory": "gpu/fb_memory_usage/total",
    "virtualization": "gpu/gpu_virtualization_mode/virtualization_mode",
    "confidential": "gpu/conf_compute_mode",
}


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def site_folders() -> list[str]:
    """Where this interpreter's packages are."""
    return [folder for folder in dict.fromkeys(sys.path) if os.path.isdir(folder)]


def libraries(pattern: str) -> Iterator[str]:
    """Files of wheels, of toolkits and of the system that match, e.g. `libcupti.so*`; each real file once."""
    places = [f"{folder}/nvidia/*/lib" for folder in site_folders()] + [f"{folder}/torch/lib" for folder in site_folders()]
    places += [
        "/usr/local/cuda*/lib64",
        "/usr/local/cuda*/extras/CUPTI/lib64",
        "/usr/local/cuda*/targets/*/lib",
        "/usr/lib/*-linux-gnu",
        "/usr/lib64",
    ]
    seen = set()
    for place in places:
        for path in sorted(glob.glob(f"{place}/{pattern}")):
            real = os.path.realpath(path)
            if real not in seen and os.path.isfile(real):
                seen.add(real)
                yield path


def short_hash(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:12]


def smi() -> dict[str, str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    try:
        done = subprocess.run([program, "-q", "-x"], capture_output=True, text=True, timeout=30, check=False)
        root = tree.fromstring(done.stdout)
    except (OSError, subprocess.TimeoutExpired, tree.ParseError):
        return {}
    found = {key: (root.findtext(path) or "").strip() for key, path in SMI.items()}
    found["gpus"] = str(len(root.findall("gpu")))
    return {key: value for key, value in found.items() if value and value != "N/A"}


def packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def collect(mfu: str) -> dict[str, Any]:
    """\\param mfu the command that is tried."""
    try:
        version = subprocess.run([mfu, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        version = str(error)
    cpus = text_of("/sys/fs/cgroup/cpu.max").split()
    params = text_of("/proc/driver/nvidia/params")
    return {
        "mfu": version,
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "glibc": platform.libc_ver()[1],
        "python": platform.python_version(),
        "cpu": next((line.split(":")[1].strip() for line in text_of("/proc/cpuinfo").splitlines() if "model name" in line), ""),
        "processors": len(os.sched_getaffinity(0)),
        "cgroup cpus": f"{int(cpus[0]) / int(cpus[1]):g}" if len(cpus) == 2 and cpus[0] != "max" else "",
        "user": os.getuid(),
        "nvidia-smi": smi(),
        "packages": packages(),
        "libcupti": [{"path": path, "sha256": short_hash(path)} for path in libraries("libcupti.so*")],
        "only admins may profile": (re.search(r"RmProfilingAdminOnly: (\d)", params) or ["", ""])[1],
        "variables": sorted(name for name in os.environ if re.match(r"(CUDA|CUPTI|NV|NCCL|MFU)_", name)),
        "stubs in LD_LIBRARY_PATH": any("stubs" in part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":")),
        "MPS": os.path.exists(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps") + "/control"),
    }
