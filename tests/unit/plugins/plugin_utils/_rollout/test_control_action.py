# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action rollout_control on a real ledger."""

from __future__ import annotations

import datetime
import os
import re
from unittest import mock

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_control
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.events import VERBS
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, plan
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import reduce

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")

UNSEEN = dict(owner.identify_process(os.getpid()), pid_namespace="pid:[1]", host="elsewhere")


@pytest.fixture
def ledger(tmp_path, url):
    return Ledger(str(tmp_path), "r1", url)


def planned(ledger, who, ago_s=0, domains=(), names="ab"):
    def work(transaction):
        owner.claim_rollout(
            transaction,
            ledger.rollout_id,
            "run1",
            list(names),
            who,
            now=datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=ago_s),
        )
        found = [Probe(name, version="1.0", domains=dict(domains)) for name in names]
        made = plan.build_plan("2.0", found, limits.complete_policy({}, 2))
        transaction.append("plan", run="run1", **plan.make_event(made, ledger.rollout_id))

    ledger.transact(work)


def say(ledger, verb, check=False, **more):
    arguments = dict(
        {
            "artifact_dir": ledger.artifact_dir,
            "ledger": ledger.store.url.render_as_string(hide_password=False),
            "rollout_id": "r1",
            "verb": verb,
            "user": "kim",
            "reason": "its controller is gone",
        },
        **more,
    )
    task = mock.Mock(args=arguments, async_val=0, check_mode=check, diff=False, action="x", environment=None)
    action = rollout_control.ActionModule(
        task, mock.Mock(), mock.Mock(check_mode=check), DataLoader(), mock.Mock(), None
    )
    action._load_name = "x"
    action._shared_loader_obj = mock.Mock()
    return action.run(task_vars={})


def test_the_lock_of_a_controller_that_is_gone_is_broken_and_the_ledger_says_by_whom(ledger):
    planned(ledger, UNSEEN, ago_s=3600)
    result = say(ledger, "break_lock")
    assert not result.get("failed"), result.get("msg")
    assert (
        result["changed"]
        and "The lock of process %d on elsewhere is broken by kim: its controller is gone." % UNSEEN["pid"]
        in result["lines"]
    )
    assert ledger.owner()["broken"] == "kim: its controller is gone" and ledger.owner()["ended"]
    assert [event["verb"] for event in ledger.events() if event["event"] == "control"] == ["break_lock"]
    assert reduce(ledger.events()).run == "run1"
    with pytest.raises(owner.OwnerError, match="was broken by kim: its controller is gone"):
        ledger.transact(lambda transaction: owner.require_owner(transaction, "r1", UNSEEN))
    ledger.transact(
        lambda transaction: owner.claim_rollout(transaction, "r1", "run2", ["a"], owner.identify_process(os.getpid()))
    )
    assert ledger.owner()["run"] == "run2", "the lock needs no second confirmation"


@pytest.mark.parametrize(
    "who, ago_s, words",
    [
        (owner.identify_process(os.getpid()), 3600, "Rollout r1 is being run by process %d " % os.getpid()),
        (UNSEEN, 5, "try again in [0-9]+ s"),
    ],
    ids=["of this process", "of a host that was heard of"],
)
def test_the_lock_of_one_that_lives_is_not_broken(ledger, who, ago_s, words):
    planned(ledger, who, ago_s)
    result = say(ledger, "break_lock")
    assert result["failed"] and not result["changed"]
    assert re.search(words, result["msg"]), result["msg"]
    assert "ended" not in ledger.owner() and [event["event"] for event in ledger.events()] == ["plan"]


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"status"}))
def test_request_without_a_name_is_refused_while_another_rollout_runs(ledger, tmp_path, url, verb):
    """The one that is meant would go on."""
    other = Ledger(str(tmp_path), "r0", url)
    planned(other, owner.identify_process(os.getpid()), names="cd")
    planned(ledger, UNSEEN)
    before = ledger.events()
    told = say(ledger, verb, rollout_id="")
    assert told["failed"] and "rollout_id" in told["msg"] and "r0" in told["msg"] and ledger.events() == before
    assert not say(ledger, "status", rollout_id="").get("failed")
    assert not say(ledger, "pause").get("failed"), "it has a name"
    other.transact(lambda transaction: owner.release_rollout(transaction, owner.identify_process(os.getpid())))
    assert not say(ledger, "resume", rollout_id="").get("failed"), "it is the only one"


def test_a_lock_without_a_holder_cannot_be_broken(ledger):
    planned(ledger, UNSEEN, ago_s=3600)
    ledger.transact(lambda transaction: owner.release_rollout(transaction, UNSEEN))
    result = say(ledger, "break_lock")
    assert result["failed"] and "No controller runs rollout r1" in result["msg"]


def test_what_another_rollout_left_in_flight_is_refused_until_it_is_finished_or_given_up(ledger, tmp_path, url):
    planned(ledger, UNSEEN, ago_s=3600)
    ledger.transact(
        lambda transaction: transaction.append(
            "grant", run="run1", node="a", phase="drain", ticket="t", expires="2099-01-01T00:00:00.000Z"
        )
    )
    other = Ledger(str(tmp_path), "r2", url)
    me = owner.identify_process(os.getpid())

    def claim(names, abandon=(), end=False):
        def work(transaction):
            owner.claim_rollout(transaction, "r2", "run2", names, me, break_lock=True, abandon=abandon)

        return other.transact(work)

    words = r"a is draining in rollout r1, .*rollout_id=r1.*rollout_abandon"
    for prepare in (lambda: None, lambda: say(ledger, "break_lock")):
        prepare()
        with pytest.raises(owner.OwnerError, match=words):
            claim(["a", "b"])
    assert other.owner() is None
    claim(["b"])
    claim(["a", "b"], abandon=["a"])
    ledger.transact(lambda transaction: transaction.append("state", run="run1", node="a", state="done"))
    claim(["a", "b"])


def test_limits_that_no_gate_could_read_are_refused_and_those_it_can_read_are_kept(ledger):
    planned(ledger, UNSEEN, domains={"rack": "r1"})
    for wrong, words in (
        ({"windows": [{"days": ["sat"]}]}, "expected from and to"),
        ({"domain_caps": {"rak": 1}}, "names rak"),
        ({"windows": [{"date": "2020-01-01", "from": "01:00", "to": "02:00"}]}, "are over"),
    ):
        result = say(ledger, "set_budget", limits=wrong)
        assert result["failed"] and words in result["msg"]
    assert [event["event"] for event in ledger.events()] == ["plan"]
    result = say(ledger, "set_budget", limits={"domain_caps": {"rack": 1}, "max_down": 2})
    assert not result.get("failed"), result.get("msg")
    assert ledger.view().policy["domain_caps"] == {"rack": 1} and ledger.view().changed["max_down"] == {
        "was": 1,
        "now": 2,
    }


def shared(ledger):
    planned(ledger, owner.identify_process(os.getpid()))
    ledger.transact(lambda transaction: transaction.hold(members.make_shared_record("run1", transaction.clock())))


def test_a_rollout_of_several_controllers_is_ended_once_none_of_them_works_on_it(ledger):
    shared(ledger)
    here = owner.identify_process(os.getpid())
    ledger.transact(lambda transaction: members.add_member(transaction, "m", ["a"], here, transaction.clock()))
    refused = say(ledger, "end")
    assert refused["failed"] and "1 running job" in refused["msg"] and ledger.view().finished is None
    status = say(ledger, "status")
    assert len(status["members"]) == 1 and status["members"][0] in status["lines"]
    ledger.transact(lambda transaction: members.release_part(transaction, here))
    assert say(ledger, "end", check=True)["changed"] and ledger.view().finished is None
    assert say(ledger, "end")["changed"] and ledger.view().finished
    assert [event["event"] for event in ledger.events()][-2:] == ["control", "end"]
    again = say(ledger, "end")
    assert again["failed"] and "already" in again["msg"]


@pytest.mark.parametrize(("several", "verb"), [(True, "break_lock"), (False, "end")])
def test_a_request_that_is_for_the_other_kind_of_rollout_is_refused(ledger, several, verb):
    (shared if several else lambda found: planned(found, UNSEEN, 900))(ledger)
    before = ledger.events()
    result = say(ledger, verb)
    assert result["failed"] and "several controllers" in result["msg"] or "gpufleet.lifecycle.plan" in result["msg"]
    assert ledger.events() == before
