# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the GPUs that a cluster has for a node with those of the node, by its object and its pods. Pure.

NVIDIA's device plugin advertises whole GPUs as nvidia.com/gpu and MIG devices as that (strategy single) or as
nvidia.com/mig-PROFILE (mixed). If pods share GPUs, it advertises each one several times, and GPU feature discovery
gives the number in a label of the node, RESOURCE.replicas. HAMi and others advertise a GPU several times without a
label: what the cluster had before the drain tells how often.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import pods
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import get_labels
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import Node

AUTO, ALWAYS, NEVER = "auto", "always", "never"
SAME, WAIT, REFUSE, SKIP = "same", "wait", "refuse", "skip"
SHARED = ".shared"
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-"
GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
# Others give resources such as nvidia.com/gpumem: they are no GPUs.
_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-[a-z0-9.-]+?)(\.shared)?")


@dataclasses.dataclass(frozen=True)
class Want:
    """EXPECTED: how many GPUs and MIG devices NVML has; negative if they could not be counted, None if the caller
    does not say."""

    expected: int | None = None
    compare: str = AUTO
    mig: Mapping[str, int] | None = None  # its MIG devices by profile; None if the caller does not say
    plugin: tuple = ()  # labels (KEY=VALUE) of the device plugin's pods
    restart: bool = (
        False  # whether the layout has changed, so that what the plugin gives is of the old one, whatever its number
    )
    timeout_s: int = 300
    shared: tuple = ()  # of find_sharing(), before the drain


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The action to take, and its reason in words."""

    action: str
    why: str = ""


def count_resources(node: Node, kind: str = "allocatable") -> dict[str, int | None]:
    """Return {resource: amount} of the GPUs in the status of a node. An amount that is no number is None."""
    found = ((node.get("status") or {}).get(kind)) or {}
    return {
        name: int(amount) if re.fullmatch(r"\d+", str(amount)) else None
        for name, amount in sorted(found.items())
        if _RESOURCE.fullmatch(name)
    }


def has_known_gpus(node: Node) -> bool:
    """Tell if the cluster has ever had GPUs for the node: the kubelet keeps a resource with 0 after its plugin is
    gone."""
    return bool(count_resources(node) or count_resources(node, "capacity"))


def is_given_by_others(node: Node) -> bool:
    """Tell if the cluster gives the node's GPUs by other device plugins alone, under their own resources."""
    found = ((node.get("status") or {}).get("capacity")) or {}
    others = [
        name
        for name, amount in found.items()
        if pods.GPU_RESOURCES.match(name) and not _RESOURCE.fullmatch(name) and str(amount) not in ("", "0")
    ]
    return bool(others) and not _sum_offered(node, "capacity")


def count_replicas(labels: dict[str, str], resource: str, offered: Any = ()) -> int:
    """Return how often each GPU is advertised; 1 if no label says that pods share it, or those that they share have a
    resource of their own among OFFERED."""
    if resource + SHARED in offered and offered[resource + SHARED]:
        return 1
    texts = [str(labels.get(key) or "1") for key in (resource.removesuffix(SHARED) + ".replicas", GKE_CLIENTS)]
    return max([int(text) for text in texts if re.fullmatch(r"\d{1,6}", text)] + [1])


def count_gpus(node: Node, kind: str = "allocatable") -> int | None:
    """Return the number of GPUs and MIG devices that pods can get; None if it cannot be determined."""
    labels, offered, total = get_labels(node), count_resources(node, kind), 0
    for resource, amount in offered.items():
        shared_by = count_replicas(labels, resource, offered)
        if amount is None or amount % shared_by:
            return None
        total += amount // shared_by
    return total


def find_sharing(node: Node, want: Want) -> list[int | None] | None:
    """Return [how many the cluster has, of how many GPUs] if it has each several times and the labels do not say so."""
    total, labelled = _sum_offered(node, "capacity"), count_gpus(node, "capacity")
    found = [total, want.expected]
    if want.compare == NEVER or not is_shared(found) or labelled == want.expected or total <= want.expected:
        return None
    # One more than there are is rather a GPU that is missing, which the plugin has not seen yet.
    return found if labelled != total or total >= 2 * want.expected else None


def is_shared(found: Any) -> bool:
    """Tell if this can be an answer of find_sharing(), which a node keeps."""
    if not isinstance(found, list) or len(found) != 2:
        return False
    return all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in found)


def _sum_offered(node: Node, kind: str = "allocatable") -> int:
    return sum(amount or 0 for amount in count_resources(node, kind).values())


def _is_as_before(node: Node, want: Want) -> bool:
    """Tell if the cluster has as many for the node as before the drain, or for each GPU if their number changed."""
    if not want.shared or want.expected <= 0:
        return False
    (total, gpus), now = want.shared, _sum_offered(node)
    # GPUs that were missing before may be back.
    most = max(gpus, want.expected)
    return (now, want.expected) == (total, gpus) or total % most == 0 and now * most == total * want.expected


def count_mig_devices(node: Node) -> dict[str, int]:
    """Return {resource: number} of the MIG devices that pods can get, however often each is advertised."""
    labels, found = get_labels(node), {}
    for resource, amount in count_resources(node).items():
        name = resource.removesuffix(SHARED)
        if name != GPU and amount:
            found[name] = found.get(name, 0) + amount // count_replicas(labels, resource)
    return found


def find_other_profiles(node: Node, want: Want) -> str:
    """Return the MIG devices that the node has, if the cluster has others; empty if it has these.

    It is also empty if the cluster has all of them as nvidia.com/gpu, which the strategy single does for devices of one
    profile, and if it has devices under names of the administrator's own, which the plugin's configuration may give.
    """
    if want.mig is None:
        return ""
    wanted = {MIG + profile.replace("+", "."): amount for profile, amount in want.mig.items() if amount}
    found = count_mig_devices(node)
    if not all(names.find_profile(name) for name in found):
        return ""
    if found == wanted or not found and len(wanted) == 1 and want.expected == sum(wanted.values()):
        return ""
    return ", ".join("%s %d" % item for item in sorted(wanted.items())) or "no MIG device"


def _is_ready(node: Node) -> bool:
    """Tell if the kubelet reports: otherwise its numbers are old. A node without conditions has none to wait for."""
    ready = [
        each.get("status") for each in (node.get("status") or {}).get("conditions") or [] if each.get("type") == "Ready"
    ]
    return all(status == "True" for status in ready)


def decide_resume(node: Node, want: Want) -> Verdict:
    """Decide if the node may be resumed, as far as its GPUs are concerned."""
    if want.compare == NEVER or want.compare == AUTO and want.expected is None:
        return Verdict(SKIP)
    if want.expected is None:
        return Verdict(REFUSE, "how many GPUs it has was not said (expected_gpus), and compare_gpus is always")
    if want.expected < 0:
        if want.compare == AUTO and not has_known_gpus(node):
            return Verdict(SKIP)
        return Verdict(
            REFUSE,
            "the cluster has %s for it, and how many GPUs and MIG devices the node has is not known: they could not "
            "be counted. See which "
            "GPU does not tell its MIG mode or its MIG devices (nvidia-smi -L on the node, or gpu_info with the "
            "subset mig)" % (describe_resources(node),),
        )
    if not _is_ready(node):
        return Verdict(WAIT, "its kubelet is not ready, expected GPUs: %d" % (want.expected,))
    if count_gpus(node) == want.expected or _is_as_before(node, want):
        others = find_other_profiles(node, want)
        if not others:
            return Verdict(SAME)
        return Verdict(WAIT, "the cluster has %s for it, and the node has %s" % (describe_resources(node), others))
    return Verdict(
        WAIT,
        "the cluster has %s for it, expected GPUs and MIG devices that pods can get: %d"
        % (describe_resources(node), want.expected),
    )


def explain_unfit(node: Node, want: Want) -> str:
    """Return why a node should not be drained: its resume is sure to be refused. Empty if it is not."""
    if want.compare == ALWAYS and want.expected is None:
        return decide_resume(node, want).why
    if want.compare == NEVER or (want.expected or 0) <= 0 or has_known_gpus(node) and not is_given_by_others(node):
        return ""
    return (
        "the node has %d GPUs and MIG devices, and the cluster has never had any for it under NVIDIA's names, so that "
        "it could not be resumed. See whether NVIDIA's device "
        "plugin runs on it; a cluster without the plugin needs compare_gpus never (in role gpu_scheduler "
        "gpu_scheduler_kubernetes_compare_gpus)" % (want.expected,)
    )


def describe_resources(node: Node) -> str:
    """Return "nvidia.com/gpu 7 of 8" for each resource: what pods can get, and of how many."""
    capacity, labels, parts = count_resources(node, "capacity"), get_labels(node), []
    for resource, amount in count_resources(node).items():
        of = capacity.get(resource)
        text = "%s %s" % (resource, "unreadable" if amount is None else amount)
        text += " of %s" % of if of is not None and of != amount else ""
        shared = count_replicas(labels, resource)
        parts.append(text + (" (each GPU %d times)" % shared if shared > 1 else ""))
    return ", ".join(parts) or "no nvidia.com/gpu"


def find_label_problems(labels: Any) -> list[str]:
    """Return a problem for each label that is not KEY=VALUE."""
    return ["%r is no label KEY=VALUE" % (each,) for each in labels if not re.fullmatch(r"[^=\s]+=[^=\s]+", str(each))]


def find_device_plugins(listed: Iterable[Node], want: Want) -> list[dict[str, Any]]:
    """Return the device plugin's pods: of a DaemonSet, with one of the labels, and not ending already."""
    wanted = [tuple(str(each).split("=", 1)) for each in want.plugin]
    found = []
    for pod in listed:
        labels = (pod.get("metadata") or {}).get("labels") or {}
        if (
            pods.get_controller_kind(pod) == "DaemonSet"
            and not pods.has_finished(pod)
            and any(labels.get(key) == value for key, value in wanted)
        ):
            entry = pods.describe_pod(pod)
            entry["running"] = (pod.get("status") or {}).get("phase") == "Running"
            found += [] if entry["terminating"] else [entry]
    return found
