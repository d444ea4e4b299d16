# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long nodes take, and what no order of them can beat. Pure.

"typical" is a node whose packages lie ready: minutes from a lognormal distribution around 12 with sigma 0.25; three
nodes in a hundred take 2.5 times as long, and one in a hundred comes back only after 45 minutes. The excess of such a
straggler is in one step.
"""

from __future__ import annotations

import heapq
import math
import random

STEPS = ("look", "install", "boot", "validate")
SHARES = (0.15, 0.30, 0.40, 0.15)


def typical(number, seed):
    """Seconds of each step, for each of NUMBER nodes."""
    draw = random.Random(seed)
    nodes = []
    for dummy in range(number):
        minutes = draw.lognormvariate(math.log(12), 0.25)
        parts = [share * draw.lognormvariate(0, 0.25) for share in SHARES]
        steps = [60 * minutes * part / sum(parts) for part in parts]
        luck = draw.random()
        total = sum(steps)
        if luck < 0.03:
            steps[draw.choice((1, 2))] += 1.5 * total
        elif luck < 0.04:
            steps[2] += max(0.0, 45 * 60 - total)
        nodes.append(steps)
    return nodes


def lower_bound(nodes, down):
    """No order of the nodes takes less time with so many of them down."""
    totals = [sum(steps) for steps in nodes]
    return max([sum(totals) / down, *totals])


def window(nodes, down):
    """Each slot takes the next node as soon as it is free."""
    slots = [0.0] * down
    for steps in nodes:
        heapq.heappush(slots, heapq.heappop(slots) + sum(steps))
    return max(slots)


def waves(nodes, down):
    """A wave begins when the slowest node of the one before is through: serial with the strategy free."""
    return sum(max(sum(steps) for steps in nodes[first : first + down]) for first in range(0, len(nodes), down))


def linear(nodes, down):
    """And each step begins when the slowest node of the wave is through the one before: serial with the strategy
    linear.
    """
    return sum(sum(max(column) for column in zip(*nodes[first : first + down])) for first in range(0, len(nodes), down))
