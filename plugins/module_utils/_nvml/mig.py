# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG mode of a GPU and the instances it is cut into."""

from __future__ import annotations

import ctypes

from . import codes, fields
from .calls import convert

MIG_KEYS = ("mig_mode_current", "mig_mode_pending", "mig_max_devices", "mig_instances")
LIMIT = 64


def read_mig(reader, handle, gpu):
    gpu["mig_mode_current"], gpu["mig_mode_pending"] = reader.pair("nvmlDeviceGetMigMode", handle)
    gpu["mig_max_devices"] = reader.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    gpu["mig_instances"] = _instances(reader, handle, gpu["mig_mode_current"], gpu["mig_max_devices"])


def _instances(reader, handle, mode, limit):
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
        parts["slices"] = convert(attributes, lambda content: int(content.gpuInstanceSliceCount))
        parts["compute_slices"] = convert(attributes, lambda content: int(content.computeInstanceSliceCount))
        parts["memory_bytes"] = convert(attributes, lambda content: int(content.memorySizeMB) << 20)
        for name, part in parts.items():
            if part["rc"] != codes.SUCCESS:
                return codes.missing(part["rc"], "in %s of MIG device %d" % (name, index))
        found.append(dict((name, part["value"]) for name, part in parts.items()))
    return codes.value(sorted(found, key=lambda instance: (instance["gpu_instance"], instance["compute_instance"])))
