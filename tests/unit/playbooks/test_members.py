# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rollout and several controllers: a plan of its own, and jobs that join it, each with a slice of the nodes, a
directory of its own for its files, and the ledger in PostgreSQL.
"""

from __future__ import annotations

import json
import re
import signal
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import NEW, OLD, wait_for
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.members import ROLLOUT, Several
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.test_mig_rollout import HALVES

NAMES = ["a%d" % number for number in range(1, 6)]
CANARY, SLICES = NAMES[0], (NAMES[1::2], NAMES[2::2])


@pytest.fixture
def several(fleet, postgresql):
    for name in NAMES:
        fleet.add(name)
    return Several(fleet, postgresql.database("several%d" % time.monotonic_ns()))


def test_two_jobs_work_on_one_plan_within_one_budget(several):
    planned = several.plan(rollout_max_down=2, rollout_canaries=[CANARY], rollout_require_approval=True)
    assert planned.rc == 0 and several.fleet.touched() == []
    digest = re.search(r"\(plan ([0-9a-f]+)\)", planned.output).group(1)
    first = several.join("one", SLICES[0], rollout_approve=digest)
    wait_for(
        lambda: "canaries go first, and no running job has a1" in (several.fleet.directory / "output1").read_text()
    )
    assert several.fleet.touched() == []
    assert several.ledger().view().policy["approved"] == several.ledger().view().sha256
    copy = several.fleet.directory / "copy"
    rc, output = several.joined("canary", [CANARY], rollout_approve=digest, rollout_report_dir=str(copy))
    assert rc == 0, output
    assert several.verdict("canary") == "running"
    assert json.loads((copy / "report.json").read_text())["verdict"] == "running"
    assert re.search("^ *running: ", output, re.M) and "incomplete" not in output, "the other jobs are to come"
    second = several.join("two", SLICES[1], rollout_approve=digest)
    assert [several.end(process)[0] for process in (first, second)] == [0, 0]
    assert several.states() == dict.fromkeys(NAMES, "done")
    assert several.most_down() == 2
    assert [several.fleet.read(name)["log"].count("installed " + NEW) for name in NAMES] == [1] * len(NAMES)
    assert several.report().rc == 0
    assert several.verdict("report") == "complete", "also a controller that had no part in it writes the report"


@pytest.mark.promise
def test_a_job_that_is_killed_stops_no_other_and_takes_its_nodes_up_again(several):
    fleet = several.fleet
    assert several.plan(rollout_max_down=4).rc == 0
    fleet.change("a2", waits_in_install=True)
    first = several.join("one", SLICES[0])
    wait_for(lambda: "waits" in fleet.read("a2")["log"])
    beside = several.joined("again", SLICES[0])
    assert beside[0] == 2 and "has its last heartbeat" not in beside[1]
    assert "hosts of a job that is running" in beside[1], beside[1]
    first.send_signal(signal.SIGKILL)
    assert several.end(first)[0] != 0
    # The slot of its node stays taken, and no other takes the node for lost.
    rc, output = several.joined("two", SLICES[1])
    assert rc == 0, output
    assert several.verdict("two") == "running", "the jobs of other nodes are to come"
    states = several.states()
    assert states["a2"] == "down" and [states[name] for name in SLICES[1]] == ["done"] * len(SLICES[1])
    assert several.most_down() <= 4
    unfinished = several.report()
    assert unfinished.rc == 2, "the report is of the whole"
    assert several.verdict("report") == "incomplete" and "Run the jobs that have them" in unfinished.output
    fleet.change("a2", waits_in_install=False)
    rc, output = several.joined("one", SLICES[0])
    assert rc == 0, output
    assert several.states() == dict(dict.fromkeys(NAMES, "done"), a1="pending")
    rc, output = several.joined("canary", [CANARY])
    assert rc == 0, output
    assert several.report().rc == 0
    assert several.verdict("report") == "complete", "it was incomplete when this controller wrote it first"
    assert [fleet.read(name)["log"].count("installed " + NEW) for name in NAMES] == [1] * len(NAMES)


def test_a_failure_in_one_job_stops_all_of_them_and_each_speaks_of_its_own_nodes(several):
    fleet = several.fleet
    fleet.change("a2", sick_with=[NEW])
    assert several.plan(rollout_max_down=1).rc == 0
    fleet.change("a1", waits_in_install=True)
    first = several.join("one", [CANARY])
    wait_for(lambda: "waits" in fleet.read("a1")["log"])
    second = several.join("two", SLICES[0])
    fleet.change("a1", waits_in_install=False)
    assert several.end(first)[0] == 0, "all of its nodes are done"
    rc, output = several.end(second)
    assert rc == 2 and "the failure budget of 1 is spent by a2" in output
    assert several.verdict("two") == "failed", "none is running, and none will start"
    rc, output = several.joined("three", SLICES[1])
    assert rc == 2 and fleet.touched() == ["a1", "a2"]
    states = several.states()
    assert (states["a1"], states["a2"]) == ("done", "rolled_back")
    assert set(states.values()) == {"done", "rolled_back", "pending"}
    running = fleet.run(
        "rollout_control", rollout_id=ROLLOUT, rollout_verb="end", rollout_reason="x", **several.arguments("x")
    )
    assert running.rc == 0 and several.ledger().view().finished
    ended = several.joined("three", SLICES[1])
    assert ended[0] == 2 and "cannot be joined any more" in ended[1]


def test_a_slice_without_nodes_of_the_plan_ends_well_and_check_mode_joins_nothing(several):
    assert several.plan("--limit", "a1,a2").rc == 0
    for who, only in (("none", []), ("other", ["a5"])):
        rc, output = several.joined(who, only)
        assert rc == 0, output
    assert "not in the plan: a5" in output
    before = several.ledger().controllers()[2]
    rc, output = several.joined("check", ["a1", "a5"], "--check")
    assert rc == 0 and "1. a1" in output and "each node would go through" in output, output
    assert several.ledger().controllers()[2] == before and len(before) == 1
    assert several.fleet.touched() == [] and several.states() == {"a1": "pending", "a2": "pending"}


def test_a_driver_with_a_layout_and_their_rollback_are_planned_once_and_done_by_two_jobs(several):
    """a1, the canary, had no MIG; a2 had another layout; a3 cannot have the new one and a4 is sick with the new driver:
    both get back what they had. a5 has the layout already. The jobs know of no layout and no rollback. What an
    installation left half done on a2 does not keep it from going back.
    """
    fleet = several.fleet
    for name, fields in (
        ("a2", {"mig_devices": 7}),
        ("a3", {"mig_devices": 7, "cannot_have": [2]}),
        ("a4", {"sick_with": [NEW]}),
        ("a5", {"mig_devices": 2}),
    ):
        fleet.change(name, **fields)
    several.rollout = "mig-halves-" + NEW
    planned = several.plan(
        playbook="plan_mig",
        nvidia_mig_config="halves",
        nvidia_mig_configs=HALVES,
        rollout_version=NEW,
        rollout_max_down=5,
        rollout_failure_budget=9,
        rollout_canaries=[CANARY],
        rollout_require_approval=True,
    )
    assert planned.rc == 0 and fleet.touched() == [], planned.output
    approval = {"rollout_approve": several.ledger().view().sha256}
    assert several.joined("canary", [CANARY], **approval)[0] == 0
    jobs = [several.join(who, part, **approval) for who, part in zip(("one", "two"), SLICES)]
    assert [several.end(job)[0] for job in jobs] == [2, 2], "each has a node that failed"
    assert several.states() == {"a1": "done", "a2": "done", "a3": "rolled_back", "a4": "rolled_back", "a5": "done"}

    def running():
        return {name: (fleet.read(name)["loaded"], fleet.read(name).get("mig_now", 0)) for name in fleet.names}

    brought = {"a1": (NEW, 2), "a2": (NEW, 2), "a3": (OLD, 7), "a4": (OLD, 0), "a5": (NEW, 2)}
    assert running() == brought
    fleet.change("a2", half_done=True)
    several.rollout = "rollback-" + several.rollout
    planned = several.plan(playbook="plan_rollback", rollback_hosts="a1,a2,a5", rollout_version="", rollout_max_down=3)
    assert planned.rc == 0 and running() == brought, planned.output
    parts = (("one", ["a1", "a5"]), ("two", ["a2"]))
    jobs = [several.join(who, part, rollout_version="") for who, part in parts]
    assert [several.end(job)[0] for job in jobs] == [0, 0]
    assert running() == {"a1": (OLD, 0), "a2": (OLD, 7), "a3": (OLD, 7), "a4": (OLD, 0), "a5": (OLD, 2)}
    assert several.report().rc == 0 and several.verdict("report") == "complete"
