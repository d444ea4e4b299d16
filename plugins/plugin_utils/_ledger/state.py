# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From events to the state of every node: a pure reducer, and the rules on what may be written next."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import keys

# Each step: the phase whose ticket it needs, and the state that it puts the node in.
DRAIN, DOWN, RETURN = "drain", "down", "return"
PHASES = (DRAIN, DOWN, RETURN)
STEPS = {
    "evidence": (DRAIN, "draining"),
    "prestage": (DRAIN, "draining"),
    "drain": (DRAIN, "draining"),
    "stop": (DOWN, "down"),
    "mig_clear": (DOWN, "down"),
    "install": (DOWN, "down"),
    "prove": (DOWN, "down"),
    "reboot": (DOWN, "down"),
    "reload": (DOWN, "down"),
    "mig": (DOWN, "validating"),
    "validate": (DOWN, "validating"),
    "rollback_install": (DOWN, "down"),
    "rollback_prove": (DOWN, "down"),
    "rollback_reboot": (DOWN, "down"),
    "rollback_reload": (DOWN, "down"),
    "rollback_mig": (DOWN, "validating"),
    "rollback_validate": (DOWN, "validating"),
    "rollback_start": (DOWN, "validating"),
    "quarantine": (DOWN, "down"),
    "return": (RETURN, "validating"),
    "soak": (RETURN, "soaking"),
}
# A node on which these were begun is not as it was before; the others after a failure start what ran before, or say that it stays out of service.
PUTTING_BACK = ("rollback_install", "rollback_prove", "rollback_reboot", "rollback_reload", "rollback_mig", "rollback_validate")
AFTERWARDS = ("rollback_start", "quarantine")
# Whatever a ticket is for, and even when it ran out, it never keeps anybody from putting a node back.
ALWAYS = PUTTING_BACK + AFTERWARDS
# These may leave another driver, another kernel, another MIG layout or stopped services on a node; what only looks, or starts what ran before, does not.
LOOKING = ("validate", "rollback_validate")
CHANGING = tuple(name for name, (phase, dummy) in STEPS.items() if phase == DOWN and name not in AFTERWARDS + LOOKING)
# How far a dead controller came with a node: only its services were stopped; it was changed; it was being put back; it served again.
STOPPED, CHANGED, PUT_BACK, SERVING = RESUMES = ("stopped", "changed", "put_back", "serving")
IN_FLIGHT = ("draining", "down", "validating", "soaking")
# States in which a node serves no work because of this rollout. A draining node still runs its jobs, and a soaking one runs jobs again.
NOT_SERVING = ("down", "validating")
# What a failure domain lacks, or is about to.
LEAVING = ("draining",) + NOT_SERVING
OUT_OF_SERVICE = ("lost", "quarantined")
FAILED = ("failed", "rolled_back", "quarantined", "lost")
ENDED = ("done", "skipped") + FAILED
# How a node ends whose driver was proven after it was changed last.
PROVEN = ("done", "rolled_back")
STATES = ("pending",) + IN_FLIGHT + ENDED

# Why a node failed. SICK: it was so before anything was changed. SOFT: before its services were stopped. HARD: after. LOST: it is gone.
SICK, SOFT, HARD, LOST = "sick", "soft", "hard", "lost"
CLASSES = (SICK, SOFT, HARD, LOST)
# What an operator may say of the whole rollout, and of nodes. A lock that is broken changes no node: it is recorded, and its row says the rest.
OF_ALL, OF_NODES = ("pause", "resume", "stop", "set_budget", "break_lock"), ("skip", "retry")
VERBS = OF_ALL + OF_NODES


def timestamp(now):
    """UTC time as the documents of a rollout spell it; two of them compare as texts."""
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (now.microsecond // 1000)


def reached(steps):
    """How far a node came whose controller died, by the names of its steps: one of RESUMES, or "" if nothing was done to it yet."""
    if any(name in PUTTING_BACK for name in steps):
        return PUT_BACK
    if any(STEPS[name][0] == RETURN for name in steps if name in STEPS):
        return SERVING
    done = [name for name in steps if name in STEPS and STEPS[name][0] == DOWN and name not in AFTERWARDS]
    return CHANGED if any(name != "stop" for name in done) else STOPPED if done else ""


def unproven(node):
    """Whether this rollout changed the node, or may have, and nothing has proven it since."""
    return bool(reached([step.name for step in node.steps])) and not node.proven and node.state not in PROVEN


def kept_out(node):
    """Whether its schedulers alone keep it out of service: it is well, and has no marker. Who wrote one wrote a step for it."""
    return node.state == "quarantined" and bool(node.steps) and node.steps[-1].name != "quarantine"


def not_taken_back(node):
    """Whether it is kept out with its new driver, which had passed, so that there is nothing left to do but to let it serve."""
    return kept_out(node) and reached([step.name for step in node.steps]) == SERVING


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
class Ticket:
    """Leave to take the steps of one phase, until it expires."""

    ident: str
    phase: str
    granted: str
    expires: str
    sha256: str = ""


@dataclasses.dataclass
class Node:
    name: str
    state: str = "pending"
    position: t.Optional[int] = None  # its place in the plan's order; None if it is left out
    from_version: t.Optional[str] = None
    to_version: t.Optional[str] = None
    from_kernel: t.Optional[str] = None  # the one that ran before it went
    domains: t.Dict[str, str] = dataclasses.field(default_factory=dict)  # key of the failure domain: which one
    canary: bool = False
    reason: str = ""
    failure: str = ""  # its class
    signature: str = ""  # what is compared between nodes to tell a common cause
    attempt: int = 0
    went: t.Optional[int] = None  # the how manyth it was
    orphaned: bool = (
        False  # in flight when its controller died, or lost after it was changed, and not taken up again yet
    )
    diverted: bool = False  # in flight to another version or layout when its controller died
    proven: bool = False  # since the last step that changed it, whatever became of it then
    began: t.Optional[str] = None  # when it was given leave to drain last
    ticket: t.Optional[Ticket] = None
    order: str = ""  # an operator's word that leaves it out
    layout: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)  # the MIG layout that is wanted; empty where none is
    ended: t.Optional[str] = None
    steps: t.List[Step] = dataclasses.field(default_factory=list)

    @property
    def open_step(self):
        return self.steps[-1] if self.steps and self.steps[-1].finished is None else None

    def close(self, time, status):
        step = self.open_step
        if step:
            step.finished, step.status = time, status


class Nodes:
    """The nodes of a rollout in memory, by name. A ledger has the same questions answered out of a database."""

    def __init__(self, nodes=()):
        self._nodes = {node.name: node for node in nodes}

    def get(self, name):
        return self._nodes.get(name)

    def put(self, node):
        self._nodes[node.name] = node

    def everything(self):
        """All nodes: those that go in their order, then the others by name."""
        return sorted(self._nodes.values(), key=lambda node: (node.position is None, node.position or 0, node.name))

    def replace(self, nodes):
        self._nodes = {node.name: node for node in nodes}

    def having(self, *states):
        return [node for node in self.everything() if node.state in states]

    def orphaned(self):
        return [node for node in self.everything() if node.orphaned]

    def canaries(self):
        return [node for node in self.everything() if node.canary]

    def count(self):
        """How many nodes are in each state."""
        counts = {}
        for node in self._nodes.values():
            counts[node.state] = counts.get(node.state, 0) + 1
        return counts

    def waiting_before(self, position, present=None, barred=None):
        """Names of the nodes before this place of the order that have not gone.

        PRESENT: a set of those that count (None: all). BARRED: answers by the failure domains of a node whether it does
        not count (None: all do).
        """
        return [node.name for node in self.everything()
                if node.state == "pending" and node.position is not None and node.position < position
                and (present is None or node.name in present) and not (barred and barred(node.domains))]


@dataclasses.dataclass
class Rollout:
    rollout_id: str = ""
    run: t.Optional[str] = None
    target: str = ""
    started: t.Optional[str] = None
    finished: t.Optional[str] = None
    sha256: str = ""
    total: int = 0  # nodes in the order of the plan
    went: int = 0
    earlier: int = 0  # nodes that went in earlier runs and do not go again
    changed: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)  # limits that an operator set: what the plan had (was), what they are (now)
    window: t.Optional[int] = None  # how many may be down now, where the policy lets that grow; None: as many as it says
    policy: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)
    undo: t.Optional[str] = None
    paused: str = ""  # who paused it and why; empty: it runs
    stopped: str = ""
    held: t.List[str] = dataclasses.field(default_factory=list)  # queries that keep nodes from starting
    held_reason: str = ""
    nodes: t.Any = dataclasses.field(default_factory=Nodes)

    @property
    def attempted(self):
        """How many nodes this rollout ever began."""
        return self.went + self.earlier

    def names(self, *states):
        return [node.name for node in self.nodes.having(*states)]


def _plan(view, event):
    before = {node.name: node for node in view.nodes.everything()}
    view.run, view.started, view.finished = event["run"], event["time"], None
    view.rollout_id, view.target, view.sha256 = event.get("rollout_id", ""), event["target"], event["sha256"]
    view.total, view.policy, view.went, view.undo = len(event["order"]), dict(event["policy"]), 0, event.get("undo")
    view.stopped = view.held_reason = ""
    # What the plan takes over from a run that did not end.
    view.paused, view.changed = event.get("paused", ""), dict(event.get("changed") or {})
    view.held, view.earlier = [], 0
    start = event["policy"].get("growth_start")
    view.window = None if start is None else min(start, event["policy"]["max_down"])
    places = {name: number for number, name in enumerate(event["order"])}
    nodes = []
    for name, planned in event["nodes"].items():
        old = before.get(name)
        node = Node(
            name, planned["state"], places.get(name), planned.get("from"), planned.get("to"), planned.get("from_kernel"), dict(planned.get("domains") or {}),
            bool(planned.get("canary")), planned.get("reason", ""), planned.get("failure", ""), planned.get("signature", ""),
            order=planned.get("order", ""), layout=dict(planned.get("layout") or {}),
        )
        if old is not None:
            node.attempt = old.attempt
            view.earlier += int(old.attempt > 0 and name not in places)
            old.close(event["time"], "interrupted")
            # What was done to a node and not proven is not forgotten, whatever it is found to be now.
            if planned.get(keys.ORPHANED) or planned.get("kept") or planned["state"] == "done" or unproven(old):
                node.steps, node.began, node.proven = old.steps, old.began, old.proven
            if planned.get("kept"):
                node.ended = old.ended
            if planned.get(keys.ORPHANED):
                node.orphaned, node.state, node.order = True, old.state, old.order
                node.diverted = (node.to_version, node.layout) != (old.to_version, old.layout)
                node.reason = "in flight when its controller died%s%s" % (
                    ", in step %s" % old.steps[-1].name if old.steps else "", ", after: " + old.reason if old.failure else "")
                if not_taken_back(old):
                    node.state, node.reason = "validating", old.reason
                elif old.state == "lost":
                    node.state, node.reason = "down", "lost after it was changed%s%s" % (
                        ", in step %s" % old.steps[-1].name if old.steps else "", ": " + old.reason if old.reason else "")
        nodes.append(node)
    view.nodes.replace(nodes)


def _control(view, event):
    verb, said = event["verb"], "%s: %s" % (event["user"], event["reason"])
    if verb == "pause":
        view.paused = said
    elif verb == "resume":
        view.paused = ""
    elif verb == "stop":
        view.stopped = said
    elif verb == "set_budget":
        for key, value in event["policy"].items():
            view.changed[key] = {"was": view.changed[key]["was"] if key in view.changed else view.policy.get(key), "now": value}
        view.policy.update(event["policy"])
    elif verb in OF_NODES:
        node = view.nodes.get(event["node"])
        if node is None:
            return
        if verb == "skip" and node.state == "pending":
            node.state, node.reason, node.order = "skipped", "skipped by " + said, "skipped by " + said
        elif verb == "skip":
            node.order = "skipped by " + said
        elif verb == "retry" and node.state in ("failed", "rolled_back", "skipped"):
            node.state, node.reason, node.failure, node.signature, node.ended, node.order = "pending", "retry by " + said, "", "", None, ""
            if node.position is None:
                node.position, view.total = view.total, view.total + 1
        view.nodes.put(node)


def _grant(view, node, event):
    phase = event["phase"]
    node.ticket = Ticket(event["ticket"], phase, event["time"], event["expires"], view.sha256)
    if phase == DRAIN:
        # Work that a dead controller began on the node is down already.
        node.state = "down" if node.orphaned and node.state in NOT_SERVING else "draining"
        node.orphaned, node.reason, node.began = False, "", event["time"]
        node.attempt += 1
        view.went += 1
        node.went = view.went
    elif phase == DOWN:
        node.state = "down"


def _end(view, node, event):
    # Quarantined is what a node is once its marker is written; what was open before failed, see apply.
    well = ("done", "skipped", "rolled_back", "pending") + (("quarantined",) if node.open_step and node.open_step.name == "quarantine" else ())
    node.close(event["time"], "ok" if event["state"] in well else "failed")
    node.state, node.ticket, node.orphaned = event["state"], None, False
    node.proven = node.proven or event["state"] in PROVEN
    node.reason = event.get("reason") or node.reason
    if event["state"] == "pending":
        node.went = None
        if node.order:  # an operator wanted it left out while it drained
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


def apply(view, event):
    """Take one event into the view."""
    kind = event["event"]
    if kind == "plan":
        _plan(view, event)
        return view
    if event.get("run") != view.run:
        return view  # of a run that was taken over
    if kind == "end":
        view.finished = event["time"]
        return view
    if kind == "control":
        _control(view, event)
        return view
    if kind == "hold":
        view.held, view.held_reason = list(event["names"]), event["reason"]
        return view
    node = view.nodes.get(event.get("node"))
    if node is None:
        return view
    if kind == "grant":
        _grant(view, node, event)
    elif kind == "step":
        node.close(event["time"], "failed" if event["step"] == "quarantine" else "ok")
        node.steps.append(Step(event["step"], event["time"], detail=event.get("detail", "")))
        node.proven = node.proven and event["step"] not in CHANGING
        phase, after = STEPS[event["step"]]
        if phase != DRAIN or node.state not in NOT_SERVING:  # a node that is taken up again is down, whatever is looked at
            node.state = after
    elif kind == "step_failed":
        node.close(event["time"], "failed")
        node.reason = event["reason"]
        node.failure = event.get("failure", "")
        node.signature = event.get("signature", "")
    elif kind == "state":
        _end(view, node, event)
    view.nodes.put(node)
    return view


def reduce(events):
    """The view that a list of events amounts to."""
    view = Rollout()
    for event in events:
        apply(view, event)
    return view


def require_in_flight(view, name):
    """The node, when this run has given it leave that is not used up."""
    node = view.nodes.get(name)
    if node is None:
        raise StateError("%s is not in the plan of rollout %s: run gpufleet.lifecycle.upgrade with it among its nodes. Nothing was changed." % (
            name, view.rollout_id))
    if node.state not in IN_FLIGHT or node.orphaned or node.ticket is None:
        raise StateError(
            "%s is %s in rollout %s and has no leave to change anything; rollout_gate has to answer go first: run gpufleet.lifecycle.upgrade from its "
            "beginning, without --start-at-task, --tags or --step. Nothing was changed." % (name, node.state, view.rollout_id)
        )
    return node


def require_ticket(view, node, step, now):
    """Refuse a step without a live ticket of its phase. NOW and the expiry are UTC times of one spelling."""
    phase = STEPS[step][0]
    ticket = node.ticket
    if ticket.sha256 != view.sha256:
        raise StateError("%s holds leave for another plan than the one that rollout %s follows now: ask rollout_gate again." % (node.name, view.rollout_id))
    if step in ALWAYS:
        return
    if phase != ticket.phase:
        raise StateError(
            "%s may not begin step %s: it has leave to %s, and this step needs leave to %s. Ask rollout_gate with phase %s first."
            % (node.name, step, ticket.phase, phase, phase)
        )
    if now >= ticket.expires:
        raise StateError(
            "%s may not begin step %s: its leave to %s ran out at %s. Ask rollout_gate with phase %s again." % (node.name, step, phase, ticket.expires, phase)
        )


def failure_class(node):
    """Why a node in flight fails, by how far it came."""
    if node.state in NOT_SERVING or node.state == "soaking":
        return HARD
    return SICK if not node.steps or node.steps[-1].name == "evidence" else SOFT


def nothing_left(view):
    """Whether no node is waiting, in flight, or left over by a dead controller."""
    counts = view.nodes.count()
    return not any(counts.get(state) for state in ("pending",) + IN_FLIGHT) and not view.nodes.orphaned()


def verdict(view, ended):
    """C(complete) only when every node is done or had nothing to do."""
    states = {state for state, number in view.nodes.count().items() if number}
    if not ended:
        return "running"
    if states & set(FAILED):
        return "failed"
    if not states or states - {"done", "skipped"}:
        return "incomplete"
    return "complete"
