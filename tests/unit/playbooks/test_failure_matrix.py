# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout may never exceed, whatever goes wrong: after the first bad node no more than the failure budget less one and those in flight go.

Each course says which nodes went, the exit status, what the ledger says of every node, and the reason that people read.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._rollout import conftest as ledger_tests

# The server of the ledger's own tests; pytest takes a fixture by the name under which it stands here.
postgresql = ledger_tests.postgresql

OLD, NEW = "1.0.1", "2.0.1"
NAMES = ("a1", "a2", "a3", "a4")
DOWN = 2
# Nodes that wait ask anew every few seconds: often enough to learn of a lost node, and seldom enough to leave the machine to those that work.
PATIENCE = {"gpu_node_upgrade_gate_patience": 3, "gpu_node_upgrade_gate_patience_max": 6}
BUDGET = r"stop \(the failure budget of [23] is spent by a[12]"


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.2)


def all_of(fleet, **fields):
    for name in NAMES:
        fleet.add(name, **fields)


def within(fleet, budget):
    """The limit itself, for fleets whose first node is bad."""
    assert len(fleet.went()) <= budget - 1 + DOWN
    assert set(fleet.touched()) <= set(fleet.went())


@pytest.mark.parametrize(
    ("fields", "budget", "state", "reason", "stopped"),
    [
        pytest.param(
            {"unreachable_at": "gpu_health"}, 2, "lost", "stopped answering, or its tasks broke off, in step evidence", BUDGET, id="unreachable at once"
        ),
        pytest.param({"dies_with": [NEW]}, 3, "lost", "and then it could not be reached", BUDGET, id="unreachable after reboot"),
        pytest.param(
            {"half_installs": [NEW], "cannot_install": [OLD]}, 3, "quarantined", "the build of 2.0.1 failed; it was not put back",
            r"stop \(a[12], a[12] failed in the same way \(install: the build of ", id="failure inside a rescue"
        ),
        pytest.param({"sick_with": [NEW]}, 2, "rolled_back", "GPU 3 does not answer with driver 2.0.1", BUDGET, id="every host failing"),
    ],
)
def test_when_all_nodes_are_bad_in_the_same_way(fleet, fields, budget, state, reason, stopped):
    all_of(fleet, **fields)
    result = fleet.run("upgrade", rollout_max_down=DOWN, rollout_failure_budget=budget, **PATIENCE)
    assert result.rc in (2, 4)
    within(fleet, budget)
    assert fleet.recorded() == {name: state if name in fleet.went() else "pending" for name in NAMES}
    assert set(fleet.went()) == {"a1", "a2"}
    assert all(reason in result.report["nodes"][name]["reason"] for name in fleet.went())
    assert result.report["verdict"] == "failed" and result.states == fleet.recorded()
    assert re.search(stopped, result.output)


def test_failed_and_unreachable_in_the_same_step(fleet):
    all_of(fleet)
    fleet.change("a1", cannot_install=[NEW])
    fleet.change("a2", unreachable_at="driver_packages")
    # Without the work beforehand, in which the one would be lost before the other goes down.
    result = fleet.run("upgrade", rollout_max_down=DOWN, rollout_failure_budget=2, gpu_node_upgrade_prestage=False, **PATIENCE)
    assert result.rc in (2, 4)
    within(fleet, 2)
    states = fleet.recorded()
    assert (states["a1"], states["a2"]) == ("rolled_back", "lost")
    assert {states[name] for name in NAMES if name not in fleet.went()} == {"pending"}
    assert {"a1", "a2"} <= set(fleet.went()) and states["a4"] == "pending"
    reasons = {name: result.report["nodes"][name]["reason"] for name in ("a1", "a2")}
    assert "the build of 2.0.1 failed" in reasons["a1"] and "in step install" in reasons["a2"]
    assert "stop (the failure budget of 2 is spent by a" in result.output


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_signal_ends_it_and_the_next_run_goes_on(fleet, number):
    all_of(fleet, waits_in_install=True)
    process = fleet.start("upgrade", rollout_max_down=DOWN, rollout_failure_budget=2, **PATIENCE)
    try:
        wait_for(lambda: "waits" in fleet.read("a1")["log"] and "waits" in fleet.read("a2")["log"])
        process.send_signal(number)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        process.log.close()
    assert process.returncode != 0
    assert fleet.recorded() == {"a1": "down", "a2": "down", "a3": "pending", "a4": "pending"}
    assert fleet.touched() == ["a1", "a2"]
    for name in NAMES:
        fleet.change(name, waits_in_install=False)
    wait_for(lambda: not left_behind(fleet), 60)
    assert fleet.touched() == ["a1", "a2"], "nobody went on behind the controller's back"
    # Somebody booted the first one meanwhile: it is where it was meant to go, and lacks its service alone.
    fleet.change("a1", loaded=NEW, disk=NEW, running=[], boots=1)

    result = fleet.run("upgrade", rollout_max_down=4, rollout_failure_budget=2, **PATIENCE)
    assert result.rc == 0
    assert fleet.recorded() == dict.fromkeys(NAMES, "done")
    assert "a1: driver 1.0.1 -> 2.0.1, was in flight when its controller died" in result.output
    assert [fleet.read(name)["log"].count("reboot into " + NEW) for name in NAMES] == [0, 1, 1, 1], "none was upgraded twice"
    assert all(fleet.read(name)["running"] == ["nvidia-persistenced.service"] for name in NAMES)


def left_behind(fleet):
    """Processes that work on a node of this fleet: the modules that a killed controller left there."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as stream:
                if b"GPUFLEET_STUB_NODE=%s/" % os.fsencode(fleet.nodes) in stream.read():
                    found.append(pid)
        except OSError:
            continue
    return found


def test_a_hung_module_holds_its_slot_and_nothing_else(fleet):
    all_of(fleet)
    fleet.change("a1", hangs_in_install=True)
    fleet.change("a2", sick_with=[NEW])
    process = fleet.start("upgrade", rollout_max_down=DOWN, rollout_failure_budget=1, **PATIENCE)
    try:
        wait_for(lambda: fleet.recorded().get("a2") == "rolled_back")
        process.log.seek(0)
        wait_for(lambda: "a4: stop (the failure budget of 1 is spent by a2)" in (fleet.directory / "output0").read_text())
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        process.log.close()
        fleet.change("a1", hangs_in_install=False)
    assert process.returncode != 0
    within(fleet, 1)
    assert fleet.recorded() == {"a1": "down", "a2": "rolled_back", "a3": "pending", "a4": "pending"}


@pytest.fixture
def small_disk(fleet):
    """The controller's artifacts on a disk of their own, of 4 MB."""
    fleet.artifacts.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(fleet.artifacts)], check=True)
    try:
        yield fleet.artifacts
    finally:
        subprocess.run(["umount", str(fleet.artifacts)], check=True)


def fill(directory):
    with open(directory / "filler", "wb", buffering=0) as stream:
        for size in (65536, 512):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                continue


def test_a_full_disk_on_the_controller(fleet, small_disk):
    all_of(fleet)
    fleet.change("a1", waits_in_install=True)
    process = fleet.start("upgrade", rollout_max_down=1, rollout_failure_budget=1, **PATIENCE)
    try:
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
        fill(small_disk)
        fleet.change("a1", waits_in_install=False)
        process.wait(timeout=180)
    finally:
        process.kill()
        process.wait()
        process.log.close()
    output = (fleet.directory / "output0").read_text()
    print(output)
    assert process.returncode in (2, 4)
    assert "disk is full" in output
    (small_disk / "filler").unlink()
    assert fleet.touched() == ["a1"]
    assert fleet.recorded() == {"a1": "down", "a2": "pending", "a3": "pending", "a4": "pending"}

    result = fleet.run("upgrade", rollout_max_down=4, **PATIENCE)
    assert result.rc == 0
    assert fleet.recorded() == dict.fromkeys(NAMES, "done")
    assert "a1: driver 1.0.1 -> 2.0.1, was in flight when its controller died" in result.output


def test_the_database_is_gone_for_half_a_minute(fleet, postgresql):
    url = postgresql.database("course%d" % time.monotonic_ns())
    all_of(fleet)
    fleet.change("a1", waits_in_install=True)
    process = fleet.start("upgrade", rollout_max_down=1, rollout_ledger=url, **PATIENCE)
    try:
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
        postgresql.stop()
        fleet.change("a1", waits_in_install=False)
        time.sleep(30)
        assert process.poll() is None, "it gave up"
        assert fleet.touched() == ["a1"] and fleet.read("a1")["boots"] == 0, "no step is taken that is not written down"
        postgresql.start()
        process.wait(timeout=300)
    finally:
        if postgresql.process is None:
            postgresql.start()
        process.kill()
        process.wait()
        process.log.close()
    print((fleet.directory / "output0").read_text())
    assert process.returncode == 0
    assert fleet.recorded(url) == dict.fromkeys(NAMES, "done")
    assert all(fleet.read(name)["log"].count("installed " + NEW) == 1 for name in NAMES)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_of_two_that_start_at_once_exactly_one_runs(fleet, database, request):
    url = request.getfixturevalue("postgresql").database("both%d" % time.monotonic_ns()) if database == "postgresql" else ""
    for name in NAMES[:2]:
        fleet.add(name)
    both = [fleet.start("upgrade", rollout_max_down=1, rollout_ledger=url, **PATIENCE) for dummy in range(2)]
    try:
        codes = [process.wait(timeout=300) for process in both]
    finally:
        for process in both:
            process.kill()
            process.wait()
            process.log.close()
    outputs = [(fleet.directory / ("output%d" % number)).read_text() for number in range(2)]
    assert sorted(codes) == [0, 2]
    winner, loser = codes.index(0), codes.index(2)
    assert "is being run by process %d" % both[winner].pid in outputs[loser]
    assert fleet.recorded(url) == {"a1": "done", "a2": "done"}
    assert all(fleet.read(name)["log"].count("installed " + NEW) == 1 for name in NAMES[:2])


def test_the_machines_that_run_this_can_do_it():
    """A course that cannot be tried is no course that went well."""
    assert os.geteuid() == 0 and shutil.which("mount"), "the full disk is a file system of its own: run these tests as root"
