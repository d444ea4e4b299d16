# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a rollout and its nodes, reduced from events, and the rules on what may be written next. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import keys

# For each step the phase of the ticket that it needs, and the state of a node in this step.
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
# Steps of a rollback that change the node. The closing steps start its services again, or keep it out of service.
PUTTING_BACK = (
    "rollback_install",
    "rollback_prove",
    "rollback_reboot",
    "rollback_reload",
    "rollback_mig",
    "rollback_validate",
)
CLOSING = ("rollback_start", "quarantine")
# Steps that need no ticket of their phase, and may begin after its expiry: a rollback is always allowed.
ALWAYS = PUTTING_BACK + CLOSING
# Steps that only read the node. The other steps of phase down, without the closing ones, may leave another driver,
# kernel or MIG layout on a node, or stopped services.
READING = ("validate", "rollback_validate")
CHANGING = tuple(name for name, (phase, dummy) in STEPS.items() if phase == DOWN and name not in CLOSING + READING)
# How far a dead controller came with a node: only its services were stopped; it was changed; it was being rolled back;
# it served again.
STOPPED, CHANGED, PUT_BACK, SERVING = RESUMES = ("stopped", "changed", "put_back", "serving")
IN_FLIGHT = ("draining", "down", "validating", "soaking")
# States in which a node serves no work because of this rollout. A draining node still runs its jobs, and a soaking one
# runs jobs again.
NOT_SERVING = ("down", "validating")
# States that count against the cap of a failure domain.
LEAVING = ("draining",) + NOT_SERVING
OUT_OF_SERVICE = ("lost", "quarantined")
FAILED = ("failed", "rolled_back", "quarantined", "lost")
ENDED = ("done", "skipped") + FAILED
# Final states of a node whose driver was proven after its last change.
PROVEN = ("done", "rolled_back")
STATES = ("pending",) + IN_FLIGHT + ENDED

# Failure classes. SICK: not healthy before anything was changed. SOFT: failed before its services were stopped. HARD:
# failed after that. LOST: does not answer any more.
SICK, SOFT, HARD, LOST = "sick", "soft", "hard", "lost"
CLASSES = (SICK, SOFT, HARD, LOST)
# What an operator may request for the whole rollout, and for nodes. break_lock changes no node, only the owner's
# record, and end ends a rollout of several controllers.
OF_ALL, OF_NODES = ("pause", "resume", "stop", "set_budget", "break_lock", "end"), ("skip", "retry")
VERBS = OF_ALL + OF_NODES


def reached(steps):
    """Return how far a node came, by the names of its steps: one of RESUMES, or "" if nothing was done to it."""
    if any(name in PUTTING_BACK for name in steps):
        return PUT_BACK
    if any(STEPS[name][0] == RETURN for name in steps if name in STEPS):
        return SERVING
    done = [name for name in steps if name in STEPS and STEPS[name][0] == DOWN and name not in CLOSING]
    return CHANGED if any(name != "stop" for name in done) else STOPPED if done else ""


def unproven(node):
    """Return True if this rollout changed the node, or may have, and no verdict has proven it since."""
    return bool(reached([step.name for step in node.steps])) and not node.proven and node.state not in PROVEN


def held_by_schedulers(node):
    """Return True if only its schedulers keep a node out of service: it has no quarantine marker, or its step."""
    return node.state == "quarantined" and bool(node.steps) and node.steps[-1].name != "quarantine"


def awaits_resume(node):
    """Return True if the node has its new driver, which passed, and only the resume in its schedulers failed."""
    return held_by_schedulers(node) and reached([step.name for step in node.steps]) == SERVING


class StateError(Exception):
    """This is not allowed for the node now; the message says why."""


@dataclasses.dataclass
class Step:
    name: str
    started: str
    finished: t.Optional[str] = None
    status: str = "running"
    detail: str = ""


@dataclasses.dataclass
class Ticket:
    """A grant to take the steps of one phase, until it expires."""

    ident: str
    phase: str
    granted: str
    expires: str
    sha256: str = ""


@dataclasses.dataclass
class Node:
    name: str
    state: str = "pending"
    position: t.Optional[int] = None  # in the plan's order; None if the node is left out
    from_version: t.Optional[str] = None
    to_version: t.Optional[str] = None
    from_kernel: t.Optional[str] = None  # the kernel that ran before this rollout
    domains: t.Dict[str, str] = dataclasses.field(default_factory=dict)  # failure domains by key, such as rack: r1
    canary: bool = False
    reason: str = ""
    failure: str = ""  # its class
    signature: str = ""  # compared between nodes to find a common cause
    attempt: int = 0
    went: t.Optional[int] = None  # its number among the nodes that started in this run
    orphaned: bool = False  # in flight when its controller died, or lost after a change, and not resumed yet
    diverted: bool = False  # orphaned on the way to another version or layout than the plan's
    proven: bool = False  # a verdict passed after the last step that changed it
    began: t.Optional[str] = None  # time of its last grant to drain
    ticket: t.Optional[Ticket] = None
    order: str = ""  # an operator's request to leave it out
    layout: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)  # the wanted MIG layout; empty if none
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
    """The nodes of a rollout in memory, by name. StoredNodes has the same methods for those of a database."""

    def __init__(self, nodes=()):
        self._nodes = {node.name: node for node in nodes}

    def get(self, name):
        return self._nodes.get(name)

    def put(self, node):
        self._nodes[node.name] = node

    def everything(self):
        """Return all nodes: those of the plan's order in this order, then the others by name."""
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
        """Return the number of nodes in each state."""
        counts = {}
        for node in self._nodes.values():
            counts[node.state] = counts.get(node.state, 0) + 1
        return counts

    def count_waiting_before(self, position, present, most):
        return len(list(itertools.islice(self.waiting_before(position, present), most)))

    def waiting_before(self, position, present=None, barred=None):
        """Return the names of pending nodes before POSITION.

        PRESENT: the set of nodes that count (None: all). BARRED: a function that returns True for the failure domains
        of a node that does not count (None: all count).
        """
        return [
            node.name
            for node in self.everything()
            if node.state == "pending"
            and node.position is not None
            and node.position < position
            and (present is None or node.name in present)
            and not (barred and barred(node.domains))
        ]


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
    earlier: int = 0  # nodes that started in earlier runs and do not start again
    # Limits that an operator set: their values in the plan (was) and now.
    changed: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)
    window: t.Optional[int] = None  # down slots that growth allows now; None: no growth, max_down alone
    policy: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)
    undo: t.Optional[str] = None
    paused: str = ""  # the operator that paused it, and the reason; empty if it is not paused
    stopped: str = ""
    held: t.List[str] = dataclasses.field(default_factory=list)  # queries that keep nodes from starting
    held_reason: str = ""
    nodes: t.Any = dataclasses.field(default_factory=Nodes)
    # (rollout id, node) of nodes of other rollouts that take part of this one's limits; read for a decision, not kept
    beside: t.List[t.Tuple[str, Node]] = dataclasses.field(default_factory=list)

    @property
    def attempted(self):
        """The number of nodes that ever started in this rollout."""
        return self.went + self.earlier

    def names(self, *states):
        return [node.name for node in self.nodes.having(*states)]


def _plan(view, event):
    before = {node.name: node for node in view.nodes.everything()}
    view.run, view.started, view.finished = event["run"], event["time"], None
    view.rollout_id, view.target, view.sha256 = event.get("rollout_id", ""), event["target"], event["sha256"]
    view.total, view.policy, view.went, view.undo = len(event["order"]), dict(event["policy"]), 0, event.get("undo")
    view.stopped = view.held_reason = ""
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
        nodes.append(_examined(name, planned, old, event["time"], places.get(name)))
    view.nodes.replace(nodes)


def _examined(name, planned, old, time, position):
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
    )
    if old is None:
        return node
    node.attempt = old.attempt
    old.close(time, "interrupted")
    # The steps of a node that is not proven stay, whatever state it is found in now.
    if planned.get(keys.ORPHANED) or planned.get("kept") or planned["state"] == "done" or unproven(old):
        node.steps, node.began, node.proven = old.steps, old.began, old.proven
    if planned.get("kept"):
        node.ended = old.ended
    if planned.get(keys.ORPHANED):
        node.orphaned, node.state, node.order = True, old.state, old.order
        node.diverted = (node.to_version, node.layout) != (old.to_version, old.layout)
        node.reason = "in flight when its controller died%s%s" % (
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


def _join(view, event):
    """Take over what a member found of its nodes when it joined. Their places in the plan's order stay."""
    for name, planned in event["nodes"].items():
        old = view.nodes.get(name)
        if old is None:
            continue
        node = _examined(name, dict(planned, canary=old.canary), old, event["time"], old.position)
        node.went = old.went
        view.nodes.put(node)
    if event.get("approved"):
        view.policy["approved"] = view.sha256


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
            view.changed[key] = {
                "was": view.changed[key]["was"] if key in view.changed else view.policy.get(key),
                "now": value,
            }
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
        view.nodes.put(node)


def _grant(view, node, event):
    phase = event["phase"]
    node.ticket = Ticket(event["ticket"], phase, event["time"], event["expires"], view.sha256)
    if phase == DRAIN:
        again = node.orphaned and node.went is not None  # a member that died had started it, in this same run
        # An orphaned node that is down stays down.
        node.state = "down" if node.orphaned and node.state in NOT_SERVING else "draining"
        node.orphaned, node.reason, node.began = False, "", event["time"]
        node.attempt += 1
        if not again:
            view.went += 1
            node.went = view.went
    elif phase == DOWN:
        node.state = "down"


def _end(view, node, event):
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


def _finish(view, event):
    view.finished = event["time"]


def _hold(view, event):
    view.held, view.held_reason = list(event["names"]), event["reason"]


# The events of the whole rollout, or of several nodes.
OF_ROLLOUT = {"end": _finish, "control": _control, "join": _join, "hold": _hold}


def apply(view, event):
    """Apply one event to the view, and return the view."""
    kind = event["event"]
    if kind == "plan":
        _plan(view, event)
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
        _grant(view, node, event)
    elif kind == "step":
        node.close(event["time"], "failed" if event["step"] == "quarantine" else "ok")
        node.steps.append(Step(event["step"], event["time"], detail=event.get("detail", "")))
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
        _end(view, node, event)
    view.nodes.put(node)
    return view


def reduce(events):
    """Return the view that results from a list of events."""
    view = Rollout()
    for event in events:
        apply(view, event)
    return view


def require_in_flight(view, name):
    """Return the node if it is in flight in this run and has a ticket; refuse it otherwise."""
    node = view.nodes.get(name)
    if node is None:
        raise StateError(
            "%s is not in the plan of rollout %s. Run gpufleet.lifecycle.upgrade with it among its nodes. Nothing was "
            "changed." % (name, view.rollout_id)
        )
    if node.state not in IN_FLIGHT or node.orphaned or node.ticket is None:
        raise StateError(
            "%s is %s in rollout %s and has no ticket; expected one that rollout_gate granted. Run "
            "gpufleet.lifecycle.upgrade from its beginning, without --start-at-task, --tags or --step. Nothing was "
            "changed." % (name, node.state, view.rollout_id)
        )
    return node


def require_ticket(view, node, step, now):
    """Refuse a step without a valid ticket of its phase. NOW is a UTC time in the format of the ledger."""
    phase = STEPS[step][0]
    ticket = node.ticket
    if ticket.sha256 != view.sha256:
        raise StateError(
            "%s has a ticket of plan %s, and rollout %s follows plan %s now. Ask rollout_gate again."
            % (node.name, ticket.sha256[:12], view.rollout_id, view.sha256[:12])
        )
    if step in ALWAYS:
        return
    if phase != ticket.phase:
        raise StateError(
            "%s may not begin step %s: its ticket is for phase %s; expected one for phase %s. Ask rollout_gate with "
            "phase %s first." % (node.name, step, ticket.phase, phase, phase)
        )
    if now >= ticket.expires:
        raise StateError(
            "%s may not begin step %s: its ticket for phase %s expired at %s. Ask rollout_gate with phase %s again."
            % (node.name, step, phase, ticket.expires, phase)
        )


def failure_class(node):
    """Return the failure class of a node in flight, by how far it came."""
    if node.state in NOT_SERVING or node.state == "soaking":
        return HARD
    return SICK if not node.steps or node.steps[-1].name == "evidence" else SOFT


def nothing_left(view):
    """Return True if no node is pending, in flight or orphaned."""
    counts = view.nodes.count()
    return not any(counts.get(state) for state in ("pending",) + IN_FLIGHT) and not view.nodes.orphaned()


def verdict(view, ended):
    """Return the verdict; C(complete) only if every node is done or had nothing to do."""
    states = {state for state, number in view.nodes.count().items() if number}
    if not ended:
        return "running"
    if states & set(FAILED):
        return "failed"
    if not states or states - {"done", "skipped"}:
        return "incomplete"
    return "complete"
