# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a rollout: its nodes, their order and its limits. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _twins
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import entries, limits, order
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import PlanError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe

# The load of a node in words; empty if it is not known.
LOAD = {False: "idle", None: "", True: "at work"}


@dataclasses.dataclass(frozen=True)
class Plan:
    target: str
    order: t.List[str]
    nodes: t.Dict[str, t.Dict[str, t.Any]]
    policy: t.Dict[str, t.Any]
    sha256: str
    paused: str = ""  # an operator's pause or stop of an interrupted run
    # limits that an operator set in it
    changed: t.Dict[str, t.Dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    notes: t.List[str] = dataclasses.field(default_factory=list)  # what this run keeps of it, in words
    refused: str = ""  # why it only finishes the nodes in flight

    @property
    def orphans(self) -> list[str]:
        return [name for name in self.order if self.nodes[name].get("orphaned")]

    @property
    def canaries(self) -> list:
        return [name for name in self.order if self.nodes[name].get("canary")]


def find_blocked_nodes(nodes: t.Mapping[str, t.Mapping[str, t.Any]]) -> t.List[str]:
    """Return the nodes of a plan that cannot be upgraded as they are. NODES: those of the plan, by name."""
    return [name for name, node in nodes.items() if node.get("state") in state.FAILED and not node.get("orphaned")]


def _taken_over(previous, policy, nodes) -> tuple:
    """Return (policy, pause, limits that an operator set, notes) for a run that continues an interrupted one."""
    paused = previous.paused or ("%s (it was a stop)" % previous.stopped if previous.stopped else "")
    policy, changed = dict(policy), {}
    notes = [
        "the run before was interrupted, and this run continues it: requests of operators stay, and its failures count"
    ]
    if paused:
        notes.append("paused by %s; no node starts before rollout_control with rollout_verb=resume" % paused)
    for key, values in sorted(previous.changed.items()):
        if policy.get(key) == values["was"]:
            policy[key], changed[key] = values["now"], values
            notes.append(
                "%s is %s, as set by set_budget, and not %s; to change it, rollout_control with "
                "rollout_verb=set_budget" % (key, values["now"], values["was"])
            )
        else:
            notes.append(
                "set_budget had set %s to %s (it was %s); rollout_%s is now given as %s, which is used"
                % (key, values["now"], values["was"], key, policy.get(key))
            )
    failed = [name for name, node in nodes.items() if node["state"] in state.FAILED and node["failure"] != state.SICK]
    if failed:
        notes.append(
            "its failures still count: %s; to try a node that serves again, rollout_control with "
            "rollout_verb=retry" % limits.list_names(failed)
        )
    return policy, paused, changed, notes


def build_plan(
    target: str,
    probes: t.Sequence[Probe],
    policy: t.Dict[str, t.Any],
    previous: t.Any = None,
    canaries: t.Sequence[str] = (),
    targets: t.Optional[t.Mapping[str, str]] = None,
    canaries_per_stratum: int = 0,
    abandoned: t.Container[str] = (),
    kernels: t.Optional[t.Mapping[str, str]] = None,
    layouts: t.Optional[t.Mapping[str, t.Dict[str, t.Any]]] = None,
    kernel: str = "",
) -> Plan:
    """Return the plan.

    C(target) is one version for all nodes. C(targets) has a version for each node instead, as in a rollback, and
    C(kernels) the kernel to boot with it, and C(kernel) is one for all nodes. C(layouts) is the MIG layout of
    nodes that get one: C(name), and C(config) or C(layout) as options of gpu_mig; such a node needs no version.
    C(previous) is the view of the same rollout before this run. C(policy) is the result of limits.complete_policy().
    """
    if not probes:
        raise PlanError(
            "The list of nodes is empty. Check the inventory group, the hosts variable of the playbook and --limit. "
            "Nothing was changed."
        )
    by_name = {probe.name: probe for probe in probes}
    if len(by_name) != len(probes):
        names = [probe.name for probe in probes]
        raise PlanError(
            "Nodes are named twice: %s. Name each node once. Nothing was changed."
            % (", ".join(sorted({name for name in names if names.count(name) > 1})))
        )
    twins = _twins.complaint({name: by_name[name].identity for name in sorted(by_name, key=order.natural_key)})
    if twins:
        raise PlanError(twins + " Nothing was changed.")
    layouts, earlier = layouts or {}, {name: previous.nodes.get(name) if previous else None for name in by_name}
    driver = {name: bool(target or (targets or {}).get(name) or not layouts.get(name)) for name in by_name}
    wanted = entries.find_versions(target, targets, [name for name in by_name if driver[name]])
    wanted.update({name: entries.kept_version(by_name[name], earlier[name]) for name in by_name if not driver[name]})
    check_canaries(canaries, canaries_per_stratum, by_name)
    going_on = previous is not None and previous.run is not None and previous.finished is None
    nodes = entries.find_absent(previous, by_name, abandoned, going_on)
    for probe in sorted(probes, key=lambda one: order.natural_key(one.name)):
        nodes[probe.name] = entries.entry_of(
            probe, wanted[probe.name], earlier[probe.name], going_on, layouts.get(probe.name), driver[probe.name]
        )
    policy, paused, changed, notes = _taken_over(previous, policy, nodes) if going_on else (policy, "", {}, [])
    if kernel:
        entries.require_kernel(kernel, nodes, probes, driver)
        kernels = {name: kernel for name in by_name if driver[name]}
    notes += entries.set_kernels(nodes, probes, kernels or {})
    orphaned = [name for name in nodes if nodes[name].get("orphaned")]
    pending = [name for name in nodes if nodes[name]["state"] == "pending" and name not in orphaned]
    for key in policy["domain_caps"]:
        lacking = [name for name in orphaned + pending if not nodes[name]["domains"].get(key)]
        if lacking:
            raise PlanError(
                "rollout_domain_caps limits the nodes of one %s, and the %s of these nodes is not known: %s. Set it in "
                "gpufleet_domains, or by a group. Nothing was changed." % (key, key, limits.list_names(lacking))
            )
    spread = next(iter(sorted(policy["domain_caps"], key=lambda key: (policy["domain_caps"][key], key))), None)
    found = sorted({key for name in pending for key in nodes[name]["domains"]})
    spread = spread or ("rack" if "rack" in found else found[0] if found else None)
    rest = order.round_robin(pending, lambda name: nodes[name]["domains"].get(spread, "") if spread else "")
    first = choose_canaries(canaries, canaries_per_stratum, orphaned + rest, by_name, nodes, previous)
    count = max(len(first), len(canaries))
    if count and policy["canary_failures"] > count:
        raise PlanError(
            "rollout_canary_failures is %d, and there %s; expected at most this number. Nothing was "
            "changed." % (policy["canary_failures"], "is 1 canary" if count == 1 else "are %d canaries" % count)
        )
    for name in first + [name for name in canaries if nodes[name]["state"] == "done"]:
        nodes[name]["canary"] = True
    planned = orphaned + [name for name in first if name not in orphaned]
    planned += [name for name in rest if "canary" not in nodes[name]]
    policy = dict(policy, waves=limits.wave_sizes(policy["waves"], len(planned)))
    for name in planned:
        nodes[name]["load"] = LOAD[by_name[name].at_work]

    def neighbours(place, name) -> tuple[str, int]:
        return nodes[name]["domains"].get(spread, "") if spread else "", limits.wave_of(policy["waves"], place)[
            0
        ] if policy["waves"] else 0

    free = {name for name in rest if "canary" not in nodes[name]}
    sequence = order.idle_first(planned, free, neighbours, lambda name: by_name[name].at_work)
    shown = target or ", ".join(sorted({wanted[name] for name in by_name if driver[name]}, key=order.natural_key))
    named = sorted({layouts[name]["name"] for name in by_name if layouts.get(name)}, key=order.natural_key)
    shown = " and ".join(filter(None, [shown, "MIG layout %s" % ", ".join(named) if named else ""]))
    return Plan(shown, sequence, nodes, policy, digest_plan(shown, planned, nodes, policy), paused, changed, notes)


def find_unfinished(previous: t.Any, probes: t.Iterable[Probe]) -> t.List[str]:
    """Return the nodes of this run that an earlier run left in flight, or lost after a change."""
    names = {probe.name for probe in probes}
    return [
        node.name
        for node in previous.nodes.with_state(*state.IN_FLIGHT, "lost")
        if node.name in names and not node.diverted and (node.state != "lost" or entries.is_lost(node))
    ]


def plan_finish(probes: t.Sequence[Probe], previous: t.Any, why: str) -> Plan:
    """Return the plan of a run that only finishes its nodes in flight, to what they were on the way to.

    WHY: what refuses the plan that was asked for. Its limits are those of the run before, and all other nodes stay as
    they are in the ledger.
    """
    by_name, names = {probe.name: probe for probe in probes}, find_unfinished(previous, probes)
    nodes: t.Dict[str, t.Dict[str, t.Any]] = {}
    for node in previous.nodes.list_all():
        if node.name in names:
            layout = dict(node.layout) or None
            found = entries.entry_of(
                by_name[node.name], node.to_version, node, True, layout, node.install if layout else True
            )
            nodes[node.name] = dict(found, canary=node.canary, to_kernel=node.to_kernel, domains=dict(node.domains))
        else:
            nodes[node.name] = entries.kept_entry(node)
    for probe in probes:
        new = {"from": probe.version, "to": "", "domains": dict(probe.domains), "state": "pending", "reason": ""}
        nodes.setdefault(probe.name, new)
    before = {**previous.policy, **{key: values["was"] for key, values in previous.changed.items()}}
    policy, paused, changed, notes = _taken_over(previous, before, {})
    going = [name for name in sorted(names, key=order.natural_key) if nodes[name].get("orphaned")]
    sha256 = digest_plan(previous.target, going, nodes, policy)
    return Plan(previous.target, going, nodes, policy, sha256, paused, changed, notes, why)


def digest_plan(
    target: str, order: t.Sequence[str], nodes: t.Mapping[str, t.Mapping[str, t.Any]], policy: t.Mapping[str, t.Any]
) -> str:
    """Return the digest that an approval is bound to: nodes, order, versions, MIG layouts, failure domains, canaries
    and limits.

    ORDER does not take into account which nodes are in use. This changes every minute, so that a plan made again would
    never be the approved one.
    """
    rules = {key: value for key, value in policy.items() if key != "approved"}
    going = {
        name: [nodes[name]["from"], nodes[name]["to"], nodes[name]["domains"], bool(nodes[name].get("canary"))]
        for name in order
    }
    kernels = {name: nodes[name]["to_kernel"] for name in order if nodes[name].get("to_kernel")}
    layouts = {
        name: [nodes[name]["layout"], nodes[name].get("install", True)] for name in order if nodes[name].get("layout")
    }
    document = {
        "target": target,
        "order": order,
        "nodes": going,
        "policy": rules,
        "kernels": kernels,
        "layouts": layouts,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode("utf-8")).hexdigest()


def make_event(plan: Plan, rollout_id: str) -> t.Dict[str, t.Any]:
    """Return the fields of the plan's event in the ledger."""
    return {
        "rollout_id": rollout_id,
        "target": plan.target,
        "order": plan.order,
        "nodes": plan.nodes,
        "policy": plan.policy,
        "sha256": plan.sha256,
        "paused": plan.paused,
        "changed": plan.changed,
        "refused": plan.refused,
    }


def check_canaries(named: t.Sequence[str], per_stratum: int, by_name: t.Collection[str]) -> None:
    """Refuse canaries that are not among the nodes of the rollout."""
    unknown = sorted(set(named) - set(by_name))
    if unknown:
        raise PlanError(
            "rollout_canaries names nodes that are not in this rollout: %s. Name other nodes, or add these to the "
            "rollout (inventory, --limit). Nothing was changed." % limits.list_names(unknown)
        )
    repeated = sorted(name for name in set(named) if list(named).count(name) > 1)
    if repeated:
        raise PlanError(
            "rollout_canaries names %s twice; expected every canary once. Nothing was changed." % repeated[0]
        )
    if per_stratum < 0:
        raise PlanError(
            "rollout_canaries_per_stratum is %d; expected a number of at least 0. Nothing was changed." % per_stratum
        )
    if per_stratum > len(by_name):
        raise PlanError(
            "rollout_canaries_per_stratum is %d, and the rollout has %d nodes; expected at most this number. Nothing "
            "was changed." % (per_stratum, len(by_name))
        )


def choose_canaries(
    named: t.Sequence[str],
    per_stratum: int,
    ready: t.Sequence[str],
    probes: t.Mapping[str, Probe],
    nodes: t.Mapping[str, t.Dict[str, t.Any]],
    previous: t.Any,
) -> t.List[str]:
    """Return the canaries: those that are named, orphaned ones, then nodes of each stratum up to PER_STRATUM.

    READY are the nodes that can start. A named node that cannot start is refused, unless it is at the target already.
    Leaving it out silently would let other nodes start without a canary.
    """
    for name in named:
        entry = nodes[name]
        if name not in ready and not (
            entry["state"] == "done"
            or entry["from"] == entry["to"]
            and entry["state"] == "skipped"
            and not entry.get("order")
        ):
            raise PlanError(
                "rollout_canaries names %s, which cannot start: %s, %s. Repair it, or name another node in "
                "rollout_canaries. Nothing was changed."
                % (name, entry["state"], (entry["reason"] or "no reason was recorded").rstrip("."))
            )
    chosen = [name for name in named if name in ready]
    left = [name for name in ready if nodes[name].get("orphaned") and previous.nodes.get(name).canary]
    chosen += [name for name in left if name not in chosen]
    if per_stratum:
        counts: t.Dict[str, int] = {}
        for name in chosen:
            counts[probes[name].stratum] = counts.get(probes[name].stratum, 0) + 1
        for name in ready:
            stratum = probes[name].stratum
            if counts.get(stratum, 0) < per_stratum and name not in chosen:
                counts[stratum] = counts.get(stratum, 0) + 1
                chosen.append(name)
    return chosen
