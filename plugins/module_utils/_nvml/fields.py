# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Field ids, structure layouts and limits of NVML, by number.

They follow the public NVML header. The Python binding has renamed and renumbered several of them over its versions and
has laid some structures out wrongly, so none of them is taken from it.
"""

from __future__ import annotations

import ctypes

# Ids for nvmlDeviceGetFieldValues.
FI_RETIRED_SBE = 29
FI_RETIRED_DBE = 30
FI_MEMORY_TEMPERATURE = 82
FI_PCIE_REPLAY = 94
FI_REMAPPED_CORRECTABLE = 142
FI_REMAPPED_UNCORRECTABLE = 143
FI_REMAPPED_PENDING = 144
FI_REMAPPED_FAILURE = 145
FI_MARGIN_SHUTDOWN = 193
FI_MARGIN_SLOWDOWN = 194
FI_MARGIN_MEMORY_MAX = 195
FI_MARGIN_GPU_MAX = 196
FI_NVLINK5_RECOVERY_FAILED = 214
FI_NVLINK5_RECOVERY = 215
FI_NVLINK5_EFFECTIVE_ERRORS = 219
FI_NVLINK5_SYMBOL_ERRORS = 221
FI_RECOVERY_ACTION = 230

# Enumerations.
TEMPERATURE_GPU = 0

# No GPU has more links than this; the loop also ends where the driver says that there is no such link.
NVLINK_LIMIT = 36

# Versions of structures: the size, with the number above it. A driver that does not know one answers
# ARGUMENT_VERSION_MISMATCH.
MEMORY_V2 = 0x2000028
FABRIC_V2 = 0x2000024
FABRIC_V3 = 0x3000028
SRAM_ERRORS_V1 = 0x1000068
MARGIN_TEMPERATURE_V1 = 0x1000008
ADDRESSING_MODE_V1 = 0x1000008
REPAIR_STATUS_V1 = 0x100000C
TEXT_BYTES = 96
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


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t, as version 3 of the call fills it."""

    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    ]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class MemoryV2(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Bar1Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class SramErrors(ctypes.Structure):
    """nvmlEccSramErrorStatus_v1_t."""

    _fields_ = (
        [("version", ctypes.c_uint)]
        + [
            (name, ctypes.c_ulonglong)
            for name in (
                "aggregateUncParity",
                "aggregateUncSecDed",
                "aggregateCor",
                "volatileUncParity",
                "volatileUncSecDed",
                "volatileCor",
                "aggregateUncBucketL2",
                "aggregateUncBucketSm",
                "aggregateUncBucketPcie",
                "aggregateUncBucketMcu",
                "aggregateUncBucketOther",
            )
        ]
        + [("bThresholdExceeded", ctypes.c_uint)]
    )


class RemapHistogram(ctypes.Structure):
    """nvmlRowRemapperHistogramValues_t: banks by how many spare rows they have left."""

    _fields_ = [(name, ctypes.c_uint) for name in ("max", "high", "partial", "low", "none")]


class RepairStatus(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("bChannelRepairPending", ctypes.c_uint),
        ("bTpcRepairPending", ctypes.c_uint),
    ]


class MarginTemperature(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("marginTemperature", ctypes.c_int)]


class AddressingMode(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("value", ctypes.c_uint)]


class ViolationTime(ctypes.Structure):
    """nvmlViolationTime_t: the moment in microseconds, the time in nanoseconds."""

    _fields_ = [("referenceTime", ctypes.c_ulonglong), ("violationTime", ctypes.c_ulonglong)]


class DeviceAttributes(ctypes.Structure):
    """nvmlDeviceAttributes_t, of a MIG device."""

    _fields_ = [
        (name, ctypes.c_uint)
        for name in (
            "multiprocessorCount",
            "sharedCopyEngineCount",
            "sharedDecoderCount",
            "sharedEncoderCount",
            "sharedJpegCount",
            "sharedOfaCount",
            "gpuInstanceSliceCount",
            "computeInstanceSliceCount",
        )
    ] + [("memorySizeMB", ctypes.c_ulonglong)]
