# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of a Slurm cluster, as tests ask about it and give it work on the host of its controller."""

from __future__ import annotations

from .scenario import wait_for


def state(host, node: str) -> str:
    return next(word for word in host.check_output("scontrol show node " + node).split() if word.startswith("State="))[
        len("State=") :
    ]


def reason(host, node: str) -> str:
    return host.check_output("sinfo --noheader --Node --nodes=%s --format=%%E" % node)


def submit(host, node: str, command: str, *options: str) -> str:
    """The number of a job on the node; it runs when this returns."""
    words = " ".join(("--parsable", "--chdir=/", "--output=/dev/null", "--time=30", "--nodelist=" + node, *options))
    number = host.check_output("sbatch " + words + " --wrap=%s", command)
    wait_for(lambda: job(host, number) == "RUNNING", "job %s does not run" % number)
    return number


def job(host, number: str) -> str:
    """Its state, as long as the controller remembers it."""
    return host.check_output("squeue --noheader --states=all --jobs=%s --format=%%T" % number)


def log(host, node: str, since: float) -> list[tuple[float, str]]:
    """When its controller was told to change the node's state, and to what, since a moment."""
    lines = host.check_output("journalctl -q -u slurmctld -o short-unix --since=@%d" % since).splitlines()
    words = "update_node: node %s state set to " % node
    told = [(float(line.split()[0]), line.split(words)[1]) for line in lines if words in line]
    return [(at, state_of) for at, state_of in told if at >= since]
