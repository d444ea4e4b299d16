# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rates against the baseline, against peers, and of NCCL."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import smoke_rates, smoke_speed
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.documents import (
    NOISY,
    RATE_IDENTS,
    RATES,
    WOBBLE,
    document,
    entry,
    judge,
    one,
    rate,
    statuses,
)


def test_what_was_measured_before_and_cannot_be_any_more_is_unknown():
    now = document()
    now["gpus"][0].update(state="not_applicable", reason="it is in MIG mode", tests={})
    checks = judge(now, document())
    for ident in RATE_IDENTS:
        assert statuses(checks, ident) == ["unknown", "pass"], ident


@pytest.mark.parametrize("ident, name", [(ident, name) for ident, name, dummy in smoke_speed.RATES])
@pytest.mark.parametrize(
    "factor, status", [(1.2, "pass"), (1.0, "pass"), (0.951, "pass"), (0.945, "fail"), (0.5, "fail")]
)
def test_the_gate_is_at_the_tolerance(ident, name, factor, status):
    now = document()
    now["gpus"][1]["tests"][name] = rate(name, factor)
    checks = judge(now, document())
    assert statuses(checks, ident) == ["pass", status]
    assert set(status for other in RATE_IDENTS if other != ident for status in statuses(checks, other)) == {"pass"}
    if status == "fail":
        check = one(checks, ident, 1)
        assert check["source"] == "baseline" and "lower than in the baseline" in check["message"]
        assert "measured 1 time;" in check["message"]


def test_the_tolerance_is_the_policys_and_may_be_that_of_a_model():
    now, old = document(factor=0.93), document()
    assert statuses(judge(now, old), "smoke.memory_bandwidth") == ["fail", "fail"]
    assert statuses(judge(now, old, smoke_tolerance_percent=8), "smoke.memory_bandwidth") == ["pass", "pass"]
    assert statuses(judge(now, old, models={"*H100*": {"smoke_tolerance_percent": 8}}), "smoke.memory_bandwidth") == [
        "pass",
        "pass",
    ]
    assert statuses(judge(now, old, models={"*A100*": {"smoke_tolerance_percent": 8}}), "smoke.memory_bandwidth") == [
        "fail",
        "fail",
    ]


@pytest.mark.parametrize("factor, status", [(1.0, "unknown"), (0.93, "unknown"), (0.8, "unknown"), (0.7, "fail")])
def test_noise_leaves_open_what_does_not_stand_out_from_it(factor, status):
    # The median absolute deviation is 5 %, five times that is 25 %.
    now = document()
    now["gpus"][0]["tests"]["device_copy"] = rate("device_copy", factor, NOISY)
    assert one(judge(now, document()), "smoke.memory_bandwidth")["status"] == status
    old = document()
    old["gpus"][0]["tests"]["device_copy"] = rate("device_copy", 1.0, NOISY)
    assert one(judge(document(factor=factor), old), "smoke.memory_bandwidth")["status"] == status


def test_some_noise_widens_the_tolerance():
    wobble = (0.98, 0.985, 1.0, 1.015, 1.02)  # MAD 1.5 %: 7.5 % are within the noise
    for factor, status in ((0.94, "pass"), (0.91, "fail")):
        now = document()
        now["gpus"][0]["tests"]["device_copy"] = rate("device_copy", factor, wobble)
        assert one(judge(now, document()), "smoke.memory_bandwidth")["status"] == status


@pytest.mark.parametrize(
    "change",
    [
        {"samples": []},
        {"samples": [1.0] * 4},
        {"samples": [0.0] * 5},
        {"samples": [2900.0] * 4 + [float("nan")]},
        {"samples": None},
        {"error": {"call": "cuMemAlloc_v2", "rc": 2, "name": "CUDA_ERROR_OUT_OF_MEMORY"}},
        None,
    ],
)
def test_a_rate_that_was_not_measured_is_unknown(change):
    now = document()
    now["gpus"][0]["tests"]["device_copy"] = (
        None if change is None else dict(now["gpus"][0]["tests"]["device_copy"], **change)
    )
    for old in (None, document()):
        assert one(judge(now, old), "smoke.memory_bandwidth")["status"] == "unknown"


def test_measurements_that_differ_in_kind_are_not_compared():
    now = document()
    now["gpus"][0]["tests"]["device_copy"]["parameters"] = {"bytes": 2}
    assert one(judge(now, document()), "smoke.memory_bandwidth")["status"] == "unknown"
    checks = judge(document(), document(simulated=False))
    for ident in RATE_IDENTS:
        assert statuses(checks, ident) == ["unknown", "unknown"]


def test_without_an_earlier_measurement_there_is_nothing_to_compare():
    for old in (None, document(0), {}, {"gpus": "x"}):
        assert set(statuses(judge(document(), old), "smoke.memory_bandwidth")) == {"not_applicable"}
    assert set(statuses(judge(document(), document(0), smoke_required=1), "smoke.memory_bandwidth")) == {"unknown"}


def test_other_temperatures_and_clocks_are_noted():
    now = document()
    now["gpus"][0]["tests"]["device_copy"].update(temperature_c=[70] * 5, clock_sm_mhz=[1200] * 5)
    check = one(judge(now, document()), "smoke.memory_bandwidth")
    assert (check["status"], check["notice"]) == ("pass", True) and "70 degrees" in check["message"]
    assert "1200 MHz" in check["message"]
    now["gpus"][0]["tests"]["device_copy"].update(rate("device_copy", 0.9), temperature_c=[70] * 5)
    assert "70 degrees" in one(judge(now, document()), "smoke.memory_bandwidth")["message"]
    now["gpus"][0]["tests"]["device_copy"].update(rate("device_copy"), temperature_c=[None] * 5, clock_sm_mhz=None)
    assert one(judge(now, document()), "smoke.memory_bandwidth")["status"] == "pass"


@pytest.mark.parametrize("factor, status", [(1.0, "pass"), (0.91, "pass"), (0.85, "fail")])
def test_a_gpu_slower_than_its_peers_fails(factor, status):
    now = document(2)
    now["gpus"][0] = entry(0, factor)
    peer = document(2)
    for number, gpu in enumerate(peer["gpus"]):
        gpu["uuid"] = "GPU-peer-%d" % number
    checks = judge(dict(now, peers=[peer]))
    assert statuses(checks, "smoke.peers") == [status, "pass"]


def test_peers_are_gpus_of_the_same_model_measured_in_the_same_way():
    slow = document(2, 0.5)
    peers = [document(2) for dummy in range(3)]
    for number, peer in enumerate(peers):
        for gpu in peer["gpus"]:
            gpu["uuid"] = "GPU-peer-%d-%d" % (number, gpu["index"])
    assert set(statuses(judge(dict(slow, peers=peers)), "smoke.peers")) == {"fail"}
    for change in (
        lambda peer: peer.update(simulated=False),
        lambda peer: [gpu.update(name="NVIDIA L4") for gpu in peer["gpus"]],
        lambda peer: [test.update(parameters={}) for gpu in peer["gpus"] for test in gpu["tests"].values()],
        lambda peer: [gpu.update(state="unknown") for gpu in peer["gpus"]],
        lambda peer: peer.update(gpus=None),
    ):
        others = copy.deepcopy(peers)
        for peer in others:
            change(peer)
        assert set(statuses(judge(dict(slow, peers=others)), "smoke.peers")) == {"not_applicable"}


@pytest.mark.parametrize("key, ident", [("node", "smoke.nccl_node"), ("fleet", "smoke.nccl_fleet")])
def test_results_of_nccl_are_compared_where_they_are_given(key, ident):
    def given(factor, count=5):
        return document(
            nccl={
                key: {
                    "unit": "GB/s",
                    "samples": [470.0 * factor * one for one in WOBBLE[:count]],
                    "parameters": {},
                    "error": None,
                }
            }
        )

    assert one(judge(given(1.0)), ident)["status"] == "not_applicable"
    assert one(judge(given(1.0), given(1.0)), ident)["status"] == "pass"
    assert one(judge(given(0.9), given(1.0)), ident)["status"] == "fail"
    assert one(judge(given(1.0, 2), given(1.0)), ident)["status"] == "unknown"
    assert one(judge(document(), given(1.0)), ident)["status"] == "unknown"
    noisy = given(1.0)
    noisy["nccl"][key]["samples"] = [470.0 * one for one in NOISY]
    assert one(judge(noisy, given(1.0)), ident)["status"] == "unknown"


def limits(_name):
    return {"baseline": (5, 5, 10), "peers": (10, 5, 40), "peers_min": 3}


def test_what_is_measured_again():
    now = document()
    now["gpus"][0]["tests"]["device_copy"] = rate("device_copy", 0.9)
    now["gpus"][1]["tests"]["host_to_device"] = rate("host_to_device", 1.0, NOISY)
    assert smoke_rates.find_unsettled_tests(now, document(), limits) == {
        readings.uuid(0): ["device_copy"],
        readings.uuid(1): ["host_to_device"],
    }
    assert smoke_rates.find_unsettled_tests(document(), document(), limits) == {}
    assert smoke_rates.find_unsettled_tests(now, None, limits) == {}
    # Wrong results are not: they do not become right.
    now["gpus"][0] = entry(0)
    now["gpus"][0]["tests"]["vector_add"].update(ok=False, samples=[1] * 5)
    assert readings.uuid(0) not in smoke_rates.find_unsettled_tests(now, document(), limits)
    crowd = document(4)
    crowd["gpus"][3] = entry(3, 0.8)
    assert smoke_rates.find_unsettled_tests(crowd, None, limits) == {readings.uuid(3): sorted(RATES)}


def test_both_measurements_are_kept_and_the_last_one_counts():
    first, second = document(factor=0.9), document(1)
    second["gpus"][0]["tests"] = {"device_copy": rate("device_copy")}
    result = smoke_rates.merge_repeats(first, second)
    test = result["gpus"][0]["tests"]["device_copy"]
    assert smoke_rates.find_median(test) == RATES["device_copy"]
    assert [smoke_rates.find_median(old) for old in test["attempts"]] == [0.9 * RATES["device_copy"]]
    assert result["gpus"][1] == first["gpus"][1]
    assert result["gpus"][0]["tests"]["host_to_device"] == first["gpus"][0]["tests"]["host_to_device"]
    again = smoke_rates.merge_repeats(result, second)["gpus"][0]["tests"]["device_copy"]
    assert len(again["attempts"]) == 2 and all("attempts" not in old for old in again["attempts"])
    checks = judge(
        dict(first, gpus=[smoke_rates.merge_repeats(first, document(factor=0.9))["gpus"][0], entry(1)]), document()
    )
    assert "measured 2 times;" in one(checks, "smoke.memory_bandwidth")["message"]


def test_a_gpu_that_cannot_be_measured_again_is_not_what_it_was():
    second = document(1)
    second["gpus"][0].update(state="hung", reason="CUDA did not answer", tests={})
    result = smoke_rates.merge_repeats(document(), second)
    assert statuses(judge(result), "smoke.compute") == ["fail", "pass"]
