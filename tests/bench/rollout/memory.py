# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much memory a controller needs for as many nodes in flight.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.rollout.memory [--nodes 100] [--limit-mb 35] [--timeout 3600]

The real playbook over stand-in nodes, all of which may go at a time: each downloads its packages, which takes longer
than the benchmark. From its start the memory of ansible-playbook and all its workers is added up, by their PSS: pages
that processes share count once, in equal parts. Judged is the most that was seen while every node was in flight,
divided by their number. Then the run is ended. Exits with 1 if it was more than the limit.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOR_EVER_S = 10.0**6
MB, GB = 10**6, 10**9
RESERVE = 3 * GB  # for everything else on this machine
SAMPLES = 12  # while all are in flight


def pss(pid):
    """Bytes of one process, shared pages by its part; None of one that has ended."""
    try:
        with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as stream:
            return sum(int(line.split()[1]) * 1024 for line in stream if line.startswith("Pss:"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def command_line(pid):
    """What a process was started with; empty of one that has ended."""
    try:
        return pathlib.Path("/proc/%d/cmdline" % pid).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def sample(pids):
    """(bytes of all, bytes of the first, number of the others) of the first process and its copies: what else they
    start runs on the nodes in earnest.
    """
    copies = [pid for pid in pids if command_line(pid) == command_line(pids[0]) != b""]
    sizes = [size for size in map(pss, copies) if size is not None]
    return sum(sizes), sizes[0] if sizes else 0, max(0, len(sizes) - 1)


def in_flight(run):
    """How many nodes are at work on what takes so long."""
    return sum('"at": "download"' in path.read_text() for path in run.nodes.glob("*/node.json"))


def available():
    """Bytes that this machine still has for anybody."""
    with open("/proc/meminfo", encoding="ascii") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:"))


def watch(run, tree, number, timeout_s, every_s):
    """Samples while all are in flight, each (bytes of all, of the first, number of workers)."""
    there, began, told = [], time.monotonic(), 0.0
    while len(there) < SAMPLES:
        if run.process.poll() is not None:
            raise SystemExit(
                "the run ended with %d before all nodes were in flight:\n%s"
                % (run.process.returncode, run.output()[-3000:])
            )
        if time.monotonic() - began > timeout_s:
            raise SystemExit("after %d s %d of %d nodes were in flight" % (timeout_s, in_flight(run), number))
        now = sample(tree(run.process.pid))
        if available() < RESERVE:
            raise SystemExit(
                "LIMIT NOT KEPT: ended at %.2f GB with %d workers, before this machine had less than %.0f GB left"
                % (now[0] / GB, now[2], RESERVE / GB)
            )
        flying = in_flight(run)
        if flying == number:
            there.append(now)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(
                "  after %4d s: %d of %d nodes in flight, %d workers, %.2f GB"
                % (told - began, flying, number, now[2], now[0] / GB),
                flush=True,
            )
        time.sleep(every_s)
    return there


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=100, help="nodes in flight (default %(default)s)")
    parser.add_argument(
        "--limit-mb", type=float, default=35.0, help="of 10^6 bytes for each node in flight (default %(default)s)"
    )
    parser.add_argument(
        "--timeout", type=int, default=3600, help="seconds until all are in flight (default %(default)s)"
    )
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks (default %(default)s)")
    options = parser.parse_args()
    if options.nodes < 1:
        parser.error("expected at least one node")
    if os.geteuid():
        parser.error("the memory of all processes is only told to root")
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import fleet

    times = [[0.0, 0.0, 0.0, 0.0, FOR_EVER_S]] * options.nodes
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-", ignore_cleanup_errors=True) as name:
        run = fleet.Run(pathlib.Path(name), "window", times, options.nodes, 1, options.nodes)
        began = time.monotonic()
        try:
            run.start()
            there = watch(run, fleet.tree, options.nodes, options.timeout, options.every)
            took = time.monotonic() - began
        finally:
            run.stop()
    whole, first, number = max(there)
    kept = whole / options.nodes <= options.limit_mb * MB
    print(
        "memory of ansible-playbook and its workers (sum of PSS), %d nodes in flight after %d s:"
        % (options.nodes, took)
    )
    print("  %.2f GB, of which the playbook itself %.2f GB and %d workers" % (whole / GB, first / GB, number))
    print("  %.1f MB for each node in flight (limit %g MB)" % (whole / options.nodes / MB, options.limit_mb))
    print("limit kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
