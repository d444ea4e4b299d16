# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Field ids, structure layouts and limits of NVML, by number.

Private to the collection: it may change at any time.
They follow the public NVML header. The Python binding has renamed and renumbered several of them over its versions and has laid
some structures out wrongly, so none of them is taken from it.
"""

from __future__ import annotations

import ctypes

# Ids for nvmlDeviceGetFieldValues.
FI_REMAPPED_CORRECTABLE = 142
FI_REMAPPED_UNCORRECTABLE = 143
FI_REMAPPED_PENDING = 144
FI_REMAPPED_FAILURE = 145
FI_RECOVERY_ACTION = 230

# Enumerations.
TEMPERATURE_GPU = 0
CLOCK_SM = 1
CLOCK_MEM = 2
MEMORY_ERROR_UNCORRECTED = 1
ECC_VOLATILE = 0
ECC_AGGREGATE = 1

# No GPU has more links than this; the loop also ends where the driver says that there is no such link.
NVLINK_LIMIT = 36

MEMORY_V2 = 0x2000028
FABRIC_V2 = 0x2000024
FABRIC_V3 = 0x3000028
GSP_VERSION_BYTES = 0x40
MEMORY_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF


class FieldContent(ctypes.Union):
    _fields_ = [
        ("as_double", ctypes.c_double),
        ("as_uint", ctypes.c_uint),
        ("as_ulong", ctypes.c_ulong),
        ("as_ulonglong", ctypes.c_ulonglong),
        ("as_longlong", ctypes.c_longlong),
        ("as_int", ctypes.c_int),
        ("as_ushort", ctypes.c_ushort),
    ]


class FieldValue(ctypes.Structure):
    _fields_ = [
        ("fieldId", ctypes.c_uint),
        ("scopeId", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latencyUsec", ctypes.c_longlong),
        ("valueType", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", FieldContent),
    ]


# By the valueType of a field.
FIELD_CONTENTS = ("as_double", "as_uint", "as_ulong", "as_ulonglong", "as_longlong", "as_int", "as_ushort")


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t, as versions 2 and 3 of the call fill it."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    ]


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_t, of the call without a version (drivers before R545)."""

    _fields_ = [
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    ]


class FabricInfoV2(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("healthMask", ctypes.c_uint),
    ]


class FabricInfoV3(ctypes.Structure):
    _fields_ = FabricInfoV2._fields_ + [("healthSummary", ctypes.c_ubyte)]
