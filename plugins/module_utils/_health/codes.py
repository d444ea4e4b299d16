# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The meaning of NVML's return codes for a verdict."""

from __future__ import annotations

from .model import FAIL, UNKNOWN

# code: (status, action, next step)
MEANING = {
    4: (UNKNOWN, "hold", "Read it as root (become: true)."),
    8: (FAIL, "field_diag", "Check the external power cables of the GPU."),
    9: (FAIL, "hold", "Look at dkms status, Secure Boot and nouveau for the running kernel, then load the module."),
    10: (FAIL, "reboot", "Look for NVRM lines in the kernel log and reboot."),
    11: (FAIL, "field_diag", "Look for interrupt problems of the GPU in the kernel log."),
    12: (FAIL, "hold", "Install the driver's userland packages (libnvidia-ml)."),
    14: (FAIL, "field_diag", "The InfoROM is damaged: run the field diagnostics."),
    15: (FAIL, "reboot", "Look for NVRM: Xid 79 in the kernel log, then power-cycle the node."),
    16: (FAIL, "reset_gpu", "Reset the GPU with nothing running on it."),
    17: (UNKNOWN, "hold", "Look at the permissions of /dev/nvidia* and the device cgroup."),
    18: (FAIL, "reboot", "Reload the driver or reboot: loaded module and installed userland differ."),
    28: (FAIL, "hold", "The GPU is gone: look for NVRM lines in the kernel log."),
    999: (FAIL, "reboot", "Look for NVRM lines in the kernel log."),
}

NOT_SUPPORTED = 3
INVALID_ARGUMENT = 2
FUNCTION_NOT_FOUND = 13
# Answers that say that there is no such signal, not that something is wrong with it.
ABSENT = (NOT_SUPPORTED, INVALID_ARGUMENT, FUNCTION_NOT_FOUND)


def meaning(rc):
    return MEANING.get(rc, (UNKNOWN, "hold", "Read the node again; look this NVML code up if it stays."))
