# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record a step of a node in the ledger before it begins, print it, and copy documents to the node."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_step import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import check_node, format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_claim import NodeClaim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import joining, limits, proof, requests
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action import RolloutAction, display
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import report

RESCUE_PATIENCE_S = 30.0  # for a ledger that does not answer while a failed node is put back


def words(arguments, told="") -> str:
    """Return the line to print. TOLD: the failure of the node that was printed before, which is not repeated."""
    if arguments["state"]:
        reason, told = arguments["reason"], told.rstrip(".")
        if told and reason.startswith(told):
            reason = reason[len(told) :].lstrip(".; ") or "as above"
        return "%s%s" % (arguments["state"], " (%s)" % reason if reason else "")
    if arguments["name"]:
        return "%s%s" % (arguments["name"], " (%s)" % arguments["detail"] if arguments["detail"] else "")
    return "failed (%s)" % arguments["failed"] if arguments["failed"] else "documents kept"


def is_of_rescue(arguments: dict) -> bool:
    """Return True for a record without which a failed node is put back all the same.

    That is its failure, a step of its way back, and its end if that is a failure. No other step is taken unrecorded.
    """
    return bool(arguments["failed"] or arguments["name"] in state.ALWAYS or arguments["state"] in state.FAILED)


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars) -> dict:
        missing = sorted(set(arguments["node_documents"] or []) - set(arguments["documents"]))
        if missing:
            raise state.StateError(
                "node_documents of rollout_step names %s; expected some of documents: %s."
                % (", ".join(missing), ", ".join(sorted(arguments["documents"])) or "none")
            )
        answer = self.record(arguments, task_vars)
        mine = answer.pop("claim", None)
        if mine:
            node_claim = NodeClaim(self, arguments, task_vars["inventory_hostname"], task_vars)
            why = node_claim.release(mine, arguments["state"])
            if why:
                display.warning(why)
        if arguments["node_dir"] and not self.check:
            answer.update(self.copy_documents(arguments, task_vars))
        return answer

    def directory(self, path, owned, task_vars) -> dict:
        """Make a directory of the node, and return the result. One that is there keeps its owner and mode."""
        found = self._execute_module(
            module_name="ansible.legacy.stat",
            module_args={"path": path, "follow": True, "get_checksum": False, "get_mime": False},
            task_vars=task_vars,
        )
        if found.get("failed") or (found.get("stat") or {}).get("isdir"):
            return found
        return self._execute_module(
            module_name="ansible.legacy.file",
            module_args=dict(owned, path=path, state="directory", mode="0755"),
            task_vars=task_vars,
        )

    def copy_documents(self, arguments, task_vars) -> dict:
        """Copy documents to the node, and return the result."""
        node, changed = task_vars["inventory_hostname"], False
        owned = {"owner": "root", "group": "root"}
        made = self.directory(arguments["node_dir"], owned, task_vars)
        names = arguments["documents"] if arguments["node_documents"] is None else arguments["node_documents"]
        for name in [] if made.get("failed") else names:
            task = self._task.copy()
            task.args = dict(
                owned,
                mode="0600",
                dest=os.path.join(arguments["node_dir"], name + ".json"),
                content=json.dumps(arguments["documents"][name], indent=4, sort_keys=True) + "\n",
            )
            copy = self._shared_loader_obj.action_loader.get(
                "ansible.legacy.copy",
                task=task,
                connection=self._connection,
                play_context=self._play_context,
                loader=self._loader,
                templar=self._templar,
                shared_loader_obj=self._shared_loader_obj,
            )
            written = copy.run(task_vars=task_vars)
            changed = changed or bool(written.get("changed"))
            if written.get("failed"):
                made = written
                break
        if made.get("failed"):
            return {
                "failed": True,
                "msg": "%s: its copy of the documents could not be written to %s: %s"
                % (node, arguments["node_dir"], made.get("msg")),
            }
        return {"changed": changed or bool(made.get("changed"))}

    def record(self, arguments, task_vars) -> dict:
        arguments = dict(arguments, **{key: redaction.reason(arguments[key]) for key in ("failed", "reason", "detail")})
        node = check_node(arguments["node"] or task_vars["inventory_hostname"])
        told = bool(arguments["name"] or arguments["state"] or arguments["failed"])
        if not (told or arguments["documents"]):
            raise state.StateError(
                "rollout_step has no name, failed, state or documents; expected at least one of them."
            )
        if self.check or arguments["mode"] == "none":
            line = "%s: %s" % (node, words(arguments))
            if told:
                self.say(line)
            return {"progress": line}
        ledger, rescue = self.ledger(arguments), is_of_rescue(arguments)
        if rescue:
            ledger.store.patience_s = min(ledger.store.patience_s, RESCUE_PATIENCE_S)
        try:
            answer = self.write(ledger, arguments, node)
        except store.StoreError as exc:
            if not rescue:
                raise
            line = "%s: %s" % (node, words(arguments))
            self.say(line)
            display.warning("%s is not recorded, and the node is put back without it: %s" % (line, exc))
            return {"progress": line, "unrecorded": str(exc)}
        over, brakes = answer.pop("over"), answer.pop("brakes")
        if told:
            self.say_progress(answer["progress"])
            self.tell(ledger, arguments, now=over)
        if brakes is not None:
            self.say_brakes(ledger, brakes)
        return answer

    def write(self, ledger, arguments, node) -> dict:
        """Write the record to the ledger in one transaction, and return the result of the task."""
        controller = self.controller()
        told = bool(arguments["name"] or arguments["state"] or arguments["failed"])

        def write(transaction) -> dict:
            view = requests.open_view(transaction, ledger.rollout_id, controller)
            found = state.require_in_flight(view, node)
            told_failure = found.reason if found.failure else ""
            self.require(view, found, arguments, transaction.clock(), time.monotonic())
            if arguments["previous"]:
                proof.require_way_back(found, arguments["previous"], transaction.load(node, "baseline"))
            told_of = arguments["state"] and arguments["claim_dir"]
            mine = (
                joining.make_claim(
                    node, transaction.name_ledger(), ledger.rollout_id, found.attempt, view.run, view.sha256
                )
                if told_of
                else None
            )
            for name, document in arguments["documents"].items():
                transaction.save(node, name, document)
            for event, fields in self.events(arguments, found):
                transaction.append(event, run=view.run, node=node, **fields)
            if arguments["failed"] and arguments["stop_rollout"]:
                transaction.append(
                    "control",
                    run=view.run,
                    verb="stop",
                    user="the policy",
                    reason="%s failed, and on_failure is stop" % node,
                )
            # If every node has failed, Ansible runs no further play. Therefore the last node closes the run.
            over = bool(arguments["state"]) and state.nothing_left(view)
            if over:
                transaction.append("end", run=view.run)
            return {
                "over": over,
                "brakes": report.list_brakes(view) if told and not over else None,
                "progress": requests.describe_progress(view, node, words(arguments, told_failure)),
                "state": found.state,
                "step": arguments["name"] or "",
                "sequence": transaction.sequence,
                "claim": mine,
                "numbers": requests.count_nodes(view) if told else {},
                "ticket": dataclasses.asdict(found.ticket) if found.ticket else None,
            }

        return ledger.transact(write)

    @staticmethod
    def require(view, node, arguments, now, uptime_s) -> None:
        """Refuse another change than the plan's, a final state without its proof, and a step without a ticket."""
        proof.require_as_planned(node, view.policy, arguments)
        if arguments["state"]:
            proof.require_end(node, arguments["state"], arguments["documents"])
        if arguments["name"]:
            state.require_ticket(view, node, arguments["name"], format_time(now), uptime_s)

    @staticmethod
    def events(arguments, node) -> Iterator:
        if arguments["failed"]:
            step = node.steps[-1].name if node.steps else ""
            yield (
                "step_failed",
                {
                    "reason": arguments["failed"],
                    "failure": state.failure_class(node),
                    "signature": limits.sign_failure(step, arguments["failed"], arguments["failed_checks"], node.name),
                },
            )
        if arguments["name"]:
            yield "step", {"step": arguments["name"], "detail": arguments["detail"]}
        if arguments["state"]:
            fields = {"state": arguments["state"], "reason": arguments["reason"]}
            if arguments["state"] in state.FAILED:
                fields.update(
                    failure=state.LOST if arguments["state"] == "lost" else node.failure or state.failure_class(node)
                )
            yield "state", fields
