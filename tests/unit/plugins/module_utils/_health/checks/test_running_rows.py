# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables of the rows about a GPU at work or at rest: clocks, temperatures, power, modes, processes."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks import clocks
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import cases
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.cases import (
    ABSENT,
    FAIL,
    GONE,
    NO_BASELINE,
    NOTICE,
    PASS,
    SKIP,
    UNKNOWN,
    absences,
    case,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed

REASONS = "clocks_event_reasons"
APPLICATIONS, DEFAULTS = "applications_clocks_mhz", "applications_clocks_default_mhz"
SET = {"graphics": 1410, "mem": 2619}
MAX = {"graphics": 1980, "sm": 1980, "mem": 2619, "video": 1545}
NONE_TOLD = {"slowdown": None, "shutdown": None, "gpu_max": None, "memory_max": None}
JOB = [{"pid": 4711, "used_bytes": 1 << 30}]
MIB = 1 << 20

CASES = [
    case("gpu.hw_slowdown", {}, {}, PASS),
    case("gpu.hw_slowdown", {REASONS: 0x9}, NO_BASELINE, FAIL, "hold", "0x9"),
    case("gpu.hw_slowdown", {REASONS: 0x34}, NO_BASELINE, PASS),
    case("gpu.hw_slowdown", {REASONS: "0x8"}, {}, FAIL, "hold", "answered in the baseline"),
    *absences("gpu.hw_slowdown", REASONS),
    case("gpu.hw_thermal_slowdown", {}, {}, PASS),
    case("gpu.hw_thermal_slowdown", {REASONS: 0x48}, {REASONS: 0x48}, FAIL, "hold", "fans"),
    case("gpu.hw_thermal_slowdown", {REASONS: 0x8}, {}, PASS),
    *absences("gpu.hw_thermal_slowdown", REASONS),
    case("gpu.power_brake", {}, {}, PASS),
    case("gpu.power_brake", {REASONS: 0x80}, NO_BASELINE, FAIL, "hold", "power supplies"),
    case("gpu.power_brake", {REASONS: 0x48}, {}, PASS),
    *absences("gpu.power_brake", REASONS),
    case("gpu.sw_slowdown", {REASONS: 0x1}, NO_BASELINE, PASS),
    case("gpu.sw_slowdown", {REASONS: 0x4}, NO_BASELINE, NOTICE, "none", "software power cap"),
    case("gpu.sw_slowdown", {REASONS: 0x30}, {}, NOTICE, "none", "sync boost, software thermal slowdown"),
    case("gpu.sw_slowdown", {REASONS: 0xC8}, {}, PASS),
    *absences("gpu.sw_slowdown", REASONS),
    case("gpu.applications_clocks", {}, {}, PASS),
    case(
        "gpu.applications_clocks",
        {APPLICATIONS: SET},
        {},
        FAIL,
        "restore_setting",
        "graphics 1410 MHz, mem 2619 MHz; expected graphics 1980 MHz",
    ),
    case("gpu.applications_clocks", {APPLICATIONS: SET}, NO_BASELINE, SKIP),
    case("gpu.applications_clocks", {}, {APPLICATIONS: GONE}, UNKNOWN, "hold"),
    case(
        "gpu.applications_clocks", {APPLICATIONS: failed(26)}, {}, SKIP, "none", "in the baseline they were the default"
    ),
    case(
        "gpu.applications_clocks",
        {APPLICATIONS: failed(26)},
        {APPLICATIONS: SET},
        FAIL,
        "restore_setting",
        "locked clocks",
    ),
    case("gpu.applications_clocks", {APPLICATIONS: failed(26)}, {DEFAULTS: GONE}, FAIL, "restore_setting"),
    case("gpu.applications_clocks", {APPLICATIONS: failed(26)}, NO_BASELINE, SKIP),
    case("gpu.applications_clocks", {APPLICATIONS: failed(26)}, {APPLICATIONS: failed(26)}, SKIP),
    case("gpu.applications_clocks", {APPLICATIONS: failed(26)}, {APPLICATIONS: GONE}, UNKNOWN, "hold"),
    *absences("gpu.applications_clocks", APPLICATIONS, "restore_setting"),
    case("gpu.clocks_max", {}, {}, PASS),
    case("gpu.clocks_max", {"clocks_max_mhz": dict(MAX, sm=1979)}, {}, FAIL, "hold", "sm 1979 MHz, expected 1980 MHz"),
    case(
        "gpu.clocks_max",
        {"clocks_max_mhz": dict(MAX, sm=1979)},
        {},
        PASS,
        policy_change={"clocks_max_tolerance_percent": 1},
    ),
    case("gpu.clocks_max", {"clocks_max_mhz": dict(MAX, sm=2100)}, {}, PASS),
    case("gpu.clocks_max", {"clocks_max_mhz": dict(MAX, sm=None)}, {}, FAIL, "hold"),
    case("gpu.clocks_max", {}, NO_BASELINE, SKIP),
    case("gpu.clocks_max", {}, {"clocks_max_mhz": 1980}, UNKNOWN, "hold"),
    *absences("gpu.clocks_max", "clocks_max_mhz"),
    case("gpu.temperature", {}, {}, PASS),
    case("gpu.temperature", {"temperature_gpu_c": 86}, NO_BASELINE, PASS),
    case("gpu.temperature", {"temperature_gpu_c": 87}, NO_BASELINE, FAIL, "hold", "is 87 C; expected less than 87 C"),
    case(
        "gpu.temperature",
        {"temperature_gpu_c": 80, "temperature_limits_c": dict(NONE_TOLD, slowdown=80)},
        NO_BASELINE,
        FAIL,
        "hold",
    ),
    case(
        "gpu.temperature",
        {"temperature_gpu_c": 80, "temperature_limits_c": NONE_TOLD},
        {"temperature_limits_c": dict(NONE_TOLD, gpu_max=80)},
        FAIL,
        "hold",
    ),
    case("gpu.temperature", {"temperature_gpu_c": 87, "temperature_limits_c": NONE_TOLD}, NO_BASELINE, FAIL, "hold"),
    case("gpu.temperature", {"temperature_gpu_c": 70, "temperature_limits_c": ABSENT}, {}, PASS),
    case("gpu.temperature", {"temperature_gpu_c": 70, "temperature_limits_c": failed(26)}, NO_BASELINE, PASS),
    case(
        "gpu.temperature",
        {"temperature_gpu_c": 80, "temperature_limits_c": ABSENT},
        NO_BASELINE,
        FAIL,
        "hold",
        "less than 75 C",
        policy_change={"models": {"NVIDIA H100*": {"temperature_gpu_max_c": 75}}},
    ),
    case("gpu.temperature", {"temperature_limits_c": GONE}, NO_BASELINE, UNKNOWN, "hold"),
    case("gpu.temperature", {"temperature_limits_c": failed(999)}, NO_BASELINE, FAIL, "reboot"),
    *absences("gpu.temperature", "temperature_gpu_c"),
    case("gpu.temperature_memory", {}, {}, PASS),
    case("gpu.temperature_memory", {"temperature_memory_c": 95}, NO_BASELINE, FAIL, "hold", "memory temperature"),
    case("gpu.temperature_memory", {"temperature_memory_c": 94, "temperature_limits_c": NONE_TOLD}, NO_BASELINE, PASS),
    *absences("gpu.temperature_memory", "temperature_memory_c"),
    case("gpu.temperature_margin", {"temperature_margin_c": 1}, NO_BASELINE, PASS),
    case("gpu.temperature_margin", {"temperature_margin_c": 0}, NO_BASELINE, FAIL, "hold", "at least 1 C"),
    case("gpu.temperature_margin", {"temperature_margin_c": -3}, {}, FAIL, "hold"),
    case("gpu.temperature_margin", {"temperature_margin_c": 5}, {"temperature_margin_c": 20}, PASS),
    case("gpu.temperature_margin", {"temperature_margin_c": failed(13)}, NO_BASELINE, SKIP, "none", "before 575"),
    case(
        "gpu.temperature_margin", {"temperature_margin_c": failed(13)}, NO_BASELINE, UNKNOWN, "hold", driver="580.95.05"
    ),
    case(
        "gpu.temperature_margin",
        {"temperature_margin_c": ABSENT},
        {"temperature_margin_c": 20},
        FAIL,
        "hold",
        driver="580.95.05",
    ),
    case("gpu.temperature_idle", {"temperature_gpu_c": 43}, {}, PASS),
    case("gpu.temperature_idle", {"temperature_gpu_c": 44}, {}, NOTICE, "none", "at most 10 C more than the 33 C"),
    case("gpu.temperature_idle", {"temperature_gpu_c": 60, REASONS: 0x4, "compute_processes": JOB}, {}, PASS),
    case("gpu.temperature_idle", {"temperature_gpu_c": 60, REASONS: 0}, {}, NOTICE),
    case(
        "gpu.temperature_idle",
        {"temperature_gpu_c": 60, REASONS: GONE},
        {},
        UNKNOWN,
        "hold",
        "whether it is idle is not known",
    ),
    case(
        "gpu.temperature_idle",
        {"temperature_gpu_c": 60, REASONS: 0, "compute_processes": failed(4)},
        {},
        UNKNOWN,
        "hold",
    ),
    case("gpu.temperature_idle", {"temperature_gpu_c": 60}, NO_BASELINE, SKIP),
    *absences("gpu.temperature_idle", "temperature_gpu_c"),
    case("gpu.power_limit", {}, {}, PASS),
    case("gpu.power_limit", {"power_limit_mw": 350000}, {}, FAIL, "restore_setting", "is 350000; expected 700000"),
    case("gpu.power_limit", {"power_limit_mw": 350000}, NO_BASELINE, SKIP),
    case("gpu.power_limit", {}, {"power_limit_mw": GONE}, UNKNOWN, "hold"),
    *absences("gpu.power_limit", "power_limit_mw", "restore_setting"),
    case("gpu.power_limit_enforced", {}, {}, PASS),
    case("gpu.power_limit_enforced", {}, NO_BASELINE, PASS),
    case(
        "gpu.power_limit_enforced",
        {"power_limit_enforced_mw": 500000},
        {},
        FAIL,
        "restore_setting",
        "as in the baseline",
    ),
    case(
        "gpu.power_limit_enforced",
        {"power_limit_enforced_mw": 500000},
        NO_BASELINE,
        NOTICE,
        "none",
        "expected 700000, which is set",
    ),
    case("gpu.power_limit_enforced", {"power_limit_enforced_mw": 500000}, {"power_limit_enforced_mw": 500000}, NOTICE),
    case("gpu.power_limit_enforced", {}, {"power_limit_enforced_mw": GONE}, UNKNOWN, "hold"),
    case("gpu.power_limit_enforced", {"power_limit_mw": failed(4)}, NO_BASELINE, UNKNOWN, "hold"),
    *absences("gpu.power_limit_enforced", "power_limit_enforced_mw", "restore_setting"),
    case("gpu.power_limit_default", {}, {}, PASS),
    case("gpu.power_limit_default", {"power_limit_default_mw": 650000}, {}, NOTICE, "none", "VBIOS"),
    case("gpu.power_limit_default", {}, NO_BASELINE, SKIP),
    case("gpu.power_limit_default", {}, {"power_limit_default_mw": True}, UNKNOWN, "hold"),
    *absences("gpu.power_limit_default", "power_limit_default_mw"),
    case("gpu.persistence", {}, {}, PASS),
    case("gpu.persistence", {"persistence_mode": 0}, {}, FAIL, "restart_service", "nvidia-persistenced"),
    case("gpu.persistence", {"persistence_mode": 0}, NO_BASELINE, SKIP),
    case("gpu.persistence", {}, {"persistence_mode": failed(4)}, UNKNOWN, "hold"),
    *absences("gpu.persistence", "persistence_mode", "restart_service"),
    case("gpu.compute_mode", {}, {}, PASS),
    case("gpu.compute_mode", {"compute_mode": 3}, {}, FAIL, "restore_setting", "is 3; expected 0"),
    case("gpu.compute_mode", {"compute_mode": 3}, NO_BASELINE, SKIP),
    case("gpu.compute_mode", {}, {"compute_mode": GONE}, UNKNOWN, "hold"),
    *absences("gpu.compute_mode", "compute_mode", "restore_setting"),
    case("gpu.compute_processes", {}, {}, PASS),
    case("gpu.compute_processes", {"compute_processes": JOB}, {}, FAIL, "hold", "pid 4711"),
    case(
        "gpu.compute_processes", {"compute_processes": JOB}, NO_BASELINE, PASS, "none", "may be at work", phase="adhoc"
    ),
    case("gpu.compute_processes", {"compute_processes": JOB}, {}, PASS, phase="soak"),
    case("gpu.compute_processes", {"compute_processes": JOB}, NO_BASELINE, PASS, phase="baseline"),
    case("gpu.compute_processes", {"compute_processes": JOB}, {}, FAIL, "hold", phase="adhoc", expect={"empty": True}),
    case("gpu.compute_processes", {"compute_processes": JOB}, {}, PASS, phase="post", expect={"empty": False}),
    case("gpu.compute_processes", {"compute_processes": JOB}, {}, PASS, policy_change={"processes_max": 1}),
    case("gpu.compute_processes", {"compute_processes": ["damaged"]}, {}, FAIL, "hold"),
    *absences("gpu.compute_processes", "compute_processes"),
    case("gpu.graphics_processes", {}, NO_BASELINE, PASS),
    case("gpu.graphics_processes", {"graphics_processes": JOB}, NO_BASELINE, FAIL, "hold", "graphics"),
    case(
        "gpu.graphics_processes",
        {"graphics_processes": JOB},
        NO_BASELINE,
        PASS,
        "none",
        "may be at work",
        phase="adhoc",
    ),
    *absences("gpu.graphics_processes", "graphics_processes"),
    case("gpu.memory_used", {"memory_used_bytes": 1024 * MIB}, {}, PASS),
    case("gpu.memory_used", {"memory_used_bytes": 1024 * MIB + 1}, {}, FAIL, "reset_gpu", "no process runs there"),
    case(
        "gpu.memory_used",
        {"memory_used_bytes": 9000 * MIB, "compute_processes": JOB},
        {},
        SKIP,
        "none",
        "Processes use the GPU",
    ),
    case("gpu.memory_used", {"memory_used_bytes": 9000 * MIB, "graphics_processes": JOB}, {}, SKIP),
    case("gpu.memory_used", {"memory_used_bytes": 9000 * MIB, "graphics_processes": failed(999)}, {}, FAIL, "reboot"),
    case(
        "gpu.memory_used", {"memory_used_bytes": 9000 * MIB, "graphics_processes": GONE}, NO_BASELINE, UNKNOWN, "hold"
    ),
    case("gpu.memory_used", {"memory_used_bytes": 9000 * MIB}, NO_BASELINE, SKIP),
    case("gpu.memory_used", {}, {"memory_used_bytes": GONE}, UNKNOWN, "hold"),
    *absences("gpu.memory_used", "memory_used_bytes"),
]


@pytest.mark.parametrize("one", CASES, ids=cases.name)
def test_the_truth_table(one):
    cases.holds(one)


@pytest.mark.parametrize(
    "reasons, processes, expected",
    [(1, [], True), (1, JOB, True), (0, [], True), (4, JOB, False), (GONE, [], None), (0, GONE, None), (1, GONE, True)],
)
def test_a_gpu_is_idle_if_it_says_so_or_runs_nothing(reasons, processes, expected):
    snapshot = cases.changed(cases.readings.snapshot(), {REASONS: reasons, "compute_processes": processes})
    assert clocks.idle(snapshot["gpus"][1]) is expected
