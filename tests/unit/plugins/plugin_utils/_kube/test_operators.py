# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import operators
from tests.lab.kube.objects import node, pod

# The labels that the GPU Operator sets on a node whose driver is the host's own.
HOST = {
    "nvidia.com/gpu.deploy.driver": "pre-installed",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu.deploy.mig-manager": "false",
}
DRIVER_POD = pod(
    "nvidia-driver-daemonset-x", owner="DaemonSet", namespace="gpu-operator", labels={"app": "nvidia-driver-daemonset"}
)
MONITOR = pod("gpu-health-monitor-x", owner="DaemonSet", namespace="nvsentinel")


def labelled(**more):
    return node(labels=dict(HOST, **{"nvidia.com/" + key.replace("__", "."): value for key, value in more.items()}))


@pytest.mark.parametrize(
    ("one", "listed", "found"),
    [
        (node(), [], []),
        (node(labels={"nvidia.com/gpu.product": "H100"}), [pod("a", gpus=1)], []),
        (labelled(), [], ["GPU Operator"]),
        (node(labels={"nvidia.com/gpu-driver-upgrade-state": ""}), [], ["GPU Operator"]),
        (node(), [DRIVER_POD], ["GPU Operator"]),
        (node(), [MONITOR], ["NVSentinel"]),
        (node(labels={"nvsentinel.dgxc.nvidia.com/driver.installed": "true"}), [], ["NVSentinel"]),
        (node(labels={"k8saas.nvidia.com/ManagedByNVSentinel": "true"}), [], ["NVSentinel"]),
        (node(labels={"dgxc.nvidia.com/nvsentinel-state": "quarantined"}), [], ["NVSentinel"]),
        (labelled(), [MONITOR], ["GPU Operator", "NVSentinel"]),
    ],
)
def test_who_is_there(one, listed, found):
    assert operators.find_operators(one, listed) == found


UPGRADE = "nvidia.com/gpu-driver-upgrade-state"


@pytest.mark.parametrize(
    ("one", "listed", "held", "word"),
    [
        (node(), [], (), ""),
        (labelled(), [], (), ""),
        # Also where the driver is the host's own (driver.enabled=false).
        (node(labels=dict(HOST, **{"nvidia.com/gpu.deploy.driver": "true"})), [], (), ""),
        (node(), [pod("d", owner="DaemonSet", labels={"k8s-app": "nvidia-driver-installer"})], (), "owns the driver"),
        (labelled(), [DRIVER_POD], (), "owns the driver"),
        *(
            (labelled(), [pod("d", owner="DaemonSet", labels=labels)], (), "owns the driver")
            for labels in (
                {"app": "nvidia-driver-daemonset-418.94.202509100653-0"},
                {"app": "nvidia-driver-daemonset-5.15.0-91-generic-ubuntu22.04"},
                {"app.kubernetes.io/component": "nvidia-vgpu-manager"},
            )
        ),
        (node(labels={UPGRADE: "upgrade-done"}), [], (), ""),
        (node(labels={UPGRADE: ""}), [], (), ""),
        (node(labels={UPGRADE: "upgrade-required"}), [], (), UPGRADE + "=upgrade-required"),
        (node(labels={UPGRADE: "pod-restart-required"}), [], (), "under way"),
        (node(labels={UPGRADE: "upgrade-failed"}), [], (), "upgrade-failed"),
        (node(labels={UPGRADE: "a-state-of-next-year"}), [], (), "under way"),
        (labelled(**{"gpu__deploy__dcgm": "paused-for-mig-change"}), [], (), "paused"),
        (labelled(**{"gpu__deploy__dcgm": "paused-for-driver-upgrade"}), [], (), "paused"),
        (labelled(**{"gpu__deploy__dcgm": "paused-for-driver-upgrade"}), [], ("nvidia.com/gpu.deploy.dcgm",), ""),
        (labelled(**{"mig__config": "all-1g.10gb", "mig__config__state": "success"}), [], (), ""),
        (labelled(**{"mig__config__state": "failed"}), [], (), ""),
        (labelled(**{"mig__config__state": "pending"}), [], (), "mig.config.state=pending"),
        (labelled(**{"mig__config__state": "rebooting"}), [], (), "mig.config.state=rebooting"),
        (node(labels={"dgxc.nvidia.com/nvsentinel-state": "draining"}), [], (), "NVSentinel is repairing"),
        (node(), [MONITOR], (), ""),
    ],
)
def test_when_a_node_cannot_be_taken_from_them(one, listed, held, word):
    why = operators.explain_work(one, listed, held)
    assert (word in "; ".join(why)) and bool(why) == bool(word)


@pytest.mark.parametrize(
    ("one", "refused"),
    [
        (node(), False),
        (labelled(), False),
        (labelled(**{"mig__config": "all-1g.10gb"}), False),  # its manager is not there
        (labelled(**{"mig__config": "", "gpu__deploy__mig-manager": "true"}), False),
        (labelled(**{"gpu__deploy__mig-manager": "true"}), False),
        (labelled(**{"mig__config": "all-1g.10gb", "gpu__deploy__mig-manager": "true"}), True),
        (labelled(**{"mig__config": "all-1g.10gb", "gpu__deploy__mig-manager": "paused-for-driver-upgrade"}), True),
    ],
)
def test_a_layout_that_the_mig_manager_makes_is_its_own(one, refused):
    assert bool(operators.explain_layout(one)) is refused


def test_they_are_told_to_keep_off_by_their_own_labels():
    assert operators.plan_keep_off(node(), []) == {}
    assert operators.plan_keep_off(labelled(), []) == {}
    assert operators.plan_keep_off(node(labels={UPGRADE: "upgrade-done"}), []) == {
        "nvidia.com/gpu-driver-upgrade.skip": "true"
    }
    assert operators.plan_keep_off(node(), [MONITOR]) == {
        "nvsentinel.dgxc.nvidia.com/managed": "false",
        "k8saas.nvidia.com/ManagedByNVSentinel": "false",
    }


def test_only_parts_that_run_there_are_taken_off_and_the_driver_never():
    assert operators.plan_operands_off(labelled()) == {
        "nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade",
        "nvidia.com/gpu.deploy.dcgm": "paused-for-driver-upgrade",
    }
    assert operators.plan_operands_off(node(labels={"nvidia.com/gpu.deploy.driver": "true"})) == {}


KEY = "nvidia.com/gpu.deploy.dcgm"
TERMS = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": KEY, "operator": "In", "values": ["true"]}]}]
        }
    }
}


@pytest.mark.parametrize(
    ("one", "waits"),
    [
        (pod("a", owner="DaemonSet", selector={KEY: "true"}), True),
        (pod("a", owner="DaemonSet", affinity=TERMS), True),
        (pod("a", owner="DaemonSet", selector={"kubernetes.io/os": "linux"}), False),
        (pod("a", owner="ReplicaSet", selector={KEY: "true"}), False),
        (pod("a", owner="DaemonSet", selector={KEY: "true"}, phase="Failed"), False),
    ],
)
def test_which_pods_end_when_a_label_changes(one, waits):
    assert [each["pod"] for each in operators.find_operands([one], {KEY})] == (["a"] if waits else [])
