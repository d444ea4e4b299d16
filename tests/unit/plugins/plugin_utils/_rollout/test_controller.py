# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller as its workers know it: who it is, and that it is gone."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")
pytestmark = [pytest.mark.cores, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes of Linux")]

FORK = multiprocessing.get_context("fork")


def until(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def read(path):
    return json.loads(path.read_text()) if path.exists() else None


def write(path, what):
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(what))
    new.rename(path)


def _playbook(work, *arguments):
    """A playbook: it starts one worker, and lives until it is killed."""
    os.setsid()
    FORK.Process(target=work, args=arguments).start()
    signal.pause()


@pytest.fixture
def playbook():
    """playbook(work, argument...): the process of a playbook with one worker; all of them are ended."""
    started = []

    def start(work, *arguments):
        process = FORK.Process(target=_playbook, args=(work,) + arguments)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def _ask_twice(directory):
    """The identity of the controller, cached and read again."""
    write(directory / "first", owner.identify_process(_controller.require()))
    until((directory / "again").exists)
    try:
        write(directory / "second", owner.identify_process(_controller.require()))
    except _controller.ControllerError as exc:
        write(directory / "second", str(exc))


def test_a_worker_names_its_playbook_and_no_process_once_that_is_gone(playbook, tmp_path):
    process = playbook(_ask_twice, tmp_path)
    until(lambda: read(tmp_path / "first"))
    assert read(tmp_path / "first") == owner.identify_process(process.pid)
    kill(process)
    (tmp_path / "again").touch()
    until(lambda: read(tmp_path / "second"))
    said = read(tmp_path / "second")
    assert isinstance(said, str) and "process %d" % process.pid in said and "Nothing more was begun" in said, said


@pytest.mark.parametrize(
    "parent, ppid, mine, expected",
    [
        (40, 40, 50, 40),
        (None, 40, 50, 50),  # it is the playbook's process itself
        (40, 1, 50, None),  # orphaned
        (40, 3, 50, None),  # orphaned, with another process that takes orphans in
        (
            1,
            1,
            50,
            None,
        ),  # a container whose first process is the playbook: its worker could not tell when it is orphaned
        (None, 0, 1, None),
    ],
)
def test_who_the_controller_is(parent, ppid, mine, expected):
    assert _controller.find_controller(parent, ppid, mine)[0] == expected
    assert bool(_controller.find_controller(parent, ppid, mine)[1]) == (expected is None), "it says why"
