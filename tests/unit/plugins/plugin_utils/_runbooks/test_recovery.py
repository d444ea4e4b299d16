# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth table of the next action on a sick node."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import registry
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import recovery

NOW = "2026-03-02T12:00:00Z"
A, B = "GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10", "GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c11"


def check(action, entity=A, ident="gpu.xid", status="fail"):
    return {"id": ident, "entity": entity, "status": status, "action": action}


def verdict(action, *checks, said="fail"):
    return {"verdict": said, "action": action, "checks": list(checks)}


LOST = check("reboot", "gpu index 1", "gpu.handle")
OFF_BUS, ABSENT = check("hold", "node", "gpu.on_bus"), check("hold", A, "gpu.present")


def history(*actions):
    return {
        "schema": recovery.SCHEMA,
        "actions": [{"action": action, "time": time, "outcome": "pass"} for action, time in actions],
    }


@pytest.mark.parametrize(
    ("health", "do"),
    [
        (None, "quarantine"),
        ({}, "quarantine"),
        ({"verdict": "sound", "checks": []}, "quarantine"),
        (verdict("none", said="pass"), "none"),
        (verdict("none"), "quarantine"),
        (verdict(None, check(None)), "quarantine"),
        (verdict("hold", check("hold")), "quarantine"),
        (verdict("field_diag", check("reboot"), check("field_diag")), "quarantine"),
        (verdict("restore_setting", check("restore_setting")), "refuse"),
        # What hardware the node should have is not said, and nothing else is wrong.
        (verdict("none", check("none", "node", "node.hardware", status="unknown"), said="unknown"), "refuse"),
        (verdict("reboot", check("none", "node", "node.hardware", status="unknown"), check("reboot")), "reboot"),
        (verdict("reboot", check("reboot")), "reboot"),
        (verdict("reboot", check("reboot", "node", status="unknown"), said="unknown"), "reboot"),
        (verdict("reset_gpu", check("reset_gpu")), "reset_gpu"),
        (verdict("reset_gpu", check("reset_gpu", "node")), "reboot"),  # which GPUs is not known
        (verdict("reset_gpu", check("reset_gpu"), check("reset_gpu", "0000:1b:00.0")), "reboot"),
        (verdict("restart_service", check("restart_service", "nvidia-dcgm.service", "node.units")), "restart_service"),
        (verdict("restart_service", check("restart_service", A, "gpu.fabric")), "restart_service"),
        (verdict("restart_service", check("restart_service", "node", "node.cdi")), "quarantine"),  # no service is named
        # A GPU that fell off the bus is missing in other checks, too, which alone hold the node.
        (verdict("hold", LOST, OFF_BUS), "reboot"),
        (verdict("hold", check("reboot"), OFF_BUS, ABSENT), "reboot"),
        (verdict("hold", check("reset_gpu", "gpu index 1", "gpu.handle"), OFF_BUS), "reboot"),
        (verdict("hold", OFF_BUS, ABSENT), "quarantine"),
        (verdict("hold", check("restart_service", "nvidia-dcgm.service", "node.units"), ABSENT), "quarantine"),
        (verdict("hold", LOST, OFF_BUS, check("hold", A, "gpu.hardware")), "quarantine"),
        (verdict("field_diag", LOST, OFF_BUS, check("field_diag")), "quarantine"),
    ],
)
def test_what_a_verdict_leads_to(health, do):
    assert recovery.next_step(health, None, "", NOW)["do"] == do


@pytest.mark.parametrize(
    ("note", "problem", "do"),
    [
        (None, "", "reboot"),
        (history(), "", "reboot"),
        (history(("reset_gpu", NOW)), "", "reboot"),
        (history(("reboot", NOW)), "", "quarantine"),
        (history(("reboot", "2026-03-01T12:00:01Z")), "", "quarantine"),
        (history(("reboot", "2026-03-01T12:00:00Z")), "", "reboot"),  # a day ago
        (
            history(("reboot", "2026-03-01T12:00:00Z"), ("reboot", "2026-03-02T01:00:00Z"), ("reset_gpu", NOW)),
            "",
            "quarantine",
        ),
        (history(("reboot", "2026-03-03T12:00:00Z")), "", "quarantine"),  # a clock that was set back
        (history(("reboot", "yesterday")), "", "quarantine"),
        (history(("reboot", None)), "", "quarantine"),
        (None, "it is not JSON", "quarantine"),
        ({}, "", "quarantine"),
        ({"schema": recovery.SCHEMA}, "", "quarantine"),
        ({"schema": "gpufleet.recovery/9", "actions": []}, "", "quarantine"),
        ({"schema": recovery.SCHEMA, "actions": ["reboot"]}, "", "quarantine"),
        ({"schema": recovery.SCHEMA, "actions": [{"time": NOW}]}, "", "quarantine"),
    ],
)
def test_no_action_is_taken_twice_a_day_and_what_is_not_known_counts_as_taken(note, problem, do):
    health = verdict("reboot", check("reboot"))
    assert recovery.next_step(health, note, problem, NOW)["do"] == do
    assert recovery.next_step(verdict("none", said="pass"), note, problem, NOW)["do"] == "none", (
        "a healthy node needs nothing"
    )


@pytest.mark.parametrize(
    ("allowed", "do"), [(["restart_service", "reset_gpu"], "quarantine"), ([], "quarantine"), (["reboot"], "reboot")]
)
def test_what_is_not_permitted_is_not_done(allowed, do):
    assert recovery.next_step(verdict("reboot", check("reboot")), None, "", NOW, allowed)["do"] == do


def test_an_action_names_what_it_is_for_and_nothing_else():
    step = recovery.next_step(
        verdict(
            "reset_gpu", check("reset_gpu", B), check("reset_gpu", A), check("restore_setting", "GPU-c", "gpu.ecc")
        ),
        None,
        "",
        NOW,
    )
    assert (step["gpus"], step["services"], step["checks"]) == ([A, B], [], ["gpu.ecc", "gpu.xid"])
    step = recovery.next_step(
        verdict(
            "restart_service",
            check("restart_service", "nvidia-dcgm.service"),
            check("restart_service", A, "gpu.fabric"),
        ),
        None,
        "",
        NOW,
    )
    assert step["services"] == ["nvidia-dcgm.service", "nvidia-fabricmanager.service"] and step["gpus"] == []
    evil = verdict("restart_service", check("restart_service", "a.service; reboot"))
    assert recovery.next_step(evil, None, "", NOW)["services"] == []


def test_the_checks_that_name_a_service_are_there():
    assert set(recovery.SERVICES) <= set(registry.IDENTS)


def test_an_action_is_in_the_history_before_it_is_taken_and_its_outcome_after_it():
    step = recovery.next_step(verdict("reboot", check("reboot")), None, "", NOW)
    note = recovery.record_begin(None, step, NOW, {"user": "kim"})
    assert recovery.next_step(verdict("reboot", check("reboot")), note, "", NOW)["do"] == "quarantine", (
        "a controller that died in it did it"
    )
    assert [(entry["action"], entry["outcome"], entry["user"]) for entry in note["actions"]] == [
        ("reboot", "begun", "kim")
    ]
    place = {"boot_id": "b", "seq": 7}
    assert recovery.record_end(note, "fail", place)["actions"][0][
        "outcome"
    ] == "fail" and "seen" not in recovery.record_end(note, "fail", place)
    proven = recovery.record_end(note, "pass", place)
    assert proven["seen"] == place and recovery.record_begin(proven, step, NOW, {})["seen"] == place
    for dummy in range(recovery.KEPT + 5):
        note = recovery.record_begin(note, step, NOW, {})
    assert len(note["actions"]) == recovery.KEPT
    assert recovery.record_end(None, "pass", None) == {"schema": recovery.SCHEMA, "actions": []}


@pytest.mark.parametrize(
    ("note", "first", "acted", "expected"),
    [
        (None, {"boot_id": "b"}, "", None),
        ({"seen": {"boot_id": "a"}}, {"boot_id": "b"}, "", {"boot_id": "a"}),  # what an earlier run dealt with
        ({"seen": {"boot_id": "a"}}, {"boot_id": "b"}, "reset_gpu", {"boot_id": "b"}),
        ({"seen": {"boot_id": "a"}}, {"boot_id": "b"}, "restart_service", {"boot_id": "b"}),
        ({"seen": {"boot_id": "a"}}, {"boot_id": "b"}, "reboot", None),  # a log of its own, of which all counts
        (None, {"boot_id": "b", "seq": None, "monotonic_us": 7}, "reset_gpu", {"boot_id": "b", "monotonic_us": 7}),
        ({"seen": {}}, {}, "reset_gpu", None),
        ({"seen": "a"}, None, "", None),
    ],
)
def test_from_where_the_kernel_log_counts(note, first, acted, expected):
    assert recovery.find_log_position(note, first, acted) == expected
