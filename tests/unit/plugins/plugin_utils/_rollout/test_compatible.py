# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions of the collection that go on with each other's rollouts, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import joining
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import PlanError
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import reduce
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import view_of


@pytest.mark.parametrize(
    ("planned", "here", "well"),
    [
        ("1.0.0", "1.0.0", True),
        ("1.0.0", "1.0.3", True),
        ("1.0.3", "1.0.0", True),
        ("1.0.0", "1.1.0", False),
        ("1.1.0", "1.0.0", False),
        ("1.1.0", "1.10.0", False),
        ("1.0.0", "2.0.0", False),
        # A pre-release goes with those of its major and minor number.
        ("1.0.0-rc1", "1.0.0-rc1", True),
        ("1.0.0-rc1", "1.0.0-rc2", True),
        ("1.0.0-rc1", "1.0.0", True),
        ("1.0.0", "1.0.0-rc1", True),
        ("1.0.3", "1.1.0-rc1", False),
        ("0.9.0", "1.0.0-rc1", False),
        ("1.0.0+local", "1.0.0-rc1+x", True),
        # The controller that planned could not read its version.
        ("", "1.0.0", True),
        ("", "", True),
        # What cannot be read goes with nothing, not even with its like.
        ("1.0.0", "", False),
        ("1.0.0", "1.0", False),
        ("1.0", "1.0.0", False),
        ("1.0", "1.0", False),
        ("main", "main", False),
        ("1.0.0\n", "1.0.0", False),
        ("01.0.0", "1.0.0", False),
        ("1.0.0", None, False),
    ],
)
def test_which_versions_go_together(planned, here, well):
    assert joining.go_together(planned, here) is well


def rollout(**change):
    return dataclasses.replace(view_of({"a1": "down"}), collection="1.0.0", **change)


@pytest.mark.parametrize("shared", [False, True])
def test_the_refusal_names_both_versions_the_rollout_and_what_to_do(shared):
    with pytest.raises(PlanError) as refused:
        joining.require_compatible(rollout(), "1.1.2", shared)
    for word in (
        "Rollout x ",
        "version 1.0.0 ",
        "version 1.1.2;",
        "gpufleet.lifecycle:==1.0.0 ",
        "Nothing was changed.",
    ):
        assert word in str(refused.value)
    assert ("rollout_verb=end" in str(refused.value)) is shared, (
        "rollout_control ends those of several controllers alone"
    )


def test_a_controller_that_does_not_know_its_version_is_told_where_it_would_be():
    with pytest.raises(PlanError) as refused:
        joining.require_compatible(rollout(), "", False)
    assert "MANIFEST.json" in str(refused.value) and "galaxy.yml" in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [{"run": None}, {"finished": "2026-01-01T00:00:00.000Z"}, {"collection": ""}, {"collection": "1.1.9"}],
    ids=str,
)
def test_nothing_is_gone_on_with_where_there_is_no_run_or_it_has_ended(change):
    joining.require_compatible(dataclasses.replace(rollout(), **change), "1.1.2", True)


PLAN = {
    "event": "plan",
    "run": "r",
    "time": "t",
    "rollout_id": "x",
    "target": "2.0",
    "sha256": "f",
    "order": [],
    "policy": {"max_down": 1},
    "nodes": {},
}


@pytest.mark.parametrize(
    ("told", "kept"),
    [([{"collection": "1.0.0"}], "1.0.0"), ([{}], ""), ([{"collection": "1.0.0"}, {"collection": None}], "")],
)
def test_the_version_is_that_of_the_last_plan(told, kept):
    assert reduce([dict(PLAN, **fields) for fields in told]).collection == kept


@pytest.mark.parametrize(
    ("planned", "inventory", "fails"),
    [
        ("ab", ["c"], True),
        ("ab", [], True),
        ("ab", ["b", "c"], False),
        ("ab", ["a", "b"], False),
        ("ab", None, False),
        ("", ["c"], False),
    ],
)
def test_plan_of_another_inventory_is_refused(planned, inventory, fails):
    view = state.Rollout(rollout_id="r1", run="r", nodes=state.Nodes(state.Node(name) for name in planned))
    with pytest.raises(PlanError, match="r1") if fails else contextlib.nullcontext():
        joining.refuse_other_inventory(view, inventory)
