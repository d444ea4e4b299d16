# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of XIDs and SXids: whether the data files are what they must be, and looking codes up in them."""

from __future__ import annotations

import collections
from collections.abc import Iterator

# What a table may say about a code. decode: rules of xid_rules.py decide, and a code without such a rule is refused.
XID_GATES = ("ok", "app", "warn", "reset", "reboot", "hold", "decode")
SXID_GATES = ("ok", "warn", "service", "reset", "reboot", "hold")
RECOVERY_GATES = ("ok", "reset", "reboot", "hold")
UNIT_GATES = ("ok", "ok_fatal", "follow", "reset", "hold")
REGISTER_RULES = ("ignore", "sympathetic", "repeated", "mechanics", "signal", "report", "diagnose", "fabric", "counted")
UNIT_KEYS = ("bits", "value", "subcode", "any")
DECODED = frozenset([45, 48, 74, 154, 159, 171, 172] + list(range(144, 151)))

XidTable = collections.namedtuple("XidTable", ["codes", "unused", "recovery", "registers", "units"])


class TableError(Exception):
    """A table cannot be used; the text names the file and the key."""


def check(name, document, where) -> None:
    """Refuse a table that is damaged; WHERE is how its file is called in the message.

    Files of other names are not known here.
    """
    if name == "xid":
        parse_xid_table(document, where)
    elif name == "sxid":
        parse_sxid_table(document, where)
    elif name == "boards":
        parse_boards(document, where)


def parse_xid_table(document, where="xid.json"):
    _check_schema(document, "gpufleet.xid-table/1", where)
    codes = _xid_codes(document, where)
    unused = _require_kind(document, "unused", list, where)
    for number, code in enumerate(unused):
        if not _is_natural(code) or code in codes:
            raise TableError("%s: unused[%d] is %r, expected a code that is not in codes" % (where, number, code))
    return XidTable(
        codes,
        frozenset(unused),
        _parse_recovery(document, where),
        _parse_registers(document, where),
        _parse_units(document, where),
    )


def _xid_codes(document, where) -> dict:
    codes = {}
    for place, entry in _list_entries(document, "codes", where):
        code = _require_code(entry, "xid", codes, place)
        for key in ("mnemonic", "meaning", "immediate", "investigate"):
            _require_kind(entry, key, str, place)
        _require_kind(entry, "architectures", list, place)
        _require_kind(entry, "driver_suspect", bool, place)
        if _require_choice(entry, "gate", XID_GATES, place) == "decode" and code not in DECODED:
            raise TableError("%s.gate is decode, and there is no rule for XID %d" % (place, code))
        codes[code] = entry
    return codes


def _parse_recovery(document, where) -> list[dict]:
    recovery = []
    for place, entry in _list_entries(document, "recovery", where):
        _require_code(entry, "code", [known["code"] for known in recovery], place)
        _require_choice(entry, "gate", RECOVERY_GATES, place)
        _require_kind(entry, "step", str, place)
        _require_texts(entry, "texts", place)
        recovery.append(entry)
    return recovery


def _parse_registers(document, where) -> list[dict]:
    registers = []
    for place, entry in _list_entries(document, "nvlink_registers", where):
        if not _is_natural(entry.get("register")) or not 1 <= entry["register"] <= 7:
            raise TableError("%s.register is %r, expected a number from 1 to 7" % (place, entry.get("register")))
        _require_choice(entry, "rule", REGISTER_RULES, place)
        _require_kind(entry, "text", str, place)
        for bit in _require_kind(entry, "bits", list, place):
            if not _is_natural(bit) or bit > 31:
                raise TableError("%s.bits has %r, expected numbers from 0 to 31" % (place, bit))
            if any(known["register"] == entry["register"] and bit in known["bits"] for known in registers):
                raise TableError("%s.bits has %d, which has a rule already" % (place, bit))
        registers.append(entry)
    return registers


def _parse_units(document, where) -> list[dict]:
    units = []
    for place, entry in _list_entries(document, "nvlink5_units", where):
        if not _is_natural(entry.get("xid")) or not 144 <= entry["xid"] <= 150:
            raise TableError("%s.xid is %r, expected a number from 144 to 150" % (place, entry.get("xid")))
        for key in ("unit_v1", "unit_v2"):
            if not _is_natural(entry.get(key)):
                raise TableError("%s.%s is %r, expected a number" % (place, key, entry.get(key)))
        _require_choice(entry, "by", UNIT_KEYS, place)
        _require_texts(entry, "names", place)
        for number, row in _list_entries(entry, "rows", place):
            _require_choice(row, "gate", UNIT_GATES, number)
            for text in _require_kind(row, "values", list, number):
                if not isinstance(text, str) or not text or text.strip("0123456789abcdef"):
                    raise TableError("%s.values has %r, expected hexadecimal numbers" % (number, text))
        units.append(entry)
    return units


def parse_sxid_table(document, where="sxid.json") -> dict:
    """The table by code."""
    _check_schema(document, "gpufleet.sxid-table/1", where)
    codes = {}
    for place, entry in _list_entries(document, "codes", where):
        code = _require_code(entry, "sxid", codes, place)
        for key in ("family", "name", "step"):
            _require_kind(entry, key, str, place)
        for key in ("gate", "fatal", "nonfatal"):
            _require_choice(entry, key, SXID_GATES, place)
        _require_kind(entry, "driver_suspect", bool, place)
        codes[code] = entry
    return codes


def parse_boards(document, where="boards.json") -> list[dict]:
    """The rows of the table of boards, in its order."""
    _check_schema(document, "gpufleet.board-table/1", where)
    rows = []
    for place, entry in _list_entries(document, "boards", where):
        _require_kind(entry, "name", str, place)
        for key in ("ecc", "peers"):
            _require_kind(entry, key, bool, place)
        for key in ("memory_mib", "nvlinks", "pcie_generation", "pcie_width"):
            if not _is_natural(entry.get(key)):
                raise TableError("%s.%s is %r, expected a number" % (place, key, entry.get(key)))
        if not all(_is_natural(count) for count in _require_kind(entry, "counts", list, place)):
            raise TableError("%s.counts is %r, expected numbers" % (place, entry["counts"]))
        if not all(
            key.isdigit() and _is_natural(count)
            for key, count in _require_kind(entry, "nvswitches", dict, place).items()
        ):
            raise TableError("%s.nvswitches is %r, expected numbers by number of GPUs" % (place, entry["nvswitches"]))
        rows.append(entry)
    return rows


def _check_schema(document, schema, where) -> None:
    if not isinstance(document, dict):
        raise TableError("%s: expected a dictionary, found %s" % (where, type(document).__name__))
    if document.get("schema") != schema:
        raise TableError("%s: schema is %r, expected %r" % (where, document.get("schema"), schema))


def _list_entries(document, key, where) -> Iterator:
    """(place, entry) of a list of dictionaries that is not empty."""
    entries = _require_kind(document, key, list, where)
    if not entries:
        raise TableError("%s: %s is empty" % (where, key))
    for number, entry in enumerate(entries):
        place = "%s: %s[%d]" % (where, key, number) if ": " not in where else "%s.%s[%d]" % (where, key, number)
        if not isinstance(entry, dict):
            raise TableError("%s is %r, expected a dictionary" % (place, entry))
        yield place, entry


def _require_kind(entry, key, kind, place):
    if not isinstance(entry.get(key), kind):
        raise TableError(
            "%s%s is %r, expected a %s"
            % (place, (": " if ": " not in place else ".") + key, entry.get(key), kind.__name__)
        )
    return entry[key]


def _require_choice(entry, key, known, place) -> str:
    if entry.get(key) not in known:
        raise TableError("%s.%s is %r, expected one of %s" % (place, key, entry.get(key), ", ".join(known)))
    return entry[key]


def _require_code(entry, key, taken, place) -> int:
    code = entry.get(key)
    if not _is_natural(code):
        raise TableError("%s.%s is %r, expected a number" % (place, key, code))
    if code in taken:
        raise TableError("%s.%s is %d, which is there already" % (place, key, code))
    return code


def _require_texts(entry, key, place) -> None:
    texts = _require_kind(entry, key, list, place)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise TableError("%s.%s is %r, expected a list of texts" % (place, key, texts))


def _is_natural(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
