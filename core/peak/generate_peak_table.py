#!/usr/bin/env python3
"""Writes core/peak/peak_table.cpp from core/peak/gpu_peaks.json.

Usage: core/peak/generate_peak_table.py core/peak/gpu_peaks.json > core/peak/peak_table.cpp
The name expressions of that file use a small part of the regular expression language; they are expanded here into
plain pieces of text with boundary conditions, so that the product needs no regular expressions to match a name.
"""

import json
import re
import sys

COLUMNS = ["fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4"]


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def alternatives(text):
    """Expands the first [..] or (a|b) of `text`, recursively."""
    found = re.search(r"\[([^\]]+)\]|\(([^()?]+)\)", text)
    if not found:
        return [text]
    choices = list(found.group(1)) if found.group(1) else found.group(2).split("|")
    expanded = []
    for choice in choices:
        expanded += alternatives(text[: found.start()] + choice + text[found.end() :])
    return expanded


def patterns(expression):
    assert expression.startswith("\\b"), expression
    body = expression[2:]
    not_before = []
    ahead = re.search(r"\(\?!(.*)\)$", body)
    if ahead:
        not_before = alternatives(ahead.group(1))
        body = body[: ahead.start()]
    name_end = body.endswith("$")
    body = body[:-1] if name_end else body
    word_end = body.endswith("\\b")
    body = body[:-2] if word_end else body
    made = []
    for text in alternatives(body):
        assert not re.search(r"[\\\[\](){}?*+^$.|]", text), expression
        assert len(not_before) <= 2, expression
        fields = [quoted(text), str(word_end).lower(), str(name_end).lower()]
        if not_before:
            fields.append("{" + ", ".join(quoted(n) for n in not_before) + "}")
        made.append("{" + ", ".join(fields) + "}")
    return made


def rates(values):
    return "{" + ", ".join(repr(float(values[c])) if values and values.get(c) else "0" for c in COLUMNS) + "}"


def main():
    table = json.load(open(sys.argv[1], encoding="utf-8"))
    print("// Written by core/peak/generate_peak_table.py from core/peak/gpu_peaks.json. Do not edit.")
    print('#include "core/peak/peak_table.h"\n\nnamespace mfu {\nnamespace {\n')
    print("// clang-format off\nconstexpr PeakRow kRows[] = {")
    for gpu in table["gpus"]:
        major, minor = gpu["compute_capability"].split(".")
        names = [p for expression in gpu["match"] for p in patterns(expression)]
        assert len(names) <= 6, gpu["id"]
        print(f'    {{{quoted(gpu["id"])}, {quoted(gpu["name"])}, {major}, {minor},')
        print(f'     {{{{{", ".join(names)}}}}},')
        print(f'     {gpu.get("sm_count", 0)}, {gpu.get("tensor_clock_mhz", 0)},', end=" ")
        print(f'{gpu["mem_bandwidth_gbs"]}, {gpu["memory_gb"]},')
        print(f'     {rates(gpu["dense_tflops"])},\n     {rates(gpu.get("sparse_tflops"))},')
        print(f'     {quoted(gpu["source"])}}},')
    print("};\n\nconstexpr ArchRates kArchs[] = {")
    for capability, arch in table["flops_per_clk_per_sm"].items():
        major, minor = capability.split(".")
        print(f'    {{{major}, {minor}, {rates(arch["full"])},\n     {rates(arch.get("geforce"))}}},')
    print("};\n// clang-format on\n\n}  // namespace\n")
    print("std::span<const PeakRow> peak_rows() noexcept { return kRows; }")
    print("std::span<const ArchRates> arch_rates() noexcept { return kArchs; }\n\n}  // namespace mfu")


if __name__ == "__main__":
    main()
