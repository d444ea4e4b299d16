# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of GPUs at work: what fails, what is unknown, what does not apply, and that nothing else passes."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.documents import (
    RATE_IDENTS,
    document,
    judge,
    one,
    right,
    statuses,
)


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
    assert statuses(checks, "smoke.compute") == [status, "pass"]
    assert "MIG mode" in one(checks, "smoke.compute")["message"]
    assert one(checks, "smoke.ran")["status"] == "pass"
    for gpu in now["gpus"]:
        gpu.update(state="not_applicable", reason="it is in MIG mode", tests={})
    assert one(judge(now, **policy), "smoke.ran")["status"] == status


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
    assert (check["status"], check["action"], check["source"]) == ("fail", "field_diag", "hardware")
    assert "1 values differ" in check["observed"]


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
    assert statuses(checks, "smoke.compute") == ["pass", "pass"]
    assert statuses(checks, "smoke.matrix_product") == ["not_applicable"] * 2
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
