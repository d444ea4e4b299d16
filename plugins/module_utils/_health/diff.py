# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List the differences from the baseline by GPU, and their kind.

The checks judge; this explains.
"""

from __future__ import annotations

import collections
import fnmatch

from . import model
from .model import NODE

EXPECTED, RESTORABLE, REGRESSION = "expected", "restorable", "regression"
CLASSES = (EXPECTED, RESTORABLE, REGRESSION)

# kind: RESTORABLE or REGRESSION. driver: expected when the driver's version changed as well. better(before, after):
# whether the change is one for the better, which is expected too.
Item = collections.namedtuple("Item", ["kind", "driver", "better"])


def _make_item(kind, driver=False, better=None):
    return Item(kind, driver, better)


def is_more(before, after) -> bool:
    return after > before


def more_links(before, after) -> bool:
    return len(after) >= len(before) and all(new is True or new == old for old, new in zip(before, after))


def is_repaired(before, after) -> bool:
    """A repair that waited was made: pending is gone, nothing failed."""
    return before.get("pending") is True and after.get("pending") is False and after.get("failure") is False


def is_healthy(before, after) -> bool:
    return after == 0


SETTING = _make_item(RESTORABLE)
HARDWARE = _make_item(REGRESSION)
SOFTWARE = _make_item(REGRESSION, driver=True)

# Values of a GPU in the snapshot that come and go by themselves; the two names of a GPU are compared by match_gpus().
TRANSIENT = frozenset(
    (
        "uuid",
        "pci_bus_id",
        "minor_number",
        "bar1_used_bytes",
        "memory_used_bytes",
        "memory_free_bytes",
        "memory_reserved_bytes",
        "clock_sm_mhz",
        "clock_mem_mhz",
        "clocks_mhz",
        "clocks_event_reasons",
        "violation_ns",
        "power_usage_mw",
        "temperature_gpu_c",
        "temperature_memory_c",
        "temperature_margin_c",
        "compute_processes",
        "graphics_processes",
        "pcie_gen_current",
        "pcie_replay_count",
        "nvlinks",
        "ecc_counters",
        "sram_ecc",
        "ecc_volatile_corrected",
        "ecc_volatile_uncorrected",
        "ecc_aggregate_corrected",
    )
)
# All others.
GPU_ITEMS = {
    "serial": HARDWARE,
    "name": HARDWARE,
    "board_part_number": HARDWARE,
    "pci_device_id": HARDWARE,
    "pci_subsystem_id": HARDWARE,
    "architecture": HARDWARE,
    "vbios_version": HARDWARE,
    "inforom_image_version": HARDWARE,
    "inforom_config_checksum": HARDWARE,
    "inforom_valid": HARDWARE,
    "virtualization_mode": HARDWARE,
    "bar1_total_bytes": HARDWARE,
    "power_limit_min_mw": HARDWARE,
    "power_limit_max_mw": HARDWARE,
    "power_limit_default_mw": HARDWARE,
    "clocks_max_mhz": HARDWARE,
    "temperature_limits_c": HARDWARE,
    "mig_max_devices": HARDWARE,
    "p2p": HARDWARE,
    "temperature_margin_limits_c": HARDWARE,
    "memory_total_bytes": _make_item(REGRESSION, driver=True),
    "pcie_gen_max": _make_item(REGRESSION, better=is_more),
    "pcie_gen_device_max": _make_item(REGRESSION, better=is_more),
    "pcie_width_max": _make_item(REGRESSION, better=is_more),
    "pcie_width_current": _make_item(REGRESSION, better=is_more),
    "nvlink_active": _make_item(REGRESSION, better=more_links),
    "fabric_state": HARDWARE,
    "fabric": HARDWARE,
    "ecc_aggregate_uncorrected": HARDWARE,
    "remapped_rows": _make_item(REGRESSION, better=is_repaired),
    "remap_histogram": HARDWARE,
    "retired_pages": HARDWARE,
    "retired_pages_pending": _make_item(REGRESSION, better=is_healthy),
    "repair_status": HARDWARE,
    "recovery_action": _make_item(REGRESSION, better=is_healthy),
    "gsp_firmware_version": SOFTWARE,
    "gsp_firmware_mode": SOFTWARE,
    "addressing_mode": SOFTWARE,
    "applications_clocks_default_mhz": SOFTWARE,
    "persistence_mode": SETTING,
    "power_limit_mw": SETTING,
    "power_limit_enforced_mw": SETTING,
    "compute_mode": SETTING,
    "ecc_mode_current": SETTING,
    "ecc_mode_pending": SETTING,
    "mig_mode_current": SETTING,
    "mig_mode_pending": SETTING,
    "mig_instances": SETTING,
    "applications_clocks_mhz": SETTING,
}
# Values that NVML has of the node.
SYSTEM_ITEMS = {"driver_version": SOFTWARE, "nvml_version": SOFTWARE, "cuda_driver_version": SOFTWARE}
# Plain values of the other sections: (section, path).
NODE_ITEMS = {
    ("audit", "versions", "loaded"): SOFTWARE,
    ("audit", "versions", "library"): SOFTWARE,
    ("audit", "versions", "gsp_firmware"): SOFTWARE,
    ("audit", "versions", "packages"): SOFTWARE,
    ("audit", "flavour"): HARDWARE,
    ("audit", "secure_boot"): HARDWARE,
    ("audit", "nouveau_loaded"): HARDWARE,
    ("audit", "kernel", "running"): HARDWARE,
    ("system", "taint"): HARDWARE,
    ("system", "libcuda"): SOFTWARE,
    ("system", "fabricmanager"): SOFTWARE,
    ("system", "imex"): SOFTWARE,
    ("system", "toolkit"): SOFTWARE,
    ("system", "infiniband"): HARDWARE,
    ("system", "device_nodes"): HARDWARE,
}
UNIT = RESTORABLE


def list_changes(before, after, accepted=(), tolerance_percent=0) -> list[dict]:
    """The differences of the reading or baseline AFTER from that BEFORE: [{"entity", "key", "before", "after",
    "class"}], sorted.

    ACCEPTED are patterns of keys that were changed on purpose. Total memory may differ by TOLERANCE_PERCENT.
    """
    old, new = model.item(before, "snapshot"), model.item(after, "snapshot")
    driver = _driver_changed(before, after)
    found = []
    for key, row in SYSTEM_ITEMS.items():
        _compare_value(
            found,
            NODE,
            "system." + key,
            row,
            model.reading(model.item(old, "system"), key),
            model.reading(model.item(new, "system"), key),
            driver,
        )
    for path, row in NODE_ITEMS.items():
        _compare_value(found, NODE, ".".join(path), row, _read_plain(before, path), _read_plain(after, path), driver)
    _compare_modules(found, before, after)
    _compare_units(found, before, after)
    _compare_gpus(found, old, new, driver, tolerance_percent)
    for change in found:
        if any(fnmatch.fnmatchcase(change["key"], pattern) for pattern in accepted):
            change["class"] = EXPECTED
    return sorted(
        found, key=lambda change: (change["entity"], change["key"], repr(change["before"]), repr(change["after"]))
    )


def _driver_changed(before, after) -> bool:
    """Tell if both have a driver version, and the versions differ."""
    versions = [
        model.reading(model.item(document, "snapshot", "system"), "driver_version").value
        for document in (before, after)
    ]
    return all(isinstance(version, str) for version in versions) and versions[0] != versions[1]


def _read_plain(document, path):
    value = model.item(document, *path)
    return model.NOTHING if value is None else model.Reading(True, value, 0, None)


def _add_change(found, entity, key, before, after, kind) -> None:
    found.append({"entity": entity, "key": key, "before": before, "after": after, "class": kind})


def _compare_value(found, entity, key, row, old, new, driver) -> None:
    """One value. That one is not known any more is a regression; that it is known now, or was never, is none."""
    if old.known and not new.known:
        _add_change(
            found, entity, key, old.value, None if new is model.NOTHING else model.format_reading(new), REGRESSION
        )
    elif old.known and old.value != new.value:
        _add_change(
            found,
            entity,
            key,
            old.value,
            new.value,
            EXPECTED if (row.driver and driver) or _is_better(row, old.value, new.value) else row.kind,
        )
    elif new.known and not old.known and old.rc is not None:
        _add_change(found, entity, key, model.format_reading(old), new.value, EXPECTED)


def _is_better(row, before, after) -> bool:
    try:
        return row.better is not None and bool(row.better(before, after))
    except (TypeError, AttributeError, KeyError):
        return False


def _compare_modules(found, before, after) -> None:
    """Kernel modules that came or went, those alone that belong to GPUs."""
    old, new = (model.item(document, "system", "modules") for document in (before, after))
    if not isinstance(old, list) or not isinstance(new, list):
        return
    old, new = (set(name for name in names if isinstance(name, str) and concerns_gpus(name)) for names in (old, new))
    for name in sorted(old - new):
        _add_change(found, NODE, "modules." + name, "loaded", None, REGRESSION)
    for name in sorted(new - old):
        _add_change(found, NODE, "modules." + name, None, "loaded", EXPECTED if name != "nouveau" else REGRESSION)


def concerns_gpus(name) -> bool:
    return name.startswith(("nvidia", "nv_peer", "gdrdrv", "nouveau", "ib_", "mlx"))


def _compare_units(found, before, after) -> None:
    old, new = (model.item(document, "system", "units") for document in (before, after))
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    for name in sorted(set(old) | set(new), key=str):
        was, is_now = (model.item(units, name, "active") for units in (old, new))
        if was is not None and was != is_now:
            _add_change(found, NODE, "units.%s" % (name,), was, is_now, EXPECTED if is_now == "active" else UNIT)


def match_gpus(old, new) -> dict[str, dict]:
    """Match the GPUs of snapshot OLD with those of NEW: {"lost": {uuid: address}, "moved": {uuid: (from, to)},
    "replaced": {uuid: (address, other uuid)}, "added": {uuid: address}}.

    If another GPU has the address of one that is missing, the GPU was replaced, not lost.
    """
    was = dict((ident, model.address(gpu)) for ident, gpu in model.by_uuid(old).items())
    now = dict((ident, model.address(gpu)) for ident, gpu in model.by_uuid(new).items())
    strangers = dict(
        (address, ident)
        for ident, address in sorted(now.items(), reverse=True)
        if ident not in was and address is not None
    )
    result = {"lost": {}, "moved": {}, "replaced": {}, "added": {}}
    for ident, address in was.items():
        if ident in now:
            if now[ident] is not None and address is not None and now[ident] != address:
                result["moved"][ident] = (address, now[ident])
        elif address in strangers:
            result["replaced"][ident] = (address, strangers[address])
        else:
            result["lost"][ident] = address
    taken = set(other for address, other in result["replaced"].values())
    result["added"] = dict(
        (ident, address) for ident, address in now.items() if ident not in was and ident not in taken
    )
    return result


def _compare_gpus(found, old, new, driver, tolerance_percent) -> None:
    where = match_gpus(old, new)
    for ident, address in where["lost"].items():
        _add_change(found, ident, "present", address, None, REGRESSION)
    for ident, at_place in where["replaced"].items():
        _add_change(found, ident, "replaced", ident, at_place[1], REGRESSION)
    for ident, (address, other) in where["moved"].items():
        _add_change(found, ident, "pci_bus_id", address, other, REGRESSION)
    for ident, address in where["added"].items():
        _add_change(found, ident, "present", None, address, REGRESSION)
    now = model.by_uuid(new)
    for ident, gpu in model.by_uuid(old).items():
        if ident not in now:
            continue
        for key, row in GPU_ITEMS.items():
            if key not in now[ident] and key not in gpu:
                continue
            was, is_now = model.reading(gpu, key), model.reading(now[ident], key)
            # Drivers reserve different amounts of memory.
            excused = _is_within(was.value, is_now.value, tolerance_percent) if key == "memory_total_bytes" else driver
            _compare_value(found, ident, key, row, was, is_now, excused)


def _is_within(before, after, percent) -> bool:
    try:
        return abs(after - before) * 100.0 <= before * percent
    except TypeError:
        return False
