# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that closes the report of a playbook that could not do so itself."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
import sys
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.text import timestamp
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import watcher
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._rollout_report.stories import Story
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.webserver import wait_for

pytestmark = pytest.mark.cores
pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

NOW = timestamp(datetime.datetime.now(datetime.timezone.utc))


@pytest.fixture
def playbook(tmp_path):
    """A process that stands for the playbook, with its output in a file."""
    with open(tmp_path / "output", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", "import sys; print('TASK', flush=True); sys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=output,
        )
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


@pytest.fixture
def ledger(tmp_path, playbook):
    made = Ledger(str(tmp_path), "r1")
    Story("a1", "b1").go("a1", "install").write(made)
    controller = owner.identify(playbook.pid)
    made.transact(
        lambda transaction: transaction.hold({"owner": controller, "run": "run1", "time": NOW, "heartbeat": NOW})
    )
    return made


def verdict(ledger):
    with open(ledger.path("report.json"), encoding="utf-8") as stream:
        return json.load(stream)["verdict"]


def end(playbook):
    playbook.kill()
    playbook.wait()


def close(ledger, playbook):
    return watcher.close(ledger, "run1", ledger.owner()["owner"])


def test_a_run_whose_playbook_is_gone_is_told_to_be_incomplete_and_nothing_is_made_of_its_nodes(ledger, playbook):
    end(playbook)
    before = ledger.events(), ledger.owner()
    lines = close(ledger, playbook)
    assert verdict(ledger) == "incomplete" and (ledger.events(), ledger.owner()) == before
    assert (
        lines[0].startswith("Rollout r1 has not finished")
        and lines[-1] == "To continue, run the same command again: it continues rollout r1."
    )
    assert (
        any(line.startswith("a1 ") and " down " in line for line in lines)
        and "report: %s" % ledger.path("report.html") in lines
    )


def test_a_run_that_its_last_node_ended_is_closed_with_its_verdict(ledger, playbook):
    ledger.transact(
        lambda transaction: [
            transaction.append("state", run="run1", node="a1", state="rolled_back", reason="x", failure="hard"),
            transaction.append("end", run="run1"),
        ]
    )
    end(playbook)
    lines = close(ledger, playbook)
    assert verdict(ledger) == "failed" and ledger.owner()["ended"]
    assert "has not finished" not in lines[0] and lines[-1].startswith("failed: ")


@pytest.mark.parametrize("change", ["ended", "run", "owner"])
def test_a_run_that_was_closed_or_taken_over_is_none_of_its_business(ledger, playbook, change):
    record, controller = ledger.owner(), ledger.owner()["owner"]
    found = {
        "ended": dict(record, ended=NOW),
        "run": dict(record, run="run2"),
        "owner": dict(record, owner=owner.identify(os.getpid())),
    }
    ledger.transact(lambda transaction: transaction.hold(found[change]))
    end(playbook)
    assert watcher.close(ledger, "run1", controller) == [] and not os.path.exists(ledger.path("report.json"))


def test_without_a_ledger_nothing_is_made(tmp_path, playbook):
    assert watcher.close(Ledger(str(tmp_path / "none"), "r1"), "run1", owner.identify(playbook.pid)) == []
    assert not (tmp_path / "none").exists()


@pytest.fixture
def begin():
    """begin(ledger, controller, seconds between heartbeats): the process that watches the controller; it is waited for,
    as its parent is this process.
    """
    pids = []

    def start(ledger, controller, every_s=owner.HEARTBEAT_S):
        pids.append(watcher.start(ledger, controller, "run1", every_s=every_s))
        return pids[-1]

    yield start
    for pid in pids:
        os.waitpid(pid, 0)


def test_it_waits_for_the_end_of_the_playbook_and_speaks_where_that_spoke(ledger, playbook, tmp_path, begin):
    controller = ledger.owner()["owner"]
    pid = begin(ledger, controller, 0.05)
    wait_for((tmp_path / "output").read_text)
    for dummy in range(3):  # it has looked at the playbook, and found it alive
        before = ledger.owner()["heartbeat"]
        wait_for(lambda since=before: ledger.owner()["heartbeat"] > since)
    assert (
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        and (tmp_path / "output").read_text() == "TASK\n"
    )
    end(playbook)
    assert os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT).si_status == 0
    said = (tmp_path / "output").read_text()
    assert said.startswith("TASK\n\nRollout r1 has not finished") and verdict(ledger) == "incomplete"


def wait_for_writer(pid, pipe):
    """Until the process has opened a pipe to write to it; what it has from its parent is the end to read from."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for number in os.listdir("/proc/%d/fd" % pid):
            with contextlib.suppress(OSError), open("/proc/%d/fdinfo/%s" % (pid, number)) as stream:
                flags = next(line for line in stream if line.startswith("flags:"))
                if os.readlink("/proc/%d/fd/%s" % (pid, number)) == pipe and int(flags.split()[1], 8) & os.O_WRONLY:
                    return
        time.sleep(0.02)
    raise AssertionError("it never opened the output")


def test_a_reader_of_the_whole_output_finds_the_report_closed(ledger, begin):
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    controller = owner.identify(process.pid)
    ledger.transact(lambda transaction: transaction.hold(dict(transaction.owner, owner=controller)))
    watching = begin(ledger, controller)
    wait_for_writer(watching, os.readlink("/proc/%d/fd/1" % process.pid))
    output = process.communicate(timeout=600)[0].decode()
    assert verdict(ledger) == "incomplete" and "To continue, run the same command again" in output


def test_a_playbook_that_ended_before_is_not_waited_for(ledger, playbook, begin):
    controller = owner.identify(playbook.pid)
    end(playbook)
    assert watcher.output_of(playbook.pid) is None
    assert os.waitid(os.P_PID, begin(ledger, controller), os.WEXITED | os.WNOWAIT).si_status == 0
    assert verdict(ledger) == "incomplete"


def test_without_a_reader_nothing_is_raised():
    read, write = os.pipe()
    os.close(read)
    watcher.speak(write, ["x"])
    os.close(write)


def test_the_part_of_a_job_that_was_killed_ends_and_the_rollout_of_the_others_goes_on(ledger, playbook):
    here = owner.identify(playbook.pid)
    other = dict(here, host="elsewhere", pid_namespace="pid:[1]", boot_id="other")

    def several(transaction):
        now = transaction.clock()
        transaction.hold(members.unowned("run1", now))
        members.join(transaction, "m1", ["a1"], here, now)
        members.join(transaction, "m2", ["b1"], other, now)

    ledger.transact(several)
    end(playbook)
    lines = watcher.close(ledger, "run1", here)
    assert verdict(ledger) == "running" and any("run the same command again" in line for line in lines)
    found = ledger.rehearse(lambda transaction: {one.member: one.ended for one in transaction.members()})
    assert found["m1"] and not found["m2"]
    assert ledger.view().finished is None and ledger.view().nodes.get("a1").state == "down"
    assert watcher.close(ledger, "run1", here) == [], "once"
    ledger.transact(lambda transaction: members.release(transaction, other))
    ledger.transact(several)
    ledger.transact(lambda transaction: members.release(transaction, other))
    watcher.close(ledger, "run1", here)
    assert verdict(ledger) == "incomplete"
