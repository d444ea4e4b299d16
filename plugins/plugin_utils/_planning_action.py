# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the action that makes a plan or joins one: the nodes as they were found, and refusals."""

from __future__ import annotations

import datetime
import os
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _awx, _peers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, store
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import check_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import (
    holds,
    joining,
    limits,
    options,
    order,
    plan,
    plan_text,
    probes,
    proof,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action import RolloutAction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import webhook

# Names of the machine that runs the playbook.
CONTROLLER = ("localhost", "127.0.0.1")
# What refuses a plan, and not the rollout itself.
REFUSALS = (
    order.DomainError,
    holds.HoldError,
    options.OptionError,
    webhook.WebhookError,
    owner.OwnerError,
    plan.PlanError,
    limits.WindowError,
)


def refuse_other_version(given: str, made: plan.Plan) -> None:
    """Refuse rollout_version of a controller that joins a plan with another version."""
    others = {
        name: node["to"] for name, node in made.nodes.items() if node["to"] != given and node.get("install", True)
    }
    if given and others:
        name = min(others)
        raise plan.PlanError(
            "rollout_version is %s, and the plan has another version for %s; expected %s. Leave it out of the run that "
            "joins the plan. Nothing was changed." % (given, name, others[name])
        )


def require_room(made: plan.Plan, now: datetime.datetime) -> None:
    """Refuse maintenance windows in which no node could start from NOW on, unless nodes in flight are to be finished.

    For these the gate opens outside of the windows too.
    """
    if not made.orphans:
        limits.require_room(made.policy["windows"], now, made.policy["node_s"])


# Options without which not even a node in flight can be finished, or that say of which rollout it is.
ESSENTIAL = ("id", "version", "undo", "ledger", "join", "abandon", "break_lock")


class PlanningAction(RolloutAction):
    """The base of rollout_plan: the nodes as they were found, and refusals.

    GIVEN: the arguments of the task, with the variables of the rollout. UNDO: the ledger of the rollout that is rolled
    back. IDENTITY: of this controller. REFUSED: why the plan is refused once nodes in flight are finished.
    """

    given: dict
    identity: dict
    undo: t.Any = None
    refused: str = ""

    def read_lenient(self, given: t.Mapping[str, t.Any], spec: options.Spec) -> dict:
        """Return options from variables of the playbook.

        One that cannot be used has its default and refuses the plan, unless it is essential.
        """
        optional = {key: one for key, one in spec.items() if key not in ESSENTIAL}
        named = {name.removeprefix(options.PREFIX): value for name, value in given.items()}
        variables = {key: options.PREFIX + key for key in {*named, *optional}}
        unusable = options.find_unusable(named, optional, variables)
        for key in sorted(named.keys() - spec.keys()):
            unusable[key] = "%s is no variable of a rollout. Nothing was changed." % variables[key]
        self.refused = self.refused or next(iter(unusable.values()), "")
        usable = {name: value for name, value in given.items() if name.removeprefix(options.PREFIX) not in unusable}
        return options.read_variables(usable, spec)

    def require_checked(self) -> None:
        """Refuse a run whose variables were not checked, or whose nodes would be changed without tickets."""
        if not self.given["checked"]:
            raise plan.PlanError(
                "The variables of the nodes were not checked. Run the whole playbook, without --start-at-task, --tags "
                "or --skip-tags. Nothing was changed."
            )
        if self.given["role_mode"] != "ledger":
            raise plan.PlanError(
                "gpu_node_upgrade_rollout_mode is %r; expected ledger in a rollout, since nodes would be changed "
                "without tickets and without a record. Remove the variable, or use the role itself for a single node. "
                "Nothing was changed." % (self.given["role_mode"],)
            )

    def read_claims(self) -> t.Dict[str, t.Optional[dict]]:
        """Return {node: the claim that is on it}; refuse names that cannot be nodes, and the controller."""
        for name in self.given["audits"]:
            check_node(name)
            if name in CONTROLLER:
                raise plan.PlanError(
                    "%s is among the nodes, and it is the controller, which cannot drain and reboot itself. Take it "
                    "out, or run the rollout from another machine. Nothing was changed." % name
                )
        markers = self.given["markers"] or {}
        return {name: (markers.get(name) or {}).get("claim") for name in self.given["audits"]}

    def find_domains(self, task_vars: dict) -> t.Dict[str, dict]:
        """Return the failure domains of each host by key."""
        return order.of_hosts(task_vars.get("groups") or {}, self.given["domain_prefix"], self.given["domains"])

    def make_probes(self, ledger: Ledger, places: dict, peers: dict, lacks: dict) -> t.List[probes.Probe]:
        """Return the nodes of this run as they were found."""
        markers = self.given["markers"] or {}
        unproven = {**self.find_unproven(ledger), **self.find_held_elsewhere(ledger)}
        return [
            probes.make_probe(
                name,
                audit,
                markers.get(name),
                places.get(name, {}),
                probes.judge_with_peers((self.given["health"] or {}).get(name), _peers.of_node(peers, name)),
                unproven.get(name, ""),
                lacks.get(name, ""),
                None if self.undo else self.given["layout_looks"].get(name),
            )
            for name, audit in self.given["audits"].items()
        ]

    def require_alone(self, transaction: t.Any) -> None:
        """Refuse to replace a plan for several controllers by one for this run, which may have a part of its nodes."""
        view = transaction.view
        if members.is_shared(transaction.owner) and view.finished is None and not self.given["hand_over"]:
            raise owner.OwnerError(
                "Rollout %s was planned for several controllers at %s, and has not ended. Join it with "
                "rollout_join=true, or end it first (rollout_control with rollout_verb=end). Nothing was changed."
                % (view.rollout_id, view.started)
            )

    def require_named_plan(self) -> None:
        """Refuse to join in a playbook that makes plans of its own, and without the name of a plan."""
        if self.given["undo"] or self.given["layouts"]:
            raise plan.PlanError(
                "rollout_join is true in a playbook that makes plans of its own; expected gpufleet.lifecycle.upgrade, "
                "which carries out its part of any plan, also of a MIG layout or a rollback. Nothing was changed."
            )
        if not self.given["id"]:
            raise plan.PlanError(
                "rollout_join needs rollout_id, the name of the rollout that gpufleet.lifecycle.plan has planned. "
                "Nothing was changed."
            )

    def require_shared_ledger(self, ledger: Ledger) -> None:
        """Refuse what several controllers cannot have: a file for their ledger, and waves."""
        if ledger.store.sqlite:
            raise plan.PlanError(
                "%s needs a ledger that several controllers can use, and this one is %s; expected a database in "
                "PostgreSQL. Set rollout_ledger, such as postgresql+psycopg://user@host/database. Nothing was changed."
                % ("rollout_join" if self.given["join"] else "gpufleet.lifecycle.plan", ledger.store.shown)
            )
        if self.given["mode"] == "waves":
            raise plan.PlanError(
                "rollout_mode is waves; expected window for a rollout of several controllers, since a wave would wait "
                "for nodes of jobs that have not started. Nothing was changed."
            )

    def make_result(
        self, ledger: Ledger, made: plan.Plan, run: t.Optional[str], peers: dict, lines: t.List[str], refused: str
    ) -> dict:
        """Print the plan, in check mode with the steps of its nodes, and return the result of the task."""
        lines = lines + (["  " + line for line in plan_text.list_steps(made)] if self.check and not refused else [])
        for line in lines:
            self.say(line)
        result = {
            "rollout_id": ledger.rollout_id,
            "run": run,
            "target": made.target,
            "undo": self.undo.rollout_id if self.undo else "",
            "order": made.order,
            "canaries": made.canaries,
            "left_out": plan.find_blocked_nodes(made.nodes),
            "nodes": made.nodes,
            "peers": peers,
            "sha256": made.sha256,
            "approved": made.policy["approved"] != "",
            "on_failure": made.policy.get("on_failure") or "rollback",
            "refused": made.refused or refused,
            "directory": ledger.directory,
            "lines": lines,
            "table": plan_text.cut_lines(lines),
        }
        if refused:  # the result has the plan too
            result.update(failed=True, msg=refused)
        return result

    def find_job(self, task_vars: dict) -> t.Dict[str, str]:
        """Return the AWX job of this run, empty outside AWX; refuse one whose ledger or files would be lost with it."""
        running = _awx.job(self.given["job"] or {})
        if running:
            database = store.Store(self.given["ledger"] or store.default_url(self.given["artifact_dir"]))
            nodes = task_vars.get("hostvars") or {}
            places = {name: _awx.artifact_host(nodes[name] if name in nodes else {}) for name in self.given["audits"]}
            why = _awx.refusal(running, database.sqlite, database.shown, places)
            if why:
                raise plan.PlanError(why)
        return running

    def find_unproven(self, ledger: Ledger) -> t.Dict[str, str]:
        """Return for each node the other rollout of this ledger that changed it last and has not proven it."""
        others = ledger.elsewhere(list(self.given["audits"]))
        wanted = {node.name for dummy, node in others}
        mine = (
            ledger.look(
                lambda view: {name: node for name in wanted for node in [view.nodes.get(name)] if node is not None}
            )
            if others
            else {}
        )
        return proof.unproven_elsewhere(mine, others)

    def find_held_elsewhere(self, ledger: Ledger) -> t.Dict[str, str]:
        """Return for each node the other rollout, of any ledger, that is in its claim and not finished with it."""
        held = {name: one for name, one in self.read_claims().items() if one}

        def question(transaction) -> dict[str, str]:
            known = {name: transaction.ledger_id == one["ledger"] for name, one in held.items()}
            return {
                name: one["rollout_id"]
                for name, one in held.items()
                if not known[name]
                or (
                    one["rollout_id"] != ledger.rollout_id
                    and transaction.others.state_of(one["rollout_id"], name) not in joining.SETTLED
                )
            }

        answer = ledger.rehearse(question) if held else {}
        return {name: one["rollout_id"] for name, one in held.items()} if answer is None else answer

    @staticmethod
    def require_directory(directory: str) -> None:
        """Refuse a directory that cannot be created, in check mode too."""
        there = os.path.abspath(os.path.expanduser(directory))
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        if not os.path.isdir(there):
            raise plan.PlanError(
                "gpufleet_artifact_dir is %s, and %s is not a directory. Set another one. Nothing was changed."
                % (directory, there)
            )

    def find_replaced_claims(self, transaction: t.Any, ledger: Ledger, made: plan.Plan) -> t.Dict[str, dict]:
        """Return {node: the claim of another rollout that this one replaces}; refuse nodes of another rollout."""
        undo = self.undo.rollout_id if self.undo and not made.refused else ""
        refused, over, found = {}, {}, self.read_claims()
        ledger_id = transaction.ledger_id if transaction else None
        for name in made.order:
            one = found.get(name)
            if not one:
                last = ((self.given["markers"] or {}).get(name) or {}).get("last_change")
                why = claim.changed_elsewhere(last, ledger_id, made.policy.get("other_ledger_s", 0))
                if why and name in self.given["abandon"]:
                    over[name] = last
                elif why:
                    raise owner.OwnerError(
                        "%s cannot be taken: %s. Use that ledger (rollout_ledger, gpufleet_artifact_dir), or take the "
                        "node as it is, with rollout_abandon=%s in this run, or with another rollout_other_ledger_s. "
                        "Nothing was changed." % (name, why, name)
                    )
                continue
            before = transaction.view.nodes.get(name) if transaction else None
            answer = joining.is_admitted(
                one,
                ledger_id,
                ledger.rollout_id,
                before.attempt if before else 0,
                transaction.others.state_of(one["rollout_id"], name) if transaction else None,
                name in self.given["abandon"],
                undo,
            )
            if answer.why:
                refused[name] = answer.why
            elif answer.over:
                over[name] = one
        if refused:
            raise owner.OwnerError(joining.describe_refusal(refused, found))
        return over

    @staticmethod
    def require_forks(policy: dict, count: int, task_vars: dict) -> None:
        """Refuse fewer forks than nodes in flight, since each holds one.

        If no node drains ahead of its slot, draining nodes are among the max_down ones.
        """
        forks = int(task_vars.get("ansible_forks") or 0)
        down, draining = policy["max_down"], policy["max_draining"]
        needed = min(count, down + (draining if draining > down else 0))
        if forks and forks < needed:
            raise plan.PlanError(
                "rollout_max_down is %d%s, and this run has %d forks. Every node in flight holds one. Run it with "
                "--forks %d or more. Nothing was changed."
                % (down, " and rollout_max_draining %d" % draining if draining > down else "", forks, needed)
            )
