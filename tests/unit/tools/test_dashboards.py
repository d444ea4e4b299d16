# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards are as Grafana's SDK builds them, and every query of them answers data from series that are known."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, promql, rules
from tests.tools.panels import DASHBOARDS

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACE = ROOT / "roles" / "gpu_monitoring" / "files" / "dashboards"
RECORDED = {rule["record"] for rule in catalog.recordings()} | {"gpufleet:price_gpu_hour"}
VARIABLES = {"environment", "class", "model", "team"}
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


def test_they_are_as_the_sdk_builds_them():
    done = subprocess.run(
        [str(ROOT / "tests/tools/with.sh"), "dashboards", "python3", "-m", "tests.tools.dashboards", "--check"],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    assert done.returncode == 0 and "stale" not in done.stdout, done.stdout


def test_each_has_its_variables():
    found = documents()
    assert set(found) == set(DASHBOARDS) and len(found) == 7
    for name, document in found.items():
        names = [one["name"] for one in document["templating"]["list"]]
        assert names[0] == "datasource" and set(names[1:]) == VARIABLES | set(DASHBOARDS[name][1]), name
        assert document["uid"] == "gpufleet-" + name and all(
            one.get("allValue") == ".*" for one in document["templating"]["list"][1:]
        )


def test_each_panel_says_what_it_shows():
    for name, document in documents().items():
        shown = [panel for panel in panels(document) if panel["type"] != "row"]
        assert (
            shown
            and [
                panel["title"]
                for panel in shown
                if not (panel.get("description") and panel["fieldConfig"]["defaults"].get("unit"))
            ]
            == []
        ), name
        assert {target["datasource"]["uid"] for panel in shown for target in panel["targets"]} == {"${datasource}"}


def test_a_mean_never_stands_alone():
    for name, document in documents().items():
        for panel in panels(document):
            text = " ".join(target["expr"] for target in panel.get("targets") or [])
            if re.search(r"\bavg\b[^(]*\((?!rate)", text) and "node_cpu_seconds_total" not in text:
                assert "quantile" in text or "max" in text or panel["type"] == "gauge", (name, panel["title"])


@pytest.mark.parametrize("name, title, expr", list(queries()))
def test_every_series_of_a_query_is_known(name, title, expr):
    assert promql.series(expr) - set(catalog.series()) - RECORDED == set()


def test_every_query_answers_data(tmp_path):
    """No panel stays empty where every exporter tells one node. One run of promtool, which also parses them."""
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
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"],
        cwd=str(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    asked = list(queries())
    empty = [asked[int(number)] for number in re.findall(r"expr: \"vector\((\d+)\)", done.stdout)]
    assert (done.returncode, empty) == (0, []), done.stdout[-2000:]
