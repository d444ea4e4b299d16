# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables of what is to be set and what became of it, the calls themselves, and what the node remembers."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes, session, snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import answer as settings_answer
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import conclusion as settings_conclusion
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import plan as settings_plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import state as settings_state
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table as settings
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import task as settings_task
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import wanted as settings_wanted
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings import settingsnode

UUID = "GPU-1"
LOAD = "boot/1"
VALUES = {
    "handle": True,
    "uuid": UUID,
    "pci_bus_id": "00000000:1b:00.0",
    "persistence_mode": 1,
    "compute_mode": 0,
    "power_limit_mw": 700000,
    "power_limit_default_mw": 700000,
    "power_limit_min_mw": 200000,
    "power_limit_max_mw": 700000,
    "applications_clocks_mhz": {"graphics": 1980, "mem": 2619},
    "applications_clocks_default_mhz": {"graphics": 1980, "mem": 2619},
    "clocks_max_mhz": {"graphics": 1980, "sm": 1980, "mem": 2619, "video": 1545},
    "ecc_mode_current": 1,
    "ecc_mode_pending": 1,
    "mig_mode_current": 0,
    "compute_processes": [],
    "graphics_processes": [],
}
BUSY = [{"pid": 4711, "used_bytes": 1}]
LOCK = {"min": 1000, "max": 1500}


def gpu(index=0, **changed):
    """A GPU of a snapshot; a value that is an integer code in a tuple stands in the value's place: (15,)."""
    result = {"index": index}
    for key, content in dict(VALUES, **changed).items():
        result[key] = codes.missing(content[0]) if isinstance(content, tuple) else codes.value(content)
    return result


def wish(value, explicit=True, **more):
    return dict({"value": value, "explicit": explicit}, **more)


def decide(name, wanted, kept=None, daemon=False, processes_ok=False, load=LOAD, **changed):
    """The one row that is planned."""
    wanted = wanted if isinstance(wanted, dict) and ("explicit" in wanted or "problem" in wanted) else wish(wanted)
    entries = {UUID: {name: kept}} if kept else {}
    plan = settings_plan.decide([gpu(**changed)], {UUID: {name: wanted}}, entries, load, daemon, processes_ok)
    return plan[0] if plan else None


# setting, wanted, what else is different, status, changed, symbol and arguments
DECISIONS = [
    ("power_limit_w", 700000, {}, "same", False, None),
    ("power_limit_w", 500000, {}, "changed", True, ("nvmlDeviceSetPowerManagementLimit", [500000])),
    ("power_limit_w", 200000, {}, "changed", True, ("nvmlDeviceSetPowerManagementLimit", [200000])),
    ("power_limit_w", 199999, {}, "failed", False, None),
    ("power_limit_w", 700001, {}, "failed", False, None),
    ("power_limit_w", "default", {}, "same", False, None),
    (
        "power_limit_w",
        "default",
        {"power_limit_mw": 500000},
        "changed",
        True,
        ("nvmlDeviceSetPowerManagementLimit", [700000]),
    ),
    ("power_limit_w", "default", {"power_limit_mw": 500000, "power_limit_default_mw": (3,)}, "failed", False, None),
    ("power_limit_w", 500000, {"power_limit_min_mw": (999,)}, "failed", False, None),
    ("power_limit_w", 500000, {"power_limit_max_mw": (3,)}, "failed", False, None),
    ("power_limit_w", 500000, {"power_limit_mw": (3,)}, "failed", False, None),
    ("power_limit_w", 500000, {"power_limit_mw": (4,)}, "failed", False, None),
    ("power_limit_w", 500000, {"compute_processes": BUSY}, "failed", False, None),
    ("power_limit_w", 500000, {"graphics_processes": BUSY}, "failed", False, None),
    (
        "power_limit_w",
        500000,
        {"graphics_processes": (3,)},
        "changed",
        True,
        ("nvmlDeviceSetPowerManagementLimit", [500000]),
    ),
    ("power_limit_w", 500000, {"compute_processes": (4,)}, "failed", False, None),
    ("power_limit_w", 700000, {"compute_processes": BUSY}, "same", False, None),
    (
        "power_limit_w",
        500000,
        {"mig_mode_current": 1},
        "changed",
        True,
        ("nvmlDeviceSetPowerManagementLimit", [500000]),
    ),
    (
        "application_clocks_mhz",
        {"graphics": 1410, "mem": 2619},
        {},
        "changed",
        True,
        ("nvmlDeviceSetApplicationsClocks", [2619, 1410]),
    ),
    ("application_clocks_mhz", {"graphics": 1980, "mem": 2619}, {}, "same", False, None),
    ("application_clocks_mhz", {"graphics": 1981, "mem": 2619}, {}, "failed", False, None),
    ("application_clocks_mhz", {"graphics": 1980, "mem": 2620}, {}, "failed", False, None),
    (
        "application_clocks_mhz",
        "default",
        {"applications_clocks_mhz": {"graphics": 1410, "mem": 2619}},
        "changed",
        True,
        ("nvmlDeviceResetApplicationsClocks", []),
    ),
    ("application_clocks_mhz", "default", {"applications_clocks_mhz": (3,)}, "failed", False, None),
    ("application_clocks_mhz", {"graphics": 1, "mem": 1}, {"applications_clocks_mhz": (26,)}, "failed", False, None),
    (
        "application_clocks_mhz",
        {"graphics": 1, "mem": 1},
        {"applications_clocks_mhz": {"graphics": None, "mem": 1}},
        "failed",
        False,
        None,
    ),
    (
        "application_clocks_mhz",
        wish({"graphics": 1, "mem": 1}, False),
        {"applications_clocks_mhz": (26,)},
        "not_supported",
        False,
        None,
    ),
    (
        "application_clocks_mhz",
        wish({"graphics": 1, "mem": 1}, False),
        {"applications_clocks_mhz": (3,)},
        "not_supported",
        False,
        None,
    ),
    (
        "application_clocks_mhz",
        wish({"graphics": 1, "mem": 1}, False),
        {"applications_clocks_mhz": (999,)},
        "failed",
        False,
        None,
    ),
    ("application_clocks_mhz", wish(None, False), {"applications_clocks_mhz": (3,)}, "not_supported", False, None),
    ("power_limit_w", wish(500000, False), {"power_limit_mw": (3,)}, "failed", False, None),
    ("compute_mode", 0, {}, "same", False, None),
    ("compute_mode", 3, {}, "changed", True, ("nvmlDeviceSetComputeMode", [3])),
    ("compute_mode", 3, {"mig_mode_current": 1}, "failed", False, None),
    ("compute_mode", wish(None, False), {"mig_mode_current": 1, "compute_mode": (2,)}, "not_supported", False, None),
    ("compute_mode", wish(3, False), {"mig_mode_current": 1, "compute_mode": (2,)}, "failed", False, None),
    ("compute_mode", 0, {"mig_mode_current": 1}, "same", False, None),
    ("compute_mode", 3, {"mig_mode_current": (3,)}, "changed", True, ("nvmlDeviceSetComputeMode", [3])),
    ("compute_mode", 3, {"mig_mode_current": (999,)}, "failed", False, None),
    ("compute_mode", 3, {"compute_processes": BUSY}, "failed", False, None),
    ("persistence_mode", 1, {}, "same", False, None),
    ("persistence_mode", 0, {"compute_processes": BUSY}, "changed", True, ("nvmlDeviceSetPersistenceMode", [0])),
    ("persistence_mode", 1, {"persistence_mode": 0}, "changed", True, ("nvmlDeviceSetPersistenceMode", [1])),
    ("ecc_mode", 1, {}, "same", False, None),
    ("ecc_mode", 0, {}, "pending", True, ("nvmlDeviceSetEccMode", [0])),
    ("ecc_mode", 0, {"ecc_mode_pending": 0}, "pending", False, None),
    ("ecc_mode", 1, {"ecc_mode_pending": 0}, "changed", True, ("nvmlDeviceSetEccMode", [1])),
    ("ecc_mode", 0, {"compute_processes": BUSY}, "pending", True, ("nvmlDeviceSetEccMode", [0])),
    ("ecc_mode", 0, {"ecc_mode_pending": (3,)}, "failed", False, None),
    ("locked_graphics_clocks_mhz", LOCK, {}, "unproven", True, ("nvmlDeviceSetGpuLockedClocks", [1000, 1500])),
    (
        "locked_graphics_clocks_mhz",
        LOCK,
        {"kept": {"value": LOCK, "load": LOAD}},
        "unproven",
        False,
        ("nvmlDeviceSetGpuLockedClocks", [1000, 1500]),
    ),
    (
        "locked_graphics_clocks_mhz",
        LOCK,
        {"kept": {"value": LOCK, "load": "other"}},
        "unproven",
        True,
        ("nvmlDeviceSetGpuLockedClocks", [1000, 1500]),
    ),
    (
        "locked_graphics_clocks_mhz",
        LOCK,
        {"kept": {"value": LOCK, "load": None}, "load": None},
        "unproven",
        True,
        ("nvmlDeviceSetGpuLockedClocks", [1000, 1500]),
    ),
    (
        "locked_graphics_clocks_mhz",
        LOCK,
        {"kept": {"value": "unlocked", "load": LOAD}},
        "unproven",
        True,
        ("nvmlDeviceSetGpuLockedClocks", [1000, 1500]),
    ),
    ("locked_graphics_clocks_mhz", "unlocked", {}, "unproven", True, ("nvmlDeviceResetGpuLockedClocks", [])),
    (
        "locked_graphics_clocks_mhz",
        "unlocked",
        {"kept": {"value": "unlocked", "load": "other"}},
        "unproven",
        False,
        ("nvmlDeviceResetGpuLockedClocks", []),
    ),
    ("locked_graphics_clocks_mhz", LOCK, {"compute_processes": BUSY}, "failed", False, None),
    (
        "locked_graphics_clocks_mhz",
        LOCK,
        {"compute_processes": BUSY, "kept": {"value": LOCK, "load": LOAD}},
        "unproven",
        False,
        ("nvmlDeviceSetGpuLockedClocks", [1000, 1500]),
    ),
    ("locked_graphics_clocks_mhz", {"min": 1000, "max": 1981}, {}, "failed", False, None),
    (
        "locked_memory_clocks_mhz",
        {"min": 2619, "max": 2619},
        {},
        "unproven",
        True,
        ("nvmlDeviceSetMemoryLockedClocks", [2619, 2619]),
    ),
    ("locked_memory_clocks_mhz", {"min": 2619, "max": 2620}, {}, "failed", False, None),
    ("locked_memory_clocks_mhz", "unlocked", {}, "unproven", True, ("nvmlDeviceResetMemoryLockedClocks", [])),
    ("power_limit_w", {"problem": "the baseline says nothing"}, {}, "failed", False, None),
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
    assert (
        set(settings.NAMES)
        == set(options.VALUES_SPEC)
        == set(settings_wanted.PARSERS)
        == set(options.ARGUMENT_SPEC["settings"]["choices"])
    )
    for row in settings.TABLE:
        assert (
            row.lost_at
            and row.support
            and row.source.startswith("nvml.h, nvmlDeviceSet")
            and row.source.endswith(row.setter)
        )
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


# ---- what is wanted ----


@pytest.mark.parametrize(
    "given, wanted",
    [
        ({"power_limit_w": "500"}, 500000),
        ({"power_limit_w": "499.5"}, 499500),
        ({"power_limit_w": "default"}, "default"),
        ({"application_clocks_mhz": {"graphics": 1410, "memory": 2619}}, {"graphics": 1410, "mem": 2619}),
        ({"application_clocks_mhz": {"default": True}}, "default"),
        ({"locked_graphics_clocks_mhz": {"min": 1000, "max": 1500}}, LOCK),
        ({"locked_memory_clocks_mhz": {"unlocked": True}}, "unlocked"),
        ({"compute_mode": "exclusive_process"}, 3),
        ({"compute_mode": "prohibited"}, 2),
        ({"compute_mode": "default"}, 0),
        ({"persistence_mode": True}, 1),
        ({"ecc_mode": False}, 0),
    ],
)
def test_wishes_of_a_task(given, wanted):
    assert settings_wanted.of_task(settingsnode.complete(given)) == {
        list(given)[0]: {"value": wanted, "explicit": True}
    }


@pytest.mark.parametrize(
    "given, text",
    [
        ({"power_limit_w": "much"}, "power_limit_w is 'much'; expected a number of watts"),
        ({"power_limit_w": "0"}, "power_limit_w is '0'"),
        ({"power_limit_w": "nan"}, "power_limit_w is 'nan'"),
        ({"power_limit_w": "-5"}, "power_limit_w is '-5'"),
        ({"application_clocks_mhz": {}}, "application_clocks_mhz needs default: true"),
        ({"application_clocks_mhz": {"graphics": 0, "memory": 1}}, "application_"),
        ({"locked_graphics_clocks_mhz": {}}, "locked_graphics_clocks_mhz needs unlocked: true"),
        ({"locked_memory_clocks_mhz": {"min": 5, "max": 4}}, "min no higher than max"),
        ({"locked_memory_clocks_mhz": {"min": 1, "max": 4}}, "locked_memory"),
    ],
)
def test_wishes_that_cannot_be_understood(given, text):
    with pytest.raises(settings_wanted.WishError) as refused:
        settings_wanted.of_task(settingsnode.complete(given))
    assert text in str(refused.value)


def test_wishes_of_a_baseline():
    kept = {
        "locked_graphics_clocks_mhz": {"value": LOCK, "load": "other"},
        "locked_memory_clocks_mhz": {"value": "unlocked", "load": LOAD},
    }
    old = gpu(power_limit_mw=500000, ecc_mode_current=1, ecc_mode_pending=0, compute_mode=3)
    assert settings_wanted.of_baseline(old, kept) == {
        "persistence_mode": wish(1, False),
        "compute_mode": wish(3, False),
        "power_limit_w": wish(500000, False),
        "ecc_mode": wish(0, False),
        "application_clocks_mhz": wish({"graphics": 1980, "mem": 2619}, False, was_default=True),
        "locked_graphics_clocks_mhz": wish(LOCK),
    }
    assert settings_wanted.of_baseline(old, None, ["power_limit_w", "locked_graphics_clocks_mhz"]) == {
        "power_limit_w": wish(500000, False)
    }
    for entry in ((3,), (26,), {"graphics": None, "mem": 1}):
        assert settings_wanted.of_baseline(gpu(applications_clocks_mhz=entry), None, ["application_clocks_mhz"]) == {
            "application_clocks_mhz": wish(None, False)
        }
    # In MIG mode the GPU has no compute mode of its own; out of it, the same code is an error.
    assert settings_wanted.of_baseline(gpu(compute_mode=(2,), mig_mode_current=1), None, ["compute_mode"]) == {
        "compute_mode": wish(None, False)
    }
    assert "problem" in settings_wanted.of_baseline(gpu(compute_mode=(2,)), None, ["compute_mode"])["compute_mode"]
    for entry in (1, [], {"graphics": "fast", "mem": 1}):
        assert (
            "problem"
            in settings_wanted.of_baseline(gpu(applications_clocks_mhz=entry), None, ["application_clocks_mhz"])[
                "application_clocks_mhz"
            ]
        )


@pytest.mark.parametrize("entry", [(15,), (codes.UNREADABLE,), "high", True, -1, None, {"graphics": 1}])
def test_a_baseline_that_does_not_tell_is_no_wish(entry):
    problem = settings_wanted.of_baseline(gpu(power_limit_mw=entry), None, ["power_limit_w"])["power_limit_w"][
        "problem"
    ]
    assert "the baseline does not tell power_limit_mw of this GPU" in problem and "take a new baseline" in problem
    for old in (dict(gpu(), power_limit_mw=7), dict(gpu(), power_limit_mw={})):
        assert (
            "the baseline has no power_limit_mw"
            in settings_wanted.of_baseline(old, None, ["power_limit_w"])["power_limit_w"]["problem"]
        )


# ---- what became of it ----

OK = {"rc": 0, "error": "SUCCESS", "detail": None, "tried": True}


def refused(rc, tried=True):
    return {"rc": rc, "error": codes.name(rc), "detail": None, "tried": tried}


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
    taken = settings_plan.steps(plan)
    assert len(taken) == (0 if answer == "none" else 1)
    rows = settings_conclusion.conclude(
        plan, taken, None if answer is None else [answer] if taken else [], [gpu(**after)], "it hangs; reboot"
    )
    assert (rows[0]["status"], rows[0]["changed"]) == (status, changed)
    assert bool(settings_answer.failures(rows)) is (status == "failed")
    if answer is None:
        assert "it hangs; reboot" in rows[0]["failure"]["message"]


def test_a_gpu_that_is_gone_when_it_is_read_back():
    plan = [decide("power_limit_w", 500000)]
    row = settings_conclusion.conclude(plan, settings_plan.steps(plan), [OK], [])[0]
    assert (
        row["status"] == "failed"
        and "it cannot be read back: NVML does not find this GPU any more" in row["failure"]["message"]
    )
    assert settings_answer.present(row)["after"] is None


def test_a_message_names_gpu_setting_found_expected_code_and_next_step():
    plan = [decide("power_limit_w", 500000)]
    row = settings_conclusion.conclude(plan, settings_plan.steps(plan), [refused(4)], [gpu()])[0]
    assert row["failure"]["message"] == (
        "power_limit_w of GPU-1: found 700, expected 500: NVML refuses nvmlDeviceSetPowerManagementLimit: the task may "
        "not change the GPU; run it with become: true, on the host and not in a container [NVML 4, NO_PERMISSION]"
    )
    assert settings_answer.failures([row]) == [
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
    assert settings_plan.steps(plan) == []
    rows = settings_conclusion.unset(plan)
    assert [(row["status"], row["changed"], row["after"]) for row in rows] == [
        ("failed", False, 700000),
        ("failed", False, None),
    ]
    assert len(settings_answer.failures(rows)) == 1


def test_persistence_mode_goes_on_first_and_off_last():
    for wanted, place in ((1, 0), (0, -1)):
        wishes = {"persistence_mode": wish(wanted), "power_limit_w": wish(500000), "ecc_mode": wish(0)}
        plan = settings_plan.decide([gpu(persistence_mode=1 - wanted)], {UUID: wishes}, {}, LOAD)
        order = [step["setting"] for step in settings_plan.steps(plan)]
        assert len(order) == 3 and order[place] == "persistence_mode"


def test_what_is_remembered():
    kept = {"GPU-0": {"locked_memory_clocks_mhz": {"value": LOCK, "load": "old"}}}
    rows = [
        decide("locked_graphics_clocks_mhz", LOCK),
        decide("power_limit_w", 500000),
        decide("locked_memory_clocks_mhz", {"min": 2, "max": 9999}),
    ]
    assert settings_conclusion.remembered(kept, rows, LOAD) == dict(
        kept, **{UUID: {"locked_graphics_clocks_mhz": {"value": LOCK, "load": LOAD}}}
    )
    assert kept == {"GPU-0": {"locked_memory_clocks_mhz": {"value": LOCK, "load": "old"}}}
    assert [row["status"] for row in settings_conclusion.forgotten(rows, "disk full")] == [
        "failed",
        "changed",
        "failed",
    ]
    assert (
        "cannot be remembered for the next reload: disk full"
        in settings_conclusion.forgotten(rows, "disk full")[0]["failure"]["message"]
    )


def test_warnings():
    rows = [
        decide("application_clocks_mhz", wish({"graphics": 1410, "mem": 2619}, False), applications_clocks_mhz=(26,)),
        decide("power_limit_w", 500000),
    ]
    assert (
        len(settings_answer.warnings(rows, [gpu()])) == 1
        and "this driver no longer has the setting" in settings_answer.warnings(rows, [gpu()])[0]
    )
    assert "persistence mode is off on GPU-1" in settings_answer.warnings(rows, [gpu(persistence_mode=0)])[1]
    default = [
        decide(
            "application_clocks_mhz",
            wish({"graphics": 1980, "mem": 2619}, False, was_default=True),
            applications_clocks_mhz=(26,),
        )
    ]
    assert settings_answer.warnings(default, [gpu()]) == []
    assert settings_answer.warnings([decide("ecc_mode", 0)], [gpu(persistence_mode=0)]) == []


# ---- the calls ----


class Binding:
    """A binding that notes its calls and refuses those in FAIL."""

    class NVMLError(Exception):
        def __init__(self, value):
            super().__init__(value)
            self.value = value

    def __init__(self, fail=None):
        self.fail, self.calls = fail or {}, []

    def nvmlInit(self):
        self._enter("nvmlInit")

    def nvmlShutdown(self):
        self._enter("nvmlShutdown")

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self._enter("nvmlDeviceGetHandleByUUID")
        return uuid

    def _enter(self, symbol):
        self.calls.append(symbol)
        if symbol in self.fail:
            raise self.NVMLError(self.fail[symbol])

    def _nvmlGetFunctionPointer(self, symbol):
        def call(handle, *arguments):
            self.calls.append((symbol, handle) + tuple(argument.value for argument in arguments))
            return self.fail.get((symbol, handle), 0)

        return call


def step(gpu, symbol, *arguments, optional=False):
    return {"gpu": gpu, "setting": "x", "symbol": symbol, "arguments": list(arguments), "optional": optional}


STEPS = [step("GPU-0", "A", 3), step("GPU-0", "B", 7), step("GPU-1", "B", 1, 2)]


def test_the_steps_are_called_in_their_order():
    nvml, places = Binding(), []
    assert settings.act(nvml, STEPS, places.append) == [OK, OK, OK]
    assert [call for call in nvml.calls if isinstance(call, tuple)] == [
        ("A", "GPU-0", 3),
        ("B", "GPU-0", 7),
        ("B", "GPU-1", 1, 2),
    ]
    assert (nvml.calls[0], nvml.calls[-1]) == ("nvmlInit", "nvmlShutdown")
    assert "B of GPU-1" in places


def test_after_a_failure_other_gpus_go_on():
    nvml = Binding({("A", "GPU-0"): 999})
    assert settings.act(nvml, STEPS) == [refused(999), refused(999, False), OK]
    assert [call[0] for call in nvml.calls if isinstance(call, tuple)] == ["A", "B"]
    for rc in settings.UNSUPPORTED:
        assert settings.act(Binding({("A", "GPU-0"): rc}), STEPS) == [refused(rc), refused(rc, False), OK]
        assert settings.act(Binding({("A", "GPU-0"): rc}), [step("GPU-0", "A", optional=True)] + STEPS[1:]) == [
            refused(rc),
            OK,
            OK,
        ]
    assert settings.act(Binding({("A", "GPU-0"): 4}), [step("GPU-0", "A", optional=True)] + STEPS[1:]) == [
        refused(4),
        refused(4, False),
        OK,
    ]
    assert settings.act(Binding({"nvmlDeviceGetHandleByUUID": 15}), STEPS) == [
        refused(15),
        refused(15, False),
        refused(15),
    ]
    assert settings.act(Binding({"nvmlInit": 9}), STEPS) == [refused(9, False)] * 3


# ---- the node's own file ----


@pytest.mark.pythons
def test_what_is_kept_comes_back(tmp_path):
    place = str(tmp_path / "state")
    assert settings_state.read(place) == {}
    kept = {UUID: {"locked_graphics_clocks_mhz": {"value": LOCK, "load": LOAD}}}
    settings_state.write(kept, place)
    assert settings_state.read(place) == kept and os.listdir(place) == ["settings.json"]
    settings_state.write({}, place)
    assert settings_state.read(place) == {}


@pytest.mark.pythons
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": "x", "gpus": {}}',
        '{"schema": "gpufleet.settings/1", "gpus": []}',
        '{"schema": "gpufleet.settings/1", "gpus": {"a": {"b": {}}}}',
        '{"schema": "gpufleet.settings/1", "gpus": {"a": 1}}',
        '{"schema": "gpufleet.settings/1", "gpus": {"a": {"b": {"value": 1, "load": "x"}}}}',
    ],
)
def test_a_file_that_is_damaged_is_an_error(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(settings_state.StateError, match="settings.json is damaged"):
        settings_state.read(str(tmp_path))


@pytest.mark.pythons
def test_a_file_that_others_can_change_or_that_is_a_link_is_not_used(tmp_path):
    settings_state.write({}, str(tmp_path))
    os.chmod(str(tmp_path / "settings.json"), 0o666)
    with pytest.raises(settings_state.StateError, match="others than root can change it"):
        settings_state.read(str(tmp_path))
    os.rename(str(tmp_path / "settings.json"), str(tmp_path / "other"))
    os.symlink("other", str(tmp_path / "settings.json"))
    with pytest.raises(settings_state.StateError, match="cannot be read"):
        settings_state.read(str(tmp_path))


@pytest.mark.pythons
def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(settings_state.StateError, match="cannot be written"):
        settings_state.write({}, str(tmp_path / "state"))


@pytest.mark.pythons
def test_the_mark_of_a_load(tmp_path):
    assert settings_state.load_mark(str(tmp_path)) is None
    boot = tmp_path / "proc/sys/kernel/random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("one\n")
    assert settings_state.load_mark(str(tmp_path)) is None
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    first = settings_state.load_mark(str(tmp_path))
    assert first.startswith("one/") and settings_state.load_mark(str(tmp_path)) == first
    (boot / "boot_id").write_text("two\n")
    assert settings_state.load_mark(str(tmp_path)) not in (None, first)


@pytest.mark.pythons
@pytest.mark.parametrize(
    "pid, comm, runs",
    [("7\n", "nvidia-persiste\n", True), ("7", "bash\n", False), ("8", "nvidia-persiste\n", False), ("x", "", False)],
)
def test_whether_the_daemon_runs(tmp_path, pid, comm, runs):
    (tmp_path / "run/nvidia-persistenced").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "run/nvidia-persistenced/nvidia-persistenced.pid").write_text(pid)
    (tmp_path / "proc/7/comm").write_text(comm)
    assert settings_state.daemon_runs(str(tmp_path), str(tmp_path / "proc")) is runs
    assert settings_state.daemon_runs(str(tmp_path / "none"), str(tmp_path / "proc")) is False


# ---- the order of it all ----


def taken(*gpus, **more):
    found = snapshot.blank("ok", "", 0)
    found.update(gpus=list(gpus), system={"driver_version": codes.value("1")}, **more)
    return found


def run(tmp_path, looks, child=None, check=False, **given):
    left = list(looks)
    return settings_task.run(
        settingsnode.complete(given),
        check,
        root=str(tmp_path),
        state_directory=str(tmp_path / "state"),
        take=lambda **options: left.pop(0),
        child=child,
    )


def test_nothing_is_called_in_check_mode_or_if_nothing_is_due(tmp_path):
    assert run(tmp_path, [taken(gpu())], check=True, power_limit_w=500)["changed"] is True
    result = run(tmp_path, [taken(gpu())], power_limit_w=700)
    assert result["changed"] is False and result["msg"] == "GPU settings: 1 same"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("status", ["timeout", "stuck", "crashed"])
def test_a_child_without_an_answer_is_a_failure_whatever_is_read_back(tmp_path, status):
    outcome = session.Outcome(status, None, "NVML did not answer")
    for after in (gpu(power_limit_mw=500000), gpu()):
        result = run(tmp_path, [taken(gpu()), taken(after)], child=lambda *args: outcome, power_limit_w=500)
        assert result["failed"] is True and "NVML did not answer" in result["msg"]
        assert result["changed"] is (after["power_limit_mw"]["value"] == 500000)


def test_what_cannot_be_read_back_is_a_failure(tmp_path):
    outcome = session.Outcome("ok", [OK], "")
    result = run(
        tmp_path, [taken(gpu()), snapshot.blank("timeout", "it hangs")], child=lambda *args: outcome, power_limit_w=500
    )
    assert (
        result["failed"] is True
        and "it cannot be read back" in result["msg"]
        and "what was set could not be read back: it hangs" in result["warnings"][0]
    )


def test_clocks_that_cannot_be_remembered_are_a_failure(tmp_path):
    (tmp_path / "state").write_text("")
    outcome = session.Outcome("ok", [OK], "")
    result = run(tmp_path, [taken(gpu()), taken(gpu())], child=lambda *args: outcome, locked_graphics_clocks_mhz=LOCK)
    assert result["failed"] is True and "cannot be remembered for the next reload" in result["msg"]


@pytest.mark.parametrize("status", ["no_binding", "nvml_error", "timeout", "stuck"])
def test_a_node_that_cannot_be_read_is_left_alone(tmp_path, status):
    with pytest.raises(settings_task.TaskError, match="NVML cannot be read .%s., and nothing was set: why" % (status,)):
        run(tmp_path, [snapshot.blank(status, "why")], power_limit_w=500)


# ---- options ----


@pytest.mark.parametrize(
    "given, text",
    [
        ({}, "no setting is named"),
        ({"state": "restored"}, "needs a baseline"),
        ({"state": "restored", "baseline": {"x": 1}, "power_limit_w": "5"}, "remove power_limit_w"),
        ({"power_limit_w": "5", "baseline_file": "/x"}, "baseline_file goes with state: restored"),
        ({"power_limit_w": "5", "settings": ["ecc_mode"]}, "settings goes"),
        ({"power_limit_w": "5", "timeout_s": 0}, "timeout_s is 0"),
        ({"power_limit_w": "5", "lock_timeout_s": -1}, "lock_timeout_s is -1"),
    ],
)
def test_options_that_contradict_each_other(given, text):
    assert text in options.contradiction(settingsnode.complete(given))
    assert options.contradiction(settingsnode.complete({"ecc_mode": True})) is None
    assert (
        options.contradiction(
            settingsnode.complete({"state": "restored", "baseline_file": "/x", "settings": ["ecc_mode"]})
        )
        is None
    )
