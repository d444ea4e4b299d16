# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of XIDs and SXids: the collection's own are sound, and what is not is refused with its file and key."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import tables
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.documents import TABLES


def test_the_collections_own_tables_are_sound():
    xid = tables.parse_xid_table(TABLES["xid"])
    # The codes of the catalogue, those it lists as unused, 108, which it says to ignore, and 174 to 176 of newer
    # drivers.
    assert len(xid.codes) == 115 and len(xid.unused) == 61 and not set(xid.codes) & xid.unused
    assert [code for code, entry in sorted(xid.codes.items()) if entry["gate"] == "decode"] == sorted(tables.DECODED)
    assert [(code, xid.codes[code]["gate"]) for code in (14, 43, 79, 95, 94, 54, 63, 106, 107, 108, 109)] == [
        (14, "ok"),
        (43, "ok"),
        (79, "reboot"),
        (95, "reset"),
        (94, "app"),
        (54, "hold"),
        (63, "warn"),
        (106, "ok"),
        (107, "ok"),
        (108, "ok"),
        (109, "reset"),
    ]
    # NVIDIA's catalogue has no name for 108, which it lists as unused. The table has one, and says that it is unused
    # all the same.
    named = xid.codes[108]
    assert named["mnemonic"] == "NVLINK_REMOTE_TRANSLATION_ERROR"
    assert named["meaning"] == "NVLink remote translation error; NVIDIA lists it as unused, to be ignored"
    assert xid.codes[79]["driver_suspect"] is True and xid.codes[95]["driver_suspect"] is False
    assert sorted(set(entry["xid"] for entry in xid.units)) == list(range(144, 151))
    assert len(tables.parse_sxid_table(TABLES["sxid"])) == 92
    for name, document in TABLES.items():
        tables.check(name, document, name + ".json")
        if name == "boards":
            continue
        assert set(document["classes"]) == set(tables.XID_GATES if name == "xid" else tables.SXID_GATES)
    tables.check("another", {}, "another.json")


def test_no_table_of_ours_has_the_columns_of_other_projects():
    for entry in TABLES["xid"]["codes"]:
        assert set(entry) == {
            "xid",
            "mnemonic",
            "meaning",
            "architectures",
            "immediate",
            "investigate",
            "gate",
            "driver_suspect",
        }
    for entry in TABLES["sxid"]["codes"]:
        assert set(entry) == {"sxid", "family", "name", "gate", "fatal", "nonfatal", "driver_suspect", "step"}


GONE = "gone"


@pytest.mark.parametrize(
    "name, path, content, words",
    [
        ("xid", (), None, "xid.json: expected a dictionary, found NoneType"),
        ("xid", ("schema",), "gpufleet.xid-table/2", "xid.json: schema is 'gpufleet.xid-table/2'"),
        ("xid", ("codes",), GONE, "xid.json: codes is None, expected a list"),
        ("xid", ("codes",), [], "xid.json: codes is empty"),
        ("xid", ("codes", 3), 5, "xid.json: codes[3] is 5, expected a dictionary"),
        ("xid", ("codes", 3, "xid"), "13", "xid.json: codes[3].xid is '13', expected a number"),
        ("xid", ("codes", 3, "xid"), True, "xid.json: codes[3].xid is True, expected a number"),
        ("xid", ("codes", 3, "xid"), 8, "xid.json: codes[3].xid is 8, which is there already"),
        ("xid", ("codes", 3, "gate"), "harmless", "codes[3].gate is 'harmless', expected one of ok, app, warn"),
        ("xid", ("codes", 3, "gate"), GONE, "codes[3].gate is None"),
        ("xid", ("codes", 0, "gate"), "decode", "xid.json: codes[0].gate is decode, and there is no rule for XID 8"),
        ("xid", ("codes", 3, "mnemonic"), GONE, "xid.json: codes[3].mnemonic is None, expected a str"),
        ("xid", ("codes", 3, "driver_suspect"), "y", "codes[3].driver_suspect is 'y', expected a bool"),
        ("xid", ("unused", 2), 79, "xid.json: unused[2] is 79, expected a code that is not in codes"),
        ("xid", ("unused", 2), "3", "unused[2] is '3'"),
        ("xid", ("recovery", 1, "gate"), "app", "recovery[1].gate is 'app', expected one of ok, reset, reboot, hold"),
        ("xid", ("recovery", 1, "code"), 0, "recovery[1].code is 0, which is there already"),
        ("xid", ("recovery", 1, "texts"), [], "recovery[1].texts is [], expected a list of texts"),
        ("xid", ("nvlink_registers", 0, "register"), 8, "register is 8, expected a number from 1 to 7"),
        ("xid", ("nvlink_registers", 0, "bits"), [32], "nvlink_registers[0].bits has 32"),
        ("xid", ("nvlink_registers", 1, "bits"), [23], "nvlink_registers[1].bits has 23, which has a rule already"),
        ("xid", ("nvlink_registers", 0, "rule"), "x", "nvlink_registers[0].rule is 'x'"),
        ("xid", ("nvlink5_units", 0, "xid"), 143, "nvlink5_units[0].xid is 143, expected a number from 144 to 150"),
        ("xid", ("nvlink5_units", 0, "unit_v2"), GONE, "nvlink5_units[0].unit_v2 is None, expected a number"),
        ("xid", ("nvlink5_units", 0, "by"), "name", "nvlink5_units[0].by is 'name'"),
        ("xid", ("nvlink5_units", 0, "names"), [""], "nvlink5_units[0].names is ['']"),
        ("xid", ("nvlink5_units", 0, "rows", 1, "gate"), "follow it", "nvlink5_units[0].rows[1].gate is 'follow it'"),
        ("xid", ("nvlink5_units", 0, "rows", 1, "values"), ["0x2"], "rows[1].values has '0x2', expected hexadecimal"),
        ("sxid", ("schema",), GONE, "sxid.json: schema is None"),
        ("sxid", ("codes", 4, "sxid"), 10001, "sxid.json: codes[4].sxid is 10001, which is there already"),
        ("sxid", ("codes", 4, "fatal"), "warning", "codes[4].fatal is 'warning', expected one of ok, warn"),
        ("sxid", ("codes", 4, "nonfatal"), GONE, "sxid.json: codes[4].nonfatal is None"),
        ("sxid", ("codes", 4, "step"), GONE, "sxid.json: codes[4].step is None, expected a str"),
        ("sxid", ("codes",), {}, "sxid.json: codes is {}, expected a list"),
    ],
)
def test_a_damaged_table_is_refused_with_its_file_and_key(name, path, content, words):
    document = copy.deepcopy(TABLES[name])
    if not path:
        document = content
    else:
        target = document
        for key in path[:-1]:
            target = target[key]
        if content == GONE:
            del target[path[-1]]
        else:
            target[path[-1]] = content
    with pytest.raises(tables.TableError) as caught:
        tables.check(name, document, name + ".json")
    assert words in str(caught.value)
