# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which power limits are lowered and restored, and what is refused."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import relief

NOW, LATER, PAST = "2026-03-01T12:00:00Z", "2026-03-02T12:00:00Z", "2026-03-01T11:00:00Z"
NONE = {"exists": False, "note": None, "problem": "", "path": "/var/lib/gpufleet/thermal_relief.json"}
THRESHOLDS = {name: row["value"] for name, row in catalog.thresholds().items()}
HW, SW, BRAKE, SLOW = 0x48, 0x20, 0x88, 0x8
LOST = {"value": None, "rc": 15, "error": "GPU_IS_LOST"}


def value(what):
    return what if isinstance(what, dict) else {"value": what, "rc": 0}


def gpu(uuid="GPU-a", reasons=HW, limit=500000, low=200000, high=700000, **more):
    told = {"uuid": uuid, "clocks_event_reasons": reasons, "power_limit_mw": limit}
    told.update(power_limit_min_mw=low, power_limit_max_mw=high, temperature_gpu_c=60, **more)
    return {key: value(what) for key, what in told.items()}


def decide(*gpus, note="none", **given):
    facts = {"node": "n1", "state": "lowered", "hours": 24, "time": NOW, "user": "kim", "controller": "c1"}
    facts.update(
        note=NONE if note == "none" else note,
        limits=THRESHOLDS,
        info={"snapshot": {"status": "ok", "gpus": list(gpus)}},
    )
    return relief.decide(dict(facts, **given))


def entry(uuid="GPU-a", before=500000, lowered=400000):
    return {"uuid": uuid, "before_mw": before, "lowered_mw": lowered}


def kept(*entries, expires=LATER, **more):
    note = {"schema": "gpufleet.thermal-relief/1", "node": "n1", "time": PAST, "expires": expires, "user": "kim"}
    note.update(controller="c1", request={"percent": 20, "hours": 24}, gpus=list(entries or [entry()]), **more)
    return dict(NONE, exists=True, note=note)


@pytest.mark.parametrize(
    "given, lowered",
    [
        ({}, 400000),
        ({"percent": 30}, 350000),
        ({"percent": 12.5}, 437000),
        ({"watts": 250.5}, 250500),
        ({"watts": 200}, 200000),
        ({"percent": 60}, 200000),
    ],
)
def test_a_limit_is_lowered_by_a_share_in_whole_watts_or_to_a_number(given, lowered):
    found = decide(gpu(), gpu("GPU-b", 0), **given)
    assert found["refusal"] == "" and found["do"] == "lower" and found["throttled"] == ["GPU-a"]
    assert [(step["gpus"], float(step["watts"]) * 1000) for step in found["steps"]] == [(["GPU-a"], lowered)]
    assert found["note"]["gpus"] == [entry(lowered=lowered)] and found["note"]["expires"] == LATER
    assert found["gpus"] == [{"gpu": "GPU-a", "before_w": 500.0, "lowered_w": lowered / 1000, "now_w": 500.0}]


@pytest.mark.parametrize(
    "reasons, hot", [(HW, True), (SW, True), (BRAKE, False), (SLOW, False), (0x4, False), (0, False)]
)
def test_heat_alone_is_a_reason(reasons, hot):
    found = decide(gpu(reasons=reasons))
    assert found["refusal"] == "" and found["do"] == ("lower" if hot else "none") and bool(found["steps"]) is hot
    assert bool(found["note"]) is hot


@pytest.mark.parametrize(
    "given, word",
    [
        ({"percent": 61}, "200 to 700 W"),
        ({"watts": 199}, "200 to 700 W"),
        ({"watts": 500}, "500 W"),
        ({"percent": 10, "watts": 300}, "both"),
        ({"percent": 91}, "91 percent"),
        ({"percent": -1}, "-1 percent"),
        ({"watts": -300}, "-300 W"),
        ({"hours": 0}, "0 hours"),
        ({"hours": 721}, "721 hours"),
        ({"note": {}}, "note"),
        ({"note": dict(NONE, exists=True, problem="it is not JSON")}, "not JSON"),
        ({"note": kept(dict(entry(), before_mw=None))}, "damaged"),
        ({"note": kept(dict(entry(), before_mw=None)), "state": "restored"}, "damaged"),
        ({"note": dict(NONE, exists=True, note={"schema": "x"}), "state": "restored"}, "damaged"),
        ({"info": {"msg": "NVML hangs"}}, "NVML hangs"),
        ({"info": {"snapshot": {"status": "timeout", "gpus": []}}}, "timeout"),
        ({"info": {"snapshot": {"status": "ok", "gpus": [gpu(uuid=LOST)]}}}, "UUID"),
        ({"info": {"snapshot": {"status": "ok", "gpus": [gpu(reasons=LOST)]}}}, "cannot be told"),
        ({"info": {"snapshot": {"status": "ok", "gpus": [gpu(limit=LOST)]}}}, "power_limit_mw"),
        ({"info": {"snapshot": {"status": "ok", "gpus": [gpu(low=LOST)]}}}, "power_limit_min_mw"),
        ({"info": {"snapshot": {"status": "ok", "gpus": [gpu(high=LOST)]}}}, "power_limit_max_mw"),
        ({"note": kept(entry(before=800000)), "state": "restored"}, "800 W"),
        (
            {"note": kept(), "state": "restored", "info": {"snapshot": {"status": "ok", "gpus": [gpu(limit=LOST)]}}},
            "limit",
        ),
    ],
)
def test_what_is_refused_leaves_no_step(given, word):
    found = decide(gpu(), **given)
    assert word in found["refusal"] and found["do"] == "none" and found["steps"] == [] and found["note"] == {}


def test_one_card_that_does_not_take_it_refuses_all():
    found = decide(gpu(), gpu("GPU-b", limit=220000))
    assert "GPU-b" in found["refusal"] and "200 to 700 W" in found["refusal"] and found["steps"] == []


def test_a_second_run_changes_nothing_and_sets_again_what_was_lost():
    cold = decide(gpu(reasons=0, limit=400000), note=kept())
    assert (cold["do"], cold["steps"], cold["note"]) == ("keep", [], kept()["note"])
    lost = decide(gpu(reasons=0), note=kept())
    assert (lost["do"], lost["note"]) == ("lower", kept()["note"]) and lost["steps"][0]["watts"] == "400"


def test_another_wish_starts_from_the_limit_before_and_an_expired_waiver_is_renewed():
    more = decide(gpu(limit=400000), note=kept(), percent=40)
    assert more["steps"] == [{"watts": "300", "gpus": ["GPU-a"]}] and more["note"]["gpus"] == [entry(lowered=300000)]
    renewed = decide(gpu(limit=400000), note=kept(expires=PAST))
    assert (renewed["do"], renewed["steps"], renewed["note"]["expires"]) == ("lower", [], LATER)
    assert renewed["note"]["gpus"] == [entry()] and renewed["note"]["time"] == PAST
    second = decide(gpu(limit=400000), gpu("GPU-b", limit=600000), note=kept())
    assert second["note"]["gpus"] == [entry(), entry("GPU-b", 600000, 480000)]
    assert second["steps"] == [{"watts": "480", "gpus": ["GPU-b"]}]


def test_a_restore_puts_back_exactly_what_was_there_and_only_what_is_noted():
    both = kept(entry(), entry("GPU-b", 650500, 520000), entry("GPU-c"))
    found = decide(gpu(limit=400000), gpu("GPU-b", limit=650500), gpu("GPU-d"), note=both, state="restored")
    assert (found["refusal"], found["do"], found["gone"]) == ("", "restore", ["GPU-c"])
    assert found["steps"] == [{"watts": "500", "gpus": ["GPU-a"]}], "one has it already, and one is gone"
    exact = decide(gpu("GPU-b", limit=520000), note=kept(entry("GPU-b", 650125, 520000)), state="restored")
    assert exact["steps"] == [{"watts": "650.125", "gpus": ["GPU-b"]}]
    assert decide(gpu(), state="restored")["do"] == "none"


def test_a_gpu_that_tells_no_reasons_is_named_beside_one_that_is_hot():
    found = decide(gpu(), gpu("GPU-b", LOST))
    assert found["refusal"] == "" and found["unread"] == ["GPU-b"] and found["note"]["gpus"] == [entry()]
