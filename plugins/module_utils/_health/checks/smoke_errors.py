# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of CUDA: those that say that a GPU is broken, and those that leave it open."""

from __future__ import annotations

from .. import model
from ..nodefacts import Checks

# CUDA results that say the GPU or its driver is broken, and what to do. Any other error leaves open what the matter is.
BROKEN = {
    100: ("reboot", "CUDA finds no GPU where NVML finds one"),
    101: ("reboot", "CUDA finds no GPU where NVML finds one"),
    214: ("reset_gpu", "an uncorrectable memory error; look for Xid 48, 94 and 95 in the kernel log"),
    220: ("reset_gpu", "an uncorrectable NVLink error; look for Xid 74 in the kernel log"),
    802: ("restart_service", "the fabric is not ready; look at the fabric manager"),
    803: ("reboot", "the CUDA library and the loaded kernel module do not fit together; reload the driver or reboot"),
    804: ("hold", "a forward compatibility library is in use that does not fit; remove it"),
    999: ("reboot", "an unknown error; look for NVRM lines in the kernel log"),
}
# 700 to 719: a program known to be good failed on the GPU.
LAUNCH = range(700, 720)
OUT_OF_MEMORY, UNAVAILABLE = 2, 46
OPEN = {
    OUT_OF_MEMORY: "the GPU has no free memory; find out what holds it, and repeat the test",
    34: "the library is a stand-in for building programs; install the driver's own",
    UNAVAILABLE: (
        "the GPU is in use or closed to CUDA programs; drain the node, look at its compute mode, and repeat the test"
    ),
    221: "the library that compiles for the GPU is missing; install it (Debian: libnvidia-ptxjitcompiler1)",
}


def error_of(error):
    """A CUDA error as data, or None. Anything else in its place is an error as well."""
    if error is None:
        return None
    rc = model.item(error, "rc")
    return {
        "rc": rc if isinstance(rc, int) and not isinstance(rc, bool) else None,
        "name": str(model.item(error, "name") or error),
        "call": str(model.item(error, "call") or ""),
    }


def judged(ident, gpu, what, problem):
    """The check for a CUDA error."""
    rc, who = problem["rc"], model.entity(gpu)
    checks = Checks(ident, who, source="hardware")
    shown = "%s: %s (%s) in %s" % (what, problem["name"], rc, problem["call"])
    if rc in BROKEN or rc in LAUNCH:
        action, text = BROKEN.get(rc) or (
            "reset_gpu",
            "a program known to be good failed; look for NVRM: Xid in the kernel log",
        )
        return checks.fail(shown, "no error", "The test of %s failed: %s." % (model.named(gpu), text), action)
    return checks.unknown(
        shown,
        "no error",
        "The test of %s did not succeed: %s."
        % (model.named(gpu), OPEN.get(rc, "look this CUDA result up, and look at the kernel log")),
    )
