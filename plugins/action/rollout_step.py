# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a step of a node into the ledger before it is taken, and say so."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_step import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import ledger, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.action import RolloutAction, progress, refresh_report


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
        book = ledger.Ledger(arguments["artifact_dir"], arguments["rollout_id"])
        run = owner.require(book, self.controller())
        with book.transaction() as transaction:
            view = state.reduce(transaction.events)
            state.require_in_flight(view, node)
            for name, document in arguments["documents"].items():
                book.save(node, name, document)
            for event, fields in self.events(arguments):
                transaction.append(event, run=run, node=node, **fields)
                state.apply(view, transaction.events[-1])
            # When every node has failed Ansible runs no further play, so that the last node closes the run.
            if arguments["state"] and state.nothing_left(view):
                transaction.append("end", run=run)
        line = progress(view, node, words(arguments))
        if told:
            self.say(line)
        if arguments["state"]:
            refresh_report(book)
        return {"progress": line, "state": view.nodes[node].state, "directory": book.path(node)}

    @staticmethod
    def events(arguments):
        if arguments["failed"]:
            yield "step_failed", {"reason": arguments["failed"]}
        if arguments["name"]:
            yield "step", {"step": arguments["name"], "detail": arguments["detail"]}
        if arguments["state"]:
            yield "state", {"state": arguments["state"], "reason": arguments["reason"]}
