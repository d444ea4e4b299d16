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
from collections.abc import Mapping

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import pods
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import labels_of

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
    shared: tuple = ()  # of shared(), before the drain


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The action to take, and its reason in words."""

    action: str
    why: str = ""


def resources(node, kind="allocatable"):
    """{resource: amount} of the GPUs in the status of a node, those that are 0 too; an amount that is no number is
    None."""
    found = ((node.get("status") or {}).get(kind)) or {}
    return {
        name: int(amount) if re.fullmatch(r"\d+", str(amount)) else None
        for name, amount in sorted(found.items())
        if _RESOURCE.fullmatch(name)
    }


def known(node):
    """Tell if the cluster has ever had GPUs for the node: the kubelet keeps a resource with 0 after its plugin is
    gone."""
    return bool(resources(node) or resources(node, "capacity"))


def replicas(labels, resource, offered=()):
    """Return how often each GPU is advertised; 1 if no label says that pods share it, or those that they share have a
    resource of their own among OFFERED."""
    if resource + SHARED in offered and offered[resource + SHARED]:
        return 1
    texts = [str(labels.get(key) or "1") for key in (resource.removesuffix(SHARED) + ".replicas", GKE_CLIENTS)]
    return max([int(text) for text in texts if re.fullmatch(r"\d{1,6}", text)] + [1])


def number(node, kind="allocatable"):
    """Return the number of GPUs and MIG devices that pods can get; None if it cannot be determined."""
    labels, offered, total = labels_of(node), resources(node, kind), 0
    for resource, amount in offered.items():
        shared_by = replicas(labels, resource, offered)
        if amount is None or amount % shared_by:
            return None
        total += amount // shared_by
    return total


def shared(node, want):
    """Return [how many the cluster has, of how many GPUs] if it has each several times and the labels do not say so."""
    total, labelled = _offered(node, "capacity"), number(node, "capacity")
    found = [total, want.expected]
    if want.compare == NEVER or not is_shared(found) or labelled == want.expected or total <= want.expected:
        return None
    # One more than there are is rather a GPU that is missing, which the plugin has not seen yet.
    return found if labelled != total or total >= 2 * want.expected else None


def is_shared(found):
    """Tell if this can be an answer of shared(), which a node keeps."""
    if not isinstance(found, list) or len(found) != 2:
        return False
    return all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in found)


def _offered(node, kind="allocatable"):
    return sum(amount or 0 for amount in resources(node, kind).values())


def _is_as_before(node, want):
    """Tell if the cluster has as many for the node as before the drain, or for each GPU if their number changed."""
    if not want.shared or want.expected <= 0:
        return False
    (total, gpus), now = want.shared, _offered(node)
    # GPUs that were missing before may be back.
    most = max(gpus, want.expected)
    return (now, want.expected) == (total, gpus) or total % most == 0 and now * most == total * want.expected


def mig_devices(node):
    """{resource: number} of the MIG devices that pods can get by their profile; how often each is advertised does not
    count."""
    labels, found = labels_of(node), {}
    for resource, amount in resources(node).items():
        name = resource.removesuffix(SHARED)
        if name != GPU and amount:
            found[name] = found.get(name, 0) + amount // replicas(labels, resource)
    return found


def other_profiles(node, want):
    """Return the MIG devices that the node has, if the cluster has others; empty if it has these.

    It is also empty if the cluster has all of them as nvidia.com/gpu, which the strategy single does for devices of one
    profile, and if it has devices under names of the administrator's own, which the plugin's configuration may give.
    """
    if want.mig is None:
        return ""
    wanted = {MIG + profile.replace("+", "."): amount for profile, amount in want.mig.items() if amount}
    found = mig_devices(node)
    if not all(names.find_profile(name) for name in found):
        return ""
    if found == wanted or not found and len(wanted) == 1 and want.expected == sum(wanted.values()):
        return ""
    return ", ".join("%s %d" % item for item in sorted(wanted.items())) or "no MIG device"


def _ready(node):
    """A kubelet that does not report tells yesterday's numbers.

    A cluster whose nodes have no conditions has none to wait for.
    """
    ready = [
        each.get("status") for each in (node.get("status") or {}).get("conditions") or [] if each.get("type") == "Ready"
    ]
    return all(status == "True" for status in ready)


def judge(node, want):
    """Decide if the node may be resumed, as far as its GPUs are concerned."""
    if want.compare == NEVER or want.compare == AUTO and want.expected is None:
        return Verdict(SKIP)
    if want.expected is None:
        return Verdict(REFUSE, "how many GPUs it has was not said (expected_gpus), and compare_gpus is always")
    if want.expected < 0:
        if want.compare == AUTO and not known(node):
            return Verdict(SKIP)
        return Verdict(
            REFUSE,
            "the cluster has %s for it, and how many GPUs and MIG devices the node has is not known: they could not "
            "be counted. See which "
            "GPU does not tell its MIG mode or its MIG devices (nvidia-smi -L on the node, or gpu_info with the "
            "subset mig)" % (told(node),),
        )
    if not _ready(node):
        return Verdict(WAIT, "its kubelet is not ready, expected GPUs: %d" % (want.expected,))
    if number(node) == want.expected or _is_as_before(node, want):
        others = other_profiles(node, want)
        if not others:
            return Verdict(SAME)
        return Verdict(WAIT, "the cluster has %s for it, and the node has %s" % (told(node), others))
    return Verdict(
        WAIT,
        "the cluster has %s for it, expected GPUs and MIG devices that pods can get: %d" % (told(node), want.expected),
    )


def unfit(node, want):
    """Return why a node should not be drained: its resume is sure to be refused. Empty if it is not."""
    if want.compare == ALWAYS and want.expected is None:
        return judge(node, want).why
    if want.compare == NEVER or (want.expected or 0) <= 0 or known(node):
        return ""
    return (
        "the node has %d GPUs and MIG devices, and the cluster has never had any for it, so that it could not be "
        "resumed. See whether NVIDIA's device "
        "plugin runs on it; a cluster without the plugin needs compare_gpus never (in role gpu_scheduler "
        "gpu_scheduler_kubernetes_compare_gpus)" % (want.expected,)
    )


def told(node):
    """C(nvidia.com/gpu 7 of 8) for each resource: what pods can get, and of how many."""
    capacity, labels, parts = resources(node, "capacity"), labels_of(node), []
    for resource, amount in resources(node).items():
        of = capacity.get(resource)
        text = "%s %s" % (resource, "unreadable" if amount is None else amount)
        text += " of %s" % of if of is not None and of != amount else ""
        shared = replicas(labels, resource)
        parts.append(text + (" (each GPU %d times)" % shared if shared > 1 else ""))
    return ", ".join(parts) or "no nvidia.com/gpu"


def label_problems(labels):
    """Return a problem for each label that is not KEY=VALUE."""
    return ["%r is no label KEY=VALUE" % (each,) for each in labels if not re.fullmatch(r"[^=\s]+=[^=\s]+", str(each))]


def plugins(listed, want):
    """The device plugin's pods of the node: of a DaemonSet, with one of the labels, and not ending already."""
    wanted = [tuple(str(each).split("=", 1)) for each in want.plugin]
    found = []
    for pod in listed:
        labels = (pod.get("metadata") or {}).get("labels") or {}
        if (
            pods.controller(pod) == "DaemonSet"
            and not pods.finished(pod)
            and any(labels.get(key) == value for key, value in wanted)
        ):
            entry = pods.describe(pod)
            entry["running"] = (pod.get("status") or {}).get("phase") == "Running"
            found += [] if entry["terminating"] else [entry]
    return found
