# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The failure matrix and the resumption of a rollout, with two controllers that each have every second node."""

from __future__ import annotations

import signal
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import members, test_failure_matrix, test_resume
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import wait_for
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.members import ROLLOUT


@pytest.fixture
def fleet(tmp_path, modules, shared, postgresql):
    found = members.Members(tmp_path, modules, shared)
    found.url = postgresql.database("members%d" % time.monotonic_ns())
    return found


@pytest.mark.parametrize(
    ("fields", "budget", "state", "reason", "stopped"),
    [pytest.param(*one.values, id=one.id) for one in test_failure_matrix.BAD],
)
def test_when_all_nodes_are_bad_in_the_same_way(fleet, fields, budget, state, reason, stopped):
    test_failure_matrix.bad_in_the_same_way(fleet, fields, budget, state, reason, stopped)


def test_failed_and_unreachable_in_the_same_step(fleet):
    # Canaries, so that these two go first, whichever job joins first.
    canaries = {"rollout_canaries": ["a1", "a2"], "rollout_canary_failures": 2}
    test_failure_matrix.failed_and_unreachable_in_the_same_step(fleet, **canaries)


def test_both_go_on_wherever_both_were_killed(fleet):
    courses = test_resume.COURSES
    policy = test_resume.wait_in_every_step(fleet, courses)
    assert fleet.plan(**policy).rc == 0
    jobs = [fleet.join(part, **policy) for part in fleet.parts()]
    before = test_resume.killed_in_every_step(fleet, jobs, fleet.url, courses)
    ended = fleet.both(**policy)
    assert [rc for rc, dummy_output in ended] == [2, 2]
    report = fleet.several().report()
    reasons = {name: node["reason"] for name, node in report.report["nodes"].items()}
    test_resume.every_node_came_to_its_end(fleet, fleet.recorded(), reasons, before, courses)


def test_a_planner_that_is_killed_leaves_no_half_of_a_plan(fleet):
    for name in ("a1", "a2"):
        fleet.add(name)
    fleet.change("a2", waits_at=["claim read"])
    planner = fleet.start("plan", rollout_ledger=fleet.url)
    try:
        wait_for(lambda: "waits" in fleet.read("a2")["log"] or planner.poll() is not None)
        planner.send_signal(signal.SIGKILL)
    finally:
        fleet.ended(planner)
        fleet.change("a2", waits_at=[])
    wait_for(lambda: not fleet.at_work())
    assert fleet.view().run is None
    job = fleet.join(["a1"])
    job.wait(timeout=1800)
    assert "There is no plan of rollout " + ROLLOUT in fleet.ended(job) and job.returncode == 2
    assert fleet.plan().rc == 0
    assert [rc for rc, dummy_output in fleet.both()] == [0, 0]
    assert fleet.recorded() == {"a1": "done", "a2": "done"}
