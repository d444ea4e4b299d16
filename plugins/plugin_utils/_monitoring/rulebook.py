# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rulebook of Event-Driven Ansible: which playbook an alert leads to, by the alerts' field `playbook`. Pure."""

from __future__ import annotations

import typing as t

import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog

HEAD = """\
---
# Generated from plugins/plugin_utils/_monitoring by `make docs`. How to run it: docs/runbooks/monitoring.md.
#
# gpufleet_eda_act   whether nodes are changed; with false, every alert leads to a precheck alone, which changes nothing
# gpufleet_eda_host  the address to listen at
# gpufleet_eda_port  the port to listen at
# Examples are in extensions/eda/vars.yml. The first rule that fits an event is the one that is run.
"""
EVIDENCE = "precheck"
NAME = "gpufleet.lifecycle.%s"
# A node is named by a label that came over the network: no pattern, no list, and not every node. The playbooks refuse
# what is not one host of the inventory, such as the name of a group, by gpufleet_single_host.
NODE = (
    'event.alert.labels.node is match("[A-Za-z0-9][A-Za-z0-9_.-]*$") and '
    'event.alert.labels.node != "all" and event.alert.labels.node != "ungrouped"'
)
FIRING = 'event.alert.status == "firing" and event.alert.labels.source == "gpufleet"'
# What a playbook is given beside its nodes. No text of an alert is among it, which Ansible would take for a template.
MORE = {
    "quarantine": {
        "quarantine_reason": "alert {{ event.alert.labels.alertname }}",
        "quarantine_user": "Event-Driven Ansible",
    },
    "recover_gpu": {"recover_gpu_user": "Event-Driven Ansible"},
    "thermal_relief": {"thermal_relief_user": "Event-Driven Ansible"},
}
DOES = {
    "quarantine": "Put the node in quarantine",
    "recover_gpu": "Recover the node",
    "thermal_relief": "Lower the power limits of the node",
}


class _Dumper(yaml.SafeDumper):
    """Indents lists, as the linters of Ansible want it."""

    def increase_indent(self, flow=False, indentless=False):
        return super().increase_indent(flow, False)


def playbooks() -> t.Dict[str, t.List[str]]:
    """Return the alerts that lead to a playbook which changes a node, by playbook."""
    found: t.Dict[str, t.List[str]] = {}
    for alert in catalog.alerts():
        if "playbook" in alert:
            found.setdefault(alert["playbook"], []).append(alert["id"])
    return {name: found[name] for name in sorted(found)}


def rule(name: str, playbook: str, alerts: t.List[str], acts: bool) -> t.Dict[str, t.Any]:
    """Return the rule that runs PLAYBOOK for each of ALERTS, at most once an hour for a node."""
    listed = "event.alert.labels.alertname in [%s]" % ", ".join('"%s"' % alert for alert in alerts)
    extra: t.Dict[str, t.Any] = {playbook + "_hosts": "{{ event.alert.labels.node }}", "gpufleet_single_host": True}
    extra.update(MORE.get(playbook, {}))
    return {
        "name": name,
        "condition": " and ".join((["vars.gpufleet_eda_act == true"] if acts else []) + [FIRING, NODE, listed]),
        "throttle": {"once_within": "1 hour", "group_by_attributes": ["event.alert.labels.node"]},
        "action": {"run_playbook": {"name": NAME % playbook, "extra_vars": extra}},
    }


def rulesets() -> t.List[t.Dict[str, t.Any]]:
    """Return the rulebook."""
    known = playbooks()
    acting = [rule(DOES[name], name, alerts, True) for name, alerts in known.items()]
    every = [alert for alerts in known.values() for alert in alerts]
    source = {
        "name": "Alertmanager",
        "ansible.eda.alertmanager": {
            "host": "{{ gpufleet_eda_host }}",
            "port": "{{ gpufleet_eda_port }}",
            "data_alerts_path": "alerts",
            "data_host_path": "labels.node",
            "data_path_separator": ".",
        },
    }
    return [
        {
            "name": "Alerts of GPU nodes",
            "hosts": "all",
            "sources": [source],
            "rules": [*acting, rule("Report the state of the node", EVIDENCE, every, False)],
        }
    ]


def render() -> str:
    """Return the file with the rulebook."""
    return HEAD + yaml.dump(rulesets(), Dumper=_Dumper, sort_keys=False, width=90)
