# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""May this node go now? A pure answer from the state of the rollout and its policy.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import state


@dataclasses.dataclass(frozen=True)
class Policy:
    """C(max_down): nodes that may serve no work at a time. C(failure_budget): failed nodes after which nobody starts."""

    max_down: int = 1
    failure_budget: int = 1


@dataclasses.dataclass(frozen=True)
class Decision:
    answer: str  # go, wait, skip or stop
    reason: str


def listed(names, most=5):
    names = list(names)
    return ", ".join(names[:most]) + (" and %d more" % (len(names) - most) if len(names) > most else "")


def ahead(view, name, present):
    """Nodes that the plan puts before this one and that have not gone yet: canaries go first, whoever asks first."""
    before = view.order[: view.order.index(name)] if name in view.order else []
    return [other for other in before if view.nodes[other].state == "pending" and (present is None or other in present)]


def decide(view, policy, name, present=None):
    """Answer one node. Only C(go) lets it change anything; C(wait) means that somebody in flight may free a slot.

    C(present) are the hosts that the play still holds (None: all): a node that it has lost keeps no place in the order.
    """
    node = view.nodes.get(name)
    if node is None:
        return Decision("skip", "%s is not in the plan" % name)
    if node.state in state.ENDED:
        return Decision("skip", "already %s%s" % (node.state, ": " + node.reason if node.reason else ""))
    if node.state in state.IN_FLIGHT and not node.suspect:
        return Decision("stop", "already in flight in this run; a node goes once")
    if policy.max_down < 1:
        return Decision("stop", "no node may be down at a time (rollout_max_down is %d)" % policy.max_down)
    if policy.failure_budget < 1:
        return Decision("stop", "no failure budget was given (rollout_failure_budget is %d)" % policy.failure_budget)
    failed = view.names(*state.FAILED)
    if len(failed) >= policy.failure_budget:
        return Decision("stop", "the failure budget of %d is spent by %s" % (policy.failure_budget, listed(failed)))
    active = [other.name for other in view.nodes.values() if other.state in state.IN_FLIGHT and not other.suspect]
    if node.suspect:
        # It is down already: taking it up again costs no slot of its own, but it works beside the others.
        if len(active) >= policy.max_down:
            return Decision("wait", "%d of %d nodes in flight: %s" % (len(active), policy.max_down, listed(active)))
        return Decision("go", "taken up again: %s" % node.reason)
    suspects = [other.name for other in view.nodes.values() if other.suspect and other.name != name]
    out = view.names(*state.OUT_OF_SERVICE)
    if len(out) >= policy.max_down:
        return Decision("stop", "every down slot (%d) is held by a node that is out of service: %s" % (policy.max_down, listed(out)))
    down = active + suspects + out
    if len(down) >= policy.max_down:
        return Decision("wait", "%d of %d down slots taken by %s" % (len(down), policy.max_down, listed(down)))
    first = ahead(view, name, present)
    if len(first) >= policy.max_down - len(down):
        return Decision("wait", "%s by the plan's order" % ("%s goes first" % first[0] if len(first) == 1 else "%s go first" % listed(first)))
    return Decision("go", "%d of %d down slots taken, %d of %d failures" % (len(down) + 1, policy.max_down, len(failed), policy.failure_budget))


def vanished(view, present):
    """Nodes in flight that the play no longer holds and that left no verdict: nobody will ever free their slots."""
    present = set(present)
    return [node for node in view.nodes.values() if node.state in state.IN_FLIGHT and not node.suspect and node.name not in present]


def vanished_reason(node):
    if not node.steps:
        return "stopped answering before its first step"
    where = "in step %s" % node.steps[-1].name if node.open_step else "after step %s" % node.steps[-1].name
    return "stopped answering, or its tasks broke off, %s%s" % (where, ": " + node.reason if node.reason else "")
