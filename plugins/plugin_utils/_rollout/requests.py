# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's request for a ticket, decided in one transaction of the ledger and granted in the same.

answer() is the whole way: the rules of gate.py, then what can only make their answer stricter, the holds and the proof
in the ledger, then the grant. Thousands of nodes may wait, and each that asks is a transaction: those that are next in
the plan's order ask often, so that a free slot is taken at once, and the others ask seldom.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
import typing as t
import uuid

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, others, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, holds, joining, proof

REQUESTED = {state.DRAIN: "drain", state.DOWN: "go down", state.RETURN: "serve again"}
# An answer that no ledger gave.
NOTHING: t.Dict[str, t.Any] = {
    "resume": "",
    "failure": "",
    "documents": {},
    "ticket": None,
    "from_version": None,
    "to_version": None,
    "attempt": 0,
    "position": None,
    "total": 0,
    "numbers": {},
    "turn": 1,
    "waited": False,
    "soak_s": 0,
    "sequence": 0,
    "left_drained": False,
    "fence": "",
}


@dataclasses.dataclass(frozen=True)
class Request:
    """A request of a node for the ticket of a phase."""

    node: str
    phase: str
    controller: t.Mapping[str, t.Any]  # the identity of the controller that asks
    present: t.Optional[t.Sequence[str]]  # the hosts that are still in its play; None: not known
    options: t.Mapping[str, t.Any]  # those of rollout_gate, and why an option of holds cannot be used: unusable_hold


def open_view(transaction: t.Any, rollout_id: str, controller: t.Mapping[str, t.Any]) -> state.Rollout:
    """Return the view of a rollout that this controller runs, alone or as a member.

    Other controllers are refused, and tasks of an ended run.
    """
    run = members.require_membership(transaction, rollout_id, controller)
    if transaction.view.run != run:
        raise owner.OwnerError("Rollout %s was planned again meanwhile, so this run may not continue it." % rollout_id)
    return transaction.view


def answer_request(transaction: t.Any, rollout_id: str, request: Request, queried: t.Any) -> t.Dict[str, t.Any]:
    """Return the answer to a request; record what follows from it, above all the grant if it is C(go).

    QUERIED: the answers of the hold queries, as query_names() requires them; None if none was asked.
    """
    view = open_view(transaction, rollout_id, request.controller)
    members.record_gone(transaction, request.controller, request.present)
    lost = record_lost(transaction, request)
    planned = view.nodes.get(request.node)
    if planned is not None:
        proof.require_as_planned(planned, view.policy, request.options)
    decision = decide_by_rules(transaction, request, lock=True)
    decision = decide_by_holds(transaction, request, queried, decision)
    decision = decide_by_proof(transaction, request, decision)
    granted = record_grant(transaction, request) if decision.answer == "go" else {}
    found = dict(describe_decision(view, request, decision), **granted, sequence=transaction.sequence)
    if decision.answer == "go":
        found.update(begin_step(transaction, request, found["resume"]))
        if request.phase == state.DRAIN and request.options["claim_dir"]:
            found["claim"] = joining.make_claim(
                request.node, transaction.name_ledger(), rollout_id, found["attempt"], view.run, view.sha256
            )
            found["other_ledger_s"] = view.policy.get("other_ledger_s", 0)
    elif decision.answer == "wait":
        found["ahead"] = count_ahead(transaction, request)
    return dict(found, lost=lost, wrote=bool(transaction.added))


def find_wait(transaction: t.Any, rollout_id: str, request: Request) -> t.Optional[t.Dict[str, t.Any]]:
    """Return the answer if it is C(wait) and nothing is to be recorded; None if the node has to ask.

    It needs no lock, so that a node that waits keeps no other from asking.
    """
    view = open_view(transaction, rollout_id, request.controller)
    members.record_gone(transaction, request.controller, request.present)
    decision = decide_by_rules(transaction, request)
    if decision.answer != "wait" or find_lost(transaction, request) or transaction.has_changes:
        return None
    return dict(describe_decision(view, request, decision), ahead=count_ahead(transaction, request), wrote=False)


def foresee_answer(transaction: t.Any, request: Request) -> t.Dict[str, t.Any]:
    """Return the answer in check mode, where nothing is recorded."""
    if transaction is None or not transaction.view.run:
        view = state.Rollout() if transaction is None else transaction.view
        return describe_decision(view, request, gate.Decision("go", "check mode, nothing was recorded"))
    return describe_decision(transaction.view, request, decide_by_rules(transaction, request))


def query_names(transaction: t.Any, request: Request) -> t.List[str]:
    """Return the names of the hold queries to ask; none if the node may not go whatever they answer."""
    view = transaction.view
    starts = view.policy.get("holds") and gate.starts_new(view, request.phase, request.node)
    goes = starts and decide_by_rules(transaction, request).answer == "go"
    return list(view.policy["holds"]) if goes else []


def decide_by_rules(transaction: t.Any, request: Request, lock: bool = False) -> gate.Decision:
    """Return the decision for the node, among the nodes of all members and of the other rollouts of its pool.

    LOCK: no other rollout of the pool decides until the transaction has ended.
    """
    others.read_pool_nodes(transaction, lock)
    view = transaction.view
    decision = gate.decide(
        view,
        request.phase,
        request.node,
        members.find_present_hosts(transaction, request.controller, request.present),
        transaction.clock(),
        members.is_shared(transaction.owner),
        time.monotonic(),
    )
    if decision.answer not in ("go", "wait") or not gate.starts_new(view, request.phase, request.node):
        return decision
    drain_s = int(request.options.get("drain_s") or 0)
    obstacle = gate.outlast_ticket(view, drain_s) if request.phase == state.DRAIN else ""
    refused = members.find_refusal(transaction, request.controller)
    obstacle = obstacle or refused and gate.REFUSED % refused
    return gate.Decision("stop", obstacle) if obstacle else decision


def decide_by_holds(transaction: t.Any, request: Request, queried: t.Any, decision: gate.Decision) -> gate.Decision:
    """Return the decision, or wait if a hold query keeps the node from starting; record changes of the hold."""
    view, options = transaction.view, request.options
    if decision.answer != "go" or not gate.starts_new(view, request.phase, request.node):
        return decision
    if options.get("unusable_hold"):
        raise holds.HoldError(options["unusable_hold"])
    if not (view.policy.get("holds") or view.held):
        return decision
    names, why = holds.judge_holds(
        view.policy["holds"],
        options["hold_queries"],
        queried,
        options["hold_deadline_s"],
        options["hold_age_s"],
        time.time(),
    )
    # Without an answer there is nothing to record: the next call asks again, or the task lacks the queries.
    if names != view.held and (queried is not None or not names):
        transaction.append("hold", run=view.run, names=names, reason=why)
    return gate.Decision("wait", "held by " + why) if names else decision


def decide_by_proof(transaction: t.Any, request: Request, decision: gate.Decision) -> gate.Decision:
    """Return the decision, or stop if the ledger has no verdict that lets the node go down, or serve again."""
    planned, why = transaction.view.nodes.get(request.node), ""
    if decision.answer != "go":
        return decision

    def load(name) -> dict | None:
        """Return what this task brings, which is kept with the grant, or what the ledger has."""
        return request.options["documents"].get(name) or transaction.load(request.node, name)

    if request.phase == state.DOWN and planned.state not in state.NOT_SERVING:
        why = proof.unfit_to_go_down(planned, load(proof.BEFORE), load(proof.BASELINE))
    elif request.phase == state.RETURN:
        why = proof.find_missing_proof(planned, load(proof.DOCUMENT), planned.to_version, planned.to_kernel)
    return gate.Decision("stop", why) if why else decision


def find_lost(transaction: t.Any, request: Request) -> t.List[state.Node]:
    """Return the nodes of this controller that are in flight and have left its play."""
    if request.present is None:
        return []
    return gate.find_vanished(transaction.view, request.present, members.find_hosts(transaction, request.controller))


def record_lost(transaction: t.Any, request: Request) -> t.List[str]:
    """Record the nodes that have left the play as lost, which would hold their slots; return a line for each."""
    lost = find_lost(transaction, request)
    for node in lost:
        transaction.append(
            "state",
            run=transaction.view.run,
            node=node.name,
            state="lost",
            reason=gate.vanished_reason(node),
            failure=state.LOST,
        )
    return [describe_progress(transaction.view, node.name, "lost (%s)" % node.reason) for node in lost]


def record_grant(transaction: t.Any, request: Request) -> t.Dict[str, str]:
    """Record the ticket and the documents; return how far an earlier controller came with the node, and its failure."""
    view = transaction.view
    planned = view.nodes.get(request.node)
    is_orphaned = request.phase == state.DRAIN and planned.orphaned
    resume = state.find_progress(planned) if is_orphaned else ""
    failure = planned.reason if resume else ""
    expires = transaction.clock() + datetime.timedelta(seconds=view.policy["ticket_s"])
    until_s = time.monotonic() + view.policy["ticket_s"]
    ticket = {"ticket": uuid.uuid4().hex, "expires": format_time(expires), "until_s": until_s}
    transaction.append("grant", run=view.run, node=request.node, phase=request.phase, **ticket)
    for name, document in request.options["documents"].items():
        transaction.save(request.node, name, document)
    return {"resume": resume, "failure": failure}


def begin_step(transaction: t.Any, request: Request, resume: str) -> t.Dict[str, str]:
    """Open the step of the request with its grant; return it and the line to print, nothing if it names none."""
    options = request.options
    step = (options["resume_step"] if resume else None) or options["step"]
    if not step:
        return {}
    transaction.append("step", run=transaction.view.run, node=request.node, step=step, detail=options["detail"])
    detail = " (%s)" % options["detail"] if options["detail"] else ""
    return {"step": step, "begun": describe_progress(transaction.view, request.node, step + detail)}


def count_ahead(transaction: t.Any, request: Request) -> int:
    """Return the number of waiting nodes before this one."""
    present = members.find_present_hosts(transaction, request.controller, request.present)
    return count_ahead_of(transaction.view, request.node, present)


def describe_decision(view: state.Rollout, request: Request, decision: gate.Decision) -> t.Dict[str, t.Any]:
    """Return the decision as the result of the task, with the line to print."""
    planned = view.nodes.get(request.node)
    is_granted, what = decision.answer == "go", REQUESTED[request.phase]
    if not is_granted:
        what = "wait to %s" % what if decision.answer == "wait" else decision.answer
    names = [step.name for step in planned.steps] if planned else []
    return {
        "answer": decision.answer,
        "reason": decision.reason,
        "phase": request.phase,
        "from_version": planned.from_version if planned else None,
        "to_version": planned.to_version if planned else None,
        # For an orphaned node set by grant().
        "resume": "",
        "failure": "",
        "documents": {},
        # An earlier controller drained the node and did nothing else to it.
        "left_drained": bool(planned and planned.orphaned and "drain" in names and not state.find_progress(planned)),
        "fence": "",
        "sequence": 0,
        "soak_s": view.policy["canary_soak_s"] if planned and planned.canary else 0,
        "ticket": dataclasses.asdict(planned.ticket) if is_granted and planned and planned.ticket else None,
        "attempt": planned.attempt if planned else 0,
        "position": planned.went if planned else None,
        "total": view.total,
        # They are counted for a node that goes on; one that waits gets them at the end of its call.
        "numbers": None if decision.answer == "wait" else count_nodes(view),
        "line": describe_progress(view, request.node, "%s (%s)" % (what, decision.reason)),
    }


def describe_progress(view: state.Rollout, node: str, text: str) -> str:
    """Return a line of progress, such as C([3/4] gpu-r1-2: install)."""
    found = view.nodes.get(node)
    return "[%s/%d] %s: %s" % (found.went if found is not None and found.went else "-", view.total, node, text)


def count_nodes(view: state.Rollout) -> t.Dict[str, t.Any]:
    """Return the status of the rollout in numbers, for a display of its progress."""
    policy = view.policy
    return {
        "counts": view.nodes.count(),
        "total": view.total,
        "max_down": policy.get("max_down"),
        "window": view.window,
        "broken_elsewhere": policy.get("broken_elsewhere", 0),
        "failure_budget": policy.get("failure_budget"),
        "node_s": policy.get("node_s"),
    }


# With so many nodes before it, a node asks half as often as the first one.
NEAR = 20
# Seconds between two questions at most, unless more are asked for: so late does the last node of a long queue hear of a
# pause that has ended.
LONGEST_S = 30.0
# More of them do not matter, if the first one asks every second.
MOST = 600
# A controller whose nodes wait says so this often: AWX and CI systems end jobs that print nothing for long.
SAID_EVERY_S = 300


def compute_interval(poll_s, ahead) -> float:
    """Return the seconds until a node asks again. POLL_S: those of the first one. AHEAD: the nodes before it."""
    return min(max(LONGEST_S, poll_s), poll_s * (1 + ahead / NEAR))


def count_ahead_of(view, name, present) -> int:
    """Return the number of waiting nodes before this one in the plan's order, as far as compute_interval() needs it.

    PRESENT: the hosts that count (None: all).
    """
    node = view.nodes.get(name)
    if node is None or node.position is None or node.state != "pending":
        return 0
    # If all of the plan are here, there are none to leave out.
    among = None if present is None or len(present) >= view.total else present
    return view.nodes.count_waiting_before(node.position, among, MOST)


def is_line_due(before, controller, now) -> tuple[bool, dict]:
    """Return (True if the controller says now that nodes wait, {"controller", "time"} to keep until it asks again).

    BEFORE: what was kept, {} at first. CONTROLLER: what tells this run of a playbook from others. NOW: seconds since
    the epoch; where a clock was set back, the time begins again.
    """
    passed = now - before["time"] if before.get("controller") == controller else -1
    if 0 <= passed < SAID_EVERY_S:
        return False, before
    return passed >= SAID_EVERY_S, {"controller": controller, "time": now}
