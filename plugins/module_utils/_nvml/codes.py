# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML return codes by number, with what each one means to an operator.

The numbers are those of the public NVML header. Bindings of different age know different names, so the names are kept
here.
"""

from __future__ import annotations

NAMES = {
    0: "SUCCESS",
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    5: "ALREADY_INITIALIZED",
    6: "NOT_FOUND",
    7: "INSUFFICIENT_SIZE",
    8: "INSUFFICIENT_POWER",
    9: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    14: "CORRUPTED_INFOROM",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    19: "IN_USE",
    20: "MEMORY",
    21: "NO_DATA",
    22: "VGPU_ECC_NOT_SUPPORTED",
    23: "INSUFFICIENT_RESOURCES",
    24: "FREQ_NOT_SUPPORTED",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    27: "NOT_READY",
    28: "GPU_NOT_FOUND",
    29: "INVALID_STATE",
    30: "RESET_TYPE_NOT_SUPPORTED",
    999: "UNKNOWN",
}

SUCCESS = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
NOT_READY = 27
INVALID_STATE = 29

# Not an answer of NVML: the value could not be read or decoded on our side.
UNREADABLE = -1

# What failing to start NVML means, and the one next step.
INIT_ADVICE = {
    4: "no permission to use NVML; run the task with become: true",
    8: "a GPU lacks external power; check the power cables",
    9: (
        "the NVIDIA kernel module is not loaded; look at dkms status, Secure Boot and nouveau for the running kernel, "
        "then modprobe nvidia"
    ),
    10: "NVML timed out; look for NVRM lines in the kernel log",
    11: "the kernel found an interrupt issue with a GPU; look at the kernel log",
    12: "libnvidia-ml.so.1 is not installed or cannot be loaded; install the driver's userland packages",
    15: "a GPU has fallen off the bus; look for NVRM: Xid 79 in the kernel log and power-cycle the node",
    17: "the operating system refuses access to the GPUs (cgroup or device permissions); look at /dev/nvidia*",
    18: (
        "the installed NVIDIA userland and the loaded kernel module have different versions; reload the driver or "
        "reboot to finish the upgrade"
    ),
    999: "NVML does not know what went wrong; look for NVRM lines in the kernel log",
}


def name(rc) -> str:
    """The name of return code RC, or a text that shows the number."""
    if rc == UNREADABLE:
        return "UNREADABLE"
    return NAMES.get(rc, "CODE_%s" % (rc,))


def value(content) -> dict:
    """A value that was read."""
    return {"value": content, "rc": SUCCESS}


def missing(rc, detail=None) -> dict:
    """A value that was not read, and the code that says why."""
    answer = {"value": None, "rc": rc, "error": name(rc)}
    if detail:
        answer["detail"] = detail
    return answer


def init_message(rc) -> str:
    """One sentence for an operator about NVML that does not start."""
    return "NVML did not start: %s (%s); %s" % (
        name(rc),
        rc,
        INIT_ADVICE.get(rc, "look this NVML return code up for the loaded driver and look at the kernel log"),
    )
