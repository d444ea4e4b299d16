# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of the API as tests want them, written by hand after its documentation."""

from __future__ import annotations

import itertools

_number = itertools.count(1)


def container(gpus=0, resource="nvidia.com/gpu", where="limits", claims=None):
    resources = {where: {resource: str(gpus), "cpu": "1"}} if gpus else {"requests": {"cpu": "1"}}
    if claims:
        resources["claims"] = [{"name": name} for name in claims]
    return {"name": "main", "image": "registry.invalid/work:1", "resources": resources}


def pod(name, node="gpu-1", gpus=0, owner="ReplicaSet", namespace="default", uid=None, phase="Running", **more):
    """A pod.

    MORE: containers, init, volumes, claims, annotations, labels, selector, affinity, deleted, finalizers, grace.
    """
    meta = {"name": name, "namespace": namespace, "uid": uid or "uid-%d" % next(_number)}
    for key, field in (
        ("annotations", "annotations"),
        ("labels", "labels"),
        ("deleted", "deletionTimestamp"),
        ("finalizers", "finalizers"),
    ):
        if more.get(key):
            meta[field] = more[key]
    if owner:
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": name + "-owner", "uid": "o-" + name, "controller": True}
        ]
    spec = {"nodeName": node, "containers": more.get("containers") or [container(gpus)]}
    for key, field in (
        ("init", "initContainers"),
        ("volumes", "volumes"),
        ("claims", "resourceClaims"),
        ("selector", "nodeSelector"),
        ("affinity", "affinity"),
        ("grace", "terminationGracePeriodSeconds"),
    ):
        if more.get(key) is not None:
            spec[field] = more[key]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def node(name="gpu-1", unschedulable=False, labels=None, annotations=None, taints=None, version="7", gpus=None):
    spec = {}
    if unschedulable:
        spec["unschedulable"] = True
    if taints:
        spec["taints"] = taints
    meta = {
        "name": name,
        "resourceVersion": version,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    found = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}
    if gpus is not None:
        found["status"] = gpu_status(gpus)
    return found


def gpu_status(gpus):
    """What a kubelet tells once its device plugin has told it the GPUs: their number, or {resource: number}."""
    amounts = {
        name: str(amount) for name, amount in (gpus if isinstance(gpus, dict) else {"nvidia.com/gpu": gpus}).items()
    }
    return {"capacity": dict(amounts, cpu="8"), "allocatable": dict(amounts, cpu="8")}
