# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver on disk and in the kernel: GSP firmware, flavour, nouveau, DKMS, and whether a reboot brings it back."""

from __future__ import annotations

import fnmatch

from ..._kernel.modules import flavour as module_flavour
from .. import codes, model, nodefacts
from ..model import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from ..nodefacts import Checks

FIRST_GSP_BRANCH = 510
# nvmlDeviceGetArchitecture: from Blackwell on there are no proprietary modules.
FIRST_OPEN_ONLY = 10
UNKNOWN_ARCHITECTURE = 0xFFFFFFFF


def finding(ctx, ident, entity=None):
    """The audit's finding about ENTITY, or about whatever it is of; {} if there is none."""
    listed = nodefacts.of_kind(model.item(ctx.audit, "findings"), list) or []
    found = [
        item for item in listed if model.item(item, "id") == ident and entity in (None, model.item(item, "entity"))
    ]
    return found[0] if found else {}


def gsp_firmware(ctx):
    """The firmware file of the driver's version is on disk."""
    checks = Checks("driver.gsp_firmware_file", source="hardware")
    version, on_disk = nodefacts.driver(ctx), nodefacts.of_kind(model.item(ctx.audit, "versions", "gsp_firmware"), list)
    if version is None:
        return checks.unknown(
            on_disk,
            None,
            "Which driver is loaded is not known, so its GSP firmware cannot be looked for. Load the driver.",
        )
    branch = version.partition(".")[0]
    if branch.isdigit() and int(branch) < FIRST_GSP_BRANCH:
        return checks.none("Drivers before %d have no GSP firmware." % (FIRST_GSP_BRANCH,), on_disk)
    if on_disk is None:
        return checks.unknown(
            None, version, "GSP firmware on disk cannot be listed. Look at /lib/firmware/nvidia on the node."
        )
    if version in on_disk:
        return checks.good(on_disk, version)
    if finding(ctx, "gsp_firmware").get("status") == NOT_APPLICABLE:
        return checks.none("GSP firmware is switched off (NVreg_EnableGpuFirmware=0).", on_disk)
    return checks.fail(
        on_disk,
        version,
        "There is no GSP firmware of version %s in /lib/firmware/nvidia: GPUs that need it will not start. "
        "Install the firmware package of that version." % (version,),
    )


def nouveau(ctx):
    checks = Checks("driver.nouveau", source="hardware")
    loaded = model.item(ctx.audit, "nouveau_loaded")
    if loaded is True:
        return checks.fail(
            True,
            False,
            "The nouveau driver is loaded and holds the GPUs. Blacklist nouveau, rebuild the initramfs and reboot.",
            "reboot",
        )
    if loaded is False:
        return checks.good(False, False)
    return checks.unknown(None, False, "Whether nouveau is loaded cannot be read. Look at /proc/modules on the node.")


def flavour(ctx):
    """The same kind of kernel module as in the baseline, loaded and on disk, and the open one where there is no
    other.
    """
    checks = Checks("driver.flavour", source="baseline")
    kinds = ("open", "proprietary")
    now = model.item(ctx.audit, "flavour")
    old = nodefacts.before(ctx, "audit", "flavour")
    if now not in kinds:
        return checks.unknown(
            now,
            old.value,
            "Whether the kernel module is the open or the proprietary one is not known. Look at "
            "/proc/driver/nvidia/version.",
        )
    needs_open = sorted(model.named(gpu) for gpu in model.gpus(ctx.snapshot) if open_only(gpu))
    if now != "open" and needs_open:
        return checks.fail(
            now,
            "open",
            "%s works with the open kernel modules alone, and the proprietary ones are installed. "
            "Install the open ones." % (needs_open[0],),
            "hold",
            "hardware",
        )
    disk = on_disk_flavour(ctx)
    if disk == "proprietary" and needs_open:
        return checks.fail(
            disk,
            "open",
            "%s works with the open kernel modules alone, and those on disk for the kernel that boots next are "
            "proprietary. Install the open ones before a reboot." % (needs_open[0],),
            "hold",
            "hardware",
        )
    # A library without the call is older than the GPUs that this is about.
    nameless = sorted(
        model.named(gpu)
        for gpu in model.gpus(ctx.snapshot)
        if model.opened(gpu)
        and not model.number(gpu, "architecture").known
        and model.reading(gpu, "architecture").rc != codes.FUNCTION_NOT_FOUND
    )
    if now != "open" and nameless:
        return checks.unknown(
            now,
            None,
            "The architecture of %s is not known, and some work with the open kernel modules alone. "
            "Read the node again." % (nameless[0],),
        )
    if not old.given:
        return checks.good(now, None, "hardware")
    if old.value not in kinds:
        return checks.unknown(
            now, None, "The baseline does not say which kind of kernel module it had. %s" % (nodefacts.AGAIN,)
        )
    if now != old.value and not announced(ctx, "audit.flavour"):
        return checks.fail(
            now,
            old.value,
            "The kernel module is the %s one; in the baseline it was the %s one. Install that one, or announce the "
            "change (expect.changes: audit.flavour)." % (now, old.value),
        )
    if disk not in (None, old.value) and not announced(ctx, "audit.flavour"):
        return checks.fail(
            disk,
            old.value,
            "The kernel module on disk for the kernel that boots next is the %s one; in the baseline it was the %s "
            "one. Install that one, or announce the change (expect.changes: audit.flavour)." % (disk, old.value),
        )
    return checks.good(now, old.value)


def on_disk_flavour(ctx):
    """The kind of the module that the next boot loads; None if that is not known."""
    text = model.item(ctx.audit, "versions", "modules", model.item(ctx.audit, "kernel", "next_boot"), "license")
    return module_flavour(text) if isinstance(text, str) else None


def open_only(gpu):
    """Tell if the GPU's architecture works with the open kernel modules only."""
    number = model.number(gpu, "architecture")
    return number.known and FIRST_OPEN_ONLY <= number.value < UNKNOWN_ARCHITECTURE


def announced(ctx, key):
    """Tell if the caller reported a deliberate change of KEY."""
    patterns = nodefacts.of_kind(model.item(ctx.expect, "changes"), list) or []
    return any(isinstance(pattern, str) and fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def dkms(ctx):
    """DKMS has the module as installed, for the kernel that runs and for the one that boots next."""
    ident = "driver.dkms"
    kernels = [model.item(ctx.audit, "kernel", key) for key in ("running", "next_boot")]
    if not all(isinstance(kernel, str) and kernel for kernel in kernels):
        return [
            Checks(ident).unknown(
                kernels,
                None,
                "Which kernel runs, or which one boots next, is not known. Look at uname -r and at the boot loader.",
            )
        ]
    return [dkms_of(ctx, Checks(ident, kernel, "hardware"), kernel) for kernel in sorted(set(kernels))]


def dkms_of(ctx, checks, kernel):
    found = finding(ctx, "dkms_state", kernel)
    status, observed = found.get("status"), found.get("observed")
    text = "%s %s" % (found.get("message") or "", found.get("next_step") or "")
    if status == PASS:
        return checks.good(observed, "installed")
    if status == NOT_APPLICABLE:
        return checks.none(str(found.get("message") or "The kernel modules are not made by DKMS."), observed)
    if status == FAIL:
        return checks.fail(observed, "installed", text.strip())
    return checks.unknown(
        observed,
        "installed",
        text.strip() or "The state of DKMS for kernel %s is not known. Run dkms status on the node." % (kernel,),
    )


def reboot_safe(ctx):
    """The driver is there after a reboot, as far as can be told."""
    checks = Checks("driver.reboot_safe", source="hardware")
    safe, reason = model.item(ctx.audit, "reboot_safe"), str(model.item(ctx.audit, "reboot_safe_reason") or "")
    if safe is True:
        return checks.good(True, True)
    step = "Do not reboot before this is repaired (driver_audit)."
    if safe is False:
        causes = [
            finding(ctx, ident).get("status") for ident in ("next_boot_kernel", "dpkg_interrupted", "secure_boot")
        ]
        if FAIL not in causes and UNKNOWN in causes:
            return checks.unknown(
                False, True, "Whether the driver comes back after a reboot is not known: %s %s" % (reason, step)
            )
        return checks.fail(False, True, "The driver does not come back after a reboot: %s %s" % (reason, step))
    return checks.unknown(
        None, True, "Whether the driver comes back after a reboot is not known. Run driver_audit on the node."
    )


ROWS = (
    model.Row(
        "driver.gsp_firmware_file",
        "node",
        gsp_firmware,
        "The GSP firmware of the driver's version is on disk",
        ("audit.versions.gsp_firmware",),
        "NVIDIA driver README, GSP Firmware",
        (38,),
    ),
    model.Row(
        "driver.nouveau",
        "node",
        nouveau,
        "The nouveau driver is not loaded",
        ("audit.nouveau_loaded",),
        "NVIDIA driver README, Interaction with the Nouveau Driver",
        (51,),
    ),
    model.Row(
        "driver.dkms",
        "node",
        dkms,
        "DKMS has the module installed for the running and the next kernel",
        ("audit.findings",),
        "dkms(8)",
        (52,),
    ),
    model.Row(
        "driver.reboot_safe",
        "node",
        reboot_safe,
        "A reboot brings the driver back",
        ("audit.reboot_safe",),
        "this collection",
        (52,),
    ),
    model.Row(
        "driver.flavour",
        "node",
        flavour,
        "The kernel module is open or proprietary as in the baseline, and open where there is no other",
        ("audit.flavour", "audit.versions.modules", "snapshot.gpus.architecture"),
        "NVIDIA driver README, Open Linux Kernel Modules",
        (53,),
    ),
)
