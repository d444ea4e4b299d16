# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that are wanted: those that a task names, and those of a baseline.

A wish is {"value", "explicit"}: a task that names a setting insists on it, a baseline takes what this board and driver
still have.
"""

from __future__ import annotations

from .. import codes
from ..selection import value
from . import table as settings
from .rows import COMPUTE_MODES, DEFAULT, UNLOCKED, lacks, read, sane

NEW_BASELINE = "take a new baseline with gpu_health on a healthy node, or leave this setting out of the option settings"


class WishError(ValueError):
    """The task or the baseline asks for something that cannot be understood; the text names it."""


def of_task(options):
    """{setting: wish} of the options of the module that name a setting."""
    wishes = {}
    for name in settings.NAMES:
        given = options.get(name)
        if given is not None:
            wishes[name] = {"value": PARSERS[name](given), "explicit": True}
    return wishes


def _power(given):
    if given == DEFAULT:
        return DEFAULT
    try:
        watts = float(given)
    except ValueError:
        watts = 0.0
    if not 0 < watts < 1000000:
        raise WishError("power_limit_w is %r; expected a number of watts, or default" % (given,))
    return int(round(watts * 1000))


def _application(given):
    if given.get("default"):
        return DEFAULT
    clocks = {"graphics": given.get("graphics"), "mem": given.get("memory")}
    if not all(isinstance(clock, int) and clock > 0 for clock in clocks.values()):
        raise WishError("application_clocks_mhz needs default: true, or graphics and memory in MHz")
    return clocks


def _locked(name):
    def parse(given):
        if given.get("unlocked"):
            return UNLOCKED
        low, high = given.get("min"), given.get("max")
        if not isinstance(low, int) or not isinstance(high, int) or not 1 < low <= high:
            raise WishError("%s needs unlocked: true, or min and max in MHz, min no higher than max" % (name,))
        return {"min": low, "max": high}

    return parse


PARSERS = {
    "power_limit_w": _power,
    "application_clocks_mhz": _application,
    "locked_graphics_clocks_mhz": _locked("locked_graphics_clocks_mhz"),
    "locked_memory_clocks_mhz": _locked("locked_memory_clocks_mhz"),
    "compute_mode": lambda given: COMPUTE_MODES[given],
    "persistence_mode": int,
    "ecc_mode": int,
}


def of_baseline(gpu, kept, names=settings.NAMES):
    """{setting: wish} to bring a GPU back to what it was in the baseline; GPU is its part of the baseline's snapshot,
    None if it has none.

    A wish of None: the baseline tells that the board had no such setting. A wish with a "problem" cannot be granted.
    KEPT is what the node remembers of this GPU, for what NVML does not tell.
    """
    wishes = {}
    for name in names:
        row = settings.BY_NAME[name]
        if not row.getter:
            entry = (kept or {}).get(name)
            if entry and entry["value"] != UNLOCKED:
                wishes[name] = {"value": entry["value"], "explicit": True}
        elif gpu is None:
            wishes[name] = {
                "problem": (
                    "the baseline does not have this GPU; was the board replaced? Take a new baseline with gpu_health"
                )
            }
        else:
            wishes[name] = _of_baseline(gpu, row)
    return wishes


def _of_baseline(gpu, row):
    for key in row.getter:
        if not isinstance(gpu.get(key), dict) or "rc" not in gpu[key]:
            return {"problem": "the baseline has no %s of this GPU; %s" % (key, NEW_BASELINE)}
    found = read(gpu, row.name)
    if lacks(gpu, row.name, found["rc"]):
        return {"value": None, "explicit": False}
    wanted = found.get("value")
    if row.name == "ecc_mode" and found["rc"] == codes.SUCCESS:
        # A mode that waited for a reset had been requested.
        wanted = wanted["pending"]
    if found["rc"] != codes.SUCCESS or not sane(row.name, wanted):
        return {
            "problem": "the baseline does not tell %s of this GPU (%s); %s"
            % (row.getter[-1], found.get("error") or "it says %r" % (wanted,), NEW_BASELINE)
        }
    wish = {"value": wanted, "explicit": False}
    if row.name == "application_clocks_mhz" and wanted == value(gpu, "applications_clocks_default_mhz"):
        wish["was_default"] = True
    return wish
