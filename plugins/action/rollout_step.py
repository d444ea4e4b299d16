# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a step of a node into the ledger before it is taken, and say so."""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_step import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import failures, ledger, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.action import RolloutAction, numbers, owned_view, progress


def words(arguments):
    """The line that people see."""
    if arguments["state"]:
        return "%s%s" % (arguments["state"], " (%s)" % arguments["reason"] if arguments["reason"] else "")
    if arguments["name"]:
        return "%s%s" % (arguments["name"], " (%s)" % arguments["detail"] if arguments["detail"] else "")
    return "failed (%s)" % arguments["failed"] if arguments["failed"] else "documents kept"


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars):
        node = ledger.check_node(arguments["node"] or task_vars["inventory_hostname"])
        told = bool(arguments["name"] or arguments["state"] or arguments["failed"])
        if not (told or arguments["documents"]):
            raise state.StateError("rollout_step was told nothing: give name, failed, state or documents.")
        if self.check or arguments["mode"] == "none":
            line = "%s: %s" % (node, words(arguments))
            if told:
                self.say(line)
            return {"progress": line}
        book = self.book(arguments)
        controller = self.controller()

        def write(transaction):
            view = owned_view(transaction, book, controller)
            found = state.require_in_flight(view, node)
            if arguments["name"]:
                state.require_ticket(view, found, arguments["name"], ledger.timestamp())
            for name, document in arguments["documents"].items():
                transaction.save(node, name, document)
            for event, fields in self.events(arguments, found):
                transaction.append(event, run=view.run, node=node, **fields)
            if arguments["failed"] and arguments["stop_rollout"]:
                transaction.append("control", run=view.run, verb="stop", user="the policy", reason="%s failed, and on_failure is stop" % node)
            # When every node has failed Ansible runs no further play, so that the last node closes the run.
            if arguments["state"] and state.nothing_left(view):
                transaction.append("end", run=view.run)
            return {
                "progress": progress(view, node, words(arguments)),
                "state": found.state,
                "numbers": numbers(view) if told else {},
                "ticket": dataclasses.asdict(found.ticket) if found.ticket else None,
            }

        answer = book.transact(write)
        if told:
            self.say(answer["progress"])
            self.tell(book, arguments)
        return answer

    @staticmethod
    def events(arguments, node):
        if arguments["failed"]:
            step = node.steps[-1].name if node.steps else ""
            yield "step_failed", {
                "reason": arguments["failed"],
                "failure": state.failure_class(node),
                "signature": failures.signature(step, arguments["failed"], arguments["failed_checks"], node.name),
            }
        if arguments["name"]:
            yield "step", {"step": arguments["name"], "detail": arguments["detail"]}
        if arguments["state"]:
            fields = {"state": arguments["state"], "reason": arguments["reason"]}
            if arguments["state"] in state.FAILED:
                fields.update(failure=state.LOST if arguments["state"] == "lost" else node.failure or state.failure_class(node))
            yield "state", fields
