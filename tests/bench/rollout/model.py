# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real gate, reducer and plan, driven by a clock that is only a number: rollouts of thousands of nodes in seconds,
without Ansible.
"""

from __future__ import annotations

import heapq
import itertools

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits, plan
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe

OLD, NEW = "1.0.1", "2.0.1"
TIME = "2026-01-01T00:00:00.000Z"


class Indexed(state.Nodes):
    """The same answers as state.Nodes, without looking at every node for each; the ledger has a database for that."""

    def replace(self, nodes):
        super().replace(nodes)
        self._order = [node.name for node in super().list_all()]
        self._was = {name: self._nodes[name].state for name in self._order}
        self._in = {}
        for name, what in self._was.items():
            self._in.setdefault(what, set()).add(name)
        self._canaries = [name for name in self._order if self._nodes[name].canary]
        self._first = 0  # all places before it have gone

    def store(self, node):
        super().store(node)
        self._in[self._was[node.name]].discard(node.name)
        self._was[node.name] = node.state
        self._in.setdefault(node.state, set()).add(node.name)
        if node.state == "pending" and node.position is not None:
            self._first = min(self._first, node.position)

    def with_state(self, *states):
        found = [self._nodes[name] for what in states for name in self._in.get(what, ())]
        return sorted(found, key=lambda node: (node.position is None, node.position or 0, node.name))

    def orphaned(self):
        return []

    def canaries(self):
        return [self._nodes[name] for name in self._canaries]

    def count(self):
        return {what: len(names) for what, names in self._in.items() if names}

    def waiting_before(self, position, present=None, barred=None):
        while self._first < len(self._order) and self._was[self._order[self._first]] != "pending":
            self._first += 1
        return (
            name
            for name in self._order[self._first : position]
            if self._was[name] == "pending"
            and (present is None or name in present)
            and not (barred and barred(self._nodes[name].domains))
        )


class Model:
    """N nodes whose steps take TIMES, under a policy; as many of them at a time in the play as there are forks."""

    def __init__(self, times, policy, bad=(), forks=None, poll_s=1.0):
        names = ["n%05d" % number for number in range(len(times))]
        self.bad = {names[number] for number in bad}
        complete = limits.complete_policy(policy, len(names))
        made = plan.build_plan(NEW, [Probe(name, version=OLD) for name in names], complete)
        self.times = dict(zip(made.order, times))
        self.view = state.Rollout(nodes=Indexed())
        self.write(
            "plan",
            rollout_id="model",
            target=NEW,
            order=made.order,
            nodes=made.nodes,
            policy=made.policy,
            sha256=made.sha256,
        )
        self.queue = list(reversed(made.order))
        self.forks = forks or complete["max_down"]
        self.poll_s = poll_s
        self.clock = self.end = 0.0
        self.heap, self.number = [], itertools.count()
        self.waiting = []
        self.asked = 0
        self.most_down = 0

    def write(self, event, **fields):
        events.apply_event(self.view, dict(fields, event=event, run="run", time=TIME))

    def at(self, when, what, name, phase):
        heapq.heappush(self.heap, (when, next(self.number), what, name, phase))

    def run(self):
        """Seconds on the model's clock from the first step to the last."""
        for dummy in range(min(self.forks, len(self.queue))):
            self.at(0.0, "ask", self.queue.pop(), state.DRAIN)
        while self.heap:
            self.clock, dummy, what, name, phase = heapq.heappop(self.heap)
            getattr(self, what)(name, phase)
        return self.end

    def ask(self, name, phase):
        self.asked += 1
        decision = gate.decide(self.view, phase, name)
        if decision.answer == "wait":
            self.waiting.append((name, phase))
        elif decision.answer == "go":
            self.write("grant", node=name, phase=phase, ticket="t", expires="9999-01-01T00:00:00.000Z")
            self.write(
                "step", node=name, step={state.DRAIN: "evidence", state.DOWN: "stop", state.RETURN: "return"}[phase]
            )
            self.most_down = max(self.most_down, len(self.view.nodes.with_state(*state.NOT_SERVING)))
            look, *rest = self.times[name]
            if phase == state.DRAIN:
                self.at(self.clock + look, "ask", name, state.DOWN)
            elif phase == state.DOWN:
                self.at(self.clock + sum(rest), "leave" if name in self.bad else "ask", name, state.RETURN)
            else:
                self.leave(name, phase)
        else:
            if phase == state.DOWN:
                self.write("state", node=name, state="pending", reason=decision.reason)
            self.next_host()

    def leave(self, name, phase):
        bad = name in self.bad
        self.write(
            "state",
            node=name,
            state="rolled_back" if bad else "done",
            reason="",
            failure=state.HARD if bad else "",
            signature=name,
        )
        self.end = self.clock
        waiting, self.waiting = self.waiting, []
        for place, (other, asked) in enumerate(waiting):
            self.at(self.clock + self.poll_s * (place + 1) / (len(waiting) + 1), "ask", other, asked)
        self.next_host()

    def next_host(self):
        """The strategy host_pinned takes the next host when one has come to its end."""
        if self.queue:
            self.at(self.clock, "ask", self.queue.pop(), state.DRAIN)

    def states(self):
        return self.view.nodes.count()
