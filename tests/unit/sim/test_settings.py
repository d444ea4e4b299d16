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
    "n.nvmlDeviceClearEccErrorCounts, handle(), 2",
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


def test_clearing_error_counts(booted):
    booted.write("var/lib/gpusim/inforom.ini", "[gpu 1]\necc_agg_unc = 3\n")
    booted.write("run/gpusim/settings.ini", "[gpu 1]\necc_vol_unc = 2\n")
    question = "[n.nvmlDeviceGetTotalEccErrors(handle(1), 1, counter) for counter in (0, 1)]"
    assert booted.ask(question) == [2, 3]
    booted.ask("n.nvmlDeviceClearEccErrorCounts(handle(1), 0)")
    assert booted.ask(question) == [0, 3]
    booted.ask("n.nvmlDeviceClearEccErrorCounts(handle(1), 1)")
    assert booted.ask(question) == [0, 0]


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
    "n.nvmlDeviceClearEccErrorCounts, handle(), 0",
    "n.nvmlDeviceSetMigMode, handle(), 1",
)


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_who_may_set(booted, wheel):
    booted.sim("inject", "set", "unprivileged", "1")
    assert ask_codes(booted, CALLS, wheel) == [4] * len(CALLS)
    booted.sim("clear")
    assert ask_codes(booted, CALLS, wheel) == [0] * len(CALLS)


IGNORED = {
    "n.nvmlDeviceSetPowerManagementLimit, handle(1), 300000": "n.nvmlDeviceGetPowerManagementLimit(handle(1))",
    "n.nvmlDeviceSetApplicationsClocks, handle(1), 2619, 1410": "n.nvmlDeviceGetApplicationsClock(handle(1), 0)",
    "n.nvmlDeviceSetGpuLockedClocks, handle(1), 1000, 1500": "n.nvmlDeviceGetClockInfo(handle(1), 0)",
    "n.nvmlDeviceSetMemoryLockedClocks, handle(1), 1000, 1500": "n.nvmlDeviceGetClockInfo(handle(1), 2)",
    "n.nvmlDeviceSetComputeMode, handle(1), 3": "n.nvmlDeviceGetComputeMode(handle(1))",
    "n.nvmlDeviceSetPersistenceMode, handle(1), 1": "n.nvmlDeviceGetPersistenceMode(handle(1))",
    "n.nvmlDeviceSetEccMode, handle(1), 0": "n.nvmlDeviceGetEccMode(handle(1))[1]",
}


def test_ignored_setters_answer_success_and_change_nothing(booted):
    questions = "[%s]" % ", ".join(IGNORED.values())
    before = booted.ask(questions)
    for call in IGNORED:
        booted.sim("inject", "ignored", call.split(",")[0][2:], "--gpu", "1")
    assert ask_codes(booted, IGNORED) == [0] * len(IGNORED) and booted.ask(questions) == before
    booted.sim("clear")
    assert ask_codes(booted, IGNORED) == [0] * len(IGNORED)
    assert [old == new for old, new in zip(before, booted.ask(questions))] == [False] * len(IGNORED)


def test_only_a_setter_can_be_ignored(booted):
    refused = booted.sim("inject", "ignored", "nvmlDeviceGetUUID", check=False)
    assert refused.returncode != 0 and "takes a function that sets something, not 'nvmlDeviceGetUUID'" in refused.stderr


def test_without_persistence_mode_settings_can_be_forgotten_when_a_process_ends(booted):
    booted.sim("inject", "settings-forgotten")
    calls = (
        "[n.nvmlDeviceSetPowerManagementLimit(handle(1), 500000), n.nvmlDeviceSetApplicationsClocks(handle(1), 2619, "
        "1410), n.nvmlDeviceSetGpuLockedClocks(handle(1), 1200, 1500), n.nvmlDeviceSetComputeMode(handle(1), 3)]"
    )
    question = (
        "[n.nvmlDeviceGetPowerManagementLimit(handle(1)), n.nvmlDeviceGetApplicationsClock(handle(1), 1), "
        "n.nvmlDeviceGetClockInfo(handle(1), 1), n.nvmlDeviceGetComputeMode(handle(1))]"
    )
    assert booted.ask("[%s, %s][1]" % (calls, question)) == [500000, 1410, 1200, 3]
    booted.ask("n.nvmlShutdown()")
    assert booted.ask(question) == [700000, 1980, 345, 0]
    booted.ask("n.nvmlDeviceSetPersistenceMode(handle(1), 1)")
    booted.ask(calls)
    booted.ask("n.nvmlShutdown()")
    assert booted.ask(question) == [500000, 1410, 1200, 3]


def test_memory_clocks_are_locked_from_ampere_on(make_node):
    question = (
        "[rc(n.nvmlDeviceSetMemoryLockedClocks, handle(), 800, 800), rc(n.nvmlDeviceSetGpuLockedClocks, "
        "handle(), 800, 900)]"
    )
    assert make_node("v100-sxm", 1).booted().ask(question) == [3, 0]
    assert make_node("a100-sxm", 1).booted().ask(question) == [0, 0]


ECC = "[n.nvmlDeviceGetEccMode(handle(i)) for i in range(n.nvmlDeviceGetCount())]"


def reset(node, *arguments, status=0):
    done = node.tool("nvidia-smi", "--gpu-reset", *arguments, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def small(make_node):
    """Two A100, which can be reset one by one."""
    return make_node("a100-sxm", 2).booted()


def test_pending_modes_take_effect_on_that_gpu_alone(small):
    small.ask("[n.nvmlDeviceSetEccMode(handle(i), 0) for i in (0, 1)]")
    assert small.ask(ECC) == [[1, 0], [1, 0]]
    assert reset(small, "-i", "1") == "GPU 00000000:41:00.0 was successfully reset.\n"
    assert small.ask(ECC) == [[1, 0], [0, 0]]
    assert reset(small).count("was successfully reset") == 2 and small.ask(ECC) == [[0, 0], [0, 0]]


def test_settings_counters_and_repairs_do_not_survive(small):
    small.ask("[n.nvmlDeviceSetPowerManagementLimit(handle(i), 300000) for i in (0, 1)]")
    for fault in ("remap-pending", "ecc-correctable", "channel-repair-pending", "reset-required"):
        small.sim("inject", fault, "--gpu", "1")
    assert small.ask("text(n.nvmlDeviceGetUUID, handle(1))") == "rc 16"
    reset(small, "-i", "00000000:41:00.0")
    assert small.ask("[n.nvmlDeviceGetPowerManagementLimit(handle(i)) for i in (0, 1)]") == [300000, 400000]
    assert small.ask("n.nvmlDeviceGetRemappedRows(handle(1))[2]") == 0
    assert small.ask("n.nvmlDeviceGetTotalEccErrors(handle(1), 0, 0)") == 0
    assert small.ask("n.nvmlDeviceGetTotalEccErrors(handle(1), 0, 1)") == 1000000


@pytest.mark.parametrize("model, profile", [("a100-sxm", "3g.20gb"), ("h100-sxm", "3g.40gb")])
def test_mig_instances_go_and_the_mode_stays(make_node, model, profile):
    node = make_node(model, 2).booted()
    node.sim("mig", "--gpu", "0", profile)
    devices = (
        "[n.nvmlDeviceGetMigMode(handle(0)), value(n.nvmlDeviceGetMigDeviceHandleByIndex, handle(0), 0) == 'rc 6']"
    )
    assert node.ask(devices)[1] is False
    capabilities = node.root / "run/gpusim/proc-driver/nvidia/capabilities/gpu0"
    assert capabilities.is_dir() and list((node.root / "dev/nvidia-caps").glob("nvidia-cap*"))
    reset(node, "-i", "0")
    assert node.ask(devices) == [[1, 1], True]
    assert not capabilities.exists() and not list((node.root / "dev/nvidia-caps").glob("nvidia-cap[3-9]*"))


def test_a_recovery_that_was_asked_for_is_over_and_the_log_says_so(make_node):
    node = make_node("h100-sxm", 2).booted("575.57.08")
    node.sim("inject", "recovery-action", "--gpu", "1", "--value", "1")
    assert node.ask("field(230, 1)") == 1
    reset(node, "-i", "1")
    assert node.ask("field(230, 1)") == 0
    log = node.sim("kmsg").stdout
    assert "Xid (PCI:0000:43:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)" in log


def test_in_use_by_a_process(small):
    small.sim("inject", "stray-process", "--gpu", "1")
    said = reset(small, "-i", "1", status=255)
    assert said.startswith("The following GPUs could not be reset:\n  GPU 00000000:41:00.0: In use by another client\n")
    assert "\n1 device is currently being used" in said
    reset(small, "-i", "0")
    assert "2 devices are" not in reset(small, status=255)


def test_in_use_by_persistence_mode(small):
    small.persistenced()
    assert "In use by another client" in reset(small, "-i", "0", status=255)
    small.tool("nvidia-smi", "-pm", "0", "-i", "0")
    reset(small, "-i", "0")


@pytest.mark.parametrize(
    "model, manager, alone",
    [
        ("v100-sxm", "1", False),
        ("a100-sxm", "0", True),
        ("h100-sxm", "1", True),
        ("h100-sxm", "0", False),
        ("l4", "1", True),
    ],
)
def test_gpus_joined_by_nvlink(make_node, model, manager, alone):
    node = make_node(model, 2).booted()
    node.sim("inject", "set", "fabric_manager", manager)
    said = reset(node, "-i", "0", status=0 if alone else 255)
    assert ("Missing: " + node.ask("text(lambda: n.nvmlDeviceGetPciInfo(handle(1)).busId)") in said) is not alone
    reset(node, "-i", "0,1")


@pytest.mark.parametrize(
    "fault, status, words",
    [
        (["reset-unsupported"], 3, "Not Supported"),
        (["reset-outcome", "fails"], 255, "Unknown Error"),
        (["gpu-lost"], 15, "GPU is lost"),
    ],
)
def test_a_reset_that_fails(small, fault, status, words):
    small.sim("inject", *fault, "--gpu", "0")
    small.ask("n.nvmlDeviceSetEccMode(handle(1), 0)")
    assert words in reset(small, status=status)
    assert small.ask("n.nvmlDeviceGetEccMode(handle(1))") == [1, 0], "none of them is reset when one cannot be"


def test_a_reset_that_says_yes(small):
    small.ask("n.nvmlDeviceSetEccMode(handle(0), 0)")
    small.sim("inject", "reset-outcome", "ignored", "--gpu", "0")
    assert "successfully" in reset(small, "-i", "0") and small.ask("n.nvmlDeviceGetEccMode(handle(0))") == [1, 0]
    small.sim("inject", "reset-outcome", "xid", "--gpu", "1")
    reset(small, "-i", "1")
    assert "119" in small.sim("kmsg").stdout
    small.sim("inject", "reset-outcome", "loses", "--gpu", "1")
    reset(small, "-i", "1")
    assert small.ask("n.nvmlDeviceGetCount()") == 1
