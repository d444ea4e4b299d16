# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""May this node go on now? A pure answer from the state of the rollout and its policy.

A node asks three times: before it is drained, when it is empty and would go down, and before it serves again. Only C(go) is leave.
C(wait) means that somebody or something that will come frees the way. C(stop) ends the node's turn: one that was drained for nothing
is put back and is pending again. C(skip) means that there is nothing to do with it.
"""

from __future__ import annotations

import dataclasses
import itertools

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import domains, limits, windows
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import listed

# How many nodes that another one waits for are named.
NAMED = 5


@dataclasses.dataclass(frozen=True)
class Decision:
    answer: str  # go, wait, skip or stop
    reason: str


def decide(view, phase, name, present=None, now=None):
    """Answer one node.

    C(present) are the hosts that the play still holds (None: all): a node that it has lost keeps no place in the order. C(now) is an
    aware datetime; without it neither maintenance windows nor the end of a ticket can be seen to, so that whoever acts on the answer gives it.
    """
    node = view.nodes.get(name)
    present = None if present is None else frozenset(present)
    if node is None:
        return Decision("skip", "%s is not in the plan" % name)
    if phase == state.DRAIN:
        return _drain(view, node, present, now)
    if node.state in state.ENDED:
        return Decision("skip", "already %s" % node.state)
    if node.state not in state.IN_FLIGHT or node.orphaned:
        return Decision("stop", "it is %s and was never given leave to drain in this run" % node.state)
    if phase == state.DOWN:
        return _down(view, node, now)
    return Decision("go", "attempt %d" % node.attempt)


def starts(view, phase, name):
    """Whether leave for this phase lets something begin. A node that is down already is only brought to an end."""
    node = view.nodes.get(name)
    return phase in (state.DRAIN, state.DOWN) and not (node is not None and node.state in state.NOT_SERVING)


def _drain(view, node, present, now):
    if node.state in state.ENDED:
        return Decision("skip", "already %s%s" % (node.state, ": " + node.reason if node.reason else ""))
    if node.state in state.IN_FLIGHT and not node.orphaned:
        return Decision("stop", "already in flight in this run; a node goes once")
    taken_up = node.orphaned and node.state in state.NOT_SERVING
    # Whatever keeps nodes from starting, one that is down already is finished or put back; but to no version that nobody approved.
    closed = (_unapproved(view) if node.diverted else None) if taken_up else _closed(view, node, now)
    if closed:
        return closed
    policy = view.policy
    down = _down_now(view)
    if taken_up:
        # Taking it up again costs no slot of its own, but it works beside the others.
        working = [other for other in down if not other.orphaned]
        if len(working) >= policy["max_down"]:
            return Decision("wait", "%d of %d nodes down: %s" % (len(working), policy["max_down"], listed(other.name for other in working)))
        return Decision("go", "taken up again: %s" % node.reason)
    held = _held_for_good(view)
    if held:
        return held
    canaries = _canaries(view, node, present)
    if canaries:
        return canaries
    earlier = _waves(view, node, present)
    if earlier:
        return earlier
    out = _out_by_domain(view, node.name)
    full = _domains(view, node.domains, out)
    if full:
        return full
    draining = [other for other in view.nodes.having("draining") if other.name != node.name]
    # Who drains will want to go down: no more start than there is room for, unless the policy lets more drain ahead than may be down.
    ahead = policy["max_draining"] > policy["max_down"]
    room = (policy["max_draining"] if ahead else min(policy["max_draining"], _room(view, down))) - len(draining)
    if room < 1:
        busy = draining + down
        return Decision("wait", "%d of %d slots to drain and %d of %d down slots taken%s" % (
            len(draining), policy["max_draining"], _taken(view, down), policy["max_down"], _grown(view) + (
                " by " + listed(other.name for other in busy) if busy else "")))
    first = [] if node.orphaned else _ahead(view, node, present, out, room)
    if len(first) >= room:
        return Decision("wait", "%s by the plan's order" % ("%s goes first" % first[0] if len(first) == 1 else "%s go first" % listed(first)))
    return Decision("go", "%d of %d down slots taken%s, %d of %d failures" % (
        _taken(view, down), policy["max_down"], _grown(view), len(limits.charged(view.nodes.having(*state.FAILED))), policy["failure_budget"]))


def _down(view, node, now):
    if node.state in state.NOT_SERVING:
        return Decision("go", "it is down already")
    if node.order:
        return Decision("stop", node.order)
    stale = _stale(view, node.ticket, now)
    if stale:
        return Decision("stop", stale)
    closed = _closed(view, node, now)
    if closed:
        return closed
    held = _held_for_good(view)
    if held:
        return held
    down = _down_now(view)
    most = view.policy["max_down"]
    if _room(view, down) < 1:
        return Decision("wait", "%d of %d down slots taken%s by %s" % (_taken(view, down), most, _grown(view), _names(view, down)))
    return Decision("go", "%d of %d down slots taken%s" % (_taken(view, down) + 1, most, _grown(view)))


def _stale(view, ticket, now):
    """Why leave to drain is worth nothing any more, and with it what was seen of the node when it was drained; empty while it holds."""
    if ticket is None:
        return "it has no leave to drain that it could go down by: the next run takes it anew"
    if ticket.sha256 != view.sha256:
        return "it drained by another plan (%s) than the one that is followed now (%s): it works again, and the next run takes it anew" % (
            ticket.sha256[:12], view.sha256[:12])
    if now is not None and state.timestamp(now) >= ticket.expires:
        return ("its leave to drain is of %s and ran out at %s, so that what was seen of it then may not hold any more: it works again, and the next run "
                "takes it anew; rollout_ticket_s says how long leave lasts" % (ticket.granted, ticket.expires))
    return ""


def _closed(view, node, now):
    """What keeps every node from starting now, whoever asks."""
    policy = view.policy
    if view.stopped:
        return Decision("stop", "stopped by " + view.stopped)
    unapproved = _unapproved(view)
    if unapproved:
        return unapproved
    why = limits.spent(policy, view.nodes.having(*state.FAILED), view.attempted)
    if why:
        return Decision("stop", why)
    if view.paused:
        return Decision("wait", "paused by " + view.paused)
    if policy["windows"]:
        opening = windows.state_at(policy["windows"], now, policy["node_s"])
        if not opening.open:
            return Decision("stop", opening.reason)
    return None


def _unapproved(view):
    """Whether the plan waits for somebody to approve it."""
    approved = view.policy["approved"]
    if approved is None or approved == view.sha256:
        return None
    return Decision("stop", "nobody has approved this plan: run again with rollout_approve=%s" % view.sha256[:12])


def _canaries(view, node, present):
    """Nobody else goes before every canary has shown what the change does."""
    if node.canary:
        return None
    canaries = view.nodes.canaries()
    failed = [other for other in canaries if other.state in state.FAILED and other.failure != state.SICK]
    if len(failed) > view.policy["canary_failures"]:
        return Decision("stop", "canary %s failed: %s: clear the cause and run again, with another canary or a larger rollout_canary_failures if that is what "
                        "you want" % (failed[0].name, (failed[0].reason or failed[0].state).rstrip(". ")))
    shown = [other for other in canaries if other.state == "done"]
    if canaries and not shown and all(other.state in state.ENDED for other in canaries):
        return Decision("stop", "no canary is done, so nothing is known of the change: %s: run again with rollout_canaries naming one that can go" % listed(
            "%s is %s" % (other.name, other.state) for other in canaries))
    left = [
        other.name
        for other in canaries
        if (other.state == "pending" or other.orphaned) and present is not None and other.name not in present
    ]
    if left:
        return Decision("stop", "canary %s did not go, so that nothing is known of the change where it would have shown: see why it left the play, and run "
                        "again" % listed(left))
    waiting = ["%s%s" % (other.name, " (it soaks)" if other.state == "soaking" else "") for other in canaries if other.state not in state.ENDED]
    return Decision("wait", "canaries go first: %s" % listed(waiting)) if waiting else None


def _waves(view, node, present):
    """No wave begins before every node of the one before it has ended. Canaries are before all of them."""
    sizes = view.policy.get("waves")
    if not sizes or node.canary or node.position is None:
        return None
    number, first = limits.wave_of(sizes, node.position)
    if not first:
        return None
    # Thousands may wait; to name a few of them is enough.
    left = list(itertools.islice(view.nodes.waiting_before(first, present), NAMED + 1))
    left += [other.name for other in view.nodes.having(*state.IN_FLIGHT) if other.position is not None and other.position < first
             and (present is None or other.name in present)]
    return Decision("wait", "wave %d of %d begins when the one before it has ended: %s%s" % (
        number, len(sizes), ", ".join(left[:NAMED]), " and others" if len(left) > NAMED else "")) if left else None


def _ahead(view, node, present, out, room):
    """Nodes that the plan puts before this one and that could go now; it is enough to know as many as there is room for."""
    def barred(places):
        return _domains(view, places, out) is not None

    before = node.position if node.position is not None else 0
    capped = bool(view.policy["domain_caps"])
    return list(itertools.islice(view.nodes.waiting_before(before, present, barred if capped else None), room))


def _out_by_domain(view, name):
    """The nodes that are out of each failure domain, without this one, by (key, domain); empty where the policy caps none."""
    out = {}
    if view.policy["domain_caps"]:
        for other in view.nodes.having(*(state.LEAVING + state.OUT_OF_SERVICE)):
            if other.name != name:
                for item in domains.places(other.domains):
                    out.setdefault(item, []).append(other)
    return out


def _domains(view, places, out):
    """How many nodes of one failure domain may be out at a time. PLACES: those of the node that would go, by key."""
    waits = None
    for key, cap in sorted(view.policy["domain_caps"].items()):
        mine = domains.names(places.get(key))
        if not mine:
            return Decision("stop", "its %s is not known, and at most %d node%s of one may be out at a time: name it in gpufleet_domains, or by a group, and "
                            "run again" % (key, cap, "" if cap == 1 else "s"))
        for place in mine:
            there = out.get((key, place), [])
            if len(there) < cap:
                continue
            words = "%d of %d nodes of %s %s are out: %s" % (len(there), cap, key, place, listed(other.name for other in there))
            if len([other for other in there if other.state in state.OUT_OF_SERVICE]) >= cap:
                return Decision("stop", words + ": have these repaired, or raise the cap (rollout_control with rollout_verb=set_budget, or "
                                "rollout_domain_caps in the next run)")
            waits = waits or Decision("wait", words)
    return waits


def _down_now(view):
    return view.nodes.having(*state.NOT_SERVING)


def _out(view):
    """Nodes that are out of service for good, since before the rollout or by it: the fleet lacks them either way."""
    return view.nodes.having(*state.OUT_OF_SERVICE)


def _taken(view, down):
    """Slots that are not free: nodes down, nodes that are gone, and nodes of the fleet that are broken for other reasons."""
    return len(down) + len(_out(view)) + view.policy["broken_elsewhere"]


def _names(view, down):
    words = [node.name for node in down + _out(view)]
    elsewhere = view.policy["broken_elsewhere"]
    return listed(words) + ("%s%d broken elsewhere" % (" and " if words else "", elsewhere) if elsewhere else "")


def _room(view, down):
    """How many more may go down: the free slots, and no more than growth lets this rollout have."""
    free = view.policy["max_down"] - _taken(view, down)
    return max(0, free if view.window is None else min(free, view.window - len(down)))


def _grown(view):
    return "" if view.window is None else " (%d for now)" % view.window


def _held_for_good(view):
    """Whether nobody will ever free a slot again."""
    for_good = len(_out(view)) + view.policy["broken_elsewhere"]
    if for_good >= view.policy["max_down"]:
        return Decision("stop", "every down slot (%d) is held by a node that is out of service: %s" % (view.policy["max_down"], _names(view, [])))
    return None


def vanished(view, present):
    """Nodes in flight that the play no longer holds and that left no verdict: nobody will ever free their slots."""
    present = set(present)
    return [node for node in view.nodes.having(*state.IN_FLIGHT) if not node.orphaned and node.name not in present]


def vanished_reason(node):
    if not node.steps:
        return "stopped answering before its first step"
    where = "in step %s" % node.steps[-1].name if node.open_step else "after step %s" % node.steps[-1].name
    return "stopped answering, or its tasks broke off, %s%s" % (where, ": " + node.reason if node.reason else "")
