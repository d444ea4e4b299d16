# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sign of life of the controller in the ledger, whatever its tasks are at.

An installation takes longer than a living controller may be silent, and nothing of a playbook runs beside its tasks: watcher.py is the process that
does this.
"""

from __future__ import annotations

import os
import select
import time

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, store

POLL_S = 0.5  # where the kernel tells nobody that a process has ended


class Watch:
    """A process by its identity: whether it has ended."""

    def __init__(self, identity, proc="/proc"):
        self.identity, self.proc, self.poll = identity, proc, None
        try:
            self.poll = select.poll()
            self.poll.register(os.pidfd_open(identity["pid"]), select.POLLIN)
        except (AttributeError, OSError):
            self.poll = None  # no such kernel, or no such process, which the next look sees

    def over(self):
        # One that cannot be told from another one is believed to live as long as its pid does.
        seen = owner.seen(self.identity["pid"], self.proc)
        return seen == owner.GONE or (seen is not None and self.identity["started"] is not None and seen != self.identity["started"])

    def ended(self, seconds):
        """Wait for its end, and no longer than SECONDS; whether it has come."""
        deadline = time.monotonic() + seconds
        while not self.over():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if not self.poll:
                time.sleep(min(POLL_S, left))
            elif self.poll.poll(left * 1000):
                return True
        return True


def beat(ledger, identity, run, watch, now=None):
    """Write one sign of life; False when there is no such run of this controller any more."""
    if ledger.owner() is None:  # only read: a ledger that was removed is not made anew
        return False
    return ledger.transact(lambda transaction: not watch.ended(0) and owner.beat(transaction, identity, run, now))


def serve(ledger, identity, run, every_s):
    """Write signs of life until the controller or its run has ended; whether the run was still its own when the controller had."""
    watch, going = Watch(identity), True
    while going and not watch.ended(every_s):
        try:
            going = beat(ledger, identity, run, watch)
        except (store.StoreError, OSError):
            pass  # a ledger that is away may come back
    return going or watch.ended(0)
