# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claim of a node from the plan that reads it to the step that gives it up, with the real module on a directory in
the place of a node.
"""

from __future__ import annotations

import json
import time
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gpufleet.lifecycle.plugins.action import rollout_gate, rollout_node, rollout_plan, rollout_step
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import node_state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _node_claim
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import ledger, state
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import actions
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils.views import fit, passed

pytestmark = pytest.mark.cores

pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")


class Controller:
    """One ledger, and the actions of a rollout over the nodes of a directory."""

    def __init__(self, place, url, nodes):
        self.place, self.url, self.nodes = place, url, nodes
        self.calls = []
        self.answers = []  # in the place of the node's, first to last; an exception is raised

    def act(self, plugin, node, check=False, hidden=None, facts=None, ignore_errors=None, **arguments):
        def execute(module_name, module_args, task_vars):
            self.calls.append((module_name, module_args["state"]))
            if self.answers:
                answer = self.answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer
            return self.on_node(node, **module_args)

        given = dict({"artifact_dir": str(self.place), "ledger": self.url, "rollout_id": "r1"}, **arguments)
        arguments = {name: value for name, value in given.items() if value is not None}
        if plugin is rollout_plan:
            arguments = actions.make_plan_arguments(**arguments)
        fields = {"vars": hidden or {}, "ignore_errors": ignore_errors}
        action = actions.make_action(plugin, arguments, execute, check, loader=mock.Mock(), **fields)
        known = dict(fields["vars"], inventory_hostname=node, ansible_play_hosts=["a", "b"], **facts or {})
        return action.run(task_vars=known)

    def on_node(self, node, **arguments):
        given = dict(
            {name: spec.get("default") for name, spec in node_state.ARGUMENTS.items()},
            **dict(arguments, directory=str(self.nodes / node)),
        )
        given["lock_timeout_s"] = 0
        try:
            return node_state.perform(
                given, False, lambda argv, timeout: (0, "", ""), str(self.nodes / (node + ".lock")), str(self.nodes)
            )
        except (node_state.TaskError, OSError) as exc:
            return {"failed": True, "msg": str(exc)}

    def plan(self, check=False, **more):
        audits = {name: {"audit": {"versions": {"loaded": "1.0"}}} for name in "ab"}
        return self.act(
            rollout_plan,
            "a",
            check,
            **dict(
                {
                    "target": "2.0",
                    "audits": audits,
                    "markers": {name: self.on_node(name) for name in "ab"},
                    "max_down": 2,
                    "failure_budget": 9,
                },
                **more,
            ),
        )

    def gate(self, node="a", **more):
        return self.act(
            rollout_gate,
            node,
            **dict({"step": "evidence", "claim_dir": str(self.nodes / node), "patience_s": 0}, **more),
        )

    def step(self, node="a", made=None, **more):
        if more.get("state") in ("done", "rolled_back"):
            more["documents"] = dict(passed(node), **({"layout-after": made} if made else {}))
        return self.act(rollout_step, node, **dict({"claim_dir": str(self.nodes / node)}, **more))

    def node(self, name="a", rollout_id="r1"):
        return ledger.Ledger(str(self.place), rollout_id, self.url).view().nodes.get(name)


def claim_of(controller, node="a"):
    return controller.on_node(node)["claim"]


@pytest.fixture
def one(tmp_path, url):
    (tmp_path / "nodes").mkdir()
    return Controller(tmp_path / "one", url, tmp_path / "nodes")


@pytest.fixture
def two(tmp_path):
    """Another controller, with a ledger of its own, on the same nodes."""
    return Controller(tmp_path / "two", "sqlite:///%s" % (tmp_path / "two.sqlite"), tmp_path / "nodes")


def test_a_node_is_claimed_with_its_ticket_and_released_when_it_is_done(one):
    made = one.plan()
    assert not made.get("failed") and claim_of(one) is None
    answer = one.gate()
    found = claim_of(one)
    assert answer["answer"] == "go" and answer["fence"] == "%s:%s/claim.json" % (found["fence"], one.nodes / "a")
    assert (found["rollout_id"], found["attempt"], found["run"], found["plan"], found["state"]) == (
        "r1",
        1,
        made["run"],
        made["sha256"],
        "held",
    )
    assert len(found["ledger"]) == 32 and one.url not in json.dumps(found)
    assert one.gate("b")["answer"] == "go" and claim_of(one, "b")["ledger"] == found["ledger"]
    assert one.calls.count(("gpufleet.lifecycle.node_state", "held")) == 2
    one.step(name="drain")
    assert len(one.calls) == 2, "a step asks nothing of the node"
    assert not one.step(state="done").get("failed") and claim_of(one) is None and claim_of(one, "b")


def test_a_role_with_another_version_than_the_plans_gets_no_ticket_and_takes_no_step(one):
    one.plan()
    refused = one.gate(version="3.0")
    assert refused["failed"] and "expected 2.0, as in the plan" in refused["msg"]
    assert (one.node().state, one.node().attempt, one.node().ticket) == ("pending", 0, None) and claim_of(one) is None
    other = one.gate(version="2.0", on_failure="quarantine")
    assert other["failed"] and "gpu_node_upgrade_on_failure of" in other["msg"], other
    assert one.gate(version="2.0", on_failure="rollback")["answer"] == "go"
    before = one.node()
    for told in ({"name": "drain"}, {"state": "failed"}, {"failed": "it broke"}):
        refused = one.step(version="3.0", **told)
        assert refused["failed"] and "expected 2.0, as in the plan" in refused["msg"] and one.node() == before, told
    assert not one.step(name="drain", version="2.0").get("failed") and one.node().steps[-1].name == "drain"


ENTRY = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2}}
HALVES = {"name": "halves", "configs": {"version": "v1", "mig-configs": {"halves": [ENTRY]}}, "file": ""}


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"layout": {}}, "layout"),
        ({"layout": {"name": "halves", "layout": []}}, "layout"),
        ({"install": False}, "install"),
        ({"kernel": "6.1"}, "kernel"),
    ],
    ids=str,
)
def test_a_role_that_makes_another_change_than_the_plans_gets_no_ticket_and_takes_no_step(one, told, named):
    assert not one.plan(layouts={name: HALVES for name in "ab"}).get("failed")
    agreed = {"layout": one.node().layout, "install": True, "kernel": ""}
    assert agreed["layout"]["name"] == "halves" and (one.node().install, one.node().to_kernel) == (True, "")
    refused = one.gate(**dict(agreed, **told))
    assert refused["failed"] and refused["msg"].startswith("gpu_node_upgrade_%s of a is " % named), refused
    assert (one.node().state, one.node().attempt, one.node().ticket) == ("pending", 0, None) and claim_of(one) is None
    assert one.gate(**agreed)["answer"] == "go"
    before = one.node()
    for step in ({"name": "drain"}, {"state": "failed"}, {"failed": "it broke"}):
        assert one.step(**dict(agreed, **told), **step)["failed"] and one.node() == before, step
    assert not one.step(name="drain", **agreed).get("failed") and one.node().steps[-1].name == "drain"


def test_a_node_is_not_done_where_the_layout_of_the_plan_was_not_made(one):
    one.plan(layouts={name: HALVES for name in "ab"})
    one.gate()
    one.gate(phase="down", step="stop", documents=fit("a"))
    one.step(name="install")
    one.step(name="validate")
    refused = one.step(state="done")
    assert refused["failed"] and "no MIG layout was made" in refused["msg"] and one.node().state == "validating"
    one.step(name="mig")
    one.step(name="validate")
    made = {"layout": one.node().layout, "gpus": [{"gpu": "GPU-a", "status": "changed"}]}
    refused = one.step(state="done", made=dict(made, gpus=[{"gpu": "GPU-a", "status": "reset_required"}]))
    assert refused["failed"] and "GPU-a is reset_required" in refused["msg"]
    assert not one.step(state="done", made=made).get("failed") and one.node().state == "done"


@pytest.mark.parametrize(
    "ended, left",
    [
        ("done", None),
        ("rolled_back", None),
        ("failed", None),
        ("pending", None),
        ("quarantined", "quarantined"),
        ("lost", "held"),
    ],
)
def test_how_a_node_ends_says_what_becomes_of_its_claim(one, ended, left):
    one.plan()
    one.gate()
    assert not one.step(state=ended).get("failed")
    assert (claim_of(one) or {}).get("state") == left


def test_a_node_that_cannot_give_up_its_claim_is_done_all_the_same(one):
    one.plan()
    one.gate()
    one.answers = [AnsibleConnectionFailure("no route")]
    assert not one.step(state="done").get("failed") and one.node().state == "done"
    # The same ledger knows that nothing is left to do there.
    later = one.plan(rollout_id="r2", target="3.0")
    assert not later.get("failed"), later
    assert one.gate(rollout_id="r2")["answer"] == "go" and claim_of(one)["rollout_id"] == "r2"


@pytest.mark.parametrize("rollout_id", ["r1", "r2"])
def test_a_controller_with_another_ledger_is_refused_by_the_plan_and_by_the_node(one, two, rollout_id):
    early = two.plan(rollout_id=rollout_id)  # when no rollout had the node
    assert not early.get("failed")
    one.plan()
    one.gate()
    before = claim_of(one)
    refused = two.gate(rollout_id=rollout_id)
    assert (
        refused["failed"]
        and "a: it could not be claimed: it is held by rollout r1 (attempt 1, begun on " in refused["msg"]
    )
    assert "since %s, of another ledger. Nothing was changed" % before["time"] in refused["msg"], refused["msg"]
    assert two.node(rollout_id=rollout_id).state == "failed" and two.node(rollout_id=rollout_id).failure == "soft"
    assert two.gate("b", rollout_id=rollout_id)["answer"] == "go"
    for check in (True, False):
        late = two.plan(check, rollout_id="late", audits={"a": {"audit": {"versions": {"loaded": "1.0"}}}})
        assert (
            late["failed"]
            and "a cannot be taken: it is held by rollout r1" in late["msg"]
            and "in another ledger" in late["msg"]
        ), late["msg"]
        assert "rollout_id=r1" in late["msg"] and "rollout_abandon=a" in late["msg"]
    assert two.node(rollout_id="late") is None and claim_of(one) == before


def test_a_node_that_was_given_up_by_name_is_taken_over_and_its_rollout_is_told(one, two):
    one.plan()
    one.gate()
    audits = {"a": {"audit": {"versions": {"loaded": "1.0"}}}}
    assert not two.plan(rollout_id="r2", audits=audits, abandon=["a"]).get("failed")
    assert two.gate(rollout_id="r2")["answer"] == "go" and claim_of(one)["rollout_id"] == "r2"
    back = one.plan()
    assert back["failed"] and "a cannot be taken: it is held by rollout r2" in back["msg"]


def test_what_was_given_up_is_one_claim_and_not_the_next(one, two):
    one.plan()
    one.gate()
    audits = {"a": {"audit": {"versions": {"loaded": "1.0"}}}}
    two.plan(rollout_id="r2", audits=audits, abandon=["a"])
    one.plan()
    assert one.gate()["answer"] == "go" and claim_of(one)["attempt"] == 2
    refused = two.gate(rollout_id="r2")
    assert refused["failed"] and "held by rollout r1 (attempt 2" in refused["msg"]


def test_a_ledger_that_was_created_again_is_another_one(one, tmp_path):
    one.plan()
    one.gate()
    one.url = "sqlite:///%s" % (tmp_path / "new.sqlite")
    refused = one.plan()
    assert refused["failed"] and "held by rollout r1" in refused["msg"] and "in another ledger" in refused["msg"]
    assert one.plan(check=True)["failed"], "with no ledger at all"


def test_a_lost_node_of_another_rollout_is_refused_and_its_undoing_is_not(one):
    one.plan()
    one.gate()
    one.step(state="lost", reason="gone")
    refused = one.plan(rollout_id="r2", target="3.0")
    assert refused["failed"] and "held by rollout r1" in refused["msg"] and ", lost there" in refused["msg"]
    assert not one.plan(rollout_id="back", undo="r1").get("failed")


def test_a_controller_that_joins_a_rollback_takes_the_lost_node_that_its_plan_takes(tmp_path, postgresql):
    (tmp_path / "nodes").mkdir()
    one = Controller(tmp_path / "one", postgresql.database("t%d" % time.monotonic_ns()), tmp_path / "nodes")
    one.plan()
    one.gate()
    one.step(state="lost", reason="gone")
    assert not one.plan(rollout_id="back", undo="r1", hand_over=True).get("failed")
    joined = one.plan(rollout_id="back", join=True)
    assert not joined.get("failed") and joined["undo"] == "r1" and joined["order"] == ["a", "b"], joined.get("msg")


def test_the_next_attempt_takes_the_node_from_the_one_before(one):
    one.plan()
    first = one.gate()["fence"]
    one.plan()
    again = one.gate(resume_step="evidence")
    assert again["answer"] == "go" and again["attempt"] == claim_of(one)["attempt"] == 2 and again["fence"] != first


def test_a_node_that_cannot_keep_its_claim_is_not_changed(one):
    one.plan()
    (one.nodes / "a").write_text("no directory")
    refused = one.gate()
    assert (
        refused["failed"]
        and "a: it could not be claimed: " in refused["msg"]
        and "is no directory" in refused["msg"]
        and one.node().state == "failed"
    )


def test_words_of_a_node_that_cannot_be_claimed_are_cleaned_before_they_are_recorded(one, monkeypatch):
    one.plan()
    evil = "boom \x1b[2K\u202eall done http://kim:s3cret@h/ " + "x" * 100000
    monkeypatch.setattr(one, "on_node", lambda *dummy, **more: {"failed": True, "msg": evil})
    one.gate()
    reason = one.node().reason
    assert one.node().state == "failed" and "boom" in reason
    assert reason.isprintable() and "s3cret" not in reason and len(reason) < 5000


def test_a_node_whose_claim_cannot_be_read_is_not_planned(one):
    (one.nodes / "a").mkdir()
    (one.nodes / "a" / "claim.json").write_text("{")
    made = one.plan()
    assert (
        made["order"] == ["b"]
        and made["nodes"]["a"]["state"] == "failed"
        and "it is not JSON" in made["nodes"]["a"]["reason"]
    )


def test_a_quarantined_node_is_left_out_and_refuses_no_other(one, two):
    one.plan()
    one.gate()
    one.step(state="quarantined")
    (one.nodes / "a" / "quarantine.json").write_text("{}")
    made = two.plan()
    assert not made.get("failed") and made["order"] == ["b"] and made["nodes"]["a"]["state"] == "quarantined"
    (one.nodes / "a" / "quarantine.json").unlink()
    assert "quarantined by rollout r1" in two.plan(rollout_id="r3")["msg"]
    assert one.plan()["order"] == ["b", "a"] or one.plan()["order"] == ["a", "b"], "its own rollout takes it again"


def test_a_node_that_was_put_in_quarantine_since_the_plan_is_left_alone_and_takes_a_slot_but_no_failure(one):
    one.plan(max_down=1, failure_budget=1)
    (one.nodes / "a").mkdir(exist_ok=True)
    (one.nodes / "a" / "quarantine.json").write_text("{}")
    refused = one.gate()
    assert refused["failed"] and str(one.nodes / "a" / "quarantine.json") in refused["msg"]
    node = one.node()
    assert (node.state, node.failure) == ("quarantined", "sick") and claim_of(one) is None
    assert one.gate("b", patience_s=0)["answer"] != "go", "it holds the only down slot"
    (one.nodes / "a" / "quarantine.json").unlink()
    assert sorted(one.plan()["order"]) == ["a", "b"], "it goes once it is back"


def flight_of(controller, node="a", **more):
    given = {"rollout_id": None, "marks": controller.on_node(node)}
    return controller.act(rollout_node, node, **dict(given, **more))


@pytest.mark.parametrize("marks", [None, {}, {"unreachable": True, "msg": "no route"}])
def test_what_a_rollout_has_in_flight_is_told_by_its_ledger_and_by_the_node(one, tmp_path, marks):
    more = {} if marks is None else {"marks": marks}
    assert flight_of(one, **more) == {"held": "", "states": {}, "changed": False}, "there is no ledger yet"
    one.plan()
    assert flight_of(one, **more)["held"] == "" and flight_of(one, **more)["states"] == {"r1": "pending"}
    one.gate()
    one.step(documents={"baseline": {"of": "a"}}, name="drain")
    told = flight_of(one, baseline=True, **more)
    assert "rollout r1 has it in flight (draining" in told["held"] and told["baseline"] == {"of": "a"}
    elsewhere = flight_of(one, ledger="sqlite:///%s" % (tmp_path / "another.sqlite"), **more)
    assert ("rollout r1 (attempt 1" in elsewhere["held"]) is (marks is None), "the node itself says so to every ledger"
    assert flight_of(one, "b", **dict(more, marks=marks or one.on_node("b")))["held"] == ""
    one.step(state="done")
    assert flight_of(one, **more)["held"] == "" and flight_of(one, **more)["states"] == {"r1": "done"}


def test_a_claim_that_was_not_read_counts_as_one_that_is_held(one):
    assert "no room" in flight_of(one, marks={"failed": True, "msg": "no room"})["held"]
    assert flight_of(one, ledger="mysql://x")["failed"]


def resumed(one):
    """A node whose services were stopped when its run was interrupted, planned again."""
    one.plan()
    one.gate()
    one.gate(phase="down", step="stop", documents=fit("a"), claim_dir=None)
    one.plan()


def test_a_node_that_was_left_rebooting_is_waited_for(one):
    resumed(one)
    leaving = dict(one.on_node("a"), going_down=True, boot_id="x")
    one.answers = [leaving, AnsibleConnectionFailure("it boots"), leaving]
    with mock.patch.object(_node_claim, "REBOOTING_S", 0.01):
        answer = one.gate(resume_step="evidence")
    assert (
        answer["answer"] == "go"
        and answer["resume"] == "stopped"
        and claim_of(one)["attempt"] == 2
        and one.calls[-4:] == [("gpufleet.lifecycle.node_state", "held")] * 4
    )


def test_a_node_that_does_not_come_back_is_not_waited_for_for_ever(one):
    resumed(one)
    one.answers = [dict(one.on_node("a"), going_down=True, boot_id="x")] * 99
    with mock.patch.object(_node_claim, "REBOOTING_S", 0.01):
        answer = one.gate(resume_step="evidence", claim_timeout_s=0)
    assert (
        answer["failed"]
        and "it is about to reboot" in answer["msg"]
        and one.node().state == "lost"
        and claim_of(one)["attempt"] == 1
    )


@pytest.mark.parametrize("check", [False, True])
def test_by_hand_no_node_is_taken_from_a_rollout_and_none_is_claimed(one, check):
    assert one.act(rollout_gate, "a", check, mode="none", claim_dir="x")["answer"] == "go" and claim_of(one) is None
    one.plan()
    one.gate()
    refused = one.act(rollout_gate, "a", check, mode="none", claim_dir="x")
    assert refused["failed"] and "a cannot be taken outside of its rollout: it is held by rollout r1" in refused["msg"]
    (one.nodes / "a" / "claim.json").write_text("{")
    assert "it is not JSON" in one.act(rollout_gate, "a", check, mode="none", claim_dir="x")["msg"]


def test_check_mode_claims_nothing(one):
    one.plan(check=True)
    assert (
        one.act(rollout_gate, "a", True, claim_dir="x")["answer"] == "go" and one.calls == [] and claim_of(one) is None
    )


@pytest.mark.parametrize("step, goes", [("reboot", True), ("install", False)])
def test_a_node_that_was_left_rebooting_and_does_not_answer_yet_is_no_lost_one(one, step, goes):
    one.plan()
    one.gate()
    one.gate(phase="down", step="stop", documents=fit("a"), claim_dir=None)
    one.step(name=step)
    silent = {"a": {"unreachable": True, "msg": "no route"}, "b": {"audit": {"versions": {"loaded": "1.0"}}}}
    made = one.plan(audits=silent, markers={"b": one.on_node("b")})
    assert made["nodes"]["a"]["state"] == ("pending" if goes else "lost") and made["order"] == (
        ["a", "b"] if goes else ["b"]
    )
    if goes:
        one.answers = [AnsibleConnectionFailure("no route")] * 2
        with mock.patch.object(_node_claim, "REBOOTING_S", 0.01):
            answer = one.gate(resume_step="evidence")
        assert answer["answer"] == "go" and answer["resume"] == "changed" and claim_of(one)["attempt"] == 2
        assert made["nodes"]["a"]["from"] == "1.0"


@pytest.mark.parametrize("mode, is_refused", [("ledger", True), ("none", True)])
@pytest.mark.parametrize("name", ["nvidia_driver_version", "gpu_scheduler_token", "kernel_hold_kernel"])
def test_gate_refuses_a_fact_that_outranks_the_way_back(one, name, mode, is_refused):
    one.plan()
    result = one.gate(mode=mode, hidden={name: None}, facts={name: "3.0"})
    assert bool(result.get("failed")) == is_refused and result["msg"].startswith(name + " is set ")
    assert one.node().state == "pending" and not one.calls
    assert one.gate(mode=mode, hidden={name: None})["answer"] == "go"


@pytest.mark.parametrize(
    "name, mode, is_refused",
    [
        ("gpu_node_upgrade_version", "ledger", True),
        ("gpu_node_upgrade_version", "none", False),  # the caller's own
        ("nvidia_driver_version", "none", True),
    ],
)
def test_gate_refuses_extra_variables_without_a_value(one, monkeypatch, name, mode, is_refused):
    one.plan()
    monkeypatch.setattr(rollout_gate, "load_extra_vars", lambda loader: {name: None})
    assert bool(one.gate(mode=mode).get("failed")) == is_refused


IN_USE = {"baseline": {"snapshot": {"gpus": [{"index": 0, "compute_processes": {"rc": 0, "value": [{"pid": 7}]}}]}}}
UNREAD = {"baseline": {"snapshot": {"gpus": [{"index": 0, "compute_processes": {"rc": 999, "value": None}}]}}}


def verdict(name, **changes):
    """Return documents of a node with one verdict changed."""
    good = {**fit("a"), **passed("a")}
    return dict(good, **{name: dict(good[name], **changes)})


@pytest.mark.parametrize(
    "documents, is_granted",
    [
        (fit("a"), True),
        ({}, False),
        ({"baseline": fit("a")["baseline"]}, False),
        ({"health-before": fit("a")["health-before"]}, False),
        (dict(fit("a"), **IN_USE), False),
        (dict(fit("a"), **UNREAD), False),
        (dict(fit("a"), baseline={"snapshot": {"gpus": []}}), False),
        (verdict("health-before", verdict="fail"), False),
        (verdict("health-before", verdict="unknown"), False),
        (verdict("health-before", phase="adhoc"), False),
        (verdict("health-before", node="b"), False),
        (verdict("health-before", sequence=0), False),  # of an earlier attempt
        (verdict("health-before", sequence=None), False),
    ],
    ids=str,
)
def test_node_goes_down_only_if_the_ledger_has_it_fit_and_idle(one, documents, is_granted):
    one.plan()
    one.gate()
    one.step(name="drain", documents=documents)
    answer = one.gate(phase="down", step="stop")
    assert (answer["answer"], one.node().state) == (("go", "down") if is_granted else ("stop", "draining"))


def quarantine_and_repair(one):
    """Change node a, fail to put it back, and plan it again from the beginning."""
    one.plan()
    one.gate()
    one.gate(phase="down", step="stop", documents=fit("a"))
    one.step(name="install")
    one.step(failed="it broke")
    one.step(name="quarantine")
    one.step(state="quarantined", reason="it broke")
    assert one.plan()["nodes"]["a"]["again"]


@pytest.mark.parametrize("ended", ["pending", "failed"])
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_repaired_node_that_is_not_changed_ends_as_one(one, ended, is_interrupted):
    """It is sick, or may not go down: it is not put in quarantine for what an earlier attempt did."""
    quarantine_and_repair(one)
    assert one.gate()["resume"] == ""
    if is_interrupted:
        one.step(name="drain")
        one.plan()
        assert one.gate()["resume"] == ""
    assert not one.step(state=ended, reason="why").get("failed")
    assert one.node().state == ended and state.is_unproven(one.node())


@pytest.mark.parametrize("ended", ["pending", "failed"])
def test_repaired_node_that_was_changed_again_does_not_end_as_one_that_was_not(one, ended):
    quarantine_and_repair(one)
    one.gate()
    one.gate(phase="down", step="stop", documents=fit("a"))
    one.step(name="install")
    one.plan()
    assert one.gate()["resume"] == "changed"
    assert one.step(state=ended, reason="why")["failed"] and one.node().state == "down"


PLANNED = {"machine_id": "1" * 32, "board_serial": "S1", "gpus": ["GPU-a"]}


@pytest.mark.parametrize(
    "now, is_granted",
    [
        (PLANNED, True),
        ({}, True),
        (dict(PLANNED, gpus=["GPU-b"]), True),  # its health says what that means
        (dict(PLANNED, machine_id=None), True),
        (dict(PLANNED, machine_id="2" * 32), False),  # installed again, or its name leads to another machine
        (dict(PLANNED, machine_id=None, board_serial="S2"), False),
    ],
    ids=str,
)
def test_node_goes_down_only_as_the_machine_that_was_planned(one, now, is_granted):
    audit = {"audit": {"versions": {"loaded": "1.0"}, "identity": PLANNED}}
    one.plan(audits={"a": audit, "b": {"audit": {"versions": {"loaded": "1.0"}}}})
    one.gate()
    documents = fit("a")
    documents["baseline"]["audit"]["identity"] = now
    answer = one.gate(phase="down", step="stop", documents=documents)
    assert (answer["answer"], one.node().state) == (("go", "down") if is_granted else ("stop", "draining"))


@pytest.mark.parametrize(
    "documents, is_granted",
    [
        (passed("a"), True),
        ({}, False),
        (verdict("health-after", verdict="fail"), False),
        (verdict("health-after", phase="baseline"), False),
        (verdict("health-after", driver={"expected": "1.0"}), False),
        (verdict("health-after", sequence=1), False),  # before the last change
    ],
    ids=str,
)
def test_node_serves_again_only_if_it_passed_after_its_last_change(one, documents, is_granted):
    one.plan()
    one.gate()
    one.gate(phase="down", step="stop", documents=fit("a"))
    one.step(name="install")
    one.step(name="validate")
    answer = one.gate(phase="return", step="return", documents=documents)
    assert answer["answer"] == ("go" if is_granted else "stop")
    assert one.node().steps[-1].name == ("return" if is_granted else "validate")


@pytest.mark.parametrize("mode", ["ledger", "none"])
def test_node_does_not_start_where_errors_are_ignored(one, mode):
    one.plan()
    refused = one.gate(mode=mode, ignore_errors=True)
    assert (refused["failed"], refused["answer"], refused["left_drained"]) == (True, "stop", False)
    assert one.node().state == "pending" and not one.calls
    assert one.gate(mode=mode)["answer"] == "go"


def test_two_names_of_one_machine_do_not_go_at_once(one):
    """Nothing of the machine could be read that would have told the plan."""
    one.plan(max_down=2)
    (one.nodes / "b").symlink_to(one.nodes / "a")
    assert one.gate()["answer"] == "go" and claim_of(one)["node"] == "a"
    refused = one.gate("b")
    assert refused["failed"] and "under the name a" in refused["msg"] and one.node("b").state == "failed"
    assert claim_of(one)["node"] == "a" and one.node().state == "draining"


@pytest.mark.parametrize("ended, is_refused", [("done", True), ("rolled_back", True), ("failed", False)])
def test_node_that_a_rollout_of_another_ledger_changed_is_refused_by_name(one, two, ended, is_refused):
    early = two.plan(rollout_id="early")  # before the first ledger took the node
    assert not early.get("failed")
    one.plan()
    one.gate()
    assert not one.step(state=ended).get("failed") and claim_of(one) is None
    refused = two.plan(rollout_id="r2")
    assert bool(refused.get("failed")) == is_refused and ("rollout r1 of another ledger" in str(refused)) == is_refused
    late = two.gate(rollout_id="early")
    assert bool(late.get("failed")) == is_refused, "the node says so too"
    if is_refused:
        assert two.node(rollout_id="early").state == "failed"
        assert not two.plan(rollout_id="r3", other_ledger_s=0).get("failed")
        assert not two.plan(rollout_id="r4", abandon=["a"]).get("failed")
        assert two.gate(rollout_id="r4")["answer"] == "go" and claim_of(two)["rollout_id"] == "r4"
        assert not one.plan(rollout_id="r5", target="3.0", abandon=["a"]).get("failed"), "its own ledger knows"
