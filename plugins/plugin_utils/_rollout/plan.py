# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which nodes go, and who is left out and why. Pure.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import state

VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,3}")


class PlanError(Exception):
    """There is nothing to plan, or it contradicts itself; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """What was found on a node before the rollout."""

    name: str
    reachable: bool = True
    version: t.Optional[str] = None
    quarantined: str = ""  # the reason in its quarantine marker
    error: str = ""
    domain: str = ""


@dataclasses.dataclass(frozen=True)
class Plan:
    target: str
    order: t.List[str]
    nodes: t.Dict[str, t.Dict[str, t.Any]]
    policy: t.Dict[str, t.Any]
    sha256: str

    @property
    def suspects(self):
        return [name for name in self.order if self.nodes[name].get("suspect")]


def natural(name):
    """gpu-2 before gpu-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def round_robin(names, domain_of):
    """One node of each failure domain in turn, so that neighbours in the order share no rack."""
    queues: t.Dict[str, t.List[str]] = {}
    for name in sorted(names, key=natural):
        queues.setdefault(domain_of(name), []).append(name)
    lanes = [queues[domain] for domain in sorted(queues, key=natural)]
    order = []
    while any(lanes):
        for lane in lanes:
            if lane:
                order.append(lane.pop(0))
    return order


def digest(target, order, nodes, policy):
    document = {"target": target, "order": order, "nodes": {name: [nodes[name]["from"], nodes[name]["to"]] for name in order}, "policy": policy}
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode("utf-8")).hexdigest()


def _place(probe, to_version, before):
    """What the plan says of one node."""
    entry = {"from": probe.version, "to": to_version, "domain": probe.domain, "state": "pending", "reason": ""}
    if not probe.reachable:
        entry.update(state="lost", reason="did not answer before the rollout: %s" % (probe.error or "unreachable"))
    elif probe.quarantined:
        entry.update(
            state="quarantined", reason="was quarantined before: %s (remove its marker once it is repaired)" % probe.quarantined.rstrip(". ")
        )
    elif before is not None and before.state in state.IN_FLIGHT:
        entry.update(suspect=True)
        entry["from"] = before.from_version or probe.version
    elif probe.error:
        entry.update(state="failed", reason="could not be examined: %s" % probe.error)
    elif not probe.version:
        entry.update(state="failed", reason="no driver was found to go back to if %s fails: bring the node up first" % to_version)
    elif probe.version == to_version:
        done = before is not None and before.state == "done" and before.to_version == to_version
        entry.update(state="done" if done else "skipped", reason="" if done else "already at %s" % to_version)
        if done:
            entry["from"] = before.from_version
    return entry


def build(target, probes, policy, previous=None, canaries=(), targets=None):
    """Make the plan.

    C(target) is one version for all; C(targets) gives each node its own instead, as a rollback does. C(previous) is the view of the
    same rollout before this run.
    """
    if not probes:
        raise PlanError("The list of nodes is empty: check the inventory group, the hosts variable of the playbook and --limit. Nothing was changed.")
    names = [probe.name for probe in probes]
    doubled = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != len(names) else []
    if doubled:
        raise PlanError("Nodes are named twice: %s." % ", ".join(doubled))
    wanted = {name: (targets or {}).get(name) or target for name in names}
    for name in names:
        if not VERSION.fullmatch(wanted[name] or ""):
            if not wanted[name]:
                raise PlanError("No driver version is given for %s: set nvidia_driver_version (or rollout_version), such as 535.261.03." % name)
            raise PlanError("The driver version of %s is %r; expected digits and dots, such as 535.261.03." % (name, wanted[name]))
    strangers = sorted(set(canaries) - set(names))
    if strangers:
        raise PlanError("Canaries that are not among the nodes of this rollout: %s." % ", ".join(strangers))
    for key in ("max_down", "failure_budget"):
        if policy[key] < 1:
            raise PlanError("rollout_%s is %d; expected 1 or more, otherwise no node could ever start." % (key, policy[key]))

    nodes = {}
    for probe in sorted(probes, key=lambda one: natural(one.name)):
        nodes[probe.name] = _place(probe, wanted[probe.name], previous.nodes.get(probe.name) if previous else None)
    suspects = [name for name in nodes if nodes[name].get("suspect")]
    pending = [name for name in nodes if nodes[name]["state"] == "pending" and name not in suspects]
    first = [name for name in canaries if name in pending]
    rest = round_robin([name for name in pending if name not in first], lambda name: nodes[name]["domain"])
    order = suspects + first + rest
    shown = target or ", ".join(sorted(set(wanted.values()), key=natural))
    return Plan(shown, order, nodes, dict(policy), digest(shown, order, nodes, policy))


def describe(plan, rollout_id):
    """The plan in lines for people."""
    policy = plan.policy
    lines = [
        "Rollout %s: %d of %d nodes to %s, at most %d down at a time, stop at %d failed (plan %s)"
        % (rollout_id, len(plan.order), len(plan.nodes), plan.target, policy["max_down"], policy["failure_budget"], plan.sha256[:12])
    ]
    for number, name in enumerate(plan.order, start=1):
        node = plan.nodes[name]
        lines.append(
            "  %d. %s%s: driver %s -> %s%s"
            % (
                number,
                name,
                " (%s)" % node["domain"] if node["domain"] else "",
                node["from"] or "unknown",
                node["to"],
                ", was in flight when its controller died" if node.get("suspect") else "",
            )
        )
    for name, node in plan.nodes.items():
        if name not in plan.order:
            lines.append("  left out: %s, %s%s" % (name, node["state"], ", " + node["reason"] if node["reason"] else ""))
    return lines
