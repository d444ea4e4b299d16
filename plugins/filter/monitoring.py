# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render the files with which Prometheus and Alertmanager watch a fleet."""

from __future__ import annotations

DOCUMENTATION = r"""
name: monitoring
short_description: Render the files with which Prometheus and Alertmanager watch a fleet
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Internal to role C(gpu_monitoring).
options:
  _input:
    description: The options of the role without their prefix, as C(roles/gpu_monitoring/vars/main.yml) gives them.
    type: dict
    required: true
"""

from typing import Any, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import (
    catalog,
    manifests,
    missing,
    routes,
    rules,
    scrape,
)

Given = Mapping[str, Any]


def _make_scrape_configs(given: Given, limits: Any) -> list[dict[str, Any]]:
    return scrape.scrape_configs(
        given["directory"],
        limits["scrape_interval"]["value"],
        given["scrape_options"],
        given["ipmi_exporter"],
        given["static"],
    )


def _make_prometheus_config(given: Given, limits: Any) -> dict[str, Any]:
    configs, interval = _make_scrape_configs(given, limits), limits["scrape_interval"]["value"]
    return scrape.whole(given["directory"], configs, given["alertmanagers"], interval)


def _make_service_monitor(given: Given, limits: Any) -> dict[str, Any]:
    names = ("namespace", "selector", "manifest_labels", "node_labels", "environment")
    return manifests.service_monitor(*(given[name] for name in names), limits["scrape_interval"]["value"])


DATA = {
    "groups": lambda given, limits: {group["name"]: len(group["rules"]) for group in rules.groups(limits)},
    "left_out": lambda given, limits: rules.left_out(limits),
    "jobs": lambda given, limits: [config["job_name"] for config in _make_scrape_configs(given, limits)],
}
DOCUMENTS = {
    "rules": lambda given, limits: {"groups": rules.groups(limits, given["runbooks"])},
    "scrape": lambda given, limits: {"scrape_configs": _make_scrape_configs(given, limits)},
    "prometheus": _make_prometheus_config,
    "alertmanager": lambda given, limits: routes.config(
        given["receivers"], *(given["receiver_" + name] for name in ("page", "ticket", "info", "other"))
    ),
    "service_monitor": _make_service_monitor,
    "prometheus_rule": lambda given, limits: manifests.prometheus_rule(
        given["namespace"], given["manifest_labels"], limits, given["runbooks"]
    ),
}


def render_monitoring(given: Given, what: str, hostvars: Any = None, groups: Any = None) -> Any:
    """Return a document as text, the texts of the target files by job, or data about the rules.

    The missing series are told of the names of those that a Prometheus has.
    """
    try:
        if what == "missing":
            return missing.lines(missing.report(given["series"]))
        if what == "targets":
            names = ("label_groups", "ports")
            found = scrape.targets(given["nodes"], hostvars, groups, *(given[name] for name in names))
            return {job: rules.document(entries) for job, entries in found.items()}
        limits = catalog.thresholds(given["thresholds"])
        if what in DATA:
            return DATA[what](given, limits)
        if what in DOCUMENTS:
            return rules.document(DOCUMENTS[what](given, limits))
    except catalog.MonitoringError as exc:
        raise AnsibleFilterError(str(exc)) from exc
    raise AnsibleFilterError(
        "monitoring renders missing, targets, %s; found %s" % (", ".join([*DATA, *DOCUMENTS]), what)
    )


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"monitoring": render_monitoring}
