# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document out of a history: verdicts, cost, drift, failures, holds; and each of its forms."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as etree

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import (
    catalog,
    charts,
    client,
    document,
    page,
    tables,
    trend,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.history import Window
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import html
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._capacity import standin

DAY = standin.DAY
GROUPS = ["node", "model", "class", "team"]


class Direct:
    """Prometheus without HTTP: the stand-in's answers as the client gives them."""

    def __init__(self, given):
        self.api = standin.Api(given)

    def _samples(self, path, values):
        status, body = self.api.answer(path, {key: str(value) for key, value in values.items()})
        return [
            (one["metric"], [(time, float(value)) for time, value in one.get("values") or [one["value"]]])
            for one in body["data"]["result"]
        ]

    def now(self, query, expr, time):
        return self._samples("/query", {"query": expr, "time": time})

    def over(self, query, expr, first, last, step):
        return self._samples("/query_range", {"query": expr, "start": first, "end": last, "step": step})


def made(given=None, days=20, **options):
    asked = catalog.read_request(dict({"url": "http://p", "days": days, "groups": GROUPS}, **options))
    found = client.history(Direct(given or standin.Fleet()), asked, Window(standin.END, days))
    return document.document(asked, found, "p", standin.TIME)


def growing(a_day, now):
    """Return a use that grows by so much a day, and is NOW at the end."""
    return lambda time: now - (standin.END - time) / DAY * a_day


def test_peaks_stand_beside_the_mean_and_hours_are_those_that_were_seen():
    doc = made()
    assert doc["fleet"] == {
        "name": "fleet",
        "gpus": 12.0,
        "hours_seen": 480,
        "hours_share": 1.0,
        "utilization": {"mean": 0.25, "p95": 0.8, "maximum": 0.8},
        "gpu_hours": {
            "present": 5760.0,
            "measured": 5760.0,
            "busy": 1440.0,
            "allocated": 2880.0,
            "idle": 1920.0,
            "idle_allocated": 960.0,
        },
        "cost": {"all": 14400.0, "idle": 4800.0},
    }
    assert {row["name"]: row["cost"] for row in doc["groups"]["team"]} == {
        "blue": {"all": 9600.0, "idle": 0.0},
        "red": {"all": 4800.0, "idle": 4800.0},
    }
    for rows in doc["groups"].values():
        assert all(None not in row["utilization"].values() for row in rows)


def test_the_hours_of_a_group_are_those_of_its_nodes_whatever_the_group():
    doc = made()
    for rows in doc["groups"].values():
        for name, value in doc["fleet"]["gpu_hours"].items():
            assert sum(row["gpu_hours"][name] for row in rows) == pytest.approx(value)


def test_a_trend_meets_its_capacity_and_the_order_comes_before_it():
    """0.01 of 12 GPUs a day from 0.5 on: 0.6 is met in 10 days."""
    doc = made(standin.Fleet(use=growing(0.01, 0.5)), lead_days="4", price="1")
    (one,) = [one for one in doc["trends"] if (one["group"], one["measure"]) == ("fleet", "mean")]
    assert (one["status"], one["capacity_gpus"]) == ("meets", pytest.approx(7.2))
    assert one["slope_gpus_a_day"] == pytest.approx(0.12) and one["slope_error"] == 0
    assert one["earliest"] == one["likely"] == one["latest"] == "2027-01-11"
    assert (one["order_by"], one["overdue_days"], one["verdict"], doc["verdict"]) == (
        "2027-01-07",
        0,
        "enough",
        "enough",
    )
    late = made(standin.Fleet(use=growing(0.01, 0.5)), lead_days="40", price="1")
    (one,) = [one for one in late["trends"] if (one["group"], one["measure"]) == ("fleet", "mean")]
    assert (one["order_by"], one["overdue_days"], late["verdict"]) == ("2026-12-02", 30, "order")


def test_nodes_that_were_not_seen_for_a_while_do_not_bend_the_trend():
    """Two days without one of two nodes look like less demand, and are none."""

    def fleet(lost):
        given = standin.Fleet(use=growing(0.01, 0.5))
        for query in ("present", "measured", "busy"):
            labels, value = given.series[query, ""][0]
            given.series[query, ""][0] = (labels, lambda time, value=value: None if lost(time) else value(time))
        return given

    gap = made(fleet(lambda time: standin.END - 12 * DAY < time <= standin.END - 10 * DAY), lead_days="1")
    (one,) = [one for one in gap["trends"] if (one["group"], one["measure"]) == ("fleet", "mean")]
    assert (one["days"], one["slope_gpus_a_day"], one["slope_error"]) == (18, pytest.approx(0.12), 0)
    assert [note["id"] for note in gap["notes"]] == ["partial_days", "stale_nodes"]
    assert [day["day"] for day in gap["days"] if day["partial"]] == ["2026-12-20", "2026-12-21"]
    end = made(fleet(lambda time: time > standin.END - 2 * DAY), lead_days="1")
    assert "fewer_gpus" in [note["id"] for note in end["notes"]]


def test_a_peak_has_a_target_of_its_own():
    doc = made(standin.Fleet(use=lambda time: 1.0 if time % DAY in (3600, 7200, 10800) else 0.1), lead_days="1")
    assert {(one["measure"], one["status"]) for one in doc["trends"]} == {("mean", "not_within"), ("peak", "met")}
    assert doc["verdict"] == "met"


VERDICTS = [
    # status, order_by, overdue days, verdict
    (trend.NOT_WITHIN, None, None, "enough"),
    (trend.MET, None, None, "met"),
    (trend.MET, "2027-01-01", 9, "met"),
    (trend.MEETS, "2027-01-01", 0, "enough"),
    (trend.MEETS, "2027-01-01", 1, "order"),
    (trend.MEETS, None, None, "unknown"),
    (trend.UNCERTAIN, "2027-01-01", 0, "enough"),
    (trend.UNCERTAIN, "2027-01-01", 1, "unknown"),
    (trend.UNCERTAIN, None, None, "unknown"),
    (trend.TOO_SHORT, None, None, "unknown"),
    (trend.STALE, None, None, "unknown"),
    (trend.NO_CAPACITY, None, None, "unknown"),
    ("another", "2027-01-01", 0, "unknown"),
]


@pytest.mark.parametrize("status, order_by, overdue, verdict", VERDICTS)
def test_the_verdict_of_a_trend(status, order_by, overdue, verdict):
    assert document.verdict_of({"status": status, "order_by": order_by, "overdue_days": overdue}) == verdict


def test_the_worst_trend_decides():
    assert list(document.VERDICTS) == ["enough", "unknown", "order", "met"]
    few = standin.Fleet()
    few.series["measured", ""] = few.series["measured", ""][:1]
    few.series["busy", ""] = few.series["busy", ""][:1]
    assert {one["verdict"] for one in made(few, lead_days="1")["trends"]} == {"enough", "unknown"}
    assert made(few, lead_days="1")["verdict"] == "unknown"


def test_nodes_that_differ_are_named():
    doc = made()
    assert doc["drift"]["drivers"] == ["535.216.03", "535.261.03"]
    assert [(group["class"], group["model"], group["drifted"]) for group in doc["drift"]["groups"]] == [
        ("infer", "a30", False),
        ("train", "h100", True),
    ]
    assert doc["drift"]["groups"][1]["nodes"] == {"535.216.03": ["n4"], "535.261.03": ["n1", "n3"]}
    assert tables.drift(doc).rows == [["infer", "a30", None, 1, ""], ["train", "h100", 1, 2, "n4 535.216.03"]]


def test_failures_are_counted_by_class_and_model():
    assert document.failures({}) == {"xids": [], "out_of_service": []}
    assert made()["failures"] == {
        "xids": [{"class": "train", "model": "h100", "xid_class": "reset", "count": 20}],
        "out_of_service": [{"class": "infer", "model": "a30", "reason": "quarantine", "node_hours": 240.0}],
    }


def test_the_oldest_hold_is_first_and_what_it_keeps_out_stands_beside_it():
    assert made()["holds"] == [
        {"node": "n2", "kind": "kernel", "age_days": 20.0, "security_updates": 2},
        {"node": "n1", "kind": "driver", "age_days": 3.0, "security_updates": None},
    ]


def test_a_whole_history_leaves_only_what_is_stale_to_be_said():
    assert [note["id"] for note in made(lead_days="1")["notes"]] == ["stale_nodes"]


def everything(given=None, **options):
    return page.contents(made(given, **options))


HOSTILE = '<script>alert(1)</script>" onload="x'


def hostile():
    given = standin.Fleet(use=growing(0.01, 0.5))
    for key, rows in given.series.items():
        given.series[key] = [
            ({name: HOSTILE if value == "blue" else value for name, value in labels.items()}, value)
            for labels, value in rows
        ]
    given.series["drivers", ""].append((dict(standin.NODES["n1"], driver="</style>"), standin.always(1)))
    given.series["hold_age", ""].append((dict(standin.NODES["n1"], node="=cmd()", kind="other"), standin.always(DAY)))
    return given


@pytest.mark.parametrize("given", [None, "hostile"])
def test_the_page_is_one_file_that_loads_and_runs_nothing_of_others(given):
    text = everything(hostile() if given else None, lead_days="30")["capacity.html"]
    assert len(re.findall(r"<script\b", text)) == 1 and len(re.findall(r"<style\b", text)) == 1
    assert not re.search(r"(?i)<(link|img|iframe|object|image|use)\b|@import|url\(|\bjavascript:", text)
    # The one address is the name of SVG's vocabulary.
    assert set(re.findall(r"https?://[^\"'<> ]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<[^>]*\s(on\w+|style|href|src)=", re.sub(r"&[a-z#0-9]+;", "", text))
    policy = html.content_policy(
        "\n".join(html.read_source(name) for name in ("style.css", "capacity.css")), html.read_source("page.js")
    )
    assert policy.replace("'", "&#39;") in text and "Generated with" not in text


@pytest.mark.parametrize("given", [None, "hostile"])
def test_charts_are_well_formed_named_and_have_no_id(given):
    text = everything(hostile() if given else None, lead_days="30")["capacity.html"]
    drawings = re.findall(r"<svg\b.*?</svg>", text, re.S)
    # By day, two trends, three groups, and the cost of teams.
    assert len(drawings) == 7
    for drawing in drawings:
        root = etree.fromstring(drawing)
        assert root.get("role") == "img" and root.get("aria-label") and root.get("viewBox")
        assert [one for one in root.iter() if one.get("id") or one.get("style")] == []
        assert len(list(root.iter(charts.SVG + "path"))) + len(list(root.iter(charts.SVG + "rect"))) > 5


def inside(drawing, kind):
    """Return the shapes of a KIND that stand for values."""
    return [
        one
        for one in drawing.iter(charts.SVG + kind)
        if "reactive" in (one.get("class") or "") and "color" not in one.get("class")
    ]


def test_every_value_has_its_bar_and_every_row_its_name_within_the_chart():
    drawing = etree.fromstring(
        charts.bars(
            "x", ["a", "b", ""], [("one", [1.0, 2.0, None]), ("two", [3.0, 4.0, 5.0]), ("three", [1.0, 1.0, 1.0])]
        )
    )
    drawn = [one for one in inside(drawing, "rect") if float(one.get("height")) > 0]
    assert len(drawn) == 8
    (legends,) = [one for one in drawing.iter(charts.SVG + "g") if one.get("class") == "legends"]
    top = float(re.search(r", ([0-9.]+)\)", legends.get("transform")).group(1))
    lowest = top + max(float(one.get("y")) for one in legends.iter(charts.SVG + "text"))
    assert [one.text for one in legends.iter(charts.SVG + "text")] == ["one", "two", "three"] and lowest < charts.HEIGHT


def test_of_many_groups_the_first_are_drawn_and_that_is_said():
    rows = [{"name": "team-%02d" % number, "cost": {"all": 1.0 + number}} for number in range(30)]
    title, svg = page.chart_of_groups("Cost", rows, [("all", "cost", "all")], False)
    assert title.endswith("the first 24 of 30") and len(inside(etree.fromstring(svg), "rect")) == 24


def test_a_gap_interrupts_the_line():
    def strokes(values):
        drawing = etree.fromstring(charts.lines("x", list("abcdef"), [("y", values)]))
        return sum(
            (one.get("d") or "").count("M")
            for one in drawing.iter(charts.SVG + "path")
            if "reactive" in (one.get("class") or "")
        )

    assert strokes([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == 1 and strokes([1.0, 2.0, None, None, 5.0, 6.0]) == 2


def test_days_without_data_are_in_the_chart_as_gaps():
    gap = standin.Fleet(missing=lambda time: standin.END - 5 * DAY < time <= standin.END - 3 * DAY)
    doc = made(gap)
    assert len(doc["days"]) == 18 and len(page.span(doc["days"][0]["day"], doc["days"][-1]["day"])) == 20


def test_the_line_of_a_trend_ends_where_it_is_told(monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        charts, "lines", lambda title, labels, rows, percent=False: drawn.update({title: (labels, dict(rows))}) or ""
    )
    page.pictures(made(standin.Fleet(use=growing(0.01, 0.5))))
    labels, rows = next(found for title, found in drawn.items() if "(mean)" in title)
    assert (labels[0], labels[-1]) == ("2026-12-12", "2027-01-11")
    # The first day on which the line has met it.
    assert rows["trend"][-2] < 7.2 <= rows["trend"][-1] and rows["demand"][-5:] == [None] * 5


def test_a_history_too_short_for_a_day_still_has_its_page():
    text = everything(standin.Fleet(since=standin.END - 5 * 3600))["capacity.html"]
    assert 'id="note-short_trend"' in text and 'id="trends"' in text


def test_csv_has_numbers_as_they_are_and_computes_nothing():
    found = everything(hostile(), price="1")
    holds = list(csv.DictReader(io.StringIO(found["capacity_holds.csv"])))
    assert [row["node"] for row in holds] == ["n2", "n1", "'=cmd()"]
    cells = [
        cell for name in found if name.endswith(".csv") for row in csv.reader(io.StringIO(found[name])) for cell in row
    ]
    assert [cell for cell in cells if cell.startswith(("=", "+", "@"))] == []
    team = list(csv.DictReader(io.StringIO(found["capacity_team.csv"])))
    assert {row["team"] for row in team} == {HOSTILE, "red"} and float(team[0]["mean"]) > 0
    assert (
        list(csv.DictReader(io.StringIO(everything(standin.Fleet().without("price"))["capacity_fleet.csv"])))[0]["cost"]
        == ""
    )


def test_markdown_says_the_same_and_no_label_becomes_markup():
    text = everything(hostile())["capacity.md"]
    assert "<script>" not in text and "\\<script\\>" in text
    assert text.startswith("# GPU capacity: ") and "- `no_lead_time`: " in text
    for table in tables.tables(made()):
        assert not table.rows or "\n## %s\n" % table.title in text


@pytest.mark.parametrize(
    "value, form, said",
    [
        (None, "percent", "-"),
        (0.256, "percent", "25.6 %"),
        (1234.5, "whole", "1,234"),
        (1234.567, "money", "1,234.57"),
        (2.04, "number", "2.0"),
        (0.12, "slope", "+0.120"),
        ("", "name", tables.UNTOLD),
        ("", "text", ""),
        ("a\nb", "name", "a b"),
    ],
)
def test_values_for_people(value, form, said):
    assert tables.shown(value, form) == said


def test_every_limit_has_its_source():
    assert [name for name, one in catalog.limits().items() if not (one["source"] and one["unit"] and one["text"])] == []
