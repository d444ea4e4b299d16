# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From events to the state of every node: a pure reducer, and the rules on what may be written next.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import dataclasses
import typing as t

STEPS = {
    "evidence": "draining",
    "drain": "draining",
    "stop": "down",
    "install": "down",
    "prove": "down",
    "reboot": "down",
    "validate": "validating",
    "return": "validating",
    "rollback_install": "down",
    "rollback_prove": "down",
    "rollback_reboot": "down",
    "rollback_validate": "validating",
}
IN_FLIGHT = ("draining", "down", "validating")
OUT_OF_SERVICE = ("lost", "quarantined")
FAILED = ("failed", "rolled_back", "quarantined", "lost")
ENDED = ("done", "skipped") + FAILED
STATES = ("pending",) + IN_FLIGHT + ENDED


class StateError(Exception):
    """A node may not do that now; the message says why."""


@dataclasses.dataclass
class Step:
    name: str
    started: str
    finished: t.Optional[str] = None
    status: str = "running"
    detail: str = ""


@dataclasses.dataclass
class Node:
    name: str
    state: str = "pending"
    from_version: t.Optional[str] = None
    to_version: t.Optional[str] = None
    domain: str = ""
    reason: str = ""
    attempt: int = 0
    suspect: bool = False  # in flight when its controller died, not taken up again yet
    steps: t.List[Step] = dataclasses.field(default_factory=list)

    @property
    def open_step(self):
        return self.steps[-1] if self.steps and self.steps[-1].finished is None else None

    def close(self, time, status):
        step = self.open_step
        if step:
            step.finished, step.status = time, status


@dataclasses.dataclass
class Rollout:
    rollout_id: str = ""
    run: t.Optional[str] = None
    target: str = ""
    started: t.Optional[str] = None
    finished: t.Optional[str] = None
    sha256: str = ""
    order: t.List[str] = dataclasses.field(default_factory=list)
    policy: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)
    nodes: t.Dict[str, Node] = dataclasses.field(default_factory=dict)
    gone: t.List[str] = dataclasses.field(default_factory=list)  # in the order in which they went

    def names(self, *states):
        return [node.name for node in self.nodes.values() if node.state in states]

    def position(self, name):
        """How many nodes have gone when this one went, or None."""
        return self.gone.index(name) + 1 if name in self.gone else None


def _plan(view, event):
    before = view.nodes
    view.run, view.started, view.finished = event["run"], event["time"], None
    view.rollout_id, view.target, view.sha256 = event.get("rollout_id", ""), event["target"], event["sha256"]
    view.order, view.policy, view.gone, view.nodes = list(event["order"]), dict(event["policy"]), [], {}
    for name, planned in event["nodes"].items():
        old = before.get(name)
        node = Node(name, planned["state"], planned.get("from"), planned.get("to"), planned.get("domain", ""), planned.get("reason", ""))
        if old is not None:
            node.attempt = old.attempt
            old.close(event["time"], "interrupted")
            if planned.get("suspect") or planned["state"] == "done":
                node.steps = old.steps
            if planned.get("suspect"):
                node.suspect, node.state = True, old.state
                node.reason = "in flight when its controller died%s" % (", in step %s" % old.steps[-1].name if old.steps else "")
        view.nodes[name] = node


def apply(view, event):
    """Take one event into the view."""
    kind = event["event"]
    if kind == "plan":
        _plan(view, event)
        return view
    if kind == "end":
        view.finished = event["time"]
        return view
    node = view.nodes.get(event.get("node"))
    if node is None or event.get("run") != view.run:
        return view
    if kind == "go":
        node.state, node.suspect, node.reason = "draining", False, ""
        node.attempt += 1
        view.gone.append(node.name)
    elif kind == "step":
        node.close(event["time"], "ok")
        node.steps.append(Step(event["step"], event["time"], detail=event.get("detail", "")))
        node.state = STEPS[event["step"]]
    elif kind == "step_failed":
        node.close(event["time"], "failed")
        node.reason = event["reason"]
    elif kind == "state":
        node.close(event["time"], "ok" if event["state"] in ("done", "skipped", "rolled_back") else "failed")
        node.state = event["state"]
        node.suspect = False
        node.reason = event.get("reason") or node.reason
    return view


def reduce(events):
    """The view that a list of events amounts to."""
    view = Rollout()
    for event in events:
        apply(view, event)
    return view


def require_in_flight(view, name):
    """The node, when it holds a go of this run that is not used up."""
    node = view.nodes.get(name)
    if node is None:
        raise StateError("%s is not in the plan of rollout %s." % (name, view.rollout_id))
    if node.state not in IN_FLIGHT or node.suspect:
        raise StateError(
            "%s is %s in rollout %s and has no leave to change anything: rollout_gate has to answer go first." % (name, node.state, view.rollout_id)
        )
    return node


def nothing_left(view):
    """Whether no node is waiting, in flight, or left over by a dead controller."""
    return all(node.state in ENDED for node in view.nodes.values())


def verdict(view, ended):
    """C(complete) only when every node is done or had nothing to do."""
    states = {node.state for node in view.nodes.values()}
    if not ended:
        return "running"
    if states & set(FAILED):
        return "failed"
    if not states or states - {"done", "skipped"}:
        return "incomplete"
    return "complete"
