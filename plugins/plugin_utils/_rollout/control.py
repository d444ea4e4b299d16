# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of an operator to a rollout, and the events that they record. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.events import OF_NODES
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

# Limits that may change while nodes are in flight.
CHANGEABLE = (
    "max_down",
    "max_draining",
    "failure_budget",
    "failure_percent",
    "failure_classes",
    "domain_caps",
    "common_cause",
    "canary_failures",
    "max_delta_unhealthy",
    "broken_elsewhere",
    "windows",
    "node_s",
    "ticket_s",
    "holds",
)
# The states of nodes that a request is for, and what becomes of them.
ALLOWED = {
    "skip": (("pending", "draining"), "left out"),
    "retry": (("failed", "rolled_back", "skipped"), "to be tried again"),
    "retire": (state.OUT_OF_SERVICE + state.IN_FLIGHT, "retired"),
}
# Requests that end with their run: the next one starts without them.
OF_RUN = ("pause", "resume", "stop", "set_budget", "skip")


class ControlError(Exception):
    """The request is refused; the message says why, and what is possible."""


def decide_events(view, request) -> tuple[list, list]:
    """Return (fields of the events to record, lines to print) for a request of an operator.

    REQUEST has verb, user, reason, nodes, limits, running, whether a controller works on the rollout, now, an aware
    datetime, and beside, the rollouts that run beside one that was not named.
    """
    verb = request["verb"]
    if verb == "status":
        return [], []
    if not request["reason"].strip():
        raise ControlError("%s needs a reason, which the ledger keeps. Set rollout_reason." % verb)
    if request["nodes"] and verb not in OF_NODES:
        raise ControlError(
            "%s applies to the whole rollout; expected no rollout_nodes, found %s."
            % (verb, limits.list_names(request["nodes"]))
        )
    if request["limits"] and verb != "set_budget":
        raise ControlError("rollout_limits is only for set_budget, not for %s." % verb)
    if view.finished is not None and verb in OF_RUN:
        raise ControlError(
            "Rollout %s ended at %s, and its next run would not follow %s. Name the rollout that is running "
            "(rollout_id). Nothing was changed." % (view.rollout_id, view.finished, verb)
        )
    if request.get("beside"):
        raise ControlError(
            "No rollout_id is given: %s would be for %s, which was planned last, and rollout %s runs beside it. Name "
            "the rollout (rollout_id). Nothing was changed."
            % (verb, view.rollout_id, limits.list_names(sorted(request["beside"])))
        )
    event = {"verb": verb, "user": request["user"], "reason": request["reason"].strip()}
    if verb in OF_NODES:
        return _of_nodes(view, request, event)
    if verb == "set_budget":
        return _set_budget(view, request, event)
    if verb in ("break_lock", "end"):
        return [event], []
    if verb == "resume" and not view.paused:
        raise ControlError("Rollout %s is not paused." % view.rollout_id)
    done = {"pause": "Paused", "resume": "Resumed", "stop": "Stopped"}[verb]
    return [event], ["%s by %s: %s." % (done, event["user"], event["reason"])]


def _of_nodes(view, request, event) -> tuple[list, list]:
    if not request["nodes"]:
        raise ControlError("%s needs nodes. Name them in rollout_nodes." % event["verb"])
    found = {name: view.nodes.get(name) for name in request["nodes"]}
    unknown = [name for name, node in found.items() if node is None]
    if unknown:
        raise ControlError("Not in the plan of rollout %s: %s." % (view.rollout_id, limits.list_names(unknown)))
    allowed, done = ALLOWED[event["verb"]]
    if event["verb"] == "retire" and request.get("running"):
        allowed = state.OUT_OF_SERVICE  # those in flight may still be at work
    barred = ["%s is %s" % (name, node.state) for name, node in found.items() if node.state not in allowed]
    if barred:
        raise ControlError(
            "%s is for nodes that are %s: %s." % (event["verb"], " or ".join(allowed), limits.list_names(barred))
        )
    lines = ["%s: %s by %s: %s." % (name, done, event["user"], event["reason"]) for name in found]
    return [dict(event, node=name) for name in found], lines


def _set_budget(view, request, event) -> tuple[list, list]:
    if not request["limits"]:
        raise ControlError("set_budget needs rollout_limits, such as {max_down: 4}.")
    barred = sorted(set(request["limits"]) - set(CHANGEABLE))
    if barred:
        raise ControlError(
            "set_budget cannot change %s; it can change %s." % (", ".join(barred), ", ".join(CHANGEABLE))
        )
    merged = {key: view.policy[key] for key in CHANGEABLE if key in view.policy}
    merged.update(request["limits"])
    same = view.policy["max_draining"] == view.policy["max_down"]
    if "max_down" in request["limits"] and "max_draining" not in request["limits"] and same:
        merged["max_draining"] = None
    complete = limits.complete_policy(merged, view.policy["fleet"])
    if "windows" in request["limits"]:
        limits.require_room(complete["windows"], request["now"], complete["node_s"])
    if "domain_caps" in request["limits"]:
        _known_domains(view, complete["domain_caps"])
    changed = {key: complete[key] for key in CHANGEABLE if complete[key] != view.policy.get(key)}
    lines = [
        "%s: %s -> %s by %s: %s." % (key, view.policy.get(key), value, event["user"], event["reason"])
        for key, value in sorted(changed.items())
    ]
    return [dict(event, policy=changed)], lines or ["The limits are these already."]


def _known_domains(view, caps) -> None:
    """Refuse caps for a failure domain that no node has, or that pending nodes lack: these could never start."""
    nodes = view.nodes.list_all()
    known = sorted({key for node in nodes for key in node.domains})
    for key in sorted(caps):
        if key not in known:
            raise ControlError(
                "rollout_domain_caps names %s, which no node of the rollout has; expected one of: %s. Nothing was "
                "changed." % (key, ", ".join(known) or "none")
            )
        lacking = [node.name for node in nodes if node.state == "pending" and not node.domains.get(key)]
        if lacking:
            raise ControlError(
                "rollout_domain_caps limits the nodes of one %s, and the %s of these nodes is not known, so they could "
                "not start: %s. Set it in gpufleet_domains for the next run, or skip these nodes first. Nothing was "
                "changed." % (key, key, limits.list_names(lacking))
            )


def standing(view, owner, describe, members=()) -> list[str]:
    """Return the status of a rollout in lines, beside the table of its nodes. MEMBERS: lines about its members."""
    lines = []
    if view.paused:
        lines.append("paused by %s" % view.paused)
    if view.stopped:
        lines.append("stopped by %s" % view.stopped)
    why = limits.explain_spent_budget(view.policy, view.nodes.with_state(*state.FAILED), view.attempt_count)
    if why:
        lines.append("no further node starts: %s" % why)
    if owner and owner.get("shared"):
        lines.append("planned for several controllers at %s" % owner["time"])
        lines.extend(members or ["none has joined it yet (rollout_join=true)"])
    elif owner:
        when = "ended at %s" % owner["ended"] if owner.get("ended") else "last heartbeat at %s" % owner["heartbeat"]
        lines.append("run by %s since %s, %s" % (describe(owner["owner"]), owner["time"], when))
    return lines
