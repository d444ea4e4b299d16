# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The estimated end of a rollout, from the time that its nodes took so far. Pure, standard library only."""

from __future__ import annotations

import heapq


def median(values) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def estimate_remaining(pending, ages, slots, durations, node_s) -> tuple[float, float]:
    """Return (expected, lower bound) in seconds until all nodes have ended, with SLOTS at a time.

    PENDING is the number of pending nodes, AGES the seconds since nodes in flight started. DURATIONS are the times of
    nodes that are done; NODE_S, from the policy, counts until there are any. The lower bound takes every node to be as
    fast as the fastest.
    """
    usual = median(durations) if durations else float(node_s)
    best = min(durations) if durations else float(node_s)
    slots = max(1, slots)
    busy = [max(0.0, usual - age) for age in ages]
    heap = [0.0] * max(0, slots - len(busy)) + busy
    heapq.heapify(heap)
    end = max(heap) if busy else 0.0
    for dummy in range(pending):
        clock = heapq.heappop(heap) + usual
        end = max(end, clock)
        heapq.heappush(heap, clock)
    left = [max(0.0, best - age) for age in ages]
    bound = max([pending and best] + left + [(pending * best + sum(left)) / slots])
    return end, min(bound, end)
