# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a node in quarantine for the return of its hardware: its parts, and what they told (gpufleet.rma/1).

Every value is there or is named in C(missing) with the reason: a part that is silent is not a part that is well.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import marker

Answer = Mapping[str, Any]
SCHEMA = "gpufleet.rma/1"
TIME = "%Y-%m-%dT%H:%M:%SZ"
# What is said of a GPU, by its name in a snapshot of NVML. What a model does not have is nothing that is missing.
VALUES = {
    "uuid": "uuid",
    "serial": "serial",
    "part_number": "board_part_number",
    "name": "name",
    "vbios": "vbios_version",
    "inforom": "inforom_image_version",
    "inforom_valid": "inforom_valid",
    "ecc_mode": "ecc_mode_current",
    "ecc": "ecc_counters",
    "sram_ecc": "sram_ecc",
    "remapped_rows": "remapped_rows",
    "remap_histogram": "remap_histogram",
    "retired_pages": "retired_pages",
    "retired_pages_pending": "retired_pages_pending",
    "repair_status": "repair_status",
    "recovery_action": "recovery_action",
}
NOT_SUPPORTED = (3, 13)  # NVML: NOT_SUPPORTED, FUNCTION_NOT_FOUND


def build(about: Answer, health: Any, reading: Any, baseline: Any, table: Any) -> dict[str, Any]:
    """The record of a node.

    ABOUT: node, time, reason, user, controller, evidence, and silent, why a node that does not answer does not.
    HEALTH and READING are the verdict and the baseline document that gpu_health answered, BASELINE an earlier one,
    TABLE the collection's table of XIDs.
    """
    reading = reading if isinstance(reading, Mapping) else {}
    health = health if isinstance(health, Mapping) else {}
    missing = [{"part": "node", "reason": str(about["silent"])}] if about.get("silent") else []
    gpus = list(_gpus(reading, baseline, missing))
    if not reading and not missing:
        missing.append({"part": "node", "reason": "its GPUs were not read"})
    identity = model.item(reading, "audit", "identity") or model.item(baseline, "audit", "identity") or {}
    for key in ("machine_id", "board_serial"):
        if identity.get(key) is None and reading:
            missing.append({"part": "machine: " + key, "reason": "the system does not tell it"})
    log = model.item(reading, "kernel_log")
    if reading and model.item(log, "complete") is not True:
        missing.append(
            {"part": "XIDs", "reason": str(model.item(log, "problem") or "the kernel log was not read whole")}
        )
    return {
        "schema": SCHEMA,
        **{key: str(about.get(key) or "") for key in ("node", "time", "reason", "user", "controller", "evidence")},
        "answered": bool(reading),
        "simulated": bool(model.item(reading, "snapshot", "simulated")),
        "boot_id": model.item(reading, "boot_id"),
        "machine": {key: identity.get(key) for key in ("machine_id", "board_serial")},
        "driver": {key: model.item(health, "driver", key) for key in sorted(model.item(health, "driver") or {})},
        "verdict": health.get("verdict"),
        "action": health.get("action"),
        "checks": [
            {key: check.get(key) for key in ("id", "entity", "status", "observed", "expected", "action", "message")}
            for check in health.get("checks") or []
            if check.get("status") in ("fail", "unknown")
        ],
        "gpus": gpus,
        "xids": xids(log, health.get("time"), table, gpus),
        "missing": missing,
    }


def _gpus(reading: Answer, baseline: Any, missing: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """The GPUs that were read, and those of the baseline that were not; what they did not tell goes to MISSING."""
    before = {gpu["pci"]: gpu for gpu in marker.describe_gpus(model.item(baseline, "snapshot")) if gpu["pci"]}
    seen = set()
    for gpu in model.gpus(model.item(reading, "snapshot")):
        place = model.address(gpu)
        values = {key: model.reading(gpu, name) for key, name in VALUES.items()}
        row: dict[str, Any] = {key: found.value for key, found in values.items()}
        row.update(index=gpu.get("index"), pci=place, from_baseline=[])
        name = row["uuid"] or place or "GPU %s" % gpu.get("index")
        missing.extend(
            {"part": "%s: %s" % (name, key), "reason": str(model.format_reading(found))}
            for key, found in values.items()
            if not found.known and found.rc not in NOT_SUPPORTED
        )
        _fill(row, before.get(place) if row["uuid"] is None else None)
        seen.add(row["uuid"])
        yield row
    for gpu in marker.describe_gpus(model.item(baseline, "snapshot")):
        if gpu["uuid"] and gpu["uuid"] not in seen:
            row = dict.fromkeys(VALUES)
            row.update(index=None, pci=None, from_baseline=[])
            _fill(row, gpu)
            missing.append(
                {
                    "part": marker.format_gpu(gpu),
                    "reason": "NVML shows this GPU of the baseline no more" if reading else "the node was not read",
                }
            )
            yield row


def _fill(row: dict[str, Any], gpu: Answer | None) -> None:
    """Return what the baseline has of a GPU that does not answer now. Only its identity is taken from it, nothing that
    changes."""
    for key in ("uuid", "serial", "part_number", "name", "pci"):
        if gpu and row[key] is None and gpu.get(key):
            row[key] = gpu[key]
            row["from_baseline"].append(key)


def xids(log: Any, time: Any, table: Any, gpus: Sequence[Answer]) -> list[dict[str, Any]]:
    """XIDs of the kernel log by GPU and code, with their class, how often, and when the first and the last came."""
    names = {gpu["pci"]: gpu["uuid"] for gpu in gpus if gpu["pci"]}
    codes = {entry.get("xid"): entry for entry in model.item(table, "codes") or [] if isinstance(entry, Mapping)}
    groups: dict[tuple[Any, Any], dict[str, Any]] = {}
    for event in model.item(log, "events") or []:
        if isinstance(event, Mapping) and event.get("kind") == "xid":
            _count(groups, event.get("pci"), event.get("xid"), 1, event.get("monotonic_us"), event.get("text"))
    for entry in model.item(log, "suppressed") or []:
        if isinstance(entry, Mapping) and entry.get("kind") == "xid":
            _count(groups, entry.get("pci"), entry.get("code"), entry.get("count"), entry.get("last_us"), None)
    rows = []
    for (place, code), group in sorted(
        groups.items(), key=lambda item: (str(item[0][0]), not isinstance(item[0][1], int), str(item[0][1]).zfill(6))
    ):
        known = codes.get(code) or {}
        times = [_wall(time, model.item(log, "read_at_us"), moment) for moment in (group["first"], group["last"])]
        rows.append(
            {
                "xid": code,
                "class": known.get("gate") or "not in the table",
                "mnemonic": known.get("mnemonic"),
                "meaning": known.get("meaning"),
                "pci": place,
                "uuid": names.get(place),
                "count": group["count"],
                "first": times[0],
                "last": times[1],
                "text": group["text"],
            }
        )
    return rows


def _count(
    groups: dict[tuple[Any, Any], dict[str, Any]], pci: Any, code: Any, count: Any, moment: Any, text: Any
) -> None:
    group = groups.setdefault(
        (model.pci_address(pci) or pci, code), {"count": 0, "first": None, "last": None, "text": None}
    )
    group["count"] += count if isinstance(count, int) else 1
    if isinstance(moment, (int, float)):
        group["first"] = moment if group["first"] is None else min(group["first"], moment)
        group["last"] = moment if group["last"] is None else max(group["last"], moment)
    group["text"] = group["text"] or text


def _wall(time: Any, read_at_us: Any, moment: Any) -> str | None:
    """Return the time of an entry that the kernel logged at MOMENT; the log was read at READ_AT_US of its clock, at
    TIME."""
    try:
        taken = datetime.datetime.strptime(time, TIME)
        return (taken - datetime.timedelta(microseconds=read_at_us - moment)).strftime(TIME)
    except (TypeError, ValueError, OverflowError):
        return None


def entry(record: Answer) -> dict[str, Any]:
    """Return the marker's data on the GPUs of a record."""
    keys = ("uuid", "serial", "part_number", "name", "pci")
    return {
        "gpus": [{key: gpu[key] for key in keys} for gpu in record["gpus"]],
        "checks": marker.list_failed_checks(record),
    }
