# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables of what is to be set."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes, snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import plan as settings_plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table as settings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings.settingsnode import (
    BUSY,
    LOAD,
    LOCK,
    UUID,
    VALUES,
    decide,
    gpu,
    wish,
)

POWER, CLOCKS = "power_limit_w", "application_clocks_mhz"
GRAPHICS, MEMORY = "locked_graphics_clocks_mhz", "locked_memory_clocks_mhz"
SET_POWER = "nvmlDeviceSetPowerManagementLimit"
SET_CLOCKS = "nvmlDeviceSetApplicationsClocks"
RESET_CLOCKS = "nvmlDeviceResetApplicationsClocks"
SET_COMPUTE = "nvmlDeviceSetComputeMode"
SET_PERSISTENCE = "nvmlDeviceSetPersistenceMode"
SET_ECC = "nvmlDeviceSetEccMode"
LOCK_GRAPHICS = "nvmlDeviceSetGpuLockedClocks"
UNLOCK_GRAPHICS = "nvmlDeviceResetGpuLockedClocks"
LOCK_MEMORY = "nvmlDeviceSetMemoryLockedClocks"
LOCKED = (LOCK_GRAPHICS, [1000, 1500])
UNLOCK_MEMORY = "nvmlDeviceResetMemoryLockedClocks"
FAST, SLOW = {"graphics": 1410, "mem": 2619}, {"graphics": 1, "mem": 1}
# setting, wanted, what else is different, status, changed, symbol and arguments
DECISIONS = [
    (POWER, 700000, {}, "same", False, None),
    (POWER, 500000, {}, "changed", True, (SET_POWER, [500000])),
    (POWER, 200000, {}, "changed", True, (SET_POWER, [200000])),
    (POWER, 199999, {}, "failed", False, None),
    (POWER, 700001, {}, "failed", False, None),
    (POWER, "default", {}, "same", False, None),
    (POWER, "default", {"power_limit_mw": 500000}, "changed", True, (SET_POWER, [700000])),
    (POWER, "default", {"power_limit_mw": 500000, "power_limit_default_mw": (3,)}, "failed", False, None),
    (POWER, 500000, {"power_limit_min_mw": (999,)}, "failed", False, None),
    (POWER, 500000, {"power_limit_max_mw": (3,)}, "failed", False, None),
    (POWER, 500000, {"power_limit_mw": (3,)}, "failed", False, None),
    (POWER, 500000, {"power_limit_mw": (4,)}, "failed", False, None),
    (POWER, 500000, {"compute_processes": BUSY}, "failed", False, None),
    (POWER, 500000, {"graphics_processes": BUSY}, "failed", False, None),
    (POWER, 500000, {"graphics_processes": (3,)}, "changed", True, (SET_POWER, [500000])),
    (POWER, 500000, {"compute_processes": (4,)}, "failed", False, None),
    (POWER, 700000, {"compute_processes": BUSY}, "same", False, None),
    (POWER, 500000, {"mig_mode_current": 1}, "changed", True, (SET_POWER, [500000])),
    (CLOCKS, FAST, {}, "changed", True, (SET_CLOCKS, [2619, 1410])),
    (CLOCKS, {"graphics": 1980, "mem": 2619}, {}, "same", False, None),
    (CLOCKS, {"graphics": 1981, "mem": 2619}, {}, "failed", False, None),
    (CLOCKS, {"graphics": 1980, "mem": 2620}, {}, "failed", False, None),
    (CLOCKS, "default", {"applications_clocks_mhz": FAST}, "changed", True, (RESET_CLOCKS, [])),
    (CLOCKS, "default", {"applications_clocks_mhz": (3,)}, "failed", False, None),
    (CLOCKS, SLOW, {"applications_clocks_mhz": (26,)}, "failed", False, None),
    (CLOCKS, SLOW, {"applications_clocks_mhz": {"graphics": None, "mem": 1}}, "failed", False, None),
    (CLOCKS, wish(SLOW, False), {"applications_clocks_mhz": (26,)}, "not_supported", False, None),
    (CLOCKS, wish(SLOW, False), {"applications_clocks_mhz": (3,)}, "not_supported", False, None),
    (CLOCKS, wish(SLOW, False), {"applications_clocks_mhz": (999,)}, "failed", False, None),
    (CLOCKS, wish(None, False), {"applications_clocks_mhz": (3,)}, "not_supported", False, None),
    (POWER, wish(500000, False), {"power_limit_mw": (3,)}, "failed", False, None),
    ("compute_mode", 0, {}, "same", False, None),
    ("compute_mode", 3, {}, "changed", True, (SET_COMPUTE, [3])),
    ("compute_mode", 3, {"mig_mode_current": 1}, "failed", False, None),
    ("compute_mode", wish(None, False), {"mig_mode_current": 1, "compute_mode": (2,)}, "not_supported", False, None),
    ("compute_mode", wish(3, False), {"mig_mode_current": 1, "compute_mode": (2,)}, "failed", False, None),
    ("compute_mode", 0, {"mig_mode_current": 1}, "same", False, None),
    ("compute_mode", 3, {"mig_mode_current": (3,)}, "changed", True, (SET_COMPUTE, [3])),
    ("compute_mode", 3, {"mig_mode_current": (999,)}, "failed", False, None),
    ("compute_mode", 3, {"compute_processes": BUSY}, "failed", False, None),
    ("persistence_mode", 1, {}, "same", False, None),
    ("persistence_mode", 0, {"compute_processes": BUSY}, "changed", True, (SET_PERSISTENCE, [0])),
    ("persistence_mode", 1, {"persistence_mode": 0}, "changed", True, (SET_PERSISTENCE, [1])),
    ("ecc_mode", 1, {}, "same", False, None),
    ("ecc_mode", 0, {}, "pending", True, (SET_ECC, [0])),
    ("ecc_mode", 0, {"ecc_mode_pending": 0}, "pending", False, None),
    ("ecc_mode", 1, {"ecc_mode_pending": 0}, "changed", True, (SET_ECC, [1])),
    ("ecc_mode", 0, {"compute_processes": BUSY}, "pending", True, (SET_ECC, [0])),
    ("ecc_mode", 0, {"ecc_mode_pending": (3,)}, "failed", False, None),
    (GRAPHICS, LOCK, {}, "unproven", True, LOCKED),
    (GRAPHICS, LOCK, {"kept": {"value": LOCK, "load": LOAD}}, "unproven", False, LOCKED),
    (GRAPHICS, LOCK, {"kept": {"value": LOCK, "load": "other"}}, "unproven", True, LOCKED),
    (GRAPHICS, LOCK, {"kept": {"value": LOCK, "load": None}, "load": None}, "unproven", True, LOCKED),
    (GRAPHICS, LOCK, {"kept": {"value": "unlocked", "load": LOAD}}, "unproven", True, LOCKED),
    (GRAPHICS, "unlocked", {}, "unproven", True, (UNLOCK_GRAPHICS, [])),
    (GRAPHICS, "unlocked", {"kept": {"value": "unlocked", "load": "other"}}, "unproven", False, (UNLOCK_GRAPHICS, [])),
    (GRAPHICS, LOCK, {"compute_processes": BUSY}, "failed", False, None),
    (GRAPHICS, LOCK, {"compute_processes": BUSY, "kept": {"value": LOCK, "load": LOAD}}, "unproven", False, LOCKED),
    (GRAPHICS, {"min": 1000, "max": 1981}, {}, "failed", False, None),
    (MEMORY, {"min": 2619, "max": 2619}, {}, "unproven", True, (LOCK_MEMORY, [2619, 2619])),
    (MEMORY, {"min": 2619, "max": 2620}, {}, "failed", False, None),
    (MEMORY, "unlocked", {}, "unproven", True, (UNLOCK_MEMORY, [])),
    (POWER, {"problem": "the baseline says nothing"}, {}, "failed", False, None),
]


@pytest.mark.parametrize("name, wanted, different, status, changed, call", DECISIONS)
def test_decision(name, wanted, different, status, changed, call):
    row = decide(name, wanted, **different)
    assert (row["status"], row["changed"]) == (status, changed)
    assert (row["step"] and (row["step"]["symbol"], row["step"]["arguments"])) == call
    assert bool(row["failure"]) is (status == "failed")
    assert row["gpu"] == UUID and row["setting"] == name


def test_nothing_is_wanted_where_the_baseline_had_no_such_setting():
    assert decide("application_clocks_mhz", wish(None, False)) is None


@pytest.mark.parametrize(
    "wanted, text",
    [(1, "start it without --no-persistence-mode (role nvidia_persistenced)"), (0, "stop and disable its unit")],
)
def test_the_daemon_is_not_overridden(wanted, text):
    row = decide("persistence_mode", wanted, daemon=True, persistence_mode=1 - wanted)
    assert row["status"] == "failed" and text in row["failure"]["message"]
    assert decide("persistence_mode", wanted, daemon=True, persistence_mode=wanted)["status"] == "same"


def test_processes_that_are_allowed():
    assert decide("power_limit_w", 500000, processes_ok=True, compute_processes=BUSY)["status"] == "changed"


def test_every_setting_has_its_row_and_its_options():
    assert set(settings.NAMES) == set(options.VALUES_SPEC) == set(options.ARGUMENT_SPEC["settings"]["choices"])
    for row in settings.TABLE:
        assert row.lost_at and row.support and row.setter.startswith("nvmlDeviceSet")
        assert set(row.getter) <= set(snapshot.GPU_KEYS)
    gathered = set(key for subset in snapshot.subsets.TABLE if subset.name in settings.GATHER for key in subset.keys)
    assert gathered >= set(key for row in settings.TABLE for key in row.getter) | set(VALUES) - {
        "handle",
        "uuid",
        "pci_bus_id",
    }


@pytest.mark.parametrize(
    "name, signal",
    [
        (name, key)
        for name, keys in {
            "power_limit_w": (
                "power_limit_mw",
                "power_limit_min_mw",
                "power_limit_max_mw",
                "compute_processes",
                "graphics_processes",
            ),
            "compute_mode": ("compute_mode", "mig_mode_current", "compute_processes", "graphics_processes"),
            "application_clocks_mhz": ("applications_clocks_mhz", "compute_processes"),
            "locked_graphics_clocks_mhz": ("compute_processes", "graphics_processes"),
            "persistence_mode": ("persistence_mode",),
            "ecc_mode": ("ecc_mode_current", "ecc_mode_pending"),
        }.items()
        for key in keys
    ],
)
def test_a_signal_that_is_gone_forbids_the_change(name, signal):
    wanted = {
        "power_limit_w": 500000,
        "compute_mode": 3,
        "application_clocks_mhz": {"graphics": 1410, "mem": 2619},
        "locked_graphics_clocks_mhz": LOCK,
        "persistence_mode": 0,
        "ecc_mode": 0,
    }[name]
    assert decide(name, wanted)["step"]
    for rc in (4, 15, 999, codes.UNREADABLE):
        assert decide(name, wanted, **{signal: (rc,)})["status"] == "failed"
    one = gpu()
    del one[signal]
    assert settings_plan.decide([one], {UUID: {name: wish(wanted)}}, {}, LOAD)[0]["status"] == "failed"


def test_persistence_mode_goes_on_first_and_off_last():
    for wanted, place in ((1, 0), (0, -1)):
        wishes = {"persistence_mode": wish(wanted), "power_limit_w": wish(500000), "ecc_mode": wish(0)}
        plan = settings_plan.decide([gpu(persistence_mode=1 - wanted)], {UUID: wishes}, {}, LOAD)
        order = [step["setting"] for step in settings_plan.list_steps(plan)]
        assert len(order) == 3 and order[place] == "persistence_mode"
