# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order the nodes of a rollout and open its ledger."""

from __future__ import annotations

import datetime
import difflib
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver.versions import upstream
from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_plan import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import holds, ledger, limits, outbox, owner, plan, store, windows
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.action import RolloutAction

# Every number of the policy that is an option; the others are found out here.
LIMITS = tuple(key for key in limits.DEFAULTS if key in ARGUMENT_SPEC)
APPROVAL_LETTERS = 8
# Variables of upgrade.yml: the options of this action, but for those that it finds out or calls otherwise, and those of other tasks.
OTHERWISE = (
    "rollout_id", "artifact_dir", "target", "targets", "audits", "markers", "domains", "domain_group_prefix", "variables", "given_version", "role_mode")
VARIABLES = tuple(sorted(
    ["rollout_" + key for key in ARGUMENT_SPEC if key not in OTHERWISE]
    + ["rollout_id", "rollout_version", "rollout_domain_prefix", "rollout_report_dir"]))


def failure_domains(groups, prefix, given):
    """For each host its failure domains by key: those that were given, and the first group with the prefix that holds it."""
    domains = {name: {str(key): str(value) for key, value in (found or {}).items()} for name, found in (given or {}).items()}
    key = prefix.rstrip("_-")
    for group in sorted(name for name in groups if key and name.startswith(prefix)):
        for host in groups[group]:
            domains.setdefault(host, {}).setdefault(key, group)
    return domains


def probe(name, audit, marker, domains):
    """What a driver_audit result and a stat of the quarantine marker say of a node."""
    audit, marker = audit or {}, marker or {}
    if audit.get("unreachable") or marker.get("unreachable"):
        return plan.Probe(name, reachable=False, error=str(audit.get("msg") or marker.get("msg") or ""), domains=domains)
    found = audit.get("audit") or {}
    versions = found.get("versions") or {}
    error = ""
    if audit.get("failed") or "audit" not in audit:
        error = str(audit.get("msg") or "driver_audit gave no answer")
    elif "stat" not in marker:
        error = str(marker.get("msg") or "its quarantine marker could not be looked for")
    quarantined = "%s lies on the node" % marker["stat"].get("path", "a marker") if (marker.get("stat") or {}).get("exists") else ""
    kernel = found.get("kernel") or {}
    devices = sorted({str(item.get("device")) for item in found.get("pci") or []})
    stratum = "%s on %s" % (", ".join(devices) or "no GPU", kernel.get("running") or "unknown kernel")
    version, package = versions.get("loaded") or versions.get("library"), versions.get("package")
    if package and upstream(package) != version:
        package = None  # another driver is on disk than the one that runs
    users = found.get("compute_users")
    return plan.Probe(name, version=version, package=package, quarantined=quarantined, error=error, domains=domains, stratum=stratum,
                      at_work=None if users is None else users > 0, kernel=kernel.get("running"), next_kernel=kernel.get("next_boot"),
                      kernels=None if kernel.get("installed") is None else tuple(kernel["installed"]))


def approval(arguments, made):
    """The digest that was approved, when it is this plan's; None where nobody has to approve."""
    given = arguments["approve"].strip().lower()
    if not arguments["require_approval"] and not given:
        return None
    return made.sha256 if len(given) >= APPROVAL_LETTERS and made.sha256.startswith(given) else ""


def known(given):
    """Refuse a variable that only looks like one of a rollout: a limit with its name misspelt would hold nobody."""
    for name in sorted(set(given) - set(VARIABLES)):
        near = difflib.get_close_matches(name, VARIABLES, 1)
        raise plan.PlanError("%s is no variable of a rollout%s. Correct it, or call a variable of your own otherwise. Nothing was changed." % (
            name, ": did you mean %s?" % near[0] if near else ""))


def agree(given, made):
    """Refuse a version of the command line that is not the plan's: the role would install it in place of the plan's."""
    others = {name: node["to"] for name, node in made.nodes.items() if node["to"] != given}
    if given and others:
        name = min(others)
        raise plan.PlanError(
            "nvidia_driver_version is %s on the command line (-e), which goes before everything, and the plan takes %s to %s. Leave it out there; "
            "rollout_version alone says which version all nodes get. Nothing was changed." % (given, name, others[name]))


class ActionModule(RolloutAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC

    def act(self, arguments, task_vars):
        known(arguments["variables"])
        if arguments["role_mode"] != "ledger":
            raise plan.PlanError(
                "gpu_node_upgrade_rollout_mode is %r: nodes would be taken without leave and without a record. Expected ledger in a rollout; "
                "leave the variable out, or take a single node with the role itself. Nothing was changed." % (arguments["role_mode"],))
        undo = self.undone(arguments)
        targets, kernels = self.targets(arguments, undo), self.kernels(arguments, undo)
        book = self.book(arguments, arguments["rollout_id"] or self.default_id(arguments, undo, targets))
        domains = failure_domains(task_vars.get("groups") or {}, arguments["domain_group_prefix"], arguments["domains"])
        markers = arguments["markers"] or {}
        for name in arguments["audits"]:
            ledger.check_node(name)
        probes = [probe(name, audit, markers.get(name), domains.get(name, {})) for name, audit in arguments["audits"].items()]
        holds.check(arguments["hold_queries"])
        holds.check_times(arguments["hold_age_s"], arguments["hold_deadline_s"])
        outbox.check(arguments["webhook"])
        given = dict({key: arguments[key] for key in LIMITS}, holds=holds.wanted(arguments["hold_queries"]))
        policy = limits.complete(dict(given, waves=given["waves"] if arguments["mode"] == "waves" else []), len(probes))
        windows.require_room(policy["windows"], datetime.datetime.now(datetime.timezone.utc), policy["node_s"])

        def make(view):
            made = plan.build(
                arguments["target"], probes, policy, view, arguments["canaries"], targets, arguments["canaries_per_stratum"],
                arguments["abandon"], kernels,
            )
            agree(arguments["given_version"], made)
            made.policy["approved"] = approval(arguments, made)
            return made

        made, run, refused = book.look(make), None, ""
        self.enough_forks(made.policy, len(probes), task_vars)
        if self.check:
            refused = self.refusal(book, arguments)
        else:
            # A plan that cannot be made leaves nothing behind; from here on there is one.
            run, controller = uuid.uuid4().hex, self.controller()
            made = book.transact(lambda transaction: self.record(transaction, book, run, make, controller, arguments, undo))
            self.tell(book, arguments, now=True)
        lines = plan.describe(made, book.rollout_id, arguments["node_s"])
        if made.policy["approved"] == "":
            lines.append("  waits for approval: run again with -e rollout_approve=%s" % made.sha256[:12])
        if refused:
            lines.append("  refused: %s" % refused)
        for line in lines:
            self.say(line)
        result = {
            "rollout_id": book.rollout_id,
            "run": run,
            "target": made.target,
            "order": made.order,
            "canaries": made.canaries,
            "nodes": made.nodes,
            "sha256": made.sha256,
            "approved": made.policy["approved"] != "",
            "directory": book.directory,
            "lines": lines,
        }
        if refused:  # with the plan all the same
            result.update(failed=True, msg=refused)
        return result

    def refusal(self, book, arguments):
        """Why a real run could not have the rollout now: its lock, or another rollout with the same nodes; empty when it could."""

        def claim(transaction):
            owner.claim(transaction, book.rollout_id, None, list(arguments["audits"]), self.controller(), arguments["break_lock"], abandon=arguments["abandon"])

        try:
            book.rehearse(claim)
        except owner.OwnerError as exc:
            return str(exc)
        return ""

    @staticmethod
    def enough_forks(policy, count, task_vars):
        """A node that is down, drains or waits for a slot holds one fork. As long as no node drains ahead of its slot, those that drain have one."""
        forks = int(task_vars.get("ansible_forks") or 0)
        down, draining = policy["max_down"], policy["max_draining"]
        needed = min(count, down + (draining if draining > down else 0))
        if forks and forks < needed:
            raise plan.PlanError(
                "rollout_max_down is %d%s, and this run has %d forks; every node in flight holds one: run it with --forks %d or more. Nothing was changed."
                % (down, " and rollout_max_draining %d" % draining if draining > down else "", forks, needed))

    @staticmethod
    def record(transaction, book, run, make, controller, arguments, undo):
        """Make the plan the one that is followed, as its owner."""
        owner.claim(transaction, book.rollout_id, run, list(arguments["audits"]), controller, arguments["break_lock"], abandon=arguments["abandon"])
        made = make(transaction.view)
        transaction.append("plan", run=run, undo=undo.rollout_id if undo else None, **plan.event(made, book.rollout_id))
        if not made.order:
            transaction.append("end", run=run)
        return made

    def undone(self, arguments):
        """The ledger of the rollout that is to be undone, if one is."""
        wanted = arguments["undo"]
        if not wanted:
            return None
        database = store.Store(arguments["ledger"] or store.default_url(arguments["artifact_dir"]))
        rollout_id = ledger.last_id(database) if wanted == "last" else wanted
        if not rollout_id:
            raise plan.PlanError("There is no rollout to undo in %s." % database.shown)
        book = self.book(arguments, rollout_id)
        view = book.view()
        if view.run is None:
            raise plan.PlanError("There is no rollout %s to undo in %s." % (rollout_id, database.shown))
        if wanted == "last" and view.undo:
            raise plan.PlanError("The last rollout, %s, was itself a rollback: name the one to undo with rollback_of." % rollout_id)
        return book

    @staticmethod
    def targets(arguments, undo):
        """Versions by node: given, or the ones that another rollout found before it changed anything."""
        if undo is None or arguments["target"]:
            return arguments["targets"]
        nodes = {node.name: node for node in undo.view().nodes.everything()}
        missing = [name for name in arguments["audits"] if name not in nodes or not nodes[name].from_version]
        if missing:
            raise plan.PlanError(
                "Rollout %s recorded no earlier version of %s: name the version with rollout_version, or leave them out."
                % (undo.rollout_id, ", ".join(missing[:5]))
            )
        return {name: nodes[name].from_version for name in arguments["audits"]}

    @staticmethod
    def kernels(arguments, undo):
        """By node the kernel that ran before the rollout that is undone; none where a version is asked for that may never have run with it."""
        if undo is None or arguments["target"]:
            return {}
        return {node.name: node.from_kernel for node in undo.view().nodes.everything() if node.name in arguments["audits"] and node.from_kernel}

    @staticmethod
    def default_id(arguments, undo, targets):
        if undo is not None:
            return "rollback-%s" % undo.rollout_id
        versions = {arguments["target"]} if arguments["target"] else {str(version or "") for version in targets.values()}
        if len(versions) > 1:
            raise plan.PlanError("The nodes have different target versions (%s): name the rollout with rollout_id." % ", ".join(sorted(versions)))
        return "upgrade-%s" % "".join(versions).replace(":", "-")  # the epoch of a package version
