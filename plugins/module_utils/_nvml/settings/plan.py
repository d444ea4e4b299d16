# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan which settings to set: pure functions of snapshots and wishes.

Values are those of NVML (milliwatts, numbers of modes); values.shown() shows them as the options have them.
"""

from __future__ import annotations

from .. import codes
from ..selection import value
from . import table as settings
from .rows import (
    CHANGED,
    DEFAULT,
    FAILED,
    NOT_SUPPORTED,
    PENDING,
    SAME,
    UNLOCKED,
    UNPROVEN,
    advice,
    blank,
    failed,
    in_force,
    lacks,
    reached,
    read,
    sane,
    shown,
    text,
)


def decide(gpus, wishes, kept, load, daemon=False, processes_ok=False):
    """The plan, a list of rows, one for each GPU and setting that is wanted.

    One that failed forbids all steps: nothing is set then.

    GPUS are of a snapshot, WISHES {uuid: {setting: wish}}, KEPT what settings_state.read answers, LOAD the mark of this
    load of the driver, DAEMON whether nvidia-persistenced runs.
    """
    rows = []
    for gpu in gpus:
        uuid = value(gpu, "uuid")
        if value(gpu, "handle") is not True or not uuid:
            handle = gpu["handle"] if gpu["handle"]["rc"] != codes.SUCCESS else gpu["uuid"]
            rows.append(_lost(gpu, handle))
            continue
        for row in settings.TABLE:
            wish = wishes.get(uuid, {}).get(row.name)
            if wish is not None:
                planned = _row(gpu, row, wish, (kept.get(uuid) or {}).get(row.name), load, daemon, processes_ok)
                if planned is not None:
                    rows.append(planned)
    return rows


def absent(uuids):
    """Rows of GPUs that a baseline has and NVML does not show."""
    return [
        failed(
            blank(uuid),
            "NVML does not show this GPU of the baseline; look for NVRM lines in the kernel log, and for "
            "the board in lspci",
            codes.missing(6),
        )
        for uuid in uuids
    ]


def _lost(gpu, handle):
    who = value(gpu, "pci_bus_id") or "GPU with index %d" % (gpu["index"],)
    return failed(blank(who), "NVML does not open the GPU: %s" % (advice(handle["rc"]),), handle)


def _row(gpu, row, wish, kept, load, daemon, processes_ok):
    """The planned row, or None where nothing is wanted and nothing can be said."""
    planned = blank(value(gpu, "uuid"), row, wish)
    if "problem" in wish:
        return failed(planned, wish["problem"])
    if not row.getter:
        return _locked_row(gpu, row, wish, kept, load, processes_ok, planned)
    found = read(gpu, row.name)
    if wish["value"] is None:
        # The board had no such setting when the baseline was taken: if it has one now, no value was ever given.
        return dict(planned, status=NOT_SUPPORTED) if lacks(gpu, row.name, found["rc"]) else None
    if lacks(gpu, row.name, found["rc"]):
        if planned["insists"] or not row.ends:
            return failed(planned, "it is not supported here (%s): %s" % (row.support, advice(found["rc"])), found)
        return dict(planned, status=NOT_SUPPORTED)
    if found["rc"] != codes.SUCCESS:
        return failed(planned, "it cannot be read: %s" % (advice(found["rc"]),), found)
    wanted = _default(gpu, row.name) if wish["value"] == DEFAULT else wish["value"]
    planned.update(before=found["value"], wanted=wanted, after=found["value"])
    if wanted is None:
        return failed(planned, "NVML does not tell the default of this board; give a value")
    if reached(row.name, found["value"], wanted):
        return dict(planned, status=SAME if in_force(row.name, found["value"], wanted) else PENDING)
    reason = _forbidden(gpu, row, wanted, daemon) or _busy(gpu, row, processes_ok)
    if reason:
        return failed(planned, reason)
    after = {"current": found["value"]["current"], "pending": wanted} if row.pending_until else wanted
    return dict(
        planned,
        after=after,
        status=CHANGED if in_force(row.name, after, wanted) else PENDING,
        changed=True,
        step=_step(planned, row, wanted, wish["value"] == DEFAULT),
    )


def _locked_row(gpu, row, wish, kept, load, processes_ok, planned):
    """Locked clocks: what was set last is known from the node's own file alone, and only for the same load of the
    driver.
    """
    wanted = wish["value"]
    current = bool(kept) and kept["load"] == load and load is not None
    planned["before"] = kept["value"] if current else None
    # A reloaded driver has no locked clocks.
    due = not kept or kept["value"] != wanted or (not current and wanted != UNLOCKED)
    reason = _forbidden(gpu, row, wanted, False) or (_busy(gpu, row, processes_ok) if due else None)
    if reason:
        return failed(planned, reason)
    return dict(
        planned, after=wanted, status=UNPROVEN, changed=due, step=_step(planned, row, wanted, wanted == UNLOCKED)
    )


def _forbidden(gpu, row, wanted, daemon):
    """Return why WANTED cannot be set on this GPU; None if nothing is known against it."""
    if row.name == "persistence_mode" and daemon:
        return "nvidia-persistenced runs and decides on the mode; %s" % (
            "start it without --no-persistence-mode (role nvidia_persistenced)"
            if wanted
            else "stop and disable its unit, or take a new baseline",
        )
    mig = gpu.get("mig_mode_current") or codes.missing(codes.UNREADABLE)
    if row.name == "compute_mode":
        if mig["rc"] == codes.SUCCESS and mig["value"]:
            return (
                "the GPU is in MIG mode, and NVML sets the compute mode of MIG devices only; leave compute_mode out, "
                "or switch MIG off first"
            )
        if mig["rc"] not in (codes.SUCCESS,) + settings.UNSUPPORTED:
            return "whether the GPU is in MIG mode is not known (%s); look for NVRM lines in the kernel log" % (
                mig.get("error"),
            )
    if row.name == "power_limit_w":
        low, high = value(gpu, "power_limit_min_mw"), value(gpu, "power_limit_max_mw")
        if low is None or high is None:
            return "NVML does not tell the range of power limits of this board; look at nvidia-smi -q -d POWER"
        if not low <= wanted <= high:
            return "the board takes %s to %s W; choose a limit in this range" % (
                text(shown(row.name, low)),
                text(shown(row.name, high)),
            )
    return _too_high(gpu, row.name, wanted)


def _too_high(gpu, name, wanted):
    limits = value(gpu, "clocks_max_mhz") or {}
    asked = {}
    if name == "application_clocks_mhz":
        asked = wanted
    elif name in ("locked_graphics_clocks_mhz", "locked_memory_clocks_mhz") and wanted != UNLOCKED:
        asked = {"graphics" if name == "locked_graphics_clocks_mhz" else "mem": wanted["max"]}
    for kind in sorted(asked):
        if limits.get(kind) is not None and asked[kind] > limits[kind]:
            return "the %s clock of this board is %d MHz at most; choose a lower one" % (
                {"mem": "memory"}.get(kind, kind),
                limits[kind],
            )
    return None


def _busy(gpu, row, processes_ok):
    """Return why programs on the GPU forbid a change; None if they do not."""
    if processes_ok or not row.disturbs:
        return None
    for key in ("compute_processes", "graphics_processes"):
        entry = gpu.get(key) or codes.missing(codes.UNREADABLE)
        if entry["rc"] == codes.SUCCESS and entry["value"]:
            return "processes use the GPU (pid %s); drain the node first, or allow it with processes: allow" % (
                ", ".join(str(process["pid"]) for process in entry["value"][:8]),
            )
        if entry["rc"] not in (codes.SUCCESS,) + settings.UNSUPPORTED:
            return "whether processes use the GPU is not known (%s); look for NVRM lines in the kernel log" % (
                entry.get("error"),
            )
    return None


def _default(gpu, name):
    wanted = value(
        gpu,
        {"power_limit_w": "power_limit_default_mw", "application_clocks_mhz": "applications_clocks_default_mhz"}[name],
    )
    return wanted if sane(name, wanted) else None


def _step(planned, row, wanted, reset):
    symbol = row.resetter if reset and row.resetter else row.setter
    if symbol == row.resetter:
        arguments = []
    elif isinstance(wanted, dict):
        # NVML takes the memory clock first, and the lower limit first.
        arguments = [wanted[key] for key in (("mem", "graphics") if "mem" in wanted else ("min", "max"))]
    else:
        arguments = [wanted]
    return {
        "gpu": planned["gpu"],
        "setting": row.name,
        "symbol": symbol,
        "arguments": arguments,
        "optional": row.ends and not planned["insists"],
    }


def steps(plan):
    """The steps of a plan in their order: none if a row failed.

    Persistence mode goes off last, as everything else would be lost with it.
    """
    if any(row["status"] == FAILED for row in plan):
        return []
    found = [row["step"] for row in plan if row["step"]]
    return sorted(found, key=lambda step: step["setting"] == "persistence_mode" and step["arguments"] == [0])
