# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that all sources of the driver's version show the same version, and the wanted one."""

from __future__ import annotations

import collections
import functools

from ..._kernel.modules import made_for
from .. import model, nodefacts
from ..model import FAIL
from ..nodefacts import Checks, strip_package_version
from . import driver_files

# place: (what it is, action and what to do if it is another version; title, what is read, numbers of the check)
PLACES = {
    "nvml": (
        "the driver that NVML talks to",
        "reboot",
        "Reload the driver or reboot.",
        "NVML talks to the wanted driver",
        ("snapshot.system.driver_version",),
    ),
    "loaded": (
        "the loaded kernel module",
        "reboot",
        "Reload the driver or reboot.",
        "The loaded kernel module is that of the wanted driver",
        ("audit.versions.loaded", "audit.findings"),
    ),
    "library": (
        "the installed library libnvidia-ml",
        "hold",
        "Install the userland packages of the wanted version.",
        "The installed userland is that of the wanted driver",
        ("audit.versions.library",),
    ),
    "on_disk": (
        "the kernel module on disk for the running kernel",
        "hold",
        "Build and install the module (dkms status).",
        "The module on disk for the running kernel is that of the wanted driver",
        ("audit.kernel.running", "audit.versions.modules"),
    ),
    "next_boot": (
        "the kernel module on disk for the kernel that boots next",
        "hold",
        "Do not reboot before the module is there (dkms status).",
        "The module on disk for the kernel that boots next is that of the wanted driver",
        ("audit.kernel.next_boot", "audit.versions.modules"),
    ),
}


def check_place(ctx, where) -> dict:
    """The version in one place."""
    what, action, step, title, read = PLACES[where]
    version = nodefacts.collect_versions(ctx.snapshot, ctx.audit)[where]
    wanted = strip_package_version(ctx.expected_driver)
    expected = nodefacts.find_driver_version(ctx)
    ident = "driver." + where
    checks = Checks(ident)
    wrong = explain_absence(ctx, where)
    if wrong:
        return checks.fail(version, expected, "%s %s" % (wrong, step), action, source="hardware")
    if version is None:
        return checks.unknown(
            None, expected, "The version of %s is not known: it is not there, or cannot be read. %s" % (what, step)
        )
    if expected is None:
        return checks.unknown(
            version,
            None,
            "Which driver is loaded is not known, so %s %s cannot be compared. Load the driver." % (what, version),
        )
    if where == "loaded" and wanted not in (None, version) and expected == version:
        return checks.fail(
            version,
            wanted,
            "The node runs driver %s, all of it coherent; %s is wanted. Upgrade the node "
            "(playbook gpufleet.lifecycle.upgrade), or correct the wanted version." % (version, wanted),
            "hold",
        )
    if version != expected:
        why = "wanted" if wanted else "loaded"
        return checks.fail(
            version,
            expected,
            "%s is %s; expected %s, the %s version. %s" % (what[0].upper() + what[1:], version, expected, why, step),
            action,
        )
    return checks.good(version, expected)


def explain_absence(ctx, where) -> str:
    """Return why a source has no version that can be read, or nothing that loads; "" if it has one, or if that is
    unknown.
    """
    if where == "loaded":
        known = (
            model.item(ctx.audit, "versions", "loaded") is None
            and driver_files.find_audit_finding(ctx, "loaded_version").get("status") == FAIL
        )
        return "The NVIDIA kernel module is not loaded." if known else ""
    if where not in ("on_disk", "next_boot"):
        return ""
    kernel = model.item(ctx.audit, "kernel", "running" if where == "on_disk" else "next_boot")
    modules = model.item(ctx.audit, "versions", "modules")
    if not isinstance(modules, dict) or not isinstance(kernel, str) or kernel not in modules:
        return ""
    if modules[kernel] is None:
        return "There is no NVIDIA kernel module on disk for kernel %s." % (kernel,)
    magic = model.item(modules, kernel, "vermagic")
    if isinstance(magic, str) and magic and not made_for(kernel, modules[kernel]):
        return "The kernel module %s was made for kernel %s, not for %s: it does not load." % (
            model.item(modules, kernel, "path"),
            magic.split(" ", 1)[0],
            kernel,
        )
    return ""


def check_packages(ctx) -> dict:
    """Every installed package of the driver is of its version."""
    ident = "driver.packages"
    checks = Checks(ident)
    found = model.item(ctx.audit, "versions", "driver_packages")
    expected = nodefacts.find_driver_version(ctx)
    old = model.item(ctx.baseline, "audit", "versions", "driver_packages")
    if not isinstance(found, dict):
        return checks.unknown(
            None, expected, "The installed packages of the driver cannot be listed. Run dpkg -l '*nvidia*' on the node."
        )
    if not found:
        if isinstance(old, dict) and old:
            return checks.fail(
                {},
                sorted(old),
                "The driver was installed from packages in the baseline, and none is "
                "there now. Install the driver's packages.",
                source="baseline",
            )
        return checks.none("The driver was not installed from packages.", {})
    if expected is None:
        return checks.unknown(
            found, None, "Which driver is loaded is not known, so its packages cannot be compared. Load it."
        )
    odd = sorted(
        "%s %s" % (name, version) for name, version in found.items() if strip_package_version(version) != expected
    )
    if odd:
        return checks.fail(
            odd,
            expected,
            "Packages of the driver are not %s: %s. Install one coherent set, then reload "
            "the driver or reboot." % (expected, ", ".join(odd[:10])),
        )
    return checks.good(len(found), expected)


def check_agreement(ctx) -> dict:
    """Everything that carries the driver's version carries the same one; the message names the odd ones."""
    ident = "driver.versions_agree"
    checks = Checks(ident)
    places = nodefacts.collect_versions(ctx.snapshot, ctx.audit)
    found = dict((PLACES[where][0], version) for where, version in places.items())
    found["libcuda"] = strip_package_version(model.item(ctx.system, "libcuda", "version"))
    if model.item(ctx.system, "fabricmanager", "present"):
        found["the fabric manager"] = strip_package_version(model.item(ctx.system, "fabricmanager", "version"))
    known = dict((what, version) for what, version in found.items() if version is not None)
    wanted = nodefacts.find_coherent_version(ctx) or strip_package_version(ctx.expected_driver)
    common = wanted or (collections.Counter(sorted(known.values())).most_common(1)[0][0] if known else None)
    odd = sorted("%s is %s" % (what, version) for what, version in known.items() if version != common)
    if odd:
        return checks.fail(
            known,
            common,
            "Not every part of the driver is %s: %s. Install one coherent set, then reload "
            "the driver or reboot." % (common, "; ".join(odd)),
        )
    unread = sorted(set(found) - set(known))
    if unread:
        return checks.unknown(
            known,
            common,
            "These versions are not known: %s. Install "
            "what is missing, then read the node again as root." % ("; ".join(unread),),
        )
    return checks.good(known, common)


ROWS = tuple(
    model.node_row("driver." + where, functools.partial(check_place, where=where), title, read, "this collection")
    for where, (what, action, step, title, read) in PLACES.items()
) + (
    model.node_row(
        "driver.packages",
        check_packages,
        "Every installed package of the driver is of the wanted version",
        ("audit.versions.driver_packages",),
        "this collection",
    ),
    model.node_row(
        "driver.versions_agree",
        check_agreement,
        "Every part that carries the driver's version carries the same one",
        ("snapshot.system.driver_version", "audit.versions", "system.libcuda", "system.fabricmanager"),
        "this collection",
    ),
)
