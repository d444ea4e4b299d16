# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action rollout_plan: what it refuses before anything is written."""

from __future__ import annotations

import os
import re
from unittest import mock

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_gate, rollout_plan, rollout_report
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import ledger, limits, owner, plan, publish

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")


ELSEWHERE = dict(owner.identify(os.getpid()), pid_namespace="pid:[1]", host="elsewhere")


def audit(version="1.0"):
    return {"audit": {"versions": {"loaded": version}}}


@pytest.fixture
def act(tmp_path, url):
    """act(names, forks, option=...) plans; act.book is the ledger."""

    def run(names="ab", forks=50, check=False, plugin=rollout_plan, **more):
        arguments = dict({"artifact_dir": str(tmp_path), "ledger": url, "rollout_id": "r1"}, **more)
        if plugin is rollout_plan:
            arguments = dict({"target": "2.0", "audits": {name: audit() for name in names}, "markers": {name: {"stat": {}} for name in names}}, **arguments)
        task = mock.Mock(args=arguments, async_val=0, check_mode=check, diff=False, action="x", environment=None)
        action = plugin.ActionModule(task, mock.Mock(), mock.Mock(check_mode=check), DataLoader(), mock.Mock(), None)
        action._load_name = "x"
        action._shared_loader_obj = mock.Mock()
        return action.run(task_vars={"ansible_forks": forks, "inventory_hostname": names[0]})

    run.book = ledger.Ledger(str(tmp_path), "r1", url)
    return run


def test_a_version_of_the_command_line_that_is_not_the_plans_is_refused(act):
    refused = act(given_version="3.0")
    assert refused["failed"] and refused["msg"].startswith(
        "nvidia_driver_version is 3.0 on the command line (-e), which goes before everything, and the plan takes a to 2.0.")
    assert not act(given_version="2.0").get("failed")


def test_who_is_at_work_goes_last_and_the_plan_says_so(act):
    users = {"a": 2, "b": None, "c": 0}
    audits = {name: {"audit": dict(audit()["audit"], compute_users=count)} for name, count in users.items()}
    made = act("abc", audits=audits, check=True)
    assert made["order"] == ["c", "b", "a"] and [made["nodes"][name]["load"] for name in "abc"] == ["at work", "", "idle"]
    assert [line.split(" -> ")[1] for line in made["lines"][-3:]] == ["2.0, idle", "2.0", "2.0, at work"]
    assert made["sha256"] == act("abc", check=True)["sha256"], "what is approved does not hang on it"


@pytest.mark.parametrize("told, expected", [({}, None), ({"kernel": {}}, None), ({"kernel": {"installed": None}}, None),
                                            ({"kernel": {"installed": []}}, ()), ({"kernel": {"installed": ["k1", "k2"]}}, ("k1", "k2"))])
def test_kernels_that_the_audit_does_not_list_are_not_known(told, expected):
    found = rollout_plan.probe("a", {"audit": dict(audit()["audit"], **told)}, {"stat": {}}, {})
    assert found.kernels == expected and not found.error


FLEET = "abcdefghij"


@pytest.mark.parametrize(
    "policy, forks, needed",
    [
        ({"max_down": 3}, 2, "rollout_max_down is 3, and this run has 2 forks.*--forks 3 or more"),
        ({"max_down": 3}, 3, ""),
        ({"max_down": 3, "max_draining": 2}, 3, ""),
        ({"max_down": 2, "max_draining": 4}, 4, "rollout_max_down is 2 and rollout_max_draining 4, and this run has 4 forks.*--forks 6 or more"),
        ({"max_down": 2, "max_draining": 4}, 6, ""),
        ({"max_down": 50}, 10, ""),  # there are ten nodes
        ({"max_down": 50}, 9, "--forks 10 or more"),
        ({"max_down": 50, "max_draining": 60}, 9, "--forks 10 or more"),
    ],
)
def test_forks_for_all_that_may_be_in_flight(act, policy, forks, needed):
    result = act(FLEET, forks, **policy)
    assert bool(result.get("failed")) == bool(needed), result.get("msg")
    if needed:
        assert re.search(needed, result["msg"]), result["msg"]
        assert act.book.events() == [] and "Nothing was changed" in result["msg"]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"canaries_per_stratum": -1}, "rollout_canaries_per_stratum is -1; expected a number of at least 0"),
        ({"canaries_per_stratum": 3}, "rollout_canaries_per_stratum is 3, and the rollout has 2 nodes; expected at most as many"),
        ({"canaries": ["a", "a"]}, "rollout_canaries names a twice"),
        ({"canaries": ["a", "z"]}, "not among the nodes of this rollout: z"),
        ({"canaries": ["a"], "canary_failures": 2}, "rollout_canary_failures is 2, and there is 1 canary; expected at most as many"),
        ({"canary_failures": -1}, "rollout_canary_failures is -1"),
        ({"canary_soak_s": -5}, "rollout_canary_soak_s is -5"),
        ({"hold_age_s": -1}, "rollout_hold_age_s is -1; expected 0 to 3600 seconds"),
        ({"hold_age_s": 86400}, "rollout_hold_age_s is 86400; expected 0 to 3600 seconds"),
        ({"hold_deadline_s": 0}, "rollout_hold_deadline_s is 0; expected 1 to 604800 seconds"),
        ({"node_s": 0}, "rollout_node_s is 0; expected 1 or more"),
        ({"growth_start": 0}, "rollout_growth_start is 0"),
    ],
)
def test_options_that_nobody_can_follow_are_refused_before_anything_is_written(act, options, words):
    result = act(**options)
    assert result.get("failed") and words in result["msg"], result
    assert "Nothing was changed" in result["msg"] and act.book.events() == []


@pytest.fixture
def others(act):
    """others(rollout id, nodes): a rollout that a controller elsewhere has just begun in the same ledger; others("r1") is the same one."""

    def begin(rollout_id, names="ab"):
        book = ledger.Ledger(act.book.artifact_dir, rollout_id, act.book.store.url.render_as_string(hide_password=False))

        def work(transaction):
            owner.claim(transaction, rollout_id, "run", list(names), ELSEWHERE)
            found = [plan.Probe(name, version="1.0") for name in names]
            transaction.append("plan", run="run", **plan.event(plan.build("2.0", found, limits.complete({}, len(names))), rollout_id))

        book.transact(work)

    return begin


@pytest.mark.parametrize("rollout_id, names, words", [
    ("r1", "ab", "Rollout r1 is being run by process"),
    ("r2", "bc", "Rollout r2 is being run by process .* and shares b with this one"),
    ("r2", "cd", ""),
])
def test_check_mode_says_what_a_real_run_would_be_refused_for(act, others, rollout_id, names, words):
    others(rollout_id, names)
    before = act.book.events(), act.book.owner()
    result = act(check=True)
    assert (act.book.events(), act.book.owner()) == before
    assert bool(result.get("failed")) == bool(words), result.get("msg")
    assert result["order"] == ["a", "b"], "and the plan all the same"
    if words:
        assert re.search(words, result["msg"]) and result["lines"][-1] == "  refused: " + result["msg"]
    real = act()
    assert bool(real.get("failed")) == bool(words) and (not words or re.search(words, real["msg"]))


def test_check_mode_says_that_a_node_is_left_in_flight_in_another_rollout(act):
    other = dict(rollout_id="r2")
    act(**other)
    act(plugin=rollout_gate, phase="drain", **other)
    book = ledger.Ledger(act.book.artifact_dir, "r2", act.book.store.url.render_as_string(hide_password=False))
    book.transact(lambda transaction: transaction.hold(dict(transaction.owner, owner=dict(transaction.owner["owner"], pid=2 ** 22 + 1))))
    result = act(check=True)
    assert result["failed"] and "a is draining in rollout r2, whose run broke off" in result["lines"][-1]
    assert not act(check=True, abandon=["a"]).get("failed")


def test_rollouts_of_one_ledger_share_no_budget(act):
    """Each may have its one node down; the second of the first waits for that, and not for the other rollout."""
    for rollout_id, names in (("r1", "ab"), ("r2", "cd")):
        assert not act(names, rollout_id=rollout_id, max_down=1).get("failed")
    asked = [act(name, plugin=rollout_gate, phase="drain", rollout_id=rollout_id) for name, rollout_id in (("a", "r1"), ("c", "r2"), ("b", "r1"))]
    assert [answer["answer"] for answer in asked] == ["go", "go", "wait"]


def test_the_gate_refuses_them_too(act):
    act()
    result = act(plugin=rollout_gate, phase="drain", hold_age_s=-1)
    assert result["failed"] and "rollout_hold_age_s is -1" in result["msg"]


def test_canaries_that_are_done_may_still_be_counted_with_the_failures_that_are_allowed(act):
    assert not act(audits={"a": audit("2.0"), "b": audit()}, canaries=["a", "b"], canary_failures=2).get("failed")


def test_a_report_that_cannot_be_made_keeps_no_rollout_from_beginning(act, monkeypatch):
    monkeypatch.setattr(publish, "gather", mock.Mock(side_effect=KeyError("soaking")))
    warned = []
    monkeypatch.setattr("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.action.display.warning", warned.append)
    result = act()
    assert not result.get("failed"), result.get("msg")
    assert [event["event"] for event in act.book.events()] == ["plan"]
    assert warned == ["The report of rollout r1 cannot be made: KeyError: 'soaking'. The rollout goes on without it."]


def test_a_report_that_cannot_be_made_at_the_end_changes_no_verdict(act, monkeypatch):
    act("a")
    monkeypatch.setattr(publish, "gather", mock.Mock(side_effect=KeyError("soaking")))
    result = act("a", plugin=rollout_report, end=True)
    assert result["failed"] and result["verdict"] == "incomplete" and "is incomplete. No report of it could be made" in result["msg"]
    assert act.book.view().finished and act.book.owner()["ended"]
    assert not act(audits={"a": audit("2.0")}).get("failed")
    result = act("a", plugin=rollout_report, end=True)
    assert not result.get("failed") and result["verdict"] == "complete"


@pytest.mark.parametrize(
    "loaded, package, order",
    [
        ("535.1.1", "535.1.1-2", []),
        ("535.1.1", "535.1.1-1", ["a"]),
        ("530.1.1", "535.1.1-2", ["a"]),  # the packages are there, and another driver runs
        ("535.1.1", None, ["a"]),
    ],
)
def test_a_package_version_is_compared_with_the_packages_of_the_driver_that_runs(act, loaded, package, order):
    result = act("a", target="535.1.1-2", audits={"a": {"audit": {"versions": {"loaded": loaded, "package": package}}}})
    assert not result.get("failed"), result.get("msg")
    assert result["order"] == order


def test_a_rollout_is_named_after_a_package_version_too(act):
    result = act("a", target="3:535.1.1-2~bpo13+1", rollout_id="")
    assert not result.get("failed"), result.get("msg")
    assert result["rollout_id"] == "upgrade-3-535.1.1-2~bpo13+1"
