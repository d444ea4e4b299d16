# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a rollout and its nodes, reduced from its events. Pure."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.state import (
    CHANGING,
    DOWN,
    DRAIN,
    FAILED,
    HARD,
    LOST,
    NOT_SERVING,
    PROVEN,
    STEPS,
    Node,
    Rollout,
    Step,
    Ticket,
    awaits_resume,
    is_unproven,
)

# What an operator may request for the whole rollout, and for nodes. break_lock changes no node, only the owner's
# record, and end ends a rollout of several controllers.
OF_ALL, OF_NODES = ("pause", "resume", "stop", "set_budget", "break_lock", "end"), ("skip", "retry", "retire")
VERBS = OF_ALL + OF_NODES


def _apply_plan(view, event) -> None:
    before = {node.name: node for node in view.nodes.list_all()}
    view.run, view.started, view.finished = event["run"], event["time"], None
    view.rollout_id, view.target, view.sha256 = event.get("rollout_id", ""), event["target"], event["sha256"]
    view.total, view.policy, view.went, view.undo = len(event["order"]), dict(event["policy"]), 0, event.get("undo")
    view.stopped = view.held_reason = ""
    view.refused = event.get("refused") or ""
    view.collection = event.get("collection") or ""
    # The plan keeps these from an interrupted run.
    view.paused, view.changed = event.get("paused", ""), dict(event.get("changed") or {})
    view.held, view.earlier = [], 0
    start = event["policy"].get("growth_start")
    view.window = None if start is None else min(start, event["policy"]["max_down"])
    places = {name: number for number, name in enumerate(event["order"])}
    nodes = []
    for name, planned in event["nodes"].items():
        old = before.get(name)
        view.earlier += int(old is not None and old.attempt > 0 and name not in places)
        nodes.append(_make_node(name, planned, old, event["time"], places.get(name)))
    view.nodes.replace(nodes)


def _make_node(name, planned, old, time, position) -> Node:
    """Return the node of a plan's entry. OLD: the node before it was examined; None if it is new."""
    node = Node(
        name,
        planned["state"],
        position,
        planned.get("from"),
        planned.get("to"),
        planned.get("from_kernel"),
        dict(planned.get("domains") or {}),
        bool(planned.get("canary")),
        planned.get("reason", ""),
        planned.get("failure", ""),
        planned.get("signature", ""),
        order=planned.get("order", ""),
        layout=dict(planned.get("layout") or {}),
        install=bool(planned.get("install", True)),
        to_kernel=planned.get("to_kernel") or "",
        peers=dict(planned.get("peers") or {}),
        machine=dict(planned.get("machine") or {}),
    )
    if old is None:
        return node
    node.attempt = old.attempt
    old.close(time, "interrupted")
    # The steps of a node that is not proven stay, whatever state it is found in now.
    stays = planned.get("orphaned") or planned.get("kept") or planned["state"] == "done" or is_unproven(old)
    if stays and not planned.get("replaced"):
        node.steps, node.began, node.granted, node.proven = old.steps, old.began, old.granted, old.proven
        node.begun = old.begun
    if planned.get("kept"):
        node.ended = old.ended
    if planned.get("orphaned"):
        node.orphaned, node.state, node.order = True, old.state, old.order
        # It stays so until it is resumed: the plan before may have had another target than its steps.
        node.diverted = (old.orphaned and old.diverted) or (node.to_version, node.layout) != (
            old.to_version,
            old.layout,
        )
        node.reason = "in flight when its run was interrupted%s%s" % (
            ", in step %s" % old.steps[-1].name if old.steps else "",
            ", after: " + old.reason if old.failure else "",
        )
        if awaits_resume(old):
            node.state, node.reason = "validating", old.reason
        elif old.state == "lost":
            node.state, node.reason = (
                "down",
                "lost after a change%s%s"
                % (", in step %s" % old.steps[-1].name if old.steps else "", ": " + old.reason if old.reason else ""),
            )
    return node


def _apply_join(view, event) -> None:
    """Take over what a member found of its nodes when it joined. Their places in the plan's order stay."""
    for name, planned in event["nodes"].items():
        old = view.nodes.get(name)
        if old is None:
            continue
        node = _make_node(
            name,
            dict(planned, canary=old.canary, to_kernel=old.to_kernel, peers=old.peers),
            old,
            event["time"],
            old.position,
        )
        node.went = old.went
        view.nodes.store(node)
    if event.get("approved"):
        view.policy["approved"] = view.sha256


def _apply_control(view, event) -> None:
    verb, said = event["verb"], "%s: %s" % (event["user"], event["reason"])
    if verb == "pause":
        view.paused = said
    elif verb == "resume":
        view.paused = ""
    elif verb == "stop":
        view.stopped = said
    elif verb == "set_budget":
        for key, value in event["policy"].items():
            view.changed[key] = {
                "was": view.changed[key]["was"] if key in view.changed else view.policy.get(key),
                "now": value,
            }
        view.policy.update(event["policy"])
    elif verb in OF_NODES:
        _control_node(view, event, verb, said)


def _control_node(view, event, verb, said) -> None:
    node = view.nodes.get(event["node"])
    if node is None:
        return
    if verb == "skip" and node.state == "pending":
        node.state, node.reason, node.order = "skipped", "skipped by " + said, "skipped by " + said
    elif verb == "skip":
        node.order = "skipped by " + said
    elif verb == "retire":  # its steps stay unproven
        node.close(event["time"], "failed")
        node.reason = "retired by %s; it was %s%s" % (said, node.state, ": " + node.reason if node.reason else "")
        node.state, node.ticket, node.orphaned, node.ended = "failed", None, False, event["time"]
        node.failure = node.failure or LOST
    elif verb == "retry" and node.state in ("failed", "rolled_back", "skipped"):
        node.state, node.reason, node.failure, node.signature, node.ended, node.order = (
            "pending",
            "retry by " + said,
            "",
            "",
            None,
            "",
        )
        if node.position is None:
            node.position, view.total = view.total, view.total + 1
    view.nodes.store(node)


def _apply_grant(view, node, event) -> None:
    phase = event["phase"]
    node.ticket = Ticket(event["ticket"], phase, event["time"], event["expires"], view.sha256, event.get("until_s"))
    if phase == DRAIN:
        again = node.orphaned and node.went is not None  # a member that died had started it, in this same run
        # An orphaned node that is down stays down.
        node.state = "down" if node.orphaned and node.state in NOT_SERVING else "draining"
        node.begun = node.begun if node.orphaned else event.get("sequence", 0)
        node.orphaned, node.reason = False, ""
        node.began, node.granted = event["time"], event.get("sequence", 0)
        node.attempt += 1
        if not again:
            view.went += 1
            node.went = view.went
    elif phase == DOWN:
        node.state = "down"


def _apply_end(view, node, event) -> None:
    # The step quarantine ends well when the node is quarantined; the step before it failed, see apply().
    well = ("done", "skipped", "rolled_back", "pending") + (
        ("quarantined",) if node.open_step and node.open_step.name == "quarantine" else ()
    )
    node.close(event["time"], "ok" if event["state"] in well else "failed")
    node.state, node.ticket, node.orphaned = event["state"], None, False
    node.proven = node.proven or event["state"] in PROVEN
    node.reason = event.get("reason") or node.reason
    if event["state"] == "pending":
        node.went = None
        if node.order:  # an operator skipped it while it drained
            node.state, node.reason = "skipped", node.order
        return
    node.ended = event["time"]
    if view.window is not None and node.went is not None:
        if event["state"] == "done":
            view.window = min(view.policy["max_down"], view.window + view.policy["growth_step"])
        elif event["state"] in FAILED:
            view.window = max(1, view.window // 2)
    if event["state"] in FAILED:
        node.failure = event.get("failure") or (LOST if event["state"] == "lost" else HARD)
        node.signature = event.get("signature") or node.signature


def _apply_finish(view, event) -> None:
    view.finished = event["time"]


def _apply_hold(view, event) -> None:
    view.held, view.held_reason = list(event["names"]), event["reason"]


# The events of the whole rollout, or of several nodes.
OF_ROLLOUT = {"end": _apply_finish, "control": _apply_control, "join": _apply_join, "hold": _apply_hold}


def apply_event(view, event) -> Rollout:
    """Apply one event to the view, and return the view."""
    kind = event["event"]
    if kind == "plan":
        _apply_plan(view, event)
        return view
    if event.get("run") != view.run:
        return view  # an event of a run that another controller took over
    if kind in OF_ROLLOUT:
        OF_ROLLOUT[kind](view, event)
        return view
    node = view.nodes.get(event.get("node"))
    if node is None:
        return view
    if kind == "grant":
        _apply_grant(view, node, event)
    elif kind == "step":
        node.close(event["time"], "failed" if event["step"] == "quarantine" else "ok")
        node.steps.append(
            Step(event["step"], event["time"], detail=event.get("detail", ""), sequence=event.get("sequence", 0))
        )
        node.proven = node.proven and event["step"] not in CHANGING
        phase, after = STEPS[event["step"]]
        if phase != DRAIN or node.state not in NOT_SERVING:  # an orphaned node that is down stays down in these steps
            node.state = after
    elif kind == "step_failed":
        node.close(event["time"], "failed")
        node.reason = event["reason"]
        node.failure = event.get("failure", "")
        node.signature = event.get("signature", "")
    elif kind == "state":
        _apply_end(view, node, event)
    view.nodes.store(node)
    return view
