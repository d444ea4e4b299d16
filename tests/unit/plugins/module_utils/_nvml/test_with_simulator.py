# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reading pass and the verdict against the simulated libnvidia-ml.so.1: real C calls, real structures."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import snapshot
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

UTILS = pathlib.Path(snapshot.__file__).resolve().parents[1]
CODE = """
import json, sys
sys.path.insert(0, %r)
from _nvml import snapshot
print(json.dumps(snapshot.take(deadline_s=%d, stuck_file=%r)))
"""


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture
def node(tmp_path, templates):
    node = simnode.Node(tmp_path / "root", simnode.built(), templates, "h100-sxm", 3, "node-1")
    yield node
    node.close()


def take(node, wheel=wheels.VERSIONS[-1], deadline=60):
    """As on a node: a fresh process, which is what sees a changed library."""
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheel)), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([sys.executable, "-c", CODE % (str(UTILS), deadline, str(node.root / "stuck"))], env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def audit(taken, driver=simnode.OLD):
    addresses = [gpu["pci_bus_id"]["value"] for gpu in taken["gpus"]]
    return {"kernel": {"running": "k", "next_boot": "k"}, "pci": [{"address": address} for address in addresses],
            "versions": {"loaded": driver, "library": driver, "modules": {"k": {"version": driver}}}}


@pytest.mark.parametrize("wheel", wheels.VERSIONS)
def test_every_value_of_a_healthy_node(node, wheel):
    node.firmware(simnode.OLD)
    taken = take(node.booted(), wheel)
    assert (taken["status"], taken["simulated"], taken["count"]["value"], taken["message"]) == ("ok", True, 3, "")
    assert taken["system"]["driver_version"] == {"value": simnode.OLD, "rc": 0}
    assert len(set(gpu["uuid"]["value"] for gpu in taken["gpus"])) == 3
    for gpu in taken["gpus"]:
        unanswered = dict((key, gpu[key]["error"]) for key in snapshot.GPU_KEYS if gpu[key]["rc"] != 0)
        # Hopper retires no pages, and drivers before R570 know no recovery action.
        assert unanswered == {"retired_pages_pending": "NOT_SUPPORTED", "recovery_action": "NOT_SUPPORTED"}
        assert gpu["nvlink_active"]["value"] == [True] * 18
        assert gpu["fabric_state"]["value"]["state"] == 3
        assert gpu["pci_device_id"]["value"] == "10de:2330"
        assert gpu["memory_total_bytes"]["value"] == 81559 * 1024 * 1024
        assert gpu["power_limit_mw"]["value"] == 700000
        assert gpu["compute_processes"]["value"] == []
        assert gpu["gsp_firmware_version"]["value"] == simnode.OLD


@pytest.mark.parametrize("prepare, rc", [
    (lambda node: node.prepare(), 12),
    (lambda node: node.library(simnode.OLD), 9),
    (lambda node: node.booted().library(simnode.NEW), 18),
])
def test_a_driver_that_is_not_whole_is_data(node, prepare, rc):
    prepare(node)
    taken = take(node)
    assert (taken["status"], taken["nvml"]["rc"], taken["simulated"]) == ("nvml_error", rc, True)


def test_a_gpu_that_the_new_driver_does_not_bring_up_fails_the_verdict(node):
    before = take(node.booted())
    baseline = _health.baseline_of(before, audit(before), "node-1", "b", "2026-01-01T00:00:00Z")
    node.sim("inject", "gpu-not-brought-up", "--gpu", "2")
    taken = take(node)
    assert [gpu["handle"]["rc"] for gpu in taken["gpus"]] == [0, 0, 15]
    health = _health.evaluate(taken, audit(before), baseline=baseline, phase="post", node="node-1", now="2026-01-01T01:00:00Z")
    assert health["verdict"] == "fail" and health["simulated"] is True
    assert sorted(set(check["id"] for check in health["checks"] if check["status"] == "fail")) == ["gpu.handle", "gpu.on_bus", "gpu.present"]
    node.sim("clear")
    assert _health.evaluate(take(node), audit(before), baseline=baseline, phase="post", node="node-1", now="2026-01-01T01:00:00Z")["verdict"] == "pass"


@pytest.mark.parametrize("fault, expected", [
    (["gpu-lost", "--gpu", "1"], {"gpu.handle", "gpu.on_bus", "gpu.present"}),
    (["gpu-missing", "--gpu", "1"], {"gpu.count", "gpu.on_bus", "gpu.present"}),
    (["ecc-uncorrectable", "--gpu", "1"], {"gpu.ecc_volatile", "gpu.ecc_aggregate"}),
    (["remap-pending", "--gpu", "1"], {"gpu.remap_pending"}),
    (["remap-failed", "--gpu", "1"], {"gpu.remap_failure"}),
    (["nvlink-down", "--gpu", "1", "--link", "3"], {"gpu.nvlink"}),
    (["power-limit-lost", "--gpu", "1"], {"gpu.power_limit"}),
    (["mig-pending", "--gpu", "1"], {"gpu.mig_pending"}),
    (["memory-lost", "--gpu", "1"], {"gpu.memory_total"}),
    (["missing-symbol", "nvmlDeviceGetPersistenceMode"], {"gpu.persistence"}),
    (["error", "nvmlDeviceGetComputeMode", "999"], {"gpu.compute_mode"}),
])
def test_a_fault_is_found_under_its_own_name(node, fault, expected):
    before = take(node.booted())
    baseline = _health.baseline_of(before, audit(before), "node-1", "b", "2026-01-01T00:00:00Z")
    node.sim("inject", *fault)
    health = _health.evaluate(take(node), audit(before), baseline=baseline, phase="post", node="node-1", now="2026-01-01T01:00:00Z")
    assert set(check["id"] for check in health["checks"] if check["status"] == "fail") == expected


def test_a_call_that_hangs_is_ended_at_the_deadline_and_named(node):
    node.booted()
    node.sim("inject", "hang", "nvmlDeviceGetPowerUsage", "forever")
    begun = time.monotonic()
    taken = take(node, deadline=2)
    assert time.monotonic() - begun < 15
    assert taken["status"] == "timeout" and "in nvmlDeviceGetPowerUsage" in taken["message"]
    assert taken["gpus"] == []
    node.sim("clear")
    assert take(node)["status"] == "ok"
