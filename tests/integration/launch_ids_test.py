"""The list of API calls that put work on a stream (cuda/launch_ids.h) against the CUPTI headers that this build uses: no call
that could launch is missing, and every number is the call that its comment names."""

import pathlib
import re
import unittest

from harness import BUILD, SOURCE, main

# They launch nothing: nodes of graphs that are only made, functions that run on the host, and names that never left a beta.
NOT_LAUNCHES = re.compile(r"Node|HostFunc|^cu64")
COULD_LAUNCH = re.compile(r"Launch|Memcpy|Memset|BeginCapture|EndCapture|BeginRecapture|BatchDecompress|SubgridSchedule")


def header_directory():
    cache = BUILD / "CMakeCache.txt"
    found = re.search(r"^MFU_CUPTI_H_DIR:PATH=(.*)$", cache.read_text(), re.M) if cache.exists() else None
    return pathlib.Path(found[1]) if found else None


def ids_of_header(domain):
    text = (header_directory() / f"cupti_{domain}_cbid.h").read_text()
    return {int(i): n for n, i in re.findall(rf"CUPTI_{domain.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)}


def listed(name, pattern):
    text = (SOURCE / "cuda/launch_ids.h").read_text()
    body = text[text.index(name + "[]"):]
    return re.findall(pattern, body[body.index("{") + 1:body.index("};")])


@unittest.skipIf(header_directory() is None, "no CUPTI headers")
class LaunchIds(unittest.TestCase):
    def check(self, domain, calls, captures):
        header = ids_of_header(domain)
        known = {int(i): c for i, c in listed(calls, r"\{(\d+), LaunchKind::\w+\},\s*(?://\s*([\w]+))?")}
        capture = {int(i) for name in captures for i in listed(name, r"\b(\d+)\b")}
        self.assertGreater(len(known), 50)
        missing = {i: n for i, n in header.items() if COULD_LAUNCH.search(n) and not NOT_LAUNCHES.search(n)
                   and i not in known and i not in capture}
        self.assertEqual(missing, {}, "calls that could launch and that the list does not have")
        for i, comment in known.items():
            if comment and i in header and not re.fullmatch(r"cuda\d+", header[i]):
                self.assertTrue(header[i].startswith(comment.split("_ptsz")[0].split("_v")[0]), (i, comment, header[i]))

    def test_driver(self):
        self.check("driver", "kDriverLaunchCalls", ("kDriverBeginCapture", "kDriverEndCapture"))

    def test_runtime(self):
        self.check("runtime", "kRuntimeLaunchCalls", ("kRuntimeBeginCapture", "kRuntimeEndCapture"))


if __name__ == "__main__":
    main()
