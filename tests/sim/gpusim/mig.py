# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG outside the library: layouts made by name, the files of processes on instances, and noted writes."""

from __future__ import annotations

import contextlib
import ctypes
import os

from . import nvml as n
from . import reset, state

# Every call that is asked to change something, one line each: the function, and the number of the GPU.
WRITES = "/run/gpusim/writes"
IN_USE = 19
COMPUTE_PROFILES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}


def profiles(gpu: int) -> dict[str, tuple[int, int]]:
    """The GPU's profiles of GPU instances: name -> (the number that NVML's calls take, slices)."""
    node = state.described()
    found = {}
    for key in {**node["gpu"], **node["gpu %d" % gpu]}:
        number = key[len("mig_profile_") :]
        if key.startswith("mig_profile_") and number.isdigit():
            fields = state.gpu_value(gpu, key).split()
            found[fields[-1]] = (int(number), int(fields[1]))
    return found


def lay_out(gpu: int, names: list[str]) -> list[str]:
    """Lays a GPU out: a GPU instance with a compute instance for each profile name, or the mode off without names."""
    state.require_root()
    known = profiles(gpu)
    for name in names:
        if name not in known:
            raise state.SimError("this board has no MIG profile %s" % name)
    nvml = n.Nvml()
    try:
        nvml.call("nvmlInit_v2")
        handle = ctypes.c_void_p()
        nvml.call("nvmlDeviceGetHandleByIndex_v2", gpu, ctypes.byref(handle))
        # A change of the mode takes all instances away, some boards' with the reset that it needs.
        for mode in (0, 1 if names else 0):
            if nvml.number("nvmlDeviceSetMigMode", handle, mode, kind=ctypes.c_int) == IN_USE:
                raise state.SimError("GPU %d is in use: its MIG mode waits" % gpu)
            current, pending = ctypes.c_uint(), ctypes.c_uint()
            nvml.call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
            if current.value != mode:
                reset.apply(gpu)
        for name in names:
            number, slices = known[name]
            instance, compute = ctypes.c_void_p(), ctypes.c_void_p()
            nvml.call("nvmlDeviceCreateGpuInstance", handle, number, ctypes.byref(instance))
            nvml.call("nvmlGpuInstanceCreateComputeInstance", instance, COMPUTE_PROFILES[slices], ctypes.byref(compute))
    except n.NvmlError as error:
        raise state.SimError("MIG on GPU %d: rc %d" % (gpu, error.code)) from None
    return ["GPU %d: %s" % (gpu, ", ".join(names) or "MIG is off")]


def capability_files(gpu: int, instance: int, compute: int | None) -> list[str]:
    """The device files that a process opens to use an instance, of the compute instance, too, when one is named."""
    base = "%s/nvidia/capabilities/gpu%s/mig/gi%d" % (state.PROC_DRIVER, state.gpu_value(gpu, "minor"), instance)
    found = []
    for folder in [base] + ([] if compute is None else ["%s/ci%d" % (base, compute)]):
        words = state.read_text(folder + "/access").split()
        if not words:
            raise state.SimError("GPU %d has no MIG instance %s" % (gpu, folder.split("/mig/")[1]))
        found.append(state.path("/dev/nvidia-caps/nvidia-cap" + words[1]))
    return found


def writes() -> list[str]:
    """The noted writes of this boot."""
    return state.read_text(WRITES).splitlines()


def forget_writes() -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(state.path(WRITES))
