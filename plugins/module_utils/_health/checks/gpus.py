# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that are there: on the bus, opened by NVML, those of the baseline, and what the driver advises for each."""

from __future__ import annotations

from .. import compare, diff, model, signals
from ..model import FAIL, PASS, UNKNOWN
from ..nodefacts import Checks

LOOK = "Look for NVRM lines in the kernel log."


def check_count(ctx) -> dict:
    """NVML's own number, the list, and the baseline agree."""
    checks = Checks("gpu.count")
    now = model.number(ctx.snapshot, "count")
    listed = len(model.gpus(ctx.snapshot))
    if not now.known:
        return checks.unknown(
            model.format_reading(now), None, "The GPUs were not counted. See nvml.answers.", source="hardware"
        )
    if now.value != listed:
        return checks.unknown(
            listed,
            now.value,
            "NVML counts %d GPUs and %d are in the reading. Read the node again." % (now.value, listed),
            source="hardware",
        )
    if ctx.baseline is not None:
        expected = len(model.gpus(ctx.baseline["snapshot"]))
        if now.value != expected:
            return checks.fail(
                now.value,
                expected,
                "NVML counts %d GPUs; expected %d as in the baseline. %s" % (now.value, expected, LOOK),
                source="baseline",
            )
        return checks.good(now.value, expected, source="baseline")
    if now.value < 1:
        return checks.fail(0, "at least 1", "NVML counts no GPU. %s" % (LOOK,))
    return checks.good(now.value, "at least 1")


def list_bus_addresses(ctx) -> set:
    """Return the addresses of the NVIDIA GPUs on the PCI bus; None among them is one that cannot be read."""
    devices = model.item(ctx.audit, "pci")
    return (
        set(model.pci_address(model.item(device, "address")) for device in devices)
        if isinstance(devices, list)
        else set()
    )


def list_opened_addresses(ctx) -> set:
    """Return the addresses of the GPUs that NVML opens."""
    return set(model.address(gpu) for gpu in model.gpus(ctx.snapshot) if model.is_opened(gpu)) - set([None])


def on_the_bus(ctx) -> dict:
    """Every NVIDIA GPU on the PCI bus is one that NVML opens, and the other way round."""
    checks = Checks("gpu.on_bus", source="hardware")
    bus = list_bus_addresses(ctx)
    if not bus or None in bus:
        return checks.unknown(
            None, None, "No NVIDIA GPU could be listed on the PCI bus. Look at lspci -d 10de: on the node."
        )
    seen = list_opened_addresses(ctx)
    if model.item(ctx.snapshot, "status") != "ok":
        return checks.unknown(
            sorted(seen),
            sorted(bus),
            "%d GPUs are on the PCI bus; which of them work is not known. See nvml.answers." % (len(bus),),
        )
    silent, strange = sorted(bus - seen), sorted(seen - bus)
    nameless = [
        model.entity(gpu) for gpu in model.gpus(ctx.snapshot) if model.is_opened(gpu) and model.address(gpu) is None
    ]
    if nameless and len(silent) <= len(nameless) and not strange:
        return checks.unknown(
            sorted(seen),
            sorted(bus),
            "NVML opens %s and does not tell where it is; on the PCI bus are also %s. Read the node "
            "again as root. %s" % (", ".join(nameless), ", ".join(silent) or "no others", LOOK),
        )
    if silent or strange:
        parts = []
        if silent:
            parts.append("on the PCI bus, but not opened by NVML: %s" % (", ".join(silent),))
        if strange:
            parts.append("known to NVML, but not on the PCI bus: %s" % (", ".join(strange),))
        return checks.fail(sorted(seen), sorted(bus), "GPUs %s. %s" % ("; ".join(parts), LOOK))
    return checks.good(sorted(seen), sorted(bus))


def check_handles(ctx) -> list[dict]:
    """NVML opens each GPU, which is what initialises it."""
    result = []
    closed = [gpu for gpu in model.gpus(ctx.snapshot) if not model.is_opened(gpu)]
    silent = list_bus_addresses(ctx) - list_opened_addresses(ctx)
    # NVML gives no address of a GPU that it does not open. It is the one on the bus that no other GPU has.
    where = " at %s" % silent.pop() if len(closed) == len(silent) == 1 and None not in silent else ""
    for gpu in model.gpus(ctx.snapshot):
        checks, now = Checks("gpu.handle", model.entity(gpu), "hardware"), model.reading(gpu, "handle")
        if now.known:
            result.append(checks.good("opened", "opened"))
            continue
        status, action, step = model.code_meaning(now.rc)
        name = model.name_gpu(gpu) + (where if model.address(gpu) is None else "")
        text = "NVML does not open %s: %s. %s" % (name, model.format_reading(now), step)
        result.append(checks.make(status, model.format_reading(now), "opened", action, text))
    return result


def check_presence(ctx) -> list[dict]:
    """The same GPUs, by UUID, at the same PCI addresses."""
    now = {}
    result = []
    for gpu in model.gpus(ctx.snapshot):
        ident = model.uuid(gpu)
        if ident is None or model.address(gpu) is None:
            missing = "UUID" if ident is None else "PCI address"
            if model.is_opened(gpu):
                result.append(
                    model.check(
                        "gpu.present",
                        model.entity(gpu),
                        UNKNOWN,
                        None,
                        None,
                        "hardware",
                        "hold",
                        "The %s of %s cannot be read. %s" % (missing, model.name_gpu(gpu), LOOK),
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
    return result + compare_gpus(now, ctx)


def compare_gpus(now, ctx) -> list[dict]:
    """The GPUs by UUID as they are NOW against those of the baseline."""
    result = []
    before = model.by_uuid(ctx.baseline["snapshot"])
    where = diff.match_gpus(ctx.baseline["snapshot"], ctx.snapshot)
    for ident, old in before.items():
        checks = Checks("gpu.present", ident, source="baseline")
        place = model.address(old)
        if ident in where["replaced"]:
            other = where["replaced"][ident][1]
            result.append(
                checks.fail(
                    other,
                    ident,
                    "GPU %s of the baseline is gone, and GPU %s is in its place, at %s. If it was replaced, "
                    "take a new baseline." % (ident, other, place),
                )
            )
        elif ident not in now and model.item(ctx.snapshot, "status") != "ok":
            result.append(
                checks.fail(
                    None,
                    place,
                    "GPU %s of the baseline, at %s, cannot be seen, as NVML shows no GPU at all. See nvml.answers."
                    % (ident, place),
                )
            )
        elif ident not in now:
            result.append(
                checks.fail(None, place, "GPU %s of the baseline, at %s, is missing. %s" % (ident, place, LOOK))
            )
        elif model.address(now[ident]) != place:
            result.append(
                checks.fail(
                    model.address(now[ident]),
                    place,
                    "GPU %s is at %s; expected %s as in the baseline. Check whether hardware was moved."
                    % (ident, model.address(now[ident]), place),
                )
            )
        else:
            result.append(checks.good(place, place))
    for ident in now:
        if ident not in before:
            result.append(
                Checks("gpu.present", ident, source="baseline").fail(
                    model.address(now[ident]),
                    None,
                    "GPU %s at %s is not in the baseline. If it was replaced, take a new baseline."
                    % (ident, model.address(now[ident])),
                )
            )
    return result


# Name and action of each advice. A number that is not here is newer than this table; 5 changed its meaning between
# drivers.
ADVICE = {
    1: ("reset the GPU", "reset_gpu"),
    2: ("reboot the node", "reboot"),
    3: ("drain peer-to-peer traffic", "hold"),
    4: ("drain the GPU and reset it", "reset_gpu"),
    5: ("reset the bus, or with newer drivers recover the IMEX domain", "hold"),
    6: ("reset the bus", "reboot"),
    7: ("reboot the system", "reboot"),
}
SINCE_BRANCH = 570


def recovery_action(ctx, gpu) -> dict:
    ident, key = "gpu.recovery_action", "recovery_action"
    now = model.number(gpu, key)
    if not now.known:
        # Older drivers answer a field that they do not know with one of these two.
        if now.rc in (model.NOT_SUPPORTED, model.INVALID_ARGUMENT):
            old_driver = compare.too_old(ctx, ident, gpu, now, SINCE_BRANCH)
            if old_driver:
                return old_driver
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    finding = None
    if now.value != 0:
        name, action = ADVICE.get(
            now.value,
            ("an action newer than this collection knows: look it up in NVML's documentation of the driver", "hold"),
        )
        finding = compare.make_failure(
            action,
            "The driver asks to recover %s: %s (found %s, expected 0). Drain the node and do that."
            % (model.name_gpu(gpu), name, now.value),
        )
    return compare.make_check(ident, gpu, finding, now.value, 0, "hardware")


ROWS = (
    model.node_row(
        "gpu.count",
        check_count,
        "NVML's count of GPUs, its list and the baseline agree",
        ("snapshot.count", "snapshot.gpus"),
        "NVML nvmlDeviceGetCount_v2",
    ),
    model.node_row(
        "gpu.on_bus",
        on_the_bus,
        "Every NVIDIA GPU on the PCI bus is opened by NVML, and the other way round",
        ("audit.pci", "snapshot.gpus[].handle", "snapshot.gpus[].pci_bus_id"),
        "lspci, class 03 of vendor 10de",
    ),
    model.node_row(
        "gpu.handle",
        check_handles,
        "NVML opens each GPU",
        ("snapshot.gpus[].handle",),
        "NVML nvmlDeviceGetHandleByIndex_v2",
    ),
    model.node_row(
        "gpu.present",
        check_presence,
        "The same GPUs, by UUID, at the same PCI addresses as in the baseline",
        ("snapshot.gpus[].uuid", "snapshot.gpus[].pci_bus_id"),
        "NVML nvmlDeviceGetUUID, nvmlDeviceGetPciInfo_v3",
    ),
    model.gpu_row(
        "gpu.recovery_action",
        recovery_action,
        "The driver advises no recovery action; one that is not known fails",
        ("gpu.recovery_action", "snapshot.system.driver_version"),
        "nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    ),
)
