# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Temperatures: against the limits that NVML tells, and at idle against the baseline."""

from __future__ import annotations

from .. import compare, model, policy, signals
from ..compare import NUMBER
from . import clocks

LIMITS = "temperature_limits_c"
MARGIN_SINCE_BRANCH = 575
COOL = "Look at fans, airflow or coolant, and drain the node."
# Newer drivers answer so for limits that they tell as a margin instead.
NO_LIMITS = (model.NOT_SUPPORTED, model.INVALID_ARGUMENT, clocks.DEPRECATED)


def limit_of(now, old, names) -> tuple[float, str] | None:
    """The lowest limit of NAMES that NVML tells, or told in the baseline, and whose it is; None if there is none."""
    told = []
    for name in names:
        number = compare.part(now.value, name)
        told.append(number if number is not None or old is None else compare.part(old.value, name))
    told = [number for number in told if number is not None]
    return (min(told), "hardware") if told else None


def below_limit(ctx, gpu, ident, key, what, names, policy_key) -> dict | None:
    now = compare.read_typed(gpu, key, NUMBER)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    limits = compare.read_typed(gpu, LIMITS, dict)
    if not limits.known and limits.rc not in NO_LIMITS:
        return signals.check_absent_signal(ctx, ident, gpu, LIMITS, limits)
    old = compare.read_baseline(ctx, gpu, LIMITS, dict)
    if compare.damaged_before(old) and all(compare.part(limits.value, name) is None for name in names):
        return compare.check_comparable(ctx, gpu, ident, LIMITS, dict, limits.value)
    limit, source = limit_of(limits, old, names) or (policy.find_limit(ctx, policy_key, gpu), "policy")
    finding = None
    if now.value >= limit:
        finding = compare.make_failure(
            "hold",
            "%s of %s is %s C; expected less than %s C. %s" % (what, model.name_gpu(gpu), now.value, limit, COOL),
        )
    return compare.make_check(ident, gpu, finding, now.value, "less than %s" % (limit,), source)


def check_core(ctx, gpu) -> dict:
    return below_limit(
        ctx,
        gpu,
        "gpu.temperature",
        "temperature_gpu_c",
        "The temperature",
        ("gpu_max", "slowdown", "shutdown"),
        "temperature_gpu_max_c",
    )


def check_memory(ctx, gpu) -> dict:
    return below_limit(
        ctx,
        gpu,
        "gpu.temperature_memory",
        "temperature_memory_c",
        "The memory temperature",
        ("memory_max",),
        "temperature_memory_max_c",
    )


def check_margin(ctx, gpu) -> dict:
    ident, key = "gpu.temperature_margin", "temperature_margin_c"
    now = compare.read_typed(gpu, key, NUMBER)
    if not now.known:
        return compare.too_old(ctx, ident, gpu, now, MARGIN_SINCE_BRANCH) or signals.check_absent_signal(
            ctx, ident, gpu, key, now
        )
    least = policy.find_limit(ctx, "temperature_margin_min_c", gpu)
    finding = None
    if now.value < least:
        finding = compare.make_failure(
            "hold",
            "%s is %s C below the temperature at which it slows down; expected at least %s C. %s"
            % (model.name_gpu(gpu), now.value, least, COOL),
        )
    return compare.make_check(ident, gpu, finding, now.value, "at least %s" % (least,), "policy")


def check_idle_temperature(ctx, gpu) -> dict:
    """At idle, a GPU is about as warm as it was at the baseline. A GPU that works may be warmer."""
    ident, key = "gpu.temperature_idle", "temperature_gpu_c"

    def differs(old, new):
        rise = policy.find_limit(ctx, "temperature_idle_rise_c", gpu)
        resting = clocks.is_idle(gpu)
        if new - old <= rise or resting is False:
            return None
        text = "The temperature of %s is %s C; expected at most %s C more than the %s C of the baseline" % (
            model.name_gpu(gpu),
            new,
            rise,
            old,
        )
        if resting is None:
            return compare.make_unknown("%s, and whether it is idle is not known. Read the node again." % (text,))
        return compare.make_notice("%s, as it is idle. Look at fans, airflow or coolant." % (text,))

    return compare.compare_with_baseline(ctx, gpu, ident, key, NUMBER, differs)


LIMIT_KEYS = ("gpu.temperature_limits_c",)
ROWS = (
    model.gpu_row(
        "gpu.temperature",
        check_core,
        "The GPU is colder than the lowest limit that NVML tells",
        ("gpu.temperature_gpu_c",) + LIMIT_KEYS,
        "nvml.h, nvmlDeviceGetTemperatureThreshold",
    ),
    model.gpu_row(
        "gpu.temperature_memory",
        check_memory,
        "The memory is colder than the limit that NVML tells",
        ("gpu.temperature_memory_c",) + LIMIT_KEYS,
        "nvml.h, NVML_FI_DEV_MEMORY_TEMP and NVML_TEMPERATURE_THRESHOLD_MEM_MAX",
    ),
    model.gpu_row(
        "gpu.temperature_margin",
        check_margin,
        "There is a margin to the temperature at which the GPU slows down",
        ("gpu.temperature_margin_c", "snapshot.system.driver_version"),
        "nvml.h, nvmlDeviceGetMarginTemperature",
    ),
    model.gpu_row(
        "gpu.temperature_idle",
        check_idle_temperature,
        "At idle the GPU is about as warm as in the baseline (a notice if warmer)",
        ("gpu.temperature_gpu_c", "gpu.clocks_event_reasons", "gpu.compute_processes"),
        "this collection: compare a GPU with itself",
    ),
)
