# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings on the simulated library: each status, four steps of idempotence, the way back after a reload, and each
failure.
"""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings.settingsnode import (
    baseline,
    rows,
    settings,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

ALL = {
    "persistence_mode": True,
    "compute_mode": "exclusive_process",
    "power_limit_w": 300,
    "application_clocks_mhz": {"graphics": 1095, "memory": 1215},
    "locked_graphics_clocks_mhz": {"min": 1000, "max": 1200},
    "locked_memory_clocks_mhz": {"min": 1215, "max": 1215},
    "ecc_mode": False,
}


@pytest.fixture
def make(make_node):
    return lambda model="a100-sxm", gpus=2: make_node(model, gpus).booted()


@pytest.fixture
def node(make):
    return make()


def uuids(node):
    return node.ask("[text(n.nvmlDeviceGetUUID, handle(i)) for i in range(n.nvmlDeviceGetCount())]")


def reload(node):
    node.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    node.tool("modprobe", "nvidia")


LIMITS = "[n.nvmlDeviceGetPowerManagementLimit(handle(i)) for i in range(n.nvmlDeviceGetCount())]"


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_check_apply_check_apply(node, wheel):
    """Every setting there is, on every GPU, in the four steps that show whether check mode tells the truth and a second
    run changes nothing.
    """
    quiet = node.ask(LIMITS)
    first = settings(node, check=True, wheel=wheel, **ALL)
    assert first["changed"] is True and "failed" not in first and node.ask(LIMITS) == quiet
    assert not (node.root / "var/lib/gpufleet").exists()
    second = settings(node, wheel=wheel, **ALL)
    assert second["changed"] is True and "failed" not in second
    # What check mode promised is what came, and each setting of each GPU has its row.
    assert second["settings"] == first["settings"] and second["diff"] == first["diff"]
    assert [(row["gpu"], row["setting"]) for row in second["settings"]] == [
        (uuid, name) for uuid in uuids(node) for name in table.NAMES
    ]
    assert set(rows(second, "setting", "status")) == {
        ("persistence_mode", "changed"),
        ("compute_mode", "changed"),
        ("power_limit_w", "changed"),
        ("application_clocks_mhz", "same"),
        ("locked_graphics_clocks_mhz", "unproven"),
        ("locked_memory_clocks_mhz", "unproven"),
        ("ecc_mode", "pending"),
    }
    assert second["reset_required"] is True and node.ask(LIMITS) == [300000, 300000]
    for check in (True, False):
        again = settings(node, check=check, wheel=wheel, **ALL)
        assert again["changed"] is False and "failed" not in again and again["reset_required"] is True
        assert again["diff"] == {"before": {}, "after": {}}
        assert set(rows(again, "setting", "status")) == {
            ("persistence_mode", "same"),
            ("compute_mode", "same"),
            ("power_limit_w", "same"),
            ("application_clocks_mhz", "same"),
            ("locked_graphics_clocks_mhz", "unproven"),
            ("locked_memory_clocks_mhz", "unproven"),
            ("ecc_mode", "pending"),
        }
    assert again["warnings"] == []


def test_values_are_shown_as_the_options_have_them(node):
    wanted = dict(ALL)
    wanted["application_clocks_mhz"] = {"graphics": 1410, "memory": 1215}
    result = settings(node, gpus=["0"], **wanted)
    assert rows(result, "setting", "before", "wanted", "after", "changed") == [
        ("persistence_mode", False, True, True, True),
        ("compute_mode", "default", "exclusive_process", "exclusive_process", True),
        ("power_limit_w", 400.0, 300.0, 300.0, True),
        (
            "application_clocks_mhz",
            {"graphics": 1095, "memory": 1215},
            {"graphics": 1410, "memory": 1215},
            {"graphics": 1410, "memory": 1215},
            True,
        ),
        ("locked_graphics_clocks_mhz", None, {"min": 1000, "max": 1200}, {"min": 1000, "max": 1200}, True),
        ("locked_memory_clocks_mhz", None, {"min": 1215, "max": 1215}, {"min": 1215, "max": 1215}, True),
        ("ecc_mode", {"current": True, "pending": True}, False, {"current": True, "pending": False}, True),
    ]
    uuid = uuids(node)[0]
    assert result["diff"]["before"][uuid]["power_limit_w"] == 400.0
    assert result["diff"]["after"][uuid]["power_limit_w"] == 300.0
    assert list(result["diff"]["after"]) == [uuid]
    assert [row["lost_at"] for row in result["settings"]][-1].startswith("never")
    assert result["settings"][-1]["pending_until"] == "GPU reset or reboot"
    assert result["simulated"] is True and result["driver_version"] == simnode.OLD
    assert result["msg"] == "GPU settings: 4 changed, 1 pending, 2 unproven; a GPU reset or reboot is required"


def test_gpus_are_chosen_by_uuid_address_and_index(node):
    address = node.ask("n.nvmlDeviceGetPciInfo(handle(1)).bus")
    for name, expected in ((uuids(node)[1], 300000), ("0000:%02x:00.0" % address, 250000), ("1", 200000)):
        assert settings(node, gpus=[name], power_limit_w=expected // 1000)["changed"] is True
        assert node.ask(LIMITS) == [400000, expected]
    refused = settings(node, gpus=["7"], power_limit_w=300)
    assert refused["failed"] is True and "gpus has '7', and that is no GPU of this node" in refused["msg"]
    assert "nothing was set" in refused["msg"]


def test_default_and_unlocked_go_back(node):
    settings(node, **ALL)
    result = settings(
        node,
        power_limit_w="default",
        application_clocks_mhz={"default": True},
        locked_graphics_clocks_mhz={"unlocked": True},
    )
    assert set((row["setting"], str(row["wanted"]), row["status"], row["changed"]) for row in result["settings"]) == {
        ("power_limit_w", "400.0", "changed", True),
        ("application_clocks_mhz", "{'graphics': 1095, 'memory': 1215}", "same", False),
        ("locked_graphics_clocks_mhz", "unlocked", "unproven", True),
    }
    assert node.ask("n.nvmlDeviceGetClockInfo(handle(), 0)") == 210
    again = settings(node, power_limit_w="default", locked_graphics_clocks_mhz={"unlocked": True})
    assert again["changed"] is False


def test_locked_clocks_are_kept_on_the_node_and_set_again_each_time(node):
    wanted = {"locked_graphics_clocks_mhz": {"min": 1000, "max": 1200}}
    assert settings(node, **wanted)["changed"] is True
    kept = json.loads(node.read("var/lib/gpufleet/settings.json"))
    assert kept["schema"] == "gpufleet.settings/1" and set(kept["gpus"]) == set(uuids(node))
    # Somebody unlocks the clocks: nobody can see it, and the next run locks them again.
    node.ask("n.nvmlDeviceResetGpuLockedClocks(handle())")
    result = settings(node, **wanted)
    assert set(rows(result, "status", "changed")) == {("unproven", False)}
    assert node.ask("n.nvmlDeviceGetClockInfo(handle(), 0)") == 1000


def test_ecc_waits_for_a_reset_and_stays_after_the_reboot(node):
    result = settings(node, ecc_mode=False)
    assert set(rows(result, "status", "changed")) == {("pending", True)} and result["reset_required"] is True
    assert rows(settings(node, ecc_mode=True), "status", "changed") == [("changed", True)] * 2
    settings(node, ecc_mode=False)
    node.sim("boot")
    result = settings(node, ecc_mode=False)
    assert set(rows(result, "status", "changed")) == {("same", False)} and result["reset_required"] is False


# ---- restoring ----


@pytest.mark.parametrize("way", ["reload", "reboot"])
def test_restored_after_the_driver_forgot(node, way):
    wanted = dict(ALL)
    wanted["application_clocks_mhz"] = {"graphics": 1410, "memory": 1215}
    settings(node, **wanted)
    before = baseline(node)
    if way == "reboot":
        (node.root / "run/gpusim/settings.ini").unlink()
        node.sim("boot")
    else:
        reload(node)
    assert node.ask(LIMITS) == [400000, 400000]
    result = settings(node, state="restored", baseline=before)
    assert "failed" not in result and result["changed"] is True
    # The pending ECC mode came into force meanwhile.
    assert set((row["setting"], row["status"]) for row in result["settings"]) == {
        ("persistence_mode", "changed"),
        ("compute_mode", "changed"),
        ("power_limit_w", "changed"),
        ("application_clocks_mhz", "changed"),
        ("locked_graphics_clocks_mhz", "unproven"),
        ("locked_memory_clocks_mhz", "unproven"),
        ("ecc_mode", "same"),
    }
    assert node.ask(LIMITS) == [300000, 300000] and node.ask("n.nvmlDeviceGetClockInfo(handle(1), 0)") == 1000
    again = settings(node, state="restored", baseline=before)
    assert again["changed"] is False and set(rows(again, "status")) == {("same",), ("unproven",)}


def test_a_reload_shows_as_a_change_of_locked_clocks(node):
    settings(node, locked_graphics_clocks_mhz={"min": 1000, "max": 1200})
    node.module(simnode.NEW)
    node.library(simnode.NEW)
    node.sim("boot")
    result = settings(node, state="restored", baseline=baseline(node))
    assert [(row["before"], row["changed"]) for row in result["settings"] if row["status"] == "unproven"] == [
        (None, True)
    ] * 2


def test_only_what_is_asked_for_is_restored(node):
    settings(node, power_limit_w=300, compute_mode="prohibited")
    before = baseline(node)
    reload(node)
    result = settings(node, state="restored", baseline=before, settings=["power_limit_w"])
    assert set(rows(result, "setting")) == {("power_limit_w",)}
    assert node.ask("n.nvmlDeviceGetComputeMode(handle())") == 0


def test_a_board_without_application_clocks_is_no_failure_unless_asked(make):
    node = make("h200", 1)
    for name in (
        "nvmlDeviceGetApplicationsClock",
        "nvmlDeviceGetDefaultApplicationsClock",
        "nvmlDeviceSetApplicationsClocks",
    ):
        node.sim("inject", "error", name, "3")
    result = settings(node, state="restored", baseline=baseline(node))
    assert ("application_clocks_mhz", "not_supported") in rows(result, "setting", "status") and "failed" not in result
    refused = settings(node, application_clocks_mhz={"graphics": 1000, "memory": 1000}, power_limit_w=400)
    assert refused["failed"] is True and "it is not supported here" in refused["msg"]
    assert "[NVML 3, NOT_SUPPORTED]" in refused["msg"]
    # Nothing else was set either.
    assert node.ask(LIMITS) == [700000]
    assert rows(refused, "setting", "status") == [("power_limit_w", "failed"), ("application_clocks_mhz", "failed")]
    assert [failure["setting"] for failure in refused["failures"]] == ["application_clocks_mhz"]


# ---- nothing is set before all GPUs were checked ----

# One for each reader; every decision is a row of test_plan.py.
REFUSED = [
    ({"power_limit_w": 450}, (), "the board takes 100 to 400 W; choose a limit in this range", None),
    ({"power_limit_w": 300}, ("gpu-lost", "--gpu", "1"), "NVML does not open the GPU", 15),
    ({"power_limit_w": 300}, ("permission-denied",), "run it with become: true", 4),
    ({"compute_mode": "prohibited"}, ("stray-process", "graphics", "--gpu", "1"), "drain the node first", None),
    ({"compute_mode": "prohibited"}, ("mig-on", "--gpu", "1"), "the GPU is in MIG mode", None),
]


@pytest.mark.parametrize(
    "wanted, fault, text, code", REFUSED, ids=["%s %s" % (list(row[0])[0], " ".join(row[1][:2])) for row in REFUSED]
)
def test_refused_before_anything_is_set(node, wanted, fault, text, code):
    if fault:
        node.sim("inject", *fault)
    for check in (True, False):
        result = settings(node, check=check, **wanted)
        assert result["failed"] is True and result["changed"] is False and result["msg"].startswith("Nothing was set: ")
        assert text in result["msg"] and code in [failure["code"] for failure in result["failures"]]
        assert set(row["status"] for row in result["settings"]) <= {"failed", "same"}
    assert not (node.root / "run/gpusim/settings.ini").exists()
    assert not (node.root / "var/lib/gpusim/inforom.ini").exists() and not (node.root / "var/lib/gpufleet").exists()


def test_persistence_mode_is_the_daemon_s_business_where_it_runs(node):
    assert node.persistenced().returncode == 0
    assert set(rows(settings(node, persistence_mode=True), "status")) == {("same",)}
    refused = settings(node, persistence_mode=False)
    assert refused["failed"] is True
    assert "nvidia-persistenced runs and decides on the mode; stop and disable its unit" in refused["msg"]
    node.sim("inject", "persistence-lost")
    refused = settings(node, persistence_mode=True)
    assert refused["failed"] is True and "start it without --no-persistence-mode" in refused["msg"]


def test_a_gpu_of_the_baseline_that_is_gone(node):
    before = baseline(node)
    gone = uuids(node)[1]
    node.sim("inject", "gpu-missing", "--gpu", "1")
    result = settings(node, state="restored", baseline=before)
    assert result["failed"] is True and "%s: NVML does not show this GPU of the baseline" % (gone,) in result["msg"]
    # Whoever names the others gets them restored.
    assert "failed" not in settings(node, state="restored", baseline=before, gpus=["0"])


def test_a_gpu_that_the_baseline_does_not_have(node):
    before = baseline(node)
    node.sim("inject", "gpu-replaced", "--gpu", "1")
    result = settings(node, state="restored", baseline=before, gpus=["1"])
    assert result["failed"] is True and "the baseline does not have this GPU; was the board replaced?" in result["msg"]


def test_a_baseline_that_does_not_tell(node):
    before = baseline(node)
    del before["snapshot"]["gpus"][0]["power_limit_mw"]
    before["snapshot"]["gpus"][1]["compute_mode"] = {"value": None, "rc": 999, "error": "UNKNOWN"}
    result = settings(node, state="restored", baseline=before)
    assert result["failed"] is True and "the baseline has no power_limit_mw of this GPU" in result["msg"]
    assert "the baseline does not tell compute_mode of this GPU (UNKNOWN)" in result["msg"]
    assert "failed" not in settings(node, state="restored", baseline=before, settings=["ecc_mode"])
    assert "holds no reading of its GPUs" in settings(node, state="restored", baseline={"snapshot": {}})["msg"]


def test_a_damaged_file_of_kept_clocks(node):
    before = baseline(node)
    node.write("var/lib/gpufleet/settings.json", "{")
    refused = settings(node, state="restored", baseline=before)
    assert refused["failed"] is True and "var/lib/gpufleet/settings.json is damaged" in refused["msg"]
    assert "Next step: remove the file" in refused["msg"]
    assert "failed" not in settings(node, state="restored", baseline=before, settings=["power_limit_w"])
    result = settings(node, locked_graphics_clocks_mhz={"min": 1000, "max": 1200})
    assert "failed" not in result and "is damaged" in result["warnings"][0]
    assert settings(node, state="restored", baseline=before)["warnings"] == result["warnings"][1:]


# ---- setting fails ----

SETTERS = {
    "power_limit_w": 300,
    "compute_mode": "prohibited",
    "persistence_mode": True,
    "ecc_mode": False,
    "application_clocks_mhz": {"graphics": 1410, "memory": 1215},
    "locked_graphics_clocks_mhz": {"min": 1000, "max": 1200},
    "locked_memory_clocks_mhz": {"min": 1215, "max": 1215},
}


@pytest.mark.parametrize("name", sorted(SETTERS))
def test_a_setter_that_is_refused(node, name):
    symbol = table.BY_NAME[name].setter
    node.sim("inject", "error", symbol, "15", "--gpu", "0")
    result = settings(node, **{name: SETTERS[name]})
    assert result["failed"] is True and len(result["failures"]) == 1
    assert "NVML refuses %s: " % (symbol,) in result["msg"]
    # The other GPU was set, and the result says so.
    assert [row["status"] for row in result["settings"]][0] == "failed"
    assert result["settings"][1]["status"] in ("changed", "unproven", "pending")
    assert result["changed"] is True
    failure = result["failures"][0]
    assert (failure["gpu"], failure["setting"], failure["code"]) == (uuids(node)[0], name, 15)
    assert failure["expected"] == result["settings"][0]["wanted"]
    assert failure["found"] == result["settings"][0]["before"]


@pytest.mark.parametrize("name", sorted(name for name in SETTERS if table.BY_NAME[name].getter))
def test_a_setter_that_says_yes_and_does_nothing_is_found_out(node, name):
    symbol = table.BY_NAME[name].setter
    node.sim("inject", "ignored", symbol, "--gpu", "0")
    result = settings(node, **{name: SETTERS[name]})
    assert result["failed"] is True and "NVML answered SUCCESS to %s, and it reads " % (symbol,) in result["msg"]
    assert [row["status"] for row in result["settings"]][0] == "failed" and result["settings"][0]["changed"] is False
    assert len(result["failures"]) == 1


def test_after_a_failure_the_gpu_is_left_alone(node):
    node.sim("inject", "error", "nvmlDeviceSetPowerManagementLimit", "15", "--gpu", "0")
    result = settings(node, gpus=["0"], **dict(SETTERS))
    assert [(row["setting"], row["status"]) for row in result["settings"]] == [
        ("persistence_mode", "changed"),
        ("compute_mode", "changed"),
        ("power_limit_w", "failed"),
        ("application_clocks_mhz", "failed"),
        ("locked_graphics_clocks_mhz", "failed"),
        ("locked_memory_clocks_mhz", "failed"),
        ("ecc_mode", "failed"),
    ]
    assert "nvmlDeviceSetEccMode was not tried, as something before it failed" in result["failures"][-1]["message"]
    assert not (node.root / "var/lib/gpufleet").exists()


def test_what_the_driver_forgets_at_once_is_found_out(node):
    """In the session that sets it, the value reads as wanted; another one shows what is left."""
    node.sim("inject", "settings-forgotten")
    result = settings(node, power_limit_w=300)
    assert result["failed"] is True and result["changed"] is False
    assert (
        "it reads 400; persistence mode is off, and then the driver forgets it with the last program" in result["msg"]
    )
    assert "failed" not in settings(node, power_limit_w=300, persistence_mode=True)


@pytest.mark.parametrize(
    "symbol, seconds, text",
    [
        ("nvmlDeviceSetPowerManagementLimit", "forever", "within 600 s in nvmlDeviceSetPowerManagementLimit of GPU-"),
        ("nvmlDeviceGetPowerManagementLimit", "forever", "NVML cannot be read (timeout), and nothing was set: NVML"),
    ],
)
def test_a_call_that_hangs(node, symbol, seconds, text):
    node.sim("inject", "hang", symbol, seconds, "--gpu", "0")
    result = settings(node, power_limit_w=300, timeout_s=600)
    assert result["failed"] is True and text in result["msg"] and result["changed"] is False
    assert all(row["status"] == "failed" for row in result.get("settings", []))
    assert node.ask("n.nvmlDeviceGetPowerManagementLimit(handle(1))") == 400000


@pytest.mark.parametrize(
    "prepare, text",
    [
        (
            lambda node: [
                node.sim("inject", "error", symbol, "999") for symbol in ("nvmlInit_v2", "nvmlInitWithFlags")
            ],
            "NVML did not start: UNKNOWN (999)",
        ),
        (lambda node: node.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm"), "not start: DRIVER_NOT_LOADED (9)"),
        (lambda node: node.library(simnode.NEW), "NVML did not start: LIB_RM_VERSION_MISMATCH (18)"),
    ],
)
def test_nvml_that_does_not_start(node, prepare, text):
    prepare(node)
    result = settings(node, power_limit_w=300)
    assert result["failed"] is True and "NVML cannot be read (nvml_error), and nothing was set: " in result["msg"]
    assert text in result["msg"]
