# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The heartbeat of a controller in the ledger, independent of its tasks.

An installation may take longer than a controller may be silent, and a playbook runs nothing beside its tasks. The
process in watcher.py therefore writes the heartbeat.
"""

from __future__ import annotations

import os
import select
import time

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, store

POLL_S = 0.5  # for kernels without pidfd_open, which do not report the end of a process


class Watch:
    """A process that is watched for its end, by its identity."""

    def __init__(self, identity, proc="/proc"):
        self.identity, self.proc, self.poll = identity, proc, None
        try:
            self.poll = select.poll()
            self.poll.register(os.pidfd_open(identity["pid"]), select.POLLIN)
        except (AttributeError, OSError):
            self.poll = None  # an old kernel, or no such process, which has_ended() finds

    def has_ended(self):
        """Return True if the process has ended. One that cannot be identified counts as alive while its pid exists."""
        seen = owner.seen(self.identity["pid"], self.proc)
        return seen == owner.GONE or (
            seen is not None and self.identity["started"] is not None and seen != self.identity["started"]
        )

    def ended(self, seconds):
        """Wait up to SECONDS for the end of the process; return True if it has ended."""
        deadline = time.monotonic() + seconds
        while not self.has_ended():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if not self.poll:
                time.sleep(min(POLL_S, left))
            elif self.poll.poll(left * 1000):
                return True
        return True


def record(ledger, identity, run, watch, now=None):
    """Write one heartbeat; False if the run no longer belongs to this controller."""
    if ledger.owner() is None:  # read first: a ledger that was removed must not be created again
        return False
    return ledger.transact(
        lambda transaction: not watch.ended(0) and members.record_heartbeat(transaction, identity, run, now)
    )


def keep_alive(ledger, identity, run, every_s):
    """Write heartbeats until the controller or its run has ended.

    True if the controller ended while it owned the run.
    """
    watch, going = Watch(identity), True
    while going and not watch.ended(every_s):
        try:
            going = record(ledger, identity, run, watch)
        except (store.StoreError, OSError):
            pass  # the database may come back
        ledger.store.rest()
    return going or watch.ended(0)
