# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout may never exceed, whatever goes wrong: after the first bad node no more than the failure budget less
one and those in flight go.

Each course says which nodes went, the exit status, what the ledger says of every node, and the reason that people read.
How hosts that fail or cannot be reached are counted, and what a signal does, is Ansible's: these are tried on the
oldest and the newest ansible-core.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import wait_for

OLD, NEW = "1.0.1", "2.0.1"
NAMES = ("a1", "a2", "a3", "a4")
DOWN = 2
# What the newest ansible-core tries too; the oldest tries all of them.
ALSO_NEWEST = pytest.mark.cores
PROMISE = pytest.mark.promise
# Nodes that wait ask anew every few seconds: often enough to learn of a lost node, and seldom enough to leave the
# machine to those that work.
PATIENCE = {"gpu_node_upgrade_gate_patience": 3, "gpu_node_upgrade_gate_patience_max": 6}
BUDGET = r"stop \(the failure budget of [23] is spent by a\d"


def end(process, number):
    """Signal a controller until it ends, as somebody would who presses Ctrl-C again: Python drops an exception that is
    raised while a process forks (os.register_at_fork), and with it the signal that raised it.
    """
    deadline = time.monotonic() + 1800
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)


def all_of(fleet, names=NAMES, **fields):
    for name in names:
        fleet.add(name, **fields)


def within(fleet, budget):
    """The limit itself, for fleets whose first node is bad."""
    assert len(fleet.went()) <= budget - 1 + DOWN
    assert set(fleet.touched()) <= set(fleet.went())


BAD = [
    pytest.param(
        {"unreachable_at": "gpu_health"},
        2,
        "lost",
        "stopped answering, or its tasks were interrupted, in step evidence",
        BUDGET,
        id="unreachable at once",
        marks=[ALSO_NEWEST, PROMISE],
    ),
    pytest.param(
        {"dies_with": [NEW]}, 3, "lost", "and then it could not be reached", BUDGET, id="unreachable after reboot"
    ),
    pytest.param(
        {"half_installs": [NEW], "cannot_install": [OLD]},
        3,
        "quarantined",
        "the build of 2.0.1 failed; its rollback failed",
        r"stop \(a\d, a\d failed in the same way \(install: the build of ",
        id="failure inside a rescue",
        marks=[ALSO_NEWEST, PROMISE],
    ),
    pytest.param(
        {"sick_with": [NEW]},
        2,
        "rolled_back",
        "GPU 3 does not answer with driver 2.0.1",
        BUDGET,
        id="every host failing",
    ),
]


def bad_in_the_same_way(fleet, fields, budget, state, reason, stopped):
    """All nodes are: those that may be down at once go, and no other."""
    all_of(fleet, **fields)
    result = fleet.run("upgrade", rollout_max_down=DOWN, rollout_failure_budget=budget, **PATIENCE)
    assert result.rc in (2, 4)
    within(fleet, budget)
    assert fleet.recorded() == {name: state if name in fleet.went() else "pending" for name in NAMES}
    assert len(fleet.went()) == DOWN
    assert all(reason in result.report["nodes"][name]["reason"] for name in fleet.went())
    assert result.report["verdict"] == "failed" and result.states == fleet.recorded()
    assert re.search(stopped, result.output)


@pytest.mark.parametrize(("fields", "budget", "state", "reason", "stopped"), BAD)
def test_when_all_nodes_are_bad_in_the_same_way(fleet, fields, budget, state, reason, stopped):
    bad_in_the_same_way(fleet, fields, budget, state, reason, stopped)
    assert set(fleet.went()) == {"a1", "a2"}


def failed_and_unreachable_in_the_same_step(fleet, **more):
    all_of(fleet)
    fleet.change("a1", cannot_install=[NEW])
    # Both have to be in step install. So nothing is prestaged, and a2 answers the two checks before, which call the
    # same module: of the packages before the drain, and of the package manager's lock after it.
    fleet.change("a2", unreachable_at="driver_packages", unreachable_after=2)
    result = fleet.run(
        "upgrade", rollout_max_down=DOWN, rollout_failure_budget=2, gpu_node_upgrade_prestage=False, **PATIENCE, **more
    )
    assert result.rc in (2, 4)
    within(fleet, 2)
    states = fleet.recorded()
    assert (states["a1"], states["a2"]) == ("rolled_back", "lost")
    assert {states[name] for name in NAMES if name not in fleet.went()} == {"pending"}
    assert {"a1", "a2"} <= set(fleet.went()) and states["a4"] == "pending"
    reasons = {name: result.report["nodes"][name]["reason"] for name in ("a1", "a2")}
    assert "the build of 2.0.1 failed" in reasons["a1"] and "in step install" in reasons["a2"]
    assert "stop (the failure budget of 2 is spent by a" in result.output


@ALSO_NEWEST
def test_failed_and_unreachable_in_the_same_step(fleet):
    failed_and_unreachable_in_the_same_step(fleet)


@ALSO_NEWEST
def test_a_host_that_failed_in_an_earlier_play(fleet):
    all_of(fleet)
    fleet.change("a2", sick_with=[NEW])
    (fleet.directory / "after_another.yml").write_text(
        "- hosts: gpu_nodes\n"
        "  gather_facts: false\n"
        "  tasks:\n"
        "    - ansible.builtin.fail: {msg: an earlier play failed}\n"
        "      when: inventory_hostname == 'a1'\n"
        "- ansible.builtin.import_playbook: gpufleet.lifecycle.upgrade\n"
    )
    result = fleet.run("after_another", rollout_max_down=1, **PATIENCE)
    assert result.rc in (2, 4)
    assert fleet.went() == ["a2"]
    assert fleet.recorded() == {"a1": "failed", "a2": "rolled_back", "a3": "pending", "a4": "pending"}
    assert "could not be examined: " in result.report["nodes"]["a1"]["reason"]
    assert "stop (the failure budget of 1 is spent by a2)" in result.output


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, marks=ALSO_NEWEST),
        signal.SIGINT,
        pytest.param(signal.SIGKILL, marks=PROMISE),
        signal.SIGHUP,  # the terminal or the ssh session is gone
    ],
    ids=lambda number: number.name,
)
def test_a_signal_ends_it_and_the_next_run_goes_on(fleet, number):
    names = NAMES[: DOWN + 1]
    all_of(fleet, names, waits_in_install=True)
    with fleet.going("upgrade", rollout_max_down=DOWN, rollout_failure_budget=2, **PATIENCE) as process:
        wait_for(lambda: "waits" in fleet.read("a1")["log"] and "waits" in fleet.read("a2")["log"])
        end(process, number)
    assert process.returncode != 0
    assert fleet.recorded() == {"a1": "down", "a2": "down", "a3": "pending"}
    assert fleet.touched() == ["a1", "a2"]
    for name in names:
        fleet.change(name, waits_in_install=False)
    wait_for(lambda: not fleet.at_work())
    assert fleet.touched() == ["a1", "a2"], "nobody went on behind the controller's back"
    # Somebody booted the first one meanwhile: it is where it was meant to go, and lacks its service alone.
    fleet.change("a1", loaded=NEW, disk=NEW, running=[], boots=1)

    result = fleet.run("upgrade", rollout_max_down=4, rollout_failure_budget=2, **PATIENCE)
    assert result.rc == 0
    assert fleet.recorded() == dict.fromkeys(names, "done")
    assert "a1: driver 1.0.1 -> 2.0.1, was in flight when its run was interrupted" in result.output
    assert [fleet.read(name)["log"].count("reboot into " + NEW) for name in names] == [0, 1, 1], (
        "none was upgraded twice"
    )
    assert all(fleet.read(name)["running"] == ["nvidia-persistenced.service"] for name in names)
