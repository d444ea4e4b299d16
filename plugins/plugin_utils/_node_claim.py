# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claim on a node as the actions of a rollout hold, check and release it."""

from __future__ import annotations

import os
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import joining, requests

LOCKED_S = 600  # seconds to wait for the lock of a node that is not orphaned
REBOOTING_S = 5.0  # seconds between two attempts on a node that is about to reboot


class NodeClaim:
    """The claim on the node of a task. ACTION: rollout_gate or rollout_step. NODE: its name in the rollout."""

    def __init__(
        self, action: t.Any, arguments: t.Mapping[str, t.Any], node: str, task_vars: t.Mapping[str, t.Any]
    ) -> None:
        self.action, self.arguments, self.node, self.task_vars = action, arguments, node, task_vars
        self.directory = arguments["claim_dir"]

    def require_none(self) -> None:
        """Refuse a node that belongs to a rollout, outside of that rollout."""
        marks = self.action.on_node(self.task_vars, state="read", directory=self.directory)
        if marks.get("failed") or marks.get("problem"):
            raise state.StateError(
                "%s cannot be taken: %s. Nothing was changed." % (self.node, marks.get("problem") or marks.get("msg"))
            )
        if marks["claim"]:
            raise state.StateError(
                "%s cannot be taken outside of its rollout: it is %s. Its driver may be only partly changed. Run that "
                "rollout again first: it finishes the node or rolls it back. Or remove %s on the node to take it as it "
                "is. Nothing was changed."
                % (self.node, claim.describe_owner(marks["claim"]), os.path.join(self.directory, claim.NAME))
            )

    def hold(self, ledger: t.Any, mine: t.Mapping[str, t.Any], resume: str, other_ledger_s: int) -> str:
        """Claim the node for this attempt, and return the token for tasks that change it. If that fails, the node ends.

        Args:
            mine: The claim to write.
            resume: How far an earlier controller came with the node; such a node may be rebooting, or busy.
            other_ledger_s: How long a change by another ledger refuses the node.
        """
        deadline = time.monotonic() + self.arguments["claim_timeout_s"]
        while True:
            over = ledger.load(self.node, joining.OVER)
            ledger.store.rest()
            try:
                result = self.action.on_node(
                    self.task_vars,
                    state="held",
                    directory=self.directory,
                    content=mine,
                    over=over,
                    other_ledger_s=other_ledger_s,
                    lock_timeout_s=max(1, int(deadline - time.monotonic()) if resume else LOCKED_S),
                )
            except AnsibleConnectionFailure:
                if not resume or time.monotonic() >= deadline:
                    raise
                result = {"going_down": True}
            marker = result.get("quarantine") or {}
            if not result.get("failed") and marker.get("exists"):
                self.end_quarantined(ledger, marker, resume)
            if not result.get("failed") and not result.get("going_down"):
                return claim.make_token(mine, self.directory)
            if result.get("failed") or time.monotonic() >= deadline:
                break
            time.sleep(min(REBOOTING_S, max(0.0, deadline - time.monotonic())))
        why = "it could not be claimed: %s. Nothing was changed in this run" % (
            redaction.reason(result.get("msg") or "it is about to reboot").rstrip(". ")
        )
        self.end(ledger, "lost" if resume else "failed", why, state.LOST if resume else state.SOFT)

    def end_quarantined(self, ledger: t.Any, marker: t.Mapping[str, t.Any], resume: str) -> None:
        """End a node that an operator put in quarantine after the plan. It holds a down slot, and is no failure."""
        where = marker.get("path", "a marker")
        why = "it was put in quarantine after the plan: %s is on the node. Nothing was changed in this run" % where
        self.end(ledger, "quarantined", why, state.HARD if resume else state.SICK)

    def end(self, ledger: t.Any, ended: str, why: str, failure: str) -> None:
        """Record the final state of a node that has a ticket and was not changed, and fail."""
        controller = self.action.controller()

        def write(transaction) -> None:
            view = requests.open_view(transaction, ledger.rollout_id, controller)
            transaction.append("state", run=view.run, node=self.node, state=ended, reason=why, failure=failure)
            if state.nothing_left(view):
                transaction.append("end", run=view.run)

        ledger.transact(write)
        self.action.tell(ledger, self.arguments)
        raise state.StateError("%s: %s." % (self.node, why))

    def release(self, mine: t.Mapping[str, t.Any], ended: str) -> str:
        """Remove the claim, or mark it as quarantined, as the final state ENDED requires. The ledger has that already.

        Returns:
            Why it could not be updated; empty if it was, or if it stays as it is.
        """
        if not joining.claim_after(ended):
            return ""
        try:
            result = self.action.on_node(
                self.task_vars,
                state=joining.claim_after(ended),
                directory=self.directory,
                content=mine,
                changed=ended in state.PROVEN,
            )
        except AnsibleError as exc:
            result = {"failed": True, "msg": redaction.describe(exc)}
        if not result.get("failed"):
            return ""
        return (
            "%s is %s in rollout %s, and its claim %s could not be updated: %s. Rollouts of other ledgers refuse the "
            "node until the file is removed."
            % (self.node, ended, mine["rollout_id"], os.path.join(self.directory, claim.NAME), result.get("msg"))
        )
