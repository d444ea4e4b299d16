# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU of a snapshot, and the one row that is planned for it."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import codes
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import plan as settings_plan

UUID = "GPU-1"
LOAD = "boot/1"
VALUES = {
    "handle": True,
    "uuid": UUID,
    "pci_bus_id": "00000000:1b:00.0",
    "persistence_mode": 1,
    "compute_mode": 0,
    "power_limit_mw": 700000,
    "power_limit_default_mw": 700000,
    "power_limit_min_mw": 200000,
    "power_limit_max_mw": 700000,
    "applications_clocks_mhz": {"graphics": 1980, "mem": 2619},
    "applications_clocks_default_mhz": {"graphics": 1980, "mem": 2619},
    "clocks_max_mhz": {"graphics": 1980, "sm": 1980, "mem": 2619, "video": 1545},
    "ecc_mode_current": 1,
    "ecc_mode_pending": 1,
    "mig_mode_current": 0,
    "compute_processes": [],
    "graphics_processes": [],
}
BUSY = [{"pid": 4711, "used_bytes": 1}]
LOCK = {"min": 1000, "max": 1500}


def gpu(index=0, **changed):
    """A GPU of a snapshot; a value that is an integer code in a tuple stands in the value's place: (15,)."""
    result = {"index": index}
    for key, content in dict(VALUES, **changed).items():
        result[key] = codes.missing(content[0]) if isinstance(content, tuple) else codes.value(content)
    return result


def wish(value, explicit=True, **more):
    return dict({"value": value, "explicit": explicit}, **more)


def decide(name, wanted, kept=None, daemon=False, processes_ok=False, load=LOAD, **changed):
    """The one row that is planned."""
    wanted = wanted if isinstance(wanted, dict) and ("explicit" in wanted or "problem" in wanted) else wish(wanted)
    entries = {UUID: {name: kept}} if kept else {}
    plan = settings_plan.decide([gpu(**changed)], {UUID: {name: wanted}}, entries, load, daemon, processes_ok)
    return plan[0] if plan else None


OK = {"rc": 0, "error": "SUCCESS", "detail": None, "tried": True}


def refused(rc, tried=True):
    return {"rc": rc, "error": codes.name(rc), "detail": None, "tried": tried}
