# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.state import reduce

TIME = "2026-01-01T00:00:%02d.000Z"


def plan_event(*names, run="r", policy=None, **overrides):
    nodes = {name: dict({"state": "pending", "from": "1.0", "to": "2.0", "reason": "", "domain": ""}, **overrides.get(name, {})) for name in names}
    order = [name for name in names if nodes[name]["state"] == "pending"]
    return {
        "event": "plan",
        "run": run,
        "time": TIME % 0,
        "rollout_id": "x",
        "target": "2.0",
        "order": order,
        "nodes": nodes,
        "policy": policy or {"max_down": 1, "failure_budget": 1},
        "sha256": "f",
    }


def event(kind, node, second=1, run="r", **fields):
    return dict(fields, event=kind, node=node, run=run, time=TIME % second)


def test_nothing_happened():
    view = reduce([])
    assert view.run is None and view.nodes == {}


def test_a_node_goes_its_way():
    events = [plan_event("a", "b"), event("go", "a")]
    assert [reduce(events).nodes[name].state for name in "ab"] == ["draining", "pending"]
    for second, (step, expected) in enumerate(state.STEPS.items(), start=2):
        events.append(event("step", "a", second, step=step))
        assert reduce(events).nodes["a"].state == expected
    events.append(event("state", "a", 50, state="done"))
    node = reduce(events).nodes["a"]
    assert node.state == "done"
    assert [step.name for step in node.steps] == list(state.STEPS)
    assert {step.status for step in node.steps} == {"ok"}
    assert node.steps[-1].finished == TIME % 50
    assert [step.finished for step in node.steps[:-1]] == [step.started for step in node.steps[1:]]


def test_the_reason_of_the_failed_step_stays():
    events = [
        plan_event("a"),
        event("go", "a"),
        event("step", "a", 2, step="validate"),
        event("step_failed", "a", 3, reason="GPU 3 is gone"),
        event("step", "a", 4, step="rollback_install"),
        event("state", "a", 5, state="rolled_back"),
    ]
    node = reduce(events).nodes["a"]
    assert (node.state, node.reason) == ("rolled_back", "GPU 3 is gone")
    assert [(step.name, step.status) for step in node.steps] == [("validate", "failed"), ("rollback_install", "ok")]


def test_another_plan_begins_anew_and_ends_what_was_open():
    events = [
        plan_event("a", "b", "c"),
        event("go", "a"),
        event("step", "a", 2, step="install"),
        event("go", "b"),
        event("step", "b", 3, step="return"),
        event("state", "b", 4, state="done"),
        event("go", "c"),
        event("state", "c", 5, state="failed", reason="sick"),
        plan_event("a", "b", "c", run="s", a={"suspect": True}, b={"state": "done"}),
    ]
    view = reduce(events)
    assert (view.run, view.gone) == ("s", [])
    a, b, c = (view.nodes[name] for name in "abc")
    assert (a.state, a.suspect, a.reason) == ("down", True, "in flight when its controller died, in step install")
    assert a.steps[-1].status == "interrupted"
    assert (b.state, [step.name for step in b.steps]) == ("done", ["return"])
    assert (c.state, c.reason, c.steps, c.attempt) == ("pending", "", [], 1)
    again = reduce(events + [event("go", "a", 6, run="s")]).nodes["a"]
    assert (again.state, again.suspect, again.attempt) == ("draining", False, 2)


def test_events_of_a_run_that_was_taken_over_count_for_nothing():
    events = [plan_event("a"), event("go", "a"), plan_event("a", run="s"), event("state", "a", 2, run="r", state="done")]
    assert reduce(events).nodes["a"].state == "pending"


@pytest.mark.parametrize("ended", state.ENDED + ("pending",))
def test_only_a_node_in_flight_may_take_a_step(ended):
    view = reduce([plan_event("a"), event("go", "a")])
    assert state.require_in_flight(view, "a").name == "a"
    view.nodes["a"].state = ended
    with pytest.raises(state.StateError, match="rollout_gate has to answer go first"):
        state.require_in_flight(view, "a")


def test_a_suspect_and_a_stranger_may_not_either():
    view = reduce([plan_event("a"), event("go", "a"), plan_event("a", run="s", a={"suspect": True})])
    assert view.nodes["a"].state == "draining"
    for name in ("a", "stranger"):
        with pytest.raises(state.StateError):
            state.require_in_flight(view, name)


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
        view.nodes[name].state = value
    assert state.verdict(view, ended=True) == expected
    assert state.verdict(view, ended=False) == "running"
