# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many host-tasks a node costs on its way through upgrade.yml: {play: {host: [task, ...]}} of the callback hosttasks in, numbers out.

A host-task is one task started on one host, argument validation and skipped ones included.
"""

from __future__ import annotations

import collections

LIMIT, PREFLIGHT = 40, 3
SCHEDULER = 13  # what one scheduler may add


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


def too_many(counted, names):
    """What is over a limit, with the tasks; empty when both are kept."""
    before, then = preflight(counted, names), way(counted, names)
    lists = {"in the preflight": (before, PREFLIGHT), "in all": (before + then, LIMIT)}
    return "\n".join(
        "%d host-tasks of a node %s, at most %d:\n%s" % (len(tasks), where, limit, "\n".join("%3d. %s" % item for item in enumerate(tasks, start=1)))
        for where, (tasks, limit) in lists.items() if len(tasks) > limit)
