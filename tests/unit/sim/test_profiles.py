# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated boards answer what captures of real ones show, and each value of a profile has a source."""

from __future__ import annotations

import fnmatch

import pytest

from ansible_collections.gpufleet.lifecycle.tests.sim import profile_table

# What captures with that driver show, as NVML states it: "rc 3" is a value that the board does not have.
CAPTURES = {
    ("a100-sxm", "570.148.08"): {
        "name": "NVIDIA A100-SXM4-40GB",
        "pci": [0x20B010DE, 0x134F10DE],
        "memory_mib": [40960, 518],
        "vbios": "92.00.45.00.03",
        "histogram": 640,
        "margin": "rc 3",
        "power_limits": [100000, 400000],
        "graphics_clocks": [210, 1095, 1410],
        "max_memory_clock": 1215,
        "fabric": "rc 3",
        "pcie_gen": 4,
        "thresholds": ["rc 3"] * 3,
    },
    ("h100-sxm", "580.105.08"): {
        "name": "NVIDIA H100 80GB HBM3",
        "pci": [0x233010DE, 0x16C110DE],
        "memory_mib": [81559, 480],
        "histogram": 2560,
        "margin": 56,
        "power_limits": [200000, 700000],
        "graphics_clocks": [345, 1980, 1980],
        "fabric": [3, 0, 0],
        "thresholds": [-8, -2, 0],
    },
    ("h200", "590.48.01"): {
        "name": "NVIDIA H200",
        "pci": [0x233510DE, 0x18BE10DE],
        "memory_mib": [143771, 614],
        "vbios": "96.00.A5.00.03",
        "histogram": 3072,
        "margin": 56,
        "power_limits": [200000, 700000],
        "fabric": [3, 0, 0],
        "pcie_gen": 5,
        "thresholds": [-8, -2, 0],
    },
    ("b200", "580.105.08"): {
        "name": "NVIDIA B200",
        "pci": [0x290110DE, 0x199910DE],
        "memory_mib": [183359, 728],
        "histogram": 3840,
        "margin": 57,
        "power_limits": [200000, 1000000],
        "graphics_clocks": [120, 1965, 1965],
        "max_memory_clock": 3996,
        "thresholds": [-5, -3, 0],
    },
    ("l4", "550.90.07"): {
        "name": "NVIDIA L4",
        "pci": [0x27B810DE, 0x16CA10DE],
        "histogram": 96,
        "power_limits": [40000, 72000],
        "max_memory_clock": 6251,
        "fabric": "rc 3",
        "thresholds": [-5, -2, 0],
    },
    ("v100-sxm", "550.127.05"): {
        "name": "Tesla V100-SXM2-32GB",
        "pci": [0x1DB510DE, 0x124910DE],
        "pcie_gen": 3,
        "power_limits": [150000, 300000],
        "graphics_clocks": [135, 1290, 1530],
        "histogram": "rc 3",
        "margin": "rc 13",
        "fabric": "rc 3",
        "thresholds": ["rc 3"] * 3,
    },
}
READ = """
def fabric():
    info = n.c_nvmlGpuFabricInfo_t()
    n.nvmlDeviceGetGpuFabricInfo(handle(), ctypes.byref(info))
    return [info.state, info.status, info.cliqueId]

def memory():
    info = n.nvmlDeviceGetMemoryInfo(handle(), version=n.nvmlMemory_v2)
    return [info.total >> 20, info.reserved >> 20]

def pci():
    info = n.nvmlDeviceGetPciInfo(handle())
    return [info.pciDeviceId, info.pciSubSystemId]

def threshold(number):
    item = n.nvmlDeviceGetFieldValues(handle(), [number])[0]
    return item.value.siVal if item.nvmlReturn == 0 else "rc %d" % item.nvmlReturn

def clocks():
    return [
        n.nvmlDeviceGetClockInfo(handle(), 0),
        n.nvmlDeviceGetApplicationsClock(handle(), 0),
        n.nvmlDeviceGetMaxClockInfo(handle(), 0),
    ]

n.nvmlInit()
print(json.dumps({
    "name": text(n.nvmlDeviceGetName, handle()),
    "pci": value(pci),
    "memory_mib": value(memory),
    "vbios": text(n.nvmlDeviceGetVbiosVersion, handle()),
    "histogram": value(lambda: n.nvmlDeviceGetRowRemapperHistogram(handle()).max),
    "margin": value(n.nvmlDeviceGetMarginTemperature, handle()),
    "power_limits": value(n.nvmlDeviceGetPowerManagementLimitConstraints, handle()),
    "graphics_clocks": value(clocks),
    "max_memory_clock": value(n.nvmlDeviceGetMaxClockInfo, handle(), 2),
    "fabric": value(fabric),
    "pcie_gen": value(n.nvmlDeviceGetMaxPcieLinkGeneration, handle()),
    "thresholds": [threshold(number) for number in (193, 194, 196)],
}))
"""


@pytest.mark.parametrize("model, driver", list(CAPTURES))
def test_board_answers_as_captures_show(make_node, model, driver):
    node = make_node(model)
    node.kernel()
    node.library(driver)
    node.module(driver, licence="Dual MIT/GPL")
    node.firmware(driver)
    node.sim("boot")
    answer = node.python(READ)
    expected = CAPTURES[model, driver]
    assert {key: answer[key] for key in expected} == expected


def test_each_value_has_a_source():
    models = profile_table.profiles()
    assert [
        (model, key) for model, values in models.items() for key in values if profile_table.source(model, key) is None
    ] == []
    assert sorted(profile_table.named_captures()) == sorted(models)
    assert profile_table.source("h200", "no_such_key") is None


def test_each_pattern_of_the_sources_fits_a_key():
    models = profile_table.profiles()
    stale = [
        (section, pattern)
        for section, sources in profile_table.sections().items()
        for patterns in sources.values()
        for pattern in patterns.split()
        if not any(
            fnmatch.fnmatchcase(key, pattern)
            for model in ([section] if section != "all" else models)
            for key in models[model]
        )
    ]
    assert stale == []
