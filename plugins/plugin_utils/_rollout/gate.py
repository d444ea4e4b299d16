# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision whether a node may proceed, from the state of the rollout and its policy. Pure.

A node asks three times: before it is drained, when it is empty and would go down, and before it serves again. Only
C(go) grants a ticket. C(wait) means to ask again: other nodes or an operator can end the reason during this run.
C(stop) ends the node's part in this run: a node that was drained is resumed and is pending again. C(skip) means that
there is nothing to do on the node.
"""

from __future__ import annotations

import dataclasses
import itertools

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, order
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import list_names

# The number of nodes to name that another one waits for.
NAMED = 5
# Why no node starts in a run, or in the part of a member, whose plan is refused.
REFUSED = "this run only finishes nodes that were in flight: %s"


@dataclasses.dataclass(frozen=True)
class Decision:
    answer: str  # go, wait, skip or stop
    reason: str


def decide(view, phase, name, present=None, now=None, shared=False, uptime_s=None) -> Decision:
    """Return the decision for one node.

    C(present) are the hosts that are still in the play (None: all), or in that of another member: others keep no place
    in the order. C(now) is an aware datetime, needed for maintenance windows and for the expiry of tickets. C(shared):
    True if other controllers may still join with hosts that no member has. C(uptime_s): see state.has_expired().
    """
    node = view.nodes.get(name)
    present = None if present is None else frozenset(present)
    if node is None:
        return Decision("skip", "%s is not in the plan" % name)
    if phase == state.DRAIN:
        return _decide_drain(view, node, present, now, shared)
    if node.state in state.ENDED:
        return Decision("skip", "already %s" % node.state)
    if node.state not in state.IN_FLIGHT or node.orphaned:
        return Decision("stop", "it is %s and has no grant to drain in this run" % node.state)
    if phase == state.DOWN:
        return _decide_down(view, node, now, uptime_s)
    return Decision("go", "attempt %d" % node.attempt)


def outlast_ticket(view, drain_s) -> str:
    """Return why no node starts whose jobs have DRAIN_S seconds to end; empty if its ticket lives longer."""
    ticket_s = view.policy.get("ticket_s", 0)
    if drain_s < ticket_s:
        return ""
    return (
        "its jobs have %d s to end (gpu_scheduler_drain_timeout), and its ticket to drain expires after %d s: give it "
        "less, or set rollout_ticket_s above it and run again" % (drain_s, ticket_s)
    )


def foresee_stop(view, names, drains) -> str:
    """Return why nodes of a plan would not start, whatever becomes of the others; empty if they may.

    An approval and a window that opens later may come until the run. NAMES: the nodes of this run, in order. DRAINS:
    seconds that the jobs of each have.
    """
    view = dataclasses.replace(view, policy=dict(view.policy, approved=None, windows=[]))
    found = [view.nodes.get(name) for name in names]
    starting = [node.name for node in found if node is not None and node.state in ("pending", "draining")]
    stop = (_check_closed(view, None, None) or _held_for_good(view)) if starting else None
    if stop and stop.answer == "stop":
        return stop.reason
    late = [name for name in starting if outlast_ticket(view, drains.get(name, 0))]
    return "%s: %s" % (list_names(late), outlast_ticket(view, drains[late[0]])) if late else ""


def starts_new(view, phase, name) -> bool:
    """Return True if a grant for this phase starts something new. A node that is down already is only finished."""
    node = view.nodes.get(name)
    return phase in (state.DRAIN, state.DOWN) and not (node is not None and node.state in state.NOT_SERVING)


def _decide_drain(view, node, present, now, shared) -> Decision:
    if node.state in state.ENDED:
        return Decision("skip", "already %s%s" % (node.state, ": " + node.reason if node.reason else ""))
    if node.state in state.IN_FLIGHT and not node.orphaned:
        return Decision("stop", "already in flight in this run; a node starts once in a run")
    taken_up = node.orphaned and node.state in state.NOT_SERVING
    # An orphaned node that is down is finished or rolled back also while no node may start, but never to a version that
    # was not approved.
    closed = (_check_approval(view) if node.diverted else None) if taken_up else _check_closed(view, node, now)
    if closed:
        return closed
    policy = view.policy
    down = _down_now(view)
    if taken_up:
        # An orphaned node holds a slot already, but counts as one of the nodes that are worked on at the same time.
        working = [other for other in down if not other.orphaned]
        if len(working) >= policy["max_down"]:
            return Decision(
                "wait",
                "%d of %d nodes down: %s"
                % (len(working), policy["max_down"], list_names(other.name for other in working)),
            )
        return Decision("go", "continued: %s" % node.reason)
    held = _held_for_good(view)
    if held:
        return held
    canaries = _check_canaries(view, node, present, shared)
    if canaries:
        return canaries
    earlier = _check_waves(view, node, present)
    if earlier:
        return earlier
    out = _out_by_domain(view, node)
    full = _check_domains(view, node.domains, out)
    if full:
        return full
    draining = [
        other for other in view.nodes.with_state("draining") if other.name != node.name and not _both_left(node, other)
    ]
    # A node that drains needs a down slot next. No more nodes start than there are free slots, unless the policy lets
    # nodes drain ahead of their slot.
    ahead = policy["max_draining"] > policy["max_down"]
    room = (policy["max_draining"] if ahead else min(policy["max_draining"], _count_free_slots(view, down))) - len(
        draining
    )
    if room < 1:
        busy = draining + down + _find_nodes_beside(view)
        return Decision(
            "wait",
            "%d of %d slots to drain and %d of %d down slots taken%s"
            % (
                len(draining),
                policy["max_draining"],
                _count_used_slots(view, down),
                policy["max_down"],
                _current_window(view)
                + (" by " + list_names(_name_node(view, other) for other in busy) if busy else ""),
            ),
        )
    first = [] if node.orphaned else _find_nodes_ahead(view, node, present, out, room)
    if len(first) >= room:
        return Decision(
            "wait",
            "%s in the plan's order"
            % ("%s goes first" % first[0] if len(first) == 1 else "%s go first" % list_names(first)),
        )
    return Decision(
        "go",
        "%d of %d down slots taken%s, %d of %d failures"
        % (
            _count_used_slots(view, down),
            policy["max_down"],
            _current_window(view),
            len(limits.filter_charged(view.nodes.with_state(*state.FAILED))),
            policy["failure_budget"],
        ),
    )


def _decide_down(view, node, now, uptime_s) -> Decision:
    if node.state in state.NOT_SERVING:
        return Decision("go", "it is down already")
    if node.order:
        return Decision("stop", node.order)
    stale = _explain_stale_ticket(view, node.ticket, now, uptime_s)
    if stale:
        return Decision("stop", stale)
    closed = _check_closed(view, node, now)
    if closed:
        return closed
    held = _held_for_good(view)
    if held:
        return held
    down = _down_now(view)
    most = view.policy["max_down"]
    if _count_free_slots(view, down) < 1:
        return Decision(
            "wait",
            "%d of %d down slots taken%s by %s"
            % (_count_used_slots(view, down), most, _current_window(view), _list_slot_names(view, down)),
        )
    return Decision(
        "go", "%d of %d down slots taken%s" % (_count_used_slots(view, down) + 1, most, _current_window(view))
    )


def _explain_stale_ticket(view, ticket, now, uptime_s) -> str:
    """Return why the ticket to drain is no longer valid, and with it what was read before the drain; empty if valid."""
    if ticket is None:
        return "it has no ticket to drain: it is resumed, and the next run starts it again"
    if ticket.sha256 != view.sha256:
        return (
            "it drained by plan %s, and the rollout follows plan %s now: it is resumed, and the next run starts it "
            "again" % (ticket.sha256[:12], view.sha256[:12])
        )
    if now is not None and state.has_expired(ticket, format_time(now), uptime_s):
        return (
            "its ticket to drain was granted at %s and expired at %s, so its state may have changed since: it is "
            "resumed, and the next run starts it again. rollout_ticket_s is the lifetime of a ticket"
            % (ticket.granted, ticket.expires)
        )
    return ""


def _check_closed(view, node, now) -> Decision | None:
    """Return the decision that keeps every node from starting now; None if there is none."""
    policy = view.policy
    if view.stopped:
        return Decision("stop", "stopped by " + view.stopped)
    if view.refused:
        return Decision("stop", REFUSED % view.refused)
    unapproved = _check_approval(view)
    if unapproved:
        return unapproved
    why = limits.explain_spent_budget(policy, view.nodes.with_state(*state.FAILED), view.attempt_count)
    if why:
        return Decision("stop", why)
    if view.paused:
        return Decision("wait", "paused by " + view.paused)
    if policy["windows"]:
        opening = limits.state_at(policy["windows"], now, policy["node_s"])
        if not opening.open:
            return Decision("stop", opening.reason)
    return None


def _check_approval(view) -> Decision | None:
    """Return the decision for a plan that waits for approval; None if it does not."""
    approved = view.policy["approved"]
    if approved is None or approved == view.sha256:
        return None
    return Decision("stop", "this plan is not approved: run again with rollout_approve=%s" % view.sha256[:12])


def _check_canaries(view, node, present, shared) -> Decision | None:
    """Return the decision that keeps other nodes from starting before every canary has ended; None if there is none."""
    if node.canary:
        return None
    canaries = view.nodes.canaries()
    failed = [other for other in canaries if other.state in state.FAILED and other.failure != state.SICK]
    if len(failed) > view.policy["canary_failures"]:
        return Decision(
            "stop",
            "canary %s failed: %s: fix the cause and run again, with another canary or a larger "
            "rollout_canary_failures if you want that"
            % (failed[0].name, (failed[0].reason or failed[0].state).rstrip(". ")),
        )
    done = [other for other in canaries if other.state == "done"]
    if canaries and not done and all(other.state in state.ENDED for other in canaries):
        return Decision(
            "stop",
            "no canary is done, so the change is not proven: %s: run again with a node in rollout_canaries that can "
            "start" % list_names("%s is %s" % (other.name, other.state) for other in canaries),
        )
    left = [
        other.name
        for other in canaries
        if (other.state == "pending" or other.orphaned) and present is not None and other.name not in present
    ]
    if left and shared:
        return Decision(
            "wait", "canaries go first, and no running job has %s: run the job with the canaries" % list_names(left)
        )
    if left:
        return Decision(
            "stop",
            "canary %s did not start, so the change is not proven on such nodes: find out why it left the play, and "
            "run again" % list_names(left),
        )
    waiting = [
        "%s%s" % (other.name, " (it soaks)" if other.state == "soaking" else "")
        for other in canaries
        if other.state not in state.ENDED
    ]
    return Decision("wait", "canaries go first: %s" % list_names(waiting)) if waiting else None


def _check_waves(view, node, present) -> Decision | None:
    """Return the decision that keeps a wave from starting before the wave before it has ended.

    None if there is none.
    """
    sizes = view.policy.get("waves")
    if not sizes or node.canary or node.position is None:
        return None
    number, first = limits.wave_of(sizes, node.position)
    if not first:
        return None
    # Thousands of nodes may be pending; a few of them are named.
    left = list(itertools.islice(view.nodes.waiting_before(first, present), NAMED + 1))
    left += [
        other.name
        for other in view.nodes.with_state(*state.IN_FLIGHT)
        if other.position is not None and other.position < first and (present is None or other.name in present)
    ]
    return (
        Decision(
            "wait",
            "wave %d of %d begins when the one before it has ended: %s%s"
            % (number, len(sizes), ", ".join(left[:NAMED]), " and others" if len(left) > NAMED else ""),
        )
        if left
        else None
    )


def _find_nodes_ahead(view, node, present, out, room) -> list[str]:
    """Return nodes before this one in the plan's order that could start now, at most as many as there are free
    slots.
    """

    def is_barred(places) -> bool:
        return _check_domains(view, places, out) is not None

    before = node.position if node.position is not None else 0
    capped = bool(view.policy["domain_caps"])
    return list(itertools.islice(view.nodes.waiting_before(before, present, is_barred if capped else None), room))


def _both_left(node, other) -> bool:
    """Return True if both nodes drained when their controllers died.

    Each has its place already. If they waited for each other where a limit was lowered meanwhile, neither would go.
    """
    return node.orphaned and other.orphaned and other.state == "draining"


def _out_by_domain(view, node) -> dict:
    """Return the other nodes that are out in each failure domain, by (key, domain); empty if the policy has no caps."""
    out = {}
    if view.policy["domain_caps"]:
        for other in view.nodes.with_state(*(state.LEAVING + state.OUT_OF_SERVICE)):
            if other.name != node.name and not _both_left(node, other):
                for item in order.list_places(other.domains):
                    out.setdefault(item, []).append(other)
        for dummy, other in view.beside:
            for item in order.list_places(other.domains):
                out.setdefault(item, []).append(other)
    return out


def _check_domains(view, places, out) -> Decision | None:
    """Return the decision that a cap on a failure domain requires.

    None if there is room. PLACES: the node's domains.
    """
    waits = None
    for key, cap in sorted(view.policy["domain_caps"].items()):
        mine = order.parse_names(places.get(key))
        if not mine:
            return Decision(
                "stop",
                "its %s is not known, and at most %d node%s of one may be out at a time: set it in gpufleet_domains, "
                "or "
                "by a group, and run again" % (key, cap, "" if cap == 1 else "s"),
            )
        for place in mine:
            there = out.get((key, place), [])
            if len(there) < cap:
                continue
            words = "%d of %d nodes of %s %s are out: %s" % (
                len(there),
                cap,
                key,
                place,
                list_names(_name_node(view, other) for other in there),
            )
            if len([other for other in there if other.state in state.OUT_OF_SERVICE]) >= cap:
                return Decision(
                    "stop",
                    words + ": repair these, or raise the cap (rollout_control with rollout_verb=set_budget, "
                    "or rollout_domain_caps in the next run)",
                )
            waits = waits or Decision("wait", words)
    return waits


def _down_now(view) -> list[state.Node]:
    return view.nodes.with_state(*state.NOT_SERVING)


def _find_nodes_out(view) -> list[state.Node]:
    """Return the nodes that are lost or in quarantine, by this rollout or before it."""
    return view.nodes.with_state(*state.OUT_OF_SERVICE)


def _find_nodes_beside(view) -> list[state.Node]:
    """Return the nodes of other rollouts of the pool that take a down slot."""
    return [node for dummy, node in view.beside if node.state in state.NOT_SERVING + state.OUT_OF_SERVICE]


def _name_node(view, node) -> str:
    """Return the name of a node for a message, with its rollout if it is another one."""
    rollout = next((other_id for other_id, other in view.beside if other is node), "")
    return "%s of rollout %s" % (node.name, rollout) if rollout else node.name


def _count_used_slots(view, down) -> int:
    """Return the number of down slots in use: nodes down, out of service, and broken for other reasons."""
    return len(down) + len(_find_nodes_out(view)) + len(_find_nodes_beside(view)) + view.policy["broken_elsewhere"]


def _list_slot_names(view, down) -> str:
    words = [_name_node(view, node) for node in down + _find_nodes_out(view) + _find_nodes_beside(view)]
    elsewhere = view.policy["broken_elsewhere"]
    return list_names(words) + ("%s%d broken elsewhere" % (" and " if words else "", elsewhere) if elsewhere else "")


def _count_free_slots(view, down) -> int:
    """Return the number of nodes that may go down now: the free slots, within what growth allows."""
    free = view.policy["max_down"] - _count_used_slots(view, down)
    return max(0, free if view.window is None else min(free, view.window - len(down)))


def _current_window(view) -> str:
    return "" if view.window is None else " (%d for now)" % view.window


def _held_for_good(view) -> Decision | None:
    """Return the decision for a rollout whose down slots are all held by nodes out of service; None if not all are."""
    for_good = len(_find_nodes_out(view)) + view.policy["broken_elsewhere"]
    if for_good >= view.policy["max_down"]:
        return Decision(
            "stop",
            "every down slot (%d) is held by a node that is out of service: %s"
            % (view.policy["max_down"], _list_slot_names(view, [])),
        )
    return None


def has_stopped(view) -> bool:
    """Return True if no further node starts, because the rollout was stopped or its failure budget is spent."""
    return bool(
        view.stopped
        or view.refused
        or limits.explain_spent_budget(view.policy, view.nodes.with_state(*state.FAILED), view.attempt_count)
    )


def find_vanished(view, present, mine=None) -> list[state.Node]:
    """Return nodes in flight that are no longer in the play and have no final state: they would hold their slots.

    C(mine) are the hosts of this controller's part (None: all), since the nodes of other members are in other plays.
    """
    present = set(present)
    return [
        node
        for node in view.nodes.with_state(*state.IN_FLIGHT)
        if not node.orphaned and node.name not in present and (mine is None or node.name in mine)
    ]


def vanished_reason(node) -> str:
    """Return the reason for the state of a vanished node."""
    if not node.steps:
        return "stopped answering before its first step"
    where = "in step %s" % node.steps[-1].name if node.open_step else "after step %s" % node.steps[-1].name
    return "stopped answering, or its tasks were interrupted, %s%s" % (where, ": " + node.reason if node.reason else "")
