# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG mode in the simulator: when it changes, what it waits for, what survives, and which calls are noted."""

from __future__ import annotations

import pytest

MODE = "n.nvmlDeviceGetMigMode(handle())"
SET = """
def set_mode(mode, index=0):
    status = ctypes.c_uint(77)
    answer = n._nvmlGetFunctionPointer("nvmlDeviceSetMigMode")(handle(index), mode, ctypes.byref(status))
    return [answer, status.value, n.nvmlDeviceGetMigMode(handle(index))]

def instances(index=0):
    found = [value(n.nvmlDeviceGetMigDeviceHandleByIndex, handle(index), number) for number in range(7)]
    return sum(not isinstance(item, str) for item in found)

n.nvmlInit()
"""


def ask(node, *expressions):
    return node.python(SET + "print(json.dumps([%s]))" % ", ".join(expressions))


def reload(node):
    node.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    node.tool("modprobe", "nvidia")


def test_on_hopper_the_mode_changes_at_once(booted):
    assert ask(booted, "set_mode(1)", "set_mode(1)", "set_mode(0)") == [[0, 0, [1, 1]], [0, 0, [1, 1]], [0, 0, [0, 0]]]


@pytest.mark.parametrize("model", ["a100-sxm"])
def test_on_ampere_the_mode_waits_for_a_reset(make_node, model):
    node = make_node(model, 2).booted()
    assert ask(node, "set_mode(1)", "set_mode(1, 1)", "set_mode(0, 1)") == [
        [0, 16, [0, 1]],
        [0, 16, [0, 1]],
        [0, 0, [0, 0]],
    ]
    assert ask(node, "rc(n.nvmlDeviceCreateGpuInstance, handle(), 19)") == [3]
    reload(node)
    assert ask(node, MODE, "n.nvmlDeviceGetMigMode(handle(1))") == [[1, 1], [0, 0]]


@pytest.mark.parametrize("model, kept", [("a100-sxm", 1), ("h100-sxm", 0)])
def test_the_mode_survives_only_where_the_inforom_keeps_it_and_instances_never(make_node, model, kept):
    for again in (reload, lambda node: node.sim("boot")):
        node = make_node(model, 1).booted()
        node.sim("mig", "--gpu", "0", "1g.5gb" if model == "a100-sxm" else "1g.10gb")
        assert ask(node, MODE, "instances()") == [[1, 1], 1]
        again(node)
        assert ask(node, MODE, "instances()") == [[kept, kept], 0]


@pytest.mark.parametrize("kind", ["compute", "graphics"])
@pytest.mark.parametrize("model, after", [("a100-sxm", 1), ("h100-sxm", 0)])
def test_the_mode_of_a_busy_gpu_waits(make_node, model, after, kind):
    node = make_node(model, 2).booted()
    node.sim("inject", "stray-process", kind, "--gpu", "0")
    assert ask(node, "set_mode(1)", "set_mode(1, 1)")[0] == [0, 19, [0, 1]]
    node.sim("clear")
    assert ask(node, MODE) == [[0, 1]]
    node.sim("boot")
    assert ask(node, MODE) == [[after, after]]


def test_changing_the_mode_takes_the_instances_away(booted):
    booted.sim("mig", "--gpu", "1", "1g.10gb")
    assert ask(
        booted,
        "instances(1)",
        "set_mode(0, 1)",
        "rc(n.nvmlDeviceCreateGpuInstance, handle(1), 19)",
        "set_mode(1, 1)",
        "instances(1)",
    ) == [1, [0, 0, [0, 0]], 3, [0, 0, [1, 1]], 0]


def test_on_ampere_instances_stay_until_the_reset(make_node):
    node = make_node("a100-sxm", 1).booted()
    node.sim("mig", "--gpu", "0", "3g.20gb", "2g.10gb")
    assert ask(node, "set_mode(0)", "instances()") == [[0, 16, [1, 0]], 2]
    node.sim("mig", "--gpu", "0")
    assert ask(node, MODE, "instances()") == [[0, 0], 0]


def test_a_mode_change_can_be_said_and_not_done(booted):
    booted.sim("inject", "ignored", "nvmlDeviceSetMigMode", "--gpu", "0")
    assert ask(booted, "set_mode(1)") == [[0, 0, [0, 0]]]


@pytest.mark.parametrize("model, name", [("a100-sxm", "1g.5gb"), ("h100-sxm", "1g.10gb")])
def test_a_gpu_in_use_is_not_laid_out(make_node, model, name):
    node = make_node(model, 1).booted()
    node.sim("inject", "stray-process", "--gpu", "0")
    assert node.sim("mig", "--gpu", "0", name, check=False).returncode == 2
    assert ask(node, MODE, "instances()") == [[0, 1], 0]


# ---- the note of what was asked to change ----


def writes(node):
    place = node.root / "run/gpusim/writes"
    return place.read_text().splitlines() if place.exists() else []


def test_reading_notes_no_write(booted):
    ask(
        booted,
        MODE,
        "instances()",
        "n.nvmlDeviceGetGpuInstanceProfileInfo(handle(), 0).id",
        "n.nvmlDeviceGetPowerManagementLimit(handle())",
    )
    assert not writes(booted)


def test_each_call_that_changes_something_is_noted(booted):
    booted.python(
        SET
        + """
set_mode(1, 2)
instance = n.nvmlDeviceCreateGpuInstance(handle(2), 9)
compute = n.nvmlGpuInstanceCreateComputeInstance(instance, 2)
rc(n.nvmlDeviceCreateGpuInstance, handle(2), 0)
n.nvmlComputeInstanceDestroy(compute)
n.nvmlGpuInstanceDestroy(instance)
n.nvmlDeviceSetPersistenceMode(handle(1), 1)
print(1)
"""
    )
    assert writes(booted) == [
        "nvmlDeviceSetMigMode 2",
        "nvmlDeviceCreateGpuInstance 2",
        "nvmlGpuInstanceCreateComputeInstance 2",
        "nvmlDeviceCreateGpuInstance 2",
        "nvmlComputeInstanceDestroy 2",
        "nvmlGpuInstanceDestroy 2",
        "nvmlDeviceSetPersistenceMode 1",
    ]
    reload(booted)
    assert len(writes(booted)) == 7
    booted.sim("boot")
    assert not writes(booted)
