"""Programs that an observer of the interpreter may meet, over the stand-in torch. Each prints what it did.

    interpreter_programs.py NAME
"""

import atexit
import gc
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import threading
import time
import weakref

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.table, self.out = nn.Embedding(16, width), nn.Linear(width, 16)

    def forward(self, input_ids, fail=None):
        x = self.table(input_ids)
        if fail is not None:
            raise fail
        return self.out(x)


def ids(batch=2, length=8):
    return torch.Tensor(batch, length, floating=False)


def ready():
    """CUDA starts, and with it the library; the interpreter's part runs a moment later."""
    torch.start()
    settle()


def settle():
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        time.sleep(0.01)


def train(net, optimizer, steps, micro_steps=2):
    for _ in range(steps):
        for _ in range(micro_steps):
            net(ids()).backward()
        optimizer.step()


def evaluate(net, passes):
    net.train(False)
    with torch.no_grad():
        for _ in range(passes):
            net(ids(4))
    net.train()


def plain():
    ready()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters())
    for _ in range(4):
        train(net, optimizer, 5)
        evaluate(net, 3)
    torch.synchronize()
    print("done")


class Block(nn.Module):
    def __init__(self, checkpoint):
        super().__init__()
        self.inner, self.checkpoint = nn.Linear(8, 8), checkpoint

    def forward(self, x):
        x = self.inner(x)
        if torch.is_grad_enabled():
            x.grad_fn = torch.Node(self.again if self.checkpoint else None)
        return (x, None)

    def again(self):
        if self.checkpoint == "elsewhere":
            thread = threading.Thread(target=self.again_elsewhere)
            thread.start()
            thread.join()
        else:
            with torch.no_grad():
                self(torch.Tensor(2, 8, 8))

    def again_elsewhere(self):
        """As checkpoints that compute the gradients of a layer in a backward pass of their own."""
        torch.use_on_this_thread()
        with torch.no_grad():
            self(torch.Tensor(2, 8, 8))
        torch.autograd.backward(None)


class Deep(Net):
    def __init__(self, layers, checkpoint=False):
        super().__init__()
        self.blocks = nn.ModuleList(Block(checkpoint) for _ in range(layers))

    def forward(self, input_ids, fail_at=None):
        x = self.table(input_ids)
        x.grad_fn = torch.Node()
        for i, block in enumerate(self.blocks):
            x, _ = block(x)
            if i == fail_at:
                raise ValueError("in the middle of its layers")
        return self.out(x)


def deep(checkpoint=False, failures=0):
    ready()
    net = Deep(3, checkpoint)
    optimizer = torch.optim.SGD(net.parameters())
    for step in range(20):
        if step < failures:
            try:
                net(ids(), fail_at=1)
            except ValueError as e:
                print(e)
        train(net, optimizer, 1, 1)
    torch.synchronize()
    print("done")


def deep_checkpoints():
    deep(True)


def deep_checkpoints_elsewhere():
    deep("elsewhere")


def deep_failures():
    deep(False, 5)


class OtherNames(Net):
    def forward(s, input_ids):
        return s.out(s.table(input_ids))


def names():
    """A method's first argument may have any name."""
    ready()
    net = OtherNames()
    train(net, torch.optim.SGD(net.parameters()), 20)
    torch.synchronize()
    print("done")


def untouched():
    """Nothing of the program or of torch is another object than before, and nothing is kept alive."""
    net = Net()
    names = [(nn.Module, "__call__"), (nn.Module, "_call_impl"), (Net, "forward"), (torch.optim.Optimizer, "profile_hook_step")]
    before = [getattr(k, n) for k, n in names], sorted(sys.modules), sys.gettrace(), sys.getprofile(), threading.active_count()
    stored = pickle.dumps(net.__dict__)
    ready()
    optimizer = torch.optim.SGD(net.parameters())
    train(net, optimizer, 5)
    evaluate(net, 2)
    after = [getattr(k, n) for k, n in names], sorted(sys.modules), sys.gettrace(), sys.getprofile(), threading.active_count()
    assert before == after and pickle.dumps(net.__dict__) == stored
    seen = weakref.ref(net), weakref.ref(optimizer)
    del net, optimizer
    gc.collect()
    print("kept alive:", [one() is not None for one in seen])


class Hostile(Net):
    def __getattr__(self, name):
        if name in ("config", "training", "_compiled_call_impl", "__wrapped__", "past_key_values"):
            raise SystemExit(f"somebody asked for {name}")
        return super().__getattr__(name)

    @property
    def config(self):
        raise KeyboardInterrupt("somebody asked for the config")

    def parameters(self):
        yield from super().parameters()

    def __len__(self):
        raise RuntimeError("somebody asked for the length")

    def __bool__(self):
        raise RuntimeError("somebody asked whether it is true")

    def __eq__(self, other):
        raise RuntimeError("somebody compared")

    __hash__ = None


class BadConfig:
    def to_dict(self):
        raise ValueError("no dict")


class HugeConfig:
    def to_dict(self):
        return {"model_type": "acme", "list": list(range(100_000)), "object": object()}


def attributes():
    ready()
    for net in (Hostile(), Net(), Net()):
        if type(net) is Net:
            object.__setattr__(net, "config", BadConfig() if gc.isenabled() else HugeConfig())
            gc.disable()
        optimizer = torch.optim.SGD(net.parameters())
        train(net, optimizer, 6)
        evaluate(net, 2)
    torch.synchronize()
    print("done")


def deleted():
    """A module that removes itself while it runs."""

    class Gone(Net):
        def forward(self, input_ids):
            holder.clear()
            out = self.out(self.table(input_ids))
            self.__dict__.clear()
            del self
            gc.collect()
            return out

    ready()
    holder = []
    for _ in range(200):
        holder.append(Gone())
        holder[0](ids()).backward()
    print("done", len(holder))


def exceptions():
    ready()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters())
    caught = []
    for step in range(30):
        for fail in (None, ValueError("as programs do"), SystemExit(3), KeyboardInterrupt()):
            try:
                net(ids(), fail).backward()
            except BaseException as error:
                frames = []
                place = error.__traceback__
                while place is not None:
                    frames.append(place.tb_frame.f_code.co_name)
                    place = place.tb_next
                caught.append((type(error).__name__, frames))
        optimizer.step()
    print(len(caught), sorted({str(c) for c in caught}))


def frame_of_the_caller():
    return sys._getframe(1).f_locals


class Pair(nn.Module):
    """Methods that call both parts: the interpreter's part reads their instructions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Net(), Net()

    def training_step(self, x, fail=None):
        self.first(x)
        return self.second(x, fail)

    def with_its_values(self, x):
        kept = locals()
        self.first(x)
        kept["more"] = 1
        self.second(x)
        return sorted(kept)

    def seen_by_others(self, x):
        kept = frame_of_the_caller()
        self.first(x)
        self.second(x)
        return {"self", "x"} <= set(kept)

    def in_pieces(self, x):
        yield self.first(x)
        yield self.second(x)

    def again(self, x, depth):
        self.first(x)
        return self.again(x, depth - 1) if depth else self.second(x)

    def __bool__(self):
        raise RuntimeError("is it true?")

    def __eq__(self, other):
        raise RuntimeError("is it the same?")

    __hash__ = None


def methods():
    ready()
    pair = Pair()
    optimizer = torch.optim.SGD(pair.parameters())
    failed = 0
    for _ in range(20):
        try:
            pair.training_step(ids(), ValueError("as programs do"))
        except ValueError:
            failed += 1
        pair.training_step(ids()).backward()
        optimizer.step()
    with torch.no_grad():
        pieces = list(pair.in_pieces(ids()))
        pair.again(ids(), 3)
        values = [(pair.with_its_values(ids()), pair.seen_by_others(ids())) for _ in range(2)]
    print(failed, len(pieces), values)


def threads():
    """Passes of several models at the same time."""
    ready()

    def work():
        torch.use_on_this_thread()
        net = Net()
        optimizer = torch.optim.SGD(net.parameters())
        train(net, optimizer, 200)

    running = [threading.Thread(target=work) for _ in range(6)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    torch.synchronize()
    print("done")


def fork_inside():
    class Forks(Net):
        def forward(self, input_ids):
            pid = os.fork()
            if pid == 0:
                torch._state.function = None  # CUDA does not survive a fork
                train(Net(), torch.optim.SGD([]), 50)
                os._exit(5)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            return super().forward(input_ids)

    codes = []
    ready()
    net = Forks()
    optimizer = torch.optim.SGD(net.parameters())
    train(net, optimizer, 10, 1)
    torch.synchronize()
    print("children", codes)


def tracers():
    """A tracer and a profiler see what they see without the library."""
    seen = set()

    def trace(frame, event, arg):
        seen.add((event, os.path.basename(frame.f_code.co_filename), frame.f_code.co_name))
        return trace

    sys.settrace(trace)
    threading.settrace(trace)
    ready()
    net = Net()
    train(net, torch.optim.SGD(net.parameters()), 5)
    sys.settrace(None)
    sys.setprofile(trace)
    train(net, torch.optim.SGD(net.parameters()), 5)
    sys.setprofile(None)
    print(sorted(seen))


def monitored():
    """A debugger and a coverage tool have ids of their own."""
    counts = {}
    for tool in (0, 1, 2):
        sys.monitoring.use_tool_id(tool, f"tool {tool}")
        for event in ("PY_START", "PY_RETURN", "LINE", "CALL", "PY_UNWIND", "RAISE"):

            def note(code, *_, key=(tool, event)):
                if "torch" in code.co_filename or "interpreter_programs" in code.co_filename:
                    counts[key] = counts.get(key, 0) + 1
                elif code.co_filename == "<mfuinject>":
                    counts["library"] = True

            sys.monitoring.register_callback(tool, getattr(sys.monitoring.events, event), note)
    torch.start()
    settle()
    every = sys.monitoring.events
    wanted = every.PY_START | every.PY_RETURN | every.LINE | every.CALL | every.PY_UNWIND | every.RAISE
    for tool in (0, 1, 2):
        sys.monitoring.set_events(tool, wanted)
    net = Net()
    train(net, torch.optim.SGD(net.parameters()), 20)
    for tool in (0, 1, 2):
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)
    print(sorted(counts.items(), key=str))


def taken():
    for tool in (3, 4):
        sys.monitoring.use_tool_id(tool, "another")
    plain()


def growth():
    """Passes without end, on the GPU and not, of the same module and of new ones."""

    def pages():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

    ready()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters())
    used = []
    for part in range(4):
        for i in range(int(os.environ.get("PASSES", "100000")) // 4):
            net.out.forward if i % 1000 else train(net, optimizer, 1)
            nn.Module.__call__(net.out, ids())
            if i % 100 == 0:
                train(Net(), optimizer, 1)
                time.sleep(0.0001)
        used.append(pages())
    with open("pages", "w") as file:  # of the process without end, for the test
        file.write(" ".join(map(str, used)))
    print("done")


def made_classes():
    """Code objects without end."""
    ready()
    for i in range(3000):
        scope = {"Net": Net}
        exec(f"class Made{i}(Net):\n    def forward(self, x):\n        return self.out(self.table(x))\n", scope)
        scope[f"Made{i}"]()(ids()).backward()
    del scope
    gc.collect()
    print("alive", sum(1 for c in Net.__subclasses__()) < 10)


def interrupts():
    """Ctrl-C at any instruction: no traceback through the library's part, and it is raised where the program is."""

    def interrupt(*_):
        nonlocal raised
        raised += 1
        raise KeyboardInterrupt

    raised = 0
    ready()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters())
    signal.signal(signal.SIGALRM, interrupt)
    caught, foreign, end = 0, 0, time.monotonic() + 3
    while time.monotonic() < end:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0003)
            while True:
                train(net, optimizer, 5)
        except KeyboardInterrupt as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            caught += 1
            place = error.__traceback__
            while place is not None:
                foreign += place.tb_frame.f_code.co_filename == "<mfuinject>"
                place = place.tb_next
    print("many", caught > 100, "lost", raised - caught, "foreign", foreign)


def interrupted_start():
    """Ctrl-C while the library's part begins to run."""

    def interrupt(*_):
        nonlocal raised
        raised += 1
        raise KeyboardInterrupt

    raised = caught = 0
    signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + time.time_ns() % 20_000 * 1e-6)
        torch.start()
        settle()
    except KeyboardInterrupt:
        caught += 1
    print("lost", raised - caught)


def recursion():
    """The deepest call that there is room for is as deep as without the library."""

    class Deep(nn.Module):
        def forward(self, depth):
            return depth if depth == 0 else self(depth - 1)

    ready()
    net = Deep()
    net(3)
    caught = 0
    for depth in (*range(200, 400, 3), 2000):
        try:
            net(depth)
        except RecursionError:
            caught += 1
    train(Net(), torch.optim.SGD(Net().parameters()), 3)
    print("too deep", caught)


def generators():
    class Yields(nn.Module):
        def forward(self, n):
            for i in range(n):
                torch.launch()
                yield i

    class Waits(nn.Module):
        async def forward(self, n):
            torch.launch()
            return n

    ready()
    total = 0
    for _ in range(100):
        total += sum(Yields()(4))
        coroutine = Waits()(5)
        try:
            coroutine.send(None)
        except StopIteration as end:
            total += end.value
        unfinished = Yields()(9)
        next(unfinished)
        del unfinished
    print(total)


def audited():
    def hook(event, arguments):
        if event in ("sys._getframe", "sys.monitoring.register_callback"):
            raise RuntimeError(event)

    ready()
    net = Net()
    train(net, torch.optim.SGD(net.parameters()), 3)
    sys.addaudithook(hook)
    train(net, torch.optim.SGD(net.parameters()), 3)
    print("done")


def child(queue):
    torch.start()
    net = Net()
    train(net, torch.optim.SGD(net.parameters()), 8)
    torch.synchronize()
    queue.put(os.getpid() != 0)


def processes():
    done = []
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        children = [context.Process(target=child, args=(queue,)) for _ in range(2)]
        for process in children:
            process.start()
        done += [queue.get(timeout=60) for _ in children]
        for process in children:
            process.join()
        done.append([p.exitcode for p in children])
    print(done)


def subinterpreters():
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    ready()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters())
    for _ in range(3):
        other = interpreters.create()
        interpreters.run_string(other, "def f():\n    return sum(range(1000))\nfor _ in range(1000):\n    f()\n")
        train(net, optimizer, 3)
        interpreters.destroy(other)
    torch.synchronize()
    print("done")


def ends_at_once():
    torch.start()
    print("done")


def ends_in_atexit():
    atexit.register(torch.start)
    print("done")


class _StartsWhenDestroyed:
    def __del__(self):
        torch_at_end.start()


torch_at_end = torch


def ends_in_del():
    builtins = sys.modules["builtins"]
    builtins.kept_until_the_end = _StartsWhenDestroyed()
    print("done")


def ends_in_thread():
    """CUDA starts on a thread while the interpreter ends."""
    thread = threading.Thread(target=torch.start, daemon=True)
    thread.start()
    print("done")


def ends_while_running():
    """Daemon threads that run passes while the interpreter ends."""

    def work():
        torch.use_on_this_thread()
        net = Net()
        optimizer = torch.optim.SGD(net.parameters())
        while True:
            train(net, optimizer, 10)

    ready()
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    print("done")


def ends_inside_a_pass():
    class Exits(Net):
        def forward(self, input_ids):
            super().forward(input_ids)
            sys.exit(3)

    ready()
    Exits()(ids())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.stdout.flush()
