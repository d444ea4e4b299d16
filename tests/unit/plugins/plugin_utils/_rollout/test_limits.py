# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, options


@pytest.mark.parametrize(
    "value, fleet, expected",
    [
        (1, 10, 1),
        ("3", 10, 3),
        (12, 10, 12),
        ("10%", 10, 1),
        ("10%", 99, 9),
        ("1%", 10, 1),
        ("100 %", 7, 7),
        (" 12.5% ", 80, 10),
    ],
)
def test_amount_is_nodes_or_share_rounded_down_to_one_at_least(value, fleet, expected):
    assert limits.complete_policy({"max_down": value}, fleet)["max_down"] == expected


@pytest.mark.parametrize("value", [0, "0", "0%", "101%", "-1", -1, "x", True, 1.5, "10%%", [1], {}, 10**30, "9" * 99])
@pytest.mark.parametrize(
    "name", ["max_down", "max_draining", "failure_budget", "waves", "failure_classes", "domain_caps"]
)
def test_amount_that_lets_no_node_go_is_refused_by_its_variable(name, value):
    given = {"waves": [value], "failure_classes": {"hard": value}, "domain_caps": {"rack": value}}.get(name, value)
    with pytest.raises(options.OptionError, match=r"^rollout_%s\b.* Nothing was changed" % name):
        limits.complete_policy({name: given}, 10)


@pytest.mark.parametrize(
    "name, value",
    [
        ("failure_percent", "200"),
        ("failure_percent", [1]),
        ("failure_classes", {"bad": 1}),
        ("failure_classes", [1]),
        ("domain_caps", {"rack": None}),
        ("growth_start", 0),
        ("growth_step", -1),
        ("canary_soak_s", "1 h"),
        ("canary_soak_s", 32 * 86400),
        ("ticket_s", 5),
        ("node_s", 0),
        ("node_s", 8 * 86400),
        ("common_cause", "x"),
        ("on_failure", "shrug"),
        ("pool", "a b"),
        ("waves", "1"),
        ("typo", 1),
    ],
)
def test_limit_out_of_range_is_refused_by_its_variable(name, value):
    with pytest.raises(options.OptionError, match="rollout_" + name):
        limits.complete_policy({name: value if name != "waves" else {"a": value}}, 10)


def test_what_is_not_given_is_the_strictest():
    policy = limits.complete_policy({}, 50)
    assert (policy["max_down"], policy["max_draining"], policy["failure_budget"], policy["common_cause"]) == (
        1,
        1,
        1,
        2,
    )
    assert limits.complete_policy({"max_down": "10%"}, 50)["max_draining"] == 5


def make_nodes(text):
    """Return failed nodes of a text such as C(a:lost b:hard:signature); hard without a word."""
    parts = [(*part.split(":"), "", "")[:3] for part in text.split()]
    return [state.Node(name, "failed", failure=kind or state.HARD, signature=why) for name, kind, why in parts]


@pytest.mark.parametrize(
    "policy, failed, went, words",
    [
        ({"failure_budget": 1}, "", 5, ""),
        ({"failure_budget": 2}, "a", 5, ""),
        ({"failure_budget": 2}, "a b", 5, "budget of 2 is spent by a, b"),
        ({"failure_budget": 2}, "a:lost", 5, "budget of 2 is spent by a"),  # a node that is gone counts twice
        ({"failure_budget": 1}, "a:sick", 5, ""),  # it was so before
        ({"failure_classes": {"hard": 1}}, "a:soft", 5, ""),
        ({"failure_classes": {"hard": 1}}, "a", 5, "budget of 1 hard failure is spent by a"),
        ({"failure_percent": 10}, "a", 5, ""),  # of five nodes one is always more than a tenth
        ({"failure_percent": 10}, "a", 10, ""),
        ({"failure_percent": 10}, "a b", 19, "2 of 19 nodes that started have failed, more than 10 %"),
        ({"failure_percent": 10}, "a b", 20, ""),
        ({"failure_percent": 0}, "a", 5, "1 of 5 nodes that started have failed, more than 0 %: a"),
        ({"failure_percent": "0%"}, "a:sick", 5, ""),
        ({"max_delta_unhealthy": 0}, "a", 5, "1 of 100 nodes are unhealthy since"),
        ({"max_delta_unhealthy": 1}, "a", 5, ""),
        ({"max_delta_unhealthy": 1}, "a b", 5, "2 of 100 nodes are unhealthy since the rollout began"),
        ({}, "a:hard:x b:hard:y", 5, ""),
        ({}, "a:hard:x b:hard:x", 5, "a, b failed in the same way (x)"),
        ({}, "a:hard:x b:soft:x", 5, ""),
        ({"common_cause": 3}, "a:hard:x b:hard:x", 5, ""),
        ({"common_cause": 0}, "a:hard:x b:hard:x c:hard:x", 5, ""),
    ],
)
def test_budget_is_spent(policy, failed, went, words):
    found = limits.explain_spent_budget(
        limits.complete_policy({"failure_budget": 9, **policy}, 100), make_nodes(failed), went
    )
    assert words in found and bool(found) == bool(words)


def test_long_lists_of_names_are_cut():
    assert limits.list_names("abcdefg") == "a, b, c, d, e and 2 more"


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
