# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards of the role gpu_monitoring: their variables, and the queries of their panels."""
# Runs on main only: promtool is the machine's, and the dashboards are data; no ansible-core takes part.

from __future__ import annotations

import json
import pathlib
import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, rules, template
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._monitoring import servers

ROOT = pathlib.Path(__file__).resolve().parents[5]
PLACE = ROOT / "roles" / "gpu_monitoring" / "files" / "dashboards"
RECORDED = {rule["record"] for rule in catalog.recordings()} | {"gpufleet:price_gpu_hour"}
VARIABLES = ["datasource", "environment", "class", "model", "team"]
NODE = 'environment="prod",rack="r1",node="n1",class="train",model="h100",team="blue"'
GPU = NODE + ',gpu="0",UUID="GPU-0"'
POD = 'environment="prod",namespace="x",pod="p"'
# What a series has beside the labels of a GPU or a node, and the values that are not 1.
MIG = ',GPU_I_ID="1",GPU_I_PROFILE="3g.40gb",modelName="NVIDIA H100"'
EXTRA = {
    "up": [NODE + ',job="gpufleet-node"'],
    "DCGM_EXP_CLOCK_EVENTS_COUNT": [GPU + ',clock_event="sw_thermal"'],
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": [GPU.replace('"0"', '"1"').replace("GPU-0", "GPU-1") + MIG],
    "DCGM_FI_DEV_FB_USED": [GPU + ',pod="p"', GPU.replace('"0"', '"1"').replace("GPU-0", "GPU-1") + MIG],
    "gpufleet_xid_total": [GPU + ',xid_class="reset"'],
    "gpufleet_xid_code_total": [GPU + ',xid="79"'],
    "node_cpu_seconds_total": [NODE + ',mode="idle",cpu="0"'],
    "kube_pod_container_resource_requests": [POD + ',resource="nvidia_com_gpu"'],
    "kube_pod_status_phase": [POD + ',phase="Running"'],
    "ipmi_sensor_state": [NODE + ',type="Power Supply",name="PSU1"'],
    "ipmi_temperature_celsius": [NODE + ',name="Inlet"'],
    "gpufleet_rollout_verdict": ['environment="prod",rollout="r",verdict="running"'],
    "node_network_receive_bytes_total": [NODE + ',device="eth0"'],
    "node_network_transmit_bytes_total": [NODE + ',device="eth0"'],
}
VALUES = {"DCGM_FI_DEV_GPU_UTIL": "0+0x120", "DCGM_FI_DEV_GPU_TEMP": "90+0x120"}

# What Grafana publishes of the objects that the dashboards have (github.com/grafana/grafana: kinds/dashboard, and its
# documentation of Prometheus queries, transformations and data links): fields, types and choices. It ignores a field of
# another name without a word. "?" marks one that may be missing; str as a key stands for any name, and as a value for
# a text that is not empty.
SOURCE = {"type": {"prometheus"}, "uid": {"${datasource}"}}
DATA_LINK = {"title": str, "url": str}
THRESHOLDS = {"mode": {"absolute", "percentage"}, "steps": [{"value": (int, float, None), "color": str}]}
GRID = {"h": range(1, 100), "w": range(1, 25), "x": range(24), "y": range(1000)}
TRANSFORMATIONS = {
    "merge": {},
    "organize": {"excludeByName": {str: bool}, "indexByName": {str: int}, "renameByName": {str: str}},
}
OVERRIDE = {"matcher": {"id": {"byName"}, "options": str}, "properties": [{"id": {"links"}, "value": [DATA_LINK]}]}
DEFAULTS = {
    "unit": {"percentunit", "rotrpm", "short", "celsius", "megahertz", "watt", "Bps", "s"},
    "min?": (int, float),
    "max?": (int, float),
    "links?": [DATA_LINK],
    "thresholds?": THRESHOLDS,
    "custom?": {"thresholdsStyle": {"mode": {"off", "line", "dashed", "area", "line+area"}}},
}
TARGET = {
    "refId": str,
    "expr": str,
    "format?": {"time_series", "table", "heatmap"},
    "instant?": bool,
    "range?": bool,
    "legendFormat?": str,
}
PANEL = {
    "type": {"gauge", "stat", "table", "timeseries"},
    "title": str,
    "description": str,
    "datasource": SOURCE,
    "gridPos": GRID,
    "fieldConfig": {"defaults": DEFAULTS, "overrides?": [OVERRIDE]},
    "targets": [TARGET],
    "transformations?": [{"id": set(TRANSFORMATIONS), "options": dict}],
}
ROW = {"type": {"row"}, "title": str, "id": range(100), "gridPos": GRID, "panels": list}
VARIABLE = {
    "name": str,
    "label": str,
    "type": {"query", "datasource"},
    "query": str,
    "datasource?": SOURCE,
    "allValue?": str,
    "includeAll?": bool,
    "multi?": bool,
    "refresh?": {0, 1, 2},
    "sort?": range(9),
}
DASHBOARD = {
    "uid": str,
    "title": str,
    "tags": [str],
    "schemaVersion": {41},
    "editable": bool,
    "timezone": {"browser", "utc"},
    "refresh": str,
    "time": {"from": str, "to": str},
    "links": [
        {"title": str, "type": {"dashboards"}, "tags": [str], "asDropdown": bool, "includeVars": bool, "keepTime": bool}
    ],
    "templating": {"list": [VARIABLE]},
    "panels": list,
}


def find_unpublished(found, shape, where):
    """Yield the places below WHERE at which what was found has not the shape."""
    if isinstance(shape, dict) and isinstance(found, dict):
        known = {name.rstrip("?"): part for name, part in shape.items() if name is not str}
        yield from (
            "%s.%s is missing" % (where, name)
            for name in shape
            if name is not str and name not in found and name[-1:] != "?"
        )
        for name, value in found.items():
            if name in known or str in shape:
                yield from find_unpublished(value, known.get(name, shape.get(str)), "%s.%s" % (where, name))
            else:
                yield "%s.%s is unknown" % (where, name)
    elif isinstance(shape, list) and isinstance(found, list):
        for number, value in enumerate(found):
            yield from find_unpublished(value, shape[0], "%s[%d]" % (where, number))
    elif isinstance(shape, (set, range)):
        if found not in shape:
            yield "%s is %r" % (where, found)
    else:
        kinds = shape if isinstance(shape, tuple) else (shape,)
        if (None if found is None else type(found)) not in kinds or found == "":
            yield "%s is %r" % (where, found)


def documents():
    return {
        path.stem[len("gpufleet-") :]: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(PLACE.glob("*.json"))
    }


def panels(document):
    for panel in document["panels"]:
        yield panel
        yield from panel.get("panels") or []


def queries():
    """(dashboard, title of the panel, query as Prometheus gets it when everything is chosen)"""
    for name, document in documents().items():
        for panel in panels(document):
            for target in panel.get("targets") or []:
                expr = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
                yield name, panel["title"], re.sub(r"\$(environment|class|model|team|node|gpu)\b", ".*", expr)


def labels(name):
    """Labels of a series by who writes it."""
    if name in EXTRA:
        return EXTRA[name]
    if name.startswith("DCGM_") or any(one["name"] == name and one["per"] == "gpu" for one in catalog.node_series()):
        return [GPU]
    if name.startswith(("slurm_", "gpufleet_rollout_")):
        return ['environment="prod",rollout="r",account="a",state="done"']
    return (
        [POD]
        if name.startswith("kube_")
        else [NODE + ',device="d",port="1",mountpoint="/",fstype="ext4",name="x",driver="570"']
    )


@pytest.mark.parametrize("name", sorted(documents()))
def test_dashboard_has_the_fields_that_grafana_publishes_and_no_other(name):
    document = documents()[name]
    wrong = list(find_unpublished(document, DASHBOARD, name))
    for panel in panels(document):
        wrong += find_unpublished(panel, ROW if panel["type"] == "row" else PANEL, panel["title"])
        for step in panel.get("transformations", []):
            wrong += find_unpublished(step["options"], TRANSFORMATIONS[step["id"]], panel["title"] + "." + step["id"])
    assert wrong == []


@pytest.mark.parametrize("name", sorted(documents()))
def test_panels_lie_beside_each_other_and_their_parts_are_told_apart(name):
    document = documents()[name]
    cells = [
        (grid["x"] + column, grid["y"] + line)
        for grid in (panel["gridPos"] for panel in panels(document))
        for column in range(grid["w"])
        for line in range(grid["h"])
    ]
    assert len(cells) == len(set(cells)) and max(column for column, dummy in cells) < 24
    ids = [panel["id"] for panel in panels(document) if "id" in panel]
    assert len(ids) == len(set(ids))
    for panel in panels(document):
        references = [target["refId"] for target in panel.get("targets") or []]
        assert len(references) == len(set(references)), panel["title"]
        # The first step is the value from which the others go up.
        steps = panel.get("fieldConfig", {}).get("defaults", {}).get("thresholds", {}).get("steps", [{"value": None}])
        values = [step["value"] for step in steps]
        assert values[0] is None and values[1:] == sorted(values[1:]), panel["title"]


def test_dashboards_have_uid_and_common_variables():
    found = documents()
    assert len(found) == 7
    for name, document in found.items():
        variables = document["templating"]["list"]
        assert document["uid"] == "gpufleet-" + name
        assert [one["name"] for one in variables][: len(VARIABLES)] == VARIABLES, name
        # Nodes without the label count among all.
        assert {one["allValue"] for one in variables[1:]} == {".*"}, name


def test_tables_have_columns_by_label_without_time_and_links_to_nodes_and_gpus():
    tables = [panel for document in documents().values() for panel in panels(document) if panel["type"] == "table"]
    assert len(tables) == 5
    for panel in tables:
        assert {(target["format"], target["instant"]) for target in panel["targets"]} == {("table", True)}
        assert ("merge" in [step["id"] for step in panel["transformations"]]) is (len(panel["targets"]) > 1)
        organized = panel["transformations"][-1]["options"]
        assert organized["excludeByName"]["Time"] is True
        by = {name.strip() for name in re.search(r"by \(([^)]*)\)", panel["targets"][0]["expr"]).group(1).split(",")}
        linked = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
        assert linked == by & {"node", "gpu", "rollout"}, panel["title"]


def test_links_reach_dashboards_and_variables_that_exist():
    found = {document["uid"]: document for document in documents().values()}
    for document in found.values():
        assert document["tags"] == document["links"][0]["tags"]
        for uid, query in re.findall(r'"/d/([a-z-]+)\?([^"]*)"', json.dumps(document)):
            known = {one["name"] for one in found[uid]["templating"]["list"]}
            assert set(re.findall(r"var-(\w+)=", query)) <= known, (document["uid"], query)
    for uid, other in (("gpufleet-node", "gpufleet-gpu"), ("gpufleet-gpu", "gpufleet-node")):
        assert "/d/%s?" % other in json.dumps(found[uid])


def test_thresholds_of_panels_are_those_of_the_alerts():
    values = {one["value"] for one in catalog.thresholds().values()} | {1}
    for name, document in documents().items():
        for panel in panels(document):
            steps = panel.get("fieldConfig", {}).get("defaults", {}).get("thresholds", {}).get("steps", [])
            assert {step["value"] for step in steps[1:]} <= values, (name, panel["title"])


def test_series_of_dcgm_are_those_of_the_own_job():
    for name, title, expr in queries():
        for selector in re.findall(r"DCGM_\w+(\{[^}]*\})?", expr):
            assert rules.OWN_JOB in selector, (name, title)


def test_capacity_dashboard_compares_with_the_target_of_the_thresholds():
    target = catalog.thresholds()["utilization_target"]["value"]
    assert "vector(%s)" % target in [expr for name, dummy, expr in queries() if name == "capacity"]


@pytest.mark.parametrize("name, title, expr", list(queries()))
def test_every_series_of_a_query_is_known(name, title, expr):
    assert template.find_series(expr) - set(catalog.series()) - RECORDED == set()


def test_every_query_returns_data(tmp_path):
    """With one node that has every series of every exporter, in one run of promtool."""
    (tmp_path / "rules.yml").write_text(
        rules.render({"price_gpu_hour": 2, "rack_power_limit_watts": 1}), encoding="utf-8"
    )
    series = [
        {"series": "%s{%s}" % (name, one), "values": VALUES.get(name, "1+0x120" if kind == "gauge" else "0+1x120")}
        for exporter in catalog.exporters().values()
        for name, kind in exporter["series"].items()
        if name != "ALERTS"
        for one in labels(name)
    ]
    looks = [
        {
            "expr": "vector(%d) and on () (%s)" % (number, expr),
            "eval_time": "110m",
            "exp_samples": [{"labels": "{}", "value": number}],
        }
        for number, (dummy, dummy_too, expr) in enumerate(queries())
    ]
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": looks}]
    (tmp_path / "tests.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}), encoding="utf-8"
    )
    code, output = servers.run_tool("promtool", "test", "rules", "tests.yml", place=tmp_path)
    asked = list(queries())
    empty = [asked[int(number)] for number in re.findall(r"expr: \"vector\((\d+)\)", output)]
    assert (code, empty) == (0, []), output[-2000:]
