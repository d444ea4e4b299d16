# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards of data/dashboards.yml as Grafana's own documents. Pure.

Everything that is not said here has Grafana's default. The form is that of Grafana 11.6.
"""

from __future__ import annotations

import string
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Labels by which every dashboard chooses, and the series whose values are offered for those of one node or GPU.
FLEET = ("environment", "class", "model", "team")
OFFERED = {"gpu": "gpufleet:gpu_temperature:celsius"}
# In the expressions of the data: the labels of the fleet, with that of the node, and with that of the GPU as well.
SELECTIONS = {"environment": FLEET[:1], "fleet": FLEET, "node": (*FLEET, "node"), "gpu": (*FLEET, "node", "gpu")}
HEIGHT, WIDTH = 8, 12  # of a panel; two stand side by side
FROM_ZERO = ("percentunit", "short", "watt")


def documents() -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return every dashboard by its name."""
    return {one["name"]: _document(one) for one in catalog.dashboards()}


def _document(one: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    panels, line = [], 0
    for row in one["rows"]:
        place = {"h": 1, "w": 2 * WIDTH, "x": 0, "y": line}
        panels.append({"type": "row", "title": row["title"], "id": 0, "panels": [], "gridPos": place})
        line += 1
        for number, panel in enumerate(row["panels"]):
            place = {"h": HEIGHT, "w": WIDTH, "x": number % 2 * WIDTH, "y": line + number // 2 * HEIGHT}
            panels.append(dict(_panel(panel), gridPos=place))
        line += (len(row["panels"]) + 1) // 2 * HEIGHT
    return {
        "uid": "gpufleet-" + one["name"],
        "title": one["title"],
        "tags": ["gpufleet"],
        "editable": False,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "schemaVersion": 41,
        "templating": {"list": [_variable(name) for name in ("datasource", *FLEET, *one.get("labels", ()))]},
        "panels": panels,
    }


def _variable(name: str) -> t.Dict[str, t.Any]:
    if name == "datasource":
        return {"type": "datasource", "name": name, "label": "Prometheus", "query": "prometheus"}
    return {
        "type": "query",
        "name": name,
        "label": name,
        "datasource": SOURCE,
        "query": "label_values(%s, %s)" % (OFFERED.get(name, "gpufleet:node_up"), name),
        "multi": True,
        "includeAll": True,
        "allValue": ".*",  # nodes without the label count among all
        "refresh": 2,
        "sort": 1,
    }


def _panel(panel: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    kind, unit = panel.get("type", "timeseries"), panel["unit"]
    bounds = {"min": 0} if kind == "timeseries" and unit in FROM_ZERO else {}
    when = {"range": True} if kind == "timeseries" else {"instant": True}
    queries = panel["queries"].items() if kind != "table" else [("__auto", expr) for expr in panel["queries"]]
    return {
        "type": kind,
        "title": panel["title"],
        "description": panel["description"],
        "datasource": SOURCE,
        "fieldConfig": {"defaults": dict(bounds, unit=unit), "overrides": []},
        "targets": [
            dict(when, refId=letter, legendFormat=legend, expr=_expression(expr))
            for letter, (legend, expr) in zip(string.ascii_uppercase, queries)
        ],
    }


def _expression(expr: str) -> str:
    for name, labels in SELECTIONS.items():
        expr = expr.replace("${%s}" % name, ",".join('%s=~"$%s"' % (label, label) for label in labels))
    return expr
