# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The actions of several controllers on one ledger: who may plan and join, and what all of them are told."""

from __future__ import annotations

import dataclasses
import os
import time
from unittest import mock

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.action import (
    rollout_control,
    rollout_gate,
    rollout_plan,
    rollout_report,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members as members_room
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import holds
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import fit, passed

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

NAMES = ("a1", "a2", "b1", "b2")
HOLD = {"name": "fabric", "url": "http://127.0.0.1:1", "query": "up == 0", "timeout": 5.0}


class Job:
    """One controller, which cannot be seen from the others, and the hosts of its inventory."""

    def __init__(self, ledger, name, hosts):
        self.ledger, self.hosts = ledger, hosts
        self.who = dict(owner.identify_process(os.getpid()), host=name, pid_namespace="pid:[1]", boot_id=name)

    def act(self, plugin, check=False, forks=50, **more):
        arguments = dict(
            {
                "artifact_dir": os.path.join(self.ledger.artifact_dir, self.who["host"]),
                "ledger": self.ledger.store.url.render_as_string(hide_password=False),
                "rollout_id": "r1",
            },
            **more,
        )
        if plugin is rollout_plan:
            arguments = actions.make_plan_arguments(**arguments)
        action = actions.make_action(plugin, arguments, check=check, loader=mock.Mock())
        action.controller = lambda: self.who
        given = {"inventory_hostname": (self.hosts or ["localhost"])[0], "ansible_play_hosts": list(self.hosts)}
        return action.run(task_vars=dict(given, ansible_forks=forks))

    def plan(self, **more):
        audits = {name: {"audit": {"versions": {"loaded": "1.0"}}} for name in self.hosts}
        markers = {name: {"stat": {}} for name in self.hosts}
        return self.act(rollout_plan, **dict({"target": "2.0", "audits": audits, "markers": markers}, **more))

    def join(self, **more):
        return self.plan(**dict({"join": True}, **more))

    def ask(self, node, phase=state.DRAIN, **more):
        more.setdefault("documents", {**fit(node), **passed(node)} if phase != state.DRAIN else {})
        result = self.act(rollout_gate, node=node, phase=phase, patience_s=0.01, poll_s=0.01, **more)
        assert not result.get("failed"), result.get("msg")
        return result["answer"]

    def request(self, verb, **more):
        return done(self.act(rollout_control, verb=verb, user="kim", reason="x", **more))


def done(result):
    assert not result.get("failed"), result.get("msg")
    return result


def refused(result, *words):
    assert result.get("failed"), result
    assert [word for word in words if word not in result["msg"]] == [], result["msg"]


@pytest.fixture
def ledger(postgresql, tmp_path):
    return Ledger(str(tmp_path), "r1", postgresql.database("t%d" % time.monotonic_ns()))


@pytest.fixture
def planner(ledger):
    return Job(ledger, "planner", NAMES)


@pytest.fixture
def jobs(ledger, planner):
    """Two jobs of a rollout with one down slot that have joined it."""
    done(planner.plan(hand_over=True, max_down=1, domains={name: {"rack": name[0]} for name in NAMES}))
    found = Job(ledger, "one", ["a1", "a2"]), Job(ledger, "two", ["b1", "b2"])
    for job in found:
        done(job.join())
    return found


@pytest.mark.parametrize(
    "given",
    [
        {"max_down": 2},
        {"max_down": "many"},
        {"mode": "often"},
        {"approve": "0" * 12},
        {"target": "3.0"},
        {"webhook": {"url": "ftp://example.org"}},
        {"on_failure": "stop"},
        {"refused": "rollout_maxdown is no variable of a rollout"},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_down, answer", [(True, "go"), (False, "stop")], ids=["down", "draining"])
def test_refused_join_finishes_the_nodes_that_a_dead_member_left_in_flight(ledger, jobs, given, is_down, answer):
    """One that had only drained is not taken down: it goes back to its schedulers."""
    again = Job(ledger, "three", ["a1", "a2"])
    for check in (False, True):
        assert again.join(check=check, **given).get("failed"), "nothing is in flight"
    assert jobs[0].ask("a1") == "go"
    if is_down:
        assert jobs[0].ask("a1", state.DOWN) == "go"

    def end(transaction):
        for member in transaction.members():
            if "a1" in member.hosts:
                members_room.end_membership(transaction, member, "its playbook had ended")

    ledger.transact(end)
    assert again.join(check=True, **given).get("failed"), "a dry run says what is refused"
    made = done(again.join(**given))
    assert made["order"] == ["a1"] and made["refused"]
    assert again.ask("a1") == answer and ledger.view().nodes.get("a2").state == "pending"
    joined = [member for member in ledger.rehearse(lambda transaction: transaction.members()) if not member.ended]
    assert [member.hosts for member in joined if member.owner["host"] == "three"] == [["a1"]]


def test_join_with_an_unknown_variable_finishes_the_nodes_in_flight_too(ledger, jobs):
    again = Job(ledger, "three", ["a1", "a2"])
    assert again.join(policy={"rollout_maxdown": 1}).get("failed"), "nothing is in flight"
    assert jobs[0].ask("a1") == "go" and jobs[0].ask("a1", "down") == "go"

    def end(transaction):
        for member in transaction.members():
            if "a1" in member.hosts:
                members_room.end_membership(transaction, member, "its playbook had ended")

    ledger.transact(end)
    made = done(again.join(policy={"rollout_maxdown": 1}))
    assert made["order"] == ["a1"] and "rollout_maxdown" in made["refused"]


@pytest.mark.parametrize("verb, given", [("retire", {"nodes": ["a1"]}), ("end", {})])
def test_member_in_a_long_step_is_at_work_until_its_ticket_expires(ledger, jobs, verb, given):
    assert jobs[0].ask("a1") == "go" and jobs[0].ask("a1", "down") == "go"
    pass_leases(ledger)
    assert jobs[1].act(rollout_control, verb=verb, user="kim", reason="x", **given).get("failed")
    killed(ledger)
    done(jobs[1].act(rollout_control, verb=verb, user="kim", reason="x", **given))


def members(ledger):
    return ledger.rehearse(lambda transaction: [member.owner["host"] for member in transaction.members()]) or []


@pytest.mark.parametrize(
    "more, words",
    [
        ({"hand_over": True, "mode": "waves"}, ["rollout_mode", "window"]),
        ({"join": True, "mode": "waves"}, ["rollout_mode", "window"]),
        ({"join": True, "rollout_id": ""}, ["rollout_join", "rollout_id"]),
        ({"join": True}, ["no plan of rollout r1"]),
        ({"join": True, "undo": "last"}, ["gpufleet.lifecycle.upgrade"]),
        ({"join": True, "layouts": {"a1": {"name": "halves"}}}, ["gpufleet.lifecycle.upgrade"]),
    ],
    ids=["plan in waves", "join in waves", "join of no name", "join of no plan", "join to undo", "join for a layout"],
)
@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_what_several_controllers_cannot_have_is_refused_before_anything_is_written(
    ledger, planner, check, more, words
):
    refused(planner.plan(check=check, **more), *words)
    assert ledger.events() == []


@pytest.mark.parametrize("key", ["hand_over", "join"])
@pytest.mark.parametrize("url", ["", "sqlite:///%s/ledger.sqlite"])
def test_a_ledger_in_a_file_is_for_one_controller(tmp_path, key, url):
    planner = Job(Ledger(str(tmp_path), "r1"), "planner", NAMES)
    refused(planner.plan(ledger=url and url % tmp_path, **{key: True}), "rollout_ledger", "postgresql+psycopg://")
    assert list(tmp_path.rglob("*.sqlite")) == []


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_controller_with_another_version_of_the_collection_does_not_join(ledger, planner, monkeypatch, check):
    done(planner.plan(hand_over=True))
    monkeypatch.setattr(rollout_plan._collection, "version", lambda: "77.0.0")
    refused(Job(ledger, "one", ["a1"]).join(check=check), "77.0.0", "r1")
    assert ledger.controllers()[2] == []


def test_a_plan_for_one_controller_is_not_joined(ledger, planner):
    done(planner.plan())
    refused(Job(ledger, "one", ["a1"]).join(), "made for one controller")
    assert members(ledger) == []


@pytest.mark.parametrize(
    "hosts, forks, needed", [(NAMES[:3], 2, 3), (NAMES[:3], 3, 0), (NAMES[:1], 1, 0), (["x9"], 1, 0), ([], 1, 0)]
)
def test_forks_are_for_the_nodes_of_a_jobs_own_part(ledger, planner, hosts, forks, needed):
    done(planner.plan(forks=1, hand_over=True, max_down=4))
    job = Job(ledger, "one", hosts)
    result = job.join(forks=forks)
    if needed:
        refused(result, "--forks %d" % needed)
        assert members(ledger) == []
        return
    done(result)
    assert members(ledger) == ["one"]


def test_a_job_that_would_install_another_version_does_not_join(ledger, planner):
    done(planner.plan(hand_over=True))
    refused(Job(ledger, "one", ["a1"]).join(target="3.0"), "3.0", "2.0")
    assert members(ledger) == []


@pytest.mark.parametrize(("drain_s", "words"), [("14399", ""), ("14400", "b1, b2: its jobs have 14400 s to end")])
def test_join_in_check_mode_refuses_a_drain_that_is_longer_than_the_ticket(ledger, planner, drain_s, words):
    done(planner.plan(hand_over=True, max_down=1))
    job = Job(ledger, "two", ["b1", "b2"])
    made = job.join(
        check=True, schedulers=dict.fromkeys(job.hosts, ["slurm"]), drains=dict.fromkeys(job.hosts, drain_s)
    )
    assert bool(made.get("failed")) is bool(words) and words in made.get("msg", "")


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_one_controller_alone_does_not_replace_the_plan_of_several(ledger, jobs, check):
    before = ledger.events(), members(ledger), ledger.view().run
    alone = Job(ledger, "alone", ["a1"])
    refused(alone.plan(check=check), "rollout_join=true")
    assert (ledger.events(), members(ledger), ledger.view().run) == before
    for job in jobs:
        job.act(rollout_report, end=True)
    refused(alone.plan(check=check), "rollout_join=true")
    alone.request("end")
    done(alone.plan(check=check))
    assert (ledger.view().run != before[2]) != check


def test_a_new_plan_for_several_waits_for_the_end_of_all_jobs(ledger, planner, jobs):
    run = ledger.view().run
    refused(planner.plan(hand_over=True), "is being run by")
    jobs[0].act(rollout_report, end=True)
    refused(planner.plan(hand_over=True), "is being run by")
    jobs[1].act(rollout_report, end=True)
    assert ledger.view().run == run
    done(planner.plan(hand_over=True))
    assert ledger.view().run != run and members(ledger) == []


def test_a_job_that_says_what_it_would_do_is_no_member(ledger, planner):
    done(planner.plan(hand_over=True))
    made = done(Job(ledger, "one", ["a1", "x9"]).join(check=True))
    assert made["order"] == ["a1"] and members(ledger) == []
    assert [event["event"] for event in ledger.events()] == ["plan"]


def test_a_pause_and_a_stop_hold_for_all_jobs(ledger, jobs):
    one, two = jobs
    one.request("pause")
    assert (one.ask("a1"), two.ask("b1")) == ("wait", "wait")
    two.request("resume")
    assert (one.ask("a1"), two.ask("b1")) == ("go", "wait"), "the one slot is taken"
    one.request("pause")
    assert one.ask("a1", state.DOWN) == "wait"
    one.request("resume")
    assert one.ask("a1", state.DOWN) == "go"
    two.request("stop")
    assert (one.ask("a2"), two.ask("b1")) == ("stop", "stop")
    assert one.ask("a1", state.RETURN) == "go", "what is in flight is finished"
    assert ledger.view().nodes.count() == {"down": 1, "pending": 3}


def test_limits_that_an_operator_sets_hold_for_all_jobs(ledger, jobs):
    one, two = jobs
    assert (one.ask("a1"), two.ask("b1")) == ("go", "wait")
    one.request("set_budget", limits={"max_down": 3})
    assert two.ask("b1") == "go"
    one.request("set_budget", limits={"domain_caps": {"rack": 1}})
    assert (one.ask("a2"), two.ask("b2")) == ("wait", "wait"), "a node of each rack is out"
    two.request("set_budget", limits={"max_down": 1})
    assert (two.ask("b1", state.DOWN), one.ask("a1", state.DOWN)) == ("go", "wait")
    assert ledger.view().policy["max_down"] == 1


def test_a_hold_query_keeps_the_nodes_of_all_jobs_from_starting(ledger, planner, monkeypatch):
    said = {"fabric": [holds.HOLDS, "1 series"]}
    monkeypatch.setattr(
        rollout_gate.holds,
        "find_answers",
        lambda path, queries, age_s: {"time": time.time(), "results": said, "unanswered_since": {}},
    )
    done(planner.plan(hand_over=True, hold_queries=[HOLD]))
    one, two = Job(ledger, "one", ["a1", "a2"]), Job(ledger, "two", ["b1", "b2"])
    refused(one.join(), "rollout_hold_queries")
    for job in (one, two):
        done(job.join(hold_queries=[HOLD]))
    assert one.ask("a1", hold_queries=[HOLD]) == "wait" and ledger.view().held == ["fabric"]
    assert two.ask("b1", hold_queries=[HOLD]) == "wait"
    assert [event["event"] for event in ledger.events()].count("hold") == 1, "it is recorded once"
    said["fabric"] = [holds.CLEAR, ""]
    assert (two.ask("a1"), one.ask("a1", hold_queries=[HOLD])) == ("wait", "go"), "who does not ask does not start"
    assert ledger.view().held == []


def ended(ledger, *names, **states):
    """The nodes end, as their jobs would record it."""

    def work(transaction):
        for name, value in dict(dict.fromkeys(names, "done"), **states).items():
            transaction.append("state", run=transaction.view.run, node=name, state=value, reason="x")

    ledger.transact(work)


def pass_leases(ledger):
    """The leases of the jobs have run out."""

    def work(transaction):
        for member in transaction.members():
            transaction.put_member(dataclasses.replace(member, until="2000-01-01T00:00:00.000Z"))

    ledger.transact(work)


def killed(ledger):
    """The jobs are gone without a word, and their leases and tickets have run out."""

    def work(transaction):
        for node in transaction.view.nodes.with_state(*state.IN_FLIGHT):
            node.ticket.expires = "2000-01-01T00:00:00.000Z"
            transaction.view.nodes.store(node)
            transaction.save(node.name, "x", {})  # a transaction without changes is not written

    pass_leases(ledger)
    ledger.transact(work)


def test_a_member_in_a_long_step_keeps_its_rollout_running(ledger, planner, jobs):
    ended(ledger, "a1", "a2", "b1")
    assert jobs[1].ask("b2") == "go" and jobs[1].ask("b2", state.DOWN) == "go"
    pass_leases(ledger)
    assert report(planner) == "running", "its ticket has not expired"
    killed(ledger)
    assert report(planner) == "incomplete"


def report(planner, **more):
    return done(planner.act(rollout_report, fail_unless_complete=False, **more))["verdict"]


def test_a_report_ends_a_rollout_whose_jobs_were_killed_with_nothing_left(ledger, planner, jobs):
    ended(ledger, *NAMES)
    assert report(planner) == "running" and ledger.view().finished is None, "its jobs live"
    killed(ledger)
    assert report(planner, check=True) == "complete" and ledger.view().finished is None
    assert report(planner) == "complete" and ledger.view().finished
    assert report(planner) == "complete" and [event["event"] for event in ledger.events()].count("end") == 1
    refused(jobs[0].join(), "cannot be joined any more")


@pytest.mark.parametrize("left, verdict", [("pending", "incomplete"), ("draining", "incomplete")])
@pytest.mark.parametrize("stop", [False, True], ids=["goes on", "stopped"])
def test_a_report_leaves_a_rollout_open_that_has_nodes_left(ledger, planner, jobs, left, verdict, stop):
    ended(ledger, "a1", "a2", "b1")
    if left == "draining":
        assert jobs[1].ask("b2") == "go"
    if stop:
        planner.request("stop")
    killed(ledger)
    assert report(planner) == verdict and ledger.view().finished is None
    assert done(Job(ledger, "later", ["b2"]).join())["order"] == ["b2"]


def test_a_report_judges_what_failed_and_ends_it_too(ledger, planner, jobs):
    ended(ledger, "a1", "a2", "b1", b2="rolled_back")
    killed(ledger)
    assert report(planner) == "failed" and ledger.view().finished


def test_a_report_ends_no_rollout_of_one_controller(ledger, planner):
    done(planner.plan())
    ended(ledger, *NAMES)
    planner.who["host"] = "elsewhere"
    assert report(planner) == "running" and ledger.view().finished is None
