# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What it costs a controller to say in check mode what an upgrade of many nodes would do.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.rollout.check [--nodes 2000] [--forks 50] [--limit-s 180]

The real playbook with --check over stand-in nodes. Counted is the CPU time of ansible-playbook and of all that it
started; the modules, which on a fleet run on the nodes, are not, and neither is ssh, which this does without. Beside
it, in the same run, stands ansible.builtin.ping over the same nodes: the least that asking each of them once costs.
Exits with 1 if it was more than the limit.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
LEAST = "- hosts: gpu_nodes\n  gather_facts: false\n  tasks:\n    - ansible.builtin.ping:\n"


def cost(run, timeout_s):
    """(CPU seconds, wall seconds) of a run to its end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        run.wait(timeout_s)
    finally:
        run.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=2000, help="nodes of the plan (default %(default)s)")
    parser.add_argument("--forks", type=int, default=50, help="forks of ansible-playbook (default %(default)s)")
    parser.add_argument("--limit-s", type=float, default=180.0, help="CPU seconds (default %(default)s)")
    parser.add_argument(
        "--timeout", type=int, default=3600, help="wall seconds for each of the two runs (default %(default)s)"
    )
    options = parser.parse_args()
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import fleet

    found = {}
    for name in ("check", "ping"):
        with tempfile.TemporaryDirectory(prefix="gpufleet-bench-", ignore_cleanup_errors=True) as place:
            run = fleet.Run(pathlib.Path(place), "window", [[0.0] * 5] * options.nodes, 10, 1, options.forks)
            if name == "ping":
                (run.collection / "playbooks" / "upgrade.yml").write_text(LEAST)
            run.start(*(["--check"] if name == "check" else []))
            found[name] = cost(run, options.timeout)
            lines = len(run.output().splitlines())
        print("%-6s %6.1f s of CPU time, %6.1f s, %d lines of output" % (name + ":", *found[name], lines), flush=True)
    kept = found["check"][0] <= options.limit_s
    print(
        "%d nodes: %.0f ms of CPU time for each, %.1f times a ping of all (limit %g s)"
        % (
            options.nodes,
            found["check"][0] * 1000 / options.nodes,
            found["check"][0] / found["ping"][0],
            options.limit_s,
        )
    )
    print("limit kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
