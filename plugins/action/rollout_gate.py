# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Grant a node a ticket to drain, to go down, or to serve again.

The request is decided in _rollout/requests.py, by the rules of _rollout/gate.py, and a node that may start is claimed
by _node_claim.py. This file waits between two requests and prints the answer.
"""

from __future__ import annotations

import random
import time
import typing as t

from ansible.utils.vars import load_extra_vars

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_gate import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller, _variables
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import check_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_claim import NodeClaim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import holds, requests
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.requests import Request
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action import RolloutAction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import report

Answer = t.Dict[str, t.Any]
# The documents that a controller needs to continue with an orphaned node.
TAKEN_OVER = ("baseline", "services", "mig-free", "schedulers")


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars) -> Answer:
        node = check_node(arguments["node"] or task_vars["inventory_hostname"])
        if arguments["phase"] == state.DRAIN:
            self.refuse_overruling(task_vars, arguments["mode"] == "none")
            if self._task.ignore_errors is True:
                why = (
                    "%s does not start: ignore_errors around the role would let the node go on after each refusal. "
                    "Remove it. Nothing was changed." % node
                )
                # An answer, since the failure itself is ignored.
                return dict(requests.NOTHING, answer="stop", reason=why, phase=state.DRAIN, failed=True, msg=why)
        node_claim = NodeClaim(self, arguments, node, task_vars)
        if arguments["mode"] == "none":
            return self.answer_by_hand(node_claim)
        ledger = self.ledger(arguments)
        require_phase(arguments)
        _controller.require()
        # The list of live hosts is as old as this task. Each call is a separate task, so that the next one sees which
        # hosts have left the play.
        present = task_vars.get("ansible_play_hosts")
        unusable_hold = next((why for key, why in self.unusable.items() if key.startswith("hold_")), "")
        arguments = dict(arguments, unusable_hold=unusable_hold)
        request, turn = Request(node, arguments["phase"], self.controller(), present, arguments), arguments["turn"] + 1
        answer, waited = self.wait_for_answer(ledger, request, turn)
        mine, other_ledger_s = answer.pop("claim", None), answer.pop("other_ledger_s", 0)
        if mine:
            answer["fence"] = node_claim.hold(ledger, mine, answer["resume"], other_ledger_s)
        if answer["answer"] == "wait" and turn >= arguments["max_turns"]:
            answer.update(answer="stop", reason="still waiting after %d calls: %s" % (turn, answer["reason"]))
        self.print_answer(answer, turn)
        if answer["resume"]:
            answer["documents"] = {name: ledger.load(node, name) for name in TAKEN_OVER}
        return dict(answer, turn=turn, waited=waited)

    def refuse_overruling(self, task_vars, alone: bool) -> None:
        """Refuse variables that outrank what the role gives the roles that it includes.

        The task hides those of the inventory by vars of its own, so that what is left is of the command line or a fact.
        """
        hidden = self._task.vars if isinstance(self._task.vars, dict) else {}
        left = {name for name in hidden if task_vars.get(name) is not None}
        _variables.refuse_of_plan(left.union(load_extra_vars(self._loader)), alone)

    def answer_by_hand(self, node_claim: NodeClaim) -> Answer:
        """Return the answer outside of a rollout."""
        arguments = node_claim.arguments
        if arguments["phase"] == state.DRAIN and arguments["claim_dir"]:
            node_claim.require_none()
        detail = "(%s)" % arguments["detail"] if arguments["detail"] else ""
        self.say("%s: %s" % (node_claim.node, " ".join(filter(None, [arguments["step"], detail])) or "go"))
        return dict(requests.NOTHING, answer="go", reason="outside of any rollout", phase=arguments["phase"])

    def wait_for_answer(self, ledger, request: Request, turn: int) -> t.Tuple[Answer, bool]:
        """Return the answer, and True if the node waited, in this call or an earlier one."""
        options, waited = request.options, turn > 1
        patience = min(options["patience_s"] * turn, options["patience_max_s"])
        deadline = time.monotonic() + patience
        while True:
            if self.check:
                answer = ledger.rehearse(lambda transaction: requests.foresee_answer(transaction, request))
                answer = answer or requests.foresee_answer(None, request)
            else:
                # A node that waits looks first, which keeps no other from asking.
                answer = self.find_wait(ledger, request) if waited else None
                answer = answer or self.request_ticket(ledger, request)
                self.tell(ledger, options, idle=answer["answer"] == "wait" and not answer["wrote"])
            answer.pop("wrote", None)
            pause_s = requests.compute_interval(options["poll_s"], answer.pop("ahead", 0)) * random.uniform(0.8, 1.2)
            if answer["answer"] != "wait" or self.check or time.monotonic() >= deadline:
                break
            waited = True
            self.print_waiting(ledger, request.node, answer["reason"])
            ledger.store.rest()
            _controller.pause(min(pause_s, max(0.0, deadline - time.monotonic())))
        if answer["numbers"] is None:
            answer["numbers"] = ledger.look(requests.count_nodes)
        return answer, waited

    def request_ticket(self, ledger, request: Request) -> Answer:
        """Return the answer of one transaction, which records what follows from it. It needs the ledger's lock."""
        queried = self.ask_hold_queries(ledger, request)

        def work(transaction) -> dict:
            answer = requests.answer_request(transaction, ledger.rollout_id, request, queried)
            return dict(answer, brakes=report.list_brakes(transaction.view))

        answer = ledger.transact(work)
        for line in answer.pop("lost"):
            self.say(line)
        self.say_brakes(ledger, answer.pop("brakes"))
        return answer

    def find_wait(self, ledger, request: Request) -> t.Optional[Answer]:
        """Return the answer wait without a lock and without a record; None if the node has to ask."""

        def work(transaction) -> dict | None:
            answer = requests.find_wait(transaction, ledger.rollout_id, request)
            return answer and dict(answer, brakes=report.list_brakes(transaction.view))

        answer = ledger.rehearse(work)
        if answer:
            self.say_brakes(ledger, answer.pop("brakes"))
        return answer

    @staticmethod
    def ask_hold_queries(ledger, request: Request) -> t.Optional[t.Dict[str, t.Any]]:
        """Return the answers to the hold queries, if the node could go otherwise. No transaction is open meanwhile."""
        given = request.options["hold_queries"]
        names = ledger.rehearse(lambda transaction: requests.query_names(transaction, request)) if given else None
        queries = [query for query in given if query["name"] in (names or [])]
        if not queries:
            return None
        holds.check_queries(queries)
        ledger.store.rest()
        return holds.find_answers(ledger.path("holds.lock"), queries, request.options["hold_age_s"])

    def print_answer(self, answer: Answer, turn: int) -> None:
        """Print the answer, and the step that it opened; of a node that waits, the first answer alone."""
        line, begun = answer.pop("line"), answer.pop("begun", "")
        if answer["answer"] != "wait" or turn == 1:
            (self.say_progress if answer["answer"] == "go" else self.say)(line)
        if begun:
            self.say_progress(begun)

    def print_waiting(self, ledger, node: str, reason: str) -> None:
        """Print a line about all nodes once in a while, by the first waiting node that is due."""
        me, now = owner.describe_owner(self.controller()), time.time()
        if self.update_file(ledger, "waiting.lock", lambda before: requests.is_line_due(before, me, now)):
            count = report.describe_counts({"counts": ledger.look(report.count_states)})
            self.say("rollout %s: %s; %s waits: %s" % (ledger.rollout_id, count, node, reason))


def require_phase(arguments: t.Mapping[str, t.Any]) -> None:
    """Refuse a step that does not belong to the phase that is requested."""
    of_phase = [name for name, (phase, dummy) in state.STEPS.items() if phase == arguments["phase"]]
    for step in filter(None, (arguments["step"], arguments["resume_step"])):
        if step not in of_phase:
            raise state.StateError(
                "The step of rollout_gate is %r; expected one of phase %s: %s."
                % (step, arguments["phase"], ", ".join(of_phase))
            )
