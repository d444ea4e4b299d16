# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan as printed lines, and estimates: of its duration, and of the time that is left. Pure."""

from __future__ import annotations

import heapq
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import versions
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, order
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.plan import Plan


def estimate_plan(plan: Plan, node_s: float) -> t.Tuple[float, int]:
    """Return (lower bound, expected) seconds of the rollout if each node takes NODE_S.

    The lower bound has only the slots. The expected time also has canaries and their soak, waves, growth, and caps of
    failure domains.
    """
    if not plan.order:
        return 0, 0
    policy = plan.policy
    slots = max(1, policy["max_down"] - policy["broken_elsewhere"])
    bound = max(node_s, -(-len(plan.order) // slots) * node_s)
    size = slots if policy["growth_start"] is None else min(slots, policy["growth_start"])
    waiting, canaries = list(plan.order), set(plan.canaries)
    running: t.List[t.Tuple[float, str]] = []
    wave = {name: limits.wave_of(policy["waves"], place)[0] for place, name in enumerate(plan.order)}
    places_of = {name: order.list_places(plan.nodes[name]["domains"]) for name in plan.order}  # computed once
    clock = 0.0
    left = len(canaries)
    while waiting or running:
        held: t.Dict[t.Tuple[str, str], int] = {}
        for dummy, name in running:
            for item in places_of[name]:
                held[item] = held.get(item, 0) + 1
        skipped = []
        now = min([wave[name] for dummy, name in running] + [wave[name] for name in waiting[:1]])
        while waiting and len(running) < size:
            name = waiting.pop(0)
            places = places_of[name]
            barred = (left and name not in canaries and not plan.nodes[name].get("orphaned")) or (
                wave[name] > now and name not in canaries
            )
            if barred or any(
                held.get(item, 0) >= policy["domain_caps"].get(item[0], len(plan.order)) for item in places
            ):
                skipped.append(name)
                if barred or len(skipped) > 4 * size:
                    break
                continue
            for item in places:
                held[item] = held.get(item, 0) + 1
            heapq.heappush(running, (clock + node_s, name))
        waiting[:0] = skipped
        clock, name = heapq.heappop(running)
        left -= name in canaries
        if name in canaries and not left:
            clock += policy["canary_soak_s"]
        if policy["growth_start"] is not None:
            size = min(slots, size + policy["growth_step"])
    return bound, int(round(clock))


# The lines of a plan that are handed on to the next job of a workflow: AWX shows them to who approves it, and passes
# them to every job that follows.
HANDED = 100


def cut_lines(lines: t.Sequence[str]) -> t.List[str]:
    """Return the first lines of a plan, and how many more there are."""
    more = len(lines) - HANDED
    return list(lines[:HANDED]) + (["  ... and %d more" % more] if more > 0 else [])


def _describe_limits(policy) -> str:
    """Return the limits in words."""
    words = ["at most %d down at a time" % policy["max_down"]]
    if policy["max_draining"] != policy["max_down"]:
        words.append("%d draining" % policy["max_draining"])
    words += ["%d of one %s" % (cap, key) for key, cap in sorted(policy["domain_caps"].items())]
    if policy["growth_start"] is not None:
        words.append("starting with %d" % policy["growth_start"])
    if policy["waves"]:
        words.append("in waves of %s" % limits.list_names((str(size) for size in policy["waves"]), 8))
    if policy["canary_soak_s"]:
        words.append("canaries soak for %s" % format_duration(policy["canary_soak_s"]))
    if policy.get("pool"):
        words.append("together with the other rollouts of pool %s" % policy["pool"])
    words.append("stop at %d failed" % policy["failure_budget"])
    if policy["failure_percent"] is not None:
        words.append("or more than %g %%" % policy["failure_percent"])
    return ", ".join(words)


def format_duration(seconds: float) -> str:
    """Return a duration in readable form."""
    if seconds < 60:
        return "%d s" % seconds
    if seconds < 3600:
        return "%d min" % round(seconds / 60.0)
    return "%d h %02d min" % divmod(round(seconds / 60.0), 60)


def _describe_change(node) -> str:
    """Return the change of a node in words."""
    words = []
    if node.get("install", True):
        words.append("driver %s -> %s" % (node["from"] or "unknown", node["to"]))
        if node["from"] and versions.compare(node["to"], node["from"]) < 0:
            words[0] += " (a downgrade)"
    return " and ".join(words + (["MIG layout %s" % node["layout"]["name"]] if node.get("layout") else []))


def list_steps(plan: Plan) -> t.List[str]:
    """Return the steps that the plan's nodes would go through, once for all with the same ones."""
    alike: t.Dict[t.Tuple[bool, bool], t.List[str]] = {}
    for name in plan.order:
        node = plan.nodes[name]
        alike.setdefault((bool(node.get("install", True)), bool(node.get("layout"))), []).append(name)
    return [
        "%s would go through %s"
        % (
            "each node" if len(alike) == 1 else limits.list_names(names),
            ", ".join(
                (["prestage (unless it is turned off)"] if install else [])
                + ["evidence", "drain", "stop", "mig_clear (in MIG mode)"]
                + (["install", "prove", "reload or reboot"] if install else [])
                + (["mig"] if layout else ["mig (in MIG mode)"])
                + ["validate", "return"]
            ),
        )
        for (install, layout), names in alike.items()
    ]


def describe_plan(plan: Plan, rollout_id: str, node_s: float = 0) -> t.List[str]:
    """Return the plan as lines to print."""
    policy = plan.policy
    lines = [
        "Rollout %s: %d of %d nodes to %s, %s (plan %s)"
        % (rollout_id, len(plan.order), len(plan.nodes), plan.target, _describe_limits(policy), plan.sha256[:12])
    ]
    if node_s and plan.order:
        bound, expected = estimate_plan(plan, node_s)
        lines.append(
            "  about %s at %s a node, and at least %s"
            % (format_duration(expected), format_duration(node_s), format_duration(bound))
        )
    lines += ["  " + note for note in plan.notes]
    for number, name in enumerate(plan.order, start=1):
        node = plan.nodes[name]
        lines.append(
            "  %d. %s%s: %s%s%s%s%s%s%s"
            % (
                number,
                name,
                " (%s)" % ", ".join(node["domains"].values()) if node["domains"] else "",
                _describe_change(node),
                ", kernel %s" % node["to_kernel"] if node.get("to_kernel") else "",
                ", was in flight when its run was interrupted"
                if node.get("orphaned") and not node.get("again")
                else "",
                ", canary" if node.get("canary") else "",
                ", " + node["load"] if node.get("load") else "",
                ", wave %d" % limits.wave_of(policy["waves"], number - 1)[0] if policy["waves"] else "",
                ", retried after: %s" % node["again"] if node.get("again") else "",
            )
        )
    going = set(plan.order)
    for name, node in plan.nodes.items():
        if name not in going:
            lines.append(
                "  left out: %s, %s%s%s"
                % (
                    name,
                    node["state"],
                    ", " + node["reason"] if node["reason"] else "",
                    " (to include it, rollout_control with rollout_verb=retry)" if node.get("order") else "",
                )
            )
    return lines


def describe_drains(backends: t.Mapping[str, t.Any], order: t.Sequence[str]) -> t.List[str]:
    """Describe the schedulers from which the nodes of a rollout are drained. BACKENDS: by node."""
    by_schedulers: t.Dict[t.Tuple[str, ...], t.List[str]] = {}
    for name in order:
        by_schedulers.setdefault(tuple(backends.get(name) or ()), []).append(name)
    lines = []
    for schedulers, names in sorted(by_schedulers.items(), reverse=True):
        who = "all %d nodes" % len(names) if len(names) == len(order) > 1 else limits.list_names(names)
        lines.append(
            "drained in %s: %s" % (" and ".join(schedulers), who)
            if schedulers
            else "drained in no scheduler, as gpu_scheduler_backends names none: %s" % who
        )
    return lines


def median(values) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def estimate_remaining(pending, ages, slots, durations, node_s) -> tuple[float, float]:
    """Return (expected, lower bound) in seconds until all nodes have ended, with SLOTS at a time.

    PENDING is the number of pending nodes, AGES the seconds since nodes in flight started. DURATIONS are the times of
    nodes that are done; NODE_S, from the policy, counts until there are any. The lower bound takes every node to be as
    fast as the fastest.
    """
    usual = median(durations) if durations else float(node_s)
    best = min(durations) if durations else float(node_s)
    slots = max(1, slots)
    busy = [max(0.0, usual - age) for age in ages]
    heap = [0.0] * max(0, slots - len(busy)) + busy
    heapq.heapify(heap)
    end = max(heap) if busy else 0.0
    for dummy in range(pending):
        clock = heapq.heappop(heap) + usual
        end = max(end, clock)
        heapq.heappush(heap, clock)
    left = [max(0.0, best - age) for age in ages]
    bound = max([pending and best] + left + [(pending * best + sum(left)) / slots])
    return end, min(bound, end)


def describe_missing_domains(places: t.Mapping[str, t.Mapping[str, str]], prefix: str) -> t.List[str]:
    """Name the nodes of a rollout that are in no failure domain. PLACES: the domains by node."""
    outside = [name for name, found in places.items() if not found]
    if len(places) < 2 or not outside:
        return []
    if len(outside) == len(places):
        return [
            "no failure domains: no group of these nodes begins with %s (rollout_domain_prefix), and none has %s"
            % (prefix or "anything", order.VARIABLE)
        ]
    return ["in no failure domain, as no group of theirs begins with %s: %s" % (prefix, limits.list_names(outside))]
