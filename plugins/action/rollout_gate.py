# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask for leave to take a node down."""

from __future__ import annotations

import random
import time

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_gate import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, ledger, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.action import RolloutAction, progress, refresh_report


def policy_of(view):
    return gate.Policy(view.policy["max_down"], view.policy["failure_budget"])


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars):
        book = ledger.Ledger(arguments["artifact_dir"], arguments["rollout_id"])
        node = arguments["node"] or task_vars["inventory_hostname"]
        turn = arguments["turn"] + 1
        run = owner.require(book, self.controller()) if not self.check else None
        # The list of live hosts is as old as this task: every turn is a task of its own, so that the next one sees who has gone.
        present = task_vars.get("ansible_play_hosts")
        patience = min(arguments["patience_s"] * turn, arguments["patience_max_s"])
        deadline = time.monotonic() + patience
        while True:
            decision, view = self.ask(book, run, node, present)
            if decision.answer != "wait" or self.check or time.monotonic() >= deadline:
                break
            time.sleep(min(arguments["poll_s"] * random.uniform(0.8, 1.2), max(0.0, deadline - time.monotonic())))
        if decision.answer == "wait" and turn >= arguments["max_turns"]:
            decision = gate.Decision("stop", "waited %d turns: %s" % (turn, decision.reason))
        if decision.answer != "wait" or turn == 1:
            self.say(progress(view, node, "%s (%s)" % (decision.answer, decision.reason)))
        planned = view.nodes.get(node)
        return {
            "answer": decision.answer,
            "reason": decision.reason,
            "turn": turn,
            "from_version": planned.from_version if planned else None,
            "to_version": planned.to_version if planned else None,
            # Work was begun on it under a dead controller, after its baseline had been kept.
            "recover": bool(decision.answer == "go" and planned and any(step.name != "evidence" for step in planned.steps)),
            "directory": book.path(ledger.check_node(node)),
            "attempt": planned.attempt if planned else 0,
            "position": view.position(node),
            "total": len(view.order),
        }

    def ask(self, book, run, node, present):
        """One answer, recorded in the same transaction when it is go."""
        if self.check:
            view = state.reduce(book.read())
            return (gate.decide(view, policy_of(view), node, present) if view.run else gate.Decision("go", "check mode, nothing was recorded")), view
        lost = []
        with book.transaction() as transaction:
            view = state.reduce(transaction.events)
            if view.run != run:
                raise owner.OwnerError("Rollout %s was planned again meanwhile; this run may not go on with it." % book.rollout_id)
            if present is not None:
                for other in gate.vanished(view, present):
                    lost.append(other)
                    transaction.append("state", run=run, node=other.name, state="lost", reason=gate.vanished_reason(other))
                    state.apply(view, transaction.events[-1])
            decision = gate.decide(view, policy_of(view), node, present)
            if decision.answer == "go":
                transaction.append("go", run=run, node=node)
                state.apply(view, transaction.events[-1])
        for other in lost:
            self.say(progress(view, other.name, "lost (%s)" % other.reason))
        if lost:
            refresh_report(book)
        return decision, view
