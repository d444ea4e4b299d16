# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Grant a node a ticket to drain, to go down, or to serve again."""

from __future__ import annotations

import dataclasses
import datetime
import os
import random
import time
import uuid

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.vars import load_extra_vars

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_gate import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller, _variables
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import (
    members,
    owner,
    pools,
    state,
    steps,
    tickets,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.names import check_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.text import timestamp
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import claims, gate, holds, proof, waiting
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action import (
    RolloutAction,
    numbers,
    owned_view,
    progress,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import reasons, report, words

ASKED = {steps.DRAIN: "drain", steps.DOWN: "go down", steps.RETURN: "serve again"}
LOCKED_S = 600  # seconds to wait for the lock of a node that is not orphaned
REBOOTING_S = 5.0  # seconds between two attempts on a node that is about to reboot


# An answer that no ledger gave.
NOTHING = {
    "resume": "",
    "failure": "",
    "documents": {},
    "ticket": None,
    "from_version": None,
    "to_version": None,
    "attempt": 0,
    "position": None,
    "total": 0,
    "numbers": {},
    "turn": 1,
    "waited": False,
    "soak_s": 0,
    "sequence": 0,
    "left_drained": False,
    "fence": "",
}


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars):
        node = check_node(arguments["node"] or task_vars["inventory_hostname"])
        if arguments["phase"] == steps.DRAIN:
            self.refuse_overruling(task_vars, arguments["mode"] == "none")
            if self._task.ignore_errors is True:
                why = (
                    "%s does not start: ignore_errors around the role would let the node go on after each refusal. "
                    "Remove it. Nothing was changed." % node
                )
                # An answer, since the failure itself is ignored.
                return dict(NOTHING, answer="stop", reason=why, phase=steps.DRAIN, failed=True, msg=why)
        if arguments["mode"] == "none":
            return self.by_hand(node, arguments, task_vars)
        ledger = self.ledger(arguments)
        for step in filter(None, (arguments["step"], arguments["resume_step"])):
            if steps.STEPS.get(step, ("",))[0] != arguments["phase"]:
                raise tickets.StateError(
                    "The step of rollout_gate is %r; expected one of phase %s: %s."
                    % (
                        step,
                        arguments["phase"],
                        ", ".join(name for name, (phase, dummy) in steps.STEPS.items() if phase == arguments["phase"]),
                    )
                )
        turn = arguments["turn"] + 1
        # The list of live hosts is as old as this task. Each call is a separate task, so that the next one sees which
        # hosts have left the play.
        present = task_vars.get("ansible_play_hosts")
        _controller.require()
        answer, waited = self.patiently(ledger, arguments, node, present, turn)
        mine, other_ledger_s = answer.pop("claim", None), answer.pop("other_ledger_s", 0)
        if mine:
            answer["fence"] = self.taken(ledger, arguments, node, mine, answer["resume"], task_vars, other_ledger_s)
        if answer["answer"] == "wait" and turn >= arguments["max_turns"]:
            answer.update(answer="stop", reason="still waiting after %d calls: %s" % (turn, answer["reason"]))
        line = answer.pop("line")
        if answer["answer"] != "wait" or turn == 1:
            self.say(line)
        if answer["answer"] == "go" and answer.get("begun"):
            self.say(answer.pop("begun"))
        if answer["resume"]:
            names = ("baseline", "services", "mig-free", "schedulers")
            answer["documents"] = {name: ledger.load(node, name) for name in names}
        return dict(answer, turn=turn, waited=waited)

    def refuse_overruling(self, task_vars, alone):
        """Refuse variables that outrank what the role gives the roles that it includes.

        The task hides those of the inventory by vars of its own, so that what is left is of the command line or a fact.
        """
        hidden = self._task.vars if isinstance(self._task.vars, dict) else {}
        left = {name for name in hidden if task_vars.get(name) is not None}
        _variables.refuse_of_plan(left.union(load_extra_vars(self._loader)), alone)

    def patiently(self, ledger, arguments, node, present, turn):
        """Return the answer, and True if the node waited, in this call or an earlier one."""
        phase, waited = arguments["phase"], turn > 1
        patience = min(arguments["patience_s"] * turn, arguments["patience_max_s"])
        deadline = time.monotonic() + patience
        while True:
            if self.check:
                answer = self.foresee(ledger, phase, node, present)
            else:
                # A node that waits looks first, which keeps no other from asking.
                answer = self.look(ledger, phase, node, present) if waited else None
                answer = answer or self.ask(ledger, arguments, node, present)
                self.tell(ledger, arguments, idle=answer["answer"] == "wait" and not answer["wrote"])
            answer.pop("wrote", None)
            pause_s = waiting.interval(arguments["poll_s"], answer.pop("ahead", 0)) * random.uniform(0.8, 1.2)
            if answer["answer"] != "wait" or self.check or time.monotonic() >= deadline:
                break
            waited = True
            self.say_waiting(ledger, node, answer["reason"])
            ledger.store.rest()
            _controller.pause(min(pause_s, max(0.0, deadline - time.monotonic())))
        if answer["numbers"] is None:
            answer["numbers"] = ledger.look(numbers)
        return answer, waited

    def say_waiting(self, ledger, node, reason):
        """Print a line about all nodes once in a while, whichever of those that wait comes to it."""
        me, now = owner.describe(self.controller()), time.time()
        if self.kept(ledger, "waiting.lock", lambda before: waiting.due(before, me, now)):
            told = words.count({"counts": ledger.look(report.counts)})
            self.say("rollout %s: %s; %s waits: %s" % (ledger.rollout_id, told, node, reason))

    def by_hand(self, node, arguments, task_vars):
        """Return the answer outside of a rollout."""
        if arguments["phase"] == steps.DRAIN and arguments["claim_dir"]:
            self.free(node, arguments, task_vars)
        line = "%s: %s" % (
            node,
            " ".join([arguments["step"] or "", "(%s)" % arguments["detail"] if arguments["detail"] else ""]).strip()
            or "go",
        )
        self.say(line)
        return dict(NOTHING, answer="go", reason="outside of any rollout", phase=arguments["phase"])

    def free(self, node, arguments, task_vars):
        """Refuse a node that belongs to a rollout, outside of that rollout."""
        marks = self.on_node(task_vars, state="read", directory=arguments["claim_dir"])
        if marks.get("failed") or marks.get("problem"):
            raise tickets.StateError(
                "%s cannot be taken: %s. Nothing was changed." % (node, marks.get("problem") or marks.get("msg"))
            )
        if marks["claim"]:
            raise tickets.StateError(
                "%s cannot be taken outside of its rollout: it is %s. Its driver may be only partly changed. Run that "
                "rollout again first: it finishes the node or rolls it back. Or remove %s on the node to take it as it "
                "is. Nothing was changed."
                % (node, claim.described(marks["claim"]), os.path.join(arguments["claim_dir"], claim.NAME))
            )

    def taken(self, ledger, arguments, node, mine, resume, task_vars, other_ledger_s):
        """Claim the node for this attempt, and return the token for tasks that change it.

        If that fails, the node ends. OTHER_LEDGER_S: how long a change by another ledger refuses the node.
        """
        deadline = time.monotonic() + arguments["claim_timeout_s"]
        while True:
            over = ledger.load(node, claims.OVER)
            ledger.store.rest()
            try:
                said = self.on_node(
                    task_vars,
                    state="held",
                    directory=arguments["claim_dir"],
                    claim=mine,
                    over=over,
                    other_ledger_s=other_ledger_s,
                    lock_timeout_s=max(1, int(deadline - time.monotonic()) if resume else LOCKED_S),
                )
            except AnsibleConnectionFailure:
                # An orphaned node may be rebooting.
                if not resume or time.monotonic() >= deadline:
                    raise
                said = {"going_down": True}
            marker = said.get("quarantine") or {}
            if not said.get("failed") and marker.get("exists"):
                self.refuse_quarantined(ledger, arguments, node, marker, resume)
            if not said.get("failed") and not said.get("going_down"):
                return claim.token(mine, arguments["claim_dir"])
            if said.get("failed") or time.monotonic() >= deadline:
                break
            time.sleep(min(REBOOTING_S, max(0.0, deadline - time.monotonic())))
        why = "it could not be claimed: %s. Nothing was changed in this run" % (
            str(said.get("msg") or "it is about to reboot").rstrip(". ")
        )
        self.end(ledger, node, "lost" if resume else "failed", why)
        self.tell(ledger, arguments)
        raise tickets.StateError("%s: %s." % (node, why))

    def refuse_quarantined(self, ledger, arguments, node, marker, resume):
        """End a node that an operator put in quarantine after the plan. It holds a down slot, and is no failure."""
        where = marker.get("path", "a marker")
        why = "it was put in quarantine after the plan: %s is on the node. Nothing was changed in this run" % where
        self.end(ledger, node, "quarantined", why, state.HARD if resume else state.SICK)
        self.tell(ledger, arguments)
        raise tickets.StateError("%s: %s." % (node, why))

    def end(self, ledger, node, ended, why, failure=None):
        """Record the final state of a node that has a ticket and was not changed."""
        identity = self.controller()
        failure = failure or (state.LOST if ended == "lost" else state.SOFT)

        def write(transaction):
            view = owned_view(transaction, ledger, identity)
            transaction.append("state", run=view.run, node=node, state=ended, reason=why, failure=failure)
            if state.nothing_left(view):
                transaction.append("end", run=view.run)

        ledger.transact(write)

    def foresee(self, ledger, phase, node, present):
        """Return the answer in check mode, where nothing is recorded."""

        def question(transaction):
            view = transaction.view
            decision = (
                self.decided(transaction, self.controller(), phase, node, present)
                if view.run
                else gate.Decision("go", "check mode, nothing was recorded")
            )
            return self.told(view, phase, node, decision)

        return ledger.rehearse(question) or self.told(
            state.Rollout(), phase, node, gate.Decision("go", "check mode, nothing was recorded")
        )

    def decided(self, transaction, controller, phase, node, present, lock=False):
        """Return the decision for the node, among the nodes of all members and of the other rollouts of its pool.

        LOCK: no other rollout of the pool decides until the transaction has ended.
        """
        pools.fill(transaction, lock)
        decision = gate.decide(
            transaction.view,
            phase,
            node,
            members.present(transaction, controller, present),
            transaction.clock(),
            members.shared(transaction.owner),
        )
        drains = (
            phase == steps.DRAIN and decision.answer in ("go", "wait") and gate.starts(transaction.view, phase, node)
        )
        why = gate.outlast_ticket(transaction.view, int(self._task.args.get("drain_s") or 0)) if drains else ""
        return gate.Decision("stop", why) if why else decision

    def ask(self, ledger, arguments, node, present):
        """Return one answer. If it is go, it is recorded in the same transaction."""
        phase = arguments["phase"]
        controller = self.controller()
        found = self.asked(ledger, arguments, controller, node, present)

        def decide(transaction):
            view = owned_view(transaction, ledger, controller)
            members.record_gone(transaction, controller, present)
            mine = members.hosts(transaction, controller)
            lost = gate.vanished(view, present, mine) if present is not None else []
            for other in lost:
                transaction.append(
                    "state",
                    run=view.run,
                    node=other.name,
                    state="lost",
                    reason=gate.vanished_reason(other),
                    failure=state.LOST,
                )
            lines = [progress(view, other.name, "lost (%s)" % other.reason) for other in lost]
            if view.nodes.get(node) is not None:
                proof.require_as_planned(view.nodes.get(node), view.policy, arguments)
            decision = self.decided(transaction, controller, phase, node, present, lock=True)
            decision = self.held(transaction, arguments, found, node, decision)
            decision = self.proven(transaction, arguments, node, decision)
            taken_up = {}
            if decision.answer == "go":
                taken_up = self.taken_up(view, phase, node)
                expires = transaction.clock() + datetime.timedelta(seconds=view.policy["ticket_s"])
                transaction.append(
                    "grant", run=view.run, node=node, phase=phase, ticket=uuid.uuid4().hex, expires=timestamp(expires)
                )
                for name, document in arguments["documents"].items():
                    transaction.save(node, name, document)
            told = dict(self.told(view, phase, node, decision), **taken_up, sequence=transaction.sequence)
            step = (arguments["resume_step"] if told["resume"] else None) or arguments["step"]
            if decision.answer == "go" and step:
                transaction.append("step", run=view.run, node=node, step=step, detail=arguments["detail"])
                told["begun"] = progress(
                    view, node, "%s%s" % (step, " (%s)" % arguments["detail"] if arguments["detail"] else "")
                )
            if decision.answer == "go" and phase == steps.DRAIN and arguments["claim_dir"]:
                told["claim"] = claims.mine(
                    node, transaction.name_ledger(), ledger.rollout_id, told["attempt"], view.run, view.sha256
                )
                told["other_ledger_s"] = view.policy.get("other_ledger_s", 0)
            if decision.answer == "wait":
                told["ahead"] = waiting.ahead(view, node, members.present(transaction, controller, present))
            return dict(told, lost=lines, brakes=reasons.brakes(view), wrote=bool(transaction.added))

        answer = ledger.transact(decide)
        lost = answer.pop("lost")
        for line in lost:
            self.say(line)
        self.say_brakes(ledger, answer.pop("brakes"))
        return answer

    def look(self, ledger, phase, node, present):
        """Return the answer wait without a lock and without a record.

        None if the node has to ask: it may go, or there is something to record.
        """
        controller = self.controller()

        def question(transaction):
            view = owned_view(transaction, ledger, controller)
            members.record_gone(transaction, controller, present)
            lost = gate.vanished(view, present, members.hosts(transaction, controller)) if present is not None else []
            decision = self.decided(transaction, controller, phase, node, present)
            if decision.answer != "wait" or lost or transaction.changed:
                return None
            return dict(
                self.told(view, phase, node, decision),
                ahead=waiting.ahead(view, node, members.present(transaction, controller, present)),
                brakes=reasons.brakes(view),
                wrote=False,
            )

        answer = ledger.rehearse(question)
        if answer:
            self.say_brakes(ledger, answer.pop("brakes"))
        return answer

    def asked(self, ledger, arguments, controller, node, present):
        """Return the answers to the hold queries, if the node could go otherwise. No transaction is open meanwhile."""

        def needed(transaction):
            view, phase = transaction.view, arguments["phase"]
            starts = view.policy.get("holds") and gate.starts(view, phase, node)
            goes = starts and self.decided(transaction, controller, phase, node, present).answer == "go"
            return list(view.policy["holds"]) if goes else []

        names = (ledger.rehearse(needed) or []) if arguments["hold_queries"] else []
        queries = [query for query in arguments["hold_queries"] if query["name"] in names]
        if not queries:
            return None
        holds.check(queries)
        ledger.store.rest()
        return holds.answers(ledger.path("holds.lock"), queries, arguments["hold_age_s"])

    @staticmethod
    def held(transaction, arguments, found, node, decision):
        """Return the decision, or wait if a hold query keeps the node from starting; record changes of the hold."""
        view = transaction.view
        if decision.answer != "go" or not gate.starts(view, arguments["phase"], node):
            return decision
        holds.check_times(arguments["hold_age_s"], arguments["hold_deadline_s"])
        if not (view.policy.get("holds") or view.held):
            return decision
        names, why = holds.verdict(
            view.policy["holds"],
            arguments["hold_queries"],
            found,
            arguments["hold_deadline_s"],
            arguments["hold_age_s"],
            time.time(),
        )
        # Without an answer there is nothing to record: the next call asks again, or the task lacks the queries.
        if names != view.held and (found is not None or not names):
            transaction.append("hold", run=view.run, names=names, reason=why)
        return gate.Decision("wait", "held by " + why) if names else decision

    @staticmethod
    def proven(transaction, arguments, node, decision):
        """Return the decision, or stop if the ledger has no verdict that lets the node go down, or serve again."""
        planned, why = transaction.view.nodes.get(node), ""
        if decision.answer != "go":
            return decision

        def document(name):
            """Return what this task brings, which is kept with the grant, or what the ledger has."""
            return arguments["documents"].get(name) or transaction.load(node, name)

        if arguments["phase"] == steps.DOWN and planned.state not in state.NOT_SERVING:
            why = proof.unfit_to_go_down(planned, document(proof.BEFORE), document(proof.BASELINE))
        elif arguments["phase"] == steps.RETURN:
            why = proof.missing(planned, document(proof.DOCUMENT), planned.to_version)
        return gate.Decision("stop", why) if why else decision

    @staticmethod
    def taken_up(view, phase, node):
        """Return how far an earlier controller came with the node, and its failure.

        Called before the grant is recorded.
        """
        planned = view.nodes.get(node)
        resume = (
            steps.reached([step.name for step in planned.steps]) if phase == steps.DRAIN and planned.orphaned else ""
        )
        return {"resume": resume, "failure": planned.reason if resume else ""}

    @staticmethod
    def told(view, phase, node, decision):
        """Return the answer for the result of the task, and the line to print."""
        planned = view.nodes.get(node)
        went = decision.answer == "go"
        return {
            "answer": decision.answer,
            "reason": decision.reason,
            "phase": phase,
            "from_version": planned.from_version if planned else None,
            "to_version": planned.to_version if planned else None,
            # For an orphaned node set by taken_up().
            "resume": "",
            "failure": "",
            "documents": {},
            # An earlier controller drained the node and did nothing else to it.
            "left_drained": bool(
                planned
                and planned.orphaned
                and any(step.name == "drain" for step in planned.steps)
                and not steps.reached([step.name for step in planned.steps])
            ),
            "fence": "",
            "sequence": 0,
            "soak_s": view.policy["canary_soak_s"] if planned and planned.canary else 0,
            "ticket": dataclasses.asdict(planned.ticket) if went and planned and planned.ticket else None,
            "attempt": planned.attempt if planned else 0,
            "position": planned.went if planned else None,
            "total": view.total,
            # They are counted for a node that goes on; one that waits is told them at the end of its call.
            "numbers": None if decision.answer == "wait" else numbers(view),
            "line": progress(
                view,
                node,
                "%s (%s)"
                % (
                    ASKED[phase]
                    if went
                    else "%s to %s" % (decision.answer, ASKED[phase])
                    if decision.answer == "wait"
                    else decision.answer,
                    decision.reason,
                ),
            ),
        }
