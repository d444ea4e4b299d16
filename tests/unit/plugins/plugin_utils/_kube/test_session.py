# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, operators, ownership
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError, Refused
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.drain import Drain
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.pods import Policy
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.session import CONFLICTS
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._kube.fake import (
    OPTIONS,
    FakeApi,
    budget,
    drain_node,
    open_session,
    refusal,
    resume_node,
)
from tests.lab.kube.objects import node, pod


def drain(api, check=False, **options):
    return drain_node(open_session(api, check=check), **options)


def fails(api, kind=KubeError, check=False, **options):
    work = open_session(api, check=check)
    with pytest.raises(kind) as caught:
        drain_node(work, **options)
    return str(caught.value), work.answer()


def test_a_drain_cordons_first_and_looks_again():
    api = FakeApi(node(), [pod("a", gpus=1), pod("b")])
    found = drain(api)
    assert found["drained"] and found["changed"] and [each["pod"] for each in found["evicted"]] == ["a"]
    assert found["mark"]["owner"] == "ours" and found["unschedulable"]
    assert api.said.index("patch node") < api.said.index("evict a")
    assert api.said[-1] == "list pods" and [each["metadata"]["name"] for each in api.there] == ["b"]
    assert found["requests"] == api.requests


def test_a_cordon_evicts_nothing_and_is_never_refused_for_what_runs_there():
    labels = {"nvidia.com/gpu-driver-upgrade-state": "cordon-required"}
    api = FakeApi(node(labels=labels), [pod("a", gpus=1), pod("b", gpus=1, owner=None)])
    one = open_session(api)
    Drain(one, OPTIONS, change.Change(), Policy()).cordon()
    found = one.answer()
    assert (
        api.said == ["get node", "list pods", "patch node"]
        and api.evictions() == []
        and found["changed"]
        and not found["drained"]
    )
    assert found["mark"]["owner"] == "ours" and found["unschedulable"] and found["state"] == "unschedulable"
    assert [(each["pod"], each["reason"]) for each in found["blockers"]] == [("b", "unmanaged"), ("a", "running")]
    assert api.stored["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade.skip"] == "true"
    one = open_session(api)
    resume_node(one)
    assert api.stored["metadata"]["labels"] == labels and not one.answer()["unschedulable"]


def test_a_node_that_is_empty_is_drained_by_a_cordon():
    one = open_session(FakeApi(node(), [pod("a")]))
    Drain(one, OPTIONS, change.Change(), Policy()).cordon()
    assert one.answer()["drained"]


def test_how_long_it_took_is_told():
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.answers["a"] = [budget("train")]
    text, found = fails(api)
    assert 60 <= found["waited_s"] < 75


def test_why_it_was_in_vain_stands_apart_from_as_what_the_node_is_left():
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.answers["a"] = [budget("train")]
    with pytest.raises(KubeError) as caught:
        drain(api)
    why = caught.value.why
    assert (
        "default/a" in why and "cordoned" not in why and str(caught.value).startswith(why + " The node stays cordoned")
    )


def test_a_second_drain_changes_nothing():
    api = FakeApi(node())
    drain(api)
    again = drain(api)
    assert again["drained"] and not again["changed"] and again["diff"]["before"] == again["diff"]["after"]


def test_holders_are_gone_before_others_are_touched():
    api = FakeApi(node(), [pod("a"), pod("z", gpus=1)])
    there = []
    api.on_sleep = [
        lambda each: there.append((sorted(pod["metadata"]["name"] for pod in each.there), each.evictions()))
    ]
    assert drain(api, policy=Policy(scope="all"))["drained"]
    assert api.evictions() == ["z", "a"]
    assert all("a" not in evicted for names, evicted in there if "z" in names)


def test_a_budget_that_gives_way_is_waited_for():
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.answers["a"] = [budget("train"), budget("train"), None]
    found = drain(api)
    assert found["drained"] and found["blockers"] == [] and api.evictions() == ["a", "a", "a"]


def test_a_budget_that_never_gives_way_is_named_and_the_node_stays_ours():
    api = FakeApi(node(), [pod("a", gpus=1), pod("b", gpus=1)])
    api.answers["a"] = [budget("train")]
    text, found = fails(api)
    assert (
        "train" in text
        and "default/a" in text
        and "default/b" not in text
        and "60 s" in text
        and "state=resumed" in text
        and "token=r7" in text
    )
    assert not found["drained"] and found["mark"]["owner"] == "ours"
    assert [(each["pod"], each["reason"], each["budget"]) for each in found["blockers"]] == [
        ("a", "disruption_budget", "train")
    ]
    # Not hammered: the waits grow.
    assert 4 <= api.evictions().count("a") <= 9


def test_the_server_says_when_to_come_again():
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.answers["a"] = [budget("train", after=12)]
    fails(api)
    assert api.evictions().count("a") <= 6


def test_a_server_that_is_busy_is_no_budget():
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.answers["a"] = [refusal(429, "too many requests, please try again later")]
    dummy, found = fails(api)
    assert [(each["reason"], each["budget"]) for each in found["blockers"]] == [("busy_server", "")]


def test_two_budgets_on_one_pod():
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.answers["a"] = [
        refusal(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    ]
    text, found = fails(api)
    assert "more than one PodDisruptionBudget" in text and found["blockers"][0]["reason"] == "server_error"


@pytest.mark.parametrize(
    "answer", [refusal(404), refusal(409, "uid"), refusal(403, "namespace", [("NamespaceTerminating", "it ends")])]
)
def test_a_pod_that_is_gone_is_not_held_against_the_drain(answer):
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.answers["a"] = [answer]
    api.on_sleep = [lambda each: each.there.clear()]
    found = drain(api)
    assert found["drained"] and found["evicted"] == []


def test_an_eviction_that_is_forbidden_ends_it():
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.answers["a"] = [refusal(403, "may not")]
    text, found = fails(api)
    assert "may not" in text and found["changed"] and not found["drained"]


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod():
    api = FakeApi(node(), [pod("a", gpus=1, uid="one")])

    def come_back(each):
        if not each.there and len(each.evictions()) == 1:
            each.there.append(pod("a", gpus=1, uid="two"))

    api.on_sleep = [come_back]
    found = drain(api)
    assert found["drained"] and [each["uid"] for each in found["evicted"]] == ["one", "two"]


def test_pods_that_do_not_end_are_named_with_what_holds_them():
    api = FakeApi(
        node(),
        [
            pod("a", gpus=1, deleted="2026-11-21T20:00:00Z", finalizers=["example.org/keep"]),
            pod("b", gpus=1, owner=None, deleted="2026-11-21T20:00:00Z"),
        ],
    )
    text, found = fails(api)
    assert "example.org/keep" in text and "2026-11-21T20:00:00Z" in text and "kubelet" in text
    assert [each["reason"] for each in found["blockers"]] == ["terminating", "terminating"] and api.evictions() == []


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (pod("a", gpus=1, owner=None), "unmanaged"),
        (pod("a", gpus=1, volumes=[{"name": "x", "emptyDir": {}}]), "emptydir"),
    ],
)
def test_what_the_policy_forbids_is_said_before_anything_is_changed(one, reason):
    api = FakeApi(node(), [one, pod("b", gpus=1)])
    text, found = fails(api, Refused)
    assert (
        "default/a" in text
        and "Nothing was changed" in text
        and [each["reason"] for each in found["blockers"]] == [reason]
    )
    assert api.stored == node() and api.evictions() == [] and not found["changed"] and found["mark"]["owner"] == "none"


def test_a_pod_that_comes_between_looking_and_cordoning_is_judged_too():
    api = FakeApi(node(), [pod("b", gpus=1)])
    api.on_sleep = [lambda each: each.there.append(pod("late", gpus=1, owner=None))]
    text, found = fails(api, Refused)
    assert "default/late" in text and "stays cordoned under our mark" in text and found["mark"]["owner"] == "ours"


def test_daemonset_and_mirror_pods_are_never_touched():
    api = FakeApi(
        node(),
        [
            pod("d", gpus=1, owner="DaemonSet"),
            pod("m", gpus=1, owner="Node", annotations={"kubernetes.io/config.mirror": "x"}),
        ],
    )
    found = drain(api, policy=Policy("all", "leave", "evict", "evict"))
    assert found["drained"] and [(each["pod"], each["reason"]) for each in found["left"]] == [
        ("d", "daemonset"),
        ("m", "mirror"),
    ]
    assert api.evictions() == []


@pytest.mark.parametrize(
    ("denied", "word"), [(("patch", "nodes"), "patch nodes"), (("create", "pods"), "create pods/eviction")]
)
def test_a_missing_permission_is_named_before_the_node_is_cordoned(denied, word):
    api = FakeApi(node(), [pod("a", gpus=1)])
    api.denied = {denied}
    text, found = fails(api, Refused)
    assert word in text and "rbac.yml" in text and api.stored == node() and not found["changed"]


def test_somebody_else_writes_at_the_same_time():
    api = FakeApi(node(labels={"a": "1"}), [])
    api.races = [
        lambda one: one["metadata"]["labels"].update(a="2"),
        lambda one: one["spec"].update(unschedulable=True),
    ]
    found = drain(api, wanted=change.Change(labels={"b": "1"}))
    assert api.stored["metadata"]["labels"] == {"a": "2", "b": "1"}
    # The operator's cordon came between: it is found, is no part of our diff, and stays when ours is lifted.
    assert found["diff"]["before"]["unschedulable"] is True
    assert found["mark"]["previous"]["unschedulable"] is True
    resume_node(open_session(api))
    assert api.stored["spec"] == {"unschedulable": True} and ownership.read_marker(api.stored) is None


def test_somebody_else_writes_all_the_time():
    api = FakeApi(node())
    api.races = [lambda one: None] * (CONFLICTS + 1)
    text, found = fails(api)
    assert "%d times" % CONFLICTS in text and not found["changed"] and "unschedulable" not in api.stored["spec"]


@pytest.mark.parametrize(
    "owner",
    [node(unschedulable=True), node(annotations={"gpufleet.lifecycle/mark": '{"token":"r8"}'}, unschedulable=True)],
)
def test_what_was_there_before_stays(owner):
    api = FakeApi(owner)
    assert drain(api)["mark"]["owner"] == "ours"
    one = open_session(api)
    resume_node(one)
    assert one.answer()["mark"]["owner"] == "operator" and one.answer()["changed"]
    assert (api.stored["spec"], api.stored["metadata"]["annotations"]) == (
        owner["spec"],
        owner["metadata"]["annotations"],
    )


def test_a_resume_lifts_nothing_of_another():
    api = FakeApi(node(unschedulable=True, annotations={"gpufleet.lifecycle/mark": '{"token":"r8"}'}))
    one = open_session(api)
    resume_node(one)
    assert not one.answer()["changed"] and api.said == ["get node"] and one.answer()["mark"]["token"] == "r8"


def test_check_mode_says_what_would_happen_and_does_nothing():
    api = FakeApi(node(), [pod("a", gpus=1), pod("b", gpus=1)])
    api.answers["b"] = [budget("train")]
    found = drain(api, check=True)
    assert api.stored == node() and "patch node" not in api.said and api.evictions() == ["a dry", "b dry"]
    assert found["changed"] and not found["drained"] and [each["pod"] for each in found["evicted"]] == ["a"]
    assert [each["budget"] for each in found["blockers"]] == ["train"]
    assert (
        found["mark"]["owner"] == "ours"
        and found["diff"]["after"]["unschedulable"]
        and not found["diff"]["before"]["unschedulable"]
    )
    api.answers.clear()
    assert drain(api, check=True)["drained"]


def test_check_mode_refuses_what_would_be_refused():
    fails(FakeApi(node(), [pod("a", gpus=1, owner=None)]), Refused, check=True)


DEPLOY = {
    "nvidia.com/gpu.deploy.driver": "pre-installed",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
    "nvsentinel.dgxc.nvidia.com/managed": "true",
}
OPERAND = pod("dcgm", owner="DaemonSet", selector={"nvidia.com/gpu.deploy.dcgm": "true"})


def test_operators_are_paused_and_resumed():
    api = FakeApi(node(labels=DEPLOY), [pod("a", gpus=1), OPERAND])

    def daemonset_controller(each):
        if each.stored["metadata"]["labels"]["nvidia.com/gpu.deploy.dcgm"] != "true":
            assert "a" not in [one["metadata"]["name"] for one in each.there], "the parts go when the work is gone"
            each.there = [one for one in each.there if one["metadata"]["name"] != "dcgm"]

    api.on_sleep = [daemonset_controller]
    found = drain(api)
    labels = api.stored["metadata"]["labels"]
    assert found["drained"] and found["operators"] == ["GPU Operator", "NVSentinel"] and api.there == []
    assert (
        labels["nvidia.com/gpu.deploy.dcgm"] == operators.PAUSED
        and labels["nvidia.com/gpu.deploy.driver"] == "pre-installed"
    )
    assert (
        labels["nvidia.com/gpu-driver-upgrade.skip"] == "true"
        and labels["nvsentinel.dgxc.nvidia.com/managed"] == "false"
    )
    assert drain(api)["changed"] is False
    one = open_session(api)
    resume_node(one)
    assert api.stored["metadata"]["labels"] == DEPLOY and api.stored["metadata"]["annotations"] == {}


def test_parts_that_do_not_go_fail_the_drain():
    api = FakeApi(node(labels=DEPLOY), [OPERAND])
    text, found = fails(api)
    assert (
        "default/dcgm" in text
        and not found["drained"]
        and [each["reason"] for each in found["blockers"]] == ["operand"]
    )
    resume_node(open_session(api))
    assert api.stored["metadata"]["labels"] == DEPLOY


@pytest.mark.parametrize(
    ("labels", "wish", "word"),
    [
        (dict(DEPLOY, **{"nvidia.com/gpu-driver-upgrade-state": "drain-required"}), "pause", "under way"),
        ({"dgxc.nvidia.com/nvsentinel-state": "remediating"}, "pause", "NVSentinel"),
        (DEPLOY, "refuse", "operators is refuse"),
    ],
)
def test_an_operator_at_work_is_not_interrupted(labels, wish, word):
    api = FakeApi(node(labels=labels))
    text, found = fails(api, Refused, operators=wish)
    assert word in text and "Nothing was changed" in text and api.stored == node(labels=labels) and found["operators"]


def test_node_whose_driver_is_a_pod_is_refused_and_one_with_the_hosts_driver_is_drained():
    labels = dict(DEPLOY, **{"nvidia.com/gpu.deploy.driver": "true"})
    driver = pod("driver", owner="DaemonSet", labels={"app": "nvidia-driver-daemonset"})
    text, found = fails(FakeApi(node(labels=labels), [driver]), Refused)
    assert "Nothing was changed" in text and not found["changed"]
    assert drain(FakeApi(node(labels=labels)))["drained"]


def test_taint_of_another_owner_stays_with_a_warning():
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    wanted = dict(taint, value="present")
    api = FakeApi(node(taints=[taint]))
    found = drain(api, wanted=change.Change(taints=[dict(wanted, state="present")]))
    assert api.stored["spec"]["taints"] == [taint] and len(found["warnings"]) == 1
    resume_node(open_session(api), change.Change(taints=[dict(wanted, state="absent")]))
    assert api.stored["spec"]["taints"] == [taint]


@pytest.mark.parametrize(
    ("lays_out", "wish", "refused"), [(True, "pause", True), (True, "ignore", True), (False, "pause", False)]
)
def test_a_node_whose_layout_the_mig_manager_makes_gets_no_other(lays_out, wish, refused):
    labels = {"nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/mig.config": "all-1g.10gb"}
    api = FakeApi(node(labels=labels))
    if refused:
        text, found = fails(api, Refused, operators=wish, lays_out=lays_out)
        assert "nvidia.com/mig.config=all-1g.10gb" in text and not found["changed"]
        assert api.stored == node(labels=labels)
    else:
        assert drain(api, operators=wish, lays_out=lays_out)["drained"]


@pytest.mark.parametrize("laid_out", [True, False])
def test_node_whose_layout_the_mig_manager_would_undo_is_not_resumed(laid_out):
    api = FakeApi(node(labels={"nvidia.com/gpu.deploy.mig-manager": "true"}))
    drain(api, lays_out=True)
    api.stored["metadata"]["labels"]["nvidia.com/mig.config"] = "all-1g.10gb"
    one = open_session(api)
    if laid_out:
        with pytest.raises(KubeError):
            resume_node(one, laid_out=True)
    else:
        resume_node(one)
    assert one.answer()["mark"]["owner"] == ("ours" if laid_out else "none")


def test_operators_can_be_ignored():
    api = FakeApi(node(labels=DEPLOY), [OPERAND])
    assert drain(api, operators="ignore")["drained"] and api.stored["metadata"]["labels"] == DEPLOY


def test_what_is_there_is_told_without_a_change():
    api = FakeApi(node(labels=DEPLOY), [pod("a", gpus=1), pod("b", gpus=1, owner=None), OPERAND])
    one = open_session(api, token="")
    one.read_pods(Policy())
    found = one.answer()
    assert api.said == ["get node", "list pods"] and not found["changed"] and not found["drained"]
    assert [each["pod"] for each in found["holding"]] == ["a"]
    assert [(each["pod"], each["reason"]) for each in found["blockers"]] == [("b", "unmanaged"), ("a", "running")]
    assert found["state"] == "schedulable" and found["waited_s"] == 0
    assert found["operators"] == ["GPU Operator", "NVSentinel"]


@pytest.mark.parametrize("name", ["GPU_1", "", "gpu/1", "../x", "gpu-1 "])
def test_a_name_that_no_node_can_have(name):
    api = FakeApi(node())
    with pytest.raises(KubeError, match="node_name"):
        open_session(api, name=name).read()
    assert api.said == []
