# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that wait: how often they ask, and when they only look."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")
pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_gate
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _rollout_action
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, requests
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.requests import Request
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import LATER, view_of

pytestmark = pytest.mark.cores

NAMES = ["a%d" % number for number in range(6)]


@pytest.mark.parametrize(
    "poll_s, ahead, seconds",
    [(1, 0, 1), (1, 20, 2), (1, 580, 30), (1, 10000, 30), (0.5, 20, 1), (60, 0, 60), (60, 600, 60)],
)
def test_the_more_are_before_it_the_less_often_a_node_asks(poll_s, ahead, seconds):
    assert requests.compute_interval(poll_s, ahead) == seconds


def test_two_thousand_that_wait_ask_less_than_two_hundred_times_a_second():
    assert sum(1 / requests.compute_interval(1, min(ahead, requests.MOST)) for ahead in range(2000)) < 150


@pytest.mark.parametrize(
    "before, now, due, time",
    [
        ({}, 1000, False, 1000),
        ({"controller": "me", "time": 1000}, 1299, False, 1000),
        ({"controller": "me", "time": 1000}, 1300, True, 1300),
        ({"controller": "me", "time": 1000}, 9000, True, 9000),
        ({"controller": "me", "time": 1000}, 999, False, 999),
        ({"controller": "other", "time": 1000}, 1300, False, 1300),
    ],
    ids=["first", "too early", "due", "late", "clock set back", "of another run"],
)
def test_a_line_is_due_every_five_minutes(before, now, due, time):
    assert requests.is_line_due(before, "me", now) == (due, {"controller": "me", "time": time})


class Gate(rollout_gate.ActionModule):
    def __init__(self):
        self.identity, self.locked, self.said = owner.identify_process(os.getpid()), 0, []

    @property
    def check(self):
        return False

    def tell(self, *arguments, **keywords):
        pass

    def controller(self):
        return self.identity

    def say(self, line):
        self.said.append(line)

    def request_ticket(self, *arguments):
        self.locked += 1
        return super().request_ticket(*arguments)


def request(gate, node, present=None, **more):
    return Request(node, state.DRAIN, gate.identity, NAMES if present is None else present, dict(ASKING, **more))


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def ledger(tmp_path, url, gate):
    found = Ledger(str(tmp_path), "r1", url)

    def work(transaction):
        owner.claim_rollout(transaction, "r1", "run", NAMES, gate.identity)
        transaction.append(
            "plan",
            run="run",
            rollout_id="r1",
            target="2",
            order=NAMES,
            nodes={name: {"state": "pending", "from": "1", "to": "2"} for name in NAMES},
            policy=limits.complete_policy({"max_down": 1}, 6),
            sha256="f",
        )
        down(transaction, "a0")

    found.transact(work)
    return found


def down(transaction, name):
    for phase in (state.DRAIN, state.DOWN):
        transaction.append("grant", run="run", node=name, phase=phase, ticket="t" + phase, expires=LATER)


def events(ledger):
    return len(list(ledger.events()))


def test_a_node_that_would_wait_is_told_so_and_nothing_is_written(ledger, gate):
    before = events(ledger)
    answer = gate.find_wait(ledger, request(gate, "a5"))
    assert (answer["answer"], answer["ahead"], answer["wrote"]) == ("wait", 4, False) and "a0" in answer["reason"]
    assert gate.find_wait(ledger, request(gate, "a5", ["a0", "a3", "a5"]))["ahead"] == 1, "others are not in the play"
    assert events(ledger) == before


ASKING = {
    "phase": state.DRAIN,
    "patience_s": 0.3,
    "patience_max_s": 0.3,
    "poll_s": 0.02,
    "documents": {},
    "step": "",
    "detail": "",
    "resume_step": "",
    "claim_dir": "",
    "hold_queries": [],
    "hold_age_s": 60,
    "hold_deadline_s": 60,
    "version": "2",
    "layout": {},
    "install": True,
    "kernel": "",
    "peers": None,
    "on_failure": "rollback",
}


def wait_for_answer(ledger, gate, node, turn, **more):
    """(answer, whether it waited, how often it looked, how often it asked under the lock)"""
    looked, look = [], gate.find_wait

    def counted(*arguments):
        looked.append(arguments)
        return look(*arguments)

    gate.find_wait, gate.locked = counted, 0
    answer, waited = gate.wait_for_answer(ledger, request(gate, node, **more), turn)
    return answer["answer"], waited, len(looked), gate.locked


def test_a_node_asks_under_the_lock_first_and_only_looks_while_it_waits(ledger, gate):
    before = events(ledger)
    answer, waited, looked, locked = wait_for_answer(ledger, gate, "a1", 1)
    assert (answer, waited, locked) == ("wait", True, 1) and looked >= 1 and events(ledger) == before
    answer, waited, looked, locked = wait_for_answer(ledger, Gate(), "a1", 2)
    assert (answer, waited, locked) == ("wait", True, 0) and looked >= 1, "it waited in the call before this one"


def test_a_node_that_waited_asks_under_the_lock_once_it_may_go(ledger, gate):
    ledger.transact(lambda transaction: transaction.append("state", run="run", node="a0", state="done", reason="x"))
    assert wait_for_answer(ledger, gate, "a1", 2) == ("go", True, 1, 1)
    assert ledger.view().nodes.get("a1").state == "draining"
    assert wait_for_answer(ledger, Gate(), "a5", 1, patience_s=0) == ("wait", False, 0, 1)


def test_a_node_that_may_go_has_to_ask(ledger, gate):
    ledger.transact(lambda transaction: transaction.append("state", run="run", node="a0", state="done", reason="x"))
    assert gate.find_wait(ledger, request(gate, "a1")) is None
    assert gate.find_wait(ledger, request(gate, "a2"))["answer"] == "wait", "it is not its turn"


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_a_stop_is_found_by_a_look_and_a_pause_is_waited_out(ledger, gate, verb):
    ledger.transact(lambda transaction: transaction.append("control", run="run", verb=verb, user="kim", reason="x"))
    answer = gate.find_wait(ledger, request(gate, "a1"))
    assert answer is None if verb == "stop" else "paused by" in answer["reason"]


def test_a_node_that_left_the_play_is_recorded_under_the_lock(ledger, gate):
    assert gate.find_wait(ledger, request(gate, "a1", NAMES[1:])) is None


def test_a_run_that_may_not_continue_is_refused_by_a_look(ledger, gate):
    gate.identity = dict(gate.identity, pid=1, started="1")
    with pytest.raises(owner.OwnerError):
        gate.find_wait(ledger, request(gate, "a1"))


def test_a_heartbeat_that_is_due_is_recorded_under_the_lock(ledger, gate):
    def age(transaction):
        transaction.hold(dict(transaction.owner, heartbeat="2020-01-01T00:00:00.000Z"))

    ledger.transact(age)
    assert gate.find_wait(ledger, request(gate, "a1")) is None


def test_the_count_of_those_before_it_has_an_end():
    view = view_of({name: "pending" for name in NAMES})
    assert view.nodes.count_waiting_before(5, None, 3) == 3 and view.nodes.count_waiting_before(5, None, 9) == 5
    assert requests.count_ahead_of(view, "unknown", None) == 0


def test_of_all_that_wait_one_says_so_every_five_minutes(ledger, gate, monkeypatch):
    other = Gate()
    for seconds, speaker in ((0, gate), (299, other), (300, other), (301, gate), (600, gate)):
        monkeypatch.setattr(rollout_gate.time, "time", lambda seconds=seconds: 1e9 + seconds)
        speaker.print_waiting(ledger, "a5", "a0 is down")
    assert len(other.said) == len(gate.said) == 1, "at 300 and at 600 seconds"
    assert "r1" in other.said[0] and "5 pending, 1 down" in other.said[0] and other.said[0].endswith("a0 is down")


@pytest.mark.parametrize("every_s, said", [(0, True), (300, False)])
def test_a_node_that_waits_comes_to_it(ledger, gate, monkeypatch, every_s, said):
    monkeypatch.setattr(requests, "SAID_EVERY_S", every_s)
    monkeypatch.setattr(rollout_gate._controller, "pause", lambda seconds: None)
    gate.print_waiting(ledger, "a4", "x")  # the first to wait only notes the time
    answer, waited = gate.wait_for_answer(ledger, request(gate, "a5", poll_s=0.01), 2)
    assert (answer["answer"], waited) == ("wait", True)
    assert any(line.startswith("rollout r1: ") for line in gate.said) is said


def test_where_nothing_can_be_kept_it_is_a_warning(ledger, gate, monkeypatch):
    warnings = []
    monkeypatch.setattr(_rollout_action.display, "warning", warnings.append)

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_rollout_action.files, "write_json", full)
    gate.print_waiting(ledger, "a5", "a0 is down")
    assert gate.said == [] and len(warnings) == 1 and "r1" in warnings[0]
