# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The course of a rollout over several nodes, with the real playbook, role and ledger."""

from __future__ import annotations

import hashlib
import json
import sys
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import host_tasks
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.stub.plugins.module_utils import stubnode

OLD, NEW = "1.0.1", "2.0.1"
ALL_STEPS = ["evidence", "prestage", "drain", "stop", "install", "prove", "reboot", "validate", "return"]


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.2)


def bundles(fleet, node, rollout="upgrade-" + NEW):
    return sorted((fleet.artifacts / "evidence" / rollout / node).iterdir())


def evidence(fleet, node, name):
    """The manifest and the kernel log of a bundle."""
    path = fleet.artifacts / "evidence" / ("upgrade-" + NEW) / node / name
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["schema"], manifest["node"]) == ("gpufleet.evidence/1", node)
    assert [entry["name"] for entry in manifest["files"]] == ["kernel.log", "reading.json"]
    for entry in manifest["files"]:
        assert hashlib.sha256((path / entry["name"]).read_bytes()).hexdigest() == entry["sha256"]
    return manifest, (path / "kernel.log").read_text()


def test_every_node_is_taken_once_and_a_second_run_takes_none(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    # Without further turns of the gate, which count too.
    first = fleet.run("upgrade", gpu_node_upgrade_gate_patience=180, gpu_node_upgrade_gate_patience_max=180, **fleet.install_for_real())
    assert first.rc == 0
    assert first.states == {"a1": "done", "a2": "done"}
    assert not host_tasks.too_many(first.host_tasks, fleet.names), host_tasks.too_many(first.host_tasks, fleet.names)
    assert host_tasks.once_for_all(first.host_tasks, fleet.names) == [
        "Plan | gpufleet.lifecycle.rollout_plan", "Hand the order over | ansible.builtin.add_host"]
    assert first.report["verdict"] == "complete" and first.report["finished"]
    for name in ("a1", "a2"):
        node = first.report["nodes"][name]
        assert (node["from"], node["to"], node["reason"]) == (OLD, NEW, "")
        assert [step["name"] for step in node["steps"]] == ALL_STEPS
        assert {step["status"] for step in node["steps"]} == {"ok"}
        assert fleet.read(name)["log"] == [
            "stop nvidia-persistenced.service",
            "installed " + NEW,
            "was offered nvidia-current-open_%s_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % NEW,
            "reboot into " + NEW,
        ], "the service is enabled and runs again after the boot"
        copy = fleet.nodes / name / "state" / "baseline.json"
        assert json.loads(copy.read_text()) == fleet.document(name, "baseline") and copy.stat().st_mode & 0o777 == 0o600
        assert fleet.document(name, "baseline")["schema"] == "gpufleet.baseline/1"
        assert sorted(path.name for path in copy.parent.iterdir()) == ["baseline.json"], "what keeps other drivers away is there since it was brought up"
        assert fleet.document(name, "services") == {"running": ["nvidia-persistenced.service"]}
        assert fleet.read(name)["reboots_expected"] == [True]
        assert fleet.read(name)["downloaded"] == NEW
        assert fleet.read(name)["prepared"] == {"offered": stubnode.archive(NEW), "source_packages": ["/a/nvidia-kernel-dkms.deb"]}
        manifest, log = evidence(fleet, name, "1-before")
        assert (manifest["boot_id"], manifest["missing"]) == ("boot-0", [
            {"part": "nvidia-smi.xml", "reason": "nvidia-smi: command not found"}, {"part": "processes.json", "reason": "not here"}])
        assert log == "driver 1.0.1 after 0 boots, running: nvidia-persistenced.service\n", "before anything was stopped"
        assert [path.name for path in bundles(fleet, name)] == ["1-before"]
    assert "[1/2] a1: install (driver 1.0.1 -> 2.0.1)" in first.output
    assert "[2/2] a2: done" in first.output
    ends = [first.report["nodes"][name]["steps"] for name in ("a1", "a2")]
    assert ends[0][-1]["finished"] <= ends[1][0]["started"], "one node at a time"

    second = fleet.run("upgrade")
    assert second.rc == 0
    assert second.states == first.states
    assert [len(fleet.read(name)["log"]) for name in ("a1", "a2")] == [4, 4]
    assert [len(tasks) for tasks in host_tasks.of_play(second.host_tasks, "Plan").values()] == [4, 2], "and nothing else for nodes that are done"
    assert "changed=0" in second.output and "changed=1" not in second.output


def test_a_failed_node_is_put_back_and_the_others_go_on_within_the_budget(fleet):
    fleet.add("a1", sick_with=[NEW])
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=2)
    assert result.rc == 2
    assert result.states == {"a1": "rolled_back", "a2": "done"}
    assert result.report["verdict"] == "failed"
    node = fleet.read("a1")
    assert (node["loaded"], node["disk"], node["running"]) == (OLD, OLD, ["nvidia-persistenced.service"])
    entry = result.report["nodes"]["a1"]
    assert "GPU 3 does not answer with driver 2.0.1" in entry["reason"]
    assert [(step["name"], step["status"]) for step in entry["steps"]] == [(name, "ok") for name in ALL_STEPS[:ALL_STEPS.index("validate")]] + [
        ("validate", "failed"),
        ("rollback_install", "ok"),
        ("rollback_prove", "ok"),
        ("rollback_reboot", "ok"),
        ("rollback_validate", "ok"),
    ]
    assert evidence(fleet, "a1", "1-before")[1].startswith("driver 1.0.1 after 0 boots")
    left, log = evidence(fleet, "a1", "1-failed")
    assert (left["boot_id"], log) == ("boot-1", "driver 2.0.1 after 1 boots, running: nvidia-persistenced.service\n"), "what the way back destroys"
    assert "Broke since the baseline: gpu_answers." in entry["reason"]
    assert entry["reason"].endswith("Evidence of the failure: %s" % (bundles(fleet, "a1")[1],))
    assert set(node["reboots_expected"]) == {True}
    assert "FAILED" in result.output.upper() and not list((fleet.nodes / "a1" / "state").glob("quarantine*"))


def test_a_node_whose_evidence_cannot_be_kept_is_not_touched(fleet):
    """The artifact directory lets itself be read, and no file be made in it: here is one where the directory has to be."""
    fleet.add("a1")
    fleet.artifacts.mkdir()
    (fleet.artifacts / "evidence").write_text("")
    result = fleet.run("upgrade")
    assert result.rc == 2
    assert result.states == {"a1": "failed"} and fleet.touched() == []
    reason = result.report["nodes"]["a1"]["reason"]
    assert "a1: the bundle of evidence (" in reason and "cannot be written as %s/evidence/upgrade-2.0.1/a1/1-before: " % fleet.artifacts in reason


def artifact_host(fleet, **variables):
    """A host whose home is another than the controller's, to keep what the controller would forget."""
    home, python = fleet.directory / "keeper", fleet.directory / "python-of-keeper"
    home.mkdir()
    python.write_text('#!/bin/sh\nHOME="%s" exec "%s" "$@"\n' % (home, sys.executable))
    python.chmod(0o755)
    inventory = fleet.directory / "keeper.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"keeper": dict({
        "ansible_connection": "ansible.builtin.local", "ansible_python_interpreter": str(python), "ansible_become": False}, **variables)}}}))
    return home / ".gpufleet", ("-i", str(inventory), "-e", "gpufleet_artifact_host=keeper", "-e", "gpufleet_artifact_dir=~/.gpufleet")


def test_evidence_outlives_the_controller_on_the_artifact_host(fleet):
    fleet.add("a1", sick_with=[NEW])
    kept, arguments = artifact_host(fleet)
    fleet.artifacts = fleet.directory / ".gpufleet"
    result = fleet.run("upgrade", *arguments)
    assert result.rc == 2 and result.states == {"a1": "rolled_back"}
    ours, theirs = bundles(fleet, "a1"), sorted((kept / "evidence" / ("upgrade-" + NEW) / "a1").iterdir())
    assert [path.name for path in theirs] == [path.name for path in ours] == ["1-before", "1-failed"]
    for mine, copy in zip(ours, theirs):
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == {path.name: path.read_bytes() for path in mine.iterdir()}


def test_a_node_is_not_touched_while_the_artifact_host_cannot_be_reached(fleet):
    fleet.add("a1")
    dummy, arguments = artifact_host(fleet, ansible_connection="ansible.builtin.ssh", ansible_host="127.0.0.1", ansible_port=1)
    fleet.artifacts = fleet.directory / ".gpufleet"
    result = fleet.run("upgrade", *arguments)
    assert result.rc == 2, "and not lost: it is not the node that is away"
    assert result.states == {"a1": "failed"} and fleet.touched() == []
    assert "was not kept on the artifact host keeper: it cannot be reached (" in result.report["nodes"]["a1"]["reason"]


def test_a_node_is_put_back_whether_or_not_the_failure_can_be_kept(fleet):
    fleet.add("a1", sick_with=[NEW], tells_nothing_with=[NEW])
    result = fleet.run("upgrade")
    assert result.rc == 2
    assert result.states == {"a1": "rolled_back"} and fleet.read("a1")["loaded"] == OLD
    assert "a1: no evidence could be gathered: the node tells nothing" in result.output
    assert [path.name for path in bundles(fleet, "a1")] == ["1-before"]
    assert "Evidence of the failure" not in result.report["nodes"]["a1"]["reason"]


def test_a_fabric_that_is_being_joined_is_waited_for_and_nothing_else(fleet):
    fleet.add("a1", joins_after=3)
    result = fleet.run("upgrade")
    assert result.rc == 0
    assert result.states == {"a1": "done"}
    assert len(fleet.read("a1")["reboots_expected"]) == 4, "more often than gpu_node_upgrade_health_retries"
    fleet.add("b1", joins_after=4, sick_with=[NEW])
    result = fleet.run("upgrade", rollout_id="sick", upgrade_hosts="b1")
    assert result.rc == 2
    assert len(fleet.read("b1")["reboots_expected"]) == 2 + 3, "twice with the new driver, since it is sick too; then it joins with the old one"


def test_a_node_whose_settings_or_services_do_not_come_back_is_put_back(fleet):
    fleet.add("a1", settings_lost_with=[NEW])
    fleet.add("a2", enabled=[], no_service_with=[NEW])
    fleet.add("a3", enabled=[])
    result = fleet.run("upgrade", rollout_failure_budget=9, rollout_max_down=3)
    assert result.rc == 2 and result.states == {"a1": "rolled_back", "a2": "rolled_back", "a3": "done"}
    assert "GPU 2: the power limit is 700 W, expected 500 W" in result.report["nodes"]["a1"]["reason"]
    reason = result.report["nodes"]["a2"]["reason"]
    assert reason.startswith("services that ran before do not start: Unable to start service nvidia-persistenced.service: the stub was told so")
    assert [fleet.read(name)["running"] for name in fleet.names] == [["nvidia-persistenced.service"]] * 3, "whether or not the boot starts it"


def test_a_node_is_taken_by_hand_outside_of_any_rollout_and_not_inside_one_that_nobody_planned(fleet):
    fleet.add("a1")
    play = "- hosts: gpu_nodes\n  gather_facts: false\n  roles: [gpufleet.lifecycle.gpu_node_upgrade]\n"
    (fleet.directory / "by_hand.yml").write_text(play)
    refused = fleet.run("by_hand", gpu_node_upgrade_version=NEW, gpu_node_upgrade_rollout_id="nobodys")
    assert refused.rc == 2 and fleet.touched() == []
    result = fleet.run("by_hand", gpu_node_upgrade_version=NEW, gpu_node_upgrade_rollout_mode="none")
    assert result.rc == 0 and fleet.read("a1")["loaded"] == NEW and fleet.read("a1")["running"] == ["nvidia-persistenced.service"]
    assert "a1: install (driver 1.0.1 -> 2.0.1)" in result.output and (fleet.nodes / "a1" / "state" / "baseline.json").exists()
    assert [path.name for path in bundles(fleet, "a1", "by-hand")] == ["1-before"]


def test_a_spent_budget_leaves_the_rest_untouched(fleet):
    fleet.add("a1", cannot_install=[NEW])
    for name in ("a2", "a3"):
        fleet.add(name)
    result = fleet.run("upgrade")
    assert result.rc == 2
    assert result.states == {"a1": "rolled_back", "a2": "pending", "a3": "pending"}
    assert fleet.touched() == ["a1"]
    assert "the failure budget of 1 is spent by a1" in result.output
    assert "the build of 2.0.1 failed" in result.report["nodes"]["a1"]["reason"]


def test_when_every_node_fails_the_exit_status_and_the_report_say_so(fleet):
    for name in ("a1", "a2"):
        fleet.add(name, sick_with=[NEW])
    result = fleet.run("upgrade", rollout_failure_budget=3, rollout_max_down=2)
    assert result.rc == 2
    assert result.states == {"a1": "rolled_back", "a2": "rolled_back"}
    assert (result.report["verdict"], bool(result.report["finished"])) == ("failed", True)


def test_a_node_that_cannot_be_put_back_is_quarantined_and_holds_its_slot(fleet):
    fleet.add("a1", half_installs=[NEW], cannot_install=[OLD])
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=3)
    assert result.rc == 2
    assert result.states == {"a1": "quarantined", "a2": "pending"}
    assert "the build of 2.0.1 failed; it was not put back: the build of 1.0.1 failed" in result.report["nodes"]["a1"]["reason"]
    marker = json.loads((fleet.nodes / "a1" / "state" / "quarantine.json").read_text())
    assert (marker["node"], marker["version"], marker["previous_version"]) == ("a1", NEW, OLD)
    assert fleet.read("a1")["running"] == []
    assert "every down slot (1) is held by a node that is out of service: a1" in result.output

    again = fleet.run("upgrade", rollout_failure_budget=3, rollout_max_down=2)
    assert again.rc == 2
    assert again.states == {"a1": "quarantined", "a2": "done"}, "the marker keeps the node out of later rollouts"


@pytest.mark.parametrize("policy, others", [("quarantine", "done"), ("stop", "pending")])
def test_a_node_is_left_as_it_failed_where_the_policy_says_so(fleet, policy, others):
    fleet.add("a1", sick_with=[NEW])
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=5, rollout_max_down=2, rollout_canaries=["a1"], rollout_canary_failures=1,
                       rollout_on_failure=policy)
    assert result.rc == 2
    assert result.states["a1"] == "quarantined"
    assert (fleet.read("a1")["loaded"], fleet.read("a1")["disk"]) == (NEW, NEW), "nobody touched it after its failure"
    assert "GPU 3 does not answer" in result.report["nodes"]["a1"]["reason"] and "on_failure: " + policy in result.report["nodes"]["a1"]["reason"]
    assert (fleet.nodes / "a1" / "state" / "quarantine.json").exists()
    assert result.states["a2"] == "pending"
    assert ("stopped by the policy: a1 failed" in result.output) == (policy == "stop")
    assert ("no canary is done" in result.output) == (policy == "quarantine")


def test_a_canary_has_to_stay_healthy_at_work_before_others_go(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    result = fleet.run("upgrade", rollout_max_down=2, rollout_canaries=["a1"], rollout_canary_soak_s=2, gpu_node_upgrade_soak_interval=1)
    assert result.rc == 0 and result.states == {"a1": "done", "a2": "done"}
    steps = {name: {step["name"]: step for step in node["steps"]} for name, node in result.report["nodes"].items()}
    assert "soak" in steps["a1"] and "soak" not in steps["a2"]
    assert steps["a1"]["soak"]["finished"] <= steps["a2"]["evidence"]["started"]
    assert fleet.read("a1")["log"][-2:] == ["looked at, at work"] * 2 and "canaries go first: a1" in result.output


def test_a_canary_that_falls_ill_at_work_is_put_back_and_nobody_else_goes(fleet):
    fleet.add("a1", sick_at_work_with=[NEW])
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=5, rollout_canaries=["a1"], rollout_canary_soak_s=2, gpu_node_upgrade_soak_interval=1)
    assert result.rc == 2 and result.states == {"a1": "rolled_back", "a2": "pending"}
    assert "GPU 3 had XID 79 at work" in result.report["nodes"]["a1"]["reason"]
    assert fleet.read("a1")["loaded"] == OLD and fleet.touched() == ["a1"]
    assert "canary a1 failed" in result.output


def test_no_job_is_stopped_to_put_a_canary_back(fleet):
    fleet.add("a1", sick_at_work_with=[NEW], busy_with=[NEW])
    result = fleet.run("upgrade", rollout_canaries=["a1"], rollout_canary_soak_s=1, gpu_node_upgrade_soak_interval=1)
    assert result.rc == 2 and result.states == {"a1": "quarantined"}
    assert fleet.read("a1")["loaded"] == NEW
    assert "no job is stopped: pid 4711" in result.report["nodes"]["a1"]["reason"]


def test_a_node_that_is_lost_in_its_reboot_counts_as_failed_and_as_down(fleet):
    fleet.add("a1", dies_with=[NEW])
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=2)
    assert result.rc != 0
    assert result.states == {"a1": "lost", "a2": "pending"}
    assert fleet.touched() == ["a1"]


def test_a_node_that_leaves_the_play_frees_nobody_and_is_named(fleet):
    """Unreachable in the middle of a step: Ansible drops the host, and neither rescue nor always runs."""
    fleet.add("a1", unreachable_with=[NEW])
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=5, rollout_max_down=2)
    assert result.rc in (2, 4)
    assert result.states == {"a1": "lost", "a2": "done"}
    assert "stopped answering, or its tasks broke off, in step prove" in result.report["nodes"]["a1"]["reason"]


def test_a_waiting_node_learns_that_the_one_before_it_is_lost(fleet):
    fleet.add("a1", unreachable_with=[NEW])
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=5)
    assert result.rc in (2, 4)
    assert result.states == {"a1": "lost", "a2": "pending"}
    assert "a2: stop (every down slot (1) is held by a node that is out of service: a1)" in result.output


def test_when_every_node_is_unreachable_in_the_middle_the_report_is_written(fleet):
    fleet.add("a1", unreachable_with=[NEW])
    result = fleet.run("upgrade")
    assert result.rc in (2, 4)
    assert result.states == {"a1": "lost"}
    assert result.report["verdict"] == "failed"


def test_a_node_that_does_not_answer_at_first_is_counted_and_reported(fleet):
    fleet.add("a1")
    fleet.add("a2", unreachable=True)
    result = fleet.run("upgrade", rollout_failure_budget=2, rollout_max_down=2)
    assert result.rc != 0
    assert result.states == {"a1": "done", "a2": "lost"}
    reason = result.report["nodes"]["a2"]["reason"]
    assert reason.startswith("did not answer before the rollout: ") and "a2 does not answer" in reason


def test_sick_and_busy_nodes_and_unsafe_reboots(fleet):
    fleet.add("a1", sick_with=[OLD])
    fleet.add("a2", busy=True)
    fleet.add("a3", no_module_for_next_boot=True)
    result = fleet.run("upgrade", rollout_failure_budget=9, rollout_max_down=3)
    assert result.rc == 2
    assert result.states == {"a1": "failed", "a2": "failed", "a3": "quarantined"}
    reasons = {name: node["reason"] for name, node in result.report["nodes"].items()}
    assert reasons["a1"] == "unhealthy before the upgrade, nothing was changed: GPU 3 does not answer with driver 1.0.1"
    assert "processes compute on its GPUs, nothing was changed: pid 4711" in reasons["a2"]
    assert "kernel 6.1 boots next and has no module" in reasons["a3"]
    assert fleet.touched() == ["a3"]
    assert fleet.read("a3")["boots"] == 0


def test_check_mode_says_what_would_happen_and_changes_nothing(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    before = {path: path.stat().st_mtime_ns for path in fleet.nodes.rglob("*")}
    result = fleet.run("upgrade", "--check")
    assert result.rc == 0
    assert {path: path.stat().st_mtime_ns for path in fleet.nodes.rglob("*")} == before
    assert not fleet.artifacts.exists()
    assert "1. a1: driver 1.0.1 -> 2.0.1" in result.output and "2. a2: driver 1.0.1 -> 2.0.1" in result.output
    assert result.output.count('"nvidia-kernel-dkms": "2.0.1-1"') == 2
    assert "changed=0" in result.output


def test_limit_keeps_the_others_out_and_an_unknown_version_is_refused(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    refused = fleet.run("upgrade", rollout_version="newest")
    assert refused.rc == 2 and "'newest'; expected digits and dots" in refused.output
    unset = fleet.run("upgrade", rollout_version="")
    assert unset.rc == 2 and "No driver version is given for a1" in unset.output
    nobody = fleet.run("upgrade", upgrade_hosts="nobody")
    assert nobody.rc != 0 and "No host of the inventory matches nobody" in nobody.output
    none = fleet.run("upgrade", rollout_max_down=0)
    assert none.rc == 2 and "rollout_max_down is 0" in none.output
    forks = fleet.run("upgrade", "--forks=1", rollout_max_down=3)
    assert forks.rc == 2 and "run it with --forks 2 or more" in forks.output
    others = fleet.directory / "others.json"
    others.write_text(json.dumps({"all": {"hosts": {"web1": {"ansible_connection": "local"}}}}))
    outside = fleet.run("upgrade", "-i", str(others), "--limit", "web1")
    assert outside.rc == 2 and "No host of gpu_nodes is within the limit web1" in outside.output
    misspelt = fleet.run("upgrade", rollout_domain_cap={"rack": 1})
    assert misspelt.rc == 2 and "rollout_domain_cap is no variable of a rollout: did you mean rollout_domain_caps?" in misspelt.output
    ungated = fleet.run("upgrade", gpu_node_upgrade_rollout_mode="none")
    assert ungated.rc == 2 and "nodes would be taken without leave" in ungated.output
    assert fleet.touched() == [] and not fleet.artifacts.exists()

    limited = fleet.run("upgrade", "--limit", "a2")
    assert limited.rc == 0
    assert limited.states == {"a2": "done"}
    assert fleet.touched() == ["a2"]


def test_a_killed_controller_is_followed_and_its_node_is_asked_first(fleet):
    fleet.add("a1")
    fleet.add("a2", hangs_in_install=True)
    fleet.add("a3")
    process = fleet.start("upgrade", rollout_canaries=["a2"])
    try:
        wait_for(lambda: "hangs" in fleet.read("a2")["log"])
        beside = fleet.run("upgrade", "--limit", "a1,a2", rollout_id="other")
        assert beside.rc == 2
        assert "is being run by process %d" % process.pid in beside.output and "shares a1, a2 with this one" in beside.output
    finally:
        process.kill()
        process.wait()
        process.log.close()
    assert fleet.touched() == ["a2"]

    fleet.change("a2", hangs_in_install=False)
    result = fleet.run("upgrade")
    assert result.rc == 0
    assert result.states == {"a1": "done", "a2": "done", "a3": "done"}
    assert "1. a2: driver 1.0.1 -> 2.0.1, was in flight when its controller died" in result.output
    steps = [(step["name"], step["status"]) for step in result.report["nodes"]["a2"]["steps"]]
    before = ALL_STEPS[:ALL_STEPS.index("install")]
    assert steps[:6] == [(name, "ok") for name in before] + [("install", "interrupted"), ("evidence", "ok")]
    assert steps[-1] == ("return", "ok")
    assert fleet.read("a2")["loaded"] == NEW and fleet.read("a2")["running"] == ["nvidia-persistenced.service"]


def test_rollback_takes_named_nodes_to_the_version_that_was_recorded(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    assert fleet.run("rollback", rollback_hosts="", rollout_version="").rc == 2
    assert fleet.run("rollback", rollback_hosts="a1", rollout_version="").rc == 2, "there is nothing to undo"
    assert fleet.run("upgrade", rollout_max_down=2).rc == 0
    result = fleet.run("rollback", rollback_hosts="a1", rollout_version="")
    assert result.rc == 0
    assert (fleet.read("a1")["loaded"], fleet.read("a2")["loaded"]) == (OLD, NEW)
    report = json.loads((fleet.artifacts / "rollouts" / ("rollback-upgrade-" + NEW) / "report.json").read_text())
    assert (report["target"], report["verdict"], list(report["nodes"])) == (OLD, "complete", ["a1"])
    again = fleet.run("rollback", rollback_hosts="a1", rollout_version="")
    assert again.rc == 2 and "was itself a rollback" in again.output
    shown = fleet.run("report", rollout_id="upgrade-" + NEW, rollout_report_dir=str(fleet.directory / "shown"))
    assert shown.rc == 0 and "complete: 2 done, target 2.0.1" in shown.output
    assert sorted(path.name for path in (fleet.directory / "shown").iterdir()) == [
        "junit.xml", "report.html", "report.json", "report.md", "rollout.prom"]


def test_an_operator_steers_a_rollout_while_it_runs(fleet):
    fleet.add("a1", waits_in_install=True)
    for name in ("a2", "a3"):
        fleet.add(name)
    process = fleet.start("upgrade")
    try:
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
        assert fleet.run("rollout_control", rollout_verb="skip", rollout_nodes=["a1"], rollout_reason="x").rc == 2, "it is down"
        assert fleet.run("rollout_control", rollout_verb="skip", rollout_nodes=["a2"], rollout_reason="its user needs it").rc == 0
        paused = fleet.run("rollout_control", rollout_verb="pause", rollout_reason="look at a1 first", rollout_user="kim")
        assert paused.rc == 0 and "paused by kim: look at a1 first" in paused.output and "run by process %d" % process.pid in paused.output
        fleet.change("a1", waits_in_install=False)
        wait_for(lambda: fleet.read("a1")["loaded"] == NEW and fleet.states("upgrade-" + NEW).get("a1") == "done")
        time.sleep(2)
        assert fleet.touched() == ["a1"]
        broken = fleet.run("rollout_control", rollout_verb="break_lock", rollout_reason="x")
        assert broken.rc == 2 and "is being run by process %d" % process.pid in broken.output and "Wait for it, or end it first" in broken.output
        assert fleet.run("rollout_control", rollout_verb="resume", rollout_reason="a1 is fine", rollout_user="kim").rc == 0
        process.wait(timeout=120)
    finally:
        process.kill()
        process.wait()
        process.log.close()
    assert process.returncode == 0
    assert "complete, without 1 node that an operator left out (a2)" in (fleet.directory / "output0").read_text()
    assert fleet.states("upgrade-" + NEW) == {"a1": "done", "a2": "skipped", "a3": "done"}
    assert fleet.touched() == ["a1", "a3"]


def test_a_node_that_was_drained_in_vain_is_pending_again(fleet):
    """It drains ahead of its slot, and before the slot is free the budget is spent."""
    for name in ("a1", "a2"):
        fleet.add(name, cannot_install=[NEW], slow_s=4)
    result = fleet.run("upgrade", rollout_max_draining=2)
    assert result.rc == 2
    # Whichever is drained first takes the slot.
    first, other = sorted(result.states, key=result.states.get, reverse=True)
    assert result.states == {first: "rolled_back", other: "pending"}
    assert fleet.touched() == [first]
    assert result.report["nodes"][other]["reason"].startswith("drained, and not taken down: the failure budget of 1 is spent by %s" % first)
    assert [step["name"] for step in result.report["nodes"][other]["steps"]] == ["evidence", "prestage", "drain"]


def test_a_node_that_cannot_be_prepared_is_not_drained(fleet):
    fleet.add("a1", cannot_prestage="Driver version 2.0.1 is not available on this node.")
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=2)
    assert result.rc == 2 and result.states == {"a1": "failed", "a2": "done"} and fleet.touched() == ["a2"]
    failed = result.report["nodes"]["a1"]
    assert [step["name"] for step in failed["steps"]] == ["evidence", "prestage"] and "Driver version 2.0.1 is not available" in failed["reason"]


def test_the_work_beforehand_can_be_left_out(fleet):
    fleet.add("a1", cannot_prestage="It would be refused.")
    result = fleet.run("upgrade", gpu_node_upgrade_prestage=False)
    assert result.rc == 0 and [step["name"] for step in result.report["nodes"]["a1"]["steps"]] == [name for name in ALL_STEPS if name != "prestage"]


def test_a_node_that_waited_for_its_slot_is_looked_at_again(fleet):
    for name in ("a1", "a2"):
        fleet.add(name, waits_in_install=True)
    process = fleet.start("upgrade", rollout_max_draining=2, rollout_failure_budget=9)
    try:
        wait_for(lambda: fleet.touched() and " wait to go down " in (fleet.directory / "output0").read_text())
        wait_for(lambda: "waits" in fleet.read(fleet.touched()[0])["log"])
        first, = fleet.touched()
        other = {"a1": "a2", "a2": "a1"}[first]
        fleet.change(other, busy=True)
        fleet.change(first, waits_in_install=False)
        process.wait(timeout=300)
    finally:
        process.kill()
        process.wait()
        process.log.close()
    assert process.returncode == 2
    assert fleet.recorded() == {first: "done", other: "failed"} and fleet.touched() == [first]
    assert "processes compute on its GPUs, and no job is stopped: pid 4711" in fleet.view().nodes.get(other).reason


def test_nothing_starts_without_approval_of_exactly_this_plan(fleet):
    fleet.add("a1")
    first = fleet.run("upgrade", rollout_require_approval=True)
    assert first.rc == 2 and fleet.touched() == []
    approve = first.output.split("rollout_approve=")[1].split()[0]
    other = fleet.run("upgrade", rollout_require_approval=True, rollout_approve=approve, rollout_failure_budget=2)
    assert other.rc == 2 and fleet.touched() == [], "another budget is another plan"
    assert fleet.run("upgrade", rollout_require_approval=True, rollout_approve=approve).rc == 0
    assert fleet.touched() == ["a1"]


def test_one_node_of_a_rack_at_a_time_and_the_same_failure_twice_is_the_changes_fault(fleet):
    for name, rack in (("a1", "r1"), ("a2", "r1"), ("b1", "r2"), ("b2", "r2"), ("c1", "r3")):
        fleet.add(name, sick_with=[NEW])
        fleet.variables[name] = {"gpufleet_domains": {"rack": rack}}
    result = fleet.run("upgrade", rollout_max_down=2, rollout_failure_budget=9, rollout_domain_caps={"rack": 1})
    assert result.rc == 2
    assert result.states == {"a1": "rolled_back", "a2": "pending", "b1": "rolled_back", "b2": "pending", "c1": "pending"}
    assert "a1, b1 failed in the same way (validate: " in result.output and "so the change is to blame and not the nodes" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--start-at-task", "Install the driver"],
        ["--start-at-task", "Stop what holds the GPUs"],
        ["--start-at-task", "Upgrade the node, or in check mode say what would be done"],
        ["--tags", "nvidia_driver_install"],
        ["--tags", "never,always"],
        ["--skip-tags", "always,untagged"],
        ["--skip-tags", "all"],
    ],
)
def test_no_option_of_ansible_slips_past_the_gate(fleet, arguments):
    fleet.add("a1")
    fleet.run("upgrade", *arguments)
    assert fleet.touched() == [] and fleet.read("a1")["loaded"] == OLD


@pytest.mark.parametrize("declined, state", [
    ("Upgrade the node, or in check mode say what would be done", "pending"), ("Ask for leave: drain", "pending"), ("Ask for leave: down", "draining")])
def test_going_task_by_task_slips_past_nothing(fleet, declined, state):
    """--step asks before every task; whoever declines the gate alone gets nowhere."""
    fleet.add("a1")
    asked = fleet.step_through("upgrade", lambda task: "n" if task.rpartition(" : ")[2] == declined else "y")
    assert [answer for task, answer in asked].count("n") == 1
    assert fleet.touched() == [] and fleet.read("a1")["loaded"] == OLD
    assert fleet.recorded() == {"a1": state}
