# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests for the Prometheus operator: what it scrapes, and its rules. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import rules, scrape
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring.catalog import MonitoringError

# Labels of a node in Kubernetes that become labels of its series; what is not named has none.
NODE_LABEL = "__meta_kubernetes_node_label_"


def meta(name: str, namespace: str, labels: t.Dict[str, str]) -> t.Dict[str, t.Any]:
    return {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "gpufleet", **labels}}


def relabelings(node_labels: t.Dict[str, str], environment: str) -> t.List[t.Dict[str, t.Any]]:
    """Return how the labels of a node come to its series: from the pod's node, and from the node's own labels."""
    found: t.List[t.Dict[str, t.Any]] = [
        {"targetLabel": "job", "replacement": "gpufleet-dcgm"},
        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"},
        # The exporter tells the pod that uses a GPU. Its own pod, which the operator adds, would take that name.
        {"action": "labeldrop", "regex": "pod|container|namespace"},
    ]
    if environment:
        found.append({"targetLabel": "environment", "replacement": environment})
    for label, name in sorted(node_labels.items()):
        if label not in scrape.LABELS:
            raise MonitoringError(
                "gpu_monitoring_node_labels names %s; expected labels among %s." % (label, ", ".join(scrape.LABELS))
            )
        changed = "".join(char if char.isalnum() else "_" for char in name)
        found.append({"sourceLabels": [NODE_LABEL + changed], "regex": "(.+)", "targetLabel": label})
    return found


def service_monitor(
    namespace: str,
    selector: t.Dict[str, str],
    labels: t.Dict[str, str],
    node_labels: t.Dict[str, str],
    environment: str,
    interval: int,
) -> t.Dict[str, t.Any]:
    """Return the ServiceMonitor of dcgm-exporter."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": meta("gpufleet-dcgm", namespace, labels),
        "spec": {
            "attachMetadata": {"node": True},
            "selector": {"matchLabels": dict(selector)},
            "namespaceSelector": {"any": True},
            "endpoints": [
                {
                    "port": "metrics",
                    "interval": "%ds" % interval,
                    "relabelings": relabelings(node_labels, environment),
                    "metricRelabelings": [{"action": "labeldrop", "regex": scrape.DROPPED}],
                }
            ],
            "sampleLimit": scrape.SAMPLE_LIMIT,
        },
    }


def prometheus_rule(
    namespace: str, labels: t.Dict[str, str], thresholds: rules.Thresholds, base: str
) -> t.Dict[str, t.Any]:
    """Return the rules as the operator wants them."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": meta("gpufleet", namespace, labels),
        "spec": {"groups": rules.groups(thresholds, base)},
    }
