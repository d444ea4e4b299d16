# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell from the ledger and the claim of a node whether a rollout has it in flight."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_node import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import others, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import LedgerError, check_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import probes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action import RolloutAction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import flight


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars) -> dict:
        name = check_node(str(task_vars.get("inventory_hostname") or "localhost"))
        database = store.Store(arguments["ledger"] or store.default_url(arguments["artifact_dir"]))
        ledger_id, states = others.find_states_of_node(database, name)
        marks = arguments["marks"] if "claim" in arguments["marks"] or not arguments["marks"].get("unreachable") else {}
        answer = {"held": flight.explain_holder(marks, states, ledger_id), "states": states}
        if arguments["baseline"]:
            answer["baseline"] = others.last_document(database, name, "baseline")
        if arguments["undo"]:
            undo, dummy = self.undone(arguments, arguments["nodes"])
            found = probes.find_layouts_before(
                undo.rollout_id,
                [node for node in undo.view().nodes.list_all() if node.name in arguments["nodes"]],
                lambda node: undo.load(node, "baseline"),
            )
            answer["layouts_before"] = {node: layout["layout"] for node, layout in found.items()}
        if arguments["canaries_of"] is not None:
            answer["canaries"] = self.canaries(arguments, database)
        return answer

    def canaries(self, arguments, database):
        """Return the canaries of a plan; refuse nodes that have not all of them, since other jobs would wait for one
        that no job has.
        """
        rollout_id = arguments["canaries_of"]
        if not rollout_id:
            raise LedgerError(
                "rollout_join_canaries needs rollout_join=true, and in rollout_id the rollout that "
                "gpufleet.lifecycle.plan has planned. Nothing was changed."
            )
        view = self.ledger(arguments, rollout_id).view()
        if view.run is None:
            raise LedgerError(
                "There is no plan of rollout %s in %s. Run gpufleet.lifecycle.plan with all nodes first. Nothing was "
                "changed." % (rollout_id, database.shown)
            )
        found = [node.name for node in view.nodes.canaries()]
        missing = sorted(set(found) - set(arguments["nodes"]))
        if missing:
            raise LedgerError(
                "The canaries of rollout %s are %s, and this inventory, with its limit, has not all of them: without "
                "%s. Run this job with all nodes of the plan, without slices. Nothing was changed."
                % (rollout_id, ", ".join(found[:10]), ", ".join(missing[:10]))
            )
        return found
