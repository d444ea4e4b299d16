# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What thermal_relief decides on a simulated node that is too hot, and what the health gate says of it afterwards."""

from __future__ import annotations

import json
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import relief
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w

pytestmark = pytest.mark.pythons
NOTE = "var/lib/gpufleet/thermal_relief.json"
NONE = {"exists": False, "note": None, "problem": "", "path": NOTE}
LOW_W, AFTER = 350, "2026-03-02T12:00:00Z"
CHECKS = ("gpu.power_limit", "gpu.power_limit_enforced")


def decide(snapshot, note=None, **given):
    facts = {"node": w.NODE, "state": "lowered", "hours": 24, "time": w.NOW, "note": note or NONE, "watts": LOW_W}
    facts.update(limits={name: row["value"] for name, row in catalog.thresholds().items()}, sensors={"rc": 127})
    return relief.decide(dict(facts, info={"snapshot": snapshot}, **given))


def statuses(taken, baseline, now=w.NOW):
    """{(check, GPU): status} of the checks of power limits."""
    health = w._health.evaluate(taken, baseline, w.POLICY, w.TABLES, w.DRIVER, "post", w.NODE, now)
    return {(check["id"], check["entity"]): check["status"] for check in health["checks"] if check["id"] in CHECKS}


def test_a_lowered_limit_is_waived_as_long_as_it_is_wanted_and_no_other_is(healthy, sick):
    """GPU 0 is hot; afterwards both GPUs have the lowered limit, and only one of them is noted."""
    baseline = healthy().baseline
    world = sick(types.SimpleNamespace(model="h100-sxm", make=("inject hw-thermal --gpu 0",)))
    hot, other = world.uuid(0), world.uuid(1)
    taken = dict(world.reading(), time=w.NOW)  # a waiver ends by the node's clock too
    assert taken["thermal_relief"] == {"note": None, "problem": ""}
    found = decide(taken["snapshot"])
    assert found["refusal"] == "" and found["throttled"] == [hot] and found["cause"] == "unknown"
    assert found["steps"] == [{"watts": str(LOW_W), "gpus": [hot]}] and found["note"]["expires"] == AFTER
    bounds = decide(taken["snapshot"], watts=0, percent=90)
    assert hot in bounds["refusal"] and "takes 200 to 700 W" in bounds["refusal"] and not bounds["steps"]

    for gpu in (hot, other):
        taken = lowered(taken, gpu, LOW_W * 1000)
    assert set(statuses(taken, baseline).values()) == {"fail"}, "without its note nothing is waived"
    world.write(NOTE, json.dumps(found["note"]))
    told = dict(taken, thermal_relief=world.reading()["thermal_relief"])
    assert told["thermal_relief"]["note"] == found["note"]
    waived = {(check, gpu): "waived" if gpu == hot else "fail" for check in CHECKS for gpu in (hot, other)}
    assert statuses(told, baseline) == waived
    assert set(statuses(told, baseline, AFTER).values()) == {"fail"}, "it expired"
    assert statuses(lowered(told, hot, LOW_W * 1000 - 1), baseline)[CHECKS[0], hot] == "fail", "another limit"
    assert statuses(lowered(told, hot, None), baseline)[CHECKS[0], hot] in ("fail", "unknown")
    for damage in ({"schema": "x"}, {"expires": None}, {"expires": "soon"}, {"gpus": None}, {"gpus": [None]}):
        worse = dict(told, thermal_relief={"note": dict(found["note"], **damage), "problem": ""})
        assert set(statuses(worse, baseline).values()) == {"fail"}, damage
    world.write(NOTE, "{")
    assert world.reading()["thermal_relief"]["note"] is None

    back = decide(taken["snapshot"], dict(NONE, exists=True, note=found["note"]), state="restored")
    assert back["do"] == "restore" and back["steps"] == [{"watts": "700", "gpus": [hot]}]


def lowered(taken, uuid, limit):
    """The reading with another power limit of a GPU, None for one that cannot be read."""
    told = {"value": limit, "rc": 0} if limit is not None else {"value": None, "rc": 999, "error": "UNKNOWN"}
    gpus = [
        dict(gpu, power_limit_mw=told, power_limit_enforced_mw=told) if gpu["uuid"]["value"] == uuid else gpu
        for gpu in taken["snapshot"]["gpus"]
    ]
    return dict(taken, snapshot=dict(taken["snapshot"], gpus=gpus))
