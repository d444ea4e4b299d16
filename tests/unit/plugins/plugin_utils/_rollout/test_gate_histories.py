# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, state

hypothesis = pytest.importorskip("hypothesis", reason="ansible-test's environment has none; the plain pytest run has it")
strategies = hypothesis.strategies


def view_of(states, suspects=(), max_down=1, failure_budget=1):
    view = state.Rollout(rollout_id="x", run="r", order=list(states), policy={"max_down": max_down, "failure_budget": failure_budget})
    for name, value in states.items():
        view.nodes[name] = state.Node(name, state=value, suspect=name in suspects)
    return view


NAMES = [chr(ord("a") + number) for number in range(8)]


@hypothesis.given(
    start=strategies.lists(strategies.sampled_from(["pending"] * 5 + ["lost", "quarantined", "failed", "skipped", "suspect"]), min_size=1, max_size=8),
    max_down=strategies.integers(1, 4),
    budget=strategies.integers(1, 4),
    moves=strategies.lists(
        strategies.tuples(strategies.sampled_from(NAMES), strategies.sampled_from(["ask", "ask", "end"]), strategies.sampled_from(state.ENDED)), max_size=60
    ),
)
def test_no_history_takes_more_down_than_allowed(start, max_down, budget, moves):
    names = NAMES[: len(start)]
    suspects = [name for name, value in zip(names, start) if value == "suspect"]
    view = view_of({name: "down" if value == "suspect" else value for name, value in zip(names, start)}, suspects)
    policy = gate.Policy(max_down, budget)
    went = []
    for name, move, end in moves:
        if name not in names:
            continue
        node = view.nodes[name]
        if move == "ask":
            fresh = not node.suspect
            failed_before = len(view.names(*state.FAILED))
            decision = gate.decide(view, policy, name)
            if decision.answer == "go":
                assert failed_before < budget
                state.apply(view, {"event": "go", "run": "r", "node": name, "time": "t"})
                went.append(name)
                down = [other for other in view.nodes.values() if other.state in state.IN_FLIGHT + state.OUT_OF_SERVICE]
                working = [other for other in view.nodes.values() if other.state in state.IN_FLIGHT and not other.suspect]
                assert len(working) <= max_down
                if fresh:
                    assert len(down) <= max_down
                    earlier = [other for other in names[: names.index(name)] if view.nodes[other].state == "pending"]
                    assert len(down) + len(earlier) <= max_down, "took the slot of a node that the plan puts before it"
            if decision.answer == "wait":
                working = [other for other in view.nodes.values() if other.state in state.IN_FLIGHT and other.name != name]
                earlier = [other for other in names[: names.index(name)] if view.nodes[other].state == "pending"]
                assert working or earlier, "waits for nobody"
        elif node.state in state.IN_FLIGHT and not node.suspect:
            state.apply(view, {"event": "state", "run": "r", "node": name, "time": "t", "state": end})
    assert len(went) == len(set(went))


@hypothesis.given(
    count=strategies.integers(1, 12),
    max_down=strategies.integers(1, 4),
    budget=strategies.integers(1, 4),
    outcomes=strategies.lists(strategies.sampled_from(["done"] * 4 + list(state.FAILED)), min_size=12, max_size=12),
    suspects=strategies.integers(0, 3),
)
def test_a_rollout_always_comes_to_an_end(count, max_down, budget, outcomes, suspects):
    """Everybody asks in turn and those in flight end in turn: in the end nobody waits."""
    names = ["n%02d" % number for number in range(count)]
    view = view_of({name: "down" if number < suspects else "pending" for number, name in enumerate(names)}, names[:suspects])
    policy, results = gate.Policy(max_down, budget), dict(zip(names, outcomes))
    asking = list(names)
    for dummy in range(4 * count + 4):
        for name in list(asking):
            decision = gate.decide(view, policy, name)
            if decision.answer != "wait":
                asking.remove(name)
            if decision.answer == "go":
                state.apply(view, {"event": "go", "run": "r", "node": name, "time": "t"})
        working = [node.name for node in view.nodes.values() if node.state in state.IN_FLIGHT and not node.suspect]
        if working:
            state.apply(view, {"event": "state", "run": "r", "node": working[0], "time": "t", "state": results[working[0]]})
    assert asking == []
    assert len(view.names(*state.FAILED)) <= budget - 1 + max_down
