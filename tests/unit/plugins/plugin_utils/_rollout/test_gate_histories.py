# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import grant, view_of

hypothesis = pytest.importorskip(
    "hypothesis", reason="ansible-test's environment has none; the plain pytest run has it"
)
strategies = hypothesis.strategies

NAMES = [chr(ord("a") + number) for number in range(8)]
RACKS = {name: {"rack": "r%d" % (number % 3)} for number, name in enumerate(NAMES)}


def policies():
    return strategies.fixed_dictionaries(
        {
            "max_down": strategies.integers(1, 4),
            "failure_budget": strategies.integers(1, 4),
            "common_cause": strategies.just(0),
            "domain_caps": strategies.sampled_from([{}, {"rack": 1}, {"rack": 2}]),
            "growth_start": strategies.sampled_from([None, 1, 2]),
        },
        optional={"max_draining": strategies.integers(1, 6), "broken_elsewhere": strategies.integers(0, 2)},
    )


def end(name, value, time="2026-01-01T00:01:00.000Z"):
    return {"event": "state", "run": "r", "node": name, "time": time, "state": value}


@hypothesis.given(
    start=strategies.lists(
        strategies.sampled_from(["pending"] * 5 + ["lost", "quarantined", "failed", "skipped", "orphaned"]),
        min_size=1,
        max_size=8,
    ),
    policy=policies(),
    moves=strategies.lists(
        strategies.tuples(
            strategies.sampled_from(NAMES),
            strategies.sampled_from(["drain", "drain", "down", "down", "end"]),
            strategies.sampled_from(state.ENDED),
        ),
        max_size=80,
    ),
)
@hypothesis.example(
    start=["pending"] * 3,
    moves=[(name, "drain", "done") for name in "abc"],
    policy={
        "max_down": 4,
        "max_draining": 1,
        "failure_budget": 1,
        "common_cause": 0,
        "domain_caps": {},
        "growth_start": None,
    },
)
def test_no_history_takes_more_down_than_allowed(start, policy, moves):
    names = NAMES[: len(start)]
    orphaned = [name for name, value in zip(names, start) if value == "orphaned"]
    policy = limits.complete_policy(policy, 10)
    view = view_of(
        {name: "down" if value == "orphaned" else value for name, value in zip(names, start)},
        orphaned,
        domains=RACKS,
        window=policy["growth_start"],
    )
    view.policy = policy
    went = []
    for name, move, outcome in moves:
        if name not in names:
            continue
        node = view.nodes.get(name)
        if move == "end":
            if node.state in state.IN_FLIGHT and not node.orphaned:
                events.apply_event(view, end(name, outcome))
            continue
        before, was_down = node.state, node.state in state.NOT_SERVING
        failed_before = sum(
            limits.failure_weight(other) for other in limits.filter_charged(view.nodes.with_state(*state.FAILED))
        )
        decision = gate.decide(view, move, name)
        if decision.answer == "go":
            # Nothing starts, and nothing goes down, once the budget is spent; only what is down already goes on, an
            # orphaned node among it, which asks to drain again.
            assert failed_before < policy["failure_budget"] or was_down
            events.apply_event(view, grant(name, move))
            if move == "drain":
                assert before == "pending" or before in state.IN_FLIGHT
                went.append(name)
                out = [
                    other
                    for other in view.nodes.with_state(*(state.IN_FLIGHT + state.OUT_OF_SERVICE))
                    if other.domains["rack"] == node.domains["rack"]
                ]
                assert was_down or len(out) <= policy["domain_caps"].get("rack", 99)
                draining = view.nodes.with_state("draining")
                assert was_down or len(draining) <= policy["max_draining"]
            elif not was_down:
                down = view.nodes.with_state(*(state.NOT_SERVING + state.OUT_OF_SERVICE))
                assert len(down) + policy["broken_elsewhere"] <= policy["max_down"], (
                    "more nodes out of service than allowed"
                )
                assert view.window is None or len(view.nodes.with_state(*state.NOT_SERVING)) <= view.window + len(
                    orphaned
                ), "more than growth allows"
    assert len(went) == len(set(went)), "a node went twice"


@hypothesis.given(
    count=strategies.integers(1, 12),
    policy=policies(),
    outcomes=strategies.lists(strategies.sampled_from(["done"] * 4 + list(state.FAILED)), min_size=12, max_size=12),
    orphaned=strategies.integers(0, 3),
    canaries=strategies.integers(0, 2),
    taken_up=strategies.booleans(),
)
def test_a_rollout_always_comes_to_an_end(count, policy, outcomes, orphaned, canaries, taken_up):
    """All nodes ask in turn and those in flight end in turn: at the end no node waits."""
    names = ["n%02d" % number for number in range(count)]
    policy = limits.complete_policy(policy, 10)
    view = view_of(
        {name: "down" if number < orphaned else "pending" for number, name in enumerate(names)},
        names[:orphaned],
        canaries=names[:canaries] if taken_up else names[orphaned : orphaned + canaries],
        domains={name: {"rack": "r%d" % (number % 3)} for number, name in enumerate(names)},
        window=policy["growth_start"],
    )
    view.policy = policy
    results = dict(zip(names, outcomes))
    asking = dict((name, "drain") for name in names)
    for turn in range(8 * count + 8):
        for name, phase in list(asking.items()):
            # The play holds those that ask and those that are at work; one that was told to stop has left it.
            present = list(asking) + [node.name for node in view.nodes.with_state(*state.IN_FLIGHT)]
            decision = gate.decide(view, phase, name, present)
            if decision.answer == "wait":
                continue
            if decision.answer == "go":
                events.apply_event(view, grant(name, phase))
            if decision.answer == "go" and phase == "drain":
                asking[name] = "down"
                continue
            if decision.answer == "stop" and phase == "down":
                events.apply_event(view, end(name, "pending"))
            del asking[name]
        working = [
            node.name
            for node in view.nodes.with_state(*state.NOT_SERVING)
            if not node.orphaned and node.name not in asking
        ]
        if working:
            events.apply_event(
                view, end(working[0], results[working[0]], "2026-01-01T00:%02d:%02d.000Z" % divmod(turn, 60))
            )
    assert asking == {}
    charged = sum(limits.failure_weight(node) for node in limits.filter_charged(view.nodes.with_state(*state.FAILED)))
    in_flight = max(policy["max_down"], orphaned)
    assert charged <= 2 * (policy["failure_budget"] - 1 + in_flight)
    assert len(view.nodes.with_state(*state.FAILED)) <= policy["failure_budget"] - 1 + in_flight
