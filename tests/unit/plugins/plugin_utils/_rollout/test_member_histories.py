# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random histories of several controllers: they join, die and return, late tasks of dead ones still ask, and operators
and hold queries steer the rollout meanwhile.
"""

from __future__ import annotations

import datetime
import time

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import events, members, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import (
    control,
    gate,
    joining,
    limits,
    requests,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import grant, view_of

hypothesis = pytest.importorskip(
    "hypothesis", reason="ansible-test's environment has none; the plain pytest run has it"
)
strategies = hypothesis.strategies

NAMES = ["n%d" % number for number in range(9)]
# As AWX cuts an inventory in three, and in two when it is started again otherwise.
CUTS = [NAMES[0::3], NAMES[1::3], NAMES[2::3], NAMES[0::2], NAMES[1::2]]
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
# The states in which a node may end in this way.
ENDS = {"done": state.NOT_SERVING, "failed": state.NOT_SERVING, "pending": ("draining",)}
TIME = "2026-01-01T00:01:00.000Z"
# Three racks, each with a node of every slice of three.
RACKS = {name: "r%d" % (number // 3) for number, name in enumerate(NAMES)}
HOLD = {"name": "fabric", "query": "up == 0", "timeout": 5.0}
LIMITS = [
    {"max_down": 1},
    {"max_down": 4},
    {"max_draining": 1},
    {"max_draining": 6},
    {"domain_caps": {"rack": 1}},
    {"domain_caps": {}},
]
REQUESTS = ("pause", "resume", "stop", "skip", "set_budget")


class Model:
    """A rollout in memory with the methods of a transaction, and its controllers, living and dead."""

    def __init__(self, policy):
        self.view = view_of(dict.fromkeys(NAMES, "pending"), domains={n: {"rack": RACKS[n]} for n in NAMES})
        self.view.policy = limits.complete_policy(dict(policy, holds={HOLD["name"]: HOLD["query"]}), len(NAMES))
        for node in self.view.nodes.list_all():
            node.from_version, node.to_version = "1.0", "2.0"
        self.owner, self.now, self._members = members.make_shared_record("r", START), START, {}
        self.plan = {"nodes": {name: {"state": "pending", "from": "1.0", "to": "2.0"} for name in NAMES}}
        self.jobs = []  # (identity, hosts, alive) of every job that ever joined
        self.alarm = False  # whether the hold query finds something
        self.used = self.uses()

    def clock(self):
        return self.now

    def members(self):
        return list(self._members.values())

    def put_member(self, member):
        self._members[member.member] = member

    def append(self, event, **fields):
        events.apply_event(self.view, dict(fields, event=event, time=TIME))

    def job_of(self, name):
        """The job that has the node in its play: the newest that lives."""
        found = [job for job in self.jobs if name in job["hosts"] and job["alive"]]
        return found[-1] if found else None

    def join(self, hosts):
        number = len(self.jobs)
        who = {"host": "c%d" % number, "boot_id": "b%d" % number, "pid_namespace": "p", "pid": 7, "started": 1}
        living = {name for job in self.jobs if job["alive"] for name in job["hosts"]}
        try:
            members.add_member(self, "m%d" % number, hosts, who, self.now)
        except owner.OwnerError:
            return False
        assert not living & set(hosts), "a host was taken from a job that lives"
        probes = [Probe(name, version="1.0", reachable=True) for name in hosts]
        changed = joining.plan_part(self.view, self.plan, probes)[1]
        event = {"event": "join", "run": "r", "time": TIME, "nodes": changed, "approved": False}
        events.apply_event(self.view, event)
        self.jobs.append({"who": who, "hosts": hosts, "alive": True})
        return True

    def later(self):
        """A minute passes, in which those that live do a step."""
        self.now += datetime.timedelta(seconds=60)
        for job in self.jobs:
            if job["alive"]:
                assert members.require_membership(self, "x", job["who"]) == "r"

    def ask(self, job, name, phase):
        """Ask for a grant, as rollout_gate does in its transaction."""
        members.require_membership(self, "x", job["who"])
        mine = members.find_hosts(self, job["who"])
        assert gate.find_vanished(self.view, job["hosts"], mine) == [], "no node is lost for another job"
        starts = gate.starts_new(self.view, phase, name)
        found = {"time": time.time(), "results": {HOLD["name"]: ["holds" if self.alarm else "clear", "x"]}}
        given = {"hold_queries": [HOLD], "hold_age_s": 15, "hold_deadline_s": 600}
        request = requests.Request(name, phase, job["who"], job["hosts"], given)
        decision = requests.decide_by_rules(self, request)
        decision = requests.decide_by_holds(self, request, dict(found, unanswered_since={}), decision)
        if decision.answer == "go":
            assert not starts or not (self.view.paused or self.view.stopped or self.alarm), "a node starts"
            events.apply_event(self.view, grant(name, phase))
        return decision.answer

    def request(self, verb, number):
        """An operator says something; what is refused changes nothing."""
        given = {"verb": verb, "user": "kim", "reason": "x", "nodes": [], "limits": {}, "now": self.now}
        if verb == "skip":
            given["nodes"] = [NAMES[number]]
        elif verb == "set_budget":
            given["limits"] = LIMITS[number]
        try:
            said = control.decide_events(self.view, given)[0]
        except control.ControlError:
            return
        for fields in said:
            self.append("control", run="r", **fields)

    def end(self, name, ended):
        events.apply_event(self.view, {"event": "state", "run": "r", "node": name, "time": TIME, "state": ended})

    def move(self, move, number):
        if move == "join":
            self.join(CUTS[number])
        elif move == "die" and number < len(self.jobs):
            self.jobs[number]["alive"] = False
        elif move == "later":
            self.later()
        elif move in ("alarm", "clear"):
            self.alarm = move == "alarm"
        elif move in REQUESTS:
            self.request(move, number)
        elif move in ENDS:
            self.ended(NAMES[number], move)
        elif move in ("drain", "down") and self.job_of(NAMES[number]):
            self.ask(self.job_of(NAMES[number]), NAMES[number], move)
        elif move == "late task" and self.job_of(NAMES[number]):
            self.refuse_late_tasks(NAMES[number])

    def ended(self, name, ended):
        """The job that has the node ends its way, from the drain back or after it was down."""
        node, job = self.view.nodes.get(name), self.job_of(name)
        if job and node.state in ENDS[ended] and not node.orphaned:
            members.require_membership(self, "x", job["who"])
            self.end(name, ended)

    def refuse_late_tasks(self, name):
        """A task of a dead job whose node another one has is refused before it writes anything."""
        for job in self.jobs:
            if not job["alive"] and name in job["hosts"]:
                with pytest.raises(owner.OwnerError):
                    self.ask(job, name, "down")

    def start_all_again(self):
        for job in self.jobs:
            job["alive"] = False
        self.now += datetime.timedelta(seconds=owner.LEASE_S)
        assert all(self.join(hosts) for hosts in CUTS[:3])

    def take(self, name):
        """Take a node all the way, as far as the gate lets it."""
        job = self.job_of(name)
        answer = self.ask(job, name, "drain")
        if answer == "go" and self.view.nodes.get(name).state == "draining":
            answer = self.ask(job, name, "down")
            if answer != "go":
                self.end(name, "pending")
        if answer == "go":
            self.check()
            self.end(name, "done")

    def uses(self):
        """{limit: nodes that count against it}"""
        nodes = self.view.nodes
        out = [node.domains["rack"] for node in nodes.with_state(*(state.LEAVING + state.OUT_OF_SERVICE))]
        return dict(
            {rack: out.count(rack) for rack in set(RACKS.values())},
            max_down=len(nodes.with_state(*(state.NOT_SERVING + state.OUT_OF_SERVICE))),
            max_draining=len(nodes.with_state("draining")),
        )

    def check(self):
        """No move takes more than the limit, which an operator may have set below what was in use by then."""
        before, self.used = self.used, self.uses()
        policy = self.view.policy
        for what, used in self.used.items():
            most = policy[what] if what in policy else policy["domain_caps"].get("rack", len(NAMES))
            assert used <= max(most, before[what]), (what, used, most)


@hypothesis.given(
    policy=strategies.fixed_dictionaries(
        {
            "max_down": strategies.integers(1, 4),
            "failure_budget": strategies.integers(1, 5),
            "common_cause": strategies.just(0),
            "domain_caps": strategies.sampled_from([{}, {"rack": 1}, {"rack": 2}]),
        },
        optional={"max_draining": strategies.integers(1, 6)},
    ),
    moves=strategies.lists(
        strategies.one_of(
            strategies.tuples(strategies.just("join"), strategies.integers(0, len(CUTS) - 1)),
            strategies.tuples(strategies.just("die"), strategies.integers(0, 3)),
            strategies.tuples(strategies.just("later"), strategies.just(0)),
            strategies.tuples(strategies.sampled_from(["drain", "down", "down"]), strategies.integers(0, 8)),
            strategies.tuples(strategies.sampled_from(["done", "failed", "pending"]), strategies.integers(0, 8)),
            strategies.tuples(strategies.just("late task"), strategies.integers(0, 8)),
            strategies.tuples(strategies.sampled_from(["pause", "resume", "alarm", "clear"]), strategies.just(0)),
            strategies.tuples(strategies.sampled_from(["stop", "skip"]), strategies.integers(0, 8)),
            strategies.tuples(strategies.just("set_budget"), strategies.integers(0, len(LIMITS) - 1)),
        ),
        max_size=120,
    ),
)
# A job dies with a node down, and another one with its hosts takes it up, while a task of the first is still on its
# way, and the two others are at work.
@hypothesis.example(
    policy={"max_down": 3, "failure_budget": 2, "common_cause": 0},
    moves=[
        *[(phase, number) for number in (0, 1, 2) for phase in ("drain", "down")],
        ("die", 0),
        *[("later", 0)] * 3,
        ("join", 0),
        ("late task", 0),
        ("done", 1),
        ("drain", 0),
        ("failed", 0),
    ],
)
# Started again in two slices instead of three.
@hypothesis.example(
    policy={"max_down": 2, "failure_budget": 5, "common_cause": 0},
    moves=[("drain", 4), ("down", 4), *[("die", number) for number in (0, 1, 2)], *[("later", 0)] * 3]
    + [("join", 3), ("join", 4), ("late task", 4), ("drain", 4), ("drain", 0), ("down", 0), ("done", 4)],
)
# What keeps nodes from starting comes before a drain, and between the drain and the stop of the node's services.
@hypothesis.example(
    policy={"max_down": 3, "failure_budget": 5, "common_cause": 0, "domain_caps": {}},
    moves=[
        *[("pause", 0), ("drain", 0), ("resume", 0), ("drain", 0), ("pause", 0), ("down", 0), ("resume", 0)],
        *[("alarm", 0), ("drain", 1), ("down", 0), ("clear", 0), ("drain", 1), ("skip", 1), ("down", 1)],
        *[("stop", 0), ("drain", 2), ("down", 0), ("die", 0), ("later", 0), ("later", 0), ("join", 0), ("drain", 0)],
    ],
)
# More ask than the limits let go, of one rack and of all.
@hypothesis.example(
    policy={"max_down": 4, "failure_budget": 5, "common_cause": 0, "domain_caps": {"rack": 1}, "max_draining": 2},
    moves=[(phase, number) for phase in ("drain", "down", "drain", "down") for number in range(9)],
)
# An operator lowers a limit below what drains, and then all jobs die.
@hypothesis.example(
    policy={"max_down": 3, "failure_budget": 5, "common_cause": 0, "domain_caps": {"rack": 2}},
    moves=[*[("drain", number) for number in (0, 1, 3)], ("set_budget", 2)],
)
@hypothesis.example(
    policy={"max_down": 3, "failure_budget": 5, "common_cause": 0, "domain_caps": {"rack": 3}},
    moves=[*[("drain", number) for number in (0, 1, 2)], ("set_budget", 4)],
)
@hypothesis.example(
    policy={"max_down": 3, "failure_budget": 5, "common_cause": 0, "domain_caps": {}},
    moves=[*[("drain", number) for number in (0, 1, 2)], ("set_budget", 0)],
)
# A history takes a second: a third of the examples that others have.
@hypothesis.settings(max_examples=hypothesis.settings.default.max_examples // 3)
def test_no_history_of_several_controllers_breaks_a_budget(policy, moves):
    model = Model(policy)
    for hosts in CUTS[:3]:
        model.join(hosts)
    for move, number in moves:
        model.move(move, number)
        model.check()
    # However it went: the pause and the hold end, all jobs end, each slice is started once more, and no node stays
    # behind.
    model.request("resume", 0)
    model.alarm = False
    model.start_all_again()
    for dummy in range(60):
        for name in NAMES:
            model.take(name)
    left = model.view.nodes.with_state("pending", *state.IN_FLIGHT)
    spent = limits.explain_spent_budget(
        model.view.policy, model.view.nodes.with_state(*state.FAILED), model.view.attempt_count
    )
    assert not left or spent or model.view.stopped, left
    # Who was taken from a dead job while it drained, and may not start any more, is left to the next run.
    assert all(node.state == "pending" or (node.state == "draining" and node.orphaned) for node in left)
