"""What a job of 10,000 ranks costs, as far as one machine holds it: files, bytes, processor time and memory of each part.

    tests/bench/clusters.py [RANKS [WINDOWS]]

A node is 8 ranks with 8 hours of windows of 10 s; the job is RANKS ranks (10,000) with one window and with WINDOWS (60):
from both follows what a process and what a row costs. Lines are made (tests/integration/fake_ranks.py).
"""

import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/integration"))

import fake_ranks  # noqa: E402

MFU = pathlib.Path(os.environ.get("MFU_BUILD_DIR", SOURCE / "build/release")) / "mfu"
ROWS = 2  # of a window


def run(*command):
    """(seconds of processor time, MB at most)."""
    child = subprocess.Popen([MFU, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def made(folder, ranks, windows):
    """Bytes of what make() writes, in another process: the memory of this one would count as that of those it starts."""
    maker = multiprocessing.Process(target=make, args=(folder, ranks, windows))
    maker.start()
    maker.join()
    assert maker.exitcode == 0
    return sum(f.stat().st_size for f in folder.iterdir())


def make(folder, ranks, windows):
    """Files of `ranks` processes, eight to a host: lines of one made rank under other names."""
    job = fake_ranks.Job(ranks=1, hosts=1, world=ranks)
    job.write(folder, windows=windows)
    first = folder / job.ranks[0].file
    text = first.read_text()
    first.unlink()
    host = job.ranks[0].host
    for number in range(ranks):
        own = text.replace('"rank": 0', f'"rank": {number}', 1).replace('"pid": 1000', f'"pid": {1000 + number}', 1)
        own = own.replace(f'"host": "{host}"', f'"host": "node{number // 8}"', 1)
        (folder / f"node{number // 8}-{number}-{1000 + number}.jsonl").write_text(own)


def show(what, seconds, mb, more=""):
    print(f"| {what} | {seconds:.2f} s | {mb:.0f} MB | {more} |", flush=True)


def node(folder):
    size = made(folder, 8, 2880)
    print(f"a node: 8 ranks x 8 h, {size / 1e6:.0f} MB in 8 files\n\n| | processor time | memory | |\n|---|---|---|---|")
    prom = folder.parent / "node.prom"
    seconds, mb = run("serve", folder, "--textfile", prom, "--once")
    show("`mfu serve`, start", seconds, mb, f"{sum(not line.startswith('#') for line in prom.open())} series, "
         f"{prom.stat().st_size / 1e3:.0f} kB")
    seconds, mb = run("collect", folder, "--to", folder.parent / "shared")
    show("`mfu collect`, all", seconds, mb, f"{size / 1e6 / seconds:.0f} MB/s")
    seconds, mb = run("collect", folder, "--to", folder.parent / "shared")
    show("`mfu collect`, nothing new", seconds, mb)
    seconds, mb = run("report", folder, "--markdown")
    show("`mfu report`", seconds, mb)


def job(folder, ranks, many):
    print(f"\na job: {ranks} ranks\n\n| | processor time | memory | |\n|---|---|---|---|")
    sizes, costs = [], []
    for windows in (1, many):
        size = made(folder / str(windows), ranks, windows)
        for command in (["report", folder / str(windows), "--markdown"], ["top", folder / str(windows), "--once"],
                        ["serve", folder / str(windows), "--textfile", folder / "job.prom", "--once"]):
            begin = time.monotonic()
            seconds, mb = run(*command)
            show(f"`mfu {command[0]}`, {windows} window{'s' * (windows > 1)}, {size / 1e6:.0f} MB", seconds, mb,
                 f"{time.monotonic() - begin:.1f} s")
            if command[0] == "report":
                sizes.append(size)
                costs.append((seconds, mb))
    row = (costs[1][0] - costs[0][0]) / (ranks * ROWS * (many - 1))
    rank = costs[0][0] / ranks - ROWS * row
    print(f"\n`mfu report`: {1e6 * rank:.0f} us a rank and {1e6 * row:.1f} us a row; "
          f"{(sizes[1] - sizes[0]) / (ranks * ROWS * (many - 1)):.0f} bytes a row; "
          f"{1e3 * (costs[1][1] - costs[0][1]) / (ranks * ROWS * (many - 1)):.2f} kB of memory a row")
    print(f"series of the job {sum(not line.startswith('#') for line in (folder / 'job.prom').open())}, "
          f"{(folder / 'job.prom').stat().st_size / 1e6:.1f} MB")
    for name, interval in (("10 s", 10), ("60 s", 60)):
        rows = ranks * ROWS * 8 * 3600 / interval
        size = rows * (sizes[1] - sizes[0]) / (ranks * ROWS * (many - 1))
        print(f"8 hours, windows of {name}: {rows:.3g} rows, {size / 1e9:.1f} GB, `mfu report` {rank * ranks + row * rows:.0f} s")


def main():
    ranks, many = int(sys.argv[1]) if sys.argv[1:] else 10_000, int(sys.argv[2]) if sys.argv[2:] else 60
    with tempfile.TemporaryDirectory(prefix="mfu-clusters-") as directory:
        node(pathlib.Path(directory) / "node")
        job(pathlib.Path(directory) / "job", ranks, many)


if __name__ == "__main__":
    main()
