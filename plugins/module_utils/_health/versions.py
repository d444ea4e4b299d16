# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether every place that shows the driver's version shows the same one, and the wanted one.

Private to the collection: it may change at any time.
"""

from __future__ import annotations

from . import model
from .model import FAIL, NODE, PASS, UNKNOWN

# place: (what it is, what to do if it is another version)
PLACES = {
    "nvml": ("the driver that NVML talks to", "reboot", "Reload the driver or reboot."),
    "loaded": ("the loaded kernel module", "reboot", "Reload the driver or reboot."),
    "library": ("the installed library libnvidia-ml", "hold", "Install the userland packages of the wanted version."),
    "on_disk": ("the kernel module on disk for the running kernel", "hold", "Build and install the module (dkms status)."),
    "next_boot": ("the kernel module on disk for the kernel that boots next", "hold", "Do not reboot before the module is there (dkms status)."),
}


def upstream(version):
    """The driver's own version out of a package version: 535.261.03-1~deb12u1 gives 535.261.03."""
    if not isinstance(version, str) or not version:
        return None
    return version.rpartition(":")[2].partition("-")[0]


def seen(snapshot, audit):
    """The version in every place; None where it is not known."""
    modules = model.item(audit, "versions", "modules")
    kernel = model.item(audit, "kernel")
    return {
        "nvml": upstream(model.reading(model.item(snapshot, "system"), "driver_version").value),
        "loaded": upstream(model.item(audit, "versions", "loaded")),
        "library": upstream(model.item(audit, "versions", "library")),
        "on_disk": upstream(model.item(modules, model.item(kernel, "running"), "version")),
        "next_boot": upstream(model.item(modules, model.item(kernel, "next_boot"), "version")),
    }


def checks(ctx):
    versions = seen(ctx.snapshot, ctx.audit)
    wanted = upstream(ctx.expected_driver)
    expected = wanted or versions["loaded"]
    result = []
    for place, (what, action, step) in PLACES.items():
        version = versions[place]
        ident = "driver." + place
        if version is None:
            result.append(model.check(ident, NODE, UNKNOWN, None, expected, "policy", "hold",
                                      "The version of %s is not known: it is not there, or cannot be read. %s" % (what, step)))
        elif expected is None:
            result.append(model.check(ident, NODE, UNKNOWN, version, None, "policy", "hold",
                                      "Which driver is loaded is not known, so %s %s cannot be compared. Load the driver." % (what, version)))
        elif version != expected:
            why = "wanted" if wanted else "loaded"
            result.append(model.check(ident, NODE, FAIL, version, expected, "policy", action,
                                      "%s is %s; expected %s, the %s version. %s" % (what[0].upper() + what[1:], version, expected, why, step)))
        else:
            result.append(model.check(ident, NODE, PASS, version, expected, "policy"))
    return result
