# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action rollout_plan: what it refuses before anything is written."""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
from unittest import mock

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_gate, rollout_plan, rollout_report
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _collection, _peers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import gate, limits, plan, probes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.probes import Probe
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import publish
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")


ELSEWHERE = dict(owner.identify_process(os.getpid()), pid_namespace="pid:[1]", host="elsewhere")


def audit(version="1.0"):
    return {"audit": {"versions": {"loaded": version}}}


PASSED = {"a": {"health": {"verdict": "pass"}}}


CHECKS = [("unknown", "B."), ("pass", ""), ("fail", "A.")]
FAILED_CHECKS = {
    "verdict": "fail",
    "checks": [{"id": "node." + status, "status": status, "message": text} for status, text in CHECKS],
}


@pytest.mark.parametrize(
    "result, expected",
    [
        ({"health": {"verdict": "pass"}, "msg": "fine"}, ("pass", "")),
        ({"health": {"verdict": "fail"}, "msg": "GPU 3 is gone.\nmore"}, ("fail", "GPU 3 is gone.")),
        ({"health": FAILED_CHECKS, "msg": "a1: FAIL"}, ("fail", "A. Beside it: node.unknown.")),
        ({"health": {"verdict": "unknown"}}, ("unknown", "its health could not be read")),
        ({"failed": True, "msg": "no binding"}, ("unknown", "no binding")),
        ({"unreachable": True, "msg": "gone"}, ("unknown", "gone")),
        ({"health": {}}, ("unknown", "its health could not be read")),
        ({"skipped": True}, ("", "")),
        ({}, ("", "")),
        (None, ("", "")),
    ],
    ids=str,
)
def test_verdict_of_a_health_answer_is_read(result, expected):
    assert probes.read_verdict(result) == expected


LATER = "2099-01-01T00:00:00.000Z"


def open_ledger(act, rollout_id):
    """Return the ledger of another rollout in the database of ACT."""
    return Ledger(act.ledger.artifact_dir, rollout_id, act.ledger.store.url.render_as_string(hide_password=False))


def leave(ledger, names="ab", rack="", lost=False):
    """Plan nodes by a controller that died, or lost the first of them, when it was down and changed."""
    places = [{"rack": rack} if rack and name == names[0] else {} for name in names]
    entries = [{"state": "pending", "from": "1.0", "to": "2.0", "reason": "", "domains": place} for place in places]
    nodes, policy = dict(zip(names, entries)), limits.complete_policy({}, len(names))
    given = {"run": "dead", "rollout_id": ledger.rollout_id, "target": "2.0", "order": list(names), "sha256": "f"}
    of_node = {"run": "dead", "node": names[0]}

    def tell(transaction):
        transaction.append("plan", policy=policy, nodes=nodes, **given)
        for phase in ("drain", "down"):
            transaction.append("grant", phase=phase, ticket="t", expires=LATER, **of_node)
        transaction.append("step", step="install", **of_node)
        if lost:
            transaction.append("state", state="lost", reason="gone", **of_node)

    ledger.transact(tell)


def kill_controller(ledger):
    ledger.transact(
        lambda transaction: transaction.hold(
            dict(transaction.owner, owner=dict(transaction.owner["owner"], pid=2**22 + 1))
        )
    )


@pytest.mark.parametrize("verbs", [(), ("retire",), ("retire", "retry"), ("retire", "retry", "skip")], ids=str)
def test_node_that_another_rollout_changed_and_did_not_prove_is_not_finished_by_its_version(act, verbs):
    left = open_ledger(act, "other")
    leave(left, "a", lost=True)
    for verb in verbs:
        event = {"run": "dead", "verb": verb, "user": "kim", "reason": "it is gone", "node": "a"}
        left.transact(lambda transaction, event=event: transaction.append("control", **event))
    made = act("ab", audits={"a": audit("2.0"), "b": audit("2.0")}, health={name: PASSED["a"] for name in "ab"})
    assert made["order"] == ["a"] and made["nodes"]["b"]["state"] == "skipped", made
    assert "retried after: changed in rollout other, and not proven since" in "".join(made["lines"])


@pytest.mark.parametrize("ledger_id, refused", [("another", True), ("another", False)])
def test_a_node_that_a_rollout_of_another_ledger_holds_is_not_finished_by_its_version(act, ledger_id, refused):
    claim = {"ledger": ledger_id, "rollout_id": "far", "attempt": 1, "state": "held"}
    claim.update(run="f", plan="f", controller="x", time="t")
    markers = {"a": {"quarantine": {"exists": False}, "claim": claim}}
    made = act("a", audits={"a": audit("2.0")}, markers=markers, health=PASSED, abandon=[] if refused else ["a"])
    if refused:
        assert made["failed"] and "a cannot be taken: it is held by rollout far" in made["msg"]
    else:
        assert made["order"] == ["a"] and not made.get("failed"), made


@pytest.fixture
def act(tmp_path, url):
    """act(names, forks, option=...) plans; act.ledger is the ledger."""

    def run(names="ab", forks=50, check=False, plugin=rollout_plan, hosts=None, groups=None, **more):
        arguments = dict({"artifact_dir": str(tmp_path), "ledger": url, "rollout_id": "r1"}, **more)
        if plugin is rollout_plan:
            found = {"audits": {name: audit() for name in names}, "markers": {name: {"stat": {}} for name in names}}
            arguments = {"target": "2.0", **found, **arguments}
        known = {
            "ansible_forks": forks,
            "inventory_hostname": names[0],
            "hostvars": hosts or {},
            "groups": groups or {},
        }
        return actions.run_rollout(plugin, arguments, check, **known)

    run.ledger = Ledger(str(tmp_path), "r1", url)
    return run


# option with the answers of nodes: answers that are malformed
MALFORMED = {
    "audits": [
        *("x", 5, ["x"], {"audit": "x"}, {"audit": {"versions": [1]}}, {"audit": {"pci": [1]}}),
        *({"audit": {"pci": [None]}}, {"audit": {"identity": "x"}}, {"audit": {"identity": {"gpus": [[1]]}}}),
        *({"audit": {"identity": {"machine_id": {}}}}, {"audit": {"compute_users": "x"}}),
        *({"audit": {"kernel": {"installed": 5}}}, {"audit": {"versions": {"loaded": 10**400}}}),
    ],
    "markers": ["x", {"claim": "x"}, {"claim": {"x": 1}}, {"claim": {"ledger": []}}, {"quarantine": "x"}]
    + [{"quarantine": [1]}],
    "health": ["x", {"health": "x"}, {"baseline": {"audit": {"identity": 5}}, "health": {}}],
}


@pytest.mark.parametrize("option, answer", [(name, one) for name, found in MALFORMED.items() for one in found], ids=str)
def test_malformed_answer_of_one_node_leaves_the_plan_of_others(act, option, answer):
    version = "2.0" if option == "health" else "1.0"
    good = {"audits": audit(version), "markers": {"stat": {}}, "health": PASSED["a"]}
    given = {name: dict.fromkeys("abc", one) for name, one in good.items()}
    given[option]["b"] = answer
    made = act("abc", check=True, **given)
    assert not made.get("failed"), made
    states = [made["nodes"][name]["state"] for name in "abc"]
    assert states == (["skipped", "failed", "skipped"] if option == "health" else ["pending", "failed", "pending"])
    assert option != "audits" or "driver_audit" in made["nodes"]["b"]["reason"]


def test_plan_is_printed_to_stderr(act, capsys):
    """What a callback prints to stdout stays JSON."""
    capsys.readouterr()
    made, printed = act(), capsys.readouterr()
    assert made["lines"] and all(line in printed.err for line in made["lines"]) and printed.out == ""


JOB = {"id": 42, "template": "upgrade", "workflow": "7", "workflow_name": "driver upgrade", "user": "kim"}


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
@pytest.mark.parametrize("host", ["", "localhost", "store"])
def test_in_a_job_of_awx_a_local_ledger_or_no_place_for_files_is_refused_and_leaves_nothing(
    act, url, tmp_path, check, host
):
    made = act(check=check, job=JOB, hosts={name: {"gpufleet_artifact_host": host} for name in "ab"})
    if url.startswith("sqlite"):
        assert made["failed"] and "AWX job 42" in made["msg"] and "rollout_ledger" in made["msg"], made
    elif host != "store":
        assert made["failed"] and "AWX job 42" in made["msg"] and "gpufleet_artifact_host" in made["msg"], made
    else:
        assert not made.get("failed") and any("AWX job 42" in line for line in made["lines"]), made
        return
    assert act.ledger.events() == [] and list(tmp_path.iterdir()) == []


def test_the_ledger_records_the_job_with_the_plan_and_as_its_owner(act, url):
    if url.startswith("sqlite"):
        assert not act(job={"id": ""}).get("failed"), "what is no job of AWX may keep its ledger in a file"
        assert act.ledger.events()[0]["job"] is None and "job" not in act.ledger.owner()["owner"]
        return
    act(job=JOB, hosts={name: {"gpu_node_upgrade_artifact_host": "store"} for name in "ab"})
    assert act.ledger.events()[0]["job"] == act.ledger.owner()["owner"]["job"] == dict(JOB, id="42")
    assert "AWX job 42" in owner.describe_owner(act.ledger.owner()["owner"])


@pytest.mark.parametrize(
    "job, silent_s, is_refused",
    [
        ({"id": 43, "workflow": "8"}, owner.LEASE_S, False),
        ({"id": 43, "workflow": "8"}, owner.LEASE_S - 60, True),
        ({"id": 43, "workflow": "8", "template": "plan", "workflow_name": "another"}, owner.LEASE_S, True),
    ],
)
def test_job_that_is_started_again_continues_the_rollout_of_one_that_awx_killed(act, url, job, silent_s, is_refused):
    if url.startswith("sqlite"):
        # A plan refuses it, as test_in_a_job_of_awx_a_local_ledger_... shows; the fixture has both databases.
        pytest.skip("a job of AWX may not keep its ledger in a file")
    killed = dict(JOB, awx="https://awx")
    more = {"hosts": {name: {"gpu_node_upgrade_artifact_host": "store"} for name in "ab"}}
    act(job=killed, **more)

    def leave_container(transaction):
        record, silence = transaction.owner, datetime.timedelta(seconds=silent_s)
        elsewhere = dict(record["owner"], pid_namespace="pid:[1]")
        transaction.hold(dict(record, owner=elsewhere, heartbeat=format_time(transaction.clock() - silence)))

    act.ledger.transact(leave_container)
    for check in (True, False):
        made = act(job=dict(killed, **job), check=check, **more)
        assert bool(made.get("failed")) is is_refused, made.get("msg")


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
@pytest.mark.parametrize(
    ("planned", "here", "well"),
    [("1.0.0", "1.0.1", True), ("1.0.0", "1.1.0", False), ("1.0.0", "", False), ("", "1.1.0", True), ("", "", True)],
)
def test_an_interrupted_rollout_is_gone_on_with_by_versions_that_go_together(
    act, monkeypatch, planned, here, well, check
):
    monkeypatch.setattr(_collection, "version", lambda: planned)
    assert not act().get("failed")
    assert act.ledger.events()[0]["collection"] == (planned or None) and act.ledger.view().collection == planned
    act("a", plugin=rollout_gate, phase="drain")
    before = act.ledger.events(), act.ledger.owner()
    monkeypatch.setattr(_collection, "version", lambda: here)
    again = act(check=check)
    assert bool(again.get("failed")) is not well, again.get("msg")
    if well:
        assert again["nodes"]["a"].get("orphaned")
    else:
        assert planned in again["msg"] and here in again["msg"] and "Rollout r1 " in again["msg"]
        assert (act.ledger.events(), act.ledger.owner()) == before


def test_a_rollout_that_has_ended_is_planned_again_by_another_version(act, monkeypatch):
    monkeypatch.setattr(_collection, "version", lambda: "1.0.0")
    rolled_forward(act)
    monkeypatch.setattr(_collection, "version", lambda: "2.0.0")
    assert not act().get("failed") and act.ledger.view().collection == "2.0.0"
    back = act(rollout_id="", target="", undo="r1", audits={name: audit("2.0") for name in "ab"})
    assert not back.get("failed"), "a rollback is a rollout of its own"


def test_who_is_at_work_goes_last_and_the_plan_says_so(act):
    users = {"a": 2, "b": None, "c": 0}
    audits = {name: {"audit": dict(audit()["audit"], compute_users=count)} for name, count in users.items()}
    made = act("abc", audits=audits, check=True)
    assert made["order"] == ["c", "b", "a"] and [made["nodes"][name]["load"] for name in "abc"] == [
        "at work",
        "",
        "idle",
    ]
    assert [line.split(" -> ")[1] for line in made["lines"] if " -> " in line] == ["2.0, idle", "2.0", "2.0, at work"]
    assert made["sha256"] == act("abc", check=True)["sha256"], "what is approved does not hang on it"


@pytest.mark.parametrize(
    "told, expected",
    [
        ({}, None),
        ({"kernel": {}}, None),
        ({"kernel": {"installed": None}}, None),
        ({"kernel": {"installed": []}}, ()),
        ({"kernel": {"installed": ["k1", "k2"]}}, ("k1", "k2")),
    ],
)
def test_kernels_that_the_audit_does_not_list_are_not_known(told, expected):
    found = probes.make_probe("a", {"audit": dict(audit()["audit"], **told)}, {"stat": {}}, {})
    assert found.kernels == expected and not found.error


def test_a_node_that_could_not_keep_its_claim_is_not_begun(act):
    markers = {
        name: {"quarantine": {"exists": False}, "claim": None, "problem": "", "no_room": why}
        for name, why in (("a", ""), ("b", "/var is full"))
    }
    made = act("ab", audits={"a": audit(), "b": audit()}, markers=markers, check=True)
    assert made["order"] == ["a"] and made["nodes"]["b"]["state"] == "failed"
    assert "/var is full. Free space, or set gpu_node_upgrade_state_dir" in made["nodes"]["b"]["reason"]


def test_role_without_tickets_is_refused_in_a_rollout(act):
    made = act(role_mode="none")
    assert made["failed"] and "gpu_node_upgrade_rollout_mode" in made["msg"] and act.ledger.events() == []


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_controller_is_no_node_of_a_rollout(act, name, check):
    made = act(["a", name], check=check)
    assert made["failed"] and made["msg"].startswith(name) and act.ledger.events() == []


@pytest.mark.parametrize(("home", "fails"), [(None, True), ("", True), ("/root", False)])
def test_default_directory_without_home_is_refused(act, monkeypatch, tmp_path, home, fails):
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    made = act(check=True, artifact_dir="/.gpufleet")
    assert bool(made.get("failed")) is fails and (not fails or "gpufleet_artifact_dir" in made["msg"])
    assert not act(artifact_dir=str(tmp_path)).get("failed")


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_rollout_of_another_inventory_is_not_replaced(act, check):
    rolled_forward(act)
    before = act.ledger.events()
    made = act("cd", check=check, groups={"all": ["c", "d", "localhost"]})
    assert made["failed"] and "rollout_id" in made["msg"] and act.ledger.events() == before
    assert not act("cd", check=check, groups={"all": list("abcd")}).get("failed"), "the limit left out a and b"


@pytest.mark.parametrize(("drain_s", "answer"), [(0, "go"), (3599, "go"), (3600, "stop"), (86400, "stop")])
def test_node_does_not_start_to_drain_for_longer_than_its_ticket_lives(act, drain_s, answer):
    act("ab", ticket_s=3600)
    for check in (True, False):
        made = act("a", plugin=rollout_gate, phase="drain", drain_s=drain_s, check=check)
        assert made["answer"] == answer and ("rollout_ticket_s" in made["reason"]) is (answer == "stop")
    assert act.ledger.view().nodes.get("a").state == ("draining" if answer == "go" else "pending")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"policy": {"rollout_ticket_s": 3600}}, "a, b: its jobs have 3600 s to end"),  # the default of the role
        ({"policy": {"rollout_ticket_s": 3600}, "drains": {"a": "60", "b": 7200}}, "b: its jobs have 7200 s to end"),
        ({"policy": {"rollout_ticket_s": 3600}, "drains": {"a": "", "b": None}}, "a, b: its jobs have 3600 s to end"),
        ({"policy": {"rollout_ticket_s": 3600}, "drains": {"a": "0", "b": 0}}, ""),
        ({"policy": {"rollout_ticket_s": 3600}, "schedulers": {}}, ""),
        ({"policy": {"rollout_broken_elsewhere": 1}}, "every down slot (1) is held"),
        ({"policy": {"rollout_broken_elsewhere": 1, "rollout_max_down": 2}}, ""),
        # What may come until the run: an approval, and the window.
        ({"policy": {"rollout_windows": [{"date": "2199-01-01", "from": "01:00", "to": "02:00"}]}}, ""),
        ({"require_approval": True}, ""),
    ],
    ids=str,
)
def test_check_mode_refuses_what_keeps_every_run_from_starting_a_node(act, given, words):
    given = {"schedulers": {"a": ["slurm"], "b": ["slurm"]}, **given}
    made = act("ab", check=True, **given)
    assert bool(made.get("failed")) is bool(words) and words in made.get("msg", "")


def test_node_in_flight_is_finished_however_long_its_jobs_may_take(act):
    leave(act.ledger)
    act()
    assert act("a", plugin=rollout_gate, phase="drain", drain_s=10**6)["answer"] == "go"


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ("Missing sudo password", "failed"),
        ("Incorrect su password", "failed"),
        ("sudo: a password is required", "failed"),
        ("kim is not in the sudoers file", "failed"),
        ("Timeout (12s) waiting for privilege escalation prompt: ", "failed"),
        ("Failed to connect to the host via ssh: No route to host", "lost"),
        ("no answer within 300 s (gpufleet_answer_timeout)", "lost"),
        ("", "lost"),
    ],
)
def test_node_without_root_is_not_lost(act, why, state):
    made = act("ab", audits={"a": {"unreachable": True, "msg": why}, "b": audit()}, check=True)
    assert made["nodes"]["a"]["state"] == state and ("root" in made["nodes"]["a"]["reason"]) is (state == "failed")


def test_cause_of_a_quarantine_stays_in_the_next_run(act):
    leave(act.ledger)
    act.ledger.transact(
        lambda transaction: transaction.append(
            "state", run="dead", node="a", state="quarantined", reason="GPU 3 has Xid 79", failure="hard"
        )
    )
    markers = {"a": {"quarantine": {"exists": True, "path": "/q.json"}}, "b": {"stat": {}}}
    for dummy in range(2):
        made = act(markers=markers)
        assert made["nodes"]["a"]["state"] == "quarantined" and made["nodes"]["a"]["reason"] == "GPU 3 has Xid 79"


FLEET = "abcdefghij"


@pytest.mark.parametrize(
    "policy, forks, needed",
    [
        ({"max_down": 3}, 2, "rollout_max_down is 3, and this run has 2 forks.*--forks 3 or more"),
        ({"max_down": 3}, 3, ""),
        ({"max_down": 3, "max_draining": 2}, 3, ""),
        (
            {"max_down": 2, "max_draining": 4},
            4,
            "rollout_max_down is 2 and rollout_max_draining 4, and this run has 4 forks.*--forks 6 or more",
        ),
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
        assert act.ledger.events() == [] and "Nothing was changed" in result["msg"]


@pytest.mark.parametrize(
    "given, words",
    [
        ({"canaries_per_stratum": -1}, "rollout_canaries_per_stratum"),
        ({"canaries_per_stratum": 3}, "rollout_canaries_per_stratum is 3, and the rollout has 2 nodes"),
        ({"canaries": ["a", "a"]}, "rollout_canaries names a twice"),
        ({"canaries": ["a", "z"]}, "not in this rollout: z"),
        ({"canaries": ["a"], "canary_failures": 2}, "rollout_canary_failures is 2, and there is 1 canary"),
        ({"canary_failures": -1}, "rollout_canary_failures"),
        ({"canary_soak_s": -5}, "rollout_canary_soak_s"),
        ({"hold_age_s": -1}, "rollout_hold_age_s"),
        ({"hold_age_s": 3601}, "rollout_hold_age_s"),
        ({"hold_deadline_s": 0}, "rollout_hold_deadline_s"),
        ({"max_dwon": 1}, "rollout_max_dwon"),
    ],
)
def test_option_that_cannot_be_carried_out_is_refused_before_anything_is_written(act, given, words):
    result = act(policy={"rollout_" + key: value for key, value in given.items()})
    assert result.get("failed") and words in result["msg"], result
    assert "Nothing was changed" in result["msg"] and act.ledger.events() == []


@pytest.fixture
def others(act):
    """others(rollout id, nodes): a rollout that a controller elsewhere has just begun in the same ledger; others("r1")
    is the same one.
    """

    def begin(rollout_id, names="ab"):
        def work(transaction):
            owner.claim_rollout(transaction, rollout_id, "run", list(names), ELSEWHERE)
            found = [Probe(name, version="1.0") for name in names]
            transaction.append(
                "plan",
                run="run",
                **plan.make_event(plan.build_plan("2.0", found, limits.complete_policy({}, len(names))), rollout_id),
            )

        open_ledger(act, rollout_id).transact(work)

    return begin


@pytest.mark.parametrize(
    "rollout_id, names, words",
    [
        ("r1", "ab", "Rollout r1 is being run by process"),
        ("r2", "bc", "Rollout r2 is being run by process .* and shares b with this one"),
        ("r2", "cd", ""),
    ],
)
def test_check_mode_says_what_a_real_run_would_be_refused_for(act, others, rollout_id, names, words):
    others(rollout_id, names)
    before = act.ledger.events(), act.ledger.owner()
    result = act(check=True)
    assert (act.ledger.events(), act.ledger.owner()) == before
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
    kill_controller(open_ledger(act, "r2"))
    result = act(check=True)
    assert result["failed"] and "a is draining in rollout r2" in result["lines"][-1]
    assert not act(check=True, abandon=["a"]).get("failed")


RACKS = {"a": {"rack": "r1"}, "b": {"rack": "r2, r3"}, "c": {"rack": "r3"}, "d": {"rack": "r4"}}


@pytest.mark.parametrize(
    "left, dead, options, refused, told",
    [
        (
            "c",
            True,
            {"domain_caps": {"rack": 1}},
            "c is draining in rollout r2, whose run was interrupted, and shares the rack r3 with b",
            None,
        ),
        ("c", True, {}, "c is draining in rollout r2, whose run was interrupted, and shares the rack r3 with b", None),
        ("d", True, {"domain_caps": {"rack": 1}}, None, "(d is draining): run it again first (rollout_id=r2)"),
        ("c", True, {"domain_caps": {"rack": 1}, "abandon": ["c"]}, None, None),
        ("c", False, {"domain_caps": {"rack": 1}}, None, None),  # it is run
    ],
)
def test_nodes_that_another_rollout_left_in_flight_beside_these_are_told_or_refused(
    act, left, dead, options, refused, told
):
    other = dict(rollout_id="r2", names=left, domains=RACKS)
    act(**other)
    assert act(left, plugin=rollout_gate, phase="drain", rollout_id="r2")["answer"] == "go"
    if dead:
        kill_controller(open_ledger(act, "r2"))
    for check in (True, False):
        result = act("ab", check=check, domains=RACKS, max_down=2, **options)
        assert bool(result.get("failed")) == bool(refused), result.get("msg")
        assert not refused or refused in result["msg"] and "rollout_abandon=c" in result["msg"]
        assert (
            refused or [line for line in result["lines"] if "interrupted" in line and told and told in line] or not told
        )
    assert bool(act.ledger.events()) == (not refused)


def test_rollouts_of_one_ledger_share_no_budget(act):
    """Each may have its one node down; the second of the first waits for that, and not for the other rollout."""
    for rollout_id, names in (("r1", "ab"), ("r2", "cd")):
        assert not act(names, rollout_id=rollout_id, max_down=1).get("failed")
    asked = [
        act(name, plugin=rollout_gate, phase="drain", rollout_id=rollout_id, patience_s=0.1)
        for name, rollout_id in (("a", "r1"), ("c", "r2"), ("b", "r1"))
    ]
    assert [answer["answer"] for answer in asked] == ["go", "go", "wait"]


def test_gate_refuses_hold_times_out_of_range(act):
    act()
    result = act(plugin=rollout_gate, phase="drain", hold_age_s=-1)
    assert result["failed"] and "rollout_hold_age_s" in result["msg"]


def test_canaries_that_are_done_may_still_be_counted_with_the_failures_that_are_allowed(act):
    assert not act(audits={"a": audit("2.0"), "b": audit()}, health=PASSED, canaries=["a", "b"], canary_failures=2).get(
        "failed"
    )


def test_a_report_that_cannot_be_made_keeps_no_rollout_from_beginning(act, monkeypatch):
    monkeypatch.setattr(publish, "gather_document", mock.Mock(side_effect=KeyError("a template's")))
    warned = []
    monkeypatch.setattr(
        "ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_action.display.warning", warned.append
    )
    result = act()
    assert not result.get("failed"), result.get("msg")
    assert [event["event"] for event in act.ledger.events()] == ["plan"]
    assert warned == [
        "The report of rollout r1 cannot be made: KeyError: \"a template's\". The rollout continues without it."
    ]


def test_a_report_that_cannot_be_made_at_the_end_changes_no_verdict(act, monkeypatch):
    act("a")
    monkeypatch.setattr(publish, "gather_document", mock.Mock(side_effect=KeyError("a template's")))
    result = act("a", plugin=rollout_report, end=True)
    assert (
        result["failed"]
        and result["verdict"] == "incomplete"
        and "is incomplete. No report of it could be made" in result["msg"]
    )
    assert act.ledger.view().finished and act.ledger.owner()["ended"]
    assert not act(audits={"a": audit("2.0")}, health=PASSED).get("failed")
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


@pytest.mark.parametrize(
    "one, other, words",
    [
        ({"machine_id": "m1", "gpus": ["GPU-1"]}, {"machine_id": "m1", "gpus": ["GPU-1"]}, "both have GPU GPU-1"),
        ({"machine_id": "m1"}, {"machine_id": "m1"}, "both have machine id m1"),
        ({"machine_id": "m1", "gpus": ["GPU-1"]}, {"machine_id": "m1", "gpus": ["GPU-2"]}, ""),
        ({"machine_id": None}, {}, ""),
    ],
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_one_machine_under_two_names_is_refused(act, one, other, words, version):
    """Also where one of the names is at the version already, as after a run that took the machine by its other name."""
    audits = {
        name: {"audit": dict(audit(value)["audit"], identity=identity)}
        for name, value, identity in (("a", "1.0", one), ("b", version, other))
    }
    result = act(audits=audits)
    assert bool(result.get("failed")) == bool(words), result.get("msg")
    if words:
        assert (
            result["msg"].startswith("a and b are one machine under two names of the inventory: ")
            and words in result["msg"]
        )
        assert result["msg"].endswith("Nothing was changed.") and act.ledger.events() == []


def rolled_forward(act, rollout_id="r1"):
    """An upgrade of a and b, planned and over."""
    assert not act(rollout_id=rollout_id).get("failed")
    act(plugin=rollout_report, end=True, rollout_id=rollout_id)


@pytest.mark.parametrize("given", ["", "mine"])
def test_a_rollback_that_broke_off_goes_on_by_the_same_command(act, given):
    rolled_forward(act)
    back = dict(rollout_id=given, target="", undo="last", audits={name: audit("2.0") for name in "ab"})
    first = act(**back)
    assert (first["rollout_id"], first["nodes"]["a"]["to"]) == (given or "rollback-r1", "1.0")
    act("a", plugin=rollout_gate, phase="drain", rollout_id=first["rollout_id"])
    for again in (act(check=True, **back), act(**back), act(**dict(back, rollout_id=""))):
        assert not again.get("failed"), again.get("msg")
        assert (again["rollout_id"], again["order"], again["nodes"]["a"]["to"]) == (
            first["rollout_id"],
            ["a", "b"],
            "1.0",
        )
        assert again["nodes"]["a"].get("orphaned"), "it was in flight"
    assert open_ledger(act, first["rollout_id"]).view().undo == "r1"


def with_kernels(version, running):
    found = audit(version)
    found["audit"]["kernel"] = {"running": running, "next_boot": running, "installed": ["k1", "k2"]}
    return found


def test_kernel_of_a_rollout_is_not_that_of_its_way_back(act):
    """A rollback finds the kernel of each node by itself, unless another version is given by hand."""
    found = act(rollout_id="r1", kernel="k2", audits={name: with_kernels("1.0", "k1") for name in "ab"})
    assert [found["nodes"][name].get("to_kernel") for name in "ab"] == ["k2", "k2"], found.get("msg")
    act(plugin=rollout_report, end=True, rollout_id="r1")
    back = dict(rollout_id="", undo="r1", kernel="k2", audits={name: with_kernels("2.0", "k2") for name in "ab"})
    made = act(target="", check=True, **back)
    assert [made["nodes"][name].get("to_kernel") for name in "ab"] == ["k1", "k1"]
    by_hand = act(target="1.5", check=True, **dict(back, kernel="k1"))
    assert [by_hand["nodes"][name].get("to_kernel") for name in "ab"] == ["k1", "k1"]
    assert "Kernel k3" in act(rollout_id="r3", kernel="k3", audits={"a": with_kernels("1.0", "k1")})["msg"]


def with_gpus(number, version="1.0"):
    found = audit(version)
    found["audit"]["pci"] = [{"address": "0000:%02x:00.0" % place, "device": "10de:27b8"} for place in range(number)]
    return found


@pytest.mark.parametrize(
    "expected, state",
    [
        ({}, "failed"),
        ({"d": {"hardware": {"gpus": 7}}}, "pending"),
        ({"d": {"hardware": {"ecc": True}}}, "failed"),
        ({"d": ""}, "failed"),
    ],
)
def test_a_node_with_fewer_gpus_than_its_peers_is_left_out_unless_it_is_built_so(act, expected, state):
    audits = {name: with_gpus(7 if name == "d" else 8) for name in "abcd"}
    made = act("abcd", audits=audits, expected=expected)
    assert made["peers"] == {"gpus": {"10de:27b8": 8}}
    assert (
        made["nodes"]["d"]["state"] == state and [made["nodes"][name]["state"] for name in "abc"] == ["pending"] * 3
    ), made
    assert ("has 7 of the GPUs 10de:27b8, and 3 of 4 nodes with them have 8" in made["nodes"]["d"]["reason"]) is (
        state == "failed"
    )


def test_a_rollback_takes_back_a_node_with_fewer_gpus(act):
    assert not act("abcd", rollout_id="r1").get("failed")
    act(plugin=rollout_report, end=True, rollout_id="r1")
    audits = dict({name: with_gpus(8, "2.0") for name in "bcd"}, a=with_gpus(7, "2.0"))
    assert act("abcd", audits=audits, target="3.0", rollout_id="onwards", check=True)["nodes"]["a"]["state"] == "failed"
    back = act("abcd", audits=audits, undo="r1", target="", rollout_id="")
    assert back["nodes"]["a"]["state"] == "pending"
    # Each is held to its own number: with the 7 of a, another could lose a GPU unseen.
    assert {name: _peers.of_node(back["peers"], name)["gpus"] for name in "ab"} == {
        "a": {"10de:27b8": 7},
        "b": {"10de:27b8": 8},
    }


def test_a_rollback_that_is_over_is_not_undone_by_itself(act):
    rolled_forward(act)
    back = dict(rollout_id="", target="", undo="last", audits={name: audit("2.0") for name in "ab"})
    assert act(**back)["rollout_id"] == "rollback-r1"
    act(plugin=rollout_report, end=True, rollout_id="rollback-r1")
    refused = act(**back)
    assert refused["failed"] and "rollback-r1, was itself a rollback" in refused["msg"]
    assert "rollback_of=r1" in refused["msg"] and "Nothing was changed" in refused["msg"]
    assert not act(**dict(back, undo="r1")).get("failed")


def upgrade_nodes(act, rollout_id, names):
    """An upgrade that took these nodes through their install, and is over."""
    ledger = open_ledger(act, rollout_id)
    leave(ledger, names)

    def install(transaction):
        for name in names:
            transaction.append("step", step="install", run="dead", node=name)
            transaction.append("state", state="done", run="dead", node=name)
        transaction.append("end", run="dead")

    ledger.transact(install)


def roll_back(act, names, **given):
    return act(
        names, **dict(dict(rollout_id="", target="", undo="last", audits={n: audit("2.0") for n in names}), **given)
    )


def test_rollback_is_of_the_rollout_that_changed_the_nodes_last(act):
    upgrade_nodes(act, "first", "ab")
    upgrade_nodes(act, "second", "cd")
    upgrade_nodes(act, "third", "d")
    for names, undone in (("ab", "first"), ("c", "second"), ("d", "third")):
        made = roll_back(act, names, check=True)
        assert not made.get("failed"), made.get("msg")
        assert {made["nodes"][name]["to"] for name in names} == {"1.0"}
        assert made["rollout_id"] == "rollback-" + undone


def test_rollback_of_nodes_that_two_rollouts_changed_names_both(act):
    upgrade_nodes(act, "first", "ab")
    upgrade_nodes(act, "second", "c")
    refused = roll_back(act, "abc")
    assert refused["failed"] and "Nothing was changed" in refused["msg"]
    for words in ("-e rollback_of=second -e rollback_hosts=c", "-e rollback_of=first -e rollback_hosts=a,b"):
        assert words in refused["msg"]
    assert not roll_back(act, "abc", undo="first", audits={name: audit("2.0") for name in "ab"}, check=True).get(
        "failed"
    )


def test_rollout_that_only_planned_a_node_is_not_undone_for_it(act):
    upgrade_nodes(act, "first", "a")
    assert not act("ab", rollout_id="later", target="3.0", audits={n: audit("2.0") for n in "ab"}).get("failed")
    act(plugin=rollout_report, end=True, rollout_id="later")
    assert roll_back(act, "a", check=True)["rollout_id"] == "rollback-first"
    refused = roll_back(act, "ac", check=True)
    assert refused["failed"] and "first recorded no earlier version of c" in refused["msg"]


def test_the_plan_says_in_which_schedulers_its_nodes_are_drained(act):
    made = act(
        "abc",
        schedulers={"a": ["slurm"], "b": ["slurm"]},
        audits={"a": audit(), "b": audit("2.0"), "c": audit()},
        check=True,
    )
    assert made["lines"][1:3] == [
        "  drained in slurm: a",
        "  drained in no scheduler, as gpu_scheduler_backends names none: c",
    ]


CLOSED = {"days": ["mon"], "date": "2020-01-06", "from": "01:00", "to": "02:00"}


@pytest.mark.parametrize(
    "refused",
    [
        {"max_down": 0},
        {"max_down": 2, "forks": 1},
        {"domain_caps": {"rack": 1}},
        {"canaries": ["c"]},
        {"canaries": ["b"], "canary_failures": 5},
        {"webhook": {"url": "ftp://example.org"}},
        {"hold_age_s": -1},
        {"windows": [dict(CLOSED, days=None, date="never")]},
        {"growth_start": 0},
        {"growth_step": "x"},
        {"domain_caps": "rack"},
        {"domains": {"b": {"rack": None}}},
        {"target": "new"},
        {"audits": {"a": "x", "b": "x"}, "target": "2.0;"},
        {"refused": "rollout_maxdown is no variable of a rollout"},
        {"max_down": "many"},
        {"mode": "all at once"},
        {"hold_queries": "up"},
        {"webhook": 5},
        {"waves": {}},
        {"failure_classes": {"soft": "x"}},
    ],
    ids=str,
)
def test_refused_plan_finishes_the_nodes_in_flight(act, refused):
    given = {key: value for key, value in refused.items() if key != "audits"}
    assert act(check=True, **given).get("failed"), "it is refused"
    leave(act.ledger)
    made = act(**given)
    assert not made.get("failed"), made["msg"]
    view = act.ledger.view()
    assert made["order"] == ["a"] and view.refused and view.run == made["run"]
    node, other = view.nodes.get("a"), view.nodes.get("b")
    assert (node.orphaned, node.state, node.to_version, [step.name for step in node.steps]) == (
        True,
        "down",
        "2.0",
        ["install"],
    )
    assert (other.state, other.position) == ("pending", None)
    assert gate.decide(view, "drain", "a").answer == "go" and gate.decide(view, "drain", "b").answer == "stop"
    view.nodes.store(dataclasses.replace(node, state="done", orphaned=False))
    view.nodes.store(dataclasses.replace(other, state="done"))
    assert state.judge_rollout(view, True) == "incomplete", "what was asked for was refused"
    again = act(check=True, **given)
    assert again.get("failed"), "a dry run says what is refused"


def test_run_that_only_finishes_nodes_keeps_the_limits_that_an_operator_set(act):
    leave(act.ledger)
    said = {"verb": "set_budget", "user": "kim", "reason": "x", "policy": {"max_down": 3}}
    act.ledger.transact(lambda transaction: transaction.append("control", run=transaction.view.run, **said))
    for dummy in range(2):
        assert not act(waves={}).get("failed")
        view = act.ledger.view()
        assert view.refused and view.policy["max_down"] == 3 and view.changed["max_down"]["now"] == 3


def test_plan_that_is_good_again_is_whole(act):
    leave(act.ledger)
    act(max_down=0)
    before = act.ledger.view().run
    assert act(check=True)["run_before"] == before
    made = act()
    assert made["order"] == ["a", "b"] and not act.ledger.view().refused
    assert made["run_before"] == before != made["run"] and act(check=True)["run_before"] == made["run"]


def test_refused_plan_without_nodes_in_flight_records_nothing(act):
    assert act(max_down=0)["failed"] and not act.ledger.events()


def test_two_interrupted_rollouts_in_one_rack_do_not_keep_each_other_from_going_on(act):
    leave(act.ledger, rack="x")
    leave(open_ledger(act, "r2"), "c", rack="x")
    given = {"domain_caps": {"rack": 1}, "domains": {name: {"rack": "x"} for name in "abc"}}
    first = act(**given)
    assert first["order"] == ["a"] and act.ledger.view().refused
    other = act("c", rollout_id="r2", **given)
    assert other["order"] == ["c"] and not other.get("failed")
