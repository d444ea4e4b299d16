# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of the capacity report, and all of its files. Pure."""

from __future__ import annotations

import datetime
import typing as t

import markupsafe

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import charts, tables
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import files, html

Picture = t.Tuple[str, str]

TITLE = "GPU capacity"
# The verdict of this report in the colours of the page.
TONES = {"enough": "pass", "unknown": "unknown", "order": "fail", "met": "fail"}


def span(first: str, last: str) -> t.List[str]:
    """Return every day from FIRST to LAST."""
    begin, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
    return [(begin + datetime.timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]


def chart_of_days(doc: t.Dict[str, t.Any]) -> Picture:
    """Return utilization by day, with its title; days without enough data are gaps."""
    by_day = {one["day"]: one for one in doc["days"]}
    labels = span(min(by_day), max(by_day))
    rows = [
        (name, [by_day.get(day, {}).get(key) for day in labels])
        for name, key in (("mean", "mean"), ("95th percentile", "p95"), ("maximum", "maximum"))
    ]
    rows.append(("target of the mean", [doc["target"]] * len(labels)))
    title = "Utilization of the fleet by day: mean, 95th percentile and maximum"
    return title, charts.lines(title, labels, rows, percent=True)


def chart_of_trend(doc: t.Dict[str, t.Any], one: t.Dict[str, t.Any]) -> Picture:
    """Return demand by day with its line, drawn on to where it may meet the capacity and no further."""
    by_day = {entry["day"]: entry for entry in doc["days"]}
    key = "busy" if one["measure"] == "mean" else "busy_p95"
    today = doc["window"]["end"][:10]
    labels = span(min(by_day), max(today, one["latest"] or one["likely"] or today))
    at = {day: number for number, day in enumerate(labels)}
    fitted = [one["now_gpus"] + one["slope_gpus_a_day"] * (number - at[today]) for number in range(len(labels))]
    title = "Demand of the fleet by day, in GPUs that work (%s), its trend, and the capacity" % one["measure"]
    return title, charts.lines(
        title,
        labels,
        [
            ("demand", [by_day[day][key] if day in by_day and not by_day[day]["partial"] else None for day in labels]),
            ("trend", [value if value >= 0 else None for value in fitted]),
            ("capacity (%.0f %% of the GPUs)" % (one["target"] * 100), [one["capacity_gpus"]] * len(labels)),
        ],
    )


def chart_of_groups(
    what: str, rows: t.List[t.Dict[str, t.Any]], values: t.List[t.Tuple[str, str, str]], percent: bool
) -> Picture:
    """Return bars of the VALUES (name, part of a row, key in it) of each group; of many groups, the first."""
    title = what if len(rows) <= charts.BARS else "%s; the first %d of %d" % (what, charts.BARS, len(rows))
    labels = [one["name"] or tables.UNTOLD for one in rows]
    return title, charts.bars(
        title, labels, [(name, [one[part][key] for one in rows]) for name, part, key in values], percent
    )


def pictures(doc: t.Dict[str, t.Any]) -> t.Dict[str, t.List[Picture]]:
    """Return the charts by the name of the table that they stand above."""
    found: t.Dict[str, t.List[Picture]] = {}
    if doc["days"]:
        found["fleet"] = [chart_of_days(doc)]
        drawn = [
            one
            for one in doc["trends"]
            if one["group"] == "fleet" and one["slope_gpus_a_day"] is not None and one["capacity_gpus"]
        ]
        found["trends"] = [chart_of_trend(doc, one) for one in drawn]
    for group, rows in doc["groups"].items():
        if group == "node" or not rows:
            continue
        use = [
            ("mean", "utilization", "mean"),
            ("95th percentile", "utilization", "p95"),
            ("maximum", "utilization", "maximum"),
        ]
        found[group] = [
            chart_of_groups("Utilization by %s: mean, 95th percentile and maximum" % group, rows, use, True)
        ]
        if group == "team" and doc["price_gpu_hour"] is not None:
            cost = [("all", "cost", "all"), ("idle", "cost", "idle")]
            found[group].append(
                chart_of_groups("Cost by team: all GPU-hours, and those that were idle", rows, cost, False)
            )
    return found


def view(doc: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    """Return the content of the page: words and numbers only, no decision is left to the template."""
    drawn = pictures(doc)
    use, cost = doc["fleet"]["utilization"], doc["fleet"]["cost"]
    parts = [
        {
            "name": table.name,
            "title": table.title,
            "meaning": table.meaning,
            "head": [{"text": title, "number": form not in ("name", "text")} for title, form in table.head],
            "rows": [
                {
                    "name": cells[0],
                    "cells": [
                        {"text": cell, "number": form not in ("name", "text")}
                        for cell, (dummy, form) in zip(cells, table.head)
                    ],
                }
                for cells in table.shown()
            ],
            # What pygal drew out of numbers and of labels that it escaped.
            "charts": [{"title": title, "svg": markupsafe.Markup(svg)} for title, svg in drawn.get(table.name, [])],
        }
        for table in tables.tables(doc)
        if table.rows
    ]
    return {
        "title": "%s: %s" % (TITLE, doc["verdict"]),
        "kind": TITLE,
        "verdict": doc["verdict"],
        "tone": TONES[doc["verdict"]],
        "headline": tables.headline(doc),
        "made": doc["time"][:16].replace("T", " "),
        "simulated": False,
        "tiles_label": "The fleet over the window",
        "numbers": [
            {"value": tables.shown(doc["fleet"]["gpus"], "number"), "text": "GPUs"},
            {"value": tables.shown(use["mean"], "percent"), "text": "mean"},
            {"value": tables.shown(use["p95"], "percent"), "text": "95th percentile"},
            {"value": tables.shown(use["maximum"], "percent"), "text": "maximum"},
            {"value": tables.shown(cost["idle"], "money"), "text": "cost of idle"},
        ],
        "notes": doc["notes"],
        "parts": parts,
        "how": tables.how(doc),
    }


def html_text(doc: t.Dict[str, t.Any]) -> str:
    return html.render_page("capacity.html.j2", view(doc), styles=("style.css", "capacity.css"))


def contents(doc: t.Dict[str, t.Any]) -> t.Dict[str, str]:
    """Return every file of the report by its name."""
    found = {
        "capacity.json": files.json_text(doc),
        "capacity.md": tables.markdown_text(doc),
        "capacity.html": html_text(doc),
    }
    found.update({"capacity_%s.csv" % table.name: tables.csv_text(table) for table in tables.tables(doc)})
    return found
