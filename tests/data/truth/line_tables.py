"""Prints the line tables of a module's code as this CPython has them, one JSON line per code object.

`python3.N line_tables.py >> line_tables.jsonl` for each version N. `lines`: for each instruction its offset in bytes and its line,
as the interpreter itself says (co_lines from 3.10 on, dis.findlinestarts before); what has no line is left out.
"""

import dis
import json
import sys

SOURCE = (
    "def plain(a, b):\n    c = a + b\n    return c\n\n\n"
    "def loops(rows):\n    total = 0\n    for row in rows:\n        if row:\n            total += sum(\n                x * 2\n"
    "                for x in row)\n        else:\n            continue\n    while total > 3:\n        total -= 1\n    return total\n\n\n"
    "def handles():\n    try:\n        with open('x') as f:\n            return f.read(\n            )\n"
    "    except OSError as error:\n        raise ValueError(\n            str(error)) from error\n    finally:\n        print('end')\n\n\n"
    "def far(a):\n    x = a" + "\n" * 300 + "    y = x\n    return (y,\n" + "\n" * 200 + "            x)\n\n\n"
    "def long(a):\n    return [" + ", ".join(f"a + {i}" for i in range(120)) + ",\n" * 1 + "            a]\n"
)


def codes(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from codes(constant)


for code in codes(compile(SOURCE, "module.py", "exec")):
    if hasattr(code, "co_lines"):
        spans = [(begin, end, line) for begin, end, line in code.co_lines() if line is not None]
        table = code.co_linetable
    else:
        starts = list(dis.findlinestarts(code)) + [(len(code.co_code), None)]
        spans = [(begin, end, line) for (begin, line), (end, _) in zip(starts, starts[1:])]
        table = code.co_lnotab
    print(json.dumps({"minor": sys.version_info[1], "name": code.co_name, "first_line": code.co_firstlineno, "table": table.hex(),
                      "lines": [[at, line] for begin, end, line in spans for at in range(begin, end, 2)]}, separators=(",", ":")))
