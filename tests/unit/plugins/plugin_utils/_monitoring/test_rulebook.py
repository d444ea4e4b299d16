# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rulebook of Event-Driven Ansible: alerts and playbooks that are there, and no change that was not asked for.

ansible-rulebook needs Java and is not run here. The schema that its makers publish comes with ansible-lint.
"""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, rulebook

ROOT = pathlib.Path(__file__).resolve().parents[5]
PLACE = ROOT / "extensions" / "eda"
BOOK = yaml.safe_load((PLACE / "rulebooks" / "alerts.yml").read_text(encoding="utf-8"))
RULES = BOOK[0]["rules"]
ACT = "vars.gpufleet_eda_act == true"
ALERTS = {alert["id"]: alert for alert in catalog.alerts()}


def alerts_of(rule):
    return re.findall(r'"(\w+)"', rule["condition"].partition(" in [")[2])


def playbook_of(rule):
    name = rule["action"]["run_playbook"]["name"]
    assert name.startswith("gpufleet.lifecycle.")
    return name.rpartition(".")[2]


def test_the_file_is_the_one_that_is_rendered():
    assert (PLACE / "rulebooks" / "alerts.yml").read_text(encoding="utf-8") == rulebook.render()


def test_it_fits_the_schema_of_ansible_rulebook():
    jsonschema = pytest.importorskip("jsonschema", reason="comes with ansible-lint")
    schemas = pathlib.Path(pytest.importorskip("ansiblelint", reason="has the schema").__file__).parent / "schemas"
    schema = json.loads((schemas / "rulebook.json").read_text(encoding="utf-8"))
    jsonschema.validate(BOOK, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([dict(BOOK[0], rules=[dict(RULES[0], action={"run_playbok": {}})])], schema)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["name"])
def test_a_rule_names_alerts_a_playbook_and_variables_that_are_there(rule):
    name, given = playbook_of(rule), rule["action"]["run_playbook"]["extra_vars"]
    assert set(alerts_of(rule)) <= set(ALERTS) and alerts_of(rule)
    assert (ROOT / "playbooks" / (name + ".yml")).is_file()
    assert set(given) <= {*_variable_names.PLAYBOOKS, *_variable_names.FLEET} and name + "_hosts" in given
    assert all(ALERTS[alert]["scope"] in ("gpu", "node") for alert in alerts_of(rule)), "others name no node"


def test_every_alert_with_a_playbook_has_its_rule_and_its_evidence():
    acting, evidence = RULES[:-1], RULES[-1]
    found = {alert: playbook_of(rule) for rule in acting for alert in alerts_of(rule)}
    assert found == {name: alert["playbook"] for name, alert in ALERTS.items() if "playbook" in alert}
    assert sorted(alerts_of(evidence)) == sorted(found) and playbook_of(evidence) == "precheck"
    assert {"GpuFallenOffBus", "GpuXidHold", "NodeGpusHot"} <= set(found)


def test_a_node_is_changed_only_if_the_operator_says_so():
    assert [rule["condition"].startswith(ACT + " and ") for rule in RULES] == [True] * (len(RULES) - 1) + [False]
    assert ACT not in RULES[-1]["condition"]
    settings = yaml.safe_load((PLACE / "vars.yml").read_text(encoding="utf-8"))
    assert settings["gpufleet_eda_act"] is False and settings["gpufleet_eda_host"] == "127.0.0.1"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["name"])
def test_playbook_is_told_to_take_one_host_of_the_inventory(rule):
    """ansible-rulebook does not know the inventory's groups, and the playbooks refuse them."""
    assert rule["action"]["run_playbook"]["extra_vars"]["gpufleet_single_host"] is True
    text = (ROOT / "playbooks" / (playbook_of(rule) + ".yml")).read_text(encoding="utf-8")
    assert re.search(r"^# gpufleet_single_host ", text, re.MULTILINE)
    assert re.search(r"patterns: \{%s_hosts: " % playbook_of(rule), text)


def test_what_a_playbook_is_given_holds_no_free_text_of_the_event():
    values = [value for rule in RULES for value in rule["action"]["run_playbook"]["extra_vars"].values()]
    texts = [value for value in values if value is not True]
    read = {name for text in texts for name in re.findall(r"{{ (\S+) }}", text)}
    assert read == {"event.alert.labels.node", "event.alert.labels.alertname"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["name"])
def test_a_rule_takes_one_node_that_fires_and_not_twice_in_an_hour(rule):
    condition = rule["condition"]
    assert 'event.alert.status == "firing"' in condition and 'event.alert.labels.source == "gpufleet"' in condition
    pattern = re.search(r'node is match\("([^"]+)"\)', condition).group(1)
    assert re.match(pattern, "gpu-a-1.example")
    assert [
        one for one in ("", "a,b", "a:b", "!a", "*", "~a", "a[0]", "a b", "{{ a }}") if re.match(pattern, one)
    ] == []
    assert 'node != "all"' in condition and 'node != "ungrouped"' in condition
    assert rule["throttle"] == {"once_within": "1 hour", "group_by_attributes": ["event.alert.labels.node"]}


def test_the_runbook_tells_which_alert_leads_where():
    page = (ROOT / "docs/runbooks/monitoring.md").read_text(encoding="utf-8")
    section = page.partition("## Alerts that run a playbook")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w, ]+) \| \[(\w+)\]", section, re.MULTILINE)
    assert {name: sorted(alerts.split(", ")) for alerts, name in rows} == {
        name: sorted(alerts) for name, alerts in rulebook.playbooks().items()
    }
