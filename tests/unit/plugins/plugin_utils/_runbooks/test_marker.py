# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The quarantine marker: its fields, and whose a node is."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import flight, marker

GIVEN = {"node": "a1", "time": "2026-01-31T12:00:00Z", "reason": "XID 79"}
# As a rollout writes it, without the record for the vendor.
OF_A_ROLLOUT = {
    "schema": marker.SCHEMA,
    "node": "a1",
    "rollout_id": "upgrade-2",
    "version": "2",
    "previous_version": "1",
    "reason": "it failed",
    "not_put_back": "it failed again",
    "time": "2026-01-01T00:00:00Z",
}
CLAIM = {
    "ledger": "l",
    "rollout_id": "r1",
    "attempt": 1,
    "run": "a",
    "plan": "p",
    "controller": "ctl1",
    "state": "held",
    "time": "2026-01-31T12:00:00Z",
}


def value(what):
    return {"value": what, "rc": 0}


def snapshot(*uuids):
    return {
        "status": "ok",
        "gpus": [
            {
                "index": index,
                "uuid": value(uuid),
                "serial": value("S" + uuid),
                "pci_bus_id": value("00000000:0%d:00.0" % (index + 1)),
            }
            for index, uuid in enumerate(uuids)
        ],
    }


def test_a_marker_has_all_of_its_fields_and_no_others():
    made = marker.build(
        dict(
            GIVEN,
            snapshot=snapshot("GPU-a"),
            baseline={"snapshot": snapshot("GPU-a", "GPU-b")},
            health={
                "checks": [
                    {"id": "gpu.xid", "status": "fail"},
                    {"id": "gpu.ecc", "status": "unknown"},
                    {"id": "gpu.ok", "status": "pass"},
                ]
            },
        )
    )
    assert set(made) == set(marker.FIELDS) | {"schema"} and made["schema"] == "gpufleet.quarantine/1"
    assert made["serials"] == ["SGPU-a", "SGPU-b"] and made["checks"] == ["gpu.ecc", "gpu.xid"], (
        "the GPU that is lost is named too"
    )
    assert (made["gpus"][1]["uuid"], made["gpus"][1]["pci"], made["token"]) == ("GPU-b", "0000:02:00.0", "by-hand")
    assert marker.build(dict(GIVEN, rollout_id="r1"))["token"] == "r1"


@pytest.mark.parametrize("wrong", [{"reason": ""}, {"reason": " \n"}, {"node": None}, {"time": ""}, {"colour": "red"}])
def test_what_makes_no_marker(wrong):
    with pytest.raises(marker.MarkerError):
        marker.build(dict(GIVEN, **wrong))


def test_a_marker_of_a_rollout_is_completed_and_keeps_its_reason_and_time():
    read = marker.read_marker(OF_A_ROLLOUT)
    assert (read["reason"], read["token"], read["gpus"], read["record"]) == ("it failed", "upgrade-2", [], "")
    now = marker.complete(OF_A_ROLLOUT, dict(GIVEN, record="/r", token="quarantine", snapshot=snapshot("GPU-a")))
    assert (now["reason"], now["time"], now["token"], now["version"], now["not_put_back"]) == (
        "it failed",
        OF_A_ROLLOUT["time"],
        "upgrade-2",
        "2",
        "it failed again",
    )
    assert (now["record"], now["serials"], now["schema"]) == ("/r", ["SGPU-a"], marker.SCHEMA)
    assert marker.complete(now, dict(GIVEN, record="/other", reason="another")) == now, "a second time changes nothing"


@pytest.mark.parametrize("note", [None, [], "x", {"gpus": 7, "reason": ["a"], "serials": None}])
def test_of_a_marker_that_cannot_be_read_nothing_is_known(note):
    assert marker.read_marker(note) == dict(marker.FIELDS, token="by-hand")
    assert marker.complete(note, GIVEN)["reason"] == "XID 79"


@pytest.mark.parametrize(
    ("before", "now", "gone", "new"),
    [
        (["GPU-a"], ["GPU-a"], [], []),
        (["GPU-a", "GPU-b"], ["GPU-a"], ["GPU-b"], []),
        (["GPU-a"], ["GPU-c"], ["GPU-a"], ["GPU-c"]),
        ([], [], [], []),
    ],
)
def test_which_gpus_were_exchanged(before, now, gone, new):
    found = marker.find_exchanged(marker.describe_gpus(snapshot(*before)), marker.describe_gpus(snapshot(*now)))
    assert ([gpu["uuid"] for gpu in found["gone"]], [gpu["uuid"] for gpu in found["new"]]) == (gone, new)


def marks(found=None, **more):
    return dict({"claim": found, "problem": ""}, **more)


@pytest.mark.parametrize(
    ("found", "states", "held"),
    [
        (marks(), {}, False),
        ({}, {}, False),  # it does not answer, and no rollout of the ledger has it
        (marks(), {"r1": "done", "r2": "pending", "r3": "quarantined", "r4": "lost", "r5": "skipped"}, False),
        *[(marks(), {"r1": "done", "r2": state}, True) for state in ("draining", "down", "validating", "soaking")],
        *[({}, {"r2": state}, True) for state in ("draining", "down", "validating", "soaking")],
        (marks(CLAIM), {}, True),
        (marks(CLAIM), {"r1": "down"}, True),
        (marks(CLAIM), {"r1": "lost"}, True),  # it may be half changed
        *[
            (marks(CLAIM), {"r1": state}, False) for state in ("pending", "skipped", "done", "failed", "rolled_back")
        ],  # its controller died between two entries
        (marks(dict(CLAIM, ledger="other")), {"r1": "done"}, True),
        (marks(dict(CLAIM, state="quarantined")), {"r1": "quarantined"}, False),
        (marks(dict(CLAIM, state="quarantined", ledger="other")), {}, False),
        (marks(problem="its claim is no JSON"), {}, True),
        ({"failed": True, "msg": "no room"}, {}, True),
    ],
)
def test_whether_a_rollout_has_the_node(found, states, held):
    assert bool(flight.explain_holder(found, states, "l")) is held


def test_who_has_the_node_is_said():
    assert "rollout r2 has it in flight (down" in flight.explain_holder(marks(), {"r2": "down"}, "l")
    assert "rollout r1 (attempt 1, begun on ctl1)" in flight.explain_holder(marks(CLAIM), {}, None)
