# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of what boards with NVLink 5 need on the node: adapters that manage the switches, their kernel modules, and
the NVLink Subnet Manager.
"""

from __future__ import annotations

from .. import compare, model, nodefacts
from ..nodefacts import Checks

GUIDE = "NVIDIA Fabric Manager User Guide"
MODULES = ("mlx5_core", "ib_umad")
NOT_SUPPORTED = 0
NONE_THERE = "No adapter of this node manages NVLink switches."
LOOK = "Look at the vpd files of the InfiniBand adapters below /sys/bus/pci/devices on the node, as root."


def list_addresses(listed) -> list[str]:
    return sorted(str(model.pci_address(model.item(entry, "address"))) for entry in listed)


def list_managers(ctx) -> tuple:
    """(addresses of the adapters that manage NVLink switches, or None if that is not known; the same of the baseline as
    Before)
    """
    found = nodefacts.of_kind(model.item(ctx.system, "nvlink_managers", "found"), list)
    unread = nodefacts.of_kind(model.item(ctx.system, "nvlink_managers", "unread"), list)
    old = nodefacts.read_baseline(ctx, "system", "nvlink_managers", "found", kind=list)
    known = found is not None and unread is not None and (found or not unread or without_fabric(ctx))
    return list_addresses(found) if known else None, old._replace(value=list_addresses(old.value or []))


def without_fabric(ctx) -> bool:
    """Tell if every GPU reports that it has no NVLink fabric: an adapter of unknown kind can then not manage one."""
    gpus = nodefacts.of_kind(model.item(ctx.snapshot, "gpus"), list) or []
    return bool(gpus) and all(_has_no_fabric(gpu) for gpu in gpus)


def _has_no_fabric(gpu) -> bool:
    now = compare.read_typed(gpu, "fabric", dict)
    return compare.part(now.value, "state", int) == NOT_SUPPORTED if now.known else now.rc in model.ABSENT


def check_need(ctx, checks) -> dict | None:
    """None where NVLink switches are managed from this node, else the check that says why not."""
    now, old = list_managers(ctx)
    if now is None:
        return checks.unknown(
            None, None, "Whether adapters of this node manage NVLink switches cannot be read. %s" % (LOOK,)
        )
    # Adapters that left the bus do not take with them what they needed.
    return None if now or old.value else checks.none(NONE_THERE)


def compare_addresses(checks, now, old, things, unread, none, lost_step) -> dict:
    """Return the check that what was on the PCI bus in the baseline is there.

    Args:
        checks: The maker of the check.
        now: The addresses, None if they cannot be listed.
        old: Those of the baseline, as Before.
        things: What is compared, for the message.
        unread: Why NOW is not known, and what to do.
        none: The message where there never were any.
        lost_step: What is wrong if addresses are gone, with a place for them, and what to do.
    """
    if now is None:
        return checks.unknown(None, old.value or None, unread)
    if not old.given:
        return checks.none("There is no baseline to compare the %s with." % (things,), now)
    if not old.known:
        return checks.unknown(now, None, "The baseline does not have the %s. %s" % (things, nodefacts.AGAIN))
    if not now and not old.value:
        return checks.none(none, [])
    lost = [address for address in old.value if address not in now]
    if lost:
        return checks.fail(now, old.value, lost_step % (", ".join(lost),))
    return checks.good(now, old.value)


def check_presence(ctx) -> dict:
    """The adapters of the baseline are on the PCI bus, and still manage NVLink switches."""
    return compare_addresses(
        Checks("node.nvlink_managers", source="baseline"),
        *list_managers(ctx),
        "adapters that manage NVLink switches",
        "Whether adapters of this node manage NVLink switches cannot be read. %s" % (LOOK,),
        NONE_THERE,
        "Adapters that managed NVLink switches in the baseline are gone from the PCI bus, or no longer say that "
        "they do: %s. Look for mlx5_core in the kernel log, then power-cycle the node.",
    )


def kernel_modules(ctx) -> dict:
    """The kernel modules are loaded through which the switches are managed."""
    checks = Checks("node.nvlink_modules", source="hardware")
    answer = check_need(ctx, checks)
    if answer:
        return answer
    loaded = nodefacts.of_kind(model.item(ctx.system, "modules"), list)
    if loaded is None:
        return checks.unknown(
            None,
            list(MODULES),
            "The loaded kernel modules cannot be listed, and the NVLink switches need %s. Look at lsmod on the node."
            % (" and ".join(MODULES),),
        )
    missing = [name for name in MODULES if name not in loaded]
    if missing:
        return checks.fail(
            [name for name in MODULES if name in loaded],
            list(MODULES),
            (
                "The kernel modules %s are not loaded; without them the NVLink switches are not managed, and CUDA does "
                "not start. Load them with modprobe and restart nvidia-fabricmanager.service."
            )
            % (", ".join(missing),),
            "restart_service",
        )
    return checks.good(list(MODULES), list(MODULES))


def subnet_manager(ctx) -> dict:
    """The NVLink Subnet Manager runs where NVLink switches are managed."""
    checks = Checks("node.nvlsm", source="hardware")
    answer = check_need(ctx, checks)
    if answer:
        return answer
    there, runs = (nodefacts.of_kind(model.item(ctx.system, "nvlsm", key), bool) for key in ("present", "running"))
    if runs:
        return checks.good("running", "running")
    if there is False and runs is False:
        return checks.fail(
            "not installed",
            "running",
            "The NVLink Subnet Manager (nvlsm) is not installed; without it the NVLink switches have no routes. "
            "Install the package nvlsm, and restart nvidia-fabricmanager.service, which starts it.",
        )
    if runs is None:
        return checks.unknown(
            None,
            "running",
            "Whether the NVLink Subnet Manager (nvlsm) runs cannot be read. Look at pgrep -a nvlsm on the node.",
        )
    return checks.fail(
        "not running",
        "running",
        "The NVLink Subnet Manager (nvlsm) does not run; without it the NVLink switches have no routes. "
        "Restart nvidia-fabricmanager.service, which starts it, and look at its log.",
        "restart_service",
    )


ROWS = (
    model.node_row(
        "node.nvlink_managers",
        check_presence,
        "The adapters of the baseline that manage NVLink 5 switches are there",
        ("system.nvlink_managers",),
        GUIDE,
    ),
    model.node_row(
        "node.nvlink_modules",
        kernel_modules,
        "mlx5_core and ib_umad are loaded where NVLink 5 switches are managed",
        ("system.nvlink_managers", "system.modules"),
        GUIDE,
    ),
    model.node_row(
        "node.nvlsm",
        subnet_manager,
        "The NVLink Subnet Manager runs where NVLink 5 switches are managed",
        ("system.nvlink_managers", "system.nvlsm"),
        GUIDE,
    ),
)
