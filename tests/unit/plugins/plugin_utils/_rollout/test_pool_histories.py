# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random histories of three rollouts of one pool, some nodes of which are in two of them."""

from __future__ import annotations

import collections

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, others, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import grant, view_of

hypothesis = pytest.importorskip(
    "hypothesis", reason="ansible-test's environment has none; the plain pytest run has it"
)
strategies = hypothesis.strategies

# Four nodes of each rollout; the last of one is the first of the next.
NODES = {"a": ["n0", "n1", "n2", "n3"], "b": ["n3", "n4", "n5", "n6"], "c": ["n6", "n7", "n8", "n9"]}
RACKS = {"n%d" % number: {"rack": "r%d" % (number % 3)} for number in range(10)}
# The states in which a node may end in this way.
ENDS = {"done": state.NOT_SERVING, "quarantined": state.NOT_SERVING, "pending": ("draining",), "failed": ("draining",)}


class Transaction:
    """A rollout in memory beside those of the same ledger, with the methods that fill() uses."""

    def __init__(self, views, name):
        self.view, self.others, self._views, self._name = views[name], self, views, name

    def lock_pool(self, pool):
        assert pool == self.view.policy["pool"]

    def heads_with(self, key, text):
        return [
            (name, {"policy": view.policy, "finished": view.finished})
            for name, view in self._views.items()
            if name != self._name and view.policy[key] == text
        ]

    def nodes_of(self, rollout_ids, states):
        return [(name, node) for name in sorted(rollout_ids) for node in self._views[name].nodes.with_state(*states)]


class Pool:
    def __init__(self, max_down, cap):
        self.views = {
            name: view_of(
                dict.fromkeys(nodes, "pending"),
                domains=RACKS,
                max_down=down,
                pool="site",
                domain_caps={"rack": cap} if cap else {},
                failure_budget=9,
                common_cause=0,
            )
            for (name, nodes), down in zip(NODES.items(), max_down)
        }

    def out(self):
        """The nodes that are down, or out of service in a rollout that has not ended."""
        return {
            node.name
            for view in self.views.values()
            for node in view.nodes.with_state(*others.OUT)
            if node.state != "draining" and not (view.finished and node.state in state.OUT_OF_SERVICE)
        }

    def move(self, name, move, number):
        view = self.views[name]
        if view.finished:
            return
        node = view.nodes.get(NODES[name][number])
        if move in ("drain", "down"):
            self.ask(name, node, move)
        elif move == "end" and not view.nodes.with_state(*state.IN_FLIGHT):
            view.finished = "2026-01-01T00:02:00.000Z"
        elif node.state in ENDS.get(move, ()):
            events.apply_event(
                view,
                {"event": "state", "run": "r", "node": node.name, "time": "2026-01-01T00:01:00.000Z", "state": move},
            )

    def ask(self, name, node, phase):
        view, before = self.views[name], self.out()
        others.read_pool_nodes(Transaction(self.views, name), True)
        if gate.decide(view, phase, node.name).answer != "go" or node.state in state.NOT_SERVING:
            return
        events.apply_event(view, grant(node.name, phase))
        if phase == "down" and node.name not in before:
            after = self.out()
            assert len(after) <= view.policy["max_down"], "more than the rollout that was granted allows"
            racks = collections.Counter(RACKS[name]["rack"] for name in after)
            cap = view.policy["domain_caps"].get("rack", len(after))
            assert racks[RACKS[node.name]["rack"]] <= cap, "more of one rack"


MOVES = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(sorted(NODES)),
        strategies.sampled_from(["drain", "down", "down", "done", "quarantined", "pending", "failed", "end"]),
        strategies.integers(0, 3),
    ),
    max_size=120,
)


@hypothesis.given(
    max_down=strategies.tuples(*[strategies.integers(1, 4)] * 3), cap=strategies.integers(0, 2), moves=MOVES
)
# One node out of service of each, and the others drained before.
@hypothesis.example(
    max_down=(2, 2, 2),
    cap=0,
    moves=[(name, "drain", 1) for name in "abc"]
    + [
        ("a", "down", 1),
        ("a", "quarantined", 1),
        ("b", "down", 1),
        ("c", "down", 1),
        ("a", "end", 0),
        ("c", "down", 1),
    ],
)
def test_no_history_of_rollouts_of_one_pool_breaks_a_budget(max_down, cap, moves):
    pool = Pool(max_down, cap)
    for name, move, number in moves:
        pool.move(name, move, number)
