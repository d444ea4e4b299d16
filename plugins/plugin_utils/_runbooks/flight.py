# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell if a rollout has a node in flight, by the claim on the node and by the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import joining

NEXT = (
    "Let that rollout finish, or run it again, which finishes the node or puts it back (docs/runbooks/quarantine.md). "
    "Nothing was changed."
)


def explain_holder(marks: Mapping[str, Any], states: Mapping[str, str], ledger_id: str | None) -> str:
    """Return why the node belongs to a rollout; empty if it belongs to none.

    MARKS is the answer of node_state, or an empty mapping of a node that does not answer; STATES its state in every
    rollout of the ledger.
    """
    flying = [
        "rollout %s has it in flight (%s in its ledger)" % (name, found)
        for name, found in sorted(states.items())
        if found in state.IN_FLIGHT
    ]
    if flying:
        return "%s. %s" % (flying[0], NEXT)
    if not marks:
        return ""
    if marks.get("problem") or "claim" not in marks:
        return "it cannot be told whether a rollout has it: %s. Look at the file. Nothing was changed." % (
            str(marks.get("problem") or marks.get("msg") or "its claim was not read").rstrip(". ")
        )
    found = marks["claim"]
    if not found or found["state"] != claim.HELD:
        return ""
    own = ledger_id is not None and found["ledger"] == ledger_id
    if own and states.get(found["rollout_id"]) in joining.SETTLED:
        return ""  # its controller ended between the two entries
    return "it is %s%s. %s" % (claim.describe_owner(found), "" if own else ", of another ledger", NEXT)
