#!/usr/bin/env python3
"""Holds what is packed against what is promised of it wherever it is loaded, symbol by symbol.

    tests/packaging/library.py [--glibc 2.17] [--largest BYTES] libmfuinject.so
    tests/packaging/library.py --module libmfu_serve.so
    tests/packaging/library.py --command mfu

No symbol of the C library is later than the promise, none is of another library; nothing is exported but what
injection/exports.map names; only parts of glibc are needed, found without a path; no text relocation, no executable stack, no
segment that is writable and executable; bound at once, relocations read-only afterwards, never unloaded; segments that fit the
largest pages of the processor; compiled with canaries, with checked calls of the C library, and on x86-64 with landing pads. A
module of the command has a map of its own and may be unloaded; the command exports what it likes.
Needs `readelf` of binutils, which reads every processor's files. One line per fault; exit status 1 if there is one.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Parts of glibc, which every program of such a system has.
SYSTEM = {
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
LARGEST_PAGE = {"Advanced Micro Devices X86-64": 4096, "AArch64": 65536}


def readelf(path, *options):
    return subprocess.run(["readelf", "-W", *options, str(path)], stdout=subprocess.PIPE, check=True).stdout.decode()


def number(version):
    return tuple(map(int, version.split(".")))


def symbols(path):
    """(name, version or "", defined) of the dynamic symbol table."""
    for line in readelf(path, "--dyn-syms").splitlines():
        words = line.split()
        if len(words) >= 8 and words[0].rstrip(":").isdigit() and words[4] != "LOCAL":
            name, _, version = words[7].partition("@")
            yield name, version.lstrip("@"), words[6] != "UND"


def exported_by(exports):
    named = re.search(r"global:(.*?)local:", (ROOT / exports).read_text(), re.S).group(1)
    return {name.strip() for name in named.split(";") if name.strip()}


def hardening_faults(path):
    """How it was compiled and linked, as far as the file shows it: stack protector, fortify, landing pads, full RELRO."""
    imported = {name for name, _, defined in symbols(path) if not defined}
    if "__stack_chk_fail" not in imported:
        yield "has no canaries (-fstack-protector-strong)"
    if not any(name.endswith("_chk") for name in imported):
        yield "has no checked calls of the C library (-D_FORTIFY_SOURCE)"
    # Linked-in libraries have all of these: only a function of the product says how the product was compiled.
    entry = re.search(r"\s([0-9a-f]{16})\s+\d+ FUNC\s.*\bInitializeInjection\b", readelf(path, "--dyn-syms"))
    if entry and "X86-64" in readelf(path, "-h"):
        at = int(entry[1], 16)
        loads = re.findall(r"^\s+LOAD\s+(0x\S+)\s+(0x\S+)\s+0x\S+\s+(0x\S+)", readelf(path, "-l"), re.M)
        offset = next(at - int(v, 16) + int(o, 16) for o, v, size in loads if 0 <= at - int(v, 16) < int(size, 16))
        if path.read_bytes()[offset : offset + 4] != b"\xf3\x0f\x1e\xfa":
            yield "has functions without a landing pad (-fcf-protection)"
    if "GNU_RELRO" not in readelf(path, "-l"):
        yield "has relocations that stay writable (-z relro)"
    if not re.search(r"\(FLAGS_1\).*\bNOW\b", readelf(path, "-d")):
        yield "is bound as it is called (-z now)"


def faults_of(path, glibc, exports="injection/exports.map", flags=("NODELETE",)):
    """`exports`: the map that names what may be exported, None for a program; `flags`: how it must be linked."""
    for symbol, version, defined in symbols(path):
        if defined or not version:
            continue
        library, _, since = version.partition("_")
        if library != "GLIBC":
            yield f"{symbol} wants {version}: only versions of glibc are promised"
        elif number(since) > number(glibc):
            yield f"{symbol} wants {version}, later than {glibc}"
    exported = {name for name, _, defined in symbols(path) if defined}
    wanted = exported_by(exports) if exports else exported
    if exported != wanted:
        yield f"exports {sorted(exported - wanted)} beyond its map, lacks {sorted(wanted - exported)}"

    dynamic = readelf(path, "-d")
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if needed not in SYSTEM:
            yield f"needs {needed}"
    for tag in ("RPATH", "RUNPATH", "TEXTREL"):
        if re.search(rf"\({tag}\)|\(FLAGS\).*\b{tag}\b", dynamic):
            yield f"has {tag}"
    for flag in flags:
        if not re.search(rf"\(FLAGS_1\).*\b{flag}\b", dynamic):
            yield f"is not linked with -z {flag.lower()}"

    yield from hardening_faults(path)
    header, segments = readelf(path, "-h"), readelf(path, "-l")
    page = next((size for machine, size in LARGEST_PAGE.items() if machine in header), None)
    if page is None:
        yield "is for a processor that nothing is promised of"
    stack = re.search(r"GNU_STACK\s+(?:0x\S+\s+){5}(\S+)", segments)
    if not stack or "E" in stack.group(1):
        yield "asks for an executable stack"
    loads = re.findall(r"^\s+LOAD\s+(?:0x\S+\s+){5}([RWE ]+?)\s+(0x\S+)", segments, re.M)
    if not loads:
        yield "has no segments"
    for flags, align in loads:
        if "W" in flags and "E" in flags:
            yield "has a segment that is writable and executable"
        if page and int(align, 16) < page:
            yield f"has a segment that is aligned to {align}: pages may have {page} bytes"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glibc", default="2.17", help="the newest version of glibc that may be asked for")
    parser.add_argument("--largest", type=int, default=0, help="how many bytes the file may have")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--module", action="store_true", help="libmfu_serve.so, which the command opens")
    kind.add_argument("--command", action="store_true", help="mfu")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    what = {}
    if args.module:
        what = {"exports": "tools/serve/exports.map", "flags": ()}
    elif args.command:
        what = {"exports": None, "flags": ()}
    faults = list(faults_of(args.file, args.glibc, **what))
    size = args.file.stat().st_size
    if args.largest and size > args.largest:
        faults.append(f"has {size} bytes, more than {args.largest}")
    for fault in faults:
        print(f"{args.file}: {fault}")
    versions = {version[6:] for _, version, defined in symbols(args.file) if version.startswith("GLIBC_") and not defined}
    print(f"{args.file}: {size} bytes, newest symbol of glibc {max(versions, key=number)}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
