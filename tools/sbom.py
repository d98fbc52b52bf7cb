#!/usr/bin/env python3
"""What a package contains besides our own code, as a CycloneDX 1.5 document (https://cyclonedx.org/docs/1.5/json/).

    tools/sbom.py --kind "wheel x86_64 glibc 2.17" --compiler 12.2.0 --version 0.1.0 --commit 0123456789ab OUT
    tools/sbom.py --kind deb --version 0.1.0 OUT

For a wheel the versions are those of tools/wheel/debian.txt, for the Debian package those that dpkg-query tells
of this machine. The same input gives the same bytes: the time is SOURCE_DATE_EPOCH, and there is no serial number.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY, COMMAND, SERVE = "libmfuinject.so", "mfu", "libmfu_serve.so"

# name, SPDX licence, package in tools/wheel/debian.txt, package of Debian that a .deb is compiled or linked from, where it
# ends up in a wheel, and in the Debian package (where what is left out is a dependency, not a part).
PARTS = [
    ("fmt", "MIT", "libfmt-dev", "libfmt-dev", [LIBRARY, COMMAND], [LIBRARY, COMMAND]),
    ("nlohmann-json", "MIT", "nlohmann-json3-dev", "nlohmann-json3-dev", [LIBRARY, COMMAND, SERVE], [LIBRARY, COMMAND, SERVE]),
    ("pcre2", "BSD-3-Clause", "pcre2", "libpcre2-dev", [LIBRARY, COMMAND], [LIBRARY, COMMAND]),
    ("cli11", "BSD-3-Clause", "libcli11-dev", "libcli11-dev", [COMMAND], [COMMAND]),
    ("ncurses", "X11", "libncurses-dev", "libncurses-dev", [COMMAND], [COMMAND]),
    ("simdjson", "Apache-2.0 OR MIT", "simdjson", None, [COMMAND, SERVE], []),
    ("sqlite", "blessing", "libsqlite3-dev", None, [COMMAND], []),
    ("zlib", "Zlib", "zlib1g-dev", None, [COMMAND, SERVE], []),
    ("prometheus-cpp", "MIT", "prometheus-cpp", None, [SERVE], []),
    ("civetweb", "MIT", "civetweb", None, [SERVE], []),
]
# In the repository.
CHARTS = [("chart.js", "3.9.1", "pkg:npm/chart.js@3.9.1"), ("@kurkle/color", "0.2.1", "pkg:npm/%40kurkle/color@0.2.1")]
GCC_LICENCE = "GPL-3.0-or-later WITH GCC-exception-3.1"


def pinned(arch):
    """{package: (version, sha256, kind)} of tools/wheel/debian.txt, as a wheel for that processor takes them."""
    debian = {"x86_64": "amd64", "aarch64": "arm64"}[arch]
    rows = [line.split() for line in (HERE / "wheel/debian.txt").read_text().splitlines() if line and not line.startswith("#")]
    wanted = (debian, f"old-{debian}", "headers", "source")
    found = {package: (version, digest, kind) for digest, kind, package, version in rows if kind in wanted}
    # Scanners have to see that it is Debian's revision with its security fixes.
    return found | {package: (version, found[package][1], "patches") for _, kind, package, version in rows if kind == "patches"}


def installed(package):
    shown = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], stdout=subprocess.PIPE, check=True)
    return shown.stdout.decode()


def component(name, version, purl, licence, inside, digest=None):
    one = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"expression": licence}],
        "properties": [{"name": "mfuinject:linked-into", "value": file} for file in inside],
    }
    if digest:
        one["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return one


def debian_url(package, version, arch=""):
    quoted = version.replace(":", "%3A").replace("+", "%2B")
    return f"pkg:deb/debian/{package}@{quoted}" + (f"?arch={arch}" if arch else "")


def of_wheel(kind, compiler):
    versions = pinned(kind.split()[1])
    for name, licence, package, _, inside, _ in PARTS:
        version, digest, what = versions[package]
        if what == "source":
            url = f"pkg:generic/{package}@{version.replace('+', '%2B')}"
        else:
            url = debian_url(package, version, {"headers": "all", "patches": "source"}.get(what, what))
        yield component(name, version, url, licence, inside, digest)
    yield component("libstdc++", compiler, f"pkg:generic/gcc@{compiler}#libstdc%2B%2B", GCC_LICENCE, [LIBRARY, COMMAND, SERVE])
    version, digest, what = versions["libgcc-10-dev"]
    url = debian_url("libgcc-10-dev", version, what.removeprefix("old-"))
    yield component("libgcc", version, url, GCC_LICENCE, [LIBRARY, COMMAND, SERVE], digest)


def of_debian_package():
    for name, licence, _, package, _, inside in PARTS:
        if inside:
            version = installed(package)
            yield component(name, version, debian_url(package, version), licence, inside)
    gcc = installed("libgcc-s1")
    yield component("libstdc++ and libgcc", gcc, debian_url("gcc-12", gcc, "source"), GCC_LICENCE, [LIBRARY])


def components(kind, compiler):
    """What is linked or embedded, in the order of their references."""
    out = list(of_wheel(kind, compiler) if kind.startswith("wheel ") else of_debian_package())
    out += [component(name, version, url, "MIT", [COMMAND]) for name, version, url in CHARTS]
    return sorted(out, key=lambda one: one["bom-ref"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", default="", help="of the source")
    parser.add_argument("--compiler", default="", help="the version of gcc whose libstdc++ is linked into a wheel")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    own = f"pkg:generic/mfuinject@{args.version}"
    subject = {
        "type": "application",
        "bom-ref": own,
        "name": "mfuinject",
        "version": args.version,
        "purl": own,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "properties": [{"name": "mfuinject:build", "value": args.kind}, {"name": "mfuinject:commit", "value": args.commit}],
    }
    metadata = {"component": subject}
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        metadata["timestamp"] = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    parts = components(args.kind, args.compiler)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": metadata,
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
