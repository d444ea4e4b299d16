# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain that takes long: how often it asks, and what others do to the node in the meantime."""

from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.course import Course
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.pods import Policy
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.words import KubeError
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._kube.fake import FakeApi, budget
from tests.lab.kube.objects import node, pod

OPTIONS = {"operators": "pause", "lays_out": False, "reason": "why", "timeout_s": 60, "grace_period_s": None}
DEPLOY = {"nvidia.com/gpu.deploy.dcgm": "true"}
OPERAND = pod("dcgm", owner="DaemonSet", selector=DEPLOY)


def cluster(pods, answers=None, on_sleep=(), labels=None, grace=2):
    api = FakeApi(node(labels=labels), pods)
    for number, each in enumerate(api.there):
        each["metadata"]["uid"] = "uid-%d" % number
    api.answers, api.on_sleep, api.grace = dict(answers or {}), list(on_sleep), grace
    return api


def drain(api, **options):
    """The result, with the message of its failure when it fails."""
    course = Course(api, "gpu-1", "r7", False, api.clock, api.sleep)
    try:
        course.drain(dict(OPTIONS, **options), change.Change(), Policy())
    except KubeError as exc:
        return dict(course.answer(), msg=str(exc))
    return course.answer()


def after(seconds, act):
    """ACT(api) once, SECONDS after the drain began."""
    due = [act]
    return lambda api: due.pop()(api) if due and api.clock.now > 1000 + seconds else None


def test_a_pod_that_its_budget_keeps_is_asked_about_ever_more_rarely():
    api = cluster([pod("a", gpus=1)], {"a": [budget("train")]})
    asked = []
    evict = api.evict
    api.evict = lambda *args, **more: (asked.append(api.clock.now), evict(*args, **more))[-1]
    found = drain(api, timeout_s=600)
    gaps = [later - sooner for sooner, later in zip(asked, asked[1:])]
    assert len(gaps) > 20 and all(gap >= least for gap, least in zip(gaps, [1, 2, 4, 8] + [15] * len(gaps)))
    assert 600 <= found["waited_s"] < 601 and [each["reason"] for each in found["blockers"]] == ["disruption_budget"]


@pytest.mark.parametrize(
    "put_back",
    [
        lambda api: api.stored["spec"].pop("unschedulable"),
        lambda api: api.stored["metadata"]["annotations"].clear(),
        lambda api: api.stored["metadata"]["annotations"].update({"gpufleet.lifecycle/mark": '{"token":"r8"}'}),
    ],
)
def test_a_node_that_is_put_back_meanwhile_is_drained_no_further(put_back):
    api = cluster([pod("a", gpus=1), pod("b", gpus=1)], {"a": [budget("train")]}, [after(20, put_back)])
    found = drain(api)
    assert not found["drained"] and found["waited_s"] < 40 and "msg" in found
    assert (
        found["changed"] and [each["pod"] for each in found["evicted"]] == ["b"] and api.said.count("patch node") == 1
    )
    assert api.said[-1] == "get node", "nothing was evicted or written afterwards"


def test_a_node_that_is_put_back_while_its_last_pod_ends_is_not_drained():
    """The pod has gone with the same look that finds the node in service."""
    api = cluster(
        [pod("a", gpus=1)], grace=20, on_sleep=[after(20, lambda api: api.stored["spec"].pop("unschedulable"))]
    )
    found = drain(api)
    assert api.there == [] and not found["drained"] and "msg" in found


def test_a_node_that_is_put_back_while_the_operator_leaves_is_not_drained():
    api = cluster(
        [OPERAND],
        labels=DEPLOY,
        on_sleep=[
            after(5, lambda api: api.stored["spec"].pop("unschedulable")),
            after(5, lambda api: api.there.clear()),
        ],
    )
    found = drain(api)
    assert api.there == [] and not found["drained"] and "msg" in found


def test_what_others_write_meanwhile_is_no_part_of_the_diff():
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    api = cluster(
        [pod("a", gpus=1)],
        grace=25,
        on_sleep=[after(3, lambda api: api.stored["spec"].setdefault("taints", []).append(taint))],
    )
    found = drain(api)
    assert found["drained"] and api.stored["spec"]["taints"] == [taint]
    assert found["diff"]["before"]["taints"] == found["diff"]["after"]["taints"] == []


def test_a_cluster_that_does_not_answer_any_more_is_told_with_what_was_done():
    away = after(20, lambda api: setattr(api, "node", mock.Mock(side_effect=KubeError("it does not answer"))))
    found = drain(cluster([pod("a", gpus=1), pod("b", gpus=1)], {"a": [budget("train")]}, [away]))
    assert (
        found["msg"] == "it does not answer"
        and found["changed"]
        and [each["pod"] for each in found["evicted"]] == ["b"]
        and not found["drained"]
    )
