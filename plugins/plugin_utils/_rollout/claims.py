# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a rollout may have the nodes that say that they belong to one, and what becomes of a node's claim. Pure."""

from __future__ import annotations

import dataclasses
import socket

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import listed

RELEASED, QUARANTINED = "released", "quarantined"
# The document of a node that says which claim of another rollout this one may take over.
OVER = "claim-over"
# States in which a rollout of the same ledger has nothing to do with a node any more, whatever lies on it: its controller ended between the two entries.
SETTLED = ("pending", "skipped", "done", "failed", "rolled_back")


@dataclasses.dataclass(frozen=True)
class Answer:
    why: str = ""  # why the node is refused
    over: bool = False  # whether its claim is another rollout's and may be taken over


def mine(ledger_id, rollout_id, attempt, run, plan, controller=None):
    """What is written to a node."""
    return {"ledger": ledger_id, "rollout_id": rollout_id, "attempt": attempt, "run": run, "plan": plan, "controller": controller or socket.gethostname()}


def admits(found, ledger_id, rollout_id, attempts, elsewhere, abandoned=False, undo=""):
    """May this rollout have a node with the claim FOUND?

    C(attempts) is how often this rollout has taken it, C(elsewhere) its state in the rollout of this ledger that the claim names (None: it is not there),
    C(undo) the rollout that this one takes back.
    """
    if found is None:
        return Answer()
    own = ledger_id is not None and found["ledger"] == ledger_id
    if own and found["rollout_id"] == rollout_id:
        if found["attempt"] <= attempts:
            return Answer()
        if abandoned:
            return Answer(over=True)
        return Answer("its claim is of attempt %d, and this ledger knows of %d: it is an older copy of the one that was used" % (found["attempt"], attempts))
    if abandoned or own and (elsewhere in SETTLED or (undo == found["rollout_id"] and elsewhere in state.OUT_OF_SERVICE)):
        return Answer(over=True)
    there = ", in another ledger" if not own else ", %s there" % elsewhere if elsewhere and elsewhere != found["state"] else ""
    return Answer("it is %s%s" % (claim.described(found), there))


def refusal(refused, found):
    """One message for all nodes that are refused. REFUSED: {name: why}; FOUND: {name: claim}."""
    name = min(refused)
    others = sorted(set(refused) - {name})
    ours = found[name]
    return (
        "%s cannot be taken: %s%s. It may be half changed. Run that rollout again first (rollout_id=%s, with its ledger), which looks at the node and finishes "
        "it or puts it back; or take it as it is, with rollout_abandon=%s in this run. Nothing was changed."
        % (name, refused[name], " (so are %s)" % listed(others) if others else "", ours["rollout_id"], ",".join([name] + others[:4])))


def after(ended):
    """What becomes of the claim of a node that ended so: it is given up, or stays and says more; None: it stays as it is."""
    if ended in SETTLED:
        return RELEASED
    return QUARANTINED if ended == "quarantined" else None
