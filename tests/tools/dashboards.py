# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the dashboards of the role gpu_monitoring with Grafana's Foundation SDK, out of panels/.

tests/tools/with.sh dashboards python3 -m tests.tools.dashboards            write what differs
tests/tools/with.sh dashboards python3 -m tests.tools.dashboards --check    write nothing; name what differs and exit 1
"""

from __future__ import annotations

import sys

import yaml
from grafana_foundation_sdk.builders import common, dashboard, gauge, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh, VariableSort

from tests.tools.common import ROOT
from tests.tools.panels import DASHBOARDS
from tests.tools.panels.words import GRAPH

PLACE = ROOT / "roles" / "gpu_monitoring" / "files" / "dashboards"
THRESHOLDS = ROOT / "plugins" / "plugin_utils" / "_monitoring" / "data" / "thresholds.yml"
COMMON = ("environment", "class", "model", "team")
KINDS = {"timeseries": timeseries.Panel, "stat": stat.Panel, "table": table.Panel, "gauge": gauge.Panel}
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT = 12, 8


def expression(text):
    """Return the query of a panel with its labels written out."""
    target = yaml.safe_load(THRESHOLDS.read_text(encoding="utf-8"))["thresholds"]["utilization_target"]["value"]
    chosen = ",".join('%s=~"$%s"' % (name, name) for name in COMMON)
    for word, written in (
        ("SEL", chosen),
        ("ENV", 'environment=~"$environment"'),
        ("NODE", 'node=~"$node"'),
        ("GPU", 'gpu=~"$gpu"'),
    ):
        text = text.replace("{%s" % word, "{" + written).replace(",%s" % word, "," + written)
    return text.replace("TARGET", str(target))


def variable(name):
    """Return a variable with the values of a label of the nodes; nodes without the label count among all."""
    series = "gpufleet:gpu_temperature:celsius" if name == "gpu" else "gpufleet:node_up"
    found = dashboard.QueryVariable(name).label(name).datasource(SOURCE).query("label_values(%s, %s)" % (series, name))
    return (
        found.multi(True)
        .include_all(True)
        .all_value(".*")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def panel(title, kind, unit, description, queries):
    """Return one panel."""
    found = KINDS[kind]().title(title).description(description).unit(unit).datasource(SOURCE).span(WIDTH).height(HEIGHT)
    for number, (expr, legend) in enumerate(queries):
        query = (
            prometheus.Dataquery()
            .expr(expression(expr))
            .legend_format(legend or "__auto")
            .ref_id(chr(ord("A") + number))
            .datasource(SOURCE)
        )
        found = found.with_target(query.range() if kind == GRAPH else query.instant())
    if kind == GRAPH:
        found = found.legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        found = found.min(0) if unit in ("percentunit", "short", "watt") else found
    return found


def build(name):
    """Return the JSON of one dashboard."""
    title, own, rows = DASHBOARDS[name]
    found = (
        dashboard.Dashboard(title)
        .uid("gpufleet-" + name)
        .tags(["gpufleet"])
        .readonly()
        .refresh("1m")
        .time("now-6h", "now")
        .timezone("browser")
    )
    found = found.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for label in (*COMMON, *own):
        found = found.with_variable(variable(label))
    for row, panels in rows.items():
        found = found.with_row(dashboard.Row(row))
        for one in panels:
            found = found.with_panel(panel(*one))
    return JSONEncoder(sort_keys=True, indent=1).encode(found.build()) + "\n"


def main(arguments):
    stale = []
    for name in DASHBOARDS:
        path, text = PLACE / ("gpufleet-%s.json" % name), build(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    known = {"gpufleet-%s.json" % name for name in DASHBOARDS}
    stale += [str(path.relative_to(ROOT)) for path in PLACE.glob("*.json") if path.name not in known]
    for name in stale:
        print("%s %s" % ("stale:" if "--check" in arguments else "written:", name))
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
