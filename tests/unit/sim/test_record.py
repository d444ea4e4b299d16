# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorder of a GPU's answers, run against the simulated library: every code is kept, and nobody's identity is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

NO_UUID = "GPU-00000000-0000-0000-0000-000000000000"


def record(node, out, *words, check=True):
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheels.VERSIONS[-1])))
    return subprocess.run(
        [sys.executable, "-m", "tests.sim.record", str(out), *words],
        env=environment,
        cwd=str(simnode.SIM.parents[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=simnode.LIMIT_S,
        check=check,
    )


@pytest.fixture
def node(make_node):
    return make_node(gpus=2).booted()


def test_values_and_codes_are_kept(node, tmp_path):
    node.sim("inject", "error", "nvmlDeviceGetComputeMode", "999", "--gpu", "1")
    record(node, tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["schema"], len(document["devices"])) == ("gpufleet.recording/1", 2)
    assert document["system"]["nvmlSystemGetDriverVersion"]["rc"] == 0
    assert document["system"]["nvmlSystemGetDriverVersion"]["value"] == simnode.OLD
    first, second = [device["calls"] for device in document["devices"]]
    assert (first["nvmlDeviceGetPowerManagementLimit"]["rc"], first["nvmlDeviceGetPowerManagementLimit"]["value"]) == (
        0,
        700000,
    )
    assert first["nvmlDeviceGetComputeMode"]["rc"] == 0
    assert second["nvmlDeviceGetComputeMode"]["rc"] == 999 and "value" not in second["nvmlDeviceGetComputeMode"]
    assert [(one["args"], one["rc"], one["value"]) for one in first["nvmlDeviceGetNvLinkState"]] == [
        ([link], 0, 1) for link in range(18)
    ]
    # A structure is kept by its fields, with its size.
    assert (
        first["nvmlDeviceGetMemoryInfo"]["value"]["total"] == 81559 * 1024 * 1024
        and first["nvmlDeviceGetMemoryInfo"]["value"]["_sizeof"] == 24
    )
    # Drivers of this age know no recovery action.
    assert document["devices"][0]["fields"]["230"]["rc"] == 3


def test_as_a_fixture_a_call_is_a_line_without_its_time(node, tmp_path):
    record(node, tmp_path / "out.json", "short")
    text = (tmp_path / "out.json").read_text()
    calls = json.loads(text)["devices"][1]["calls"]
    assert calls["nvmlDeviceGetPowerManagementLimit"] == {"rc": 0, "value": 700000}
    assert [set(one) for one in calls["nvmlDeviceGetNvLinkState"]] == [{"args", "rc", "value"}] * 18
    assert text.count('\n"nvmlDeviceGetNvLinkState": [') == 2 and '"ms"' not in text and NO_UUID in text


def test_mig_profiles_and_clocks_are_asked_for_by_what_was_answered_before(node, tmp_path):
    record(node, tmp_path / "out.json")
    device = json.loads((tmp_path / "out.json").read_text())["devices"][0]
    calls = device["calls"]
    profiles = [one for one in calls["nvmlDeviceGetGpuInstanceProfileInfo"] if one["rc"] == 0]
    numbers = [one["value"]["id"] for one in profiles]
    assert 19 in numbers and len(calls["nvmlDeviceGetGpuInstanceProfileInfo"]) > len(numbers)
    for name in ("ProfileInfoById", "RemainingCapacity", "PossiblePlacements"):
        assert [one["args"] for one in calls["nvmlDeviceGetGpuInstance" + name]] == [[number] for number in numbers]
    clocks = calls["nvmlDeviceGetSupportedMemoryClocks"]["value"]
    assert clocks and [one["args"] for one in calls["nvmlDeviceGetSupportedGraphicsClocks"]] == [
        [mhz] for mhz in clocks
    ]
    assert all(one["rc"] == 0 and one["value"] for one in calls["nvmlDeviceGetSupportedGraphicsClocks"])
    assert sorted(map(int, device["fields"])) == list(range(1, 300))


def test_identities_are_masked(node, tmp_path):
    own = node.ask(
        '[[text(n.nvmlDeviceGetUUID, handle(gpu)), text(n.nvmlDeviceGetSerial, handle(gpu))] for gpu in (0, 1)]'
    )
    record(node, tmp_path / "out.json")
    kept = (tmp_path / "out.json").read_text()
    for uuid, serial in own:
        assert uuid != NO_UUID and len(serial) > 6, "there is something to mask"
        assert uuid not in kept and uuid.partition("-")[2] not in kept and serial not in kept
    for device in json.loads(kept)["devices"]:
        assert device["calls"]["nvmlDeviceGetUUID"]["value"] == NO_UUID
        assert re.match("^0+$", device["calls"]["nvmlDeviceGetSerial"]["value"])
    assert "node-1" not in kept


def test_without_a_driver_nothing_is_written(make_node, tmp_path):
    node = make_node(gpus=1)
    node.prepare()
    done = record(node, tmp_path / "out.json", check=False)
    assert done.returncode != 0 and "NVMLError" in done.stderr
    assert not os.path.exists(str(tmp_path / "out.json"))
