# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that the node has all its GPUs: their number, a handle for each, and the same set as in the baseline."""

from __future__ import annotations

from .. import codes, diff, model
from ..model import FAIL, NODE, PASS, UNKNOWN

LOOK = "Look for NVRM lines in the kernel log."


def count(ctx):
    """NVML's own number, the list, and the baseline agree."""
    now = model.number(ctx.snapshot, "count")
    listed = len(model.gpus(ctx.snapshot))
    if not now.known:
        return [
            model.check(
                "gpu.count",
                NODE,
                UNKNOWN,
                model.shown(now),
                None,
                "hardware",
                "hold",
                "The GPUs were not counted. See nvml.answers.",
            )
        ]
    if now.value != listed:
        return [
            model.check(
                "gpu.count",
                NODE,
                UNKNOWN,
                listed,
                now.value,
                "hardware",
                "hold",
                "NVML counts %d GPUs and %d are in the reading. Read the node again." % (now.value, listed),
            )
        ]
    if ctx.baseline is not None:
        expected = len(model.gpus(ctx.baseline["snapshot"]))
        if now.value != expected:
            return [
                model.check(
                    "gpu.count",
                    NODE,
                    FAIL,
                    now.value,
                    expected,
                    "baseline",
                    "hold",
                    "NVML counts %d GPUs; expected %d as in the baseline. %s" % (now.value, expected, LOOK),
                )
            ]
        return [model.check("gpu.count", NODE, PASS, now.value, expected, "baseline")]
    if now.value < 1:
        return [
            model.check("gpu.count", NODE, FAIL, 0, "at least 1", "policy", "hold", "NVML counts no GPU. %s" % (LOOK,))
        ]
    return [model.check("gpu.count", NODE, PASS, now.value, "at least 1", "policy")]


def on_the_bus(ctx):
    """Every NVIDIA GPU on the PCI bus is one that NVML opens, and the other way round."""
    devices = model.item(ctx.audit, "pci")
    bus = (
        set(model.pci_address(model.item(device, "address")) for device in devices)
        if isinstance(devices, list)
        else set()
    )
    if not bus or None in bus:
        return [
            model.check(
                "gpu.on_bus",
                NODE,
                UNKNOWN,
                None,
                None,
                "hardware",
                "hold",
                "No NVIDIA GPU could be listed on the PCI bus. Look at lspci -d 10de: on the node.",
            )
        ]
    seen = set(model.address(gpu) for gpu in model.gpus(ctx.snapshot) if model.opened(gpu)) - set([None])
    if model.item(ctx.snapshot, "status") != "ok":
        return [
            model.check(
                "gpu.on_bus",
                NODE,
                UNKNOWN,
                sorted(seen),
                sorted(bus),
                "hardware",
                "hold",
                "%d GPUs are on the PCI bus; which of them work is not known. See nvml.answers." % (len(bus),),
            )
        ]
    silent, strange = sorted(bus - seen), sorted(seen - bus)
    nameless = [
        model.entity(gpu) for gpu in model.gpus(ctx.snapshot) if model.opened(gpu) and model.address(gpu) is None
    ]
    if nameless and len(silent) <= len(nameless) and not strange:
        return [
            model.check(
                "gpu.on_bus",
                NODE,
                UNKNOWN,
                sorted(seen),
                sorted(bus),
                "hardware",
                "hold",
                "NVML opens %s and does not tell where it is; on the PCI bus are also %s. Read the node "
                "again as root. %s" % (", ".join(nameless), ", ".join(silent) or "no others", LOOK),
            )
        ]
    if silent or strange:
        parts = []
        if silent:
            parts.append("on the PCI bus, but not opened by NVML: %s" % (", ".join(silent),))
        if strange:
            parts.append("known to NVML, but not on the PCI bus: %s" % (", ".join(strange),))
        return [
            model.check(
                "gpu.on_bus",
                NODE,
                FAIL,
                sorted(seen),
                sorted(bus),
                "hardware",
                "hold",
                "GPUs %s. %s" % ("; ".join(parts), LOOK),
            )
        ]
    return [model.check("gpu.on_bus", NODE, PASS, sorted(seen), sorted(bus), "hardware")]


def handles(ctx):
    """NVML opens each GPU, which is what initialises it."""
    result = []
    for gpu in model.gpus(ctx.snapshot):
        now = model.reading(gpu, "handle")
        if now.known:
            result.append(model.check("gpu.handle", model.entity(gpu), PASS, "opened", "opened", "hardware"))
            continue
        status, action, step = codes.meaning(now.rc)
        result.append(
            model.check(
                "gpu.handle",
                model.entity(gpu),
                status,
                model.shown(now),
                "opened",
                "hardware",
                action,
                "NVML does not open %s: %s. %s" % (model.named(gpu), model.shown(now), step),
            )
        )
    return result


def present(ctx):
    """The same GPUs, by UUID, at the same PCI addresses."""
    now = {}
    result = []
    for gpu in model.gpus(ctx.snapshot):
        ident = model.uuid(gpu)
        if ident is None or model.address(gpu) is None:
            missing = "UUID" if ident is None else "PCI address"
            if model.opened(gpu):
                result.append(
                    model.check(
                        "gpu.present",
                        model.entity(gpu),
                        UNKNOWN,
                        None,
                        None,
                        "hardware",
                        "hold",
                        "The %s of %s cannot be read. %s" % (missing, model.named(gpu), LOOK),
                    )
                )
        elif ident in now:
            result.append(
                model.check(
                    "gpu.present",
                    ident,
                    FAIL,
                    2,
                    1,
                    "hardware",
                    "hold",
                    "Two GPUs have the UUID %s. %s" % (ident, LOOK),
                )
            )
        if ident is not None:
            now[ident] = gpu
    if ctx.baseline is None:
        told = set(check["entity"] for check in result)
        return result + [
            model.check("gpu.present", ident, PASS, model.address(gpu), None, "hardware")
            for ident, gpu in now.items()
            if ident not in told
        ]
    return result + compared(now, ctx)


def compared(now, ctx):
    """The GPUs by UUID as they are NOW against those of the baseline."""
    result = []
    before = model.by_uuid(ctx.baseline["snapshot"])
    where = diff.places(ctx.baseline["snapshot"], ctx.snapshot)
    for ident, old in before.items():
        place = model.address(old)
        if ident in where["replaced"]:
            other = where["replaced"][ident][1]
            result.append(
                model.check(
                    "gpu.present",
                    ident,
                    FAIL,
                    other,
                    ident,
                    "baseline",
                    "hold",
                    "GPU %s of the baseline is gone, and GPU %s is in its place, at %s. If it was replaced, "
                    "take a new baseline." % (ident, other, place),
                )
            )
        elif ident not in now and model.item(ctx.snapshot, "status") != "ok":
            result.append(
                model.check(
                    "gpu.present",
                    ident,
                    FAIL,
                    None,
                    place,
                    "baseline",
                    "hold",
                    "GPU %s of the baseline, at %s, cannot be seen, as NVML shows no GPU at all. See nvml.answers."
                    % (ident, place),
                )
            )
        elif ident not in now:
            result.append(
                model.check(
                    "gpu.present",
                    ident,
                    FAIL,
                    None,
                    place,
                    "baseline",
                    "hold",
                    "GPU %s of the baseline, at %s, is missing. %s" % (ident, place, LOOK),
                )
            )
        elif model.address(now[ident]) != place:
            result.append(
                model.check(
                    "gpu.present",
                    ident,
                    FAIL,
                    model.address(now[ident]),
                    place,
                    "baseline",
                    "hold",
                    "GPU %s is at %s; expected %s as in the baseline. Check whether hardware was moved."
                    % (ident, model.address(now[ident]), place),
                )
            )
        else:
            result.append(model.check("gpu.present", ident, PASS, place, place, "baseline"))
    for ident in now:
        if ident not in before:
            result.append(
                model.check(
                    "gpu.present",
                    ident,
                    FAIL,
                    model.address(now[ident]),
                    None,
                    "baseline",
                    "hold",
                    "GPU %s at %s is not in the baseline. If it was replaced, take a new baseline."
                    % (ident, model.address(now[ident])),
                )
            )
    return result


ROWS = (
    model.Row(
        "gpu.count",
        "node",
        count,
        "NVML's count of GPUs, its list and the baseline agree",
        ("snapshot.count", "snapshot.gpus"),
        "NVML nvmlDeviceGetCount_v2",
        (1,),
    ),
    model.Row(
        "gpu.on_bus",
        "node",
        on_the_bus,
        "Every NVIDIA GPU on the PCI bus is opened by NVML, and the other way round",
        ("audit.pci", "snapshot.gpus[].handle", "snapshot.gpus[].pci_bus_id"),
        "lspci, class 03 of vendor 10de",
        (1,),
    ),
    model.Row(
        "gpu.handle",
        "node",
        handles,
        "NVML opens each GPU",
        ("snapshot.gpus[].handle",),
        "NVML nvmlDeviceGetHandleByIndex_v2",
        (1, 7),
    ),
    model.Row(
        "gpu.present",
        "node",
        present,
        "The same GPUs, by UUID, at the same PCI addresses as in the baseline",
        ("snapshot.gpus[].uuid", "snapshot.gpus[].pci_bus_id"),
        "NVML nvmlDeviceGetUUID, nvmlDeviceGetPciInfo_v3",
        (2,),
    ),
)
