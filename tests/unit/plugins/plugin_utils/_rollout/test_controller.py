# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller as its workers know it: who it is, that it is gone, and that the ledger hears of it while nothing is
asked of the ledger.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
from unittest import mock

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import proc_tasks
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import watcher

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")
pytestmark = [pytest.mark.cores, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes of Linux")]

FORK = multiprocessing.get_context("fork")


def until(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def runs(pid):
    return proc_tasks.read_start(pid) is not None


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
    write(directory / "first", owner.identify(_controller.require()))
    until((directory / "again").exists)
    try:
        write(directory / "second", owner.identify(_controller.require()))
    except _controller.ControllerError as exc:
        write(directory / "second", str(exc))


def test_a_worker_names_its_playbook_and_no_process_once_that_is_gone(playbook, tmp_path):
    process = playbook(_ask_twice, tmp_path)
    until(lambda: read(tmp_path / "first"))
    assert read(tmp_path / "first") == owner.identify(process.pid)
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
    assert _controller.found(parent, ppid, mine)[0] == expected
    assert bool(_controller.found(parent, ppid, mine)[1]) == (expected is None), "it says why"


def _begin(directory, url, beat_s, several=False):
    """Plan as the task does, in a worker that ends after it; for SEVERAL controllers, and join that plan."""
    who, ledger = owner.identify(_controller.require()), Ledger(str(directory), "r1", url)
    names = ["a"]

    def work(transaction):
        owner.claim(transaction, "r1", "run1", names, who)
        nodes = {name: {"state": "pending", "from": "1", "to": "2"} for name in names}
        transaction.append(
            "plan",
            run="run1",
            rollout_id="r1",
            target="2",
            order=names,
            nodes=nodes,
            policy=limits.complete({}, 1),
            sha256="f",
        )
        if several:
            transaction.hold(members.unowned("run1", transaction.clock()))
            members.join(transaction, "m1", names, who, transaction.clock())

    ledger.transact(work)
    write(directory / "helper", watcher.start(ledger, who, "run1", every_s=beat_s))


@pytest.fixture
def begun(playbook, tmp_path, url):
    """A rollout that a playbook began and for which it does nothing more."""
    process = playbook(_begin, tmp_path, url, 0.2)
    until(lambda: read(tmp_path / "helper"))
    ledger = Ledger(str(tmp_path), "r1", url)
    yield process, read(tmp_path / "helper"), ledger
    assert not runs(read(tmp_path / "helper")), "it is left behind"


def beaten(ledger, since):
    return ledger.owner()["heartbeat"] > since


def test_the_ledger_hears_of_a_controller_whose_tasks_take_long_and_not_of_a_dead_one(begun):
    process, helper, ledger = begun
    for dummy in range(2):
        before = ledger.owner()["heartbeat"]
        until(lambda since=before: beaten(ledger, since))
    events = ledger.events()
    assert os.getsid(helper) == helper, "no signal of a terminal reaches it"
    assert {os.readlink("/proc/%d/fd/%s" % (helper, fd)) for fd in ("0", "1", "2")} == {"/dev/null"}, (
        "no process waits for the end of its output"
    )
    kill(process)
    until(lambda: not runs(helper))
    assert ledger.events() == events, "it writes nothing else"


@pytest.fixture
def joined(playbook, tmp_path, postgresql):
    """A rollout of several that a playbook joined and for which it does nothing more."""
    url = postgresql.database("t%d" % time.monotonic_ns())
    process = playbook(_begin, tmp_path, url, 0.2, True)
    until(lambda: read(tmp_path / "helper"))
    yield process, read(tmp_path / "helper"), Ledger(str(tmp_path), "r1", url)
    assert not runs(read(tmp_path / "helper")), "it is left behind"


def member(ledger):
    return ledger.rehearse(lambda transaction: transaction.members())[0]


def test_the_lease_of_a_member_is_extended_until_its_playbook_ends_and_then_its_part_ends(joined):
    process, helper, ledger = joined
    for dummy in range(2):
        before = member(ledger).until
        until(lambda since=before: member(ledger).until > since)
    events = ledger.events()
    kill(process)
    until(lambda: not runs(helper))
    assert member(ledger).ended and ledger.events() == events, "it writes nothing else"
    with pytest.raises(owner.OwnerError):
        ledger.transact(lambda transaction: members.require(transaction, "r1", owner.identify(process.pid)))


def test_the_lease_of_a_member_whose_hosts_another_one_has_is_not_extended(joined):
    process, helper, ledger = joined
    ledger.transact(lambda transaction: members.end(transaction, transaction.members()[0], "another one joined"))
    until(lambda: not runs(helper))
    assert runs(process.pid) and member(ledger).why == "another one joined"


@pytest.mark.parametrize(
    "change", [{"ended": "2026-01-01T00:00:00.000Z"}, {"broken": "kim: gone"}, {"run": "run2"}, {"owner": {"pid": 2}}]
)
def test_it_ends_with_the_run_and_with_its_lock(begun, change):
    process, helper, ledger = begun
    ledger.transact(lambda transaction: transaction.hold(dict(transaction.owner, **change)))
    until(lambda: not runs(helper))
    assert runs(process.pid)


def _plan(directory, url):
    """The task Plan itself, in a worker."""
    arguments = {
        "artifact_dir": str(directory),
        "ledger": url,
        "rollout_id": "r1",
        "target": "2.0",
        "audits": {"a": {"audit": {"versions": {"loaded": "1.0"}}}},
        "markers": {"a": {"stat": {}}},
    }
    task = mock.Mock(args=arguments, async_val=0, check_mode=False, diff=False, action="x", environment=None)
    action = rollout_plan.ActionModule(task, mock.Mock(), mock.Mock(check_mode=False), DataLoader(), mock.Mock(), None)
    action._load_name = "x"
    action._shared_loader_obj = mock.Mock()
    with mock.patch.object(
        watcher,
        "start",
        lambda ledger, who, run, textfile_dir: write(directory / "started", [ledger.rollout_id, who, run]),
    ):
        write(directory / "planned", action.run(task_vars={"inventory_hostname": "a"}))


def test_the_task_plan_leaves_it_behind(playbook, tmp_path, url):
    process = playbook(_plan, tmp_path, url)
    until(lambda: read(tmp_path / "planned"))
    assert read(tmp_path / "planned").get("failed") is None, read(tmp_path / "planned")
    assert read(tmp_path / "started") == ["r1", owner.identify(process.pid), read(tmp_path / "planned")["run"]]


def test_a_ledger_that_was_removed_is_not_created_again(playbook, tmp_path):
    where = tmp_path / "rollouts" / "ledger.sqlite"
    playbook(_begin, tmp_path, "sqlite:///%s" % where, 0.2)
    until(lambda: read(tmp_path / "helper"))
    where.unlink()
    until(lambda: not runs(read(tmp_path / "helper")))
    assert not where.exists()
