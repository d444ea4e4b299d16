# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the ledger requires for the final state of a node."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state, tickets
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import proof
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import TIME

GOOD = {
    "schema": "gpufleet.health/1",
    "node": "a",
    "verdict": "pass",
    "phase": "post",
    "time": "2026-01-01T00:00:30Z",
    "driver": {"expected": "2.0"},
}
WAY = ("evidence", "drain", "stop", "install", "prove", "reboot", "validate")


def node(*steps, began=0, name="a", to="2.0"):
    made = [state.Step(step, TIME % second) for second, step in enumerate(steps, start=1)]
    return state.Node(name, "validating", from_version="1.0", to_version=to, steps=made, began=TIME % began)


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "fail"},
        {"verdict": "unknown"},
        {"verdict": None},
        {"phase": "baseline"},
        {"phase": "adhoc"},
        {"phase": None},
        {"node": "b"},
        {"node": None},
        {"driver": {"expected": "1.0"}},
        {"driver": {"expected": None}},
        {"driver": None},
        {"time": "2026-01-01T00:00:05Z"},  # before the reboot, its sixth step
        {"time": None},
    ],
    ids=str,
)
def test_no_node_is_done_without_a_verdict_that_passed_after_its_last_change(changes):
    with pytest.raises(tickets.StateError, match="a cannot end as done: "):
        proof.require_end(node(*WAY), "done", {proof.DOCUMENT: dict(GOOD, **changes)})


@pytest.mark.parametrize(
    "documents",
    [{}, {proof.DOCUMENT: None}, {proof.DOCUMENT: {}}, {proof.DOCUMENT: "pass"}, {"health-before": GOOD}],
    ids=str,
)
@pytest.mark.parametrize("ended", state.PROVEN)
def test_no_node_is_done_or_put_back_without_a_verdict(ended, documents):
    with pytest.raises(tickets.StateError, match="there is no verdict on it"):
        proof.require_end(node(*WAY), ended, documents)


@pytest.mark.parametrize("changes", [{}, {"phase": "soak"}, {"time": "2026-01-01T00:00:06Z"}], ids=str)
@pytest.mark.parametrize("to", ["2.0", "2.0-1", "1:2.0-1~bpo12+1"])
def test_a_node_that_passed_is_done(changes, to):
    proof.require_end(node(*WAY, to=to), "done", {proof.DOCUMENT: dict(GOOD, **changes)})


def test_a_node_that_was_put_back_passed_with_the_driver_it_had():
    steps = WAY + ("rollback_install", "rollback_reboot", "rollback_validate")
    old = dict(GOOD, driver={"expected": "1.0"})
    proof.require_end(node(*steps), "rolled_back", {proof.DOCUMENT: old})
    with pytest.raises(tickets.StateError, match="step rollback_reboot began at"):
        proof.require_end(node(*steps), "rolled_back", {proof.DOCUMENT: dict(old, time="2026-01-01T00:00:08Z")})


def test_a_clock_of_an_earlier_controller_does_not_count():
    taken_up = node(*WAY, began=40)
    proof.require_end(taken_up, "done", {proof.DOCUMENT: dict(GOOD, time="2026-01-01T00:00:41Z")})
    with pytest.raises(tickets.StateError, match="the verdict is of 2026-01-01T00:00:39Z"):
        proof.require_end(taken_up, "done", {proof.DOCUMENT: dict(GOOD, time="2026-01-01T00:00:39Z")})


@pytest.mark.parametrize(
    "steps, refused",
    [
        ((), ()),
        (("evidence", "drain"), ()),
        (("evidence", "drain", "stop"), ("pending", "skipped")),
        (WAY[:4], ("failed", "pending", "skipped")),
        (WAY + ("return",), ("failed", "pending", "skipped")),
        (("stop", "install", "rollback_install"), ("failed", "pending", "skipped")),
    ],
)
def test_nothing_was_changed_is_refused_of_a_node_that_was(steps, refused):
    for ended in ("failed", "pending", "skipped", "quarantined", "lost"):
        if ended in refused:
            with pytest.raises(
                tickets.StateError, match="a cannot end as %s, which means that nothing was changed on it" % ended
            ):
                proof.require_end(node(*steps), ended, {})
        else:
            proof.require_end(node(*steps), ended, {})


@pytest.mark.parametrize("told, refused", [("2.0", False), ("", False), ("3.0", True), ("2.0-1", True)])
def test_the_plans_version_goes_before_the_roles(told, refused):
    if not refused:
        return proof.require_version(node(), told)
    with pytest.raises(tickets.StateError, match="of a is %s; expected 2.0" % told):
        return proof.require_version(node(), told)


@pytest.mark.parametrize(
    "planned, told, refused",
    [
        ("rollback", "rollback", False),
        ("rollback", "", False),
        ("rollback", "quarantine", True),
        ("stop", "rollback", True),
        (None, "stop", False),
    ],
)
def test_the_plans_reaction_to_a_failure_goes_before_the_roles(planned, told, refused):
    policy = {"on_failure": planned} if planned else {}
    if not refused:
        return proof.require_on_failure(node(), policy, told)
    with pytest.raises(tickets.StateError, match="of a is %s; expected %s" % (told, planned)):
        return proof.require_on_failure(node(), policy, told)


HALVES = {"name": "halves", "config": {"version": "v1", "mig-configs": {"halves": [{"devices": "all"}]}}}
OTHER = dict(HALVES, config={"version": "v1", "mig-configs": {"halves": [{"devices": [0]}]}})


@pytest.mark.parametrize(
    "planned, told, refused",
    [
        ({}, {}, ""),
        ({"layout": HALVES, "install": False, "to_kernel": "k1"}, {}, ""),  # a play that gives none of them
        ({"layout": HALVES}, {"layout": dict(HALVES)}, ""),
        ({"layout": HALVES}, {"layout": {}}, "layout"),
        ({"layout": HALVES}, {"layout": OTHER}, "layout"),
        ({}, {"layout": HALVES}, "layout"),
        ({}, {"layout": {}}, ""),
        ({"install": True}, {"install": True}, ""),
        ({"install": True}, {"install": False}, "install"),
        ({"install": False}, {"install": True}, "install"),
        ({"to_kernel": "k1"}, {"kernel": "k1"}, ""),
        ({"to_kernel": "k1"}, {"kernel": ""}, "kernel"),
        ({"to_kernel": ""}, {"kernel": "k1"}, "kernel"),
        ({"to_kernel": ""}, {"kernel": ""}, ""),
    ],
)
def test_the_plans_layout_installation_and_kernel_go_before_the_roles(planned, told, refused):
    one = dataclasses.replace(node(), **planned)
    if not refused:
        return proof.require_change(one, **told)
    with pytest.raises(tickets.StateError, match="gpu_node_upgrade_%s of a is " % refused):
        return proof.require_change(one, **told)


LAID_OUT = {"layout": HALVES, "gpus": [{"gpu": "GPU-a", "status": "changed"}, {"gpu": "GPU-b", "status": "same"}]}
MADE = (*WAY[:-1], "mig", "validate")


@pytest.mark.parametrize(
    "steps, began, made, why",
    [
        (MADE, 0, LAID_OUT, ""),
        (MADE, 7, LAID_OUT, ""),  # the step is of this attempt
        (MADE, 8, LAID_OUT, "no MIG layout was made in this attempt"),
        (WAY, 0, LAID_OUT, "no MIG layout was made in this attempt"),
        (MADE, 0, None, "no result"),
        (MADE, 0, {}, "no result"),
        (MADE, 0, "changed", "no result"),
        (MADE, 0, dict(LAID_OUT, layout={}), "no result"),
        (MADE, 0, dict(LAID_OUT, layout=OTHER), "of MIG layout halves"),
        (MADE, 0, dict(LAID_OUT, gpus=[]), "names no GPU"),
        (MADE, 0, dict(LAID_OUT, gpus=None), "names no GPU"),
        (MADE, 0, dict(LAID_OUT, gpus=[None]), "GPU unknown is unknown"),
        *(
            (MADE, 0, dict(LAID_OUT, gpus=[{"gpu": "GPU-b", "status": status}]), "GPU GPU-b is %s" % (status or "unkn"))
            for status in ("change", "reset_required", "refused", "failed", "pending", None)
        ),
    ],
)
def test_no_node_is_done_without_the_mig_layout_of_the_plan(steps, began, made, why):
    one = dataclasses.replace(node(*steps, began=began), layout=HALVES)
    assert why in proof.unlike_layout(one, made) and bool(why) == bool(proof.unlike_layout(one, made))
    documents = {proof.DOCUMENT: GOOD, proof.LAYOUT_DOCUMENT: made}
    if why:
        with pytest.raises(tickets.StateError, match="a cannot end as done: .*MIG layout halves"):
            proof.require_end(one, "done", documents)
    else:
        proof.require_end(one, "done", documents)
    # One that goes back does not need it, and neither does one for which the plan wants none.
    proof.require_end(one, "rolled_back", {proof.DOCUMENT: GOOD})
    proof.require_end(dataclasses.replace(one, layout={}), "done", {proof.DOCUMENT: GOOD})


def left(name, last, ended, *steps):
    found = node(*(steps or WAY), name=name)
    found.steps[-1].started, found.state = TIME % last, ended
    return found


@pytest.mark.parametrize(
    "mine, others, expected",
    [
        ([], [], {}),
        ([], [("x", left("a", 9, "lost"))], {"a": "x"}),
        ([], [("x", left("a", 9, "quarantined"))], {"a": "x"}),
        ([], [("x", left("a", 9, "done"))], {}),
        ([], [("x", left("a", 9, "lost", "evidence"))], {}),
        ([left("a", 20, "done", "install")], [("x", left("a", 9, "lost", "install"))], {}),
        ([left("a", 9, "done", "install")], [("x", left("a", 20, "lost", "install"))], {"a": "x"}),
        ([left("a", 9, "done", "install")], [("x", left("a", 20, "rolled_back", "install"))], {}),
        ([], [("x", left("a", 9, "lost", "install")), ("y", left("a", 20, "done", "install"))], {}),
        (
            [],
            [
                ("x", left("a", 9, "done", "install")),
                ("y", left("a", 20, "down", "install")),
                ("x", left("b", 5, "done")),
            ],
            {"a": "y"},
        ),
    ],
)
def test_who_changed_a_node_last_elsewhere_and_did_not_prove_it(mine, others, expected):
    assert proof.unproven_elsewhere({found.name: found for found in mine}, others) == expected
