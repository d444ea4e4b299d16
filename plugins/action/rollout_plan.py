# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order the nodes of a rollout and open its ledger."""

from __future__ import annotations

import dataclasses
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_plan import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import (
    _answers,
    _awx,
    _collection,
    _controller,
    _mig_file,
    _peers,
    _variables,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, others, owner
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._planning_action import (
    REFUSALS,
    PlanningAction,
    agree,
    require_room,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import (
    claims,
    domains,
    holds,
    joining,
    layouts,
    limits,
    options,
    plan,
    plan_text,
    probes,
    windows,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import outbox

# The limits of the policy that are options; others are computed here.
LIMITS = tuple(key for key in limits.DEFAULTS if key in ARGUMENT_SPEC)
APPROVAL_LETTERS = 8
# The options with answers of nodes, and the modules that gave them.
ANSWERS = {"audits": "driver_audit", "markers": "node_claim", "health": "gpu_health", "layout_looks": "gpu_mig"}


def approval(arguments, made):
    """Return the approved digest if it is that of this plan, "" if not; None if no approval is needed."""
    given = arguments["approve"].strip().lower()
    if not arguments["require_approval"] and not given:
        return None
    return made.sha256 if len(given) >= APPROVAL_LETTERS and made.sha256.startswith(given) else ""


class ActionModule(PlanningAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC
    # The variable of the playbook is rollout_ and the name of the option, except for these. The options that are left
    # out come from results of other tasks.
    VARIABLES = dict(
        {
            key: "rollout_" + key
            for key in ARGUMENT_SPEC
            if key
            not in (
                "targets",
                "audits",
                "markers",
                "health",
                "domains",
                "checked",
                "schedulers",
                "expected",
                "job",
                "hand_over",
                "layouts",
                "layout_looks",
                "refused",
            )
        },
        **options.VARIABLES,
        target="rollout_version",
        undo="rollback_of",
        domain_group_prefix="rollout_domain_prefix",
        role_mode="gpu_node_upgrade_rollout_mode",
    )

    def act(self, arguments, task_vars):
        self.require_checked(arguments)
        arguments.update((key, _answers.accept_all(module, arguments[key])) for key, module in ANSWERS.items())
        running = self.job(arguments, task_vars)
        self.place(arguments["artifact_dir"])
        if arguments["join"]:
            return self.join(arguments, task_vars, running)
        undo, broken_off = self.undone(arguments)
        targets, kernels, wanted, refused = self.wanted(arguments, undo, broken_off)
        ledger = self.ledger(
            arguments, arguments["rollout_id"] or broken_off or self.default_id(arguments, undo, targets, wanted)
        )
        if arguments["hand_over"]:
            self.several(ledger, arguments)
        # A rollback does not compare the number of GPUs with that of others, since a loss may be the reason for it.
        told = {name for name, expect in arguments["expected"].items() if _peers.is_told(expect)}
        counts = probes.gpus(arguments["audits"])
        lacks = {} if undo else _peers.fewer(counts, told)
        peers = _peers.own(counts) if undo else _peers.expectation(counts)
        found = self.claims_found(arguments)
        try:
            places = self.places(arguments, task_vars)
        except domains.DomainError:
            places = {}  # the plan refuses it, but not the nodes in flight
        looked = self.looked(ledger, arguments, places, found, peers, lacks, bool(undo))

        def make(view, now):
            if refused:
                raise plan.PlanError(refused)
            made = plan.build(
                arguments["target"],
                looked,
                self.policy(arguments, task_vars, len(looked)),
                view,
                arguments["canaries"],
                targets,
                arguments["canaries_per_stratum"],
                arguments["abandon"],
                kernels,
                wanted,
            )
            require_room(made, now)
            made.policy["approved"] = approval(arguments, made)
            if not arguments["hand_over"]:
                self.enough_forks(made.policy, len(looked), task_vars)
            return made

        now, run, why, made = ledger.store.clock(), None, "", None
        ledger.look(lambda view: joining.require_compatible(view, _collection.version(), arguments["hand_over"]))
        inventory = (task_vars.get("groups") or {}).get("all")
        ledger.look(lambda view: joining.refuse_other_inventory(view, inventory))
        if self.check or not ledger.look(lambda view: plan.unfinished(view, looked)):
            made = ledger.look(lambda view: make(view, now))
        if self.check:
            why = self.refusal(ledger, arguments, made, found, undo)
        else:
            # The plan is valid, or nodes in flight are to be finished, so that it can be recorded from here on.
            run, identity = uuid.uuid4().hex, dict(self.controller(), **({"job": running} if running else {}))
            made = ledger.transact(
                lambda transaction: self.record(
                    transaction, ledger, run, make, identity, arguments, undo, found, peers, looked
                )
            )
            why = made.refused
            if not arguments["hand_over"]:
                self.watch(ledger, identity, run, arguments["textfile_dir"])
            self.tell(ledger, arguments, now=True)
        lines = self.lines(ledger, made, arguments, why)
        if running:
            lines.append("  %s" % _awx.text(running))
        return self.answer(ledger, made, run, peers, lines, "" if made.refused else why)

    def wanted(self, arguments, undo, broken_off):
        """Return (versions, kernels and MIG layouts by node, why the plan is refused all the same).

        What cannot be read refuses the plan, once the nodes in flight are finished, if it is known of which rollout
        they are.
        """
        refused = arguments["refused"] or self.refused
        try:
            found = self.targets(arguments, undo), self.kernels(arguments, undo), self.layouts(arguments, undo)
        except plan.PlanError as exc:
            if not (undo or broken_off or arguments["rollout_id"]):
                raise
            found, refused = ({}, {}, {}), refused or str(exc)
        return (*found, refused)

    def policy(self, arguments, task_vars, count):
        """Return the limits of the plan for COUNT nodes; refuse options with which it cannot be carried out."""
        self.places(arguments, task_vars)
        layouts.refuse_unfit(arguments["layout_looks"])
        holds.check(arguments["hold_queries"])
        holds.check_times(arguments["hold_age_s"], arguments["hold_deadline_s"])
        outbox.check(arguments["webhook"])
        given = dict({key: arguments[key] for key in LIMITS}, holds=holds.wanted(arguments["hold_queries"]))
        policy = limits.complete(dict(given, waves=given["waves"] if arguments["mode"] == "waves" else []), count)
        windows.check(policy["windows"])
        return policy

    def lines(self, ledger, made, arguments, refused):
        """Return the plan as lines to print, with the next step. REFUSED: why a real run would be refused."""
        lines = plan_text.describe(made, ledger.rollout_id, arguments["node_s"])
        lines[1:1] = [
            "  " + line
            for line in (_variables.drained(arguments["schedulers"], made.order) if arguments["schedulers"] else [])
        ]
        if made.policy["approved"] == "" and not arguments["hand_over"]:
            lines.append("  waits for approval: run again with -e rollout_approve=%s" % made.sha256[:12])
        if made.refused:
            lines.append("  only these nodes, which were in flight, are finished; refused: %s" % refused)
        elif refused:
            lines.append("  refused: %s" % refused)
        elif arguments["hand_over"] and not self.check and made.order:
            lines.append(
                "  each job joins it with -e rollout_join=true -e rollout_id=%s -e rollout_approve=%s, the one with "
                "the canaries first" % (ledger.rollout_id, made.sha256[:12])
            )
        elif not self.check and made.order:
            lines.append("  if it is interrupted (Ctrl-C), the same command continues rollout %s" % ledger.rollout_id)
        return lines

    def join(self, arguments, task_vars, running):
        """Make this run a member of a rollout, with the nodes of its own inventory; return its part of the plan."""
        if not arguments["rollout_id"]:
            raise plan.PlanError(
                "rollout_join needs rollout_id, the name of the rollout that gpufleet.lifecycle.plan has planned. "
                "Nothing was changed."
            )
        ledger = self.ledger(arguments)
        self.several(ledger, arguments)
        view, record = ledger.view(), ledger.owner()
        given = {key: arguments[key] for key in LIMITS if key in self._task.args and self.VARIABLES[key] in task_vars}
        # Each controller asks the queries, and the role reads what becomes of a node that fails from its own variable.
        given.update(holds=holds.wanted(arguments["hold_queries"]), on_failure=arguments["on_failure"])

        def joinable(view, shared):
            joining.refuse(ledger.rollout_id, view, shared)
            joining.require_compatible(view, _collection.version(), shared)

        joinable(view, members.shared(record))
        planned = ledger.planned(view.run)
        found = self.claims_found(arguments)
        refused, places = joining.disagreement(view, arguments["approve"], given), {}
        try:
            places = self.places(arguments, task_vars)
            outbox.check(arguments["webhook"])
        except REFUSALS as exc:
            refused = refused or str(exc)
        looked = self.looked(ledger, arguments, places, found, planned["peers"], {}, False)
        foreseen = joining.part(view, planned, looked)[0]
        refused = arguments["refused"] or self.refused or refused or self.misfit(foreseen, arguments, task_vars)
        # Nodes that a dead member left in flight are finished, whatever keeps this run from joining with the others.
        unfinished = joining.unfinished(view, looked) if refused else None
        if refused and (self.check or not unfinished):
            raise plan.PlanError(refused)
        identity = dict(self.controller(), **({"job": running} if running else {}))
        member = uuid.uuid4().hex

        def work(transaction):
            joinable(transaction.view, members.shared(transaction.owner))
            if transaction.view.run != view.run:
                raise plan.PlanError(
                    "Rollout %s was planned again at this moment. Run it again. Nothing was changed."
                    % ledger.rollout_id
                )
            transaction.block_new_rollouts()
            now = transaction.clock()
            names = [name for name in arguments["audits"] if transaction.view.nodes.get(name) is not None]
            names = [name for name in names if unfinished is None or name in unfinished]
            members.join(transaction, member, names, identity, now, arguments["break_lock"])
            owner.require_free(transaction, names, identity, now, arguments["break_lock"], abandon=arguments["abandon"])
            made, changed = joining.part(transaction.view, planned, [one for one in looked if one.name in names])
            made = dataclasses.replace(made, refused=refused)
            over = self.claimed(transaction, ledger, made, arguments, None, found)
            for name, one in over.items():
                transaction.save(name, claims.OVER, one)
            transaction.append(
                "join",
                run=view.run,
                member=member,
                by=owner.describe(identity),
                hosts=len(names),
                nodes=changed,
                approved=bool(arguments["approve"].strip()) and not refused,
            )
            # The digest may have approved the plan.
            return dataclasses.replace(made, policy=dict(transaction.view.policy)), transaction.view.total

        made, total, why = None, 0, ""
        if self.check:
            try:
                made, total = ledger.rehearse(work)
            except owner.OwnerError as exc:
                made, why = foreseen, str(exc)
        else:
            _controller.require()
            made, total = ledger.transact(work)
            self.watch(ledger, identity, view.run, arguments["textfile_dir"])
            self.tell(ledger, arguments, now=True)
        left_out = [name for name in arguments["audits"] if view.nodes.get(name) is None]
        lines = joining.lines(made, ledger.rollout_id, total, left_out)
        if why:
            lines.append("  refused: %s" % why)
        elif refused:
            lines.append("  only these nodes, which were in flight, are finished; refused: %s" % refused)
        return self.answer(ledger, made, None if self.check else view.run, planned["peers"], lines, why)

    def misfit(self, made, arguments, task_vars):
        """Return why this run cannot carry out its part of a plan; empty if it can."""
        try:
            self.enough_forks(made.policy, len(made.order), task_vars)
            agree(arguments["target"], made)
        except plan.PlanError as exc:
            return str(exc)
        return ""

    def refusal(self, ledger, arguments, made, found, undo):
        """Return why a real run would be refused: its lock, other rollouts, or claims on nodes.

        Empty if it would not.
        """

        def claim(transaction):
            self.require_alone(transaction, arguments)
            owner.claim(
                transaction,
                ledger.rollout_id,
                None,
                list(arguments["audits"]),
                self.controller(),
                arguments["break_lock"],
                abandon=arguments["abandon"],
            )
            self.claimed(transaction, ledger, made, arguments, undo, found)
            self.beside(transaction, made, arguments)
            return True

        try:
            if not ledger.rehearse(claim):
                self.claimed(None, ledger, made, arguments, undo, found)
        except owner.OwnerError as exc:
            return str(exc)
        return ""

    @staticmethod
    def beside(transaction, made, arguments):
        """Note in the plan which nodes other rollouts left in flight, or refuse to start beside them."""
        found = claims.find_orphans(transaction, list(arguments["audits"]), arguments["abandon"])
        counted = others.find_pool_rollouts(transaction, others.name_pool(made.policy))
        found = [(other_id, node) for other_id, node in found if other_id not in counted]
        why = claims.refuse_beside(found, made.order, made.nodes)
        if why:
            raise owner.OwnerError(why)
        made.notes.extend(claims.describe_orphans(found) if made.order else [])

    @classmethod
    def record(cls, transaction, ledger, run, make, identity, arguments, undo, found, peers, looked):
        """Claim the rollout and record the plan; where it is refused, one that only finishes the nodes in flight."""
        _controller.require()
        joining.require_compatible(transaction.view, _collection.version(), arguments["hand_over"])
        cls.require_alone(transaction, arguments)
        unfinished = [] if arguments["hand_over"] else plan.unfinished(transaction.view, looked)

        def claim(names):
            owner.claim(
                transaction,
                ledger.rollout_id,
                run,
                names,
                identity,
                arguments["break_lock"],
                abandon=arguments["abandon"],
            )

        try:
            claim(list(arguments["audits"]))
            made = make(transaction.view, transaction.clock())
            over = cls.claimed(transaction, ledger, made, arguments, undo, found)
            cls.beside(transaction, made, arguments)
        except REFUSALS as exc:
            if not unfinished:
                raise
            claim(unfinished)
            made = plan.finish(looked, transaction.view, str(exc))
            if not made.order:
                raise
            over = cls.claimed(transaction, ledger, made, arguments, None, found)
        for name in made.nodes:
            made.nodes[name]["peers"] = _peers.of_node(peers, name)
        transaction.name_ledger()
        for name, one in over.items():
            transaction.save(name, claims.OVER, one)
        transaction.append(
            "plan",
            run=run,
            undo=transaction.view.undo if made.refused else undo.rollout_id if undo else None,
            job=identity.get("job"),
            peers=peers,
            collection=_collection.version() or None,
            **plan.event(made, ledger.rollout_id),
        )
        if arguments["hand_over"]:
            transaction.hold(members.unowned(run, transaction.clock()))
        if not made.order:
            transaction.append("end", run=run)
        return made

    @staticmethod
    def targets(arguments, undo):
        """Return the versions by node: those given, or those that another rollout found before its changes."""
        if undo is None or arguments["target"]:
            return arguments["targets"]
        nodes = {node.name: node for node in undo.view().nodes.everything()}
        missing = [name for name in arguments["audits"] if name not in nodes or not nodes[name].from_version]
        if missing:
            raise plan.PlanError(
                "Rollout %s recorded no earlier version of %s. Name the rollout that changed them (rollback_of), set "
                "rollout_version, or leave these nodes out. Nothing was changed."
                % (undo.rollout_id, ", ".join(missing[:5]))
            )
        return {name: nodes[name].from_version for name in arguments["audits"]}

    @staticmethod
    def kernels(arguments, undo):
        """Return for each node the kernel that ran before the rollout; none if another version is given by hand."""
        if undo is None or arguments["target"]:
            return {}
        return {
            node.name: node.from_kernel
            for node in undo.view().nodes.everything()
            if node.name in arguments["audits"] and node.from_kernel
        }

    def layouts(self, arguments, undo):
        """Return the MIG layouts by node: those given, or those that another rollout found before its changes."""
        if undo is not None:
            return layouts.before(
                undo.rollout_id,
                [node for node in undo.view().nodes.everything() if node.name in arguments["audits"]],
                lambda name: undo.load(name, "baseline"),
            )
        return layouts.wanted(arguments["layouts"], lambda path: _mig_file.read(self._loader.path_dwim(path)))

    @staticmethod
    def default_id(arguments, undo, targets, wanted):
        if undo is not None:
            return "rollback-%s" % undo.rollout_id
        versions = (
            {arguments["target"]} if arguments["target"] else {str(version or "") for version in targets.values()}
        )
        if len(versions) > 1:
            raise plan.PlanError(
                "The nodes have different target versions (%s). Name the rollout with rollout_id."
                % (", ".join(sorted(versions)))
            )
        names = sorted({layout["name"] for layout in wanted.values()})
        if len(names) > 1:
            raise plan.PlanError(
                "The nodes have different MIG layouts (%s). Name the rollout with rollout_id." % (", ".join(names))
            )
        words = (["mig-%s" % names[0]] if names else ["upgrade"]) + [
            version.replace(":", "-") for version in versions if version or not names
        ]
        return "-".join(words)  # without the colon of a package version's epoch
