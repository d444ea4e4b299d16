# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node has the GPUs in its cluster that it has by NVML: a truth table, and the way of a resume that waits
for them."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, gpus, operators
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import MARK
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError, Refused
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.resume import SETTLE_S
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._kube.fake import (
    FakeApi,
    budget,
    drain_node,
    open_session,
    refusal,
    resume_node,
)
from tests.lab.kube.objects import gpu_status, node, pod

GPU, SLICE, HALF = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
PLUGIN = {"app": "nvidia-device-plugin-daemonset"}
WAITS = {"plugin": ("name=nvidia-device-plugin-ds", "app=nvidia-device-plugin-daemonset"), "timeout_s": 300}


def not_ready(one, status="False"):
    one["status"]["conditions"] = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": status}]
    return one


def less(one, resource, amount):
    one["status"]["allocatable"][resource] = amount
    return one


# The node, how many are expected; with auto, with always.
TABLE = [
    (node(gpus=8), 8, "same", "same"),
    (node(gpus=8), 7, "wait", "wait"),
    (node(gpus=7), 8, "wait", "wait"),
    (less(node(gpus=8), GPU, "7"), 8, "wait", "wait"),  # one of them is not healthy
    (node(gpus={GPU: 0, SLICE: 14}), 14, "same", "same"),
    (node(gpus={GPU: 6, SLICE: 7, HALF: 2}), 15, "same", "same"),
    (node(gpus={GPU: 6, SLICE: 7, HALF: 2}), 6, "wait", "wait"),
    (node(gpus={"nvidia.com/mig-1g.10gb.me": 1, GPU: 7}), 8, "same", "same"),
    (node(gpus={GPU: 8, "nvidia.com/gpumem": 640, "amd.com/gpu": 4, "nvidia.com/gpucores": 100}), 8, "same", "same"),
    (node(gpus=0), 8, "wait", "wait"),  # its plugin is gone
    (node(gpus={}), 8, "wait", "wait"),  # it never had one
    (node(), 8, "wait", "wait"),  # no kubelet has said anything
    (node(gpus={}), 0, "same", "same"),
    (node(gpus=8), 0, "wait", "wait"),
    (less(node(gpus=8), GPU, "8k"), 8, "wait", "wait"),
    # Several pods on each.
    (node(gpus=32, labels={"nvidia.com/gpu.replicas": "4"}), 8, "same", "same"),
    (node(gpus={"nvidia.com/gpu.shared": 32}, labels={"nvidia.com/gpu.replicas": "4"}), 8, "same", "same"),
    (node(gpus={SLICE: 14, GPU: 6}, labels={"nvidia.com/mig-1g.10gb.replicas": "2"}), 13, "same", "same"),
    (node(gpus=31, labels={"nvidia.com/gpu.replicas": "4"}), 8, "wait", "wait"),
    (node(gpus=32), 8, "wait", "wait"),
    (node(gpus={GPU: 4, GPU + ".shared": 16}, labels={"nvidia.com/gpu.replicas": "4"}), 8, "same", "same"),
    (node(gpus=16, labels={"cloud.google.com/gke-max-shared-clients-per-gpu": "2"}), 8, "same", "same"),
    (node(gpus=8, labels={"nvidia.com/gpu.replicas": "0"}), 8, "same", "same"),
    (node(gpus=8, labels={"nvidia.com/gpu.replicas": "x"}), 8, "same", "same"),
    # A kubelet that does not report tells yesterday's.
    (not_ready(node(gpus=8)), 8, "wait", "wait"),
    (not_ready(node(gpus=8), "Unknown"), 8, "wait", "wait"),
    (not_ready(node(gpus=8), "True"), 8, "same", "same"),
    # Not counted, and not said.
    (node(gpus=8), -2, "refuse", "refuse"),
    (node(gpus=0), -2, "refuse", "refuse"),
    (node(gpus={}), -2, "skip", "refuse"),
    (node(), -2, "skip", "refuse"),
    (node(gpus=8), None, "skip", "refuse"),
    (node(gpus={}), None, "skip", "refuse"),
]


@pytest.mark.parametrize(("one", "expected", "auto", "always"), TABLE)
def test_what_is_done_about_the_gpus(one, expected, auto, always):
    verdicts = [
        gpus.decide_resume(one, gpus.Want(expected, compare)) for compare in (gpus.AUTO, gpus.ALWAYS, gpus.NEVER)
    ]
    assert [verdict.action for verdict in verdicts] == [auto, always, "skip"]
    assert all(bool(verdict.why) == (verdict.action in ("wait", "refuse")) for verdict in verdicts)


ME, SHARED = "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-1g.10gb.shared"


@pytest.mark.parametrize(
    ("given", "expected", "mig", "action"),
    [
        ({SLICE: 7, HALF: 2}, 9, {"1g.10gb": 7, "3g.40gb": 2}, "same"),
        ({SLICE: 7, HALF: 2, GPU: 6}, 15, {"1g.10gb": 7, "3g.40gb": 2}, "same"),
        ({SLICE: 14}, 14, {"1g.10gb": 7, "3g.40gb": 7}, "wait"),  # as many, of another profile
        ({SLICE: 2, HALF: 7}, 9, {"1g.10gb": 7, "3g.40gb": 2}, "wait"),
        ({GPU: 7}, 7, {"1g.10gb": 7}, "same"),  # strategy single
        ({GPU: 9}, 9, {"1g.10gb": 7, "3g.40gb": 2}, "wait"),
        ({GPU: 8}, 8, {"1g.10gb": 7}, "wait"),  # a whole GPU beside them has no such name
        ({GPU: 0, SLICE: 0}, 0, {}, "same"),
        ({GPU: 8}, 8, {}, "same"),
        ({SLICE: 8}, 8, {}, "wait"),  # of a layout that is gone
        ({GPU: 7, SLICE: 0}, 7, {}, "same"),
        ({SLICE: 8}, 8, None, "same"),  # not said
        ({ME: 1, GPU: 7}, 8, {"1g.10gb+me": 1}, "same"),
        ({SHARED: 14}, 7, {"1g.10gb": 7}, "same"),
        ({"nvidia.com/mig-small": 7}, 7, {"1g.10gb": 7}, "same"),  # a name of one's own
        ({SLICE: 7}, 8, {"1g.10gb": 7}, "wait"),
    ],
)
def test_mig_devices_are_compared_by_profile(given, expected, mig, action):
    one = node(gpus=given, labels={"nvidia.com/mig-1g.10gb.replicas": "2"} if SHARED in given else {})
    verdict = gpus.decide_resume(one, gpus.Want(expected, mig=mig))
    assert verdict.action == action, verdict.why


@pytest.mark.parametrize(
    ("one", "expected", "compare", "unfit"),
    [
        (node(), 8, "auto", True),
        (node(gpus={}), 8, "always", True),
        (node(gpus={}), 8, "never", False),
        (node(gpus=0), 8, "auto", False),
        (node(gpus=8), 7, "auto", False),
        (node(), None, "auto", False),
        (node(), -2, "auto", False),
        (node(), 0, "auto", False),
        (node(gpus=8), None, "always", True),
        (node(gpus=80), 8, "always", False),
        # NVIDIA's device plugin gave way to another one, and the kubelet keeps its resource.
        (node(gpus={GPU: 0, "volcano.sh/vgpu-number": 80}), 8, "auto", True),
        (node(gpus={GPU: 0, "koordinator.sh/gpu": 800}), 8, "always", True),
        (node(gpus={GPU: 0, "koordinator.sh/gpu": 800}), 8, "never", False),
        (node(gpus={GPU: 0, "volcano.sh/vgpu-number": 0}), 8, "auto", False),
        (node(gpus={GPU: 0, "amd.com/gpu": 8}), 8, "auto", False),
        (node(gpus={GPU: 8, "volcano.sh/vgpu-number": 80}), 8, "auto", False),
    ],
)
def test_a_node_without_any_such_resource_is_not_drained_in_vain(one, expected, compare, unfit):
    assert bool(gpus.explain_unfit(one, gpus.Want(expected, compare))) is unfit


@pytest.mark.parametrize(("labels", "problems"), [(["a=b", "x/y=z"], 0), ([], 0), (["a", "=b", "a=", "a=b c"], 4)])
def test_labels_are_keys_with_values(labels, problems):
    assert len(gpus.find_label_problems(labels)) == problems


def test_the_device_plugin_is_known_by_its_labels():
    listed = [
        pod("plugin", owner="DaemonSet", labels=PLUGIN, namespace="gpu-operator"),
        pod("other", owner="DaemonSet", labels={"app": "x"}),
        pod("lone", owner=None, labels=PLUGIN),
        pod("done", owner="DaemonSet", labels=PLUGIN, phase="Failed"),
        pod("going", owner="DaemonSet", labels=PLUGIN, deleted="2026-11-21T22:00:00Z"),
    ]
    assert [entry["pod"] for entry in gpus.find_device_plugins(listed, gpus.Want(**WAITS))] == ["plugin"]
    assert gpus.find_device_plugins(listed, gpus.Want()) == []


# The way of a resume.


def plugin(name="plugin-1"):
    return pod(name, owner="DaemonSet", labels=PLUGIN, namespace="nvidia-device-plugin", uid="uid-" + name)


def drained(gpus_there=8, listed=None, expected=None, **labels):
    api = FakeApi(node(gpus=gpus_there, labels=labels or None), [plugin()] if listed is None else listed)
    drain_node(open_session(api), want=gpus.Want(expected))
    api.said.clear()
    return api


def resume(api, expected=8, check=False, **more):
    return resume_node(open_session(api, check=check), want=gpus.Want(expected, **dict(WAITS, **more)))


def refused(api, expected=8, **more):
    one = open_session(api)
    with pytest.raises(KubeError) as caught:
        resume_node(one, want=gpus.Want(expected, **dict(WAITS, **more)))
    answer = one.answer()
    assert (
        answer["mark"]["owner"] == "ours"
        and answer["unschedulable"]
        and "mark" in str(caught.value)
        and str(caught.value).startswith(caught.value.why)
    )
    return str(caught.value), answer


def later(api, seconds, action):
    """Does it once, when so much time has passed."""
    at = api.clock.now + seconds
    state = []

    def look(each):
        if each.clock.now >= at and not state:
            state.append(1)
            action(each)

    api.on_sleep.append(look)


def gives(api, amounts):
    api.stored["status"] = gpu_status(amounts)


def replaced(api, after_s, amounts):
    """A DaemonSet that makes the plugin's pod again, which tells the kubelet the GPUs."""

    def watch(each):
        if "uid-plugin-1" not in [one["metadata"]["uid"] for one in each.there] and not any(
            one["metadata"]["name"] == "plugin-2" for one in each.there
        ):
            each.there.append(plugin("plugin-2"))
            later(each, after_s, lambda one: gives(one, amounts))

    api.on_sleep.append(watch)


def test_a_node_with_its_gpus_is_resumed_at_once():
    api = drained()
    found = resume(api)
    assert (
        found["mark"]["owner"] == "none"
        and not found["unschedulable"]
        and found["gpus"] == {GPU: 8}
        and found["restarted"] == []
    )
    assert api.said == ["get node", "patch node"], "no request more than without the comparison"
    taints = [{"key": "x", "value": "", "effect": "NoSchedule", "state": "absent"}]
    api = drained()
    api.stored["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
    resume_node(open_session(api), change.Change(taints=taints), gpus.Want(8, **WAITS))
    assert api.said == ["get node", "patch node"] and api.stored["spec"] == {}


def test_gpus_that_come_late_are_waited_for_and_nothing_is_restarted():
    api = drained(0)
    later(api, 40, lambda each: gives(each, 8))
    found = resume(api)
    assert (
        found["mark"]["owner"] == "none"
        and found["restarted"] == []
        and api.evictions() == []
        and 40 <= found["waited_s"] < 75
    )


def test_a_device_plugin_that_sees_no_change_is_restarted_once():
    api = drained(8)
    replaced(api, 20, {GPU: 0, SLICE: 56})
    found = resume(api, 56)
    assert found["mark"]["owner"] == "none" and found["gpus"] == {GPU: 0, SLICE: 56} and api.evictions() == ["plugin-1"]
    assert [(each["namespace"], each["pod"]) for each in found["restarted"]] == [
        ("nvidia-device-plugin", "plugin-1")
    ] and found["waited_s"] >= 75


def test_gpus_that_do_not_come_leave_the_node_drained_under_our_mark():
    api = drained(7)
    text, found = refused(api)
    assert (
        "nvidia.com/gpu 7" in text
        and "8" in text
        and "nvidia-device-plugin/plugin-1" in text
        and 300 <= found["waited_s"] < 315
    )
    assert api.evictions() == ["plugin-1"] and json.loads(api.stored["metadata"]["annotations"][MARK])["token"] == "r7"
    gives(api, 8)
    assert resume(api)["mark"]["owner"] == "none", "the next run puts it back"


@pytest.mark.parametrize("more", [{"plugin": ()}, {"plugin": ("app=other",)}])
def test_no_pod_is_restarted_that_is_not_known(more):
    api = drained(7)
    text, found = refused(api, **more)
    assert api.evictions() == [] and found["restarted"] == [] and "No pod" in text


@pytest.mark.parametrize("answer", [budget("plugin"), refusal(404), refusal(409), refusal(500)])
def test_a_plugin_that_may_not_go_yet_is_tried_again(answer):
    api = drained(8)
    api.answers["plugin-1"] = [answer, None]
    replaced(api, 5, {SLICE: 56})
    assert resume(api, 56)["mark"]["owner"] == "none" and api.evictions() == ["plugin-1", "plugin-1"]


def test_an_account_that_may_not_evict_is_told():
    api = drained(8)
    api.answers["plugin-1"] = [refusal(403)]
    api.denied.add(("create", "pods"))
    one = open_session(api)
    with pytest.raises(KubeError) as caught:
        resume_node(one, want=gpus.Want(56, **WAITS))
    assert caught.value.status == 403 and one.answer()["mark"]["owner"] == "ours"


@pytest.mark.parametrize(
    ("before", "of", "after", "expected", "resumes"),
    [
        (80, 8, 80, 8, True),  # HAMi and others have no label for it
        (80, 7, 80, 8, True),  # a GPU that was missing is back
        (80, 8, 70, 8, False),
        (80, 8, 70, 7, True),
        (80, 8, 8, 8, True),  # they are not shared any more
        (80, 7, 80, 7, True),  # no multiple, and as before
        (80, 7, 70, 7, False),
        (80, 8, 80, 7, False),
        (8, 8, 80, 8, False),
        (8, 7, 8, 7, False),  # less than twice: a plugin that has not seen that one is missing
        ({GPU: 4, GPU + ".shared": 20}, 8, {GPU: 4, GPU + ".shared": 20}, 8, True),
        (8, 3, 8, 8, True),  # most were missing
        (8, 8, 4, 4, True),
        (8, 8, 8, 4, False),
        (8, 8, {GPU: 0, SLICE: 14}, 14, True),
        (56, 56, 8, 8, True),
    ],
)
def test_gpus_that_are_shared_without_a_label_are_compared_with_what_was_before(before, of, after, expected, resumes):
    api = drained(before, expected=of)
    api.stored["status"] = gpu_status(after)
    if resumes:
        assert resume(api, expected)["mark"]["owner"] == "none"
    else:
        refused(api, expected)


def test_gpus_of_which_some_are_shared_are_compared_with_what_was_before():
    """Four GPUs alone and four with two replicas, under one resource and one label."""
    api = FakeApi(node(gpus=12, labels={GPU + ".replicas": "2"}), [plugin()])
    drain_node(open_session(api), want=gpus.Want(8))
    assert resume(api, 8)["mark"]["owner"] == "none"


@pytest.mark.parametrize("found", ["x", [80], [80, 0], [True, 8], [80, 8, 1], {"a": 1}, [80, "8"]])
def test_number_of_a_forged_mark_is_none(found):
    api = drained(8)
    notes = api.stored["metadata"]["annotations"]
    notes[MARK] = json.dumps(dict(json.loads(notes[MARK]), shared=found))
    assert resume(api, 8)["mark"]["owner"] == "none"


def test_a_layout_that_changed_is_told_anew_whatever_the_number():
    """Seven other devices: the old number is right by chance, and of devices that are gone."""
    api = drained(7)
    replaced(api, 5, 7)
    found = resume(api, 7, restart=True)
    assert api.evictions() == ["plugin-1"] and found["mark"]["owner"] == "none" and found["waited_s"] >= SETTLE_S
    # Without a plugin that runs again the number is not believed.
    for listed, evictions in (([], []), ([plugin()], ["plugin-1"])):
        api = drained(7, listed)
        text, found = refused(api, 7, restart=True)
        assert api.evictions() == evictions and found["waited_s"] >= 300


@pytest.mark.parametrize(("expected", "more"), [(-2, {}), (None, {"compare": "always"})])
def test_a_number_that_is_not_known_agrees_with_none(expected, more):
    api = drained()
    text, found = refused(api, expected, **more)
    assert api.said == ["get node"] and not found["changed"] and not text.endswith(" after 300 s")


@pytest.mark.parametrize(
    ("there", "expected", "compare"), [(7, 8, "never"), (7, None, "auto"), ({}, -2, "auto"), ({}, None, "auto")]
)
def test_a_node_that_is_not_compared_is_resumed(there, expected, compare):
    api = drained(there)
    assert resume(api, expected, compare=compare)["mark"]["owner"] == "none" and api.said == ["get node", "patch node"]


def test_a_node_that_is_not_ours_is_not_waited_for():
    api = FakeApi(node(gpus=7, unschedulable=True), [plugin()])
    assert resume(api)["mark"]["owner"] == "operator" and api.said == ["get node"]


def test_check_mode_waits_for_nothing_and_restarts_nothing():
    api = drained(7)
    found = resume(api, check=True, restart=True)
    assert found["changed"] and found["mark"]["owner"] == "none" and api.said == ["get node"]


def test_the_parts_of_the_operator_are_back_before_the_gpus_are_waited_for():
    """Its device plugin was taken off the node by the drain: without it no GPU would ever come."""
    key = operators.DEPLOY + "device-plugin"
    api = drained(8, [], **{key: "true", operators.UPGRADE_STATE: "upgrade-done"})
    assert (
        api.stored["metadata"]["labels"][key] == operators.PAUSED
        and api.stored["metadata"]["labels"][operators.UPGRADE_SKIP] == "true"
    )
    gives(api, 0)
    api.on_sleep.append(lambda each: gives(each, 8 if each.stored["metadata"]["labels"][key] == "true" else 0))
    text, found = refused(api, 9)
    labels = api.stored["metadata"]["labels"]
    assert labels[key] == "true" and labels[operators.UPGRADE_SKIP] == "true" and found["unschedulable"], (
        "it still may not begin anything there"
    )
    assert resume(api)["mark"]["owner"] == "none"
    assert api.stored["metadata"]["labels"] == {key: "true", operators.UPGRADE_STATE: "upgrade-done"}


def test_a_node_that_another_puts_back_meanwhile_is_theirs():
    api = drained(7)

    def taken(each):
        del each.stored["metadata"]["annotations"][MARK]
        each.stored["spec"].pop("unschedulable")

    later(api, 10, taken)
    with pytest.raises(KubeError):
        resume(api)
    assert api.evictions() == [] and "patch node" not in api.said[1:]


def test_a_drain_is_refused_for_a_cluster_that_never_had_a_gpu_for_the_node():
    api = FakeApi(node(gpus={}), [pod("a", gpus=1)])
    with pytest.raises(Refused):
        drain_node(open_session(api), want=gpus.Want(8))
    assert api.said == ["get node"]
    drain_node(open_session(api), want=gpus.Want(8, gpus.NEVER))
    drain_node(open_session(api), want=gpus.Want(8))  # it is ours by now


def test_a_taint_of_the_drain_is_gone_before_the_gpus_are_waited_for():
    """A device plugin that does not tolerate it could not come back: the DaemonSet makes no pod on the node."""
    taint = {"key": "example.org/drained", "value": "", "effect": "NoSchedule", "state": "present"}
    api = drained()
    api.stored["spec"]["taints"] = [
        {"key": taint["key"], "effect": taint["effect"]},
        {"key": "other", "effect": "NoSchedule"},
    ]
    gives(api, 0)

    def watch(each):
        if not any(one["key"] == taint["key"] for one in each.stored["spec"]["taints"]):
            gives(each, 8)
        assert each.stored["spec"]["unschedulable"]

    api.on_sleep.append(watch)
    one = open_session(api)
    resume_node(one, change.Change(taints=[dict(taint, state="absent")]), gpus.Want(8, **WAITS))
    assert one.answer()["mark"]["owner"] == "none"
    assert api.stored["spec"] == {"taints": [{"key": "other", "effect": "NoSchedule"}]}
