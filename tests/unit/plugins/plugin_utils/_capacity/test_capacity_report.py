# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action capacity_report against a stand-in for Prometheus' API: what it writes, and when it writes nothing."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import stat
import sys

import pytest
from ansible.errors import AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.action import capacity_report
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import charts, client
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._capacity import standin

TABLES = ("fleet", "trends", "node", "model", "class", "team", "drift", "xids", "out_of_service", "holds")


@pytest.fixture(autouse=True)
def in_one_part(monkeypatch, request):
    """A request costs more here than what it answers."""
    if request.node.name != "test_an_environment_is_in_every_query_and_parts_are_small":
        monkeypatch.setattr(client, "CHUNK_MAX", 30)


def run(check=False, **arguments):
    return actions.make_action(capacity_report, arguments, check=check).run(task_vars={})


def report(dest, api, **arguments):
    with standin.serving(api) as url:
        return run(**dict({"url": url, "dest": str(dest), "days": 20, "time": standin.TIME}, **arguments))


def refused(result, dest, code):
    """Whether a result is a failure with a CODE that says what to do, and nothing was written."""
    assert (result.get("failed"), result.get("code")) == (True, code), result
    assert result["msg"] and "files" not in result
    assert not os.path.isdir(str(dest)) or os.listdir(str(dest)) == []
    return result["msg"]


@pytest.mark.cores
def test_every_form_is_written_and_the_same_history_gives_the_same_bytes(tmp_path):
    dest = tmp_path / "new"
    with standin.serving(standin.Api(standin.Fleet())) as url:
        given = {"url": url, "dest": str(dest), "days": "20", "time": standin.TIME, "lead_days": "30"}
        result, again = run(**given), run(**given)
    assert (result["verdict"], result["changed"], again["changed"]) == ("enough", True, False)
    names = {"capacity.json", "capacity.md", "capacity.html", *("capacity_%s.csv" % name for name in TABLES)}
    assert set(result["files"]) == names == set(os.listdir(str(dest)))
    assert {stat.S_IMODE(path.stat().st_mode) for path in dest.iterdir()} == {0o600}
    doc = json.loads((dest / "capacity.json").read_text())
    assert (doc["schema"], doc["verdict"], doc["time"]) == ("gpufleet.capacity/1", "enough", standin.TIME)
    with open(str(dest / "capacity_team.csv"), encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["team"], float(row["GPU-hours"]), float(row["cost"])) for row in rows] == [
        ("blue", 8 * 480.0, 8 * 480 * 2.5),
        ("red", 4 * 480.0, 4 * 480 * 2.5),
    ]


@pytest.mark.cores
def test_the_secret_header_goes_to_prometheus_and_nowhere_else(tmp_path):
    api = standin.Api(standin.Fleet())
    result = report(tmp_path, api, headers={"Authorization": "Bearer 5ecret"})
    assert {headers["Authorization"] for headers in api.headers} == {"Bearer 5ecret"}
    assert "5ecret" not in json.dumps(result)
    assert [path.name for path in tmp_path.iterdir() if "5ecret" in path.read_text()] == []


def test_an_environment_is_in_every_query_and_parts_are_small(tmp_path):
    api = standin.Api(standin.Fleet(), environment='pr"od')
    report(tmp_path, api, environment='pr"od')
    said = {query: values["query"] for query, dummy, dummy2, values in api.asked}
    assert [query for query, text in said.items() if 'environment="pr\\"od"' not in text] == ["price"]
    ranged = [values for dummy, dummy2, path, values in api.asked if path.endswith("query_range")]
    assert {int(values["end"]) for values in ranged} >= {standin.END}
    assert max(int(values["end"]) - int(values["start"]) for values in ranged) < 7 * standin.DAY
    assert {values["partial_response"] for values in ranged} == {"false"}


def test_check_mode_asks_and_writes_nothing(tmp_path):
    result = report(tmp_path / "d", standin.Api(standin.Fleet()), check=True)
    assert (result["verdict"], result["changed"]) == ("enough", True) and not (tmp_path / "d").exists()


@pytest.mark.cores
def test_prometheus_that_is_away(tmp_path):
    with standin.serving(standin.Api(standin.Fleet())) as url:
        pass
    said = refused(run(url=url, dest=str(tmp_path / "d"), time=standin.TIME), tmp_path / "d", "away")
    assert url[len("http://") :] in said and "capacity_prometheus_url" in said


FAULTS = [
    (
        "error",
        lambda query: (
            422,
            {"status": "error", "errorType": "execution", "error": "query processing would load too many samples"},
        ),
    ),
    ("error", lambda query: (200, b"<html>a portal</html>")),
    ("error", lambda query: (200, {"status": "success", "data": {"resultType": "scalar", "result": [0, "1"]}})),
    ("error", lambda query: (200, {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}}]}})),
    ("error", lambda query: (302, b"")),
    ("error", lambda query: (503, {"status": "success", "data": {"resultType": "matrix", "result": []}})),
    (
        "partial",
        lambda query: (
            200,
            {"status": "success", "warnings": ["a store is away"], "data": {"resultType": "matrix", "result": []}},
        ),
    ),
    (
        "partial",
        lambda query: (200, {"status": "success", "isPartial": True, "data": {"resultType": "matrix", "result": []}}),
    ),
]


@pytest.mark.parametrize("code, fault", FAULTS, ids=range(len(FAULTS)))
@pytest.mark.parametrize("query", ["idle", "price"])
def test_an_answer_that_is_not_surely_whole_leaves_the_report_as_it_was(tmp_path, query, code, fault):
    """Whichever question it is to, and though every other one is answered."""
    (tmp_path / "capacity.json").write_text("of yesterday")
    api = standin.Api(standin.Fleet())
    api.fault = lambda asked, number: fault(asked) if asked == query else None
    result = report(tmp_path, api)
    assert (result["failed"], result["code"]) == (True, code) and "query %s" % query in result["msg"]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("capacity.json", "of yesterday")]


def test_a_remark_on_the_query_is_no_missing_data(tmp_path):
    api = standin.Api(standin.Fleet())

    def remark(query, number):
        return (
            (
                200,
                {
                    "status": "success",
                    "warnings": ["PromQL info: metric might not be a counter"],
                    "data": {"resultType": "matrix", "result": []},
                },
            )
            if query == "xids"
            else None
        )

    api.fault = remark
    assert "no_xids" in report(tmp_path, api)["notes"]


def test_a_prometheus_without_gpus(tmp_path):
    said = refused(report(tmp_path / "d", standin.Api(standin.Fleet(since=standin.END))), tmp_path / "d", "empty")
    assert "playbook monitoring" in said


def found(tmp_path, fleet, **arguments):
    result = report(tmp_path, standin.Api(fleet), **arguments)
    return result, json.loads((tmp_path / "capacity.json").read_text())


def test_a_gap_is_said_and_counts_for_nothing(tmp_path):
    first, last = standin.END - 5 * standin.DAY, standin.END - 4 * standin.DAY
    result, doc = found(tmp_path, standin.Fleet(missing=lambda time: first < time <= last))
    assert "gaps" in result["notes"] and [gap["hours"] for gap in doc["window"]["gaps"]] == [24]
    assert doc["window"]["gaps"][0]["start"] == "2026-12-27T00:00:00Z"
    assert doc["fleet"]["gpu_hours"]["present"] == 12 * 456 and doc["fleet"]["cost"]["all"] == 12 * 456 * 2.5
    assert [one["days"] for one in doc["trends"] if one["group"] == "fleet"] == [19, 19]


def test_a_history_that_begins_late_is_said_and_no_trend_is_told(tmp_path):
    result, doc = found(tmp_path, standin.Fleet(since=standin.END - 6 * standin.DAY), lead_days="30")
    assert {"no_history_before", "short_trend"} <= set(result["notes"]) and "gaps" not in result["notes"]
    assert {(one["status"], one["earliest"], one["likely"], one["slope_gpus_a_day"]) for one in doc["trends"]} == {
        ("too_short", None, None, None)
    }
    assert result["verdict"] == "unknown" and doc["fleet"]["gpu_hours"]["present"] == 12 * 144


def test_a_history_that_has_ended_tells_no_trend(tmp_path):
    result, doc = found(tmp_path, standin.Fleet(missing=lambda time: time > standin.END - 4 * standin.DAY))
    assert {"no_data_since", "stale_trend"} <= set(result["notes"])
    assert {one["status"] for one in doc["trends"]} == {"stale"} and result["verdict"] == "unknown"


def test_without_price_and_lead_time_neither_cost_nor_date_is_given(tmp_path):
    grows = standin.Fleet(use=lambda time: 0.55 - (standin.END - time) / standin.DAY * 0.01)
    result, doc = found(tmp_path, grows.without("price"))
    assert {"no_price", "no_lead_time"} <= set(result["notes"])
    assert doc["fleet"]["cost"] == {"all": None, "idle": None} and doc["price_gpu_hour"] is None
    fleet = doc["trends"][0]
    assert (
        (fleet["status"], fleet["order_by"]) == ("meets", None) and fleet["likely"] and result["verdict"] == "unknown"
    )
    result, doc = found(tmp_path, grows, lead_days="3", price="0")
    assert not {"no_price", "no_lead_time"} & set(result["notes"]) and doc["fleet"]["cost"]["all"] == 0


def test_a_variable_goes_before_the_price_of_prometheus(tmp_path):
    assert found(tmp_path, standin.Fleet())[1]["price_source"] == "gpufleet:price_gpu_hour"
    doc = found(tmp_path, standin.Fleet(), price="4")[1]
    assert (doc["price_source"], doc["price_gpu_hour"]) == ("capacity_price_gpu_hour", 4.0)


def test_what_no_exporter_tells_is_said(tmp_path):
    fleet = standin.Fleet().without("allocated", "idle", "xids", "drivers", "hold_age", "busy")
    fleet.series["measured", ""] = fleet.series["measured", ""][:1]
    result, doc = found(tmp_path, fleet)
    assert {"no_allocation", "no_idle", "no_xids", "no_drivers", "no_holds", "unmeasured", "stale_nodes"} <= set(
        result["notes"]
    )
    assert doc["fleet"]["gpu_hours"]["allocated"] is None and doc["fleet"]["cost"]["idle"] is None


def test_a_node_without_a_label_has_a_row_of_its_own(tmp_path):
    fleet = standin.Fleet()
    fleet.series["present", ""].append((dict(standin.NODES["n1"], node="n9", team=""), standin.always(1)))
    result, doc = found(tmp_path, fleet)
    assert "label_missing" in result["notes"] and [row["name"] for row in doc["groups"]["team"]] == ["", "blue", "red"]


OPTIONS = [
    ("days", "0", "capacity_days"),
    ("days", "731", "capacity_days"),
    ("days", "1.5", "capacity_days"),
    ("days", "a week", "capacity_days"),
    ("days", "nan", "capacity_days"),
    ("groups", ["team", "teem"], "capacity_groups"),
    ("groups", ["team", "team"], "capacity_groups"),
    ("groups", ["gpu"], "capacity_groups"),
    ("price", "-1", "capacity_price_gpu_hour"),
    ("price", "2,5", "capacity_price_gpu_hour"),
    ("lead_days", "-1", "capacity_lead_days"),
    ("lead_days", "1.5", "capacity_lead_days"),
    ("lead_days", "soon", "capacity_lead_days"),
    ("target", "60", "capacity_target"),
    ("target", "0", "capacity_target"),
    ("peak_target", "1.1", "capacity_peak_target"),
    ("timeout", 0.5, "capacity_timeout"),
    ("url", "", "capacity_prometheus_url"),
    ("url", "prometheus:9090", "capacity_prometheus_url"),
    ("url", "http://me:secret@prometheus", "capacity_prometheus_url"),
    ("time", "yesterday", "time"),
]


@pytest.mark.cores
@pytest.mark.parametrize("option, value, name", OPTIONS, ids=["%s %s" % row[:2] for row in OPTIONS])
def test_an_option_that_cannot_be_used_is_named(tmp_path, option, value, name):
    arguments = dict({"url": "http://127.0.0.1:1", "dest": str(tmp_path / "d")}, **{option: value})
    said = refused(run(**arguments), tmp_path / "d", "option")
    assert said.startswith(name + " is ") and "secret" not in said


def test_a_word_that_is_none_of_them_is_refused(tmp_path):
    for arguments in ({"mode": "0644"}, {"format": "pdf"}):
        with pytest.raises(AnsibleError):
            run(url="http://127.0.0.1:1", dest=str(tmp_path / "d"), **arguments)


def test_a_directory_that_cannot_be_written_to_is_named_before_anything_is_asked(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    api = standin.Api(standin.Fleet())
    said = refused(report(tmp_path / "file" / "d", api), tmp_path / "file" / "d", "directory")
    assert str(tmp_path / "file") in said and api.asked == []
    # Tests run as root, who may write everywhere.
    monkeypatch.setattr(capacity_report.os, "access", lambda path, mode: False)
    refused(report(tmp_path / "d", api), tmp_path / "d", "directory")
    assert api.asked == []


def test_a_directory_that_fails_at_the_end_is_named(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(capacity_report.files, "write", full)
    assert "No space left" in refused(report(tmp_path / "d", standin.Api(standin.Fleet())), tmp_path / "d", "directory")


def test_a_controller_without_pygal_is_told_what_to_install(tmp_path, monkeypatch):
    api = standin.Api(standin.Fleet())
    monkeypatch.setattr(charts, "MISSING", "No module named 'pygal'")
    assert "pip install" in refused(report(tmp_path / "d", api), tmp_path / "d", "library") and api.asked == []


def test_the_room_can_be_imported_without_pygal(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygal", None)
    found = importlib.util.find_spec(charts.__name__)
    without = importlib.util.module_from_spec(found)
    found.loader.exec_module(without)
    assert "pygal" in without.MISSING and charts.MISSING == ""


@pytest.mark.parametrize("value", ["Bearer 5ecret\n", "Bearer 5ecret\nX: y"])
def test_header_that_cannot_be_sent_is_refused_without_its_value(tmp_path, value):
    api = standin.Api(standin.Fleet())
    result = report(tmp_path, api, headers={"Authorization": value})
    assert result["failed"] and "capacity_headers" in result["msg"] and not api.asked
    assert "5ecret" not in json.dumps(result)
