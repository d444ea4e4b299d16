# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record for the vendor: every part that a node has is in it, and what a part did not tell is said."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import page, record

ABOUT = {
    "node": "a1",
    "time": "2026-01-31T12:00:00Z",
    "reason": "XID 79",
    "user": "kim",
    "controller": "ctl1",
    "evidence": "/e",
    "silent": "",
}
LOST = {"value": None, "rc": 15, "error": "GPU_IS_LOST"}
ABSENT = {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


def value(what):
    return {"value": what, "rc": 0}


def gpu(index, uuid, **more):
    found = {name: value({"pending": False} if "remap" in name else name) for name in record.VALUES.values()}
    found.update(
        uuid=value(uuid),
        serial=value("S" + uuid),
        inforom_valid=value(True),
        retired_pages=ABSENT,
        retired_pages_pending=ABSENT,
    )
    return dict(found, index=index, pci_bus_id=value("00000000:%02x:00.0" % (index + 1)), **more)


def reading(*gpus, **log):
    events = [
        {"kind": "xid", "xid": 79, "pci": "0000:02:00", "monotonic_us": moment * 1000000, "text": "Xid 79"}
        for moment in (40, 90)
    ]
    events.append({"kind": "driver_loaded", "pci": None, "monotonic_us": 1, "text": "loaded"})
    return {
        "boot_id": "b",
        "snapshot": {"status": "ok", "simulated": True, "gpus": list(gpus)},
        "audit": {"identity": {"machine_id": "m", "board_serial": "B7"}},
        "kernel_log": dict(
            {
                "events": events,
                "suppressed": [{"kind": "xid", "code": 79, "pci": "0000:02:00.0", "count": 5, "last_us": 100000000}],
                "read_at_us": 100000000,
                "complete": True,
                "problem": "",
            },
            **log,
        ),
    }


HEALTH = {
    "time": "2026-01-31T12:00:00Z",
    "verdict": "fail",
    "action": "reboot",
    "driver": {"loaded": "535.1"},
    "checks": [
        {
            "id": "gpu.xid",
            "entity": "GPU-b",
            "status": "fail",
            "observed": {"xid": 79},
            "expected": 0,
            "action": "reboot",
            "message": "XID 79 | fell off.",
        },
        {"id": "gpu.ok", "entity": "GPU-a", "status": "pass"},
    ],
}


def build(found, baseline=None, **about):
    return record.build(dict(ABOUT, **about), HEALTH if found else None, found, baseline, _judging.tables()["xid"])


def test_a_node_that_tells_everything_has_nothing_missing():
    made = build(reading(gpu(0, "GPU-a"), gpu(1, "GPU-b")))
    assert made["schema"] == "gpufleet.rma/1" and made["missing"] == [] and made["answered"] and made["simulated"]
    assert [
        (row["uuid"], row["serial"], row["part_number"], row["pci"], row["vbios"], row["inforom"])
        for row in made["gpus"]
    ] == [
        ("GPU-a", "SGPU-a", "board_part_number", "0000:01:00.0", "vbios_version", "inforom_image_version"),
        ("GPU-b", "SGPU-b", "board_part_number", "0000:02:00.0", "vbios_version", "inforom_image_version"),
    ]
    assert set(made["gpus"][0]) == set(record.VALUES) | {"index", "pci", "from_baseline"}
    assert made["machine"] == {"machine_id": "m", "board_serial": "B7"} and [
        check["id"] for check in made["checks"]
    ] == ["gpu.xid"]
    assert (made["verdict"], made["action"], made["driver"]) == ("fail", "reboot", {"loaded": "535.1"})


def test_xids_come_by_class_with_their_times():
    (row,) = build(reading(gpu(1, "GPU-b")))["xids"]
    assert (row["xid"], row["class"], row["uuid"], row["count"]) == (79, "reboot", "GPU-b", 7), (
        "those that were counted alone count too"
    )
    assert (row["first"], row["last"]) == ("2026-01-31T11:59:00Z", "2026-01-31T12:00:00Z") and row["text"] == "Xid 79"
    (unknown,) = build(
        reading(
            gpu(1, "GPU-b"),
            suppressed=[],
            events=[{"kind": "xid", "xid": 9999, "pci": None, "monotonic_us": None, "text": "?"}],
        )
    )["xids"]
    assert (unknown["class"], unknown["first"], unknown["uuid"]) == ("not in the table", None, None)


@pytest.mark.parametrize("key", sorted(record.VALUES))
def test_a_value_that_a_gpu_does_not_tell_is_missing_and_never_guessed(key):
    sick = gpu(0, "GPU-a")
    sick[record.VALUES[key]] = LOST
    made = build(reading(sick))
    assert made["gpus"][0][key] is None
    assert [entry["reason"] for entry in made["missing"] if entry["part"].endswith(": " + key)] == ["GPU_IS_LOST (15)"]
    sick[record.VALUES[key]] = ABSENT
    assert build(reading(sick))["missing"] == [], "what a model does not have is not missing"


def test_a_gpu_that_is_gone_is_named_by_its_baseline():
    before = {"snapshot": {"gpus": [gpu(0, "GPU-a"), gpu(1, "GPU-b"), gpu(2, "GPU-c")]}}
    dead = dict.fromkeys(record.VALUES.values(), LOST)
    made = build(reading(gpu(0, "GPU-a"), dict(dead, index=1, pci_bus_id=value("00000000:02:00.0"))), before)
    assert [(row["uuid"], row["serial"]) for row in made["gpus"]] == [
        ("GPU-a", "SGPU-a"),
        ("GPU-b", "SGPU-b"),
        ("GPU-c", "SGPU-c"),
    ]
    assert (
        made["gpus"][0]["from_baseline"] == []
        and "serial" in made["gpus"][1]["from_baseline"]
        and "pci" in made["gpus"][2]["from_baseline"]
    )
    assert made["gpus"][1]["ecc"] is None and made["gpus"][2]["remapped_rows"] is None, (
        "what changes is not taken from then"
    )
    assert any("GPU-c" in entry["part"] for entry in made["missing"])
    assert record.entry(made)["gpus"][2] == {
        "uuid": "GPU-c",
        "serial": "SGPU-c",
        "part_number": "board_part_number",
        "name": "name",
        "pci": "0000:03:00.0",
    }


def test_a_node_that_does_not_answer_has_its_baseline_and_says_so():
    made = build(
        None,
        {"snapshot": {"gpus": [gpu(0, "GPU-a")]}, "audit": {"identity": {"machine_id": "m"}}},
        silent="no route to host",
    )
    assert (
        not made["answered"]
        and made["verdict"] is None
        and made["xids"] == []
        and made["missing"][0] == {"part": "node", "reason": "no route to host"}
    )
    assert made["gpus"][0]["serial"] == "SGPU-a" and made["machine"]["machine_id"] == "m"
    assert build(None)["missing"], "of nothing, nothing is known"


@pytest.mark.parametrize(
    "log",
    [{"complete": False, "problem": "it was overwritten"}, {"complete": None}, {"events": None, "complete": False}],
)
def test_a_kernel_log_that_is_not_whole_is_missing(log):
    assert [entry["part"] for entry in build(reading(gpu(0, "GPU-a"), **log))["missing"]] == ["XIDs"]


@pytest.mark.parametrize("damage", ["snapshot", "audit", "kernel_log"])
@pytest.mark.parametrize(
    "kind",
    [None, [], 7, {}, {"gpus": [None, 7]}, {"events": [None, {"kind": "xid"}], "suppressed": [3, {"kind": "xid"}]}],
)
def test_a_damaged_reading_makes_a_record_that_lacks_something(damage, kind):
    found = copy.deepcopy(reading(gpu(0, "GPU-a")))
    found[damage] = kind
    made = build(found)
    assert json.loads(json.dumps(made)) == made and page.render(made)
    assert made["missing"] or damage == "snapshot" and made["gpus"] == []


def test_the_page_says_what_the_record_says_and_nothing_breaks_its_tables():
    made = build(reading(gpu(0, "GPU-a", serial=value("1|2"))), {"snapshot": {"gpus": [gpu(1, "GPU-b")]}})
    text = page.render(made)
    for word in (
        "XID 79",
        "kim on ctl1",
        "1\\|2",
        "SGPU-b (of its baseline)",
        "0000:01:00.0",
        "gpu.xid",
        "reboot",
        "B7",
    ):
        assert word in text, word
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows and all(line.endswith("|") for line in rows)
