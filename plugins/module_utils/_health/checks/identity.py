# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GPU is: serial number, board, GSP firmware, InfoROM, VBIOS, and the sizes of its memory and BAR1 window."""

from __future__ import annotations

import functools

from .. import compare, model, policy, signals
from ..compare import NUMBER
from ..model import PASS
from ..nodefacts import strip_package_version

GSP_SINCE_BRANCH = 510
EXCHANGED = "Check whether hardware was exchanged; if so, take a new baseline."


def gsp_version(ctx, gpu) -> dict:
    """The firmware that runs on the GPU is the one of the driver."""
    ident, key = "gpu.gsp_version", "gsp_firmware_version"
    now = compare.read_typed(gpu, key, str)
    driver = strip_package_version(model.reading(model.item(ctx.snapshot, "system"), "driver_version").value)
    if not now.known:
        mode = compare.read_typed(gpu, "gsp_firmware_mode", dict)
        if now.rc == model.NOT_SUPPORTED and mode.known and model.item(mode.value, "enabled") is False:
            return compare.not_applicable(
                ident, gpu, model.format_reading(now), "The GPU works without GSP firmware; see gpu.gsp_mode."
            )
        return compare.too_old(ctx, ident, gpu, now, GSP_SINCE_BRANCH) or signals.check_absent_signal(
            ctx, ident, gpu, key, now, "reboot"
        )
    finding = None
    if driver is None:
        finding = compare.make_unknown(
            "The GSP firmware of %s is %s; expected the driver's version, which is not known. See nvml.answers."
            % (model.name_gpu(gpu), now.value)
        )
    elif strip_package_version(now.value) != driver:
        finding = compare.make_failure(
            "reboot",
            "The GSP firmware of %s is %s; expected %s, the version of the driver. "
            "Install the firmware package of the driver, then reload the driver or reboot."
            % (model.name_gpu(gpu), now.value, driver),
        )
    return compare.make_check(ident, gpu, finding, now.value, driver, "hardware")


def gsp_mode(ctx, gpu) -> dict:
    """A GPU that worked with GSP firmware works with it; one that began to is worth a look."""
    ident, key = "gpu.gsp_mode", "gsp_firmware_mode"
    now = compare.read_typed(gpu, key, dict)
    if not now.known:
        old_driver = compare.too_old(ctx, ident, gpu, now, GSP_SINCE_BRANCH)
        if old_driver:
            return old_driver

    def differs(old, new):
        before, after = model.item(old, "enabled"), model.item(new, "enabled")
        if before not in (True, False) or after not in (True, False):
            return compare.make_unknown(
                "Whether %s works with GSP firmware is not known (found %r, expected %r as in the baseline). "
                "Read the node again." % (model.name_gpu(gpu), after, before)
            )
        if before == after:
            return None
        if before:
            return compare.make_failure(
                "hold",
                "GSP firmware of %s is off; expected on as in the baseline. Look for the firmware files of the driver "
                "and at NVreg_EnableGpuFirmware in the options of the kernel module." % (model.name_gpu(gpu),),
            )
        return compare.make_notice(
            "GSP firmware of %s is on; expected off as in the baseline. "
            "Newer drivers turn it on by default: compare NVreg_EnableGpuFirmware." % (model.name_gpu(gpu),)
        )

    return compare.compare_with_baseline(ctx, gpu, ident, key, dict, differs)


def check_inforom(ctx, gpu) -> dict:
    ident, key = "gpu.inforom", "inforom_valid"
    now = compare.read_typed(gpu, key, bool)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now, "field_diag")
    if now.value is True:
        return model.check(ident, model.entity(gpu), PASS, True, True, "hardware")
    return compare.make_check(
        ident,
        gpu,
        compare.make_failure(
            "field_diag",
            "The InfoROM of %s is not valid (found false, expected true). Run the field diagnostics."
            % (model.name_gpu(gpu),),
        ),
        False,
        True,
        "hardware",
    )


make_identity_row = functools.partial(compare.make_unchanged_row, kind=str)
FLASHED = "Find out who flashed it, or compare the release notes; then take a new baseline."


MIB = 1024 * 1024
RESERVED_SINCE_BRANCH = 510


def memory_total(ctx, gpu) -> dict:
    def differs(old, new):
        tolerance = policy.find_limit(ctx, "memory_total_tolerance_percent", gpu)
        if abs(new - old) * 100.0 <= old * tolerance:
            return None
        return compare.make_failure(
            "field_diag",
            "Total memory in bytes of %s is %s; expected %s as in the baseline, give or take %s %%. "
            "Look for memory repair (NVRM: Xid 168) in the kernel log and at the ECC mode."
            % (model.name_gpu(gpu), new, old, tolerance),
        )

    return compare.compare_with_baseline(
        ctx, gpu, "gpu.memory_total", "memory_total_bytes", NUMBER, differs, "field_diag"
    )


def memory_reserved(ctx, gpu) -> dict:
    ident, key = "gpu.memory_reserved", "memory_reserved_bytes"

    def differs(old, new):
        tolerance = policy.find_limit(ctx, "memory_reserved_rise_mib", gpu)
        if new - old <= tolerance * MIB:
            return None
        return compare.make_notice(
            "The driver reserves %s bytes of the memory of %s; expected %s as in the baseline, and up to %s MiB more. "
            "Compare the release notes of the driver." % (new, model.name_gpu(gpu), old, tolerance)
        )

    now = compare.read_typed(gpu, key, NUMBER)
    return compare.too_old(ctx, ident, gpu, now, RESERVED_SINCE_BRANCH) or compare.compare_with_baseline(
        ctx, gpu, ident, key, NUMBER, differs
    )


ROWS = (
    make_identity_row(
        "gpu.serial",
        "serial",
        "Serial number",
        EXCHANGED,
        "hold",
        "The serial number is that of the baseline",
        "nvml.h, nvmlDeviceGetSerial",
    ),
    make_identity_row(
        "gpu.board_part_number",
        "board_part_number",
        "Board part number",
        EXCHANGED,
        "hold",
        "The board part number is that of the baseline",
        "nvml.h, nvmlDeviceGetBoardPartNumber",
    ),
    make_identity_row(
        "gpu.pci_device",
        "pci_device_id",
        "PCI device id",
        EXCHANGED,
        "hold",
        "The PCI device id is that of the baseline",
        "nvml.h, nvmlDeviceGetPciInfo_v3",
    ),
    make_identity_row(
        "gpu.pci_subsystem",
        "pci_subsystem_id",
        "PCI subsystem id",
        EXCHANGED,
        "hold",
        "The PCI subsystem id is that of the baseline",
        "nvml.h, nvmlDeviceGetPciInfo_v3",
    ),
    model.gpu_row(
        "gpu.gsp_version",
        gsp_version,
        "The GSP firmware has the version of the driver",
        ("gpu.gsp_firmware_version", "gpu.gsp_firmware_mode", "snapshot.system.driver_version"),
        "nvml.h, nvmlDeviceGetGspFirmwareVersion",
    ),
    model.gpu_row(
        "gpu.gsp_mode",
        gsp_mode,
        "A GPU that worked with GSP firmware still does (a notice if it began to)",
        ("gpu.gsp_firmware_mode", "snapshot.system.driver_version"),
        "nvml.h, nvmlDeviceGetGspFirmwareMode",
    ),
    model.gpu_row(
        "gpu.inforom",
        check_inforom,
        "The InfoROM is valid",
        ("gpu.inforom_valid",),
        "nvml.h, nvmlDeviceValidateInforom",
    ),
    compare.make_unchanged_row(
        "gpu.inforom_checksum",
        "inforom_config_checksum",
        "Checksum of the InfoROM's configuration",
        FLASHED,
        None,
        "The checksum of the InfoROM's configuration is that of the baseline (a notice if not)",
        "nvml.h, nvmlDeviceGetInforomConfigurationChecksum",
    ),
    make_identity_row(
        "gpu.inforom_version",
        "inforom_image_version",
        "InfoROM version",
        FLASHED,
        None,
        "The InfoROM's version is that of the baseline (a notice if not)",
        "nvml.h, nvmlDeviceGetInforomImageVersion",
    ),
    make_identity_row(
        "gpu.vbios",
        "vbios_version",
        "VBIOS version",
        FLASHED,
        None,
        "The VBIOS version is that of the baseline (a notice if not)",
        "nvml.h, nvmlDeviceGetVbiosVersion",
    ),
    model.gpu_row(
        "gpu.memory_total",
        memory_total,
        "The GPU has as much memory as in the baseline",
        ("gpu.memory_total_bytes",),
        "nvml.h, nvmlDeviceGetMemoryInfo; XID 168 of the NVIDIA XID catalogue",
    ),
    model.gpu_row(
        "gpu.memory_reserved",
        memory_reserved,
        "The driver reserves about as much memory as in the baseline (a notice if more)",
        ("gpu.memory_reserved_bytes", "snapshot.system.driver_version"),
        "nvml.h, nvmlMemory_v2_t",
    ),
    compare.make_unchanged_row(
        "gpu.bar1_total",
        "bar1_total_bytes",
        "BAR1 size in bytes",
        "Look at the firmware settings of the node (resizable BAR, above 4G decoding).",
        "hold",
        "The BAR1 window is as large as in the baseline",
        "nvml.h, nvmlBAR1Memory_t",
    ),
)
