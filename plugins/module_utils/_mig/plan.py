# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the changes of a GPU for a layout, and decide if they are allowed: pure functions of what was read and what is
wanted.

The plan of a GPU has a status, the problems that keep it from being carried out, and its steps as data. A GPU that
cannot be read, or whose layout cannot be made, keeps what it has, and so do all others of the node.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .._nvml import codes, selection
from .._nvml.selection import value
from . import config, fit, names

SAME, CHANGE, PENDING, REFUSED = "same", "change", "pending", "refused"
SET_MODE, DESTROY_COMPUTE, DESTROY, CREATE, CREATE_COMPUTE = (
    "set_mode",
    "destroy_compute",
    "destroy",
    "create",
    "create_compute",
)


class Problem(NamedTuple):
    """The reason that a GPU cannot get its layout: a code for programs, and a sentence for people that does not name
    the GPU.
    """

    code: str
    message: str


class Slot(NamedTuple):
    """A GPU instance that is wanted: its profile, and the compute slices of each device in it, largest first."""

    profile: int
    compute: Tuple[int, ...]


class Plan(NamedTuple):
    """The plan of one GPU. "before" and "wanted" are {"enabled", "devices"}, None if unknown."""

    gpu: Dict[str, Any]
    status: str
    before: Optional[Dict[str, Any]]
    wanted: Optional[Dict[str, Any]]
    steps: Tuple[Dict[str, Any], ...]
    problems: Tuple[Problem, ...]
    notes: Tuple[str, ...] = ()


# ---- what there is ----


def name_gpu(gpu: Dict[str, Any]) -> str:
    """The GPU for a person."""
    return "GPU %s (%s)" % (gpu["index"], value(gpu, "pci_bus_id") or value(gpu, "uuid") or "address not known")


def device_counts(layout: Dict[str, Any]) -> Dict[str, int]:
    """The devices of a layout that was read, by name.

    An instance without compute instances is counted with "0c." before its profile's name.
    """
    by_id = dict((profile["id"], profile) for profile in layout["profiles"])
    counts: Dict[str, int] = {}
    for instance in layout["instances"]:
        profile = by_id[instance["profile"]]
        found = [names.device_name(profile, compute["slices"]) for compute in instance["compute"]] or [
            "0c." + profile["name"]
        ]
        for name in found:
            counts[name] = counts.get(name, 0) + 1
    return counts


def target(gpu: Dict[str, Any], position: int) -> config.Target:
    """The GPU as the entries of a configuration ask for it."""
    return config.Target(
        position,
        _pack_device_id(value(gpu, "pci_device_id")),
        _pack_device_id(value(gpu, "pci_subsystem_id")),
        tuple(selection.names(gpu)),
        value(gpu, "name") or "",
    )


def _pack_device_id(ids: Optional[str]) -> str:
    """vendor:device of the snapshot as nvidia-mig-parted writes it, 0xDDDDVVVV."""
    vendor, colon, device = (ids or "").partition(":")
    return "0x%s%s" % (device, vendor) if colon else ""


# ---- what is wanted ----


def slots(wanted: Dict[str, int], profiles: Sequence[Dict[str, Any]]) -> List[Slot]:
    """The GPU instances that hold the WANTED devices, as few as there can be.

    NameProblem where the GPU has no such profile.

    Devices of one profile share an instance as long as its compute slices reach, the largest first: as
    nvidia-mig-parted packs them.
    """
    sizes: Dict[int, List[int]] = {}
    room: Dict[int, int] = {}
    for text in sorted(wanted):
        name = names.parse(text)
        profile = names.resolve(name, list(profiles))
        sizes.setdefault(profile["id"], []).extend([name.compute or profile["slices"]] * wanted[text])
        room[profile["id"]] = profile["slices"]
    found = []
    for ident in sorted(sizes):
        bins: List[List[int]] = []
        for size in sorted(sizes[ident], reverse=True):
            place = next((item for item in bins if sum(item) + size <= room[ident]), None)
            if place is None:
                bins.append([size])
            else:
                place.append(size)
        found += [Slot(ident, tuple(item)) for item in bins]
    return found


def same_devices(before: Dict[str, int], wanted: Sequence[Slot], profiles: Sequence[Dict[str, Any]]) -> bool:
    """Return whether the devices that there are, by name, are those of the wanted instances, and no instance is
    empty.
    """
    by_id = dict((profile["id"], profile) for profile in profiles)
    counts: Dict[str, int] = {}
    for slot in wanted:
        for size in slot.compute:
            name = names.device_name(by_id[slot.profile], size)
            counts[name] = counts.get(name, 0) + 1
    return counts == before


# ---- the plan of one GPU ----


def decide(gpu: Dict[str, Any], layout: Optional[config.Layout], processes: Dict[int, str]) -> Plan:
    """The plan for one GPU; LAYOUT is None where no entry is about it. PROCESSES names those that run, by pid."""
    wanted = None if layout is None else {"enabled": layout.enabled, "devices": dict(layout.devices)}
    before = read_layout(gpu)

    def refused(code: str, text: str, *more: Any) -> Plan:
        return Plan(gpu, REFUSED, before, wanted, (), (Problem(code, text % more),))

    if layout is None:
        return refused(
            "uncovered",
            "no entry of the configuration is about it; expected one, devices: all with mig-enabled: false at least",
        )
    mode, pending = gpu["mig_mode_current"], gpu["mig_mode_pending"]
    if mode["rc"] == codes.NOT_SUPPORTED:
        if not layout.enabled:
            return Plan(gpu, SAME, before, wanted, (), ())
        return refused(
            "not_supported",
            "%s has no MIG; expected a GPU that has, or mig-enabled: false for this one",
            value(gpu, "name") or "the board",
        )
    if mode["rc"] != codes.SUCCESS or pending["rc"] != codes.SUCCESS:
        return refused(
            "unreadable",
            "its MIG mode cannot be read (%s); look for NVRM lines in the kernel log",
            mode.get("error") or pending.get("error"),
        )
    read = gpu["mig_layout"]
    if read["rc"] != codes.SUCCESS:
        return refused(
            "unreadable",
            "its MIG layout cannot be read (%s%s); read it as root, and look for NVRM lines in the kernel log",
            read["error"],
            " " + read["detail"] if read.get("detail") else "",
        )
    if pending["value"] != mode["value"]:
        if bool(pending["value"]) == layout.enabled:
            return Plan(gpu, PENDING, before, wanted, (), ())
        if layout.enabled == bool(mode["value"]):
            return refused(
                "reset_pending",
                "its MIG mode changes to %s at the next reset; expected %s. Reset the GPU first, or set the mode back",
                *["on" if item else "off" for item in (pending["value"], layout.enabled)],
            )
    return _with_mode(gpu, layout, before, wanted, read["value"], processes)


def _with_mode(gpu, layout, before, wanted, read, processes) -> Plan:
    enabled = bool(gpu["mig_mode_current"]["value"])
    try:
        needed = slots(layout.devices, read["profiles"])
    except names.NameProblem as exc:
        return Plan(gpu, REFUSED, before, wanted, (), (Problem("unknown_profile", str(exc)),))
    if enabled == layout.enabled and (not enabled or same_devices(before["devices"], needed, read["profiles"])):
        return Plan(gpu, SAME, before, wanted, (), ())
    uuid = value(gpu, "uuid")
    if not layout.enabled:
        steps = [step for instance in read["instances"] for step in _removal(uuid, instance)] + [
            {"gpu": uuid, "do": SET_MODE, "mode": 0}
        ]
        return _unless_used(gpu, before, wanted, steps, read, None, processes)
    existing = [fit.Place(instance["profile"], instance["start"], instance["size"]) for instance in read["instances"]]
    used = set(process["gpu_instance"] for process in read["processes"])
    fixed = [position for position, instance in enumerate(read["instances"]) if instance["id"] in used]
    counts: Dict[int, int] = {}
    for slot in needed:
        counts[slot.profile] = counts.get(slot.profile, 0) + 1
    found = fit.find(counts, existing, read["profiles"], fixed)
    if found is None:
        return Plan(gpu, REFUSED, before, wanted, (), (Problem("does_not_fit", _too_much(counts, read["profiles"])),))
    if not enabled:
        # The instances follow when the mode is on: some drivers tell placements only then.
        return _unless_used(gpu, before, wanted, [{"gpu": uuid, "do": SET_MODE, "mode": 1}], read, None, processes)
    kept = [read["instances"][position] for position in found.keep]
    steps = _steps(uuid, read["instances"], kept, needed, found)
    return _unless_used(gpu, before, wanted, steps, read, kept, processes)


def _too_much(counts, profiles) -> str:
    def said(layout) -> str:
        return " and ".join(
            "%d x %s" % (layout[profile["id"]], profile["name"]) for profile in profiles if layout.get(profile["id"])
        )

    nearest = " or ".join(said(layout) for layout in fit.suggestions(counts, profiles))
    limits = ", ".join("%s (at most %d)" % (profile["name"], profile["count"]) for profile in profiles)
    return "%s do not fit at once; %s. The GPU takes %s" % (
        said(counts),
        nearest + " would" if nearest else "nothing like it would",
        limits,
    )


def _removal(uuid, instance) -> list[dict]:
    return [
        {"gpu": uuid, "do": DESTROY_COMPUTE, "instance": instance["id"], "compute": compute["id"]}
        for compute in instance["compute"]
    ] + [{"gpu": uuid, "do": DESTROY, "instance": instance["id"]}]


def _steps(uuid, instances, kept, needed, found) -> list[dict]:
    """First all that goes, then all that comes, the largest first."""
    pairs, left = _pair(kept, needed)
    gone = [step for instance in instances if instance not in kept for step in _removal(uuid, instance)]
    come = []
    for instance, slot in pairs:
        have, want = [compute["slices"] for compute in instance["compute"]], list(slot.compute)
        for compute in instance["compute"]:
            if compute["slices"] in want:
                want.remove(compute["slices"])
            else:
                gone.append({"gpu": uuid, "do": DESTROY_COMPUTE, "instance": instance["id"], "compute": compute["id"]})
        come += [
            {"gpu": uuid, "do": CREATE_COMPUTE, "instance": instance["id"], "slices": size}
            for size in want
            if have != list(slot.compute)
        ]
    for place in found.create:
        slot = next(slot for slot in left if slot.profile == place.profile)
        left.remove(slot)
        come.append(
            {
                "gpu": uuid,
                "do": CREATE,
                "profile": place.profile,
                "start": place.start,
                "size": place.size,
                "compute": list(slot.compute),
            }
        )
    return gone + come


def _pair(kept, needed) -> tuple[list, list]:
    """([(instance, slot)], slots that are left): an instance with exactly the compute instances of a slot gets that
    one.
    """
    left = list(needed)
    pairs = []
    for exact in (True, False):
        for instance in kept:
            if any(instance is other for other, dummy in pairs):
                continue
            have = tuple(sorted((compute["slices"] for compute in instance["compute"]), reverse=True))
            slot = next(
                (slot for slot in left if slot.profile == instance["profile"] and (slot.compute == have or not exact)),
                None,
            )
            if slot is not None:
                left.remove(slot)
                pairs.append((instance, slot))
    return pairs, left


def _unless_used(gpu, before, wanted, steps, read, kept, processes) -> Plan:
    """The plan with STEPS, unless one of them takes an instance, or the GPU, from a process.

    KEPT None: the whole GPU is concerned.
    """
    touched = set((step["instance"], step.get("compute")) for step in steps if step["do"] in (DESTROY, DESTROY_COMPUTE))
    users = []
    for process in read["processes"]:
        instance, compute = process["gpu_instance"], process["compute_instance"]
        if kept is None or instance is None or (instance, None) in touched or (instance, compute) in touched:
            users.append(process)
    if not users:
        return Plan(gpu, CHANGE, before, wanted, tuple(steps), ())
    text = ", ".join(
        "%s%s"
        % (
            processes.get(process["pid"]) or "pid %d" % (process["pid"],),
            "" if process["gpu_instance"] is None else " in GPU instance %d" % (process["gpu_instance"],),
        )
        for process in users
    )
    return Plan(
        gpu,
        REFUSED,
        before,
        wanted,
        (),
        (
            Problem(
                "in_use", "in use by %s; the change would end that work. Drain the node and stop them first" % (text,)
            ),
        ),
    )


def read_layout(gpu: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """The layout of a GPU as it was read: {"enabled", "devices"}; None if it was not."""
    mode = gpu.get("mig_mode_current") or {}
    if mode.get("rc") == codes.NOT_SUPPORTED:
        return {"enabled": False, "devices": {}}
    read = value(gpu, "mig_layout")
    if mode.get("rc") != codes.SUCCESS or read is None:
        return None
    return {"enabled": bool(mode["value"]), "devices": device_counts(read)}


# ---- the way back ----


def undo(before: Dict[str, Any], after: Dict[str, Any], old_mode: int) -> List[Dict[str, Any]]:
    """The steps from the layout AFTER back to BEFORE, at the places where its instances were; both as read.py has
    them.
    """
    uuid = value(before, "uuid")
    old, new = value(before, "mig_layout"), value(after, "mig_layout")
    if old is None or new is None:
        return []

    def key(instance) -> tuple[int, int, tuple]:
        return (
            instance["profile"],
            instance["start"],
            tuple(sorted(compute["slices"] for compute in instance["compute"])),
        )

    there, wanted = [key(instance) for instance in new["instances"]], [key(instance) for instance in old["instances"]]
    steps = [step for instance in new["instances"] if key(instance) not in wanted for step in _removal(uuid, instance)]
    if value(after, "mig_mode_current") != old_mode:
        return steps + [{"gpu": uuid, "do": SET_MODE, "mode": old_mode}]
    for instance in sorted(old["instances"], key=lambda item: -item["size"]):
        if key(instance) not in there:
            steps.append(
                {
                    "gpu": uuid,
                    "do": CREATE,
                    "profile": instance["profile"],
                    "start": instance["start"],
                    "size": instance["size"],
                    "compute": sorted((compute["slices"] for compute in instance["compute"]), reverse=True),
                }
            )
    return steps
