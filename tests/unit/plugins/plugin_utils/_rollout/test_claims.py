# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes with a claim that a rollout may take."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import joining

pytestmark = pytest.mark.cores

FOUND = {
    "ledger": "l1",
    "rollout_id": "r1",
    "attempt": 2,
    "run": "a",
    "plan": "p",
    "controller": "ctl1",
    "state": "held",
    "time": "2026-01-31T12:00:00Z",
}


@pytest.mark.parametrize(
    "found, ledger_id, attempts, elsewhere, more, why, over",
    [
        (None, "l1", 0, None, {}, "", False),
        (None, None, 0, None, {}, "", False),
        # its own
        ({"rollout_id": "me"}, "l1", 2, None, {}, "", False),
        ({"rollout_id": "me"}, "l1", 5, None, {}, "", False),
        ({"rollout_id": "me"}, "l1", 1, None, {}, "attempt 2, and this ledger has 1", False),
        ({"rollout_id": "me"}, "l1", 1, None, {"abandoned": True}, "", True),
        # of the same name, in a ledger that was created again
        ({"rollout_id": "me"}, "l2", 2, None, {}, "in another ledger", False),
        ({"rollout_id": "me"}, None, 0, None, {}, "in another ledger", False),
        ({"rollout_id": "me"}, "l2", 0, None, {"abandoned": True}, "", True),
        # another one of the same ledger, which knows what became of the node there
        ({}, "l1", 0, "done", {}, "", True),
        ({}, "l1", 0, "rolled_back", {}, "", True),
        ({}, "l1", 0, "failed", {}, "", True),
        ({}, "l1", 0, "pending", {}, "", True),
        ({}, "l1", 0, "skipped", {}, "", True),
        (
            {},
            "l1",
            0,
            "down",
            {},
            "held by rollout r1 (attempt 2, begun on ctl1) since 2026-01-31T12:00:00Z, down there",
            False,
        ),
        ({}, "l1", 0, "draining", {}, "draining there", False),
        ({}, "l1", 0, "validating", {}, "validating there", False),
        ({}, "l1", 0, "soaking", {}, "soaking there", False),
        ({}, "l1", 0, "lost", {}, "lost there", False),
        ({"state": "quarantined"}, "l1", 0, "quarantined", {}, "quarantined by rollout r1", False),
        ({}, "l1", 0, None, {}, "held by rollout r1", False),
        ({}, "l1", 0, "lost", {"abandoned": True}, "", True),
        ({}, "l1", 0, "down", {"abandoned": True}, "", True),
        ({}, "l1", 0, "lost", {"undo": "r1"}, "", True),
        ({}, "l1", 0, "quarantined", {"undo": "r1"}, "", True),
        ({}, "l1", 0, "down", {"undo": "r1"}, "down there", False),
        ({}, "l1", 0, "lost", {"undo": "r5"}, "lost there", False),
        ({}, "l2", 0, "done", {}, "in another ledger", False),  # what this ledger has by that name is another rollout
        ({}, "l2", 0, "lost", {"undo": "r1"}, "in another ledger", False),
        ({}, None, 0, None, {}, "in another ledger", False),
        ({}, "l2", 0, None, {"abandoned": True}, "", True),
    ],
)
def test_whether_a_claim_admits_a_rollout(found, ledger_id, attempts, elsewhere, more, why, over):
    answer = joining.is_admitted(
        None if found is None else dict(FOUND, **found), ledger_id, "me", attempts, elsewhere, **more
    )
    assert ((why in answer.why) if why else answer.why == "") and answer.over == over, answer


@pytest.mark.parametrize(
    "ended, expected",
    [(name, {"quarantined": "quarantined", "lost": None}.get(name, "released")) for name in state.ENDED + ("pending",)],
)
def test_what_becomes_of_the_claim(ended, expected):
    assert joining.claim_after(ended) == expected


@pytest.mark.parametrize("name", state.IN_FLIGHT)
def test_a_node_in_flight_keeps_its_claim(name):
    assert joining.claim_after(name) is None


def test_the_refusal_names_nodes_holder_time_and_what_to_do():
    words = joining.describe_refusal({"b": "it is x", "a": "it is held since noon"}, {"a": FOUND, "b": FOUND})
    assert words.startswith("a cannot be taken: it is held since noon (so are b).") and "rollout_id=r1" in words
    assert "rollout_abandon=a,b" in words and words.endswith("Nothing was changed.")
