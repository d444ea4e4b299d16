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
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed

REASONS = "clocks_event_reasons"
APPLICATIONS, DEFAULTS = "applications_clocks_mhz", "applications_clocks_default_mhz"
SET = {"graphics": 1410, "mem": 2619}
MAX = {"graphics": 1980, "sm": 1980, "mem": 2619, "video": 1545}
UNTOLD = {"slowdown": None, "shutdown": None, "gpu_max": None, "memory_max": None}
JOB = [{"pid": 4711, "used_bytes": 1 << 30}]
MIB = 1 << 20

CASES = cases.table(
    {
        "gpu.hw_slowdown": [
            ({}, {}, PASS),
            ({REASONS: 0x9}, NO_BASELINE, FAIL, "hold", "0x9"),
            ({REASONS: 0x34}, NO_BASELINE, PASS),
            ({REASONS: "0x8"}, {}, FAIL, "hold", "answered in the baseline"),
            *absences(REASONS),
        ],
        "gpu.hw_thermal_slowdown": [
            ({}, {}, PASS),
            ({REASONS: 0x48}, {REASONS: 0x48}, FAIL, "hold", "fans"),
            ({REASONS: 0x8}, {}, PASS),
            *absences(REASONS),
        ],
        "gpu.power_brake": [
            ({}, {}, PASS),
            ({REASONS: 0x80}, NO_BASELINE, FAIL, "hold", "power supplies"),
            ({REASONS: 0x48}, {}, PASS),
            *absences(REASONS),
        ],
        "gpu.sw_slowdown": [
            ({REASONS: 0x1}, NO_BASELINE, PASS),
            ({REASONS: 0x4}, NO_BASELINE, NOTICE, "none", "software power cap"),
            ({REASONS: 0x30}, {}, NOTICE, "none", "sync boost, software thermal slowdown"),
            ({REASONS: 0xC8}, {}, PASS),
            *absences(REASONS),
        ],
        "gpu.applications_clocks": [
            ({}, {}, PASS),
            ({APPLICATIONS: SET}, {}, FAIL, "restore_setting", "mem 2619 MHz; expected graphics 1980 MHz"),
            ({}, NO_BASELINE, SKIP),
            ({APPLICATIONS: SET}, NO_BASELINE, NOTICE, "none", "the default"),
            ({APPLICATIONS: SET, DEFAULTS: GONE}, NO_BASELINE, UNKNOWN, "hold"),
            ({}, {APPLICATIONS: GONE}, UNKNOWN, "hold"),
            ({APPLICATIONS: failed(26)}, {}, SKIP, "none", "in the baseline they were the default"),
            ({APPLICATIONS: failed(26)}, {APPLICATIONS: SET}, FAIL, "restore_setting", "locked clocks"),
            ({APPLICATIONS: failed(26)}, {DEFAULTS: GONE}, FAIL, "restore_setting"),
            ({APPLICATIONS: failed(26)}, NO_BASELINE, SKIP),
            ({APPLICATIONS: failed(26)}, {APPLICATIONS: failed(26)}, SKIP),
            ({APPLICATIONS: failed(26)}, {APPLICATIONS: GONE}, UNKNOWN, "hold"),
            *absences(APPLICATIONS, "restore_setting"),
        ],
        "gpu.clocks_max": [
            ({}, {}, PASS),
            ({"clocks_max_mhz": dict(MAX, sm=1979)}, {}, FAIL, "hold", "sm 1979 MHz, expected 1980 MHz"),
            ({"clocks_max_mhz": dict(MAX, sm=1979)}, {}, PASS, dict(policy_change={"clocks_max_tolerance_percent": 1})),
            ({"clocks_max_mhz": dict(MAX, sm=2100)}, {}, PASS),
            ({"clocks_max_mhz": dict(MAX, sm=None)}, {}, FAIL, "hold"),
            ({}, NO_BASELINE, SKIP),
            ({}, {"clocks_max_mhz": 1980}, UNKNOWN, "hold"),
            *absences("clocks_max_mhz"),
        ],
        "gpu.temperature": [
            ({}, {}, PASS),
            ({"temperature_gpu_c": 86}, NO_BASELINE, PASS),
            ({"temperature_gpu_c": 87}, NO_BASELINE, FAIL, "hold", "is 87 C; expected less than 87 C"),
            ({"temperature_gpu_c": 80, "temperature_limits_c": dict(UNTOLD, slowdown=80)}, NO_BASELINE, FAIL, "hold"),
            (
                {"temperature_gpu_c": 80, "temperature_limits_c": UNTOLD},
                {"temperature_limits_c": dict(UNTOLD, gpu_max=80)},
                FAIL,
                "hold",
            ),
            ({"temperature_gpu_c": 87, "temperature_limits_c": UNTOLD}, NO_BASELINE, FAIL, "hold"),
            ({"temperature_gpu_c": 70, "temperature_limits_c": ABSENT}, {}, PASS),
            ({"temperature_gpu_c": 70, "temperature_limits_c": failed(26)}, NO_BASELINE, PASS),
            (
                {"temperature_gpu_c": 80, "temperature_limits_c": ABSENT},
                NO_BASELINE,
                FAIL,
                "hold",
                "less than 75 C",
                dict(policy_change={"models": {"NVIDIA H100*": {"temperature_gpu_max_c": 75}}}),
            ),
            ({"temperature_limits_c": GONE}, NO_BASELINE, UNKNOWN, "hold"),
            ({"temperature_limits_c": failed(999)}, NO_BASELINE, FAIL, "reboot"),
            *absences("temperature_gpu_c"),
        ],
        "gpu.temperature_memory": [
            ({}, {}, PASS),
            ({"temperature_memory_c": 95}, NO_BASELINE, FAIL, "hold", "memory temperature"),
            ({"temperature_memory_c": 94, "temperature_limits_c": UNTOLD}, NO_BASELINE, PASS),
            *absences("temperature_memory_c"),
        ],
        "gpu.temperature_margin": [
            ({"temperature_margin_c": 1}, NO_BASELINE, PASS),
            ({"temperature_margin_c": 0}, NO_BASELINE, FAIL, "hold", "at least 1 C"),
            ({"temperature_margin_c": -3}, {}, FAIL, "hold"),
            ({"temperature_margin_c": 5}, {"temperature_margin_c": 20}, PASS),
            ({"temperature_margin_c": failed(13)}, NO_BASELINE, SKIP, "none", "before 575"),
            ({"temperature_margin_c": failed(13)}, NO_BASELINE, UNKNOWN, "hold", dict(driver="580.95.05")),
            ({"temperature_margin_c": ABSENT}, {"temperature_margin_c": 20}, FAIL, "hold", dict(driver="580.95.05")),
        ],
        "gpu.temperature_idle": [
            ({"temperature_gpu_c": 43}, {}, PASS),
            ({"temperature_gpu_c": 44}, {}, NOTICE, "none", "at most 10 C more than the 33 C"),
            ({"temperature_gpu_c": 60, REASONS: 0x4, "compute_processes": JOB}, {}, PASS),
            ({"temperature_gpu_c": 60, REASONS: 0}, {}, NOTICE),
            ({"temperature_gpu_c": 60, REASONS: GONE}, {}, UNKNOWN, "hold", "whether it is idle is not known"),
            ({"temperature_gpu_c": 60, REASONS: 0, "compute_processes": failed(4)}, {}, UNKNOWN, "hold"),
            ({"temperature_gpu_c": 60}, NO_BASELINE, SKIP),
            *absences("temperature_gpu_c"),
        ],
        "gpu.power_limit": [
            ({}, {}, PASS),
            ({"power_limit_mw": 350000}, {}, FAIL, "restore_setting", "is 350000; expected 700000"),
            ({}, NO_BASELINE, SKIP),
            ({"power_limit_mw": 350000}, NO_BASELINE, NOTICE, "none", "expected 700000, the default"),
            ({"power_limit_default_mw": GONE}, NO_BASELINE, UNKNOWN, "hold"),
            ({}, {"power_limit_mw": GONE}, UNKNOWN, "hold"),
            *absences("power_limit_mw", "restore_setting"),
        ],
        "gpu.power_limit_enforced": [
            ({}, {}, PASS),
            ({}, NO_BASELINE, PASS),
            ({"power_limit_enforced_mw": 500000}, {}, FAIL, "restore_setting", "as in the baseline"),
            ({"power_limit_enforced_mw": 500000}, NO_BASELINE, NOTICE, "none", "expected 700000, which is set"),
            ({"power_limit_enforced_mw": 500000}, {"power_limit_enforced_mw": 500000}, NOTICE),
            ({}, {"power_limit_enforced_mw": GONE}, UNKNOWN, "hold"),
            ({"power_limit_mw": failed(4)}, NO_BASELINE, UNKNOWN, "hold"),
            *absences("power_limit_enforced_mw", "restore_setting"),
        ],
        "gpu.power_limit_default": [
            ({}, {}, PASS),
            ({"power_limit_default_mw": 650000}, {}, NOTICE, "none", "VBIOS"),
            ({}, NO_BASELINE, SKIP),
            ({}, {"power_limit_default_mw": True}, UNKNOWN, "hold"),
            *absences("power_limit_default_mw"),
        ],
        "gpu.persistence": [
            ({}, {}, PASS),
            ({"persistence_mode": 0}, {}, FAIL, "restart_service", "nvidia-persistenced"),
            ({"persistence_mode": 0}, NO_BASELINE, SKIP),
            ({}, {"persistence_mode": failed(4)}, UNKNOWN, "hold"),
            *absences("persistence_mode", "restart_service"),
        ],
        "gpu.compute_mode": [
            ({}, {}, PASS),
            ({"compute_mode": 3}, {}, FAIL, "restore_setting", "is 3; expected 0"),
            ({"compute_mode": 3}, NO_BASELINE, SKIP),
            ({"compute_mode": 2}, NO_BASELINE, FAIL, "restore_setting", "prohibited"),
            ({"compute_mode": 2}, {"compute_mode": 2}, PASS),
            ({}, {"compute_mode": GONE}, UNKNOWN, "hold"),
            *absences("compute_mode", "restore_setting"),
        ],
        "gpu.compute_processes": [
            ({}, {}, PASS),
            ({"compute_processes": JOB}, {}, FAIL, "hold", "pid 4711"),
            ({"compute_processes": JOB}, NO_BASELINE, PASS, "none", "may be at work", dict(phase="adhoc")),
            ({"compute_processes": JOB}, {}, PASS, dict(phase="soak")),
            ({"compute_processes": JOB}, NO_BASELINE, PASS, dict(phase="baseline")),
            ({"compute_processes": JOB}, {}, FAIL, "hold", dict(phase="adhoc", expect={"empty": True})),
            ({"compute_processes": JOB}, {}, PASS, dict(phase="post", expect={"empty": False})),
            ({"compute_processes": JOB}, {}, PASS, dict(policy_change={"processes_max": 1})),
            ({"compute_processes": ["damaged"]}, {}, FAIL, "hold"),
            *absences("compute_processes"),
        ],
        "gpu.graphics_processes": [
            ({}, NO_BASELINE, PASS),
            ({"graphics_processes": JOB}, NO_BASELINE, FAIL, "hold", "graphics"),
            ({"graphics_processes": JOB}, NO_BASELINE, PASS, "none", "may be at work", dict(phase="adhoc")),
            *absences("graphics_processes"),
        ],
        "gpu.memory_used": [
            ({"memory_used_bytes": 1024 * MIB}, {}, PASS),
            ({"memory_used_bytes": 1024 * MIB + 1}, {}, FAIL, "reset_gpu", "no process runs there"),
            ({"memory_used_bytes": 9000 * MIB, "compute_processes": JOB}, {}, SKIP, "none", "Processes use the GPU"),
            ({"memory_used_bytes": 9000 * MIB, "graphics_processes": JOB}, {}, SKIP),
            ({"memory_used_bytes": 9000 * MIB, "graphics_processes": failed(999)}, {}, FAIL, "reboot"),
            ({"memory_used_bytes": 9000 * MIB, "graphics_processes": GONE}, NO_BASELINE, UNKNOWN, "hold"),
            ({"memory_used_bytes": 1024 * MIB}, NO_BASELINE, SKIP),
            ({"memory_used_bytes": 9000 * MIB}, NO_BASELINE, NOTICE, "none", "no process runs there"),
            ({}, {"memory_used_bytes": GONE}, UNKNOWN, "hold"),
            *absences("memory_used_bytes"),
        ],
    }
)


@pytest.mark.parametrize("one", CASES, ids=cases.name)
def test_the_truth_table(one):
    cases.holds(one)


@pytest.mark.parametrize(
    "reasons, processes, expected",
    [(1, [], True), (1, JOB, True), (0, [], True), (4, JOB, False), (GONE, [], None), (0, GONE, None), (1, GONE, True)],
)
def test_a_gpu_is_idle_if_it_says_so_or_runs_nothing(reasons, processes, expected):
    snapshot = cases.changed(cases.readings.snapshot(), {REASONS: reasons, "compute_processes": processes})
    assert clocks.is_idle(snapshot["gpus"][1]) is expected
