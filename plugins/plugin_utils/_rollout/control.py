# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator may say about a rollout, and what becomes of it. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, windows

# Limits that may be another while nodes are on their way.
CHANGEABLE = ("max_down", "max_draining", "failure_budget", "failure_percent", "failure_classes", "domain_caps", "common_cause", "canary_failures",
              "max_delta_unhealthy", "broken_elsewhere", "windows", "node_s", "ticket_s", "holds")
RETRIED = ("failed", "rolled_back", "skipped")


class ControlError(Exception):
    """It cannot be done; the message says why and what can."""


def events(view, word):
    """(fields of the events to record, lines for people) for an operator's WORD: verb, user, reason, nodes, limits, and now, an aware datetime."""
    verb = word["verb"]
    if verb == "status":
        return [], []
    if not word["reason"].strip():
        raise ControlError("%s needs a reason: whoever looks at the ledger later wants to know why." % verb)
    if word["nodes"] and verb not in state.OF_NODES:
        raise ControlError("%s is about the whole rollout, and nodes were named: %s." % (verb, limits.listed(word["nodes"])))
    if word["limits"] and verb != "set_budget":
        raise ControlError("limits are for set_budget, not for %s." % verb)
    said = {"verb": verb, "user": word["user"], "reason": word["reason"].strip()}
    if verb in state.OF_NODES:
        return _of_nodes(view, word, said)
    if verb == "set_budget":
        return _budget(view, word, said)
    if verb == "break_lock":
        return [said], []
    if verb == "resume" and not view.paused:
        raise ControlError("Rollout %s is not paused." % view.rollout_id)
    return [said], ["%s by %s: %s." % ({"pause": "Paused", "resume": "Resumed", "stop": "Stopped"}[verb], said["user"], said["reason"])]


def _of_nodes(view, word, said):
    if not word["nodes"]:
        raise ControlError("%s needs nodes: name them." % said["verb"])
    found = {name: view.nodes.get(name) for name in word["nodes"]}
    strangers = [name for name, node in found.items() if node is None]
    if strangers:
        raise ControlError("Not in the plan of rollout %s: %s." % (view.rollout_id, limits.listed(strangers)))
    allowed = RETRIED if said["verb"] == "retry" else ("pending", "draining")
    barred = ["%s is %s" % (name, node.state) for name, node in found.items() if node.state not in allowed]
    if barred:
        raise ControlError("%s is for nodes that are %s: %s." % (said["verb"], " or ".join(allowed), limits.listed(barred)))
    lines = ["%s: %s by %s: %s." % (name, "to be tried again" if said["verb"] == "retry" else "left out", said["user"], said["reason"]) for name in found]
    return [dict(said, node=name) for name in found], lines


def _budget(view, word, said):
    if not word["limits"]:
        raise ControlError("set_budget needs limits, such as {max_down: 4}.")
    barred = sorted(set(word["limits"]) - set(CHANGEABLE))
    if barred:
        raise ControlError("set_budget cannot change %s; it can change %s." % (", ".join(barred), ", ".join(CHANGEABLE)))
    merged = {key: view.policy[key] for key in CHANGEABLE if key in view.policy}
    merged.update(word["limits"])
    if "max_down" in word["limits"] and "max_draining" not in word["limits"] and view.policy["max_draining"] == view.policy["max_down"]:
        merged["max_draining"] = None
    complete = limits.complete(merged, view.policy["fleet"])
    if "windows" in word["limits"]:
        windows.require_room(complete["windows"], word["now"], complete["node_s"])
    if "domain_caps" in word["limits"]:
        _known_domains(view, complete["domain_caps"])
    changed = {key: complete[key] for key in CHANGEABLE if complete[key] != view.policy.get(key)}
    lines = ["%s: %s -> %s by %s: %s." % (key, view.policy.get(key), value, said["user"], said["reason"]) for key, value in sorted(changed.items())]
    return [dict(said, policy=changed)], lines or ["The limits are these already."]


def _known_domains(view, caps):
    """Refuse caps of what no node has, or nodes that wait do not have: they could never go."""
    nodes = view.nodes.everything()
    known = sorted({key for node in nodes for key in node.domains})
    for key in sorted(caps):
        if key not in known:
            raise ControlError("rollout_domain_caps names %s, which no node of the rollout has; known: %s. Name one of these; nothing was changed." % (
                key, ", ".join(known) or "none"))
        homeless = [node.name for node in nodes if node.state == "pending" and not node.domains.get(key)]
        if homeless:
            raise ControlError("rollout_domain_caps limits the nodes of one %s, and it is not known of %s: those could not go. Give it in gpufleet_domains "
                               "in the next run, or skip these nodes first; nothing was changed." % (key, limits.listed(homeless)))


def standing(view, owner, describe):
    """What an operator wants to know beside the table."""
    lines = []
    if view.paused:
        lines.append("paused by %s" % view.paused)
    if view.stopped:
        lines.append("stopped by %s" % view.stopped)
    why = limits.spent(view.policy, view.nodes.having(*state.FAILED), view.attempted)
    if why:
        lines.append("no further node starts: %s" % why)
    if owner:
        lines.append("%s by %s since %s, last heard of at %s" % (
            "ended" if owner.get("ended") else "run", describe(owner["owner"]), owner["time"], owner.get("ended") or owner["heartbeat"]))
    return lines
