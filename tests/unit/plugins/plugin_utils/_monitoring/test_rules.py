# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recording and alert rules, as promtool reads and evaluates them: each alert fires, does not fire, and is over."""

from __future__ import annotations

import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, rules, template
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._monitoring import promcases, servers

# A shorter window for drift: the hours of all cases are evaluated minute by minute.
KNOWN = {"rack_power_limit_watts": 40000, "price_gpu_hour": 2.5, "drift_window": 3600}
ALERTS = {alert["id"]: alert for alert in catalog.alerts()}
RENDERED = {
    rule["alert"]: rule
    for group in yaml.safe_load(rules.render(KNOWN))["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("rules")
    (path / "rules.yml").write_text(rules.render(KNOWN), encoding="utf-8")
    return path


def promtool(directory, *arguments):
    return servers.run_tool("promtool", *arguments, place=directory)


@pytest.fixture(scope="module")
def wrong(directory):
    """Return the cases, and the findings of promtool, by the environment of the case; one run for all."""
    cases = promcases.cases(catalog.alerts())
    (directory / "tests.yml").write_text(
        yaml.safe_dump(promcases.document("rules.yml", cases), sort_keys=False), encoding="utf-8"
    )
    code, output = promtool(directory, "test", "rules", "tests.yml")
    found = {}
    for part in output.split("    expr: ")[1:]:
        environment = re.search(r'environment=\\"(e\d+)\\"', part)
        found.setdefault(environment.group(1) if environment else "", []).append(part)
    assert (code == 0) == (not found), output
    return cases, found


def test_promtool_takes_the_rules(directory):
    code, output = promtool(directory, "check", "rules", "--lint-fatal", "rules.yml")
    assert code == 0 and "%d rules found" % (len(catalog.recordings()) + 1 + len(ALERTS)) in output, output


def test_every_alert_has_its_cases():
    assert set(promcases.CASES) == set(ALERTS)
    assert [
        name
        for name, entry in promcases.CASES.items()
        if not entry.get("alone")
        and not (entry["quiet"] and entry["fires"] and any("ends" in case for case in entry["fires"]))
    ] == []


@pytest.mark.parametrize("name", [name for name, alert in ALERTS.items() if alert["scope"] in ("node", "gpu")])
def test_an_alert_of_a_node_that_stays_has_held_longer_than_one_evaluation(name):
    """What says that the node is out of service may be evaluated after it, and it would stay for an hour."""
    assert "keep_firing_for" not in RENDERED[name] or RENDERED[name].get("for") or ALERTS[name].get("drained")


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_an_alert_fires_when_it_should_and_no_other(wrong, name):
    cases, found = wrong
    mine = [case for case in cases if case.name.split()[0] == name]
    assert mine or promcases.CASES[name].get("alone")
    assert {case.name: found[case.environment] for case in mine if case.environment in found} == {}


def test_nothing_fires_without_series_but_the_alert_on_that(wrong):
    assert "" not in wrong[1]


USED = 'DCGM_FI_DEV_FB_USED{G,GPU_I_ID="%d"}'
SLICES = "DCGM_FI_DEV_MIG_MAX_SLICES{G}"
BLANK = "2147483634"


def busy(profile, instance, model="NVIDIA H100"):
    """The series of how active a MIG instance is."""
    labels = 'GPU_I_ID="%d",GPU_I_PROFILE="%s",modelName="%s"' % (instance, profile, model)
    return "DCGM_FI_PROF_GR_ENGINE_ACTIVE{G,%s}" % labels


RECORDED = [
    # Two jobs on a GPU are two series of one GPU.
    (
        "gpufleet:gpu_utilization:ratio",
        {'DCGM_FI_DEV_GPU_UTIL{G,pod="a"}': "40", 'DCGM_FI_DEV_GPU_UTIL{G,pod="b"}': "40"},
        0.4,
    ),
    # Under MIG each instance counts by its share, and the utilization of the whole GPU, which is not told, is not used.
    (
        "gpufleet:gpu_utilization:ratio",
        {
            'DCGM_FI_DEV_FB_USED{G,GPU_I_ID="1",GPU_I_PROFILE="3g.40gb"}': "1",
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{G,GPU_I_ID="1",GPU_I_PROFILE="3g.40gb",modelName="NVIDIA H100"}': "1",
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{G,GPU_I_ID="2",GPU_I_PROFILE="4g.40gb",modelName="NVIDIA H100"}': "0.5",
            "DCGM_FI_DEV_GPU_UTIL{G}": "90",
        },
        5 / 7,
    ),
    # An instance that two containers share is one instance.
    (
        "gpufleet:gpu_utilization:ratio",
        {
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{G,GPU_I_ID="1",GPU_I_PROFILE="7g.80gb",modelName="H100",pod="a"}': "0.5",
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{G,GPU_I_ID="1",GPU_I_PROFILE="7g.80gb",modelName="H100",pod="b"}': "0.5",
        },
        0.5,
    ),
    # Some models have four slices and not seven.
    (
        "gpufleet:gpu_utilization:ratio",
        {'DCGM_FI_PROF_GR_ENGINE_ACTIVE{G,GPU_I_ID="1",GPU_I_PROFILE="2g.12gb",modelName="NVIDIA A30"}': "1"},
        0.5,
    ),
    *[
        ("gpufleet:gpu_utilization:ratio", {busy(profile, 1, model): "1", SLICES: told}, value)
        for model, profile, told, value in (
            ("NVIDIA RTX PRO 5000 Blackwell", "2g.48gb", BLANK, 1),
            ("NVIDIA RTX PRO 4500 Blackwell Server Edition", "1g.16gb-me", BLANK, 0.5),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "1g.24gb+me.all", BLANK, 0.25),
            ("NVIDIA Thor", "3g.0gb", BLANK, 1),
            ("NVIDIA B200", "3g.90gb", "7", 3 / 7),
            ("NVIDIA B200", "1c.3g.90gb", "2147483634", 3 / 7),
            ("NVIDIA RTX PRO 4000 of a later day", "2g.16gb", "2", 1),
        )
    ],
    # An instance whose profile or activity is not known makes the GPU unknown, not idle.
    *[
        ("gpufleet:gpu_utilization:ratio", {busy(profile, 1): "1", busy("1g.10gb", 2): "0"}, None)
        for profile in ("<<<NULL>>>", "", "N/A", "9g.10gb", "g.10gb", "11g.10gb")
    ],
    (
        "gpufleet:gpu_utilization:ratio",
        {busy("3g.40gb", 1): "2147483634", busy("1g.10gb", 2): "0", USED % 1: "5", USED % 2: "5"},
        None,
    ),
    ("gpufleet:gpu_utilization:ratio", {busy("1g.10gb", 2): "0", USED % 1: "5", USED % 2: "5"}, None),
    # Another job that scrapes the same exporter, with the labels of the node or without.
    *[
        ("count(gpufleet:gpu_temperature:celsius)", {mine: "50", theirs: "60"}, 1)
        for mine in ('DCGM_FI_DEV_GPU_TEMP{G,job="gpufleet-dcgm"}', "DCGM_FI_DEV_GPU_TEMP{G}")
        for theirs in (
            'DCGM_FI_DEV_GPU_TEMP{G,job="nvidia-dcgm-exporter",pod="nvidia-dcgm-exporter-x1"}',
            'DCGM_FI_DEV_GPU_TEMP{G,job="gpu-metrics",instance="x"}',
        )
    ],
    ("gpufleet:gpu_allocated", {'DCGM_FI_DEV_FB_USED{G,job="dcgm",pod="train-1"}': "1"}, None),
    ("gpufleet:gpu_allocated", {'DCGM_FI_DEV_FB_USED{G,job="gpufleet-dcgm",pod="train-1"}': "1"}, 1),
    ("gpufleet:gpu_allocated", {'DCGM_FI_DEV_FB_USED{G,pod="nvidia-dcgm-exporter-x1"}': "1"}, None),
    ("gpufleet:gpu_allocated", {'DCGM_FI_DEV_FB_USED{G,pod="nvidia-dcgm-exporter-x1",hpc_job="7"}': "1"}, 1),
    ("gpufleet:gpu_utilization:ratio", {"DCGM_FI_DEV_GPU_UTIL{G}": "2147483634"}, None),
    (
        "gpufleet:gpu_memory_used:ratio",
        {
            'DCGM_FI_DEV_FB_USED{G,GPU_I_ID="1"}': "10",
            'DCGM_FI_DEV_FB_USED{G,GPU_I_ID="2"}': "20",
            'DCGM_FI_DEV_FB_FREE{G,GPU_I_ID="1"}': "30",
            'DCGM_FI_DEV_FB_FREE{G,GPU_I_ID="2"}': "40",
        },
        0.3,
    ),
    (
        "gpufleet:node_power:watts",
        {"ipmi_dcmi_power_consumption_watts{N}": "900", "DCGM_FI_DEV_POWER_USAGE{G}": "300"},
        900,
    ),
    ("gpufleet:node_power:watts", {"DCGM_FI_DEV_POWER_USAGE{G}": "300", "DCGM_FI_DEV_POWER_USAGE{H}": "400"}, 700),
    ("gpufleet:gpu_energy:total", {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{G}": "5000000000000"}, 5e12),
    ("gpufleet:gpu_temperature_limit:celsius", {"DCGM_FI_DEV_GPU_TEMP{G}": "50"}, 83),
]


def selected(record, number):
    """A series of RECORDED in its environment, or how many of them there are."""
    name = record.replace("count(", "").rstrip(")")
    series = '%s{environment="r%d"}' % (name, number)
    return series if name == record else "count by (environment) (%s)" % series


def test_what_is_recorded_is_aggregated_first(directory):
    cases = [
        promcases.Case(record, {name: "%s+0x10" % value for name, value in series.items()}, [], "r%d" % number)
        for number, (record, series, dummy) in enumerate(RECORDED)
    ]
    test = promcases.test_of("recorded", cases)
    test["promql_expr_test"] = [
        {
            "expr": "round(1000 * sum by (environment) (%s))" % selected(record, number),
            "eval_time": "5m",
            "exp_samples": []
            if value is None
            else [{"labels": '{environment="r%d"}' % number, "value": round(1000 * value)}],
        }
        for number, (record, dummy, value) in enumerate(RECORDED)
    ]
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (directory / "recorded.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    code, output = promtool(directory, "test", "rules", "recorded.yml")
    assert code == 0, output


def test_a_threshold_that_is_wrong_is_caught(directory):
    """The cases notice a threshold that moved, or a rule that lost what it is based on."""
    text = rules.render(dict(KNOWN, temperature_limit_default=84, memory_used_max=0.92))
    (directory / "other.yml").write_text(text, encoding="utf-8")
    cases = promcases.cases(alert for alert in catalog.alerts() if alert["id"] in ("GpuHot", "GpuMemoryNearlyFull"))
    (directory / "other_tests.yml").write_text(yaml.safe_dump(promcases.document("other.yml", cases)), encoding="utf-8")
    code, output = promtool(directory, "test", "rules", "other_tests.yml")
    environments = {case.environment: case.name for case in cases}
    names = {environments[found] for found in re.findall(r'environment=\\"(e\d+)\\"', output)}
    assert code != 0 and {"GpuHot fires 1", "GpuMemoryNearlyFull fires 1"} <= names, output


def test_texts_name_the_place_what_was_found_and_what_to_do(directory):
    """promtool says what it got in the place of no alert; no template may fail, and no label be unknown."""
    cases = [
        case for case in promcases.cases(catalog.alerts()) if " fires 1" in case.name and len(case.name.split()) == 3
    ]
    series = [
        {"series": promcases.labels(case.environment, key), "values": promcases.values(value)}
        for case in cases
        for key, value in case.series.items()
    ]
    serial = promcases.labels(cases[0].environment, 'gpufleet_gpu_info{G,serial="1650123"}')
    series += [
        {"series": serial, "values": "1+0x200"},
        {"series": promcases.labels("z", "gpufleet_gpu_recovery_action{H}"), "values": "1+0x200"},
    ]
    tests = [
        {
            "name": "texts",
            "interval": "1m",
            "input_series": series,
            "alert_rule_test": [
                {"alertname": case.name.split()[0], "eval_time": "%dm" % case.looks[0][0], "exp_alerts": []}
                for case in cases
            ],
        }
    ]
    (directory / "texts.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}), encoding="utf-8"
    )
    dummy, output = promtool(directory, "test", "rules", "texts.yml")
    assert "error expanding template" not in output and "no value" not in output
    for case in cases:
        name = case.name.split()[0]
        got = re.search(r"alertname: %s, time: .*?\n.*?got:(.*?)\n *\n" % name, output, re.DOTALL)
        assert got, name
        text = got.group(1)
        expected = {
            "gpu": "node n1, GPU 0",
            "node": "node n1",
            "service": "node n1",
            "rack": "rack r1",
            "fleet": "environment e",
        }[ALERTS[name]["scope"]]
        assert (
            expected in text
            and "Found: " in text
            and "Expected: " in text
            and "Next: " in text
            and "#" + name.lower() in text
        ), name
    assert 'serial="1650123"' in output and 'serial="unknown"' in output


def test_label_of_an_exporter_is_no_query(directory):
    """Root on a node says what the labels of its series are."""
    forged = "x'} or label_replace(vector(1), 'serial', 'forged', '', '.*') or y{z='"
    alert = {"alert": "A", "expr": "up == 1", "annotations": {"serial": rules.SERIAL}}
    (directory / "serial.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [alert]}]}))
    labels = {"node": "n1", "UUID": forged}
    expected = {"exp_labels": labels, "exp_annotations": {"serial": "unknown"}}
    tests = {
        "interval": "1m",
        "input_series": [{"series": 'up{node="n1",UUID="%s"}' % forged, "values": "1+0x5"}],
        "alert_rule_test": [{"alertname": "A", "eval_time": "2m", "exp_alerts": [expected]}],
    }
    (directory / "serial_tests.yml").write_text(yaml.safe_dump({"rule_files": ["serial.yml"], "tests": [tests]}))
    code, output = promtool(directory, "test", "rules", "serial_tests.yml")
    assert code == 0, output


@pytest.mark.parametrize("name", sorted(RENDERED))
def test_an_alert_is_whole(name):
    alert, rule = ALERTS[name], RENDERED[name]
    assert alert["scope"] in catalog.SCOPES and alert["severity"] in catalog.SEVERITIES
    assert all(str(alert[key]).strip() for key in ("summary", "found", "expected", "next", "cause"))
    assert alert.get("look") or alert.get("look_at")
    assert set(rule["labels"]) == {"severity", "scope", "family", "source"}
    assert (rules.SILENT in rule["expr"]) == (
        alert["scope"] in ("gpu", "node", "service") and alert.get("drained") != "speaks"
    )


def test_application_xids_never_page():
    assert {
        ALERTS[name]["severity"] for name in ("GpuXidApplication", "GpuMemoryNearlyFull", "GpuIdle", "GpuUnderused")
    } == {"info"}


def test_what_holds_others_back_ends_at_once():
    """A node that has come back must not stay silent for the memory of its own alert."""
    ends = ("NodeUnreachable", "RackLost", "GpuFallenOffBus", "GpuNvmlSilent")
    assert not any("keep_firing_for" in RENDERED[name] for name in ends)
    assert ALERTS["RackLost"]["for"] < ALERTS["NodeUnreachable"]["for"]


def test_an_alert_without_its_threshold_is_left_out_and_named():
    text = rules.render({})
    assert rules.left_out(catalog.thresholds()) == {"RackPowerNearLimit": ["rack_power_limit_watts"]}
    assert (
        "RackPowerNearLimit" not in text
        and "gpufleet:price_gpu_hour" not in text
        and "price_gpu_hour is not set" in text
    )


@pytest.mark.parametrize(
    "overrides, name",
    [
        ({"no_such": 1}, "no_such"),
        ({"disk_free_min": "much"}, "disk_free_min"),
        ({"disk_free_min": None}, "disk_free_min"),
        ({"disk_free_min": True}, "disk_free_min"),
        ({"disk_free_min": -1}, "disk_free_min"),
        ({"idle_window": 0.5}, "idle_window"),
        ({"idle_window": 0}, "idle_window"),
    ],
)
def test_a_threshold_that_cannot_be_is_refused(overrides, name):
    with pytest.raises(catalog.MonitoringError) as found:
        catalog.thresholds(overrides)
    assert name in str(found.value) and "gpu_monitoring_thresholds" in str(found.value)


def test_a_threshold_is_changed_in_one_place():
    assert "> bool 70" not in rules.render({}) and " + 70" in rules.render({"temperature_limit_default": 70})
    assert "or 70 where it tells none" in RENDERED["GpuHot"]["annotations"]["description"].replace("83", "70")


@pytest.mark.parametrize("name, threshold", sorted(catalog.thresholds().items()))
def test_a_threshold_has_its_source_and_is_used(name, threshold):
    texts = [rule["expr"] for rule in catalog.recordings()] + [
        str(value) for alert in catalog.alerts() for value in alert.values()
    ]
    used = set().union(*(template.names(text) for text in texts)) | {
        "scrape_interval",
        "evaluation_interval",
        "flap_memory",
        "price_gpu_hour",
        "utilization_target",
    }
    assert threshold["unit"] and threshold["text"].endswith(".") and threshold["source"] and name in used


@pytest.mark.parametrize(
    "text, filled",
    [
        ("${idle_window}", "3600s"),
        ("${idle_window:words}", "1 hour"),
        ("${disk_free_min:percent}", "10%"),
        ('${clean:X{a="b"}}', '(X{a="b"} < 2147483632)'),
        ("${node}", "environment, rack, node, class, model, team"),
        ("{{ $labels.node }}", "{{ $labels.node }}"),
    ],
)
def test_places_are_filled(text, filled):
    assert template.fill(text, catalog.thresholds()) == filled


def test_a_place_without_a_threshold_is_refused():
    for text in ("${nothing}", "${rack_power_limit_watts}"):
        with pytest.raises(catalog.MonitoringError):
            template.fill(text, catalog.thresholds())
