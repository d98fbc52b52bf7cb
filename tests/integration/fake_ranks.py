"""Run directories of jobs that never ran: every line as docs/reference.md describes it, every figure as it was asked for.

    job = Job(ranks=64, hosts=8)
    job.write(directory, windows=6)           # the whole job so far
    job.append(directory, first=6, windows=1)  # goes on

Collectives end together on all ranks, so a rank that computes longer is in them for less time, and the others wait for it:
`late_s` says by how much a rank comes last in every collective.
"""

import json
import pathlib
import random

GIGA = 10**9
H100_FLOP, H100_BYTES = 989.4e12, 3.35e12
START_NS = 1_795_000_000 * GIGA


class Rank:
    """What one rank does in every window; change the fields to make it odd."""

    def __init__(self, number, host, local):
        self.number, self.host, self.local = number, host, local
        self.pid = 1000 + number
        self.late_s = 0.0  # comes last by this in every collective [s]
        self.clock_ahead_s = 0.0  # of its host
        self.dies_after = None  # windows; None: lives
        self.ends = False
        self.flop_known = True
        self.peak_flop, self.peak_bytes = H100_FLOP, H100_BYTES
        self.uuid = f"GPU-{number:08x}"
        self.comm_kernels = 500  # per window
        self.mfu = 0.40
        self.dropped = 0
        self.config = {}
        self.serves = False  # its lines say what the passes of a server took
        self.version = 1  # of its lines

    @property
    def file(self):
        return f"{self.host}-{self.number}-{self.pid}.jsonl"


class Job:
    def __init__(self, ranks=8, hosts=2, interval_s=10.0, step_s=0.4, comm_s=0.0006, jitter_s=0.0, seed=1, world=None,
                 start_ns=START_NS):
        """`comm_s`: time in a collective when all come together; `jitter_s`: how differently ranks come, window by window."""
        per_host = max(1, ranks // hosts)
        self.ranks = [Rank(r, f"node{r // per_host:02d}", r % per_host) for r in range(ranks)]
        self.world = world or ranks
        self.interval_s, self.step_s, self.comm_s, self.jitter_s = interval_s, step_s, comm_s, jitter_s
        self.random = random.Random(seed)
        self.start_ns = start_ns

    def start_line(self, rank):
        return {
            "v": rank.version,
            "type": "start",
            "t_ns": self.start_ns + round(rank.clock_ahead_s * GIGA),
            "seq": 0,
            "host": rank.host,
            "pid": rank.pid,
            "rank": rank.number,
            "local_rank": rank.local,
            "world": self.world,
            "version": "0.1.0",
            "devices": [
                {
                    "device": 0,
                    "name": "NVIDIA H100 80GB HBM3",
                    "uuid": rank.uuid,
                    "peak_flop_per_s": rank.peak_flop,
                    "peak_bytes_per_s": rank.peak_bytes,
                    "peak_source": "table: H100 SXM" if rank.peak_flop else "unknown",
                    "dtype": "bf16",
                    "dtype_source": "model",
                    "sparse": False,
                }
            ],
            "cupti": {"path": "libcupti.so.13", "version": 130001, "level": "full"},
            "config": rank.config,
            "model": {"family": "llama", "params": {"total": 8030261248}},
            "convention": "exact",
        }

    def figures(self, rank, latest_s, window):
        """Time per collective of this rank: whoever comes first waits longest."""
        arrives = rank.late_s + (rank.jitter or 0.0)
        comm = self.comm_s + (latest_s - arrives)
        elapsed = self.interval_s
        comm_sum = comm * rank.comm_kernels
        exposed = min(comm_sum, 0.5 * elapsed)
        flop = rank.mfu * H100_FLOP * elapsed
        return comm_sum, exposed, flop

    def region(self, rank, name, window, latest_s):
        t0 = self.start_ns + round((rank.clock_ahead_s + window * self.interval_s) * GIGA)
        elapsed = self.interval_s
        comm_sum, exposed, flop = self.figures(rank, latest_s, window)
        steps = round(elapsed / self.step_s)
        ideal = rank.mfu * H100_FLOP / rank.peak_flop if rank.peak_flop and rank.flop_known else None
        comm, copy, idle = exposed / elapsed, 0.002, 0.03
        other = 0.10
        matmul = 1 - comm - copy - idle - other
        time_s = {"matmul": matmul * elapsed, "other": other * elapsed, "comm": exposed, "memcpy": copy * elapsed,
                  "idle": idle * elapsed}
        known = ideal is not None
        lost = {k: (v / elapsed - (ideal if k == "matmul" else 0)) if known else None for k, v in time_s.items()}
        return {
            "region": name, "device": 0, "t0_ns": t0, "t1_ns": t0 + round(elapsed * GIGA), "instances": steps, "open": 1,
            "tokens": 8192 * steps, "elapsed_s": elapsed, "busy_s": elapsed * (1 - idle - copy), "kernel_sum_s": elapsed * 1.02,
            "kernels": 3000 * steps, "launches": 2900 * steps, "comm_kernels": rank.comm_kernels, "comm_sum_s": comm_sum,
            "latency": {"count": steps, "p50_s": self.step_s, "p90_s": self.step_s, "p99_s": self.step_s * 1.1,
                        "max_s": self.step_s * 1.1, "histogram": [[self.step_s, steps - 1], [self.step_s * 1.1, 1]]},
            **({"by_batch": self.by_batch(steps)} if rank.serves else {}),
            "flop": flop if rank.flop_known else None, "bytes": 0.2 * H100_BYTES * elapsed if rank.flop_known else None,
            "mfu": ideal, "mfu_busy": ideal / (1 - idle - copy) if known else None, "hfu": ideal * 1.25 if known else None,
            "mbu": 0.2 if known else None, "roofline_s": None, "bound": "compute" if known else None, "clock_ratio": 0.97,
            "suspect": None, "overlapped": False, "time_s": time_s, "lost": lost,
            "top_kernels": [{"name": f"sm90_xmma_gemm_bf16_{i}", "class": "gemm", "count": 100, "sum_s": 1.0 - i / 10}
                            for i in range(8)],
            "energy": {"joules": 650 * elapsed, "error": 13, "method": "counter", "idle_w": 95, "tokens": 8192 * steps,
                       "output_tokens": 0},
            "joules_per_token": 650 * elapsed / (8192 * steps) if steps else None,
            "named_by": "range"}

    def by_batch(self, steps):
        """A pass in five had a small batch."""
        return [{"unit": "sequences", "batch_min": low, "batch_max": high, "instances": n, "tokens": n * high,
                 "elapsed_s": n * self.step_s, "flop": None, "bytes": None, "mfu": None, "mbu": None,
                 "latency_s": {"count": n, "p50": self.step_s, "p90": self.step_s, "p99": self.step_s, "max": self.step_s,
                               "histogram": [[self.step_s, n]]}}
                for low, high, n in ((1, 1, steps // 5), (17, 32, steps - steps // 5))]

    def latest(self, window):
        for rank in self.ranks:
            rank.jitter = abs(self.random.gauss(0, self.jitter_s)) if self.jitter_s else 0.0
        alive = [r for r in self.ranks if r.dies_after is None or window < r.dies_after]
        return max((r.late_s + r.jitter for r in alive), default=0.0)

    def lines(self, first, windows):
        """(rank, line) of `windows` windows from number `first` on, without start and end."""
        for window in range(first, first + windows):
            latest_s = self.latest(window)
            for rank in self.ranks:
                if rank.dies_after is not None and window >= rank.dies_after:
                    continue
                written = self.start_ns + round((rank.clock_ahead_s + (window + 1) * self.interval_s + 0.2) * GIGA)
                for k, name in enumerate(("step", "total")):
                    line = {"v": rank.version, "type": "window", "t_ns": written, "seq": 1 + 2 * window + k}
                    line.update(self.region(rank, name, window, latest_s))
                    if name == "total":
                        line["latency"] = None
                        line["instances"] = 0
                        line["counters"] = {"records_dropped": rank.dropped} if rank.dropped else {}
                        line["self"] = {"cpu_s": 0.01 * (window + 1), "rss_bytes": 20 << 20, "overhead": 0.002}
                    yield rank, line

    def end_line(self, rank, windows):
        latest_s = self.latest(0)
        regions = [self.region(rank, name, 0, latest_s) for name in ("step", "total")]
        now = self.start_ns + round((rank.clock_ahead_s + windows * self.interval_s + 0.3) * GIGA)
        return {"v": rank.version, "type": "end", "t_ns": now, "seq": 1 + 2 * windows, "t0_ns": self.start_ns, "t1_ns": now,
                "regions": regions, "launches": {"seen": 10, "attributed": 10, "outside": 0, "unattributed": 0, "dropped": 0},
                "self": {"cpu_s": 0.1, "rss_bytes": 20 << 20, "overhead": 0.002}, "counters": {}}

    def write(self, directory, windows=6):
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        texts = {rank: [json.dumps(self.start_line(rank))] for rank in self.ranks}
        for rank, line in self.lines(0, windows):
            texts[rank].append(json.dumps(line))
        for rank, text in texts.items():
            if rank.ends:
                text.append(json.dumps(self.end_line(rank, windows)))
            (directory / rank.file).write_text("\n".join(text) + "\n")

    def append(self, directory, first, windows=1):
        for rank, line in self.lines(first, windows):
            with open(pathlib.Path(directory) / rank.file, "a") as file:
                file.write(json.dumps(line) + "\n")
