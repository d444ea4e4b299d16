# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of a plan, and what is told of it."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import conclusion as settings_conclusion
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import plan as settings_plan
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings.settingsnode import (
    LOAD,
    LOCK,
    OK,
    UUID,
    decide,
    gpu,
    refused,
    wish,
)

# setting, wanted, answer of the setter, what is read back, status, changed
ENDS = [
    ("power_limit_w", 500000, OK, {"power_limit_mw": 500000}, "changed", True),
    ("power_limit_w", 500000, OK, {}, "failed", False),
    ("power_limit_w", 500000, OK, {"power_limit_mw": 600000}, "failed", True),
    ("power_limit_w", 500000, OK, {"power_limit_mw": (15,)}, "failed", True),
    ("power_limit_w", 500000, refused(4), {}, "failed", False),
    ("power_limit_w", 500000, refused(999), {"power_limit_mw": 500000}, "failed", True),
    ("power_limit_w", 500000, refused(15, False), {}, "failed", False),
    ("power_limit_w", 500000, refused(3), {}, "failed", False),
    ("power_limit_w", 500000, None, {"power_limit_mw": 500000}, "failed", True),
    ("power_limit_w", 500000, None, {}, "failed", False),
    ("power_limit_w", 700000, "none", {}, "same", False),
    ("power_limit_w", 700000, "none", {"power_limit_mw": 200000}, "failed", True),
    ("application_clocks_mhz", wish({"graphics": 1410, "mem": 2619}, False), refused(3), {}, "not_supported", False),
    ("application_clocks_mhz", wish({"graphics": 1410, "mem": 2619}, False), refused(26), {}, "not_supported", False),
    ("application_clocks_mhz", {"graphics": 1410, "mem": 2619}, refused(26), {}, "failed", False),
    ("ecc_mode", 0, OK, {"ecc_mode_pending": 0}, "pending", True),
    ("ecc_mode", 0, OK, {}, "failed", False),
    ("locked_graphics_clocks_mhz", LOCK, OK, {}, "unproven", True),
    ("locked_graphics_clocks_mhz", LOCK, refused(3), {}, "failed", False),
    ("locked_graphics_clocks_mhz", LOCK, None, {}, "failed", False),
]


@pytest.mark.parametrize("name, wanted, answer, after, status, changed", ENDS)
def test_conclusion(name, wanted, answer, after, status, changed):
    plan = [decide(name, wanted)]
    taken = settings_plan.list_steps(plan)
    assert len(taken) == (0 if answer == "none" else 1)
    rows = settings_conclusion.conclude_plan(
        plan, taken, None if answer is None else [answer] if taken else [], [gpu(**after)], "it hangs; reboot"
    )
    assert (rows[0]["status"], rows[0]["changed"]) == (status, changed)
    assert bool(settings_conclusion.list_failures(rows)) is (status == "failed")
    if answer is None:
        assert "it hangs; reboot" in rows[0]["failure"]["message"]


def test_a_gpu_that_is_gone_when_it_is_read_back():
    plan = [decide("power_limit_w", 500000)]
    row = settings_conclusion.conclude_plan(plan, settings_plan.list_steps(plan), [OK], [])[0]
    assert row["status"] == "failed"
    assert "it cannot be read back: NVML does not find this GPU any more" in row["failure"]["message"]
    assert settings_conclusion.present_row(row)["after"] is None


def test_a_message_names_gpu_setting_found_expected_code_and_next_step():
    plan = [decide("power_limit_w", 500000)]
    row = settings_conclusion.conclude_plan(plan, settings_plan.list_steps(plan), [refused(4)], [gpu()])[0]
    assert row["failure"]["message"] == (
        "power_limit_w of GPU-1: found 700, expected 500: NVML refuses nvmlDeviceSetPowerManagementLimit: the task may "
        "not change the GPU; run it with become: true, on the host and not in a container [NVML 4, NO_PERMISSION]"
    )
    assert settings_conclusion.list_failures([row]) == [
        {
            "gpu": UUID,
            "setting": "power_limit_w",
            "found": 700.0,
            "expected": 500.0,
            "code": 4,
            "error": "NO_PERMISSION",
            "message": row["failure"]["message"],
        }
    ]


@pytest.mark.parametrize(
    "code, word, step",
    [
        (4, "NO_PERMISSION", "run it with become: true"),
        (15, "GPU_IS_LOST", "power-cycle the node"),
        (999, "UNKNOWN", "NVML does not know what went wrong"),
        (2, "INVALID_ARGUMENT", "this board does not take that value"),
        (19, "IN_USE", "drain the node"),
        (3, "NOT_SUPPORTED", "has no such setting"),
        (24, "FREQ_NOT_SUPPORTED", "does not run at this frequency"),
        (77, "CODE_77", "look this NVML return code up"),
    ],
)
def test_each_refusal_has_its_own_next_step(code, word, step):
    plan = [decide("power_limit_w", 500000)]
    row = settings_conclusion.conclude_plan(plan, settings_plan.list_steps(plan), [refused(code)], [gpu()])[0]
    (failure,) = settings_conclusion.list_failures([row])
    assert (failure["code"], failure["error"], step in failure["message"]) == (code, word, True)


@pytest.mark.parametrize(
    "lost, who",
    [
        ({"handle": (15,), "uuid": (15,), "pci_bus_id": (15,)}, "GPU with index 3"),
        ({"uuid": (999,)}, "00000000:1b:00.0"),
    ],
)
def test_one_gpu_that_cannot_be_used_stops_all(lost, who):
    plan = settings_plan.decide([gpu(), gpu(3, **lost)], {UUID: {"power_limit_w": wish(500000)}}, {}, LOAD)
    assert [(row["gpu"], row["setting"], row["status"]) for row in plan] == [
        (UUID, "power_limit_w", "changed"),
        (who, None, "failed"),
    ]
    assert settings_plan.list_steps(plan) == []
    rows = settings_conclusion.undo_plan(plan)
    assert [(row["status"], row["changed"], row["after"]) for row in rows] == [
        ("failed", False, 700000),
        ("failed", False, None),
    ]
    assert len(settings_conclusion.list_failures(rows)) == 1


def test_what_is_remembered():
    kept = {"GPU-0": {"locked_memory_clocks_mhz": {"value": LOCK, "load": "old"}}}
    rows = [
        decide("locked_graphics_clocks_mhz", LOCK),
        decide("power_limit_w", 500000),
        decide("locked_memory_clocks_mhz", {"min": 2, "max": 9999}),
    ]
    assert settings_conclusion.update_kept(kept, rows, LOAD) == dict(
        kept, **{UUID: {"locked_graphics_clocks_mhz": {"value": LOCK, "load": LOAD}}}
    )
    assert kept == {"GPU-0": {"locked_memory_clocks_mhz": {"value": LOCK, "load": "old"}}}
    assert [row["status"] for row in settings_conclusion.fail_unproven(rows, "disk full")] == [
        "failed",
        "changed",
        "failed",
    ]
    assert (
        "cannot be remembered for the next reload: disk full"
        in settings_conclusion.fail_unproven(rows, "disk full")[0]["failure"]["message"]
    )


def test_warnings():
    rows = [
        decide("application_clocks_mhz", wish({"graphics": 1410, "mem": 2619}, False), applications_clocks_mhz=(26,)),
        decide("power_limit_w", 500000),
    ]
    assert len(settings_conclusion.make_warnings(rows, [gpu()])) == 1
    assert "this driver no longer has the setting" in settings_conclusion.make_warnings(rows, [gpu()])[0]
    assert "persistence mode is off on GPU-1" in settings_conclusion.make_warnings(rows, [gpu(persistence_mode=0)])[1]
    default = [
        decide(
            "application_clocks_mhz",
            wish({"graphics": 1980, "mem": 2619}, False, was_default=True),
            applications_clocks_mhz=(26,),
        )
    ]
    assert settings_conclusion.make_warnings(default, [gpu()]) == []
    assert settings_conclusion.make_warnings([decide("ecc_mode", 0)], [gpu(persistence_mode=0)]) == []
