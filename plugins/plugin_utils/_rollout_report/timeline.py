# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The story of a rollout out of its events: what each node did when, and how much of the budgets was used. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

# What a node is at, from the beginning of its turn to the end.
PHASES = ("drain", "down", "validate", "soak", "rollback")
# More attempts of a node than these are not told.
ATTEMPTS = 5
OF_STATE = {"draining": "drain", "down": "down", "validating": "validate", "soaking": "soak"}


def seconds(text):
    """A time of the ledger as seconds since 1970; None for none."""
    return datetime.datetime.fromisoformat(text[:-1] + "+00:00").timestamp() if text else None


@dataclasses.dataclass
class Span:
    phase: str
    start: float
    end: t.Optional[float] = None  # None: it goes on
    step: str = ""


@dataclasses.dataclass
class Point:
    """How much of the budgets is in use from TIME on."""

    time: float
    draining: int
    down: int  # nodes that serve no work because of the rollout, and those that are gone for good
    failures: int  # as the failure budget counts them
    max_draining: int
    max_down: int
    window: t.Optional[int]
    failure_budget: int


@dataclasses.dataclass
class Timeline:
    view: state.Rollout
    spans: t.Dict[str, t.List[Span]]
    marks: t.Dict[str, t.List[t.Tuple[float, str]]]  # (when, state that ended its turn)
    points: t.List[Point]
    words: t.List[t.Dict[str, t.Any]]  # what operators said, holds, and when runs began
    absent: t.List[state.Node] = dataclasses.field(default_factory=list)  # of earlier runs, as those left them; the last run has not got them
    earlier: t.Dict[str, t.List[t.Dict[str, t.Any]]] = dataclasses.field(default_factory=dict)  # attempts before the last one, by node
    first: t.Optional[float] = None
    last: t.Optional[float] = None


def phase_of(node):
    """What a node is at; none when it is not in flight."""
    if node.state not in state.IN_FLIGHT:
        return None
    step = node.steps[-1].name if node.steps else ""
    if step.startswith("rollback"):
        return "rollback"
    return "soak" if step == "soak" else OF_STATE[node.state]


def failure_weight(node):
    """What a node takes of the failure budget."""
    return sum(limits.weight(one) for one in limits.charged([node])) if node.state in state.FAILED else 0


class _Story:
    def __init__(self):
        self.view = state.Rollout()
        self.spans: t.Dict[str, t.List[Span]] = {}
        self.marks: t.Dict[str, t.List[t.Tuple[float, str]]] = {}
        self.points: t.List[Point] = []
        self.words: t.List[t.Dict[str, t.Any]] = []
        self.absent: t.Dict[str, state.Node] = {}
        self.earlier: t.Dict[str, t.List[t.Dict[str, t.Any]]] = {}
        self.use: t.Dict[str, t.Tuple[int, int, int]] = {}
        self.used = [0, 0, 0]
        self.level: t.Any = None

    def take(self, event):
        now = seconds(event["time"])
        kind = event["event"]
        before = self.before(event)
        state.apply(self.view, event)
        if kind == "plan":
            self.planned(before)
            self.words.append({"time": event["time"], "what": "planned", "who": "", "reason": "target %s, %s to go" % (
                event["target"], "1 node" if len(event["order"]) == 1 else "%d nodes" % len(event["order"]))})
            for name in list(self.spans):
                if self.view.nodes.get(name) is None:
                    self.follow(name, None, now)
            self.use, self.used = {}, [0, 0, 0]
            for node in self.view.nodes.everything():
                self.account(node)
                self.follow(node.name, node, now)
        elif event.get("run") != self.view.run:
            return
        elif kind == "control":
            self.words.append({"time": event["time"], "what": event["verb"], "who": event["user"], "reason": event["reason"],
                               "node": event.get("node", ""), "limits": event.get("policy", {})})
        elif kind == "hold":
            self.words.append({"time": event["time"], "what": "held" if event["names"] else "hold over", "who": "", "reason": event["reason"]})
        node = self.view.nodes.get(event.get("node")) if event.get("node") else None
        if node is not None:
            self.account(node)
            self.follow(node.name, node, now)
            if kind == "state" and node.state in state.ENDED:
                self.marks.setdefault(node.name, []).append((now, node.state))
        self.point(now)

    def before(self, event):
        """Nodes as they are before an event that may wipe out how they came to be so."""
        if event["event"] == "plan":
            return self.view.nodes.everything()
        if event["event"] == "control" and event["verb"] == "retry" and event.get("run") == self.view.run:
            node = self.view.nodes.get(event["node"])
            if node is not None and node.state in state.FAILED:
                self.remember(node, [])  # its steps stay, and those of the next attempt follow them
        return []

    def planned(self, before):
        """What the plan of another run takes no notice of any more."""
        for old in before:
            new = self.view.nodes.get(old.name)
            if new is None:
                self.absent[old.name] = old
            elif new.orphaned:
                self.remember(dataclasses.replace(old, reason=new.reason), [])
            elif old.steps and (new.steps is not old.steps or old.state in state.FAILED and new.state not in state.FAILED):
                self.remember(old, old.steps)
        for node in self.view.nodes.everything():
            gone = self.absent.pop(node.name, None)
            if gone is not None and gone.steps:
                self.remember(gone, gone.steps)

    def remember(self, node, steps):
        """Keep an attempt; of many the first, which began it all, and the last ones."""
        attempts = self.earlier.setdefault(node.name, [])
        attempts.append(dict({key: getattr(node, key) for key in ("attempt", "state", "reason", "failure", "ended")}, steps=list(steps)))
        if len(attempts) > ATTEMPTS:
            del attempts[1]

    def account(self, node):
        mine = (int(node.state == "draining"), int(node.state in state.NOT_SERVING + state.OUT_OF_SERVICE), failure_weight(node))
        old = self.use.get(node.name, (0, 0, 0))
        if mine != old:
            self.use[node.name] = mine
            self.used = [total + new - gone for total, new, gone in zip(self.used, mine, old)]

    def follow(self, name, node, now):
        spans = self.spans.get(name)
        current = spans[-1] if spans and spans[-1].end is None else None
        phase = phase_of(node) if node is not None else None
        if current is not None and current.phase == phase:
            return
        if current is not None:
            current.end = now
        if phase is not None:
            self.spans.setdefault(name, []).append(Span(phase, now, step=node.steps[-1].name if node.steps else ""))

    def point(self, now):
        policy = self.view.policy
        level = (self.used[0], self.used[1] + policy["broken_elsewhere"], self.used[2], policy["max_draining"], policy["max_down"], self.view.window,
                 policy["failure_budget"])
        if level != self.level:
            self.level = level
            self.points.append(Point(now, *level))


def build(events):
    """The Timeline of EVENTS, first to last; events before the first plan say nothing."""
    story = _Story()
    first = last = None
    for event in events:
        if story.view.run is None and event["event"] != "plan":
            continue
        story.take(event)
        last = event["time"]
        first = first or last
    return Timeline(story.view, story.spans, story.marks, story.points, story.words, sorted(
        story.absent.values(), key=lambda node: node.name), story.earlier, seconds(first), seconds(last))
