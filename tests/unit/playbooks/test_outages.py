# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout may never exceed while what it needs is away: a module that hangs, a full disk, a database that is
gone, another controller.
"""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import wait_for
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.test_failure_matrix import (
    DOWN,
    NAMES,
    NEW,
    PATIENCE,
    all_of,
    within,
)


def test_a_hung_module_holds_its_slot_and_nothing_else(fleet):
    all_of(fleet)
    fleet.change("a1", hangs_in_install=True)
    fleet.change("a2", sick_with=[NEW])
    process = fleet.start("upgrade", rollout_max_down=DOWN, rollout_failure_budget=1, **PATIENCE)
    try:
        wait_for(lambda: fleet.recorded().get("a2") == "rolled_back")
        process.log.seek(0)
        wait_for(
            lambda: "a4: stop (the failure budget of 1 is spent by a2)" in (fleet.directory / "output0").read_text()
        )
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=1800)
    finally:
        process.kill()
        process.wait()
        process.log.close()
        fleet.change("a1", hangs_in_install=False)
    assert process.returncode != 0
    within(fleet, 1)
    assert fleet.recorded() == {"a1": "down", "a2": "rolled_back", "a3": "pending", "a4": "pending"}


def test_a_node_that_hangs_while_the_rollout_is_planned_keeps_no_other_from_its_turn(fleet):
    """The short timeout is the hanging node's own: however busy the machine is, the other has time."""
    fleet.add("a1", waits_at=["claim read"])
    fleet.add("a2")
    fleet.variables = {"a1": {"gpufleet_answer_timeout": 5}}
    try:
        result = fleet.run("upgrade", rollout_max_down=2, rollout_failure_budget=3)
    finally:
        fleet.change("a1", waits_at=[])
    assert (result.rc, result.states) == (2, {"a1": "lost", "a2": "done"})
    assert "did not answer before the rollout" in result.report["nodes"]["a1"]["reason"]
    assert "no answer within 5 s (gpufleet_answer_timeout)" in result.report["nodes"]["a1"]["reason"]
    assert "a1" not in fleet.went()


def test_a_node_that_hangs_in_a_step_keeps_no_other_from_its_turn(fleet):
    fleet.add("a1", hangs_in_install=True)
    fleet.add("a2")
    fleet.variables = {
        "a1": {"gpu_node_upgrade_step_timeout": 30, "gpufleet_answer_timeout": 30, "gpu_node_upgrade_prestage": False}
    }
    try:
        result = fleet.run("upgrade", rollout_max_down=2, rollout_failure_budget=3)
    finally:
        fleet.change("a1", hangs_in_install=False)
    assert result.rc == 2 and result.states["a2"] == "done" and result.states["a1"] in ("quarantined", "lost")


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
    names = NAMES[:DOWN]
    all_of(fleet, names)
    fleet.change("a1", waits_in_install=True)
    with fleet.going("upgrade", rollout_max_down=1, rollout_failure_budget=1, **PATIENCE) as process:
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
        fill(small_disk)
        fleet.change("a1", waits_in_install=False)
        process.wait(timeout=1800)
    assert process.returncode in (2, 4)
    assert "disk is full" in process.output
    (small_disk / "filler").unlink()
    assert fleet.touched() == ["a1"]
    assert fleet.recorded() == {"a1": "down", "a2": "pending"}

    result = fleet.run("upgrade", rollout_max_down=4, **PATIENCE)
    assert result.rc == 0
    assert fleet.recorded() == dict.fromkeys(names, "done")
    assert "a1: driver 1.0.1 -> 2.0.1, was in flight when its run was interrupted" in result.output


@contextlib.contextmanager
def in_the_place_of(postgresql):
    """The server is away, and whoever asks for it is counted: {process: number of times}."""
    asked = collections.Counter()
    postgresql.stop()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(postgresql.base, ".s.PGSQL.5432"))
            listener.listen(64)

            def count():
                with contextlib.suppress(OSError):
                    while True:
                        with listener.accept()[0] as connection:
                            asked[
                                struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
                            ] += 1

            thread = threading.Thread(target=count, daemon=True)
            thread.start()
            try:
                yield asked
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()
    finally:
        os.unlink(os.path.join(postgresql.base, ".s.PGSQL.5432"))
        postgresql.start()


def test_the_database_is_gone_while_nodes_are_at_work(fleet, postgresql):
    """As long as it takes until each process that needs it has asked for it so often that it asks no less often any
    more.
    """
    url = postgresql.database("course%d" % time.monotonic_ns())
    names = NAMES[:DOWN]
    all_of(fleet, names)
    fleet.change("a1", waits_in_install=True)
    with fleet.going("upgrade", rollout_max_down=1, rollout_ledger=url, **PATIENCE) as process:
        wait_for(lambda: "waits" in fleet.read("a1")["log"])
        with in_the_place_of(postgresql) as asked:
            fleet.change("a1", waits_in_install=False)
            # Pauses from 0.05 s on, each twice as long as the one before, and 2 s at most: 8 times, in 5 s and more.
            wait_for(lambda: sum(number >= 8 for number in list(asked.values())) == len(names))
            assert process.poll() is None, "it gave up"
            assert fleet.touched() == ["a1"] and fleet.read("a1")["boots"] == 0, (
                "no step is taken that is not written down"
            )
        process.wait(timeout=1800)
    assert process.returncode == 0
    assert fleet.recorded(url) == dict.fromkeys(names, "done")
    assert all(fleet.read(name)["log"].count("installed " + NEW) == 1 for name in names)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_of_two_that_start_at_once_exactly_one_runs(fleet, database, request):
    url = (
        request.getfixturevalue("postgresql").database("both%d" % time.monotonic_ns())
        if database == "postgresql"
        else ""
    )
    for name in NAMES[:2]:
        fleet.add(name)
    both = [fleet.start("upgrade", rollout_max_down=1, rollout_ledger=url, **PATIENCE) for dummy in range(2)]
    try:
        codes = [process.wait(timeout=1800) for process in both]
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
    assert os.geteuid() == 0 and shutil.which("mount"), (
        "the full disk is a file system of its own: run these tests as root"
    )
