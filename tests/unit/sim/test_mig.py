# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG in the simulated library: the mode, GPU and compute instances, and the devices that applications see."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

LAYOUT = """
n.nvmlInit()
gpu = handle(1)
n.nvmlDeviceSetMigMode(gpu, 1)

def create(profile, *compute):
    instance = n.nvmlDeviceCreateGpuInstance(gpu, profile)
    for item in compute:
        n.nvmlGpuInstanceCreateComputeInstance(instance, item)
    return instance

def devices(gpu=gpu):
    found = []
    for index in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except n.NVMLError as error:
            assert error.value == 6, error
    return found

def ids(gpu=gpu):
    return [[n.nvmlDeviceGetGpuInstanceId(item), n.nvmlDeviceGetComputeInstanceId(item)] for item in devices(gpu)]
"""


def mig(node, question, wheel=wheels.VERSIONS[-1]):
    return node.python(LAYOUT + question, wheel)


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_instances_become_devices(booted, wheel):
    assert mig(
        booted,
        """
create(9, 2)
create(14, 0, 0)
create(19, 0)
first, second = devices()[0], devices()[1]
attributes = n.nvmlDeviceGetAttributes(second)
print(json.dumps([ids(), text(n.nvmlDeviceGetName, first), text(n.nvmlDeviceGetName, second), \
n.nvmlDeviceGetMemoryInfo(first).total >> 20,
                  n.nvmlDeviceGetMemoryInfo(first, n.nvmlMemory_v2).total >> 20, attributes.gpuInstanceSliceCount, \
attributes.computeInstanceSliceCount,
                  attributes.memorySizeMB, attributes.multiprocessorCount,
                  ]))
""",
        wheel,
    ) == [
        [[2, 0], [3, 0], [3, 1], [9, 0]],
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb",
        40448,
        40448,
        2,
        1,
        20096,
        16,
    ]


def test_a_device_has_a_uuid_of_its_own(booted):
    uuids, back = mig(
        booted,
        """
create(19, 0)
create(19, 0)
uuids = [text(n.nvmlDeviceGetUUID, item) for item in devices()]
back = n.nvmlDeviceGetHandleByUUID(uuids[1].encode())
print(json.dumps([uuids, n.nvmlDeviceGetGpuInstanceId(back)]))
""",
    )
    assert len(set(uuids)) == 2 and all(len(item) == 40 and item.startswith("MIG-") for item in uuids)
    assert back == 13
    again = mig(booted, "print(json.dumps([text(n.nvmlDeviceGetUUID, item) for item in devices()]))")
    assert again == uuids


def test_instance_of_a_full_gpu_or_an_unknown_profile_is_refused(booted):
    assert mig(
        booted,
        """
create(9)
placement = n.c_nvmlGpuInstancePlacement_t(0, 4)
instance = n.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, ctypes.byref(placement))
info = n.nvmlGpuInstanceGetInfo(instance)
answers = [[info.id, info.profileId, info.placement.start, info.placement.size, n.nvmlDeviceGetIndex(info.device)]]
answers.append([rc(n.nvmlDeviceCreateGpuInstance, gpu, item) for item in (19, 77)])
print(json.dumps(answers))
""",
    ) == [[1, 9, 0, 4, 1], [23, 3]]


@pytest.mark.parametrize("start, size, answer", [(2, 2, 0), (0, 2, 23), (1, 2, 2), (6, 2, 2), (2, 1, 2), (2, 4, 2)])
def test_an_instance_stands_where_it_was_asked_for_or_nowhere(booted, start, size, answer):
    assert mig(
        booted,
        """
n.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 19, ctypes.byref(n.c_nvmlGpuInstancePlacement_t(1, 1)))
answer = value(n.nvmlDeviceCreateGpuInstanceWithPlacement, gpu, 14, ctypes.byref(n.c_nvmlGpuInstancePlacement_t(%d, \
%d)))
print(json.dumps(answer if isinstance(answer, str) else n.nvmlGpuInstanceGetInfo(answer).placement.start))
"""
        % (start, size),
    ) == (start if answer == 0 else "rc %d" % answer)


def test_profiles_come_with_the_drivers_that_have_them(make_node):
    # The bindings ask through a function that 470 has not.
    have = (
        "[n._nvmlGetFunctionPointer('nvmlDeviceGetGpuInstanceProfileInfo')(handle(), index, "
        "ctypes.create_string_buffer(48)) for index in (0, 7, 9)]"
    )
    assert make_node("a100-sxm", 1).booted("470.256.02").ask(have) == [0, 0, 3]
    assert make_node("a100-sxm", 1).booted().ask(have) == [0, 0, 0]


def test_compute_instances_share_a_gpu_instance(booted):
    assert mig(
        booted,
        """
instance = create(9)
info = (ctypes.c_uint * 16)()  # id, slices, instances, multiprocessors, ...
n._nvmlGetFunctionPointer("nvmlGpuInstanceGetComputeInstanceProfileInfo")(instance, 1, 0, info)
answers = [list(info)[:4]]
first = n.nvmlGpuInstanceCreateComputeInstance(instance, 1)
answers.append(rc(n.nvmlGpuInstanceCreateComputeInstance, instance, 1))
found = n.nvmlComputeInstanceGetInfo(first)
answers.append([found.id, found.profileId, found.placement.start, found.placement.size])
answers.append([rc(n.nvmlGpuInstanceDestroy, instance), rc(n.nvmlComputeInstanceDestroy, first), \
rc(n.nvmlGpuInstanceDestroy, instance),
                rc(n.nvmlGpuInstanceGetInfo, instance), rc(n.nvmlComputeInstanceGetInfo, first), ids()])
print(json.dumps(answers))
""",
    ) == [[1, 2, 1, 32], 23, [0, 1, 0, 2], [19, 0, 0, 2, 2, []]]
