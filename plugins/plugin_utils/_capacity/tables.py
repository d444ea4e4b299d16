# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The capacity report as tables, of which CSV, Markdown, plain text and the page are made. Pure."""

from __future__ import annotations

import csv
import dataclasses
import io
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import trend
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import formats, text

Row = t.List[t.Any]
UNTOLD = "not told"
USE = (
    ("GPUs", "number"),
    ("mean", "percent"),
    ("p95", "percent"),
    ("maximum", "percent"),
    ("GPU-hours", "whole"),
    ("allocated", "whole"),
    ("work", "whole"),
    ("idle", "whole"),
    ("idle, allocated", "whole"),
    ("cost", "money"),
    ("cost of idle", "money"),
    ("hours seen", "percent"),
)
SAID = {
    trend.TOO_SHORT: "too little history",
    trend.STALE: "no recent data",
    trend.NO_CAPACITY: "no GPUs measured",
    trend.MET: "capacity is met",
    trend.MEETS: "meets capacity",
    trend.UNCERTAIN: "may meet capacity",
    trend.NOT_WITHIN: "not within the horizon",
}


@dataclasses.dataclass
class Table:
    """A table: HEAD has (title, form) of each column, by which values are shown to people; CSV has them as they are."""

    name: str
    title: str
    meaning: str
    head: t.List[t.Tuple[str, str]]
    rows: t.List[Row]

    def shown(self) -> t.List[t.List[str]]:
        """Return the rows for people."""
        return [[shown(value, form) for value, (dummy, form) in zip(row, self.head)] for row in self.rows]


def shown(value: t.Any, form: str) -> str:
    """Return a value for people; what is not known is a dash."""
    if value is None:
        return "-"
    if form == "name":
        return text.one_line(value) or UNTOLD
    if form == "text":
        return text.one_line(value)
    if form == "percent":
        return "%.1f %%" % (value * 100)
    if form == "slope":
        return "%+.3f" % value
    return {"whole": "{:,.0f}", "money": "{:,.2f}", "number": "{:,.1f}"}[form].format(value)


def use_row(one: t.Dict[str, t.Any]) -> Row:
    use, hours, cost = one["utilization"], one["gpu_hours"], one["cost"]
    return [
        one["gpus"],
        use["mean"],
        use["p95"],
        use["maximum"],
        hours["present"],
        hours["allocated"],
        hours["busy"],
        hours["idle"],
        hours["idle_allocated"],
        cost["all"],
        cost["idle"],
        one["hours_share"],
    ]


def use(doc: t.Dict[str, t.Any]) -> t.List[Table]:
    """Return the tables of utilization, hours and cost: of the fleet, then by each label."""
    meaning = (
        "Mean over all GPU-hours; p95 is what the group stayed below in 95 % of the hours, "
        "the maximum is its busiest five minutes. Hours and cost are of what was seen."
    )
    found = [Table("fleet", "Fleet", meaning, list(USE), [use_row(doc["fleet"])])]
    for group, rows in doc["groups"].items():
        order = (
            rows if group != "node" else sorted(rows, key=lambda one: (one["utilization"]["mean"] or 0.0, one["name"]))
        )
        about = {
            "node": "The least used first.",
            "team": (
                "The team that a node belongs to; what the jobs of one team use on nodes of another is that node's."
            ),
        }.get(group, "")
        found.append(
            Table(
                group, "By %s" % group, about, [(group, "name"), *USE], [[one["name"], *use_row(one)] for one in order]
            )
        )
    return found


def trends(doc: t.Dict[str, t.Any]) -> Table:
    """Return the table of trends."""
    meaning = (
        "Demand in GPUs that work, by day: its mean against %.0f %% of the GPUs, "
        "its 95th percentile (peak) against %.0f %%. The earliest and the latest date bound the likely one with a "
        "confidence of 95 %%. To order by: the earliest date less the lead time."
        % (doc["target"] * 100, doc["peak_target"] * 100)
    )
    head = [
        ("group", "text"),
        ("name", "name"),
        ("demand", "text"),
        ("status", "text"),
        ("days", "whole"),
        ("now", "number"),
        ("capacity", "number"),
        ("a day", "slope"),
        ("error", "slope"),
        ("earliest", "text"),
        ("likely", "text"),
        ("latest", "text"),
        ("order by", "text"),
    ]
    keys = (
        "days",
        "now_gpus",
        "capacity_gpus",
        "slope_gpus_a_day",
        "slope_error",
        "earliest",
        "likely",
        "latest",
        "order_by",
    )
    rows = [
        [one["group"], one["name"], one["measure"], SAID[one["status"]], *(one[key] for key in keys)]
        for one in doc["trends"]
    ]
    return Table("trends", "Trend", meaning, head, rows)


def drift(doc: t.Dict[str, t.Any]) -> Table:
    """Return the drift matrix: nodes of each group by driver, with the names of those that are fewer."""
    drivers = doc["drift"]["drivers"]
    rows = []
    for group in doc["drift"]["groups"]:
        most = max(group["nodes"].values(), key=len)
        odd = [
            "%s %s" % (node, driver) for driver, nodes in group["nodes"].items() if nodes is not most for node in nodes
        ]
        said = ", ".join(odd[:8]) + (" and %d more" % (len(odd) - 8) if len(odd) > 8 else "")
        rows.append(
            [group["class"], group["model"], *(len(group["nodes"].get(driver, ())) or None for driver in drivers), said]
        )
    head = [
        ("class", "name"),
        ("model", "name"),
        *((driver or UNTOLD, "whole") for driver in drivers),
        ("other than most", "text"),
    ]
    return Table(
        "drift", "Drivers", "Nodes of each class and model by their driver at the end of the window.", head, rows
    )


def failures(doc: t.Dict[str, t.Any]) -> t.List[Table]:
    """Return the tables of XIDs and of lost hours."""
    found = doc["failures"]
    return [
        Table(
            "xids",
            "XIDs",
            "By class of node, model, and what the XID asks for; "
            "app and warn are those of jobs. About: counted between scrapes.",
            [("class", "name"), ("model", "name"), ("asks for", "text"), ("XIDs", "whole")],
            [[one["class"], one["model"], one["xid_class"], one["count"]] for one in found["xids"]],
        ),
        Table(
            "out_of_service",
            "Out of service",
            "Node-hours in which this collection kept a node out of service.",
            [("class", "name"), ("model", "name"), ("reason", "text"), ("node-hours", "number")],
            [[one["class"], one["model"], one["reason"], one["node_hours"]] for one in found["out_of_service"]],
        ),
    ]


def holds(doc: t.Dict[str, t.Any]) -> Table:
    """Return the table of holds."""
    return Table(
        "holds",
        "Holds",
        "Packages that a node holds, and the security updates that it keeps out by that; the oldest first.",
        [("node", "name"), ("kind", "text"), ("days", "number"), ("security updates kept out", "whole")],
        [[one["node"], one["kind"], one["age_days"], one["security_updates"]] for one in doc["holds"]],
    )


def tables(doc: t.Dict[str, t.Any]) -> t.List[Table]:
    """Return every table of a report, in its order."""
    first, *groups = use(doc)
    return [first, trends(doc), *groups, drift(doc), *failures(doc), holds(doc)]


def csv_text(table: Table) -> str:
    """Return a table as CSV: plain numbers, nothing for what is not known, no cell that a spreadsheet would compute."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_cell(title) for title, dummy in table.head])
    writer.writerows([_cell(value) for value in row] for row in table.rows)
    return stream.getvalue()


def _cell(value: t.Any) -> t.Any:
    if not isinstance(value, str):
        return value
    said = text.one_line(value)
    return "'" + said if said[:1] in ("=", "+", "-", "@") else said


HEADLINES = {
    "enough": "Capacity is enough",
    "unknown": "Whether capacity is enough cannot be told",
    "order": "It is time to order",
    "met": "Demand has met capacity",
}


def headline(doc: t.Dict[str, t.Any]) -> str:
    """Return the verdict in words, with the group that decides it."""
    worst = [one for one in doc["trends"] if one["verdict"] == doc["verdict"]]
    if doc["verdict"] in ("enough", "unknown"):
        dates = sorted(one["order_by"] for one in doc["trends"] if one["order_by"] and one["verdict"] == "enough")
        return HEADLINES[doc["verdict"]] + ("; order by %s" % dates[0] if dates else "")
    which = sorted(
        {
            one["name"] if one["group"] == one["name"] else "%s %s" % (one["group"], one["name"] or UNTOLD)
            for one in worst
        }
    )
    return "%s: %s%s" % (
        HEADLINES[doc["verdict"]],
        ", ".join(which[:4]),
        " and %d more" % (len(which) - 4) if len(which) > 4 else "",
    )


def how(doc: t.Dict[str, t.Any]) -> t.List[t.Tuple[str, str]]:
    """Return how the report came about, for its end."""
    price = "%s (%s)" % (doc["price_gpu_hour"], doc["price_source"]) if doc["price_source"] else "not given"
    return [
        ("source", doc["source"]),
        ("environment", doc["environment"] or "all"),
        (
            "window",
            "%s to %s, %s of %d hours seen"
            % (doc["window"]["start"], doc["window"]["end"], doc["window"]["hours_seen"], doc["window"]["hours"]),
        ),
        ("price of a GPU-hour", price),
        ("lead time", "not given" if doc["lead_days"] is None else text.count_noun(doc["lead_days"], "day")),
        ("target", "mean %.0f %%, peaks %.0f %%" % (doc["target"] * 100, doc["peak_target"] * 100)),
        ("schema", doc["schema"]),
    ]


def markdown_text(doc: t.Dict[str, t.Any]) -> str:
    """Return the report as Markdown."""
    lines = [
        "# GPU capacity: %s" % doc["verdict"],
        "",
        formats.escape_markdown(headline(doc)) + ".",
        "",
        "Made %s." % formats.escape_markdown(doc["time"]),
    ]
    lines += formats.render_section(
        "What it does not know",
        ["- `%s`: %s" % (one["id"], formats.escape_markdown(one["text"])) for one in doc["notes"]],
    )
    for table in tables(doc):
        if table.rows:
            said = [formats.escape_markdown(table.meaning), ""] if table.meaning else []
            lines += formats.render_section(
                table.title, said + formats.render_table([title for title, dummy in table.head], table.shown())
            )
    lines += formats.render_section(
        "How it was made",
        ["- %s: %s" % (formats.escape_markdown(key), formats.escape_markdown(value)) for key, value in how(doc)],
    )
    return "\n".join(lines) + "\n"


SHORT = ("mean", "p95", "maximum", "GPU-hours", "cost")


def summary(doc: t.Dict[str, t.Any]) -> t.List[str]:
    """Return the lines that the playbook prints: groups but nodes, trends, what is not known, and the verdict."""
    rows = [["group", "name", *SHORT]]
    for table in use(doc):
        if table.name == "node":
            continue
        columns = [[title for title, dummy in table.head].index(title) for title in SHORT]
        for cells in table.shown():
            rows.append([table.name, "" if table.name == "fleet" else cells[0], *(cells[column] for column in columns)])
    said = trends(doc)
    more = [[title for title, dummy in said.head], *said.shown()]
    return [
        *text.align_columns(rows),
        "",
        *text.align_columns(more),
        "",
        *("%s: %s" % (one["id"], text.one_line(one["text"])) for one in doc["notes"]),
        "%s: %s" % (doc["verdict"], text.one_line(headline(doc))),
    ]
