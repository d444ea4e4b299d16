# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run may take: a rollout to go on with, its part of a shared plan, and nodes with claims. Pure.

The way of a node through an upgrade belongs to a version of the collection: one that begins it and another that
finishes it may differ in their steps and in what they take for proven. Versions with the same major and minor number go
together, whatever their patch number and whether they are pre-releases: 1.0.0-rc1, 1.0.0-rc2, 1.0.0 and 1.0.3 do, 1.0.3
and 1.1.0-rc1 do not. A candidate is corrected as a release is, by the next one, and the rollouts that met the mistake
are to go on with that. What a version cannot read at all is kept apart by the schema of the ledger.

Below: the claims on nodes, and the nodes that an interrupted run of another rollout left in flight, which hold no slot
of this one.
"""

from __future__ import annotations

import dataclasses
import re
import socket

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import entries, limits, options
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import list_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import (
    PlanError,
    list_places,
    natural_key,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.plan import Plan

DIGITS = 8  # of a digest, at least
# Limits that are not compared: the sizes of waves, which several controllers cannot have, and what is computed.
NOT_COMPARED = ("waves", "fleet", "approved")
# Variables whose names are not those of their limits.
NAMES = {"holds": "rollout_hold_queries"}


def refuse_join(rollout_id, view, shared) -> None:
    """Refuse a rollout that cannot be joined. SHARED: the plan was made for several controllers."""
    if view.run is None:
        raise PlanError(
            "There is no plan of rollout %s to join in this ledger. Run gpufleet.lifecycle.plan with all nodes first, "
            "and give its rollout_id and rollout_ledger here. Nothing was changed." % rollout_id
        )
    if not shared:
        raise PlanError(
            "The plan of rollout %s was made for one controller, by gpufleet.lifecycle.upgrade; expected a plan of "
            "gpufleet.lifecycle.plan. Leave out rollout_join, or make the plan with that playbook once the run has "
            "ended. Nothing was changed." % rollout_id
        )
    if view.finished is not None:
        raise PlanError(
            "Rollout %s ended at %s, and cannot be joined any more. For the nodes that are left, run "
            "gpufleet.lifecycle.plan again. Nothing was changed." % (rollout_id, view.finished)
        )


def find_disagreement(view, digest, given) -> str:
    """Return why this run joins with no node that has not started; empty if it agrees with the plan.

    DIGEST: the first letters of the digest of the plan that is to be joined; empty for any. GIVEN: the limits of this
    run that were set, without defaults.
    """
    wanted = digest.strip().lower()
    if wanted and (len(wanted) < DIGITS or not view.sha256.startswith(wanted)):
        return (
            "rollout_approve is %s; expected %s or more of it, the digest of the plan that rollout %s follows. It was "
            "planned again, or another plan was approved. Nothing was changed."
            % (digest, view.sha256[:12], view.rollout_id)
        )
    try:
        refuse_other_limits(view, given)
    except (PlanError, options.OptionError, limits.WindowError) as exc:
        return str(exc)
    return ""


def find_unfinished(view, probes) -> list[str]:
    """Return the nodes of this controller that a member left in flight, or lost after a change."""
    names = {probe.name for probe in probes}
    return [
        node.name
        for node in view.nodes.with_state(*state.IN_FLIGHT, "lost")
        if node.name in names and (node.state != "lost" or entries.is_lost(node))
    ]


def refuse_other_limits(view, given) -> None:
    """Refuse limits that differ from the plan's. Shares such as 10% are shares of all nodes of the plan."""
    policy = {key: view.changed[key]["was"] if key in view.changed else value for key, value in view.policy.items()}
    compared = {key: value for key, value in given.items() if key not in NOT_COMPARED}
    # Of a limit that was not given, the plan's counts: some have another one for their default.
    kept = {key: policy[key] for key in limits.DEFAULTS if key in policy}
    complete = limits.complete_policy(dict(kept, **compared), policy["fleet"])
    for key in sorted(compared):
        if complete.get(key) != policy.get(key):
            raise PlanError(
                "%s is %s, and the plan of rollout %s has %s. The limits of a plan hold for every controller that "
                "joins it. Give the plan's here or, where it has a default, leave the variable out. To change a limit "
                "for all of them, use rollout_control with rollout_verb=set_budget. Nothing was changed."
                % (NAMES.get(key, "rollout_" + key), given[key], view.rollout_id, policy.get(key))
            )


def entry_of(probe, node, planned) -> dict | None:
    """Return the entry of one node of the plan as it is found now; None if it stays as it is in the ledger.

    NODE: its state in the ledger; in flight, the controller that worked on it is dead. PLANNED: its entry in the plan.
    """
    lost = node.state == "lost" and state.is_unproven(node)
    # It was sick before any change, which may be over.
    sick = node.state in state.FAILED and node.failure == state.SICK
    if not (lost or sick or node.state == "pending" or node.state in state.IN_FLIGHT):
        return None
    layout = dict(node.layout) or None
    entry = entries.entry_of(
        probe, node.to_version, node, True, layout, bool(planned.get("install", True)) if layout else True
    )
    if node.state == "pending" and entry["state"] == "pending":
        return None
    return dict(entry, domains=dict(node.domains))


def plan_part(view, planned, probes) -> tuple[Plan, dict]:
    """Return (plan of this controller's nodes, the entries that the ledger has to take over).

    PLANNED: the event of the plan. PROBES: the nodes of this controller as they are now.
    """
    nodes, changed = {}, {}
    for probe in sorted(probes, key=lambda one: natural_key(one.name)):
        node, before = view.nodes.get(probe.name), planned["nodes"].get(probe.name)
        if node is None or before is None:
            continue
        entry = entry_of(probe, node, before)
        if entry is not None:
            changed[probe.name] = entry
        nodes[probe.name] = dict(before, **{"state": node.state, "reason": node.reason, **(entry or {})})
    going = [name for name, node in nodes.items() if node["state"] == "pending" or node.get("orphaned")]
    order = sorted(going, key=lambda name: _plan_position(view.nodes.get(name)))
    return Plan(view.target, order, nodes, dict(view.policy), view.sha256), changed


def _plan_position(node) -> tuple[bool, int, list]:
    return (node.position is None, node.position or 0, natural_key(node.name))


def describe_join(made, rollout_id, total, left_out) -> list[str]:
    """Return what a controller joins, as lines to print.

    TOTAL: the number of nodes of the plan. LEFT_OUT: hosts of the controller that are not in the plan.
    """
    found = [
        "Rollout %s: joined with %d of %d nodes to %s, %d of which are to be upgraded here (plan %s)"
        % (rollout_id, len(made.nodes), total, made.target, len(made.order), made.sha256[:12])
    ]
    for number, name in enumerate(made.order, start=1):
        node = made.nodes[name]
        found.append(
            "  %d. %s%s%s"
            % (
                number,
                name,
                ", was in flight when its run was interrupted" if node.get("orphaned") else "",
                ", canary" if node.get("canary") else "",
            )
        )
    for name, node in made.nodes.items():
        if name not in made.order:
            found.append(
                "  left out: %s, %s%s" % (name, node["state"], ", " + node["reason"] if node["reason"] else "")
            )
    if left_out:
        found.append(
            "  not in the plan: %s; to include %s, run gpufleet.lifecycle.plan again"
            % (limits.list_names(sorted(left_out, key=natural_key)), "it" if len(left_out) == 1 else "them")
        )
    return found


SEMANTIC = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")


def read_line(version) -> tuple[int, int] | None:
    """Return (major, minor) of a semantic version; None if it is none."""
    found = SEMANTIC.fullmatch(version) if isinstance(version, str) else None
    return (int(found.group(1)), int(found.group(2))) if found else None


def go_together(planned, here) -> bool:
    """Return True if the version HERE may go on with what the version PLANNED has planned.

    A plan has no version if the controller that made it could not read its own; any version may continue it. A version
    that is not a semantic version goes with no other.
    """
    return not planned or (read_line(planned) is not None and read_line(planned) == read_line(here))


def require_compatible(view, here, shared) -> None:
    """Refuse to go on with a rollout that has not ended, and that a version planned which does not go with HERE.

    HERE: the version of this controller, empty if it is not known. SHARED: several controllers share the plan.
    """
    if view.run is None or view.finished is not None or go_together(view.collection, here):
        return
    raise PlanError(
        "Rollout %s was planned by version %s of gpufleet.lifecycle and has not ended, and this controller has %s; "
        "expected the same major and minor number. Install gpufleet.lifecycle:==%s here, in AWX in the project or the "
        "execution environment, and run it again%s. Nothing was changed."
        % (
            view.rollout_id,
            view.collection,
            "version %s" % here if here else "one whose version neither MANIFEST.json nor galaxy.yml says",
            view.collection,
            ", or end the rollout when none of its jobs runs (rollout_control with rollout_verb=end) and plan it again"
            if shared
            else "",
        )
    )


def refuse_other_inventory(view, inventory) -> None:
    """Refuse the id of a rollout whose nodes are all unknown here: its record would be replaced by that of other nodes.

    INVENTORY: every host of the inventory of this run, whatever its limit; None if that is not known.
    """
    planned = {node.name for node in view.nodes.list_all()} if view.run is not None and inventory is not None else set()
    if planned and not planned & set(inventory):
        names = sorted(planned)
        raise PlanError(
            "Rollout %s was planned for other nodes (%s%s), and none of them is in this inventory. Give this rollout "
            "an id of its own (rollout_id), or check the inventory (-i). Nothing was changed."
            % (view.rollout_id, ", ".join(names[:3]), ", ..." if len(names) > 3 else "")
        )


RELEASED, QUARANTINED = "released", "quarantined"
# The document of a node with the claim of another rollout that this one may replace.
OVER = "claim-over"
# States in which a rollout of the same ledger is finished with a node. A claim that is still on it is left over from a
# controller that died before it removed the claim.
SETTLED = ("pending", "skipped", "done", "failed", "rolled_back")


@dataclasses.dataclass(frozen=True)
class Answer:
    why: str = ""  # why the node is refused
    over: bool = False  # True if its claim is of another rollout and may be replaced


def make_claim(node, ledger_id, rollout_id, attempt, run, plan, controller=None) -> dict:
    """Return the claim that is written to a node, with the name that the inventory has for it."""
    return {
        "node": node,
        "ledger": ledger_id,
        "rollout_id": rollout_id,
        "attempt": attempt,
        "run": run,
        "plan": plan,
        "controller": controller or socket.gethostname(),
    }


def is_admitted(found, ledger_id, rollout_id, attempts, elsewhere, abandoned=False, undo="") -> Answer:
    """Return whether this rollout may take a node with the claim FOUND.

    C(attempts) is the number of times that this rollout has taken it. C(elsewhere) is its state in the rollout of this
    ledger that the claim names (None: not in it). C(undo) is the rollout that this one rolls back.
    """
    if found is None:
        return Answer()
    own = ledger_id is not None and found["ledger"] == ledger_id
    if own and found["rollout_id"] == rollout_id:
        if found["attempt"] <= attempts:
            return Answer()
        if abandoned:
            return Answer(over=True)
        return Answer(
            "its claim is of attempt %d, and this ledger has %d: it is an older copy of the ledger that was "
            "used" % (found["attempt"], attempts)
        )
    if (
        abandoned
        or own
        and (elsewhere in SETTLED or (undo == found["rollout_id"] and elsewhere in state.OUT_OF_SERVICE))
    ):
        return Answer(over=True)
    there = (
        ", in another ledger"
        if not own
        else ", %s there" % elsewhere
        if elsewhere and elsewhere != found["state"]
        else ""
    )
    return Answer("it is %s%s" % (claim.describe_owner(found), there))


def describe_refusal(refused, found) -> str:
    """Return one message for all refused nodes. REFUSED: {name: why}; FOUND: {name: claim}."""
    name = min(refused)
    others = sorted(set(refused) - {name})
    ours = found[name]
    return (
        "%s cannot be taken: %s%s. Its driver may be only partly changed. Run that rollout again first (rollout_id=%s, "
        "with its ledger): it examines the node, and finishes it or rolls it back. Or take the node as it is, with "
        "rollout_abandon=%s in this run. Nothing was changed."
        % (
            name,
            refused[name],
            " (so are %s)" % list_names(others) if others else "",
            ours["rollout_id"],
            ",".join([name] + others[:4]),
        )
    )


def claim_after(ended) -> str | None:
    """Return what a node's final state does to its claim: RELEASED, QUARANTINED, or None if it stays as it is."""
    if ended in SETTLED:
        return RELEASED
    return QUARANTINED if ended == "quarantined" else None


def find_orphans(transaction, names, abandoned=()) -> list[tuple]:
    """Return (rollout id, node) of those that are not in NAMES or ABANDONED. Running rollouts are left out."""
    found = [
        (other_id, node) for other_id, node in transaction.others.in_flight_beside(names) if node.name not in abandoned
    ]
    if not found:
        return []
    now = transaction.clock()
    running = transaction.others.find_running(now)
    return [(other_id, node) for other_id, node in found if other_id not in running]


def describe_orphans(found) -> list[str]:
    """Return the notes of the plan about them, one line for each rollout."""
    lines = []
    for rollout in dict.fromkeys(other_id for other_id, dummy in found):
        mine = ["%s is %s" % (node.name, node.state) for other_id, node in found if other_id == rollout]
        lines.append(
            "rollout %s was interrupted with %s in flight, which %s no slot here (%s): run it again first "
            "(rollout_id=%s), or count them with rollout_broken_elsewhere=%d"
            % (
                rollout,
                "1 node" if len(mine) == 1 else "%d nodes" % len(mine),
                "holds" if len(mine) == 1 else "hold",
                list_names(mine),
                rollout,
                len(mine),
            )
        )
    return lines


def refuse_beside(found, order, nodes) -> str:
    """Return why the plan is refused beside them: they share a failure domain, capped or not. Empty if they share none.

    ORDER: the names of the nodes that start. NODES: the entries of the plan by name.
    """
    mine = {}
    for name in order:
        for place in list_places(nodes[name]["domains"]):
            mine.setdefault(place, name)
    for rollout, node in found:
        for place in list_places(node.domains):
            if place in mine:
                return (
                    "%s is %s in rollout %s, whose run was interrupted, and shares the %s %s with %s. Run that rollout "
                    "again first (rollout_id=%s): it finishes the node or rolls it back. Or continue without it, with "
                    "rollout_abandon=%s. Nothing was changed."
                    % (node.name, node.state, rollout, *place, mine[place], rollout, node.name)
                )
    return ""
