# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that an interrupted run of another rollout of the same ledger left in flight, and that are not in this rollout.

They are out of service, or soon will be, and hold no slot of this rollout.
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import domains
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import listed


def find(transaction, names, abandoned=()):
    """Return (rollout id, node) of those that are not in NAMES or ABANDONED. Running rollouts are left out."""
    found = [
        (other_id, node) for other_id, node in transaction.others.in_flight_beside(names) if node.name not in abandoned
    ]
    if not found:
        return []
    now = transaction.clock()
    running = {other_id for other_id, record in transaction.others.owners(now) if owner.running(record, now)}
    return [(other_id, node) for other_id, node in found if other_id not in running]


def described(found):
    """Return the notes of the plan about them, one line for each rollout."""
    lines = []
    for rollout in dict.fromkeys(other_id for other_id, dummy in found):
        mine = ["%s is %s" % (node.name, node.state) for other_id, node in found if other_id == rollout]
        lines.append(
            "rollout %s was interrupted with %s in flight, which %s no slot here (%s): run it again first "
            "(rollout_id=%s), or count them with rollout_broken_elsewhere=%d"
            % (
                rollout,
                "1 node" if len(mine) == 1 else "%d nodes" % len(mine),
                "holds" if len(mine) == 1 else "hold",
                listed(mine),
                rollout,
                len(mine),
            )
        )
    return lines


def refusal(found, order, nodes):
    """Return why the plan is refused beside them: they share a failure domain, capped or not. Empty if they share none.

    ORDER: the names of the nodes that start. NODES: the entries of the plan by name.
    """
    mine = {}
    for name in order:
        for place in domains.places(nodes[name]["domains"]):
            mine.setdefault(place, name)
    for rollout, node in found:
        for place in domains.places(node.domains):
            if place in mine:
                return (
                    "%s is %s in rollout %s, whose run was interrupted, and shares the %s %s with %s. Run that rollout "
                    "again first (rollout_id=%s): it finishes the node or rolls it back. Or continue without it, with "
                    "rollout_abandon=%s. Nothing was changed."
                    % (node.name, node.state, rollout, *place, mine[place], rollout, node.name)
                )
    return ""
