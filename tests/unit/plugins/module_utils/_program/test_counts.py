# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is counted from run to run: XIDs of a boot never go down, are never counted twice, and belong to a GPU."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import counts

pytestmark = pytest.mark.pythons

TABLE = {
    "codes": [
        {"xid": 79, "gate": "reboot"},
        {"xid": 13, "gate": "app"},
        {"xid": 45, "gate": "decode"},
        {"xid": 92, "gate": "ok"},
    ]
}
ROWS = {"kernel": [], "driver": [], "other": []}


def known(value):
    return {"rc": 0, "value": value}


def snapshot(*gpus, status="ok"):
    listed = [{"index": index, "pci_bus_id": known(pci), "uuid": known(uuid)} for index, pci, uuid in gpus]
    return {"status": status, "gpus": listed}


ONE = snapshot((0, "00000000:01:00.0", "GPU-0"), (1, "00000000:02:00.0", "GPU-1"))


def xid(code, seq, pci="0000:02:00.0", **more):
    return dict({"kind": "xid", "xid": code, "pci": pci, "seq": seq, "monotonic_us": seq * 10, "text": ""}, **more)


def sxid(fatal, seq):
    return {
        "kind": "sxid",
        "sxid": 20034,
        "pci": "0000:05:00.0",
        "fatal": fatal,
        "seq": seq,
        "monotonic_us": seq * 10,
        "text": "",
    }


def log(*events, last=None, suppressed=(), gpus=None, boot_id="b1"):
    last = max([event["seq"] for event in events] or [1]) if last is None else last
    position = {"boot_id": boot_id, "seq": last, "monotonic_us": last * 10}
    return {
        "boot_id": boot_id,
        "position": position,
        "events": list(events),
        "suppressed": list(suppressed),
        "gpus": gpus or {},
    }


def after(state, kernel_log, taken=None, table=None, **more):
    found = dict(
        {"now": 1000, "snapshot": ONE if taken is None else taken, "kernel_log": kernel_log, "holds": None}, **more
    )
    before = copy.deepcopy(state)
    new = counts.after(state, found, TABLE if table is None else table)
    assert state == before, "what was given is left as it was"
    return json.loads(json.dumps(new))


def row(state, place="0000:02:00.0"):
    return state["xids"][place]


def test_each_class_and_the_codes_that_have_an_alert():
    state = after(
        counts.fresh("b1"),
        log(
            xid(79, 1),
            xid(79, 2),
            xid(13, 3),
            xid(45, 4),
            xid(92, 5),
            xid(999, 6),
            xid(None, 7),
            xid(13, 8, "0000:01:00.0"),
        ),
    )
    assert row(state)["classes"] == {"reboot": 2, "app": 1, "decode": 1, "hold": 2} and row(state)["codes"] == {"79": 2}
    assert row(state, "0000:01:00.0") == {"UUID": "GPU-0", "classes": {"app": 1}, "codes": {}}


def test_each_run_adds_what_is_new():
    state = after(counts.fresh("b1"), log(xid(79, 1), xid(13, 2)))
    state = after(state, log(xid(79, 3), xid(79, 4)))
    assert row(state)["classes"] == {"reboot": 3, "app": 1} and state["position"]["seq"] == 4
    assert row(after(state, log(last=4)))["classes"] == {"reboot": 3, "app": 1}, "nothing new"


def test_a_log_that_tells_all_of_it_again_is_not_counted_again():
    state = after(counts.fresh("b1"), log(xid(79, 1), xid(13, 2)))
    again = after(state, log(xid(79, 1), xid(13, 2), xid(13, 3), last=3))
    assert row(again)["classes"] == {"reboot": 1, "app": 2}
    alike = {"kind": "xid", "pci": "0000:02:00.0", "code": 79, "count": 9, "last_us": 15}
    assert row(after(state, log(last=3, suppressed=[alike])))["classes"] == {"reboot": 1, "app": 1}, (
        "before the position"
    )
    assert row(after(state, log(last=9, suppressed=[dict(alike, last_us=80)])))["classes"] == {"reboot": 10, "app": 1}


def test_events_without_a_number_go_by_their_time():
    state = after(counts.fresh("b1"), log(xid(79, 5)))
    old, new = dict(xid(13, 1), seq=None, monotonic_us=50), dict(xid(13, 1), seq=None, monotonic_us=51)
    assert row(after(state, log(old, new, last=6)))["classes"] == {"reboot": 1, "app": 1}


@pytest.mark.parametrize(
    "unread",
    [
        None,
        {"boot_id": "b1", "position": None, "events": [], "suppressed": [], "gpus": {}},
        log(xid(79, 9), boot_id="b2"),
    ],
)
def test_a_log_that_cannot_be_read_changes_no_counter(unread):
    state = after(counts.fresh("b1"), log(xid(79, 1)))
    for kept in ("xids", "position", "sxids"):
        assert after(state, unread)[kept] == state[kept]
    assert after(counts.fresh("b1"), unread)["xids"] is None, "and nothing is known of one that never could be"


@pytest.mark.parametrize("table", [{}, [], {"codes": None}, {"codes": [{"xid": 1}]}])
def test_without_a_table_nothing_is_counted_and_nothing_is_lost(table):
    state = after(counts.fresh("b1"), log(xid(79, 1)), table=table)
    assert state["xids"] is None and state["position"] is None
    assert row(after(state, log(xid(79, 1))))["codes"] == {"79": 1}


def test_a_gpu_that_nvml_no_longer_shows_keeps_its_counters():
    state = after(counts.fresh("b1"), log(last=1))
    for taken in (snapshot(status="timeout"), snapshot((0, "00000000:01:00.0", "GPU-0"))):
        lost = after(state, log(xid(79, 2)), taken)
        assert row(lost)["codes"] == {"79": 1} and lost["gpus"]["0000:02:00.0"] == {"gpu": "1", "UUID": "GPU-1"}


@pytest.mark.parametrize(
    "pci, uuid, gpus, place, told",
    [
        ("0000:02:00.0", None, {}, "0000:02:00.0", "GPU-1"),
        (None, "GPU-1", {}, "0000:02:00.0", "GPU-1"),
        ("0000:99:00.0", None, {}, "0000:99:00.0", ""),
        ("0000:99:00.0", None, {"0000:99:00.0": "GPU-9"}, "0000:99:00.0", "GPU-9"),
        ("0000:99:00.0", None, {"0000:99:00.0": "GPU-1"}, "0000:02:00.0", "GPU-1"),
        (None, "GPU-9", {}, "GPU-9", "GPU-9"),
        (None, None, {}, "", ""),
    ],
)
def test_where_it_was_logged(pci, uuid, gpus, place, told):
    state = after(counts.fresh("b1"), log(xid(79, 1, pci, uuid=uuid), gpus=gpus))
    assert {name: found["UUID"] for name, found in state["xids"].items()} == {place: told}


def test_places_that_are_no_gpu_are_told_apart_up_to_a_number():
    many = log(*[xid(13, number, "0000:%02x:00.0" % (number + 16)) for number in range(20)])
    state = after(counts.fresh("b1"), many)
    assert len(state["xids"]) == counts.MOST_STRANGERS + 1
    assert sum(found["classes"]["app"] for found in state["xids"].values()) == 20
    assert len(after(state, log(xid(13, 30, "0000:ff:00.0")))["xids"]) == counts.MOST_STRANGERS + 1


def test_errors_of_switches():
    state = after(counts.fresh("b1"), log(sxid(True, 1), sxid(False, 2), sxid(None, 3)))
    assert state["sxids"] == {"yes": 2, "no": 1} and state["xids"] == {}
    alike = {"kind": "sxid", "pci": "0000:05:00.0", "code": 20034, "count": 5, "last_us": 90}
    assert after(counts.fresh("b1"), log(sxid(False, 1), last=9, suppressed=[alike]))["sxids"] == {"no": 6}
    assert after(counts.fresh("b1"), log(sxid(True, 1), last=9, suppressed=[alike]))["sxids"] == {"yes": 6}


def test_a_new_boot_begins_again_and_keeps_what_has_nothing_to_do_with_it():
    state = after(counts.fresh("b1"), log(xid(79, 1)), holds={"signature": [1], "rows": ROWS})
    assert counts.of_boot(state, "b1") == state
    again = counts.of_boot(dict(state, updates={"a=1": 5}), "b2")
    assert again == dict(counts.fresh("b2"), updates={"a=1": 5}, holds=state["holds"])
    assert counts.of_boot(dict(state, boot_id=None), None)["xids"] is None, "which boot it is cannot be told"


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "gpufleet.textfile-state/2"},
        {"xids": []},
        {"xids": {"x": {"classes": {}}}},
        {"xids": {"x": {"UUID": "", "classes": {"app": "many"}, "codes": {}}}},
        {"gpus": None},
        {"sxids": None},
        {"position": None},
        {"xids": None},
    ],
)
def test_a_document_that_is_damaged_is_as_if_there_were_none(change):
    state = after(counts.fresh("b1"), log(xid(79, 1)))
    assert counts.of_boot(dict(state, **change), "b1")["xids"] is None
    assert counts.of_boot(dict(state, **change), "b1")["position"] is None
    assert counts.of_boot(["x"], "b1") == counts.of_boot(None, "b1") == counts.fresh("b1")


def test_since_when_an_update_is_held_out():
    def rows(*versions):
        return {
            "signature": [],
            "rows": dict(
                ROWS,
                kernel=[{"package": "linux", "security": list(versions)}],
                other=[{"package": "x", "security": None}],
            ),
        }

    state = after(counts.fresh("b1"), log(), holds=rows("2"))
    assert state["updates"] == {"linux=2": 1000}
    later = after(state, log(), holds=rows("2", "3"), now=2000)
    assert later["updates"] == {"linux=2": 1000, "linux=3": 2000}
    assert after(later, log(), holds=rows("3"), now=3000)["updates"] == {"linux=3": 2000}, (
        "one that is not held out any more is forgotten"
    )
    assert after(later, log(), holds=None)["updates"] == later["updates"]
    assert after(dict(state, updates={"linux=2": 9999}), log(), holds=rows("2"))["updates"] == {"linux=2": 1000}, (
        "a clock that was wrong"
    )
