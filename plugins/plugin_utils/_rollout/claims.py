# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claims on nodes: whether a rollout may take a node that has one, and what happens to it at the end. And the nodes
that an interrupted run of another rollout of the ledger left in flight, which hold no slot of this one. Pure.
"""

from __future__ import annotations

import dataclasses
import socket

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import domains
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import list_names

RELEASED, QUARANTINED = "released", "quarantined"
# The document of a node with the claim of another rollout that this one may replace.
OVER = "claim-over"
# States in which a rollout of the same ledger is finished with a node. A claim that is still on it is left over from a
# controller that died before it removed the claim.
SETTLED = ("pending", "skipped", "done", "failed", "rolled_back")


@dataclasses.dataclass(frozen=True)
class Answer:
    why: str = ""  # why the node is refused
    over: bool = False  # True if its claim is of another rollout and may be replaced


def make_claim(node, ledger_id, rollout_id, attempt, run, plan, controller=None) -> dict:
    """Return the claim that is written to a node, with the name that the inventory has for it."""
    return {
        "node": node,
        "ledger": ledger_id,
        "rollout_id": rollout_id,
        "attempt": attempt,
        "run": run,
        "plan": plan,
        "controller": controller or socket.gethostname(),
    }


def is_admitted(found, ledger_id, rollout_id, attempts, elsewhere, abandoned=False, undo="") -> Answer:
    """Return whether this rollout may take a node with the claim FOUND.

    C(attempts) is the number of times that this rollout has taken it. C(elsewhere) is its state in the rollout of this
    ledger that the claim names (None: not in it). C(undo) is the rollout that this one rolls back.
    """
    if found is None:
        return Answer()
    own = ledger_id is not None and found["ledger"] == ledger_id
    if own and found["rollout_id"] == rollout_id:
        if found["attempt"] <= attempts:
            return Answer()
        if abandoned:
            return Answer(over=True)
        return Answer(
            "its claim is of attempt %d, and this ledger has %d: it is an older copy of the ledger that was "
            "used" % (found["attempt"], attempts)
        )
    if (
        abandoned
        or own
        and (elsewhere in SETTLED or (undo == found["rollout_id"] and elsewhere in state.OUT_OF_SERVICE))
    ):
        return Answer(over=True)
    there = (
        ", in another ledger"
        if not own
        else ", %s there" % elsewhere
        if elsewhere and elsewhere != found["state"]
        else ""
    )
    return Answer("it is %s%s" % (claim.describe_owner(found), there))


def describe_refusal(refused, found) -> str:
    """Return one message for all refused nodes. REFUSED: {name: why}; FOUND: {name: claim}."""
    name = min(refused)
    others = sorted(set(refused) - {name})
    ours = found[name]
    return (
        "%s cannot be taken: %s%s. Its driver may be only partly changed. Run that rollout again first (rollout_id=%s, "
        "with its ledger): it examines the node, and finishes it or rolls it back. Or take the node as it is, with "
        "rollout_abandon=%s in this run. Nothing was changed."
        % (
            name,
            refused[name],
            " (so are %s)" % list_names(others) if others else "",
            ours["rollout_id"],
            ",".join([name] + others[:4]),
        )
    )


def claim_after(ended) -> str | None:
    """Return what a node's final state does to its claim: RELEASED, QUARANTINED, or None if it stays as it is."""
    if ended in SETTLED:
        return RELEASED
    return QUARANTINED if ended == "quarantined" else None


def find_orphans(transaction, names, abandoned=()) -> list[tuple]:
    """Return (rollout id, node) of those that are not in NAMES or ABANDONED. Running rollouts are left out."""
    found = [
        (other_id, node) for other_id, node in transaction.others.in_flight_beside(names) if node.name not in abandoned
    ]
    if not found:
        return []
    now = transaction.clock()
    running = {other_id for other_id, record in transaction.others.find_owners(now) if owner.is_running(record, now)}
    return [(other_id, node) for other_id, node in found if other_id not in running]


def describe_orphans(found) -> list[str]:
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
                list_names(mine),
                rollout,
                len(mine),
            )
        )
    return lines


def refuse_beside(found, order, nodes) -> str:
    """Return why the plan is refused beside them: they share a failure domain, capped or not. Empty if they share none.

    ORDER: the names of the nodes that start. NODES: the entries of the plan by name.
    """
    mine = {}
    for name in order:
        for place in domains.list_places(nodes[name]["domains"]):
            mine.setdefault(place, name)
    for rollout, node in found:
        for place in domains.list_places(node.domains):
            if place in mine:
                return (
                    "%s is %s in rollout %s, whose run was interrupted, and shares the %s %s with %s. Run that rollout "
                    "again first (rollout_id=%s): it finishes the node or rolls it back. Or continue without it, with "
                    "rollout_abandon=%s. Nothing was changed."
                    % (node.name, node.state, rollout, *place, mine[place], rollout, node.name)
                )
    return ""
