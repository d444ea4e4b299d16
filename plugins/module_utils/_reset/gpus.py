# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read one GPU of a snapshot as a reset needs it: name, modes, what it waits for, NVLink peers. Pure functions."""

from __future__ import annotations

from .._nvml import codes
from .._nvml.selection import value

RESET_REQUIRED = 16
AMPERE = 7
# The codes with which a board or driver says that it has no such thing.
NONE = (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND, codes.DEPRECATED)
# A driver that does not know a field calls its number an invalid argument.
NO_FIELD = NONE + (codes.INVALID_ARGUMENT,)
MODES = {"mig_mode": ("mig_mode_current", "mig_mode_pending"), "ecc_mode": ("ecc_mode_current", "ecc_mode_pending")}
COUNTS = ("ecc_volatile_corrected", "ecc_volatile_uncorrected")
# Field 230 (nvmlDeviceGpuRecoveryAction_t): what a reset does, and what it does not.
RECOVERED_BY_RESET = {1: "reset", 4: "drain and reset"}
BEYOND_RESET = {
    2: ("a reboot of the node", "reboot the node"),
    3: (
        "that peer-to-peer traffic ends",
        "end all processes on the GPUs that are peers, then run again: it asks for another action once they are gone",
    ),
    5: ("a recovery of the IMEX domain", "look at the IMEX domain"),
    6: ("a bus reset", "reset it by hand (nvidia-smi -r bus), or reboot the node"),
    7: ("a reboot of the system", "reboot the node"),
}
# What the subsets of NVML have to be gathered for all this.
GATHER = ("identity", "ecc", "repair", "modes", "nvlink", "mig")


def name_gpu(gpu: dict) -> str:
    """Return how nvidia-smi and people call a GPU: by UUID, else by address, else by NVML's index."""
    return value(gpu, "uuid") or value(gpu, "pci_bus_id") or str(gpu["index"])


def read_code(gpu: dict, key: str) -> int:
    """Return NVML's answer for KEY; one that was never asked is unreadable."""
    entry = gpu.get(key)
    return entry.get("rc", codes.UNREADABLE) if isinstance(entry, dict) else codes.UNREADABLE


def read_mode(gpu: dict, which: str) -> dict | None:
    """Return {"current", "pending"} of a mode; None where the GPU has none or NVML does not tell."""
    current, pending = (value(gpu, key) for key in MODES[which])
    return None if current is None or pending is None else {"current": current, "pending": pending}


def list_repairs(gpu: dict) -> list:
    """Return the repairs of memory that wait for a reset."""
    rows, status = value(gpu, "remapped_rows") or {}, value(gpu, "repair_status") or {}
    waiting = (
        ("remapped_rows", rows.get("pending")),
        ("retired_pages", value(gpu, "retired_pages_pending")),
        ("channel_repair", status.get("channel_pending")),
        ("tpc_repair", status.get("tpc_pending")),
    )
    return [what for what, pending in waiting if pending]


def list_needs(gpu: dict) -> list:
    """Return why a GPU needs a reset; empty if, by what can be read, it does not."""
    found = [
        which
        for which in MODES
        if read_mode(gpu, which) and read_mode(gpu, which)["current"] != read_mode(gpu, which)["pending"]
    ]
    if value(gpu, "recovery_action") in RECOVERED_BY_RESET:
        found.append("recovery_action")
    found += list_repairs(gpu)
    if RESET_REQUIRED in [read_code(gpu, key) for key in ("handle", "uuid", *MODES["ecc_mode"], *MODES["mig_mode"])]:
        found.append("reset_required")
    return found


def list_unread_keys(gpu: dict) -> list:
    """Return the keys that would say whether a reset is needed, and cannot be read."""
    keys = [key for pair in MODES.values() for key in pair]
    keys += ["remapped_rows", "retired_pages_pending", "repair_status"]
    found = [key for key in keys if read_code(gpu, key) not in NONE + (codes.SUCCESS, RESET_REQUIRED)]
    told = read_code(gpu, "recovery_action") in NO_FIELD + (codes.SUCCESS, RESET_REQUIRED)
    return found if told else found + ["recovery_action"]


def list_instances(gpu: dict) -> list | None:
    """Return the MIG instances that a reset would destroy; None if that cannot be told."""
    if value(gpu, "mig_instances") is not None:
        return value(gpu, "mig_instances")
    return [] if read_code(gpu, "mig_instances") in NONE else None


def volatile_errors(gpu: dict) -> int | None:
    """Return the sum of the volatile ECC counters; None if not all can be read."""
    counts = [value(gpu, key) for key in COUNTS]
    return None if None in counts else sum(counts)


def map_peers(gpus: list) -> dict | None:
    """Return {index: {indexes of the GPUs that its NVLinks lead to}}; None if a link cannot be read.

    A link to a switch leads to all GPUs on switches.
    """
    known = dict((value(gpu, "pci_bus_id"), gpu["index"]) for gpu in gpus if value(gpu, "pci_bus_id"))
    direct, switched = dict((gpu["index"], set()) for gpu in gpus), set()
    for gpu in gpus:
        links = value(gpu, "nvlinks")
        if links is None and read_code(gpu, "nvlinks") not in NONE:
            return None
        for link in links or []:
            if link.get("remote_type") == "switch":
                switched.add(gpu["index"])
            elif link.get("remote_pci") in known:
                direct[gpu["index"]].add(known[link["remote_pci"]])
                direct[known[link["remote_pci"]]].add(gpu["index"])
            elif link.get("active"):
                return None
    for index in switched:
        direct[index] |= switched
    return dict((index, found - {index}) for index, found in direct.items())


def has_switch(gpus: list) -> bool:
    """Return whether an NVLink of these GPUs leads to a switch."""
    return any(link.get("remote_type") == "switch" for gpu in gpus for link in value(gpu, "nvlinks") or [])


def find_component(graph: dict, start: set) -> set:
    """Return all that can be reached from START in a graph of neighbors."""
    found, due = set(start), list(start)
    while due:
        fresh = graph.get(due.pop(), set()) - found
        found |= fresh
        due += sorted(fresh)
    return found


def find_group(gpus: list, wanted: set, fabric_manager: bool | None) -> set | None:
    """Return the indexes of all GPUs to reset together with those WANTED, by nvidia-smi(1); None if it is not known.

    From Ampere on a GPU is reset by itself where its links lead to GPUs, and where they lead to switches that a running
    fabric manager has. All others go with everything that NVLink joins them to.
    """
    targets = [gpu for gpu in gpus if gpu["index"] in wanted]
    old = any(read_code(gpu, "architecture") != codes.SUCCESS or value(gpu, "architecture") < AMPERE for gpu in targets)
    readable = all(read_code(gpu, "nvlinks") in NONE + (codes.SUCCESS,) for gpu in targets)
    if not old and (fabric_manager or readable and not has_switch(targets)):
        return set(wanted)
    graph = map_peers(gpus)
    if graph is None:
        everything = set(gpu["index"] for gpu in gpus)
        return everything if wanted == everything else None
    return find_component(graph, wanted)
