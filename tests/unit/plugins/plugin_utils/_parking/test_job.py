# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that runs on the node by itself: started once, asked about, its result as if somebody had waited for it."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible", reason="only the controller has workers")

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking import job

pytestmark = pytest.mark.cores

MODULE = "gpufleet.lifecycle.driver_packages"
STARTED = {"changed": True, "started": 1, "finished": 0, "ansible_job_id": "j7.1", "results_file": "/root/.ansible_async/j7.1"}
STATUS = (job.STATUS, {"jid": "j7.1", "mode": "status", "_async_dir": "/root/.ansible_async"})
CLEANUP = (job.STATUS, {"jid": "j7.1", "mode": "cleanup", "_async_dir": "/root/.ansible_async"})


@pytest.fixture(name="node")
def _node(action):
    """Answers in their order; what was asked, and for how long a module may take, is in CALLS and LIMITS."""

    class Node:
        answers, calls, limits = [], [], []

    Node.answers, Node.calls, Node.limits = [], [], []

    def execute(module_name, module_args, task_vars, wrap_async=False):
        Node.calls.append((module_name, module_args))
        Node.limits.append((wrap_async, action._task.async_val))
        answer = Node.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    action._execute_module = execute
    action._low_level_execute_command.return_value = {"rc": 0}
    return Node


def test_without_leave_to_go_it_is_one_call(monkeypatch, begin, action, node):
    node.answers = [{"changed": True, "resolved": 1}]
    assert job.run(action, begin(), MODULE, {"a": 1}, {}) == {"changed": True, "resolved": 1}
    assert node.calls == [(MODULE, {"a": 1})] and node.limits == [(False, 0)]


def test_a_module_is_started_once_and_its_result_is_its_own(place, begin, action, node, gone):
    node.answers = [STARTED]
    with pytest.raises(gone):
        job.run(action, begin(), MODULE, {"a": 1}, {}, clock=lambda: 100.0)
    assert node.calls == [(MODULE, {"a": 1})] and node.limits == [(True, job.LIMIT_S)] and action._task.async_val == 0
    for taken, pause in ((2, 2.0), (40, 10.0), (4000, job.LONGEST_S)):
        node.answers = [STARTED]
        with pytest.raises(gone):
            job.run(action, begin(), MODULE, {"a": 1}, {}, clock=lambda taken=taken: 100.0 + taken)
        assert node.calls[-1] == STATUS and place.arrivals()[-1][2] == pause
    node.answers = [dict(STARTED, finished=1, resolved=3, changed=False), {"erased": "x"}]
    assert job.run(action, begin(), MODULE, {"a": 1}, {}, clock=lambda: 5000.0) == {"changed": False, "resolved": 3}
    assert node.calls[-2:] == [STATUS, CLEANUP]


def test_a_module_that_fails_fails(place, begin, action, node, gone):
    node.answers = [STARTED]
    with pytest.raises(gone):
        job.run(action, begin(), MODULE, {}, {})
    node.answers = [dict(STARTED, finished=1, failed=True, msg="Nothing was changed."), {}]
    assert job.run(action, begin(), MODULE, {}, {}) == {"changed": True, "failed": True, "msg": "Nothing was changed."}


@pytest.mark.parametrize("answer", [{"failed": True, "msg": "no python"}, {"unreachable": True}, {"changed": False}])
def test_what_was_not_started_is_not_waited_for(place, begin, action, node, answer):
    node.answers = [answer]
    assert job.run(action, begin(), MODULE, {}, {}) == answer
    assert place.arrivals() == []


@pytest.mark.parametrize(
    "answer, taken, words",
    [
        ({"failed": True, "msg": "could not find job"}, 60, "gpufleet.lifecycle.driver_packages was started on the node as job j7.1 60 s ago"),
        ({"failed": True, "msg": "could not find job"}, 60, "what became of it is not known: could not find job"),
        (STARTED, job.LIMIT_S + 1, "it did not end"),
    ],
)
def test_a_job_that_nobody_knows_has_failed(place, begin, action, node, gone, answer, taken, words):
    node.answers = [STARTED]
    with pytest.raises(gone):
        job.run(action, begin(), MODULE, {}, {}, clock=lambda: 0.0)
    node.answers = [answer]
    found = job.run(action, begin(), MODULE, {}, {}, clock=lambda: float(taken))
    assert found["failed"] is True and words in found["msg"]


def test_a_node_that_is_gone_is_told_as_that(place, begin, action, node, gone):
    node.answers = [STARTED]
    with pytest.raises(gone):
        job.run(action, begin(), MODULE, {}, {})
    node.answers = [{"unreachable": True, "msg": "no route"}]
    assert job.run(action, begin(), MODULE, {}, {}) == {"unreachable": True, "msg": "no route"}


def test_a_network_that_is_away_for_a_while_loses_no_node(place, begin, action, node, gone):
    now = [100.0]

    def look(*answers):
        node.answers = list(answers)
        return job.run(action, begin(), MODULE, {}, {}, clock=lambda: now[0])

    away = AnsibleConnectionFailure("no route to host")
    for at, answer in ((100.0, STARTED), (110.0, away), (229.0, away), (230.0, STARTED), (500.0, away), (619.0, away)):
        now[0] = at
        with pytest.raises(gone):
            look(answer)
    assert [seconds for host, task, seconds in place.arrivals()] == [2.0, 10.0, 10.0, 30.0, 10.0, 10.0]
    assert action._connection.reset.call_count == 4
    now[0] = 620.0
    with pytest.raises(AnsibleConnectionFailure):
        look(away)


def test_what_cannot_be_cleared_away_costs_no_result(place, begin, action, node, gone):
    node.answers = [STARTED]
    with pytest.raises(gone):
        job.run(action, begin(), MODULE, {}, {})
    node.answers = [dict(STARTED, finished=1, resolved=3), AnsibleConnectionFailure("gone")]
    assert job.run(action, begin(), MODULE, {}, {}) == {"changed": True, "resolved": 3}


@pytest.mark.parametrize("last, ended", [(STARTED, False), (dict(STARTED, finished=1, resolved=3), True)])
def test_a_job_whose_processes_are_gone_has_failed_unless_it_has_just_ended(place, begin, action, node, gone, last, ended):
    node.answers = [STARTED]
    with pytest.raises(gone):
        job.run(action, begin(), MODULE, {}, {})
    action._low_level_execute_command.return_value = {"rc": 1}
    node.answers = [STARTED, last] + [{}] * ended
    found = job.run(action, begin(), MODULE, {}, {})
    assert action._low_level_execute_command.call_args.args == ("grep -las -- '[j]7' /proc/[0-9]*/cmdline",)
    assert found == {"changed": True, "resolved": 3} if ended else found["failed"] and "it was killed, or the node booted" in found["msg"]
