# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the node's own series that one reading does not have: counters of this boot, and since when updates are
held out. Pure.

The kernel log drops old entries, so each run adds the entries since the last run to the counts of that run. They are
kept in one document (gpufleet.textfile-state/1), which the last run wrote; an unusable one counts as missing.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from .._kernel import kernel_lines
from .._nvml.selection import value as read_of
from . import series

SCHEMA = "gpufleet.textfile-state/1"
# What the table of XIDs only records.
NOT_COUNTED = "ok"
# A code that the table does not have, or a line that cannot be taken apart, as xid_rules has it.
UNKNOWN_CODE = "hold"
# So many places that are no GPU of NVML's are counted apart; more of them are counted together.
MOST_STRANGERS = 4
NOWHERE = ""


def fresh(boot_id: Optional[str]) -> Dict[str, Any]:
    """The document of a node of which nothing is known yet."""
    return {
        "schema": SCHEMA,
        "boot_id": boot_id,
        "position": None,
        "gpus": {},
        "xids": None,
        "sxids": {},
        "updates": {},
        "holds": None,
    }


def of_boot(kept: Any, boot_id: Optional[str]) -> Dict[str, Any]:
    """The document KEPT by the run before, as far as it holds in the boot BOOT_ID: each boot begins to count again."""
    state = fresh(boot_id)
    if series.item(kept, "schema") != SCHEMA:
        return state
    for key in ("updates", "holds"):
        if isinstance(kept.get(key), dict):
            state[key] = kept[key]
    if boot_id is not None and kept.get("boot_id") == boot_id and _counters(kept):
        for key in ("position", "gpus", "xids", "sxids"):
            state[key] = kept[key]
    return state


def _counters(kept: Mapping[str, Any]) -> bool:
    """Tell if the counters of a document are complete."""
    xids = kept.get("xids")
    return (
        isinstance(kept.get("gpus"), dict)
        and isinstance(kept.get("sxids"), dict)
        and (xids is None or isinstance(xids, dict) and all(_row(row) for row in xids.values()))
        and (kept.get("position") is None) == (xids is None)
    )


def _row(row: Any) -> bool:
    return all(
        isinstance(series.item(row, key), dict) and all(isinstance(count, int) for count in row[key].values())
        for key in ("classes", "codes")
    )


def after(state: Mapping[str, Any], found: Mapping[str, Any], table: Any) -> Dict[str, Any]:
    """STATE with what the reading FOUND adds to it; TABLE is the collection's table of XIDs."""
    new = dict(state, gpus=dict(state["gpus"]))
    if series.answers(found):
        for gpu in found["snapshot"]["gpus"]:
            place, uuid = kernel_lines.address(read_of(gpu, "pci_bus_id")), read_of(gpu, "uuid")
            if place and uuid:
                new["gpus"][place] = {"gpu": str(gpu["index"]), "UUID": uuid}
    _count(new, found.get("kernel_log"), classes(table))
    if found.get("holds") is not None:
        new["holds"] = found["holds"]
        new["updates"] = updates(state["updates"], found["holds"]["rows"], found["now"])
    return new


def classes(table: Any) -> Optional[Dict[int, str]]:
    """The class of each XID of the TABLE; None if it is damaged: then nothing is counted, and nothing is lost."""
    try:
        return dict((entry["xid"], entry["gate"]) for entry in table["codes"])
    except (TypeError, KeyError):
        return None


def _count(new: Dict[str, Any], log: Any, known: Optional[Dict[int, str]]) -> None:
    """Add the XIDs and SXids of the kernel LOG since the position of NEW, and move it."""
    if (
        known is None
        or not isinstance(log, dict)
        or log.get("position") is None
        or log.get("boot_id") != new["boot_id"]
    ):
        return
    since, uuids = new["position"], log.get("gpus") or {}
    new["xids"] = dict((place, _copy_row(row)) for place, row in (new["xids"] or {}).items())
    new["sxids"] = dict(new["sxids"])
    for event in log["events"]:
        if _later(event, since):
            _add(
                new,
                known,
                uuids,
                event["kind"],
                event.get("pci") or event.get("uuid"),
                event.get("xid"),
                event.get("fatal"),
                1,
            )
    for entry in log["suppressed"]:
        if since is None or entry["last_us"] > since["monotonic_us"]:
            # How bad an SXid was is not known of those that are only counted: as bad as the first of its kind.
            fatal = any(
                event.get("fatal") is not False
                for event in log["events"]
                if event["kind"] == "sxid" and event.get("pci") == entry["pci"] and event.get("sxid") == entry["code"]
            )
            _add(new, known, uuids, entry["kind"], entry["pci"], entry["code"], fatal, entry["count"])
    new["position"] = dict((key, log["position"].get(key)) for key in ("boot_id", "seq", "monotonic_us"))


def _copy_row(row: Mapping[str, Any]) -> Dict[str, Any]:
    return dict(row, classes=dict(row["classes"]), codes=dict(row["codes"]))


def _later(event: Mapping[str, Any], since: Optional[Mapping[str, Any]]) -> bool:
    """Tell if EVENT is after the position SINCE. A log that does not have the position returns all of its events."""
    if since is None:
        return True
    if event.get("seq") is not None and since.get("seq") is not None:
        return event["seq"] > since["seq"]
    return event["monotonic_us"] > since["monotonic_us"]


def _add(
    new: Dict[str, Any],
    known: Mapping[int, str],
    uuids: Mapping[str, str],
    kind: str,
    where: Optional[str],
    code: Optional[int],
    fatal: Optional[bool],
    count: int,
) -> None:
    if kind == "sxid":
        word = "no" if fatal is False else "yes"
        new["sxids"][word] = new["sxids"].get(word, 0) + count
    if kind != "xid":
        return
    name = UNKNOWN_CODE if code is None else known.get(code, UNKNOWN_CODE)
    if name == NOT_COUNTED:
        return
    place, uuid = locate_gpu(new, uuids, where)
    row = new["xids"].setdefault(place, {"UUID": uuid, "classes": {}, "codes": {}})
    row["classes"][name] = row["classes"].get(name, 0) + count
    if str(code) in series.CODES:
        row["codes"][str(code)] = row["codes"].get(str(code), 0) + count


def locate_gpu(new: Mapping[str, Any], uuids: Mapping[str, str], where: Optional[str]) -> Any:
    """(place, UUID) of WHERE, a PCI address or a UUID of the log: a GPU that NVML knew in this boot, if it is one."""
    address = kernel_lines.address(where)
    uuid = uuids.get(address, "") if address else where or ""
    for place, gpu in new["gpus"].items():
        if address == place or uuid and gpu["UUID"] == uuid:
            return place, gpu["UUID"]
    place = address or uuid
    strangers = set(new["xids"]) - set(new["gpus"]) - {NOWHERE}
    if not place or place not in strangers and len(strangers) >= MOST_STRANGERS:
        return NOWHERE, ""
    return place, uuid


def updates(known: Mapping[str, Any], holds: Mapping[str, Any], now: float) -> Dict[str, float]:
    """Since when each security update is known to be held out, by package and version: nothing else records it."""
    result = {}
    for kind in series.KINDS:
        for row in holds[kind]:
            for version in row.get("security") or ():
                name = "%s=%s" % (row["package"], version)
                first = known.get(name)
                result[name] = first if isinstance(first, (int, float)) and first <= now else now
    return result
