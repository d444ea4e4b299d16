# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, state


def view_of(states, suspects=(), max_down=1, failure_budget=1):
    view = state.Rollout(rollout_id="x", run="r", order=list(states), policy={"max_down": max_down, "failure_budget": failure_budget})
    for name, value in states.items():
        view.nodes[name] = state.Node(name, state=value, suspect=name in suspects)
    return view


@pytest.mark.parametrize(
    "others, suspects, max_down, budget, expected, words",
    [
        ({}, (), 1, 1, "go", "1 of 1 down slots taken, 0 of 1 failures"),
        ({"b": "pending", "c": "done", "d": "skipped"}, (), 1, 1, "go", "1 of 1"),
        ({"b": "draining"}, (), 1, 1, "wait", "1 of 1 down slots taken by b"),
        ({"b": "down"}, (), 1, 1, "wait", "by b"),
        ({"b": "validating"}, (), 1, 1, "wait", "by b"),
        ({"b": "down"}, (), 2, 1, "go", "2 of 2"),
        ({"b": "down", "c": "draining"}, (), 2, 1, "wait", "2 of 2 down slots taken by b, c"),
        ({"b": "failed"}, (), 1, 1, "stop", "failure budget of 1 is spent by b"),
        ({"b": "rolled_back"}, (), 1, 1, "stop", "spent by b"),
        ({"b": "failed"}, (), 1, 2, "go", "1 of 2 failures"),
        ({"b": "rolled_back"}, (), 1, 2, "go", "1 of 2 failures"),
        ({"b": "failed", "c": "rolled_back"}, (), 5, 2, "stop", "spent by b, c"),
        ({"b": "quarantined"}, (), 2, 1, "stop", "spent by b"),
        ({"b": "quarantined"}, (), 1, 2, "stop", "every down slot (1) is held by a node that is out of service: b"),
        ({"b": "lost"}, (), 1, 5, "stop", "out of service: b"),
        ({"b": "lost"}, (), 2, 2, "go", "2 of 2 down slots taken, 1 of 2 failures"),
        ({"b": "lost", "c": "down"}, (), 2, 2, "wait", "taken by c, b"),
        ({"b": "down"}, ("b",), 1, 1, "wait", "taken by b"),
        ({"b": "down"}, ("b",), 2, 1, "go", "2 of 2"),
        ({}, (), 0, 1, "stop", "rollout_max_down is 0"),
        ({}, (), 1, 0, "stop", "rollout_failure_budget is 0"),
    ],
)
def test_a_pending_node(others, suspects, max_down, budget, expected, words):
    decision = gate.decide(view_of(dict({"a": "pending"}, **others), suspects), gate.Policy(max_down, budget), "a")
    assert decision.answer == expected
    assert words in decision.reason


@pytest.mark.parametrize(
    "others, suspects, max_down, budget, expected",
    [
        ({}, ("a",), 1, 1, "go"),
        ({"b": "down"}, ("a",), 1, 1, "wait"),
        ({"b": "down"}, ("a", "b"), 1, 1, "go"),  # both are down already; one at a time
        ({"b": "quarantined"}, ("a",), 1, 2, "go"),  # it costs no slot of its own
        ({"b": "failed"}, ("a",), 1, 1, "stop"),
    ],
)
def test_a_node_left_in_flight_by_a_dead_controller(others, suspects, max_down, budget, expected):
    assert gate.decide(view_of(dict({"a": "down"}, **others), suspects), gate.Policy(max_down, budget), "a").answer == expected


@pytest.mark.parametrize("own", state.ENDED)
def test_a_node_that_ended_is_skipped_even_when_the_budget_is_spent(own):
    assert gate.decide(view_of({"a": own, "b": "failed"}), gate.Policy(1, 1), "a").answer == "skip"


@pytest.mark.parametrize("own", state.IN_FLIGHT)
def test_a_node_never_goes_twice(own):
    assert gate.decide(view_of({"a": own}), gate.Policy(5, 5), "a").answer == "stop"


def test_a_stranger_is_skipped():
    assert gate.decide(view_of({"a": "pending"}), gate.Policy(1, 1), "b").answer == "skip"


@pytest.mark.parametrize(
    "states, max_down, present, expected, words",
    [
        ({"a": "pending", "b": "pending", "c": "pending"}, 1, None, "wait", "a, b go first by the plan's order"),
        ({"a": "down", "b": "pending", "c": "pending"}, 2, None, "wait", "b goes first by the plan's order"),
        ({"a": "pending", "b": "pending", "c": "pending"}, 3, None, "go", "1 of 3"),  # there is room for all of them
        ({"a": "done", "b": "skipped", "c": "pending"}, 1, None, "go", "1 of 1"),
        ({"a": "pending", "b": "pending", "c": "pending"}, 1, ["c"], "go", "1 of 1"),  # the play has lost the others
        ({"a": "pending", "b": "pending", "c": "pending"}, 1, ["b", "c"], "wait", "b goes first"),
        ({"c": "pending", "a": "pending", "b": "pending"}, 1, None, "go", "1 of 1"),
    ],
)
def test_nodes_go_in_the_order_of_the_plan(states, max_down, present, expected, words):
    decision = gate.decide(view_of(states), gate.Policy(max_down, 1), "c", present)
    assert decision.answer == expected
    assert words in decision.reason


def test_long_lists_of_names_are_cut():
    assert gate.listed("abcdefg") == "a, b, c, d, e and 2 more"


def test_vanished_are_those_in_flight_that_the_play_no_longer_holds():
    view = view_of({"a": "down", "b": "down", "c": "done", "d": "pending", "e": "down"}, suspects=("e",))
    view.nodes["a"].steps.append(state.Step("reboot", "2026-01-01T00:00:00.000Z"))
    assert [node.name for node in gate.vanished(view, ["b"])] == ["a"]
    assert "in step reboot" in gate.vanished_reason(view.nodes["a"])
    assert "before its first step" in gate.vanished_reason(view.nodes["b"])
