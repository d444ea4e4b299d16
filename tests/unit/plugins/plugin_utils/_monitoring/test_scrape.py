# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Targets and their labels from the inventory, and the configurations and manifests around them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import (
    catalog,
    manifests,
    missing,
    scrape,
    template,
)

PREFIXES = {"environment": "environment_", "rack": "rack_", "class": "class_", "model": "model_", "team": "team_"}
GROUPS = {"rack_a01": ["n1", "n2"], "rack_": ["n1"], "model_h100": ["n1"], "gpu_nodes": ["n1", "n2", "n3"]}
PORTS = {"node": 9100, "dcgm": 9400}


def targets(**hostvars):
    return scrape.targets(sorted(hostvars), hostvars, GROUPS, PREFIXES, PORTS)


def test_labels_come_from_variables_then_domains_then_groups():
    found = targets(
        n1={},
        n2={"gpufleet_domains": {"rack": "b9"}},
        n3={"gpu_monitoring_labels": {"rack": "c1", "team": "blue"}, "gpufleet_domains": {"rack": "x"}},
    )
    assert [one["labels"] for one in found["node"]] == [
        {"node": "n1", "rack": "a01", "model": "h100"},
        {"node": "n2", "rack": "b9"},
        {"node": "n3", "rack": "c1", "team": "blue"},
    ]
    assert set(scrape.LABELS) | {"node"} == set(template.NODE)


def test_addresses():
    found = targets(
        n1={"ansible_host": "10.0.0.1"},
        n2={"gpu_monitoring_address": "fe80::1", "ansible_host": "x"},
        n3={"gpu_monitoring_bmc": "bmc3"},
    )
    assert [one["targets"] for one in found["dcgm"]] == [["10.0.0.1:9400"], ["[fe80::1]:9400"], ["n3:9400"]]
    assert found["ipmi"] == [{"targets": ["bmc3"], "labels": {"node": "n3"}}]


@pytest.mark.parametrize(
    "variables, name",
    [
        ({"gpu_monitoring_labels": "rack"}, "gpu_monitoring_labels"),
        ({"gpu_monitoring_labels": {"row": "1"}}, "row"),
        ({"ansible_host": "a b"}, "gpu_monitoring_address"),
        ({"gpufleet_domains": ["r1"]}, "gpufleet_domains"),
    ],
)
def test_what_is_no_label_or_address_is_refused_with_the_host(variables, name):
    with pytest.raises(catalog.MonitoringError) as found:
        targets(n1=variables)
    assert name in str(found.value) and "n1" in str(found.value)


def test_a_node_in_two_racks_is_refused():
    with pytest.raises(catalog.MonitoringError) as found:
        scrape.targets(["n1"], {"n1": {}}, dict(GROUPS, rack_b=["n1"]), PREFIXES, PORTS)
    assert "rack_a01, rack_b" in str(found.value)


def test_the_label_of_the_host_is_the_inventorys_and_never_the_exporters():
    configs = {
        one["job_name"]: one
        for one in scrape.scrape_configs(
            "/etc/p/", 30, {"scheme": "https"}, "ipmi:9290", {"kubernetes": [{"targets": ["k:8080"]}], "slurm": []}
        )
    }
    assert set(configs) == {"gpufleet-node", "gpufleet-dcgm", "gpufleet-ipmi", "gpufleet-kubernetes"}
    assert configs["gpufleet-dcgm"]["metric_relabel_configs"] == [{"action": "labeldrop", "regex": "Hostname|hostname"}]
    assert all(
        configs[name]["relabel_configs"][0]["target_label"] == "instance"
        for name in configs
        if name != "gpufleet-kubernetes"
    )
    assert (
        configs["gpufleet-node"]["scheme"] == "https"
        and "scheme" not in configs["gpufleet-ipmi"]
        and configs["gpufleet-kubernetes"]["honor_labels"]
    )
    assert configs["gpufleet-node"]["file_sd_configs"] == [{"files": ["/etc/p/targets/node.yml"]}]
    assert [one["target_label"] for one in configs["gpufleet-ipmi"]["relabel_configs"]] == [
        "instance",
        "__param_target",
        "__address__",
    ]


def test_exporter_of_a_node_tells_no_more_than_a_limit_and_no_labels_of_another():
    nodes = scrape.scrape_configs("/etc/p", 30, {}, "ipmi:9290")
    assert [one["sample_limit"] for one in nodes] == [100_000] * 3 and not any("honor_labels" in one for one in nodes)
    assert scrape.scrape_configs("/etc/p", 30, {"sample_limit": 5})[0]["sample_limit"] == 5


def test_a_job_that_is_not_known_is_refused():
    with pytest.raises(catalog.MonitoringError):
        scrape.scrape_configs("/etc/p", 30, static={"kube": []})


def test_the_manifests():
    found = manifests.service_monitor(
        "monitoring", {"app": "dcgm"}, {"release": "x"}, {"rack": "topology.kubernetes.io/rack"}, "prod", 30
    )
    endpoint = found["spec"]["endpoints"][0]
    assert (
        found["kind"] == "ServiceMonitor"
        and found["metadata"]["labels"]["release"] == "x"
        and found["spec"]["attachMetadata"] == {"node": True}
    )
    assert {
        "sourceLabels": ["__meta_kubernetes_node_label_topology_kubernetes_io_rack"],
        "regex": "(.+)",
        "targetLabel": "rack",
    } in endpoint["relabelings"]
    assert endpoint["metricRelabelings"] == [{"action": "labeldrop", "regex": "Hostname|hostname"}]
    assert {"targetLabel": "job", "replacement": "gpufleet-dcgm"} in endpoint["relabelings"]
    rule = manifests.prometheus_rule("monitoring", {}, catalog.thresholds(), "https://x/")
    assert rule["kind"] == "PrometheusRule" and len(rule["spec"]["groups"]) == 2 + len(catalog.FAMILIES)
    with pytest.raises(catalog.MonitoringError):
        manifests.relabelings({"row": "x"}, "")


def test_missing_series_name_their_exporter_and_the_alerts_that_are_blind():
    everything = set(catalog.series())
    assert missing.report(everything) == [] and missing.report(everything - {"ALERTS"}) == []
    found = missing.report(everything - {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"})
    assert [(one["exporter"], one["all"], one["series"], one["alerts"]) for one in found] == [
        ("dcgm-exporter", False, ["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"], ["GpuEccUncorrectable"])
    ]
    by_exporter = {one["exporter"]: one for one in missing.report([])}
    assert set(by_exporter) == set(catalog.exporters()) and all(one["all"] for one in by_exporter.values())
    # Through rules that record others' records.
    assert (
        "RackHot" in by_exporter["dcgm-exporter"]["alerts"]
        and "RackPowerNearLimit" in by_exporter["ipmi_exporter"]["alerts"]
    )
    assert len(missing.lines(list(by_exporter.values()))) == len(by_exporter)
