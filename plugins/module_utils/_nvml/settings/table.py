# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a GPU, each a row of data, and the calls that change them.

What is to be called is decided in settings_plan; here it is only called, and what NVML answers is told.
"""

from __future__ import annotations

import collections
import ctypes

from .. import calls, codes

# name: as in the options and results. getter: the keys of the snapshot that show it, none if NVML cannot be asked.
# setter: the function, and resetter the one that goes back to the default. pending_until: what a change waits for.
# lost_at: what takes it away again. disturbs: whether a change is felt by programs that run on the GPU. ends: whether
# newer boards and drivers no longer have it. support, source: from NVIDIA.
Setting = collections.namedtuple(
    "Setting",
    ["name", "getter", "setter", "resetter", "pending_until", "lost_at", "disturbs", "ends", "support", "source"],
)

# The codes with which a board or driver says that it has no such setting.
UNSUPPORTED = (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND, codes.DEPRECATED)
LOAD = "driver unload or reboot; without persistence mode also when the last program closes the GPU"

# In the order of setting: with persistence mode on first, what follows is not lost again when this process ends.
TABLE = (
    Setting(
        "persistence_mode",
        ("persistence_mode",),
        "nvmlDeviceSetPersistenceMode",
        None,
        None,
        "driver unload or reboot",
        False,
        False,
        "Linux; where nvidia-persistenced runs, it keeps the mode and is not overridden",
        "nvml.h, nvmlDeviceSetPersistenceMode",
    ),
    Setting(
        "compute_mode",
        ("compute_mode",),
        "nvmlDeviceSetComputeMode",
        None,
        None,
        LOAD,
        True,
        False,
        "all; not for the GPU itself while it is in MIG mode",
        "nvml.h, nvmlDeviceSetComputeMode",
    ),
    Setting(
        "power_limit_w",
        ("power_limit_mw",),
        "nvmlDeviceSetPowerManagementLimit",
        None,
        None,
        LOAD,
        True,
        False,
        "boards with power management, within the limits that the board states",
        "nvml.h, nvmlDeviceSetPowerManagementLimit",
    ),
    Setting(
        "application_clocks_mhz",
        ("applications_clocks_mhz",),
        "nvmlDeviceSetApplicationsClocks",
        "nvmlDeviceResetApplicationsClocks",
        None,
        LOAD,
        True,
        True,
        "older boards and drivers; newer ones answer NOT_SUPPORTED or DEPRECATED",
        "nvml.h, nvmlDeviceSetApplicationsClocks",
    ),
    Setting(
        "locked_graphics_clocks_mhz",
        (),
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceResetGpuLockedClocks",
        None,
        LOAD,
        True,
        False,
        "Volta and newer; NVML has no function that reads them",
        "nvml.h, nvmlDeviceSetGpuLockedClocks",
    ),
    Setting(
        "locked_memory_clocks_mhz",
        (),
        "nvmlDeviceSetMemoryLockedClocks",
        "nvmlDeviceResetMemoryLockedClocks",
        None,
        LOAD,
        True,
        False,
        "Ampere and newer; NVML has no function that reads them",
        "nvml.h, nvmlDeviceSetMemoryLockedClocks",
    ),
    Setting(
        "ecc_mode",
        ("ecc_mode_current", "ecc_mode_pending"),
        "nvmlDeviceSetEccMode",
        None,
        "GPU reset or reboot",
        "never (it is in the InfoROM)",
        False,
        False,
        "boards with ECC memory",
        "nvml.h, nvmlDeviceSetEccMode",
    ),
)
BY_NAME = dict((setting.name, setting) for setting in TABLE)
NAMES = tuple(setting.name for setting in TABLE)
# What is read to decide, and to prove what was set.
GATHER = ("modes", "power", "clocks", "ecc", "mig", "processes")


def act(nvml, steps, progress=None):
    """Do the STEPS of a plan with the binding module NVML, one nvmlInit for all: an answer for each, in their order.

    A step is {"gpu": UUID, "setting", "symbol", "arguments", "optional"}; its answer {"rc", "error", "detail", "tried"}
    of the setter. After a step of a GPU that failed, its other steps are not tried; an optional one that is not
    supported has not failed.
    """
    reader = calls.Reader(nvml, progress)
    started = reader.call("nvmlInit")
    if started["rc"] != codes.SUCCESS:
        return [answer(started, False) for dummy in steps]
    failed = {}
    answers = []
    try:
        for step in steps:
            uuid = step["gpu"]
            if uuid in failed:
                answers.append(answer(failed[uuid], False))
                continue
            # By UUID: numbers and handles may have moved since the snapshot.
            handle = reader.call("nvmlDeviceGetHandleByUUID", uuid)
            done = handle
            if handle["rc"] == codes.SUCCESS:
                done = reader.guard(
                    "%s of %s" % (step["symbol"], uuid),
                    lambda step=step, handle=handle: reader.raw(
                        step["symbol"], handle["value"], *[ctypes.c_uint(argument) for argument in step["arguments"]]
                    ),
                )
            answers.append(answer(done, True))
            if done["rc"] != codes.SUCCESS and not (step["optional"] and done["rc"] in UNSUPPORTED):
                failed[uuid] = done
    finally:
        reader.call("nvmlShutdown")
    return answers


def answer(found, tried):
    return {"rc": found["rc"], "error": codes.name(found["rc"]), "detail": found.get("detail"), "tried": tried}
