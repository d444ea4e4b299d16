# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of a plan: their status, and the sentence of one that failed.

A row has what was found, what is wanted, what is there after, and "step": what is to be called, or None.
"""

from __future__ import annotations

from .. import codes
from .values import shown, text

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
