# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many host-tasks a node costs on its way through upgrade.yml: {play: {host: [task, ...]}} of the callback
hosttasks in, numbers out.

A host-task is one task started on one host, argument validation and skipped ones included.
"""

from __future__ import annotations

import collections
import re

LIMIT, PREFLIGHT = 60, 3
# What one scheduler adds to the way of a node, task by task, beside what a node without one skips. The limit is that of
# a node without one.
SCHEDULER = (
    # Out of service, while the node holds no down slot. It is the role that knows the order of several schedulers.
    "Validating arguments against arg spec 'drain' | ansible.builtin.validate_argument_spec",
    "Read the state in Slurm, which comes second | ansible.builtin.include_tasks",
    "Check Kubernetes, which comes second | ansible.builtin.include_tasks",
    "Drain it in Slurm, which comes first | ansible.builtin.include_tasks",
    "Drain the node in Slurm, and wait for its jobs | gpufleet.lifecycle.slurm_node",
    "Drain it in Kubernetes | ansible.builtin.include_tasks",
    "Drain it in Slurm, which comes second | ansible.builtin.include_tasks",
    "Verify that its GPUs are idle | ansible.builtin.include_tasks",
    "Record on the node that it is drained, which silences its alerts | gpufleet.lifecycle.node_state",
    # Whose drain it is: a failure later on has to know whether it is ours to lift.
    "Set the facts of the node in its schedulers | ansible.builtin.set_fact",
    # Into service again, with the arguments that the drain validated.
    "Resume it in Slurm, which came second | ansible.builtin.include_tasks",
    "Resume it in Kubernetes | ansible.builtin.include_tasks",
    "Resume it in Slurm, which came first | ansible.builtin.include_tasks",
    "Resume the node in Slurm | gpufleet.lifecycle.slurm_node",
    "Set the facts of the node in its schedulers | ansible.builtin.set_fact",
    "Remove the record of the drain from the node | gpufleet.lifecycle.node_state",
)
# What a node in MIG mode has beside what another skips.
MIG = (
    "Step mig_clear | gpufleet.lifecycle.rollout_step",
    "Destroy the MIG instances | gpufleet.lifecycle.gpu_mig",
    "Check the node without MIG instances | gpufleet.lifecycle.gpu_health",
    "Fail if MIG hid something bad | ansible.builtin.fail",
    "Step mig | gpufleet.lifecycle.rollout_step",
    "Restore the MIG mode, without instances | gpufleet.lifecycle.gpu_mig",
    "Read what NVML does not report while MIG instances exist | gpufleet.lifecycle.gpu_health",
    "Create the MIG layout again | gpufleet.lifecycle.gpu_mig",
)


def of_play(counted, first_word):
    """{host: [task, ...]} of the play."""
    return next(hosts for play, hosts in counted.items() if play.startswith(first_word))


def once_for_all(counted, names):
    """Tasks of the preflight that are done once for all nodes; they run on the first of NAMES."""
    plan = of_play(counted, "Plan")
    return list((collections.Counter(plan.get(names[0], [])) - collections.Counter(plan.get(names[1], []))).elements())


def preflight(counted, names):
    """Tasks of the node with the most of them before the rollout."""
    plan = of_play(counted, "Plan")
    once = collections.Counter(once_for_all(counted, names))
    return max((list((collections.Counter(plan.get(name, [])) - once).elements()) for name in names), key=len)


def way(counted, names):
    """Tasks of the node with the most of them on its way, in order."""
    upgrade = of_play(counted, "Upgrade")
    return max((upgrade.get(name, []) for name in names), key=len)


def added(counted, name, other):
    """Tasks that the node NAME has beyond those of the node OTHER, without the name of the role and the words of an
    argument specification.
    """
    upgrade = of_play(counted, "Upgrade")
    more = collections.Counter(upgrade[name]) - collections.Counter(upgrade[other])
    return sorted(
        re.sub(r"(arg spec '\w+') - .*( \| \S+)$", r"\1\2", re.sub(r"^\S+ : ", "", task)) for task in more.elements()
    )


def too_many(counted, names):
    """What is over a limit, with the tasks; empty when both are kept."""
    before, then = preflight(counted, names), way(counted, names)
    lists = {"in the preflight": (before, PREFLIGHT), "in all": (before + then, LIMIT)}
    return "\n".join(
        "%d host-tasks of a node %s, at most %d:\n%s"
        % (len(tasks), where, limit, "\n".join("%3d. %s" % item for item in enumerate(tasks, start=1)))
        for where, (tasks, limit) in lists.items()
        if len(tasks) > limit
    )
