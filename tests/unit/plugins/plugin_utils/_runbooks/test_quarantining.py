# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables of a node on its way into quarantine and out of it."""

from __future__ import annotations

import base64
import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import quarantining

NOTE = {
    "schema": "gpufleet.quarantine/1",
    "node": "a1",
    "time": "2026-01-01T00:00:00Z",
    "reason": "fan",
    "record": "/r",
    "token": "up-1",
    "gpus": [{"uuid": "GPU-a"}],
}
CLEAR = {"held": "", "states": {}, "baseline": None}
ANSWERS = {
    "marks": {"claim": None, "problem": ""},
    "note": {"exists": False, "note": None, "problem": ""},
    "flight": CLEAR,
}
PASS, FAIL = ({"health": {"verdict": said, "checks": []}, "tested": True} for said in ("pass", "fail"))


def decide(**facts):
    return quarantining.decide(
        dict(
            {
                "node": "a1",
                "reason": "XID 79",
                "time": "2026-01-31T12:00:00Z",
                "token": "quarantine",
                "user": "kim",
                **ANSWERS,
            },
            **facts,
        )
    )


def there(note=None, **more):
    return dict({"exists": True, "note": NOTE if note is None else note, "problem": ""}, **more)


def snapshot(*uuids):
    return {"gpus": [{"index": 0, "uuid": {"value": uuid, "rc": 0}} for uuid in uuids]}


def kept(*uuids):
    return {"content": base64.b64encode(json.dumps({"snapshot": snapshot(*uuids)}).encode()).decode()}


@pytest.mark.parametrize(
    ("facts", "answers"),
    [
        ({}, True),
        ({"marks": {"unreachable": True, "msg": "no route"}}, False),
        ({"marks": {"failed": True, "msg": "sudo"}}, False),
        ({"marks": {}}, False),
        ({"note": {"unreachable": True, "msg": "no route"}}, False),
        ({"note": {}}, False),
    ],
)
def test_whether_a_node_answers(facts, answers):
    state = decide(**facts)
    assert state["answers"] is answers and bool(state["silent"]) is not answers
    assert bool(state["incomplete"]) is not answers, "without a marker it is not all done"


@pytest.mark.parametrize(
    ("flight", "refused"),
    [
        (CLEAR, False),
        (dict(CLEAR, held="it is held"), True),
        ({}, True),
        (None, True),
        ({"failed": True, "msg": "the ledger is away"}, True),
    ],
)
def test_a_node_is_refused_unless_it_is_known_to_be_no_rollouts(flight, refused):
    assert bool(decide(flight=flight)["refusal"]) is refused


@pytest.mark.parametrize(
    ("note", "marked", "known", "token", "since"),
    [
        (there(), True, True, "up-1", NOTE["time"]),
        (there(dict(NOTE, record="")), True, False, "up-1", NOTE["time"]),
        (there({"reason": "old", "rollout_id": "up-2", "time": "t"}), True, False, "up-2", "t"),
        (there({}, problem="no JSON"), True, False, "quarantine", ""),
        (ANSWERS["note"], False, False, "quarantine", ""),
    ],
)
def test_what_the_marker_of_a_node_says(note, marked, known, token, since):
    state = decide(note=note)
    assert (state["marked"], state["known"], state["token"], state["marked_at"]) == (marked, known, token, since)


def test_the_marker_that_is_written_keeps_why_and_since_when():
    fresh = decide(
        record={"path": "/new", "gpus": [{"uuid": "GPU-b", "serial": "7"}], "checks": ["gpu.xid"]},
        evidence={"bundle": "/e"},
    )["marker"]
    assert (fresh["reason"], fresh["record"], fresh["evidence"], fresh["serials"], fresh["checks"]) == (
        "XID 79",
        "/new",
        "/e",
        ["7"],
        ["gpu.xid"],
    )
    again = decide(note=there(fresh), record={}, time="2026-02-01T00:00:00Z", reason="another")
    assert again["marker"] == fresh and again["known"]
    assert decide(reason="")["marker"] == {} and decide(note=there(), reason="")["marker"]["reason"] == "fan"


@pytest.mark.parametrize(
    ("facts", "well"),
    [
        ({"baseline_file": kept("GPU-a"), "info": {"snapshot": snapshot("GPU-a")}}, True),
        ({"given_baseline": {"snapshot": snapshot("GPU-a")}, "info": {"snapshot": snapshot("GPU-a")}}, True),
        (
            {
                "flight": dict(CLEAR, baseline={"snapshot": snapshot("GPU-a")}),
                "stat": {"stat": {"exists": False}},
                "info": {"snapshot": snapshot("GPU-a")},
            },
            True,
        ),
        ({"stat": {"stat": {"exists": False}}, "info": {"snapshot": snapshot("GPU-a")}}, False),  # no baseline
        ({"baseline_file": {"failed": True, "msg": "denied"}, "info": {"snapshot": snapshot("GPU-a")}}, False),
        ({"baseline_file": {"content": "e30"}, "info": {"snapshot": snapshot("GPU-a")}}, False),  # damaged
        (
            {"baseline_file": {"content": base64.b64encode(b"[]").decode()}, "info": {"snapshot": snapshot("GPU-a")}},
            False,
        ),
        ({"baseline_file": kept("GPU-a"), "info": {"snapshot": snapshot("GPU-b")}}, False),  # exchanged
        ({"baseline_file": kept("GPU-a", "GPU-b"), "info": {"snapshot": snapshot("GPU-a")}}, False),
        ({"baseline_file": kept("GPU-a"), "info": {"snapshot": snapshot("GPU-a", "GPU-b")}}, False),
        ({"baseline_file": kept("GPU-a"), "info": {"snapshot": snapshot(None)}}, False),
        ({"baseline_file": kept("GPU-a"), "info": {"snapshot": snapshot()}}, False),
        ({"baseline_file": kept("GPU-a"), "info": {"failed": True, "msg": "NVML hangs"}}, False),
        ({"baseline_file": kept("GPU-b"), "info": {"snapshot": snapshot("GPU-b")}}, False),  # its record has another
        ({"baseline_file": kept("GPU-b"), "info": {"snapshot": snapshot("GPU-b")}, "new_baseline": True}, True),
        ({"new_baseline": True}, True),
        ({"new_baseline": True, "note": there({}, problem="no JSON")}, False),
    ],
)
def test_with_which_gpus_a_node_may_come_back(facts, well):
    assert bool(decide(**dict({"note": there()}, **facts))["no_way_back"]) is not well


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"audit": {"identity": "x"}}', '{"snapshot": {"gpus": [5]}}', '{"x": NaN}'], ids=len
)
def test_baseline_of_node_that_cannot_be_used_is_none(text):
    state = decide(note=there(), baseline_file={"content": base64.b64encode(text.encode()).decode()})
    assert state["baseline"] is None and state["no_way_back"]


def test_other_gpus_are_named_with_the_way_out():
    said = decide(note=there(), baseline_file=kept("GPU-a"), info={"snapshot": snapshot("GPU-b")})["no_way_back"]
    assert "missing is GPU-a" in said and "new is GPU-b" in said and "return_to_service_new_baseline=true" in said


@pytest.mark.parametrize(
    ("smoke", "health", "well"),
    [
        (PASS, PASS, True),
        (FAIL, PASS, False),
        (PASS, FAIL, False),
        (FAIL, FAIL, False),
        ({}, PASS, False),
        (PASS, {}, False),
        (PASS, None, False),
        (dict(PASS, tested=False), PASS, False),
        (PASS, {"health": {"verdict": "unknown"}}, False),
        ({"failed": True, "msg": "no CUDA"}, PASS, False),
    ],
)
def test_nothing_but_a_pass_of_both_is_fit(smoke, health, well):
    assert bool(decide(smoke=smoke, health=health)["unfit"]) is not well


def test_a_node_that_cannot_be_tested_needs_a_word_that_says_so():
    assert (
        not decide(smoke={"skipped": True}, smoked=False, health=PASS)["unfit"]
        and decide(smoke={}, smoked=False, health=FAIL)["unfit"]
    )


def test_the_checks_that_did_not_pass_are_named():
    checks = [{"id": "gpu.n%d" % number, "status": "fail", "message": "it is broken"} for number in range(7)]
    state = decide(smoke=PASS, health={"health": {"verdict": "fail", "checks": checks}})
    assert "(gpu.n0): it is broken" in state["unfit"] and "gpu.n1, gpu.n2" in state["unfit"]
    assert len(state["failed_checks"]) == 7


@pytest.mark.parametrize(
    ("job", "host", "expected"),
    [
        ("", "localhost", ("/e", "/r")),
        ("", "store", ("store:/e", "store:/r")),
        ("7", "store", ("store:/e", "store:/r")),
        ("7", "localhost", ("", "")),
    ],
)
def test_marker_names_files_where_they_are_kept(job, host, expected):
    told = {"evidence": {"bundle": "/e"}, "record": {"path": "/r"}, "time": "2026-01-01T00:00:00Z"}
    made = decide(awx_job=job, artifact_host=host, **told)["marker"]
    assert (made["evidence"], made["record"]) == expected


@pytest.mark.parametrize(
    ("action", "named"), [("reset_gpu", True), ("reboot", True), ("hold", False), ("field_diag", False)]
)
def test_node_that_a_reboot_could_clear_is_refused_with_the_command(action, named):
    health = {"health": {"verdict": "fail", "action": action, "checks": []}}
    assert ("ansible a1 -b -m ansible.builtin.reboot" in decide(smoke=PASS, health=health)["unfit"]) is named


def test_a_scheduler_that_was_not_told_and_a_node_that_is_silent_are_both_said():
    said = decide(not_closed="slurmctld does not answer", marks={"unreachable": True, "msg": "no route"})["incomplete"]
    assert "slurmctld does not answer" in said and "no route" in said
    assert decide(not_closed="away")["incomplete"] and not decide()["incomplete"]


def test_who_keeps_it_out():
    state = decide(ownership={"slurm": {"owner": "ours"}, "kubernetes": {"owner": "operator"}})
    assert (state["owned"], state["kept_by_others"]) == (["slurm"], ["kubernetes"])
    assert state["marker"].get("schedulers", ["slurm"]) == ["slurm"]


def mig_gpu(instances, uuid="GPU-a", mode=1):
    """A GPU in MIG mode with so many instances; None does not tell them."""
    told = (
        {"value": None, "rc": 999} if instances is None else {"value": [{"name": "X MIG 1g.10gb"}] * instances, "rc": 0}
    )
    return {"uuid": {"value": uuid, "rc": 0}, "mig_mode_current": {"value": mode, "rc": 0}, "mig_instances": told}


def layout(devices, uuid="GPU-a"):
    return [{"gpus": [uuid], "mig_enabled": True, "mig_devices": {"1g.10gb": devices}}]


NO_DEVICES = [{"gpus": ["GPU-a"], "mig_enabled": True, "mig_devices": {}}]


@pytest.mark.parametrize(
    ("info", "baseline", "health", "in_mig", "wanted"),
    [
        (None, None, None, False, None),
        (None, None, mig_gpu(0, mode=0), False, None),
        (None, None, mig_gpu(2), True, layout(2)),
        (None, mig_gpu(7), mig_gpu(2), True, layout(7)),  # what the node should have
        (mig_gpu(3), mig_gpu(7), mig_gpu(2), True, layout(3)),
        (mig_gpu(0), mig_gpu(7), mig_gpu(0), True, layout(7)),  # a run died while the instances were destroyed
        (mig_gpu(0), mig_gpu(0), None, True, NO_DEVICES),
        (mig_gpu(0), None, None, True, NO_DEVICES),
        (None, mig_gpu(7), mig_gpu(None), True, layout(7)),  # a GPU that is sick may not tell
        (None, mig_gpu(None), mig_gpu(2), True, layout(2)),
        (None, None, mig_gpu(None), True, None),
        (None, mig_gpu(7), {"uuid": {"value": None, "rc": 15}}, True, layout(7)),
    ],
)
def test_the_mig_layout_to_make_again(info, baseline, health, in_mig, wanted):
    facts = {}
    if info:
        facts["info"] = {"snapshot": {"gpus": [info]}}
    if baseline:
        facts["given_baseline"] = {"snapshot": {"gpus": [baseline]}}
    if health:
        facts["health"] = {"health": {"verdict": "pass", "checks": []}, "baseline": {"snapshot": {"gpus": [health]}}}
    state = decide(**facts)
    assert (state["in_mig"], state["mig_layout"]) == (in_mig, wanted)


@pytest.mark.parametrize(
    ("made", "verdict", "do"),
    [
        ({}, "pass", "none"),
        ({"skipped": True}, "pass", "none"),
        ({"failures": [], "reset_required": False}, "pass", "none"),
        ({"failures": [], "reset_required": True}, "pass", "quarantine"),
        ({"failures": [{"code": "failed"}], "msg": "GPU 0"}, "pass", "quarantine"),
        ({"failed": True, "msg": "python3 is gone"}, "pass", "quarantine"),
        ({"failures": []}, "pass", "quarantine"),
        ({"failed": True, "msg": "GPU 0"}, "fail", "reboot"),  # another action may help
    ],
)
def test_a_node_without_its_mig_layout_does_not_serve(made, verdict, do):
    checks = [{"id": "gpu.xid", "entity": "GPU-a", "status": "fail", "action": "reboot"}]
    health = {"verdict": verdict, "action": "reboot", "checks": checks if verdict == "fail" else []}
    state = decide(
        layout_made=made,
        health={"health": health},
        history={"exists": False, "note": None, "problem": ""},
        actions=["restart_service", "reset_gpu", "reboot"],
    )
    assert state["step"]["do"] == do, state["step"]


def test_a_history_that_was_not_read_is_no_empty_one():
    sick = {"health": {"verdict": "fail", "action": "reboot", "checks": []}}
    actions = ["reboot"]
    assert decide(health=sick, actions=actions)["step"]["do"] == "quarantine"
    assert (
        decide(health=sick, actions=actions, history={"exists": False, "note": None, "problem": ""})["step"]["do"]
        == "reboot"
    )
    assert (
        decide(health=sick, actions=actions, history={"exists": True, "note": None, "problem": "no JSON"})["step"]["do"]
        == "quarantine"
    )


def test_words_of_a_node_are_cleaned_before_they_are_noted():
    evil = {"failed": True, "msg": "boom \x1b[2K\u202eall done http://kim:s3cret@h/ " + "x" * 100000}
    state = decide(marks=evil, flight={}, failed_result=evil, health=evil, smoke=evil)
    for found in (state["silent"], state["failure"], state["incomplete"], state["about"]["silent"]):
        assert "boom" in found and found.isprintable() and "s3cret" not in found and len(found) < 5000
