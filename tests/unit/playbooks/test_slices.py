# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workflow of a rollout in slices: its jobs as ansible-runner sends them to a worker, with inventories cut as AWX
cuts them, on stand-in nodes. No AWX takes part.
"""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.tests.unit.awx import data
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import awxrunner
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import NEW, OLD, wait_for
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.members import ROLLOUT, Several

PLAN, CANARIES, SLICES = (
    "gpufleet plan for several controllers",
    "gpufleet upgrade of the canaries",
    "gpufleet upgrade in slices",
)
NAMES = ["a%d" % number for number in range(1, 8)]
# With the hosts login and store, which come after the nodes: a1 a4 a7, a2 a5 login, a3 a6 store.
PARTS = [(number, 3) for number in (1, 2, 3)]
DOWN = 2


@pytest.fixture
def awx(fleet, postgresql):
    """A fleet in Slurm. Slurm's commands and the files are on hosts that two of three slices lack."""
    for name in NAMES:
        fleet.add(name)
    login, variables = fleet.use_slurm()
    inner = json.loads(open(login[1], encoding="utf-8").read())["all"]["hosts"]
    found = awxrunner.Awx(fleet, data.AWX / "project", data.named("controller_templates"))
    found.services = dict(inner, store=dict(awxrunner.HERE))
    found.variables = dict(
        variables,
        rollout_ledger=postgresql.database("slices%d" % time.monotonic_ns()),
        gpufleet_artifact_host="store",
        gpufleet_service_hosts=found.services,
    )
    return found


def test_a_workflow_of_canaries_and_slices_goes_on_when_one_dies_and_the_database_restarts(awx, postgresql):
    fleet = awx.fleet
    several = Several(fleet, awx.variables["rollout_ledger"])
    answers = {
        "rollout_version": NEW,
        "upgrade_hosts": ",".join(NAMES),  # of which a slice has some
        "rollout_max_down": str(DOWN),
        "rollout_failure_budget": "1",
        "rollout_canaries_per_stratum": 1,
        "rollout_canary_soak_s": 0,
        "rollout_on_failure": "rollback",
        "rollout_abandon": "",
    }

    def job(name, *arguments, **more):
        return awx.run(name, *arguments, workflow=answers, **more)

    planned = job(PLAN)
    assert planned.rc == 0 and planned.changed() == []
    handed = planned.artifacts
    canary = several.ledger().view().nodes.canaries()[0].name
    assert set(handed) == {"rollout_id", "rollout_approve", *_variable_names.HANDED_ON}
    assert [name for name in NAMES if any(". %s: driver " % name in line for line in handed["rollout_table"])] == NAMES
    unapproved = job(CANARIES, dict(handed, rollout_approve=""))
    assert unapproved.rc != 0 and "plan is not approved" in unapproved.words and fleet.touched() == []
    lacking = job(CANARIES, handed, part=(PARTS[0] if canary not in NAMES[0::3] else PARTS[1]))
    assert lacking.rc != 0 and canary in lacking.words and "not all of them" in lacking.words
    first = job(CANARIES, handed)
    assert (first.rc, fleet.touched()) == (0, [canary])

    slow = next(name for name in NAMES[0::3] if name != canary)
    fleet.change(slow, waits_in_install=True)
    running = [awx.start(SLICES, handed, part=part, workflow=answers) for part in PARTS]
    try:
        wait_for(lambda: "waits" in fleet.read(slow)["log"])
        postgresql.stop()
        time.sleep(3)
        postgresql.start()
        running[0].kill()
        others = [one.end() for one in running[1:]]
    finally:
        for one in running:
            one.kill()
    assert [other.rc for other in others] == [0, 0], [other.output for other in others]
    states = several.states()
    assert {name: states[name] for part in (1, 2) for name in NAMES[part::3]} == dict.fromkeys(
        NAMES[1::3] + NAMES[2::3], "done"
    )
    assert states[slow] == "down", "it keeps its slot"
    assert awx.run("gpufleet report", handed).rc != 0, "the report is of the whole"

    fleet.change(slow, waits_in_install=False)
    again = awx.run(SLICES, handed, part=PARTS[0], workflow=answers)
    assert again.rc == 0, again.output
    assert several.states() == dict.fromkeys(NAMES, "done") and several.most_down() == DOWN
    assert [fleet.read(name)["log"].count("installed " + NEW) for name in NAMES] == [1] * 7
    for name in NAMES:
        state, dummy, log = fleet.slurm(name)
        assert state == "IDLE" and log[-1] == "resume" and log.count("resume") == 1
    assert awx.run("gpufleet report", handed).rc == 0
    told = json.loads((fleet.artifacts / "reports" / ROLLOUT / "report.json").read_text())
    assert told["verdict"] == "complete" and told["counts"] == {"done": len(NAMES)}


def test_a_slice_whose_service_hosts_are_named_nowhere_is_refused_with_nothing_touched(awx):
    assert awx.run(PLAN, workflow={"rollout_version": NEW}).rc == 0
    handed = {"rollout_id": ROLLOUT}
    hosts = awx.variables.pop("gpufleet_service_hosts")
    job = awx.run(SLICES, handed, part=PARTS[0])
    assert job.rc != 0 and "gpu_scheduler_slurm_host" in job.words and "gpufleet_service_hosts" in job.words
    awx.variables["gpufleet_service_hosts"] = {"login": hosts["login"], "store": {"ansible_password": "opensesame"}}
    job = awx.run(SLICES, handed, part=PARTS[0])
    assert job.rc != 0 and "ansible_password" in job.words and "opensesame" not in job.words
    awx.variables["gpufleet_service_hosts"] = hosts
    job = awx.run(SLICES, dict(handed, rollout_approve=""), part=PARTS[0], workflow={"upgrade_hosts": "all"})
    assert "joined with 3 of 7 nodes" in job.words and "not in the plan" not in job.words, "no host is a node by this"
    assert awx.fleet.touched() == [] and {awx.fleet.read(name)["loaded"] for name in NAMES} == {OLD}
