# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG instances in use: processes on them, the files that stand for the right to use them, their devices' answers; and
the mode, which waits for processes and resets.
"""

from __future__ import annotations

import json
import pathlib

import pytest

DEVICES = json.loads((pathlib.Path(__file__).parent / "fixtures/mig.json").read_text())
ASK = """
n.nvmlInit()
gpu = handle(1)

def devices():
    found = [value(n.nvmlDeviceGetMigDeviceHandleByIndex, gpu, number) for number in range(7)]
    return [item for item in found if not isinstance(item, str)]

def processes(item, kind="Compute"):
    found = getattr(n, "nvmlDeviceGet%sRunningProcesses" % kind)(item)
    return [[one.gpuInstanceId, one.computeInstanceId, (one.usedGpuMemory or 0) >> 20] for one in found]

def instances():
    found = {number: value(n.nvmlDeviceGetGpuInstanceById, gpu, number) for number in range(15)}
    return {number: item for number, item in found.items() if not isinstance(item, str)}

def destroy(*numbers):
    instance = n.nvmlDeviceGetGpuInstanceById(gpu, numbers[0])
    if len(numbers) == 1:
        return rc(n.nvmlGpuInstanceDestroy, instance)
    return rc(n.nvmlComputeInstanceDestroy, n.nvmlGpuInstanceGetComputeInstanceById(instance, numbers[1]))
"""


@pytest.fixture
def laid_out(booted):
    """Eight H100; GPU 1 has 3g, 2g, 1g, 1g: GPU instances 2, 3, 9, 10."""
    booted.sim("mig", "--gpu", "1", "3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")
    return booted


def ask(node, *expressions):
    return node.python(ASK + "print(json.dumps([%s]))" % ", ".join(expressions))


def test_a_process_is_listed_by_its_instance_and_by_the_gpu(laid_out):
    laid_out.sim("inject", "stray-process", "--gpu", "1", "--mig", "3", "--value", "2048")
    laid_out.sim("inject", "stray-process", "graphics", "--gpu", "1", "--mig", "10")
    assert ask(
        laid_out,
        "processes(gpu)",
        "[processes(item) for item in devices()]",
        "processes(gpu, 'Graphics')",
        "[n.nvmlDeviceGetMemoryInfo(item).used >> 20 for item in devices()]",
    ) == [[[3, 0, 2048]], [[], [[3, 0, 2048]], [], []], [[10, 0, 1024]], [0, 2048, 0, 0]]


def test_what_is_in_use_is_not_destroyed(laid_out):
    laid_out.sim("inject", "stray-process", "--gpu", "1", "--mig", "3")
    assert ask(
        laid_out, "destroy(3, 0)", "destroy(3)", "destroy(9)", "destroy(9, 0)", "destroy(9)", "sorted(instances())"
    ) == [19, 19, 19, 0, 0, [2, 3, 10]]
    laid_out.sim("clear", "stray-process")
    assert ask(laid_out, "destroy(3, 0)", "destroy(3)", "sorted(instances())") == [0, 0, [2, 10]]


def test_a_gpu_instance_whose_compute_instance_has_no_process_is_freed(laid_out):
    laid_out.python(
        ASK
        + """
destroy(3, 0)
for _ in range(2):
    n.nvmlGpuInstanceCreateComputeInstance(instances()[3], 0)
print(1)
"""
    )
    laid_out.sim("inject", "stray-process", "--gpu", "1", "--mig", "3", "--ci", "1")
    assert ask(laid_out, "destroy(3, 0)", "destroy(3, 1)") == [0, 19]


# ---- what a MIG device answers ----


@pytest.mark.parametrize(
    "model, names",
    [("h100-sxm", "3g.40gb 2g.20gb 1g.10gb"), ("h200", "3g.71gb 2g.35gb 1g.18gb"), ("a30", "2g.12gb 1g.6gb")],
)
def test_devices_answer_as_those_of_the_board(make_node, model, names):
    node = make_node(model, 2).booted()
    node.sim("mig", "--gpu", "1", *names.split())
    found = node.python(
        ASK
        + """
def answers(item):
    parts = n.nvmlDeviceGetAttributes(item)
    return {"mib": n.nvmlDeviceGetMemoryInfo(item).total >> 20,
            "bar1_mib": n.nvmlDeviceGetBAR1MemoryInfo(item).bar1Total >> 20,
            "ce": parts.sharedCopyEngineCount, "enc": parts.sharedEncoderCount, "dec": parts.sharedDecoderCount,
            "ofa": parts.sharedOfaCount, "jpeg": parts.sharedJpegCount, "sm": parts.multiprocessorCount}
print(json.dumps([answers(item) for item in devices()]))
"""
    )
    for number, answers in zip(DEVICES[model]["devices"], found):
        facts = DEVICES[model]["devices"][number]
        assert {key: answers[key] for key in facts} == facts


# ---- capabilities ----


def capabilities(node, gpu=1):
    """The places below /proc, with the minor number that each names."""
    base = node.root / ("proc/driver/nvidia/capabilities/gpu%d/mig" % gpu)
    return {str(path.parent.relative_to(base)): int(path.read_text().split()[1]) for path in base.glob("**/access")}


def devices(node):
    return {int(path.name[len("nvidia-cap") :]) for path in (node.root / "dev/nvidia-caps").glob("nvidia-cap*")}


def minors(node):
    return dict(line.split() for line in node.read("proc/driver/nvidia-caps/mig-minors").splitlines())


def test_the_table_of_minor_numbers(booted):
    known = {
        "config": "1",
        "monitor": "2",
        "gpu0/gi0/access": "3",
        "gpu0/gi0/ci0/access": "4",
        "gpu0/gi1/access": "12",
        "gpu1/gi0/access": "138",
    }
    assert {name: minors(booted)[name] for name in known} == known
    assert devices(booted) == {1, 2}
    assert "DeviceFileMinor: 1" in booted.read("proc/driver/nvidia/capabilities/mig/config")


def test_capabilities_come_and_go_with_the_instances(laid_out):
    def there(*names):
        table = minors(laid_out)
        assert capabilities(laid_out) == {name: int(table["gpu1/%s/access" % name]) for name in names}
        assert devices(laid_out) == {1, 2} | set(capabilities(laid_out).values())

    whole = [name for number in (2, 3, 9, 10) for name in ("gi%d" % number, "gi%d/ci0" % number)]
    there(*whole)
    assert not capabilities(laid_out, 0)
    ask(laid_out, "destroy(9, 0)")
    there(*[name for name in whole if name != "gi9/ci0"])
    ask(laid_out, "destroy(9)")
    there(*[name for name in whole if not name.startswith("gi9")])
    ask(laid_out, "n.nvmlDeviceSetMigMode(gpu, 0)")
    there()


@pytest.mark.parametrize("model, name", [("a100-sxm", "1g.5gb"), ("h100-sxm", "1g.10gb")])
def test_capabilities_are_lost_with_the_instances(make_node, model, name):
    node = make_node(model, 2).booted()
    for again in (
        lambda: node.sim("mig", "--gpu", "1"),
        lambda: node.sim("boot"),
        lambda: node.tool("nvidia-smi", "--gpu-reset", "-i", "1"),
        lambda: node.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm"),
    ):
        node.sim("mig", "--gpu", "1", name)
        assert len(capabilities(node)) == 2 and len(devices(node)) == 4
        again()
        assert not capabilities(node) and devices(node) <= {1, 2}


def test_a_process_on_an_instance_holds_its_files(laid_out):
    done = laid_out.sim("inject", "stray-process", "--gpu", "1", "--mig", "9")
    held = {path.resolve().name for path in pathlib.Path("/proc/%s/fd" % done.stdout.split()[1]).iterdir()}
    mine = {"nvidia-cap%d" % capabilities(laid_out)[name] for name in ("gi9", "gi9/ci0")}
    assert len(mine) == 2 and mine | {"nvidia1"} <= held


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


def ask_mode(node, *expressions):
    return node.python(SET + "print(json.dumps([%s]))" % ", ".join(expressions))


def reload(node):
    node.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    node.tool("modprobe", "nvidia")


def test_on_hopper_the_mode_changes_at_once(booted):
    assert ask_mode(booted, "set_mode(1)", "set_mode(1)", "set_mode(0)") == [
        [0, 0, [1, 1]],
        [0, 0, [1, 1]],
        [0, 0, [0, 0]],
    ]


@pytest.mark.parametrize("model", ["a100-sxm"])
def test_on_ampere_the_mode_waits_for_a_reset(make_node, model):
    node = make_node(model, 2).booted()
    assert ask_mode(node, "set_mode(1)", "set_mode(1, 1)", "set_mode(0, 1)") == [
        [0, 16, [0, 1]],
        [0, 16, [0, 1]],
        [0, 0, [0, 0]],
    ]
    assert ask_mode(node, "rc(n.nvmlDeviceCreateGpuInstance, handle(), 19)") == [3]
    reload(node)
    assert ask_mode(node, MODE, "n.nvmlDeviceGetMigMode(handle(1))") == [[1, 1], [0, 0]]


@pytest.mark.parametrize("model, kept", [("a100-sxm", 1), ("h100-sxm", 0)])
def test_the_mode_survives_only_where_the_inforom_keeps_it_and_instances_never(make_node, model, kept):
    for again in (reload, lambda node: node.sim("boot")):
        node = make_node(model, 1).booted()
        node.sim("mig", "--gpu", "0", "1g.5gb" if model == "a100-sxm" else "1g.10gb")
        assert ask_mode(node, MODE, "instances()") == [[1, 1], 1]
        again(node)
        assert ask_mode(node, MODE, "instances()") == [[kept, kept], 0]


@pytest.mark.parametrize("kind", ["compute", "graphics"])
@pytest.mark.parametrize("model, after", [("a100-sxm", 1), ("h100-sxm", 0)])
def test_the_mode_of_a_busy_gpu_waits(make_node, model, after, kind):
    node = make_node(model, 2).booted()
    node.sim("inject", "stray-process", kind, "--gpu", "0")
    assert ask_mode(node, "set_mode(1)", "set_mode(1, 1)")[0] == [0, 19, [0, 1]]
    node.sim("clear")
    assert ask_mode(node, MODE) == [[0, 1]]
    node.sim("boot")
    assert ask_mode(node, MODE) == [[after, after]]


def test_on_ampere_instances_stay_until_the_reset(make_node):
    node = make_node("a100-sxm", 1).booted()
    node.sim("mig", "--gpu", "0", "3g.20gb", "2g.10gb")
    assert ask_mode(node, "set_mode(0)", "instances()") == [[0, 16, [1, 0]], 2]
    node.sim("mig", "--gpu", "0")
    assert ask_mode(node, MODE, "instances()") == [[0, 0], 0]


# ---- the note of what was asked to change ----


def writes(node):
    place = node.root / "run/gpusim/writes"
    return place.read_text().splitlines() if place.exists() else []


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
