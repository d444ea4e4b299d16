# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed since the baseline and of which class it is, and whether what is sick was sick before."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import diff, verdict
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import subsets
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed, value

NEW = "580.95.05"


def changed(change, before=None, driver=readings.DRIVER, **options):
    """The classes of what CHANGE does to a healthy reading, by (entity, key)."""
    old = readings.baseline() if before is None else before
    new = readings.reading(readings.snapshot(driver=driver), readings.audit(driver=driver))
    change(new)
    found = diff.list_changes(old, new, **options)
    assert len(set((entry["entity"], entry["key"]) for entry in found)) == len(found)
    assert all(entry["class"] in diff.CLASSES and entry["before"] != entry["after"] for entry in found)
    return dict(((entry["entity"], entry["key"]), entry["class"]) for entry in found)


def gpu_value(key, content, index=1):
    def change(reading):
        reading["snapshot"]["gpus"][index][key] = content

    return change


def test_nothing_changed():
    assert changed(lambda reading: None) == {}


@pytest.mark.parametrize(
    "key, content, kind",
    [
        ("persistence_mode", value(0), "restorable"),
        ("power_limit_mw", value(350000), "restorable"),
        ("compute_mode", value(3), "restorable"),
        ("ecc_mode_current", value(0), "restorable"),
        ("mig_mode_current", value(1), "restorable"),
        ("mig_instances", value([{"uuid": "MIG-1"}]), "restorable"),
        ("applications_clocks_mhz", value({"graphics": 1, "mem": 2}), "restorable"),
        ("memory_total_bytes", value(1), "regression"),
        ("bar1_total_bytes", value(1), "regression"),
        ("vbios_version", value("other"), "regression"),
        ("pcie_gen_max", value(4), "regression"),
        ("pcie_gen_max", value(6), "expected"),
        ("pcie_width_max", value(8), "regression"),
        ("nvlink_active", value([True] * 17 + [False]), "regression"),
        ("nvlink_active", value([True] * 17), "regression"),
        ("nvlink_active", value([True] * 19), "expected"),
        ("ecc_aggregate_uncorrected", value(1), "regression"),
        (
            "remapped_rows",
            value({"correctable": 0, "uncorrectable": 1, "pending": True, "failure": False}),
            "regression",
        ),
        ("recovery_action", value(0), "expected"),
        ("persistence_mode", failed(3), "regression"),
        ("persistence_mode", failed(999), "regression"),
        ("persistence_mode", None, "regression"),
        ("serial", value("1"), "regression"),
        ("gsp_firmware_version", value("other"), "regression"),
        ("temperature_gpu_c", value(80), None),
        ("compute_processes", value([{"pid": 1, "used_bytes": 2}]), None),
        ("ecc_volatile_uncorrected", value(3), None),
        ("clocks_event_reasons", value(4), None),
        ("pcie_gen_current", value(1), None),
    ],
)
def test_a_value_of_a_gpu_has_its_class(key, content, kind):
    expected = {(readings.uuid(1), key): kind} if kind else {}
    assert changed(gpu_value(key, content)) == expected


def test_every_value_that_a_snapshot_has_was_thought_of():
    assert set(diff.GPU_ITEMS) | diff.TRANSIENT == set(subsets.KEYS) and not set(diff.GPU_ITEMS) & diff.TRANSIENT


def test_a_repair_that_was_made_is_expected():
    before = readings.baseline()
    before["snapshot"]["gpus"][1]["remapped_rows"] = value(
        {"correctable": 0, "uncorrectable": 0, "pending": True, "failure": False}
    )
    before["snapshot"]["gpus"][0]["recovery_action"] = value(1)
    assert changed(gpu_value("recovery_action", value(0), 0), before) == {
        (readings.uuid(1), "remapped_rows"): "expected",
        (readings.uuid(0), "recovery_action"): "expected",
    }


def test_an_upgrade_of_the_driver_changes_its_versions_as_expected():
    def change(reading):
        for gpu in reading["snapshot"]["gpus"]:
            gpu["gsp_firmware_version"] = value(NEW)
            gpu["memory_total_bytes"] = value(gpu["memory_total_bytes"]["value"] - 1000000)

    before = readings.baseline()
    for gpu in before["snapshot"]["gpus"]:
        gpu["gsp_firmware_version"] = value(readings.DRIVER)
    found = changed(change, before, NEW, tolerance_percent=0.5)
    assert set(found.values()) == {"expected"}
    assert {
        ("node", "system.driver_version"),
        ("node", "audit.versions.loaded"),
        (readings.uuid(0), "gsp_firmware_version"),
        (readings.uuid(0), "memory_total_bytes"),
    } <= set(found)


def test_versions_that_change_without_the_driver_are_regressions():
    def change(reading):
        reading["snapshot"]["system"]["cuda_driver_version"] = value("11.0")
        reading["audit"]["versions"]["library"] = NEW

    assert changed(change) == {
        ("node", "system.cuda_driver_version"): "regression",
        ("node", "audit.versions.library"): "regression",
    }


def test_a_driver_that_cannot_be_read_excuses_nothing():
    def change(reading):
        reading["snapshot"]["system"]["driver_version"] = failed(9)
        reading["snapshot"]["system"]["cuda_driver_version"] = value("11.0")

    assert changed(change) == {
        ("node", "system.driver_version"): "regression",
        ("node", "system.cuda_driver_version"): "regression",
    }


def test_memory_beyond_the_tolerance_is_a_regression_whatever_the_driver():
    def change(reading):
        reading["snapshot"]["gpus"][0]["memory_total_bytes"] = value(80000000000)

    assert changed(change, driver=NEW, tolerance_percent=0.5)[readings.uuid(0), "memory_total_bytes"] == "regression"


def test_what_was_announced_is_expected():
    assert changed(gpu_value("mig_mode_current", value(1)), accepted=["mig_*"]) == {
        (readings.uuid(1), "mig_mode_current"): "expected"
    }
    assert changed(gpu_value("mig_mode_current", value(1)), accepted=["power_*"]) == {
        (readings.uuid(1), "mig_mode_current"): "restorable"
    }


def test_modules_and_units():
    before = readings.baseline()
    before["system"].update(
        modules=["nvidia", "nvidia_peermem", "ext4"],
        units={"a.service": {"active": "active"}, "b.service": {"active": "inactive"}},
    )

    def change(reading):
        reading["system"].update(
            modules=["nvidia", "nouveau", "gdrdrv", "xfs"],
            units={"a.service": {"active": "failed"}, "b.service": {"active": "active"}},
        )

    assert changed(change, before) == {
        ("node", "modules.nvidia_peermem"): "regression",
        ("node", "modules.nouveau"): "regression",
        ("node", "modules.gdrdrv"): "expected",
        ("node", "units.a.service"): "restorable",
        ("node", "units.b.service"): "expected",
    }


def entries(change):
    new = readings.reading(readings.snapshot(3), readings.audit(3))
    old = readings.baseline(snapshot=readings.snapshot(3), audit=readings.audit(3))
    change(new["snapshot"]["gpus"])
    return [(entry["entity"], entry["key"], entry["before"], entry["after"]) for entry in diff.list_changes(old, new)]


def place(index):
    return "0000:%02x:00.0" % (0x1A + index)


def test_a_lost_gpu_a_moved_one_a_replaced_one_and_two_that_changed_places_are_told_apart():
    assert entries(lambda gpus: gpus.pop(1)) == [(readings.uuid(1), "present", place(1), None)]

    def move(gpus):
        gpus[1]["pci_bus_id"] = value("00000000:99:00.0")

    assert entries(move) == [(readings.uuid(1), "pci_bus_id", place(1), "0000:99:00.0")]

    def replace(gpus):
        gpus[1]["uuid"] = value("GPU-new")

    assert entries(replace) == [(readings.uuid(1), "replaced", readings.uuid(1), "GPU-new")]

    def swap(gpus):
        gpus[0]["pci_bus_id"], gpus[1]["pci_bus_id"] = gpus[1]["pci_bus_id"], gpus[0]["pci_bus_id"]

    assert entries(swap) == [
        (readings.uuid(0), "pci_bus_id", place(0), place(1)),
        (readings.uuid(1), "pci_bus_id", place(1), place(0)),
    ]

    def add(gpus):
        gpus.append(dict(copy.deepcopy(gpus[0]), uuid=value("GPU-new"), pci_bus_id=value("00000000:99:00.0")))

    assert entries(add) == [("GPU-new", "present", None, "0000:99:00.0")]


def test_the_check_says_which_gpu_is_in_the_place_of_the_one_that_is_gone():
    snapshot = readings.snapshot()
    snapshot["gpus"][1]["uuid"] = value("GPU-new")
    health = evaluate(readings.reading(snapshot))
    (check,) = [
        check for check in health["checks"] if (check["id"], check["entity"]) == ("gpu.present", readings.uuid(1))
    ]
    assert (check["status"], check["observed"], check["expected"]) == ("fail", "GPU-new", readings.uuid(1))
    assert "GPU-00000001 of the baseline is gone, and GPU GPU-new is in its place, at 0000:1b:00.0" in check["message"]


@pytest.mark.parametrize(
    "rubbish",
    [
        None,
        [],
        "x",
        {},
        {"snapshot": None},
        {"snapshot": {"gpus": [{"uuid": 3}]}},
        {"system": {"modules": 3, "units": []}},
        {"snapshot": {"gpus": [{"uuid": value("GPU-1"), "remapped_rows": value(3), "nvlink_active": value(3)}]}},
    ],
)
def test_rubbish_is_compared_without_an_accident(rubbish):
    whole = readings.reading()
    for one, other in ((rubbish, whole), (whole, rubbish), (rubbish, rubbish)):
        assert isinstance(diff.list_changes(one, other), list)


def evaluate(reading, baseline=None, **options):
    return _health.evaluate(
        reading, baseline or readings.baseline(), phase="post", node=readings.NODE, now=readings.NOW, **options
    )


def test_the_verdict_has_the_changes_and_a_notice_of_those_for_the_worse():
    snapshot = readings.snapshot()
    snapshot["gpus"][0]["vbios_version"] = value("other")
    health = evaluate(readings.reading(snapshot))
    assert health["changes"] == [
        {
            "entity": readings.uuid(0),
            "key": "vbios_version",
            "before": "96.00.74.00.01",
            "after": "other",
            "class": "regression",
        }
    ]
    (check,) = [check for check in health["checks"] if check["id"] == "baseline.changes"]
    assert check["notice"] is True and "GPU-00000000 vbios_version" in check["message"]
    assert evaluate(readings.reading(snapshot), policy={"strict": ["baseline.changes"]})["verdict"] == "fail"
    health = evaluate(readings.reading(snapshot), expect={"changes": ["vbios_version"]})
    assert health["changes"][0]["class"] == "expected"
    assert [check["notice"] for check in health["checks"] if check["id"] == "baseline.changes"] == [False]


def sick(reading, index=1):
    reading["snapshot"]["gpus"][index]["ecc_volatile_uncorrected"] = value(3)
    return reading


def since(health, ident="gpu.ecc_volatile"):
    return [
        check["since"] for check in health["checks"] if check["id"] == ident and check["status"] in ("fail", "unknown")
    ]


def test_sick_before_is_told_from_broke_during():
    health = evaluate(sick(readings.reading()), sick(readings.baseline()))
    assert since(health) == ["before"]
    assert health["attribution"] == {"sick_before": ["gpu.ecc_volatile"], "broke_during": []}
    health = evaluate(sick(readings.reading()))
    assert since(health) == ["during"]
    assert health["attribution"] == {"sick_before": [], "broke_during": ["gpu.ecc_volatile"]}
    health = evaluate(sick(readings.reading(), 0), sick(readings.baseline(), 1))
    assert since(health) == ["during"]


def test_what_was_accepted_by_the_policy_then_is_accepted_now():
    health = evaluate(sick(readings.reading()), sick(readings.baseline()), policy={"ecc_volatile_uncorrected_max": 5})
    assert since(health) == [] and health["attribution"] == {"sick_before": [], "broke_during": []}


def test_the_wanted_driver_of_now_is_not_asked_of_the_baseline():
    health = evaluate(readings.reading(), expected_driver=NEW)
    assert set(
        check["since"] for check in health["checks"] if check["id"].startswith("driver.") and check["status"] == "fail"
    ) == {"during"}


@pytest.mark.parametrize(
    "was, status, expected",
    [
        ("fail", "fail", "before"),
        ("fail", "unknown", "before"),
        ("unknown", "unknown", "before"),
        ("unknown", "fail", None),
        ("pass", "fail", "during"),
        ("not_applicable", "unknown", "during"),
        (None, "fail", "during"),
        ("fail", "pass", None),
        ("fail", "waived", None),
    ],
)
def test_since_as_a_table(was, status, expected):
    def check(state, ident="x.y"):
        return {"id": ident, "entity": "node", "status": state, "since": None}

    (told,) = verdict.fill_since([check(status)], [check(was)] if was else [])
    assert told["since"] == expected
    assert verdict.fill_since([check(status)], None) == [check(status)]
    assert verdict.fill_since([check("fail", "baseline.usable")], [])[0]["since"] is None
