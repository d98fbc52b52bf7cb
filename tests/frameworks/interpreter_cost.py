"""The time that the interpreter's part takes of a pass and of a training step, in turns with and without it, on the CPU.

    python tests/frameworks/interpreter_cost.py [passes in a turn]

Needs PyTorch and CPython 3.12. The model is small and has no config, which costs most: the shapes of its arguments are compared.
What a fact costs in the library, some 0.2 us, is not in it.
"""

import pathlib
import statistics
import sys
import time

import torch

PARTS = [pathlib.Path(__file__).parents[2] / "injection/interpreter" / f"{part}.py" for part in ("objects", "flop", "watch")]
PAIRS = 60


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 8)
        self.unused = torch.nn.Linear(8, 8)

    def forward(self, ids):
        return self.table(ids).sum()


def seconds(work, count):
    begin = time.perf_counter()
    work(count)
    return (time.perf_counter() - begin) / count


def compare(what, work, count, codes, tool):
    """Turns with the events on and off; the median of the differences, and the quarters around it."""
    differences = []
    for _ in range(PAIRS):
        on = seconds(work, count)
        events = [(code, sys.monitoring.get_local_events(tool, code)) for code in codes]
        for code, _ in events:
            sys.monitoring.set_local_events(tool, code, 0)
        differences.append(on - seconds(work, count))
        for code, wanted in events:
            sys.monitoring.set_local_events(tool, code, wanted)
    low, middle, high = (1e6 * x for x in statistics.quantiles(differences, n=4))
    print(f"{what}: {middle:.1f} us ({low:.1f} to {high:.1f})")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    torch.set_num_threads(1)
    codes = {}  # that are watched
    watch_events = sys.monitoring.set_local_events

    def set_local_events(tool, code, events):
        codes[id(code)] = code
        watch_events(tool, code, events)

    sys.monitoring.set_local_events = set_local_events
    functions = {"post": lambda *fact: None, "tell": lambda *words: None, "refused": lambda model: None}
    functions |= {"asked": lambda: 0, "layers": False}
    functions |= {"guard": lambda function: function, "at_end": lambda number: lambda reference: None}
    exec(compile("".join(part.read_text() for part in PARTS), "<mfuinject>", "exec"), functions)  # as the library does
    sys.monitoring.set_local_events = watch_events
    tool = next(tool for tool in (3, 4) if sys.monitoring.get_tool(tool) == "mfuinject")
    model, ids = Model(), torch.zeros(2, 4, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.no_grad()
    def passes(count):
        for _ in range(count):
            model(ids)

    def steps(count):
        for _ in range(count):
            model(ids).backward()
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(5):
        passes(count)
        steps(count)
    codes[id(Model.forward.__code__)] = Model.forward.__code__
    compare("a pass", passes, count, list(codes.values()), tool)
    compare("a step of one pass", steps, count, list(codes.values()), tool)


if __name__ == "__main__":
    main()
