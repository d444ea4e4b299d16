# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout tells while it runs, and whom it asks, with the real playbook, role and ledger."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.webserver import serving, wait_for

SERIES = {"metric": {"__name__": "ALERTS", "alertname": "FabricDegraded"}, "value": [1, "1"]}


def prometheus(*results):
    return (
        200,
        json.dumps({"status": "success", "data": {"resultType": "vector", "result": list(results)}}).encode(),
        {},
    )


@pytest.fixture
def server():
    with serving() as one:
        yield one


def test_everybody_is_told_and_no_secret_is_written_anywhere(fleet, server):
    fleet.add("a1", sick_with=["1.0.1"])
    fleet.environment["ANSIBLE_CALLBACKS_ENABLED"] = "gpufleet.lifecycle.hosttasks,gpufleet.lifecycle.rollout_progress"
    hook = {"url": server.url + "/hook-s3cr3t", "kind": "json", "timeout": 3}
    result = fleet.run("upgrade", "-vvv", rollout_webhook=hook, rollout_textfile_dir=str(fleet.directory / "collector"))
    assert result.rc == 2 and result.states == {"a1": "failed"}
    wait_for(lambda: ["finished"] in [body["events"] for body in server.bodies()])
    assert [body["events"] for body in server.bodies()] == [["started"], ["failed"], ["finished"]]
    assert "GPU 3 does not answer" in server.bodies()[1]["text"]
    directory = fleet.artifacts / "rollouts" / "upgrade-2.0.1"
    assert {"report.json", "report.md", "report.html", "junit.xml", "rollout.prom"} <= {
        path.name for path in directory.iterdir()
    }
    (numbers,) = (fleet.directory / "collector").iterdir()
    assert 'gpufleet_rollout_verdict{rollout="upgrade-2.0.1",verdict="failed"} 1' in numbers.read_text()
    # The variables are where the test put them; -vvv prints no more of them than the command line.
    said = result.output.replace(json.dumps({"rollout_webhook": hook}), "")
    assert "s3cr3t" not in said
    for path in fleet.artifacts.rglob("*"):
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes(), path
    shown = [line for line in result.output.splitlines() if re.match(r"\d/1 done, ", line)]
    assert re.fullmatch(
        r"0/1 done, 0 failed, 1 in flight, 0 to go, about \S+ min left \(at least \S+ min\) \| a1: ticket to drain",
        shown[0],
    )
    assert shown[-1].startswith("0/1 done, 1 failed, 0 in flight, 0 to go | ") and "a1: failed" in shown[-1]


def test_what_is_told_as_the_nodes_variables_say_is_told_of_the_end_too(fleet, server):
    """The controller has none of them, as where they are in group_vars of the nodes; and no node starts."""
    collector, copy = fleet.directory / "collector", fleet.directory / "copy"
    hook = {"url": server.url, "kind": "json", "timeout": 3}
    fleet.add("a1")
    fleet.variables["a1"] = {
        "rollout_textfile_dir": str(collector),
        "rollout_report_dir": str(copy),
        "rollout_webhook": hook,
    }
    result = fleet.run("upgrade", rollout_require_approval=True)
    assert result.rc == 2 and result.states == {"a1": "pending"}
    (numbers,) = collector.iterdir()
    assert 'gpufleet_rollout_verdict{rollout="upgrade-2.0.1",verdict="incomplete"} 1' in numbers.read_text()
    assert "finished" in [event for body in server.bodies() for event in body["events"]]
    assert json.loads((copy / "report.json").read_text())["verdict"] == "incomplete"


@pytest.mark.promise
def test_a_query_holds_every_node_until_it_answers_nothing(fleet, server):
    fleet.add("a1")
    # Longer than the first turn of the gate takes, which says what it waits for at its end.
    server.answer = lambda number: prometheus(*([SERIES] if number < 15 else []))
    queries = [{"name": "fabric", "url": server.url, "query": "ALERTS", "headers": {"Authorization": "Bearer s3cr3t"}}]
    result = fleet.run("upgrade", "-vvv", rollout_hold_queries=queries, rollout_hold_age_s=0)
    assert result.rc == 0 and result.states == {"a1": "done"}
    assert len(server.requests) >= 16, "in vain at first, then before the drain and before it went down"
    assert all(headers["Authorization"] == "Bearer s3cr3t" for dummy, headers, dummy2 in server.requests)
    assert 'wait to drain (held by fabric: 1 series: ALERTS{alertname="FabricDegraded"} = 1)' in result.output
    page = (fleet.artifacts / "rollouts" / "upgrade-2.0.1" / "report.html").read_text()
    assert "hold over" in page and "s3cr3t" not in page
    assert "s3cr3t" not in result.output.replace(json.dumps({"rollout_hold_queries": queries}), "")
