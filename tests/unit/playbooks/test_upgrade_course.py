# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The course of a rollout over several nodes, with the real playbook, role and ledger."""

from __future__ import annotations

import hashlib
import json
import re
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import conftest, host_tasks, test_resume
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import wait_for
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.stub.plugins.module_utils import stubnode

OLD, NEW = "1.0.1", "2.0.1"
ALL_STEPS = ["prestage", "evidence", "drain", "stop", "install", "prove", "reboot", "validate", "return"]


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


def expected(fleet, name):
    """{(phase, number of GPUs)} of all looks at a node's health."""
    lines = [json.loads(line) for line in (fleet.nodes / name / "expected").read_text().splitlines()]
    return {(phase, (hardware or {}).get("gpus")) for phase, hardware in lines}


@pytest.mark.promise
@pytest.mark.cores
def test_every_node_is_taken_once_and_a_second_run_takes_none(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    # As in most inventories, and not as of tonight.
    fleet.variables = {"a1": {"nvidia_driver_version": OLD, "gpu_health_expect": {"hardware": {"gpus": 6}}}}
    # Without further turns of the gate, which count too.
    first = fleet.run(
        "upgrade",
        gpu_node_upgrade_gate_patience=3600,
        gpu_node_upgrade_gate_patience_max=3600,
        **fleet.install_for_real(),
    )
    assert first.rc == 0
    assert first.states == {"a1": "done", "a2": "done"}
    assert not host_tasks.too_many(first.host_tasks, fleet.names), host_tasks.too_many(first.host_tasks, fleet.names)
    assert host_tasks.once_for_all(first.host_tasks, fleet.names) == [
        "Plan | gpufleet.lifecycle.rollout_plan",
        "Report the plan to the next job | ansible.builtin.set_stats",
        "Copy kernel modules that other controllers compiled | gpufleet.lifecycle.dkms_archives",
        "Record what the next plays need of the plan | ansible.builtin.set_fact",
        "Add the nodes that start to the rollout | ansible.builtin.add_host",
        "Add the other nodes to the report | ansible.builtin.add_host",
    ]
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
        assert sorted(path.name for path in copy.parent.iterdir()) == ["baseline.json", "last-change.json"], (
            "what keeps other drivers away is there since it was brought up"
        )
        assert fleet.document(name, "services") == {"running": ["nvidia-persistenced.service"]}
        assert fleet.read(name)["reboots_expected"] == [True]
        assert fleet.read(name)["downloaded"] == NEW
        # The first node would compile for the other, and prepares nothing before it is drained.
        ahead = {"offered": stubnode.archive(NEW), "source_packages": ["/a/nvidia-kernel-dkms.deb"]}
        assert fleet.read(name).get("prepared") == (None if name == "a1" else ahead)
        manifest, log = evidence(fleet, name, "1-before")
        assert (manifest["boot_id"], manifest["missing"]) == (
            "boot-0",
            [
                {"part": "nvidia-smi.xml", "reason": "nvidia-smi: command not found"},
                {"part": "processes.json", "reason": "not here"},
            ],
        )
        assert log == "driver 1.0.1 after 0 boots, running: nvidia-persistenced.service\n", (
            "before anything was stopped"
        )
        assert [path.name for path in bundles(fleet, name)] == ["1-before"]
    assert "[1/2] a1: install (driver 1.0.1 -> 2.0.1)" in first.output
    assert "[2/2] a2: done" in first.output
    ends = [first.report["nodes"][name]["steps"] for name in ("a1", "a2")]
    assert ends[0][-1]["finished"] <= ends[1][0]["started"], "one node at a time"

    second = fleet.run("upgrade")
    assert second.rc == 0
    assert second.states == first.states
    assert [len(fleet.read(name)["log"]) for name in ("a1", "a2")] == [4, 4]
    assert [len(tasks) for tasks in host_tasks.of_play(second.host_tasks, "Plan").values()] == [3 + 6, 3], (
        "and nothing else for nodes that are done"
    )
    assert "changed=0" in second.output and "changed=1" not in second.output
    # What hardware it should have is asked by every look that knows no baseline, and by the comparison; where nothing
    # is said, nothing.
    assert expected(fleet, "a1") == {("baseline", 6), ("post", 6), ("adhoc", 6)}
    assert expected(fleet, "a2") == {("baseline", None), ("post", None), ("adhoc", None)}


# One rollout over nodes of every kind, none of which ends it: what becomes of each is a test of its own.
TROUBLED = {
    "sick": {"sick_with": [NEW]},
    "mute": {"hangs_with": [NEW], "tells_nothing_with": [NEW]},
    "joining": {"joins_after": 3},
    "joining-sick": {"joins_after": 4, "sick_with": [NEW]},
    "unset": {"settings_lost_with": [NEW]},
    "unserved": {"enabled": [], "no_service_with": [NEW]},
    "disabled": {"enabled": []},
    "ill": {"sick_with": [OLD]},
    "busy": {"busy": True},
    "unsafe": {"no_module_for_next_boot": True},
    "gone": {"unreachable_with": [NEW]},
    "absent": {"unreachable": True},
    "unprepared": {"cannot_prestage": "Driver version 2.0.1 is not available on this node."},
    "not-prepared": {"cannot_prestage": "It would be refused."},
    "locked": {"no_index": "Another run of the package manager has its lock."},
    "taken": {"busy_after_prestage": True},
    "well": {},
}


@pytest.fixture(scope="module")
def troubled(tmp_path_factory, modules, shared):
    fleet = conftest.Fleet(tmp_path_factory.mktemp("troubled"), modules, shared)
    for name, fields in TROUBLED.items():
        fleet.add(name, **fields)
    fleet.variables = {name: {"gpu_node_upgrade_prestage": False} for name in ("not-prepared", "locked")}
    fleet.environment["ANSIBLE_FORKS"] = str(len(TROUBLED))
    # The one that cannot be reached holds a slot, and with one too few somebody waits until another one has failed.
    return fleet.run("upgrade", rollout_failure_budget=99, rollout_common_cause=99, rollout_max_down=len(TROUBLED) - 1)


def test_one_rollout_leaves_every_node_in_its_state_and_says_that_not_all_is_well(troubled):
    assert troubled.rc in (2, 4)
    assert troubled.report["verdict"] == "failed"
    expected_states = {
        "done": "joining disabled not-prepared well",
        "failed": "ill busy unprepared locked taken",
        "rolled_back": "sick mute joining-sick unset unserved",
        "quarantined": "unsafe",
        "lost": "gone absent",
    }
    assert troubled.states == {name: state for state, names in expected_states.items() for name in names.split()}
    assert "FAILED" in troubled.output.upper()


def test_what_the_installation_would_be_refused_for_is_found_ahead_of_the_drain_without_prestaging_too(troubled):
    entry = troubled.report["nodes"]["locked"]
    assert [step["name"] for step in entry["steps"]] == ["evidence"] and "has its lock" in entry["reason"]
    assert troubled.fleet.read("locked")["log"] == [] and troubled.fleet.read("not-prepared")["disk"] == NEW
    assert "downloaded" not in troubled.fleet.read("not-prepared"), "it only looked"


def test_others_go_on_within_the_budget_after_a_failure(troubled):
    failed = [
        node["steps"][-1]["finished"]
        for node in troubled.report["nodes"].values()
        if node["steps"] and node["state"] == "failed"
    ]
    assert max(node["steps"][0]["started"] for node in troubled.report["nodes"].values() if node["steps"]) >= min(
        failed
    )


def test_a_failed_node_is_put_back(troubled):
    fleet = troubled.fleet
    node, entry = fleet.read("sick"), troubled.report["nodes"]["sick"]
    assert (node["loaded"], node["disk"], node["running"]) == (OLD, OLD, ["nvidia-persistenced.service"])
    assert "GPU 3 does not answer with driver 2.0.1" in entry["reason"]
    assert [(step["name"], step["status"]) for step in entry["steps"]] == [
        (name, "ok") for name in ALL_STEPS[: ALL_STEPS.index("validate")]
    ] + [
        ("validate", "failed"),
        ("rollback_install", "ok"),
        ("rollback_prove", "ok"),
        ("rollback_reboot", "ok"),
        ("rollback_validate", "ok"),
        ("rollback_start", "ok"),
    ]
    assert evidence(fleet, "sick", "1-before")[1].startswith("driver 1.0.1 after 0 boots")
    left, log = evidence(fleet, "sick", "1-failed")
    assert (left["boot_id"], log) == ("boot-1", "driver 2.0.1 after 1 boots, running: nvidia-persistenced.service\n"), (
        "what the way back destroys"
    )
    assert [found["id"] for found in entry["findings"]] == ["gpu_answers"]
    assert entry["reason"].endswith("Evidence of the failure: %s" % (bundles(fleet, "sick")[1],))
    assert set(node["reboots_expected"]) == {True}
    assert not list((fleet.nodes / "sick" / "state").glob("quarantine*"))


def test_a_driver_that_hangs_is_asked_once_and_not_again(troubled):
    assert len(troubled.fleet.read("mute")["reboots_expected"]) == 1 + 1, "with the new driver, and with the old one"
    assert len(troubled.fleet.read("sick")["reboots_expected"]) == 2 + 1, "another complaint is looked at again"


def test_a_node_is_put_back_whether_or_not_the_failure_can_be_kept(troubled):
    assert troubled.fleet.read("mute")["loaded"] == OLD
    assert "mute: no evidence could be gathered: the node tells nothing" in troubled.output
    assert [path.name for path in bundles(troubled.fleet, "mute")] == ["1-before"]
    assert "Evidence of the failure" not in troubled.report["nodes"]["mute"]["reason"]


def test_a_fabric_that_is_being_joined_is_waited_for_and_nothing_else(troubled):
    assert len(troubled.fleet.read("joining")["reboots_expected"]) == 4, (
        "more often than gpu_node_upgrade_health_retries"
    )
    assert len(troubled.fleet.read("joining-sick")["reboots_expected"]) == 2 + 3, (
        "twice with the new driver, since it is sick too; then it joins with the old one"
    )


def test_a_node_whose_settings_or_services_do_not_come_back_is_put_back(troubled):
    assert "GPU 2: the power limit is 700 W, expected 500 W" in troubled.report["nodes"]["unset"]["reason"]
    reason = troubled.report["nodes"]["unserved"]["reason"]
    assert reason.startswith("services that ran before do not start: nvidia-persistenced.service: ")
    assert "the stub was told so" in reason
    running = [troubled.fleet.read(name)["running"] for name in ("unset", "unserved", "disabled")]
    assert running == [["nvidia-persistenced.service"]] * 3, "whether or not the boot starts it"


def test_sick_and_busy_nodes_and_unsafe_reboots(troubled):
    reasons = {name: node["reason"] for name, node in troubled.report["nodes"].items()}
    assert (
        reasons["ill"] == "unhealthy before the upgrade, nothing was changed: GPU 3 does not answer with driver 1.0.1"
    )
    assert "processes compute on its GPUs, nothing was changed: pid 4711" in reasons["busy"]
    assert "kernel 6.1 boots next and has no module" in reasons["unsafe"]
    touched = troubled.fleet.touched()
    assert "unsafe" in touched and not {"ill", "busy"} & set(touched)
    assert troubled.fleet.read("unsafe")["boots"] == 0
    assert troubled.report["nodes"]["unsafe"]["steps"][-1]["name"] == "quarantine", (
        "its marker is written by a step too"
    )


def test_a_node_that_leaves_the_play_frees_nobody_and_is_named(troubled):
    """Unreachable in the middle of a step: Ansible drops the host, and neither rescue nor always runs."""
    assert (
        "stopped answering, or its tasks were interrupted, in step prove" in troubled.report["nodes"]["gone"]["reason"]
    )


def test_a_node_that_does_not_answer_at_first_is_counted_and_reported(troubled):
    reason = troubled.report["nodes"]["absent"]["reason"]
    assert reason.startswith("did not answer before the rollout: ") and "absent does not answer" in reason


def test_a_node_that_cannot_be_prepared_is_not_drained(troubled):
    failed = troubled.report["nodes"]["unprepared"]
    assert [step["name"] for step in failed["steps"]] == ["prestage"]
    assert "Driver version 2.0.1 is not available" in failed["reason"]
    assert "unprepared" not in troubled.fleet.touched()


def test_the_work_beforehand_can_be_left_out(troubled):
    assert [step["name"] for step in troubled.report["nodes"]["not-prepared"]["steps"]] == [
        name for name in ALL_STEPS if name != "prestage"
    ]


def test_who_comes_while_the_node_is_prepared_keeps_it(troubled):
    """A compilation takes minutes: what the node was doing before says nothing about what it does after."""
    failed = troubled.report["nodes"]["taken"]
    assert "processes compute on its GPUs, nothing was changed: pid 4711" in failed["reason"]
    assert [step["name"] for step in failed["steps"]] == ["prestage", "evidence", "drain"]
    assert "taken" not in troubled.fleet.touched()


def steps(result, name):
    return [(step["name"], step["status"]) for step in result.report["nodes"][name]["steps"]]


def test_a_driver_is_loaded_without_a_reboot_or_with_one_as_the_policy_has_it(fleet):
    """a1 reloads; a2 cannot and reboots; a3 must not reboot; a4 is sick after a reload, and b1 after a reboot: both are
    put back by a reload.
    """
    fleet.variables = {
        name: {"gpu_node_upgrade_reload": "reload" if name == "a3" else "auto"}
        for name in ("a1", "a2", "a3", "a4", "b1")
    }
    fleet.add("a1")
    fleet.add("a2", no_reload_from=[OLD])
    fleet.add("a3", no_reload_from=[OLD])
    fleet.add("a4", sick_with=[NEW])
    fleet.add("b1", sick_with=[NEW], no_reload_from=[OLD])
    result = fleet.run("upgrade", rollout_failure_budget=9, rollout_max_down=5)
    assert result.rc == 2
    assert result.states == {"a1": "done", "a2": "done", "a3": "rolled_back", "a4": "rolled_back", "b1": "rolled_back"}
    went = [name if name != "reboot" else "reload" for name in ALL_STEPS]
    assert steps(result, "a1") == steps(result, "a2") == [(name, "ok") for name in went]
    assert {name: fleet.read(name)["boots"] for name in fleet.names} == {"a1": 0, "a2": 1, "a3": 0, "a4": 0, "b1": 1}
    assert (
        "The driver cannot be loaded anew without a reboot: python3 (pid 4711)"
        in result.report["nodes"]["a3"]["reason"]
    )
    back = [
        ("rollback_install", "ok"),
        ("rollback_prove", "ok"),
        ("rollback_reload", "ok"),
        ("rollback_validate", "ok"),
        ("rollback_start", "ok"),
    ]
    assert steps(result, "a3")[-5:] == [("reload", "failed")] + back[:2] + back[3:], (
        "what is loaded is what was put back"
    )
    assert steps(result, "a4")[-6:] == steps(result, "b1")[-6:] == [("validate", "failed")] + back
    # What the comparison with the baseline was told to expect: the boot of b1 stays, although its driver was put back
    # without one.
    assert {name: set(fleet.read(name)["reboots_expected"]) for name in ("a1", "a2", "a4", "b1")} == {
        "a1": {False},
        "a2": {True},
        "a4": {False},
        "b1": {True},
    }
    assert [fleet.read(name)["loaded"] for name in fleet.names] == [NEW, NEW, OLD, OLD, OLD]


def test_a_job_that_began_while_the_driver_was_installed_is_not_ended_by_the_reboot(fleet):
    """a1 goes back to the driver that is still loaded, and serves with its job; a2 is sick with the new one and has a
    job when it is to go back.
    """
    fleet.add("a1", job_before_boot_into=[NEW])
    fleet.add("a2", job_before_boot_into=[OLD], sick_with=[NEW])
    result = fleet.run("upgrade", rollout_failure_budget=9, rollout_max_down=2)
    assert result.rc == 2
    assert result.states == {"a1": "rolled_back", "a2": "quarantined"}
    assert {name: fleet.read(name)["boots"] for name in fleet.names} == {"a1": 0, "a2": 1}
    assert [(fleet.read(name)["loaded"], fleet.read(name)["disk"]) for name in fleet.names] == [(OLD, OLD), (NEW, OLD)]
    assert steps(result, "a1")[-5:] == [("reboot", "failed")] + [
        ("rollback_%s" % name, "ok") for name in ("install", "prove", "validate", "start")
    ], "what is loaded is what was put back"
    assert steps(result, "a2")[-2:] == [("rollback_reboot", "failed"), ("quarantine", "ok")]
    assert all("The GPUs are at work" in result.report["nodes"][name]["reason"] for name in fleet.names)


def test_a_node_whose_evidence_cannot_be_kept_is_not_touched(fleet):
    """The artifact directory lets itself be read, and no file be made in it: here is one where the directory has to
    be.
    """
    fleet.add("a1")
    fleet.artifacts.mkdir()
    (fleet.artifacts / "evidence").write_text("")
    result = fleet.run("upgrade")
    assert result.rc == 2
    assert result.states == {"a1": "failed"} and fleet.touched() == []
    reason = result.report["nodes"]["a1"]["reason"]
    assert "a1: the bundle of evidence (" in reason
    assert "cannot be written as %s/evidence/upgrade-2.0.1/a1/1-before: " % fleet.artifacts in reason


def artifact_host(fleet, **variables):
    """A host whose home is another than the controller's, to keep what the controller would forget."""
    home, python = fleet.directory / "keeper", fleet.directory / "python-of-keeper"
    home.mkdir()
    python.write_text('#!/bin/sh\nHOME="%s" exec "%s" "$@"\n' % (home, sys.executable))
    python.chmod(0o755)
    inventory = fleet.directory / "keeper.json"
    inventory.write_text(
        json.dumps(
            {
                "all": {
                    "hosts": {
                        "keeper": dict(
                            {
                                "ansible_connection": "ansible.builtin.local",
                                "ansible_python_interpreter": str(python),
                                "ansible_become": False,
                            },
                            **variables,
                        )
                    }
                }
            }
        )
    )
    return home / ".gpufleet", (
        "-i",
        str(inventory),
        "-e",
        "gpufleet_artifact_host=keeper",
        "-e",
        "gpufleet_artifact_dir=~/.gpufleet",
    )


def test_evidence_outlives_the_controller_on_the_artifact_host(fleet):
    fleet.add("a1", sick_with=[NEW])
    kept, arguments = artifact_host(fleet)
    fleet.artifacts = fleet.directory / ".gpufleet"
    result = fleet.run("upgrade", *arguments)
    assert result.rc == 2 and result.states == {"a1": "rolled_back"}
    ours, theirs = bundles(fleet, "a1"), sorted((kept / "evidence" / ("upgrade-" + NEW) / "a1").iterdir())
    assert [path.name for path in theirs] == [path.name for path in ours] == ["1-before", "1-failed"]
    for mine, copy in zip(ours, theirs):
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == {
            path.name: path.read_bytes() for path in mine.iterdir()
        }


def test_the_report_outlives_the_controller_and_a_newer_one_replaces_it(fleet):
    fleet.add("a1", cannot_install=[NEW])
    kept, arguments = artifact_host(fleet)
    fleet.artifacts = fleet.directory / ".gpufleet"
    names = ["junit.xml", "report.html", "report.json", "report.md", "rollout.prom"]

    def theirs():
        place = kept / "reports" / ("upgrade-" + NEW)
        return {path.name: path.read_text() for path in place.iterdir()}

    def ours():
        return {name: (fleet.artifacts / "rollouts" / ("upgrade-" + NEW) / name).read_text() for name in names}

    failed = fleet.run("upgrade", *arguments)
    assert (failed.rc, failed.states, failed.report["verdict"]) == (2, {"a1": "rolled_back"}, "failed")
    assert theirs() == ours()
    first = json.loads(theirs()["report.json"])
    fleet.change("a1", cannot_install=[])
    done = fleet.run("upgrade", *arguments)
    assert (done.rc, done.report["verdict"]) == (0, "complete")
    assert theirs() == ours() and json.loads(theirs()["report.json"])["events"] > first["events"]
    said = done.output.partition("\nPLAY RECAP")[0].rpartition("\nTASK [")[2]
    assert "report: " in said and "Keep the report" not in said, "the table stays the last"

    # A controller that knows less, such as one that comes late, leaves it.
    path = kept / "reports" / ("upgrade-" + NEW) / "report.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), events=10**6)))
    newer = theirs()
    told = fleet.run("report", *arguments)
    assert told.rc == 0 and theirs() == newer
    path.write_text(json.dumps(dict(json.loads(path.read_text()), events=1)))
    fleet.run("report", *arguments)
    assert theirs() == ours()


def test_a_node_is_not_touched_while_the_artifact_host_cannot_be_reached(fleet):
    fleet.add("a1")
    dummy, arguments = artifact_host(
        fleet, ansible_connection="ansible.builtin.ssh", ansible_host="127.0.0.1", ansible_port=1
    )
    fleet.artifacts = fleet.directory / ".gpufleet"
    result = fleet.run("upgrade", *arguments)
    assert result.rc == 2, "and not lost: it is not the node that is away"
    assert result.states == {"a1": "failed"} and fleet.touched() == []
    assert "was not kept on the artifact host keeper: it cannot be reached (" in result.report["nodes"]["a1"]["reason"]


def test_a_node_is_taken_by_hand_outside_of_any_rollout_and_not_inside_one_that_nobody_planned(fleet):
    fleet.add("a1")
    play = "- hosts: gpu_nodes\n  gather_facts: false\n  roles: [gpufleet.lifecycle.gpu_node_upgrade]\n"
    (fleet.directory / "by_hand.yml").write_text(play)
    refused = fleet.run("by_hand", gpu_node_upgrade_version=NEW, gpu_node_upgrade_rollout_id="nobodys")
    assert refused.rc == 2 and fleet.touched() == []
    result = fleet.run("by_hand", gpu_node_upgrade_version=NEW, gpu_node_upgrade_rollout_mode="none")
    assert result.rc == 0 and fleet.read("a1")["loaded"] == NEW
    assert fleet.read("a1")["running"] == ["nvidia-persistenced.service"]
    assert "a1: install (driver 1.0.1 -> 2.0.1)" in result.output
    assert (fleet.nodes / "a1" / "state" / "baseline.json").exists()
    assert [path.name for path in bundles(fleet, "a1", "by-hand")] == ["1-before"]


def test_a_node_that_cannot_be_put_back_is_quarantined_and_holds_its_slot(fleet):
    fleet.add("a1", half_installs=[NEW], cannot_install=[OLD])
    fleet.add("a2")
    result = fleet.run("upgrade", rollout_failure_budget=3)
    assert result.rc == 2
    assert result.states == {"a1": "quarantined", "a2": "pending"}
    assert (
        "the build of 2.0.1 failed; its rollback failed: the build of 1.0.1 failed"
        in result.report["nodes"]["a1"]["reason"]
    )
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
    result = fleet.run(
        "upgrade",
        rollout_failure_budget=5,
        rollout_max_down=2,
        rollout_canaries=["a1"],
        rollout_canary_failures=1,
        rollout_on_failure=policy,
    )
    assert result.rc == 2
    assert result.states["a1"] == "quarantined"
    assert (fleet.read("a1")["loaded"], fleet.read("a1")["disk"]) == (NEW, NEW), "nobody touched it after its failure"
    assert "GPU 3 does not answer" in result.report["nodes"]["a1"]["reason"]
    assert "on_failure: " + policy in result.report["nodes"]["a1"]["reason"]
    assert (fleet.nodes / "a1" / "state" / "quarantine.json").exists()
    assert result.states["a2"] == "pending"
    assert ("stopped by the policy: a1 failed" in result.output) == (policy == "stop")
    assert ("no canary is done" in result.output) == (policy == "quarantine")


@pytest.mark.promise
def test_a_canary_has_to_stay_healthy_at_work_before_others_go(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    result = fleet.run(
        "upgrade",
        rollout_max_down=2,
        rollout_canaries=["a1"],
        rollout_canary_soak_s=2,
        gpu_node_upgrade_soak_interval=1,
    )
    assert result.rc == 0 and result.states == {"a1": "done", "a2": "done"}
    steps = {name: {step["name"]: step for step in node["steps"]} for name, node in result.report["nodes"].items()}
    assert "soak" in steps["a1"] and "soak" not in steps["a2"]
    assert steps["a1"]["soak"]["finished"] <= steps["a2"]["evidence"]["started"]
    assert fleet.read("a1")["log"][-2:] == ["looked at, at work"] * 2 and "canaries go first: a1" in result.output


def test_a_canary_that_falls_ill_at_work_is_put_back_unless_it_has_jobs_and_nobody_else_goes(fleet):
    fleet.add("a1", sick_at_work_with=[NEW])
    fleet.add("a2", sick_at_work_with=[NEW], busy_with=[NEW])
    fleet.add("a3")
    result = fleet.run(
        "upgrade",
        rollout_failure_budget=5,
        rollout_common_cause=5,
        rollout_canaries=["a1", "a2"],
        rollout_max_down=2,
        rollout_canary_soak_s=1,
        gpu_node_upgrade_soak_interval=1,
    )
    assert result.rc == 2 and result.states == {"a1": "rolled_back", "a2": "quarantined", "a3": "pending"}
    reasons = {name: node["reason"] for name, node in result.report["nodes"].items()}
    assert "GPU 3 had XID 79 at work" in reasons["a1"] and fleet.read("a1")["loaded"] == OLD
    assert "no job is stopped: pid 4711" in reasons["a2"] and fleet.read("a2")["loaded"] == NEW
    assert fleet.touched() == ["a1", "a2"]
    assert re.search("a3: stop .canary a[12] failed", result.output)


def test_lost_nodes_count_as_failed_and_as_down_and_who_waits_learns_of_them(fleet):
    fleet.add("a1", dies_with=[NEW])  # in its reboot
    fleet.add("a2", unreachable_with=[NEW])  # it leaves the play
    fleet.add("a3")
    result = fleet.run("upgrade", rollout_failure_budget=5, rollout_max_down=2)
    assert result.rc in (2, 4)
    assert result.states == {"a1": "lost", "a2": "lost", "a3": "pending"}
    assert fleet.touched() == ["a1", "a2"]
    assert "a3: stop (every down slot (2) is held by a node that is out of service: a1, a2)" in result.output


def test_a_killed_controller_is_followed_and_its_node_is_asked_first(fleet):
    fleet.add("a1")
    fleet.add("a2", hangs_in_install=True)
    fleet.add("a3")
    with fleet.going("upgrade", rollout_canaries=["a2"]) as process:
        wait_for(lambda: "hangs" in fleet.read("a2")["log"])
        beside = fleet.run("upgrade", "--limit", "a1,a2", rollout_id="other")
        assert beside.rc == 2
        assert "is being run by process %d" % process.pid in beside.output
        assert "shares a1, a2 with this one" in beside.output
    assert fleet.touched() == ["a2"]

    fleet.change("a2", hangs_in_install=False)
    result = fleet.run("upgrade")
    assert result.rc == 0
    assert result.states == {"a1": "done", "a2": "done", "a3": "done"}
    assert "1. a2: driver 1.0.1 -> 2.0.1, was in flight when its run was interrupted" in result.output
    steps = [(step["name"], step["status"]) for step in result.report["nodes"]["a2"]["steps"]]
    before = ALL_STEPS[: ALL_STEPS.index("install")]
    assert steps[:6] == [(name, "ok") for name in before] + [("install", "interrupted"), ("evidence", "ok")]
    assert steps[-1] == ("return", "ok")
    assert fleet.read("a2")["loaded"] == NEW and fleet.read("a2")["running"] == ["nvidia-persistenced.service"]


@pytest.mark.promise
def test_rollback_takes_named_nodes_to_the_version_that_was_recorded(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    assert fleet.run("upgrade", rollout_max_down=2).rc == 0
    assert fleet.run("rollback", rollback_hosts="a1", rollout_version="").rc == 0
    assert (fleet.read("a1")["loaded"], fleet.read("a2")["loaded"]) == (OLD, NEW)
    report = json.loads((fleet.artifacts / "rollouts" / ("rollback-upgrade-" + NEW) / "report.json").read_text())
    assert (report["target"], report["verdict"], list(report["nodes"])) == (OLD, "complete", ["a1"])


def test_rollback_whose_controller_died_goes_on_and_is_not_undone_by_a_rollback(fleet):
    fleet.add("a1")
    assert fleet.run("rollback", rollback_hosts="", rollout_version="").rc == 2
    assert fleet.run("rollback", rollback_hosts="a1", rollout_version="").rc == 2, "there is nothing to undo"
    assert fleet.run("upgrade").rc == 0
    fleet.change("a1", waits_at=["install " + OLD])
    test_resume.killed_in_install(fleet, ["a1"], "rollback", rollback_hosts="a1", rollout_version="")
    assert fleet.states("rollback-upgrade-" + NEW) == {"a1": "down"}
    result = fleet.run("rollback", rollback_hosts="a1", rollout_version="")
    assert result.rc == 0 and fleet.read("a1")["log"].count("installed " + OLD) == 1, "what was installed is not again"
    assert fleet.read("a1")["loaded"] == OLD
    again = fleet.run("rollback", rollback_hosts="a1", rollout_version="")
    assert again.rc == 2 and "was itself a rollback" in again.output
    shown = fleet.run("report", rollout_id="upgrade-" + NEW, rollout_report_dir=str(fleet.directory / "shown"))
    assert shown.rc == 0 and "complete: 1 done, target 2.0.1" in shown.output
    assert sorted(path.name for path in (fleet.directory / "shown").iterdir()) == [
        "junit.xml",
        "report.html",
        "report.json",
        "report.md",
        "rollout.prom",
    ]


RAN, STAGED = "6.1.0-1-amd64", "6.1.0-2-amd64"


def kernels(fleet):
    """The kernel that runs, and the one that boots next, of every node."""
    found = {name: stubnode.kernel(fleet.read(name)) for name in fleet.names}
    return {name: (kernel["running"], kernel["next_boot"]) for name, kernel in found.items()}


def test_a_node_that_fails_goes_back_to_the_kernel_that_ran_before(fleet):
    """a1 is sick on the kernel that was staged; a2 never reboots, as its driver cannot be installed; a3's kernel is
    taken away meanwhile, and the staged one stays; a4 has one kernel, and nothing is written.
    """
    fleet.add("a1", kernels=[RAN, STAGED], next_kernel=STAGED, sick_on_kernels=[STAGED])
    fleet.add("a2", kernels=[RAN, STAGED], next_kernel=STAGED, cannot_install=[NEW])
    fleet.add("a3", kernels=[STAGED], kernel=RAN, next_kernel=STAGED, sick_with=[NEW])
    fleet.add("a4", sick_with=[NEW])
    result = fleet.run("upgrade", rollout_failure_budget=9, rollout_common_cause=9, rollout_max_down=4)
    assert result.rc == 2 and set(result.states.values()) == {"rolled_back"}
    assert kernels(fleet) == {"a1": (RAN, RAN), "a2": (RAN, RAN), "a3": (STAGED, STAGED), "a4": (RAN, RAN)}
    assert [fleet.read(name)["boots"] for name in fleet.names] == [2, 0, 2, 2]
    reasons = {name: node["reason"] for name, node in result.report["nodes"].items()}
    assert all("is back on driver 1.0.1 and kernel %s, which passed" % RAN in reasons[name] for name in ("a1", "a2"))
    assert (
        "is back on driver 1.0.1, which passed against its baseline, and serves. Kernel %s is not made the default"
        % RAN
        in reasons["a3"]
    )
    assert "kernel" not in reasons["a4"].lower() and not [line for line in fleet.read("a4")["log"] if "kernel" in line]


def test_rollback_takes_a_node_to_the_kernel_that_ran_before_and_proves_it(fleet):
    """a1 goes back to the kernel that ran; a2's was removed meanwhile; a3 has one, and a4 is already on the one it had;
    b1's cannot be proven.
    """
    for name in ("a1", "a2"):
        fleet.add(name, kernels=[RAN, STAGED], next_kernel=STAGED)
    fleet.add("a3")
    for name in ("a4", "b1"):
        fleet.add(name, kernels=[RAN, STAGED], next_kernel=STAGED)
    assert fleet.run("upgrade", rollout_max_down=5).rc == 0
    assert fleet.run("upgrade").rc == 0, "a second run of it records no other kernel"
    assert kernels(fleet)["a1"] == (STAGED, STAGED)
    fleet.change("a2", kernels=[STAGED])
    fleet.change("a4", kernel=RAN, next_kernel=RAN)
    fleet.change("b1", no_default_kernel=True)
    planned = fleet.run("rollback", "--check", rollback_hosts="gpu_nodes", rollout_version="", rollout_max_down=4)
    assert all(
        re.search(r"%s: driver 2.0.1 -> 1.0.1 \(a downgrade\), kernel %s\n" % (name, RAN), planned.output)
        for name in ("a1", "b1")
    )
    assert planned.output.count(", kernel " + RAN) == 2
    assert "kernel %s, which ran with the earlier driver, is no longer installed on a2" % RAN in planned.output
    result = fleet.run(
        "rollback", rollback_hosts="gpu_nodes", rollout_version="", rollout_max_down=5, rollout_failure_budget=2
    )
    # One whose kernel is not proven is undone: its rollback failed.
    assert result.rc == 2 and "Kernel %s is not made the default" % RAN in result.output
    assert fleet.states("rollback-upgrade-" + NEW) == dict(
        dict.fromkeys(("a1", "a2", "a3", "a4"), "done"), b1="rolled_back"
    ), "a2 goes back with the kernel that it has"
    back, stays = (RAN, RAN), (STAGED, STAGED)
    assert kernels(fleet) == {"a1": back, "a2": stays, "a3": back, "a4": back, "b1": stays}
    assert [fleet.read(name)["loaded"] for name in fleet.names] == [OLD, OLD, OLD, OLD, NEW]
    assert fleet.read("a1")["log"][-5:] == [
        "stop nvidia-persistenced.service",
        "installed " + OLD,
        "default kernel " + RAN,
        "reboot into " + OLD,
        "metapackages of " + RAN,
    ]


def test_metapackages_follow_the_kernel_of_a_node_that_is_proven(fleet):
    """a2's cannot, which is no failure of the node; a3 is sick with the kernel and goes back without them."""
    for name in ("a1", "a2", "a3"):
        fleet.add(name, kernels=[RAN, STAGED])
    fleet.change("a2", no_metapackages=True)
    fleet.change("a3", sick_on_kernels=[STAGED])
    result = fleet.run("upgrade", rollout_kernel=STAGED, rollout_max_down=3, rollout_failure_budget=2)
    assert result.states == {"a1": "done", "a2": "done", "a3": "rolled_back"}, result.output
    assert kernels(fleet) == {"a1": (STAGED, STAGED), "a2": (STAGED, STAGED), "a3": (RAN, RAN)}
    followed = {name: [line for line in fleet.read(name)["log"] if "metapackages" in line] for name in fleet.names}
    assert followed == {"a1": ["metapackages of " + STAGED], "a2": [], "a3": []}
    assert re.search(r"a2: .*do not follow kernel %s.* kernel_hold" % re.escape(STAGED), result.output)


def test_an_operator_steers_a_rollout_while_it_runs(fleet):
    fleet.add("a1", waits_in_install=True)
    for name in ("a2", "a3"):
        fleet.add(name)
    with fleet.going("upgrade", gpu_node_upgrade_gate_patience=1, gpu_node_upgrade_gate_patience_max=1) as process:
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
        assert fleet.run("rollout_control", rollout_verb="skip", rollout_nodes=["a1"], rollout_reason="x").rc == 2, (
            "it is down"
        )
        assert (
            fleet.run(
                "rollout_control", rollout_verb="skip", rollout_nodes=["a2"], rollout_reason="its user needs it"
            ).rc
            == 0
        )
        paused = fleet.run(
            "rollout_control", rollout_verb="pause", rollout_reason="look at a1 first", rollout_user="kim"
        )
        assert paused.rc == 0 and "paused by kim: look at a1 first" in paused.output
        assert "run by process %d" % process.pid in paused.output
        stopped = fleet.run("rollout_control", rollout_verb="stop", rollout_reason="x", rollout_idd="another")
        assert stopped.rc == 2 and "rollout_idd is no variable of a rollout: did you mean rollout_id?" in stopped.output
        fleet.change("a1", waits_in_install=False)
        wait_for(lambda: fleet.read("a1")["loaded"] == NEW and fleet.states("upgrade-" + NEW).get("a1") == "done")
        asked = fleet.began("a3", "Request a drain slot")
        wait_for(lambda: fleet.began("a3", "Request a drain slot") >= asked + 2)
        assert fleet.touched() == ["a1"], "it asked for the free slot, and has no ticket"
        broken = fleet.run("rollout_control", rollout_verb="break_lock", rollout_reason="x")
        assert broken.rc == 2 and "is being run by process %d" % process.pid in broken.output
        assert (
            fleet.run("rollout_control", rollout_verb="resume", rollout_reason="a1 is fine", rollout_user="kim").rc == 0
        )
        process.wait(timeout=1800)
    assert process.returncode == 0
    assert "complete, without 1 node that an operator left out (a2)" in (fleet.directory / "output0").read_text()
    assert fleet.states("upgrade-" + NEW) == {"a1": "done", "a2": "skipped", "a3": "done"}
    assert fleet.touched() == ["a1", "a3"]


def drained_in_vain(fleet, *arguments, **variables):
    """A node drains ahead of its slot, and before the slot is free the budget is spent: the result, who had the slot,
    and the other one.
    """
    for name in ("a1", "a2"):
        fleet.add(name, cannot_install=[NEW], waits_in_install=True)
    with fleet.going("upgrade", *arguments, rollout_max_draining=2, **variables) as process:
        # Whichever is drained first takes the slot.
        wait_for(lambda: [name for name in fleet.names if "waits" in fleet.read(name)["log"]])
        (first,) = fleet.touched()
        other = {"a1": "a2", "a2": "a1"}[first]
        wait_for(lambda: fleet.began(other, "Request a down slot"))
        fleet.change(other, waits_in_install=False)
        fleet.change(first, waits_in_install=False)
        process.wait(timeout=1800)
    return conftest.Result(fleet, process, process.output), first, other


def test_security_updates_come_before_the_driver_in_the_same_drain_and_without_them_no_driver(fleet):
    fleet.add("a1")
    fleet.add("a2", refuses_updates="the transaction would change the kernel: linux-image-amd64")
    result = fleet.run(
        "upgrade",
        gpu_node_upgrade_gate_patience=3600,
        gpu_node_upgrade_gate_patience_max=3600,
        rollout_failure_budget=2,
        gpu_node_upgrade_security_updates=True,
        **fleet.install_for_real(),
    )
    assert result.rc == 2 and result.states == {"a1": "done", "a2": "rolled_back"}
    assert fleet.read("a1")["log"][:3] == ["stop nvidia-persistenced.service", "security updates", "installed " + NEW]
    assert [step["name"] for step in result.report["nodes"]["a1"]["steps"]] == ALL_STEPS
    went = host_tasks.preflight(result.host_tasks, ["a1", "a2"]) + host_tasks.way(result.host_tasks, ["a1"])
    assert len(went) <= host_tasks.LIMIT, "%d host-tasks:\n%s" % (len(went), "\n".join(went))
    assert (
        "no security update is applied: the transaction would change the kernel"
        in result.report["nodes"]["a2"]["reason"]
    )
    assert not [line for line in fleet.read("a2")["log"] if line.startswith("installed")]
    assert fleet.read("a2")["boots"] == 0


@pytest.mark.parametrize(
    "patience, turns", [pytest.param(0.5, 2, id="in many turns"), pytest.param(600, 1, id="in one turn")]
)
def test_a_node_that_waited_for_its_slot_is_looked_at_again(fleet, patience, turns):
    for name in ("a1", "a2"):
        fleet.add(name, waits_in_install=True)
    with fleet.going(
        "upgrade",
        rollout_max_draining=2,
        rollout_failure_budget=9,
        gpu_node_upgrade_gate_patience=patience,
        gpu_health_expect={"hardware": {"gpus": 6}},
        gpu_node_upgrade_gate_patience_max=max(patience, 2),
    ) as process:
        wait_for(lambda: fleet.touched() and "waits" in fleet.read(fleet.touched()[0])["log"])
        (first,) = fleet.touched()
        other = {"a1": "a2", "a2": "a1"}[first]
        # The first node holds the only slot until it is let go on. A node that is told to wait sees to the report
        # meanwhile, and nobody else does now.
        wait_for(lambda: fleet.began(other, "Request a down slot") >= turns)
        report = fleet.artifacts / "rollouts" / ("upgrade-" + NEW) / "report.lock"
        seen = report.stat().st_mtime_ns
        wait_for(lambda: report.stat().st_mtime_ns != seen)
        fleet.change(other, busy=True, waits_in_install=False)
        fleet.change(first, waits_in_install=False)
        process.wait(timeout=1800)
    assert process.returncode == 2
    assert fleet.recorded() == {first: "done", other: "failed"} and fleet.touched() == [first]
    assert expected(fleet, first) | expected(fleet, other) == {("baseline", 6), ("post", 6)}
    assert "processes compute on its GPUs, and no job is stopped: pid 4711" in fleet.view().nodes.get(other).reason


@pytest.mark.parametrize(
    "declined, state",
    [("Upgrade the node", "pending"), ("Request a drain slot", "pending"), ("Request a down slot", "draining")],
)
def test_going_task_by_task_slips_past_nothing(fleet, declined, state):
    """--step asks before every task; whoever declines the gate alone gets nowhere."""
    fleet.add("a1")
    asked = fleet.step_through("upgrade", lambda task: "n" if task.rpartition(" : ")[2] == declined else "y")
    assert [answer for task, answer in asked].count("n") == 1
    assert fleet.touched() == [] and fleet.read("a1")["loaded"] == OLD
    assert fleet.recorded() == {"a1": state}
