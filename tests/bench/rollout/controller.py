# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What precheck, upgrade, and upgrade in check mode cost a controller, by the number of nodes.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.rollout.controller [--nodes 10,50,200] [--forks 50]

The real playbooks over stand-in nodes that take no time, each time beside ansible.builtin.ping over the same nodes.
Counted are the CPU time of ansible-playbook and of all that it started, without the modules, which on a fleet run on
the nodes, and without ssh; and the host-tasks of the node with the most of them.
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
PING = "- hosts: gpu_nodes\n  gather_facts: false\n  tasks:\n    - ansible.builtin.ping:\n"
PLAYBOOKS = ("ping", "precheck", "check", "upgrade")  # "check" is upgrade --check
REPORT = ("plugins/action/health_report.py", "plugins/modules/health_report.py")  # of precheck, and of no course
GIVEN = {
    "precheck": {"precheck_expected_driver_version": "1.0.1"},
    "upgrade": {"rollout_max_down": "100%", "gpu_node_upgrade_gate_poll": 0.5},
}


def measure_cost(run, timeout_s):
    """Return the CPU and the wall seconds of a run to its end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        run.wait(timeout_s)
    finally:
        run.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began


def host_tasks(counted):
    """The most host-tasks of one node, in all plays; those of the controller are left out."""
    found = {}
    for hosts in counted.values():
        for host, tasks in hosts.items():
            if host != "localhost":
                found[host] = found.get(host, 0) + len(tasks)
    # What is done once for all is done on the first node.
    return sorted(found.values())[len(found) // 2]


def measure(fleet, name, nodes, forks, timeout_s):
    """(CPU seconds, wall seconds, host-tasks of a node) of a playbook."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-", ignore_cleanup_errors=True) as place:
        run = fleet.Run(pathlib.Path(place), "window", [[0.0] * 5] * nodes, nodes, 1, forks)
        for node in run.names:  # otherwise they would be one machine under many names
            run.fleet.change(node, gpus=["GPU-%s-%d" % (node, number) for number in range(8)])
        for part in REPORT:
            fleet.conftest.collection.link(ROOT / part, run.collection / part)
        if name == "ping":
            (run.collection / "playbooks" / "ping.yml").write_text(PING)
        playbook, arguments = ("upgrade", ["--check"]) if name == "check" else (name, [])
        run.process = run.begin(playbook, *arguments, **GIVEN.get(playbook, {}))
        cpu_s, wall_s = measure_cost(run, timeout_s)
        return cpu_s, wall_s, host_tasks(run.host_tasks())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", default="10,50,200", help="numbers of nodes (default %(default)s)")
    parser.add_argument("--forks", type=int, default=50, help="forks of ansible-playbook (default %(default)s)")
    parser.add_argument("--playbooks", default=",".join(PLAYBOOKS), help="default %(default)s")
    parser.add_argument("--timeout", type=int, default=3600, help="wall seconds of a playbook (default %(default)s)")
    options = parser.parse_args()
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    from ansible_collections.gpufleet.lifecycle.tests.bench.rollout import fleet

    for nodes in map(int, options.nodes.split(",")):
        ping_s = None
        for name in ["ping"] + [name for name in options.playbooks.split(",") if name != "ping"]:
            cpu_s, wall_s, tasks = measure(fleet, name, nodes, max(options.forks, nodes), options.timeout)
            ping_s = ping_s or cpu_s
            print(
                "%4d nodes, %-9s %6.1f s of CPU time (%4.0f ms a node, %5.1f pings), %6.1f s, %d host-tasks a node"
                % (nodes, name + ":", cpu_s, cpu_s * 1000 / nodes, cpu_s / ping_s, wall_s, tasks),
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
