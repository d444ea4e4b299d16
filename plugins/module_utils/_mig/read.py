# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the MIG profiles, instances and processes of a GPU from NVML, as one value "mig_layout" of a snapshot.

NVML shows compute instances and placements to root only. Profiles are always read from the GPU, never assumed.
"""

from __future__ import annotations

import ctypes

from .._nvml import codes, fields, running
from . import structures

KEY = "mig_layout"
POSSIBLE_PLACEMENTS = "nvmlDeviceGetGpuInstancePossiblePlacements"
# With these numbers NVML says that a profile is not one of this GPU.
NOT_ONE = (codes.NOT_SUPPORTED, codes.INVALID_ARGUMENT, codes.NOT_FOUND)


class _Refused(Exception):
    """A call without whose answer the layout is not known."""

    def __init__(self, answer, where) -> None:
        super().__init__(where)
        self.answer, self.where = answer, where


def read_layout(reader, handle, gpu) -> None:
    """Add the layout to GPU, whose values min, memory and mig were read: {"profiles", "instances", "processes"}."""
    mode = gpu["mig_mode_current"]
    if mode["rc"] != codes.SUCCESS:
        gpu[KEY] = dict(mode)
        return
    try:
        profiles = read_profiles(reader, handle, gpu, bool(mode["value"]))
        gpu[KEY] = codes.value(
            {
                "profiles": profiles,
                "instances": _instances(reader, handle, profiles) if mode["value"] else [],
                "processes": _processes(reader, handle),
            }
        )
    except _Refused as exc:
        gpu[KEY] = codes.missing(exc.answer["rc"], "in %s" % (exc.where,))


def _must(answer, where) -> dict:
    if answer["rc"] != codes.SUCCESS:
        raise _Refused(answer, where)
    return answer["value"]


def read_profiles(reader, handle, gpu, enabled) -> list[dict]:
    """The profiles of the GPU, each with where its instances may start; None where the driver does not tell, which it
    has to do only while MIG is on (driver 580 does so in any case).
    """
    found = []
    for number in range(structures.PROFILE_NUMBERS):
        answer = _profile(reader, handle, number)
        if answer["rc"] in NOT_ONE:
            continue
        profile = _must(answer, "nvmlDeviceGetGpuInstanceProfileInfo(%d)" % (number,))
        profile["name"] = profile["name"] or _name(number, profile, gpu)
        places = _placements(reader, handle, profile["id"])
        profile["placements"] = _must(places, POSSIBLE_PLACEMENTS) if enabled else places["value"] or None
        found.append(profile)
    return sorted(found, key=lambda profile: (-profile["slices"], profile["count"], profile["id"]))


def _profile(reader, handle, number) -> dict:
    """One profile, with its name where the driver tells it (from 520 on).

    nvml.h has a third version of the structure. Driver 580 answers it without a name, so it is not asked for.
    """

    def read_named() -> dict:
        content = structures.ProfileInfoV2()
        content.version = structures.version(structures.ProfileInfoV2, structures.PROFILE_V2)
        reader.raw("nvmlDeviceGetGpuInstanceProfileInfoV", handle, ctypes.c_uint(number), ctypes.byref(content))
        return _describe_profile(content, content.name.decode("ascii"))

    def nameless() -> dict:
        content = structures.ProfileInfo()
        reader.raw("nvmlDeviceGetGpuInstanceProfileInfo", handle, ctypes.c_uint(number), ctypes.byref(content))
        return _describe_profile(content, "")

    return reader.first(
        lambda: reader.guard("nvmlDeviceGetGpuInstanceProfileInfoV(%d)" % (number,), read_named),
        lambda: reader.guard("nvmlDeviceGetGpuInstanceProfileInfo(%d)" % (number,), nameless),
    )


def _describe_profile(content, name) -> dict:
    return {
        "id": int(content.id),
        # The driver writes "MIG 1g.10gb".
        "name": name.split()[-1] if name.split() else "",
        "slices": int(content.sliceCount),
        "count": int(content.instanceCount),
        "memory_mib": int(content.memorySizeMB),
        "multiprocessors": int(content.multiprocessorCount),
        "engines": dict((ours, int(getattr(content, theirs))) for theirs, ours in structures.ENGINES),
    }


def _name(number, profile, gpu) -> str:
    """The name that a driver without names gives the devices: the share of the memory in eighths, in GB, as nvidia-smi
    rounds it, and what sets the profile NUMBER of nvml.h apart from another of the same size.
    """
    total = gpu["memory_total_bytes"]["value"] if gpu.get("memory_total_bytes", {}).get("rc") == codes.SUCCESS else 0
    whole_gb = -(-total // (1 << 30))
    eighths = -(-(profile["memory_mib"] << 20) * 8 // total) if total else 0
    return "%dg.%dgb%s" % (
        profile["slices"],
        round(whole_gb * min(eighths, 8) / 8.0),
        structures.ATTRIBUTES.get(number, ""),
    )


def _placements(reader, handle, profile) -> dict:
    def read_value(symbol) -> list[list]:
        count = ctypes.c_uint(0)
        reader.raw(symbol, handle, ctypes.c_uint(profile), None, ctypes.byref(count))
        table = (structures.Placement * max(count.value, 1))()
        reader.raw(symbol, handle, ctypes.c_uint(profile), table, ctypes.byref(count))
        return sorted([int(place.start), int(place.size)] for place in table[: count.value])

    symbols = (POSSIBLE_PLACEMENTS + "_v2", POSSIBLE_PLACEMENTS)
    return reader.first(*[lambda symbol=symbol: reader.guard(symbol, lambda: read_value(symbol)) for symbol in symbols])


def _instances(reader, handle, profiles) -> list:
    """The GPU instances, each with its compute instances, also those that no MIG device shows because they have
    none.
    """
    found = []
    for profile in profiles:
        for instance in _handles(reader, "nvmlDeviceGetGpuInstances", handle, profile["id"], profile["count"]):
            info = _must(
                reader.struct("nvmlGpuInstanceGetInfo", instance, structures.InstanceInfo), "nvmlGpuInstanceGetInfo"
            )
            found.append(
                {
                    "id": int(info.id),
                    "profile": int(info.profileId),
                    "start": int(info.placement.start),
                    "size": int(info.placement.size),
                    "compute": _compute(reader, instance, profile["slices"]),
                }
            )
    return sorted(found, key=lambda instance: instance["id"])


def _compute(reader, instance, slices) -> list:
    found = []
    for dummy, info in compute_profiles(reader, instance):
        for compute in _handles(reader, "nvmlGpuInstanceGetComputeInstances", instance, info["id"], slices):
            about = _must(
                reader.struct("nvmlComputeInstanceGetInfo_v2", compute, structures.ComputeInstanceInfo),
                "nvmlComputeInstanceGetInfo_v2",
            )
            found.append({"id": int(about.id), "slices": info["slices"], "start": int(about.placement.start)})
    unique = dict((item["id"], item) for item in found)
    return [unique[ident] for ident in sorted(unique)]


def compute_profiles(reader, instance):
    """(number, {"id", "slices"}) of each compute instance profile of a GPU instance."""
    found = []
    for number in range(structures.COMPUTE_PROFILE_NUMBERS):

        def read_value(number=number) -> dict:
            content = structures.ComputeProfileInfo()
            reader.raw(
                "nvmlGpuInstanceGetComputeInstanceProfileInfo",
                instance,
                ctypes.c_uint(number),
                ctypes.c_uint(structures.SHARED),
                ctypes.byref(content),
            )
            return {"id": int(content.id), "slices": int(content.sliceCount)}

        where = "nvmlGpuInstanceGetComputeInstanceProfileInfo(%d)" % (number,)
        answer = reader.guard(where, read_value)
        if answer["rc"] not in NOT_ONE:
            found.append((number, _must(answer, where)))
    return found


def _handles(reader, symbol, parent, profile, room):
    def read_value() -> list:
        count = ctypes.c_uint(room)
        table = (ctypes.c_void_p * max(room, 1))()
        reader.raw(symbol, parent, ctypes.c_uint(profile), table, ctypes.byref(count))
        return [ctypes.c_void_p(item) for item in table[: count.value]]

    return _must(reader.guard("%s(%d)" % (symbol, profile), read_value), symbol)


def _processes(reader, handle) -> list:
    """The processes on the GPU, each with the instances that it runs in; None where it is the GPU itself."""
    found = {}
    compute, graphics = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"
    for name in (compute, graphics):
        answer = running.processes(reader, handle, name, _place)
        if name == graphics and answer["rc"] == codes.NOT_SUPPORTED:
            continue  # as of a GPU in MIG mode that has no graphics
        for row in _must(answer, name):
            found[(row["pid"], row["gpu_instance"], row["compute_instance"])] = row
    return [found[key] for key in sorted(found, key=repr)]


def _place(row) -> dict:
    return {
        "pid": int(row.pid),
        "gpu_instance": _ident(row.gpuInstanceId),
        "compute_instance": _ident(row.computeInstanceId),
    }


def _ident(number) -> int | None:
    return None if number in (structures.NO_INSTANCE, fields.MEMORY_NOT_AVAILABLE) else int(number)
