# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hardware a node should have: by what is said of it, else by its board, and with a baseline by what is said
alone.
"""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import tables
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.documents import TABLES
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import (
    NOT_SUPPORTED,
    failed,
    value,
)

SWITCH = {"address": "0000:07:00.0", "device": "0x22a3"}


def checks(
    ident, said=None, count=8, switches=4, old=False, board=TABLES["boards"], phase="baseline", peers=None, **change
):
    """The checks with this id of a node with COUNT H100, and PEERS whose GPUs are so many; CHANGE is of GPU 1."""
    reading = readings.reading(readings.snapshot(count), readings.audit(count))
    reading["system"]["nvswitches"] = None if switches is None else [dict(SWITCH) for _number in range(switches)]
    for key, content in change.items():
        for gpu in reading["snapshot"]["gpus"][1:2] if key != "name" else reading["snapshot"]["gpus"]:
            gpu[key] = copy.deepcopy(content)
    baseline = None
    if old:
        baseline = readings.baseline(snapshot=copy.deepcopy(reading["snapshot"]), audit=readings.audit(count))
        baseline["system"]["nvswitches"] = reading["system"]["nvswitches"]
    health = _health.evaluate(
        reading,
        baseline,
        phase="post" if old else phase,
        node=readings.NODE,
        now=readings.NOW,
        tables=dict(TABLES, boards=board),
        expect=dict({"hardware": said} if said is not None else {}, peers={"gpus": peers}),
    )
    return [check for check in health["checks"] if check["id"] == ident]


@pytest.mark.parametrize(
    "said, count, switches, status, words",
    [
        (None, 8, 4, "pass", ""),
        (None, 7, 4, "fail", "The node has 7 GPUs; expected 8."),  # it has switches: a whole board
        (None, 7, 0, "fail", "The node has 7 GPUs; expected 1 or 2 or 4 or 8."),
        (None, 6, 4, "fail", "say so in expect.hardware (gpu_health_expect)"),
        (None, 4, 4, "fail", "The node has 4 GPUs; expected 8."),
        (None, 4, 0, "pass", ""),  # a virtual machine with half a board
        (None, 1, 0, "pass", ""),
        (None, 8, 3, "fail", "has 3 NVSwitches on its PCI bus; expected 4"),
        (None, 8, 0, "pass", ""),  # a virtual machine
        (None, 8, None, "unknown", "cannot be listed"),
        ({"gpus": 7}, 7, 4, "pass", ""),
        ({"gpus": 8}, 7, 4, "fail", "The node has 7 GPUs; expected 8."),
        ({"gpus": 8}, 4, 4, "fail", "expected 8"),
        ({"nvswitches": 4}, 8, 0, "fail", "has 0 NVSwitches"),
        ({"nvswitches": 3}, 8, 3, "pass", ""),
        ({"nvswitches": 0}, 2, 0, "pass", ""),
        ({"nvswitches": 4}, 8, None, "unknown", "cannot be listed"),
        ({}, 7, 4, "fail", "expected 8"),
        ({"gpus": None}, 7, 4, "fail", "expected 8"),
        ({"ecc": True}, 7, 4, "fail", "expected 8"),
    ],
)
@pytest.mark.parametrize("phase", ["baseline", "adhoc"])
def test_how_many_there_should_be(said, count, switches, status, words, phase):
    (check,) = checks("node.hardware", said, count, switches, phase=phase)
    assert check["status"] == status and words in check["message"], check


@pytest.mark.parametrize("managers, status", [([], "pass"), ([{"address": "0000:05:00.0"}], "fail")])
def test_half_a_board_with_the_adapters_that_manage_its_nvlink_5_switches(managers, status):
    reading = readings.reading(readings.snapshot(4), readings.audit(4))
    reading["system"].update(nvswitches=[], nvlink_managers={"found": managers, "unread": []})
    for gpu in reading["snapshot"]["gpus"]:
        gpu["name"] = value("NVIDIA B200")
    health = _health.evaluate(reading, phase="baseline", node=readings.NODE, now=readings.NOW, tables=TABLES)
    assert [check["status"] for check in health["checks"] if check["id"] == "node.hardware"] == [status]


@pytest.mark.parametrize(
    "said, count, status",
    [
        (None, 7, "not_applicable"),
        ({"gpus": 8}, 7, "fail"),
        ({"gpus": 7}, 7, "pass"),
        ({"nvswitches": 5}, 8, "fail"),
        ({"ecc": True}, 7, "not_applicable"),
    ],
)
def test_with_a_baseline_only_what_is_said_counts(said, count, status):
    (check,) = checks("node.hardware", said, count, old=True)
    assert check["status"] == status, check


@pytest.mark.parametrize(
    "change, said, status, words",
    [
        ({}, None, "pass", ""),
        ({"ecc_mode_current": value(0)}, None, "fail", "ECC is off, expected on"),
        ({"ecc_mode_current": dict(NOT_SUPPORTED)}, None, "fail", "ECC is off, expected on"),
        ({"ecc_mode_current": failed(4)}, None, "unknown", "cannot be read: ECC"),
        ({"ecc_mode_current": value(0)}, {"ecc": False}, "pass", ""),
        ({}, {"ecc": False}, "fail", "ECC is on, expected off"),
        ({"nvlink_active": value([False] * 18)}, None, "fail", "the number of active NVLinks is 0, expected 18"),
        ({"nvlink_active": value([True] * 17 + [False])}, None, "fail", "is 17, expected 18"),
        ({"nvlink_active": value([True] * 17 + [False])}, {"nvlinks": 17}, "pass", ""),
        ({"nvlink_active": dict(NOT_SUPPORTED)}, None, "fail", "is 0, expected 18"),
        ({"nvlink_active": failed(999)}, None, "unknown", "the number of active NVLinks"),
        ({"pcie_width_current": value(1)}, None, "fail", "the number of its PCIe lanes is 1, expected 16"),
        ({"pcie_width_current": value(8)}, {"pcie_width": 8}, "pass", ""),
        ({"pcie_gen_max": value(4)}, None, "pass", ""),  # an older slot
        ({"pcie_gen_max": value(4)}, {"pcie_generation": 5}, "fail", "that its link can do is 4, expected 5"),
        ({"memory_total_bytes": value(40 * 2**30)}, None, "fail", "its memory in MiB is 40960, expected 79000"),
        ({"memory_total_bytes": value(-1)}, None, "unknown", "its memory"),
        ({}, {"model": "nvidia h100*"}, "pass", ""),
        ({}, {"model": "NVIDIA H200"}, "fail", "its model is NVIDIA H100 80GB HBM3, expected NVIDIA H200"),
    ],
)
def test_what_each_should_have(change, said, status, words):
    (sick,) = [check for check in checks("gpu.hardware", said, **change) if check["entity"] == readings.uuid(1)]
    assert sick["status"] == status and words in sick["message"], sick
    others = [
        check["status"] for check in checks("gpu.hardware", said, **change) if check["entity"] != readings.uuid(1)
    ]
    assert set(others) == {"fail" if said in ({"ecc": False}, {"model": "NVIDIA H200"}) else "pass"}


def test_one_gpu_alone_may_have_no_links():
    """A virtual machine that got one GPU of a board."""
    for said, status in ((None, "pass"), ({"nvlinks": 18}, "fail")):
        reading = readings.reading(readings.snapshot(1), readings.audit(1))
        reading["snapshot"]["gpus"][0]["nvlink_active"] = value([False] * 18)
        health = _health.evaluate(
            reading, phase="baseline", node=readings.NODE, now=readings.NOW, tables=TABLES, expect={"hardware": said}
        )
        assert [check["status"] for check in health["checks"] if check["id"] == "gpu.hardware"] == [status]


# What boards are in the table, and whether they come in a number that is known.
KNOWN, ANY_NUMBER, STRANGE = "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA X1"


@pytest.mark.parametrize(
    "name, count, said, peers, status, source",
    [
        # Nothing tells the number.
        (ANY_NUMBER, 7, None, None, "unknown", "hardware"),
        (STRANGE, 7, None, None, "unknown", "hardware"),
        (ANY_NUMBER, 1, None, {}, "unknown", "hardware"),
        (ANY_NUMBER, 8, {"nvswitches": 0}, None, "unknown", "hardware"),
        # Other nodes tell it.
        (ANY_NUMBER, 8, None, {ANY_NUMBER: 8}, "pass", "peers"),
        (STRANGE, 8, None, {STRANGE: 8}, "pass", "peers"),
        (ANY_NUMBER, 7, None, {ANY_NUMBER: 8}, "fail", "peers"),
        (STRANGE, 7, None, {STRANGE: 8}, "fail", "peers"),
        (ANY_NUMBER, 9, None, {ANY_NUMBER: 8}, "pass", "peers"),  # more than others is nothing missing
        # half of a board is a partition of it, unless the others are whole
        (KNOWN, 4, None, {KNOWN: 8}, "fail", "peers"),
        (KNOWN, 8, None, {KNOWN: 8}, "pass", "hardware"),
        (KNOWN, 7, None, {KNOWN: 7}, "fail", "hardware"),
        # Other nodes are of another model, or what is said of them is no number.
        (ANY_NUMBER, 8, None, {KNOWN: 8}, "unknown", "hardware"),
        (ANY_NUMBER, 8, None, {ANY_NUMBER: None}, "unknown", "hardware"),
        (ANY_NUMBER, 8, None, {ANY_NUMBER: True}, "unknown", "hardware"),
        (ANY_NUMBER, 8, None, {ANY_NUMBER: 0}, "unknown", "hardware"),
        (ANY_NUMBER, 8, None, "8", "unknown", "hardware"),
        # What is said decides.
        (ANY_NUMBER, 7, {"gpus": 7}, {ANY_NUMBER: 8}, "pass", "hardware"),
        (ANY_NUMBER, 7, {"gpus": 8}, {ANY_NUMBER: 7}, "fail", "hardware"),
    ],
)
@pytest.mark.parametrize("phase", ["baseline", "adhoc", "post", "soak"])
def test_a_number_that_nothing_tells_is_unknown(name, count, said, peers, status, source, phase):
    (check,) = checks("node.hardware", said, count, switches=0, name=value(name), phase=phase, peers=peers)
    assert check["status"] == status, check
    # Where nothing tells it, the operator has to say it, and there is nothing to do to the node.
    assert (check["action"] == "none") == (status != "fail")
    assert (check["source"] == "peers") == (source == "peers")


def test_with_a_baseline_peers_do_not_count():
    assert {check["status"] for check in checks("node.hardware", count=7, old=True, peers={KNOWN: 8})} == {
        "not_applicable"
    }


def test_a_board_that_the_table_lacks_is_unknown_until_something_is_said_of_it():
    unsaid = checks("gpu.hardware", name=value(STRANGE))
    assert {(check["status"], check["action"]) for check in unsaid} == {("unknown", "none")}
    # What was read is told, so that it can be said.
    assert unsaid[0]["observed"] == {"memory_mib": 81559, "ecc": True, "nvlinks": 18, "pcie_width": 16}
    assert {check["status"] for check in checks("gpu.hardware", dict(unsaid[0]["observed"]), name=value(STRANGE))} == {
        "pass"
    }
    assert {check["status"] for check in checks("gpu.hardware", {"memory_mib": 10**6}, name=value(STRANGE))} == {"fail"}
    assert {check["status"] for check in checks("gpu.hardware", old=True)} == {"not_applicable"}


@pytest.mark.parametrize(
    "said, node, gpu",
    [
        (None, "unknown", "unknown"),
        ({"ecc": True}, "unknown", "unknown"),
        ({"gpus": 8}, "pass", "unknown"),
        ({"gpus": 7}, "fail", "unknown"),
        ({"model": "NVIDIA H100*"}, "unknown", "unknown"),
        ({"ecc": False}, "unknown", "fail"),
        (
            dict(gpus=8, model="*", memory_mib=79000, ecc=True, nvlinks=18, pcie_generation=5, pcie_width=16),
            "pass",
            "unknown",
        ),
    ],
)
@pytest.mark.parametrize("name", [failed(999), dict(NOT_SUPPORTED), value(None), value(7)])
def test_a_name_that_cannot_be_read_is_no_model_that_the_table_lacks(said, node, gpu, name):
    assert {check["status"] for check in checks("node.hardware", said, name=name)} == {node}
    assert {check["status"] for check in checks("gpu.hardware", said, name=name)} == {gpu}
    assert {check["status"] for check in checks("gpu.hardware", old=True, name=name)} == {"not_applicable"}


@pytest.mark.parametrize(
    "table",
    [
        None,
        {},
        {"schema": "gpufleet.board-table/1", "boards": []},
        dict(TABLES["boards"], schema="x"),
        *(
            dict(TABLES["boards"], boards=[dict(TABLES["boards"]["boards"][0], **change)])
            for change in (
                {"name": 1},
                {"ecc": "on"},
                {"peers": 1},
                {"nvlinks": -1},
                {"counts": ["8"]},
                {"counts": 8},
                {"nvswitches": {"8": "4"}},
                {"nvswitches": {"all": 4}},
                {"memory_mib": None},
            )
        ),
    ],
)
def test_a_damaged_table_is_no_expectation_and_no_pass(table):
    assert {check["status"] for ident in ("node.hardware", "gpu.hardware") for check in checks(ident, board=table)} == {
        "unknown"
    }
    with pytest.raises(tables.TableError):
        tables.check("boards", table, "boards.json")
