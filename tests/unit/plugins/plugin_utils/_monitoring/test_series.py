# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series that rules read: each is recorded, or in the catalog of what writes it."""

from __future__ import annotations

import inspect

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, rules, template
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import formats

THRESHOLDS = catalog.thresholds({"rack_power_limit_watts": 1, "price_gpu_hour": 1})
RECORDED = {rule["record"] for rule in catalog.recordings()}
EXPRESSIONS = [(rule["record"], rule["expr"]) for rule in catalog.recordings()] + [
    (alert["id"], alert["expr"]) for alert in catalog.alerts()
]


@pytest.mark.parametrize("name, expr", EXPRESSIONS)
def test_every_series_of_a_rule_is_known(name, expr):
    found = template.find_series(template.fill(expr, THRESHOLDS))
    assert found and found - set(catalog.series()) - RECORDED == set()


def test_a_series_that_nothing_writes_is_found():
    assert template.find_series("max by (node) (DCGM_FI_DEV_GPU_TEMPERATURE)") - set(catalog.series()) - RECORDED == {
        "DCGM_FI_DEV_GPU_TEMPERATURE"
    }


def test_a_recorded_series_is_recorded_before_it_is_read():
    """Within a group, rules see what those above them have written in the same evaluation."""
    seen = set()
    for rule in catalog.recordings():
        assert {
            name for name in template.find_series(template.fill(rule["expr"], THRESHOLDS)) if name in RECORDED
        } - seen == set(), rule["record"]
        seen.add(rule["record"])


def test_no_name_is_taken_twice():
    names = [name for exporter in catalog.exporters().values() for name in exporter["series"]]
    assert len(names) == len(set(names)) and not set(names) & RECORDED
    ids = [alert["id"] for alert in catalog.alerts()]
    assert len(ids) == len(set(ids)) and len(RECORDED) == len(catalog.recordings())


@pytest.mark.parametrize("name", sorted(catalog.exporters()))
def test_an_exporter_has_its_source(name):
    exporter = catalog.exporters()[name]
    assert exporter["source"] and exporter["series"] and set(exporter["series"].values()) <= {"gauge", "counter"}


def test_the_names_of_a_rollout_are_those_that_its_metrics_have():
    written = inspect.getsource(formats.list_metrics)
    assert [
        name
        for name in catalog.exporters()["gpufleet-rollout"]["series"]
        if '"%s",' % name[len("gpufleet_rollout_") :] not in written
    ] == []


def samples(one, gpus):
    """The number of samples of a name on a node with so many GPUs, at most."""
    number = gpus if one["per"] == "gpu" else 1
    for label in one["labels"].values():
        number *= len(label["values"]) if "values" in label else label.get("several", 1)
    return number


def test_a_node_writes_at_most_300_series():
    assert 100 < sum(samples(one, 8) for one in catalog.node_series()) <= 300


@pytest.mark.parametrize("one", catalog.node_series(), ids=lambda one: one["name"])
def test_a_series_of_the_node_is_whole(one):
    assert (
        one["name"].startswith("gpufleet_")
        and one["help"].endswith(".")
        and one["type"] in ("gauge", "counter")
        and one["per"] in ("node", "gpu")
    )
    assert one["name"].endswith("_total") == (one["type"] == "counter")
    assert (set(one["labels"]) >= {"gpu", "UUID"}) == (one["per"] == "gpu")
    # Labels that the scrape sets would be renamed by Prometheus.
    assert not set(one["labels"]) & set(template.NODE + ("job", "instance"))
    # A counter whose series begins above 0 has no increase: all of its series are there from the start.
    assert one["type"] != "counter" or any("values" in label for label in one["labels"].values())


@pytest.mark.parametrize(
    "expression, names",
    [
        ("up == 0", {"up"}),
        (
            'sum by (node, job) (rate(a_total{b="c or d"}[5m] offset 1h)) / on (node) group_left (x) c:d:e',
            {"a_total", "c:d:e"},
        ),
        ("x unless on (a) y > bool 1e3", {"x", "y"}),
        ("max_over_time(a[1h:5m]) + vector(1)", {"a"}),
        ("-Inf < a", {"a"}),
    ],
)
def test_names_are_told_from_words(expression, names):
    assert template.find_series(expression) == names


def test_labels_of_a_rule_are_those_of_the_scrape():
    # What tells of the whole fleet has no node.
    assert [name for name, expr in EXPRESSIONS if "instance" in expr] == ["SharedExporterDown"]
    assert rules.SILENT.split()[-1] in RECORDED
