# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of settings: as a snapshot has them, and as the options and sentences show them."""

from __future__ import annotations

from .. import codes
from ..selection import value
from . import table as settings

COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive_process": 3}
UNLOCKED = "unlocked"
DEFAULT = "default"


def read(gpu, name):
    """The value of a setting in a snapshot; the ECC mode as {"current", "pending"}."""
    parts = [gpu.get(key) or codes.missing(codes.UNREADABLE) for key in settings.BY_NAME[name].getter]
    for part in parts:
        if part["rc"] != codes.SUCCESS:
            return part
    if name == "ecc_mode":
        return codes.value({"current": parts[0]["value"], "pending": parts[1]["value"]})
    if name == "application_clocks_mhz" and isinstance(parts[0]["value"], dict) and None in parts[0]["value"].values():
        return codes.missing(codes.NOT_SUPPORTED)
    return parts[0]


def lacks(gpu, name, rc):
    """Tell if RC means that the GPU has no such setting, and not that it could not be read.

    A GPU in MIG mode has no compute mode of its own: NVML then refuses its handle as an invalid argument.
    """
    return rc in settings.UNSUPPORTED or (
        name == "compute_mode" and rc == codes.INVALID_ARGUMENT and value(gpu, "mig_mode_current") == 1
    )


def reached(name, found, wanted):
    """Tell if nothing is left to set; a setting that waits for a reset counts as set."""
    return (found["pending"] if name == "ecc_mode" else found) == wanted


def in_force(name, found, wanted):
    return (found["current"] if name == "ecc_mode" else found) == wanted


def sane(name, wanted):
    if name == "application_clocks_mhz":
        return isinstance(wanted, dict) and all(_whole(wanted.get(key)) for key in ("graphics", "mem"))
    return _whole(wanted)


def _whole(number):
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def shown(name, content):
    """A value in the form of the options."""
    if content is None or content in (DEFAULT, UNLOCKED):
        return content
    if name == "power_limit_w":
        return content / 1000.0
    if name == "compute_mode":
        return dict((number, word) for word, number in COMPUTE_MODES.items()).get(content, str(content))
    if name == "application_clocks_mhz":
        return {"graphics": content["graphics"], "memory": content["mem"]}
    if name == "ecc_mode" and isinstance(content, dict):
        return dict((key, bool(mode)) for key, mode in content.items())
    return bool(content) if name in ("ecc_mode", "persistence_mode") else content


def text(content):
    """A shown value for a sentence."""
    if content is None:
        return "no known value"
    if isinstance(content, dict):
        return ", ".join("%s %s" % (key, text(content[key])) for key in sorted(content))
    if isinstance(content, bool):
        return "on" if content else "off"
    return ("%.3f" % (content,)).rstrip("0").rstrip(".") if isinstance(content, float) else str(content)
