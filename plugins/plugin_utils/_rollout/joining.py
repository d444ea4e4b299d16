# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rollout a controller may go on with, and the part of a plan that it takes over when it joins. Pure.

The way of a node through an upgrade belongs to a version of the collection: one that begins it and another that
finishes it may differ in their steps and in what they take for proven. Versions with the same major and minor number go
together, whatever their patch number and whether they are pre-releases: 1.0.0-rc1, 1.0.0-rc2, 1.0.0 and 1.0.3 do, 1.0.3
and 1.1.0-rc1 do not. A candidate is corrected as a release is, by the next one, and the rollouts that met the mistake
are to go on with that. What a version cannot read at all is kept apart by the schema of the ledger.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import entries, limits, options, windows
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import PlanError, natural_key
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
    except (PlanError, options.OptionError, windows.WindowError) as exc:
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
