# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorder of a GPU's answers, and the simulator against what it recorded of real ones (fixtures/recordings), call
by call and field by field. What still differs is in KNOWN with its reason, and nothing else is.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import running
from ansible_collections.gpufleet.lifecycle.tests.sim import profile_table
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

RECORDINGS = pathlib.Path(__file__).parent / "fixtures" / "recordings"
SMOKE = pathlib.Path(__file__).parents[1] / "plugins" / "module_utils" / "_smoke" / "fixtures"
RATES = {
    "device_copy": "cuda_copy_gbps",
    "host_to_device": "cuda_h2d_gbps",
    "device_to_host": "cuda_d2h_gbps",
    "matrix_product": "cuda_gflops",
}
DRIVER = "580.159.04"
NO_UUID = "GPU-00000000-0000-0000-0000-000000000000"
CARDS = {"h100-580": "h100-sxm", "h200-580": "h200"}

# Of the machines that were recorded, and not of the models: a virtual machine with one GPU and no NVLinks, and the
# firmware of the card.
MACHINE = {
    "pci": "0000:00:06.0",
    "virtualization_mode": 1,
    "persistence": 1,
    "nvlink_count": 0,
    "addressing_mode": 0,
    "fabric_state": 0,
}
CARD = {
    "h100-580": {"vbios": "96.00.DA.00.0C"},
    "h200-580": {
        "vbios": "96.00.A5.00.1A",
        "board_part_number": "692-2G520-0282-001",
        "inforom_image": "G520.0282.02.02",
        "pci_subsystem_id": "0x18bf10de",
    },
}

# These change from one look to the next: the code and the kind of the answer are compared, and no value.
LIVE = """
    nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetMarginTemperature nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2
    nvmlDeviceGetPowerUsage nvmlDeviceGetTemperature nvmlDeviceGetViolationStatus field.74 field.75 field.76 field.77
    field.78 field.79 field.82
""".split()

# Of each card: the checksum of its InfoROM, which is 0 in that machine.
KNOWN = {"nvmlDeviceGetInforomConfigurationChecksum"}


def record(node, out, *words, check=True):
    """Run the recorder against a simulated node."""
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheels.VERSIONS[-1])))
    return simnode.run(
        [sys.executable, "-m", "tests.sim.record", str(out), *words],
        env=environment,
        cwd=str(simnode.SIM.parents[1]),
        check=check,
    )


def answers(document):
    """{call with its arguments, or field.N: answer}"""
    device = document["devices"][0]
    found = {}
    for name, answer in [*document["system"].items(), *device["calls"].items()]:
        for one in answer if isinstance(answer, list) else [answer]:
            found["%s%s" % (name, json.dumps(one["args"]) if "args" in one else "")] = one
    for group in device["fields"]:
        answer = {key: part for key, part in group.items() if key != "fields"}
        found.update(("field.%d" % number, answer) for number in group["fields"])
    return found


def shape(value):
    """The type of a value, and of a structure also its size and its fields."""
    if isinstance(value, dict):
        return {key: part if key == "_sizeof" else shape(part) for key, part in value.items()}
    return type(value).__name__


def told(name, answer):
    """What of an answer is compared."""
    if answer["rc"] != 0:
        return {"rc": answer["rc"]}
    kept = {key: part for key, part in answer.items() if key != "args"}
    if name.partition("[")[0] in LIVE:
        return {key: part if key in ("rc", "type") else shape(part) for key, part in kept.items()}
    return kept


def read_questions():
    """The names of the functions, and of the fields, that the collection asks for."""
    plugins = simnode.SIM.parents[1] / "plugins" / "module_utils"
    sources = "".join(path.read_text() for path in sorted(plugins.rglob("*.py")))
    numbers = re.findall(r"^FI_\w+ = (\d+)$", sources, re.MULTILINE) + [row[2] for row in running.VIOLATIONS]
    assert len(numbers) > 20
    return set(re.findall(r"nvml\w+", sources)) | {"field.%s" % number for number in numbers}


def differences(real, simulated):
    """The names of the answers that one of them lacks or that differ."""
    return {
        name
        for name in set(real) | set(simulated)
        if name not in real or name not in simulated or told(name, real[name]) != told(name, simulated[name])
    }


def load_recording(card):
    """The recording of a card; that of the H200 holds only the calls and fields that differ from the H100's."""
    document, own = [json.loads((RECORDINGS / (name + ".json")).read_text()) for name in ("h100-580", card)]
    document["devices"][0]["calls"].update(own["devices"][0]["calls"])
    document["devices"][0]["fields"] += own["devices"][0]["fields"]
    return document


def test_the_cuda_library_has_no_function_of_its_own(build):
    listed = simnode.run(["nm", "-D", "--defined-only", str(build / "libcuda.so.1")], check=True)
    ours = {name for name in listed.stdout.split()[2::3] if name.startswith("cu")}
    assert len(ours) > 20 and ours <= set((RECORDINGS / "symbols-cuda-580.txt").read_text().split())


@pytest.mark.parametrize("card", sorted(CARDS))
def test_it_computes_as_fast_as_the_gpu_did(card):
    tests = json.loads((SMOKE / (card + ".json")).read_text())["smoke"]["gpus"][0]["tests"]
    profile = profile_table.profiles()[CARDS[card]]
    for name, key in RATES.items():
        assert float(profile[key]) == pytest.approx(tests[name]["median"], rel=0.001), name


@pytest.mark.parametrize("card", sorted(CARDS))
def test_it_answers_as_the_gpu_did(make_node, tmp_path, card):
    node = make_node(model=CARDS[card], gpus=1)
    node.firmware(DRIVER)
    node.booted(DRIVER)
    for key, value in {**MACHINE, **CARD[card]}.items():
        node.sim("inject", "set", key, str(value), "--gpu", "0")
    record(node, tmp_path / "out.json", "short")
    simulated = json.loads((tmp_path / "out.json").read_text())
    questions = read_questions()
    found = differences(answers(load_recording(card)), answers(simulated))
    assert {name for name in found if name.partition("[")[0] in questions} == KNOWN


@pytest.fixture
def pair(make_node):
    """A node of two H100, booted."""
    return make_node(gpus=2).booted()


def test_recorder_masks_identities(pair, tmp_path):
    own = pair.ask(
        '[[text(n.nvmlDeviceGetUUID, handle(gpu)), text(n.nvmlDeviceGetSerial, handle(gpu))] for gpu in (0, 1)]'
    )
    record(pair, tmp_path / "out.json")
    kept = (tmp_path / "out.json").read_text()
    for uuid, serial in own:
        assert uuid != NO_UUID and len(serial) > 6, "there is something to mask"
        assert uuid not in kept and uuid.partition("-")[2] not in kept and serial not in kept
    for device in json.loads(kept)["devices"]:
        assert device["calls"]["nvmlDeviceGetUUID"]["value"] == NO_UUID
        assert re.match("^0+$", device["calls"]["nvmlDeviceGetSerial"]["value"])
    assert "node-1" not in kept
