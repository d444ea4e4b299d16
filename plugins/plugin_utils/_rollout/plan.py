# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which nodes go, and who is left out and why. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import json
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _twins
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import domains, limits

# A driver version such as 535.261.03, or the version of its packages such as 535.261.03-1~bpo12+1.
VERSION = re.compile(r"([0-9]+:)?[0-9]+(\.[0-9]+){1,3}(-[A-Za-z0-9.+~]+)?")


# Steps in which a node may be away for a while: a reload may become a reboot.
REBOOTS = ("reboot", "reload", "rollback_reboot", "rollback_reload")
# Whether a node is at work, in a word; nothing where that is not known.
LOAD = {False: "idle", None: "", True: "at work"}

# What is said of nodes that go back without the kernel that they had: the kernel, and their names.
KERNEL_GONE = "kernel %s, which ran with the version before, is not installed any more on %s: the driver goes back, the kernel stays"
KERNEL_UNKNOWN = (
    "whether kernel %s, which ran with the version before, is still installed is not known on %s: driver_audit did not list the kernels that can boot. "
    "The driver goes back, the kernel stays. To take the kernel back too, see why (driver_audit on the node, /lib/modules and /boot) and plan again "
    "before you let it go")


class PlanError(Exception):
    """There is nothing to plan, or it contradicts itself; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """What was found on a node before the rollout."""

    name: str
    reachable: bool = True
    version: t.Optional[str] = None
    package: t.Optional[str] = None  # the version of the packages it comes from
    quarantined: str = ""  # the reason in its quarantine marker
    error: str = ""
    domains: t.Dict[str, str] = dataclasses.field(default_factory=dict)
    stratum: str = ""  # what one canary can speak for: GPU model, kernel
    at_work: t.Optional[bool] = None  # whether something computes on it now
    kernel: t.Optional[str] = None  # the one that runs
    next_kernel: t.Optional[str] = None  # the one that boots next
    kernels: t.Optional[t.Tuple[str, ...]] = None  # those that can boot; None where nobody knows
    verdict: str = ""  # of the look at its GPUs, where it has the wanted version already
    complaint: str = ""  # why that is not pass
    unproven_in: str = ""  # another rollout that changed it last, and has not proven it
    identity: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)  # which machine it is, as driver_audit tells
    lacks: str = ""  # GPUs that other nodes of its model have


@dataclasses.dataclass(frozen=True)
class Plan:
    target: str
    order: t.List[str]
    nodes: t.Dict[str, t.Dict[str, t.Any]]
    policy: t.Dict[str, t.Any]
    sha256: str
    paused: str = ""  # an operator's word to a run that did not end
    changed: t.Dict[str, t.Dict[str, t.Any]] = dataclasses.field(default_factory=dict)  # limits that an operator set in it
    notes: t.List[str] = dataclasses.field(default_factory=list)  # what is taken over from it, in words

    @property
    def suspects(self):
        return [name for name in self.order if self.nodes[name].get("suspect")]

    @property
    def canaries(self):
        return [name for name in self.order if self.nodes[name].get("canary")]


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
    for turn in range(max((len(lane) for lane in lanes), default=0)):
        order.extend(lane[turn] for lane in lanes if turn < len(lane))
    return order


def idle_first(order, free, group_of, at_work):
    """The order, with the FREE nodes of each group in places of their group: the idle ones first, those at work last.

    Draining an idle node costs nothing, and a job may have ended when the turn of its node comes. Groups keep their places, so that
    neighbours share no failure domain as before.
    """
    groups: t.Dict[t.Any, t.List[int]] = {}
    for place, name in enumerate(order):
        if name in free:
            groups.setdefault(group_of(place, name), []).append(place)
    order = list(order)
    for places in groups.values():
        names = sorted((order[place] for place in places), key=lambda name: {False: 0, None: 1, True: 2}[at_work(name)])
        for place, name in zip(places, names):
            order[place] = name
    return order


def digest(target, order, nodes, policy):
    """What an approval is bound to: who goes, in which order, from what to what, from which failure domain, who as a canary, and under which limits.

    ORDER is the one without regard to who is at work: that changes by the minute, and what was approved would never be what is planned again.
    """
    rules = {key: value for key, value in policy.items() if key != "approved"}
    going = {name: [nodes[name]["from"], nodes[name]["to"], nodes[name]["domains"], bool(nodes[name].get("canary"))] for name in order}
    kernels = {name: nodes[name]["to_kernel"] for name in order if nodes[name].get("to_kernel")}
    document = {"target": target, "order": order, "nodes": going, "policy": rules, "kernels": kernels}
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode("utf-8")).hexdigest()


def _blame(found, before):
    """(class, signature) of a node that is FOUND out of order: sick, unless an earlier run of this rollout had its hands on it."""
    if before is not None and before.state in state.FAILED:
        return before.failure or state.HARD, before.signature
    if before is not None and before.state in state.IN_FLIGHT:
        return state.LOST if found == "lost" else state.HARD, before.signature
    return state.SICK, ""


def _there(probe, to_version, before):
    """What the plan says of a node that has the version: this rollout brought it there and proved it, or the look at it now passed."""
    if before is not None and before.state == "done" and before.to_version == to_version:
        return {"state": "done", "from": before.from_version, "from_kernel": before.from_kernel}
    if probe.verdict == "pass":
        return {"state": "skipped", "reason": "already at %s" % to_version}
    return {"state": "failed", "reason": "already at %s, and not proven: %s" % (to_version, probe.complaint or "nothing looked at its GPUs")}


def _present(probe, to_version):
    """What the node has, in the words of what it is to have: a package's version where one is wanted, else the driver's."""
    return probe.package or probe.version if "-" in to_version else probe.version


def _before(before, present, kernel):
    """What an earlier run of this rollout found on a node that it had its hands on; else what is found now."""
    return {"from": before.from_version or present, "from_kernel": before.from_kernel or kernel}


def _kernels(nodes, probes, wanted):
    """Say at each node of the plan that has to boot another kernel which one that is; answers what has to be said of the others.

    WANTED: by node the kernel that ran with the version it goes back to.
    """
    gone: t.Dict[str, t.List[str]] = {}
    unknown: t.Dict[str, t.List[str]] = {}
    for probe in probes:
        kernel, entry = wanted.get(probe.name), nodes[probe.name]
        if not kernel or not (entry["state"] == "pending" or entry.get("suspect")) or probe.kernel == probe.next_kernel == kernel:
            continue
        if kernel in (probe.kernels or ()):
            entry["to_kernel"] = kernel
        else:
            (unknown if probe.kernels is None else gone).setdefault(kernel, []).append(probe.name)
    return [words % (kernel, limits.listed(sorted(names, key=natural)))
            for words, found in ((KERNEL_GONE, gone), (KERNEL_UNKNOWN, unknown)) for kernel, names in sorted(found.items())]


def _unfinished(before, present, to_version):
    """What the plan says of a node on which an earlier run of this rollout left something to finish or to put back; None of any other."""
    if before is None:
        return None
    if before.state in state.IN_FLIGHT:
        return {"suspect": True}
    if before.state == "lost" and state.unproven(before):
        # Whatever runs on it now, nobody has seen that it is well.
        return {"suspect": True, "again": "lost, %s" % before.reason}
    if present == to_version and state.not_taken_back(before):
        return {"suspect": True, "again": "its schedulers did not take it back"}
    return None


def _anew(probe, before):
    """Why the node goes from the beginning whatever version it has; empty when its version may finish it."""
    if probe.unproven_in:
        return "changed in rollout %s, and not proven since" % probe.unproven_in
    if before is not None and before.state == "quarantined" and state.unproven(before):
        # Its marker is gone: it was repaired, and what it was compared with before may not be in it any more.
        return "%s, %s" % (before.state, before.reason)
    return ""


def _left_rebooting(before):
    """Whether a controller died while the node rebooted: that it does not answer says nothing yet, and leave to go waits for it."""
    return before is not None and before.state in state.IN_FLIGHT and bool(before.steps) and before.steps[-1].name in REBOOTS


def _out_of_reach(probe, before):
    """What the plan says of a node that cannot go, whatever it has: it does not answer, or is in quarantine; None of any other."""
    if not probe.reachable and not _left_rebooting(before):
        return {"state": "lost", "reason": "did not answer before the rollout: %s" % (probe.error or "unreachable")}
    if probe.quarantined:
        return {"state": "quarantined", "reason": "was quarantined before: %s (remove its marker once it is repaired)" % probe.quarantined.rstrip(". ")}
    return None


def _unfit(probe, to_version, before):
    """Why nothing may be begun on a node that answers; empty where it may."""
    if probe.error:
        return "could not be examined: %s" % probe.error
    if not probe.version:
        return "no driver was found to go back to if %s fails: bring the node up first" % to_version
    proven = before is not None and before.state == "done" and _present(probe, to_version) == to_version
    return "" if proven else probe.lacks


def _place(probe, to_version, before, going_on):
    """What the plan says of one node. GOING_ON: the run before did not come to its end, and what was said and seen in it stands."""
    present = _present(probe, to_version)
    entry = {"from": present, "to": to_version, "from_kernel": probe.kernel, "domains": dict(probe.domains), "state": "pending", "reason": ""}
    mine = before is not None and before.state in ("failed", "rolled_back") and before.failure != state.SICK
    away, unfinished, anew = _out_of_reach(probe, before), _unfinished(before, present, to_version), _anew(probe, before)
    if before is not None and (state.unproven(before) or not probe.reachable):
        entry.update(_before(before, present, probe.kernel))  # what it goes back to, whenever that will be
    if away:
        entry.update(away)
    elif unfinished:
        entry.update(unfinished, **_before(before, present, probe.kernel))
    elif going_on and before is not None and before.state == "skipped" and before.order:
        entry.update(state="skipped", reason=before.reason, order=before.order)
    elif _unfit(probe, to_version, before):
        entry.update(state="failed", reason=_unfit(probe, to_version, before))
    elif anew:
        entry.update(again=anew)
    elif present == to_version:
        entry.update(_there(probe, to_version, before))
    elif mine and going_on:
        entry.update(state=before.state, reason=before.reason, kept=True)
    elif mine or before is not None and state.kept_out(before):
        entry.update(again="%s, %s" % (before.state, before.reason))
    if entry["state"] in state.FAILED:
        entry["failure"], entry["signature"] = _blame(entry["state"], before)
    return entry


def _absent(previous, names, abandoned, going_on):
    """Nodes of an earlier run of this rollout that are not among its nodes now and still count: those out of service hold their slots, and the failures
    of a run that did not come to its end are failures of this one. GOING_ON: it did not.
    """
    entries = {}
    for node in previous.nodes.everything() if previous else []:
        entry = {"from": node.from_version, "to": node.to_version, "from_kernel": node.from_kernel, "domains": dict(node.domains), "state": node.state,
                 "reason": node.reason, "failure": node.failure or state.SICK, "signature": node.signature}
        if node.name in names:
            continue
        if node.state in state.OUT_OF_SERVICE:
            entries[node.name] = entry
        elif node.state in state.IN_FLIGHT and node.name not in abandoned:
            raise PlanError(
                "%s was in flight (%s%s) when its controller died, and is not among the nodes of this run: take it along (the inventory, --limit), "
                "or give it up with rollout_abandon. Nothing was changed."
                % (node.name, node.state, ", in step %s" % node.steps[-1].name if node.steps else ""))
        elif node.state in state.IN_FLIGHT:
            entries[node.name] = dict(entry, state="lost", reason="given up: it was %s when its controller died" % node.state, failure=state.LOST)
        elif going_on and node.state in state.FAILED and node.failure != state.SICK:
            entries[node.name] = dict(entry, kept=True)
    return entries


def _taken_over(previous, policy, nodes):
    """(policy, pause, limits that an operator set, words) for a run that goes on where one broke off."""
    paused = previous.paused or ("%s (it was a stop)" % previous.stopped if previous.stopped else "")
    policy, changed = dict(policy), {}
    notes = ["the run before did not end, and this one goes on with it: what an operator said in it holds, and its failures count"]
    if paused:
        notes.append("paused by %s; no node starts before rollout_control with rollout_verb=resume" % paused)
    for key, values in sorted(previous.changed.items()):
        if policy.get(key) == values["was"]:
            policy[key], changed[key] = values["now"], values
            notes.append("%s is %s, as set_budget left it, and not %s; rollout_control with rollout_verb=set_budget changes it" % (
                key, values["now"], values["was"]))
        else:
            notes.append("set_budget had %s at %s (not %s); rollout_%s is given as %s now, which holds" % (
                key, values["now"], values["was"], key, policy.get(key)))
    failed = [name for name, node in nodes.items() if node["state"] in state.FAILED and node["failure"] != state.SICK]
    if failed:
        notes.append("its failures count on: %s; rollout_control with rollout_verb=retry gives one that serves another try" % limits.listed(failed))
    return policy, paused, changed, notes


def _wanted(target, targets, names):
    """The version of each node; refuses what is none."""
    wanted = {name: target or (targets or {}).get(name) for name in names}
    for name in names:
        if not VERSION.fullmatch(wanted[name] or ""):
            if not wanted[name]:
                raise PlanError("No driver version is given for %s: set nvidia_driver_version (or rollout_version), such as 535.261.03. Nothing was changed."
                                % name)
            raise PlanError("The driver version of %s is %r; expected digits and dots, such as 535.261.03, or a package version such as 535.261.03-1. "
                            "Correct rollout_version or nvidia_driver_version. Nothing was changed."
                            % (name, wanted[name]))
    return wanted


def _check_canaries(named, per_stratum, by_name):
    """Refuse canaries that there are not."""
    strangers = sorted(set(named) - set(by_name))
    if strangers:
        raise PlanError("Canaries that are not among the nodes of this rollout: %s. Name others in rollout_canaries, or take these along (the inventory, "
                        "--limit). Nothing was changed." % limits.listed(strangers))
    twice = sorted(name for name in set(named) if list(named).count(name) > 1)
    if twice:
        raise PlanError("rollout_canaries names %s twice; expected every canary once. Nothing was changed." % twice[0])
    if per_stratum < 0:
        raise PlanError("rollout_canaries_per_stratum is %d; expected a number of at least 0. Nothing was changed." % per_stratum)
    if per_stratum > len(by_name):
        raise PlanError("rollout_canaries_per_stratum is %d, and the rollout has %d nodes; expected at most as many. Nothing was changed." % (
            per_stratum, len(by_name)))


def _canaries(named, per_stratum, ready, probes, nodes, previous):
    """Those that were named, those that were canaries when their controller died, then so many more of each stratum until every one is spoken for.

    READY are the nodes that can go. One that was named and cannot is refused, unless it is where it should go: to leave it out without
    a word would let the others go unproven.
    """
    for name in named:
        entry = nodes[name]
        if name not in ready and not (entry["state"] == "done" or entry["from"] == entry["to"] and entry["state"] == "skipped"):
            raise PlanError(
                "rollout_canaries names %s, which cannot go: %s, %s. Have it repaired, or name another one in rollout_canaries. Nothing was changed."
                % (name, entry["state"], (entry["reason"] or "no reason was recorded").rstrip(".")))
    chosen = [name for name in named if name in ready]
    left = [name for name in ready if nodes[name].get("suspect") and previous.nodes.get(name).canary]
    chosen += [name for name in left if name not in chosen]
    if per_stratum:
        spoken = {}
        for name in chosen:
            spoken[probes[name].stratum] = spoken.get(probes[name].stratum, 0) + 1
        for name in ready:
            stratum = probes[name].stratum
            if spoken.get(stratum, 0) < per_stratum and name not in chosen:
                spoken[stratum] = spoken.get(stratum, 0) + 1
                chosen.append(name)
    return chosen


def build(target, probes, policy, previous=None, canaries=(), targets=None, canaries_per_stratum=0, abandoned=(), kernels=None):
    """Make the plan.

    C(target) is one version for all; C(targets) gives each node its own instead, as a rollback does, and C(kernels) the kernel that it has
    to boot with it. C(previous) is the view of the same rollout before this run. C(policy) is what limits.complete gives.
    """
    if not probes:
        raise PlanError("The list of nodes is empty: check the inventory group, the hosts variable of the playbook and --limit. Nothing was changed.")
    by_name = {probe.name: probe for probe in probes}
    if len(by_name) != len(probes):
        names = [probe.name for probe in probes]
        raise PlanError("Nodes are named twice: %s." % ", ".join(sorted({name for name in names if names.count(name) > 1})))
    twins = _twins.complaint({name: by_name[name].identity for name in sorted(by_name, key=natural)})
    if twins:
        raise PlanError(twins + " Nothing was changed.")
    wanted = _wanted(target, targets, list(by_name))
    _check_canaries(canaries, canaries_per_stratum, by_name)
    going_on = previous is not None and previous.run is not None and previous.finished is None
    nodes = _absent(previous, by_name, abandoned, going_on)
    for probe in sorted(probes, key=lambda one: natural(one.name)):
        nodes[probe.name] = _place(probe, wanted[probe.name], previous.nodes.get(probe.name) if previous else None, going_on)
    policy, paused, changed, notes = _taken_over(previous, policy, nodes) if going_on else (policy, "", {}, [])
    notes += _kernels(nodes, probes, kernels or {})
    suspects = [name for name in nodes if nodes[name].get("suspect")]
    pending = [name for name in nodes if nodes[name]["state"] == "pending" and name not in suspects]
    for key in policy["domain_caps"]:
        homeless = [name for name in suspects + pending if not nodes[name]["domains"].get(key)]
        if homeless:
            raise PlanError("rollout_domain_caps limits the nodes of one %s, and it is not known of %s: give it in gpufleet_domains, or by a group." % (
                key, limits.listed(homeless)))
    spread = next(iter(sorted(policy["domain_caps"], key=lambda key: (policy["domain_caps"][key], key))), None)
    keys = sorted({key for name in pending for key in nodes[name]["domains"]})
    spread = spread or ("rack" if "rack" in keys else keys[0] if keys else None)
    rest = round_robin(pending, lambda name: nodes[name]["domains"].get(spread, "") if spread else "")
    first = _canaries(canaries, canaries_per_stratum, suspects + rest, by_name, nodes, previous)
    count = max(len(first), len(canaries))
    if count and policy["canary_failures"] > count:
        raise PlanError("rollout_canary_failures is %d, and there %s; expected at most as many. Nothing was changed." % (
            policy["canary_failures"], "is 1 canary" if count == 1 else "are %d canaries" % count))
    for name in first + [name for name in canaries if nodes[name]["state"] == "done"]:
        nodes[name]["canary"] = True
    order = suspects + [name for name in first if name not in suspects]
    order += [name for name in rest if "canary" not in nodes[name]]
    policy = dict(policy, waves=limits.wave_sizes(policy["waves"], len(order)))
    for name in order:
        nodes[name]["load"] = LOAD[by_name[name].at_work]

    def neighbours(place, name):
        return nodes[name]["domains"].get(spread, "") if spread else "", limits.wave_of(policy["waves"], place)[0] if policy["waves"] else 0

    free = {name for name in rest if "canary" not in nodes[name]}
    turns = idle_first(order, free, neighbours, lambda name: by_name[name].at_work)
    shown = target or ", ".join(sorted(set(wanted.values()), key=natural))
    return Plan(shown, turns, nodes, policy, digest(shown, order, nodes, policy), paused, changed, notes)


def event(plan, rollout_id):
    """What the ledger records of a plan."""
    return {"rollout_id": rollout_id, "target": plan.target, "order": plan.order, "nodes": plan.nodes, "policy": plan.policy, "sha256": plan.sha256,
            "paused": plan.paused, "changed": plan.changed}


def estimate(plan, node_s):
    """(lower bound, expected) seconds of the part in which nodes go, each taking NODE_S: what the slots alone cost, and with canaries
    first and their soak, waves, growth and caps of failure domains.
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
    places_of = {name: domains.places(plan.nodes[name]["domains"]) for name in plan.order}  # asked for again and again
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
            barred = (left and name not in canaries and not plan.nodes[name].get("suspect")) or (wave[name] > now and name not in canaries)
            if barred or any(held.get(item, 0) >= policy["domain_caps"].get(item[0], len(plan.order)) for item in places):
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


def _limits(policy):
    """The limits in words."""
    words = ["at most %d down at a time" % policy["max_down"]]
    if policy["max_draining"] != policy["max_down"]:
        words.append("%d draining" % policy["max_draining"])
    words += ["%d of one %s" % (cap, key) for key, cap in sorted(policy["domain_caps"].items())]
    if policy["growth_start"] is not None:
        words.append("beginning with %d" % policy["growth_start"])
    if policy["waves"]:
        words.append("in waves of %s" % limits.listed((str(size) for size in policy["waves"]), 8))
    if policy["canary_soak_s"]:
        words.append("canaries soak for %s" % span(policy["canary_soak_s"]))
    words.append("stop at %d failed" % policy["failure_budget"])
    if policy["failure_percent"] is not None:
        words.append("or more than %g %%" % policy["failure_percent"])
    return ", ".join(words)


def span(seconds):
    """Seconds as people read them."""
    if seconds < 60:
        return "%d s" % seconds
    if seconds < 3600:
        return "%d min" % round(seconds / 60.0)
    return "%d h %02d min" % divmod(round(seconds / 60.0), 60)


def describe(plan, rollout_id, node_s=0):
    """The plan in lines for people."""
    policy = plan.policy
    lines = ["Rollout %s: %d of %d nodes to %s, %s (plan %s)" % (
        rollout_id, len(plan.order), len(plan.nodes), plan.target, _limits(policy), plan.sha256[:12])]
    if node_s and plan.order:
        bound, expected = estimate(plan, node_s)
        lines.append("  about %s at %s a node; the slots alone cost %s" % (span(expected), span(node_s), span(bound)))
    lines += ["  " + note for note in plan.notes]
    for number, name in enumerate(plan.order, start=1):
        node = plan.nodes[name]
        lines.append(
            "  %d. %s%s: driver %s -> %s%s%s%s%s%s%s"
            % (
                number,
                name,
                " (%s)" % ", ".join(node["domains"].values()) if node["domains"] else "",
                node["from"] or "unknown",
                node["to"],
                ", kernel %s" % node["to_kernel"] if node.get("to_kernel") else "",
                ", was in flight when its controller died" if node.get("suspect") and not node.get("again") else "",
                ", canary" if node.get("canary") else "",
                ", " + node["load"] if node.get("load") else "",
                ", wave %d" % limits.wave_of(policy["waves"], number - 1)[0] if policy["waves"] else "",
                ", tried again after: %s" % node["again"] if node.get("again") else "",
            )
        )
    going = set(plan.order)
    for name, node in plan.nodes.items():
        if name not in going:
            lines.append("  left out: %s, %s%s%s" % (name, node["state"], ", " + node["reason"] if node["reason"] else "",
                                                     " (rollout_control with rollout_verb=retry takes it back)" if node.get("order") else ""))
    return lines
