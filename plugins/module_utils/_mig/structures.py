# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The structures of NVML's MIG calls, as nvml.h lays them out, and the numbers that go with them."""

from __future__ import annotations

import ctypes

# nvml.h: the version of a structure is its size, with the number above it.
PROFILE_V2 = 0x2000000
# Numbers of GPU instance profiles that nvmlDeviceGetGpuInstanceProfileInfo takes: 18 in driver 580, room for later
# ones. Others answer NOT_SUPPORTED or INVALID_ARGUMENT.
PROFILE_NUMBERS = 32
# What the names of some of these numbers (NVML_GPU_INSTANCE_PROFILE_*) end with: with all media engines, with graphics,
# without media engines.
ATTRIBUTES = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
}
# NVML_COMPUTE_INSTANCE_PROFILE_*: likewise.
COMPUTE_PROFILE_NUMBERS = 16
# NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, the only one.
SHARED = 0
NO_INSTANCE = 0xFFFFFFFF
NAME_BYTES = 96

# Their names in the structures, and ours.
ENGINES = (
    ("copyEngineCount", "copy"),
    ("decoderCount", "decoder"),
    ("encoderCount", "encoder"),
    ("jpegCount", "jpeg"),
    ("ofaCount", "ofa"),
)


class ProfileInfo(ctypes.Structure):
    """nvmlGpuInstanceProfileInfo_t"""

    _fields_ = [
        (name, ctypes.c_uint)
        for name in (
            "id",
            "isP2pSupported",
            "sliceCount",
            "instanceCount",
            "multiprocessorCount",
            "copyEngineCount",
            "decoderCount",
            "encoderCount",
            "jpegCount",
            "ofaCount",
        )
    ] + [("memorySizeMB", ctypes.c_ulonglong)]


class ProfileInfoV2(ctypes.Structure):
    """nvmlGpuInstanceProfileInfo_v2_t"""

    _fields_ = [("version", ctypes.c_uint)] + list(ProfileInfo._fields_) + [("name", ctypes.c_char * NAME_BYTES)]


class Placement(ctypes.Structure):
    """nvmlGpuInstancePlacement_t and nvmlComputeInstancePlacement_t"""

    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


class InstanceInfo(ctypes.Structure):
    """nvmlGpuInstanceInfo_t"""

    _fields_ = [
        ("device", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("profileId", ctypes.c_uint),
        ("placement", Placement),
    ]


class ComputeProfileInfo(ctypes.Structure):
    """nvmlComputeInstanceProfileInfo_t"""

    _fields_ = [
        (name, ctypes.c_uint)
        for name in (
            "id",
            "sliceCount",
            "instanceCount",
            "multiprocessorCount",
            "sharedCopyEngineCount",
            "sharedDecoderCount",
            "sharedEncoderCount",
            "sharedJpegCount",
            "sharedOfaCount",
        )
    ]


class ComputeInstanceInfo(ctypes.Structure):
    """nvmlComputeInstanceInfo_t"""

    _fields_ = [
        ("device", ctypes.c_void_p),
        ("gpuInstance", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("profileId", ctypes.c_uint),
        ("placement", Placement),
    ]


def version(kind, number) -> int:
    """The version that a structure KIND carries in its first field."""
    return ctypes.sizeof(kind) | number
