# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node could be read: every section is there, and NVML answers."""

from __future__ import annotations

from .. import model
from ..baseline import SCHEMAS, SECTIONS
from ..model import NODE
from ..nodefacts import Checks

IDENT = "nvml.answers"
MISMATCH = 18


def check_answers(ctx) -> dict:
    checks = Checks(IDENT, source="hardware")
    status = model.item(ctx.snapshot, "status")
    rc = model.item(ctx.snapshot, "nvml", "rc")
    if isinstance(rc, bool):
        rc = None
    message = str(model.item(ctx.snapshot, "message") or "")
    if status == "ok" and rc == 0:
        return checks.good("ok", "ok")
    if status == "nvml_error" and isinstance(rc, int) and rc != 0:
        verdict, action, step = model.code_meaning(rc)
        error = model.item(ctx.snapshot, "nvml", "error")
        return model.check(
            IDENT, NODE, verdict, "%s (%d)" % (error, rc), "SUCCESS (0)", "hardware", action, message or step
        )
    if status in ("timeout", "stuck"):
        return checks.fail(status, "an answer", message, "reboot")
    if status == "nvml_error":
        return checks.fail("nvml_error", "an answer", message)
    return checks.unknown(status, "ok", message or "There is no reading of NVML. Read the node again.")


def library_match(ctx) -> dict:
    """The installed library and the loaded kernel module are one driver: NVML itself says so, and so do their
    versions.
    """
    ident = "nvml.library_match"
    checks = Checks(ident, source="hardware")
    rc = model.item(ctx.snapshot, "nvml", "rc")
    loaded, library = (model.item(ctx.audit, "versions", key) for key in ("loaded", "library"))
    known = all(isinstance(version, str) and version for version in (loaded, library))
    observed = "library %s, kernel module %s" % (library, loaded)
    if rc == MISMATCH or (known and loaded != library):
        return checks.fail(
            observed,
            "one version",
            "The installed driver and the loaded one differ (%s): an upgrade was not finished by a reload or a reboot, "
            "or packages changed by themselves. Running programs go on, new ones fail. Reload the driver or reboot, "
            "and hold the packages." % (observed,),
            "reboot",
        )
    if not known or isinstance(rc, bool) or rc != 0:
        return checks.unknown(
            observed,
            "one version",
            "Whether library and kernel module are of one version is not known. See nvml.answers, "
            "driver.loaded and driver.library.",
        )
    return checks.good(observed, "one version")


COMPLETE = "reading.complete"


def check_completeness(ctx) -> dict:
    checks = Checks(COMPLETE, source="hardware")
    missing = [name for name in SECTIONS if not isinstance(model.item(ctx.reading, name), dict)]
    foreign = [
        "%s (%r, expected %r)" % (name, model.item(ctx.reading, name, "schema"), SCHEMAS[name])
        for name in SECTIONS
        if name not in missing and model.item(ctx.reading, name, "schema") != SCHEMAS[name]
    ]
    if not isinstance(model.item(ctx.reading, "boot_id"), str):
        missing.append("boot_id")
    if foreign and not missing:
        return checks.unknown(
            foreign,
            [],
            "The reading is of another version of the collection; schemas: %s. Read the node again with this one."
            % (", ".join(foreign),),
        )
    if not missing:
        return checks.good([], [])
    why = ["%s (%s)" % (name, model.item(ctx.reading, "problems", name) or "no reason given") for name in missing]
    return checks.unknown(
        missing, [], "The node could not be read in full; missing: %s. Read the node again as root." % (", ".join(why),)
    )


ROWS = (
    model.node_row(
        IDENT,
        check_answers,
        "NVML initialises and answers within its deadline",
        ("snapshot.status", "snapshot.nvml"),
        "NVML API reference, nvmlReturn_t",
    ),
    model.node_row(
        "nvml.library_match",
        library_match,
        "Installed library and loaded kernel module are one driver",
        ("snapshot.nvml.rc", "audit.versions.loaded", "audit.versions.library"),
        "NVML API reference, NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    ),
    model.node_row(
        COMPLETE,
        check_completeness,
        "Every section of the reading is there",
        ("reading",) + tuple("reading." + name for name in SECTIONS),
        "this collection",
    ),
)
