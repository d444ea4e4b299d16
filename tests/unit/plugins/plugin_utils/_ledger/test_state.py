# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.modules import rollout_control
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import keys, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.state import reduce
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import LATER, TIME, grant

# Runs on main only: it decides; all it takes of the module is the list of its options.


def plan_event(*names, run="r", policy=None, **overrides):
    nodes = {
        name: dict(
            {"state": "pending", "from": "1.0", "to": "2.0", "reason": "", "domains": {}}, **overrides.get(name, {})
        )
        for name in names
    }
    order = [name for name in names if nodes[name]["state"] == "pending"]
    return {
        "event": "plan",
        "run": run,
        "time": TIME % 0,
        "rollout_id": "x",
        "target": "2.0",
        "order": order,
        "nodes": nodes,
        "policy": dict({"max_down": 1, "growth_start": None, "growth_step": 1}, **(policy or {})),
        "sha256": "f",
    }


def event(kind, node, second=1, run="r", **fields):
    return dict(fields, event=kind, node=node, run=run, time=TIME % second)


def state_of(events, name="a"):
    return reduce(events).nodes.get(name).state


def test_nothing_happened():
    view = reduce([])
    assert view.run is None and view.nodes.everything() == []


def test_a_node_goes_its_way():
    events = [plan_event("a", "b"), grant("a")]
    assert [reduce(events).nodes.get(name).state for name in "ab"] == ["draining", "pending"]
    phase, second = state.DRAIN, 2
    for step, (needed, expected) in state.STEPS.items():
        if needed != phase:
            events.append(grant("a", needed, second))
            phase, second = needed, second + 1
        events.append(event("step", "a", second, step=step))
        second += 1
        assert state_of(events) == expected
    events.append(event("state", "a", 50, state="done"))
    node = reduce(events).nodes.get("a")
    assert (node.state, node.ticket, node.ended, node.went, node.attempt) == ("done", None, TIME % 50, 1, 1)
    assert [step.name for step in node.steps] == list(state.STEPS)
    # Only what failed is followed by a quarantine.
    before = list(state.STEPS)[list(state.STEPS).index("quarantine") - 1]
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
        plan_event("a", "b", "c", run="s", a={keys.ORPHANED: True}, b={"state": "done"}),
    ]
    view = reduce(events)
    assert (view.run, view.went) == ("s", 0)
    a, b, c = (view.nodes.get(name) for name in "abc")
    assert (a.state, a.orphaned, a.reason, a.ticket) == (
        "down",
        True,
        "in flight when its controller died, in step install",
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


def control(verb, second=5, **fields):
    return dict(
        {"event": "control", "run": "r", "time": TIME % second, "verb": verb, "user": "kim", "reason": "why"}, **fields
    )


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


@pytest.mark.parametrize("ended", state.ENDED + ("pending",))
def test_only_a_node_in_flight_may_take_a_step(ended):
    view = reduce([plan_event("a"), grant("a")])
    assert state.require_in_flight(view, "a").name == "a"
    view.nodes.get("a").state = ended
    with pytest.raises(state.StateError, match="^a is %s in .*rollout_gate.*Nothing was changed" % ended):
        state.require_in_flight(view, "a")


def test_an_orphaned_node_and_an_unknown_one_may_not_either():
    view = reduce([plan_event("a"), grant("a"), plan_event("a", run="s", a={keys.ORPHANED: True})])
    assert view.nodes.get("a").state == "draining"
    for name, words in (("a", "has no ticket"), ("stranger", "among its nodes.*Nothing was changed")):
        with pytest.raises(state.StateError, match=words):
            state.require_in_flight(view, name)


@pytest.mark.parametrize("step", sorted(state.STEPS))
@pytest.mark.parametrize("phase", state.PHASES)
@pytest.mark.parametrize("late", [False, True])
def test_a_step_needs_a_live_ticket_of_its_phase(step, phase, late):
    view = reduce([plan_event("a"), grant("a", phase)])
    now = "2031-01-01T00:00:00.000Z" if late else TIME % 5
    allowed = step in state.ALWAYS or (state.STEPS[step][0] == phase and not late)
    if allowed:
        assert state.require_ticket(view, view.nodes.get("a"), step, now) is None
    else:
        words = "expired at %s" % LATER if state.STEPS[step][0] == phase else "its ticket is for phase %s" % phase
        with pytest.raises(state.StateError, match=words):
            state.require_ticket(view, view.nodes.get("a"), step, now)


def test_a_ticket_is_for_one_plan():
    view = reduce([plan_event("a"), grant("a")])
    view.sha256 = "another"
    with pytest.raises(state.StateError, match="follows plan another now"):
        state.require_ticket(view, view.nodes.get("a"), "evidence", TIME % 5)


@pytest.mark.parametrize(
    "steps, down, expected",
    [
        ([], False, "sick"),
        (["evidence"], False, "sick"),
        (["prestage"], False, "soft"),
        (["prestage", "evidence"], False, "sick"),
        (["prestage", "evidence", "drain"], False, "soft"),
        (["evidence", "drain", "stop"], True, "hard"),
        (["evidence"], True, "hard"),
    ],
)
def test_the_class_of_a_failure_says_how_far_the_node_came(steps, down, expected):
    node = state.Node("a", "down" if down else "draining", steps=[state.Step(name, TIME % 1) for name in steps])
    assert state.failure_class(node) == expected


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


def test_a_canary_that_falls_ill_at_work_was_broken_by_the_change():
    assert state.failure_class(state.Node("a", "soaking", steps=[state.Step("soak", TIME % 1)])) == state.HARD


@pytest.mark.parametrize(
    "states, expected",
    [
        (["done"], "complete"),
        (["done", "skipped"], "complete"),
        (["done", "pending"], "incomplete"),
        (["done", "down"], "incomplete"),
        ([], "incomplete"),
        (["done", "failed"], "failed"),
        (["done", "rolled_back"], "failed"),
        (["done", "quarantined", "pending"], "failed"),
        (["lost"], "failed"),
    ],
)
def test_verdict(states, expected):
    names = [chr(ord("a") + number) for number in range(len(states))]
    view = reduce([plan_event(*names)])
    for name, value in zip(names, states):
        view.nodes.get(name).state = value
    assert state.verdict(view, ended=True) == expected
    assert state.verdict(view, ended=False) == "running"
    assert state.nothing_left(view) is (set(states) <= set(state.ENDED))


@pytest.mark.parametrize("verb", state.VERBS)
def test_whatever_an_operator_may_say_can_be_taken_in(verb):
    assert verb in rollout_control.ARGUMENT_SPEC["verb"]["choices"]
    view = reduce(
        [plan_event("a"), control(verb, node="a", policy={}) if verb in state.OF_NODES else control(verb, policy={})]
    )
    assert view.run == "r"


def test_every_verb_of_the_module_is_one():
    assert set(rollout_control.ARGUMENT_SPEC["verb"]["choices"]) == set(state.VERBS) | {"status"}


@pytest.mark.parametrize(
    "steps, expected",
    [
        ((), ""),
        (("prestage",), ""),
        (("prestage", "evidence", "drain"), ""),
        (("drain", "stop"), state.STOPPED),
        (("drain", "stop", "install"), state.CHANGED),
        (("stop", "install", "validate", "return"), state.SERVING),
        (("stop", "install", "rollback_install"), state.PUT_BACK),
        # What comes after a failure changes no driver: how far the node came before it decides.
        (("drain", "stop", "rollback_start"), state.STOPPED),
        (("drain", "rollback_start"), ""),
        (("drain", "stop", "quarantine"), state.STOPPED),
        (("stop", "install", "quarantine"), state.CHANGED),
        (("stop", "install", "rollback_validate", "rollback_start"), state.PUT_BACK),
    ],
)
def test_how_far_a_dead_controller_came(steps, expected):
    assert state.reached(steps) == expected


@pytest.mark.parametrize(
    "step",
    ["rollback_install", "rollback_prove", "rollback_reboot", "rollback_validate", "rollback_start", "quarantine"],
)
def test_no_ticket_that_ran_out_keeps_a_node_from_being_put_back_or_marked(step):
    view = state.Rollout(sha256="s")
    node = state.Node(name="a", ticket=state.Ticket("t", state.DRAIN, TIME % 0, TIME % 1, sha256="s"))
    state.require_ticket(view, node, step, LATER)


def changed(*steps, ended=None):
    """The story of a node that went through these steps of phase down, and how it ended."""
    story = [plan_event("a"), grant("a"), grant("a", "down")] + [
        event("step", "a", second, step=name) for second, name in enumerate(steps, start=2)
    ]
    return story + ([event("state", "a", 30, state=ended, reason="it is gone")] if ended else [])


@pytest.mark.parametrize(
    "steps, ended, expected",
    [
        (("install",), None, True),
        (("install",), "lost", True),
        (("install",), "quarantined", True),
        (("install", "validate"), "done", False),
        (("install", "rollback_validate"), "rolled_back", False),
        (("stop",), "lost", True),
        ((), "lost", False),
        ((), "failed", False),
    ],
)
def test_what_was_changed_is_unproven_until_it_passed(steps, ended, expected):
    assert state.unproven(reduce(changed(*steps, ended=ended)).nodes.get("a")) is expected


def test_a_node_that_was_put_back_stays_proven_when_it_is_tried_again_until_it_is_changed_again():
    story = changed("install", "rollback_validate", ended="rolled_back") + [control("retry", 31, node="a")]
    assert not state.unproven(reduce(story).nodes.get("a"))
    assert reduce(story + [plan_event("a", run="s")]).nodes.get("a").steps == []
    story += [grant("a", second=32), grant("a", "down", 33), event("step", "a", 34, step="install")]
    assert state.unproven(reduce(story).nodes.get("a"))


@pytest.mark.parametrize("found", ["lost", "quarantined", "failed", "pending"])
def test_what_was_done_to_a_node_is_not_forgotten_by_a_plan_that_finds_it_otherwise(found):
    """Its controller dies while it boots; the next plan does not reach it, and the one after that does."""
    story = changed("install", "reboot") + [plan_event("a", run="s", a={"state": found})]
    node = reduce(story).nodes.get("a")
    assert state.unproven(node) and [step.name for step in node.steps] == ["install", "reboot"]
    node = reduce(story + [plan_event("a", run="t", a={keys.ORPHANED: True})]).nodes.get("a")
    assert node.orphaned and node.state in state.NOT_SERVING + ("quarantined", "failed", "pending")


def test_a_node_that_was_lost_after_its_change_is_down_until_it_is_taken_up():
    node = reduce(changed("install", ended="lost") + [plan_event("a", run="s", a={keys.ORPHANED: True})]).nodes.get("a")
    assert (
        (node.state, node.orphaned) == ("down", True)
        and "in step install" in node.reason
        and "it is gone" in node.reason
    )


@pytest.mark.parametrize("to, diverted", [("2.0", False), ("3.0", True)])
def test_a_node_in_flight_to_another_version_is_told_apart(to, diverted):
    assert (
        reduce(changed("install") + [plan_event("a", run="s", a={keys.ORPHANED: True, "to": to})])
        .nodes.get("a")
        .diverted
        is diverted
    )


def test_a_node_began_with_its_grant_to_drain():
    assert reduce([plan_event("a"), grant("a", second=3), grant("a", "down", 4)]).nodes.get("a").began == TIME % 3
