# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import MARK
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError
from tests.lab.kube.objects import node

GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
OTHER = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}


def taint(key="nvidia.com/gpu", value="present", effect="NoSchedule", state="present"):
    return {"key": key, "value": value, "effect": effect, "state": state}


@pytest.mark.parametrize(
    ("found", "wanted", "after"),
    [
        ([], [taint()], [GPU]),
        ([OTHER], [taint()], [OTHER, GPU]),
        ([GPU], [taint()], None),
        # The value of another owner stays, which pods may tolerate by it.
        ([dict(GPU, value="true"), OTHER], [taint()], None),
        ([{"key": GPU["key"], "effect": "NoSchedule"}], [taint()], None),
        ([GPU], [taint(value="")], None),
        ([dict(GPU, value="true")], [taint(state="absent")], None),
        ([GPU], [taint(state="absent", value="")], None),
        ([dict(GPU, effect="NoExecute")], [taint()], [dict(GPU, effect="NoExecute"), GPU]),
        ([GPU, OTHER], [taint(state="absent", effect="")], [OTHER]),
        ([GPU, dict(GPU, effect="NoExecute")], [taint(state="absent", effect="NoExecute")], [GPU]),
        ([GPU], [taint(state="absent")], []),
        ([OTHER], [taint(state="absent")], None),
        ([], [taint(value="")], [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]),
        ([GPU], [taint(state="absent"), taint("a", "b")], [{"key": "a", "value": "b", "effect": "NoSchedule"}]),
    ],
)
def test_taints(found, wanted, after):
    one = node(taints=found)
    body = change.patch(one, change.Change(taints=wanted))
    if after is None:
        assert body is None
    else:
        assert body["spec"] == {"taints": after or None}
        assert change.get_taints(change.applied(one, body)) == after


@pytest.mark.parametrize(
    ("found", "wanted", "number"),
    [
        ([GPU], taint(), 0),
        ([], taint(), 0),
        ([dict(GPU, value="true")], taint(), 1),
        ([dict(GPU, value="true")], taint(value=""), 1),
        ([dict(GPU, value="true")], taint(state="absent"), 0),
        ([dict(GPU, effect="NoExecute")], taint(), 0),
    ],
)
def test_taint_of_another_owner_is_named(found, wanted, number):
    assert len(change.find_foreign_taints(node(taints=found), change.Change(taints=[wanted]))) == number


def test_only_what_differs_is_written_and_the_version_goes_along():
    one = node(labels={"a": "1", "b": "2"}, annotations={"n": "1"}, version="41")
    body = change.patch(
        one, change.Change(labels={"a": "1", "b": None, "c": "3", "gone": None}, annotations={"n": "1"})
    )
    assert body == {"metadata": {"labels": {"b": None, "c": "3"}, "resourceVersion": "41"}}
    assert change.patch(one, change.Change(unschedulable=False)) is None
    assert change.patch(one, change.Change()) is None


@pytest.mark.parametrize(
    ("labels", "annotations", "taints", "word"),
    [
        ({"a b": "1"}, {}, [], "'a b'"),
        ({"a": "x" * 64}, {}, [], "at most 63"),
        ({"a": "-x"}, {}, [], "'-x'"),
        ({"/a": "1"}, {}, [], "DNS name"),
        ({"Bad_Prefix/a": "1"}, {}, [], "DNS name"),
        ({}, {MARK: "x"}, [], "use state"),
        ({}, {"": "x"}, [], "key ''"),
        ({}, {}, [taint(effect="")], "effect"),
        ({}, {}, [taint(key="a/")], "key 'a/'"),
        ({}, {}, [taint(value="a b")], "'a b'"),
    ],
)
def test_what_the_server_would_not_take_is_refused_before_it_is_asked(labels, annotations, taints, word):
    with pytest.raises(KubeError, match="Nothing was changed") as caught:
        change.wanted(labels, annotations, taints)
    assert word in str(caught.value)


def test_values_become_text_and_null_takes_away():
    found = change.wanted({"count": 8, "a": None}, {"n": "any text: allowed"}, [])
    assert found.labels == {"count": "8", "a": None} and found.annotations == {"n": "any text: allowed"}
