# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.modules import rollout_control
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.events import OF_NODES, VERBS
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.state import DRAIN, STEPS
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import (
    changed,
    control,
    event,
    plan_event,
    reduce,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import TIME, grant


def state_of(events, name="a"):
    return reduce(events).nodes.get(name).state


def test_nothing_happened():
    view = reduce([])
    assert view.run is None and view.nodes.list_all() == []


def test_a_node_goes_its_way():
    events = [plan_event("a", "b"), grant("a")]
    assert [reduce(events).nodes.get(name).state for name in "ab"] == ["draining", "pending"]
    phase, second = DRAIN, 2
    for step, (needed, expected) in STEPS.items():
        if needed != phase:
            events.append(grant("a", needed, second))
            phase, second = needed, second + 1
        events.append(event("step", "a", second, step=step))
        second += 1
        assert state_of(events) == expected
    events.append(event("state", "a", 50, state="done"))
    node = reduce(events).nodes.get("a")
    assert (node.state, node.ticket, node.ended, node.went, node.attempt) == ("done", None, TIME % 50, 1, 1)
    assert [step.name for step in node.steps] == list(STEPS)
    # Only what failed is followed by a quarantine.
    before = list(STEPS)[list(STEPS).index("quarantine") - 1]
    assert {step.name for step in node.steps if step.status != "ok"} == {before}
    assert node.steps[-1].finished == TIME % 50
    assert [step.finished for step in node.steps[:-1]] == [step.started for step in node.steps[1:]]


def test_the_reason_of_the_failed_step_stays():
    events = [
        plan_event("a"),
        grant("a"),
        grant("a", "down"),
        event("step", "a", 2, step="validate"),
        event("step_failed", "a", 3, reason="GPU 3 is gone", failure="hard", signature="s"),
        event("step", "a", 4, step="rollback_install"),
        event("state", "a", 5, state="rolled_back"),
    ]
    node = reduce(events).nodes.get("a")
    assert (node.state, node.reason, node.failure, node.signature) == ("rolled_back", "GPU 3 is gone", "hard", "s")
    assert [(step.name, step.status) for step in node.steps] == [("validate", "failed"), ("rollback_install", "ok")]


def test_another_plan_starts_again_and_ends_open_steps():
    events = [
        plan_event("a", "b", "c"),
        grant("a"),
        grant("a", "down"),
        event("step", "a", 2, step="install"),
        grant("b"),
        event("step", "b", 3, step="return"),
        event("state", "b", 4, state="done"),
        grant("c"),
        event("state", "c", 5, state="failed", reason="sick"),
        plan_event("a", "b", "c", run="s", a={"orphaned": True}, b={"state": "done"}),
    ]
    view = reduce(events)
    assert (view.run, view.went) == ("s", 0)
    a, b, c = (view.nodes.get(name) for name in "abc")
    assert (a.state, a.orphaned, a.reason, a.ticket) == (
        "down",
        True,
        "in flight when its run was interrupted, in step install",
        None,
    )
    assert a.steps[-1].status == "interrupted"
    assert (b.state, [step.name for step in b.steps]) == ("done", ["return"])
    assert (c.state, c.reason, c.steps, c.attempt) == ("pending", "", [], 1)
    events += [grant("a", second=6, run="s"), event("step", "a", 7, run="s", step="evidence")]
    again = reduce(events).nodes.get("a")
    assert (again.state, again.orphaned, again.attempt) == ("down", False, 2), (
        "what is down stays down, whatever is looked at first"
    )


def test_a_node_that_was_drained_and_resumed_is_pending_again():
    events = [
        plan_event("a"),
        grant("a"),
        event("step", "a", 2, step="drain"),
        event("state", "a", 3, state="pending", reason="the budget is spent"),
    ]
    node = reduce(events).nodes.get("a")
    assert (node.state, node.ticket, node.went, node.ended, node.failure, node.reason) == (
        "pending",
        None,
        None,
        None,
        "",
        "the budget is spent",
    )
    assert state_of(events + [grant("a", second=4)]) == "draining"


def test_events_of_a_run_that_was_taken_over_count_for_nothing():
    events = [plan_event("a"), grant("a"), plan_event("a", run="s"), event("state", "a", 2, run="r", state="done")]
    assert state_of(events) == "pending"


@pytest.mark.parametrize(
    "outcomes, step, expected",
    [
        ([], 1, 1),
        (["done"], 1, 2),
        (["done"] * 9, 1, 4),
        (["done", "done", "failed"], 1, 1),
        (["done"] * 3 + ["lost"], 1, 2),
        (["skipped"], 1, 1),
        (["done"], 2, 3),
    ],
)
def test_the_window_grows_with_success_and_is_halved_by_failure(outcomes, step, expected):
    names = ["n%d" % number for number in range(len(outcomes))]
    events = [plan_event(*names, policy={"max_down": 4, "growth_start": 1, "growth_step": step})]
    for name, outcome in zip(names, outcomes):
        events += [grant(name), event("state", name, 2, state=outcome)]
    assert reduce(events).window == expected
    assert reduce([plan_event("a")]).window is None


def test_what_an_operator_says():
    events = [plan_event("a", "b", "c", "d"), grant("b"), grant("c"), event("state", "c", 2, state="failed")]
    view = reduce(events + [control("pause")])
    assert view.paused == "kim: why"
    assert reduce(events + [control("pause"), control("resume")]).paused == ""
    assert reduce(events + [control("stop")]).stopped == "kim: why"
    assert reduce(events + [control("set_budget", policy={"max_down": 7})]).policy["max_down"] == 7
    skipped = reduce(events + [control("skip", node="a"), control("skip", node="b")])
    assert (skipped.nodes.get("a").state, skipped.nodes.get("b").state, skipped.nodes.get("b").order) == (
        "skipped",
        "draining",
        "skipped by kim: why",
    )
    back = reduce(
        events + [control("skip", node="b"), event("state", "b", 6, state="pending", reason="not taken down")]
    )
    assert (back.nodes.get("b").state, back.nodes.get("b").reason) == ("skipped", "skipped by kim: why")
    again = reduce(events + [control("retry", node="c"), control("retry", node="b"), control("retry", node="stranger")])
    assert [again.nodes.get(name).state for name in "bc"] == ["draining", "pending"]
    assert reduce(events + [control("stop", run="other")]).stopped == ""


@pytest.mark.parametrize(("ended", "status"), [("quarantined", "ok"), ("lost", "failed")])
def test_what_led_to_a_quarantine_failed_and_the_quarantine_is_well_once_its_marker_is_written(ended, status):
    events = [
        plan_event("a"),
        grant("a"),
        event("step", "a", 2, step="rollback_reboot"),
        event("step", "a", 3, step="quarantine"),
    ]
    node = reduce(events + [event("state", "a", 4, state=ended)]).nodes.get("a")
    assert [(step.name, step.status) for step in node.steps] == [("rollback_reboot", "failed"), ("quarantine", status)]
    node = reduce(events[:-1] + [event("state", "a", 4, state=ended)]).nodes.get("a")
    assert [(step.name, step.status) for step in node.steps] == [("rollback_reboot", "failed")]


@pytest.mark.parametrize("verb", VERBS)
def test_whatever_an_operator_may_say_can_be_taken_in(verb):
    assert verb in rollout_control.ARGUMENT_SPEC["verb"]["choices"]
    view = reduce(
        [plan_event("a"), control(verb, node="a", policy={}) if verb in OF_NODES else control(verb, policy={})]
    )
    assert view.run == "r"


def test_every_verb_of_the_module_is_one():
    assert set(rollout_control.ARGUMENT_SPEC["verb"]["choices"]) == set(VERBS) | {"status"}


@pytest.mark.parametrize("found", ["lost", "quarantined", "failed", "pending"])
def test_what_was_done_to_a_node_is_not_forgotten_by_a_plan_that_finds_it_otherwise(found):
    """Its controller dies while it boots; the next plan does not reach it, and the one after that does."""
    story = changed("install", "reboot") + [plan_event("a", run="s", a={"state": found})]
    node = reduce(story).nodes.get("a")
    assert state.is_unproven(node) and [step.name for step in node.steps] == ["install", "reboot"]
    node = reduce(story + [plan_event("a", run="t", a={"orphaned": True})]).nodes.get("a")
    assert node.orphaned and node.state in state.NOT_SERVING + ("quarantined", "failed", "pending")


def test_a_node_that_was_lost_after_its_change_is_down_until_it_is_taken_up():
    node = reduce(changed("install", ended="lost") + [plan_event("a", run="s", a={"orphaned": True})]).nodes.get("a")
    assert (
        (node.state, node.orphaned) == ("down", True)
        and "in step install" in node.reason
        and "it is gone" in node.reason
    )


@pytest.mark.parametrize("to, diverted", [("2.0", False), ("3.0", True)])
def test_a_node_in_flight_to_another_version_is_told_apart(to, diverted):
    assert (
        reduce(changed("install") + [plan_event("a", run="s", a={"orphaned": True, "to": to})]).nodes.get("a").diverted
        is diverted
    )


@pytest.mark.parametrize("joins", [False, True])
def test_node_in_flight_to_another_version_stays_so_until_it_is_resumed(joins):
    """Otherwise the second plan with a version that was not approved would find nothing to approve."""
    planned = {"state": "down", "from": "1", "to": "3.0", "orphaned": True}
    again = event("join", None, run="s", nodes={"a": planned}) if joins else plan_event("a", run="t", a=planned)
    story = changed("install") + [plan_event("a", run="s", a=planned), again]
    assert reduce(story).nodes.get("a").diverted


def test_a_node_began_with_its_grant_to_drain():
    assert reduce([plan_event("a"), grant("a", second=3), grant("a", "down", 4)]).nodes.get("a").began == TIME % 3


@pytest.mark.parametrize(
    ("planned", "install", "kernel"),
    [
        ({}, True, ""),
        ({"install": True}, True, ""),
        ({"install": False, "layout": {"name": "halves"}}, False, ""),
        ({"to_kernel": "6.1"}, True, "6.1"),
    ],
)
def test_a_node_has_what_the_plan_says_of_its_installation_and_kernel(planned, install, kernel):
    made = plan_event("a")
    made["nodes"]["a"].update(planned)
    found = reduce([made]).nodes.get("a")
    assert (found.install, found.to_kernel) == (install, kernel)
    joined = event("join", None, nodes={"a": {"state": "pending", "from": "1", "to": "2", "install": install}})
    found = reduce([made, joined]).nodes.get("a")
    assert (found.install, found.to_kernel) == (install, kernel), "who joins finds the kernel in the plan"
