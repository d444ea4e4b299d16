# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook's process, which begins tasks anew that were given up.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import heapq
import time

from ansible.plugins.strategy import StrategyBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking import lot

# What this needs of Ansible, all of it its own affair; core 2.18 to 2.21 have it.
METHODS = ("_queue_task", "_process_pending_results")
ATTRIBUTES = ("_queued_task_cache", "_pending_results")
# A look costs a fork and what Ansible does for a task: about this much of a core.
LOOK_CPU_S = 0.4
AGAIN_S = 10.0
LATE_S = 10.0
SHARE = 0.5  # of the cores at most, for all looks


def missing(strategy=StrategyBase):
    """What this ansible-core does not have, and without which no task would be begun anew."""
    made = strategy.__init__.__code__.co_names
    return [name for name in METHODS if not hasattr(strategy, name)] + [name for name in ATTRIBUTES if name not in made]


def spacing_s(parked, cores):
    """The least time between two looks for the same node, so that the looks of all leave cores for what computes."""
    return parked * LOOK_CPU_S / (SHARE * max(1, cores))


class Keeper:
    """Knows which tasks were given up and when they are due. ROOM() says whether another worker may start now."""

    def __init__(self, place, cores, room=lambda: True, clock=time.monotonic):
        self.place, self.cores, self.room, self.clock = place, cores, room, clock
        self.parked = []  # a heap of (due, number, key)
        self.number = 0

    def round(self, strategy):
        """Take note of what was given up, and begin anew what is due."""
        for host, task, seconds in self.place.arrivals():
            self.park((host, task), seconds)
        late = False
        while not late and self.parked and self.parked[0][0] <= self.clock():
            # Workers that take long hold up nobody for good: who is late is begun all the same, one a round.
            late = self.clock() - self.parked[0][0] >= LATE_S
            if not late and not self.room():
                break
            key = heapq.heappop(self.parked)[2]
            entry = strategy._queued_task_cache.get(key)
            if entry is None:
                continue  # of a play that was broken off
            counted = strategy._pending_results
            strategy._queue_task(entry["host"], entry["task"], entry["task_vars"], entry["play_context"])
            if strategy._pending_results == counted:
                # Ansible says nothing when no process could be started.
                self.park(key, AGAIN_S)
            # It was counted when it began first, and has one result in the end.
            strategy._pending_results = counted

    def park(self, key, seconds):
        """Have a task begun anew in so many seconds, or later if there are many."""
        self.number += 1
        heapq.heappush(self.parked, (self.clock() + max(seconds, spacing_s(len(self.parked) + 1, self.cores)), self.number, key))

    def serve(self, strategy=StrategyBase):
        """Have every strategy call this where it takes results."""
        taken = strategy._process_pending_results

        def process(this, *args, **kwargs):
            self.round(this)
            return taken(this, *args, **kwargs)

        strategy._process_pending_results = process


def make(place, cores, room=lambda: True):
    """Open a lot in a directory, and keep it."""
    lot.CURRENT = lot.Lot(place)
    keeper = Keeper(lot.CURRENT, cores, room)
    keeper.serve()
    return keeper
