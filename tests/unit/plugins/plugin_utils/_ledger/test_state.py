# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import (
    changed,
    control,
    event,
    plan_event,
    reduce,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import TIME, grant


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
    assert state.judge_rollout(view, ended=True) == expected
    assert state.judge_rollout(view, ended=False) == "running"
    assert state.nothing_left(view) is (set(states) <= set(state.ENDED))


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
    assert state.is_unproven(reduce(changed(*steps, ended=ended)).nodes.get("a")) is expected


def test_a_node_that_was_put_back_stays_proven_when_it_is_tried_again_until_it_is_changed_again():
    story = changed("install", "rollback_validate", ended="rolled_back") + [control("retry", 31, node="a")]
    assert not state.is_unproven(reduce(story).nodes.get("a"))
    assert reduce(story + [plan_event("a", run="s")]).nodes.get("a").steps == []
    story += [grant("a", second=32), grant("a", "down", 33), event("step", "a", 34, step="install")]
    assert state.is_unproven(reduce(story).nodes.get("a"))


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
    assert state.find_resume_step(steps) == expected
