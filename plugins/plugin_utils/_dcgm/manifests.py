# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exporter in Kubernetes: values for NVIDIA's chart, and plain manifests. Pure.

Its pods ask the engine of their node, so that they use the node's network and no engine runs inside of them. Kubernetes
ends a pod with SIGKILL at last: the grace period is long, and a pod that asks an engine computes on no GPU.
"""

from __future__ import annotations

import json
import typing as t

import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import versions

NAME, PORT, FILE = "dcgm-exporter", "metrics", "/etc/dcgm-exporter/default-counters.csv"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "gpufleet"}
RESOURCES = "/var/lib/kubelet/pod-resources"
GRACE_S = 300


def make_arguments(options: t.Mapping[str, t.Any]) -> t.List[str]:
    """Return the arguments of the exporter."""
    return ["-f", FILE, "-a", ":%d" % options["port"], "-c", str(1000 * options["interval"]), "-r", options["engine"]]


def make_security_context(profiling: bool) -> t.Dict[str, t.Any]:
    """Return the security context; profiling counters take SYS_ADMIN."""
    more: t.Dict[str, t.Any] = {"add": ["SYS_ADMIN"]} if profiling else {}
    return {
        "runAsNonRoot": False,
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **more},
    }


def make_chart_values(options: t.Mapping[str, t.Any]) -> str:
    """Return values for the chart gpu-helm-charts/dcgm-exporter."""
    repository, tag, dummy = versions.split_image(options["image"])
    return _dump_documents(
        {
            "image": {"repository": repository, "tag": tag},
            "arguments": make_arguments(options),
            "customMetrics": options["counters"],
            "hostNetwork": True,
            "runtimeClassName": options["runtime_class"],
            "nodeSelector": dict(options["node_selector"]),
            "tolerations": list(options["tolerations"]),
            "securityContext": make_security_context(options["profiling"]),
            "service": {"port": options["port"], "address": ":%d" % options["port"]},
            # The role gpu_monitoring writes one with the labels of this collection.
            "serviceMonitor": {"enabled": False},
        }
    )


def plain(options: t.Mapping[str, t.Any]) -> str:
    """Return the same without the chart: a ConfigMap, a DaemonSet and a Service."""
    meta = {"name": NAME, "namespace": options["namespace"], "labels": LABELS}
    selector = {"app.kubernetes.io/name": NAME}
    container = {
        "name": NAME,
        "image": options["image"],
        "args": make_arguments(options),
        "env": [
            {"name": "DCGM_EXPORTER_KUBERNETES", "value": "true"},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "ports": [{"name": PORT, "containerPort": options["port"]}],
        "securityContext": make_security_context(options["profiling"]),
        "volumeMounts": [
            {"name": "counters", "mountPath": FILE, "subPath": "counters"},
            {"name": "pod-resources", "mountPath": RESOURCES, "readOnly": True},
        ],
    }
    pod: t.Dict[str, t.Any] = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": GRACE_S,
        "priorityClassName": "system-node-critical",
        "nodeSelector": dict(options["node_selector"]),
        "tolerations": list(options["tolerations"]),
        "containers": [container],
        "volumes": [
            {"name": "counters", "configMap": {"name": NAME}},
            {"name": "pod-resources", "hostPath": {"path": RESOURCES}},
        ],
    }
    if options["runtime_class"]:
        pod["runtimeClassName"] = options["runtime_class"]
    return _dump_documents(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"counters": options["counters"]}},
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": selector}, "template": {"metadata": {"labels": LABELS}, "spec": pod}},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": selector, "ports": [{"name": PORT, "port": options["port"], "targetPort": PORT}]},
        },
    )


def _dump_documents(*documents: t.Any) -> str:
    """Return the documents as YAML, also where texts of them are of Ansible's own classes."""
    return yaml.dump_all(json.loads(json.dumps(documents)), Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """The documents share parts; a manifest has no anchors."""

    def ignore_aliases(self, data: t.Any) -> bool:
        return True
