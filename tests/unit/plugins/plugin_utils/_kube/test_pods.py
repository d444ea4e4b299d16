# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import pods
from tests.lab.kube.objects import container, pod

EMPTYDIR = [{"name": "scratch", "emptyDir": {}}]
DEVICES = "/var/run/nvidia-container-devices"
MIRROR = {"kubernetes.io/config.mirror": "abc"}


def with_spec(name, owner="ReplicaSet", **spec):
    one = pod(name, owner=owner)
    one["spec"].update(spec)
    return one


def with_status(name, **status):
    one = pod(name)
    one["status"].update(status)
    return one


@pytest.mark.parametrize(
    ("one", "holds"),
    [
        (pod("plain"), False),
        (pod("limit", gpus=1), True),
        (pod("request", containers=[container(1, where="requests")]), True),
        (pod("shared", containers=[container(1, "nvidia.com/gpu.shared")]), True),
        (pod("mig", containers=[container(2, "nvidia.com/mig-1g.10gb")]), True),
        (pod("second", containers=[container(), container(1)]), True),
        (pod("init", init=[container(1)]), True),
        (pod("zero", containers=[{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "0"}}}]), False),
        (pod("other-vendor", containers=[container(1, "amd.com/gpu")]), False),
        (pod("another-vendor", containers=[container(1, "gpu.intel.com/i915")]), False),
        *(
            (pod("network", containers=[container(1, "nvidia.com/" + name)]), False)
            for name in ("hostdev", "mlnxnics", "cx7_sriov", "rdma_shared_device_a1", "bf3-p0", "sriov_rdma_vf", "l2")
        ),
        (pod("rdma", containers=[container(1, "rdma/hca_shared_devices_a")]), False),
        (pod("batch", containers=[container(1, "volcano.sh/job")]), False),
        *(
            (pod(name, containers=[container(1, name)]), True)
            for name in (
                "nvidia.com/gpumem",
                "nvidia.com/pgpu",
                "nvidia.com/shared-gpu",
                "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
                "nvidia.com/GA102GL_A10",
                "nvidia.com/a100-80gb",
                "nvidia.com/h100",
                "nvidia.com/tesla-t4",
                *(
                    "nvidia.com/" + model
                    for model in ("b40", "gb10", "gb200nvl", "rtxa6000", "a6000", "l40g", "m60", "thor")
                ),
                "nvidia.com/rtx-pro-6000.shared",
                "nvidia.com/mig-1g.24gb-me",
                "volcano.sh/vgpu-number",
                "volcano.sh/gpu-memory",
                "aliyun.com/gpu-mem",
                "koordinator.sh/gpu-core",
                "tencent.com/vcuda-core",
                "tke.cloud.tencent.com/qgpu-core",
                "vke.volcengine.com/mgpu-core",
                "k8s.amazonaws.com/vgpu",
                "elasticgpu.io/gpu-memory",
                "cce.baidubce.com/gpu",
                "hami.io/vgpu",
                "example.org/shared-gpu",
            )
        ),
        (pod("fraction", annotations={"gpu-fraction": "0.5"}), True),
        (pod("cdi", annotations={"cdi.k8s.io/worker": "nvidia.com/gpu=0"}), True),
        (pod("note", annotations={"example.org/gpu-fraction": "0.5"}), False),
        # Past every scheduler that counts GPUs.
        (pod("env", containers=[dict(container(), env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])]), True),
        (pod("void", containers=[dict(container(), env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}])]), False),
        (
            pod(
                "from", containers=[dict(container(), env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"a": {}}}])]
            ),
            True,
        ),
        (with_spec("class", runtimeClassName="nvidia"), True),
        (with_spec("other-class", runtimeClassName="gvisor"), False),
        (pod("device", volumes=[{"name": "d", "hostPath": {"path": "/dev/nvidia0"}}]), True),
        (
            pod("mount", containers=[dict(container(), volumeMounts=[{"mountPath": DEVICES + "/all", "name": "d"}])]),
            True,
        ),
        (with_spec("monitor", owner="DaemonSet", runtimeClassName="nvidia"), False),
        (pod("bare", containers=[{"name": "a"}]), False),
        # Dynamic resource allocation, which no server that tests can start has: written by hand after the API's
        # documentation.
        (pod("claim", claims=[{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]), True),
        (
            with_status(
                "claim-of-class", extendedResourceClaimStatus={"resourceClaimName": "a", "requestMappings": []}
            ),
            True,
        ),
        (pod("claim-of-container", containers=[container(claims=["gpu"])]), True),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else str(value),
)
def test_which_pods_hold_gpus(one, holds):
    assert pods.holds_gpu(one) is holds


DEFAULT = pods.Policy()
ALL = pods.Policy(scope="all")


@pytest.mark.parametrize(
    ("policy", "one", "becomes"),
    [
        (DEFAULT, pod("a", gpus=1), "going"),
        (DEFAULT, pod("a"), "nothing"),
        (ALL, pod("a"), "going"),
        (DEFAULT, pod("a", gpus=1, owner=None), "unmanaged"),
        (pods.Policy(unmanaged="evict"), pod("a", gpus=1, owner=None), "going"),
        (DEFAULT, pod("a", gpus=1, volumes=EMPTYDIR), "emptydir"),
        (pods.Policy(emptydir="evict"), pod("a", gpus=1, volumes=EMPTYDIR), "going"),
        (DEFAULT, pod("a", gpus=1, volumes=[{"name": "x", "hostPath": {"path": "/x"}}]), "going"),
        # One allowance does not bring the other: the emptyDir does not hide that nothing makes the pod anew.
        (pods.Policy(emptydir="evict"), pod("a", gpus=1, owner=None, volumes=EMPTYDIR), "unmanaged"),
        (pods.Policy(unmanaged="evict"), pod("a", gpus=1, owner=None, volumes=EMPTYDIR), "emptydir"),
        (DEFAULT, pod("a", gpus=1, owner="DaemonSet"), "left"),
        (pods.Policy(daemonset="refuse"), pod("a", gpus=1, owner="DaemonSet"), "daemonset"),
        (
            pods.Policy(scope="all", unmanaged="evict", emptydir="evict"),
            pod("a", owner="DaemonSet", volumes=EMPTYDIR),
            "left",
        ),
        (pods.Policy(daemonset="refuse", unmanaged="evict"), pod("a", gpus=1, owner="DaemonSet"), "daemonset"),
        (
            pods.Policy(scope="all", unmanaged="evict", daemonset="refuse"),
            pod("a", owner=None, annotations=MIRROR),
            "left",
        ),
        (ALL, pod("a", owner="Node", annotations=MIRROR), "left"),
        (ALL, pod("a", owner=None, phase="Succeeded"), "nothing"),
        (ALL, pod("a", owner=None, phase="Failed", gpus=1), "nothing"),
        (ALL, pod("a", owner=None, phase="Unknown"), "unmanaged"),
        # It goes already: no rule holds it back, and it has to be waited for.
        (DEFAULT, pod("a", gpus=1, owner=None, deleted="2026-01-01T00:00:00Z"), "going"),
    ],
)
def test_what_becomes_of_a_pod(policy, one, becomes):
    found = pods.decide_pods([one], policy)
    places = {"going": found.going, "left": found.left, "nothing": []}
    if becomes in places:
        assert [each["pod"] for each in found.going] == (["a"] if becomes == "going" else [])
        assert [each["pod"] for each in found.left] == (["a"] if becomes == "left" else [])
        assert found.blockers == []
    else:
        assert [(each["pod"], each["reason"]) for each in found.blockers] == [("a", becomes)]
        assert found.going == [] and found.left == []
        assert (
            becomes.split("dir")[0] in found.blockers[0]["message"].lower()
            or "controller" in found.blockers[0]["message"]
        )


def test_an_owner_that_is_no_controller_does_not_make_a_pod_anew():
    one = pod("a", gpus=1)
    one["metadata"]["ownerReferences"][0]["controller"] = False
    assert [each["reason"] for each in pods.decide_pods([one], DEFAULT).blockers] == ["unmanaged"]


def test_holders_of_gpus_go_first_and_alone():
    going = pods.decide_pods([pod("b"), pod("z", gpus=1), pod("c", gpus=1)], ALL).going
    assert [each["pod"] for each in going] == ["c", "z", "b"]
    assert [each["pod"] for each in pods.select_due(going)] == ["c", "z"]
    assert [each["pod"] for each in pods.select_due(going[2:])] == ["b"]


def test_a_message_names_ten_pods_and_counts_the_rest():
    entries = [pods.describe_pod(pod("p%02d" % number)) for number in range(13)]
    text = pods.list_pods(entries)
    assert "default/p09" in text and "p10" not in text and text.endswith("and 3 more")
