# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rates as the caller uses them: those to be measured again, and a change that all nodes share."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import smoke_rates
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.smoke_documents import (
    NAME,
    NOISY,
    RATES,
    document,
    entry,
    judge,
    one,
    rate,
    statuses,
)


def limits(_name):
    return {"baseline": (5, 5, 10), "peers": (10, 5, 40), "peers_min": 3}


def test_what_is_measured_again():
    now = document()
    now["gpus"][0]["tests"]["device_copy"] = rate("device_copy", 0.9)
    now["gpus"][1]["tests"]["host_to_device"] = rate("host_to_device", 1.0, NOISY)
    assert smoke_rates.unsettled(now, document(), limits) == {
        readings.uuid(0): ["device_copy"],
        readings.uuid(1): ["host_to_device"],
    }
    assert smoke_rates.unsettled(document(), document(), limits) == {}
    assert smoke_rates.unsettled(now, None, limits) == {}
    # Wrong results are not: they do not become right.
    now["gpus"][0] = entry(0)
    now["gpus"][0]["tests"]["vector_add"].update(ok=False, samples=[1] * 5)
    assert readings.uuid(0) not in smoke_rates.unsettled(now, document(), limits)
    crowd = document(4)
    crowd["gpus"][3] = entry(3, 0.8)
    assert smoke_rates.unsettled(crowd, None, limits) == {readings.uuid(3): sorted(RATES)}


def test_both_measurements_are_kept_and_the_last_one_counts():
    first, second = document(factor=0.9), document(1)
    second["gpus"][0]["tests"] = {"device_copy": rate("device_copy")}
    result = smoke_rates.merged(first, second)
    test = result["gpus"][0]["tests"]["device_copy"]
    assert smoke_rates.middle(test) == RATES["device_copy"] and [
        smoke_rates.middle(old) for old in test["attempts"]
    ] == [0.9 * RATES["device_copy"]]
    assert (
        result["gpus"][1] == first["gpus"][1]
        and result["gpus"][0]["tests"]["host_to_device"] == first["gpus"][0]["tests"]["host_to_device"]
    )
    again = smoke_rates.merged(result, second)["gpus"][0]["tests"]["device_copy"]
    assert len(again["attempts"]) == 2 and all("attempts" not in old for old in again["attempts"])
    checks = judge(dict(first, gpus=[smoke_rates.merged(first, document(factor=0.9))["gpus"][0], entry(1)]), document())
    assert "measured 2 times;" in one(checks, "smoke.memory_bandwidth")["message"]


def test_a_gpu_that_cannot_be_measured_again_is_not_what_it_was():
    second = document(1)
    second["gpus"][0].update(state="hung", reason="CUDA did not answer", tests={})
    result = smoke_rates.merged(document(), second)
    assert statuses(judge(result), "smoke.compute") == ["fail", "pass"]


def fleet(*factors):
    return dict(("node-%d" % number, document(2, factor)) for number, factor in enumerate(factors))


def test_a_shift_that_all_nodes_share_is_the_drivers():
    findings = smoke_rates.shifts(fleet(1, 1, 1, 1), fleet(0.9, 0.91, 0.9, 0.89), 5, 3)
    assert set((found["finding"], found["test"]) for found in findings) == set(
        ("driver_regression", name) for name in RATES
    )
    assert findings[0]["nodes"] == ["node-0", "node-1", "node-2", "node-3"] and findings[0]["model"] == NAME
    assert (
        findings[0]["change_percent"] == pytest.approx(-10, abs=0.6)
        and "the driver is slower, not a node" in findings[0]["message"]
    )


@pytest.mark.parametrize(
    "before, after, expected",
    [
        (fleet(1, 1, 1, 1), fleet(1, 1, 1, 1), set()),
        (fleet(1, 1, 1, 1), fleet(0.97, 0.97, 0.97, 0.97), set()),
        (fleet(1, 1, 1, 1), fleet(1.1, 1.1, 1.1, 1.1), set()),
        (fleet(1, 1, 1, 1), fleet(1, 1, 1, 0.8), {("outliers", "node-3")}),
        (fleet(1, 1, 1, 1), fleet(0.9, 0.9, 0.9, 0.6), {("outliers", "node-3")}),
        (fleet(1, 1), fleet(0.8, 0.8), set()),
        (fleet(1, 1, 1), dict(fleet(0.8, 0.8), other=document(2, 0.8)), set()),
        ({}, {}, set()),
    ],
)
def test_what_one_node_alone_does_is_not_the_drivers(before, after, expected):
    assert (
        set((found["finding"], node) for found in smoke_rates.shifts(before, after, 5, 3) for node in found["nodes"])
        == expected
    )


def test_nodes_that_cannot_be_compared_say_nothing_about_a_driver():
    after = fleet(0.8, 0.8, 0.8)
    for node in after.values():
        node["simulated"] = False
    assert smoke_rates.shifts(fleet(1, 1, 1), after, 5, 3) == []
    after = fleet(0.8, 0.8, 0.8)
    for node in after.values():
        for gpu in node["gpus"]:
            gpu["tests"] = "damaged"
    assert smoke_rates.shifts(fleet(1, 1, 1), after, 5, 3) == []
