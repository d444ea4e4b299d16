# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines are removed at the end of a run, and how a machine's process is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.lab import cli, demo, machines, processes
from tests.lab.config import Lab
from tests.lab.inventory import Machine


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A lab that down() empties; `lab.present` are its machines."""
    found = Lab(checkout=tmp_path, cache=tmp_path / "cache", number=3)
    calls = []
    monkeypatch.setattr(machines, "need_root", lambda: None)
    monkeypatch.setattr(machines, "existing", lambda _lab: present)
    present = {}

    def down(_lab):
        calls.append("down")
        present.clear()
        found.temporary.unlink(missing_ok=True)

    monkeypatch.setattr(machines, "down", down)
    return found, present, calls


@pytest.mark.parametrize(("words", "left"), [([], []), (["--keep"], ["n1"])])
def test_demo_removes_its_machines_unless_told_to_keep_them(lab, monkeypatch, words, left):
    here, present, _calls = lab
    monkeypatch.setattr(cli.config, "current", lambda: here)
    monkeypatch.setattr(demo, "run", lambda _lab: present.update(n1=Machine("n1", 101)) or 0)
    assert cli.main(["demo", *words]) == 0
    assert list(present) == left


@pytest.mark.parametrize("end", [None, KeyboardInterrupt(), SystemExit(143), ValueError()])
def test_machines_of_a_run_are_removed_however_it_ends(lab, end):
    here, present, calls = lab
    try:
        with machines.temporary(here, keep=False):
            present["n1"] = Machine("n1", 101)
            assert here.temporary.exists() and calls == []
            if end:
                raise end
    except (KeyboardInterrupt, SystemExit, ValueError) as error:
        assert error is end
    assert calls == ["down"] and not here.temporary.exists()


def test_interruption_does_not_end_the_removal(lab, monkeypatch):
    here, _present, calls = lab
    before = {number: signal.getsignal(number) for number in machines.STOPPING}

    def down(_lab):
        for number in machines.STOPPING:
            os.kill(os.getpid(), number)
        calls.append("whole")

    monkeypatch.setattr(machines, "down", down)
    with machines.temporary(here, keep=False):
        pass
    assert calls == ["whole"]
    assert {number: signal.getsignal(number) for number in machines.STOPPING} == before


@pytest.mark.parametrize(("keep", "there"), [(True, False), (False, True)])
def test_machines_that_are_kept_or_were_there_before_stay(lab, keep, there):
    here, present, calls = lab
    present.update({"n1": Machine("n1", 101)} if there else {})
    with machines.temporary(here, keep=keep):
        pass
    assert calls == []


@pytest.mark.parametrize("keep", [True, False])
def test_what_a_killed_run_left_is_removed_first(lab, keep):
    here, present, calls = lab
    present["n1"] = Machine("n1", 101)
    here.temporary.parent.mkdir(parents=True)
    here.temporary.touch()
    with machines.temporary(here, keep=keep):
        assert calls == ["down"] and present == {}
    assert calls == ["down"] * (1 if keep else 2)


def test_process_is_found_while_it_executes_another_program():
    """A shell that executes itself all the time, which leaves it without an environment for moments."""
    tag = "test:%d" % os.getpid()
    script = 'exec "$0" -c "$1" "$0" "$1"'
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "/bin/sh", script], env={processes.MARK: tag}, stderr=subprocess.DEVNULL
    ) as child:
        try:
            until = time.monotonic() + 1
            while time.monotonic() < until:
                assert f"{processes.MARK}={tag}".encode() in processes.environment_of(child.pid)
            assert child.pid in processes.tagged(tag, whole=True)
        finally:
            child.kill()


def test_supervisor_that_ended_ends_the_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(machines, "system_state", lambda _lab, _name: "off")
    lab = Lab(checkout=tmp_path, cache=tmp_path, number=3)
    with subprocess.Popen([sys.executable, "-c", ""]) as keeper:
        with pytest.raises(machines.LabError, match="n1 did not come up"):
            machines.wait_for(lab, Machine("n1", 101), keeper, time.monotonic())
