# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clocks: what slows a GPU down, and the configured clocks."""

from __future__ import annotations

import functools

from .. import compare, model, policy, signals

IDLE = 0x1
HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE = 0x8, 0x40, 0x80
SW_REASONS = ((0x4, "software power cap"), (0x10, "sync boost"), (0x20, "software thermal slowdown"))
DEPRECATED = 26
NO_MORE = "This driver has no application clocks any more"
KEY = "clocks_event_reasons"


def reasons_of(ctx, gpu, ident) -> tuple[int | None, dict | None]:
    """The bits of what holds the clocks back, or the check that says why they are not known."""
    now = compare.read_typed(gpu, KEY, int)
    return (now.value, None) if now.known else (None, signals.check_absent_signal(ctx, ident, gpu, KEY, now))


def check_hardware_slowdown(ctx, gpu, ident, bit, what, action, step) -> dict:
    """A slowdown by the hardware is never right on a GPU that is idle or under a short test."""
    reasons, problem = reasons_of(ctx, gpu, ident)
    if problem:
        return problem
    finding = None
    if reasons & bit:
        finding = compare.make_failure(
            action,
            "%s of %s is on (clock event reasons 0x%x, expected 0x%x not to be set). %s"
            % (what, model.name_gpu(gpu), reasons, bit, step),
        )
    return compare.make_check(ident, gpu, finding, "0x%x" % (reasons,), "without 0x%x" % (bit,), "hardware")


def check_software_slowdown(ctx, gpu) -> dict:
    ident = "gpu.sw_slowdown"
    reasons, problem = reasons_of(ctx, gpu, ident)
    if problem:
        return problem
    found = [name for bit, name in SW_REASONS if reasons & bit]
    finding = None
    if found:
        finding = compare.make_notice(
            "The driver holds the clocks of %s back: %s (clock event reasons 0x%x, expected none of these). "
            "That is usual under load; without load, compare power limit, temperature and clocks with other nodes."
            % (model.name_gpu(gpu), ", ".join(found), reasons)
        )
    return compare.make_check(ident, gpu, finding, "0x%x" % (reasons,), "without 0x34", "hardware")


def check_application_clocks(ctx, gpu) -> dict:
    """Application clocks are a setting.

    Drivers that no longer have it answer so, which matters only where it was used.
    """
    ident, key = "gpu.applications_clocks", "applications_clocks_mhz"
    now = compare.read_typed(gpu, key, dict)
    old = compare.read_baseline(ctx, gpu, key, dict)
    if now.rc == DEPRECATED and old is not None and old.known:
        default = compare.read_baseline(ctx, gpu, "applications_clocks_default_mhz", dict)
        if default.known and default.value == old.value:
            return compare.not_applicable(
                ident, gpu, model.format_reading(now), NO_MORE + ", and in the baseline they were the default."
            )
        finding = compare.make_failure(
            "restore_setting",
            "%s; expected %s for %s as in the baseline. Set locked clocks instead and take a new baseline."
            % (NO_MORE, format_clocks(old.value), model.name_gpu(gpu)),
        )
        return compare.make_check(ident, gpu, finding, model.format_reading(now), old.value, "baseline")
    if now.rc == DEPRECATED and (old is None or old.rc == DEPRECATED or compare.absent_before(old)):
        return compare.not_applicable(ident, gpu, model.format_reading(now), NO_MORE + ".")

    def differs(before, after):
        if before == after:
            return None
        return compare.make_failure(
            "restore_setting",
            "Application clocks of %s are %s; expected %s as in the baseline. Set them again."
            % (model.name_gpu(gpu), format_clocks(after), format_clocks(before)),
        )

    return compare.compare_with_baseline(
        ctx, gpu, ident, key, dict, differs, "restore_setting", alone=check_clocks_alone
    )


def check_clocks_alone(ctx, gpu, now) -> dict | None:
    """Check application clocks against the default where there is no baseline; lower ones are a notice."""
    ident, key = "gpu.applications_clocks", "applications_clocks_default_mhz"
    default = compare.read_typed(gpu, key, dict)
    if default.rc == DEPRECATED:
        return None
    if not default.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, default)
    pairs = [(compare.part(now, domain), compare.part(default.value, domain)) for domain in default.value]
    if not any(clock is not None and usual is not None and clock < usual for clock, usual in pairs):
        return None
    finding = compare.make_notice(
        "Application clocks of %s are %s; expected %s, the default. If that is meant, take a baseline; if not, reset "
        "them (nvidia-smi -rac)." % (model.name_gpu(gpu), format_clocks(now), format_clocks(default.value))
    )
    return compare.make_check(ident, gpu, finding, now, default.value, "hardware")


def check_max_clocks(ctx, gpu) -> dict:
    """The clocks that the GPU can reach at most: lower ones are a GPU that lost performance."""
    ident, key = "gpu.clocks_max", "clocks_max_mhz"

    def differs(before, after):
        tolerance = policy.find_limit(ctx, "clocks_max_tolerance_percent", gpu)
        wrong = []
        for domain in sorted(before):
            then, now = compare.part(before, domain), compare.part(after, domain)
            if then is not None and (now is None or (then - now) * 100.0 > then * tolerance):
                wrong.append("%s %s MHz, expected %s MHz" % (domain, now, then))
        if not wrong:
            return None
        return compare.make_failure(
            "hold",
            "Highest clocks of %s fell since the baseline: %s. Look at locked clocks, VBIOS and driver."
            % (model.name_gpu(gpu), "; ".join(wrong)),
        )

    return compare.compare_with_baseline(ctx, gpu, ident, key, dict, differs)


def format_clocks(clocks) -> str:
    return ", ".join("%s %s MHz" % (domain, clocks[domain]) for domain in sorted(clocks, key=str))


def is_idle(gpu) -> bool | None:
    """Tell if the GPU is idle: True or False, None if unknown."""
    reasons = compare.read_typed(gpu, KEY, int)
    compute = compare.read_typed(gpu, "compute_processes", list)
    if reasons.known and reasons.value & IDLE:
        return True
    if not reasons.known or not compute.known:
        return None
    return not compute.value


HARDWARE = "nvml.h, nvmlClocksEventReason"
ROWS = (
    model.gpu_row(
        "gpu.hw_slowdown",
        functools.partial(
            check_hardware_slowdown,
            ident="gpu.hw_slowdown",
            bit=HW_SLOWDOWN,
            what="Hardware slowdown",
            action="hold",
            step=(
                "Look at temperature, power supplies and the power brake signal of the node; it halves the "
                "clocks or worse."
            ),
        ),
        "No slowdown by the hardware",
        ("gpu.clocks_event_reasons",),
        HARDWARE + "HwSlowdown",
    ),
    model.gpu_row(
        "gpu.hw_thermal_slowdown",
        functools.partial(
            check_hardware_slowdown,
            ident="gpu.hw_thermal_slowdown",
            bit=HW_THERMAL,
            what="Thermal slowdown by the hardware",
            action="hold",
            step="Look at fans, airflow or coolant and at the temperature of the GPU.",
        ),
        "No thermal slowdown by the hardware",
        ("gpu.clocks_event_reasons",),
        HARDWARE + "HwThermalSlowdown",
    ),
    model.gpu_row(
        "gpu.power_brake",
        functools.partial(
            check_hardware_slowdown,
            ident="gpu.power_brake",
            bit=POWER_BRAKE,
            what="Power brake",
            action="hold",
            step=(
                "Look at the power supplies and power capping of the node (BMC): something outside the GPU "
                "asks it to brake."
            ),
        ),
        "No power brake from outside",
        ("gpu.clocks_event_reasons",),
        HARDWARE + "HwPowerBrakeSlowdown",
    ),
    model.gpu_row(
        "gpu.sw_slowdown",
        check_software_slowdown,
        "The driver does not hold the clocks back for power, heat or sync boost (a notice if it does)",
        ("gpu.clocks_event_reasons",),
        HARDWARE + "SwPowerCap, SyncBoost, SwThermalSlowdown",
    ),
    model.gpu_row(
        "gpu.applications_clocks",
        check_application_clocks,
        "The application clocks are those of the baseline; without one, not below the default (a notice)",
        ("gpu.applications_clocks_mhz", "gpu.applications_clocks_default_mhz"),
        "NVIDIA driver persistence guide: lost when the driver deinitialises",
    ),
    model.gpu_row(
        "gpu.clocks_max",
        check_max_clocks,
        "The highest clocks are not lower than in the baseline",
        ("gpu.clocks_max_mhz",),
        "nvml.h, nvmlDeviceGetMaxClockInfo",
    ),
)
