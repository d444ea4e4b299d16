# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which pods of a node are evicted, which must not be, and which prevent the drain. Pure: pods in, decision
out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import Node

Entry = dict[str, Any]  # of describe_pod()

# How the names of resources begin by which pods get GPUs. Device plugins are many (HAMi, volcano, gpushare, those of
# clouds), and what they give is called a GPU by nearly all, or by its model below nvidia.com/, where others are of
# networks.
_MODELS = (
    "(?:[abhkmptv]|g[bh])[0-9]{2,4}[a-z]{0,3}|a2|l4|l[24]0[a-z]?|m4|p4|t4g?|rtx[0-9a-z]*|tesla|geforce|quadro|"
    "titan[a-z]*|thor|hopper|blackwell"
)
GPU_RESOURCES = re.compile(
    "|".join(
        (
            r"(?!amd\.com/|(?:[a-z]+\.)?intel\.com/)[a-z0-9.-]+/.*gpu",
            r"nvidia\.com/(?:mig-|[A-Z]|(?:[a-z0-9]+[-._])*(?:%s)(?:[-._]|\Z))" % _MODELS,
            r"deviceclass\.resource\.kubernetes\.io/",
            r"tencent\.com/vcuda",
            r"elasticgpu\.(?:io|com)/",
        )
    )
)
# Annotations of schedulers that share GPUs without a resource (KAI and Run:ai, KubeShare), and of CDI.
GPU_ANNOTATIONS = re.compile(r"(?:gpu-fraction|gpu-memory|sharedgpu/gpu_request|cdi\.k8s\.io/.*)\Z")
DEVICE_MOUNTS = "/var/run/nvidia-container-devices"  # NVIDIA's runtime gives what is mounted there
MIRROR = "kubernetes.io/config.mirror"
FINISHED = ("Succeeded", "Failed")
SHOWN = 10  # pods named in one message

REASONS = {
    "unmanaged": "no controller would create it again: set unmanaged_pods to evict",
    "emptydir": "it loses the data of an emptyDir volume: set emptydir_pods to evict",
    "daemonset": "a DaemonSet would put it back at once: set daemonset_pods to leave",
}


@dataclasses.dataclass(frozen=True)
class Policy:
    """The rules for evicting pods."""

    scope: str = "gpu"  # gpu: only pods that hold GPUs; all
    daemonset: str = "leave"  # leave, refuse
    unmanaged: str = "refuse"  # refuse, evict
    emptydir: str = "refuse"  # refuse, evict


@dataclasses.dataclass
class Decision:
    """GOING: to evict or to wait for, GPU holders first.

    BLOCKERS: what the policy does not allow. LEFT: pods that stay, and why.
    """

    going: list
    blockers: list
    left: list


def _requests_gpu(resources: Any) -> bool:
    for kind in ("requests", "limits"):
        for name, amount in ((resources or {}).get(kind) or {}).items():
            if GPU_RESOURCES.match(name) and str(amount) not in ("", "0"):
                return True
    return False


def holds_gpu(pod: Node) -> bool:
    """Tell if the pod gets GPUs: by an extended resource of any container, a claim of dynamic resource allocation, an
    annotation, or past the scheduler.

    The device of a claim is in another object, which may not be readable: any claim counts.
    """
    spec = pod.get("spec") or {}
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    # An extended resource that a DeviceClass stands for has a name of the administrator's own (KEP-5004).
    if (pod.get("status") or {}).get("extendedResourceClaimStatus"):
        return True
    if spec.get("resourceClaims") or any(GPU_ANNOTATIONS.match(key) and value for key, value in annotations.items()):
        return True
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    if any(_requests_gpu(each.get("resources")) or (each.get("resources") or {}).get("claims") for each in containers):
        return True
    # The parts of GPU operators and monitors see all GPUs and compute on none: they are pods of DaemonSets.
    return get_controller_kind(pod) != "DaemonSet" and _sees_gpus(spec, containers)


def _sees_gpus(spec: Any, containers: list[Any]) -> bool:
    """Tell if the container runtime gives the pod GPUs without a scheduler that counts them."""
    values = [
        str(entry.get("value") or ("unknown" if entry.get("valueFrom") else "void"))
        for each in containers
        for entry in each.get("env") or []
        if entry.get("name") == "NVIDIA_VISIBLE_DEVICES"
    ]
    paths = [str((each.get("hostPath") or {}).get("path") or "") for each in spec.get("volumes") or []]
    mounts = [str(mount.get("mountPath") or "") for each in containers for mount in each.get("volumeMounts") or []]
    return (
        any(value not in ("void", "none") for value in values)
        or not values
        and "nvidia" in str(spec.get("runtimeClassName") or "")
        or any(path.startswith("/dev/nvidia") for path in paths)
        or any(path.startswith(DEVICE_MOUNTS) for path in mounts)
    )


def get_controller_kind(pod: Node) -> str:
    """Return the kind of the controller that would create the pod again, or nothing."""
    for owner in (pod.get("metadata") or {}).get("ownerReferences") or []:
        if owner.get("controller"):
            return str(owner.get("kind") or "")
    return ""


def describe_pod(pod: Node) -> Entry:
    meta = pod.get("metadata") or {}
    return {
        "namespace": str(meta.get("namespace") or ""),
        "pod": str(meta.get("name") or ""),
        "uid": str(meta.get("uid") or ""),
        "gpu": holds_gpu(pod),
        "terminating": str(meta.get("deletionTimestamp") or ""),
        "finalizers": [str(each) for each in meta.get("finalizers") or []],
    }


def make_blocker(entry: Entry, reason: str, message: str, budget: str = "") -> dict[str, str]:
    return {
        "namespace": entry["namespace"],
        "pod": entry["pod"],
        "reason": reason,
        "budget": budget,
        "message": message,
    }


def has_finished(pod: Node) -> bool:
    return (pod.get("status") or {}).get("phase") in FINISHED


def _explain_staying(pod: Node, policy: Policy) -> str:
    """Return why a pod is never evicted; empty if it may be."""
    if MIRROR in ((pod.get("metadata") or {}).get("annotations") or {}):
        return "mirror"
    if get_controller_kind(pod) == "DaemonSet" and policy.daemonset == "leave":
        return "daemonset"
    return ""


def _find_broken_rule(pod: Node, policy: Policy) -> str:
    """Return the first rule of the policy that keeps the pod. Empty if it may be evicted."""
    if get_controller_kind(pod) == "DaemonSet":
        return "daemonset"
    if not get_controller_kind(pod) and policy.unmanaged != "evict":
        return "unmanaged"
    if policy.emptydir != "evict" and any(
        "emptyDir" in volume for volume in (pod.get("spec") or {}).get("volumes") or []
    ):
        return "emptydir"
    return ""


def decide_pods(pods: Iterable[Node], policy: Policy) -> Decision:
    """Decide about each pod of the node."""
    going, blockers, left = [], [], []
    for pod in pods:
        entry = describe_pod(pod)
        if has_finished(pod) or policy.scope == "gpu" and not entry["gpu"]:
            continue
        kept = _explain_staying(pod, policy)
        if kept:
            left.append({"namespace": entry["namespace"], "pod": entry["pod"], "reason": kept, "gpu": entry["gpu"]})
            continue
        # What terminates already goes without us: no rule can hold it back.
        reason = "" if entry["terminating"] else _find_broken_rule(pod, policy)
        if reason:
            blockers.append(make_blocker(entry, reason, REASONS[reason]))
        else:
            going.append(entry)
    going.sort(key=lambda entry: (not entry["gpu"], entry["namespace"], entry["pod"]))
    return Decision(going, blockers, left)


def select_due(going: list[Entry]) -> list[Entry]:
    """Return the pods whose turn it is: the others wait until no pod that holds a GPU is left."""
    holders = [entry for entry in going if entry["gpu"]]
    return holders or going


def list_pods(entries: Sequence[Entry]) -> str:
    """Return "default/a (reason), default/b" for a message, never longer than a screen."""
    shown = []
    for entry in entries[:SHOWN]:
        text = "%s/%s" % (entry["namespace"], entry["pod"])
        why = entry.get("message") or entry.get("reason")
        shown.append("%s (%s)" % (text, why) if why else text)
    more = len(entries) - SHOWN
    return ", ".join(shown) + (" and %d more" % more if more > 0 else "")
