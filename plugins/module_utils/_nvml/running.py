# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the running state of a GPU: clocks, temperatures, power and processes."""

from __future__ import annotations

import ctypes

from . import codes, fields
from .calls import combine_answers, convert_answer

CLOCKS_KEYS = (
    "clock_sm_mhz",
    "clock_mem_mhz",
    "clocks_mhz",
    "clocks_max_mhz",
    "applications_clocks_mhz",
    "applications_clocks_default_mhz",
    "clocks_event_reasons",
    "violation_ns",
)
TEMPERATURES_KEYS = (
    "temperature_gpu_c",
    "temperature_memory_c",
    "temperature_margin_c",
    "temperature_limits_c",
    "temperature_margin_limits_c",
)
POWER_KEYS = (
    "power_usage_mw",
    "power_limit_mw",
    "power_limit_default_mw",
    "power_limit_enforced_mw",
    "power_limit_min_mw",
    "power_limit_max_mw",
)
PROCESSES_KEYS = ("compute_processes", "graphics_processes")

CLOCKS = (("graphics", 0), ("sm", 1), ("mem", 2), ("video", 3))
APPLICATIONS_CLOCKS = (("graphics", 0), ("mem", 2))
# Name, performance policy of the call, and the field that replaces the call.
VIOLATIONS = (
    ("power", 0, 74),
    ("thermal", 1, 75),
    ("sync_boost", 2, 76),
    ("board_limit", 3, 77),
    ("low_utilization", 4, 78),
    ("reliability", 5, 79),
)
# Name, threshold of the call, and the field with the same limit as a distance to the slowdown.
LIMITS = (
    ("slowdown", 1, fields.FI_MARGIN_SLOWDOWN),
    ("shutdown", 0, fields.FI_MARGIN_SHUTDOWN),
    ("gpu_max", 3, fields.FI_MARGIN_GPU_MAX),
    ("memory_max", 2, fields.FI_MARGIN_MEMORY_MAX),
)
POWER = (
    ("power_usage_mw", "nvmlDeviceGetPowerUsage"),
    ("power_limit_mw", "nvmlDeviceGetPowerManagementLimit"),
    ("power_limit_default_mw", "nvmlDeviceGetPowerManagementDefaultLimit"),
    ("power_limit_enforced_mw", "nvmlDeviceGetEnforcedPowerLimit"),
)


def _by_type(reader, symbol, handle, kinds) -> dict[str, dict]:
    return dict((name, reader.number(symbol, handle, ctypes.c_uint(number))) for name, number in kinds)


def read_clocks(reader, handle, gpu) -> None:
    now = _by_type(reader, "nvmlDeviceGetClockInfo", handle, CLOCKS)
    gpu["clock_sm_mhz"], gpu["clock_mem_mhz"] = now["sm"], now["mem"]
    gpu["clocks_mhz"] = combine_answers(now)
    gpu["clocks_max_mhz"] = combine_answers(_by_type(reader, "nvmlDeviceGetMaxClockInfo", handle, CLOCKS))
    gpu["applications_clocks_mhz"] = combine_answers(
        _by_type(reader, "nvmlDeviceGetApplicationsClock", handle, APPLICATIONS_CLOCKS)
    )
    gpu["applications_clocks_default_mhz"] = combine_answers(
        _by_type(reader, "nvmlDeviceGetDefaultApplicationsClock", handle, APPLICATIONS_CLOCKS)
    )
    gpu["clocks_event_reasons"] = reader.first(
        *[
            lambda symbol=symbol: reader.number(symbol, handle, kind=ctypes.c_ulonglong)
            for symbol in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        ]
    )
    gpu["violation_ns"] = combine_answers(
        dict((name, _read_violation(reader, handle, policy, field)) for name, policy, field in VIOLATIONS)
    )


def _read_violation(reader, handle, policy, field) -> dict[str, int]:
    def read_value() -> int:
        times = fields.ViolationTime()
        reader.raw("nvmlDeviceGetViolationStatus", handle, ctypes.c_uint(policy), ctypes.byref(times))
        return int(times.violationTime)

    answer = reader.guard("nvmlDeviceGetViolationStatus", read_value)
    if answer["rc"] in (codes.FUNCTION_NOT_FOUND, codes.DEPRECATED):
        return reader.field(handle, field)
    return answer


def read_temperatures(reader, handle, gpu) -> None:
    gpu["temperature_gpu_c"] = reader.number("nvmlDeviceGetTemperature", handle, ctypes.c_uint(fields.TEMPERATURE_GPU))
    gpu["temperature_memory_c"] = reader.field(handle, fields.FI_MEMORY_TEMPERATURE)
    gpu["temperature_margin_c"] = convert_answer(
        reader.struct("nvmlDeviceGetMarginTemperature", handle, fields.MarginTemperature, fields.MARGIN_TEMPERATURE_V1),
        lambda margin: int(margin.marginTemperature),
    )
    gpu["temperature_limits_c"] = combine_answers(
        dict(
            (name, reader.number("nvmlDeviceGetTemperatureThreshold", handle, ctypes.c_uint(threshold)))
            for name, threshold, dummy in LIMITS
        )
    )
    gpu["temperature_margin_limits_c"] = combine_answers(
        dict((name, reader.field(handle, field)) for name, dummy, field in LIMITS)
    )


def read_power(reader, handle, gpu) -> None:
    for key, symbol in POWER:
        gpu[key] = reader.number(symbol, handle)
    gpu["power_limit_min_mw"], gpu["power_limit_max_mw"] = reader.pair(
        "nvmlDeviceGetPowerManagementLimitConstraints", handle
    )


def read_processes(reader, handle, gpu) -> None:
    gpu["compute_processes"] = processes(reader, handle, "nvmlDeviceGetComputeRunningProcesses", _convert_process)
    gpu["graphics_processes"] = processes(reader, handle, "nvmlDeviceGetGraphicsRunningProcesses", _convert_process)


def processes(reader, handle, name, convert_row) -> dict:
    """Processes by pid, each row of the function NAME converted: a size query, then the list, again while it grows."""

    def read_value(symbol) -> list[dict]:
        count = ctypes.c_uint(0)
        table = None
        for _attempt in range(5):
            rc = reader.ask(symbol, handle, ctypes.byref(count), table)
            if rc == codes.SUCCESS:
                rows = [] if table is None else table[: count.value]
                return sorted([convert_row(row) for row in rows], key=lambda row: row["pid"])
            if rc != codes.INSUFFICIENT_SIZE:
                raise reader.binding.NVMLError(rc)
            room = count.value * 2 + 5
            count = ctypes.c_uint(room)
            table = (fields.ProcessInfo * room)()
        raise reader.binding.NVMLError(codes.INSUFFICIENT_SIZE)

    # The call without a version fills a shorter structure and is never used.
    return reader.first(
        *[
            lambda symbol=symbol: reader.guard(symbol, lambda: read_value(symbol))
            for symbol in (name + "_v3", name + "_v2")
        ]
    )


def _convert_process(row) -> dict:
    used = row.usedGpuMemory
    return {"pid": int(row.pid), "used_bytes": None if used == fields.MEMORY_NOT_AVAILABLE else int(used)}
