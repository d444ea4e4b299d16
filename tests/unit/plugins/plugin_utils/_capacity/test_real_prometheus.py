# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report's queries in a real Prometheus, Debian's: each parses, reads known series, and answers what is true."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import catalog, client, document
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.history import Window
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog as monitoring
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import template
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._monitoring import servers

pytestmark = pytest.mark.slow

END = 1_793_491_200  # 2026-11-01T00:00:00Z
MINUTE, HOUR, DAY = 60, 3600, 86400
START, DAYS = END - 3 * DAY, 3
ASKED = {"days": DAYS, "groups": ["node", "model", "class", "team", "rack", "environment"], "environment": "prod"}
EXPRESSIONS = [
    (query["id"], group, catalog.expression(query, environment, group))
    for query in catalog.queries()
    for environment in ("", 'pr"o\\d')
    for group in ((catalog.FLEET, *catalog.LABELS) if query["kind"] == "peaks" else ("",))
]
KNOWN = set(monitoring.series()) | {rule["record"] for rule in monitoring.recordings()} | {"gpufleet:price_gpu_hour"}


def node(name, team, **more):
    labels = dict(
        {"environment": "prod", "rack": "r1", "node": name, "class": "train", "model": "h100", "team": team}, **more
    )
    return ",".join('%s="%s"' % pair for pair in labels.items())


def gap(time):
    """Six hours of the second day in which Prometheus was away."""
    return START + DAY + 6 * HOUR < time <= START + DAY + 12 * HOUR


def busy(time):
    """Return how busy a GPU is: 0.1, and all of it for half an hour of each day."""
    return 1.0 if 9 * HOUR < time % DAY <= 9.5 * HOUR else 0.1


def xids(time):
    """Return a counter that has 3 at the second day and begins again with a reboot, after which there are 2 more."""
    passed = time - START
    return 3 if DAY + HOUR < passed <= DAY + 14 * HOUR else 2 if passed > DAY + 15 * HOUR else 0


def series():
    """Return {name: [(labels, value at a time or None)]}."""
    n1, n2, other = node("n1", "blue"), node("n2", "red", model="a30"), node("n1", "blue", environment="lab")
    gpus = [n1 + ',gpu="0",UUID="GPU-0"', n1 + ',gpu="1",UUID="GPU-1"', n2 + ',gpu="0",UUID="GPU-2"']
    idle = gpus[1]
    return {
        "gpufleet:gpu_temperature:celsius": [(one, lambda time: 50) for one in gpus]
        + [(other + ',gpu="0",UUID="GPU-9"', lambda time: 50)],
        "gpufleet:gpu_utilization:ratio": [(gpus[0], busy), (idle, lambda time: 0.0), (gpus[2], lambda time: 0.5)],
        "gpufleet:gpu_allocated": [(gpus[0], lambda time: 1), (idle, lambda time: 1 if time > END - DAY else None)],
        "gpufleet:gpu_idle": [(idle, lambda time: 0.0)],
        "gpufleet:price_gpu_hour": [("", lambda time: 2)],
        "gpufleet_xid_total": [(gpus[0] + ',xid_class="reset"', xids), (gpus[0] + ',xid_class="app"', lambda time: 0)],
        "gpufleet_node_out_of_service": [
            (n2 + ',reason="quarantine"', lambda time: 1 if time <= START + 10 * HOUR else 0),
            (n2 + ',reason="drain"', lambda time: 0),
        ],
        "gpufleet_node_info": [
            (n1 + ',driver="535.1",kernel="6"', lambda time: 1),
            (n2 + ',driver="535.2",kernel="6"', lambda time: 1),
        ],
        "gpufleet_hold_age_seconds": [
            (n1 + ',kind="driver"', lambda time: time - START + 10 * DAY),
            (n2 + ',kind="driver"', lambda time: 0),
        ],
        "gpufleet_held_security_updates": [(n1 + ',kind="driver"', lambda time: 4)],
        "gpufleet_textfile_timestamp_seconds": [(n1, lambda time: time - 30), (n2, lambda time: START)],
    }


def openmetrics():
    lines = []
    for name, rows in series().items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append("# TYPE %s %s" % (name[: -len("_total")] if kind == "counter" else name, kind))
        for labels, value in rows:
            for time in range(START - HOUR, END + MINUTE, MINUTE):
                found = None if gap(time) else value(time)
                if found is not None:
                    lines.append("%s{%s} %s %d" % (name, labels, found, time))
    return "\n".join(lines) + "\n# EOF\n"


@pytest.fixture(scope="module")
def doc(tmp_path_factory):
    """Return the report of a Prometheus that was given the history."""
    base = tmp_path_factory.mktemp("prometheus")
    (base / "history").write_text(openmetrics(), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(base / "history"), str(base / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (base / "prometheus.yml").write_text("{}\n", encoding="utf-8")
    try:
        with servers.prometheus(base / "prometheus.yml", base) as url:
            asked = catalog.read_request(dict(ASKED, url=url))
            found = client.history(client.Prometheus(url, 60), asked, Window(END, DAYS))
            yield document.document(asked, found, "p", "2026-11-01T00:00:00Z")
    finally:
        shutil.rmtree(str(base / "data"))


def test_every_query_parses(tmp_path):
    rules = [
        {"record": "x:%s:%d" % (query, number), "expr": expr} for number, (query, dummy, expr) in enumerate(EXPRESSIONS)
    ]
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8"
    )
    done = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "rules.yml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    assert done.returncode == 0 and "%d rules found" % len(EXPRESSIONS) in done.stdout, done.stdout


@pytest.mark.parametrize("query, group, expr", EXPRESSIONS)
def test_every_series_of_a_query_is_written_by_something(query, group, expr):
    found = template.find_series(expr)
    assert found and found - KNOWN == set()


def test_no_query_counts_a_job_or_an_instance_of_mig_as_a_gpu():
    """Raw series are many for each GPU; the recorded ones are one, and the node's own have its labels alone."""
    assert [(query, expr) for query, dummy, expr in EXPRESSIONS if "DCGM_" in expr] == []


def test_hours_are_those_that_were_seen_of_the_environment_that_was_asked_for(doc):
    hours = doc["fleet"]["gpu_hours"]
    # Within the five minutes after its last sample a series still counts.
    assert hours["present"] == pytest.approx(3 * 66, abs=0.5) == hours["measured"]
    assert hours["busy"] == pytest.approx(66 * 0.6 + 2 * 0.5 * 0.9, abs=0.5)
    assert hours["allocated"] == pytest.approx(66 + 24, abs=0.5)
    assert hours["idle"] == pytest.approx(66, abs=0.5) and hours["idle_allocated"] == pytest.approx(24, abs=0.5)
    assert doc["fleet"]["cost"]["all"] == pytest.approx(2 * 3 * 66, abs=1)
    assert [(gap["start"], gap["hours"]) for gap in doc["window"]["gaps"]] in (
        [("2026-10-30T06:00:00Z", 6)],
        [("2026-10-30T07:00:00Z", 5)],
    )


def test_the_peak_of_a_group_is_that_of_all_its_gpus_at_once(doc):
    use = {row["name"]: row["utilization"] for row in doc["groups"]["model"]}
    # One of two GPUs works fully at its peak.
    assert (use["h100"]["maximum"], use["a30"]["maximum"]) == (0.5, 0.5)
    assert doc["fleet"]["utilization"]["maximum"] == 0.5 and use["h100"]["mean"] == pytest.approx(0.0568, abs=0.003)
    assert {row["name"]: row["utilization"]["maximum"] for row in doc["groups"]["node"]} == {"n1": 0.5, "n2": 0.5}


def test_every_group_adds_up_to_the_fleet(doc):
    for rows in doc["groups"].values():
        assert sum(row["gpu_hours"]["busy"] for row in rows) == pytest.approx(
            doc["fleet"]["gpu_hours"]["busy"], abs=0.1
        )


def test_xids_before_and_after_a_reboot_are_counted(doc):
    assert doc["failures"]["xids"] == [{"class": "train", "model": "h100", "xid_class": "reset", "count": 5}]


def test_lost_hours_drivers_holds_and_stale_nodes_are_told(doc):
    (lost,) = doc["failures"]["out_of_service"]
    assert (lost["model"], lost["reason"]) == ("a30", "quarantine") and lost["node_hours"] == pytest.approx(10, abs=0.2)
    assert [(group["model"], group["nodes"]) for group in doc["drift"]["groups"]] == [
        ("a30", {"535.2": ["n2"]}),
        ("h100", {"535.1": ["n1"]}),
    ]
    assert doc["holds"] == [{"node": "n1", "kind": "driver", "age_days": 13.0, "security_updates": 4}]
    assert [note["id"] for note in doc["notes"]] == ["gaps", "no_lead_time", "short_trend", "stale_nodes"]
