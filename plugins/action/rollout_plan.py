# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order the nodes of a rollout and open its ledger."""

from __future__ import annotations

import uuid

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_plan import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import ledger, owner, plan, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.action import RolloutAction, refresh_report


def failure_domains(groups, prefix):
    """The first group with the prefix that holds a node is its failure domain."""
    domains = {}
    for group in sorted(name for name in groups if prefix and name.startswith(prefix)):
        for host in groups[group]:
            domains.setdefault(host, group)
    return domains


def probe(name, audit, marker, domain):
    """What a driver_audit result and a stat of the quarantine marker say of a node."""
    audit, marker = audit or {}, marker or {}
    if audit.get("unreachable") or marker.get("unreachable"):
        return plan.Probe(name, reachable=False, error=str(audit.get("msg") or marker.get("msg") or ""), domain=domain)
    versions = (audit.get("audit") or {}).get("versions") or {}
    error = ""
    if audit.get("failed") or "audit" not in audit:
        error = str(audit.get("msg") or "driver_audit gave no answer")
    elif "stat" not in marker:
        error = str(marker.get("msg") or "its quarantine marker could not be looked for")
    quarantined = "%s lies on the node" % marker["stat"].get("path", "a marker") if (marker.get("stat") or {}).get("exists") else ""
    return plan.Probe(name, version=versions.get("loaded") or versions.get("library"), quarantined=quarantined, error=error, domain=domain)


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars):
        undo = self.undone(arguments)
        targets = self.targets(arguments, undo)
        book = ledger.Ledger(arguments["artifact_dir"], arguments["rollout_id"] or self.default_id(arguments, undo, targets))
        domains = failure_domains(task_vars.get("groups") or {}, arguments["domain_group_prefix"])
        markers = arguments["markers"] or {}
        for name in arguments["audits"]:
            ledger.check_node(name)
        probes = [probe(name, audit, markers.get(name), domains.get(name, "")) for name, audit in arguments["audits"].items()]
        policy = {"max_down": arguments["max_down"], "failure_budget": arguments["failure_budget"]}
        forks = int(task_vars.get("ansible_forks") or 0)
        if forks and forks < policy["max_down"]:
            raise plan.PlanError(
                "rollout_max_down is %d, but this run has %d forks, and a node in flight holds one: run it with --forks %d or more."
                % (policy["max_down"], forks, policy["max_down"])
            )

        def make(events):
            return plan.build(arguments["target"], probes, policy, state.reduce(events), arguments["canaries"], targets)

        if self.check:
            made, run = make(book.read()), None
        else:
            run = uuid.uuid4().hex
            make(book.read())  # a plan that cannot be made leaves nothing behind
            owner.claim(book, run, list(arguments["audits"]), self.controller(), arguments["break_lock"])
            with book.transaction() as transaction:
                made = make(transaction.events)
                transaction.append(
                    "plan",
                    run=run,
                    rollout_id=book.rollout_id,
                    target=made.target,
                    order=made.order,
                    nodes=made.nodes,
                    policy=made.policy,
                    sha256=made.sha256,
                    undo=undo.rollout_id if undo else None,
                )
                if not made.order:
                    transaction.append("end", run=run)
            ledger.remember_last(arguments["artifact_dir"], book.rollout_id)
            refresh_report(book)
        lines = plan.describe(made, book.rollout_id)
        for line in lines:
            self.say(line)
        return {
            "rollout_id": book.rollout_id,
            "run": run,
            "target": made.target,
            "order": made.order,
            "nodes": made.nodes,
            "sha256": made.sha256,
            "directory": book.directory,
            "lines": lines,
        }

    @staticmethod
    def undone(arguments):
        """The ledger of the rollout that is to be undone, if one is."""
        wanted = arguments["undo"]
        if not wanted:
            return None
        rollout_id = ledger.last_id(arguments["artifact_dir"]) if wanted == "last" else wanted
        if not rollout_id:
            raise plan.PlanError("There is no rollout to undo in %s." % ledger.rollouts_dir(arguments["artifact_dir"]))
        book = ledger.Ledger(arguments["artifact_dir"], rollout_id)
        events = [event for event in book.read() if event["event"] == "plan"]
        if not events:
            raise plan.PlanError("There is no rollout %s to undo in %s." % (rollout_id, book.base))
        if wanted == "last" and events[-1].get("undo"):
            raise plan.PlanError("The last rollout, %s, was itself a rollback: name the one to undo with rollback_of." % rollout_id)
        return book

    @staticmethod
    def targets(arguments, undo):
        """Versions by node: given, or the ones that another rollout found before it changed anything."""
        if undo is None or arguments["target"]:
            return arguments["targets"]
        nodes = state.reduce(undo.read()).nodes
        missing = [name for name in arguments["audits"] if name not in nodes or not nodes[name].from_version]
        if missing:
            raise plan.PlanError(
                "Rollout %s recorded no earlier version of %s: name the version with rollout_version, or leave them out."
                % (undo.rollout_id, ", ".join(missing[:5]))
            )
        return {name: nodes[name].from_version for name in arguments["audits"]}

    @staticmethod
    def default_id(arguments, undo, targets):
        if undo is not None:
            return "rollback-%s" % undo.rollout_id
        versions = {arguments["target"]} if arguments["target"] else {str(version or "") for version in targets.values()}
        if len(versions) > 1:
            raise plan.PlanError("The nodes have different target versions (%s): name the rollout with rollout_id." % ", ".join(sorted(versions)))
        return "upgrade-%s" % "".join(versions)
