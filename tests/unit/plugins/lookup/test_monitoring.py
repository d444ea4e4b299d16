# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that the lookup renders, and questions that it refuses."""

from __future__ import annotations

import pytest
import yaml

pytest.importorskip("ansible", reason="a lookup lives in Ansible; nodes have none")

from ansible.errors import AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.filter.missing_series import FilterModule
from ansible_collections.gpufleet.lifecycle.plugins.lookup import monitoring

pytestmark = pytest.mark.cores
VARIABLES = {"hostvars": {"gpu-1": {"ansible_host": "10.0.0.1"}}, "groups": {"rack_a1": ["gpu-1"]}}
RECEIVERS = [{"name": "pager", "webhook_configs": [{"url": "http://x"}]}]


def test_texts_are_yaml_and_in_their_order(ask):
    rules, scrape, prometheus = ask(
        monitoring, "rules", "scrape", "prometheus", thresholds={"disk_free_min": 0.25}, alertmanagers=["am:9093"]
    )
    assert "< 0.25" in rules and yaml.safe_load(rules)["groups"][0]["name"] == "gpufleet-recordings"
    assert [one["job_name"] for one in yaml.safe_load(scrape)["scrape_configs"]] == ["gpufleet-node", "gpufleet-dcgm"]
    whole = yaml.safe_load(prometheus)
    assert whole["rule_files"] == ["/etc/prometheus/gpufleet/gpufleet.rules.yml"]
    assert whole["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["am:9093"]}]}]


def test_targets_have_the_labels_of_the_inventory(ask):
    found = ask(monitoring, "targets", variables=VARIABLES, nodes=["gpu-1"], label_groups={"rack": "rack_"})[0]
    assert yaml.safe_load(found["node"]) == [{"targets": ["10.0.0.1:9100"], "labels": {"node": "gpu-1", "rack": "a1"}}]


def test_groups_are_those_of_the_rules(ask):
    groups, rules, left_out = ask(monitoring, "groups", "rules", "left_out")
    assert groups == {group["name"]: len(group["rules"]) for group in yaml.safe_load(rules)["groups"]}
    assert left_out == {"RackPowerNearLimit": ["rack_power_limit_watts"]}


def test_routes_and_manifests(ask):
    routes, monitor, rule = ask(
        monitoring,
        "alertmanager",
        "service_monitor",
        "prometheus_rule",
        receivers=RECEIVERS,
        receiver_page="pager",
        receiver_ticket="pager",
    )
    assert yaml.safe_load(routes)["route"]["receiver"] == "pager"
    assert [yaml.safe_load(text)["kind"] for text in (monitor, rule)] == ["ServiceMonitor", "PrometheusRule"]


@pytest.mark.parametrize(
    "terms, options, word",
    [
        ([], {}, "nothing"),
        (["configs"], {}, "configs"),
        (["rules"], {"thresholds": {"no_such": 1}}, "no_such"),
        (["alertmanager"], {}, "receiver_page"),
    ],
)
def test_what_cannot_be_rendered_is_an_error(ask, terms, options, word):
    with pytest.raises(AnsibleError) as found:
        ask(monitoring, *terms, **options)
    assert word in str(found.value)


def test_missing_series_are_told_with_a_line():
    missing_series = FilterModule().filters()["missing_series"]
    found = missing_series(["up"])
    assert {"exporter", "all", "series", "alerts", "install", "line"} == set(found[0]) and "prometheus" not in {
        one["exporter"] for one in found
    }
    for wrong in ("up", {"up": 1}, [1]):
        with pytest.raises(AnsibleError):
            missing_series(wrong)
