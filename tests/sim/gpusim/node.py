# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes the hardware of a node: gpusim init."""

from __future__ import annotations

import hashlib
import os
import uuid

from . import state

HERE = os.path.dirname(os.path.abspath(__file__))
PROFILES = os.path.join(os.path.dirname(HERE), "profiles")


def profiles() -> list[str]:
    return sorted(name[:-4] for name in os.listdir(PROFILES) if name.endswith(".ini"))


def read_profile(model: str):
    """The values of a model: its own, and those of the board that it is like, and what all are when they are idle. An
    empty one takes another's away.
    """
    own, profile = state.ini(), state.ini()
    path = os.path.join(PROFILES, model + ".ini")
    own.read(path, encoding="utf-8")
    places = [os.path.join(PROFILES, name) for name in ("idle.cfg", own["node"].get("like", model) + ".ini")]
    profile.read([*places, path], encoding="utf-8")
    profile.remove_option("node", "like")
    for key in [key for key, value in profile["gpu"].items() if not value]:
        profile.remove_option("gpu", key)
    return profile


def describe(model: str, gpus: int | None, node: str):
    """The node's description: the model's values, and for each GPU what is its own, the same for the same node name."""
    if model not in profiles():
        raise state.SimError("unknown model '%s': known are %s" % (model, ", ".join(profiles())))
    profile = read_profile(model)
    base = profile["node"]
    buses = base["pci_buses"].split()
    count = base.getint("gpus") if gpus is None else gpus
    if not 0 <= count <= len(buses):
        raise state.SimError("a node of model %s has 0 to %d GPUs, not %d" % (model, len(buses), count))
    switches = base.getint("nvswitches", fallback=0) if count else 0
    managers = base.getint("nvlink_managers", fallback=0) if count else 0
    result = state.ini()
    result["node"] = {
        "name": node,
        "model": model,
        "gpus": str(count),
        "nvswitches": str(switches),
        "nvlink_managers": str(managers),
        "simulated": "1",
    }
    result["gpu"] = dict(profile["gpu"])
    for index in range(count):
        seed = hashlib.sha256(("gpusim/%s/%d" % (node, index)).encode()).digest()
        result["gpu %d" % index] = {
            "uuid": "GPU-%s" % uuid.UUID(bytes=seed[:16]),
            "serial": "165%010d" % (int.from_bytes(seed[16:22], "big") % 10**10),
            "pci": "00000000:%s:00.0" % buses[index],
            "minor": str(index),
            "irq": str(120 + index),
            "numa_node": str(0 if index < (count + 1) // 2 else 1),
            "inforom_checksum": str(int.from_bytes(seed[22:26], "big")),
        }
    for index in range(switches):
        result["nvswitch %d" % index] = {
            "pci": "00000000:%s:00.0" % base["nvswitch_buses"].split()[index],
            "pci_device_id": base["nvswitch_device_id"],
        }
    for index in range(managers):
        result["nvlink_manager %d" % index] = {
            "pci": "00000000:%s:00.0" % base["nvlink_manager_buses"].split()[index],
            "pci_device_id": base["nvlink_manager_device_id"],
        }
    return result


def init(model: str, gpus: int | None, node: str) -> None:
    description = describe(model, gpus, node)
    state.write(state.NODE, description)
    os.makedirs(state.path("/var/lib/gpusim"), exist_ok=True)
