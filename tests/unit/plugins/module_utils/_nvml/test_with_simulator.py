# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reading pass against the simulated libnvidia-ml.so.1: real C calls, real structures."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import snapshot, subsets
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import cutoff, wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

UTILS = pathlib.Path(snapshot.__file__).resolve().parents[2]
HELPERS = str(pathlib.Path(cutoff.__file__).parent)
CODE = """
import json, sys
sys.path.insert(0, %r)
from module_utils._nvml import session, snapshot, subsets
sys.path.insert(0, %r)
import cutoff
session.finish = cutoff.finish_when(session.finish)
print(json.dumps(snapshot.take(deadline_s=600, stuck_file=%r)))
"""


@pytest.fixture
def node(make_node):
    return make_node(gpus=3)


def take(node, wheel=wheels.VERSIONS[-1]):
    """As on a node: a fresh process, which is what sees a changed library.

    The deadline of a call that hangs passes when it does.
    """
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheel)))
    done = simnode.run([sys.executable, "-c", CODE % (str(UTILS), HELPERS, str(node.root / "stuck"))], env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_every_value_of_a_healthy_node(node, wheel):
    node.firmware(simnode.OLD)
    taken = take(node.booted(), wheel)
    assert (taken["status"], taken["simulated"], taken["count"]["value"], taken["message"]) == ("ok", True, 3, "")
    assert taken["system"]["driver_version"] == {"value": simnode.OLD, "rc": 0}
    assert len(set(gpu["uuid"]["value"] for gpu in taken["gpus"])) == 3
    for gpu in taken["gpus"]:
        # Hopper retires no pages, drivers before R570 know no recovery action, and three calls are newer than this
        # driver.
        assert unanswered(gpu) == {
            "retired_pages": "NOT_SUPPORTED",
            "retired_pages_pending": "NOT_SUPPORTED",
            "recovery_action": "NOT_SUPPORTED",
            "addressing_mode": "FUNCTION_NOT_FOUND",
            "repair_status": "FUNCTION_NOT_FOUND",
            "temperature_margin_c": "FUNCTION_NOT_FOUND",
        }
        assert gpu["nvlink_active"]["value"] == [True] * 18
        assert [(link["link"], link["active"], link["remote_type"]) for link in gpu["nvlinks"]["value"]] == [
            (link, True, "switch") for link in range(18)
        ]
        assert all(set(link["errors"].values()) == {0} for link in gpu["nvlinks"]["value"])
        others = set(other["uuid"]["value"] for other in taken["gpus"]) - {gpu["uuid"]["value"]}
        assert gpu["p2p"]["value"] == dict(
            (uuid, {"read": 0, "write": 0, "nvlink": 0, "atomics": 0}) for uuid in others
        )
        assert gpu["sram_ecc"]["value"]["threshold_exceeded"] is False and gpu["inforom_valid"]["value"] is True
        assert gpu["fabric_state"]["value"]["state"] == 3
        assert gpu["pci_device_id"]["value"] == "10de:2330"
        assert gpu["memory_total_bytes"]["value"] == 81559 * 1024 * 1024
        assert gpu["power_limit_mw"]["value"] == 700000
        assert gpu["compute_processes"]["value"] == []
        assert gpu["gsp_firmware_version"]["value"] == simnode.OLD


def unanswered(gpu):
    return dict((key, gpu[key]["error"]) for key in snapshot.GPU_KEYS if gpu[key]["rc"] != 0)


@pytest.fixture
def other_node(make_node):
    """A node of another model, booted with another driver."""

    def make(model, driver, gpus, licence="NVIDIA"):
        made = make_node(model, gpus, "node-2")
        made.firmware(driver)
        made.kernel()
        made.module(driver, licence=licence)
        made.library(driver)
        made.sim("boot")
        return made

    return make


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
@pytest.mark.parametrize(
    "model, driver, missing",
    [
        ("h100-sxm", "580.95.05", {"retired_pages", "retired_pages_pending"}),
        # A board without NVLink, fabric and row remapping in HBM; the old driver has no newer calls.
        (
            "l4",
            simnode.OLD,
            {
                "retired_pages",
                "retired_pages_pending",
                "recovery_action",
                "addressing_mode",
                "repair_status",
                "temperature_margin_c",
                "nvlink_active",
                "nvlinks",
                "fabric",
                "fabric_state",
                "mig_mode_current",
                "mig_mode_pending",
                "mig_instances",
                "temperature_memory_c",
            },
        ),
    ],
)
def test_another_board_and_driver_lack_what_they_lack(other_node, wheel, model, driver, missing):
    taken = take(other_node(model, driver, 2), wheel)
    assert taken["status"] == "ok"
    for gpu in taken["gpus"]:
        assert set(unanswered(gpu)) == missing, unanswered(gpu)
        assert set(unanswered(gpu).values()) <= {"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "INVALID_ARGUMENT"}


def test_links_of_the_newest_boards(other_node):
    node = other_node("b200", "580.95.05", 2, "Dual MIT/GPL")
    node.sim("inject", "set", "nvlink_recovery", "3:7", "--gpu", "1")
    taken = take(node)
    assert taken["status"] == "ok", taken["message"]
    first, second = taken["gpus"]
    names = {"replay", "recovery", "crc_flit", "crc_data", "recovery_failed", "effective", "symbol"}
    assert all(set(link["errors"]) == names for gpu in (first, second) for link in gpu["nvlinks"]["value"])
    assert [link["errors"]["recovery"] for link in first["nvlinks"]["value"]] == [0] * 18
    assert [link["errors"]["recovery"] for link in second["nvlinks"]["value"]] == [0] * 3 + [7] + [0] * 14
    assert set(link["errors"]["crc_flit"] for link in second["nvlinks"]["value"]) == {None}


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_mig_instances(node, wheel):
    node.booted().python("""
n.nvmlInit()
gpu = handle(1)
n.nvmlDeviceSetMigMode(gpu, 1)
for profile, compute in ((14, [0, 0]), (9, [2])):
    instance = n.nvmlDeviceCreateGpuInstance(gpu, profile)
    for item in compute:
        n.nvmlGpuInstanceCreateComputeInstance(instance, item)
print("null")
""")
    first, second = take(node, wheel)["gpus"][:2]
    assert first["mig_instances"] == {"value": [], "rc": 0} and first["mig_mode_current"] == {"value": 0, "rc": 0}
    assert second["mig_mode_current"] == {"value": 1, "rc": 0} and second["mig_max_devices"] == {"value": 7, "rc": 0}
    instances = second["mig_instances"]["value"]
    uuids = [instance.pop("uuid") for instance in instances]
    assert len(set(uuids)) == 3 and all(uuid.startswith("MIG-") for uuid in uuids)
    big, small = 40448 << 20, 20096 << 20
    board = "NVIDIA H100 80GB HBM3 MIG "
    assert sorted(
        (item["slices"], item["compute_slices"], item["memory_bytes"], item["name"]) for item in instances
    ) == [(2, 1, small, board + "1c.2g.20gb"), (2, 1, small, board + "1c.2g.20gb"), (3, 3, big, board + "3g.40gb")]
    assert len(set((item["gpu_instance"], item["compute_instance"]) for item in instances)) == 3
    # NVML does not tell about rows while there are instances; the fields do.
    assert second["remapped_rows"] == {
        "value": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
        "rc": 0,
    }


def test_what_is_not_gathered_is_not_asked(node):
    node.booted()
    node.sim("inject", "hang", "nvmlDeviceGetPowerUsage", "forever")
    code = CODE.replace("stuck_file=%r", "stuck_file=%r, gather=['!power', '!p2p']")
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheels.VERSIONS[-1])))
    done = simnode.run([sys.executable, "-c", code % (str(UTILS), HELPERS, str(node.root / "stuck"))], env=environment)
    assert done.returncode == 0, done.stderr
    taken = json.loads(done.stdout)
    assert taken["status"] == "ok"
    assert taken["subsets"] == [name for name in subsets.NAMES if name not in ("power", "p2p")]
    left_out = {"p2p", "power_usage_mw", "power_limit_mw"}
    assert left_out.isdisjoint(taken["gpus"][0]) and "nvlinks" in taken["gpus"][0]


@pytest.mark.parametrize(
    "prepare, rc",
    [
        (lambda node: node.prepare(), 12),
        (lambda node: node.library(simnode.OLD), 9),
        (lambda node: node.booted().library(simnode.NEW), 18),
    ],
)
def test_a_driver_that_is_not_whole_is_data(node, prepare, rc):
    prepare(node)
    taken = take(node)
    assert (taken["status"], taken["nvml"]["rc"], taken["simulated"]) == ("nvml_error", rc, True)


def test_a_call_that_hangs_is_ended_at_the_deadline_and_named(node):
    node.booted()
    node.sim("inject", "hang", "nvmlDeviceGetPowerUsage", "forever")
    taken = take(node)
    assert taken["status"] == "timeout" and "in nvmlDeviceGetPowerUsage" in taken["message"]
    assert taken["gpus"] == []
    node.sim("clear")
    assert take(node)["status"] == "ok"
