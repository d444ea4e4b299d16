# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Others that change GPU nodes of a cluster by themselves: NVIDIA's GPU Operator and NVSentinel. Pure.

They are known by the labels they read and write, and are told to keep off by those same labels.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import pods
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.change import (
    find_key_problem,
    find_value_problem,
    get_labels,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import Node

DEPLOY = "nvidia.com/gpu.deploy."
DRIVER = DEPLOY + "driver"
PAUSED = "paused-for-driver-upgrade"
UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
UPGRADE_SKIP = "nvidia.com/gpu-driver-upgrade.skip"
MANAGER = DEPLOY + "mig-manager"
MIG_CONFIG, MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
# What the MIG manager says of its work; success and failed are its ends.
MIG_BUSY = ("pending", "rebooting")
UPGRADE_QUIET = ("", "upgrade-done")
# Behind the value of app may stand a kernel or a release of the operating system, for which the driver was made.
DRIVER_APPS = ("nvidia-driver-daemonset", "nvidia-vgpu-manager-daemonset")
DRIVER_PODS = (
    ("app.kubernetes.io/component", "nvidia-driver"),
    ("app.kubernetes.io/component", "nvidia-vgpu-manager"),
    ("k8s-app", "nvidia-driver-installer"),  # GKE
)

SENTINEL_STATE = "dgxc.nvidia.com/nvsentinel-state"
SENTINEL_PREFIX = "nvsentinel.dgxc.nvidia.com/"
# since some version, and before it
SENTINEL_MANAGED = (SENTINEL_PREFIX + "managed", "k8saas.nvidia.com/ManagedByNVSentinel")
SENTINEL_NAMESPACE = "nvsentinel"

OPERATOR = "GPU Operator"
SENTINEL = "NVSentinel"


def find_operators(node: Node, listed: Iterable[Node]) -> list[str]:
    """Return the operators that manage the node: OPERATOR and SENTINEL, or some of them."""
    labels = get_labels(node)
    here = []
    if (
        UPGRADE_STATE in labels
        or any(key.startswith(DEPLOY) for key in labels)
        or any(_is_driver(pod) for pod in listed)
    ):
        here.append(OPERATOR)
    known = (SENTINEL_STATE,) + SENTINEL_MANAGED
    monitors = any((pod.get("metadata") or {}).get("namespace") == SENTINEL_NAMESPACE for pod in listed)
    if monitors or any(key in known or key.startswith(SENTINEL_PREFIX) for key in labels):
        here.append(SENTINEL)
    return here


def _is_driver(pod: Node) -> bool:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    known = str(labels.get("app") or "").startswith(DRIVER_APPS)
    return (known or any(labels.get(key) == value for key, value in DRIVER_PODS)) and not pods.has_finished(pod)


def explain_work(node: Node, listed: Iterable[Node], held: Container[str] = ()) -> list[str]:
    """Return why the node cannot be taken from the operators now, as sentences; empty if it can. HELD: labels that we
    set ourselves."""
    labels = get_labels(node)
    why = []
    # The operator sets the label DRIVER=true also where the driver is the host's (driver.enabled=false).
    drivers = [pods.describe_pod(pod) for pod in listed if _is_driver(pod)]
    if drivers:
        why.append(
            "the GPU Operator owns the driver of this node (pod %s): change the driver in its ClusterPolicy. If "
            "the driver is the host's own, set driver.enabled=false there, or label the node %s=pre-installed"
            % (pods.list_pods(drivers[:1]), DRIVER)
        )
    state = labels.get(UPGRADE_STATE, "")
    if state not in UPGRADE_QUIET:
        why.append(
            "an upgrade by the GPU Operator is under way (label %s=%s): let it end, or mend it if it failed"
            % (UPGRADE_STATE, state)
        )
    paused = sorted(
        key
        for key, value in labels.items()
        if key.startswith(DEPLOY) and value.startswith("paused-") and key not in held
    )
    if paused:
        why.append(
            "the GPU Operator's parts on this node are paused (label %s=%s): let that work end"
            % (paused[0], labels[paused[0]])
        )
    if labels.get(MIG_STATE) in MIG_BUSY:
        why.append(
            "the GPU Operator's MIG manager is changing its layout (label %s=%s): let it end"
            % (MIG_STATE, labels[MIG_STATE])
        )
    if labels.get(SENTINEL_STATE):
        why.append(
            "NVSentinel is repairing this node (label %s=%s): let it end, or cancel it"
            % (SENTINEL_STATE, labels[SENTINEL_STATE])
        )
    return why


def explain_layout(node: Node) -> str:
    """Return why the MIG layout of the node is not to be changed by others, as a sentence; empty if it may be.

    The MIG manager makes the layout that the label nvidia.com/mig.config names whenever it starts, also after it was
    paused.
    """
    labels = get_labels(node)
    if not labels.get(MIG_CONFIG) or labels.get(MANAGER) not in ("true", PAUSED):
        return ""
    return (
        "the GPU Operator's MIG manager makes the layout of this node (label %s=%s) and would undo another: change "
        "that label, or take the manager off the node first (%s=false)" % (MIG_CONFIG, labels[MIG_CONFIG], MANAGER)
    )


def plan_keep_off(node: Node, listed: Iterable[Node]) -> dict[str, str]:
    """Return the labels that keep both from beginning anything on the node. They are set together with the marker."""
    here = find_operators(node, listed)
    labels = get_labels(node)
    wanted = {}
    if OPERATOR in here and UPGRADE_STATE in labels:
        wanted[UPGRADE_SKIP] = "true"
    if SENTINEL in here:
        wanted.update((key, "false") for key in SENTINEL_MANAGED)
    return wanted


def plan_operands_off(node: Node) -> dict[str, str]:
    """Return the labels that take the GPU Operator's parts off the node, which hold the GPUs open."""
    return dict(
        (key, PAUSED)
        for key, value in get_labels(node).items()
        if key.startswith(DEPLOY) and key != DRIVER and value == "true"
    )


def is_kept(key: str, pair: Any) -> bool:
    """Tell if this collection sets the label KEY, and PAIR can be its value before and after."""
    if not isinstance(pair, list) or len(pair) != 2 or find_key_problem(key):
        return False
    before, value = pair
    if before is not None and (not isinstance(before, str) or find_value_problem(before)):
        return False
    if key.startswith(DEPLOY):
        return key != DRIVER and before == "true" and value == PAUSED
    return value == {UPGRADE_SKIP: "true", **dict.fromkeys(SENTINEL_MANAGED, "false")}.get(key, ())


def _is_selected(pod: Node, keys: Collection[str]) -> bool:
    spec = pod.get("spec") or {}
    if any(key in keys for key in spec.get("nodeSelector") or {}):
        return True
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or []:
        if any(each.get("key") in keys for each in term.get("matchExpressions") or []):
            return True
    return False


def find_operands(listed: Iterable[Node], keys: Collection[str]) -> list[dict[str, Any]]:
    """Return the pods that run on the node because of these labels, and end when the labels say otherwise."""
    return [
        pods.describe_pod(pod)
        for pod in listed
        if pods.get_controller_kind(pod) == "DaemonSet" and not pods.has_finished(pod) and _is_selected(pod, keys)
    ]
