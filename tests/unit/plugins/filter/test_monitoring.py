# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that the filter renders, and inputs that it refuses."""

from __future__ import annotations

import pytest
import yaml

pytest.importorskip("ansible", reason="a filter lives in Ansible; nodes have none")

from ansible.errors import AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.filter import monitoring

pytestmark = pytest.mark.cores
RECEIVERS = [{"name": "pager", "webhook_configs": [{"url": "http://x"}]}]


@pytest.fixture(name="render")
def fixture_render(collection_root):
    """Render with the role's defaults."""
    role = collection_root / "roles/gpu_monitoring"
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8"))
    options = yaml.safe_load((role / "vars/main.yml").read_text(encoding="utf-8"))["__gpu_monitoring_options"]
    given = {name: defaults.get("gpu_monitoring_" + name) for name in options}
    given["directory"] = "/etc/prometheus/gpufleet"
    return lambda what, hostvars=None, groups=None, **more: monitoring.render_monitoring(
        dict(given, **more), what, hostvars, groups
    )


def test_scrape_configuration_is_yaml_with_both_jobs_and_alertmanagers(render):
    assert "< 0.25" in render("rules", thresholds={"disk_free_min": 0.25})
    scrape = yaml.safe_load(render("scrape"))
    names = [one["job_name"] for one in scrape["scrape_configs"]]
    assert names == render("jobs") == ["gpufleet-node", "gpufleet-dcgm"]
    whole = yaml.safe_load(render("prometheus", alertmanagers=["am:9093"]))
    assert whole["rule_files"] == ["/etc/prometheus/gpufleet/gpufleet.rules.yml"]
    assert whole["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["am:9093"]}]}]


def test_targets_have_the_labels_of_the_inventory(render):
    hostvars, groups = {"gpu-1": {"ansible_host": "10.0.0.1"}}, {"rack_a1": ["gpu-1"]}
    found = render("targets", hostvars, groups, nodes=["gpu-1"], label_groups={"rack": "rack_"})
    assert yaml.safe_load(found["node"]) == [{"targets": ["10.0.0.1:9100"], "labels": {"node": "gpu-1", "rack": "a1"}}]


def test_groups_are_those_of_the_rules(render):
    rules = yaml.safe_load(render("rules"))["groups"]
    assert render("groups") == {group["name"]: len(group["rules"]) for group in rules}
    assert render("left_out") == {"RackPowerNearLimit": ["rack_power_limit_watts"]}


def test_routes_and_manifests_have_their_kind(render):
    routes = render("alertmanager", receivers=RECEIVERS, receiver_page="pager", receiver_ticket="pager")
    assert yaml.safe_load(routes)["route"]["receiver"] == "pager"
    kinds = [yaml.safe_load(render(what))["kind"] for what in ("service_monitor", "prometheus_rule")]
    assert kinds == ["ServiceMonitor", "PrometheusRule"]


@pytest.mark.parametrize(
    ("what", "options", "word"),
    [
        ("configs", {}, "configs"),
        ("rules", {"thresholds": {"no_such": 1}}, "no_such"),
        ("alertmanager", {}, "receiver_page"),
    ],
)
def test_unknown_document_or_value_is_an_error(render, what, options, word):
    with pytest.raises(AnsibleError, match=word):
        render(what, **options)


def test_missing_series_have_a_line_for_each_exporter():
    found = monitoring.render_monitoring({"series": ["up"]}, "missing")
    assert len(found) > 3 and not any(line.startswith("prometheus:") for line in found)
