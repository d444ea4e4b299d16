# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a plan for driver packages, and the proof of what it left: pure functions of data."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import package_act, transaction
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import DEBIAN
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_plan import Plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_state import State, Wish
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_task import find_shortfall

KEYS = {
    "resolvable",
    "reason",
    "resolved",
    "transaction",
    "refusals",
    "disk",
    "download_bytes",
    "gpus",
    "flavour_reason",
    "unkept",
    "actions",
    "repaired",
}
REFUSAL = {"id": "disk", "message": "It is full.", "next_step": "free it"}
CHANGE = dict(
    transaction.make_empty(),
    install=[{"name": "b", "version": "1"}],
    upgrade=[{"name": "libcuda1", "version": "2", "from": "1"}],
    remove=[{"name": "nvidia-smi", "version": "1"}],
)
RESOLVED = {"packages": {"libcuda1": "2"}, "resolvable": True, "refusals": []}


def have(version="2", hold=False, **facts):
    known = {"installed": True, "ok": True, "hold": hold, "version": version, "source": "nvidia-graphics-drivers"}
    return dict(known, **facts)


def plan(state="present", facts=None, hold=None, **parts):
    parts.setdefault("resolved", None if state == "absent" else RESOLVED)
    known = dict({"table": DEBIAN}, **facts or {})
    return Plan(State("apt", **known), Wish(state=state, version="2", hold=hold), **parts)


# whether anything is done


@pytest.mark.parametrize(
    "state,facts,parts,expected",
    [
        ("present", {}, {}, False),
        ("present", {"journal": ("1",)}, {}, True),
        ("present", {"broken": ("a",)}, {}, True),
        ("present", {}, {"transaction": dict(transaction.make_empty(), remove=[{"name": "a"}])}, True),
        ("present", {}, {"transaction": dict(transaction.make_empty(), streams={"m": (None, "1")})}, True),
        ("present", {}, {"hold": ("a",)}, True),
        ("present", {}, {"lift": ("a",)}, True),
        ("present", {}, {"held": ("a",)}, False),
        ("present", {}, {"files": (("/p", None),)}, True),
        ("present", {}, {"keep": {"a": "1"}}, True),
        ("present", {}, {"keep_new": {"a": "1"}}, True),
        ("present", {}, {"download_bytes": 5}, False),
        ("downloaded", {}, {"download_bytes": 5}, True),
        ("downloaded", {}, {"keep": {"a": "1"}}, True),
        ("downloaded", {}, {"keep_new": {"a": "1"}}, True),
        ("downloaded", {"broken": ("a",)}, {}, False),
        ("downloaded", {}, {}, False),
        ("absent", {}, {}, False),
        ("resolved", {"broken": ("a",)}, {"download_bytes": 5, "hold": ("a",)}, False),
    ],
)
def test_whether_a_plan_changes_the_node(state, facts, parts, expected):
    assert Plan(State("apt", **facts), Wish(state=state), **parts).changes is expected


# the proof


@pytest.mark.parametrize(
    "made,installed,left,found",
    [
        (plan(), {"libcuda1": have()}, {}, None),
        (plan(), {}, {}, "libcuda1 absent (expected 2)"),
        (plan(), {"libcuda1": have("1")}, {}, "libcuda1 1 (expected 2)"),
        (plan(), {"libcuda1": have(ok=False, status="iF")}, {}, "libcuda1 2 (iF) (expected 2)"),
        (plan(), {"libcuda1": have(installed=False)}, {}, "libcuda1 absent (expected 2)"),
        (plan(hold=True), {"libcuda1": have(hold=True)}, {}, None),
        (plan(hold=True), {"libcuda1": have()}, {}, "libcuda1"),
        (plan(hold=False), {"libcuda1": have(hold=True)}, {}, "libcuda1"),
        (plan(hold=False), {"libcuda1": have()}, {}, None),
        (plan("downloaded"), {}, {}, None),
        (plan("downloaded"), {}, {"b.deb": 1, "a.deb": 1}, "a.deb, b.deb"),
        (plan("absent"), {"bash": have(source="bash")}, {}, None),
        (plan("absent"), {"libcuda1": have()}, {}, "libcuda1"),
        (plan("resolved"), {}, {"a.deb": 1}, None),
    ],
)
def test_what_a_change_left_is_not_believed(made, installed, left, found):
    wrong = find_shortfall(made, installed, left)
    assert wrong is None if found is None else found in wrong


# sentences


@pytest.mark.parametrize(
    "made,expected",
    [
        (plan(), 0),
        (plan(keep={"a": "1"}), 1),
        (plan(facts={"journal": ("1",)}), 1),
        (plan(facts={"broken": ("a",)}), 1),
        (plan(transaction=CHANGE), 3),
        (plan(hold=True), 0),
        (plan(files=(("/p", None), ("/q", "x"))), 2),
        (plan("downloaded", download_bytes=1), 1),
        (plan("downloaded", transaction=CHANGE, facts={"broken": ("a",)}), 0),
        (plan("downloaded", keep={"a": "1"}, download_bytes=1), 2),
        (plan("resolved", transaction=CHANGE), 3),
    ],
)
def test_how_many_things_a_plan_foresees(made, expected):
    assert len(package_act.foresee_actions(made)) == expected


def test_holds_that_are_set_and_lifted_are_told_by_name():
    held = Plan(State("apt"), Wish(), hold=("b", "a"), lift=("c",))
    assert package_act.foresee_actions(held) == ["hold a, b", "lift the hold of c"]


# the result


@pytest.mark.parametrize(
    "made,resolvable",
    [
        (Plan(State("apt"), Wish(), (REFUSAL,)), None),
        (plan(), True),
        (plan(resolved={"packages": {}, "resolvable": False, "refusals": [REFUSAL]}, refusals=(REFUSAL,)), False),
    ],
)
def test_every_way_out_has_the_same_keys(made, resolvable):
    found = package_act.make_answer(made, ["did"], True, ("a",))
    assert set(found) == KEYS and found["resolvable"] is resolvable
    assert (found["actions"], found["unkept"], found["repaired"]) == (["did"], ["a"], True)
    assert found["refusals"] == list(made.refusals) and found["gpus"] == []
    assert found["reason"] == ("It is full." if resolvable is False else "")


def test_a_refusal_says_whether_anything_was_done():
    made = plan(refusals=(REFUSAL, REFUSAL))
    for done, begin in (([], "Nothing was changed. "), (["finished"], "Only an interrupted dpkg run was finished. ")):
        text = package_act.refusal_text(made, done)
        assert text == begin + "It is full. Next step: free it. It is full. Next step: free it."


def test_the_difference():
    before = {"libcuda1": have("1"), "nvidia-smi": have("1"), "bash": have("5", source="bash")}
    facts = {"installed": before, "texts": {"/p": "old"}}
    found = package_act.make_diff(plan(facts=facts, transaction=CHANGE, files=(("/p", None), ("/q", "new"))))
    assert [item["before_header"] for item in found] == ["driver packages", "/p", "/q"]
    assert [(item["before"], item["after"]) for item in found] == [
        ("libcuda1 1\nnvidia-smi 1\n", "b 1\nlibcuda1 2\n"),
        ("old", ""),
        ("", "new"),
    ]


@pytest.mark.parametrize("state", ["resolved", "downloaded"])
def test_what_installs_nothing_has_no_difference(state):
    assert package_act.make_diff(plan(state, transaction=CHANGE)) == []
