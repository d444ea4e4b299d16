# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where tasks give their workers back, and what keeps a worker from starting."""

from __future__ import annotations

import itertools
import multiprocessing
import time

import pytest

pytest.importorskip("ansible", reason="a callback lives in Ansible; nodes have none")

from ansible_collections.gpufleet.lifecycle.plugins.callback import many_nodes

pytestmark = pytest.mark.cores


@pytest.fixture(name="callback")
def _callback(monkeypatch, tmp_path):
    """With two cores, and what was said in SAID."""
    monkeypatch.setattr(many_nodes.CallbackBase, "__init__", lambda self: None)
    monkeypatch.setattr(many_nodes.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(many_nodes.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(many_nodes.lot, "CURRENT", None)
    made = many_nodes.CallbackModule()
    made.said = []
    made._display = type("Display", (), {"display": staticmethod(lambda text, stderr: made.said.append((text, stderr)))})
    return made


def test_tasks_give_their_workers_back_only_where_forks_are_nodes_in_flight(callback, monkeypatch):
    made = []
    monkeypatch.setattr(many_nodes.keeper.Keeper, "serve", lambda self: made.append(self.cores))
    callback.v2_playbook_on_start(None)
    assert callback.said == [] and made == [2]
    for strategy, open_ in (("linear", False), ("ansible.builtin.host_pinned", True), ("free", False), ("host_pinned", True), ("my.own.strategy", False)):
        callback.v2_playbook_on_play_start(type("Play", (), {"strategy": strategy}))
        assert many_nodes.lot.CURRENT.open is open_, strategy


def test_a_task_is_begun_anew_only_while_a_core_is_left(callback, monkeypatch):
    made = []
    monkeypatch.setattr(many_nodes.keeper, "make", lambda place, cores, room: made.append(room))
    monkeypatch.setattr(many_nodes, "workers", lambda: ["1"])
    callback.v2_playbook_on_start(None)
    for letters, room in (("", True), ("R", True), ("RR", False), ("RSRD", False), ("S" * 49, True), ("S" * 50, False)):
        monkeypatch.setattr(many_nodes, "states", lambda pids, letters=letters: list(letters))
        assert made[0]() is room, letters


def test_an_ansible_that_has_changed_is_told_and_nobody_is_given_up(callback, monkeypatch):
    monkeypatch.setattr(many_nodes.keeper, "missing", lambda: ["_queue_task", "_pending_results"])
    callback.v2_playbook_on_start(None)
    assert callback.said == [(
        "many_nodes: this ansible-core has no _queue_task nor _pending_results: every task keeps its worker while it waits.", True)]
    callback.v2_playbook_on_play_start(type("Play", (), {"strategy": "host_pinned"}))
    assert many_nodes.lot.CURRENT is None


@pytest.mark.parametrize(
    "seen, looks",
    [
        (["SSS"], 1),
        (["RS", ""], 1),
        (["RR", "RS"], 2),
        (["RRRRR", "RRSR", "RR", "SRR", "R"], 5),
        (["S" * 51, "S" * 50, "S" * 49], 3),
    ],
)
def test_no_worker_starts_while_as_many_compute_as_there_are_cores_or_there_are_many(seen, looks):
    asked, slept = itertools.count(), []
    many_nodes.wait_for_room(2, lambda: list(seen[next(asked)]), lambda: 0.01 * len(slept), slept.append)
    assert next(asked) == looks and len(slept) == looks - 1


def test_nobody_waits_for_ever():
    slept = []
    took = many_nodes.wait_for_room(2, lambda: ["R"] * 9, lambda: 0.01 * len(slept), slept.append)
    assert many_nodes.LONGEST_S <= took < many_nodes.LONGEST_S + 0.1


def test_those_that_compute_are_told_from_those_that_wait_and_those_that_ended_are_left_out():
    context = multiprocessing.get_context("fork")
    over = context.Event()
    waiting, running, ended = context.Process(target=over.wait), context.Process(target=compute, args=(over,)), context.Process(target=int)
    before = set(many_nodes.workers())
    for process in (waiting, running, ended):
        process.start()
    try:
        found = set(many_nodes.workers()) - before
        assert {str(waiting.pid), str(running.pid)} <= found
        deadline = time.monotonic() + 600
        while [many_nodes.states([process.pid]) for process in (waiting, running, ended)] != [["S"], ["R"], []]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert str(ended.pid) in many_nodes.workers(), "nobody has taken leave of it: a zombie, which takes no memory"
        assert many_nodes.states([2 ** 22 + 1]) == []
    finally:
        over.set()
        for process in (waiting, running, ended):
            process.join()


def compute(over):
    while not over.is_set():
        sum(range(1000))


def test_a_callback_waits_before_each_worker(monkeypatch):
    waited = []
    monkeypatch.setattr(many_nodes.CallbackBase, "__init__", lambda self: None)
    monkeypatch.setattr(many_nodes, "wait_for_room", waited.append)
    monkeypatch.setattr(many_nodes, "wait_for_memory", lambda left, say: waited.append(left))
    monkeypatch.setattr(many_nodes.CallbackModule, "get_option", lambda self, name: {"memory_left": 1.5}[name])
    callback = many_nodes.CallbackModule()
    for alive, expected in (([], [callback.cores]), (["12"], [callback.cores, 1.5 * 10 ** 9])):
        monkeypatch.setattr(many_nodes, "workers", lambda alive=alive: alive)
        waited.clear()
        callback.v2_runner_on_start(None, None)
        assert waited == expected and callback.cores >= 1


@pytest.mark.parametrize(
    "left, available, looks, said",
    [
        (0, [10], 1, []),
        (0, [9, 9, 10], 3, ["0.9 GB of memory are left, expected 1.0 GB: the next worker waits, for a minute at most"]),
        (30, [29, 31], 2, ["2.9 GB of memory are left, expected 3.0 GB: the next worker waits, for a minute at most"]),
        (5, [9], 1, []),
    ],
)
def test_no_worker_starts_while_little_memory_is_left(left, available, looks, said):
    """Of 10 GB that the machine has, in tenths."""
    asked, slept, told = itertools.count(), [], []
    many_nodes.wait_for_memory(
        left * 10 ** 8, lambda: (100 * 10 ** 8, available[next(asked)] * 10 ** 8), lambda: 0.01 * len(slept), slept.append, told.append)
    assert next(asked) == looks and len(slept) == looks - 1 and told == said


def test_memory_that_never_comes_or_is_not_told_stops_nobody_for_good(tmp_path):
    slept = []
    took = many_nodes.wait_for_memory(0, lambda: (100, 1), lambda: many_nodes.MEMORY_LOOK_S * len(slept), slept.append)
    assert took == many_nodes.MEMORY_LONGEST_S
    assert many_nodes.wait_for_memory(10 ** 18, lambda: None) < 1 and many_nodes.memory(str(tmp_path / "none")) is None
    (tmp_path / "meminfo").write_text("MemTotal:       24684056 kB\nMemAvailable:   22000000 kB\nHugePages_Total:       0\n")
    assert many_nodes.memory(str(tmp_path / "meminfo")) == (24684056 * 1024, 22000000 * 1024)
