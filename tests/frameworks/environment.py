"""The virtual environment of the suite, in a cache outside the tree, and the variables that its programs run with."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import libraries

HERE = libraries.HERE
ROOT = libraries.ROOT
SKIPPED = 77

# A copy of the variables without those of other runs.
FOREIGN = ("MFU_", "SIMGPU_", "CUDA_", "NVTX_", "SLURM_", "OMPI_", "PMI", "TORCH", "NCCL_", "HF_")


def skip(reason):
    print(f"frameworks: skipped: {reason}")
    sys.exit(SKIPPED)


def interpreter():
    """The Python of the programs: MFU_FRAMEWORKS_PYTHON, or the newest here, since from 3.12 on it reports more."""
    for name in (os.environ.get("MFU_FRAMEWORKS_PYTHON", ""), "python3.13", "python3.12"):
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return found
    return sys.executable


def directory(requirements, latest):
    """MFU_FRAMEWORKS_VENV, MFU_PACKAGES_VENV and so on, or a folder in the user's cache that the pinned versions name."""
    kind = requirements.stem.partition("-")[2] or "frameworks"
    named = os.environ.get(f"MFU_{kind.upper()}_VENV")
    if named:
        return pathlib.Path(named), True
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    python = os.path.realpath(interpreter())
    pins = "latest" if latest else hashlib.sha256(requirements.read_bytes() + python.encode()).hexdigest()[:12]
    return cache / "mfuinject" / f"{kind}-{pins}", False


def prepare_venv(requirements, latest=False):
    """Makes the environment, or takes the one that is there. Ends the program with 77 where it cannot be had."""
    where, given = directory(requirements, latest)
    complete = where / "complete"
    if given:
        if not (where / "bin" / "python").exists():
            skip(f"{where}: no environment there")
        return where
    if complete.exists() and not latest:
        return where
    words = [line for line in requirements.read_text().splitlines() if line and not line.startswith("#")]
    if latest:
        words = ["--upgrade", *(word.split("==")[0] for word in words)]
    print(f"frameworks: installing {' '.join(words)} into {where}", flush=True)
    subprocess.run([interpreter(), "-m", "venv", where], check=True, capture_output=True)
    done = install(where, words)
    if done.returncode:
        skip("the packages cannot be had: " + (done.stderr.strip().splitlines() or ["pip failed"])[-1])
    complete.touch()
    return where


def install(where, words):
    """Puts packages into an environment: by uv, which takes a minute where pip takes fifteen, or by pip where uv cannot."""
    pip = [where / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    downloads = where / "downloads"  # beside the packages, so that they are links to it
    settings = {"UV_CACHE_DIR": str(downloads), "UV_HTTP_TIMEOUT": "300"}
    for of_pip, of_uv in {"PIP_CERT": "SSL_CERT_FILE", "PIP_INDEX_URL": "UV_INDEX_URL", "PIP_FIND_LINKS": "UV_FIND_LINKS"}.items():
        if os.environ.get(of_pip):
            settings.setdefault(of_uv, os.environ.get(of_uv) or os.environ[of_pip])
    done = subprocess.run([*pip, "uv"], capture_output=True, text=True)
    if done.returncode == 0:
        uv = [where / "bin" / "uv", "pip", "install", "--quiet", "--python", where / "bin" / "python"]
        done = subprocess.run([*uv, *words], env=os.environ | settings, capture_output=True, text=True)
        shutil.rmtree(downloads, ignore_errors=True)
    if done.returncode:
        done = subprocess.run([*pip, *words], capture_output=True, text=True)
    return done


def prepare(build, latest=False, requirements="requirements.txt"):
    """(environment folder, variables). Needs the targets mfu, mfuinject and simgpu_frameworks of the build tree."""
    where = prepare_venv(HERE / requirements, latest)
    linked = build / "simgpu" / "frameworks" / f"linked-{pathlib.Path(requirements).stem}"
    libraries.prepare(where, build, linked, cudnn="jax" in requirements)
    cache = where / "compiled"
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    env |= {
        "PATH": f"{where / 'bin'}:{env['PATH']}",
        "LD_LIBRARY_PATH": str(build / "simgpu"),
        "PYTHONPATH": f"{HERE / 'site'}:{ROOT / 'python'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SIMGPU_LIBRARIES": str(linked),
        "SIMGPU_MEMORY": "contents",
        "SIMGPU_BYTES_PER_THREAD": "16",
        # 128 queries of 64 channels against 512 keys; the backward pass is two and a half times that.
        "SIMGPU_FLOP_PER_BLOCK": "flash_fwd:1.7e7,flash_bwd:4.2e7,fmha_cutlassF:8e6,fmha_cutlassB:2e7",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(where / "huggingface"),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",  # cuDNN cannot start here: flash attention instead
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TRITON_LIBCUDA_PATH": str(build / "simgpu"),
    }
    return where, env
