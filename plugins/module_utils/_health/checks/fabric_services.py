# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of what NVLink fabrics need on the node: NVSwitches, fabric manager, and IMEX where the policy asks for it."""

from __future__ import annotations

from .. import model, nodefacts, policy
from ..model import NOT_APPLICABLE
from ..nodefacts import Checks
from . import nvlink_switches
from .nvlink_switches import GUIDE, list_addresses

FABRIC_MANAGER = "nvidia-fabricmanager.service"
IMEX = "nvidia-imex.service"


def list_switches(ctx) -> tuple:
    """(addresses of the NVSwitches or None if they cannot be listed, the same of the baseline as Before)"""
    now = nodefacts.of_kind(model.item(ctx.system, "nvswitches"), list)
    old = nodefacts.read_baseline(ctx, "system", "nvswitches", kind=list)
    return None if now is None else list_addresses(now), old._replace(value=list_addresses(old.value or []))


def check_nvswitches(ctx) -> dict:
    """The same NVSwitches are on the PCI bus as in the baseline."""
    return nvlink_switches.compare_addresses(
        Checks("node.nvswitches", source="baseline"),
        *list_switches(ctx),
        "NVSwitches",
        "The NVSwitches on the PCI bus cannot be listed. Look at lspci -d 10de: on the node.",
        "There are no NVSwitches on the PCI bus.",
        "NVSwitches of the baseline are not on the PCI bus: %s. Look for SXid in the kernel log, then "
        "power-cycle the node.",
    )


def check_need(ctx, checks) -> dict | None:
    """None where a fabric manager must run on this node, else the check that says why not."""
    now, old = list_switches(ctx)
    if now is None:
        return checks.unknown(
            None,
            None,
            "Whether there are NVSwitches cannot be read, so it is not known if a fabric manager is needed. "
            "Look at lspci -d 10de: on the node.",
        )
    # Switches that left the bus do not take the need for a fabric manager with them.
    if now or old.value:
        return None
    # Those of NVLink 5 are not on the PCI bus.
    answer = nvlink_switches.check_need(ctx, checks)
    if answer and answer["status"] == NOT_APPLICABLE:
        return checks.none(
            "There are no NVSwitches on the PCI bus, and no adapter of this node manages NVLink switches."
        )
    return answer


def fabric_manager(ctx) -> dict:
    checks = Checks("node.fabric_manager", source="hardware")
    return check_need(ctx, checks) or check_running(
        ctx, checks, FABRIC_MANAGER, "fabricmanager", "Without it, CUDA does not start on GPUs behind NVSwitches."
    )


def fabric_manager_version(ctx) -> dict:
    checks = Checks("node.fabric_manager_version")
    answer = check_need(ctx, checks)
    if answer and (
        answer["status"] != NOT_APPLICABLE or model.item(ctx.system, "units", FABRIC_MANAGER, "active") != "active"
    ):
        return answer
    return same_version(ctx, checks, "fabricmanager", "The fabric manager")


def check_imex(ctx) -> dict:
    checks = Checks("node.imex")
    if not policy.find_limit(ctx, "imex_required"):
        return checks.none("The policy does not ask for IMEX (imex_required).")
    return check_running(
        ctx, checks, IMEX, "imex", "Without it, memory is not shared between the nodes of an NVLink domain."
    )


def imex_version(ctx) -> dict:
    checks = Checks("node.imex_version")
    if not policy.find_limit(ctx, "imex_required"):
        return checks.none("The policy does not ask for IMEX (imex_required).")
    return same_version(ctx, checks, "imex", "IMEX")


def check_running(ctx, checks, unit, key, why) -> dict:
    state = nodefacts.of_kind(model.item(ctx.system, "units", unit), dict) or {}
    load, active = state.get("load"), state.get("active")
    if not isinstance(load, str) or not isinstance(active, str):
        return checks.unknown(
            None, "active", "The state of %s cannot be read. Run systemctl status %s on the node." % (unit, unit)
        )
    if load == "not-found":
        return checks.fail(
            "not installed",
            "active",
            "%s is not installed. %s Install the package of the driver's version." % (unit, why),
        )
    if active != "active":
        return checks.fail(
            active, "active", "%s is %s. %s Look at systemctl status %s." % (unit, active, why, unit), "restart_service"
        )
    return checks.good(active, "active")


def same_version(ctx, checks, key, name) -> dict:
    present, version = (
        model.item(ctx.system, key, "present"),
        nodefacts.strip_package_version(model.item(ctx.system, key, "version")),
    )
    expected = nodefacts.find_driver_version(ctx)
    if present is False:
        return checks.fail(
            "not installed", expected, "%s is not installed. Install the package of the driver's version." % (name,)
        )
    if present is not True or version is None:
        return checks.unknown(
            None,
            expected,
            "The version of %s is not known. Run it with --version on the node." % (name.replace("The", "the"),),
        )
    if expected is None:
        return checks.unknown(
            version,
            None,
            "Which driver is loaded is not known, so the version of %s cannot be compared. Load the driver."
            % (name.replace("The", "the"),),
        )
    if version != expected:
        return checks.fail(
            version,
            expected,
            "%s is %s and the driver is %s; they must be the same. Install the package of the driver's version and "
            "restart the service." % (name, version, expected),
        )
    return checks.good(version, expected)


ROWS = (
    model.node_row(
        "node.nvswitches",
        check_nvswitches,
        "The NVSwitches of the baseline are on the PCI bus",
        ("system.nvswitches",),
        GUIDE,
    ),
    model.node_row(
        "node.fabric_manager",
        fabric_manager,
        "The fabric manager runs where there are NVSwitches, or NVLink 5 switches",
        ("system.nvswitches", "system.nvlink_managers", "system.units"),
        GUIDE,
    ),
    model.node_row(
        "node.fabric_manager_version",
        fabric_manager_version,
        "The fabric manager is of the driver's version",
        ("system.fabricmanager", "audit.versions.loaded"),
        GUIDE,
    ),
    model.node_row(
        "node.imex",
        check_imex,
        "IMEX runs, where the policy asks for it",
        ("system.units",),
        "NVIDIA IMEX Service guide",
    ),
    model.node_row(
        "node.imex_version",
        imex_version,
        "IMEX is of the driver's version, where the policy asks for it",
        ("system.imex", "audit.versions.loaded"),
        "NVIDIA IMEX Service guide",
    ),
)
