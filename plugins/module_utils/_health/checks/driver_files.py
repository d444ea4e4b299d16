# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver on disk and in the kernel: GSP firmware, flavour, nouveau, DKMS, CUDA, and what a reboot leaves."""

from __future__ import annotations

import fnmatch
import re

from ..._kernel.modules import flavour as module_flavour
from .. import model, nodefacts
from ..model import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from ..nodefacts import Checks

FIRST_GSP_BRANCH = 510
# nvmlDeviceGetArchitecture: from Blackwell on there are no proprietary modules.
FIRST_OPEN_ONLY = 10
UNKNOWN_ARCHITECTURE = 0xFFFFFFFF


def find_audit_finding(ctx, ident, entity=None) -> dict:
    """The audit's finding about ENTITY, or about whatever it is of; {} if there is none."""
    listed = nodefacts.of_kind(model.item(ctx.audit, "findings"), list) or []
    found = [
        item for item in listed if model.item(item, "id") == ident and entity in (None, model.item(item, "entity"))
    ]
    return found[0] if found else {}


def gsp_firmware(ctx) -> dict:
    """The firmware file of the driver's version is on disk."""
    checks = Checks("driver.gsp_firmware_file", source="hardware")
    version, on_disk = (
        nodefacts.find_driver_version(ctx),
        nodefacts.of_kind(model.item(ctx.audit, "versions", "gsp_firmware"), list),
    )
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
    if find_audit_finding(ctx, "gsp_firmware").get("status") == NOT_APPLICABLE:
        return checks.none("GSP firmware is switched off (NVreg_EnableGpuFirmware=0).", on_disk)
    return checks.fail(
        on_disk,
        version,
        "There is no GSP firmware of version %s in /lib/firmware/nvidia: GPUs that need it will not start. "
        "Install the firmware package of that version." % (version,),
    )


def check_nouveau(ctx) -> dict:
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


def check_flavour(ctx) -> dict:
    """The same kind of kernel module as in the baseline, loaded and on disk, and the open one where there is no
    other.
    """
    checks = Checks("driver.flavour", source="baseline")
    kinds = ("open", "proprietary")
    now = model.item(ctx.audit, "flavour")
    old = nodefacts.read_baseline(ctx, "audit", "flavour")
    if now not in kinds:
        return checks.unknown(
            now,
            old.value,
            "Whether the kernel module is the open or the proprietary one is not known. Look at "
            "/proc/driver/nvidia/version.",
        )
    needs_open = sorted(model.name_gpu(gpu) for gpu in model.gpus(ctx.snapshot) if open_only(gpu))
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
        model.name_gpu(gpu)
        for gpu in model.gpus(ctx.snapshot)
        if model.is_opened(gpu)
        and not model.number(gpu, "architecture").known
        and model.reading(gpu, "architecture").rc != model.FUNCTION_NOT_FOUND
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
    if now != old.value and not is_announced(ctx, "audit.flavour"):
        return checks.fail(
            now,
            old.value,
            "The kernel module is the %s one; in the baseline it was the %s one. Install that one, or announce the "
            "change (expect.changes: audit.flavour)." % (now, old.value),
        )
    if disk not in (None, old.value) and not is_announced(ctx, "audit.flavour"):
        return checks.fail(
            disk,
            old.value,
            "The kernel module on disk for the kernel that boots next is the %s one; in the baseline it was the %s "
            "one. Install that one, or announce the change (expect.changes: audit.flavour)." % (disk, old.value),
        )
    return checks.good(now, old.value)


def on_disk_flavour(ctx) -> str | None:
    """The kind of the module that the next boot loads; None if that is not known."""
    text = model.item(ctx.audit, "versions", "modules", model.item(ctx.audit, "kernel", "next_boot"), "license")
    return module_flavour(text) if isinstance(text, str) else None


def open_only(gpu) -> bool:
    """Tell if the GPU's architecture works with the open kernel modules only."""
    number = model.number(gpu, "architecture")
    return number.known and FIRST_OPEN_ONLY <= number.value < UNKNOWN_ARCHITECTURE


def is_announced(ctx, key) -> bool:
    """Tell if the caller reported a deliberate change of KEY."""
    patterns = nodefacts.of_kind(model.item(ctx.expect, "changes"), list) or []
    return any(isinstance(pattern, str) and fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def check_dkms(ctx) -> list[dict]:
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


def dkms_of(ctx, checks, kernel) -> dict:
    found = find_audit_finding(ctx, "dkms_state", kernel)
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


def reboot_safe(ctx) -> dict:
    """The driver is there after a reboot, as far as can be told."""
    checks = Checks("driver.reboot_safe", source="hardware")
    safe, reason = model.item(ctx.audit, "reboot_safe"), str(model.item(ctx.audit, "reboot_safe_reason") or "")
    if safe is True:
        return checks.good(True, True)
    step = "Do not reboot before this is repaired (driver_audit)."
    if safe is False:
        causes = [
            find_audit_finding(ctx, ident).get("status")
            for ident in ("next_boot_kernel", "dpkg_interrupted", "secure_boot")
        ]
        if FAIL not in causes and UNKNOWN in causes:
            return checks.unknown(
                False, True, "Whether the driver comes back after a reboot is not known: %s %s" % (reason, step)
            )
        return checks.fail(False, True, "The driver does not come back after a reboot: %s %s" % (reason, step))
    return checks.unknown(
        None, True, "Whether the driver comes back after a reboot is not known. Run driver_audit on the node."
    )


VERSION = re.compile(r"^(\d+)\.(\d+)")


def check_libcuda(ctx) -> dict:
    """The driver's libcuda is installed and of the driver's version."""
    checks = Checks("driver.libcuda")
    found = nodefacts.of_kind(model.item(ctx.system, "libcuda"), dict)
    expected = nodefacts.find_driver_version(ctx)
    if found is None or not isinstance(found.get("candidates"), list):
        return checks.unknown(None, expected, "Which libcuda is installed cannot be read. Run ldconfig -p on the node.")
    version = nodefacts.strip_package_version(found.get("version"))
    if version is None and not found["candidates"]:
        return checks.fail(
            None,
            expected,
            "libcuda.so.1 is not installed: no CUDA program starts. Install the driver's CUDA library (libcuda1).",
        )
    if version is None:
        return checks.unknown(
            found["candidates"],
            expected,
            "Several versions of libcuda are on disk and no link says which one is used. "
            "Remove the one that no package owns.",
        )
    if expected is None:
        return checks.unknown(
            version,
            None,
            "Which driver is loaded is not known, so libcuda %s cannot be compared. Load the driver." % (version,),
        )
    if version != expected:
        return checks.fail(
            version,
            expected,
            "libcuda is %s and the driver is %s: CUDA programs fail to start. Install one version of both, then reload "
            "the driver or reboot." % (version, expected),
        )
    return checks.good(version, expected)


def cuda_version(value) -> tuple[int, int] | None:
    """(12, 2) out of "12.2" or 12020; None if it is neither."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value // 1000, value % 1000 // 10
    found = VERSION.match(value) if isinstance(value, str) else None
    return (int(found.group(1)), int(found.group(2))) if found else None


def check_toolkit(ctx) -> dict:
    """The driver runs what the installed toolkits build. A notice: programs may bring their own CUDA."""
    checks = Checks("node.cuda_toolkit", source="hardware")
    found = nodefacts.of_kind(model.item(ctx.system, "toolkit"), list)
    old = nodefacts.read_baseline(ctx, "system", "toolkit", kind=list)
    if found is None:
        return checks.unknown(
            None, None, "The installed CUDA toolkits cannot be listed. Look at /usr/local on the node."
        )
    if old.given and not old.known:
        return checks.unknown(
            None, None, "The baseline does not have the installed CUDA toolkits. %s" % (nodefacts.AGAIN,), "baseline"
        )
    paths = [model.item(entry, "path") for entry in found]
    lost = sorted(str(model.item(entry, "path")) for entry in old.value or [] if model.item(entry, "path") not in paths)
    if lost:
        return checks.fail(
            paths,
            [model.item(entry, "path") for entry in old.value],
            "CUDA toolkits of the baseline are gone: %s. Install them again." % (", ".join(lost),),
            "hold",
            "baseline",
        )
    if not found:
        return checks.none("No CUDA toolkit is installed.")
    driver = cuda_version(model.reading(model.item(ctx.snapshot, "system"), "cuda_driver_version").value)
    versions = [
        (str(model.item(entry, "path")), cuda_version(model.item(entry, "version")), model.item(entry, "compat"))
        for entry in found
    ]
    unread = sorted(path for path, version, compat in versions if version is None)
    shown = ["%s %s" % (path, "%d.%d" % version if version else "?") for path, version, compat in versions]
    if driver is None or unread:
        what, where = (", ".join(unread), "version.json there") if unread else ("the driver", "nvidia-smi on the node")
        return checks.unknown(shown, None, "The CUDA version of %s cannot be read. Look at %s." % (what, where))
    limit = "%d.%d" % driver
    newer = sorted(
        "%s (%d.%d)" % (path, version[0], version[1])
        for path, version, compat in versions
        if version > driver and not compat
    )
    other = sorted(entry for entry in newer if cuda_version(entry.rpartition("(")[2])[0] > driver[0])
    if other:
        return checks.notice(
            shown,
            limit,
            "The driver runs CUDA up to %s, so programs built with %s do not start. Install a newer driver or the "
            "toolkit's forward compatibility package (cuda-compat)." % (limit, ", ".join(other)),
        )
    if newer:
        return checks.notice(
            shown,
            limit,
            "The driver runs CUDA up to %s; programs built with %s run only as far as CUDA's minor version "
            "compatibility goes (no PTX)." % (limit, ", ".join(newer)),
        )
    return checks.good(shown, limit)


ROWS = (
    model.node_row(
        "driver.gsp_firmware_file",
        gsp_firmware,
        "The GSP firmware of the driver's version is on disk",
        ("audit.versions.gsp_firmware",),
        "NVIDIA driver README, GSP Firmware",
    ),
    model.node_row(
        "driver.nouveau",
        check_nouveau,
        "The nouveau driver is not loaded",
        ("audit.nouveau_loaded",),
        "NVIDIA driver README, Interaction with the Nouveau Driver",
    ),
    model.node_row(
        "driver.dkms",
        check_dkms,
        "DKMS has the module installed for the running and the next kernel",
        ("audit.findings",),
        "dkms(8)",
    ),
    model.node_row(
        "driver.reboot_safe", reboot_safe, "A reboot brings the driver back", ("audit.reboot_safe",), "this collection"
    ),
    model.node_row(
        "driver.flavour",
        check_flavour,
        "The kernel module is open or proprietary as in the baseline, and open where there is no other",
        ("audit.flavour", "audit.versions.modules", "snapshot.gpus.architecture"),
        "NVIDIA driver README, Open Linux Kernel Modules",
    ),
    model.node_row(
        "driver.libcuda",
        check_libcuda,
        "libcuda is installed and of the driver's version",
        ("system.libcuda", "audit.versions.loaded"),
        "NVIDIA CUDA Compatibility guide",
    ),
    model.node_row(
        "node.cuda_toolkit",
        check_toolkit,
        "The driver runs what the installed CUDA toolkits build (a notice)",
        ("system.toolkit", "snapshot.system.cuda_driver_version"),
        "NVIDIA CUDA Compatibility guide",
    ),
)
