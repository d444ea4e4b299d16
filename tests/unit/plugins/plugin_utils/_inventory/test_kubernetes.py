# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of a cluster as hosts, and each way in which one is not whole."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory import hosts, kubernetes

NODE = {
    "metadata": {
        "name": "gpu-1",
        "labels": {
            "kubernetes.io/hostname": "gpu-1",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "node-role.kubernetes.io/worker": "",
            "nvidia.com/gpu.present": "true",
            "empty": "",
        },
    },
    "spec": {"providerID": "x://1", "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
    "status": {
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        "allocatable": {
            "cpu": "64",
            "nvidia.com/gpu": "7",
            "nvidia.com/mig-1g.10gb": "2",
            "nvidia.com/gpu.shared": "0",
        },
        "addresses": [
            {"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "2001:db8::1"},
            {"type": "Hostname", "address": "gpu-1"},
        ],
        "nodeInfo": {"kubeletVersion": "v1.31.0", "kernelVersion": "6.1.0"},
    },
}


def changed(path, value):
    node = copy.deepcopy(NODE)
    place = node
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return node


def made(*nodes, **more):
    return kubernetes.hosts(nodes, "it", hosts.Names(), **more)


def test_a_node_is_a_host_in_groups():
    one = made(NODE, labels=["nvidia.com/gpu.product", "empty", "absent"])["gpu-1"]
    assert one["groups"] == [
        "kubernetes",
        "kubernetes_gpu",
        "kubernetes_label_empty",
        "kubernetes_label_nvidia_com_gpu_product_nvidia_h100_80gb_hbm3",
        "kubernetes_resource_nvidia_com_gpu",
        "kubernetes_resource_nvidia_com_mig_1g_10gb",
        "kubernetes_role_worker",
        "kubernetes_state_ready",
        "kubernetes_taint_nvidia_com_gpu_noschedule",
    ]
    found = one["variables"]
    assert (found["kubernetes_gpus"], found["kubernetes_state"], found["kubernetes_cordoned"]) == (9, "ready", False)
    assert found["kubernetes_addresses"]["InternalIP"] == ["192.0.2.1", "2001:db8::1"]
    assert found["kubernetes_versions"]["kubelet"] == "v1.31.0" and found["kubernetes_versions"]["os"] == ""
    assert all(name.startswith("kubernetes_") for name in found), "variables keep to their prefix"


STATES = [
    ([{"type": "Ready", "status": "True"}], "ready"),
    ([{"type": "Ready", "status": "False"}], "not_ready"),
    ([{"type": "Ready", "status": "Unknown"}], "unknown"),
    ([{"type": "Ready"}], "unknown"),
    ([{"type": "MemoryPressure", "status": "False"}], "unknown"),
    ([{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}], "unknown"),
]


@pytest.mark.parametrize("conditions, state", STATES)
def test_only_a_clear_word_makes_a_node_ready(conditions, state):
    assert "kubernetes_state_" + state in made(changed(("status", "conditions"), conditions))["gpu-1"]["groups"]


def test_a_cordoned_node_says_so():
    assert "kubernetes_cordoned" in made(changed(("spec", "unschedulable"), True))["gpu-1"]["groups"]


@pytest.mark.parametrize(
    "offered, count",
    [
        ({}, 0),
        (None, 0),
        ({"nvidia.com/gpu": "0"}, 0),
        ({"nvidia.com/gpu": "8k"}, 0),
        ({"amd.com/gpu": "8"}, 0),
        ({"nvidia.com/gpu.shared": "4"}, 4),
    ],
)
def test_gpus_are_what_the_kubelet_offers(offered, count):
    node = changed(("status", "allocatable"), offered)
    assert made(node)["gpu-1"]["variables"]["kubernetes_gpus"] == count
    assert bool(made(node, gpus_only=True)) is bool(count)


@pytest.mark.parametrize(
    ("offered", "labels", "annotations", "count"),
    [
        ({"nvidia.com/gpu.shared": "32", "nvidia.com/gpu": "0"}, {"nvidia.com/gpu.replicas": "4"}, {}, 8),
        ({"nvidia.com/gpu": "32"}, {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "8"}, {}, 8),
        ({"nvidia.com/gpu": "80"}, {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.count": "8"}, {}, 8),
        ({"nvidia.com/gpu": "16"}, {"cloud.google.com/gke-max-shared-clients-per-gpu": "2"}, {}, 8),
        ({"nvidia.com/gpu": "7"}, {"nvidia.com/gpu.count": "8"}, {}, 7),
        ({"nvidia.com/gpu": "6", "nvidia.com/mig-1g.10gb": "14"}, {"nvidia.com/mig-1g.10gb.count": "14"}, {}, 20),
        ({"nvidia.com/gpu": "20"}, {}, {"hami.io/node-nvidia-register": "GPU-00000001,10,81:GPU-00000002,10,81:"}, 2),
        ({"nvidia.com/gpu": "40"}, {}, {}, 40),
    ],
)
def test_shared_gpus_are_counted_once(offered, labels, annotations, count):
    node = changed(("status", "allocatable"), offered)
    node["metadata"].update(labels=labels, annotations=annotations)
    assert made(node)["gpu-1"]["variables"]["kubernetes_gpus"] == count


NOT_WHOLE = {
    "null": None,
    "a text": "gpu-1",
    "an empty object": {},
    "no name": changed(("metadata", "name"), ""),
    "a name that is none": changed(("metadata", "name"), 7),
    "no metadata": {"spec": {}, "status": NODE["status"]},
    "metadata only": {"metadata": NODE["metadata"]},
    "no status": changed(("status",), None),
    "no spec": changed(("spec",), None),
    "no conditions": changed(("status", "conditions"), []),
}


@pytest.mark.parametrize("node", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_half_a_node_is_refused_also_behind_whole_ones(node):
    with pytest.raises(hosts.InventoryProblem, match="^it gave half an answer: number 2"):
        made(NODE, node)


def test_a_node_that_is_named_twice_is_refused():
    with pytest.raises(hosts.InventoryProblem, match="gpu-1 twice"):
        made(NODE, NODE)


def test_address_that_a_kubelet_reports_is_one_or_nothing():
    said = [
        {"type": "InternalIP", "address": "127.0.0.1"},
        {"type": "InternalIP", "address": "{{ lookup('pipe', 'id') }}"},
        {"type": "InternalIP", "address": "192.0.2.7"},
        {"type": "ExternalIP", "address": "-oProxyCommand=id"},
        {"type": "Hostname", "address": "localhost"},
        {"type": "InternalDNS", "address": "gpu-1.example.com"},
        {"type": "{{ 1 }}", "address": "192.0.2.8"},
        "x",
    ]
    found = kubernetes.hosts([changed(("status", "addresses"), said)], "test", hosts.Names())
    assert found["gpu-1"]["variables"]["kubernetes_addresses"] == {
        "InternalIP": ["192.0.2.7"],
        "InternalDNS": ["gpu-1.example.com"],
    }


@pytest.mark.parametrize("name", ["all", "localhost", "../x", "{{ 1 }}"])
def test_node_with_name_of_no_host_is_left_out(name):
    names = hosts.Names()
    assert list(kubernetes.hosts([NODE, changed(("metadata", "name"), name)], "test", names)) == ["gpu-1"]
    assert names.left_out == [name]


@pytest.mark.parametrize("number", ["9" * 5000, "1e9", "-1", None])
def test_number_of_gpus_that_is_none_counts_as_zero(number):
    found = kubernetes.hosts([changed(("status", "allocatable"), {"nvidia.com/gpu": number})], "test", hosts.Names())
    assert found["gpu-1"]["variables"]["kubernetes_gpus"] == 0
