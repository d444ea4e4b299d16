# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order the nodes of a rollout and open its ledger."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.modules.rollout_plan import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import (
    _answers,
    _awx,
    _collection,
    _controller,
    _mig_file,
    _peers,
    _variable_names,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, members, others, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._planning_action import (
    REFUSALS,
    PlanningAction,
    refuse_other_version,
    require_room,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import (
    gate,
    holds,
    joining,
    limits,
    options,
    order,
    plan,
    plan_text,
    probes,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import publish, webhook

APPROVAL_LETTERS = 8
# The options with answers of nodes, and the modules that gave them.
ANSWERS = {"audits": "driver_audit", "markers": "node_state", "health": "gpu_health", "layout_looks": "gpu_mig"}


def approve_plan(arguments: t.Mapping[str, t.Any], made: plan.Plan) -> t.Optional[str]:
    """Return the approved digest if it is that of this plan, "" if not; None if no approval is needed."""
    given = arguments["approve"].strip().lower()
    if not arguments["require_approval"] and not given:
        return None
    return made.sha256 if len(given) >= APPROVAL_LETTERS and made.sha256.startswith(given) else ""


class ActionModule(PlanningAction):
    ARGUMENT_SPEC = ARGUMENT_SPEC
    VARIABLES = {"artifact_dir": "gpufleet_artifact_dir", "role_mode": "gpu_node_upgrade_rollout_mode"}

    def act(self, arguments: dict, task_vars: dict) -> dict:
        self.given = arguments
        self.require_checked()
        # The limits are read by what makes the plan: where one is refused, nodes in flight are finished all the same.
        policy = arguments["policy"]
        of_run = {name: policy.pop(name) for name in list(policy) if name.removeprefix(options.PREFIX) in options.RUN}
        self.refused = arguments["refused"]
        arguments.update(self.read_lenient(of_run, options.RUN))
        arguments.update((key, _answers.accept_all(module, arguments[key])) for key, module in ANSWERS.items())
        job = self.find_job(task_vars)
        self.identity = dict(self.controller(), **({"job": job} if job else {}))
        self.require_directory(arguments["artifact_dir"])
        return self.join_plan(task_vars) if arguments["join"] else self.make_plan(task_vars)

    def make_plan(self, task_vars: dict) -> dict:
        """Make a plan for the nodes and record it; in check mode, say what a real run would be refused for."""
        given = self.given
        self.undo, broken_off = self.undone(given, given["audits"])
        undo = self.undo
        targets, kernels, wanted = self.find_wanted(bool(undo or broken_off or given["id"]))
        # A rollback finds the kernel of each node by itself, unless it is given another version by hand.
        kernel = given["kernel"] if undo is None or given["version"] else ""
        ledger = self.ledger(given, given["id"] or broken_off or self.make_id(targets, wanted))
        if given["hand_over"]:
            self.require_shared_ledger(ledger)
        # A rollback does not compare the number of GPUs with that of others, since a loss may be the reason for it.
        told = {name for name, expect in given["expected"].items() if _peers.is_told(expect)}
        counts = probes.count_gpus(given["audits"])
        lacks = {} if undo else _peers.fewer(counts, told)
        peers = _peers.own(counts) if undo else _peers.expectation(counts)
        try:
            places = self.find_domains(task_vars)
        except order.DomainError:
            places = {}  # the plan refuses it, but not the nodes in flight
        probed = self.make_probes(ledger, places, peers, lacks)

        def make(view, now) -> plan.Plan:
            if self.refused:
                raise plan.PlanError(self.refused)
            policy = self.make_policy(task_vars, len(probed))
            named, per_stratum = given["canaries"], given["canaries_per_stratum"]
            more = (targets, per_stratum, given["abandon"], kernels, wanted, kernel)
            made = plan.build_plan(given["version"], probed, policy, view, named, *more)
            require_room(made, now)
            made.policy["approved"] = approve_plan(given, made)
            if not given["hand_over"]:
                self.require_forks(made.policy, len(probed), task_vars)
            return made

        run, made, now, run_before = None, None, ledger.store.clock(), ledger.look(lambda view: view.run)
        ledger.look(lambda view: joining.require_compatible(view, _collection.version(), given["hand_over"]))
        inventory = (task_vars.get("groups") or {}).get("all")
        ledger.look(lambda view: joining.refuse_other_inventory(view, inventory))
        if self.check or not ledger.look(lambda view: plan.find_unfinished(view, probed)):
            made = ledger.look(lambda view: make(view, now))
        if self.check:
            event = dict(plan.make_event(made, ledger.rollout_id), event="plan", run="check", time="")
            refused = self.find_refusal(ledger, made) or self.foresee_stop(
                events.apply_event(ledger.view(), event), made
            )
        else:
            # The plan is valid, or nodes in flight are to be finished, so that it can be recorded from here on.
            run = uuid.uuid4().hex
            made = ledger.transact(lambda transaction: self.record_plan(transaction, ledger, run, make, peers, probed))
            refused = made.refused
            self.tell(ledger, given, now=True)
        lines = self.describe_plan(ledger, made, refused)
        result = self.make_result(ledger, made, run, peers, lines, "" if made.refused else refused)
        return dict(result, run_before=run_before)

    def find_wanted(self, is_known: bool) -> t.Tuple[t.Dict[str, str], t.Dict[str, str], t.Dict[str, dict]]:
        """Return versions, kernels and MIG layouts by node.

        What cannot be read refuses the plan, once the nodes in flight are finished, if it IS_KNOWN of which rollout
        they are.
        """
        try:
            return self.find_targets(), self.find_kernels(), self.find_layouts()
        except plan.PlanError as exc:
            if not is_known:
                raise
            self.refused = self.refused or str(exc)
            return {}, {}, {}

    def make_policy(self, task_vars: dict, count: int) -> dict:
        """Return the limits of the plan for COUNT nodes; refuse options with which it cannot be carried out."""
        start = options.read_variables(self.given["policy"], {**options.LIMITS, **options.START})
        self.given.update(start)
        self.find_domains(task_vars)
        probes.refuse_unfit(self.given["layout_looks"])
        holds.check_queries(self.given["hold_queries"])
        webhook.check_webhook(self.given["webhook"])
        given = {key: start[key] for key in options.LIMITS if key != "waves" or self.given["mode"] == "waves"}
        return limits.complete_policy(dict(given, holds=holds.strip_queries(start["hold_queries"])), count)

    def describe_plan(self, ledger: Ledger, made: plan.Plan, refused: str) -> t.List[str]:
        """Return the plan as lines to print, with the next step. REFUSED: why a real run would be refused."""
        lines = plan_text.describe_plan(made, ledger.rollout_id, publish.estimate_node(ledger, made.policy["node_s"]))
        places = {name: made.nodes[name]["domains"] for name in made.order}
        lines[1:1] = ["  " + line for line in plan_text.describe_missing_domains(places, self.given["domain_prefix"])]
        if self.given["schedulers"]:
            lines[1:1] = ["  " + line for line in plan_text.describe_drains(self.given["schedulers"], made.order)]
        if made.policy["approved"] == "" and not self.given["hand_over"]:
            lines.append("  waits for approval: run again with -e rollout_approve=%s" % made.sha256[:12])
        if made.refused:
            lines.append("  only these nodes, which were in flight, are finished; refused: %s" % refused)
        elif refused:
            lines.append("  refused: %s" % refused)
        elif self.given["hand_over"] and not self.check and made.order:
            lines.append(
                "  each job joins it with -e rollout_join=true -e rollout_id=%s -e rollout_approve=%s, the one with "
                "the canaries first" % (ledger.rollout_id, made.sha256[:12])
            )
        elif not self.check and made.order:
            lines.append("  if it is interrupted (Ctrl-C), the same command continues rollout %s" % ledger.rollout_id)
        if self.identity.get("job"):
            lines.append("  %s" % _awx.text(self.identity["job"]))
        return lines

    def join_plan(self, task_vars: dict) -> dict:
        """Make this run a member of a rollout, with the nodes of its own inventory; return its part of the plan."""
        self.require_named_plan()
        ledger = self.ledger(self.given, self.given["id"])
        self.require_shared_ledger(ledger)
        view, record = ledger.view(), ledger.owner()
        start = self.read_lenient(self.given["policy"], {**options.LIMITS, **options.START})
        self.given.update(start)
        given = {
            key: start[key]
            for key in options.LIMITS
            if not options.is_empty(self.given["policy"].get(options.PREFIX + key))
        }
        # Each controller asks the queries, and the role reads what becomes of a node that fails from its own variable.
        given.update(holds=holds.strip_queries(start["hold_queries"]), on_failure=start["on_failure"])

        def joinable(view, shared) -> None:
            joining.refuse_join(ledger.rollout_id, view, shared)
            joining.require_compatible(view, _collection.version(), shared)

        joinable(view, members.is_shared(record))
        if view.undo:  # what its nodes have left from that rollout is replaced, as the plan replaces it
            self.undo = self.ledger(self.given, view.undo)
        planned = ledger.load_plan_event(view.run)
        refused, places = joining.find_disagreement(view, self.given["approve"], given), {}
        try:
            places = self.find_domains(task_vars)
            webhook.check_webhook(start["webhook"])
        except REFUSALS as exc:
            refused = refused or str(exc)
        probed = self.make_probes(ledger, places, planned["peers"], {})
        foreseen = joining.plan_part(view, planned, probed)[0]
        refused = self.refused or refused or self.find_misfit(foreseen, task_vars)
        # Nodes that a dead member left in flight are finished, also if this run may not join with the others.
        unfinished = joining.find_unfinished(view, probed) if refused else None
        if refused and (self.check or not unfinished):
            raise plan.PlanError(refused)
        member, abandon = uuid.uuid4().hex, self.given["abandon"]

        def work(transaction) -> tuple[plan.Plan, int]:
            joinable(transaction.view, members.is_shared(transaction.owner))
            if transaction.view.run != view.run:
                raise plan.PlanError(
                    "Rollout %s was planned again at this moment. Run it again. Nothing was changed."
                    % ledger.rollout_id
                )
            transaction.block_new_rollouts()
            now = transaction.clock()
            names = [name for name in self.given["audits"] if transaction.view.nodes.get(name) is not None]
            names = [name for name in names if unfinished is None or name in unfinished]
            members.add_member(transaction, member, names, self.identity, now, self.given["break_lock"], refused)
            owner.require_free(transaction, names, self.identity, now, self.given["break_lock"], abandon=abandon)
            made, changed = joining.plan_part(transaction.view, planned, [one for one in probed if one.name in names])
            made = dataclasses.replace(made, refused=refused)
            for name, one in self.find_replaced_claims(transaction, ledger, made).items():
                transaction.save(name, joining.OVER, one)
            transaction.append(
                "join",
                run=view.run,
                member=member,
                by=owner.describe_owner(self.identity),
                hosts=len(names),
                nodes=changed,
                approved=bool(self.given["approve"].strip()) and not refused,
            )
            # The digest may have approved the plan.
            return dataclasses.replace(made, policy=dict(transaction.view.policy)), transaction.view.total

        made, total, why = None, 0, ""
        if self.check:
            try:
                made, total = ledger.rehearse(work)
                why = self.foresee_stop(view, made)
            except owner.OwnerError as exc:
                made, why = foreseen, str(exc)
        else:
            _controller.require()
            made, total = ledger.transact(work)
            self.tell(ledger, self.given, now=True)
        left_out = [name for name in self.given["audits"] if view.nodes.get(name) is None]
        lines = joining.describe_join(made, ledger.rollout_id, total, left_out)
        if why:
            lines.append("  refused: %s" % why)
        elif refused:
            lines.append("  only these nodes, which were in flight, are finished; refused: %s" % refused)
        result = self.make_result(ledger, made, None if self.check else view.run, planned["peers"], lines, why)
        return dict(result, run_before=None)

    def find_misfit(self, made: plan.Plan, task_vars: dict) -> str:
        """Return why this run cannot carry out its part of a plan; empty if it can."""
        try:
            self.require_forks(made.policy, len(made.order), task_vars)
            refuse_other_version(self.given["version"], made)
        except plan.PlanError as exc:
            return str(exc)
        return ""

    def claim_rollout(self, transaction: t.Any, ledger: Ledger, run: t.Optional[str], names: t.List[str]) -> None:
        """Take the rollout for this controller, with nodes by NAMES; refuse what another controller has."""
        breaks, abandon = self.given["break_lock"], self.given["abandon"]
        owner.claim_rollout(transaction, ledger.rollout_id, run, names, self.identity, breaks, abandon=abandon)

    def find_refusal(self, ledger: Ledger, made: plan.Plan) -> str:
        """Return why a real run would be refused (its lock, other rollouts, claims on nodes); empty if it would not."""

        def claim(transaction) -> bool:
            self.require_alone(transaction)
            self.claim_rollout(transaction, ledger, None, list(self.given["audits"]))
            self.find_replaced_claims(transaction, ledger, made)
            self.note_orphans(transaction, made)
            return True

        try:
            if not ledger.rehearse(claim):
                self.find_replaced_claims(None, ledger, made)
        except owner.OwnerError as exc:
            return str(exc)
        return ""

    def foresee_stop(self, view: state.Rollout, made: plan.Plan) -> str:
        """Return why no node, or one of them, would start in a real run; empty if each of them may."""
        default_s = _variable_names.read_defaults()["gpu_scheduler_drain_timeout"][2]
        drained = [name for name in made.order if self.given["schedulers"].get(name)]
        given = {name: str(self.given["drains"].get(name, "")).strip() for name in drained}
        drains = {name: int(one) if one.isdigit() else default_s for name, one in given.items()}
        why = gate.foresee_stop(view, made.order, drains)
        return "No node would start, or not all: %s. Nothing was changed." % why if why else ""

    def note_orphans(self, transaction: t.Any, made: plan.Plan) -> None:
        """Note in the plan which nodes other rollouts left in flight, or refuse to start beside them."""
        found = joining.find_orphans(transaction, list(self.given["audits"]), self.given["abandon"])
        counted = others.find_pool_rollouts(transaction, others.name_pool(made.policy))
        found = [(other_id, node) for other_id, node in found if other_id not in counted]
        why = joining.refuse_beside(found, made.order, made.nodes)
        if why:
            raise owner.OwnerError(why)
        made.notes.extend(joining.describe_orphans(found) if made.order else [])

    def record_plan(
        self, transaction: t.Any, ledger: Ledger, run: str, make: t.Callable, peers: dict, probed: t.List[probes.Probe]
    ) -> plan.Plan:
        """Claim the rollout and record the plan; where it is refused, one that only finishes the nodes in flight."""
        _controller.require()
        joining.require_compatible(transaction.view, _collection.version(), self.given["hand_over"])
        self.require_alone(transaction)
        unfinished = [] if self.given["hand_over"] else plan.find_unfinished(transaction.view, probed)

        undo = self.undo.rollout_id if self.undo else None
        try:
            self.claim_rollout(transaction, ledger, run, list(self.given["audits"]))
            made = make(transaction.view, transaction.clock())
            over = self.find_replaced_claims(transaction, ledger, made)
            self.note_orphans(transaction, made)
        except REFUSALS as exc:
            if not unfinished:
                raise
            self.claim_rollout(transaction, ledger, run, unfinished)
            made = plan.plan_finish(probed, transaction.view, str(exc))
            if not made.order:
                raise
            undo = transaction.view.undo
            over = self.find_replaced_claims(transaction, ledger, made)
        for name in made.nodes:
            made.nodes[name]["peers"] = _peers.of_node(peers, name)
        transaction.name_ledger()
        for name, one in over.items():
            transaction.save(name, joining.OVER, one)
        transaction.append(
            "plan",
            run=run,
            undo=undo,
            job=self.identity.get("job"),
            peers=peers,
            collection=_collection.version() or None,
            **plan.make_event(made, ledger.rollout_id),
        )
        if self.given["hand_over"]:
            transaction.hold(members.make_shared_record(run, transaction.clock()))
        if not made.order:
            transaction.append("end", run=run)
        return made

    def find_targets(self) -> t.Dict[str, str]:
        """Return the versions by node: those given, or those that another rollout found before its changes."""
        if self.undo is None or self.given["version"]:
            return self.given["targets"]
        nodes = self.read_undone_nodes()
        missing = [name for name in self.given["audits"] if name not in nodes or not nodes[name].from_version]
        if missing:
            raise plan.PlanError(
                "Rollout %s recorded no earlier version of %s. Name the rollout that changed them (rollback_of), set "
                "rollout_version, or leave these nodes out." % (self.undo.rollout_id, ", ".join(missing[:5]))
            )
        return {name: node.from_version for name, node in nodes.items()}

    def find_kernels(self) -> t.Dict[str, str]:
        """Return for each node the kernel that ran before the rollout; none if another version is given by hand."""
        if self.undo is None or self.given["version"]:
            return {}
        return {name: node.from_kernel for name, node in self.read_undone_nodes().items() if node.from_kernel}

    def find_layouts(self) -> t.Dict[str, dict]:
        """Return the MIG layouts by node: those given, or those that another rollout found before its changes."""
        if self.undo is not None:
            nodes = list(self.read_undone_nodes().values())
            return probes.find_layouts_before(
                self.undo.rollout_id, nodes, lambda name: self.undo.load(name, "baseline")
            )
        return probes.find_layouts(
            self.given["layouts"], lambda path: _mig_file.read_mig_file(self._loader.path_dwim(path))
        )

    def read_undone_nodes(self) -> t.Dict[str, state.Node]:
        """Return the nodes of this run, by name, as the rollout that is rolled back left them."""
        return {node.name: node for node in self.undo.view().nodes.list_all() if node.name in self.given["audits"]}

    def make_id(self, targets: t.Mapping[str, str], wanted: t.Mapping[str, dict]) -> str:
        """Return the name of a rollout that was given none, so that the next run of the same change finds it."""
        if self.undo is not None:
            return "rollback-%s" % self.undo.rollout_id
        version = self.given["version"]
        versions = {version} if version else {str(one or "") for one in targets.values()}
        names = sorted({layout["name"] for layout in wanted.values()})
        for found, what in ((sorted(versions), "target versions"), (names, "MIG layouts")):
            if len(found) > 1:
                raise plan.PlanError(
                    "The nodes have different %s (%s). Name the rollout with rollout_id." % (what, ", ".join(found))
                )
        words = (["mig-%s" % names[0]] if names else ["upgrade"]) + [
            version.replace(":", "-") for version in versions if version or not names
        ]
        return "-".join(words)  # without the colon of a package version's epoch
