# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube_node on a real API server, with the account of the shipped manifest."""

from __future__ import annotations

import threading

import pytest

from tests.lab.kube import agent

MARK = "gpufleet.lifecycle/mark"
EMPTYDIR = [{"name": "scratch", "emptyDir": {}}]


def test_drain_and_resume(world):
    world.add_pod("train", gpus=8)
    world.add_pod("web")
    before = world.read()
    found = world.ok("drained", reason="driver upgrade")
    assert found["drained"] and found["changed"] and [each["pod"] for each in found["evicted"]] == ["train"]
    assert (
        world.pods() == ["web"]
        and world.read()["spec"]["unschedulable"] is True
        and MARK in world.read()["metadata"]["annotations"]
    )
    assert (
        found["mark"]["owner"] == "ours"
        and found["mark"]["token"] == "r7"
        and found["mark"]["reason"] == "driver upgrade"
    )
    assert found["mark"]["previous"] == {"unschedulable": False, "labels": {}}
    assert found["requests"] == len(world.log) and found["diff"]["after"]["unschedulable"] is True

    again = world.ok("drained", reason="driver upgrade")
    assert again["drained"] and not again["changed"]

    back = world.ok("resumed")
    after = world.read()
    assert back["changed"] and back["mark"]["owner"] == "none"
    assert "unschedulable" not in after["spec"] and after["metadata"].get("annotations") == before["metadata"].get(
        "annotations"
    )
    assert not world.ok("resumed")["changed"]


def test_a_cordon_leaves_what_runs_there(world):
    world.add_pod("train", gpus=1, owner=None)
    taint = {"key": "gpufleet.lifecycle/bringup", "value": "unproven", "effect": "NoSchedule"}
    found = world.ok("cordoned", reason="bring-up", taints=[taint])
    assert found["changed"] and not found["drained"] and found["evicted"] == [] and world.pods() == ["train"]
    assert found["mark"]["owner"] == "ours" and found["mark"]["reason"] == "bring-up" and found["requests"] == 3
    assert world.read()["spec"]["unschedulable"] is True and taint in world.read()["spec"]["taints"]
    assert not world.ok("cordoned", reason="bring-up", taints=[taint])["changed"]
    world.ok("resumed", taints=[dict(taint, state="absent")])
    assert "unschedulable" not in world.read()["spec"] and taint not in world.read()["spec"]["taints"]


def test_scope_all_takes_the_holders_of_gpus_first(world):
    world.add_pod("a-web")
    world.add_pod("z-train", gpus=1)
    world.add_pod("done", gpus=1, phase="Succeeded", owner=None)
    found = world.ok("drained", scope="all")
    assert [each["pod"] for each in found["evicted"]] == ["z-train", "a-web"]
    assert world.pods() == ["done"], "a finished pod is left alone"


def test_an_operators_cordon_survives(world):
    world.patch({"spec": {"unschedulable": True}})
    assert world.ok("read")["mark"]["owner"] == "operator"
    assert world.ok("drained")["mark"]["previous"]["unschedulable"] is True
    found = world.ok("resumed")
    assert found["mark"]["owner"] == "operator" and world.read()["spec"]["unschedulable"] is True
    assert MARK not in world.read()["metadata"].get("annotations", {})


def test_another_rollouts_mark_is_put_back(world):
    world.ok("drained", token="r8")
    theirs = world.read()["metadata"]["annotations"][MARK]
    world.ok("drained", token="r7")
    assert world.ok("read", token="r8")["mark"]["owner"] == "operator"
    world.ok("resumed", token="r7")
    assert world.read()["metadata"]["annotations"][MARK] == theirs and world.read()["spec"]["unschedulable"] is True
    assert not world.ok("resumed", token="r70")["changed"]
    world.ok("resumed", token="r8")
    assert "unschedulable" not in world.read()["spec"]


def test_a_budget_blocks_and_then_allows(world):
    world.add_pod("train", gpus=1)
    world.add_budget("keep-train", "train", allowed=0)
    asked = ("create", "pods/eviction %s/train" % world.space)

    def controller():
        """It allows it once a second eviction is asked for: the first one has been refused by then."""
        world.wait(lambda: world.log.count(asked) >= 2)
        world.set_budget("keep-train", 1)

    thread = threading.Thread(target=controller)
    thread.start()
    found = world.ok("drained", timeout_s=600)
    thread.join()
    assert found["drained"] and found["blockers"] == [] and world.pods() == []
    assert world.log.count(asked) >= 2


def test_a_budget_that_never_allows_is_named_with_its_pods(world):
    world.add_pod("train", gpus=1)
    world.add_pod("other", gpus=1)
    world.add_budget("keep-train", "train", allowed=0)
    found = world.fails("drained", over=lambda: world.pods() == ["train"])
    assert "keep-train" in found["msg"] and "%s/train" % world.space in found["msg"] and "other" not in found["msg"]
    assert [(each["pod"], each["reason"], each["budget"]) for each in found["blockers"]] == [
        ("train", "disruption_budget", "keep-train")
    ]
    assert (
        not found["drained"] and [each["pod"] for each in found["evicted"]] == ["other"] and world.pods() == ["train"]
    )
    assert found["mark"]["owner"] == "ours" and world.read()["spec"]["unschedulable"] is True
    assert world.ok("resumed")["mark"]["owner"] == "none"


def test_check_mode_asks_the_server_and_changes_nothing(world):
    world.add_pod("train", gpus=1)
    world.add_pod("kept", gpus=1)
    world.add_budget("keep", "kept", allowed=0)
    before = world.read()
    found = world.ok("drained", check=True, labels={"a": "1"})
    assert found["changed"] and not found["drained"] and found["mark"]["owner"] == "ours"
    assert [each["pod"] for each in found["evicted"]] == ["train"] and [
        each["budget"] for each in found["blockers"]
    ] == ["keep"]
    assert found["diff"]["after"]["labels"] == {"a": "1"} and found["diff"]["before"]["labels"] == {}
    assert (
        world.pods() == ["kept", "train"]
        and world.read()["metadata"] == before["metadata"]
        and world.read()["spec"] == before["spec"]
    )
    world.set_budget("keep", 1)
    assert world.ok("drained", check=True)["drained"]
    assert world.ok("drained", check=True)["drained"], "asking took nothing from the budget"


@pytest.mark.parametrize(
    ("more", "option", "reason"),
    [({"owner": None}, "unmanaged_pods", "unmanaged"), ({"volumes": EMPTYDIR}, "emptydir_pods", "emptydir")],
)
def test_pods_that_lose_something_are_refused_unless_allowed(world, more, option, reason):
    world.add_pod("train", gpus=1, **more)
    before = world.read()
    found = world.fails("drained")
    assert (
        "%s/train" % world.space in found["msg"]
        and option in found["msg"]
        and [each["reason"] for each in found["blockers"]] == [reason]
    )
    assert not found["changed"] and world.read()["spec"] == before["spec"] and world.pods() == ["train"]
    assert world.ok("drained", **{option: "evict"})["drained"] and world.pods() == []


def test_daemonset_and_mirror_pods_are_not_touched(world):
    world.add_pod("monitor", gpus=1, owner="DaemonSet")
    world.add_pod("static", gpus=1, owner="Node", annotations={"kubernetes.io/config.mirror": "x"})
    found = world.ok("drained", scope="all", unmanaged_pods="evict", emptydir_pods="evict")
    assert found["drained"] and [(each["pod"], each["reason"]) for each in found["left"]] == [
        ("monitor", "daemonset"),
        ("static", "mirror"),
    ]
    assert world.pods() == ["monitor", "static"]
    refused = world.fails("drained", daemonset_pods="refuse")
    assert [each["pod"] for each in refused["blockers"]] == ["monitor"]


def test_pods_that_do_not_end_are_named(world):
    world.add_pod("kept", gpus=1, finalizers=["example.org/keep"])
    world.add_pod("stuck", gpus=1, annotations={agent.STUCK: "yes"})
    found = world.fails("drained", over=lambda: world.ending() == ["kept", "stuck"])
    assert "example.org/keep" in found["msg"] and "kubelet" in found["msg"]
    assert [(each["pod"], each["reason"]) for each in found["blockers"]] == [
        ("kept", "terminating"),
        ("stuck", "terminating"),
    ]
    path = "/api/v1/namespaces/%s/pods/" % world.space
    world.plane.must("PATCH", path + "kept", {"metadata": {"finalizers": None}}, kind="application/merge-patch+json")
    world.plane.must("PATCH", path + "stuck", {"metadata": {"annotations": None}}, kind="application/merge-patch+json")
    assert world.ok("drained")["drained"]


def test_a_pod_of_the_same_name_on_another_node_is_another_pod(world):
    """As a StatefulSet does: the name comes back at once, elsewhere."""
    world.add_node("elsewhere-" + world.node)
    world.add_pod("rank-0", gpus=1, owner="StatefulSet")
    done = threading.Event()

    def stateful_set():
        world.wait(lambda: "rank-0" not in world.pods())
        world.add_pod("rank-0", node="elsewhere-" + world.node, gpus=1, owner="StatefulSet", running=False)
        done.set()

    thread = threading.Thread(target=stateful_set)
    thread.start()
    found = world.ok("drained")
    thread.join()
    assert done.is_set() and found["drained"] and world.pods("elsewhere-" + world.node) == ["rank-0"]


def test_taints_labels_and_annotations(world):
    wanted = {
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        "labels": {"gpufleet.lifecycle/gpu-model": "NVIDIA-H100-80GB-HBM3"},
        "annotations": {"example.org/note": "any text: at all"},
    }
    others = world.read()["spec"].get("taints") or []
    assert others, "the server itself taints a new node"
    check = world.ok("present", check=True, **wanted)
    assert (
        check["changed"]
        and not world.ok("read")["unschedulable"]
        and (world.read()["spec"].get("taints") or []) == others
    )
    found = world.ok("present", **wanted)
    assert found["changed"] and found["diff"] == check["diff"] and found["requests"] == 2
    now = world.read()
    assert now["spec"]["taints"] == others + [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert now["metadata"]["labels"]["gpufleet.lifecycle/gpu-model"] == "NVIDIA-H100-80GB-HBM3"
    assert now["metadata"]["annotations"]["example.org/note"] == "any text: at all"
    assert not world.ok("present", **wanted)["changed"]
    gone = world.ok(
        "present",
        taints=[{"key": "nvidia.com/gpu", "value": "present", "state": "absent"}],
        labels={"gpufleet.lifecycle/gpu-model": None},
        annotations={"example.org/note": None},
    )
    assert (
        gone["changed"]
        and world.read()["spec"]["taints"] == others
        and "gpufleet.lifecycle/gpu-model" not in world.read()["metadata"].get("labels", {})
    )


def test_the_bringup_taint_goes_in_the_write_that_puts_the_node_back(world):
    taint = {"key": "gpufleet.lifecycle/bringup", "value": "unproven", "effect": "NoSchedule"}
    world.ok("drained", taints=[taint])
    assert taint in world.read()["spec"]["taints"]
    found = world.ok("resumed", taints=[dict(taint, state="absent")])
    assert (
        found["requests"] == 2
        and taint not in (world.read()["spec"].get("taints") or [])
        and "unschedulable" not in world.read()["spec"]
    )


DEPLOY = {
    "nvidia.com/gpu.deploy.driver": "pre-installed",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu.deploy.mig-manager": "false",
    "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
    "k8saas.nvidia.com/ManagedByNVSentinel": "true",
}


def test_operators_are_paused_and_put_back_as_they_were(world):
    world.patch({"metadata": {"labels": DEPLOY}})
    world.add_pod("train", gpus=1)
    world.add_pod("dcgm", owner="DaemonSet", selector={"nvidia.com/gpu.deploy.dcgm": "true"})
    before = world.read()["metadata"]["labels"]

    def daemonset_controller():
        world.wait(
            lambda: world.read()["metadata"]["labels"]["nvidia.com/gpu.deploy.dcgm"] == "paused-for-driver-upgrade"
        )
        assert world.pods() == ["dcgm"]
        world.plane.must("DELETE", "/api/v1/namespaces/%s/pods/dcgm" % world.space)

    thread = threading.Thread(target=daemonset_controller)
    thread.start()
    found = world.ok("drained")
    thread.join()
    assert found["drained"] and found["operators"] == ["GPU Operator", "NVSentinel"] and world.pods() == []
    during = world.read()["metadata"]["labels"]
    assert (
        during["nvidia.com/gpu-driver-upgrade.skip"] == "true"
        and during["k8saas.nvidia.com/ManagedByNVSentinel"] == "false"
    )
    assert (
        during["nvidia.com/gpu.deploy.mig-manager"] == "false"
        and found["mark"]["previous"]["labels"]["nvidia.com/gpu.deploy.dcgm"] == "true"
    )
    world.ok("resumed")
    assert world.read()["metadata"]["labels"] == before


def test_a_node_is_resumed_when_the_cluster_has_its_gpus(world):
    world.give_gpus(7)
    world.add_pod("plugin", owner="DaemonSet")  # its label app is its name
    world.ok("drained", expected_gpus=8)
    world.fails("resumed", expected_gpus=8, device_plugin_pods=["nvidia-device-plugin"])
    assert world.log == [], "a label without a value is refused before the server is asked"
    found = world.fails("resumed", expected_gpus=8, timeout_s=4, device_plugin_pods=["app=plugin"])
    assert found["mark"]["owner"] == "ours" and found["unschedulable"] and found["gpus"] == {"nvidia.com/gpu": 7}
    assert [each["pod"] for each in found["restarted"]] == ["plugin"]
    world.wait(lambda: "plugin" not in world.pods())
    world.give_gpus({"nvidia.com/gpu": 6, "nvidia.com/mig-3g.40gb": 2})
    found = world.ok("resumed", expected_gpus=8)
    assert found["mark"]["owner"] == "none" and not found["unschedulable"] and found["restarted"] == []


def test_a_node_that_the_cluster_never_had_a_gpu_for_is_not_drained(world):
    found = world.fails("drained", expected_gpus=8)
    assert found["mark"]["owner"] == "none" and not found["unschedulable"]
    assert world.ok("drained", expected_gpus=8, compare_gpus="never")["drained"]
    assert world.ok("resumed", expected_gpus=8, compare_gpus="never")["mark"]["owner"] == "none"
