# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much memory a controller needs for as many nodes in flight.

    tests/tools/with.sh main python3 -m tests.bench.rollout.memory [--nodes 500] [--limit-gb 6] [--timeout 3600] [--apart]

The real playbook over stand-in nodes, all of which may go at a time: each has its leave and is in its first step, which takes longer than anybody waits.
From its start on the memory of ansible-playbook and all its workers is added up, by their PSS: pages that processes share count once, in equal parts. Judged is
the most that was seen, on the way there and while every node was in flight. Then the run is ended. Exits with 1 if it was more than the limit.

The run has the callback many_nodes, and while it lasts the kernel merges equal pages, whose cost is told; with --apart it does not. The kernel's
settings for that are put back at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOR_EVER_S = 10.0 ** 6
GB = 10 ** 9
LEAVE = 3 * GB  # for everybody else on this machine
KSM = pathlib.Path("/sys/kernel/mm/ksm")
# What docs/runbooks/rollout.md tells to set; run comes last.
SETTINGS = {"pages_to_scan": "4000", "sleep_millisecs": "20", "run": "1"}


def pss(pid):
    """Bytes of one process, shared pages by its part; None of one that has ended."""
    try:
        with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as stream:
            return sum(int(line.split()[1]) * 1024 for line in stream if line.startswith("Pss:"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def command_line(pid):
    """What a process was started with, as bytes; empty of one that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path("/proc/%d/cmdline" % pid).read_bytes()
    return b""


def sample(pids):
    """(bytes of all, bytes of the first, number of the others) of the first process and its copies: what else they start runs on the nodes in earnest."""
    copies = [pid for pid in pids if command_line(pid) == command_line(pids[0])]
    sizes = [size for size in map(pss, copies) if size is not None]
    return sum(sizes), sizes[0] if sizes else 0, max(0, len(sizes) - 1)


@contextlib.contextmanager
def merging():
    """While this lasts, the kernel merges pages; its settings are put back, and what it merged is kept apart again."""
    if not KSM.exists():
        raise SystemExit("this kernel merges no pages: there is no %s (CONFIG_KSM)" % KSM)
    before = {name: (KSM / name).read_text().strip() for name in SETTINGS}
    try:
        for name, value in SETTINGS.items():
            (KSM / name).write_text(value)
        yield
    finally:
        (KSM / "run").write_text("2")
        for name, value in before.items():
            (KSM / name).write_text(value)


def merger_s():
    """Seconds of CPU that the kernel's merging has taken so far."""
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name, dummy, rest = path.read_text().partition(") ")
            if name.endswith("(ksmd"):
                fields = rest.split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)
    return 0.0


def in_flight(run):
    """How many nodes are in the step in which they stay."""
    return sum(1 for node in run.view().nodes.everything() if node.steps and node.steps[-1].name == "evidence")


def available():
    """Bytes that this machine still has for anybody."""
    with open("/proc/meminfo", encoding="ascii") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:"))


def watch(run, tree, number, timeout_s, every_s):
    """(most on the way, samples while all are in flight), each (bytes of all, of the first, number of workers)."""
    way, there, began, told = [], [], time.monotonic(), 0.0
    while len(there) < 5:
        if run.process.poll() is not None:
            raise SystemExit("the run ended with %d before all nodes were in flight:\n%s" % (
                run.process.returncode, (run.place / "output").read_text()[-3000:]))
        if time.monotonic() - began > timeout_s:
            raise SystemExit("after %d s %d of %d nodes were in flight" % (timeout_s, in_flight(run), number))
        now = sample(tree(run.process.pid))
        way.append(now)
        if available() < LEAVE:
            raise SystemExit("LIMIT NOT KEPT: ended at %.2f GB with %d workers, before this machine had less than %.0f GB left" % (
                now[0] / GB, now[2], LEAVE / GB))
        flying = in_flight(run)
        # The step is opened before its task has its worker.
        if flying == number and now[2] == number:
            there.append(now)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print("  after %4d s: %d of %d nodes in flight, %d workers, %.2f GB" % (told - began, flying, number, now[2], now[0] / GB), flush=True)
        time.sleep(every_s)
    return max(way), there


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=500, help="nodes in flight (default %(default)s)")
    parser.add_argument("--limit-gb", type=float, default=6.0, help="of 10^9 bytes (default %(default)s)")
    parser.add_argument("--timeout", type=int, default=3600, help="seconds until all are in flight (default %(default)s)")
    parser.add_argument("--apart", action="store_true", help="without merging pages")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks (default %(default)s)")
    options = parser.parse_args()
    if options.nodes < 1:
        parser.error("expected at least one node")
    if os.geteuid():
        parser.error("the memory of all processes is only told to root")
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import fleet

    times = [[FOR_EVER_S, 0.0, 0.0, 0.0]] * options.nodes
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpufleet-bench-", ignore_cleanup_errors=True))
        if not options.apart:
            stack.enter_context(merging())
        run = fleet.Run(pathlib.Path(name), "window", times, options.nodes, 1, options.nodes, () if options.apart else ("many_nodes",))
        began, merged_s = time.monotonic(), merger_s()
        try:
            run.start()
            most, there = watch(run, fleet.tree, options.nodes, options.timeout, options.every)
            took, merged_s = time.monotonic() - began, merger_s() - merged_s
        finally:
            run.stop()
    whole, first, workers = max(there)
    kept = most[0] <= options.limit_gb * GB
    print("memory of ansible-playbook and its workers (sum of PSS), %d nodes in flight, after %d s:" % (options.nodes, took))
    print("  while all are in flight: %.2f GB (the playbook itself %.2f GB, and %.1f MB for each of %d workers)" % (
        whole / GB, first / GB, (whole - first) / max(1, workers) / 10 ** 6, workers))
    print("  most at any time: %.2f GB with %d workers (limit %g GB)" % (most[0] / GB, most[2], options.limit_gb))
    print("  pages are %s" % ("kept apart" if options.apart else "merged by the kernel, which took it %.0f s of CPU" % merged_s))
    print("limit kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
