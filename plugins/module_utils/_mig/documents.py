# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations written: of the layout that a node has, and of the layouts that its GPUs can have.

In the format that config.py reads.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from . import config, plan

# Instances of a balanced layout, by slices, for boards with so many slices: nvidia-mig-parted's own all-balanced.
BALANCED = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}


def export_layout(gpus: Sequence[Dict[str, Any]], label: str) -> Tuple[Dict[str, Any], List[str]]:
    """(document, notes): the layout of all GPUS as the configuration LABEL.

    What a configuration cannot say is among the notes.
    """
    notes = []
    groups: List[Tuple[Dict[str, Any], List[int]]] = []
    for position, gpu in enumerate(gpus):
        found = plan.read_layout(gpu)
        if found is None:
            notes.append(
                "%s: its MIG layout cannot be read, and it is not in the configuration" % (plan.name_gpu(gpu),)
            )
            continue
        empty = sum(count for name, count in found["devices"].items() if name.startswith("0c."))
        if empty:
            notes.append(
                "%s has %d GPU instances without a compute instance; a configuration cannot say that"
                % (plan.name_gpu(gpu), empty)
            )
        devices = dict((name, count) for name, count in found["devices"].items() if not name.startswith("0c."))
        entry: Dict[str, Any] = {"mig-enabled": found["enabled"]}
        if found["enabled"]:
            entry["mig-devices"] = devices
        same = next((positions for other, positions in groups if other == entry), None)
        if same is None:
            groups.append((entry, [position]))
        else:
            same.append(position)
    entries = [
        dict({"devices": positions if len(positions) < len(gpus) else config.ALL}, **entry)
        for entry, positions in groups
    ]
    return {"version": config.VERSION, "mig-configs": {label: entries}} if entries else {
        "version": config.VERSION
    }, notes


def generate_document(gpus: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """The document with all-disabled, all-enabled, all-balanced and a configuration for each profile, from what the
    GPUS offer.
    """
    offers: Dict[str, List[Dict[str, Any]]] = {}
    for position, gpu in enumerate(gpus):
        layout = plan.value(gpu, "mig_layout")
        if layout is not None and layout["profiles"]:
            offers.setdefault(plan.target(gpu, position).device_id, layout["profiles"])
    configs: Dict[str, List[Dict[str, Any]]] = {
        "all-disabled": [{"devices": config.ALL, "mig-enabled": False}],
        "all-enabled": [{"devices": config.ALL, "mig-enabled": True, "mig-devices": {}}],
    }
    several = len(offers) > 1
    for device in sorted(offers):
        for name, devices in _layouts(offers[device]):
            _add(configs.setdefault(name, []), device if several else None, devices)
    return {"version": config.VERSION, "mig-configs": configs}


def _layouts(profiles: Sequence[Dict[str, Any]]) -> List[Tuple[str, Dict[str, int]]]:
    found = [("all-" + profile["name"].replace("+", "."), {profile["name"]: profile["count"]}) for profile in profiles]
    balanced = _balance_profiles(profiles)
    return found + ([("all-balanced", balanced)] if balanced else [])


def _balance_profiles(profiles: Sequence[Dict[str, Any]]) -> Dict[str, int]:
    plain = [profile for profile in profiles if "+" not in profile["name"] and "-" not in profile["name"]]
    formula = BALANCED.get(max([profile["slices"] for profile in plain] or [0]), {})
    devices = {}
    for slices, count in formula.items():
        fitting = [profile for profile in plain if profile["slices"] == slices]
        if not fitting:
            return {}
        # The one with the least memory, of which there can be the most.
        devices[max(fitting, key=lambda profile: profile["count"])["name"]] = count
    return devices


def _add(entries: List[Dict[str, Any]], device: Any, devices: Dict[str, int]) -> None:
    """An entry for DEVICE (None: the node has one model), together with that of another model with the same devices."""
    for entry in entries:
        if device is not None and entry["mig-devices"] == devices:
            entry["device-filter"].append(device)
            return
    entry = {"devices": config.ALL, "mig-enabled": True, "mig-devices": devices}
    entries.append(entry if device is None else dict({"device-filter": [device]}, **entry))
