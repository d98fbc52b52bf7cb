"""Programs that nobody thought of, over every CUPTI that the simulation knows: threads, streams, events, captures, graphs, nested
ranges and every call that launches, drawn by chance, while buffers come back late, shuffled, poisoned or from another thread.
Whatever is drawn, each region has exactly the activities that were launched inside of its ranges, and of those nested in them.

MFU_RANDOM_SEED names the first program (default: a fixed one), MFU_RANDOM_PROGRAMS how many there are.
"""

import os
import random
import re

from harness import SANITIZE, TestCase, Truth, main, ns, union_ns

FIRST = int(os.environ.get("MFU_RANDOM_SEED", "1"))
PROGRAMS = int(os.environ.get("MFU_RANDOM_PROGRAMS", "4" if SANITIZE else "24"))
REGIONS = ("alpha", "beta", "gamma", "delta")
# Steps: the threads of these programs work side by side, and a step is never inside another thread's region.
CONFIG = {"model": {"params": 1_000_000}, "regions": [{"region": r, "match": f"{r}.*", "phase": "train"} for r in REGIONS]}


class Thread:
    """What one thread of the program does: its statements, and what is open at each of its launches: region > instance."""

    def __init__(self, name, draw, first_graph):
        self.name, self.draw = name, draw
        self.lines, self.regions, self.instances = [], [], dict.fromkeys(REGIONS, 0)
        self.open, self.graphs, self.next_graph = [], [], first_graph
        self.streams = [f"{name}_{i}" for i in range(draw.randint(1, 3))]
        self.helpers, self.master, self.meetings = [], self, 0
        domain = self.push(REGIONS[:1])
        self.introduce()
        self.pop(domain)

    def introduce(self):
        self.say(f"launch gemm_id_{self.name} stream={self.streams[0]}")  # names the thread in the truth
        self.launched()

    def let_help(self):
        """A thread without a range of its own, as PyTorch's backward pass: what it launches belongs to what this one has open."""
        helper = self.draw.choice(self.helpers)
        self.meetings += 1
        begin, end = f"barrier {self.name}b{self.meetings} 2", f"barrier {self.name}e{self.meetings} 2"
        self.say(begin)
        helper.say(begin)
        if not helper.regions:
            helper.introduce()
        for _ in range(self.draw.randint(1, 3)):
            helper.launches()
        self.say(end)
        helper.say(end)

    def say(self, line):
        self.lines.append(line)

    def launched(self, count=1):
        master = self.master
        self.regions += [{r: (master.name, master.instances[r]) for r in master.open if r in REGIONS}] * count

    def push(self, regions=(*REGIONS, "no rule for this")):
        region = self.draw.choice(regions)
        domain = self.draw.choice(("", "", " domain=other"))
        text = self.draw.choice(("ascii", "wide", "registered"))
        self.say(f'push "{region} {self.draw.randint(0, 3)}" text={text}{domain}')
        if region in REGIONS and region not in self.open:
            self.instances[region] += 1  # inside of one of its own it is a part
        self.open.append(region)
        return domain

    def pop(self, domain):
        self.say(f"pop{domain}")
        self.open.pop()

    def wait(self):
        """For its own streams: not for the device, which is an error while any thread captures."""
        for stream in self.streams:
            self.say(f"sync {stream}")

    def launches(self):
        stream = self.draw.choice(self.streams)
        count = self.draw.choice((1, 1, 2, 5, 30))
        kind = self.draw.randrange(8)
        if kind < 5:
            api = self.draw.choice(("kernel", "ptsz", "ex", "pdl", "cooperative", "runtime"))
            kernel = self.draw.choice(("gemm_big", "elementwise_small", "flash_fwd_kernel"))
            self.say(f"launch {kernel} stream={stream} count={count} api={api}")
            self.launched(count)
        elif kind == 5:
            self.say(f"memcpy {self.draw.choice(('htod', 'dtoh', 'dtod'))} {self.draw.randint(1, 100_000)} stream={stream}")
            self.launched()
        elif kind == 6:
            self.say(f"memset {self.draw.randint(1, 100_000)} stream={stream}")
            self.launched()
        elif self.graphs:
            self.say(f"graph_launch {self.draw.choice(self.graphs)} stream={stream} count={count}"
                     + self.draw.choice(("", " api=runtime")))
            self.launched(count)

    def capture(self):
        graph = f"g{self.next_graph}"
        self.next_graph += 1
        stream = self.streams[0]
        self.say(f"capture {stream}")
        for _ in range(self.draw.randint(1, 4)):
            self.say(f"launch gemm_node stream={stream} count={self.draw.randint(1, 20)}")
        if len(self.streams) > 1 and self.draw.random() < 0.5:
            e = f"{graph}_{self.name}"
            self.say(f"record {e}a {stream}; wait_event {e}a {self.streams[1]}")
            self.say(f"launch elementwise_node stream={self.streams[1]} count=3; memset 64 stream={self.streams[1]}")
            self.say(f"record {e}b {self.streams[1]}; wait_event {e}b {stream}")
        self.say(f"end_capture {stream} {graph}; instantiate {graph}")
        self.graphs.append(graph)

    def work(self, depth):
        for _ in range(self.draw.randint(1, 5)):
            what = self.draw.random()
            if what < 0.55:
                self.launches()
            elif what < 0.75 and depth < 4:
                domain = self.push()
                self.work(depth + 1)
                if self.draw.random() < 0.4:
                    self.wait()
                self.pop(domain)
            elif what < 0.8 and len(self.graphs) < 4:
                self.capture()
            elif what < 0.9:
                self.say("sync " + self.draw.choice(self.streams))
            elif what < 0.93 and self.helpers:
                self.let_help()
            elif what < 0.93:
                self.say(f"sleep {self.draw.randint(1, 30)}")
            elif len(self.streams) > 1:
                a, b = self.draw.sample(self.streams, 2)
                event = f"e{len(self.lines)}_{self.name}"
                self.say(f"record {event} {a}; wait_event {event} {b}")


class Helper(Thread):
    def __init__(self, name, draw, master):
        self.name, self.draw, self.master = name, draw, master
        self.lines, self.regions, self.instances, self.graphs = [], [], dict.fromkeys(REGIONS, 0), master.graphs
        self.streams = [f"{name}_{i}" for i in range(draw.randint(1, 2))]


class Program:
    def __init__(self, seed):
        draw = random.Random(seed)
        kernels = [f"kernel {name} ns={draw.choice((500, 5_000, 40_000, 200_000))}"
                   for name in ("gemm_big", "elementwise_small", "flash_fwd_kernel", "gemm_node", "elementwise_node")]
        self.threads = [Thread(f"t{i}", draw, 100 * i) for i in range(draw.choice((1, 1, 2, 4)))]
        if len(self.threads) == 1:
            self.threads[0].helpers = [Helper(f"h{i}", draw, self.threads[0]) for i in range(draw.choice((0, 1, 2)))]
        self.script = "\n".join(kernels) + "\ncuinit\n"
        for thread in self.threads + self.threads[0].helpers:
            self.script += f"kernel gemm_id_{thread.name} ns=1000\n" + "".join(f"stream {stream}\n" for stream in thread.streams)
        for thread in self.threads:
            # A launch of a thread without a range of its own may belong to what the others do: each has one open, or is alone.
            alone = len(self.threads) == 1
            for _ in range(draw.randint(5, 40)):
                domain = None if alone and draw.random() < 0.3 else thread.push()
                if domain is not None and thread.open[-1] not in REGIONS and not alone:
                    thread.pop(domain)
                    continue
                thread.work(0)
                if domain is not None:
                    thread.pop(domain)
            thread.wait()
        self.threads += self.threads[0].helpers
        if len(self.threads) == 1:
            self.script += "\n".join(self.threads[0].lines)
        else:
            self.script += "".join(f"thread {t.name} {{\n" + "\n".join(t.lines) + "\n}\n" for t in self.threads)
        self.cupti = "cupti-" + draw.choice(("11.8", "12.4", "12.6", "12.9", "13.0", "13.2", "13.3"))
        self.env = {"SIMGPU_DRIVER_VERSION": "13030", "MFU_INTERVAL": draw.choice(("0.05", "0.2", "1", "10")),
                    "MFU_DETECT": draw.choice(("0", "1"))}
        for name, values in {
            "SIMGPU_PER_THREAD": ("0", "1"), "SIMGPU_FLUSH_ON_WORKER": ("1",), "SIMGPU_FLUSH_KEEPS_OPEN": ("0",),
            "SIMGPU_WORKER_DELAY_MS": ("1", "20"), "SIMGPU_SHUFFLE": ("1",), "SIMGPU_POISON_BUFFERS": ("1",),
            "SIMGPU_STALE_NAMES": ("1",), "SIMGPU_KERNEL_BEFORE_EXIT": ("1",), "SIMGPU_ZERO_BUFFERS": ("0",),
            "SIMGPU_CORRELATION_START": ("4294967000", "2147483000"), "SIMGPU_UNKNOWN_KINDS": ("0.1",),
            "SIMGPU_QUEUE_DEPTH": ("2", "0"), "SIMGPU_GAP_NS": ("0", "100000"), "SIMGPU_LAUNCH_LATENCY_NS": ("0", "2000000"),
            "MFU_EXECUTED": ("0",), "MFU_CUPTI_V2": ("1",), "MFU_PROFILER": ("share",), "MFU_TRACE": ("trace.json",),
        }.items():
            if draw.random() < 0.25:
                self.env[name] = draw.choice(values)
        if "MFU_PROFILER" in self.env:
            self.env.pop("SIMGPU_SHUFFLE", None)  # what is captured is told by the order of a thread's calls


class RandomPrograms(TestCase):
    def regions_of_launches(self, run, program):
        """(thread, correlation) > its regions, by the order of each thread's launches."""
        calls = {}
        for launch in run.launches_made:
            calls.setdefault(launch["thread"], []).append(launch)
        named = {}
        for activity in run.activities():
            if found := re.fullmatch(r"gemm_id_(\w+)", activity["name"]):
                named[found[1]] = activity["thread"]
        regions = {}
        for thread in program.threads:
            if not thread.regions:
                continue  # nobody asked for its help
            made = calls[named[thread.name]]
            self.assertEqual(len(made), len(thread.regions))
            regions |= {(launch["thread"], launch["correlation"]): region for launch, region in zip(made, thread.regions)
                        if launch["result"] == 0}
        return regions

    def check(self, seed):
        program = Program(seed)
        env = {"MFU_GRAPHS": "node", **(program.env or {})}  # the truth is known node by node
        run = self.scenario(program.script, cupti=program.cupti, config=CONFIG, env=env)
        run.launches_made = [t for t in run.truth if t["type"] == "launch" and not t["capturing"]]
        end = self.assert_sound(run)
        regions = self.regions_of_launches(run, program)
        counts = end["launches"]
        self.assertEqual(counts["seen"], len(regions), counts)
        self.assertEqual((counts["unattributed"], counts["dropped"], counts["not_timed"]), (0, 0, 0), end)
        activities = [a for a in run.activities() if a["kind"] != "graph"]
        self.assertEqual(run.region("total")["kernels"], len([a for a in activities if a["kind"] == "kernel"]))
        if "MFU_PROFILER" in program.env:
            return  # whose a launch is, two clocks decide: within microseconds of a range's ends it may be its neighbour's
        self.assertEqual(counts["outside"], sum(not open for open in regions.values()))
        for name in REGIONS:
            own = [a for a in activities if name in regions[a["thread"], a["correlation"]]]
            instances = sum(thread.instances[name] for thread in program.threads)
            if not own:
                continue
            got = run.region(name)
            truth = Truth(own)
            spans = {}
            for a in own:
                if a["kind"] == "kernel":
                    spans.setdefault(regions[a["thread"], a["correlation"]][name], []).append((a["begin"], a["end"]))
            said = (name, end["counters"], run.log[-4:])
            self.assertEqual((got["kernels"], got["launches"], ns(got["kernel_sum_s"])),
                             (truth.kernels, truth.launches, truth.kernel_sum_ns), said)
            busy = sum(union_ns(span) for span in spans.values())
            if end["counters"].get("records_late"):  # on a busy machine: the past that they fall into may be known no more
                self.assertLessEqual(abs(ns(got["busy_s"]) - busy), 0.02 * busy, said)
            else:
                self.assertEqual(ns(got["busy_s"]), busy, said)
            self.assertLessEqual(got["instances"], instances)

    def test_each_region_has_what_was_launched_inside(self):
        for seed in range(FIRST, FIRST + PROGRAMS):
            with self.subTest(seed=seed):
                self.check(seed)


if __name__ == "__main__":
    main()
