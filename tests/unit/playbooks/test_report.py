# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout comes whatever became of the nodes and of the run, and it is the last that is said."""

from __future__ import annotations

import json
import re
import signal

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import host_tasks
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import NEW, OLD, wait_for
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.test_failure_matrix import end

RECAP = re.compile(r"^(\S+) +: ok=\d+ .*?unreachable=(\d+) +failed=(\d+) .*$", re.M)


def recap(output):
    """{host: (unreachable, failed)}"""
    return {name: (int(unreachable), int(failed)) for name, unreachable, failed in RECAP.findall(output)}


def last_words(output):
    """What stands between the last task's heading and the recap."""
    return output.partition("\nPLAY RECAP")[0].rpartition("\nTASK [")[2]


def found(fleet, rollout="upgrade-" + NEW):
    return json.loads((fleet.artifacts / "rollouts" / rollout / "report.json").read_text())


@pytest.mark.parametrize("limited", [False, True], ids=["list", "limit"])
def test_the_report_comes_when_every_node_of_a_list_or_of_a_limit_fails(fleet, limited):
    for name in ("a1", "a2"):
        fleet.add(name, cannot_install=[NEW])
    fleet.add("a3")
    arguments, extra = (("--limit", "a1,a2"), {}) if limited else ((), {"upgrade_hosts": "a1,a2"})
    result = fleet.run(
        "upgrade", *arguments, rollout_failure_budget=5, rollout_common_cause=0, rollout_max_down=2, **extra
    )
    assert result.rc == 2
    assert (result.report["verdict"], bool(result.report["finished"])) == ("failed", True)
    assert result.states == {"a1": "rolled_back", "a2": "rolled_back"} and fleet.touched() == ["a1", "a2"], (
        "others are kept out"
    )
    assert recap(result.output) == dict({"a1": (0, 1), "a2": (0, 1)}, **({} if limited else {"localhost": (0, 1)}))
    said = last_words(result.output)
    assert re.search(r"^a1 +rolled_back +1.0.1 +2.0.1 .*the build of 2.0.1 failed", said, re.M), (
        "the reason stands beside the node"
    )
    assert "report: %s" % (fleet.artifacts / "rollouts" / ("upgrade-" + NEW) / "report.html") in said
    assert re.search(r"^failed: 2 rolled_back, target 2.0.1$", said, re.M)
    assert '"nodes":' not in result.output and '"table":' not in result.output, "no report inside of a line of JSON"


def test_the_report_comes_when_every_node_of_a_limit_is_unreachable(fleet):
    fleet.add("a1", unreachable_with=[NEW])
    fleet.add("a2")
    result = fleet.run("upgrade", "--limit", "a1")
    assert result.rc == 4 and recap(result.output) == {"a1": (1, 0)}
    assert found(fleet)["verdict"] == "running", "no host is left to write it"
    assert "report.html" in fleet.run("report").output
    report = found(fleet)
    assert report["verdict"] == "incomplete" and "1 node left in flight: a1." in report["reasons"]
    assert report["next_steps"][0].startswith("Run the same playbook again")


def test_report_fails_in_a_workflow_unless_the_approved_plan_is_complete(fleet):
    fleet.add("a1", sick_with=[NEW])
    assert fleet.run("upgrade").rc == 2
    rollout = {"rollout_id": "upgrade-" + NEW}
    assert fleet.run("report", **rollout).rc == 0
    assert fleet.run("report", awx_workflow_job_id=7, **rollout).rc == 2
    fleet.change("a1", sick_with=[])
    assert fleet.run("upgrade").rc == 0
    digest = fleet.view().sha256[:12]
    assert fleet.run("report", awx_workflow_job_id=7, rollout_approve=digest, **rollout).rc == 0
    other = fleet.run("report", awx_workflow_job_id=7, rollout_approve="0123456789ab", **rollout)
    assert other.rc == 2 and "0123456789ab was approved" in other.text
    run = fleet.view().run
    for before, rc in (("another", 0), ("", 0), (run, 2)):  # the upgrade that was approved never started
        given = dict(rollout, rollout_approve=digest, rollout_run_before=before)
        assert fleet.run("report", awx_workflow_job_id=7, **given).rc == rc


def test_report_of_a_workflow_whose_plan_left_no_node_is_that_plan(fleet):
    fleet.add("a1")
    handed = {
        "awx_workflow_job_id": 7,
        "rollout_id": "upgrade-" + NEW,
        "rollout_approve": "0123456789ab",
        "rollout_table": ["Rollout upgrade-%s to %s" % (NEW, NEW)],
    }
    nothing = fleet.run("report", rollout_nodes_left=0, rollout_left_out=[], **handed)
    assert nothing.rc == 0 and handed["rollout_table"][0] in nothing.output
    out = fleet.run("report", rollout_nodes_left=0, rollout_left_out=["a1"], **handed)
    assert out.rc == 2 and "a1" in out.text.partition(handed["rollout_table"][0])[2]
    for left in (1, ""):
        assert fleet.run("report", rollout_nodes_left=left, rollout_left_out=[], **handed).rc == 2


def test_plan_of_a_workflow_is_made_although_it_leaves_a_node_out(fleet):
    """Else nothing would be upgraded as long as one node is sick: AWX asks for the approval of a plan that is made."""
    fleet.add("a1", sick_with=[OLD])
    fleet.add("a2")
    assert fleet.run("upgrade", "--check").rc == 2
    assert fleet.run("upgrade", "--check", awx_workflow_job_id=7).rc == 0
    assert fleet.run("upgrade", "--check", awx_workflow_job_id=7, rollout_max_down="x").rc == 2


def test_an_interruption_says_which_command_goes_on(fleet):
    fleet.add("a1", waits_in_install=True)
    fleet.add("a2")
    process = fleet.start("upgrade", **fleet.install_for_real())
    try:
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
        end(process, signal.SIGINT)
    finally:
        fleet.change("a1", waits_in_install=False)
        output = fleet.ended(process)
    assert "(Ctrl-C), the same command continues rollout upgrade-" + NEW in output.partition("a1: install")[0]
    reported = fleet.run("report")
    assert reported.rc == 0 and re.search(r"^ *a1 +down .* install, since ", reported.output, re.M)
    assert found(fleet)["verdict"] == "incomplete" and found(fleet)["finished"] is None
    assert found(fleet)["next_steps"][0].startswith("Run the same playbook again")


def test_what_stops_a_rollout_is_told_and_no_healthy_node_fails_for_it(fleet):
    fleet.add("a1", cannot_install=[NEW])
    for name in ("a2", "a3"):
        fleet.add(name)
    result = fleet.run("upgrade")
    assert result.rc == 2 and recap(result.output) == {"a1": (0, 1), "a2": (0, 0), "a3": (0, 0), "localhost": (0, 1)}
    assert result.states == {"a1": "rolled_back", "a2": "pending", "a3": "pending"} and fleet.touched() == ["a1"], (
        "a spent budget leaves the rest"
    )
    assert "the build of 2.0.1 failed" in result.report["nodes"]["a1"]["reason"]
    before = result.output.rpartition("\nTASK [")[0]
    assert "No further node starts: the failure budget of 1 is spent by a1." in before, (
        "when it happened, and not only at the end"
    )
    said = last_words(result.output)
    assert "No further node starts: the failure budget of 1 is spent by a1." in said
    assert "a1 (rolled back): Nothing is urgent" in said and "run the same playbook again to continue" in said

    again = fleet.run("upgrade", "--limit", "a2")
    assert again.rc == 0 and recap(again.output) == {"a2": (0, 0)} and fleet.touched() == ["a1", "a2"]
    assert "report: " in last_words(again.output), "also when all went well"
    report = again.report
    assert report["verdict"] == "complete" and again.states["a2"] == "done"
    assert {name: node["in_run"] for name, node in report["nodes"].items()} == {"a1": False, "a2": True, "a3": False}
    assert report["nodes"]["a1"]["state"] == "rolled_back"
    assert "the build of 2.0.1 failed" in report["nodes"]["a1"]["reason"]
    assert "rollback_install" in [step["name"] for step in report["nodes"]["a1"]["steps"]]


def test_check_mode_says_what_would_happen_in_few_lines_and_changes_nothing(fleet):
    for number in range(8):
        fleet.add("a%d" % number)
    fleet.add("b", no_index="the package index has no version of nvidia-driver.")
    fleet.add("c", sick_with=[OLD])
    before = {path: path.stat().st_mtime_ns for path in fleet.nodes.rglob("*")}
    result = fleet.run("upgrade", "--check")
    assert result.rc == 2 and "changed=0" in result.output
    assert [name for name, (dummy, failed) in recap(result.output).items() if failed] == ["b", "c"], (
        "a node that could not get the driver does not pass, and neither does one that is sick"
    )
    assert "would be refused: unhealthy before the upgrade" in result.output
    assert "the package index has no version of nvidia-driver. Next step: update the package index." in result.output
    assert {path: path.stat().st_mtime_ns for path in fleet.nodes.rglob("*")} == before
    assert not fleet.artifacts.exists()
    assert all("%d. a%d: driver 1.0.1 -> 2.0.1" % (number + 1, number) in result.output for number in range(8))
    same = "packages of 8 nodes: a0, a1, a2, a3, a4 and 3 more\n  upgrade: nvidia-kernel-dkms"
    assert result.output.count(same) == 1
    # Nodes that overtake each other have Ansible name a task again: how often is chance, and that it is one is known.
    lines = [line for line in result.output.splitlines() if line]
    named = {line for line in lines if line.startswith(("PLAY [", "TASK ["))}
    told = len(named) + sum(line not in named for line in lines)
    assert told <= 60 + 16 * 10, "%d lines" % told
    # What it costs the controller: three answers for the plan, the role with its arguments, and two more answers with a
    # verdict; a node that failed says it in a task of its own.
    assert len(host_tasks.preflight(result.host_tasks, fleet.names)) == host_tasks.PREFLIGHT
    assert {name: len(host_tasks.way(result.host_tasks, [name])) for name in ("a0", "a7", "b")} == {
        "a0": 5,
        "a7": 5,
        "b": 6,
    }


def test_the_report_of_a_rollback_comes_when_every_node_fails(fleet):
    for name in ("a1", "a2", "a3"):
        fleet.add(name)
    assert fleet.run("upgrade", rollout_max_down=3).rc == 0
    for name in ("a1", "a2"):
        fleet.change(name, cannot_install=[OLD])
    result = fleet.run("rollback", rollback_of="upgrade-" + NEW, rollback_hosts="a1,a2", rollout_version="")
    report = json.loads((fleet.artifacts / "rollouts" / ("rollback-upgrade-" + NEW) / "report.json").read_text())
    assert result.rc == 2 and report["verdict"] == "failed"
    assert sorted(report["nodes"]) == ["a1", "a2"] and report["finished"]
    assert not [name for name, node in report["nodes"].items() if node["state"] in ("done", "skipped")]
    assert fleet.read("a3")["loaded"] == NEW
