# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the identity of a GPU, its modes and its MIG instances."""

from __future__ import annotations

import ctypes

from . import codes, fields
from .calls import convert_answer

MIN_KEYS = ("uuid", "name", "pci_bus_id", "pci_device_id", "pci_subsystem_id")
IDENTITY_KEYS = (
    "serial",
    "minor_number",
    "board_part_number",
    "vbios_version",
    "architecture",
    "virtualization_mode",
    "addressing_mode",
    "gsp_firmware_version",
    "gsp_firmware_mode",
)
# Apart from the identity: each of the last two calls took 67 ms on an H100 and an H200 with driver 580, longer than all
# other calls together.
INFOROM_KEYS = ("inforom_image_version", "inforom_config_checksum", "inforom_valid")
MODES_KEYS = ("persistence_mode", "compute_mode")


def read_min(reader, handle, gpu) -> None:
    gpu["uuid"] = reader.call("nvmlDeviceGetUUID", handle)
    gpu["name"] = reader.call("nvmlDeviceGetName", handle)
    pci = reader.struct("nvmlDeviceGetPciInfo_v3", handle, fields.PciInfo)
    # Written from the numbers, never from the text.
    gpu["pci_bus_id"] = convert_answer(pci, bus_id)
    gpu["pci_device_id"] = convert_answer(pci, lambda info: _format_ids(info.pciDeviceId))
    gpu["pci_subsystem_id"] = convert_answer(pci, lambda info: _format_ids(info.pciSubSystemId))


def read_identity(reader, handle, gpu) -> None:
    gpu["serial"] = reader.call("nvmlDeviceGetSerial", handle)
    gpu["minor_number"] = reader.number("nvmlDeviceGetMinorNumber", handle)
    gpu["board_part_number"] = reader.call("nvmlDeviceGetBoardPartNumber", handle)
    gpu["vbios_version"] = reader.call("nvmlDeviceGetVbiosVersion", handle)
    gpu["architecture"] = reader.number("nvmlDeviceGetArchitecture", handle)
    gpu["virtualization_mode"] = reader.number("nvmlDeviceGetVirtualizationMode", handle)
    gpu["addressing_mode"] = convert_answer(
        reader.struct("nvmlDeviceGetAddressingMode", handle, fields.AddressingMode, fields.ADDRESSING_MODE_V1),
        lambda mode: int(mode.value),
    )
    gpu["gsp_firmware_version"] = _gsp_version(reader, handle)
    enabled, default = reader.pair("nvmlDeviceGetGspFirmwareMode", handle)
    gpu["gsp_firmware_mode"] = convert_answer(
        enabled, lambda value: {"enabled": bool(value), "default": bool(default["value"])}
    )


def read_inforom(reader, handle, gpu) -> None:
    gpu["inforom_image_version"] = reader.call("nvmlDeviceGetInforomImageVersion", handle)
    gpu["inforom_config_checksum"] = reader.number("nvmlDeviceGetInforomConfigurationChecksum", handle)
    gpu["inforom_valid"] = convert_answer(
        reader.guard("nvmlDeviceValidateInforom", lambda: reader.raw("nvmlDeviceValidateInforom", handle)),
        lambda nothing: True,
    )


def read_modes(reader, handle, gpu) -> None:
    gpu["persistence_mode"] = reader.number("nvmlDeviceGetPersistenceMode", handle)
    gpu["compute_mode"] = reader.number("nvmlDeviceGetComputeMode", handle)


def bus_id(info) -> str:
    return "%08x:%02x:%02x.0" % (info.domain, info.bus, info.device)


def _format_ids(number) -> str:
    return "%04x:%04x" % (number & 0xFFFF, number >> 16)


def _gsp_version(reader, handle) -> dict:
    """The one text of NVML whose call is told no size."""

    def read_value() -> str:
        text = ctypes.create_string_buffer(fields.GSP_VERSION_BYTES)
        reader.raw("nvmlDeviceGetGspFirmwareVersion", handle, text)
        return text.value.decode("ascii")

    return reader.guard("nvmlDeviceGetGspFirmwareVersion", read_value)


MIG_KEYS = ("mig_mode_current", "mig_mode_pending", "mig_max_devices", "mig_instances")
LIMIT = 64


def read_mig(reader, handle, gpu) -> None:
    gpu["mig_mode_current"], gpu["mig_mode_pending"] = reader.pair("nvmlDeviceGetMigMode", handle)
    gpu["mig_max_devices"] = reader.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    gpu["mig_instances"] = _read_instances(reader, handle, gpu["mig_mode_current"], gpu["mig_max_devices"])


def _read_instances(reader, handle, mode, limit) -> dict:
    if mode["rc"] != codes.SUCCESS:
        return dict(mode)
    if not mode["value"]:
        return codes.value([])
    if limit["rc"] != codes.SUCCESS:
        return dict(limit)
    found = []
    for index in range(min(limit["value"], LIMIT)):
        device = ctypes.c_void_p()
        answer = reader.guard(
            "nvmlDeviceGetMigDeviceHandleByIndex",
            lambda device=device, index=index: reader.raw(
                "nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(index), ctypes.byref(device)
            ),
        )
        if answer["rc"] == codes.NOT_FOUND:
            # The numbers need not be without gaps.
            continue
        if answer["rc"] != codes.SUCCESS:
            return answer
        parts = {
            "gpu_instance": reader.number("nvmlDeviceGetGpuInstanceId", device),
            "compute_instance": reader.number("nvmlDeviceGetComputeInstanceId", device),
            "uuid": reader.text("nvmlDeviceGetUUID", device),
            "name": reader.text("nvmlDeviceGetName", device),
        }
        attributes = reader.struct("nvmlDeviceGetAttributes_v2", device, fields.DeviceAttributes)
        parts["slices"] = convert_answer(attributes, lambda content: int(content.gpuInstanceSliceCount))
        parts["compute_slices"] = convert_answer(attributes, lambda content: int(content.computeInstanceSliceCount))
        parts["memory_bytes"] = convert_answer(attributes, lambda content: int(content.memorySizeMB) << 20)
        for name, part in parts.items():
            if part["rc"] != codes.SUCCESS:
                return codes.missing(part["rc"], "in %s of MIG device %d" % (name, index))
        found.append(dict((name, part["value"]) for name, part in parts.items()))
    return codes.value(sorted(found, key=lambda instance: (instance["gpu_instance"], instance["compute_instance"])))
