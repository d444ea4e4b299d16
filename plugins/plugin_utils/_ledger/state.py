# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout and its nodes: their steps, states, failure classes and tickets, and what follows from them. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

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


def find_resume_step(steps) -> str:
    """Return how far a node came, by the names of its steps: one of RESUMES, or "" if nothing was done to it."""
    if any(name in PUTTING_BACK for name in steps):
        return PUT_BACK
    if any(STEPS[name][0] == RETURN for name in steps if name in STEPS):
        return SERVING
    done = [name for name in steps if name in STEPS and STEPS[name][0] == DOWN and name not in CLOSING]
    return CHANGED if any(name != "stop" for name in done) else STOPPED if done else ""


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


def find_progress(node) -> str:
    """Return how far a node came since it began from the beginning: one of RESUMES, or "" if nothing was done to it.

    The steps before stay with a node that was repaired and not proven since.
    """
    return find_resume_step([step.name for step in node.steps if step.sequence >= node.begun])


def is_unproven(node) -> bool:
    """Return True if this rollout changed the node, or may have, and no verdict has proven it since."""
    return bool(find_resume_step([step.name for step in node.steps])) and not node.proven and node.state not in PROVEN


def held_by_schedulers(node) -> bool:
    """Return True if only its schedulers keep a node out of service.

    Another one has a quarantine marker: the rollout wrote it in a step, or an operator after the node was proven.
    """
    is_marked = not node.steps or node.steps[-1].name == "quarantine" or node.proven
    return node.state == "quarantined" and not is_marked


def awaits_resume(node) -> bool:
    """Return True if the node has its new driver, which passed, and only the resume in its schedulers failed."""
    return held_by_schedulers(node) and find_resume_step([step.name for step in node.steps]) == SERVING


@dataclasses.dataclass
class Step:
    name: str
    started: str
    finished: t.Optional[str] = None
    status: str = "running"
    detail: str = ""
    sequence: int = 0  # the number of the transaction in which it began; a later one has a larger number


@dataclasses.dataclass
class Ticket:
    """A grant to take the steps of one phase, until it expires."""

    ident: str
    phase: str
    granted: str
    expires: str
    sha256: str = ""
    until_s: t.Optional[float] = None  # when it expires, by time.monotonic() of the controller that has it


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
    orphaned: bool = False  # in flight when its run was interrupted, or lost after a change, and not resumed yet
    diverted: bool = False  # orphaned on the way to another version or layout than the plan's
    proven: bool = False  # a verdict passed after the last step that changed it
    began: t.Optional[str] = None  # time of its last grant to drain
    granted: int = 0  # the number of the transaction with that grant
    begun: int = 0  # that of the last grant with which it began from the beginning
    ticket: t.Optional[Ticket] = None
    order: str = ""  # an operator's request to leave it out
    layout: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)  # the wanted MIG layout; empty if none
    install: bool = True  # whether the driver is installed
    to_kernel: str = ""  # the kernel that boots next; empty if none is chosen
    peers: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)  # option expect.peers of gpu_health
    # What tells its machine from others, as entries.identify_machine() has it; a proof is of this machine.
    machine: t.Dict[str, str] = dataclasses.field(default_factory=dict)
    ended: t.Optional[str] = None
    steps: t.List[Step] = dataclasses.field(default_factory=list)

    @property
    def open_step(self) -> Step | None:
        return self.steps[-1] if self.steps and self.steps[-1].finished is None else None

    def close(self, time, status) -> None:
        step = self.open_step
        if step:
            step.finished, step.status = time, status


class Nodes:
    """The nodes of a rollout in memory, by name. StoredNodes has the same methods for those of a database."""

    def __init__(self, nodes=()) -> None:
        self._nodes = {node.name: node for node in nodes}

    def get(self, name) -> Node | None:
        return self._nodes.get(name)

    def store(self, node) -> None:
        self._nodes[node.name] = node

    def list_all(self) -> list[Node]:
        """Return all nodes: those of the plan's order in this order, then the others by name."""
        return sorted(self._nodes.values(), key=lambda node: (node.position is None, node.position or 0, node.name))

    def replace(self, nodes) -> None:
        self._nodes = {node.name: node for node in nodes}

    def with_state(self, *states) -> list[Node]:
        return [node for node in self.list_all() if node.state in states]

    def find_orphaned(self) -> list[Node]:
        return [node for node in self.list_all() if node.orphaned]

    def canaries(self) -> list[Node]:
        return [node for node in self.list_all() if node.canary]

    def count(self) -> dict[str, int]:
        """Return the number of nodes in each state."""
        counts = {}
        for node in self._nodes.values():
            counts[node.state] = counts.get(node.state, 0) + 1
        return counts

    def count_waiting_before(self, position, present, most) -> int:
        return len(list(itertools.islice(self.waiting_before(position, present), most)))

    def waiting_before(self, position, present=None, barred=None) -> list[str]:
        """Return the names of pending nodes before POSITION.

        PRESENT: the set of nodes that count (None: all). BARRED: a function that returns True for the failure domains
        of a node that does not count (None: all count).
        """
        return [
            node.name
            for node in self.list_all()
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
    collection: str = ""  # the version of gpufleet.lifecycle that planned it; empty if it did not record it
    paused: str = ""  # the operator that paused it, and the reason; empty if it is not paused
    stopped: str = ""
    refused: str = ""  # why the run only finishes nodes that were in flight
    held: t.List[str] = dataclasses.field(default_factory=list)  # queries that keep nodes from starting
    held_reason: str = ""
    nodes: t.Any = dataclasses.field(default_factory=Nodes)
    # (rollout id, node) of nodes of other rollouts that take part of this one's limits; read for a decision, not kept
    beside: t.List[t.Tuple[str, Node]] = dataclasses.field(default_factory=list)

    @property
    def attempt_count(self) -> int:
        """The number of nodes that ever started in this rollout."""
        return self.went + self.earlier

    def names(self, *states) -> list:
        return [node.name for node in self.nodes.with_state(*states)]


def failure_class(node) -> str:
    """Return the failure class of a node in flight, by how far it came."""
    if node.state in NOT_SERVING or node.state == "soaking":
        return HARD
    return SICK if not node.steps or node.steps[-1].name == "evidence" else SOFT


def nothing_left(view) -> bool:
    """Return True if no node is pending, in flight or orphaned."""
    counts = view.nodes.count()
    return not any(counts.get(state) for state in ("pending",) + IN_FLIGHT) and not view.nodes.find_orphaned()


def judge_rollout(view, ended) -> str:
    """Return the verdict; C(complete) only if every node is done or had nothing to do."""
    states = {state for state, number in view.nodes.count().items() if number}
    if not ended:
        return "running"
    if states & set(FAILED):
        return "failed"
    if view.refused or not states or states - {"done", "skipped"}:
        return "incomplete"
    return "complete"


class StateError(Exception):
    """This is not allowed for the node now; the message says why."""


def require_in_flight(view, name) -> Node:
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


def has_expired(ticket, now, uptime_s=None) -> bool:
    """Return True if a ticket has expired. NOW: the time of the ledger, in its format.

    UPTIME_S: time.monotonic() of the controller that has the ticket, so that no clock that is set takes it away from a
    node in the middle of a change.
    """
    return now >= ticket.expires if None in (ticket.until_s, uptime_s) else uptime_s >= ticket.until_s


def require_ticket(view, node, step, now, uptime_s=None) -> None:
    """Refuse a step without a valid ticket of its phase. NOW, UPTIME_S: see has_expired()."""
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
    if has_expired(ticket, now, uptime_s):
        raise StateError(
            "%s may not begin step %s: its ticket for phase %s expired at %s. Ask rollout_gate with phase %s again."
            % (node.name, step, phase, ticket.expires, phase)
        )
