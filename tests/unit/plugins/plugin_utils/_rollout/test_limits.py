# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits


@pytest.mark.parametrize(
    "value, fleet, expected",
    [
        (1, 10, 1),
        ("3", 10, 3),
        (12, 10, 12),
        (0, 10, 0),
        ("10%", 10, 1),
        ("10%", 99, 9),
        ("1%", 10, 1),
        ("100 %", 7, 7),
        ("0%", 10, 0),
        ("12.5%", 80, 10),
    ],
)
def test_an_amount(value, fleet, expected):
    assert limits.amount("max_down", value, fleet) == expected


@pytest.mark.parametrize("value", ["101%", "-1", -1, "x", "", None, True, 1.5, "10%%", [1]])
def test_what_is_no_amount(value):
    with pytest.raises(limits.LimitError, match="rollout_max_down is"):
        limits.amount("max_down", value, 10)


@pytest.mark.parametrize(
    "given, words",
    [
        ({"max_down": 0}, "rollout_max_down is 0; expected 1 or more"),
        ({"max_down": "0%"}, "rollout_max_down is 0%"),
        ({"failure_budget": 0}, "rollout_failure_budget is 0"),
        ({"max_draining": 0}, "rollout_max_draining is 0"),
        ({"failure_percent": "200"}, "rollout_failure_percent is '200'"),
        ({"failure_classes": {"hard": 0}}, "rollout_failure_classes.hard is 0"),
        ({"failure_classes": {"bad": 1}}, "rollout_failure_classes names bad; expected one of: sick, soft, hard, lost"),
        ({"failure_classes": [1]}, "expected a dictionary"),
        ({"domain_caps": {"rack": "x"}}, "rollout_domain_caps.rack is 'x'"),
        ({"growth_start": 0}, "rollout_growth_start is 0"),
        ({"growth_step": -1}, "rollout_growth_step is -1"),
        ({"canary_soak_s": "1 h"}, "rollout_canary_soak_s is '1 h'"),
        ({"ticket_s": 5}, "rollout_ticket_s is 5"),
        ({"common_cause": "x"}, "rollout_common_cause is 'x'"),
        ({"on_failure": "shrug"}, "rollout_on_failure is 'shrug'; expected rollback, quarantine or stop"),
        ({"typo": 1}, "unknown limit typo"),
    ],
)
def test_invalid_limits_are_named(given, words):
    with pytest.raises(limits.LimitError, match=words):
        limits.complete(given, 10)


def test_what_is_not_given_is_the_strictest():
    policy = limits.complete({}, 50)
    assert (policy["max_down"], policy["max_draining"], policy["failure_budget"], policy["common_cause"]) == (
        1,
        1,
        1,
        2,
    )
    assert limits.complete({"max_down": "10%"}, 50)["max_draining"] == 5


def node(name, failure=state.HARD, signature=""):
    return state.Node(name, "failed", failure=failure, signature=signature)


@pytest.mark.parametrize(
    "policy, failed, went, words",
    [
        ({}, [], 5, ""),
        ({"failure_budget": 2}, [node("a")], 5, ""),
        ({"failure_budget": 2}, [node("a"), node("b")], 5, "budget of 2 is spent by a, b"),
        (
            {"failure_budget": 2},
            [node("a", state.LOST)],
            5,
            "budget of 2 is spent by a",
        ),  # a node that is gone counts twice
        ({"failure_budget": 1}, [node("a", state.SICK)], 5, ""),  # it was so before
        ({"failure_budget": 9, "failure_classes": {"hard": 1}}, [node("a", state.SOFT)], 5, ""),
        (
            {"failure_budget": 9, "failure_classes": {"hard": 1}},
            [node("a")],
            5,
            "budget of 1 hard failure is spent by a",
        ),
        (
            {"failure_budget": 9, "failure_percent": 10},
            [node("a")],
            5,
            "",
        ),  # of five nodes one is always more than a tenth
        ({"failure_budget": 9, "failure_percent": 10}, [node("a")], 10, ""),
        (
            {"failure_budget": 9, "failure_percent": 10},
            [node("a"), node("b")],
            19,
            "2 of 19 nodes that started have failed, more than 10 %",
        ),
        ({"failure_budget": 9, "failure_percent": 10}, [node("a"), node("b")], 20, ""),
        (
            {"failure_budget": 9, "failure_percent": 0},
            [node("a")],
            5,
            "1 of 5 nodes that started have failed, more than 0 %: a",
        ),
        ({"failure_budget": 9, "failure_percent": "0%"}, [node("a", state.SICK)], 5, ""),
        ({"failure_budget": 9, "max_delta_unhealthy": 0}, [node("a")], 5, "1 of 100 nodes are unhealthy since"),
        ({"failure_budget": 9, "max_delta_unhealthy": 1}, [node("a")], 5, ""),
        (
            {"failure_budget": 9, "max_delta_unhealthy": 1},
            [node("a"), node("b")],
            5,
            "2 of 100 nodes are unhealthy since the rollout began",
        ),
        ({"failure_budget": 9}, [node("a", signature="x"), node("b", signature="y")], 5, ""),
        (
            {"failure_budget": 9},
            [node("a", signature="x"), node("b", signature="x")],
            5,
            "a, b failed in the same way (x)",
        ),
        ({"failure_budget": 9}, [node("a", signature="x"), node("b", state.SOFT, "x")], 5, ""),
        ({"failure_budget": 9, "common_cause": 3}, [node("a", signature="x"), node("b", signature="x")], 5, ""),
        ({"failure_budget": 9, "common_cause": 0}, [node(name, signature="x") for name in "abc"], 5, ""),
    ],
)
def test_when_the_budgets_are_spent(policy, failed, went, words):
    found = limits.spent(limits.complete(policy, 100), failed, went)
    assert words in found and bool(found) == bool(words)


def test_long_lists_of_names_are_cut():
    assert limits.listed("abcdefg") == "a, b, c, d, e and 2 more"


@pytest.mark.parametrize(
    "one, other, same",
    [
        (("validate", "GPU 3 is lost", ["gpus.present"]), ("validate", "something else", ["gpus.present"]), True),
        (("validate", "GPU 3 is lost", ["gpus.present"]), ("validate", "GPU 3 is lost", ["gpu.nvlink"]), False),
        (
            ("install", "GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10 at 0000:1b:00.0 on gpu-1", ()),
            ("install", "GPU-aaaaaaaa-0b8e-4f6a-9a53-2f1d8f5f7c10 at 0000:c1:00.0 on gpu-1", ()),
            True,
        ),
        (("install", "apt failed with 100", ()), ("prove", "apt failed with 100", ()), False),
        (("install", "disk full", ()), ("install", "no network", ()), False),
    ],
)
def test_when_two_failures_are_the_same(one, other, same):
    signatures = {limits.sign_failure(*given, node="gpu-1") for given in (one, other)}
    assert (len(signatures) == 1) is same


def test_the_name_of_the_node_does_not_make_a_failure_another():
    assert limits.sign_failure("stop", "a1: refused", (), "a1") == limits.sign_failure(
        "stop", "b-2: refused", (), "b-2"
    )
    assert limits.sign_failure("", "", ()) == "start: "


@pytest.mark.parametrize(
    "given, name",
    [({"max_down": 0}, "rollout_max_down"), ({"ticket_s": 1}, "rollout_ticket_s"), ({"waves": [0]}, "rollout_waves")],
)
def test_a_limit_that_is_refused_says_what_to_do(given, name):
    with pytest.raises(limits.LimitError) as caught:
        limits.complete(given, 10)
    assert str(caught.value).endswith(
        " Give %s another value (with -e, in the inventory, or in rollout_limits for set_budget) and run again. "
        "Nothing was changed." % name
    )


def test_a_budget_of_nothing_is_refused_with_the_least_that_lets_a_node_go():
    with pytest.raises(
        limits.LimitError,
        match=(
            "rollout_max_down is 0; expected 1 or more, such as rollout_max_down=1, otherwise no node could ever start"
        ),
    ):
        limits.complete({"max_down": 0}, 10)
