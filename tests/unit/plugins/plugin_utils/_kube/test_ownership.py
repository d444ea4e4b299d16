# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, operators, ownership
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import MARK
from tests.lab.kube.objects import node

PART, SKIP, PAUSED = operators.DEPLOY + "dcgm", operators.UPGRADE_SKIP, operators.PAUSED
OFF = operators.SENTINEL_MANAGED[0]
NOW = "2026-11-21T22:00:00Z"


def marked(token="r7", unschedulable=True, **more):
    text = dict(
        {"token": token, "since": NOW, "reason": "why", "unschedulable": False, "labels": {}, "earlier": None}, **more
    )
    return node(unschedulable=unschedulable, annotations={MARK: json.dumps(text)})


def placed(one, token="r7", labels=None):
    return change.applied(one, change.patch(one, ownership.place_marker(one, token, "why", NOW, labels)))


def lifted(one, token="r7"):
    return change.applied(one, change.patch(one, ownership.lift_marker(one, token)))


@pytest.mark.parametrize(
    ("token", "found", "ours"),
    [
        ("r7", "r7", True),
        ("r7", "r7:gpu-1", True),
        ("r7", "r7/gpu-1", True),
        ("r7", "r7 attempt 2", True),
        ("r7", "r70", False),
        ("r7", "r7-b", False),
        ("r7:gpu-1", "r7", False),
        ("r7", "", False),
        ("", "", False),
        ("", "r7", False),
    ],
)
def test_whose_token_it_is(token, found, ours):
    assert ownership.is_ours(token, found) is ours


@pytest.mark.parametrize(
    ("one", "owner", "token"),
    [
        (node(), "none", ""),
        (node(unschedulable=True), "operator", ""),
        (marked(), "ours", "r7"),
        (marked(unschedulable=False), "ours", "r7"),
        (marked("r8"), "operator", "r8"),
        (marked("r8", unschedulable=False), "operator", "r8"),
        (node(annotations={MARK: "by hand"}), "operator", ""),
        (node(annotations={MARK: "[1]"}), "operator", ""),
        (node(annotations={MARK: '{"token": "r7", "labels": 3, "earlier": 4}'}), "ours", "r7"),
    ],
)
def test_who_holds_a_node(one, owner, token):
    found = ownership.describe_owner(one, "r7")
    assert (found["owner"], found["token"]) == (owner, token)
    assert (found["previous"] is not None) == (owner == "ours")


@pytest.mark.parametrize(
    "one",
    [
        node(),
        node(unschedulable=True),
        marked("r8"),
        marked("r8", unschedulable=False),
        node(annotations={MARK: "by hand"}, unschedulable=True),
        node(labels={SKIP: "false", "b": "2"}, taints=[{"key": "x", "effect": "NoSchedule"}]),
    ],
)
def test_what_was_found_is_put_back(one):
    during = placed(one, labels={SKIP: "true", OFF: "false"})
    assert change.is_unschedulable(during) and ownership.describe_owner(during, "r7")["owner"] == "ours"
    assert change.get_labels(during)[SKIP] == "true" and change.get_labels(during)[OFF] == "false"
    after = lifted(during)
    assert (after["spec"], after["metadata"]) == (one["spec"], one["metadata"])


def test_mark_and_cordon_are_one_write():
    body = change.patch(node(), ownership.place_marker(node(), "r7", "why", NOW))
    assert body["spec"] == {"unschedulable": True}
    assert json.loads(body["metadata"]["annotations"][MARK])["unschedulable"] is False
    assert body["metadata"]["resourceVersion"] == "7"


def test_a_second_drain_changes_nothing():
    one = placed(node(), labels={SKIP: "true"})
    assert change.patch(one, ownership.place_marker(one, "r7", "why", "2027-01-01T00:00:00Z", {SKIP: "true"})) is None


def test_a_mark_of_ours_tells_the_last_reason():
    one = placed(node())
    again = change.applied(one, change.patch(one, ownership.place_marker(one, "r7", "quarantined", "later")))
    assert (
        ownership.describe_owner(again, "r7")["reason"] == "quarantined"
        and ownership.describe_owner(again, "r7")["since"] == NOW
    )
    assert change.patch(again, ownership.place_marker(again, "r7", "", "later")) is None


def test_labels_that_come_later_join_those_in_the_mark():
    one = placed(node(labels={PART: "true", SKIP: "false"}), labels={PART: PAUSED})
    one = change.applied(
        one, change.patch(one, ownership.hold_labels(one, ownership.find_ours(one, "r7"), {SKIP: "true"}))
    )
    assert change.get_labels(lifted(one)) == {PART: "true", SKIP: "false"}


def test_a_node_that_somebody_put_back_is_schedulable_afterwards():
    one = placed(node(unschedulable=True))
    one["spec"] = {}
    assert not change.is_unschedulable(lifted(placed(one)))


@pytest.mark.parametrize(
    "one", [node(), node(unschedulable=True), marked("r8"), marked("r70"), node(annotations={MARK: "by hand"})]
)
def test_what_is_not_ours_is_not_lifted(one):
    assert change.patch(one, ownership.lift_marker(one, "r7")) is None


def test_a_label_that_another_changed_meanwhile_stays():
    one = placed(node(labels={SKIP: "false"}), labels={SKIP: "true"})
    one["metadata"]["labels"][SKIP] = "2"
    assert change.get_labels(lifted(one)) == {SKIP: "2"}


RESTRICTED = "node-restriction.kubernetes.io/trusted"


@pytest.mark.parametrize(
    "labels",
    [
        {RESTRICTED: ["true", None]},
        {RESTRICTED: ["true", "false"]},
        {"node-role.kubernetes.io/control-plane": ["", None]},
        {"topology.kubernetes.io/zone": ["b", None]},
        {"example.com/pool": ["trusted", None]},
        {operators.DEPLOY + "driver": ["true", operators.PAUSED]},
        {operators.DEPLOY + "dcgm": ["true", None]},
        {operators.DEPLOY + "dcgm": ["yes", operators.PAUSED]},
        {operators.DEPLOY + "x/y": ["true", operators.PAUSED]},
        {operators.UPGRADE_SKIP: ["x y", "true"]},
        {operators.UPGRADE_SKIP: [["true"], "true"]},
        {operators.SENTINEL_MANAGED[0]: ["true", "true"]},
        {operators.SENTINEL_MANAGED[0]: {"0": "true"}},
    ],
    ids=str,
)
def test_label_of_a_forged_mark_is_neither_set_nor_kept(labels):
    """A kubelet may write annotations of its node, and no labels below node-restriction.kubernetes.io/."""
    values = {key: pair[1] for key, pair in labels.items() if isinstance(pair, list) and pair[1]}
    one = marked(labels=labels)
    one["metadata"]["labels"] = dict(values)
    assert ownership.lift_marker(one, "r7").labels == {}
    assert ownership.release_labels(one, "r7", operators.PAUSED).labels == {}
    assert ownership.describe_owner(one, "r7")["previous"]["labels"] == {}
    for key in labels:
        assert key not in ownership.place_marker(one, "r7", "why", NOW).annotations[MARK]


def test_labels_that_come_back_are_those_that_a_kubelet_may_set_itself():
    keys = (operators.DEPLOY + "dcgm", operators.UPGRADE_SKIP, *operators.SENTINEL_MANAGED)
    assert [key for key in keys if key.split("/")[0].endswith(("kubernetes.io", "k8s.io"))] == []
    labels = {
        operators.DEPLOY + "dcgm": ["true", operators.PAUSED],
        operators.UPGRADE_SKIP: [None, "true"],
        operators.SENTINEL_MANAGED[0]: ["true", "false"],
    }
    one = marked(labels=labels)
    one["metadata"]["labels"] = {key: pair[1] for key, pair in labels.items()}
    assert ownership.lift_marker(one, "r7").labels == {key: pair[0] for key, pair in labels.items()}


@pytest.mark.parametrize("token", ["r7\x1b[2K", "r7 \x9b", "r7\n"])
def test_mark_whose_token_steers_a_terminal_is_not_ours(token):
    assert ownership.read_marker(marked(token))["token"] == "" and ownership.find_ours(marked(token), "r7") is None
    assert "\x1b" not in ownership.read_marker(marked(reason="\x1b[2K", since="\x1b[2K"))["reason"]
