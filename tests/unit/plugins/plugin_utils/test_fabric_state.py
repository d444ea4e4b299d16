# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth table of the fabric's state: what is needed, what may be started, and what proves it."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.filter.fabric_state import FilterModule

decide = FilterModule().filters()["fabric_state"]
UUIDS = ("GPU-a", "GPU-b")
DRIVER, OTHER = "580.95.05", "590.48.01"


def check(ident, status="pass", observed=None, expected=None, entity="node", message=""):
    return {
        "id": ident,
        "entity": entity,
        "status": status,
        "observed": observed,
        "expected": expected,
        "message": message or ("" if status == "pass" else "%s of %s is %s." % (ident, entity, status)),
    }


def answer(changes=(), gpus=UUIDS, processes=()):
    """What gpu_health says of a node with NVSwitches in health.

    CHANGES: (id, entity or None for all) to fields, or to None for no such check.
    """
    checks = [
        check("node.nvswitches", "not_applicable", ["0000:05:00.0"]),
        check("node.nvlink_managers", "not_applicable", []),
        check("node.fabric_manager"),
        check("node.fabric_manager_version", "pass", DRIVER, DRIVER),
        check("node.nvlink_modules", "not_applicable"),
        check("node.nvlsm", "not_applicable"),
    ]
    checks += [check(ident, entity=uuid) for uuid in gpus for ident in ("gpu.fabric", "gpu.nvlink", "gpu.p2p")]
    for (ident, entity), fields in dict(changes).items():
        fitting = [one for one in checks if one["id"] == ident and entity in (None, one["entity"])]
        assert fitting
        for one in fitting:
            if fields is None:
                checks.remove(one)
            else:
                one.update(
                    check(
                        ident,
                        entity=one["entity"],
                        **dict({"observed": one["observed"], "expected": one["expected"]}, **fields),
                    )
                )
    snapshot = [
        {
            "index": index,
            "uuid": {"value": uuid},
            "compute_processes": {"rc": 0, "value": [{"pid": pid} for pid in processes]},
        }
        for index, uuid in enumerate(gpus)
    ]
    return {"health": {"checks": checks}, "baseline": {"snapshot": {"gpus": snapshot}}}


NO_SWITCH = {("node.nvswitches", None): {"status": "not_applicable", "observed": []}}
MANAGED = dict(NO_SWITCH)
MANAGED.update(
    {
        ("node.nvlink_managers", None): {"status": "not_applicable", "observed": ["0000:05:00.0"]},
        ("node.nvlink_modules", None): {"status": "pass"},
        ("node.nvlsm", None): {"status": "pass", "observed": "running"},
    }
)


@pytest.mark.parametrize(
    "found,fabric",
    [
        (answer(), "needed"),
        (answer({("node.nvswitches", None): {"status": "fail", "observed": ["0000:05:00.0"]}}), "needed"),
        (answer(MANAGED), "needed"),
        (answer(NO_SWITCH), "none"),
        (answer({("node.nvswitches", None): {"status": "unknown", "observed": None}}), "unknown"),
        (answer({**NO_SWITCH, ("node.nvlink_managers", None): {"status": "unknown", "observed": None}}), "unknown"),
        (answer({**NO_SWITCH, ("node.nvlink_managers", None): {"status": "unknown", "observed": []}}), "unknown"),
        (answer({**NO_SWITCH, ("node.nvlink_managers", None): None}), "unknown"),
        (answer({("node.nvlink_managers", None): None}), "needed"),
        ({"health": {"checks": []}}, "unknown"),
        ({"msg": "unreachable"}, "unknown"),
        (None, "unknown"),
    ],
)
def test_what_needs_a_fabric_manager(found, fabric):
    state = decide(found)
    assert state["fabric"] == fabric and state["why"]
    if fabric != "needed":
        assert not state["proven"]


@pytest.mark.parametrize(
    "changes,proven",
    [
        ({}, True),
        (MANAGED, True),
        ({("node.fabric_manager", None): {"status": "fail"}}, False),
        ({("node.fabric_manager", None): {"status": "not_applicable"}}, False),
        ({("node.fabric_manager", None): {"status": "waived"}}, False),
        ({("node.fabric_manager_version", None): {"status": "unknown"}}, False),
        ({("node.fabric_manager_version", None): None}, False),
        ({**MANAGED, ("node.nvlink_modules", None): {"status": "fail"}}, False),
        ({**MANAGED, ("node.nvlsm", None): {"status": "unknown"}}, False),
        ({**MANAGED, ("node.nvlsm", None): None}, False),
        ({("gpu.fabric", "GPU-b"): {"status": "fail"}}, False),
        ({("gpu.fabric", "GPU-b"): {"status": "unknown"}}, False),
        ({("gpu.fabric", "GPU-b"): {"status": "waived"}}, False),
        ({("gpu.fabric", "GPU-b"): None}, False),
        # A GPU that tells no state of a fabric.
        ({("gpu.fabric", None): {"status": "not_applicable"}}, True),
        ({("gpu.fabric", None): {"status": "not_applicable"}, ("gpu.p2p", "GPU-b"): {"status": "fail"}}, False),
        (
            {("gpu.fabric", None): {"status": "not_applicable"}, ("gpu.p2p", "GPU-b"): {"status": "not_applicable"}},
            False,
        ),
        ({("gpu.fabric", None): {"status": "not_applicable"}, ("gpu.nvlink", "GPU-b"): {"status": "unknown"}}, False),
        ({("gpu.fabric", None): {"status": "not_applicable"}, ("gpu.nvlink", "GPU-b"): None}, False),
    ],
)
def test_what_proves_the_fabric(changes, proven):
    state = decide(answer(changes))
    assert state["proven"] is proven and bool(state["missing"]) is not proven
    if any(ident.startswith("gpu.") for ident, _entity in changes) and not proven:
        assert any("GPU-b" in line for line in state["missing"]) and not any(
            "GPU-a" in line for line in state["missing"]
        )


def test_no_gpu_proves_nothing():
    assert decide(answer(gpus=()))["missing"] and not decide(answer(gpus=()))["proven"]


@pytest.mark.parametrize(
    "change,refused,differs,installed",
    [
        ({"status": "pass", "observed": DRIVER, "expected": DRIVER}, False, False, True),
        ({"status": "fail", "observed": OTHER, "expected": DRIVER}, True, True, True),
        ({"status": "fail", "observed": "not installed", "expected": DRIVER}, True, False, False),
        ({"status": "unknown", "observed": OTHER, "expected": None}, True, False, True),
        ({"status": "unknown", "observed": None, "expected": DRIVER}, True, False, False),
        (None, True, False, False),
    ],
)
def test_which_version_may_be_started(change, refused, differs, installed):
    state = decide(answer({("node.fabric_manager_version", None): change}))
    assert (bool(state["version"]["refusal"]), state["version"]["differs"], state["installed"]) == (
        refused,
        differs,
        installed,
    )


def test_who_uses_the_gpus():
    assert decide(answer())["in_use"] == "" and "4711" in decide(answer(processes=[4711]))["in_use"]
    assert decide(answer(gpus=()))["in_use"], "GPUs that were not read may be in use"


@pytest.mark.parametrize(
    "observed,there", [("running", True), ("not running", True), ("not installed", False), (None, True)]
)
def test_the_subnet_manager(observed, there):
    state = decide(answer({**MANAGED, ("node.nvlsm", None): {"status": "fail", "observed": observed}}))
    assert state["managed"] and state["subnet_manager"] is there
