# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import datetime

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import view_of

SATURDAY = datetime.datetime(2026, 1, 3, 23, 0, tzinfo=datetime.timezone.utc)


def ask(view, name="a", phase=state.DRAIN, present=None, now=None):
    return gate.decide(view, phase, name, present, now)


@pytest.mark.parametrize(
    "others, orphaned, policy, expected, words",
    [
        ({}, (), {}, "go", "0 of 1 down slots taken, 0 of 1 failures"),
        ({"b": "pending", "c": "done", "d": "skipped"}, (), {}, "go", "0 of 1"),
        ({"b": "draining"}, (), {}, "wait", "1 of 1 slots to drain and 0 of 1 down slots taken by b"),
        ({"b": "down"}, (), {}, "wait", "1 of 1 down slots taken by b"),
        ({"b": "validating"}, (), {}, "wait", "by b"),
        ({"b": "down"}, (), {"max_down": 2}, "go", "1 of 2"),
        ({"b": "down", "c": "draining"}, (), {"max_down": 2}, "wait", "by c, b"),
        ({"b": "down", "c": "draining"}, (), {"max_down": 1, "max_draining": 2}, "go", "1 of 1 down"),  # drains ahead
        ({"b": "draining", "c": "draining"}, (), {"max_down": 1, "max_draining": 2}, "wait", "2 of 2 slots to drain"),
        (
            {"b": "draining", "c": "draining"},
            (),
            {"max_down": 4, "max_draining": 2},
            "wait",
            "2 of 2 slots to drain and 0 of 4 down",
        ),
        ({"b": "draining"}, (), {"max_down": 4, "max_draining": 1}, "wait", "1 of 1 slots to drain"),
        ({"b": "draining"}, (), {"max_down": 4, "max_draining": 2}, "go", "0 of 4"),
        ({"b": "down", "c": "down"}, (), {"max_down": 4, "max_draining": 1}, "go", "2 of 4"),
        ({"b": "down", "c": "down"}, (), {"max_down": 2, "max_draining": 1}, "wait", "2 of 2 down slots"),
        ({"b": "draining", "c": "down"}, (), {"max_down": 3, "max_draining": 3}, "go", "1 of 3"),
        # as many as may be down when it is not given
        ({"b": "draining", "c": "draining"}, (), {"max_down": 3}, "go", "0 of 3"),
        ({"b": "failed"}, (), {}, "stop", "failure budget of 1 is spent by b"),
        ({"b": "rolled_back"}, (), {}, "stop", "spent by b"),
        ({"b": "failed"}, (), {"failure_budget": 2}, "go", "1 of 2 failures"),
        ({"b": "failed", "c": "rolled_back"}, (), {"max_down": 5, "failure_budget": 2}, "stop", "spent by b, c"),
        ({"b": "quarantined"}, (), {"max_down": 2}, "stop", "spent by b"),
        (
            {"b": "quarantined"},
            (),
            {"failure_budget": 2},
            "stop",
            "every down slot (1) is held by a node that is out of service: b",
        ),
        ({"b": "lost"}, (), {"failure_budget": 5}, "stop", "out of service: b"),
        ({"b": "lost"}, (), {"max_down": 2, "failure_budget": 2}, "go", "1 of 2 down slots taken, 1 of 2 failures"),
        ({"b": "lost", "c": "down"}, (), {"max_down": 2, "failure_budget": 2}, "wait", "2 of 2 down slots taken by c"),
        ({"b": "down"}, ("b",), {}, "wait", "taken by b"),
        ({"b": "down"}, ("b",), {"max_down": 2}, "go", "1 of 2"),
        ({}, (), {"max_down": 2, "broken_elsewhere": 1}, "go", "1 of 2 down slots taken"),
        ({"b": "down"}, (), {"max_down": 2, "broken_elsewhere": 1}, "wait", "2 of 2 down slots taken"),
        ({}, (), {"broken_elsewhere": 1}, "stop", "held by a node that is out of service: 1 broken elsewhere"),
    ],
)
def test_a_pending_node(others, orphaned, policy, expected, words):
    decision = ask(view_of(dict({"a": "pending"}, **others), orphaned, **policy))
    assert decision.answer == expected
    assert words in decision.reason


@pytest.mark.parametrize(
    "others, orphaned, policy, expected",
    [
        ({}, ("a",), {}, "go"),
        ({"b": "down"}, ("a",), {}, "wait"),
        ({"b": "down"}, ("a", "b"), {}, "go"),  # both are down already; one at a time
        ({"b": "quarantined"}, ("a",), {"failure_budget": 2}, "go"),  # it costs no slot of its own
        # Whatever keeps others from starting, it is finished or put back.
        ({"b": "failed"}, ("a",), {}, "go"),
        ({}, ("a",), {"approved": ""}, "go"),
        ({"b": "failed", "c": "down"}, ("a",), {}, "wait"),  # but not beside others
        ({}, ("a",), {"windows": [{"days": ["mon"], "from": "02:00", "to": "03:00", "timezone": "UTC"}]}, "go"),
    ],
)
def test_a_node_left_down_by_a_dead_controller(others, orphaned, policy, expected):
    assert ask(view_of(dict({"a": "down"}, **others), orphaned, **policy), now=SATURDAY).answer == expected


@pytest.mark.parametrize("field, value", [("stopped", "kim: enough"), ("paused", "kim: lunch")])
def test_an_operators_word_keeps_no_node_down_that_was_left_so(field, value):
    view = view_of({"a": "down", "b": "pending"}, ("a",))
    setattr(view, field, value)
    assert ask(view).answer == "go" and ask(view, "b").answer in ("stop", "wait")
    assert not gate.starts_new(view, state.DRAIN, "a") and gate.starts_new(view, state.DRAIN, "b"), (
        "no query holds it either"
    )


@pytest.mark.parametrize(
    "others, orphaned, policy, expected",
    [
        ({}, ("a",), {}, "go"),
        # A limit was lowered below what drained when the controller died: they go one after the other.
        ({"b": "draining"}, ("a", "b"), {"max_down": 1}, "go"),
        ({"b": "draining"}, ("a", "b"), {"max_down": 3, "max_draining": 1}, "go"),
        ({"b": "draining"}, ("a", "b"), {"max_down": 3, "domain_caps": {"rack": 1}}, "go"),
        ({"b": "draining"}, ("a",), {"max_down": 1}, "wait"),
        ({"b": "draining"}, ("a",), {"max_down": 3, "max_draining": 1}, "wait"),
        ({"b": "draining"}, ("a",), {"max_down": 3, "domain_caps": {"rack": 1}}, "wait"),
        # One that is down is finished first.
        ({"b": "down"}, ("a", "b"), {"max_down": 1}, "wait"),
        ({"b": "down"}, ("a", "b"), {"max_down": 3, "domain_caps": {"rack": 1}}, "wait"),
        # One that has not started waits for all of them.
        ({"a": "pending", "b": "draining"}, ("b",), {"max_down": 1}, "wait"),
        ({"a": "pending", "b": "draining"}, ("b",), {"max_down": 3, "domain_caps": {"rack": 1}}, "wait"),
    ],
)
def test_a_node_left_draining_by_a_dead_controller(others, orphaned, policy, expected):
    states = dict({"a": "draining"}, **others)
    view = view_of(states, orphaned, domains={name: {"rack": "r1"} for name in states}, **policy)
    assert ask(view).answer == expected


@pytest.mark.parametrize(
    "approved, diverted, expected", [("", False, "go"), ("", True, "stop"), ("f" * 64, True, "go"), (None, True, "go")]
)
def test_an_orphaned_node_goes_to_no_version_that_is_not_approved(approved, diverted, expected):
    view = view_of({"a": "down"}, ("a",))
    view.policy["approved"] = approved
    view.nodes.get("a").diverted = diverted
    assert ask(view).answer == expected


def test_a_node_that_was_left_draining_begins_nothing_while_the_gate_is_closed():
    view = view_of({"a": "draining"}, ("a",))
    view.stopped = "kim: enough"
    assert ask(view).answer == "stop"


def test_a_node_left_draining_by_a_dead_controller_needs_a_slot_as_any_other():
    assert ask(view_of({"a": "draining", "b": "down"}, ("a",))).answer == "wait"
    assert ask(view_of({"a": "draining"}, ("a",))).answer == "go"


@pytest.mark.parametrize("own", state.ENDED)
def test_a_node_that_ended_is_skipped_even_when_the_budget_is_spent(own):
    assert ask(view_of({"a": own, "b": "failed"})).answer == "skip"


@pytest.mark.parametrize("own", state.IN_FLIGHT)
def test_a_node_never_goes_twice(own):
    assert ask(view_of({"a": own}, max_down=5, failure_budget=5)).answer == "stop"


def test_an_unknown_node_is_skipped():
    for phase in state.PHASES:
        assert ask(view_of({"a": "pending"}), "b", phase).answer == "skip"


@pytest.mark.parametrize(
    "states, max_down, present, expected, words",
    [
        ({"a": "pending", "b": "pending", "c": "pending"}, 1, None, "wait", "a goes first in the plan's order"),
        ({"a": "down", "b": "pending", "c": "pending"}, 2, None, "wait", "b goes first in the plan's order"),
        ({"a": "pending", "b": "pending", "c": "pending"}, 3, None, "go", "0 of 3"),  # there is room for all of them
        ({"a": "done", "b": "skipped", "c": "pending"}, 1, None, "go", "0 of 1"),
        ({"a": "pending", "b": "pending", "c": "pending"}, 1, ["c"], "go", "0 of 1"),  # the play has lost the others
        ({"a": "pending", "b": "pending", "c": "pending"}, 1, ["b", "c"], "wait", "b goes first"),
        ({"c": "pending", "a": "pending", "b": "pending"}, 1, None, "go", "0 of 1"),
    ],
)
def test_nodes_go_in_the_order_of_the_plan(states, max_down, present, expected, words):
    decision = ask(view_of(states, max_down=max_down), "c", present=present)
    assert decision.answer == expected
    assert words in decision.reason


@pytest.mark.parametrize(
    "own, others, policy, expected, words",
    [
        ("draining", {}, {}, "go", "1 of 1 down slots taken"),
        ("draining", {"b": "down"}, {}, "wait", "1 of 1 down slots taken by b"),
        ("draining", {"b": "draining"}, {}, "go", "1 of 1"),  # who is empty first goes first
        ("draining", {"b": "lost"}, {"max_down": 2, "failure_budget": 9}, "go", "2 of 2"),
        ("draining", {"b": "lost"}, {"failure_budget": 9}, "stop", "out of service: b"),
        ("draining", {"b": "rolled_back"}, {}, "stop", "failure budget of 1 is spent by b"),
        ("down", {"b": "rolled_back"}, {}, "go", "down already"),  # no node is stopped in the middle
        ("validating", {}, {}, "go", "down already"),
        ("pending", {}, {}, "stop", "no grant to drain"),
        ("done", {}, {}, "skip", "already done"),
    ],
)
def test_going_down(own, others, policy, expected, words):
    decision = ask(view_of(dict({"a": own}, **others), **policy), phase=state.DOWN)
    assert decision.answer == expected
    assert words in decision.reason


def test_an_orphaned_node_may_not_go_down_before_a_new_grant_to_drain():
    assert ask(view_of({"a": "down"}, ("a",)), phase=state.DOWN).answer == "stop"


@pytest.mark.parametrize(
    "own, expected", [("down", "go"), ("validating", "go"), ("draining", "go"), ("pending", "stop"), ("done", "skip")]
)
def test_returning(own, expected):
    assert ask(view_of({"a": own, "b": "failed"}), phase=state.RETURN).answer == expected


@pytest.mark.parametrize(
    "others, canaries, policy, expected, words",
    [
        ({"b": "pending"}, ("b",), {"max_down": 5}, "wait", "canaries go first: b"),
        ({"b": "validating"}, ("b",), {"max_down": 5}, "wait", "canaries go first: b"),
        ({"b": "soaking"}, ("b",), {"max_down": 5}, "wait", "canaries go first: b (it soaks)"),
        # it serves, and holds no slot
        ({"b": "soaking", "c": "soaking"}, ("a", "b", "c"), {"max_down": 1}, "go", "0 of 1 down slots taken"),
        ({"b": "done"}, ("b",), {"max_down": 5}, "go", ""),
        ({"b": "done", "c": "down"}, ("b", "c"), {"max_down": 5}, "wait", "c"),
        ({"b": "rolled_back"}, ("b",), {"max_down": 5, "failure_budget": 9}, "stop", "canary b failed"),
        (
            {"b": "rolled_back", "c": "done"},
            ("b", "c"),
            {"max_down": 5, "failure_budget": 9, "canary_failures": 1},
            "go",
            "",
        ),
        ({"b": "skipped"}, ("b",), {"max_down": 5}, "stop", "b is skipped"),
    ],
)
def test_no_other_node_starts_before_the_canaries_have_ended(others, canaries, policy, expected, words):
    decision = ask(view_of(dict({"a": "pending"}, **others), canaries=canaries, **policy))
    assert decision.answer == expected
    assert words in decision.reason


def test_a_canary_that_left_without_going_is_not_waited_for():
    view = view_of({"a": "pending", "b": "pending", "c": "down"}, canaries=("b", "c"), max_down=3)
    assert ask(view, present=["a", "b", "c"]).answer == "wait"
    decision = ask(view, present=["a", "c"])
    assert decision.answer == "stop" and "canary b did not start" in decision.reason


def test_a_canary_that_was_sick_before_says_nothing_of_the_change():
    states = {"a": "pending", "b": "failed", "c": "done"}
    view = view_of(states, canaries=("b", "c"), failures={"b": state.SICK})
    assert ask(view).answer == "go"
    assert ask(view_of({"a": "pending", "b": "failed"}, canaries=("b",), failures={"b": state.SICK})).answer == "stop"


@pytest.mark.parametrize(
    "others, expected, words",
    [
        ({"b": "down"}, "wait", "1 of 1 nodes of rack r1 are out: b"),
        ({"b": "draining"}, "wait", "of rack r1 are out: b"),
        ({"b": "quarantined"}, "stop", "of rack r1 are out: b"),
        ({"b": "done"}, "go", ""),
        ({"c": "down"}, "go", ""),
    ],
)
def test_a_failure_domain_keeps_most_of_its_nodes(others, expected, words):
    domains = {"a": {"rack": "r1"}, "b": {"rack": "r1"}, "c": {"rack": "r2"}}
    view = view_of(
        dict({"a": "pending"}, **others), domains=domains, max_down=5, failure_budget=5, domain_caps={"rack": 1}
    )
    decision = ask(view)
    assert decision.answer == expected
    assert words in decision.reason


def test_a_node_that_its_failure_domain_holds_back_holds_back_no_other():
    domains = {"a": {"rack": "r1"}, "b": {"rack": "r1"}, "c": {"rack": "r2"}, "d": {"rack": "r3"}}
    view = view_of(
        {"a": "down", "b": "pending", "c": "pending", "d": "pending"},
        domains=domains,
        max_down=2,
        domain_caps={"rack": 1},
    )
    assert [ask(view, name).answer for name in "bcd"] == ["wait", "go", "wait"]
    assert "c goes first" in ask(view, "d").reason


def test_a_node_whose_failure_domain_is_not_known_does_not_go():
    decision = ask(view_of({"a": "pending"}, domain_caps={"rack": 1}))
    assert decision.answer == "stop" and "its rack is not known" in decision.reason
    assert "gpufleet_domains" in decision.reason


@pytest.mark.parametrize(
    "down, window, expected", [(0, 1, "go"), (1, 1, "wait"), (1, 2, "go"), (3, 4, "go"), (4, 4, "wait"), (4, 9, "wait")]
)
def test_growth_lets_fewer_go_than_the_policy(down, window, expected):
    states = {"a": "pending"}
    states.update(("d%d" % number, "down") for number in range(down))
    assert ask(view_of(states, window=window, max_down=4, growth_start=1)).answer == expected


def test_an_operator_is_obeyed():
    view = view_of({"a": "pending", "b": "draining", "c": "down"}, max_down=5)
    view.paused = "kim: the switch is being replaced"
    assert ask(view).answer == "wait" and "paused by kim: the switch" in ask(view).reason
    assert ask(view, "b", state.DOWN).answer == "wait"
    assert ask(view, "c", state.DOWN).answer == "go" and ask(view, "c", state.RETURN).answer == "go", (
        "what is down goes on to its end"
    )
    view.stopped = "kim: wrong version"
    assert [ask(view, name, phase).answer for name, phase in (("a", "drain"), ("b", "down"), ("c", "return"))] == [
        "stop",
        "stop",
        "go",
    ]
    assert "stopped by kim: wrong version" in ask(view).reason


def test_a_draining_node_that_an_operator_skips_does_not_go_down():
    view = view_of({"a": "draining"})
    view.nodes.get("a").order = "skipped by kim: busy"
    assert ask(view, phase=state.DOWN) == gate.Decision("stop", "skipped by kim: busy")


def test_no_node_starts_without_the_approval_of_exactly_this_plan():
    for approved, expected in ((None, "go"), ("f" * 64, "go"), ("", "stop"), ("e" * 64, "stop")):
        view = view_of({"a": "pending", "b": "draining"}, max_down=3, approved=approved)
        assert ask(view).answer == expected
        assert ask(view, "b", state.DOWN).answer == expected
    assert "rollout_approve=ffffffffffff" in ask(view).reason


def test_no_node_starts_outside_of_the_maintenance_window():
    windows = [{"days": ["sat"], "from": "22:00", "to": "23:30"}]
    view = view_of({"a": "pending", "b": "draining", "c": "down"}, max_down=5, windows=windows, node_s=1200)
    early, late = SATURDAY - datetime.timedelta(hours=2), SATURDAY + datetime.timedelta(minutes=15)
    assert [ask(view, now=now).answer for now in (early, SATURDAY, late)] == ["stop", "go", "stop"]
    assert [ask(view, "b", state.DOWN, now=now).answer for now in (early, SATURDAY, late)] == ["stop", "go", "stop"]
    assert [ask(view, "c", state.DOWN, now=now).answer for now in (early, late)] == ["go", "go"]
    assert "closes at 23:30 UTC" in ask(view, now=late).reason


def test_vanished_are_those_in_flight_that_the_play_no_longer_holds():
    view = view_of({"a": "down", "b": "down", "c": "done", "d": "pending", "e": "down"}, orphaned=("e",))
    view.nodes.get("a").steps.append(state.Step("reboot", "2026-01-01T00:00:00.000Z"))
    assert [node.name for node in gate.find_vanished(view, ["b"])] == ["a"]
    assert "in step reboot" in gate.vanished_reason(view.nodes.get("a"))
    assert "before its first step" in gate.vanished_reason(view.nodes.get("b"))


def test_a_node_that_serves_again_is_not_missing_from_its_rack():
    racks = {"a": {"rack": "r1"}, "b": {"rack": "r1"}}
    for value, answer in (("soaking", "go"), ("validating", "wait"), ("draining", "wait")):
        view = view_of(
            {"a": "pending", "b": value}, canaries=("a", "b"), domains=racks, max_down=5, domain_caps={"rack": 1}
        )
        assert ask(view).answer == answer


def test_a_node_whose_ticket_expired_while_it_waited_does_not_go_down_with_it():
    view = view_of({"a": "draining"})
    ticket = view.nodes.get("a").ticket
    ticket.granted, ticket.expires = "2026-01-03T18:00:00.000Z", "2026-01-03T22:00:00.000Z"
    before, then = SATURDAY - datetime.timedelta(seconds=3601), SATURDAY - datetime.timedelta(seconds=3600)
    assert ask(view, phase=state.DOWN, now=before).answer == "go"
    for now in (then, SATURDAY):
        decision = ask(view, phase=state.DOWN, now=now)
        assert decision.answer == "stop"
        assert "granted at 2026-01-03T18:00:00.000Z and expired at 2026-01-03T22:00:00.000Z" in decision.reason
        assert "rollout_ticket_s" in decision.reason
    view.nodes.get("a").state = "down"
    for phase in (state.DOWN, state.RETURN):
        assert ask(view, phase=phase, now=SATURDAY).answer == "go", "what is down is brought to its end"


def test_a_ticket_to_drain_of_another_plan_does_not_allow_down():
    view = view_of({"a": "draining"})
    view.nodes.get("a").ticket.sha256 = "e" * 64
    decision = ask(view, phase=state.DOWN, now=SATURDAY)
    assert (
        decision.answer == "stop" and "plan eeeeeeeeeeee" in decision.reason and "plan ffffffffffff" in decision.reason
    )
    view.nodes.get("a").ticket = None
    assert ask(view, phase=state.DOWN, now=SATURDAY).answer == "stop"


CANARY_NEXT = "a larger rollout_canary_failures if you want that"


@pytest.mark.parametrize(
    "others, canaries, policy, present, ends",
    [
        ({"b": "rolled_back"}, ("b",), {"failure_budget": 9}, None, CANARY_NEXT),
        ({"b": "skipped"}, ("b",), {}, None, "run again with a node in rollout_canaries that can start"),
        ({"b": "pending"}, ("b",), {}, ["a"], "find out why it left the play, and run again"),
        (
            {"b": "quarantined"},
            (),
            {"failure_budget": 9, "max_down": 5, "domain_caps": {"rack": 1}},
            None,
            "rollout_control with rollout_verb=set_budget, or rollout_domain_caps in the next run)",
        ),
    ],
)
def test_who_is_told_to_stop_is_told_what_to_do(others, canaries, policy, present, ends):
    racks = {name: {"rack": "r1"} for name in "ab"}
    decision = ask(
        view_of(dict({"a": "pending"}, **others), canaries=canaries, domains=racks, **policy), present=present
    )
    assert decision.answer == "stop" and ends in decision.reason


@pytest.mark.parametrize(
    ("states", "budget", "stopped", "stops"),
    [
        ({"a": "pending", "b": "done"}, 1, "", False),
        ({"a": "pending", "b": "rolled_back"}, 2, "", False),
        ({"a": "pending", "b": "rolled_back"}, 1, "", True),
        ({"a": "pending", "b": "done"}, 1, "by an operator", True),
    ],
)
def test_a_rollout_stops_for_all_with_its_failure_budget_or_by_an_operator(states, budget, stopped, stops):
    view = view_of(states, failure_budget=budget)
    view.stopped = stopped
    assert gate.has_stopped(view) is stops
