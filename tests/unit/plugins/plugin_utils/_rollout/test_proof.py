# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the ledger requires for the final state of a node."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import proof
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import TIME

GOOD = {
    "schema": "gpufleet.health/1",
    "node": "a",
    "verdict": "pass",
    "phase": "post",
    "time": "2026-01-01T00:00:30Z",
    "sequence": 7,
    "driver": {"expected": "2.0"},
}
WAY = ("evidence", "drain", "stop", "install", "prove", "reboot", "validate")


def node(*steps, granted=0, name="a", to="2.0"):
    """Return a node whose steps have the numbers from 1, and the time of a clock that goes backwards."""
    made = [state.Step(step, TIME % (59 - number), sequence=number) for number, step in enumerate(steps, start=1)]
    return state.Node(
        name, "validating", from_version="1.0", to_version=to, steps=made, began=TIME % 59, granted=granted
    )


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
        {"sequence": 5},  # before the reboot, its sixth step
        {"sequence": None},
        {"sequence": True},
        {"sequence": "7"},
    ],
    ids=str,
)
def test_no_node_is_done_without_a_verdict_that_passed_after_its_last_change(changes):
    with pytest.raises(state.StateError, match="a cannot end as done: "):
        proof.require_end(node(*WAY), "done", {proof.DOCUMENT: dict(GOOD, **changes)})


@pytest.mark.parametrize("kernel, missing", [("k2", False), ("k1", True), (None, True)])
def test_no_node_is_done_on_another_kernel_than_the_planned_one(kernel, missing):
    changed = dataclasses.replace(node(*WAY), to_kernel="k2")
    documents = {proof.DOCUMENT: dict(GOOD, kernel=kernel)}
    if missing:
        with pytest.raises(state.StateError, match="kernel .* ran, and k2 is planned"):
            proof.require_end(changed, "done", documents)
    else:
        proof.require_end(changed, "done", documents)
    proof.require_end(changed, "rolled_back", documents)


@pytest.mark.parametrize(
    "documents",
    [{}, {proof.DOCUMENT: None}, {proof.DOCUMENT: {}}, {proof.DOCUMENT: "pass"}, {"health-before": GOOD}],
    ids=str,
)
@pytest.mark.parametrize("ended", state.PROVEN)
def test_no_node_is_done_or_put_back_without_a_verdict(ended, documents):
    with pytest.raises(state.StateError, match="there is no verdict on it"):
        proof.require_end(node(*WAY), ended, documents)


@pytest.mark.parametrize(
    "changes", [{}, {"phase": "soak"}, {"sequence": 6}, {"time": "1999-01-01T00:00:00Z"}, {"time": None}], ids=str
)
@pytest.mark.parametrize("to", ["2.0", "2.0-1", "1:2.0-1~bpo12+1"])
def test_a_node_that_passed_is_done(changes, to):
    proof.require_end(node(*WAY, to=to), "done", {proof.DOCUMENT: dict(GOOD, **changes)})


def test_a_node_that_was_put_back_passed_with_the_driver_it_had():
    steps = WAY + ("rollback_install", "rollback_reboot", "rollback_validate")
    old = dict(GOOD, driver={"expected": "1.0"}, sequence=10)
    proof.require_end(node(*steps), "rolled_back", {proof.DOCUMENT: old})
    with pytest.raises(state.StateError, match="step rollback_reboot began at"):
        proof.require_end(node(*steps), "rolled_back", {proof.DOCUMENT: dict(old, sequence=8)})


def test_verdict_of_an_earlier_attempt_is_no_proof():
    taken_up = node(*WAY, granted=40)
    proof.require_end(taken_up, "done", {proof.DOCUMENT: dict(GOOD, sequence=40)})
    with pytest.raises(state.StateError, match="the verdict has the number 39"):
        proof.require_end(taken_up, "done", {proof.DOCUMENT: dict(GOOD, sequence=39)})


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
                state.StateError, match="a cannot end as %s, which means that nothing was changed on it" % ended
            ):
                proof.require_end(node(*steps), ended, {})
        else:
            proof.require_end(node(*steps), ended, {})


HALVES = {"name": "halves", "config": {"version": "v1", "mig-configs": {"halves": [{"devices": "all"}]}}}
OTHER = dict(HALVES, config={"version": "v1", "mig-configs": {"halves": [{"devices": [0]}]}})
PEERS = {"gpus": {"2330": 8}}
NOT_GIVEN = {"version": "", "on_failure": "", "layout": None, "install": None, "kernel": None, "peers": None}


@pytest.mark.parametrize(
    "planned, policy, given, refused",
    [
        ({}, {}, {"version": "2.0"}, ""),
        ({}, {}, {"version": "3.0"}, "version"),
        ({}, {}, {"version": "2.0-1"}, "version"),
        ({}, {"on_failure": "rollback"}, {"on_failure": "rollback"}, ""),
        ({}, {"on_failure": "rollback"}, {}, ""),
        ({}, {"on_failure": "rollback"}, {"on_failure": "quarantine"}, "on_failure"),
        ({}, {"on_failure": "stop"}, {"on_failure": "rollback"}, "on_failure"),
        ({}, {}, {"on_failure": "stop"}, ""),
        ({"layout": HALVES, "install": False, "to_kernel": "k1", "peers": PEERS}, {}, {}, ""),  # none of them given
        ({"layout": HALVES}, {}, {"layout": dict(HALVES)}, ""),
        ({"layout": HALVES}, {}, {"layout": {}}, "layout"),
        ({"layout": HALVES}, {}, {"layout": OTHER}, "layout"),
        ({}, {}, {"layout": HALVES}, "layout"),
        ({}, {}, {"layout": {}}, ""),
        ({"install": True}, {}, {"install": True}, ""),
        ({"install": True}, {}, {"install": False}, "install"),
        ({"install": False}, {}, {"install": True}, "install"),
        ({"to_kernel": "k1"}, {}, {"kernel": "k1"}, ""),
        ({"to_kernel": "k1"}, {}, {"kernel": ""}, "kernel"),
        ({"to_kernel": ""}, {}, {"kernel": "k1"}, "kernel"),
        ({"to_kernel": ""}, {}, {"kernel": ""}, ""),
        ({"peers": PEERS}, {}, {"peers": {"gpus": {"2330": 8}}}, ""),
        ({"peers": PEERS}, {}, {"peers": {}}, "peers"),
        ({"peers": PEERS}, {}, {"peers": {"gpus": {"2330": 4}}}, "peers"),
        ({"peers": {}}, {}, {"peers": PEERS}, "peers"),
    ],
)
def test_step_refuses_another_change_than_the_plan(planned, policy, given, refused):
    one = dataclasses.replace(node(), **planned)
    if not refused:
        return proof.require_as_planned(one, policy, dict(NOT_GIVEN, **given))
    with pytest.raises(state.StateError, match="gpu_node_upgrade_%s of a is " % refused):
        proof.require_as_planned(one, policy, dict(NOT_GIVEN, **given))


BASELINE = {"audit": {"versions": {"loaded": "1.1", "package": "1.1-1"}}}


@pytest.mark.parametrize(
    "previous, baseline, is_refused",
    [
        ("1.0", None, False),
        ("1.0", BASELINE, False),
        ("1.1", BASELINE, False),
        ("1.1-1", BASELINE, False),
        ("", None, False),  # the driver stays
        ("1.1", None, True),
        ("2.0", BASELINE, True),
        ("1.1", {"audit": {"versions": {"loaded": None}}}, True),
    ],
)
def test_rollback_to_a_version_that_did_not_run_before_is_refused(previous, baseline, is_refused):
    one = dataclasses.replace(node(), from_version="1.0")
    if not is_refused:
        return proof.require_way_back(one, previous, baseline)
    with pytest.raises(state.StateError, match="a would be rolled back to driver %s" % previous):
        proof.require_way_back(one, previous, baseline)


LAID_OUT = {"layout": HALVES, "gpus": [{"gpu": "GPU-a", "status": "changed"}, {"gpu": "GPU-b", "status": "same"}]}
MADE = (*WAY[:-1], "mig", "validate")


@pytest.mark.parametrize(
    "steps, granted, made, why",
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
def test_no_node_is_done_without_the_mig_layout_of_the_plan(steps, granted, made, why):
    one = dataclasses.replace(node(*steps, granted=granted), layout=HALVES)
    assert why in proof.unlike_layout(one, made) and bool(why) == bool(proof.unlike_layout(one, made))
    good = dict(GOOD, sequence=9)
    documents = {proof.DOCUMENT: good, proof.LAYOUT_DOCUMENT: made}
    if why:
        with pytest.raises(state.StateError, match="a cannot end as done: .*MIG layout halves"):
            proof.require_end(one, "done", documents)
    else:
        proof.require_end(one, "done", documents)
    # One that goes back does not need it, and neither does one for which the plan wants none.
    proof.require_end(one, "rolled_back", {proof.DOCUMENT: good})
    proof.require_end(dataclasses.replace(one, layout={}), "done", {proof.DOCUMENT: good})


def left(name, last, ended, *steps):
    found = node(*(steps or WAY), name=name)
    found.steps[-1].sequence, found.state = last, ended
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
