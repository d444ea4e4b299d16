# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of GPUs at work: what fails, what is unknown, what does not apply, and that nothing else passes."""

from __future__ import annotations

import copy
import json
import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import registry
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import smoke, smoke_rates
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings

DATA = pathlib.Path(smoke.__file__).resolve().parents[3] / "plugin_utils" / "_data" / "health_policy.json"
POLICY = json.loads(DATA.read_text())
NAME = "NVIDIA H100 80GB HBM3"
RATES = {"device_copy": 2900.0, "host_to_device": 55.0, "device_to_host": 53.0, "matrix_product": 6200.0}
UNITS = {"matrix_product": "GFLOP/s"}
WOBBLE = (0.999, 1.0, 1.001, 1.0005, 0.9995)


def rate(name, factor=1.0, wobble=WOBBLE, **changes):
    test = {
        "unit": UNITS.get(name, "GB/s"),
        "samples": [RATES[name] * factor * one for one in wobble],
        "ok": True,
        "error": None,
        "detail": "",
        "parameters": {"bytes": 1},
        "temperature_c": [40] * 5,
        "clock_sm_mhz": [1980] * 5,
    }
    return dict(test, **changes)


def right(**changes):
    return dict(
        {"unit": "errors", "samples": [0] * 5, "ok": True, "error": None, "detail": "", "parameters": {}}, **changes
    )


def entry(index, factor=1.0):
    tests = dict((name, rate(name, factor)) for name in RATES)
    tests.update(memory_pattern=right(), vector_add=right())
    return {
        "uuid": readings.uuid(index),
        "name": NAME,
        "index": index,
        "state": "tested",
        "reason": "",
        "error": None,
        "tests": tests,
    }


def document(count=2, factor=1.0, **changes):
    return dict(
        {
            "schema": "gpufleet.smoke/1",
            "level": "t1",
            "simulated": True,
            "status": "ok",
            "message": "",
            "asked": [],
            "gpus": [entry(index, factor) for index in range(count)],
            "dcgm": None,
        },
        **changes,
    )


def judge(now, before=None, **policy):
    """{id: {entity: check}} of the family; BEFORE is the baseline's document."""
    baseline = None if before is None else dict(readings.baseline(), smoke=before)
    health = _health.evaluate(
        readings.reading(),
        baseline=baseline,
        policy=dict(POLICY, **policy),
        node=readings.NODE,
        now=readings.NOW,
        smoke=now,
        table=smoke.ROWS,
    )
    checks = {}
    for check in health["checks"]:
        checks.setdefault(check["id"], {})[check["entity"]] = check
    return checks


def statuses(checks, ident):
    return [check["status"] for dummy, check in sorted(checks[ident].items())]


def one(checks, ident, index=0):
    return checks[ident].get("node") or checks[ident][readings.uuid(index)]


RATE_IDENTS = [ident for ident, dummy, dummy_title, dummy_row in smoke.RATES]


def test_the_rows_are_in_the_table_with_their_numbers():
    mine = dict((row.ident, row.row) for row in registry.TABLE if row.ident.startswith("smoke."))
    assert mine == {
        "smoke.ran": (43,),
        "smoke.compute": (43,),
        "smoke.matrix_product": (44,),
        "smoke.host_to_device": (45,),
        "smoke.device_to_host": (45,),
        "smoke.memory_bandwidth": (46,),
        "smoke.peers": (44, 45, 46),
        "smoke.nccl_node": (47,),
        "smoke.nccl_fleet": (48,),
        "smoke.dcgm": (49,),
    }


def test_a_healthy_node_like_its_baseline_passes():
    checks = judge(document(), document())
    for ident in ["smoke.ran", "smoke.compute"] + RATE_IDENTS:
        assert set(statuses(checks, ident)) == {"pass"}, ident
    for ident in ("smoke.peers", "smoke.nccl_node", "smoke.nccl_fleet", "smoke.dcgm"):
        assert set(statuses(checks, ident)) == {"not_applicable"}, ident


def test_without_a_test_nothing_applies_unless_the_policy_wants_it():
    for ident, checks in judge(None, document()).items():
        assert set(check["status"] for check in checks.values()) == {"not_applicable"}, ident
    checks = judge(None, smoke_required=1)
    for ident in ["smoke.ran", "smoke.compute", "smoke.dcgm"] + RATE_IDENTS:
        assert set(statuses(checks, ident)) == {"unknown"}, ident
        assert "smoke_required" in one(checks, ident)["message"]


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "x"},
        {"level": "t9"},
        {"gpus": None},
        {"gpus": {}},
        {"status": "nvml", "message": "why", "gpus": []},
        {"status": "untrusted", "message": "why", "gpus": []},
        {"status": None},
    ],
)
def test_a_document_that_is_none_is_unknown(changes):
    checks = judge(document(**changes), document())
    for ident in ["smoke.ran", "smoke.compute", "smoke.dcgm", "smoke.peers"] + RATE_IDENTS:
        assert set(statuses(checks, ident)) == {"unknown"}, ident


@pytest.mark.parametrize(
    "damaged",
    [{}, [], "x", 1, {"schema": "gpufleet.smoke/1", "level": "t0", "status": "ok", "gpus": [None, 3, "x", {}]}],
)
def test_whatever_comes_instead_never_passes(damaged):
    for checks in judge(damaged, document()).values():
        assert not any(check["status"] == "pass" for check in checks.values())


@pytest.mark.parametrize("policy, status", [({}, "not_applicable"), ({"smoke_required": 1}, "unknown")])
def test_no_cuda_library(policy, status):
    checks = judge(document(status="no_library", message="libcuda.so.1 is not installed", gpus=[]), **policy)
    for ident in ["smoke.ran", "smoke.compute", "smoke.dcgm"] + RATE_IDENTS:
        assert set(statuses(checks, ident)) == {status}, ident
    assert "libcuda.so.1 is not installed" in one(checks, "smoke.ran")["message"]


@pytest.mark.parametrize("policy, status", [({}, "not_applicable"), ({"smoke_required": 1}, "unknown")])
def test_mig_mode_is_never_a_pass(policy, status):
    now = document()
    now["gpus"][0].update(state="not_applicable", reason="it is in MIG mode", tests={})
    checks = judge(now, **policy)
    assert (
        statuses(checks, "smoke.compute") == [status, "pass"] and "MIG mode" in one(checks, "smoke.compute")["message"]
    )
    assert one(checks, "smoke.ran")["status"] == "pass"
    for gpu in now["gpus"]:
        gpu.update(state="not_applicable", reason="it is in MIG mode", tests={})
    assert one(judge(now, **policy), "smoke.ran")["status"] == status


def test_what_was_measured_before_and_cannot_be_any_more_is_unknown():
    now = document()
    now["gpus"][0].update(state="not_applicable", reason="it is in MIG mode", tests={})
    checks = judge(now, document())
    for ident in RATE_IDENTS:
        assert statuses(checks, ident) == ["unknown", "pass"], ident


def test_a_busy_gpu_is_unknown_and_one_that_hangs_fails():
    now = document()
    now["gpus"][0].update(state="unknown", reason="processes use it: pid 1", tests={})
    now["gpus"][1].update(state="hung", reason="CUDA did not answer within 9 s", tests={})
    checks = judge(now)
    assert statuses(checks, "smoke.compute") == ["unknown", "fail"]
    assert one(checks, "smoke.compute", 1)["action"] == "reboot"
    for ident in RATE_IDENTS + ["smoke.peers"]:
        assert statuses(checks, ident) == ["unknown", "unknown"], ident


def test_a_gpu_that_is_missing_from_the_test_is_unknown_unless_others_were_asked_for():
    now = document(1)
    checks = judge(now)
    assert statuses(checks, "smoke.compute") == ["pass", "unknown"]
    assert statuses(judge(dict(now, asked=["0"])), "smoke.compute") == ["pass", "not_applicable"]


def test_a_gpu_without_a_handle_or_gone_since_the_baseline_holds_the_node():
    now = document()
    now["gpus"].append(
        {"uuid": None, "index": 2, "state": "unknown", "reason": "NVML does not open it (GPU_IS_LOST)", "tests": {}}
    )
    check = one(judge(now), "smoke.ran")
    assert check["status"] == "unknown" and "GPU_IS_LOST" in check["message"]
    check = one(judge(document(2), document(3)), "smoke.ran")
    assert check["status"] == "unknown" and readings.uuid(2) in check["message"]
    assert one(judge(document(2, asked=["0", "1"]), document(3)), "smoke.ran")["status"] == "pass"


@pytest.mark.parametrize("name", ["memory_pattern", "vector_add", "matrix_product"])
@pytest.mark.parametrize("change", [{"ok": False}, {"ok": False, "samples": []}])
def test_a_wrong_result_fails(name, change):
    now = document()
    now["gpus"][0]["tests"][name].update(change, detail="1 values differ")
    check = one(judge(now), "smoke.compute")
    assert (check["status"], check["action"], check["source"]) == (
        "fail",
        "field_diag",
        "hardware",
    ) and "1 values differ" in check["observed"]


def test_counted_errors_fail_whatever_ok_says_and_also_those_of_an_earlier_attempt():
    now = document()
    now["gpus"][0]["tests"]["vector_add"]["samples"] = [0, 0, 1, 0, 0]
    now["gpus"][1]["tests"]["memory_pattern"]["attempts"] = [right(ok=False, samples=[0, 2, 0, 0, 0])]
    assert statuses(judge(now), "smoke.compute") == ["fail", "fail"]


@pytest.mark.parametrize(
    "change", [{"samples": [0] * 4}, {"samples": None}, {"samples": ["0"] * 5}, {"ok": None}, None, "damaged"]
)
def test_too_little_to_say_is_unknown(change):
    now = document()
    if isinstance(change, dict):
        now["gpus"][0]["tests"]["vector_add"].update(change)
    else:
        now["gpus"][0]["tests"]["vector_add"] = change
    assert one(judge(now), "smoke.compute")["status"] == "unknown"


def test_the_product_is_part_of_the_longer_levels_only():
    now = document(level="t0")
    for gpu in now["gpus"]:
        del gpu["tests"]["matrix_product"]
    checks = judge(now, now)
    assert (
        statuses(checks, "smoke.compute") == ["pass", "pass"]
        and statuses(checks, "smoke.matrix_product") == ["not_applicable"] * 2
    )
    assert statuses(judge(dict(now, level="t1")), "smoke.compute") == ["unknown", "unknown"]
    # The baseline has it: a shorter level does not make it go away.
    assert statuses(judge(now, document()), "smoke.matrix_product") == ["unknown", "unknown"]


@pytest.mark.parametrize(
    "rc, status, action",
    [
        (719, "fail", "reset_gpu"),
        (700, "fail", "reset_gpu"),
        (214, "fail", "reset_gpu"),
        (999, "fail", "reboot"),
        (2, "unknown", "hold"),
        (46, "unknown", "hold"),
        (221, "unknown", "hold"),
        (-1, "unknown", "hold"),
        (12345, "unknown", "hold"),
        (None, "unknown", "hold"),
    ],
)
def test_a_cuda_error_of_a_test(rc, status, action):
    now = document()
    now["gpus"][0]["tests"]["vector_add"] = right(
        ok=False, samples=[], error={"call": "cuCtxSynchronize", "rc": rc, "name": "X"}
    )
    check = one(judge(now), "smoke.compute")
    assert (check["status"], check["action"]) == (status, action) and "cuCtxSynchronize" in check["observed"]


@pytest.mark.parametrize(
    "rc, status, action",
    [
        (803, "fail", "reboot"),
        (100, "fail", "reboot"),
        (802, "fail", "restart_service"),
        (804, "fail", "hold"),
        (34, "unknown", "hold"),
        (1, "unknown", "hold"),
    ],
)
def test_cuda_that_does_not_start(rc, status, action):
    now = document()
    now["gpus"][0].update(error={"call": "cuInit", "rc": rc, "name": "X"}, tests={})
    checks = judge(now, document())
    assert (one(checks, "smoke.compute")["status"], one(checks, "smoke.compute")["action"]) == (status, action)
    for ident in RATE_IDENTS:
        assert one(checks, ident)["status"] == "unknown", ident


@pytest.mark.parametrize("ident, name", [(ident, name) for ident, name, dummy, dummy_row in smoke.RATES])
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
        assert (
            check["source"] == "baseline"
            and "lower than in the baseline" in check["message"]
            and "measured 1 time;" in check["message"]
        )


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


NOISY = (0.90, 0.95, 1.0, 1.05, 1.10)


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
    assert (
        (check["status"], check["notice"]) == ("pass", True)
        and "70 degrees" in check["message"]
        and "1200 MHz" in check["message"]
    )
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


def report(*words, **changes):
    return dict(
        {
            "status": "ok",
            "command": "dcgmi diag",
            "message": "",
            "tests": [
                {
                    "category": "c",
                    "name": "test-%s" % word,
                    "status": word,
                    "results": [{"entities": ["GPU 0"], "status": word, "warnings": ["why " + word]}],
                }
                for word in words
            ],
        },
        **changes,
    )


@pytest.mark.parametrize(
    "dcgm, status",
    [
        (report("pass"), "pass"),
        (report("pass", "skip"), "pass"),
        (report("pass", "warn"), "pass"),
        (report("pass", "fail"), "fail"),
        (report("fail", "unknown"), "fail"),
        (report("pass", "unknown"), "unknown"),
        (report("pass", "not_run"), "unknown"),
        (report("skip"), "not_applicable"),
        (report(), "unknown"),
        (report(status="timeout"), "unknown"),
        (report("pass", status="unreadable"), "unknown"),
        (report(status="not_run"), "unknown"),
        (report(status="missing"), "not_applicable"),
        (None, "unknown"),
        ("x", "unknown"),
        (report(tests="x"), "unknown"),
        (report(tests=[None]), "unknown"),
    ],
)
def test_nvidias_diagnostic(dcgm, status):
    check = one(judge(document(level="t3", dcgm=dcgm)), "smoke.dcgm")
    assert check["status"] == status
    if status == "fail":
        assert check["action"] == "field_diag" and "why fail" in check["message"]


def test_a_missing_diagnostic_is_unknown_where_it_is_required_and_a_warning_is_a_notice():
    assert (
        one(judge(document(level="t3", dcgm=report(status="missing")), smoke_required=1), "smoke.dcgm")["status"]
        == "unknown"
    )
    assert one(judge(document(level="t3", dcgm=report("pass", "warn"))), "smoke.dcgm")["notice"] is True


# ---- what the caller does with rates ----


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
