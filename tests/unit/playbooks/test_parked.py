# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout with the callback many_nodes: the same course, and nobody holds a worker who only waits."""

from __future__ import annotations

import signal
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.tools import workers
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import conftest, host_tasks, test_failure_matrix
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.test_upgrade_course import ALL_STEPS, NEW, wait_for


@pytest.fixture(name="parked")
def _parked(fleet):
    fleet.environment["ANSIBLE_CALLBACKS_ENABLED"] = "gpufleet.lifecycle.hosttasks,gpufleet.lifecycle.many_nodes"
    return fleet


@pytest.mark.cores
def test_nodes_go_the_same_way_in_as_many_tasks_and_hold_no_worker_while_they_wait(parked):
    parked.add("a1", waits_in_install=True)
    parked.add("a2")
    process = parked.start("upgrade", gpu_node_upgrade_gate_patience=3600, gpu_node_upgrade_gate_patience_max=3600, **parked.install_for_real())
    try:
        wait_for(lambda: "waits" in parked.read("a1")["log"])
        # One installs, and one waits for its turn.
        seen, deadline = [], time.monotonic() + 600
        while seen[-3:] != [0, 0, 0]:
            assert time.monotonic() < deadline, "there were always workers: %s" % seen
            seen.append(len(workers.of(process.pid)))
            time.sleep(0.1)
        parked.change("a1", waits_in_install=False)
        process.wait(timeout=1800)
    finally:
        output = parked.ended(process)
    assert process.returncode == 0 and "complete: 2 done" in output
    counted = conftest.Result(parked, process, output).host_tasks
    assert not host_tasks.too_many(counted, parked.names), host_tasks.too_many(counted, parked.names)
    for name in ("a1", "a2"):
        did = [entry for entry in parked.read(name)["log"] if entry.startswith(("installed", "reboot"))]
        assert did == ["installed " + NEW, "reboot into " + NEW]
        assert [step.name for step in parked.view().nodes.get(name).steps] == ALL_STEPS


def test_a_killed_controller_leaves_what_the_next_run_goes_on_with(parked):
    test_failure_matrix.test_a_signal_ends_it_and_the_next_run_goes_on(parked, signal.SIGKILL)


def test_failed_and_unreachable_in_the_same_step_count(parked):
    test_failure_matrix.test_failed_and_unreachable_in_the_same_step(parked)


def test_nodes_that_do_not_come_back_from_their_reboot_count(parked):
    test_failure_matrix.test_when_all_nodes_are_bad_in_the_same_way(
        parked, {"dies_with": [NEW]}, 3, "lost", "and then it could not be reached", test_failure_matrix.BUDGET)
