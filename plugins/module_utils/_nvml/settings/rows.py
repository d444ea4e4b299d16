# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of a plan: their values, their status, and the sentence of one that failed.

A row has what was found, what is wanted, what is there after, and "step": what is to be called, or None.
"""

from __future__ import annotations

from .. import codes
from ..selection import value
from . import table as settings

SAME, CHANGED, UNPROVEN, PENDING, NOT_SUPPORTED, FAILED = (
    "same",
    "changed",
    "unproven",
    "pending",
    "not_supported",
    "failed",
)
# By NVML code: why a call was refused, and the next step.
ADVICE = {
    codes.INVALID_ARGUMENT: "this board does not take that value; look at nvidia-smi -q -d SUPPORTED_CLOCKS,POWER",
    codes.NOT_SUPPORTED: "this board or driver has no such setting; take it out of the task",
    4: "the task may not change the GPU; run it with become: true, on the host and not in a container",
    6: "NVML does not find this GPU any more; look for NVRM lines in the kernel log",
    10: "the GPU did not answer in time; look for NVRM lines in the kernel log",
    codes.FUNCTION_NOT_FOUND: "the installed driver has no such function; take the setting out of the task",
    15: "the GPU has fallen off the bus; look for NVRM: Xid 79 in the kernel log and power-cycle the node",
    16: "the GPU waits for a reset; drain the node and reset the GPU or reboot first",
    17: "the operating system refuses access to the GPU (cgroup or device permissions); look at /dev/nvidia*",
    19: "the GPU is in use; drain the node and stop what holds the GPU",
    24: "the board does not run at this frequency; look at nvidia-smi -q -d SUPPORTED_CLOCKS",
    codes.DEPRECATED: "this driver no longer has the setting; use locked clocks instead",
    29: "the GPU is in a state that does not take this change; look at its MIG mode",
    999: (
        "NVML does not know what went wrong; look for NVRM lines in the kernel log, and reboot the node if it persists"
    ),
}


def blank(uuid, row=None, wish=None):
    wish = wish or {}
    return {
        "gpu": uuid,
        "setting": row.name if row else None,
        "before": None,
        "wanted": wish.get("value"),
        "after": None,
        "status": None,
        "changed": False,
        "insists": bool(wish.get("explicit")),
        "was_default": bool(wish.get("was_default")),
        "step": None,
        "failure": None,
    }


def failed(row, reason, answer=None):
    """ROW as a failure: REASON holds the next step, ANSWER the code of NVML if it said one."""
    subject = row["gpu"]
    if row["setting"]:
        subject = "%s of %s" % (row["setting"], row["gpu"])
        if row["wanted"] is not None:
            subject += ": found %s, expected %s" % tuple(
                text(shown(row["setting"], row[key])) for key in ("before", "wanted")
            )
    code = answer["rc"] if answer else None
    message = "%s: %s%s" % (subject, reason, " [NVML %s, %s]" % (code, codes.name(code)) if answer else "")
    return dict(
        row, status=FAILED, failure={"code": code, "error": codes.name(code) if answer else None, "message": message}
    )


def advice(rc):
    return (
        ADVICE.get(rc)
        or codes.INIT_ADVICE.get(rc)
        or "look this NVML return code up for the loaded driver, and look at the kernel log"
    )


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
