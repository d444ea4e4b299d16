# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, mark
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.words import MARK
from tests.lab.kube.objects import node

NOW = "2026-11-21T22:00:00Z"


def marked(token="r7", unschedulable=True, **more):
    text = dict(
        {"token": token, "since": NOW, "reason": "why", "unschedulable": False, "labels": {}, "earlier": None}, **more
    )
    return node(unschedulable=unschedulable, annotations={MARK: json.dumps(text)})


def placed(one, token="r7", labels=None):
    return change.applied(one, change.patch(one, mark.place(one, token, "why", NOW, labels)))


def lifted(one, token="r7"):
    return change.applied(one, change.patch(one, mark.lift(one, token)))


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
    assert mark.same(token, found) is ours


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
    found = mark.standing(one, "r7")
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
        node(labels={"a": "1", "b": "2"}, taints=[{"key": "x", "effect": "NoSchedule"}]),
    ],
)
def test_what_was_found_is_put_back(one):
    during = placed(one, labels={"a": "9", "c": "3"})
    assert change.unschedulable(during) and mark.standing(during, "r7")["owner"] == "ours"
    assert change.labels_of(during)["a"] == "9" and change.labels_of(during)["c"] == "3"
    after = lifted(during)
    assert (after["spec"], after["metadata"]) == (one["spec"], one["metadata"])


def test_mark_and_cordon_are_one_write():
    body = change.patch(node(), mark.place(node(), "r7", "why", NOW))
    assert body["spec"] == {"unschedulable": True}
    assert json.loads(body["metadata"]["annotations"][MARK])["unschedulable"] is False
    assert body["metadata"]["resourceVersion"] == "7"


def test_a_second_drain_changes_nothing():
    one = placed(node(), labels={"a": "1"})
    assert change.patch(one, mark.place(one, "r7", "why", "2027-01-01T00:00:00Z", {"a": "1"})) is None


def test_a_mark_of_ours_tells_the_last_reason():
    one = placed(node())
    again = change.applied(one, change.patch(one, mark.place(one, "r7", "quarantined", "later")))
    assert mark.standing(again, "r7")["reason"] == "quarantined" and mark.standing(again, "r7")["since"] == NOW
    assert change.patch(again, mark.place(again, "r7", "", "later")) is None


def test_labels_that_come_later_join_those_in_the_mark():
    one = placed(node(labels={"a": "0", "b": "0"}), labels={"a": "1"})
    one = change.applied(one, change.patch(one, mark.hold(one, mark.ours(one, "r7"), {"b": "1"})))
    assert change.labels_of(lifted(one)) == {"a": "0", "b": "0"}


def test_a_node_that_somebody_put_back_is_schedulable_afterwards():
    one = placed(node(unschedulable=True))
    one["spec"] = {}
    assert not change.unschedulable(lifted(placed(one)))


@pytest.mark.parametrize(
    "one", [node(), node(unschedulable=True), marked("r8"), marked("r70"), node(annotations={MARK: "by hand"})]
)
def test_what_is_not_ours_is_not_lifted(one):
    assert change.patch(one, mark.lift(one, "r7")) is None


def test_a_label_that_another_changed_meanwhile_stays():
    one = placed(node(labels={"a": "0"}), labels={"a": "1"})
    one["metadata"]["labels"]["a"] = "2"
    assert change.labels_of(lifted(one)) == {"a": "2"}
