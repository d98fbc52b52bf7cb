#!/usr/bin/env python3
"""Writes a folder that a linker takes for an older glibc.

    tools/glibc_stubs.py --glibc 2.17 --root UNPACKED --arch x86_64 --tools x86_64-linux-gnu- OUT

UNPACKED holds Debian's libc6, libc6-dev and libgcc-dev of the oldest release at hand. OUT gets libraries of the same names that
have no code, and of all symbols only those that glibc had at that version, each under the newest version that it had then:
what is linked against them asks for nothing later, and a function that came later is undefined, which is an error of the link
and not of a user's machine. Beside them the start files, the functions that glibc keeps in an archive (stat and its like), and
the unwinder of an older gcc, which finds its tables without _dl_find_object of glibc 2.35.

`c++ -BOUT` looks there first, for start files and libraries alike.
"""

import argparse
import collections
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# The order in which a symbol is looked for. On x86-64 and aarch64 the files have these names in every version.
LIBRARIES = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"]
LOADER = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
Symbol = collections.namedtuple("Symbol", "name version kind value size weak")


# What glibc does not have at that version and the compiler's headers and archives name all the same. Linked in, hidden.
#   __libc_single_threaded (2.32): 0 means that there may be threads, so that std::shared_ptr counts with atomic operations.
#   fcntl64 (2.28): the name of fcntl in files that were compiled with 64-bit offsets; on 64-bit machines the same function.
LATER_DATA = ["__libc_single_threaded"]
LATER_NAMES = {"fcntl64": "fcntl"}
JUMP = {"x86_64": "jmp {}@PLT", "aarch64": "b {}"}
# Of 2.18: __cxa_thread_atexit_impl.
LATER_CODE = Path(__file__).resolve().parent / "wheel/thread_atexit.c"


def number(version):
    return tuple(int(part) for part in version.split("."))


def symbols(library, newest):
    """{name: Symbol} of what the library defines, each under its newest version that is no later than `newest`."""
    shown = subprocess.run(["readelf", "-W", "--dyn-syms", str(library)], stdout=subprocess.PIPE, check=True).stdout.decode()
    best = {}
    for line in shown.splitlines():
        words = line.split()
        # Num: Value Size Type Bind Vis Ndx Name
        if len(words) < 8 or not re.fullmatch(r"\d+:", words[0]) or words[6] in ("UND", "ABS"):
            continue
        name, _, version = words[7].partition("@")
        version = version.lstrip("@")
        if not re.fullmatch(r"GLIBC_[0-9.]+", version) or number(version[6:]) > newest:
            continue
        size = int(words[2], 0)
        symbol = Symbol(name, version, words[3], int(words[1], 16), size, words[4] == "WEAK")
        if name not in best or number(best[name].version[6:]) < number(version[6:]):
            best[name] = symbol
    return best


def assembly(found):
    """Functions as labels; data with its size and with what else lies at its address, for programs that take a copy of it."""
    functions = [s for s in found.values() if s.kind in ("FUNC", "IFUNC", "NOTYPE")]
    data = sorted((s for s in found.values() if s.kind == "OBJECT"), key=lambda s: s.value)
    out = [".text"]
    for s in functions:
        out += [f'.globl "{s.name}"', f'.type "{s.name}", %function', f'"{s.name}":', f'.size "{s.name}", 1']
    out += [".byte 0", ".bss", ".balign 64"]
    position, origin = 0, None
    for s in data:
        if origin is None or s.value >= origin + position:  # not inside what came before
            origin, start = s.value, 0
            out += [".balign 32"]
            position = 0
        start = s.value - origin
        if start > position:
            out.append(f".skip {start - position}")
            position = start
        out += [
            f'.globl "{s.name}"',
            f'.type "{s.name}", %object',
            f'.set "{s.name}", . - {position - start}',
            f'.size "{s.name}", {s.size}',
        ]
        if start + s.size > position:
            out.append(f".skip {start + s.size - position}")
            position = start + s.size
    tls = [s for s in found.values() if s.kind == "TLS"]
    if tls:
        out.append('.section .tbss,"awT",%nobits')
        for s in tls:
            out += [
                f'.globl "{s.name}"',
                f'.type "{s.name}", %tls_object',
                f'"{s.name}": .skip {max(s.size, 1)}',
                f'.size "{s.name}", {s.size}',
            ]
    return "\n".join([*out, '.section .note.GNU-stack,"",%progbits', ""])


def version_script(found):
    nodes = collections.defaultdict(list)
    for s in found.values():
        nodes[s.version].append(s.name)
    out, before = [], ""
    for version in sorted(nodes, key=lambda v: number(v[6:])):
        names = "".join(f'    "{name}";\n' for name in sorted(nodes[version]))
        hide = "  local: *;\n" if not before else ""
        out.append(f"{version} {{\n  global:\n{names}{hide}}}{before};\n")
        before = f" {version}"
    return "".join(out)


def later(arch):
    """Assembly of one object file for each, so that only what is asked for is taken: {file name: text}."""
    files = {}
    for name in LATER_DATA:
        files[name] = f".bss\n.globl {name}\n.hidden {name}\n.type {name}, %object\n.size {name}, 1\n{name}: .skip 1\n"
    for name, same in LATER_NAMES.items():
        jump = JUMP[arch].format(same)
        files[name] = f".text\n.globl {name}\n.hidden {name}\n.type {name}, %function\n{name}: {jump}\n"
    return {name: text + '.section .note.GNU-stack,"",%progbits\n' for name, text in files.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glibc", required=True, help="the version, 2.17")
    parser.add_argument("--root", required=True, type=Path)
    parser.add_argument("--arch", required=True, choices=sorted(LOADER))
    parser.add_argument("--tools", default="", help="what the names of as, ld and ar begin with, x86_64-linux-gnu-")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    triplet = f"{args.arch}-linux-gnu"
    args.out.mkdir(parents=True, exist_ok=True)
    kept = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in [*LIBRARIES, LOADER[args.arch]]:
            found = symbols(args.root / "lib" / triplet / name, number(args.glibc))
            if not found:
                continue
            source, script, compiled = (Path(scratch) / f"stub.{end}" for end in ("s", "map", "o"))
            source.write_text(assembly(found))
            script.write_text(version_script(found))
            subprocess.run([args.tools + "as", "-o", str(compiled), str(source)], check=True)
            link = [args.tools + "ld", "-shared", "-soname", name, f"--version-script={script}", "-z", "noexecstack"]
            subprocess.run([*link, "-o", str(args.out / name), str(compiled)], check=True)
            kept.append(name)
        objects = []
        for name, text in later(args.arch).items():
            source, compiled = Path(scratch) / f"{name}.s", Path(scratch) / f"{name}.o"
            source.write_text(text)
            subprocess.run([args.tools + "as", "-o", str(compiled), str(source)], check=True)
            objects.append(str(compiled))
        compiled = Path(scratch) / f"{LATER_CODE.stem}.o"
        compile_one = [args.tools + "gcc", "-O2", "-fPIC", "-ffunction-sections", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([*compile_one, "-c", "-o", str(compiled), str(LATER_CODE)], check=True)
        objects.append(str(compiled))
        (args.out / "libc_later.a").unlink(missing_ok=True)
        subprocess.run([args.tools + "ar", "rcsD", str(args.out / "libc_later.a"), *objects], check=True)
    archives = args.root / "usr/lib" / triplet
    for name in ("crt1.o", "Scrt1.o", "crti.o", "crtn.o", "libc_nonshared.a"):
        shutil.copy(archives / name, args.out / name)
    (eh,) = (args.root / "usr/lib/gcc" / triplet).glob("*/libgcc_eh.a")
    shutil.copy(eh, args.out / "libgcc_eh.a")
    # What was in a library of its own then is found without being named, as it is today.
    others = " ".join(name for name in kept if name not in ("libc.so.6", "libm.so.6"))
    (args.out / "libc.so").write_text(f"GROUP ( libc.so.6 libc_nonshared.a libc_later.a AS_NEEDED ( {others} ) )\n")
    (args.out / "libm.so").write_text("GROUP ( libm.so.6 )\n")
    for name in ("pthread", "dl", "rt"):
        (args.out / f"lib{name}.so").write_text(
            "GROUP ( libc.so.6 libc_nonshared.a libc_later.a AS_NEEDED ( " + others + " ) )\n"
        )


if __name__ == "__main__":
    sys.exit(main())
