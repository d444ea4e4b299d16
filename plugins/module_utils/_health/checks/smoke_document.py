# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of gpu_smoke (gpufleet.smoke/1): its entry for a GPU, and what errors of CUDA in it mean."""

from __future__ import annotations

from .. import model, policy
from ..nodefacts import Checks

SCHEMA = "gpufleet.smoke/1"
LEVELS = ("t0", "t1", "t2", "t3")


class Judge:
    """One context with what every judge of this family asks of it."""

    def __init__(self, ctx) -> None:
        self.ctx, self.document = ctx, ctx.smoke

    def limit(self, key, gpu=None) -> float:
        return policy.find_limit(self.ctx, key, gpu)

    @property
    def is_required(self) -> bool:
        return bool(self.limit("smoke_required"))

    def nothing(self, ident, entity, message) -> dict:
        """Return the checks for what cannot be tested here: not applicable, unless the policy requires the test."""
        checks = Checks(ident, entity)
        if self.is_required:
            return checks.unknown(
                None,
                "a test at work",
                message
                + (
                    " The policy requires the test (smoke_required): run gpu_smoke, and repair what keeps "
                    "it from testing."
                ),
            )
        return checks.none(message)

    def unusable(self, ident, entity) -> dict | None:
        """The check for a document without any tests, or None."""
        checks = Checks(ident, entity)
        if self.document is None:
            return self.nothing(ident, entity, "The GPUs were not tested at work (gpu_smoke).")
        status = model.item(self.document, "status")
        if (
            model.item(self.document, "schema") != SCHEMA
            or model.item(self.document, "level") not in LEVELS
            or not isinstance(self.document.get("gpus"), list)
        ):
            return checks.unknown(
                model.item(self.document, "schema"), SCHEMA, "This is no result of gpu_smoke. Run it again."
            )
        if status == "no_library":
            return self.nothing(ident, entity, "%s." % (self.document.get("message"),))
        if status != "ok":
            return checks.unknown(
                status, "ok", "The GPUs were not tested at work: %s" % (self.document.get("message"),)
            )
        return None

    def entry(self, ident, gpu) -> tuple[dict | None, dict | None]:
        """(what was found out about a GPU, None), or (None, the check that says why there is nothing)."""
        who = model.entity(gpu)
        checks = Checks(ident, who)
        check = self.unusable(ident, who)
        if check:
            return None, check
        mine = [
            entry
            for entry in self.document["gpus"]
            if isinstance(entry, dict) and entry.get("uuid") and entry["uuid"] == model.uuid(gpu)
        ]
        if len(mine) != 1:
            if not mine and self.document.get("asked"):
                return None, checks.none("The test was asked of other GPUs only.")
            return None, checks.unknown(
                None, "one result", "The test says nothing about %s. Run it again." % (model.name_gpu(gpu),)
            )
        entry = mine[0]
        if entry.get("state") == "not_applicable":
            return None, self.nothing(ident, who, "%s was not tested: %s." % (model.name_gpu(gpu), entry.get("reason")))
        if entry.get("state") != "tested":
            return None, checks.unknown(
                entry.get("state"), "tested", "%s was not tested: %s" % (model.name_gpu(gpu), entry.get("reason"))
            )
        return entry, None


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


def error_of(error) -> dict | None:
    """A CUDA error as data, or None. Anything else in its place is an error as well."""
    if error is None:
        return None
    rc = model.item(error, "rc")
    return {
        "rc": rc if isinstance(rc, int) and not isinstance(rc, bool) else None,
        "name": str(model.item(error, "name") or error),
        "call": str(model.item(error, "call") or ""),
    }


def judge_cuda_error(ident, gpu, what, problem) -> dict:
    """The check for a CUDA error."""
    rc, who = problem["rc"], model.entity(gpu)
    checks = Checks(ident, who, source="hardware")
    shown = "%s: %s (%s) in %s" % (what, problem["name"], rc, problem["call"])
    if rc in BROKEN or rc in LAUNCH:
        action, text = BROKEN.get(rc) or (
            "reset_gpu",
            "a program known to be good failed; look for NVRM: Xid in the kernel log",
        )
        return checks.fail(shown, "no error", "The test of %s failed: %s." % (model.name_gpu(gpu), text), action)
    return checks.unknown(
        shown,
        "no error",
        "The test of %s did not succeed: %s."
        % (model.name_gpu(gpu), OPEN.get(rc, "look this CUDA result up, and look at the kernel log")),
    )
