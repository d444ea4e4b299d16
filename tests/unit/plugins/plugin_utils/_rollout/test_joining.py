# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a plan that a controller takes over when it joins, and the refusals."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, joining, limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import PlanError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import view_of


def planned(view):
    """The event of the plan of a rollout."""
    return {
        "nodes": {
            node.name: {"state": "pending", "from": "1.0", "to": "2.0", "domains": {}, "canary": node.canary}
            for node in view.nodes.list_all()
        }
    }


def rollout(**states):
    view = view_of(states, max_down=2)
    for node in view.nodes.list_all():
        node.from_version, node.to_version = "1.0", "2.0"
    return view


@pytest.mark.parametrize(
    ("change", "shared", "digest", "given", "words"),
    [
        ({"run": None}, False, "", {}, "There is no plan"),
        ({}, False, "", {}, "made for one controller"),
        ({"finished": "2026-01-01T00:00:00.000Z"}, True, "", {}, "cannot be joined any more"),
        ({}, True, "0" * 12, {}, "rollout_approve is 000000000000; expected ffffffffffff"),
        ({}, True, "fff", {}, "rollout_approve is fff"),
        ({}, True, "", {"max_down": 3}, "rollout_max_down is 3, and the plan of rollout x has 2"),
        ({}, True, "", {"max_down": "50%"}, "rollout_max_down is 50%, and the plan of rollout x has 2"),
        ({}, True, "", {"failure_budget": 2}, "rollout_failure_budget is 2"),
        ({}, True, "", {"holds": {"a": "up"}}, "rollout_hold_queries is"),
        ({}, True, "", {"windows": [{"days": ["sat"], "from": "22:00", "to": "23:00"}]}, "rollout_windows is"),
        ({"changed": {"max_down": {"was": 5, "now": 2}}}, True, "", {"max_down": 2}, "the plan of rollout x has 5"),
    ],
)
def test_what_cannot_be_joined(change, shared, digest, given, words):
    view = dataclasses.replace(rollout(a1="pending"), **change)
    why = joining.find_disagreement(view, digest, given) if shared and not view.finished else ""
    if why:
        joining.refuse_join("x", view, shared)
        assert words in why
    else:
        with pytest.raises(PlanError, match=words):
            joining.refuse_join("x", view, shared)


@pytest.mark.parametrize(
    ("digest", "given"),
    [
        ("", {}),
        ("f" * 12, {}),
        ("FFFFFFFF ", {}),
        ("", {"max_down": "20%", "failure_budget": 1, "holds": {}, "waves": [1], "ticket_s": 14400}),
    ],
)
def test_the_digest_and_the_limits_of_the_plan_are_no_others(digest, given):
    assert joining.find_disagreement(rollout(a1="pending"), digest, given) == ""


def test_a_limit_that_an_operator_set_is_compared_as_it_was_planned():
    view = rollout(a1="pending")
    view.changed, view.policy["max_down"] = {"max_down": {"was": 2, "now": 7}}, 7
    assert joining.find_disagreement(view, "", {"max_down": 2}) == ""


FOUND = Probe("a1", version="1.0", reachable=True)


@pytest.mark.parametrize(
    ("before", "probe", "expected"),
    [
        ("pending", {}, None),
        ("pending", {"reachable": False, "error": "no route"}, "lost"),
        ("pending", {"quarantined": "XID 79"}, "quarantined"),
        ("pending", {"error": "NVML hangs"}, "failed"),
        ("pending", {"version": "2.0", "verdict": "pass"}, "skipped"),
        ("pending", {"version": "2.0", "verdict": "fail"}, "failed"),
        ("draining", {}, "orphaned"),
        ("down", {}, "orphaned"),
        ("validating", {"version": "2.0", "verdict": "pass"}, "orphaned"),
        ("down", {"reachable": False, "error": "no route"}, "lost"),
        ("done", {"version": "1.0"}, None),
        ("rolled_back", {}, None),
        ("failed", {}, None),
        ("skipped", {}, None),
    ],
)
def test_what_becomes_of_a_node_by_its_state_in_the_ledger_and_by_what_is_found(before, probe, expected):
    view = rollout(a1=before)
    entry = joining.entry_of(dataclasses.replace(FOUND, **probe), view.nodes.get("a1"), {})
    told = entry and ("orphaned" if entry.get("orphaned") else entry["state"])
    assert told == expected
    if entry:
        events.apply_event(view, {"event": "join", "run": "r", "time": "t", "nodes": {"a1": entry}})
        node = view.nodes.get("a1")
        assert (node.position, node.orphaned) == (0, expected == "orphaned")
        assert node.state == (before if expected == "orphaned" else expected)


def test_a_lost_node_that_was_changed_is_taken_up_and_one_that_was_not_stays_lost():
    view = rollout(a1="lost", a2="lost")
    view.nodes.get("a1").steps = [state.Step("install", "t", "t", "failed")]
    entries = [
        joining.entry_of(dataclasses.replace(FOUND, name=name), view.nodes.get(name), {}) for name in ("a1", "a2")
    ]
    assert entries[0]["orphaned"] and entries[1] is None


@pytest.mark.parametrize("before", ["failed", "lost", "quarantined"])
@pytest.mark.parametrize(("probe", "expected"), [({}, "pending"), ({"reachable": False, "error": "no route"}, "lost")])
def test_a_node_that_was_sick_before_any_change_is_looked_at_again(before, probe, expected):
    view = rollout(a1=before)
    view.nodes.get("a1").failure = state.SICK
    entry = joining.entry_of(dataclasses.replace(FOUND, **probe), view.nodes.get("a1"), {})
    events.apply_event(view, {"event": "join", "run": "r", "time": "t", "nodes": {"a1": entry}})
    node = view.nodes.get("a1")
    assert (node.state, node.failure) == (expected, "" if expected == "pending" else state.SICK)


def test_a_part_has_the_nodes_of_the_controller_in_the_order_of_the_plan():
    view = rollout(b1="pending", a2="down", a1="pending", c1="pending", a3="done")
    probes = [dataclasses.replace(FOUND, name=name) for name in ("a1", "a2", "a3", "b1", "x9")]
    made, changed = joining.plan_part(view, planned(view), probes)
    assert made.order == ["b1", "a2", "a1"] and made.sha256 == view.sha256
    assert list(changed) == ["a2"] and made.nodes["a3"]["state"] == "done" and "x9" not in made.nodes
    assert made.nodes["a1"]["to"] == "2.0"


def test_a_node_waits_for_a_canary_that_no_running_job_has():
    view = view_of({"a1": "pending", "b1": "pending"}, canaries=["a1"])
    assert gate.decide(view, "drain", "b1", ["b1"]).answer == "stop"
    assert gate.decide(view, "drain", "b1", ["b1"], shared=True).answer == "wait"
    assert gate.decide(view, "drain", "a1", ["a1"], shared=True).answer == "go"
    failed = view_of({"a1": "failed", "b1": "pending"}, canaries=["a1"])
    assert gate.decide(failed, "drain", "b1", ["b1"], shared=True).answer == "stop"


def test_a_limit_of_the_policy_that_this_version_does_not_know_is_no_reason_to_refuse():
    view = rollout(a1="pending")
    view.policy["of_a_later_version"] = 1
    joining.refuse_other_limits(view, {"max_down": 2})
    assert "of_a_later_version" not in limits.DEFAULTS
