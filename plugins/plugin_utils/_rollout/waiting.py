# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time until a node that waits asks again, and when the controller says that nodes wait. Pure.

Thousands of nodes may wait, and each that asks is a transaction. Those that are next in the plan's order ask often, so
that a free slot is taken at once; the others ask seldom.
"""

from __future__ import annotations

# With so many nodes before it, a node asks half as often as the first one.
NEAR = 20
# Seconds between two questions at most, unless more are asked for: so late does the last node of a long queue hear of a
# pause that has ended.
LONGEST_S = 30.0
# More of them do not matter, if the first one asks every second.
MOST = 600
# A controller whose nodes wait says so this often: AWX and CI systems end jobs that print nothing for long.
SAID_EVERY_S = 300


def interval(poll_s, ahead):
    """Return the seconds until a node asks again. POLL_S: those of the first one. AHEAD: the nodes before it."""
    return min(max(LONGEST_S, poll_s), poll_s * (1 + ahead / NEAR))


def ahead(view, name, present):
    """Return the number of waiting nodes before this one in the plan's order, as far as it matters to interval().

    PRESENT: the hosts that count (None: all).
    """
    node = view.nodes.get(name)
    if node is None or node.position is None or node.state != "pending":
        return 0
    # If all of the plan are here, there are none to leave out.
    among = None if present is None or len(present) >= view.total else present
    return view.nodes.count_waiting_before(node.position, among, MOST)


def due(before, controller, now):
    """Return (True if the controller says now that nodes wait, {"controller", "time"} to keep until it asks again).

    BEFORE: what was kept, {} at first. CONTROLLER: what tells this run of a playbook from others. NOW: seconds since
    the epoch; where a clock was set back, the time begins again.
    """
    passed = now - before["time"] if before.get("controller") == controller else -1
    if 0 <= passed < SAID_EVERY_S:
        return False, before
    return passed >= SAID_EVERY_S, {"controller": controller, "time": now}
