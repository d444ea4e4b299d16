# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the simulated library: their limits, who may set them, and what becomes of them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

REFUSED = (
    "n.nvmlDeviceSetPowerManagementLimit, handle(), 199999",
    "n.nvmlDeviceSetPowerManagementLimit, handle(), 700001",
    "n.nvmlDeviceSetApplicationsClocks, handle(), 2619, 1981",
    "n.nvmlDeviceSetApplicationsClocks, handle(), 2620, 1980",
    "n.nvmlDeviceSetGpuLockedClocks, handle(), 1500, 1000",
    "n.nvmlDeviceSetGpuLockedClocks, handle(), 1500, 9000",
    "n.nvmlDeviceSetGpuLockedClocks, handle(), 1, 1500",
    "n.nvmlDeviceSetMemoryLockedClocks, handle(), 1593, 2620",
    "n.nvmlDeviceSetComputeMode, handle(), 4",
    "n.nvmlDeviceSetPersistenceMode, handle(), 2",
    "n.nvmlDeviceSetEccMode, handle(), 2",
)


def ask_codes(node, calls, wheel=wheels.VERSIONS[-1]):
    return node.ask("[%s]" % ", ".join("rc(%s)" % call for call in calls), wheel)


def test_values_out_of_range_are_refused_and_change_nothing(booted):
    assert ask_codes(booted, REFUSED) == [2] * len(REFUSED)
    assert ask_codes(booted, ["n.nvmlDeviceSetComputeMode, handle(), 1"]) == [3]
    assert not [
        name for name in ("run/gpusim/settings.ini", "var/lib/gpusim/inforom.ini") if (booted.root / name).exists()
    ]


def test_what_a_driver_load_takes_and_what_it_leaves(booted):
    booted.ask(
        "[n.nvmlDeviceSetPowerManagementLimit(handle(1), 500000), n.nvmlDeviceSetApplicationsClocks(handle(1), 2619, "
        "1410), n.nvmlDeviceSetGpuLockedClocks(handle(1), 1200, 1500), n.nvmlDeviceSetComputeMode(handle(1), 3), "
        "n.nvmlDeviceSetPersistenceMode(handle(1), 1), n.nvmlDeviceSetEccMode(handle(2), 0)]"
    )
    booted.sim("inject", "set", "ecc_vol_unc", "4", "--gpu", "1")
    booted.sim("inject", "set", "ecc_agg_unc", "4", "--gpu", "1")
    question = (
        "[n.nvmlDeviceGetPowerManagementLimit(handle(1)), n.nvmlDeviceGetApplicationsClock(handle(1), 1), "
        "n.nvmlDeviceGetClockInfo(handle(1), 1), n.nvmlDeviceGetComputeMode(handle(1)), "
        "n.nvmlDeviceGetPersistenceMode(handle(1)), n.nvmlDeviceGetEccMode(handle(2)), "
        "n.nvmlDeviceGetTotalEccErrors(handle(1), 1, 0), n.nvmlDeviceGetTotalEccErrors(handle(1), 1, 1)]"
    )
    assert booted.ask(question) == [500000, 1410, 1200, 3, 1, [1, 0], 4, 4]
    booted.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    booted.tool("modprobe", "nvidia")
    assert booted.ask(question) == [700000, 1980, 345, 0, 0, [0, 0], 0, 4]


CALLS = (
    "n.nvmlDeviceSetPowerManagementLimit, handle(), 300000",
    "n.nvmlDeviceSetApplicationsClocks, handle(), 2619, 1410",
    "n.nvmlDeviceResetApplicationsClocks, handle()",
    "n.nvmlDeviceSetGpuLockedClocks, handle(), 1000, 1500",
    "n.nvmlDeviceResetGpuLockedClocks, handle()",
    "n.nvmlDeviceSetMemoryLockedClocks, handle(), 1593, 2619",
    "n.nvmlDeviceResetMemoryLockedClocks, handle()",
    "n.nvmlDeviceSetComputeMode, handle(), 3",
    "n.nvmlDeviceSetPersistenceMode, handle(), 1",
    "n.nvmlDeviceSetEccMode, handle(), 0",
    "n.nvmlDeviceSetMigMode, handle(), 1",
)


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_who_may_set(booted, wheel):
    booted.sim("inject", "set", "unprivileged", "1")
    assert ask_codes(booted, CALLS, wheel) == [4] * len(CALLS)
    booted.sim("clear")
    assert ask_codes(booted, CALLS, wheel) == [0] * len(CALLS)


def test_only_a_setter_can_be_ignored(booted):
    refused = booted.sim("inject", "ignored", "nvmlDeviceGetUUID", check=False)
    assert refused.returncode != 0 and "takes a function that sets something, not 'nvmlDeviceGetUUID'" in refused.stderr


def test_memory_clocks_are_locked_from_ampere_on(make_node):
    question = (
        "[rc(n.nvmlDeviceSetMemoryLockedClocks, handle(), 800, 800), rc(n.nvmlDeviceSetGpuLockedClocks, "
        "handle(), 800, 900)]"
    )
    assert make_node("v100-sxm", 1).booted().ask(question) == [3, 0]
    assert make_node("a100-sxm", 1).booted().ask(question) == [0, 0]
