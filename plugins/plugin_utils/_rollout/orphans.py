# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that another rollout of the same ledger left in flight when its run broke off, beside the nodes of this one.

They are out of service, or about to be, and no slot of this rollout counts them.
"""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import domains
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import listed


def find(transaction, names, abandoned=(), now=None):
    """(rollout id, node) of those that are neither among NAMES nor ABANDONED. A rollout that may still be run sees to its own."""
    found = [(other_id, node) for other_id, node in transaction.in_flight_beside(names) if node.name not in abandoned]
    running = {other_id for other_id, record in transaction.owners() if owner.running(record, now)} if found else ()
    return [(other_id, node) for other_id, node in found if other_id not in running]


def described(found):
    """What the plan says of them, a line for each rollout."""
    lines = []
    for rollout in dict.fromkeys(other_id for other_id, dummy in found):
        mine = ["%s is %s" % (node.name, node.state) for other_id, node in found if other_id == rollout]
        lines.append(
            "rollout %s broke off with %s in flight, which %s no slot here (%s): run it again first (rollout_id=%s), or count them with "
            "rollout_broken_elsewhere=%d" % (rollout, "1 node" if len(mine) == 1 else "%d nodes" % len(mine), "takes" if len(mine) == 1 else "take",
                                             listed(mine), rollout, len(mine)))
    return lines


def refusal(found, order, nodes, caps):
    """Why nodes of the plan may not go beside them: they share a failure domain of which only so many may be out; empty where none does.

    ORDER are the names of the nodes that go, NODES the plan's entries by name, CAPS the most of one domain that may be out, by its key.
    """
    mine = {}
    for name in order:
        for place in domains.places(nodes[name]["domains"]):
            mine.setdefault(place, name)
    for rollout, node in found:
        for key, domain in domains.places(node.domains):
            if key in caps and (key, domain) in mine:
                return (
                    "%s is %s in rollout %s, whose run broke off, and shares the %s %s with %s: at most %d of one %s may be out "
                    "(rollout_domain_caps). Run that rollout again first (rollout_id=%s), which finishes the node or puts it back; or go on "
                    "without it, with rollout_abandon=%s. Nothing was changed."
                    % (node.name, node.state, rollout, key, domain, mine[key, domain], caps[key], key, rollout, node.name))
    return ""
