# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain that takes long: how often it asks, and what others do to the node in the meantime."""

from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import gpus
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import Change
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import Away, KubeError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.drain import Drain
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.pods import Policy
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._kube.fake import (
    OPTIONS,
    FakeApi,
    budget,
    drain_node,
    open_session,
    refusal,
    resume_node,
)
from tests.lab.kube.objects import gpu_status, node, pod

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
    work = open_session(api)
    try:
        return drain_node(work, **options)
    except KubeError as exc:
        return dict(work.answer(), msg=str(exc))


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


def away(
    api, since, until, names=("node", "pods", "patch_node", "evict", "is_allowed", "discover_eviction"), error=None
):
    """Have the requests fail from SINCE to UNTIL, in seconds after the beginning."""

    def wrapped(request):
        def ask(*words, **more):
            if 1000 + since <= api.clock.now < 1000 + until:
                raise error or Away("refused")
            return request(*words, **more)

        return ask

    for name in names:
        setattr(api, name, wrapped(getattr(api, name)))
    return api


@pytest.mark.parametrize("error", [None, *map(refusal, (401, 408, 429, 500, 502, 503, 504))])
def test_drain_outlives_a_server_that_is_away(error):
    api = away(
        cluster([pod("a", gpus=1), OPERAND], {"a": [budget("train")] * 4 + [None]}, labels=DEPLOY), 1, 50, error=error
    )
    api.on_sleep = [lambda each: each.clock.now > 1060 and each.there.clear()]
    found = drain(api, timeout_s=120)
    assert found["drained"] and "msg" not in found and 50 < found["waited_s"] < 100


def test_server_that_stays_away_ends_the_drain_at_its_timeout():
    found = drain(away(cluster([pod("a", gpus=1)], {"a": [budget("train")]}), 5, 9999), timeout_s=120)
    assert not found["drained"] and "msg" in found and 120 <= found["waited_s"] < 135


@pytest.mark.parametrize("timeout_s", [0, 120])
def test_server_that_is_away_at_first_ends_the_drain_at_its_timeout(timeout_s):
    api = away(cluster([pod("a", gpus=1)]), 0, 9999)
    found = drain(api, timeout_s=timeout_s)
    assert "msg" in found and not found["changed"] and timeout_s <= api.clock.now - 1000 < timeout_s + 15


@pytest.mark.parametrize("state", ["drained", "cordoned", "resumed"])
def test_server_that_is_away_at_first_is_waited_for(state):
    api = away(cluster([]), 0, 40)
    work = open_session(api)
    if state == "resumed":
        resume_node(work)
    else:
        run = Drain(work, OPTIONS, Change(), Policy())
        run.run() if state == "drained" else run.cordon()
    assert work.answer()["state"] == ("schedulable" if state == "resumed" else "unschedulable")
    assert 40 <= api.clock.now - 1000 < 60


@pytest.mark.parametrize("ask", [lambda work: work.read_pods(Policy()), lambda work: work.bring(Change())])
def test_reading_without_a_timeout_fails_at_once(ask):
    api = away(cluster([]), 0, 40)
    with pytest.raises(Away):
        ask(open_session(api))
    assert api.clock.now == 1000


@pytest.mark.parametrize("error", [KubeError("no such node"), refusal(401)])
def test_refusal_at_first_is_not_waited_for(error):
    api = away(cluster([]), 0, 40, error=error)
    assert "msg" in drain(api) and api.clock.now == 1000


def test_credentials_that_stay_refused_end_the_drain_at_its_timeout():
    api = away(cluster([pod("a", gpus=1)], {"a": [budget("train")]}), 5, 9999, error=refusal(401))
    found = drain(api, timeout_s=120)
    assert not found["drained"] and "401" in found["msg"] and 120 <= found["waited_s"] < 135


@pytest.mark.parametrize("error", [None, refusal(401), refusal(408)])
def test_eviction_without_an_answer_is_tried_again(error):
    api = away(cluster([pod("a", gpus=1), pod("b", gpus=1)]), 0, 20, names=["evict"], error=error)
    found = drain(api)
    assert found["drained"] and sorted(each["pod"] for each in found["evicted"]) == ["a", "b"]


def test_resume_outlives_a_server_that_is_away():
    api = cluster([])
    drain(api)
    work = open_session(away(api, 5, 60))
    api.stored["status"] = gpu_status(7)
    api.on_sleep = [after(90, lambda each: each.stored.update(status=gpu_status(8)))]
    assert resume_node(work, want=gpus.Want(8, timeout_s=300))["mark"]["owner"] == "none"


WEBHOOK = 'admission webhook "evictions.example.org" denied the request: come again'
POLICY = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"


@pytest.mark.parametrize(
    "answer",
    [refusal(code, WEBHOOK) for code in (400, 403, 404, 409, 422, 500)]
    + [refusal(403, POLICY), refusal(422, POLICY), refusal(403, 'pods "a" is forbidden: kept by a plugin')],
)
def test_denial_of_an_admission_webhook_keeps_that_pod_alone(answer):
    api = cluster([pod("a", gpus=1), pod("b", gpus=1)], {"a": [answer]})
    found = drain(api)
    assert [each["pod"] for each in found["evicted"]] == ["b"] and not found["drained"]
    assert [(each["pod"], each["reason"]) for each in found["blockers"]] == [("a", "denied")]
    api.answers["a"] = [answer, None]
    assert drain(api)["drained"]


@pytest.mark.parametrize("answer", [refusal(403, "cannot create resource"), refusal(400), refusal(422)])
def test_refusal_that_is_no_pods_ends_the_drain(answer):
    api = cluster([pod("a", gpus=1)], {"a": [answer]}, [])
    allowed = api.is_allowed
    api.is_allowed = lambda attributes: allowed(attributes) and not api.evictions()
    found = drain(api)
    assert "msg" in found and found["blockers"] == [] and found["waited_s"] == 0
