# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files with which Prometheus and Alertmanager watch a fleet."""

from __future__ import annotations

DOCUMENTATION = r"""
name: monitoring
short_description: Render the files with which Prometheus and Alertmanager watch a fleet
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Renders rules, targets, configurations, dashboards and manifests out of the collection's data and the inventory.
    The role C(gpu_monitoring) writes them.
  - Nothing is read of any host, and nothing is changed.
options:
  _terms:
    description:
      - V(rules), V(scrape), V(prometheus), V(alertmanager), V(service_monitor) and V(prometheus_rule) are texts.
      - V(targets) are the texts of the target files by job.
      - V(left_out) are the alerts that need a threshold without a value, with the names of these.
      - V(jobs) are the names of the scrape configurations.
      - V(groups) are the names of the groups of rules with the number of their rules.
    type: list
    elements: str
    required: true
  thresholds:
    description: Values of thresholds by name, in the place of the collection's.
    type: dict
    default: {}
  runbooks:
    description: Where the pages about the alerts are, with a slash at its end.
    type: str
    default: https://github.com/gpufleet/gpufleet.lifecycle/blob/main/docs/runbooks/alerts/
  directory:
    description: The directory of the Prometheus host that the files are in.
    type: str
    default: /etc/prometheus/gpufleet
  nodes:
    description: The hosts of the inventory that are watched.
    type: list
    elements: str
    default: []
  label_groups:
    description: By label, the prefix of the groups whose names tell it.
    type: dict
    default: {}
  ports:
    description: The ports of the exporters, by job.
    type: dict
    default: {node: 9100, dcgm: 9400}
  scrape_options:
    description: Settings of a scrape configuration for the exporters on the nodes, such as C(tls_config).
    type: dict
    default: {}
  ipmi_exporter:
    description: Host and port of the ipmi_exporter that asks the BMCs. None if empty.
    type: str
    default: ''
  static:
    description: Targets of other jobs, C(kubernetes), C(slurm) and C(rollout), as C(static_configs).
    type: dict
    default: {}
  alertmanagers:
    description: Host and port of each Alertmanager.
    type: list
    elements: str
    default: []
  receivers:
    description: Receivers, as Alertmanager wants them.
    type: list
    elements: dict
    default: []
  receiver_page:
    description: The receiver of alerts that need someone now.
    type: str
    default: ''
  receiver_ticket:
    description: The receiver of alerts that can wait for working hours.
    type: str
    default: ''
  receiver_info:
    description: The receiver of alerts that need no one. They are told to no one if it is empty.
    type: str
    default: ''
  receiver_other:
    description: The receiver of alerts of others. That of tickets if it is empty.
    type: str
    default: ''
  namespace:
    description: The namespace of the manifests.
    type: str
    default: monitoring
  manifest_labels:
    description: Labels of the manifests, by which the Prometheus operator finds them.
    type: dict
    default: {}
  selector:
    description: The labels of the service of dcgm-exporter.
    type: dict
    default: {app.kubernetes.io/name: dcgm-exporter}
  node_labels:
    description: By label of a series, the label of a node of Kubernetes that tells it.
    type: dict
    default: {}
  environment:
    description: The environment of a Kubernetes cluster.
    type: str
    default: ''
seealso:
  - plugin: gpufleet.lifecycle.missing_series
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Write the rules
  ansible.builtin.copy:
    content: "{{ lookup('gpufleet.lifecycle.monitoring', 'rules', thresholds={'disk_free_min': 0.2}) }}"
    dest: /etc/prometheus/gpufleet/gpufleet.rules.yml
    validate: promtool check rules %s
    mode: "0644"
"""

RETURN = r"""
---
_raw:
  description: What was asked for, in its order.
  type: list
  elements: raw
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import (
    catalog,
    manifests,
    routes,
    rules,
    scrape,
)

RENDERS = (
    "rules",
    "groups",
    "left_out",
    "targets",
    "jobs",
    "scrape",
    "prometheus",
    "alertmanager",
    "service_monitor",
    "prometheus_rule",
)


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        unknown = [term for term in terms if term not in RENDERS]
        if unknown or not terms:
            raise AnsibleLookupError(
                "monitoring renders %s; found %s" % (", ".join(RENDERS), ", ".join(map(str, unknown)) or "nothing")
            )
        try:
            return [getattr(self, "_" + term)(variables or {}) for term in terms]
        except catalog.MonitoringError as exc:
            raise AnsibleLookupError(str(exc)) from exc

    def _thresholds(self):
        return catalog.thresholds(self.get_option("thresholds"))

    def _interval(self):
        return self._thresholds()["scrape_interval"]["value"]

    def _rules(self, dummy):
        return rules.render(self.get_option("thresholds"), self.get_option("runbooks"))

    def _groups(self, dummy):
        return {group["name"]: len(group["rules"]) for group in rules.groups(self._thresholds())}

    def _left_out(self, dummy):
        return rules.left_out(self._thresholds())

    def _targets(self, variables):
        found = scrape.targets(
            self.get_option("nodes"),
            variables["hostvars"],
            variables["groups"],
            self.get_option("label_groups"),
            self.get_option("ports"),
        )
        return {job: rules.document(entries) for job, entries in found.items()}

    def _configs(self):
        return scrape.scrape_configs(
            self.get_option("directory"),
            self._interval(),
            self.get_option("scrape_options"),
            self.get_option("ipmi_exporter"),
            self.get_option("static"),
        )

    def _jobs(self, dummy):
        return [config["job_name"] for config in self._configs()]

    def _scrape(self, dummy):
        return rules.document({"scrape_configs": self._configs()})

    def _prometheus(self, dummy):
        return rules.document(
            scrape.whole(
                self.get_option("directory"), self._configs(), self.get_option("alertmanagers"), self._interval()
            )
        )

    def _alertmanager(self, dummy):
        return rules.document(
            routes.config(
                self.get_option("receivers"),
                *(self.get_option("receiver_" + name) for name in ("page", "ticket", "info", "other")),
            )
        )

    def _service_monitor(self, dummy):
        return rules.document(
            manifests.service_monitor(
                self.get_option("namespace"),
                self.get_option("selector"),
                self.get_option("manifest_labels"),
                self.get_option("node_labels"),
                self.get_option("environment"),
                self._interval(),
            )
        )

    def _prometheus_rule(self, dummy):
        return rules.document(
            manifests.prometheus_rule(
                self.get_option("namespace"),
                self.get_option("manifest_labels"),
                self._thresholds(),
                self.get_option("runbooks"),
            )
        )
