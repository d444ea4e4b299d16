# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking a reading and its baseline about the node around the GPUs, and the words of the checks that do."""

from __future__ import annotations

import collections

from . import model
from .model import FAIL, NODE, NOT_APPLICABLE, PASS, UNKNOWN

# given: there is a baseline; known: it holds the value.
Before = collections.namedtuple("Before", ["given", "known", "value"])
AGAIN = "Take a new baseline on a healthy node."


def of_kind(value, kind):
    """VALUE if it is of KIND (and no boolean in place of a number), else None."""
    if isinstance(value, bool) and kind is not bool:
        return None
    return value if isinstance(value, kind) else None


def read_baseline(ctx, *keys, **options):
    """Return the baseline's value at KEYS, if it is of the ``kind`` wanted."""
    value = of_kind(model.item(ctx.baseline, *keys), options.get("kind", object))
    return Before(ctx.baseline is not None, value is not None, value)


def same_boot(ctx) -> bool | None:
    """Tell if the baseline was read in this boot: True or False, None if unknown or without a baseline."""
    old, new = model.item(ctx.baseline, "boot_id"), model.item(ctx.reading, "boot_id")
    return old == new if isinstance(old, str) and isinstance(new, str) and old and new else None


def is_simulated(ctx) -> bool:
    """Tell if this is the project's simulator, as NVML reports it, or as the baseline has it if NVML does not answer
    now."""
    silent = model.item(ctx.snapshot, "nvml", "rc") is None
    return model.item(ctx.snapshot, "simulated") is True or (
        silent and model.item(ctx.baseline, "snapshot", "simulated") is True
    )


def strip_package_version(version) -> str | None:
    """The driver's own version out of a package version: 535.261.03-1~deb12u1 gives 535.261.03."""
    if not isinstance(version, str) or not version:
        return None
    return version.rpartition(":")[2].partition("-")[0]


def collect_versions(snapshot, audit) -> dict[str, str]:
    """Return the driver's version in each place that carries one, by name of the place; None where it is not known."""
    modules = model.item(audit, "versions", "modules")
    kernel = model.item(audit, "kernel")
    return {
        "nvml": strip_package_version(model.reading(model.item(snapshot, "system"), "driver_version").value),
        "loaded": strip_package_version(model.item(audit, "versions", "loaded")),
        "library": strip_package_version(model.item(audit, "versions", "library")),
        "on_disk": strip_package_version(model.item(modules, model.item(kernel, "running"), "version")),
        "next_boot": strip_package_version(model.item(modules, model.item(kernel, "next_boot"), "version")),
    }


def find_coherent_version(ctx) -> str | None:
    """Return the one version that every part of the driver has; None if two differ or one of the places is unknown."""
    found = list(collect_versions(ctx.snapshot, ctx.audit).values())
    found.append(strip_package_version(model.item(ctx.system, "libcuda", "version")))
    if model.item(ctx.system, "fabricmanager", "present"):
        found.append(strip_package_version(model.item(ctx.system, "fabricmanager", "version")))
    packages = model.item(ctx.audit, "versions", "driver_packages")
    found.extend(map(strip_package_version, packages.values()) if isinstance(packages, dict) else [None])
    return found[0] if len(set(found)) == 1 else None


def find_driver_version(ctx) -> str | None:
    """Return the version that the parts of the driver are compared with; None if none is known.

    That is the wanted version, else the loaded one. If all parts have one version and another is wanted, then the node
    was not upgraded: driver.loaded alone fails for that, and the parts are compared with each other.
    """
    loaded = strip_package_version(model.item(ctx.audit, "versions", "loaded"))
    return find_coherent_version(ctx) or strip_package_version(ctx.expected_driver) or loaded


class Checks:
    """Makes the checks of one kind: the id, the entity and where the expectation comes from are said once."""

    def __init__(self, ident, entity=NODE, source="policy") -> None:
        self.ident, self.entity, self.source = ident, entity, source

    def make(self, status, observed, expected, action, message, source=None, notice=False) -> dict:
        return model.check(
            self.ident, self.entity, status, observed, expected, source or self.source, action, message, notice=notice
        )

    def good(self, observed=None, expected=None, source=None) -> dict:
        return self.make(PASS, observed, expected, None, "", source)

    def notice(self, observed, expected, message, source=None) -> dict:
        return self.make(PASS, observed, expected, None, message, source, True)

    def fail(self, observed, expected, message, action="hold", source=None) -> dict:
        return self.make(FAIL, observed, expected, action, message, source)

    def unknown(self, observed, expected, message, source=None) -> dict:
        return self.make(UNKNOWN, observed, expected, "hold", message, source)

    def none(self, message, observed=None, source=None) -> dict:
        return self.make(NOT_APPLICABLE, observed, None, None, message, source)
