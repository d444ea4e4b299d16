# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The course of nodes that Slurm gives work: who is drained when, and who is put back."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import host_tasks, test_upgrade_course
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import wait_for

OLD, NEW = "1.0.1", "2.0.1"
ID = "upgrade-" + NEW
DRAIN = "drain gpufleet:%s driver %s" % (ID, NEW)


@pytest.mark.promise
def test_a_node_is_drained_upgraded_and_resumed(fleet):
    # Slurm replaces the reason of a1 once it registers without its GPUs.
    fleet.add("a1", slurm={"gres": "gpu:h100:2"}, after_drain={"registers_short": True})
    fleet.add("a2", slurm={"state": "IDLE+DRAIN", "reason": "bad fan", "gres": "gpu:1g.10gb:14"}, mig_devices=7)
    fleet.add("b1")
    arguments, variables = fleet.use_slurm()
    backends = variables.pop("gpu_scheduler_backends")
    fleet.variables = {"a1": {"gpu_scheduler_backends": backends}, "a2": {"gpu_scheduler_backends": backends}}
    variables.update(fleet.install_for_real(), rollout_max_down=3)
    result = fleet.run(
        "upgrade", *arguments, gpu_node_upgrade_gate_patience=3600, gpu_node_upgrade_gate_patience_max=3600, **variables
    )
    assert result.rc == 0 and result.states == {"a1": "done", "a2": "done", "b1": "done"}
    assert fleet.slurm("a1") == ("IDLE", "", [DRAIN, "resume"])
    assert fleet.slurm("a2") == ("IDLE+DRAIN", "bad fan", []), "what an operator drained stays drained"
    assert fleet.slurm("b1") == ("IDLE", "", []), "no scheduler of ours gives it work"
    assert "a1: drain (in slurm)" in result.output and "b1: drain (no scheduler is driven" in result.output
    assert not host_tasks.too_many(result.host_tasks, ["b1", "b1"]), host_tasks.too_many(
        result.host_tasks, ["b1", "b1"]
    )
    for name, more in (("a1", ()), ("a2", host_tasks.MIG)):
        assert host_tasks.added(result.host_tasks, name, "b1") == sorted(host_tasks.SCHEDULER + more), (
            "what a scheduler and MIG cost is listed, and no more"
        )


def test_jobs_are_waited_for_in_slices_and_the_node_is_looked_at_again_when_they_have_ended(fleet):
    """a1 and a2 wait for their jobs; b1, b2 and b3 are empty once they are drained, b2 and b3 are not fit then."""
    fleet.add("a1", jobs=1)
    fleet.add("a2", jobs=2)
    fleet.add("b1", busy=True, jobs=1, after_drain={"busy": False, "jobs": 0})
    fleet.add("b2", after_drain={"busy": True})
    fleet.add("b3", after_drain={"sick_with": [OLD]})
    arguments, variables = fleet.use_slurm()
    variables.update(rollout_max_down=5, rollout_failure_budget=9)
    timeout = variables.pop("gpu_scheduler_drain_timeout")
    # The jobs of a1 are ended below, however long that takes; those of a2 never end.
    fleet.variables = dict.fromkeys(("b1", "b2", "b3"), {"gpu_scheduler_drain_timeout": timeout})
    fleet.variables.update(a1={"gpu_scheduler_drain_timeout": 600}, a2={"gpu_scheduler_drain_timeout": 15})
    with fleet.going("upgrade", *arguments, **variables) as process:
        wait_for(lambda: fleet.slurm("a1")[0] == "IDLE+DRAIN" or process.poll() is not None)
        fleet.change("a1", jobs=0)
        process.wait(timeout=1800)
    states = {"a1": "done", "a2": "failed", "b1": "done", "b2": "failed", "b3": "failed"}
    assert process.returncode == 2 and fleet.states(ID) == states, process.output
    for name in ("a1", "a2", "b2", "b3"):
        assert fleet.slurm(name) == ("IDLE", "", [DRAIN, "resume"]), "drained once, and our own drain is lifted"
    assert fleet.touched() == ["a1", "b1"]
    report = json.loads((fleet.artifacts / "rollouts" / ID / "report.json").read_text())
    reasons = {name: node["reason"] for name, node in report["nodes"].items()}
    assert reasons["a2"].startswith(
        "n-a2 is not empty in Slurm after 15 s, 2 jobs hold it: job 4711 (user kim, partition batch, RUNNING, "
        "1:00 left), job 4712"
    )
    assert [step["name"] for step in report["nodes"]["a2"]["steps"]] == ["prestage", "evidence", "drain"]
    assert fleet.document("b1", "baseline")["snapshot"]["gpus"][0]["compute_processes"]["value"] == []
    assert json.loads((fleet.nodes / "b1" / "state" / "baseline.json").read_text()) == fleet.document("b1", "baseline")
    assert reasons["b2"].startswith("processes compute on its GPUs, nothing was changed: pid 4711."), (
        "somebody works there beside Slurm"
    )
    assert reasons["b3"].startswith("unhealthy before the upgrade, nothing was changed: GPU 3 does not answer")


def test_a_node_that_was_drained_in_vain_is_resumed(fleet):
    arguments, variables = fleet.use_slurm()
    result, first, other = test_upgrade_course.drained_in_vain(fleet, *arguments, **variables)
    assert result.rc == 2 and result.states == {first: "rolled_back", other: "pending"} and fleet.touched() == [first]
    assert fleet.slurm(first) == fleet.slurm(other) == ("IDLE", "", [DRAIN, "resume"])
    node = result.report["nodes"][other]
    assert node["reason"].startswith("drained, and not taken down: the failure budget of 1 is spent by %s" % first)
    assert [step["name"] for step in node["steps"]] == ["prestage", "evidence", "drain"]


def test_a_node_that_is_quarantined_stays_drained(fleet):
    fleet.add("a1", half_installs=[NEW], cannot_install=[OLD])
    fleet.add("a2", sick_at_work_with=[NEW], slurm={"gres": "gpu:h100:2", "after_resume": {"gres": "gpu:h100:8"}})
    arguments, variables = fleet.use_slurm()
    result = fleet.run(
        "upgrade",
        *arguments,
        rollout_failure_budget=9,
        rollout_max_down=2,
        rollout_on_failure="quarantine",
        rollout_canaries=["a2"],
        rollout_canary_failures=1,
        rollout_canary_soak_s=1,
        gpu_node_upgrade_soak_interval=1,
        **variables,
    )
    assert result.rc == 2 and result.states == {"a1": "pending", "a2": "quarantined"}
    state, reason, log = fleet.slurm("a2")
    assert state == "IDLE+DRAIN" and reason.startswith("gpufleet:%s quarantined: " % ID)
    assert log[:2] == [DRAIN, "resume"], "it had served again already"
    assert len(log) == 3, "a broken node is closed whatever Slurm has for it by then"
    again = fleet.run("upgrade", *arguments, rollout_id="again", upgrade_hosts="a1", **variables)
    assert again.rc == 2 and fleet.read("a1")["running"] == []
    assert fleet.slurm("a1") == ("IDLE+DRAIN", "gpufleet:again driver 2.0.1", ["drain gpufleet:again driver 2.0.1"])


def test_a_node_that_its_scheduler_does_not_take_back_is_put_back_by_the_next_run(fleet):
    fleet.add("a1", slurm={"refuses": "resume"})
    fleet.add("a2", slurm={"refuses": "resume"}, after_drain={"sick_with": [OLD]})
    fleet.add("a3", slurm={"refuses": "resume"}, cannot_install=[NEW])
    arguments, variables = fleet.use_slurm()
    variables.update(rollout_max_down=3, rollout_failure_budget=9, rollout_common_cause=0)
    result = fleet.run("upgrade", *arguments, **variables)
    assert result.rc == 2 and result.states == dict.fromkeys(fleet.names, "quarantined"), "they do not serve"
    said = "not taken back by slurm: n-%s: slurmctld does not answer"
    reasons = {name: node["reason"] for name, node in result.report["nodes"].items()}
    assert reasons["a1"].startswith("driver 2.0.1 ") and said % "a1" in reasons["a1"]
    assert reasons["a2"].startswith(
        "unhealthy before the upgrade, nothing was changed: GPU 3 does not answer with driver 1.0.1. It was "
        + said % "a2"
    )
    assert reasons["a3"].startswith(
        "the build of 2.0.1 failed. The node is back on driver 1.0.1, which passed against its baseline. It was "
        + said % "a3"
    )
    assert reasons["a2"].endswith(" The next run tries again.")
    assert " The next run tries again. Evidence of" in reasons["a3"]
    for name in fleet.names:
        assert fleet.slurm(name) == ("IDLE+DRAIN", "gpufleet:%s driver %s" % (ID, NEW), [DRAIN]), (
            "not closed a second time, as a broken one is"
        )
        assert not (fleet.nodes / name / "state" / "quarantine.json").exists(), "nothing keeps the next run away"
    assert [fleet.read(name)["loaded"] for name in fleet.names] == [NEW, OLD, OLD], "what runs and passed stays"
    for name in fleet.names:
        fleet.change(
            name, slurm=dict(fleet.read(name)["slurm"], refuses=""), sick_with=[], after_drain={}, cannot_install=[]
        )
    result = fleet.run("upgrade", *arguments, **variables)
    assert result.rc == 0 and result.states == dict.fromkeys(fleet.names, "done")
    for name in fleet.names:
        assert fleet.slurm(name)[0] == "IDLE" and fleet.read(name)["log"].count("installed " + NEW) == 1
    assert fleet.slurm("a1")[2] == [DRAIN, "resume"], "it had nothing to do but to serve"
    assert "a1: driver 1.0.1 -> 2.0.1, retried after: the resume in its schedulers failed" in result.output


def test_slurm_that_cannot_be_asked_is_told_before_anything_is_done(fleet):
    fleet.add("a1", slurm={"away": True})
    fleet.add("a2", slurm={"gres": "gpu:h100:8"})
    fleet.add("a3", slurm={"gres": "gpu:1g.10gb:14"}, mig_devices=3)
    arguments, variables = fleet.use_slurm()
    result = fleet.run("upgrade", *arguments, rollout_failure_budget=9, rollout_common_cause=9, **variables)
    reasons = {name: node["reason"] for name, node in result.report["nodes"].items()}
    assert result.rc == 2 and set(result.states.values()) == {"failed"} and fleet.touched() == []
    assert "Slurm has 14 GPUs for it (Gres=gpu:1g.10gb:14), and the node has 6" in reasons["a3"], (
        "it has two GPUs with three MIG devices each"
    )
    assert reasons["a1"].startswith("n-a1: slurmctld does not answer")
    assert "Slurm has 8 GPUs for it (Gres=gpu:h100:8), and the node has 2" in reasons["a2"]
    assert fleet.slurm("a1")[2] == fleet.slurm("a2")[2] == []
    unnamed = fleet.run(
        "upgrade", *arguments, rollout_id="unnamed", upgrade_hosts="a2", **dict(variables, gpu_scheduler_slurm_host="")
    )
    assert unnamed.rc == 2 and "gpu_scheduler_slurm_host is empty" in unnamed.output and fleet.touched() == []


def test_a_node_whose_mig_state_was_not_read_agrees_with_no_number_of_slurm(fleet):
    """a1 is not drained; a2's could not be read any more when its jobs had ended, and it stays drained; for a3 Slurm
    has none, and nothing is compared.
    """
    gres = {"gres": "gpu:h100:2"}
    fleet.add("a1", slurm=gres, mig_unread=True)
    fleet.add("a2", slurm=gres, after_drain={"mig_unread": True})
    fleet.add("a3", mig_unread=True)
    arguments, variables = fleet.use_slurm()
    result = fleet.run(
        "upgrade", *arguments, rollout_max_down=3, rollout_failure_budget=9, rollout_common_cause=0, **variables
    )
    assert result.rc == 2 and result.states == {"a1": "failed", "a2": "quarantined", "a3": "done"}
    reasons = {name: node["reason"] for name, node in result.report["nodes"].items()}
    unread = "Slurm has 2 GPUs for it (Gres=gpu:h100:2), and how many GPUs and MIG devices the node has is not known"
    assert reasons["a1"].startswith("n-a1 was not drained, since it could not be resumed afterwards: " + unread)
    assert "not taken back by slurm: n-a2 was not resumed and stays drained: " + unread in reasons["a2"]
    assert fleet.slurm("a1") == ("IDLE", "", []) and fleet.slurm("a3") == ("IDLE", "", [DRAIN, "resume"])
    assert fleet.slurm("a2") == ("IDLE+DRAIN", "gpufleet:%s driver %s" % (ID, NEW), [DRAIN])
    assert fleet.touched() == ["a2", "a3"]
    fleet.change("a2", mig_unread=False, after_drain={})
    again = fleet.run("upgrade", *arguments, upgrade_hosts="a2", **variables)
    assert again.rc == 0 and again.states["a2"] == "done" and fleet.slurm("a2") == ("IDLE", "", [DRAIN, "resume"])


def killed_at(fleet, arguments, variables):
    with fleet.going("upgrade", *arguments, **variables):
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
    fleet.change("a1", waits_at=[])
    wait_for(lambda: not fleet.at_work())


def test_a_killed_controller_leaves_no_drain_behind(fleet):
    fleet.add("a1", waits_at=["show"])
    arguments, variables = fleet.use_slurm()
    killed_at(fleet, arguments, variables)
    assert fleet.slurm("a1")[0] == "IDLE+DRAIN"
    # It may not go on: what was drained in vain is lifted, and the node keeps its place.
    assert fleet.run("rollout_control", rollout_verb="stop", rollout_reason="enough").rc == 0
    held = fleet.run("upgrade", *arguments, rollout_require_approval=True, **variables)
    assert held.rc == 2 and fleet.slurm("a1") == ("IDLE", "", [DRAIN, "resume"]), fleet.slurm("a1")
    result = fleet.run("upgrade", *arguments, **variables)
    assert result.rc == 0 and result.states == {"a1": "done"}
    assert fleet.slurm("a1") == ("IDLE", "", [DRAIN, "resume", DRAIN, "resume"])


def test_another_controller_finishes_and_lifts_the_mark_of_the_first(fleet):
    fleet.add("a1", waits_at=["health post"])
    arguments, variables = fleet.use_slurm()
    killed_at(fleet, arguments, variables)
    result = fleet.run("upgrade", *arguments, **variables)
    assert result.rc == 0 and result.states == {"a1": "done"}
    assert fleet.slurm("a1") == ("IDLE", "", [DRAIN, "resume"])
    assert fleet.read("a1")["log"].count("installed " + NEW) == 1
    assert json.loads((fleet.nodes / "a1" / "node.json").read_text())["loaded"] == NEW
