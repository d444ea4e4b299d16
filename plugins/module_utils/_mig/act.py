# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a plan, done with NVML in one session. What NVML answers is told; nothing is decided here."""

from __future__ import annotations

import ctypes

from .._nvml import calls, codes
from . import plan, read, structures


def act(nvml, steps, progress=None):
    """Do the STEPS of one or more GPUs with the binding NVML, in their order: an answer {"rc", "error", "where",
    "writes"} for each.

    "writes" is the number of calls that change something, also of those that failed.

    After a step of a GPU that failed, its other steps are not tried. A mode that could not be set at once answers
    "activation", NVML's reason.
    """
    reader = calls.Reader(nvml, progress)
    started = reader.call("nvmlInit")
    if started["rc"] != codes.SUCCESS:
        return [_answer(started, "nvmlInit", 0) for dummy in steps]
    failed = {}
    answers = []
    try:
        for step in steps:
            uuid = step["gpu"]
            if uuid in failed:
                answers.append(dict(failed[uuid], writes=0))
                continue
            handle = reader.call("nvmlDeviceGetHandleByUUID", uuid)
            done = _answer(handle, "nvmlDeviceGetHandleByUUID", 0)
            if handle["rc"] == codes.SUCCESS:
                done = DOERS[step["do"]](reader, handle["value"], step)
            answers.append(done)
            if done["rc"] != codes.SUCCESS:
                failed[uuid] = done
    finally:
        reader.call("nvmlShutdown")
    return answers


def _answer(found, where, writes=1, **more) -> dict:
    return dict(
        {
            "rc": found["rc"],
            "error": codes.name(found["rc"]),
            "detail": found.get("detail"),
            "where": where,
            "writes": writes,
        },
        **more,
    )


def _set_mode(reader, handle, step):
    activation = ctypes.c_int(0)
    done = reader.guard(
        "nvmlDeviceSetMigMode",
        lambda: reader.raw("nvmlDeviceSetMigMode", handle, ctypes.c_uint(step["mode"]), ctypes.byref(activation)),
    )
    return _answer(done, "nvmlDeviceSetMigMode", activation=int(activation.value))


def _instance(reader, handle, ident):
    """(handle or None, answer)"""
    found = ctypes.c_void_p()
    done = reader.guard(
        "nvmlDeviceGetGpuInstanceById",
        lambda: reader.raw("nvmlDeviceGetGpuInstanceById", handle, ctypes.c_uint(ident), ctypes.byref(found)),
    )
    return found if done["rc"] == codes.SUCCESS else None, _answer(done, "nvmlDeviceGetGpuInstanceById", 0)


def _destroy(reader, handle, step):
    instance, done = _instance(reader, handle, step["instance"])
    if instance is None:
        return done
    return _answer(
        reader.guard("nvmlGpuInstanceDestroy", lambda: reader.raw("nvmlGpuInstanceDestroy", instance)),
        "nvmlGpuInstanceDestroy",
    )


def _destroy_compute(reader, handle, step):
    instance, done = _instance(reader, handle, step["instance"])
    if instance is None:
        return done
    compute = ctypes.c_void_p()
    found = reader.guard(
        "nvmlGpuInstanceGetComputeInstanceById",
        lambda: reader.raw(
            "nvmlGpuInstanceGetComputeInstanceById", instance, ctypes.c_uint(step["compute"]), ctypes.byref(compute)
        ),
    )
    if found["rc"] != codes.SUCCESS:
        return _answer(found, "nvmlGpuInstanceGetComputeInstanceById", 0)
    return _answer(
        reader.guard("nvmlComputeInstanceDestroy", lambda: reader.raw("nvmlComputeInstanceDestroy", compute)),
        "nvmlComputeInstanceDestroy",
    )


def _create(reader, handle, step):
    """A GPU instance at its place, and its compute instances."""
    instance = ctypes.c_void_p()
    place = structures.Placement(step["start"], step["size"])
    name = "nvmlDeviceCreateGpuInstanceWithPlacement"
    done = reader.guard(
        name,
        lambda: reader.raw(name, handle, ctypes.c_uint(step["profile"]), ctypes.byref(place), ctypes.byref(instance)),
    )
    if done["rc"] == codes.FUNCTION_NOT_FOUND:
        # Older drivers choose the place themselves; what came of it is read back.
        name = "nvmlDeviceCreateGpuInstance"
        done = reader.guard(
            name, lambda: reader.raw(name, handle, ctypes.c_uint(step["profile"]), ctypes.byref(instance))
        )
    if done["rc"] != codes.SUCCESS:
        return _answer(done, name)
    for number, slices in enumerate(step["compute"], 1):
        made = _compute(reader, instance, slices)
        if made["rc"] != codes.SUCCESS:
            return dict(made, writes=number + made["writes"])
    return _answer(done, name, 1 + len(step["compute"]))


def _create_compute(reader, handle, step):
    instance, done = _instance(reader, handle, step["instance"])
    return done if instance is None else _compute(reader, instance, step["slices"])


def _compute(reader, instance, slices):
    """A compute instance of so many slices. Which of the profiles has them is asked of the instance."""
    where = "nvmlGpuInstanceCreateComputeInstance(%d slices)" % (slices,)
    fitting = [info for dummy, info in read.compute_profiles(reader, instance) if info["slices"] == slices]
    if not fitting:
        return _answer(
            codes.missing(codes.NOT_SUPPORTED, "the GPU instance has no compute instance profile of that size"),
            where,
            0,
        )
    compute = ctypes.c_void_p()
    return _answer(
        reader.guard(
            where,
            lambda: reader.raw(
                "nvmlGpuInstanceCreateComputeInstance", instance, ctypes.c_uint(fitting[0]["id"]), ctypes.byref(compute)
            ),
        ),
        where,
    )


DOERS = {
    plan.SET_MODE: _set_mode,
    plan.DESTROY: _destroy,
    plan.DESTROY_COMPUTE: _destroy_compute,
    plan.CREATE: _create,
    plan.CREATE_COMPUTE: _create_compute,
}
