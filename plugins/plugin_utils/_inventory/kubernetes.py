# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the nodes of the Kubernetes API into hosts. Pure: objects in, hosts out."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory.hosts import (
    Hosts,
    InventoryProblem,
    Names,
    make_host,
    parse_address,
    parse_place,
    select_usable,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.gpus import GPU as GPU_RESOURCE
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.gpus import SHARED, count_replicas

Node = t.Dict[str, t.Any]
ROLE = "node-role.kubernetes.io/"
# What a kubelet reports of its machine, by the type of the address.
ADDRESSES = {
    "InternalIP": parse_address,
    "ExternalIP": parse_address,
    "Hostname": parse_place,
    "InternalDNS": parse_place,
    "ExternalDNS": parse_place,
}
READY = {"True": "ready", "False": "not_ready"}
GPU = re.compile(r"(nvidia\.com/(gpu|mig-.+))(\.shared)?$")
HAMI = ("hami.io/node-nvidia-register", "4pd.io/node-nvidia-register")  # the node's GPUs, one by one
GPU_UUID = re.compile(r"GPU-[0-9a-f-]{8,}")
VERSIONS = {
    "kubelet": "kubeletVersion",
    "kernel": "kernelVersion",
    "os": "osImage",
    "runtime": "containerRuntimeVersion",
    "architecture": "architecture",
}


def hosts(
    found: t.Sequence[t.Any], asked: str, names: Names, labels: t.Sequence[str] = (), gpus_only: bool = False
) -> Hosts:
    """A host for each node, in the groups of its state, roles, taints and GPUs, and of the labels in LABELS."""
    chosen: Hosts = {}
    seen: t.Set[str] = set()
    for number, node in enumerate(found):
        name = _read_name(node, number, asked)
        if name in seen:
            raise InventoryProblem("%s names node %s twice; expected each once. Ask again." % (asked, name))
        seen.add(name)
        gpus = _count_gpus(node)
        if not gpus_only or sum(gpus.values()):
            chosen[name] = make_host(_make_variables(name, node, gpus), _make_groups(node, gpus, names, labels))
    return select_usable(chosen, names)


def _read_name(node: t.Any, number: int, asked: str) -> str:
    """The name of a node that has all that an API server gives one."""
    parts = [node.get(key) for key in ("metadata", "spec", "status")] if isinstance(node, dict) else []
    name = parts[0].get("name") if parts and isinstance(parts[0], dict) else None
    if (
        not name
        or not isinstance(name, str)
        or not all(isinstance(part, dict) for part in parts)
        or not parts[2].get("conditions")
    ):
        raise InventoryProblem(
            "%s gave half an answer: number %d of its nodes%s lacks its name, spec, status or conditions. Expected "
            "nodes as an API server lists them. "
            "See what answers at that address (a proxy, another API), and ask again."
            % (asked, number + 1, ", %s," % name if name else "")
        )
    return name


def read_readiness(node: Node) -> str:
    """C(ready), C(not_ready), or C(unknown)."""
    said = [
        each.get("status")
        for each in node["status"]["conditions"]
        if isinstance(each, dict) and each.get("type") == "Ready"
    ]
    return READY.get(said[0], "unknown") if len(said) == 1 else "unknown"


def _count_gpus(node: Node) -> t.Dict[str, int]:
    """{resource: how many the kubelet offers} of NVIDIA's GPUs and MIG devices; a number that is none counts as 0."""
    offered = node["status"].get("allocatable") or {}
    return {
        key: int(value) if re.fullmatch(r"[0-9]{1,6}", str(value)) else 0
        for key, value in sorted(offered.items())
        if GPU.match(key)
    }


def _count_devices(node: Node, gpus: t.Dict[str, int]) -> int:
    """The number of GPUs and MIG devices, however often the kubelet offers each."""
    meta, total = node["metadata"], 0
    labels = meta.get("labels") or {}
    register = " ".join(str((meta.get("annotations") or {}).get(key) or "") for key in HAMI)
    for resource, offered in gpus.items():
        shared = count_replicas(labels, resource, gpus)
        base = resource.removesuffix(SHARED)
        count = str(labels.get(base + ".count") or base == GPU_RESOURCE and len(set(GPU_UUID.findall(register))))
        if shared == 1 and re.fullmatch(r"[0-9]{1,6}", count) and int(count) and not offered % int(count):
            shared = max(1, offered // int(count))
        total += offered // shared
    return total


def _read_taints(node: Node) -> t.List[t.Dict[str, str]]:
    return [
        {key: str(each.get(key) or "") for key in ("key", "value", "effect")}
        for each in node["spec"].get("taints") or []
    ]


def _read_roles(labels: t.Dict[str, str]) -> t.List[str]:
    return sorted(key[len(ROLE) :] for key in labels if key.startswith(ROLE) and len(key) > len(ROLE))


def _make_variables(name: str, node: Node, gpus: t.Dict[str, int]) -> t.Dict[str, t.Any]:
    labels, info = node["metadata"].get("labels") or {}, node["status"].get("nodeInfo") or {}
    addresses: t.Dict[str, t.List[str]] = {}
    for each in node["status"].get("addresses") or []:
        kind = each.get("type") if isinstance(each, dict) else None
        found = ADDRESSES[kind](each.get("address")) if kind in ADDRESSES else ""
        if found:
            addresses.setdefault(kind, []).append(found)
    return {
        "kubernetes_node": name,
        "kubernetes_state": read_readiness(node),
        "kubernetes_cordoned": bool(node["spec"].get("unschedulable")),
        "kubernetes_labels": dict(labels),
        "kubernetes_taints": _read_taints(node),
        "kubernetes_roles": _read_roles(labels),
        "kubernetes_addresses": addresses,
        "kubernetes_gpus": _count_devices(node, gpus),
        "kubernetes_gpu_resources": gpus,
        "kubernetes_provider_id": node["spec"].get("providerID") or "",
        "kubernetes_versions": {key: str(info.get(word) or "") for key, word in VERSIONS.items()},
    }


def _make_groups(node: Node, gpus: t.Dict[str, int], names: Names, keys: t.Sequence[str]) -> t.List[str]:
    labels = node["metadata"].get("labels") or {}
    made = ["kubernetes", names.group("kubernetes_state", read_readiness(node))]
    if node["spec"].get("unschedulable"):
        made.append("kubernetes_cordoned")
    made += [names.group("kubernetes_role", each) for each in _read_roles(labels)]
    # With the key of the whole label or taint as one word, so that a clash names it.
    made += [
        names.group("kubernetes_label", "%s=%s" % (key, labels[key]) if labels[key] else key)
        for key in keys
        if key in labels
    ]
    made += [names.group("kubernetes_taint", "%s:%s" % (each["key"], each["effect"])) for each in _read_taints(node)]
    if sum(gpus.values()):
        made.append("kubernetes_gpu")
    return made + [names.group("kubernetes_resource", key) for key, count in gpus.items() if count]
