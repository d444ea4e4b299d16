# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated libnvidia-ml.so.1 through the binding that everybody uses, and below it."""

from __future__ import annotations

import os
import re
import signal

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, NEW = simnode.OLD, simnode.NEW
RAW = "lib = ctypes.CDLL('libnvidia-ml.so.1')\n"


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
@pytest.mark.parametrize(
    "library, loaded, expected",
    [(None, None, 12), (None, OLD, 12), (OLD, None, 9), (NEW, OLD, 18), (OLD, NEW, 18), (OLD, OLD, 0)],
)
def test_init(node, wheel, library, loaded, expected):
    node.kernel()
    if loaded:
        node.module(loaded)
    node.library(library)
    node.sim("boot")
    assert node.init_rc(wheel) == expected


def test_an_upgrade_without_reload_then_a_reload(booted):
    assert booted.init_rc() == 0
    booted.library(NEW)
    booted.module(NEW)
    assert booted.init_rc() == 18
    booted.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    assert booted.init_rc() == 9
    booted.tool("modprobe", "nvidia")
    assert booted.init_rc() == 0
    assert booted.ask("n.nvmlSystemGetDriverVersion()") == NEW


def test_energy_grows_with_time(booted):
    question = "n.nvmlDeviceGetTotalEnergyConsumption(handle())"
    before = booted.ask(question)
    text = booted.read("run/gpusim/loaded")
    booted.write(
        "run/gpusim/loaded", re.sub(r"time = (\d+)", lambda found: "time = %d" % (int(found.group(1)) - 1000), text)
    )
    after = booted.ask(question)
    assert 1000 * 71250 <= after - before < 2000 * 71250, "in millijoules, at 71.25 W for 1000 s"


def test_library_beside_the_soname_link_decides(node):
    node.kernel()
    node.module(OLD)
    base = node.root / "usr/lib/x86_64-linux-gnu"
    base.mkdir(parents=True)
    for version in (OLD, NEW):
        (base / ("libnvidia-ml.so." + version)).write_bytes(b"")
    os.symlink("libnvidia-ml.so." + OLD, str(base / "libnvidia-ml.so.1"))
    node.sim("boot")
    assert node.init_rc() == 0
    os.unlink(str(base / "libnvidia-ml.so.1"))
    os.symlink("libnvidia-ml.so." + NEW, str(base / "libnvidia-ml.so.1"))
    assert node.init_rc() == 18


def test_it_says_that_it_is_simulated(build, booted):
    # In a process of its own: one that is loaded here would answer for those of the nodes of other tests.
    marker = booted.python(RAW + "print(json.dumps((ctypes.c_char * 64).in_dll(lib, 'gpusim_marker').value.decode()))")
    assert "simulated" in marker
    assert b"libnvidia-ml.so.1\0" in (build / "libnvidia-ml.so.1").read_bytes()


def test_functions_it_has(build):
    listed = simnode.run(["nm", "-D", "--defined-only", str(build / "libnvidia-ml.so.1")], check=True)
    names = set(listed.stdout.split()[2::3])
    ours = {name for name in names if name.startswith("nvml")}
    assert names - ours == {"gpusim_marker", "gpusim_symbols"}
    # What is not in the table would be in the library of every driver.
    assert ours == set(simnode.functions())


def test_identity_follows_from_the_nodes_name(make_node):
    question = (
        "[[n.nvmlDeviceGetUUID(handle(i)), n.nvmlDeviceGetSerial(handle(i)), n.nvmlDeviceGetPciInfo(handle(i)).busId] "
        "for i in range(8)]"
    )
    first, again, other = (make_node(name=name).booted().ask(question) for name in ("a", "a", "b"))
    assert first == again
    assert len({uuid for uuid, _serial, _pci in first + other}) == 16
    assert len({serial for _uuid, serial, _pci in first + other}) == 16
    assert [pci for _uuid, _serial, pci in first][:2] == ["00000000:1B:00.0", "00000000:43:00.0"]


@pytest.mark.parametrize(
    "driver, version, expected",
    [
        ("570.172.08", 0x2000024, [0, 3]),
        ("570.172.08", 0x3000028, [0, 3]),
        ("550.163.01", 0x3000028, [25, None]),
        ("570.172.08", 0x1000000, [25, None]),
    ],
)
def test_fabric_versions(node, driver, version, expected):
    node.booted(driver)
    assert (
        node.python(
            """
n.nvmlInit()
info = n.c_nvmlGpuFabricInfo_v3_t()
info.version = %d
answer = rc(n.nvmlDeviceGetGpuFabricInfoV, handle(), ctypes.byref(info))
print(json.dumps([answer, info.state if answer == 0 else None]))
"""
            % version
        )
        == expected
    )


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_processes_and_the_two_calls_to_get_them(booted, wheel):
    booted.sim("inject", "stray-process", "--gpu", "1", "--value", "2048")
    assert booted.ask(
        "[[p.usedGpuMemory >> 20 for p in n.nvmlDeviceGetComputeRunningProcesses(handle(i))] for i in (0, 1)]", wheel
    ) == [[], [2048]]
    assert booted.ask("n.nvmlDeviceGetMemoryInfo(handle(1)).used >> 20", wheel) == 2048 + 480
    assert booted.python(
        RAW
        + """
lib.nvmlInit_v2()
device = ctypes.c_void_p()
lib.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(device))
count = ctypes.c_uint(0)
answers = [lib.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None), count.value]
infos = (ctypes.c_ulonglong * 12)()
count.value = 4
answers += [lib.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), infos), count.value, \
infos[1] >> 20]
print(json.dumps(answers))
""",
        wheel,
    ) == [7, 1, 0, 1, 2048]


def test_a_process_that_ended_is_not_listed(booted):
    booted.write("run/gpusim/processes.ini", "[process 1]\npid = 999999999\ngpu = 0\ntype = C\nused_mib = 5\n")
    assert booted.ask("len(n.nvmlDeviceGetComputeRunningProcesses(handle()))") == 0


def test_field_values(booted):
    assert booted.ask("[field(i) for i in (82, 94, 142, 143, 144, 145, 31, 230, 99999)]") == [
        42,
        0,
        0,
        0,
        0,
        0,
        "rc 3",
        "rc 3",
        "rc 3",
    ]
    assert booted.ask("[value(n.nvmlDeviceGetNvLinkState, handle(), link) for link in (17, 18)]") == [1, "rc 2"]


def test_nvlink_leads_to_switches_or_gpus(make_node):
    h100, a100 = make_node().booted(), make_node("a100-sxm").booted()
    question = "n.nvmlDeviceGetNvLinkRemotePciInfo(handle(), 1).busId"
    assert h100.ask(question) == "00000000:06:00.0"
    assert a100.ask(question) == "00000000:81:00.0"


@pytest.mark.parametrize(
    "firmware, expected", [([], ["rc 3", [0, 1]]), ([OLD], [OLD, [1, 1]]), ([OLD, NEW], [OLD, [1, 1]])]
)
def test_gsp_firmware(node, firmware, expected):
    for version in firmware:
        node.firmware(version)
    node.booted()
    assert (
        node.ask("[text(n.nvmlDeviceGetGspFirmwareVersion, handle()), n.nvmlDeviceGetGspFirmwareMode(handle())]")
        == expected
    )


def test_firmware_of_another_version_only(make_node):
    h100, a100 = make_node(), make_node("a100-sxm")
    for node in (h100, a100):
        node.firmware(NEW)
        node.booted()
    assert h100.ask("rc(handle)") == 999
    assert "RmInitAdapter failed" in h100.sim("kmsg").stdout
    assert a100.ask("[rc(handle), rc(n.nvmlDeviceGetGspFirmwareVersion, handle())]") == [0, 3]


# ---- the persistence daemon ----

MODE = "n.nvmlDeviceGetPersistenceMode(handle())"


def test_persistence_mode_is_the_daemons(booted):
    assert booted.ask(MODE) == 0
    assert booted.persistenced("--verbose").returncode == 0
    assert booted.ask(MODE) == 1
    os.kill(int(booted.pid_file.read_text()), signal.SIGTERM)
    simnode.wait_for(lambda: not booted.pid_file.exists())
    assert booted.ask(MODE) == 0


def test_a_killed_daemon_leaves_no_persistence_mode(booted):
    booted.persistenced()
    pid = int(booted.pid_file.read_text())
    os.kill(pid, signal.SIGKILL)
    simnode.wait_for(lambda: booted.ask(MODE) == 0)
    assert booted.pid_file.exists()


def test_the_daemon_needs_the_driver_and_its_user(node, make_node):
    node.kernel()
    node.sim("boot")
    refused = node.persistenced()
    assert refused.returncode != 0
    assert "failed to initialize" in refused.stderr
    assert make_node().booted().persistenced("--user", "nobody-of-this-name").returncode != 0


def test_the_daemon_keeps_the_module(booted):
    booted.persistenced()
    booted.tool("modprobe", "-r", "nvidia_uvm")
    booted.tool("modprobe", "-r", "nvidia_drm")
    refused = booted.tool("modprobe", "-r", "nvidia", check=False)
    assert (refused.returncode, refused.stderr) == (1, "modprobe: FATAL: Module nvidia is in use.\n")
    os.kill(int(booted.pid_file.read_text()), signal.SIGTERM)
    simnode.wait_for(lambda: not booted.pid_file.exists())
    booted.tool("modprobe", "-r", "nvidia")
    assert booted.init_rc() == 9
