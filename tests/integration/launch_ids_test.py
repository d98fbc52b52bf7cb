"""The list of API calls that put work on a stream (cuda/launch_ids.h) against the CUPTI headers that this build uses: no call
that could launch is missing, every number is a call of its kind, and the ends of each run are the calls that its comment
names. Where each call's parameters keep the stream
(cuda/launch_stream.h), against the structures that the same headers declare.
"""

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


def launches(name):
    """(first id, last id, kind, name of the first call, name of the last) of each run of calls."""
    pattern = r"\{(\d+), (\d+),\s+LaunchKind::(\w+)\},\s*// (\w+)(?: \.\. (\w+))?"
    return [(int(a), int(b), kind, first, last or first) for a, b, kind, first, last in listed(name, pattern)]


KINDS = {"kMemcpy": r"Memcpy|BatchDecompress", "kMemset": r"Memset", "kKernel": r"^_*cud?a?Launch",
         "kGraph": r"GraphLaunch|SubgridScheduleLaunch"}


@unittest.skipIf(header_directory() is None, "no CUPTI headers")
class LaunchIds(unittest.TestCase):
    def check(self, domain, calls, captures):
        header = ids_of_header(domain)
        runs = launches(calls)
        known = {i for first, last, *_ in runs for i in range(first, last + 1)}
        self.assertEqual(len(known), sum(last - first + 1 for first, last, *_ in runs), "a call is listed twice")
        capture = {int(i) for name in captures for i in listed(name, r"\b(\d+)\b")}
        self.assertGreater(len(known), 50)
        missing = {i: n for i, n in header.items() if COULD_LAUNCH.search(n) and not NOT_LAUNCHES.search(n)
                   and i not in known and i not in capture}
        self.assertEqual(missing, {}, "calls that could launch and that the list does not have")
        named = {i: n for i, n in header.items() if not re.fullmatch(r"cuda\d+", n)}
        for first, last, kind, *names in runs:
            for i, comment in zip((first, last), names, strict=True):
                if i in named:
                    self.assertTrue(named[i].startswith(comment.split("_ptsz")[0].split("_v")[0]), (i, comment, named[i]))
            for i in range(first, last + 1):
                if i in named:
                    self.assertRegex(named[i], KINDS[kind], i)

    def test_driver(self):
        self.check("driver", "kDriverLaunchCalls", ("kDriverBeginCapture", "kDriverEndCapture"))

    def test_runtime(self):
        self.check("runtime", "kRuntimeLaunchCalls", ("kRuntimeBeginCapture", "kRuntimeEndCapture"))


# Ordered against nothing that is known: batches, whose copies may read early; new ways to launch; calls from before CUDA 3.2,
# which had addresses of 32 bits.
NO_STREAM_ON_PURPOSE = re.compile(
    r"Batch|WithArguments|Subgrid|^cuLaunchGridAsync$|^cuMemcpy(HtoD|DtoH|DtoD|HtoA|AtoH|2D|3D)Async$"
)


def parameter_structures():
    """Call > list of (type, name) of its parameters, of every structure in generated_cuda_meta.h."""
    text = (header_directory() / "generated_cuda_meta.h").read_text()
    found = {}
    for body, name in re.findall(r"typedef struct \w+_params_st \{(.*?)\} (\w+)_params;", text, re.S):
        members = (" ".join(line.split()) for line in body.split(";"))
        found[name] = [re.fullmatch(r"(.*?[ *])(\w+)(\[\d*\])?", m).group(1, 2) for m in members if m]
    return found


def offset_of(structure, wanted):
    """Where a parameter lies [B] by the rules of the x86-64 and aarch64 ABIs, or None."""
    small = {"unsigned char": 1, "unsigned short": 2, "unsigned int": 4, "int": 4, "float": 4, "CUdevice": 4}
    at = 0
    for kind, name in structure:
        kind = kind.replace("const ", "").strip()
        size = 8 if kind.endswith("*") else small.get(kind, 4 if kind.endswith("_flags") or kind.endswith("_enum") else 8)
        at = (at + size - 1) // size * size
        if name == wanted:
            return at
        at += size
    return None


def stream_table():
    """Id > what stream_offset() returns for it, read from its source."""
    text = (SOURCE / "cuda/launch_stream.h").read_text()
    body = text[text.index("switch (driver_id) {"):text.index("const bool set =")]
    table, waiting = {}, []
    for word, number in re.findall(r"(case|return) (\w+)[:;]", body):
        if word == "case":
            waiting.append(int(number))
        else:
            table.update({i: number if number.startswith("k") else int(number) for i in waiting})
            waiting = []
    return table


@unittest.skipIf(header_directory() is None or not (header_directory() / "generated_cuda_meta.h").exists(), "no CUDA headers")
class StreamOffsets(unittest.TestCase):
    def test_every_call(self):
        names, structures, table = ids_of_header("driver"), parameter_structures(), stream_table()
        self.assertGreater(len(table), 35)
        self.assertEqual(offset_of(structures["cuLaunchKernel"], "hStream"), 40)
        for i, offset in table.items():
            if i > max(names):
                continue  # newer than these headers
            with self.subTest(names[i]):
                if offset == "kInConfig":
                    self.assertEqual(structures[names[i]][0], ("const CUlaunchConfig *", "config"))
                else:
                    self.assertEqual(offset_of(structures[names[i]], "hStream"), offset)

    def test_no_call_with_a_stream_is_missing(self):
        names, structures, table = ids_of_header("driver"), parameter_structures(), stream_table()
        missing = {}
        for i in [i for first, last, *_ in launches("kDriverLaunchCalls") for i in range(first, last + 1)]:
            name = names.get(i, "")
            if any(n == "hStream" for _, n in structures.get(name, ())) and i not in table:
                missing[i] = name
        self.assertEqual({i: n for i, n in missing.items() if not NO_STREAM_ON_PURPOSE.search(n)}, {})

    def test_synchronous_copies_have_no_stream(self):
        names, structures = ids_of_header("driver"), parameter_structures()
        for i in [*range(249, 255), 276, 278, 280, 282, *range(284, 289), 290, 292, 305, 318, 320, *range(397, 417)]:
            with self.subTest(names[i]):
                self.assertRegex(names[i], "Memcpy|Memset")
                self.assertNotIn("hStream", [n for _, n in structures.get(names[i], ())])


if __name__ == "__main__":
    main()
