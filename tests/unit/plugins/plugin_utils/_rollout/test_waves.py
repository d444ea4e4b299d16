# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waves: how many nodes each has, and what keeps the next one back."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits, options, plan, plan_text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import reduce

NEW = "2.0.1"


@pytest.mark.parametrize(
    ("given", "total", "sizes"),
    [
        ([], 5, []),
        ([1], 0, []),
        ([1], 3, [1, 1, 1]),
        ([1, "10%", "25%", "100%"], 100, [1, 10, 25, 64]),
        ([1, "10%", "25%", "100%"], 4, [1, 1, 1, 1]),
        ([2, 3], 9, [2, 3, 3, 1]),
        ([50], 3, [3]),
        (["34%"], 3, [1, 1, 1]),
    ],
)
def test_sizes_are_those_of_serial(given, total, sizes):
    assert limits.wave_sizes(given, total) == sizes


def test_every_place_is_in_one_wave_and_a_late_one_in_the_last():
    assert [limits.wave_of([1, 2, 3], place) for place in range(8)] == [
        (1, 0),
        (2, 1),
        (2, 1),
        (3, 3),
        (3, 3),
        (3, 3),
        (3, 3),
        (3, 3),
    ]
    assert limits.wave_of([], 4) == (1, 0)


@pytest.mark.parametrize("waves", ["1,25%", [0], [1, "0%"], [1, "x"], ["101%"], [True], [-1]])
def test_a_list_that_no_wave_can_follow_is_refused(waves):
    with pytest.raises(options.OptionError, match="rollout_waves"):
        limits.complete_policy({"waves": waves}, 10)


def made(names, policy, canaries=()):
    probes = [Probe(name, version="1.0.1") for name in names]
    policy = limits.complete_policy(
        dict({"max_down": 9, "failure_budget": 9, "common_cause": 0}, **policy), len(probes)
    )
    return plan.build_plan(NEW, probes, policy, canaries=canaries)


def view_of(one):
    return reduce(
        [
            {
                "event": "plan",
                "run": "r",
                "time": "2026-01-01T00:00:00.000Z",
                "rollout_id": "x",
                "target": one.target,
                "order": one.order,
                "nodes": one.nodes,
                "policy": one.policy,
                "sha256": one.sha256,
            }
        ]
    )


def put(view, name, what, failure=""):
    node = view.nodes.get(name)
    node.state, node.failure = what, failure
    view.nodes.store(node)


def answer(view, name, present=None):
    decision = gate.decide(view, state.DRAIN, name, present)
    return decision.answer, decision.reason


def test_a_wave_waits_for_the_end_of_the_one_before():
    view = view_of(made(["a1", "a2", "a3", "a4"], {"waves": [1, 2, 1]}))
    assert answer(view, "a1")[0] == "go"
    for there in ("pending", "draining", "down", "validating", "soaking"):
        put(view, "a1", there)
        assert answer(view, "a2") == ("wait", "wave 2 of 3 begins when the one before it has ended: a1"), there
    for there in ("done", "skipped", "failed", "rolled_back", "lost", "quarantined"):
        put(view, "a1", there, "hard")
        assert answer(view, "a2")[0] == "go", there
        assert answer(view, "a4")[0] == "wait", there
    put(view, "a2", "done")
    assert answer(view, "a4") == ("wait", "wave 3 of 3 begins when the one before it has ended: a3")


def test_a_node_that_the_play_has_lost_holds_no_wave_back():
    view = view_of(made(["a1", "a2", "a3"], {"waves": [2, 1]}))
    put(view, "a1", "done")
    assert answer(view, "a3", ["a1", "a2", "a3"])[0] == "wait"
    assert answer(view, "a3", ["a3"])[0] == "go"


def test_a_wave_begins_no_more_than_the_failure_budget_allows():
    view = view_of(made(["a1", "a2"], {"waves": [1], "failure_budget": 1}))
    put(view, "a1", "rolled_back", "hard")
    assert answer(view, "a2") == ("stop", "the failure budget of 1 is spent by a1")


def test_canaries_go_before_all_waves_and_are_a_part_of_them():
    view = view_of(made(["a1", "a2", "a3"], {"waves": [1, 2]}, canaries=["a2", "a3"]))
    assert [node.name for node in view.nodes.list_all()] == ["a2", "a3", "a1"]
    assert answer(view, "a3")[0] == "go"
    assert answer(view, "a1") == ("wait", "canaries go first: a2, a3")


def test_the_plan_shows_its_waves_and_counts_what_they_cost():
    one = made(["a1", "a2", "a3", "a4"], {"waves": [1, "100%"]})
    lines = plan_text.describe_plan(one, "x")
    assert "in waves of 1, 3" in lines[0]
    assert [line.rpartition(", ")[2] for line in lines[1:5]] == ["wave 1", "wave 2", "wave 2", "wave 2"]
    assert plan_text.estimate_plan(one, 60) == (60, 120)
    assert plan_text.estimate_plan(made(["a1", "a2", "a3", "a4"], {"waves": [1]}), 60) == (60, 240)
    assert made(["a1"], {"waves": [1]}).sha256 != made(["a1"], {}).sha256, "an approval of one is none of the other"
