"""Links the simulated CUDA libraries under the names of those in a virtual environment, with a stub for every export that is not simulated."""

import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Name of the library, the wheel's folder under nvidia/, our archive (None: a library of its own), what a stub returns.
LIBRARIES = [
    ("libcudart.so.13", "cu13", "libsimgpu_cudart.a", 801),  # cudaErrorNotSupported
    ("libcublasLt.so.13", "cu13", "libsimgpu_cublaslt.a", 15),  # CUBLAS_STATUS_NOT_SUPPORTED
    ("libcublas.so.13", "cu13", "libsimgpu_cublas.a", 15),
    ("libnccl.so.2", "nccl", "libsimgpu_nccl.a", 5),  # ncclInvalidUsage
]
# Frameworks that do without it on a machine without cuDNN get none.
CUDNN = ("libcudnn.so.9", "cudnn", "libsimgpu_cudnn.a", 3000)  # CUDNN_STATUS_NOT_SUPPORTED


def exports(library):
    """Names that a shared library exports, without their version."""
    text = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names = (line.split()[-1].split("@")[0] for line in text.splitlines() if re.search(r" [TWi] ", line))
    return sorted(set(names))


def versioned(library):
    return f"@{library.name}" in subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout


def link(real, archive, out, result):
    """One shared library: the archive's functions, and weak stubs for all other exports of `real`."""
    names = exports(real)
    source = out.with_suffix(".stubs.cpp")
    lines = ['extern "C" {', "int simgpu_not_simulated(const char*, int);"]
    lines += [
        f'[[gnu::weak, gnu::visibility("default")]] int {name}() {{ return simgpu_not_simulated("{name}", {result}); }}'
        for name in names
    ]
    source.write_text("\n".join(lines + ["}"]) + "\n")
    script = out.with_suffix(".map")
    node = real.name if versioned(real) else ""
    script.write_text(f"{node} {{ global: {' '.join(name + ';' for name in names)} local: *; }};\n")
    subprocess.run(
        [
            "c++",
            "-std=c++20",
            "-O1",
            "-fPIC",
            "-shared",
            "-w",
            "-o",
            out,
            source,
            "-Wl,--whole-archive",
            archive,
            "-Wl,--no-whole-archive",
            f"-Wl,-soname,{real.name}",
            f"-Wl,--version-script={script}",
            "-Wl,-Bsymbolic",
            "-Wl,-z,nodelete",
            "-static-libstdc++",
            "-static-libgcc",
            "-ldl",
            "-lpthread",
        ],
        check=True,
    )


def prepare(venv, build, out, cudnn=False):
    """Fills the folder `out` for the packages of `venv` from the build tree `build`."""
    packages = next(venv.glob("lib/python3*/site-packages"))
    out.mkdir(parents=True, exist_ok=True)
    for name, wheel, archive, result in [*LIBRARIES, *([CUDNN] if cudnn else [])]:
        real = packages / "nvidia" / wheel / "lib" / name
        source = build / "simgpu" / "frameworks" / archive
        target = out / name
        if target.exists() and target.stat().st_mtime > max(
            source.stat().st_mtime, real.stat().st_mtime, pathlib.Path(__file__).stat().st_mtime
        ):
            continue
        link(real, source, target, result)
    cupti = out / "libcupti.so.13"
    cupti.unlink(missing_ok=True)
    cupti.symlink_to(build / "simgpu" / "cupti-13.2" / "libcupti.so.13")
