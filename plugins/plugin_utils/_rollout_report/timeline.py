# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timeline of a rollout, from its events: phases of nodes, use of budgets, axis of time. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.events import apply_event
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits

# The phases of a node in flight.
PHASES = ("prepare", "drain", "down", "validate", "soak", "rollback")
# The number of attempts of a node in a report.
ATTEMPTS = 5
# Steps before the drain, in which a node serves.
PREPARING = ("evidence", "prestage")
OF_STATE = {"draining": "drain", "down": "down", "validating": "validate", "soaking": "soak"}


def parse_time(written: str | None) -> t.Any:
    """Return a time of the ledger as seconds since 1970; None for none."""
    return datetime.datetime.fromisoformat(written[:-1] + "+00:00").timestamp() if written else None


@dataclasses.dataclass
class Span:
    phase: str
    start: float
    end: t.Optional[float] = None  # None: not ended
    step: str = ""


@dataclasses.dataclass
class Point:
    """The use of the budgets from TIME on."""

    time: float
    draining: int
    down: int  # nodes that serve no work because of the rollout, and those out of service
    failures: int  # in units of the failure budget
    max_draining: int
    max_down: int
    window: t.Optional[int]
    failure_budget: int


def find_phase(node: state.Node) -> str | None:
    """Return the phase of a node; None if it is not in flight."""
    if node.state not in state.IN_FLIGHT:
        return None
    step = node.steps[-1].name if node.steps else ""
    if step.startswith("rollback"):
        return "rollback"
    if node.state == "draining" and (not step or step in PREPARING):
        return "prepare"
    return "soak" if step == "soak" else OF_STATE[node.state]


def weigh_failure(node: state.Node) -> int:
    """Return the use of the failure budget by a node."""
    return sum(limits.failure_weight(one) for one in limits.filter_charged([node])) if node.state in state.FAILED else 0


@dataclasses.dataclass
class Timeline:
    """What happened in a rollout, event after event."""

    view: state.Rollout = dataclasses.field(default_factory=state.Rollout)
    spans: dict[str, list[Span]] = dataclasses.field(default_factory=dict)
    marks: dict[str, list[tuple[float, str]]] = dataclasses.field(default_factory=dict)  # (time, final state)
    points: list[Point] = dataclasses.field(default_factory=list)
    journal: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)  # requests of operators, holds, plans
    gone: dict[str, state.Node] = dataclasses.field(default_factory=dict)  # of earlier runs, not in the last one
    earlier: dict[str, list[dict[str, t.Any]]] = dataclasses.field(default_factory=dict)  # attempts by node
    first: float | None = None
    last: float | None = None
    _use: dict[str, tuple[int, int, int]] = dataclasses.field(default_factory=dict)
    _used: list[int] = dataclasses.field(default_factory=lambda: [0, 0, 0])
    _level: t.Any = None

    @property
    def absent(self) -> list[state.Node]:
        """The nodes of earlier runs that the last one lacks."""
        return sorted(self.gone.values(), key=lambda node: node.name)

    def add_event(self, event: dict) -> None:
        """Apply the next event. Events before the first plan are ignored."""
        kind = event["event"]
        if self.view.run is None and kind != "plan":
            return
        now = parse_time(event["time"])
        self.first, self.last = self.first or now, now
        before = self._keep_before(event)
        apply_event(self.view, event)
        if kind == "plan":
            self._add_plan(event, before, now)
        elif event.get("run") != self.view.run:
            return
        elif kind == "control":
            self._note(event, event["verb"], event["reason"], event["user"])
            self.journal[-1].update(node=event.get("node", ""), limits=event.get("policy", {}))
        elif kind == "hold":
            self._note(event, "held" if event["names"] else "hold over", event["reason"])
        node = self.view.nodes.get(event.get("node")) if event.get("node") else None
        if node is not None:
            self._measure_use(node)
            self._follow(node.name, node, now)
            if kind == "state" and node.state in state.ENDED:
                self.marks.setdefault(node.name, []).append((now, node.state))
        self._add_point(now)

    def _note(self, event, what, reason, who="") -> None:
        self.journal.append(
            {"time": event["time"], "what": what, "who": who, "reason": reason, "node": "", "limits": {}}
        )

    def _keep_before(self, event) -> list[state.Node]:
        """Return the nodes as they are before a plan, and keep the attempt that a retry ends."""
        if event["event"] == "plan":
            return self.view.nodes.list_all()
        if event["event"] == "control" and event["verb"] == "retry" and event.get("run") == self.view.run:
            node = self.view.nodes.get(event["node"])
            if node is not None and node.state in state.FAILED:
                self._keep_attempt(node, [])  # its steps stay, and the next attempt adds to them
        return []

    def _add_plan(self, event, before, now) -> None:
        """Keep what a new plan drops of the earlier run, and follow its nodes."""
        for old in before:
            new = self.view.nodes.get(old.name)
            if new is None:
                self.gone[old.name] = old
            elif new.orphaned:
                self._keep_attempt(dataclasses.replace(old, reason=new.reason), [])
            elif old.steps and (
                new.steps is not old.steps or old.state in state.FAILED and new.state not in state.FAILED
            ):
                self._keep_attempt(old, old.steps)
        for node in self.view.nodes.list_all():
            old = self.gone.pop(node.name, None)
            if old is not None and old.steps:
                self._keep_attempt(old, old.steps)
        self._note(
            event, "planned", "target %s, %s to go" % (event["target"], text.count_noun(len(event["order"]), "node"))
        )
        for name in list(self.spans):
            if self.view.nodes.get(name) is None:
                self._follow(name, None, now)
        self._use, self._used = {}, [0, 0, 0]
        for node in self.view.nodes.list_all():
            self._measure_use(node)
            self._follow(node.name, node, now)

    def _keep_attempt(self, node, steps) -> None:
        """Keep an attempt; of many, the first and the last ones."""
        attempts = self.earlier.setdefault(node.name, [])
        fields = {key: getattr(node, key) for key in ("attempt", "state", "reason", "failure", "ended")}
        attempts.append(dict(fields, steps=list(steps)))
        if len(attempts) > ATTEMPTS:
            del attempts[1]

    def _measure_use(self, node) -> None:
        use = (
            int(node.state == "draining"),
            int(node.state in state.NOT_SERVING + state.OUT_OF_SERVICE),
            weigh_failure(node),
        )
        old = self._use.get(node.name, (0, 0, 0))
        if use != old:
            self._use[node.name] = use
            self._used = [total + new - gone for total, new, gone in zip(self._used, use, old)]

    def _follow(self, name, node, now) -> None:
        """End the span of a node whose phase has changed, and begin another one."""
        spans = self.spans.get(name)
        current = spans[-1] if spans and spans[-1].end is None else None
        phase = find_phase(node) if node is not None else None
        if current is not None and current.phase == phase:
            return
        if current is not None:
            current.end = now
        if phase is not None:
            self.spans.setdefault(name, []).append(Span(phase, now, step=node.steps[-1].name if node.steps else ""))

    def _add_point(self, now) -> None:
        policy = self.view.policy
        draining, down, failures = self._used
        level = (
            draining,
            down + policy["broken_elsewhere"],
            failures,
            policy["max_draining"],
            policy["max_down"],
            self.view.window,
            policy["failure_budget"],
        )
        if level != self._level:
            self._level = level
            self.points.append(Point(now, *level))


def build_timeline(events: list[dict]) -> Timeline:
    """Return the Timeline of EVENTS, first to last."""
    story = Timeline()
    for event in events:
        story.add_event(event)
    return story


STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
# A pause is cut out if it is longer than this, and longer than this share of the busy time.
PAUSE_S, PAUSE_SHARE = 900.0, 0.25
BREAK_WIDTH, TICK_WIDTH = 14.0, 95.0


def join_intervals(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the sorted union of the intervals (start, end), with short pauses closed."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    longest = max(PAUSE_S, PAUSE_SHARE * sum(end - start for start, end in merged))
    joined = merged[:1]
    for start, end in merged[1:]:
        if start - joined[-1][1] <= longest:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    return [tuple(part) for part in joined]


class TimeScale:
    """Maps times to x coordinates between LEFT and RIGHT."""

    def __init__(self, intervals, left, right) -> None:
        parts = join_intervals(intervals) or [(0.0, 1.0)]
        total = sum(end - start for start, end in parts) or 1.0
        self.left, self.right = left, right
        self.scale = (right - left - BREAK_WIDTH * (len(parts) - 1)) / total
        self.parts = []  # (start, end, x of the start, x of the end)
        where = left
        for start, end in parts:
            self.parts.append((start, end, where, where + (end - start) * self.scale))
            where = self.parts[-1][3] + BREAK_WIDTH

    def x(self, time) -> float:
        """Return the x coordinate of a time."""
        for start, end, at, dummy in self.parts:
            if time < start:
                return at  # in a pause
            if time <= end:
                return at + (time - start) * self.scale
        return self.parts[-1][3]

    def breaks(self) -> list[tuple]:
        """Return (x, seconds) of the pauses that were cut out."""
        return [(one[3] + BREAK_WIDTH / 2, other[0] - one[1]) for one, other in zip(self.parts, self.parts[1:])]

    def ticks(self) -> list[tuple]:
        """Return (x, label) of the ticks, in UTC, with the date where it changes."""
        step = next((one for one in STEPS if one * self.scale >= TICK_WIDTH), STEPS[-1])
        found, day = [], None
        for start, end, dummy, dummy2 in self.parts:
            first = -(-start // step) * step
            times = [first + number * step for number in range(int((end - first) // step) + 1)] if first <= end else []
            if not times:
                times = [start]
            for time in times:
                moment = datetime.datetime.fromtimestamp(time, datetime.timezone.utc)
                words = moment.strftime("%H:%M:%S" if step < 60 or time % 60 else "%H:%M")
                if moment.date() != day and (day is not None or len(self.parts) > 1 or step >= 86400):
                    words = moment.strftime("%d %b ") + words
                day = moment.date()
                found.append((self.x(time), words))
        # Labels must not overlap.
        shown = []
        for where, words in found:
            if not shown or where - shown[-1][0] >= 62:
                shown.append((where, words))
        return shown
